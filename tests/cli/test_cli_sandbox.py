"""`sluice sandbox` as a process: its kubeconfig, its end by a signal, and errors."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sluice_server

COLD = (sys.executable, "-m", "admission.cli.main")
"""`sluice` as its users start it; `python -m` imports the modules of this checkout."""
WARM = (str(sluice_server.COMMAND),)
"""The same forked from the server of `warm_sluice`, which passes SIGINT and SIGTERM on."""


def start(command: tuple[str, ...], *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "sandbox", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kubeconfig_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("export KUBECONFIG="), process.communicate()
    return Path(shlex.split(line)[1].removeprefix("KUBECONFIG="))


@pytest.mark.costly
@pytest.mark.parametrize(("number", "command"), [(signal.SIGTERM, WARM), (signal.SIGINT, COLD)], ids=["TERM", "INT"])
def test_sandbox_prints_its_kubeconfig_and_ends_on_a_signal(tmp_path, warm_sluice, number, command):
    folder = str(tmp_path / "a b")
    process = start(command, "--directory", folder, "--nodes", "2", "--no-controllers", **warm_sluice)
    try:
        kubeconfig = kubeconfig_of(process)
        assert kubeconfig == tmp_path / "a b" / "kubeconfig"
        assert kubeconfig.stat().st_mode & 0o077 == 0
        assert (tmp_path / "a b" / "sluice.kubeconfig").exists()
        kubectl = shutil.which("kubectl")
        assert kubectl, "kubectl is not in PATH; install it"
        listed = subprocess.run(
            [kubectl, "get", "nodes", "-o", "name"],
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        assert listed.stdout.splitlines() == ["node/node-0", "node/node-1"]
    finally:
        process.send_signal(number)
        output, errors = process.communicate(timeout=240)
    assert (process.returncode, output, errors) == (0, "", "")


def test_sandbox_without_a_directory_removes_its_files_at_the_end(warm_sluice):
    process = start(WARM, "--nodes", "0", "--no-controllers", **warm_sluice)
    kubeconfig = kubeconfig_of(process)
    assert kubeconfig.exists()
    process.terminate()
    process.communicate(timeout=240)
    assert not kubeconfig.parent.exists()


def test_directory_of_a_running_sandbox_is_refused_to_another_one(tmp_path, warm_sluice):
    arguments = ("--directory", str(tmp_path), "--nodes", "0", "--no-controllers")
    running = start(WARM, *arguments, **warm_sluice)
    try:
        before = kubeconfig_of(running).read_bytes()
        second = start(WARM, *arguments, **warm_sluice)
        output, errors = second.communicate(timeout=240)
        assert (second.returncode, output) == (1, "")
        assert errors.startswith(f"error: another sandbox uses the directory {tmp_path}"), errors
        assert (tmp_path / "kubeconfig").read_bytes() == before
    finally:
        running.terminate()
        running.communicate(timeout=240)
    assert list(tmp_path.iterdir()) == [], "who waits for the next one would take these files for its own"


def test_kubeconfig_of_an_earlier_sandbox_is_gone_before_the_next_one_serves(tmp_path, warm_sluice):
    (tmp_path / "kubeconfig").write_text("of a cluster that is gone")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(WARM, "--directory", str(tmp_path), "--port", str(taken.getsockname()[1]), **warm_sluice)
        process.communicate(timeout=240)
    assert process.returncode == 1
    assert not (tmp_path / "kubeconfig").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--speed", "0"], 2, "--speed"),
        (["--nodes", "-1"], 2, "--nodes"),
        (["--port", "65536"], 2, "--port"),
        (["--topology", "4x0"], 2, '--topology: "4x0" is not BLOCKSxRACKSxNODES'),
        (["--directory", "/dev/null/x"], 1, "error: the directory /dev/null/x cannot be created"),
    ],
)
def test_invalid_sandbox_arguments_are_reported(warm_sluice, arguments, code, says):
    process = start(WARM, *arguments, **warm_sluice)
    output, errors = process.communicate(timeout=240)
    assert (process.returncode, output) == (code, "")
    assert says in errors
    assert "Traceback" not in errors
