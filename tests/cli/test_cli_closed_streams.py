"""Commands whose standard input is closed (`<&-`), as some services leave it: one sentence, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SLUICE = str(Path(sys.executable).with_name("sluice"))
NOWHERE = {"SLUICE_SERVER": "http://127.0.0.1:1", "SLUICE_TOKEN": "t"}


@pytest.mark.parametrize(
    "line",
    [
        "apply -f -",
        "delete -f -",
        "diff -f -",
        "submit -q main --dry-run -f -",
        "simulate -",
        "import - --database-url=sqlite:///new.db",
        "import volcano -f -",
        "import kueue -f -",
    ],
)
def test_command_that_reads_standard_input_reports_that_it_is_closed(tmp_path: Path, line: str):
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', SLUICE, *line.split()],
        cwd=tmp_path,
        env=os.environ | NOWHERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: standard input is closed; name a file instead of -, or redirect the input\n"
