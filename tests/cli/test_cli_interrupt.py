"""Ctrl-C while the command is imported, and once it has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

STUCK = "import os, sys\nprint('importing', flush=True)\nsys.stdin.readline()\nos._exit(7)\n"
"""A module whose import waits for a line on standard input."""


def interrupt(module: str, folder: Path, *arguments: str, ignored: bool = False) -> tuple[int, str]:
    """Send SIGINT while the command imports `module`; return its exit code and stderr."""
    (folder / f"{module}.py").write_text(STUCK)
    handling = "SIG_IGN" if ignored else "default_int_handler"  # whatever runs the tests may have it ignored
    code = f"import signal, admission.cli.__main__ as start; signal.signal(2, signal.{handling}); start.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate("\n" if ignored else None)
    return process.returncode, err


def test_the_command_starts_where_these_tests_start_it():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["sluice"] == "admission.cli.__main__:main"


@pytest.mark.parametrize(
    ("module", "arguments"), [("platform", ["--help"]), ("click", []), ("yaml", ["apply", "-f", "-"])]
)
def test_interrupt_during_imports_ends_quietly(tmp_path, module, arguments):
    assert interrupt(module, tmp_path, *arguments) == (-signal.SIGINT, "")  # 130 for a shell


def test_interrupt_of_a_command_that_has_begun_aborts_it(tmp_path):
    assert interrupt("sqlalchemy", tmp_path, "version") == (1, "\nAborted!\n")


def test_interrupt_stays_ignored_in_the_background_of_a_shell(tmp_path):
    assert interrupt("click", tmp_path, ignored=True) == (7, "")
