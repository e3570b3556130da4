"""TLS context of a listener: renewed certificates, and optional client certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Self

from admission.apimachinery.errors import UnusableCertificate

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path


class DoorContext(ssl.SSLContext):
    """TLS context that uses the newest certificate, key and client CA for each new connection.

    An ordinary SSLContext can take a new certificate, but never forget a CA that it once trusted.
    """

    def __new__(cls, certificate: Path, key: Path) -> Self:
        """`certificate` (with its chain) and `key` are PEM files."""
        del certificate, key
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises UnusableCertificate."""
        self._files = certificate, key
        self._served: tuple[bytes, bytes, str] | None = None
        self._current: ssl.SSLContext = self
        self.refresh()

    @property
    def certificate(self) -> bytes:
        """The file (PEM) of the certificate that new connections are shown."""
        assert self._served is not None, "`refresh` has seen to it"
        return self._served[0]

    def refresh(self, client_ca: str | None = None) -> None:
        """Read the files again, and take `client_ca` (PEM; empty: ask for no certificates) if it is given.

        Raises UnusableCertificate; connections are then made as before.
        """
        certificate, key = self._files
        before = self._served[2] if self._served else ""
        try:
            wanted = certificate.read_bytes(), key.read_bytes(), before if client_ca is None else client_ca
            if wanted != self._served:
                self._current = _context(certificate, key, wanted[2])
                self._served = wanted
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UnusableCertificate(
                f"{certificate} and {key} cannot be used for TLS, or the CA of a front proxy cannot: {error}"
            ) from error

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """The beginning of a connection; event loops call it for each."""
        return self._current.wrap_bio(*args, **kwargs)


class _Context(ssl.SSLContext):
    """The context of connections that were accepted between two refreshes."""

    client_ca = ""


def client_ca_of(transport: asyncio.BaseTransport) -> str:
    """The client CA (PEM) that verified the connection's client certificate; empty: none was asked for."""
    made_with = getattr(transport.get_extra_info("ssl_object"), "context", None)
    return made_with.client_ca if isinstance(made_with, _Context) else ""


def _context(certificate: Path, key: Path, client_ca: str) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.client_ca = client_ca
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca)
    return context
