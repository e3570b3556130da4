"""Partial admission of kinds other than Jobs, whose users give a minimum number of pods."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from custom_kinds import TRAINING_RUN_FORM, pod, pods_of, pytorch_job, served, until
from every_kind import RESOURCES, held_by, node, queue_of, with_lasting_pods
from grouped_kinds import pods_until
from job_examples import cluster_queue, flavor, job, local_queue
from kind_manifests import document
from pod_examples import gated
from test_way_of_a_ray_cluster import ray_cluster
from test_ways_past_the_queue import observed

from admission.apimachinery.patches import json_patch
from admission.kinds import NamespaceContext, all_kinds, frameworks_known, parse_form
from admission.sandbox.apiserver.errors import ApiError
from webhooks.policies import gate_policies, policy_groups
from webhooks.scope import Scope

OWN = {**TRAINING_RUN_FORM, "podSets": [{**TRAINING_RUN_FORM["podSets"][0], "minCount": "least"}]}
KINDS = all_kinds(frameworks=frameworks_known(), own=[parse_form(OWN)])
MIN_COUNT = "sluice.dev/min-count"
ABLE = {
    "pytorchjob-v1": "worker",
    "mpijob-v2beta1": "worker",
    "raycluster": "cpu",
    "rayjob": "workers",
    "sparkapplication": "executor",
    "argo-workflow": "workflow",
    "own": "actor",
}
PODS, GIVEN = 4, 2
SCOPE = Scope(("sluice",))


def own():
    roles = [{"role": "actor", "count": PODS, "least": 1, "template": pod(cpu="1", seconds=1_000_000)}]
    metadata = {"name": "own", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "user-queue"}}
    return {"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": metadata, "spec": {"roles": roles}}


def asking(name):
    """Return kind, object, version and path of the pod count. The object requests four pods, and one is enough."""
    obj = own() if name == "own" else document(name)
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = KINDS.get(group, obj["kind"])
    obj["spec"].pop("enableInTreeAutoscaling", None)
    if name != "own":
        obj["metadata"].setdefault("annotations", {})[MIN_COUNT] = f"{ABLE[name]}=1"
        with_lasting_pods(kind, obj)
    place = next(each for each in kind.places(obj) if each.name == ABLE[name])
    parent = obj
    for key in place.reducible[:-1]:
        parent = parent[int(key) if isinstance(parent, list) else key]
    parent[place.reducible[-1]] = PODS
    parent.update({"minReplicas": 0, "maxReplicas": 9} if name.startswith("ray") else {})
    return kind, obj, version, place.reducible


def amounts_of(kind, obj, pod_set):
    """Return the sum of its pods' requests, with `GIVEN` pods of `pod_set`."""
    found = dict.fromkeys(RESOURCES, 0)
    for each in kind.pod_sets(obj, NamespaceContext()):
        count = GIVEN if each.name == pod_set else each.count
        for resource, amount in {**each.requests, "pods": 1}.items():
            found[resource] += count * amount
    return found


@pytest.mark.costly
@pytest.mark.parametrize("name", ABLE)
async def test_partially_admitted_object_is_restored_and_later_starts_with_all_pods(world, name):
    kind, obj, version, _ = asking(name)
    user, plural, key = world.user, kind.plural, obj["metadata"]["name"]
    amounts = amounts_of(kind, {**obj, "metadata": {**obj["metadata"], "uid": "u"}}, ABLE[name])
    kinds = (
        all_kinds(frameworks=("batch/job",), own=[kind.form])
        if name == "own"
        else all_kinds(frameworks=("batch/job", kind.form.name))
    )
    await user.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 0})  # named by a manifest
    for number in range(2):
        await user.create("nodes", "", node(number))
    await world.apply(flavor(), queue_of(amounts), local_queue("user-queue"))

    async def runs_with_its_part(generation):
        running = await until(
            user, plural, key,
            lambda each: each["metadata"]["generation"] >= generation and kind.observe(each).ready,
        )  # fmt: skip
        assert {place.name: place.pods for place in kind.places(running)}[ABLE[name]] == GIVEN
        await pods_until(user, "team-a", lambda _: len(pods_of(user, running)) == amounts["pods"])
        record = await world.record(key, "admitted")
        assert held_by(record) == amounts
        assert f"It was given {amounts['pods']} of {amounts['pods'] + PODS - GIVEN} pods" in record.message
        return running["metadata"]["generation"]

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(world.sandbox, kind, version=version))
        await world.start(kinds=kinds)
        created = await user.create(plural, "team-a", json_patch(obj, kind.gate(obj)))
        generation = await runs_with_its_part(created["metadata"]["generation"] + 1)
        # Suspended by its user during a downtime, it is resumed with the admitted pod count.
        await world.end()
        await close(user, kind, key)
        await world.start(kinds=kinds)
        await runs_with_its_part(generation + 2)
        await world.order(key, held=True)
        await world.record(key, "pending", reason="OnHold")
        assert user.get(plural, "team-a", key)["spec"] == created["spec"]
        # With enough quota it starts with all pods.
        await world.apply(queue_of({resource: 9 * amount for resource, amount in amounts.items()}))
        await world.order(key, held=False)
        whole = await until(user, plural, key, lambda each: kind.observe(each).ready)
        every = amounts["pods"] + PODS - GIVEN
        await pods_until(user, "team-a", lambda _: len(pods_of(user, whole)) == every)


async def close(user, kind, name):
    """Suspend an object as its user."""
    obj = user.get(kind.plural, "team-a", name)
    await user.update(kind.plural, "team-a", json_patch(obj, kind.gate(obj)))


@pytest.fixture(params=["webhooks", "policies"])
async def guarded(request, world, tmp_path):
    """PyTorchJobs and RayClusters behind a gate, with a queue of 4 CPUs; Sluice runs."""
    kinds = all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob", "ray.io/raycluster"))
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with AsyncExitStack() as stack:
        for kind in kinds:
            if kind.is_custom:
                await stack.enter_async_context(served(world.sandbox, kind))
        if request.param == "webhooks":
            await stack.enter_async_context(gated(world.sandbox.local("admin"), kinds, tmp_path / "certificates"))
        else:
            for policy in [
                each for group in policy_groups(kinds) for each in gate_policies(group, SCOPE, owners=tuple(kinds))
            ]:
                plural = f"{policy['kind'].lower()}s".replace("policys", "policies")
                await world.user.create(plural, "", policy)
        await world.start(kinds=kinds)
        world.gate = request.param
        yield world


def torch(annotation="worker=2", workers=6, **policy):
    replicas = {"Worker": (workers, pod(cpu="1", seconds=1_000_000))}
    return pytorch_job(replicas, {MIN_COUNT: annotation} if annotation else None, **policy)


TORCH = KINDS.get("kubeflow.org", "PyTorchJob")


async def submitted(world, obj):
    created = await world.sandbox.local("alice").create("pytorchjobs", "team-a", obj)
    assert TORCH.observe(created).suspended  # by the gate
    return created


async def ready_with(world, workers, generation=0):
    """Wait until the PyTorchJob requests `workers` workers and is ready; return it with its pods' uids."""
    obj = await until(
        world.user, "pytorchjobs", "torch",
        lambda each: each["metadata"]["generation"] >= generation and TORCH.observe(each).ready
        and TORCH.places(each)[0].pods == workers,
    )  # fmt: skip
    pods = pods_of(world.user, obj)
    assert len(pods) == workers
    return obj, {each["metadata"]["uid"] for each in pods}


@pytest.mark.costly
async def test_pytorchjob_with_reapplied_manifest_runs_with_admitted_pod_count(guarded):
    manifest = torch()
    await submitted(guarded, manifest)
    running, pods = await ready_with(guarded, 4)
    alice = guarded.sandbox.local("alice")
    if guarded.gate == "webhooks":
        applied = await alice.patch("pytorchjobs", "team-a", "torch", {"spec": torch()["spec"]})
        assert applied["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
        assert applied["metadata"]["generation"] == running["metadata"]["generation"]
        after, same_pods = await ready_with(guarded, 4)
        assert (after["spec"], same_pods) == (running["spec"], pods)
    else:  # policies neither reset nor reject the replicas
        await alice.patch("pytorchjobs", "team-a", "torch", {"spec": torch()["spec"]})
        await ready_with(guarded, 4, running["metadata"]["generation"] + 4)
        assert "OutOfSync" in [reason for reason, _ in await guarded.history("torch")]
    record = await guarded.record("torch", "admitted")
    assert [each.usage for each in record.admission.pod_sets] == [{"cpu": 4000}]


WEBHOOKS = pytest.mark.parametrize("guarded", ["webhooks"], indirect=True)


async def test_pytorchjob_without_min_count_annotation_is_not_partially_admitted(guarded):
    await submitted(guarded, torch(annotation="", elasticPolicy={"minReplicas": 1, "maxReplicas": 6}))
    waits = await guarded.record("torch", "pending", reason="ExceedsMaxQuota")
    assert waits.workload.pod_sets[0].min_count is None


@WEBHOOKS
async def test_unknown_pod_set_in_min_count_annotation_is_rejected(guarded):
    with pytest.raises(ApiError, match=r'"workers" is no pod set .*: name worker, as in worker=2'):
        await submitted(guarded, torch(annotation="workers=2"))


async def test_pytorchjob_does_not_start_with_fewer_workers_than_min_count(guarded):
    await submitted(guarded, torch(annotation="worker=5"))
    waits = await guarded.record("torch", "pending", reason="ExceedsMaxQuota")
    assert waits.workload.pod_sets[0].min_count == 5


@pytest.mark.costly
async def test_pytorchjob_suspended_and_scaled_up_in_one_request_is_requeued(guarded):
    created = await submitted(guarded, torch())
    running, _ = await ready_with(guarded, 4)
    spec = torch(runPolicy={"suspend": True})["spec"]
    async with observed(guarded) as pods:
        await guarded.sandbox.local("alice").patch("pytorchjobs", "team-a", "torch", {"spec": spec})
        await ready_with(guarded, 4, running["metadata"]["generation"] + 3)
        assert pods.most == 4
    assert [reason for reason, _ in await guarded.history("torch")].count("OutOfSync") == 1
    await guarded.order("torch", held=True)
    await guarded.record("torch", "pending", reason="OnHold")
    assert guarded.user.get("pytorchjobs", "team-a", "torch")["spec"] == created["spec"]


@pytest.mark.costly
async def test_replicas_lowered_by_user_are_kept_at_eviction(guarded):
    await submitted(guarded, torch())
    await ready_with(guarded, 4)
    lowered = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}
    await guarded.sandbox.local("alice").patch("pytorchjobs", "team-a", "torch", lowered)

    async def holds():
        record = await guarded.record("torch", "admitted")
        return [each.usage for each in record.admission.pod_sets] == [{"cpu": 3000}]

    await guarded.eventually(holds)
    await guarded.order("torch", held=True)
    held = await guarded.record("torch", "pending", reason="OnHold")
    assert held.workload.pod_sets[0].count == 3


@pytest.mark.costly
@WEBHOOKS
async def test_pods_never_exceed_quota_when_sluice_restarts_at_any_step(guarded):
    kinds = all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob", "ray.io/raycluster"))

    async def killed():
        await guarded.end()
        await guarded.start(kinds=kinds)

    async with observed(guarded) as pods:
        created = await submitted(guarded, torch())
        await killed()
        await guarded.record("torch", "admitted")
        await killed()
        await until(guarded.user, "pytorchjobs", "torch", lambda each: not TORCH.observe(each).suspended)
        await killed()
        await ready_with(guarded, 4)
        await guarded.order("torch", held=True)
        await until(guarded.user, "pytorchjobs", "torch", lambda each: TORCH.observe(each).suspended)
        await killed()
        held = await guarded.record("torch", "pending", reason="OnHold")
        assert held.admission is None
        assert guarded.user.get("pytorchjobs", "team-a", "torch")["spec"] == created["spec"]
        await guarded.order("torch", held=False)
        await ready_with(guarded, 4)
        assert pods.most == 4


def flexible():
    """A RayCluster of a head and five workers, with a minimum of one worker."""
    cluster = ray_cluster(gpu=5)
    cluster["metadata"]["annotations"] = {MIN_COUNT: "gpu=1"}
    return cluster


RAY = KINDS.get("ray.io", "RayCluster")


async def ray_ready(world, pods):
    """Wait until the RayCluster requests `pods` pods and is ready; return their uids."""
    obj = await until(
        world.user, "rayclusters", "ray",
        lambda each: RAY.observe(each).ready and sum(place.pods for place in RAY.places(each)) == pods,
    )  # fmt: skip
    # The ready status may still be that of fewer pods.
    await pods_until(world.user, "team-a", lambda _: len(pods_of(world.user, obj)) == pods)
    return {each["metadata"]["uid"] for each in pods_of(world.user, obj)}


@pytest.mark.costly
@WEBHOOKS
async def test_partial_raycluster_with_raised_replicas_requests_all_remaining_pods(guarded):
    """The remaining pods are admitted together: the minimum count applies to the start only."""
    alice = guarded.sandbox.local("alice")
    await alice.create("rayclusters", "team-a", flexible())
    few = await ray_ready(guarded, 4)
    (group,) = guarded.user.get("rayclusters", "team-a", "ray")["spec"]["workerGroupSpecs"]
    more = {"spec": {"workerGroupSpecs": [{**group, "replicas": 5}]}}
    applied = await alice.patch("rayclusters", "team-a", "ray", more)
    assert applied["spec"]["workerGroupSpecs"][0]["replicas"] == 3

    async def says():
        record = await guarded.record("ray", "admitted")
        said = "It was given 4 of 6 pods, because there was no quota for more. It asks for 2 more pods"
        return said in record.message

    await guarded.eventually(says)
    await guarded.apply(cluster_queue(cpu="5"))
    await guarded.submit(job("beside"))
    await guarded.record("beside", "admitted")
    await guarded.user.delete("jobs", "team-a", "beside", propagation="Background")
    assert await ray_ready(guarded, 4) == few
    await guarded.apply(cluster_queue(cpu="6"))
    whole = await ray_ready(guarded, 6)
    assert few < whole
    record = await guarded.record("ray", "admitted")
    assert sum(each.usage["cpu"] for each in record.admission.pod_sets) == 6000
    assert [reason for reason, _ in await guarded.history("ray")].count("Resized") == 1
    await guarded.order("ray", held=True)
    await guarded.record("ray", "pending", reason="OnHold")
    stopped = guarded.user.get("rayclusters", "team-a", "ray")["spec"]
    assert {**stopped, "suspend": None} == {**ray_cluster(gpu=5)["spec"], "suspend": None}


@pytest.mark.costly
@WEBHOOKS
async def test_partial_raycluster_requests_no_more_pods_before_its_start(guarded):
    """It is observed with its submitted replicas between admission and start, after an edit and by the next leader."""
    await guarded.cut_off()
    await guarded.sandbox.local("alice").create("rayclusters", "team-a", flexible())
    admitted = await guarded.record("ray", "admitted")
    labelled = {"metadata": {"labels": {"project": "x"}}}
    await guarded.sandbox.local("alice").patch("rayclusters", "team-a", "ray", labelled)
    await guarded.end()
    await guarded.start(kinds=all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob", "ray.io/raycluster")))
    await guarded.reconnect()
    await ray_ready(guarded, 4)
    record = await guarded.record("ray", "admitted", reason="Admitted")
    assert record.admission == admitted.admission
    assert "It was given 4 of 6 pods" in record.message
    story = [reason for reason, _ in await guarded.history("ray")]
    assert not {"Resized", "OutOfSync"} & {*story}
