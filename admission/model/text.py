"""Cleaning of text from users or other programs, so that it can be stored in any database, logged, and shown."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1000
"""Characters of a message at most, as it is stored again with each change of its record."""


def clean(text: str, *, longest: int = LONGEST) -> str:
    r"""Return the text on one line, without unprintable characters (controls, NUL, lone surrogates), of bounded length.

    Line breaks and tabs become spaces, other unprintable characters become escapes such as `\x1b`. A text that was cut
    ends in an ellipsis.
    """
    if len(text) <= longest and text.isprintable():
        return text
    shown = "".join(map(_shown, text[: longest + 1]))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def visible(text: str) -> str:
    r"""Return the text on one line for a terminal, like `clean`, but of any length."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")
