"""Deployments: queue and priority labels, which the webhook copies into the pod template and keeps equal there."""

from __future__ import annotations

import re

import pytest
from policy_examples import SLUICE
from review_examples import RecordingReviewer

from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cluster.client import PatchType
from admission.cluster.errors import Invalid
from admission.kinds.rules import QueueRule
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration
from webhooks.scope import Scope
from webhooks.server import answering

QUEUE, KUEUE, KAI = "sluice.dev/queue-name", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue"
PRIORITY, KUEUE_PRIORITY = "sluice.dev/priority-class", "kueue.x-k8s.io/priority-class"
KINDS = IntegrationsSettings(
    frameworks=("batch/job", "pod", "deployment", "workload.codeflare.dev/appwrapper"), queue_labels=(KAI,)
).registry()
OFF = IntegrationsSettings(frameworks=("batch/job", "pod")).registry()
SCOPE = Scope((SLUICE,), managed=({"key": "team", "operator": "Exists"},), rules=(QueueRule("ruled"),))
PATH = "/apis/apps/v1/namespaces/default/deployments"
WEB = f"{PATH}/web"
APPLY = {"fieldManager": "kubectl", "force": "true"}


@pytest.fixture(params=["webhooks", "policies"])
async def gate(request, tmp_path, certificates, sluice):
    """Install the gate, with team-a as managed namespace; return the warnings of all reviews."""
    (socket,) = await open_sockets("127.0.0.1", 0)
    exists = {("default", "a"), ("default", "b")}.__contains__
    reviewer = RecordingReviewer(
        KINDS.gated, own_usernames=[SLUICE], rules=SCOPE.rules, queue_exists=lambda *names: exists(names)
    )
    context = ReloadingContext(tmp_path / "certificates" / "tls.crt", tmp_path / "certificates" / "tls.key")
    async with answering(reviewer, [socket], ssl_context=context):
        registration = Registration(KINDS.gated, f"https://127.0.0.1:{socket.getsockname()[1]}", SCOPE)
        configuration = registration.configuration(certificates.ca_bundle)
        assert await GateReconciler(sluice, request.param, KINDS.gated, SCOPE, lambda: configuration).ensure()
        yield reviewer.warned


def deployment(labels=None, template_labels=None, selector=None, **metadata):
    template = {
        "metadata": {"labels": {"app": "web", **(template_labels or {})}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels or {}, **metadata},
        "spec": {"selector": {"matchLabels": {"app": "web", **(selector or {})}}, "template": template},
    }


def template_labels(obj):
    """Return the labels of the pod template except `app`."""
    labels = obj["spec"]["template"]["metadata"]["labels"]
    assert labels["app"] == "web"
    return {key: value for key, value in labels.items() if key != "app"}


def labels(**changes):
    return {"metadata": {"labels": {{"queue": QUEUE, "kueue": KUEUE}.get(key, key): changes[key] for key in changes}}}


async def test_queue_and_priority_labels_are_copied_into_the_pod_template(alice, gate):
    for number, given in enumerate([
        {QUEUE: "a"}, {KUEUE: "a"}, {KAI: "a"}, {QUEUE: "a", KUEUE: "b", KAI: "b"},
        {QUEUE: "a", PRIORITY: "high"}, {KUEUE: "a", KUEUE_PRIORITY: "high"},
    ]):  # fmt: skip
        created = await alice.create(PATH, deployment({**given, "app": "else", "team": "x"}, name=f"web-{number}"))
        assert template_labels(created) == given
        assert created["metadata"]["labels"] == {**given, "app": "else", "team": "x"}
    assert gate == [[]] * 6


async def test_deployment_without_queue_label_is_unchanged_also_in_managed_namespaces(alice, gate):
    """The webhook adds the default queue, or the queue of a rule, to each of its pods instead."""
    for namespace in ("default", "team-a"):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        assert template_labels(await alice.create(path, deployment({PRIORITY: "high"}))) == {}
        assert template_labels(await alice.patch(f"{path}/web", {"spec": {"replicas": 2}})) == {}
        template = {"metadata": {"labels": {QUEUE: "b"}}}
        assert template_labels(await alice.patch(f"{path}/web", {"spec": {"template": template}})) == {QUEUE: "b"}
        assert template_labels(await alice.patch(f"{path}/web", {"spec": {"replicas": 3}})) == {QUEUE: "b"}
    assert gate == []


async def test_template_labels_follow_changes_of_the_deployment_labels(alice, gate):
    await alice.create(PATH, deployment())
    assert template_labels(await alice.patch(WEB, labels(kueue="a"))) == {KUEUE: "a"}
    assert template_labels(await alice.patch(WEB, labels(kueue="b"))) == {KUEUE: "b"}
    moved = await alice.patch(WEB, {"metadata": {"labels": {KUEUE: None, QUEUE: "a", PRIORITY: "high"}}})
    assert template_labels(moved) == {QUEUE: "a", PRIORITY: "high"}
    assert template_labels(await alice.patch(WEB, {"metadata": {"labels": {PRIORITY: None}}})) == {QUEUE: "a"}
    assert gate == [[]] * 5, "a change of the key matches by the old and by the new label"


async def test_queue_label_of_a_deployment_cannot_be_removed(alice, gate):
    """Otherwise the Deployment would replace its pods with pods that run without quota."""
    await alice.create(PATH, deployment({QUEUE: "a", PRIORITY: "high"}))
    why = "a Deployment stays queued until it is deleted"
    kept = f"metadata.labels[{QUEUE}]: kept, because {why}; name another queue"
    for change in ({QUEUE: None}, {QUEUE: ""}, None):
        changed = await alice.patch(WEB, {"metadata": {"labels": change}})
        assert changed["metadata"]["labels"][QUEUE] == template_labels(changed)[QUEUE] == "a"
        assert gate[-1] == [kept]
    replaced = await alice.replace(WEB, deployment())
    assert replaced["metadata"]["labels"] == template_labels(replaced) == {QUEUE: "a"}


async def test_labels_that_only_the_template_has_are_kept(alice, gate):
    await alice.create(PATH, deployment({QUEUE: "a"}, {KUEUE: "b", KUEUE_PRIORITY: "low"}))
    changed = await alice.patch(WEB, {"spec": {"replicas": 2}})
    assert template_labels(changed) == {QUEUE: "a", KUEUE: "b", KUEUE_PRIORITY: "low"}


async def test_queue_label_of_the_template_cannot_differ_from_the_deployment(alice, gate):
    """Pods must neither run without a queue nor use another queue than the Deployment names."""
    await alice.create(PATH, deployment({QUEUE: "a"}))
    removed = {"op": "remove", "path": "/spec/template/metadata/labels/sluice.dev~1queue-name"}
    assert template_labels(await alice.patch(WEB, [removed], patch_type=PatchType.JSON)) == {QUEUE: "a"}
    named = {"spec": {"template": {"metadata": {"labels": {QUEUE: "b"}}}}}
    assert template_labels(await alice.patch(WEB, named)) == {QUEUE: "a"}
    told = f"spec.template.metadata.labels[{QUEUE}]: pods get the label of the Deployment itself; change that one"
    assert gate[-1] == [told]
    assert template_labels(await alice.create(PATH, {**deployment({QUEUE: "a"}, {QUEUE: "b"}, name="two")})) == {
        QUEUE: "a"
    }
    assert gate[-1] == [told]


async def test_applying_the_same_manifest_again_does_not_change_the_generation(alice, gate):
    """Neither by server-side apply nor by replacement: a changed template would recreate all pods."""
    manifest = deployment({KUEUE: "a"})
    first = await alice.patch(WEB, manifest, patch_type=PatchType.APPLY, params=APPLY)
    assert template_labels(first) == {KUEUE: "a"}
    again = await alice.patch(WEB, manifest, patch_type=PatchType.APPLY, params=APPLY)
    replaced = await alice.replace(WEB, manifest)
    assert first["metadata"]["generation"] == again["metadata"]["generation"] == replaced["metadata"]["generation"]
    moved = deployment({KUEUE: "b"})
    assert template_labels(await alice.patch(WEB, moved, patch_type=PatchType.APPLY, params=APPLY)) == {KUEUE: "b"}
    other = await alice.patch(WEB, moved, patch_type=PatchType.APPLY, params={**APPLY, "fieldManager": "argocd"})
    assert template_labels(other) == {KUEUE: "b"}
    assert gate == [[]] * len(gate)


async def test_template_of_a_rollback_gets_the_current_queue_label(alice, gate):
    """`kubectl rollout undo` writes the template of an earlier ReplicaSet."""
    created = await alice.create(PATH, deployment())
    before = created["spec"]["template"]
    await alice.patch(WEB, labels(queue="a"))
    undo = [{"op": "replace", "path": "/spec/template", "value": before}]
    assert template_labels(await alice.patch(WEB, undo, patch_type=PatchType.JSON)) == {QUEUE: "a"}


async def test_template_label_that_the_selector_uses_is_never_changed(alice, gate):
    named = deployment({QUEUE: "a"}, {QUEUE: "a"}, {QUEUE: "a"})
    await alice.create(PATH, named)
    with pytest.raises(Invalid, match=r'metadata.labels\[sluice.dev/queue-name\]: is "b", but spec.selector.match'):
        await alice.patch(WEB, labels(queue="b"))
    assert template_labels(await alice.patch(WEB, {"metadata": {"labels": {QUEUE: None, KUEUE: "a"}}})) == {
        QUEUE: "a",
        KUEUE: "a",
    }
    assert gate[-1] == []


async def test_invalid_queue_or_priority_label_is_refused(alice, gate):
    """Otherwise the controller could not create pods, and only events would show the reason."""
    for given, told in (
        ({QUEUE: "No_Name"}, f'{QUEUE}]: "No_Name" is no name'),
        ({KUEUE: ""}, f"{KUEUE}]: is empty: name what it is for"),
        ({QUEUE: "a", KUEUE_PRIORITY: "No_Name"}, f'{KUEUE_PRIORITY}]: "No_Name" is no name'),
    ):
        with pytest.raises(Invalid, match=re.escape(f"metadata.labels[{told}")):
            await alice.create(PATH, deployment(given))


async def test_missing_queue_and_misspelled_label_cause_warnings(alice, gate):
    await alice.create(PATH, deployment({QUEUE: "c"}))
    await alice.create(PATH, deployment({"sluice.dev/queuename": "a"}, name="two"))
    misspelled = "metadata.labels[sluice.dev/queuename]"
    assert gate == [
        [f'metadata.labels[{QUEUE}]: no LocalQueue "c" exists in namespace "default"; the Deployment waits for it'],
        [f"{misspelled}: not a queue label, so the Deployment is not queued; use {QUEUE}"],
    ]


async def test_deployment_owned_by_an_object_of_a_queued_kind_is_not_queued(alice, gate):
    owner = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "w", "uid": "u"}
    owned = deployment({QUEUE: "a"}, ownerReferences=[owner | {"controller": True}])
    assert template_labels(await alice.create(PATH, owned)) == {}
    unknown = owner | {"apiVersion": "example.com/v1", "controller": True}
    other = deployment({QUEUE: "a"}, name="two", ownerReferences=[unknown])
    assert template_labels(await alice.create(PATH, other)) == {QUEUE: "a"}


async def test_webhook_is_not_called_for_updates_of_annotations_status_or_scale(alice, gate):
    await alice.create(PATH, deployment({QUEUE: "a"}))
    await alice.patch(WEB, {"metadata": {"annotations": {"note": "x"}}})
    await alice.patch(f"{WEB}/status", {"status": {"replicas": 1}})
    await alice.patch(f"{WEB}/scale", {"spec": {"replicas": 3}})
    assert len(gate) == 1


def test_deployments_have_no_webhook_if_the_kind_is_off():
    hooks = Registration(OFF.gated, "https://127.0.0.1:1", SCOPE).configuration(b"")["webhooks"]
    assert [each for each in hooks if each["rules"][0]["resources"][0] == "deployments"] == []
    with_it = Registration(KINDS.gated, "https://127.0.0.1:1", SCOPE).configuration(b"")["webhooks"]
    hooks = [each["name"] for each in with_it if each["rules"][0]["resources"][0] == "deployments"]
    verbs = (*(f"labelled-{number}" for number in (1, 2, 3)), "misspelled")
    assert hooks == [f"deployments.{verb}.sluice.dev" for verb in verbs]
