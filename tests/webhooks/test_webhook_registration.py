"""Registration of the webhooks: configuration in the cluster, selection of requests, and calls over TLS."""

from __future__ import annotations

import pytest
from policy_examples import KUEUE_QUEUE, QUEUE, SLUICE
from review_examples import RecordingReviewer

from admission.cluster.errors import Invalid, NotFound
from admission.kinds import all_kinds
from admission.sandbox.apiserver.requests import User
from admission.sandbox.apiserver.selectors import requirements_of
from admission.sandbox.sandbox import Sandbox
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.gate_reconciler import CONTESTED, GateReconciler
from webhooks.registration import Registration, ServiceReference
from webhooks.scope import Scope
from webhooks.server import answering

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{CONFIGURATIONS}/mutatingwebhookconfigurations/sluice"
VALIDATING = f"{CONFIGURATIONS}/validatingwebhookconfigurations/sluice"


def make_job(name, *, queue="main", annotations=None, **spec):
    metadata = {"name": name, "annotations": annotations or {}}
    if queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


@pytest.fixture
async def sandbox():
    users = {f"{name}-token": User(name, groups=("system:masters",)) for name in (SLUICE, "alice", "mallory")}
    async with Sandbox(controllers=False, users=users) as sandbox:
        yield sandbox


@pytest.fixture
def reviewer():
    return RecordingReviewer(all_kinds(), own_usernames=[SLUICE], queue_exists=lambda _, name: name == "main")


@pytest.fixture
async def registration(certificates, reviewer, tmp_path):
    """Serve the webhook for the duration of the test; return its registration."""
    directory = tmp_path / "certificates"
    context = ReloadingContext(directory / "tls.crt", directory / "tls.key")
    (socket,) = await open_sockets("127.0.0.1", 0)
    async with answering(reviewer, [socket], ssl_context=context):
        yield Registration(all_kinds(), f"https://127.0.0.1:{socket.getsockname()[1]}", Scope((SLUICE,)))


def make_reconciler(sluice, configuration):
    return GateReconciler(sluice, "webhooks", all_kinds(), Scope((SLUICE,)), lambda: configuration)


async def ensure_registered(sluice, configuration):
    return await make_reconciler(sluice, configuration).ensure()


@pytest.fixture
async def registered(sluice, registration, certificates):
    assert await ensure_registered(sluice, registration.configuration(certificates.ca_bundle))


async def test_registering_again_changes_nothing(sluice, registration, certificates, registered):
    before = await sluice.get(MUTATING)
    assert not await ensure_registered(sluice, registration.configuration(certificates.ca_bundle))
    assert await sluice.get(MUTATING) == before


async def test_manual_changes_of_the_webhook_configuration_are_reverted(sluice, registration, certificates, registered):
    hook, *others = hooks = (await sluice.get(MUTATING))["webhooks"]
    added = {**hook, "name": "x.y.z"}
    for changed in ([{**hook, "failurePolicy": "Ignore"}, *others], [*hooks, added], others):
        await sluice.patch(MUTATING, {"webhooks": changed})
        assert await ensure_registered(sluice, registration.configuration(certificates.ca_bundle))
        assert (await sluice.get(MUTATING))["webhooks"] == hooks


async def test_validating_webhook_of_earlier_versions_is_removed(sluice, connect, registration, certificates):
    configuration = registration.configuration(certificates.ca_bundle)
    hook = configuration["webhooks"][0]
    outdated = {key: value for key, value in hook.items() if key != "reinvocationPolicy"}
    outdated["clientConfig"] = {"caBundle": hook["clientConfig"]["caBundle"], "url": "https://127.0.0.1:1/validate"}
    body = {**configuration, "kind": "ValidatingWebhookConfiguration", "webhooks": [outdated]}
    await sluice.create(VALIDATING.rpartition("/")[0], body)
    assert await ensure_registered(sluice, configuration)
    assert await make_reconciler(sluice, configuration).remove_obsolete() == ["ValidatingWebhookConfiguration sluice"]
    with pytest.raises(NotFound):
        await sluice.get(VALIDATING)
    async with connect("alice") as alice:
        assert (await alice.create(JOBS, make_job("j")))["spec"]["suspend"] is True


async def test_changed_ca_bundle_updates_the_configuration(sluice, registration, certificates, registered):
    other = certificates.ca_bundle + certificates.ca_bundle
    assert await ensure_registered(sluice, registration.configuration(other))
    assert not await ensure_registered(sluice, registration.configuration(other))


async def test_reconciler_restores_the_registration_in_each_round(sluice, registration, certificates):
    class Stopped(Exception):
        pass

    rounds = []

    async def sleep(_):
        rounds.append([hook["name"] for hook in await configured(sluice)])
        if len(rounds) == 1:
            await ensure_registered(sluice, registration.configuration(b"outdated"))
        if len(rounds) == 3:
            raise Stopped

    async def refresh():
        certificates.renew()

    scope = Scope((SLUICE,))
    reconciler = GateReconciler(
        sluice, "webhooks", all_kinds(), scope, lambda: registration.configuration(certificates.ca_bundle)
    )
    with pytest.raises(Stopped):
        await reconciler.run(refresh=refresh, sleep=sleep)
    names = [f"jobs.{verb}.sluice.dev" for verb in ("new-1", "new-2", "misspelled", "mutate")]
    assert rounds == [[], names, names]
    wanted = registration.configuration(certificates.ca_bundle)["webhooks"][0]["clientConfig"]
    assert [hook["clientConfig"] for hook in await configured(sluice)] == [wanted] * len(names)


async def test_repeated_overwrites_of_the_gate_are_logged_once(sluice, registration, certificates, caplog):
    class Stopped(Exception):
        pass

    rounds = 0

    async def sleep(_):
        nonlocal rounds
        rounds += 1
        assert ("--certificate-secret" in caplog.text) == (rounds > CONTESTED)
        if rounds > CONTESTED + 2:
            raise Stopped
        await ensure_registered(sluice, registration.configuration(b"of another replica"))

    async def refresh():
        pass

    scope = Scope((SLUICE,))
    reconciler = GateReconciler(
        sluice, "webhooks", all_kinds(), scope, lambda: registration.configuration(certificates.ca_bundle)
    )
    with pytest.raises(Stopped):
        await reconciler.run(refresh=refresh, sleep=sleep)
    assert caplog.text.count("--certificate-secret") == 1, "not with each round"


async def configured(sluice):
    items = (await sluice.get(MUTATING.rpartition("/")[0]))["items"]
    return [hook for configuration in items for hook in configuration["webhooks"]]


async def test_a_queued_job_is_gated_by_the_api_server(connect, registered):
    async with connect("alice") as alice:
        job = await alice.create(JOBS, make_job("j", annotations={"sluice.dev/submitted-by": "boss"}))
        assert job["spec"]["suspend"] is True
        assert job["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
        started = await alice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        assert started["spec"]["suspend"] is True


async def test_job_started_by_sluice_keeps_its_queue(connect, sluice, registered):
    async with connect("alice") as alice:
        await alice.create(JOBS, make_job("j"))
        job = await sluice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        assert job["spec"]["suspend"] is False
        moved = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        assert moved["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
        bare = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
        assert bare["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"


async def test_status_update_cannot_change_queue_or_submitter_of_a_running_job(connect, sluice, registered):
    async with connect("alice") as alice, connect("mallory") as mallory:
        await alice.create(JOBS, make_job("j"))
        await sluice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        metadata = {
            "labels": {"kueue.x-k8s.io/queue-name": None},
            "annotations": {"sluice.dev/submitted-by": "mallory", "note": "x"},
        }
        await mallory.patch(f"{JOBS}/j/status", {"metadata": metadata, "status": {"ready": 0}})
        job = await alice.get(f"{JOBS}/j")
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
        assert job["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice", "note": "x"}
        assert job["status"]["ready"] == 0


async def test_job_with_a_fault_is_refused_with_its_path(connect, registered):
    async with connect("alice") as alice:
        with pytest.raises(Invalid, match=r"metadata.annotations\[sluice.dev/hold\]: must be"):
            await alice.create(JOBS, make_job("j", annotations={"sluice.dev/hold": "maybe"}))


async def test_misspelled_queue_label_is_warned_of_only_at_creation(connect, registered, reviewer):
    async with connect("alice") as alice:
        for number, key in enumerate(("sluice.dev/queue-nam", "kueue.x-k8s.io/queue_name", "x.example/queue-name")):
            job = make_job(f"j-{number}", queue="")
            job["metadata"]["labels"] = {key: "main"}
            assert (await alice.create(JOBS, job))["spec"]["suspend"] is False
            await alice.patch(f"{JOBS}/j-{number}", {"spec": {"parallelism": 2}})
    (first,), (second,) = reviewer.warned
    assert first.startswith("metadata.labels[sluice.dev/queue-nam]: ")
    assert second.startswith("metadata.labels[kueue.x-k8s.io/queue_name]: ")
    alone = Registration(all_kinds(kueue_labels=False), "https://127.0.0.1:1", Scope(()))
    assert "kueue[.]" not in str(alone.configuration(b""))


@pytest.mark.parametrize("labels", [[QUEUE], [KUEUE_QUEUE], [QUEUE, KUEUE_QUEUE], [QUEUE, "sluice.dev/queue-nam"]])
@pytest.mark.parametrize("value", ["main", ""])
async def test_creation_with_any_queue_labels_is_one_webhook_call(connect, registered, reviewer, labels, value):
    async with connect("alice") as alice:
        manifest = make_job("j", queue="")
        manifest["metadata"]["labels"] = dict.fromkeys(labels, value)
        if value:
            assert (await alice.create(JOBS, manifest))["spec"]["suspend"] is True
        else:
            with pytest.raises(Invalid, match="is empty: name what it is for"):
                await alice.create(JOBS, manifest)
        assert len(reviewer.warned) == 1


def test_webhook_for_creations_with_a_queue_label_has_no_match_conditions():
    """For each entry with a match condition an API server converts the whole object to CEL values."""
    hooks = Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"")["webhooks"]
    for labels in ({QUEUE: "q"}, {KUEUE_QUEUE: "q"}, {QUEUE: "", KUEUE_QUEUE: "q"}):
        (asked,) = (
            hook
            for hook in hooks
            if "CREATE" in hook["rules"][0]["operations"]
            and all(each.holds(labels) for each in requirements_of(hook["objectSelector"]))
        )
        assert "matchConditions" not in asked


def test_custom_resources_have_one_webhook_each():
    """For each write in the cluster an API server checks rules and selectors of every entry."""
    kinds = all_kinds(frameworks=("jobset.x-k8s.io/jobset", "ray.io/raycluster"))
    hooks = Registration(kinds, "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"")["webhooks"]
    assert len(hooks) == 2


async def test_webhook_is_called_only_for_creations_and_spec_updates(connect, sluice, registered, reviewer):
    async with connect("alice") as alice:
        await alice.create(JOBS, make_job("j"))
        assert len(reviewer.warned) == 1
        await alice.patch(f"{JOBS}/j", {"metadata": {"annotations": {"note": "x"}, "finalizers": ["example.com/x"]}})
        await alice.patch(f"{JOBS}/j/status", {"status": {"ready": 0}})
        await sluice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        assert len(reviewer.warned) == 1
        await alice.patch(f"{JOBS}/j", {"spec": {"parallelism": 2}})
        assert len(reviewer.warned) == 2


async def test_a_queued_job_can_be_deleted_in_the_foreground_while_sluice_is_down(connect, sluice, certificates):
    async with connect("alice") as alice:
        await alice.create(JOBS, make_job("j"))
        registration = Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,)))
        await ensure_registered(sluice, registration.configuration(certificates.ca_bundle))
        deleting = await alice.delete(f"{JOBS}/j", params={"propagationPolicy": "Foreground"})
        assert deleting["metadata"]["finalizers"] == ["foregroundDeletion"]
        await alice.patch(f"{JOBS}/j", {"metadata": {"labels": None}, "spec": {"parallelism": 3}})
        await alice.patch(f"{JOBS}/j", {"metadata": {"finalizers": None}})
        with pytest.raises(NotFound):
            await alice.get(f"{JOBS}/j")


async def test_outage_of_the_webhook_prevents_only_queued_jobs(connect, sluice, certificates):
    registration = Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,)))
    await ensure_registered(sluice, registration.configuration(certificates.ca_bundle))
    async with connect("alice") as alice:
        job = await alice.create(JOBS, make_job("unqueued", queue=""))
        assert not job["spec"].get("suspend")
        with pytest.raises(Exception, match=r"failed calling webhook .*sluice\.dev"):
            await alice.create(JOBS, make_job("queued"))


async def test_outage_of_the_webhook_prevents_no_object_without_a_queue_label(connect, sluice, certificates):
    kinds = all_kinds(frameworks=("batch/job", "pod", "deployment", "statefulset"))
    registration = Registration(kinds.gated, "https://127.0.0.1:1", Scope((SLUICE,)))
    await ensure_registered(sluice, registration.configuration(certificates.ca_bundle))
    pod = {"containers": [{"name": "c", "image": "registry.example/app:1"}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    objects = {
        "/api/v1/namespaces/default/pods": {"spec": pod},
        "/apis/apps/v1/namespaces/default/deployments": {"spec": spec},
        "/apis/apps/v1/namespaces/default/statefulsets": {"spec": spec},
    }
    async with connect("alice") as alice:
        for path, fields in objects.items():
            for name, labels in (("plain", {"app": "a"}), ("misspelled", {"sluice.dev/queue": "q"})):
                await alice.create(path, {"metadata": {"name": name, "labels": labels}, **fields})
                await alice.patch(f"{path}/{name}", {"metadata": {"labels": {"more": "x"}}})
            for key in (QUEUE, KUEUE_QUEUE):
                with pytest.raises(Exception, match=r"failed calling webhook .*sluice\.dev"):
                    await alice.create(path, {"metadata": {"name": "queued", "labels": {key: "q"}}, **fields})
        in_template = {"metadata": {"labels": {"app": "a", QUEUE: "q"}}, "spec": pod}
        with pytest.raises(Exception, match=r"failed calling webhook .*sluice\.dev"):
            await alice.create(path, {"metadata": {"name": "queued"}, "spec": {**spec, "template": in_template}})


def test_registration_in_a_cluster_references_a_service():
    scope = Scope((), ("kube-system", "sluice"))
    registration = Registration(all_kinds(), ServiceReference("sluice", "sluice-webhook"), scope)
    hook = registration.configuration(b"PEM")["webhooks"][0]
    assert hook["clientConfig"] == {
        "caBundle": "UEVN",
        "service": {"namespace": "sluice", "name": "sluice-webhook", "port": 443, "path": "/mutate"},
    }
    assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "sluice"]
    assert (hook["reinvocationPolicy"], hook["timeoutSeconds"]) == ("IfNeeded", 5)
