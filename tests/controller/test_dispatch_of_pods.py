"""Dispatch of single pods: they stay gated in the hub, and have the status of their copies."""

from __future__ import annotations

from contextlib import AsyncExitStack, closing

import pytest
from job_examples import cluster_queue, local_queue
from other_clusters import cluster, other_cluster, state
from pod_examples import GATE, MANAGED, pod
from test_dispatch import in_clusters

from admission.cluster.client import Client
from admission.controller.clusters import Connection
from admission.kinds import all_kinds

RUNS_IN = "sluice.dev/runs-in"


def kinds():
    return all_kinds(frameworks=("batch/job", "pod"))


class Hub:
    """Sluice that dispatches pods to the clusters b and c, with a queue of 2 CPUs in each."""

    def __init__(self, world, others):
        self.world = world
        self.kinds = kinds
        self.user = world.user
        self.b, self.c = others

    async def start(self):
        await self.world.start(kinds=self.kinds(), join=self._join)
        for name in ("b", "c"):
            await state(self.world, "Active", name)

    def _join(self, cluster):
        other = {"b": self.b, "c": self.c}[cluster.name]
        return Connection(Client.from_kubeconfig(other.kubeconfig), self.kinds(), None)

    async def none_left(self, *others):
        async def look():
            return not any(other.user.list("pods") for other in others or (self.b, self.c))

        await self.world.eventually(look)


def queue():
    flavors = [{"name": f"in-{name}", "resources": [{"name": "cpu", "nominalQuota": "2"}]} for name in ("b", "c")]
    return cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": flavors}], dispatch={})


@pytest.fixture
async def hub(world, tmp_path):
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(other_cluster(tmp_path, name)) for name in ("b", "c")]
        await world.apply(
            in_clusters("in-b", "b"), in_clusters("in-c", "c"), local_queue(), queue(), cluster("b"), cluster("c")
        )
        hub = Hub(world, others)
        await hub.start()
        yield hub


def gated(manifest):
    """Return a pod as the webhook would gate it."""
    manifest["metadata"]["labels"][MANAGED] = "true"
    return {**manifest, "spec": {**manifest["spec"], "schedulingGates": [GATE]}}


async def seen(user, name, until):
    """Wait until a pod satisfies `until`, and return it."""
    with closing(user.watch("pods")) as changes:
        async for batch in changes:
            for _, kind, obj, _ in batch:
                if obj["metadata"]["name"] == name and kind != "DELETED" and until(obj):
                    return obj
    raise AssertionError("the watch ended")


def runs(obj):
    return obj["status"].get("phase") == "Running"


def shows(phase):
    """Whether a pod in the hub is gated, and has this phase."""
    return lambda obj: obj["status"]["phase"] == phase and obj["spec"]["schedulingGates"] == [GATE]


def is_plain(obj):
    """Whether a pod says that it is gated, and nothing else."""
    (condition,) = obj["status"]["conditions"]
    plain = condition["reason"] == "SchedulingGated" and obj["status"]["phase"] == "Pending"
    return plain and not {"startTime", "containerStatuses"} & set(obj["status"])


async def end(other, name, phase="Succeeded"):
    await other.user.patch("pods", "team-a", name, {"status": {"phase": phase}}, subresource="status")


async def test_pod_runs_as_a_copy_and_has_its_status_until_its_end(hub):
    await hub.user.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 7})
    await hub.b.user.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 9})
    created = await hub.user.create("pods", "team-a", gated(pod("one", cpu="2", priorityClassName="high")))
    copy = await seen(hub.b.user, "one", runs)
    assert copy["spec"]["nodeSelector"] == {"type": "kwok"}
    assert not copy["spec"].get("schedulingGates")
    assert copy["spec"]["priority"] == 9
    assert "sluice.dev/queue-name" not in copy["metadata"]["labels"]
    shown = await seen(hub.user, "one", shows("Running"))
    assert shown["metadata"]["annotations"][RUNS_IN] == "b"
    assert shown["status"]["containerStatuses"] == copy["status"]["containerStatuses"]
    assert "podIP" not in shown["status"]
    assert shown["status"]["qosClass"] == created["status"]["qosClass"]

    await hub.user.create("pods", "team-a", gated(pod("two", cpu="2")))
    await seen(hub.c.user, "two", runs)
    await hub.user.create("pods", "team-a", gated(pod("three", cpu="2")))
    await hub.world.record("three", "pending", reason="WaitingForQuota")

    await hub.world.order("one", held=True)
    await hub.world.record("one", "pending", reason="OnHold")
    assert hub.b.user.get("pods", "team-a", "one") is None
    back = hub.user.get("pods", "team-a", "one")
    assert is_plain(back)
    assert back["spec"] == created["spec"]
    assert RUNS_IN not in back["metadata"]["annotations"]
    await seen(hub.b.user, "three", runs)
    await hub.user.delete("pods", "team-a", "three")
    assert (await hub.world.record("three", "finished")).outcome == "Deleted"
    await hub.world.order("one", held=False)
    again = await seen(hub.b.user, "one", runs)
    assert again["metadata"]["uid"] != copy["metadata"]["uid"]

    await end(hub.b, "one")
    await seen(hub.user, "one", shows("Succeeded"))
    assert (await hub.world.record("one", "finished")).outcome == "Succeeded"
    await end(hub.c, "two", "Failed")
    assert (await hub.world.record("two", "finished")).outcome == "Failed"
    assert hub.b.user.get("pods", "team-a", "one") is not None  # so is its log
    for name in ("one", "two"):
        await hub.user.delete("pods", "team-a", name)
    await hub.none_left()


async def test_copy_of_a_pod_that_others_delete_stop_or_unlabel_never_runs_twice(hub):
    manifest = gated(pod("one", cpu="2"))
    manifest["metadata"]["annotations"]["sluice.dev/cluster-affinity"] = '{"required": {"clusters": ["b"]}}'
    await hub.user.create("pods", "team-a", manifest)
    copy = await seen(hub.b.user, "one", runs)
    await hub.b.user.patch("pods", "team-a", "one", {"metadata": {"labels": {MANAGED: None}}})
    labelled = await seen(hub.b.user, "one", lambda obj: obj["metadata"]["labels"].get(MANAGED) == "true")
    assert labelled["metadata"]["uid"] == copy["metadata"]["uid"]

    await hub.world.end()
    await hub.b.user.patch("pods", "team-a", "one", {"metadata": {"labels": {MANAGED: None}}})
    await hub.start()
    labelled = await seen(hub.b.user, "one", lambda obj: obj["metadata"]["labels"].get(MANAGED) == "true")
    assert labelled["metadata"]["uid"] == copy["metadata"]["uid"]
    assert "CopyDeleted" not in [reason for reason, _ in await hub.world.history("one")]

    await seen(hub.user, "one", shows("Running"))  # its start is complete
    await hub.b.user.delete("pods", "team-a", "one")
    again = await seen(hub.b.user, "one", lambda obj: runs(obj) and obj["metadata"]["uid"] != copy["metadata"]["uid"])
    assert ("CopyDeleted", "Its copy in the cluster b was deleted. It queues again.") in await hub.world.history("one")
    await seen(hub.user, "one", shows("Running"))
    forged = pod("forged", queue=None)
    forged["metadata"] |= {key: again["metadata"][key] for key in ("labels", "annotations")}
    await hub.b.user.create("pods", "team-a", forged)

    await hub.user.patch("pods", "team-a", "one", {"spec": {"schedulingGates": None}})
    assert (await hub.world.record("one", "finished")).outcome == "Deleted"

    async def look():
        return [obj["metadata"]["name"] for obj in hub.b.user.list("pods")] == ["forged"]

    await hub.world.eventually(look)


@pytest.mark.parametrize("lost", ["the answer to the creation", "the second write"])
async def test_pod_whose_start_was_interrupted_runs_once(hub, lost):
    if lost == "the second write":
        await hub.world.cut_off()
    else:
        rule = {"match": {"user": "sluice", "verb": "create", "resource": "pods"}, "do": "drop", "when": "after"}
        hub.b.sandbox.faults.install({"rules": [{**rule, "limit": 1}]})
    await hub.user.create("pods", "team-a", gated(pod("one", cpu="2")))
    copy = await seen(hub.b.user, "one", runs)
    await hub.world.end()
    if lost == "the second write":
        await hub.world.reconnect()
    hub.b.sandbox.faults.remove()
    await hub.start()
    await seen(hub.user, "one", shows("Running"))
    assert hub.b.user.get("pods", "team-a", "one")["metadata"]["uid"] == copy["metadata"]["uid"]
    assert not hub.c.user.list("pods")
