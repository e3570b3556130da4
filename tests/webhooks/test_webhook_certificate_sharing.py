"""Certificates that several replicas share by a Secret: creation, concurrent start, and renewal."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

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


async def test_refresh_without_permission_for_secrets_is_forbidden(tmp_path, replica):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "bob")
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            with pytest.raises(Forbidden):
                await refresh(client, replica("first"))


async def test_unwritable_directory_is_a_certificate_error(client, tmp_path, replica):
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="cannot read or write the webhook's certificates"):
        await refresh(client, replica("file/certificates"))
