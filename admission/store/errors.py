"""What can go wrong with the database, for those who must tell the cases apart.

StoreError
    InvalidDatabaseUrl      the URL itself
    DatabaseUnavailable     not reachable, or the connection was lost; trying again may help
        DatabaseBusy        another process holds a lock for too long
    DatabaseUnusable        reachable, and yet of no use: rights, a full disk, no database at all
        DatabaseRefusesWrites   for the moment: the server is read-only, or its disk is full
    SchemaMismatch          not migrated, or migrated for another version of Sluice
    AlreadyRunning          another Sluice leads on this database
    Unwritable              the database is well, but does not take what is to be written of some workloads
        ContradictsLedger   a workload would hold quota twice, or another constraint is violated
    StaleEpoch              this Sluice led once and was deposed
    UnusableDump            what is to be imported is no whole export
    DatabaseNotEmpty        something would be imported into it
    NotFound                a queue object that is not there
    AlreadyExists           a queue object that is there already
    Conflict                the object changed meanwhile, or others depend on it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping


class InvalidDatabaseUrl(StoreError):
    """The database URL cannot be understood."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached. Whether the transaction under way was committed is not known."""


class DatabaseBusy(DatabaseUnavailable):
    """Another process holds a lock that is needed; nothing was written."""


class DatabaseUnusable(StoreError):
    """The database is there and refuses; somebody has to do something about it. Nothing was written."""


class DatabaseRefusesWrites(DatabaseUnusable):
    """The database takes no writes, which may be over as it came: a standby is promoted, somebody makes room."""


class SchemaMismatch(StoreError):
    """The tables are not those that this version of Sluice works with."""


class AlreadyRunning(StoreError):
    """Another Sluice leads on this database."""


class Unwritable(StoreError):
    """What was to be written of some workloads is such that the database does not take it."""

    def __init__(self, message: str, faults: Mapping[str, Exception], *, revision: int | None = None) -> None:
        super().__init__(message)
        self.faults = faults
        """By uid, why."""
        self.revision = revision
        """Of all the others, which were written; None: nothing was written."""


class ContradictsLedger(Unwritable):
    """What was to be committed cannot be true together with what is in the database; nothing was written."""


class StaleEpoch(StoreError):
    """The decision came from a Sluice that leads no more; nothing was written."""


class UnusableDump(StoreError):
    """What is to be imported is no whole export of Sluice's; nothing was written."""


class DatabaseNotEmpty(StoreError):
    """Something is in the database already; nothing was written."""


class NotFound(StoreError):
    """There is no queue object of that kind and name."""

    @classmethod
    def of(cls, plural: str, name: str) -> NotFound:
        """In the words of the API server."""
        return cls(f'{plural}.sluice.dev "{name}" not found')


class AlreadyExists(StoreError):
    """There is a queue object of that kind and name already."""


class Conflict(StoreError):
    """The object is not in the state that the change was meant for; nothing was written."""
