"""Errors of the database drivers as errors of the store, each with one sentence for the admin."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, InternalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from admission.model.errors import StoreError
from admission.store.errors import (
    DatabaseBusy,
    DatabaseRefusesWrites,
    DatabaseUnavailable,
    DatabaseUnusable,
    SchemaMismatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def translated(database: object) -> Iterator[None]:
    """Errors of the drivers become those of `admission.store.errors`; violated constraints pass as they are.

    `database` is how messages call it.
    """
    try:
        yield
    except DBAPIError as error:
        known = _meaning(error, database)
        if known is None:
            raise
        raise known from error
    except PoolTimeout as error:
        raise DatabaseBusy(f"all connections to the database {database} are in use; try again") from error
    except (OSError, TimeoutError) as error:
        raise _unreached(error, database) from error


def _unreached(error: Exception, database: object) -> StoreError:
    """What it means that there is no connection. What waiting cannot change is DatabaseUnusable."""
    what = _first_line(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return DatabaseUnusable(
            f"the database {database} shows a certificate that is not believed ({what}); "
            "check sslmode, sslrootcert and the host in the database URL"
        )
    if _NO_TLS in what:
        return DatabaseUnusable(
            f"the database {database} does not speak TLS ({what}); give it a certificate, or take sslmode out of the "
            "database URL"
        )
    return DatabaseUnavailable(
        f"the database {database} cannot be reached ({what}); check that it runs and the URL is right"
    )


def is_of_database(error: Exception) -> bool:
    """Whether an error says that the database cannot do its work, rather than that it does not take a value."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or _meaning(error, "") is not None
    return isinstance(error, StoreError | PoolTimeout | OSError)


def _meaning(error: DBAPIError, database: object) -> StoreError | None:
    cause = error.orig
    code: str = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    if "no such table" in str(cause):
        code = "SQLITE_NO_SUCH_TABLE"
    if "unsupported startup parameter" in str(cause):
        code = "PGBOUNCER"
    if "root certificate file" in str(cause):
        code = "NO_AUTHORITY"
    # asyncpg's protocol stumbles over a connection that the server has just ended.
    broken = isinstance(error, InternalError) and not code
    lost = _LOST if error.connection_invalidated or broken else None
    found = next((meaning for prefix, meaning in _MEANINGS.items() if code.startswith(prefix)), lost)
    return found and found[0](found[1].format(database, _first_line(cause)))


_NO_TLS = "rejected SSL upgrade"
"""What asyncpg says of a server that answers a client which wants TLS that it has none."""
_LOST = (DatabaseUnavailable, "the connection to the database {} was lost ({}); it will be tried again")
_LOCKED = (DatabaseBusy, "the database {} is locked by another process ({}); stop that process or try again")
_READ_ONLY = (DatabaseUnusable, "the database {} cannot be written ({}); give Sluice the right to write it")
_STANDBY = (DatabaseRefusesWrites, _READ_ONLY[1])
_FULL = (DatabaseRefusesWrites, "the disk of the database {} is full ({}); make room")
_UNMIGRATED = (SchemaMismatch, "the database {} lacks tables of Sluice ({}); run `sluice migrate`")
_REFUSED = (
    DatabaseUnusable,
    "the database {} refuses the user ({}); check user, password and sslmode in the database URL",
)
# By the beginning of SQLite's error name or PostgreSQL's SQLSTATE, more special ones first.
_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_NO_SUCH_TABLE": _UNMIGRATED,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_PERM": _READ_ONLY,
    "SQLITE_CANTOPEN": (
        DatabaseUnusable,
        "the database file {} cannot be opened ({}); check that it exists and may be written, or run `sluice migrate`",
    ),
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": (DatabaseRefusesWrites, "the disk of the database {} fails ({})"),
    "SQLITE_NOTADB": (DatabaseUnusable, "the file {} is no SQLite database ({}); name another file"),
    "SQLITE_CORRUPT": (DatabaseUnusable, "the database {} is damaged ({}); restore it from a backup"),
    "PGBOUNCER": (
        DatabaseUnusable,
        "the database {} is behind a pgbouncer that keeps no sessions ({}); add pgbouncer=true to the database URL",
    ),
    "NO_AUTHORITY": (
        DatabaseUnusable,
        "nobody says which certificate of the database {} to believe ({}); add sslrootcert to the database URL",
    ),
    "08": _LOST,
    "25006": _STANDBY,
    "28": _REFUSED,
    "3D000": (DatabaseUnusable, "the database {} does not exist ({}); create it"),
    "40": (DatabaseBusy, "another transaction got in the way in the database {} ({}); try again"),
    "42P01": _UNMIGRATED,
    "42501": _READ_ONLY,
    "53100": _FULL,
    "53": (DatabaseUnavailable, "the database {} is overloaded ({})"),
    "55P03": _LOCKED,
    "57": _LOST,
}


def _first_line(error: Any) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
