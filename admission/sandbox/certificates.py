"""The API server's own certificate authority and certificate, made afresh at each start."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFETIME = dt.timedelta(days=30)
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class ServerCertificate:
    """A self-made authority (`ca_pem`) and a certificate for the loopback addresses, signed by it."""

    def __init__(self) -> None:
        ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = _certificate("sandbox-ca", ca_key, None, ca_key).sign(ca_key, hashes.SHA256())
        leaf = _certificate("sandbox", key, ca.subject, ca_key).sign(ca_key, hashes.SHA256())
        self.ca_pem = ca.public_bytes(serialization.Encoding.PEM).decode()
        self._chain = leaf.public_bytes(serialization.Encoding.PEM)
        self._key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def context(self) -> ssl.SSLContext:
        """The TLS settings of the server."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # OpenSSL reads keys from files only; the folder is private to this user and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tls.pem"
            path.write_bytes(self._key + self._chain)
            context.load_cert_chain(path)
        return context


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name | None, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if issuer is None:
        usage = {"key_cert_sign": True, "crl_sign": True, "digital_signature": True}
        return builder.add_extension(_usage(usage), critical=True)
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    names = x509.SubjectAlternativeName([*(x509.DNSName(text) for text in _NAMES), *addresses])
    return builder.add_extension(names, critical=False)


def _usage(set_to_true: dict[str, bool]) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
    return x509.KeyUsage(**{name: set_to_true.get(name, False) for name in names})
