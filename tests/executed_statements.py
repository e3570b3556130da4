"""SQL statements that this process executes, to count them instead of measuring time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def executed(*words: str) -> Iterator[list[str]]:
    """Collect the statements of all engines that are executed in the block and contain all `words`."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if all(word in statement for word in words):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)
