"""A TLS server on loopback with scripted responses, such as a healthy API server does not give on demand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

import orjson
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def issue(
    name: str, issuer: Certificate | None = None, *, begins: dt.timedelta = -10 * DAY, ends: dt.timedelta = DAY
) -> Certificate:
    """Return a certificate for `name` and 127.0.0.1; without an issuer, one of a certificate authority.

    They have no key identifiers (RFC 5280, 4.2.1.1), as those of many clusters.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signer = issuer.key if issuer else key
    usage = x509.KeyUsage(True, False, False, False, False, issuer is None, issuer is None, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Certificate(certificate, key)


@dataclass
class ScriptedServer:
    """A TLS server that answers each request with the next handler of its script, and records the requests."""

    url: str
    script: list[Handler] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    client_certificates: list[str | None] = field(default_factory=list)
    """Subject of the client certificate of each request, such as `CN=me`; None without one."""
    stop: Callable[[], Awaitable[None]] | None = None
    """Ends the server and its connections."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.client_certificates.append(_client_certificate(request))
        self.bodies.append(await request.read())
        if not self.script:
            return web.json_response({"kind": "Status", "code": 500, "message": "the script is over"}, status=500)
        return await self.script.pop(0)(request)


def _client_certificate(request: web.Request) -> str | None:
    assert request.transport is not None
    encoded = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return None if encoded is None else x509.load_der_x509_certificate(encoded).subject.rfc4514_string()


class Sleeps(list[float]):
    """A replacement for `asyncio.sleep` that records the durations and returns at once; fails after 50 calls."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        assert len(self) < 50, "it tries again and again and gets nowhere"


def reply(body: object, status: int = 200, **headers: str) -> Handler:
    """Answer with JSON."""

    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=orjson.dumps(body),
            status=status,
            content_type="application/json",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    return handler


def failure(code: int, reason: str = "", message: str = "no", **headers: str) -> Handler:
    """Answer with a Status object."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return reply(body, code, **headers)
