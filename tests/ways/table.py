"""The table of docs/kinds/tests.md: the result of each way for each kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.ways.moves import RUNNING, WAITING
from tests.ways.objects import CASES
from tests.ways.play import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "kinds" / "tests.md"
BEGIN, END = "<!-- ways: begin -->", "<!-- ways: end -->"
WAYS = {**WAITING, **RUNNING}
WITH_POLICIES = ("<!-- ways with policies: begin -->", "<!-- ways with policies: end -->")
_LETTERS = {word: word[0].upper() for word in WORDS}
_SAME = "\u00b7"
"""Mark in the table for policies: same result as with webhooks."""


def rendered(found: Mapping[tuple[str, str], str]) -> str:
    """Return the lists of results and ways, and a row for each kind; `found`: results by (name of the kind, way)."""
    lines = [f"- **{_LETTERS[word]}**, {word}: {text}." for word, text in WORDS.items()]
    lines += ["", "| way | a user tries to |", "| --- | --- |"]
    for number, (way, play) in enumerate(WAYS.items(), start=1):
        text = " ".join((play.__doc__ or "").split())
        when = "while it waits: " if way in WAITING else ""
        lines.append(f"| {number} {way} | {when}{text[0].lower()}{text[1:].rstrip('.')} |")
    return "\n".join([*lines, "", *_rows(found)])


def rendered_with_policies(found: Mapping[tuple[str, str], str]) -> str:
    """Return the rows of kinds with results that differ from those with webhooks."""
    base = recorded()
    differing = {key: word for key, word in found.items() if word != base[key]}
    return "\n".join(_rows(differing))


def _rows(found: Mapping[tuple[str, str], str]) -> list[str]:
    head = " | ".join(str(number) for number in range(1, len(WAYS) + 1))
    lines = [f"| kind | {head} |", f"| --- |{' --- |' * len(WAYS)}"]
    for case in CASES:
        words = [found.get((case.name, way)) for way in WAYS]
        if any(words):
            lines.append(f"| {case.name} | {' | '.join(_LETTERS[word] if word else _SAME for word in words)} |")
    return lines


def recorded(*, policies: bool = False) -> dict[tuple[str, str], str]:
    """Return the results in the page."""
    found = _read(BEGIN, END)
    return found | _read(*WITH_POLICIES) if policies else found


def _read(begin: str, end: str) -> dict[tuple[str, str], str]:
    page = PAGE.read_text()
    rows = page[page.index(begin) : page.index(end)].splitlines()
    names = {case.name for case in CASES}
    words = {letter: word for word, letter in _LETTERS.items()}
    found = {}
    for row in rows:
        first, *letters = [part.strip() for part in row.strip("|").split("|")]
        if first in names:
            of_kind = zip(WAYS, letters, strict=True)
            found |= {(first, way): words[letter] for way, letter in of_kind if letter != _SAME}
    return found


def write(found: Mapping[tuple[str, str], str], *, policies: bool = False) -> None:
    """Write the results into the page."""
    begin, end = WITH_POLICIES if policies else (BEGIN, END)
    text = rendered_with_policies(found) if policies else rendered(found)
    page = PAGE.read_text()
    before, after = page[: page.index(begin) + len(begin)], page[page.index(end) :]
    PAGE.write_text(f"{before}\n{text}\n{after}")
