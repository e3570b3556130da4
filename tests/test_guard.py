"""What a test run leaves behind: nothing, however it ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

RUN = """
import os, subprocess, tempfile, time

def test_that_leaves_processes_and_files():
    tempfile.mkstemp()
    with open({left!r}, "w") as left:
        # A daemon, as PostgreSQL is, that ignores signals and is stopped; and a process with a session of its own.
        daemon = "trap '' {ignored}; kill -STOP $$; while :; do sleep 1000; done"
        subprocess.run(["sh", "-c", 'setsid sh -c "$0" &', daemon], stdout=left)
        subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=left)
        print(os.getpid(), tempfile.gettempdir(), file=left, flush=True)
    assert {passes}
    time.sleep({seconds})
"""
GUARD, INNER_GUARD, PYTEST, WORKER = "guard", "inner guard", "pytest", "worker"
"""Processes of a run, each the parent of the next."""


def _restore_sigint() -> None:
    # A shell makes its background processes ignore SIGINT, and these tests may run in the background.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("killed", "number", "code"),
    [
        pytest.param(None, None, 0, id="passes", marks=pytest.mark.long),
        pytest.param(None, None, 1, id="fails"),
        pytest.param(GUARD, signal.SIGTERM, 128 + signal.SIGTERM, marks=pytest.mark.long),
        (GUARD, signal.SIGKILL, -signal.SIGKILL),
        pytest.param(INNER_GUARD, signal.SIGKILL, 128 + signal.SIGKILL, marks=pytest.mark.long),
        (PYTEST, signal.SIGKILL, 128 + signal.SIGKILL),
        pytest.param(WORKER, signal.SIGKILL, 1, marks=pytest.mark.long),
        pytest.param("terminal", signal.SIGINT, 2, id="Ctrl-C"),
    ],
)
def test_a_run_leaves_nothing_behind(tmp_path, killed, number, code):
    left = tmp_path / "left"
    os.mkfifo(left)
    run = tmp_path / "test_run.py"
    ends = killed is None
    ignored = "TERM HUP INT" if ends else "HUP INT"  # the former wait for SIGKILL
    text = RUN.format(left=str(left), ignored=ignored, passes=not ends or code == 0, seconds=0 if ends else 1000)
    run.write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TMPDIR"))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.guard", "-c", os.devnull, run]
    if killed == WORKER:
        command += ["-p", "xdist", "-n", "1"]
    terminal, end = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", *command],
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment,
        cwd=Path(__file__).parents[1],
        preexec_fn=_restore_sigint,
    ) as process:
        os.close(end)
        with left.open() as reading:
            tests, temporary = reading.readline().split()
            chain = [int(tests)]
            while chain[0] != process.pid:
                chain.insert(0, parent(chain[0]))
            if killed == "terminal":
                os.write(terminal, b"\3")
            elif not ends:
                os.kill(chain[[GUARD, INNER_GUARD, PYTEST, WORKER].index(killed)], number)
            assert reading.read() == ""  # the end of a stream that no process has open any more
        assert process.wait() == code
    with suppress(OSError), open(terminal, "rb") as output:  # it fails at its end: the guards have ended, too
        while output.read1():
            pass
    assert not temporary.startswith("/dev/shm/") or not Path(temporary).exists()
