"""Lifecycle of each kind: its manifest is queued, explained, admitted, evicted, admitted again and stopped."""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import AsyncExitStack

import jsonpatch
import orjson
import pytest
from custom_kinds import definition, pods_of, restored_spec, served, until
from grouped_kinds import pods_until
from job_examples import TOLERATION, flavor, job, local_queue, runs
from kind_manifests import GOLDEN, GPU, document
from queue_objects import cluster_queue

from admission.kinds import GROUPED, TRAIN_JOB, all_kinds, frameworks_known
from admission.kinds.base import SCALE_REQUEST
from admission.kinds.paths import at
from webhooks.review import Reviewer

KINDS = all_kinds(frameworks=frameworks_known(), queue_labels=("kai.scheduler/queue",))
MCAD = "v1beta1"
"""Version of AppWrappers whose items Sluice itself creates."""
RESOURCES = ("cpu", "memory", GPU, "pods")


def total(name):
    """Return the sum of the requests of a manifest's pods."""
    amounts = Counter()
    for _, count, requests in GOLDEN[name]:
        amounts.update({resource: count * amount for resource, amount in {**requests, "pods": 1}.items()})
    return {resource: amounts[resource] for resource in RESOURCES}


def queue_of(amounts):
    """A ClusterQueue with exactly this quota."""
    quotas = {key: f"{amounts[key]}m" if key == "cpu" else amounts[key] for key in RESOURCES}
    return cluster_queue(quotas={"default": quotas})


def node(number):
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", GPU: "16"}
    return {
        "metadata": {
            "name": f"large-{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": f"large-{number}"},
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def through_the_webhook(obj, kind):
    """Return an object as the webhook's patch changes it."""
    review = {
        "request": {
            "uid": "r",
            "resource": {"group": kind.group, "version": kind.versions[0], "resource": kind.plural},
            "operation": "CREATE",
            "namespace": "team-a",
            "userInfo": {"username": "alice"},
            "object": obj,
        }
    }
    response = Reviewer(KINDS, own_usernames=["sluice"]).review(review)["response"]
    assert response["allowed"], response
    return jsonpatch.apply_patch(obj, orjson.loads(base64.b64decode(response["patch"])))


def with_lasting_pods(kind, obj):
    """Change the object so that its pods run until they are stopped, and return it."""
    for place in kind.places(obj):
        target = at(obj, place.target) if place.flat and place.target[0] == "spec" and at(obj, place.target) else None
        template = place.template if place.flat or not place.target else at(obj, place.target) or {}
        metadata = target if target is not None else template.setdefault("metadata", {})
        metadata = metadata.setdefault(place.metadata, {}) if place.metadata else metadata
        metadata.setdefault("annotations", {})["sandbox.sluice.dev/run-seconds"] = "1000000"
    return obj


def held_by(record):
    """Return the quota that a workload holds, by resource."""
    held = Counter()
    for each in record.admission.pod_sets:
        held.update({"pods": 0, **each.usage})
    return {resource: held[resource] for resource in RESOURCES}


async def end_pods(world, obj):
    for pod in pods_of(world.user, obj):
        status = {"phase": "Succeeded"}
        name = pod["metadata"]["name"]
        await world.user.patch("pods", "team-a", name, {"status": status}, subresource="status")


async def end_and_delete(world, plural, name, owner, cpu):
    """Let the pods of `owner` succeed, delete the object, and start a Job with its quota."""
    await end_pods(world, owner)
    assert (await world.record(name, "finished")).outcome == "Succeeded"
    await world.user.delete(plural, "team-a", name, propagation="Background")
    await world.submit(job("after", queue="user-queue", cpu=cpu))
    await world.job("after", runs)


async def until_admitted(world, kind, created, amounts):
    """Wait until it is admitted and ready; check its quota and the injected fields."""
    user, key = world.user, created["metadata"]["name"]
    running = await until(user, kind.plural, key, lambda each: not kind.observe(each).suspended)
    record = await world.record(key, "admitted")
    assert held_by(record) == amounts
    places = [place for place in kind.places(created) if place.target]
    templates = [at(running, place.target) for place in places]
    for place, template in zip(places, templates, strict=True):
        spec, metadata = (template, template) if place.flat else (template["spec"], template["metadata"])
        metadata = template[place.metadata] if place.metadata else metadata
        assert spec["nodeSelector"] == {"type": "kwok"}
        assert spec["tolerations"] == [TOLERATION]
        assert metadata["labels"]["sluice.dev/workload-uid"] == created["metadata"]["uid"]
    ready = await until(user, kind.plural, key, lambda each: kind.observe(each).ready)
    # A RayJob is ready as soon as its cluster is, before its submitter exists.
    await pods_until(user, "team-a", lambda _: len(pods_of(user, ready)) == amounts["pods"])


async def scaled(world, kind, manifest, name, amounts):
    """Scale its first worker group down by one replica, and up again as the webhook would note it."""
    first, *others = world.user.get(kind.plural, "team-a", name)["spec"]["workerGroupSpecs"]
    _, (group, _, requests), *_ = GOLDEN[manifest]
    fewer = {**first, "replicas": first["replicas"] - 1, "minReplicas": 1}
    if world.user.get(kind.plural, "team-a", name)["spec"].get("enableInTreeAutoscaling"):  # it names what is to end
        own = [pod["metadata"] for pod in world.user.list("pods", "team-a")]
        names = [each["name"] for each in own if each["labels"]["ray.io/group"] == group]
        fewer["scaleStrategy"] = {"workersToDelete": names[: first["numOfHosts"]]}
    await world.user.patch(kind.plural, "team-a", name, {"spec": {"workerGroupSpecs": [fewer, *others]}})
    hosts = first.get("numOfHosts", 1)
    freed = Counter({each: hosts * amount for each, amount in {**requests, "pods": 1}.items()})

    async def holds(wanted):
        return held_by(await world.store.workloads.get("team-a", name)) == wanted

    await world.eventually(lambda: holds({each: amounts[each] - freed[each] for each in RESOURCES}))
    asked = orjson.dumps({group: {"replicas": first["replicas"]}}).decode()
    await world.user.patch(kind.plural, "team-a", name, {"metadata": {"annotations": {SCALE_REQUEST: asked}}})
    await world.eventually(lambda: holds(amounts))
    whole = await until(
        world.user, kind.plural, name, lambda each: SCALE_REQUEST not in each["metadata"]["annotations"]
    )
    assert whole["spec"]["workerGroupSpecs"][0]["replicas"] == first["replicas"]
    # The ready status may still be that of fewer pods.
    await pods_until(world.user, "team-a", lambda _: len(pods_of(world.user, whole)) == amounts["pods"])


def wrapped_in(obj):
    """Return the names in `integrations` of the custom kinds that an AppWrapper has as components."""
    templates = [each["template"] for each in obj["spec"].get("components", ())]
    names = [f"{each['apiVersion'].rpartition('/')[0]}/{each['kind'].lower()}" for each in templates]
    return [name for name in names if name in frameworks_known() and name != "batch/job"]


async def start_with(world, stack, kind, version, obj):
    """Start Sluice, with the definition of a kind and its operator (for MCAD's AppWrappers, Sluice itself)."""
    wrapped = wrapped_in(obj)
    frameworks = ("batch/job", kind.form.name, *wrapped, *(["mcad.ibm.com/appwrapper"] if version == MCAD else []))
    kinds = all_kinds(frameworks=frameworks)
    for name in wrapped:
        await stack.enter_async_context(served(world.sandbox, all_kinds(frameworks=(name,)).gated[0]))
    served_kind = kinds.get(kind.group, kind.kind)
    if version == MCAD:
        await world.user.create("customresourcedefinitions", "", definition(served_kind, version))
        await world.start(kinds=kinds, makes_items=True)
    else:
        await stack.enter_async_context(served(world.sandbox, served_kind, version=version))
        await world.start(kinds=kinds)


@pytest.mark.costly
@pytest.mark.parametrize("name", GOLDEN)
async def test_lifecycle_of_manifest(world, name):
    obj = document(name)
    group, _, version = obj["apiVersion"].rpartition("/")
    kind, user, plural = KINDS.get(group, obj["kind"]), world.user, KINDS.get(group, obj["kind"]).plural
    key, amounts = obj["metadata"]["name"], total(name)
    await user.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 0})  # named by a manifest
    for number in range(2):
        await user.create("nodes", "", node(number))
    await world.apply(flavor(), queue_of(amounts), local_queue("user-queue"))
    async with AsyncExitStack() as stack:
        await start_with(world, stack, kind, version, obj)
        await world.submit(job("before", queue="user-queue", cpu=f"{amounts['cpu']}m"))
        await world.job("before", runs)

        stored = through_the_webhook(with_lasting_pods(kind, obj), kind)
        created = await user.create(plural, "team-a", stored)
        waiting = await world.record(key, "pending", reason="WaitingForQuota")
        assert waiting.workload.api_version == obj["apiVersion"]
        assert "less is free" in waiting.message

        await user.delete("jobs", "team-a", "before", propagation="Background")
        await until_admitted(world, kind, created, amounts)
        await world.submit(job("after", queue="user-queue", cpu="1m"))
        await world.record("after", "pending", reason="WaitingForQuota")
        await user.patch("jobs", "team-a", "after", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})

        await world.order(key, held=True)
        assert (await world.record(key, "pending", reason="OnHold")).admission is None
        stopped = user.get(plural, "team-a", key)
        assert pods_of(user, stopped) == []
        assert stopped["spec"] == restored_spec(created)
        assert stopped["metadata"].get("labels") == created["metadata"]["labels"]
        await world.order(key, held=False)
        await until_admitted(world, kind, created, amounts)

        if kind.form.scales:
            await scaled(world, kind, name, key, amounts)
        if kind.form.succeeded:
            await end_pods(world, created)
            assert (await world.record(key, "finished")).outcome == "Succeeded"
        await user.patch("jobs", "team-a", "after", {"metadata": {"labels": {"sluice.dev/hold": None}}})
        await user.delete(plural, "team-a", key, propagation="Background")
        await world.record(key, "finished")
        await world.job("after", runs)


def test_the_manifest_of_each_declared_kind_is_played():
    played = {f"{document(name)['apiVersion'].rpartition('/')[0]}/{document(name)['kind'].lower()}" for name in GOLDEN}
    # test_way_of_a_trainjob.py plays TrainJobs, in three releases and for KAI;
    # test_way_of_a_volcano_job.py and test_way_of_a_leader_worker_set.py play kinds whose pods are grouped.
    # AppWrappers of the group mcad.ibm.com have the form of the other group, in their older version.
    assert played | {TRAIN_JOB, "mcad.ibm.com/appwrapper", *GROUPED} == {
        name for name in frameworks_known() if "." in name or name in GROUPED
    }
