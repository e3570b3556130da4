"""Commands whose standard input is closed (`<&-`), as some services leave it: one sentence, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NOWHERE = {"SLUICE_SERVER": "http://127.0.0.1:1", "SLUICE_TOKEN": "t"}

LINES = (
    "apply -f -",
    "delete -f -",
    "diff -f -",
    "submit -q main --dry-run -f -",
    "simulate -",
    "import - --database-url=sqlite:///new.db",
    "import volcano -f -",
    "import kueue -f -",
)

# One interpreter for all commands: without standard input from its start, and with what they import in common.
RUN_ALL = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from admission.cli.main import main

ended = {}
for line in sys.argv[1:]:
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            main(line.split(), prog_name="sluice")
        except SystemExit as end:
            ended[line] = [end.code, output.getvalue(), errors.getvalue()]
print(json.dumps(ended))
"""


@pytest.mark.costly
def test_commands_that_read_standard_input_report_that_it_is_closed(tmp_path):
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, "-c", RUN_ALL, *LINES],
        cwd=tmp_path,
        env=os.environ | NOWHERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    message = "error: standard input is closed; name a file instead of -, or redirect the input\n"
    assert json.loads(done.stdout) == {line: [2, "", message] for line in LINES}
