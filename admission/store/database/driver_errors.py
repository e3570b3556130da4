"""Translation of driver errors to errors of the store, each with a one-sentence message for the admin."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, InternalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from admission.model.errors import StoreError
from admission.serving.certificate_faults import certificate_remedy
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
    """Raise errors of the drivers as those of `admission.store.errors`; violated constraints pass unchanged.

    `database`: its name in messages.
    """
    try:
        yield
    except DBAPIError as error:
        known = _store_error(error, database)
        if known is None:
            raise
        raise known from error
    except PoolTimeout as error:
        raise DatabaseBusy(f"all connections to the database {database} are in use; try again") from error
    except (OSError, TimeoutError) as error:
        raise _connection_error(error, database) from error


def _connection_error(error: Exception, database: object) -> StoreError:
    """Return the error for a failed connection: DatabaseUnusable if a retry cannot help, else DatabaseUnavailable."""
    what = _first_line(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = certificate_remedy(error, "check sslmode, sslrootcert and the host in the database URL")
        return DatabaseUnusable(
            f"the database {database} presents a certificate that is not trusted ({what}); {remedy}"
        )
    if _NO_TLS in what:
        return DatabaseUnusable(
            f"the database {database} does not speak TLS ({what}); give it a certificate, or take sslmode out of the "
            "database URL"
        )
    return DatabaseUnavailable(
        f"the database {database} cannot be reached ({what}); check that it runs and the URL is right"
    )


def is_database_failure(error: Exception) -> bool:
    """Whether an error is a failure of the database itself, rather than of the data: a value, a constraint."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or _store_error(error, "") is not None
    return isinstance(error, StoreError | PoolTimeout | OSError)


def _store_error(error: DBAPIError, database: object) -> StoreError | None:
    """Return the store's error for a driver error; None for an error of the data, such as a violated constraint."""
    cause = error.orig
    code: str = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    if any(part in str(cause) for part in _SQLITE_UNMIGRATED):
        code = "SQLITE_UNMIGRATED"
    if "unsupported startup parameter" in str(cause):
        code = "PGBOUNCER"
    if "root certificate file" in str(cause):
        code = "NO_AUTHORITY"
    # asyncpg raises an internal error without SQLSTATE when the server has just closed the connection.
    broken = isinstance(error, InternalError) and not code
    lost = _LOST if error.connection_invalidated or broken else None
    found = next((meaning for prefix, meaning in _MEANINGS.items() if code.startswith(prefix)), lost)
    return found and found[0](found[1].format(database, _first_line(cause)))


_SQLITE_UNMIGRATED = ("no such table", "no such column", "has no column named")
"""Parts of SQLite's messages for tables of another schema; the error itself is the generic SQLITE_ERROR."""
_NO_TLS = "rejected SSL upgrade"
"""Part of asyncpg's message when TLS is required and the server does not offer it."""
_LOST = (DatabaseUnavailable, "the connection to the database {} was lost ({}); it will be tried again")
_LOCKED = (DatabaseBusy, "the database {} is locked by another process ({}); stop that process or try again")
_READ_ONLY = (DatabaseUnusable, "the database {} cannot be written ({}); give Sluice the right to write it")
_STANDBY = (DatabaseRefusesWrites, _READ_ONLY[1])
_FULL = (DatabaseRefusesWrites, "the disk of the database {} is full ({}); make room")
_UNMIGRATED = (SchemaMismatch, "the database {} lacks tables or columns of Sluice ({}); run `sluice migrate`")
_REFUSED = (
    DatabaseUnusable,
    "the database {} refuses the user ({}); check user, password and sslmode in the database URL",
)
# By prefix of SQLite's error name or PostgreSQL's SQLSTATE; the first match counts: more specific prefixes come first.
_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_UNMIGRATED": _UNMIGRATED,
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
        "the database {} is behind a pgbouncer, which refuses settings ({}); add pgbouncer=true to the database URL",
    ),
    "NO_AUTHORITY": (
        DatabaseUnusable,
        "no CA certificate is configured to verify the database {} ({}); add sslrootcert to the database URL",
    ),
    "08": _LOST,
    "25006": _STANDBY,
    "28": _REFUSED,
    "3D000": (DatabaseUnusable, "the database {} does not exist ({}); create it"),
    "40": (DatabaseBusy, "a concurrent transaction in the database {} conflicts with this one ({}); try again"),
    "42P01": _UNMIGRATED,
    "42703": _UNMIGRATED,
    "42501": _READ_ONLY,
    "53100": _FULL,
    "53": (DatabaseUnavailable, "the database {} is overloaded ({})"),
    "55P03": _LOCKED,
    "57": _LOST,
}


def _first_line(error: Any) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
