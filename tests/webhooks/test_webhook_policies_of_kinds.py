"""The gate as admission policies: responses of the API server for other kinds with a suspend field."""

from __future__ import annotations

from itertools import product

import jsonpatch
import pytest
from custom_kinds import TRAINING_RUN_FORM, definition
from kind_manifests import GOLDEN, document
from policy_examples import JOBS, QUEUE, SUBMITTED_BY, job, make_reconciler

from admission.cluster.client import PatchType
from admission.cluster.errors import Forbidden, Invalid
from admission.kinds import GROUPED, LABELLED, MCAD, all_kinds, frameworks_known, parse_form
from admission.kinds.base import START_WITH_OWNER

KINDS = all_kinds(
    frameworks=("batch/job", *(name for name in frameworks_known() if name not in (MCAD, *GROUPED, *LABELLED, "pod")))
)


@pytest.fixture
async def gated_kinds(alice, sluice):
    """Create the CustomResourceDefinitions of all kinds, and gate the kinds by policies."""
    for kind in KINDS:
        if kind.is_custom:
            await alice.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
    gate = make_reconciler(sluice, kinds=KINDS)
    assert await gate.ensure()
    assert not await gate.ensure()


def collection(kind, namespace="default"):
    return KINDS.path(kind, namespace, "-").removesuffix("/-")


def user_manifest(name):
    """Return the kind and the unsuspended manifest of a golden example."""
    obj = document(name)
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    obj["metadata"].pop("namespace", None)
    obj["metadata"].pop("annotations", None)
    obj["apiVersion"] = KINDS.api_version(kind)
    return kind, jsonpatch.apply_patch(obj, kind.gated_by.open(obj))


@pytest.mark.costly
async def test_policies_gate_each_kind_with_a_suspend_field(alice, sluice, gated_kinds):
    for name in GOLDEN:
        if name.startswith("mcad"):
            continue
        kind, obj = user_manifest(name)
        created = await alice.create(collection(kind), obj)
        assert kind.gate(created) == [], name
        assert created["spec"] == jsonpatch.apply_patch(obj, kind.gated_by.close(obj))["spec"]
        assert created["metadata"]["annotations"] == {SUBMITTED_BY: "alice"}
        path = f"{collection(kind)}/{obj['metadata']['name']}"
        with pytest.raises(Forbidden, match=f": this {kind.kind} is queued, and only Sluice starts it"):
            await alice.patch(path, kind.gated_by.open(created), patch_type=PatchType.JSON)
        with pytest.raises(Invalid, match="only Sluice writes this annotation"):
            await alice.patch(path, {"metadata": {"annotations": {SUBMITTED_BY: "bob"}}})
        started = await sluice.patch(path, kind.resume_patch(created), patch_type=PatchType.JSON)
        assert kind.gate(started) != []
        with pytest.raises(Forbidden, match=f"the queue of a running {kind.kind} cannot be changed"):
            await alice.patch(path, {"metadata": {"labels": {QUEUE: "another"}}})
        del obj["metadata"]["labels"]
        unqueued = await alice.create(collection(kind), obj | {"metadata": {"name": f"unqueued-{name}"}})
        assert kind.gate(unqueued) != []
        in_team = await alice.create(collection(kind, "team-a"), obj | {"metadata": {"name": f"unqueued-{name}"}})
        assert kind.gate(in_team) == []
        assert in_team["metadata"]["labels"] == {QUEUE: "default"}


@pytest.mark.parametrize("mode", ["policies", "webhooks"])
async def test_workload_labels_of_an_unfinished_pod_cannot_be_changed(alice, sluice, mode):
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    webhook = {**configuration, "metadata": {"name": "sluice"}, "webhooks": []}
    gate = make_reconciler(sluice, mode, kinds=KINDS, webhook=lambda: webhook)
    assert await gate.ensure()
    pods = "/api/v1/namespaces/default/pods"
    counted_by = ("sluice.dev/workload-uid", "sluice.dev/pod-set", "appwrapper.mcad.ibm.com")
    labels = {**dict.fromkeys(counted_by, "u"), "app": "a"}
    containers = [{"name": "main", "image": "pause"}]
    path = f"{pods}/p"
    await alice.create(pods, {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": containers}})
    for where in (path, f"{path}/status"):
        for key, value in product(counted_by, (None, "another")):
            with pytest.raises(Forbidden, match=r"only Sluice changes the labels .* before the pod has finished"):
                await alice.patch(where, {"metadata": {"labels": {key: value}}})
    with pytest.raises(Forbidden):
        await alice.patch(path, [{"op": "remove", "path": "/metadata/labels"}], patch_type=PatchType.JSON)
    assert (await alice.patch(path, {"metadata": {"labels": {"app": "b"}}}))["metadata"]["labels"]["app"] == "b"
    await alice.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
    ended = await alice.patch(path, {"metadata": {"labels": None}})
    assert not ended["metadata"].get("labels")
    await make_reconciler(sluice, "webhooks", webhook=lambda: webhook).remove_obsolete()
    assert "pods.keep.sluice.dev" not in {
        each["metadata"]["name"]
        for each in (await sluice.get(f"/apis/{configuration['apiVersion']}/validatingadmissionpolicies"))["items"]
    }


@pytest.mark.parametrize("mode", ["policies", "webhooks"])
async def test_only_sluice_can_remove_the_scheduling_gate_of_a_pod(alice, sluice, mode):
    """Without its gate, the pod would run without quota for as long as its user likes."""
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    webhook = {**configuration, "metadata": {"name": "sluice"}, "webhooks": []}
    assert await make_reconciler(sluice, mode, kinds=all_kinds(frameworks=("pod",)), webhook=lambda: webhook).ensure()
    pods = "/api/v1/namespaces/default/pods"
    spec = {
        "containers": [{"name": "main", "image": "pause"}],
        "schedulingGates": [{"name": "example.com/data"}, {"name": "sluice.dev/admission"}],
    }
    labels = {"sluice.dev/managed": "true", QUEUE: "q"}
    await alice.create(pods, {"metadata": {"name": "p", "labels": labels}, "spec": spec})
    path = f"{pods}/p"
    remove = {"op": "remove", "path": "/spec/schedulingGates/1"}
    unlabelled = {"op": "remove", "path": "/metadata/labels"}
    for patch in ([remove], [remove, unlabelled], [unlabelled], [{**remove, "path": "/spec/schedulingGates"}]):
        with pytest.raises(Forbidden, match=r"only Sluice removes the scheduling gate .* sluice why p -n"):
            await alice.patch(path, patch, patch_type=PatchType.JSON)
    with pytest.raises(Forbidden):
        await alice.patch(f"{path}/status", {"metadata": {"labels": {"sluice.dev/managed": None}}})
    await alice.patch(path, [{**remove, "path": "/spec/schedulingGates/0"}], patch_type=PatchType.JSON)
    for where in (path, f"{path}/status"):
        for value in (None, ""):
            with pytest.raises(Forbidden, match="must keep its queue label"):
                await alice.patch(where, {"metadata": {"labels": {QUEUE: value}}})
    await alice.patch(path, {"metadata": {"labels": {QUEUE: None, "kueue.x-k8s.io/queue-name": "another"}}})
    await sluice.patch(path, {"spec": {"schedulingGates": None}})
    await alice.patch(path, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
    for where in (path, f"{path}/status"):
        for value in (None, "no"):
            with pytest.raises(Forbidden, match="only Sluice changes this label before the pod has finished"):
                await alice.patch(where, {"metadata": {"labels": {"sluice.dev/managed": value}}})
    await alice.patch(path, {"metadata": {"labels": {"app": "b"}}})
    await alice.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
    await alice.patch(path, [unlabelled], patch_type=PatchType.JSON)


async def test_child_of_a_queued_kind_is_marked_to_start_with_its_owner(alice, gated_kinds):
    """KubeRay copies the labels of a RayJob to its RayCluster, which therefore has a queue label, too."""
    kind, obj = user_manifest("raycluster")
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "r", "uid": "u", "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    created = await alice.create(collection(kind), obj)
    assert created["metadata"]["annotations"] == {SUBMITTED_BY: "alice", START_WITH_OWNER: "true"}
    child = job("j", {QUEUE: "q"})
    child["metadata"]["ownerReferences"] = [{**reference, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}]
    assert (await alice.create(JOBS, child))["metadata"]["annotations"][START_WITH_OWNER] == "true"
    other = job("other", {QUEUE: "q"})
    other["metadata"]["ownerReferences"] = [{**reference, "apiVersion": "example.com/v1", "kind": "JobSet"}]
    assert (await alice.create(JOBS, other))["metadata"]["annotations"] == {SUBMITTED_BY: "alice"}


@pytest.mark.costly
async def test_policies_of_disabled_kinds_are_removed(alice, sluice, gated_kinds):
    gate = make_reconciler(sluice)
    await gate.ensure()
    assert len(await gate.remove_obsolete()) == 16
    kind, obj = user_manifest("jobset")
    assert kind.gate(await alice.create(collection(kind), obj)) != []


@pytest.mark.parametrize(
    ("manager", "waits"),
    [("kubeflow.org/mpi-operator", True), ("kubeflow.org/training-operator", True), ("example.com/other", False)],
)
async def test_mpijob_is_gated_only_if_managed_by_either_of_its_operators(alice, gated_kinds, manager, waits):
    kind, obj = user_manifest("mpijob-v2beta1")
    obj["spec"]["runPolicy"]["managedBy"] = manager
    assert kind.gated_by.is_closed(await alice.create(collection(kind), obj)) is waits


@pytest.mark.costly
async def test_externally_managed_mpijob_must_be_suspended_to_join_its_queue(alice, gated_kinds):
    kind, obj = user_manifest("mpijob-v2beta1")
    obj["spec"]["runPolicy"]["managedBy"] = "example.com/other"
    await alice.create(collection(kind), obj)
    path = f"{collection(kind)}/{obj['metadata']['name']}"
    with pytest.raises(Forbidden, match="must be suspended when it joins a queue"):
        await alice.patch(path, {"spec": {"runPolicy": {"managedBy": None}}})
    joined = await alice.patch(path, {"spec": {"runPolicy": {"managedBy": None, "suspend": True}}})
    assert kind.gated_by.is_closed(joined)


async def test_parallelism_of_a_running_workflow_cannot_be_raised(alice, sluice, gated_kinds):
    """Argo does not delete running pods when the parallelism is lowered again."""
    kind, obj = user_manifest("argo-workflow")
    path = f"{collection(kind)}/{obj['metadata']['name']}"
    await alice.create(collection(kind), obj)
    await alice.patch(path, {"spec": {"parallelism": 5}})
    waiting = await alice.patch(path, {"spec": {"parallelism": 4}})
    await sluice.patch(path, kind.resume_patch(waiting), patch_type=PatchType.JSON)
    for number in (5, None):
        with pytest.raises(Forbidden, match="a running Workflow cannot run more pods at a time than it has requested"):
            await alice.patch(path, {"spec": {"parallelism": number}})
    assert (await alice.patch(path, {"spec": {"parallelism": 3}}))["spec"]["parallelism"] == 3
    assert (await sluice.patch(path, {"spec": {"parallelism": 4}}))["spec"]["parallelism"] == 4
    await alice.patch(path, {"spec": {"parallelism": 5, "suspend": True}})


async def test_suspend_field_outside_spec_is_kept_by_policies(alice, sluice):
    roles = {"path": "roles[*]", "nameFrom": "role", "template": "template", "replicas": "count"}
    kinds = all_kinds(own=[parse_form({**TRAINING_RUN_FORM, "suspend": "control.paused", "podSets": [roles]})])
    kind = kinds.get("example.com", "TrainingRun")
    crd = definition(kind)
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": open_schema}
    await alice.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    await make_reconciler(sluice, kinds=kinds).ensure()
    runs = kinds.path(kind, "default", "-").removesuffix("/-")
    body = {"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": {"name": "r", "labels": {QUEUE: "q"}}}
    assert (await alice.create(runs, body | {"roles": []}))["control"] == {"paused": True}
    await alice.patch(f"{runs}/r", {"metadata": {"annotations": {"note": "not evaluated"}}})
    with pytest.raises(Forbidden, match=r"control\.paused: this TrainingRun is queued, and only Sluice starts it"):
        await alice.patch(f"{runs}/r", {"control": {"paused": False}})
    with pytest.raises(Forbidden, match=r"control\.paused: this TrainingRun is queued, and only Sluice starts it"):
        await alice.patch(f"{runs}/r", {"control": None})


@pytest.mark.parametrize("mode", ["policies", "webhooks"])
async def test_a_running_object_gets_no_more_pods_by_the_scale_subresource(alice, sluice, mode):
    """A webhook sees neither the queue label nor the suspend field of an object that is scaled in this way."""
    kind, obj = user_manifest("pytorchjob-v1")
    webhook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    webhook |= {"metadata": {"name": "sluice"}, "webhooks": []}
    gate = make_reconciler(sluice, mode, kinds=KINDS, webhook=lambda: webhook)
    await gate.ensure()
    await alice.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
    assert await gate.ensure()
    collections = collection(kind)
    waits = jsonpatch.apply_patch(obj, kind.gated_by.close(obj))
    free = {**obj, "metadata": {"name": "free", "labels": {}}}
    await alice.create(collections, {**waits, "metadata": {**obj["metadata"], "name": "waits"}})
    await alice.create(collections, {**waits, "metadata": {**obj["metadata"], "name": "runs"}})
    await alice.create(collections, free)
    path = f"{collections}/runs"
    started = kind.resume_patch(await alice.get(path))
    await sluice.patch(path, started, patch_type=PatchType.JSON)

    async def scale(name, replicas):
        await alice.patch(f"{collections}/{name}/scale", {"spec": {"replicas": replicas}})
        return (await alice.get(f"{collections}/{name}"))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]

    with pytest.raises(Forbidden, match="a running PyTorchJob gets no more pods than it has quota for"):
        await scale("runs", 9)
    assert await scale("runs", 1) == 1
    assert await scale("waits", 9) == 9
    assert await scale("free", 9) == 9


async def test_missing_right_to_limit_the_scale_subresource_is_logged_once(alice, sluice, sandbox, caplog):
    kind, _ = user_manifest("pytorchjob-v1")
    await alice.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
    gate = make_reconciler(sluice, kinds=KINDS)
    refused = {"match": {"name": ["pytorchjobs.scale.sluice.dev"]}, "do": "error", "code": 403}
    sandbox.faults.install({"rules": [refused]})
    assert await gate.ensure()
    await gate.ensure()
    told = [each.getMessage() for each in caplog.records if "scale subresource" in each.getMessage()]
    assert len(told) == 2  # the policy and its binding
    sandbox.faults.remove()
    assert await gate.ensure()
    assert not gate.unlimited
