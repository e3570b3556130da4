"""The table of docs/kinds.md: what became of each way around, for each kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.ways.moves import RUNNING, WAITING
from tests.ways.objects import CASES
from tests.ways.play import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "kinds.md"
BEGIN, END = "<!-- ways: begin -->", "<!-- ways: end -->"
WAYS = {**WAITING, **RUNNING}
_LETTERS = {word: word[0].upper() for word in WORDS}


def rendered(found: Mapping[tuple[str, str], str]) -> str:
    """The list of ways, and a row for each kind. `found`: words by name of the kind and way."""
    lines = [f"- **{_LETTERS[word]}**, {word}: {text}." for word, text in WORDS.items()]
    lines += ["", "| way | a user |", "| --- | --- |"]
    for number, (way, play) in enumerate(WAYS.items(), start=1):
        text = " ".join((play.__doc__ or "").split())
        when = "while it waits: " if way in WAITING else ""
        lines.append(f"| {number} {way} | {when}{text[0].lower()}{text[1:].rstrip('.')} |")
    head = " | ".join(str(number) for number in range(1, len(WAYS) + 1))
    lines += ["", f"| kind | {head} |", f"| --- |{' --- |' * len(WAYS)}"]
    for case in CASES:
        words = " | ".join(_LETTERS[found[case.name, way]] for way in WAYS)
        lines.append(f"| {case.name} | {words} |")
    return "\n".join(lines)


def recorded() -> dict[tuple[str, str], str]:
    """What the page says, in words."""
    page = PAGE.read_text()
    rows = page[page.index(BEGIN) : page.index(END)].splitlines()
    names = {case.name for case in CASES}
    words = {letter: word for word, letter in _LETTERS.items()}
    found = {}
    for row in rows:
        first, *letters = [part.strip() for part in row.strip("|").split("|")]
        if first in names:
            found |= {(first, way): words[letter] for way, letter in zip(WAYS, letters, strict=True)}
    return found


def write(found: Mapping[tuple[str, str], str]) -> None:
    """Put it into the page."""
    page = PAGE.read_text()
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    PAGE.write_text(f"{before}\n{rendered(found)}\n{after}")
