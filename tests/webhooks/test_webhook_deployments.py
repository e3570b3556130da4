"""Deployments: queue and priority labels are copied into the pod template, and kept equal there."""

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


def deployment(labels=None, of_pods=None, selector=None, **metadata):
    template = {
        "metadata": {"labels": {"app": "web", **(of_pods or {})}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels or {}, **metadata},
        "spec": {"selector": {"matchLabels": {"app": "web", **(selector or {})}}, "template": template},
    }


def of_pods(obj):
    """Return the labels of the pod template, without the template's own one."""
    labels = obj["spec"]["template"]["metadata"]["labels"]
    assert labels["app"] == "web"
    return {key: value for key, value in labels.items() if key != "app"}


def labels(**changes):
    return {"metadata": {"labels": {{"queue": QUEUE, "kueue": KUEUE}.get(key, key): changes[key] for key in changes}}}


async def test_every_label_that_names_queue_or_priority_is_copied(alice, gate):
    for number, given in enumerate([
        {QUEUE: "a"}, {KUEUE: "a"}, {KAI: "a"}, {QUEUE: "a", KUEUE: "b", KAI: "b"},
        {QUEUE: "a", PRIORITY: "high"}, {KUEUE: "a", KUEUE_PRIORITY: "high"},
    ]):  # fmt: skip
        created = await alice.create(PATH, deployment({**given, "app": "else", "team": "x"}, name=f"web-{number}"))
        assert of_pods(created) == given
        assert created["metadata"]["labels"] == {**given, "app": "else", "team": "x"}
    assert gate == [[]] * 6


async def test_a_deployment_without_the_label_is_left_alone_also_where_all_is_queued(alice, gate):
    """Its pods receive the default queue, or that of a rule, each by itself."""
    for namespace in ("default", "team-a"):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        assert of_pods(await alice.create(path, deployment({PRIORITY: "high"}))) == {}
        assert of_pods(await alice.patch(f"{path}/web", {"spec": {"replicas": 2}})) == {}
        template = {"metadata": {"labels": {QUEUE: "b"}}}
        assert of_pods(await alice.patch(f"{path}/web", {"spec": {"template": template}})) == {QUEUE: "b"}
        assert of_pods(await alice.patch(f"{path}/web", {"spec": {"replicas": 3}})) == {QUEUE: "b"}
    assert gate == []


async def test_the_template_follows_when_labels_are_added_and_changed(alice, gate):
    await alice.create(PATH, deployment())
    assert of_pods(await alice.patch(WEB, labels(kueue="a"))) == {KUEUE: "a"}
    assert of_pods(await alice.patch(WEB, labels(kueue="b"))) == {KUEUE: "b"}
    moved = await alice.patch(WEB, {"metadata": {"labels": {KUEUE: None, QUEUE: "a", PRIORITY: "high"}}})
    assert of_pods(moved) == {QUEUE: "a", PRIORITY: "high"}
    assert of_pods(await alice.patch(WEB, {"metadata": {"labels": {PRIORITY: None}}})) == {QUEUE: "a"}
    assert gate == [[], [], [], []]


async def test_it_stays_queued_until_it_is_deleted(alice, gate):
    """Otherwise its pods would be replaced by pods that run without quota."""
    await alice.create(PATH, deployment({QUEUE: "a", PRIORITY: "high"}))
    why = "a Deployment stays queued until it is deleted"
    kept = f"metadata.labels[{QUEUE}]: kept, because {why}; name another queue"
    for change in ({QUEUE: None}, {QUEUE: ""}, None):
        changed = await alice.patch(WEB, {"metadata": {"labels": change}})
        assert changed["metadata"]["labels"][QUEUE] == of_pods(changed)[QUEUE] == "a"
        assert gate[-1] == [kept]
    replaced = await alice.replace(WEB, deployment())
    assert replaced["metadata"]["labels"] == of_pods(replaced) == {QUEUE: "a"}


async def test_a_label_that_only_the_template_has_stays_its_own(alice, gate):
    await alice.create(PATH, deployment({QUEUE: "a"}, {KUEUE: "b", KUEUE_PRIORITY: "low"}))
    changed = await alice.patch(WEB, {"spec": {"replicas": 2}})
    assert of_pods(changed) == {QUEUE: "a", KUEUE: "b", KUEUE_PRIORITY: "low"}


async def test_nobody_takes_the_label_from_the_template_alone(alice, gate):
    """Pods must neither run without a queue nor use another queue than the Deployment names."""
    await alice.create(PATH, deployment({QUEUE: "a"}))
    removed = {"op": "remove", "path": "/spec/template/metadata/labels/sluice.dev~1queue-name"}
    assert of_pods(await alice.patch(WEB, [removed], patch_type=PatchType.JSON)) == {QUEUE: "a"}
    named = {"spec": {"template": {"metadata": {"labels": {QUEUE: "b"}}}}}
    assert of_pods(await alice.patch(WEB, named)) == {QUEUE: "a"}
    told = f"spec.template.metadata.labels[{QUEUE}]: pods get the label of the Deployment itself; change that one"
    assert gate[-1] == [told]
    assert of_pods(await alice.create(PATH, {**deployment({QUEUE: "a"}, {QUEUE: "b"}, name="two")})) == {QUEUE: "a"}
    assert gate[-1] == [told]


async def test_who_applies_the_same_manifest_again_changes_nothing(alice, gate):
    """For each way to apply it: a changed template would recreate all pods."""
    manifest = deployment({KUEUE: "a"})
    first = await alice.patch(WEB, manifest, patch_type=PatchType.APPLY, params=APPLY)
    assert of_pods(first) == {KUEUE: "a"}
    again = await alice.patch(WEB, manifest, patch_type=PatchType.APPLY, params=APPLY)
    replaced = await alice.replace(WEB, manifest)
    assert first["metadata"]["generation"] == again["metadata"]["generation"] == replaced["metadata"]["generation"]
    moved = deployment({KUEUE: "b"})
    assert of_pods(await alice.patch(WEB, moved, patch_type=PatchType.APPLY, params=APPLY)) == {KUEUE: "b"}
    other = await alice.patch(WEB, moved, patch_type=PatchType.APPLY, params={**APPLY, "fieldManager": "argocd"})
    assert of_pods(other) == {KUEUE: "b"}
    assert gate == [[]] * len(gate)


async def test_a_template_of_before_is_given_the_present_label(alice, gate):
    """`kubectl rollout undo` writes the template of an earlier ReplicaSet."""
    created = await alice.create(PATH, deployment())
    before = created["spec"]["template"]
    await alice.patch(WEB, labels(queue="a"))
    undo = [{"op": "replace", "path": "/spec/template", "value": before}]
    assert of_pods(await alice.patch(WEB, undo, patch_type=PatchType.JSON)) == {QUEUE: "a"}


async def test_what_the_selector_names_is_refused_to_differ_and_stays(alice, gate):
    named = deployment({QUEUE: "a"}, {QUEUE: "a"}, {QUEUE: "a"})
    await alice.create(PATH, named)
    with pytest.raises(Invalid, match=r'metadata.labels\[sluice.dev/queue-name\]: is "b", but spec.selector.match'):
        await alice.patch(WEB, labels(queue="b"))
    assert of_pods(await alice.patch(WEB, {"metadata": {"labels": {QUEUE: None, KUEUE: "a"}}})) == {
        QUEUE: "a",
        KUEUE: "a",
    }
    assert gate[-1] == []


async def test_a_label_that_no_pod_could_have_is_refused(alice, gate):
    """Otherwise its controller could not create pods, and only events would say why."""
    for given, told in (
        ({QUEUE: "No_Name"}, f'{QUEUE}]: "No_Name" is no name'),
        ({KUEUE: ""}, f"{KUEUE}]: is empty: name what it is for"),
        ({QUEUE: "a", KUEUE_PRIORITY: "No_Name"}, f'{KUEUE_PRIORITY}]: "No_Name" is no name'),
    ):
        with pytest.raises(Invalid, match=re.escape(f"metadata.labels[{told}")):
            await alice.create(PATH, deployment(given))


async def test_a_queue_that_is_not_there_and_a_label_that_is_misspelled_are_told(alice, gate):
    await alice.create(PATH, deployment({QUEUE: "c"}))
    await alice.create(PATH, deployment({"sluice.dev/queuename": "a"}, name="two"))
    misspelled = "metadata.labels[sluice.dev/queuename]"
    assert gate == [
        [f'metadata.labels[{QUEUE}]: no LocalQueue "c" exists in namespace "default"; the Deployment waits for it'],
        [f"{misspelled}: not a queue label, so the Deployment is not queued; use {QUEUE}"],
    ]


async def test_what_is_part_of_another_is_not_queued_beside_it(alice, gate):
    owner = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "w", "uid": "u"}
    owned = deployment({QUEUE: "a"}, ownerReferences=[owner | {"controller": True}])
    assert of_pods(await alice.create(PATH, owned)) == {}
    unknown = owner | {"apiVersion": "example.com/v1", "controller": True}
    other = deployment({QUEUE: "a"}, name="two", ownerReferences=[unknown])
    assert of_pods(await alice.create(PATH, other)) == {QUEUE: "a"}


async def test_its_webhook_is_asked_for_what_changes_labels_or_spec_of_a_queued_one_alone(alice, gate):
    await alice.create(PATH, deployment({QUEUE: "a"}))
    await alice.patch(WEB, {"metadata": {"annotations": {"note": "x"}}})
    await alice.patch(f"{WEB}/status", {"status": {"replicas": 1}})
    await alice.patch(f"{WEB}/scale", {"spec": {"replicas": 3}})
    assert len(gate) == 1


def test_a_kind_that_is_off_costs_no_call():
    hooks = Registration(OFF.gated, "https://127.0.0.1:1", SCOPE).configuration(b"")["webhooks"]
    assert [each for each in hooks if each["rules"][0]["resources"][0] == "deployments"] == []
    with_it = Registration(KINDS.gated, "https://127.0.0.1:1", SCOPE).configuration(b"")["webhooks"]
    (hook,) = (each for each in with_it if each["rules"][0]["resources"][0] == "deployments")
    assert hook["name"] == "deployments.mutate.sluice.dev"
