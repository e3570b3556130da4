"""Standard input of the process, which may be closed (`<&-`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from admission.cli.errors import Unreadable

if TYPE_CHECKING:
    from typing import TextIO


def standard_input() -> TextIO:
    """Return standard input. Raises Unreadable if it is closed: Python then has no object for it."""
    if sys.stdin is None:
        raise Unreadable("standard input is closed; name a file instead of -, or redirect the input")
    return sys.stdin


def can_answer() -> bool:
    """Return whether a question can be answered: standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
