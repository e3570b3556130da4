"""Errors of the store, distinguished by how a caller has to react.

StoreError
    InvalidDatabaseUrl      the URL is malformed
    DatabaseUnavailable     not reachable, or the connection was lost; a retry may help
        DatabaseBusy        another process holds a lock for too long
    DatabaseUnusable        reachable, but not usable: missing rights, a full disk, no such database
        DatabaseRefusesWrites   temporarily: the server is read-only, or its disk is full
        SchemaMismatch          not migrated, or migrated for another version of Sluice
    TooManyReports          too many usage reports are being computed; a retry may help
    AlreadyRunning          another Sluice is the leader on this database
    Unwritable              the database works, but rejects the changes of some workloads
        ContradictsLedger   a workload would hold quota twice, or another constraint is violated
    StaleEpoch              this Sluice was the leader and was deposed
    UnusableDump            the file to import is not a complete export
    DatabaseNotEmpty        the database to import into is not empty
    NotFound                the queue object does not exist
    AlreadyExists           the queue object exists already
    Conflict                the object has changed since it was read, or other objects depend on it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping


class InvalidDatabaseUrl(StoreError):
    """The database URL is malformed, or has unknown or contradictory options."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached. It is unknown whether the current transaction was committed."""


class DatabaseBusy(DatabaseUnavailable):
    """Another process holds a lock that is needed; nothing was written."""


class DatabaseUnusable(StoreError):
    """The database answers, but cannot be used: a full disk or a missing right, for example. Nothing was written."""


class DatabaseRefusesWrites(DatabaseUnusable):
    """The database is temporarily read-only: a standby before its promotion, a full disk."""


class SchemaMismatch(DatabaseUnusable):
    """The schema is incompatible with this version of Sluice."""


class TooManyReports(StoreError):
    """Too many usage reports wait for their turn, in total or of one user."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which a retry may succeed."""


class AlreadyRunning(StoreError):
    """Another Sluice is the leader on this database."""


class Unwritable(StoreError):
    """The database rejects the changes of some workloads: a violated constraint, or a value that it cannot store."""

    def __init__(self, message: str, faults: Mapping[str, Exception], *, revision: int | None = None) -> None:
        super().__init__(message)
        self.faults = faults
        """The cause for each workload, by uid."""
        self.revision = revision
        """Revision of the changes of all other workloads, which were committed; None: nothing was written."""


class ContradictsLedger(Unwritable):
    """The changes contradict the ledger: a workload would hold quota twice. Nothing was written."""


class StaleEpoch(StoreError):
    """Another leader, with a higher epoch, has taken over since the decision. Nothing was written."""


class UnusableDump(StoreError):
    """The file is not a complete and intact export. Nothing was written."""


class DatabaseNotEmpty(StoreError):
    """The database to import into is not empty. Nothing was written."""


class NotFound(StoreError):
    """There is no object of that kind and name."""

    @classmethod
    def of(cls, plural: str, name: str) -> NotFound:
        """Return the error with the API server's message for a missing object."""
        return cls(f'{plural}.sluice.dev "{name}" not found')


class AlreadyExists(StoreError):
    """A queue object of that kind and name exists already."""


class Conflict(StoreError):
    """The object is not in the state that the change requires. Nothing was written."""
