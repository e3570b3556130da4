"""Cache of compiled SQL statements, shared by all engines of a test process.

SQLAlchemy caches compiled statements per engine; a store on SQLite has four engines, and most tests open a store or
two: compiling the same statements again took a tenth of their processor time.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.util import LRUCache


class _SharedCache(LRUCache[Any, Any]):
    """Cache whose keys have, instead of the engine's dialect, only the attributes that affect compilation."""

    def get(self, key: tuple[Dialect, *tuple[Any, ...]], default: Any = None) -> Any:
        return super().get(_compile_key(*key), default)

    def __setitem__(self, key: tuple[Dialect, *tuple[Any, ...]], compiled: Any) -> None:
        super().__setitem__(_compile_key(*key), compiled)


def _compile_key(dialect: Dialect, *statement: Any) -> tuple[Any, ...]:
    return type(dialect), dialect.server_version_info, dialect.paramstyle, *statement


_shared = _SharedCache(2000)


def share() -> None:
    """Make all engines of this process use the shared cache, from now on."""
    event.listen(Engine, "engine_connect", _use_shared)


def _use_shared(connection: Connection) -> None:
    connection.engine._compiled_cache = _shared
