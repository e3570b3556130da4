"""The webhooks as an API server calls them: registered by Sluice itself, matched by labels, called over TLS."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from admission.cluster.client import Client
from admission.cluster.errors import Invalid
from admission.kinds import all_kinds
from admission.sandbox.auth import User
from admission.sandbox.sandbox import Sandbox
from webhooks.certificates import Certificates
from webhooks.registration import Registration, ServiceReference, ensure_registered, keep_registered
from webhooks.review import Reviewer
from webhooks.server import WebhookServer

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{CONFIGURATIONS}/mutatingwebhookconfigurations/sluice"
VALIDATING = f"{CONFIGURATIONS}/validatingwebhookconfigurations/sluice"
SLUICE = "sluice"


def make_job(name, *, queue="main", annotations=None, **spec):
    metadata = {"name": name, "annotations": annotations or {}}
    if queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


@pytest.fixture
async def sandbox():
    users = {f"{name}-token": User(name, groups=("system:masters",)) for name in (SLUICE, "alice")}
    async with Sandbox(controllers=False, users=users) as sandbox:
        yield sandbox


@pytest.fixture
def connect(sandbox, tmp_path):
    @asynccontextmanager
    async def connect(user):
        path = tmp_path / f"kubeconfig-{user}"
        sandbox.write_kubeconfig(path, user)
        async with Client.from_kubeconfig(str(path)) as client:
            yield client

    return connect


@pytest.fixture
async def client(connect):
    async with connect(SLUICE) as client:
        yield client


@pytest.fixture
def certificates(tmp_path):
    certificates = Certificates(tmp_path / "certificates", ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.refresh()
    return certificates


@pytest.fixture
async def registration(certificates):
    """What belongs to a webhook server that runs meanwhile."""
    reviewer = Reviewer(all_kinds(), own_usernames=[SLUICE], queue_exists=lambda _, name: name == "main")
    context = certificates.ssl_context
    async with WebhookServer(reviewer, ssl_context=context, host="127.0.0.1", port=0) as server:
        yield Registration(all_kinds(), f"https://127.0.0.1:{server.port}", (SLUICE,))


@pytest.fixture
async def registered(client, registration, certificates):
    assert await ensure_registered(client, registration.configurations(certificates.ca_bundle))


async def test_registering_again_changes_nothing(client, registration, certificates, registered):
    before = await client.get(MUTATING)
    assert not await ensure_registered(client, registration.configurations(certificates.ca_bundle))
    assert await client.get(MUTATING) == before


async def test_what_was_changed_by_hand_is_put_right(client, registration, certificates, registered):
    (hook,) = (await client.get(MUTATING))["webhooks"]
    await client.patch(MUTATING, {"webhooks": [{**hook, "failurePolicy": "Ignore"}, {**hook, "name": "x.y.z"}]})
    await client.delete(VALIDATING)
    assert await ensure_registered(client, registration.configurations(certificates.ca_bundle))
    assert (await client.get(MUTATING))["webhooks"] == [hook]
    assert (await client.get(VALIDATING))["webhooks"][0]["clientConfig"]["url"].endswith("/validate")


async def test_a_new_bundle_is_published(client, registration, certificates, registered):
    other = certificates.ca_bundle + certificates.ca_bundle
    assert await ensure_registered(client, registration.configurations(other))
    assert not await ensure_registered(client, registration.configurations(other))


async def test_registration_is_kept_up_for_ever(client, registration, certificates):
    class Stopped(Exception):
        pass

    rounds = []

    async def sleep(_):
        rounds.append(sorted(hook["name"] for hook in await configurations(client)))
        if len(rounds) == 1:
            await ensure_registered(client, registration.configurations(b"outdated"))
        if len(rounds) == 3:
            raise Stopped

    async def refresh():
        certificates.refresh()

    with pytest.raises(Stopped):
        await keep_registered(client, registration, certificates, refresh=refresh, sleep=sleep)
    both = ["jobs.mutate.sluice.dev", "jobs.validate.sluice.dev"]
    assert rounds == [[], both, both]
    (hook, _) = await configurations(client)
    assert hook["clientConfig"] == registration.configurations(certificates.ca_bundle)[0]["webhooks"][0]["clientConfig"]


async def configurations(client):
    lists = [await client.get(path.rpartition("/")[0]) for path in (MUTATING, VALIDATING)]
    return [hook for items in lists for item in items["items"] for hook in item["webhooks"]]


async def test_a_queued_job_is_gated_by_the_api_server(connect, registered):
    async with connect("alice") as alice:
        job = await alice.create(JOBS, make_job("j", annotations={"sluice.dev/submitted-by": "boss"}))
        assert job["spec"]["suspend"] is True
        assert job["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
        started = await alice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        assert started["spec"]["suspend"] is True


async def test_sluice_itself_unsuspends(connect, client, registered):
    async with connect("alice") as alice:
        await alice.create(JOBS, make_job("j"))
        job = await client.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        assert job["spec"]["suspend"] is False
        moved = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        assert moved["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
        bare = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
        assert bare["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"


async def test_a_job_with_faults_is_refused_with_their_paths(connect, registered):
    async with connect("alice") as alice:
        with pytest.raises(Invalid, match=r"metadata.annotations\[sluice.dev/hold\]: must be"):
            await alice.create(JOBS, make_job("j", annotations={"sluice.dev/hold": "maybe"}))


async def test_nobody_else_notices_an_outage(connect, client, certificates):
    registration = Registration(all_kinds(), "https://127.0.0.1:1", (SLUICE,))
    await ensure_registered(client, registration.configurations(certificates.ca_bundle))
    async with connect("alice") as alice:
        job = await alice.create(JOBS, make_job("unqueued", queue=""))
        assert not job["spec"].get("suspend")
        with pytest.raises(Exception, match=r"failed calling webhook .*sluice\.dev"):
            await alice.create(JOBS, make_job("queued"))


def test_inside_a_cluster_a_service_is_named():
    registration = Registration(
        all_kinds(), ServiceReference("sluice", "sluice-webhook"), (), ("kube-system", "sluice")
    )
    mutating, validating = registration.configurations(b"PEM")
    (hook,) = mutating["webhooks"]
    assert hook["clientConfig"] == {
        "caBundle": "UEVN",
        "service": {"namespace": "sluice", "name": "sluice-webhook", "port": 443, "path": "/mutate"},
    }
    assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "sluice"]
    assert (hook["reinvocationPolicy"], hook["timeoutSeconds"]) == ("IfNeeded", 5)
    assert "reinvocationPolicy" not in validating["webhooks"][0]
