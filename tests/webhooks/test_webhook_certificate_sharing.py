"""Certificates that several replicas share by a Secret: creation, concurrent start, and renewal."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from admission.cluster.client import Client
from admission.cluster.errors import Forbidden
from admission.sandbox.sandbox import Sandbox
from webhooks.certificate_sharing import refresh_shared
from webhooks.certificates import Certificates
from webhooks.errors import CertificateError

SECRET = "/api/v1/namespaces/default/secrets/sluice-webhook-certificates"


@pytest.fixture
async def client(tmp_path):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            yield client


@pytest.fixture
def replica(tmp_path):
    def make(name, *, now=lambda: datetime.now(UTC)):
        return Certificates(tmp_path / name, ["127.0.0.1"], now=now)

    return make


async def refresh(client, certificates):
    await refresh_shared(client, certificates, namespace="default", name="sluice-webhook-certificates")


async def test_second_replica_uses_the_shared_certificates(client, replica):
    first, second = replica("first"), replica("second")
    await refresh(client, first)
    await refresh(client, second)
    assert first.files() == second.files()
    assert (await client.get(SECRET))["type"] == "Opaque"


async def test_replicas_that_start_concurrently_share_the_same_certificates(client, replica):
    replicas = [replica(name) for name in "abcd"]
    await asyncio.gather(*(refresh(client, certificates) for certificates in replicas))
    assert len({tuple(certificates.files().values()) for certificates in replicas}) == 1


async def test_renewed_certificate_reaches_the_other_replica(client, replica):
    later = datetime.now(UTC) + timedelta(days=70)
    first, second = replica("first"), replica("second", now=lambda: later)
    await refresh(client, first)
    before = first.files()
    await refresh(client, second)
    assert second.files()["tls.crt"] != before["tls.crt"]
    assert second.ca_bundle == first.ca_bundle
    await refresh(client, first)
    assert first.files() == second.files()


async def test_empty_secret_is_filled_with_certificates(client, replica):
    await client.create(SECRET.rpartition("/")[0], {"metadata": {"name": "sluice-webhook-certificates"}, "data": {}})
    certificates = replica("first")
    await refresh(client, certificates)
    assert set((await client.get(SECRET))["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


def make_foreign_certificate():
    """Return a self-signed certificate without host names, and its key, as PEM."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other")])
    start, end = datetime.now(UTC), datetime.now(UTC) + timedelta(days=400)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), start, end)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return builder.sign(key, hashes.SHA256()).public_bytes(pem), private


@pytest.mark.parametrize("content", ["text", "another certificate"])
async def test_foreign_content_of_the_secret_is_replaced_by_certificates_that_serve(client, tmp_path, replica, content):
    certificate, key = make_foreign_certificate() if content == "another certificate" else (b"text", b"\xff")
    foreign = encode({"ca.crt": certificate, "tls.crt": certificate, "tls.key": key})
    await client.create(
        SECRET.rpartition("/")[0], {"metadata": {"name": "sluice-webhook-certificates"}, "data": foreign}
    )
    certificates = replica("first")
    await refresh(client, certificates)
    files = certificates.files()
    assert (await client.get(SECRET))["data"] == encode(files)
    (served,) = x509.load_pem_x509_certificates(files["tls.crt"])
    served.verify_directly_issued_by(x509.load_pem_x509_certificates(certificates.ca_bundle)[0])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "first/tls.crt", tmp_path / "first/tls.key")


def encode(files):
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


async def test_refresh_without_permission_for_secrets_creates_no_certificates(tmp_path, replica):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "bob")
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            with pytest.raises(Forbidden):
                await refresh(client, replica("first"))
    assert not (tmp_path / "first").exists(), "API servers would not trust a certificate that replicas do not share"


async def test_unwritable_directory_is_a_certificate_error(client, tmp_path, replica):
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="cannot read or write the webhook's certificates"):
        await refresh(client, replica("file/certificates"))
