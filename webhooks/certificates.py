"""The webhook's own certificates, for clusters without cert-manager: a CA, and a server certificate signed by it.

The API server trusts the CA by the `caBundle` of the webhook configurations, so that the order of a rotation matters: a
new CA is added to the bundle a year before the old one expires, and signs only from the next renewal of the server
certificate on, weeks later, when every bundle has been updated.
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import contextmanager
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhooks.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

logger = logging.getLogger(__name__)

_CA_VALIDITY: Final = timedelta(days=3650)
_CA_RENEWAL: Final = timedelta(days=365)
"""Remaining validity of the CA at which a new one is created."""
_SERVER_VALIDITY: Final = timedelta(days=90)
_SERVER_RENEWAL: Final = timedelta(days=30)
"""Remaining validity of the server certificate at which it is renewed."""
_SKEW: Final = timedelta(minutes=5)
"""Tolerated lag of the API server's clock: certificates are valid from this long before their creation."""

_FILES: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")

_Key = ec.EllipticCurvePrivateKey


class Certificates:
    """Directory with a CA and a server certificate for `hosts` (DNS names or IP addresses).

    Files: `ca.crt` (the bundle, newest CA first), `ca.key`, `tls.crt`, `tls.key`; all of them are readable by their
    owner only. `now` returns the time as a timezone-aware datetime.
    """

    def __init__(self, directory: Path, hosts: Sequence[str], *, now: Callable[[], datetime]) -> None:
        self._directory = directory
        self._hosts = tuple(hosts)
        self._now = now

    @property
    def ca_bundle(self) -> bytes:
        """The PEM certificates of the CAs that clients have to trust."""
        return self._path("ca.crt").read_bytes()

    def renew(self) -> bool:
        """Create or replace certificates that are missing, unreadable or expire soon; return whether any changed.

        Call it at the start and then about hourly. Raises CertificateError.
        """
        with self._translated_errors():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            renewed_authority = self._renew_authority()
            renewed_server = self._renew_server()
        return renewed_authority or renewed_server

    def files(self) -> dict[str, bytes]:
        """Return the content of all files by name, for `adopt` of another replica. Raises CertificateError."""
        with self._translated_errors():
            return {name: self._path(name).read_bytes() for name in _FILES}

    def adopt(self, files: Mapping[str, bytes]) -> None:
        """Replace the files by those of another replica; call `renew` to check them. Raises CertificateError."""
        with self._translated_errors():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in _FILES:
                if name in files and not (self._path(name).exists() and self._path(name).read_bytes() == files[name]):
                    self._write(name, files[name])

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise CertificateError for an OSError in the block."""
        try:
            yield
        except OSError as error:
            raise CertificateError(
                f"{self._directory}: cannot read or write the webhook's certificates: {error}"
            ) from error

    def _renew_authority(self) -> bool:
        usable = [ca for ca in self._read("ca.crt") if self._left(ca) > timedelta(0)]
        if usable and self._left(usable[0]) > _CA_RENEWAL and self._read_key("ca.key", usable[0]):
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sluice-webhook-ca")])
        ca = self._sign(name, key, name, key, _CA_VALIDITY, authority=True)
        self._write("ca.key", _pem_key(key))
        self._write("ca.crt", b"".join(_pem(item) for item in (ca, *usable)))
        return True

    def _renew_server(self) -> bool:
        bundle = self._read("ca.crt")
        current = self._read("tls.crt")
        if current and self._left(current[0]) > _SERVER_RENEWAL and self._is_good(current[0], bundle):
            return False
        ca_key = self._read_key("ca.key", bundle[0])
        assert ca_key is not None, "_renew_authority has created the key"
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sluice-webhook")])
        certificate = self._sign(name, key, bundle[0].subject, ca_key, _SERVER_VALIDITY, authority=False)
        self._write("tls.key", _pem_key(key))
        self._write("tls.crt", _pem(certificate))
        return True

    def _is_good(self, certificate: x509.Certificate, bundle: list[x509.Certificate]) -> bool:
        """Whether a server certificate is valid for the hosts, its key is stored, and a CA of the bundle signed it."""
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):  # a certificate that others stored
            return False
        if names != x509.SubjectAlternativeName(_alternative_names(self._hosts)):
            return False
        return self._read_key("tls.key", certificate) is not None and any(_signed(certificate, ca) for ca in bundle)

    def _left(self, certificate: x509.Certificate) -> timedelta:
        """Return the remaining validity; negative if the certificate has expired."""
        return certificate.not_valid_after_utc - self._now()

    def _sign(
        self,
        subject: x509.Name,
        key: _Key,
        issuer: x509.Name,
        issuer_key: _Key,
        validity: timedelta,
        *,
        authority: bool,
    ) -> x509.Certificate:
        now, public = self._now(), key.public_key()
        builder = (
            x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + validity)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
            .add_extension(_key_usage(authority=authority), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        if not authority:
            names = x509.SubjectAlternativeName(_alternative_names(self._hosts))
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(names, critical=False).add_extension(usage, critical=False)
        return builder.sign(issuer_key, hashes.SHA256())

    def _path(self, name: str) -> Path:
        return self._directory / name

    def _read(self, name: str) -> list[x509.Certificate]:
        """Return the certificates in a file; empty if the file is missing or has no certificate."""
        try:
            return x509.load_pem_x509_certificates(self._path(name).read_bytes())
        except FileNotFoundError:
            return []
        except ValueError as error:
            logger.warning("%s is unreadable and is replaced: %s", self._path(name), error)
            return []

    def _read_key(self, name: str, certificate: x509.Certificate) -> _Key | None:
        """Return the private key in a file if it belongs to the certificate, else None."""
        try:
            key = serialization.load_pem_private_key(self._path(name).read_bytes(), password=None)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            logger.warning("%s is unreadable and is replaced: %s", self._path(name), error)
            return None
        return key if isinstance(key, _Key) and key.public_key() == certificate.public_key() else None

    def _write(self, name: str, content: bytes) -> None:
        """Write a file atomically, readable by its owner only (mkstemp creates files with mode 0600)."""
        descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=f".{name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self._path(name))
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def _alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
