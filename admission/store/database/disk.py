"""Check for free disk space of a SQLite database, after its disk was full."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from admission.store.errors import DatabaseRefusesWrites

if TYPE_CHECKING:
    from admission.store.database.connection import Location

_ROOM: Final = 16 * 2**20
"""Bytes that have to be free. SQLite's write-ahead log has 4 MiB, and a checkpoint moves as much at a time."""


def check_room(location: Location) -> None:
    """Raise DatabaseRefusesWrites if less than `_ROOM` bytes are free on the disk of a SQLite database.

    A probe by a small write would not do: it may succeed where the next decision fails again.
    """
    if location.path is None:
        return
    with suppress(OSError):  # the next write reports the cause
        disk = os.statvfs(location.path.parent)
        if (free := disk.f_bavail * disk.f_frsize) < _ROOM:
            raise DatabaseRefusesWrites(
                f"the disk of the database {location} is full: {free / 2**20:.1f} MiB are free, and decisions are made "
                f"again when {_ROOM // 2**20} MiB are; make room"
            )
