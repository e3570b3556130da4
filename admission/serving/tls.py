"""TLS context of a listener: certificates that can be reloaded, optional client certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Self

from admission.apimachinery.errors import UnusableCertificate

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path


class ReloadingContext(ssl.SSLContext):
    """TLS context that uses the certificate, key and client CA of the last `refresh` for each new connection.

    An ordinary SSLContext can load a new certificate, but cannot remove a CA that it once trusted.
    """

    def __new__(cls, certificate: Path, key: Path) -> Self:
        """`certificate` (with its chain) and `key`: PEM files."""
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
        """Content of the certificate file (PEM) that new connections use."""
        assert self._served is not None, "set by `refresh`"
        return self._served[0]

    def refresh(self, client_ca: str | None = None) -> None:
        """Read the files again. `client_ca`: PEM; empty: request no client certificates; None: unchanged.

        Raises UnusableCertificate; new connections then use the former certificate and CA.
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
        """Create the TLS object of a connection; event loops call this for each new connection."""
        return self._current.wrap_bio(*args, **kwargs)


class _Context(ssl.SSLContext):
    """The context of connections accepted between two refreshes."""

    client_ca = ""
    """PEM; empty: no client certificate is requested."""


def client_ca_of(transport: asyncio.BaseTransport) -> str:
    """Return the client CA (PEM) for which a connection was accepted; empty: no client certificate was requested."""
    context = getattr(transport.get_extra_info("ssl_object"), "context", None)
    return context.client_ca if isinstance(context, _Context) else ""


def _context(certificate: Path, key: Path, client_ca: str) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.client_ca = client_ca
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca)
    return context
