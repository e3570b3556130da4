"""Whether the disk of a SQLite database has room again after it was full."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from admission.store.errors import DatabaseRefusesWrites

if TYPE_CHECKING:
    from admission.store.database.connection import Location

_ROOM: Final = 16 * 2**20
"""Bytes that have to be free: SQLite's log has 4 MiB, and as many are moved from it at a time."""


def check_room(location: Location) -> None:
    """Return if the disk has room to go on, or if there is no file. Raises DatabaseRefusesWrites.

    A small write may succeed where the next decision would fail as the last one did.
    """
    if location.path is None:
        return
    with suppress(OSError):  # whoever writes is told why
        disk = os.statvfs(location.path.parent)
        if (free := disk.f_bavail * disk.f_frsize) < _ROOM:
            raise DatabaseRefusesWrites(
                f"the disk of the database {location} is full: {free / 2**20:.1f} MiB are free, and decisions are made "
                f"again when {_ROOM // 2**20} MiB are; make room"
            )
