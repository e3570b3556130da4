"""TLS to PostgreSQL with certificate files, by libpq's parameters `sslmode`, `sslrootcert`, `sslcert`, `sslkey`."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from admission.store.errors import InvalidDatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
"""Valid values of `sslmode`, as in libpq."""

_FILES = ("sslrootcert", "sslcert", "sslkey")


def tls_context(query: Mapping[str, str | tuple[str, ...]]) -> ssl.SSLContext | None:
    """Return the TLS context for the options of a database URL; None if they name no files: the driver handles those.

    As with libpq, a given `sslrootcert` verifies the server's certificate in every mode; `verify-full` also checks the
    host name. Raises InvalidDatabaseUrl for contradictory options and unusable files.
    """
    files = {name: str(query[name]) for name in _FILES if name in query}
    if not files:
        return None
    mode = query.get("sslmode", query.get("ssl", "verify-full"))
    if mode not in ("require", "verify-ca", "verify-full"):
        raise InvalidDatabaseUrl(f"sslmode={mode} makes no use of {min(files)}: use require, verify-ca or verify-full")
    if "sslkey" in files and "sslcert" not in files:
        raise InvalidDatabaseUrl("sslkey is given without sslcert: name the certificate that it belongs to")
    if mode != "require" and "sslrootcert" not in files:
        raise InvalidDatabaseUrl(f"sslmode={mode} needs sslrootcert, the file of the CA certificate to trust")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if "sslrootcert" in files else ssl.CERT_NONE
    try:
        if "sslrootcert" in files:
            context.load_verify_locations(files["sslrootcert"])
        if "sslcert" in files:
            context.load_cert_chain(files["sslcert"], files.get("sslkey"))
    except (OSError, ssl.SSLError) as error:
        raise InvalidDatabaseUrl(f"the certificates of the database URL cannot be used: {error}") from error
    return context
