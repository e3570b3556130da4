"""The errors of the store, by what a caller has to do about them.

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
    """The database answers and cannot be used, such as a full disk or a missing right. Nothing was written."""


class DatabaseRefusesWrites(DatabaseUnusable):
    """The database is read-only for now: a standby that is not promoted, a disk that is full."""


class SchemaMismatch(StoreError):
    """The tables are not those that this version of Sluice works with."""


class AlreadyRunning(StoreError):
    """Another Sluice leads on this database."""


class Unwritable(StoreError):
    """The database refuses the changes of some workloads: a constraint, or a value that it cannot hold."""

    def __init__(self, message: str, faults: Mapping[str, Exception], *, revision: int | None = None) -> None:
        super().__init__(message)
        self.faults = faults
        """The cause, by uid of the workload."""
        self.revision = revision
        """The revision of the other changes, which were written; None: nothing was written."""


class ContradictsLedger(Unwritable):
    """The changes contradict the ledger: a workload would hold quota twice. Nothing was written."""


class StaleEpoch(StoreError):
    """Another leader has taken over since the decision (its epoch is higher). Nothing was written."""


class UnusableDump(StoreError):
    """The file is not a complete export of Sluice. Nothing was written."""


class DatabaseNotEmpty(StoreError):
    """The database to import into is not empty. Nothing was written."""


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
