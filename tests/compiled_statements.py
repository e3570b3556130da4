"""SQL statements that are compiled once for all stores of a worker.

SQLAlchemy keeps compiled statements for each engine; a store on SQLite has four, and most tests a store or two of
their own: a tenth of their processor time went into compiling the same statements again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, event
from sqlalchemy.util import LRUCache

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect


class _OfAllEngines(LRUCache[Any, Any]):
    """In SQLAlchemy's key is first the engine's dialect; here what of it decides how a statement is compiled."""

    def get(self, key: tuple[Dialect, *tuple[Any, ...]], default: Any = None) -> Any:
        return super().get(_alike(*key), default)

    def __setitem__(self, key: tuple[Dialect, *tuple[Any, ...]], compiled: Any) -> None:
        super().__setitem__(_alike(*key), compiled)


def _alike(dialect: Dialect, *statement: Any) -> tuple[Any, ...]:
    return type(dialect), dialect.server_version_info, dialect.paramstyle, *statement


_shared = _OfAllEngines(2000)


def share() -> None:
    """From now on, in this process."""
    event.listen(Engine, "engine_connect", _use_shared)


def _use_shared(connection: Connection) -> None:
    connection.engine._compiled_cache = _shared
