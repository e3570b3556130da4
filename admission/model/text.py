"""Text that users or other programs wrote, made fit to be stored in any database, logged, and shown in a terminal."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1000
"""Characters of a message at most: it is stored again with each change of its record."""


def clean(text: str, *, longest: int = LONGEST) -> str:
    r"""The text on one line, without what does not print (controls, NUL, lone surrogates), of bounded length.

    Line breaks and tabs become spaces, everything else is written as an escape such as `\x1b`. What was cut off is
    marked by an ellipsis.
    """
    if len(text) <= longest and text.isprintable():
        return text
    shown = "".join(map(_shown, text[: longest + 1]))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def visible(text: str) -> str:
    r"""The text on one line, of any length, for a terminal: what does not print is written as by `clean`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")
