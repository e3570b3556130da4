"""Quota that follows nodes: it grows at once, shrinks after a while, and each change is a version with its reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_examples import cluster_queue, flavor, job, local_queue, runs
from postgresql_databases import on_both_databases

from admission.controller.decisions.quota_from_nodes import Smoothed, capacity
from admission.engine.topology.nodes import NodeState
from admission.model.queues import ResourceFlavor
from admission.model.topology import NodeTaint
from admission.sandbox.main import simulated_node


def following(**rule):
    """A ClusterQueue whose CPUs follow the nodes of its flavor; without a nominalQuota, as in a repository."""
    manifest = cluster_queue(cpu="0")
    (quota,) = manifest["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    del quota["nominalQuota"]
    quota["fromNodes"] = {"percent": 50, "minus": "1", **rule}
    return manifest


async def nominal(world) -> str:
    queue = await world.store.queues.get("ClusterQueue", "cq")
    return queue.spec.resource_groups[0].flavors[0].resources[0].nominal_quota


async def becomes(world, quota: str) -> None:
    async def equal():
        return await nominal(world) == quota

    await world.eventually(equal)


@on_both_databases
async def test_quota_follows_the_nodes_of_its_flavor(world):
    before = len(world.user.list("nodes"))
    least, most = str(10 * before // 2 - 1), str((10 * before + 4) // 2 - 1)
    await world.begin(flavor(), following(), local_queue())
    await world.submit(job("waits", cpu="3"))
    await world.job("waits", runs)
    assert await nominal(world) == least
    await world.user.create("nodes", "", simulated_node("more", cpu="4"))
    await becomes(world, most)  # it grows at once

    await world.user.delete("nodes", "", "more")
    world.pass_time(200)
    await world.submit(job("other"))
    await world.job("other", runs)
    assert await nominal(world) == most
    world.pass_time(301)
    await becomes(world, least)
    versions = await world.store.queues.versions("ClusterQueue", "cq")
    reasons = [each.reason for each in versions if each.author == "sluice"]
    assert f"fromNodes: {before + 1} nodes of default with {10 * before + 4} cpu: {least} to {most}" in reasons


async def test_manifest_that_is_applied_again_leaves_the_quota_as_it_is(world):
    quota = str(10 * len(world.user.list("nodes")) // 2 - 1)
    await world.begin(flavor(), following(), local_queue())
    await becomes(world, quota)
    await world.apply(following())
    assert await nominal(world) == quota
    await world.end()
    await world.apply(following(max="3", shrinkAfterSeconds=0))
    assert await nominal(world) == quota
    await world.start()
    await becomes(world, "3")


def state(
    name: str, cpu: int, *, ready: bool = True, cordoned: bool = False, taint: str = "", **labels: str
) -> NodeState:
    taints = (NodeTaint(taint, "", "NoSchedule"),) if taint else ()
    return NodeState(name, labels, {"cpu": cpu}, taints, ready, cordoned)


@pytest.mark.parametrize(
    ("node", "counts"),
    [
        (state("a", 5, pool="gpu"), True),
        (state("a", 5, pool="cpu"), False),
        (state("a", 5, pool="gpu", ready=False), False),
        (state("a", 5, pool="gpu", cordoned=True), False),
        (state("a", 5, pool="gpu", taint="other"), False),
        (state("a", 5, pool="gpu", taint="own"), True),
        (state("a", 5, pool="gpu", taint="tolerated"), True),
    ],
)
def test_nodes_on_which_new_pods_of_the_flavor_can_run_count(node, counts):
    gpu = ResourceFlavor.model_validate({
        "metadata": {"name": "gpu"},
        "spec": {
            "nodeLabels": {"pool": "gpu"}, "nodeTaints": [{"key": "own", "effect": "NoSchedule"}],
            "tolerations": [{"key": "tolerated", "operator": "Exists"}],
        },
    })  # fmt: skip
    assert capacity([node], gpu) == ((1, {"cpu": 5}) if counts else (0, {}))


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9)), min_size=1), st.integers(0, 300))
def test_smoothed_value_is_the_highest_of_the_last_seconds(steps, seconds):
    now, seen = 0.0, [(0.0, 5)]
    smoothed = Smoothed(5, 0.0)
    for pause, value in steps:
        now += pause
        seen.append((now, value))
        assert smoothed.add(value, now, seconds=seconds) == max(v for at, v in seen if at >= now - seconds)
