"""Certificate authorities of the API server, created at each start, and the certificates they sign."""

from __future__ import annotations

import datetime as dt
import ipaddress
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    import ssl

_LIFETIME = dt.timedelta(days=30)
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, concatenated in PEM."""

    pem: bytes

    def load(self, context: ssl.SSLContext) -> None:
        """Load the certificate into a TLS context."""
        # OpenSSL reads keys from files only; the folder is readable by this user only and deleted right after.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tls.pem"
            path.write_bytes(self.pem)
            context.load_cert_chain(path)


class Authority:
    """A self-signed certificate authority; `pem` is its certificate."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = self._builder(self._name, self._key, ca=True).add_extension(usage, critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def server(self) -> KeyPair:
        """Sign a server certificate for the loopback addresses and the `kubernetes` Service."""
        addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in _ADDRESSES]
        names = x509.SubjectAlternativeName([*(x509.DNSName(text) for text in _NAMES), *addresses])
        return self._sign("sandbox", names)

    def client(self, name: str) -> KeyPair:
        """Sign a client certificate with `name` as its common name."""
        return self._sign(name, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _sign(self, name: str, extension: x509.ExtensionType) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(name), key, ca=False).add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return KeyPair(secret + certificate)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        issuer = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
