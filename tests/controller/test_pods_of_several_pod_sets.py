"""Pods of an owner with several pod sets: a forged owner reference does not give large pods the quota of small ones."""

from __future__ import annotations

from contextlib import closing

import pytest
from custom_kinds import definition, pytorch_job, until
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import GATE, gated, pod

from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod", "kubeflow.org/pytorchjob"))
TORCH = KINDS.get("kubeflow.org", "PyTorchJob")
QUEUED = {"sluice.dev/queue-name": "lq"}


@pytest.fixture
async def admit(world, tmp_path):
    """Function that submits a PyTorchJob, whose pods the test makes, and returns it once it runs."""
    await world.user.create("customresourcedefinitions", "", definition(TORCH))

    async def submit(**replicas):
        await world.user.create("pytorchjobs", "team-a", torch(**replicas))
        return await until(world.user, "pytorchjobs", "torch", lambda each: not TORCH.observe(each).suspended)

    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield submit


@pytest.fixture
async def owner(world, admit):
    """A running PyTorchJob of two masters of 1 CPU and two workers of 2 CPUs."""
    await world.apply(flavor(), cluster_queue(cpu="6"), local_queue())
    return await admit(Master=(2, "1"), Worker=(2, "2"))


def torch(**replicas):
    def template(cpu):
        manifest = pod("any", cpu=cpu)
        return {"metadata": {"labels": dict(QUEUED)}, "spec": manifest["spec"]}

    return pytorch_job({role: (count, template(cpu)) for role, (count, cpu) in replicas.items()})


async def create(world, owner, name, cpu, nodes="kwok"):
    """Create a pod as the PyTorchJob's controller does, or as a user who forges its owner reference."""
    each = pod(name, cpu=cpu, nodeSelector={"type": nodes})
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": "torch", "controller": True}
    each["metadata"]["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    created = await world.user.create("pods", "team-a", each)
    assert is_gated(created)


async def seen(world, name, until):
    """Wait until a pod satisfies `until`; None if it is deleted."""
    with closing(world.user.watch("pods")) as changes:
        if until(world.user.get("pods", "team-a", name)):
            return
        async for batch in changes:
            for _, kind, obj, _ in batch:
                if obj["metadata"]["name"] == name and until(None if kind == "DELETED" else obj):
                    return


def is_gated(pod):
    return GATE in pod["spec"].get("schedulingGates", ())


async def started(world, name):
    await seen(world, name, lambda pod: pod is not None and not is_gated(pod))


async def gone(world, name):
    await seen(world, name, lambda pod: pod is None)


@pytest.mark.parametrize("controllers", [False])
async def test_forged_large_pod_does_not_use_the_quota_of_smaller_pods(world, owner):
    for name in ("worker-0", "worker-1"):
        await create(world, owner, name, "2")
        await started(world, name)
    await create(world, owner, "forged", "2")  # no master runs yet
    await create(world, owner, "master-0", "1")
    await started(world, "master-0")
    assert is_gated(world.user.get("pods", "team-a", "forged"))
    await world.user.patch("pods", "team-a", "forged", {"spec": {"schedulingGates": None}})
    await gone(world, "forged")
    await create(world, owner, "master-1", "1")
    await started(world, "master-1")


@pytest.mark.parametrize("controllers", [False])
async def test_pods_start_in_any_order_of_creation(world, owner):
    """Small pods may use the quota of large pods until those are created."""
    for name, cpu in (("master-0", "1"), ("worker-0", "2"), ("master-1", "1"), ("worker-1", "2")):
        await create(world, owner, name, cpu)
        await started(world, name)
    await create(world, owner, "worker-2", "2")  # replaces worker-0
    await world.user.delete("pods", "team-a", "worker-0", grace=0)
    await started(world, "worker-2")


@pytest.mark.parametrize("controllers", [False])
async def test_forged_pod_for_scarce_flavor_does_not_use_quota_of_other_flavor(world, admit):
    """The masters get the quota of one flavor, and the workers that of the next."""
    names = ("plenty", "scarce")
    flavors = [flavor(name) | {"spec": {"nodeLabels": {"type": name}}} for name in names]
    await world.apply(*flavors, cluster_queue(quotas={name: {"cpu": "2"} for name in names}), local_queue())
    owner = await admit(Master=(2, "1"), Worker=(2, "1"))
    for name in ("worker-0", "worker-1"):
        await create(world, owner, name, "1", "scarce")
        await started(world, name)
    await create(world, owner, "forged", "1", "scarce")
    for name in ("master-0", "master-1"):
        await create(world, owner, name, "1", "plenty")
        await started(world, name)
    assert is_gated(world.user.get("pods", "team-a", "forged"))
