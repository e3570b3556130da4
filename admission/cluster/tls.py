"""TLS context for connections to the API server, and whether the certificates that it was made of have changed."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509

from admission.cluster.errors import BadKubeconfig, one_line
from admission.serving.outgoing import client_context

if TYPE_CHECKING:
    from admission.cluster.credential_loaders import Configuration


@dataclass(frozen=True, slots=True)
class Tls:
    """A TLS context, and what it was made of."""

    context: ssl.SSLContext | None
    """None: the server is a plain HTTP server."""
    contents: tuple[object, ...]
    """See `contents_of`."""
    certificate: x509.Certificate | None = None
    """The client certificate."""

    @classmethod
    def of(cls, configuration: Configuration, server: str) -> Tls:
        """Return the TLS context for a configuration. Raises BadKubeconfig for an unusable certificate."""
        contents = contents_of(configuration)  # before it is used: a file that changes in between counts as changed
        if not server.startswith("https:"):
            return cls(None, contents)
        try:
            context = client_context(ca_file=configuration.ssl_ca_cert)
        except OSError as error:
            raise BadKubeconfig(
                f"the certificate authority for {server} is no PEM certificate ({one_line(error)}): "
                "check certificate-authority(-data)"
            ) from error
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if not configuration.cert_file:
            return cls(context, contents)
        certificate = _load_client_certificate(context, configuration.cert_file, configuration.key_file, server)
        tls = cls(context, contents, certificate)
        if expired := tls.expired(server):
            raise BadKubeconfig(expired)
        return tls

    def expired(self, server: str) -> str:
        """Return a message if the client certificate has expired, else an empty text."""
        if self.certificate is None or self.certificate.not_valid_after_utc >= datetime.now(UTC):
            return ""
        return (
            f"the client certificate for {server} expired on {self.certificate.not_valid_after_utc:%Y-%m-%d %H:%M} "
            "UTC: renew it and write it into the kubeconfig"
        )


def contents_of(configuration: Configuration) -> tuple[object, ...]:
    """Return a digest of each file that a TLS context is made of, for comparison; None for one that cannot be read."""

    def digest(file: str | None) -> str | None:
        try:
            return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
        except OSError:
            return None

    files = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    return configuration.verify_ssl, *map(digest, files)


def _load_client_certificate(
    context: ssl.SSLContext, cert_file: str, key_file: str | None, server: str
) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError) as error:
        raise BadKubeconfig(
            f"the client certificate for {server} cannot be used ({one_line(error)}): "
            "check client-certificate(-data) and client-key(-data)"
        ) from error
    return certificate
