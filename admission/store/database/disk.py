"""Checks of a SQLite database's file: whether it is still the one that was opened, and whether its disk has room."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from admission.store.errors import DatabaseRefusesWrites, DatabaseUnusable

if TYPE_CHECKING:
    from admission.store.database.connection import Location

_ROOM: Final = 16 * 2**20
"""Bytes that have to be free. SQLite's write-ahead log has 4 MiB, and a checkpoint moves as much at a time."""


def file_of(location: Location) -> os.stat_result | None:
    """Return the status of the file of a SQLite database; None: there is no file, or the database is on a server."""
    with suppress(OSError):
        return None if location.path is None else location.path.stat()
    return None


def check_same_file(location: Location, opened: os.stat_result | None) -> None:
    """Raise DatabaseUnusable if the file that was `opened` is not the one under its name any more.

    SQLite goes on with the former file, which has no name and is gone when the process ends.
    """
    if opened is None:
        return
    found = file_of(location)
    if found is None or not os.path.samestat(found, opened):
        raise DatabaseUnusable(
            f"the file of the database {location} was {'deleted' if found is None else 'replaced'} while Sluice has it "
            "open: what Sluice writes is lost when it ends; restart Sluice with the file that is to be used"
        )


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
