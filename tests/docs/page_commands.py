"""Blocks of commands on pages of the documentation, and the reasons why some are not run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
_PROGRAMS = "sluice|kubectl|helm|make|kind|podman|python|pytest"
_COMMAND = re.compile(rf"^(?:\$ )?(?:{_PROGRAMS}) ")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<why>not run|run by): (?P<reason>[^\n]*) -->\n+)?"
    r"(?:```(?P<language>\w*)[^\n]*\n(?P<fenced>.*?)^```|(?P<indented>(?:^ {4}[^\n]*\n|^\n(?= {4}))+))",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """Commands as a bash script; `not_run` is why they are not run, `run_by` the test that runs them instead."""

    script: str
    not_run: str = ""
    run_by: str = ""


def blocks(text: str) -> list[Block]:
    """Return the blocks with commands of the programs in `_PROGRAMS`."""
    found = []
    for match in _BLOCK.finditer(text):
        content = match["fenced"] if match["indented"] is None else dedent(match["indented"])
        lines = content.splitlines()
        shown = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        is_script = match["language"] in (None, "sh", "console") and any(_COMMAND.match(line) for line in lines)
        if is_script:
            why = {match["why"]: match["reason"] or ""}
            script = "\n".join(shown or lines)
            found.append(Block(script + "\n", not_run=why.get("not run", ""), run_by=why.get("run by", "")))
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))
