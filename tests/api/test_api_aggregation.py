"""Aggregation layer: `sluice serve` registers and maintains its APIService, with TLS that the API server accepts."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from pki import Authority
from ports import free_port
from ports import free_port as unused_port

from admission.api.application import listening
from admission.api.resources.explaining_engine import NoController
from admission.api.resources.leader_view import NoLeader
from admission.api.resources.start_estimates import no_estimates
from admission.apimachinery.errors import UnusableCertificate
from admission.cli.configuration.settings import load_settings
from admission.cli.errors import InvalidSettings
from admission.cli.serve.aggregation import (
    TlsEndpoint,
    aggregation,
    api_address,
    api_app,
    api_hosts,
    has_tls,
    tls_endpoint,
)
from admission.cli.serve.certificates import OwnCertificates
from admission.cluster.client import Client
from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store

APISERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.sluice.dev"
SERVICE = "/api/v1/namespaces/sluice-system/services/sluice-external"


@pytest.fixture(name="free_port")
def port() -> int:
    return free_port()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as opened:
        yield opened


@pytest.fixture
async def client(sandbox, tmp_path) -> AsyncIterator[Client]:
    sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
    async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as opened:
        yield opened


@asynccontextmanager
async def serving_registered(store: Store, client: Client, folder: Any, **flags: Any) -> AsyncIterator[Any]:
    """The TLS endpoint as `sluice serve` opens and registers it, and its URL."""
    settings = load_settings({"certificate_directory": folder / "certificates", **flags})
    certificates = OwnCertificates(settings, client)
    await certificates.refresh()
    opened = await tls_endpoint(settings, client, certificates)
    assert opened is not None
    app = api_app(settings, store, client, NoController(), NoLeader(), opened, {}, no_estimates)
    async with listening(app, "127.0.0.1", api_address(settings)[1], ssl_context=opened.context) as url:
        await opened.register()
        yield opened, url


async def available(client: Client, status: str = "True") -> dict[str, Any]:
    """Wait until the condition Available of the APIService has the status, and return the condition."""
    while True:
        for condition in (await client.get(APISERVICE)).get("status", {}).get("conditions", []):
            if condition["type"] == "Available" and condition["status"] == status:
                return condition
        await asyncio.sleep(0.05)


async def test_api_server_finds_sluice_and_forwards_the_user(store, client, sandbox, tmp_path, free_port):
    async with serving_registered(store, client, tmp_path, apiservice_url=f"https://localhost:{free_port}"):
        assert (await available(client))["reason"] == "Passed"
        service = await client.get(SERVICE)
        assert (service["spec"]["type"], service["spec"]["externalName"]) == ("ExternalName", "localhost")
        cohort = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a"}}
        await client.create("/apis/sluice.dev/v1/cohorts", cohort)
        (record,) = (await store.audit.list()).records
        assert (record.user, "system:masters" in record.groups, record.verb) == ("sluice", True, "create")


async def test_changed_or_deleted_api_service_and_service_are_restored(store, client, tmp_path, free_port):
    async with serving_registered(store, client, tmp_path, apiservice_url=f"https://localhost:{free_port}") as (
        opened,
        _,
    ):
        wanted = await client.get(APISERVICE)
        wrong = {"service": {"name": "other"}, "caBundle": base64.b64encode(b"x").decode(), "groupPriorityMinimum": 7}
        for damage in (
            lambda: client.patch(APISERVICE, {"spec": wrong}),
            lambda: client.patch(SERVICE, {"spec": {"externalName": "elsewhere.example"}}),
            lambda: client.delete(APISERVICE),
            lambda: client.delete(SERVICE),
            lambda: asyncio.sleep(0),
        ):
            await damage()
            rounds = 0

            async def sleep(seconds: float) -> None:
                nonlocal rounds
                assert seconds == 60
                rounds += 1
                if rounds == 2:
                    raise asyncio.CancelledError

            with pytest.raises(asyncio.CancelledError):
                await opened.run(sleep=sleep)
            assert (await client.get(APISERVICE))["spec"] == wanted["spec"]
            assert (await client.get(SERVICE))["spec"]["externalName"] == "localhost"


async def test_unavailable_api_service_is_logged_once_with_its_cause(store, client, tmp_path, free_port, caplog):
    caplog.set_level("INFO")
    async with serving_registered(store, client, tmp_path, apiservice_url=f"https://localhost:{free_port}") as (
        opened,
        _,
    ):
        await available(client)
        await opened.check_availability()
        assert "not available" not in caplog.text
        await client.patch(APISERVICE, {"spec": {"service": {"port": unused_port()}}})
        await available(client, "False")
        for _ in range(3):
            await opened.check_availability()
        (told,) = (record.getMessage() for record in caplog.records if "not available" in record.getMessage())
        assert "APIService v1.sluice.dev is not available, FailedDiscoveryCheck: failing or missing response" in told
        assert f"to the Service sluice-system/sluice-external, port {free_port}, which leads to localhost" in told
        await opened.register()
        await available(client)
        for _ in range(3):
            await opened.check_availability()
        assert caplog.text.count("the API server reaches Sluice as APIService v1.sluice.dev again") == 1


async def test_sluice_keeps_serving_during_an_outage_of_the_api_server(
    store, client, sandbox, tmp_path, free_port, caplog
):
    async with serving_registered(store, client, tmp_path, apiservice_url=f"https://localhost:{free_port}") as (
        opened,
        url,
    ):
        await sandbox.__aexit__(None, None, None)
        rounds = 0

        async def sleep(_: float) -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 3:
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await opened.run(sleep=sleep)
        assert "could not be checked" in caplog.text
        context = ssl.create_default_context(cafile=str(tmp_path / "certificates" / "ca.crt"))
        async with aiohttp.ClientSession() as session, session.get(f"{url}/livez", ssl=context) as answer:
            assert answer.status == 200


async def test_malformed_status_of_the_api_service_does_not_end_the_checks(store, client, tmp_path, free_port, caplog):
    async with serving_registered(store, client, tmp_path, apiservice_url=f"https://localhost:{free_port}") as (
        opened,
        _,
    ):
        rounds = 0

        async def sleep(_: float) -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 3:
                raise asyncio.CancelledError
            await client.patch(f"{APISERVICE}/status", {"status": {"conditions": [{}]}})

        with pytest.raises(asyncio.CancelledError):
            await opened.run(sleep=sleep)
        assert "KeyError: 'type'" in caplog.text


async def test_configured_certificate_is_served_and_reloaded_after_renewal(store, client, tmp_path, free_port):
    authority = Authority(tmp_path, "company-ca")
    pair, renewed = authority.server("sluice.example"), authority.server("sluice.example", "127.0.0.1")
    flags = {"api_certificate": pair.certificate, "api_key": pair.key, "api_ca": authority.file}
    flags |= {"api_address": f"127.0.0.1:{free_port}", "apiservice_url": "https://sluice.example:443"}
    async with serving_registered(store, client, tmp_path, **flags) as (opened, url):
        spec = (await client.get(APISERVICE))["spec"]
        assert base64.b64decode(spec["caBundle"]).decode() == authority.pem
        assert spec["service"]["port"] == 443
        assert not (tmp_path / "certificates").exists()
        context = ssl.create_default_context(cafile=str(authority.file))
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(f"{url}/livez", ssl=context)
            pair.certificate.write_bytes(renewed.certificate.read_bytes())
            with pytest.raises(UnusableCertificate, match="cannot be used"):
                opened.context.refresh()  # the key is still the old one
            pair.key.write_bytes(renewed.key.read_bytes())
            opened.context.refresh()
            async with session.get(f"{url}/livez", ssl=context) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("flags", "tls", "address"),
    [
        ({}, False, ("127.0.0.1", 8080)),
        ({"api_address": "[::1]:8080"}, False, ("::1", 8080)),
        ({"api_address": "localhost:80"}, False, ("localhost", 80)),
        ({"api_address": ":8443"}, True, ("0.0.0.0", 8443)),
        ({"api_address": "192.0.2.7:8443"}, True, ("192.0.2.7", 8443)),
        ({"api_certificate": "/a", "api_key": "/b"}, True, ("127.0.0.1", 8080)),
        ({"apiservice": True, "api_address": ":6443"}, True, ("0.0.0.0", 6443)),
        ({"apiservice_url": "https://localhost:8443"}, True, ("localhost", 8443)),
        ({"apiservice_url": "https://[::1]:8443"}, True, ("::1", 8443)),
        ({"apiservice_url": "https://[2001:db8::7]:8443"}, True, ("::", 8443)),
        ({"apiservice_url": "https://host.example"}, True, ("0.0.0.0", 443)),
        ({"apiservice_url": "https://localhost:8443", "api_address": ":1234"}, True, ("0.0.0.0", 1234)),
    ],
)
def test_plain_http_is_used_on_loopback_only(flags, tls, address):
    settings = load_settings(flags)
    assert (has_tls(settings), api_address(settings)) == (tls, address)


def test_api_certificate_and_key_must_be_set_together():
    for flags in ({"api_certificate": "/a"}, {"api_key": "/b"}):
        with pytest.raises(InvalidSettings, match="belong together"):
            has_tls(load_settings(flags))


def test_certificate_of_a_registered_api_needs_its_ca():
    for flags in ({"apiservice_url": "https://host.example"}, {"apiservice": True}):
        with pytest.raises(InvalidSettings, match="give apiCa"):
            has_tls(load_settings({**flags, "api_certificate": "/a", "api_key": "/b"}))
        assert has_tls(load_settings({**flags, "api_certificate": "/a", "api_key": "/b", "api_ca": "/c"}))


async def test_unreadable_ca_of_the_api_is_named(client, tmp_path):
    authority = Authority(tmp_path, "company-ca")
    pair = authority.server("sluice.example")
    flags = {"api_certificate": pair.certificate, "api_key": pair.key, "api_ca": tmp_path / "missing.pem"}
    settings = load_settings({**flags, "apiservice_url": "https://sluice.example:443"})
    endpoint = TlsEndpoint(settings, client, OwnCertificates(settings, client))
    with pytest.raises(InvalidSettings, match=r"apiCa: .*missing\.pem cannot be read"):
        await endpoint.register()


async def test_expired_certificate_is_logged_once_and_again_if_its_successor_is_expired(client, tmp_path, caplog):
    authority = Authority(tmp_path, "company-ca")
    pair = authority.server("sluice.example", lifetime=timedelta(minutes=-5))
    settings = load_settings({"api_certificate": pair.certificate, "api_key": pair.key})
    endpoint = TlsEndpoint(settings, client, OwnCertificates(settings, client))
    logged = "the certificate of the REST API has expired (2"
    for lifetime, count in ((None, 1), (None, 1), (timedelta(minutes=-3), 2), (timedelta(days=1), 2)):
        if lifetime is not None:
            renewed = authority.server("sluice.example", lifetime=lifetime)
            shutil.copy(renewed.certificate, pair.certificate)
            shutil.copy(renewed.key, pair.key)
        await endpoint.refresh()
        assert caplog.text.count(logged) == count
    assert f"replace {pair.certificate} and its key" in caplog.text


async def test_certificate_in_a_form_that_only_openssl_reads_is_served(client, tmp_path, caplog):
    pair = Authority(tmp_path, "company-ca").server("sluice.example", lifetime=timedelta(minutes=-5))
    pair.certificate.write_bytes(pair.certificate.read_bytes().replace(b" CERTIFICATE", b" TRUSTED CERTIFICATE"))
    settings = load_settings({"api_certificate": pair.certificate, "api_key": pair.key})
    endpoint = TlsEndpoint(settings, client, OwnCertificates(settings, client))
    await endpoint.refresh()
    assert endpoint.context.certificate == pair.certificate.read_bytes()
    assert "has expired" not in caplog.text


def test_certificate_covers_service_name_external_host_and_loopback():
    settings = load_settings({"apiservice_url": "https://host.example:8443", "api_service": "queues/front"})
    assert api_hosts(settings) == ["front.queues.svc", "host.example", "localhost", "127.0.0.1", "::1"]
    assert api_hosts(load_settings({})) == []


def test_api_service_without_a_url_refers_to_the_installed_service():
    found = aggregation(load_settings({"apiservice": True}))
    assert found is not None
    assert found.external_name == ""
    service = {"namespace": "sluice-system", "name": "sluice-api", "port": 443}
    assert found.api_service(b"ca")["spec"]["service"] == service
    assert aggregation(load_settings({})) is None
