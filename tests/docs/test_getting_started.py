"""The first part of `docs/getting-started.md`, executed literally: each command prints the documented output."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

from tests import sluice_server
from tests.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"
END = "==== end of the output of a command ===="


def _blocks(text: str) -> list[tuple[str, str, str]]:
    """Return (language, title, content) of each fenced block."""
    found = re.findall(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    return [(language, title, content) for language, title, content in found]


def _steps(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with its documented output lines."""
    steps: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def _output_matches(expected: list[str], printed: list[str]) -> bool:
    """Return whether the output is as documented: `...` matches any rest of a line, or alone any lines."""
    if expected and expected[-1] == "...":
        expected, printed = expected[:-1], printed[: len(expected) - 1]
    return len(expected) == len(printed) and all(
        fnmatch.fnmatchcase(" ".join(line.split()), " ".join(wanted.split()).replace("[", "[[]").replace("...", "*"))
        for wanted, line in zip(expected, printed, strict=True)
    )


@pytest.mark.costly
@pytest.mark.timeout(600)
def test_getting_started_commands_print_the_documented_output(tmp_path, warm_sluice):
    text = PAGE.read_text().split("## On a kind cluster")[0]
    api, gate = free_port(), free_port()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "sluice").symlink_to(sluice_server.COMMAND)
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'home'}:{warm_sluice['PATH']}",
        "WARM_SLUICE": warm_sluice["WARM_SLUICE"],
        "SLUICE_API_ADDRESS": f"127.0.0.1:{api}",
        "SLUICE_WEBHOOK_ADDRESS": f"127.0.0.1:{gate}",
        "SLUICE_SERVER": f"http://127.0.0.1:{api}",
    }
    steps: list[tuple[str, list[str]]] = []
    for language, title, content in _blocks(text):
        if title:
            (tmp_path / title).write_text(content)
        elif language == "console":
            steps += _steps(content.replace("8080", str(api)).replace("9443", str(gate)))
    script = "".join(f"{command}\necho; echo '{END}'\n" for command, _ in steps) + "kill $(jobs -p); wait\n"
    run = subprocess.run(
        ["bash"], input=script, cwd=tmp_path, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    outputs = run.stdout.split(END)
    assert len(outputs) == len(steps) + 1, run.stdout
    for (command, expected), output in zip(steps, outputs, strict=False):
        printed = [line for line in output.splitlines() if line.strip()]
        assert _output_matches(expected, printed), f"$ {command}\n{output}\n(the page says {expected})"
