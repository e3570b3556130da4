"""Certificates for tests: a certificate authority, and the certificates that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path

    def load(self, context: ssl.SSLContext) -> None:
        """Make a context present this certificate."""
        context.load_cert_chain(self.certificate, self.key)

    def client_context(self, ca: Path) -> ssl.SSLContext:
        """TLS context of a client that presents this certificate and trusts `ca`."""
        context = ssl.create_default_context(cafile=str(ca))
        self.load(context)
        return context


class Authority:
    """A CA that writes the certificates that it signs to a folder.

    Without `key_identifiers` (RFC 5280, 4.2.1.1) it is one as `openssl x509 -req` makes them, and many clusters have.
    """

    def __init__(self, folder: Path, name: str, *, key_identifiers: bool = True) -> None:
        self._folder = folder
        self._key_identifiers = key_identifiers
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(self._name, self._key, dt.timedelta(days=1)).add_extension(usage, critical=True)
        ca = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = ca.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        self.file = folder / f"{name}.ca.crt"
        self.file.write_text(self.pem)

    def client(self, common_name: str, *, lifetime: dt.timedelta = dt.timedelta(days=1)) -> Pair:
        return self._sign(common_name, ExtendedKeyUsageOID.CLIENT_AUTH, [], lifetime)

    def server(self, *hosts: str, lifetime: dt.timedelta = dt.timedelta(days=1)) -> Pair:
        return self._sign(hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, list(hosts), lifetime)

    def _sign(self, name: str, usage: x509.ObjectIdentifier, hosts: list[str], lifetime: dt.timedelta) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(name), key, lifetime)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        stem = f"{name.replace('/', '_')}-{key.public_key().public_numbers().x:x}"[:80]
        pair = Pair(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        pair.certificate.write_bytes(certificate)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        begin = min(now, now + lifetime) - dt.timedelta(hours=1)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(begin).not_valid_after(now + lifetime)
        if not self._key_identifiers:
            return builder
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(own, critical=False).add_extension(issuer, critical=False)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
