"""Runs `sluice` for shells and demos, in processes forked from one that has imported it; the argument is a path.

To import it takes 0.3 to 1.5 s of processor time, pages of the documentation have hundreds of commands, and a demo is
three processes. A shell's `sluice` (the script `warm_sluice` beside this file) sends its arguments, directory,
environment, streams and the descriptors that it was given to the socket at the path, and ends as the process does that
is forked for it. `forking.py` has a server of its own, for the processes that `sluice serve` starts.
`test_readme.py`, `test_getting_started.py` and some of `test_demo_run.py` start the command that is installed.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from admission.cli.main import _COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMAND = Path(__file__).with_name("warm_sluice")
"""The script; it finds the server by `WARM_SLUICE` in its environment."""


@contextmanager
def running_server(place: Path) -> Iterator[None]:
    """A server at that path, for the time of the block."""
    with subprocess.Popen((sys.executable, __file__, str(place)), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.terminate()


def prepare() -> None:
    """Import what `sluice` imports for any of its commands."""
    # The last two: what `sluice demo` and `sluice sandbox` import only when they run.
    for module in [
        *(command.module for command in _COMMANDS.values()),
        "admission.cli.demo.run",
        "admission.sandbox.main",
    ]:
        with suppress(ModuleNotFoundError):
            import_module(module)
    gc.freeze()


def serve(listening: socket.socket, *, unused: int | None = None) -> None:
    """Fork a process for each command, which runs it.

    Returns in the processes of commands, when they have ended; and in this one when `unused`, a descriptor, can be
    read; without it, never.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    waited = [listening] if unused is None else [listening, unused]
    while unused not in select.select(waited, [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(connection)
            return
        connection.close()


def _answer(connection: socket.socket) -> None:
    """Run the command in a process that has all as its shell has it."""
    length, sent, _, _ = socket.recv_fds(connection, 4, 64)
    with connection.makefile("rb") as reading:
        module, arguments, directory, environment, numbers = json.loads(reading.read(int.from_bytes(length, "big")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A shell has what it runs in the background ignore interrupts, and these tests may be that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if pid := os.fork():
        for descriptor in sent:
            os.close(descriptor)
        _watch(connection, pid)
    connection.close()
    _put(sent, [0, 1, 2, *numbers])
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["sluice", *arguments]
    if arguments[:1] == ["demo"]:
        sys.executable = str(COMMAND)  # its children are forked, too
    import_module(module).main()


def _put(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Move descriptors to these numbers, some of which may be those of others among them."""
    beyond = max(numbers) + 1
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(aside, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _watch(connection: socket.socket, pid: int) -> None:
    """Tell how it ends; it is killed with its shell."""
    connection.sendall(pid.to_bytes(4, "big"))
    ended = os.pidfd_open(pid)
    readable, _, _ = select.select([connection, ended], [], [])
    if ended not in readable:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):
        connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


if __name__ == "__main__":
    prepare()
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(sys.argv[1])
        waiting.listen(64)
        print("ready", flush=True)
        serve(waiting)
