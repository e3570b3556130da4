"""Placement by topology on the nodes of clusters that have joined, some of which have the names of nodes in `local`."""

from __future__ import annotations

from collections import Counter

import pytest
from job_examples import TOLERATION, cluster_queue, local_queue
from other_clusters import cluster, other_cluster, state
from topology_examples import HOSTNAME, POOL, bound, fail, placed_job, pods_of, racks, racks_of, topology

from admission.model.sentences import time


@pytest.fixture
async def other(tmp_path):
    async with other_cluster(tmp_path) as found:
        yield found


def flavor_in(cluster, *, placed=True):
    spec = {"nodeLabels": POOL, "tolerations": [TOLERATION], "clusters": [cluster]}
    spec |= {"topologyName": "dc"} if placed else {}
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "ResourceFlavor",
        "metadata": {"name": f"in-{cluster}"},
        "spec": spec,
    }


def queue(*clusters, **spec):
    flavors = [{"name": f"in-{name}", "resources": [{"name": "cpu", "nominalQuota": "1000"}]} for name in clusters]
    return cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": flavors}], **spec)


async def test_nodes_of_two_clusters_are_told_apart_though_they_have_the_same_names(world, other):
    for each in (world, other):
        await racks(each, 2, "a1")
    await world.apply(
        topology("dc", "rack", HOSTNAME), *map(flavor_in, ("local", "b")), queue("local", "b"), local_queue(), cluster()
    )
    await world.start(join=other.join)
    await state(world, "Active")
    await world.submit(placed_job("here", 6))
    await bound(world, "here", 6)
    await other.submit(placed_job("there", 8))
    pods = await bound(world, "there", 8, other)
    assert Counter(pod["spec"]["nodeName"] for pod in pods) == {"a1-0": 4, "a1-1": 4}
    record = await world.record("there", "admitted")
    assert record.admission.pod_sets[0].flavors == {"cpu": "in-b"}
    await world.submit(placed_job("fits", 2))
    await bound(world, "fits", 2)
    await other.submit(placed_job("waits", 1))
    assert "topology" in (await world.record("waits", "pending", reason="WaitingForQuota")).message


async def test_pods_of_a_copy_are_placed_where_it_runs_and_get_other_nodes_when_one_fails(world, other):
    await racks(world, 3, "a1")
    await racks(other, 3, "a1")
    await world.apply(
        topology("dc", "rack", HOSTNAME), flavor_in("b"), queue("b", dispatch={}), local_queue(), cluster()
    )
    await world.start(join=other.join)
    await state(world, "Active")
    made = placed_job("train", 8, indexed=True)
    made["spec"] |= {"managedBy": "sluice.dev/dispatch", "backoffLimit": 100}
    await world.submit(made)
    pods = await bound(world, "train", 8, other)
    assert racks_of(pods) == {"a1"}
    order = sorted(pods, key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
    assert [pod["spec"]["nodeName"] for pod in order] == sorted(pod["spec"]["nodeName"] for pod in pods)
    assert (await world.record("train", "admitted")).admission.cluster == "b"
    assert world.user.list("pods") == []
    failing = pods[0]["spec"]["nodeName"]
    await fail(world, failing)  # the one of this name in the hub
    await fail(other, failing)

    async def moved():
        nodes = {pod["spec"].get("nodeName") for pod in pods_of(other, "train")}
        return len(pods_of(other, "train")) == 8 and not nodes & {None, failing}

    await world.eventually(moved)
    assert "NodeReplaced" in [reason for reason, _ in await world.history("train")]


@pytest.mark.parametrize("levels", [("rack", HOSTNAME), ()])
async def test_drained_node_of_another_cluster_is_emptied_there_and_not_in_the_hub(world, other, levels):
    """With a topology, or with nodes that Kubernetes chooses."""
    for each in (world, other):
        await racks(each, 1, "a1")
    flavors = [flavor_in(name, placed=bool(levels)) for name in ("local", "b")]
    objects = [topology("dc", *levels)] if levels else []
    await world.apply(*objects, *flavors, queue("local", "b", dispatch={}), local_queue(), cluster())
    await world.start(join=other.join)
    await state(world, "Active")
    here, sent = (placed_job(name, 1, "rack" if levels else "") for name in ("here", "sent"))
    sent["spec"]["managedBy"] = "sluice.dev/dispatch"
    for made, where in ((here, None), (sent, other)):
        await world.submit(made)
        await bound(world, made["metadata"]["name"], 1, where)
    spec = {"nodes": ["a1-0"], "cluster": "b", "deadline": time(world.clock() + 30), "reason": "x"}
    await world.apply({"apiVersion": "sluice.dev/v1", "kind": "Drain", "metadata": {"name": "d"}, "spec": spec})
    world.pass_time(31)

    async def is_drained():
        return "Drained" in [reason for reason, _ in await world.history("sent")]

    await world.eventually(is_drained)
    assert "Drained" not in [reason for reason, _ in await world.history("here")]
