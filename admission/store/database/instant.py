"""Column type for instants: seconds since the epoch in Python, UTC in the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, DateTime
from sqlalchemy.types import TypeDecorator

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

MICROSECONDS = 1_000_000
"""Microseconds in a second."""
_EPOCH = datetime.fromtimestamp(0, UTC)


class Instant(TypeDecorator[float]):
    """Instant in seconds since the epoch, exact to the microsecond.

    Stored as `timestamptz` in PostgreSQL and as an integer of microseconds in SQLite, which makes differences exact.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        stored: TypeEngine[Any] = BigInteger() if dialect.name == "sqlite" else DateTime(timezone=True)
        return dialect.type_descriptor(stored)

    # The processors run for thousands of values, so each database has its own function without a check of the dialect.

    def bind_processor(self, dialect: Dialect) -> Callable[[float | None], Any]:
        return _to_microseconds if dialect.name == "sqlite" else _to_datetime

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], float | None]:
        del coltype
        return _from_microseconds if dialect.name == "sqlite" else _from_datetime


def _to_microseconds(value: float | None) -> int | None:
    return None if value is None else round(value * MICROSECONDS)


def to_datetime(value: float) -> datetime:
    """Return the instant as PostgreSQL stores it, to the microsecond to which it is rounded everywhere.

    `fromtimestamp` rounds one of eight to another microsecond than `round(value * MICROSECONDS)`.
    """
    return _EPOCH + timedelta(microseconds=round(value * MICROSECONDS))


def _to_datetime(value: float | None) -> datetime | None:
    return None if value is None else to_datetime(value)


def _from_microseconds(value: int | None) -> float | None:
    return None if value is None else value / MICROSECONDS


def _from_datetime(value: datetime | None) -> float | None:
    return None if value is None else value.timestamp()
