"""Dispatch of pod groups: each pod of a group stays gated in the hub, and has a copy; all copies are in one cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from grouped_kinds import grouped_served, pods_until
from job_examples import local_queue
from other_clusters import cluster, state
from pod_examples import gated as gating
from pod_groups import member
from test_dispatch_of_pods import RUNS_IN, end, gated, hub, is_plain, runs, seen, shows
from test_way_of_a_leader_worker_set import workers
from test_way_of_a_stateful_set import stateful_set

from admission.controller.workloads import dispatching
from admission.kinds import GROUPED, all_kinds
from admission.kinds.base import CLUSTER_AFFINITY

__all__ = ["hub"]


async def create(hub, *names, group="g", total=2, **options):
    """Create pods of one CPU each, as the webhook would gate them."""
    for name in names:
        manifest = gated(member(name, total, group, **options))
        await hub.user.create("pods", "team-a", manifest)


def run(*names):
    """Whether pods of these names run, and no others."""

    def until(found):
        alive = {name: obj for name, obj in found.items() if obj["status"].get("phase") not in ("Succeeded", "Failed")}
        return set(alive) == set(names) and all(map(runs, alive.values()))

    return until


async def copies(other, *names):
    """Wait until exactly these copies of one's pods run, and return their uids by name."""
    found = await pods_until(other.user, "team-a", run(*names))
    return {name: found[name]["metadata"]["uid"] for name in names}


async def test_group_runs_as_copies_in_one_cluster_and_ends_as_they_do(hub):
    for user in (hub.user, hub.b.user):
        await user.create("configmaps", "team-a", {"metadata": {"name": "settings"}})
    volume = {"name": "settings", "configMap": {"name": "settings"}}
    await create(hub, "g-0", volumes=[volume])
    await hub.world.says("g", "It starts as a whole, and 1 of its 2 pods are there.")
    assert not hub.b.user.list("pods")
    await create(hub, "g-1", volumes=[volume])
    before = await copies(hub.b, "g-0", "g-1")
    record = await hub.world.record("g", "admitted")
    assert (record.workload.kind, record.admission.cluster) == ("PodGroup", "b")
    for name in before:
        shown = await seen(hub.user, name, shows("Running"))
        assert shown["metadata"]["annotations"][RUNS_IN] == "b"
        copy = hub.b.user.get("pods", "team-a", name)
        assert copy["spec"]["nodeSelector"] == {"type": "kwok"}
        assert copy["metadata"]["labels"]["sluice.dev/origin-group"] == record.workload.uid
        assert copy["metadata"]["labels"]["sluice.dev/workload-uid"] == record.workload.uid
    await create(hub, "h-0", "h-1", group="h")
    await copies(hub.c, "h-0", "h-1")
    await create(hub, "k-0", "k-1", group="k")
    await hub.world.record("k", "pending", reason="WaitingForQuota")

    await hub.world.order("g", held=True)
    await hub.world.record("g", "pending", reason="OnHold")
    for name in before:
        back = hub.user.get("pods", "team-a", name)
        assert is_plain(back)
        assert not {RUNS_IN, "sluice.dev/pod-group-uid"} & set(back["metadata"]["annotations"])
    await copies(hub.b, "k-0", "k-1")
    for name in ("k-0", "k-1"):
        await hub.user.delete("pods", "team-a", name)
    assert (await hub.world.record("k", "finished")).outcome == "Deleted"
    await hub.world.order("g", held=False)
    again = await copies(hub.b, "g-0", "g-1")
    assert not set(before.values()) & set(again.values())

    await end(hub.b, "g-0")
    await seen(hub.user, "g-0", shows("Succeeded"))
    await hub.world.holds(1000, "g")
    await end(hub.b, "g-1", "Failed")
    await seen(hub.user, "g-1", shows("Failed"))
    await create(hub, "g-2")
    await copies(hub.b, "g-2")
    await end(hub.b, "g-2")
    over = await hub.world.record("g", "finished")
    assert (over.outcome, over.message) == ("Succeeded", "Pods succeeded: 2/2.")
    assert {obj["metadata"]["name"] for obj in hub.b.user.list("pods")} == {"g-0", "g-1", "g-2"}  # so are their logs
    for name in ("g-0", "g-1", "g-2"):
        await hub.user.delete("pods", "team-a", name)
    await hub.none_left(hub.b)


async def test_pod_of_a_group_that_is_deleted_here_or_there_is_replaced_after_its_copy_is_gone(hub):
    stubborn = {"terminationGracePeriodSeconds": 1_000_000}
    manifest = gated(member("g-0", 2, **stubborn))
    manifest["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
    await hub.user.create("pods", "team-a", manifest)
    await create(hub, "g-1", **stubborn)
    before = await copies(hub.b, "g-0", "g-1")

    await hub.b.user.delete("pods", "team-a", "g-1", grace=0)
    await seen(hub.b.user, "g-1", lambda obj: runs(obj) and obj["metadata"]["uid"] != before["g-1"])
    await seen(hub.user, "g-1", shows("Running"))

    await hub.user.delete("pods", "team-a", "g-0")
    await seen(hub.b.user, "g-0", lambda obj: "deletionTimestamp" in obj["metadata"])
    await hub.world.apply(cluster("b", state="Draining"))
    await state(hub.world, "Draining")
    await hub.world.apply(cluster("b"))
    await state(hub.world, "Active")  # its quota is held, so that nothing has to wait for its end
    await create(hub, "g-2", **stubborn)
    await create(hub, "other-0", "other-1", group="other", total=2)
    await copies(hub.c, "other-0", "other-1")  # so that g-2 was decided about
    await hub.world.end()
    await hub.start()
    await create(hub, "last-0", group="last", total=1)
    await hub.world.record("last", "pending", reason="WaitingForQuota")
    assert {obj["metadata"]["name"] for obj in hub.b.user.list("pods")} == {"g-0", "g-1"}
    await hub.user.delete("pods", "team-a", "last-0")
    assert is_plain(hub.user.get("pods", "team-a", "g-2"))

    await hub.b.user.delete("pods", "team-a", "g-0", grace=0)
    now = await copies(hub.b, "g-1", "g-2")
    assert "CopyDeleted" not in [reason for reason, _ in await hub.world.history("g")]
    # One of the same name replaces it as well.
    await hub.user.delete("pods", "team-a", "g-1")
    await create(hub, "g-1", **stubborn)
    await seen(hub.b.user, "g-1", lambda obj: runs(obj) and obj["metadata"]["uid"] != now["g-1"])
    assert (await copies(hub.b, "g-1", "g-2"))["g-2"] == now["g-2"]
    await hub.user.delete("pods", "team-a", "g-1")
    await hub.user.delete("pods", "team-a", "g-2")
    assert (await hub.world.record("g", "finished")).outcome == "Deleted"
    await hub.none_left(hub.b)


async def test_evicted_group_goes_on_elsewhere_without_the_pods_that_have_succeeded(hub):
    await create(hub, "g-0", "g-1")
    await copies(hub.b, "g-0", "g-1")
    await end(hub.b, "g-0")
    await seen(hub.user, "g-0", shows("Succeeded"))
    await hub.world.apply(cluster("b", state="Draining"))
    await state(hub.world, "Draining")
    await hub.world.order("g", held=True)
    await hub.world.record("g", "pending", reason="OnHold")
    await hub.world.order("g", held=False)
    await copies(hub.c, "g-1")
    assert {obj["metadata"]["name"] for obj in hub.b.user.list("pods")} == {"g-0"}
    await end(hub.c, "g-1")
    assert (await hub.world.record("g", "finished")).outcome == "Succeeded"
    assert [obj["metadata"]["name"] for obj in hub.c.user.list("pods")] == ["g-1"]


@pytest.mark.costly
async def test_group_leaves_a_lost_cluster_and_its_copies_there_are_stopped_when_it_is_back(hub):
    await create(hub, "g-0", "g-1")
    await copies(hub.b, "g-0", "g-1")
    await seen(hub.user, "g-1", shows("Running"))
    hub.b.cut()
    await state(hub.world, "Lost")
    await end(hub.b, "g-1")  # not known here
    hub.world.pass_time(1000)
    await copies(hub.c, "g-0", "g-1")
    assert "ClusterLost" in [reason for reason, _ in await hub.world.history("g")]
    hub.b.mend()
    await hub.none_left(hub.b)
    await state(hub.world, "Active")
    for name in ("g-0", "g-1"):
        await end(hub.c, name)
    assert (await hub.world.record("g", "finished")).outcome == "Succeeded"
    assert not hub.b.user.list("pods")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_copies_that_were_being_created_when_their_cluster_was_disabled_run_when_it_is_back(hub, when):
    creation = {"verb": "create", "resource": "pods", "user": "sluice"}
    hub.b.sandbox.faults.install({"rules": [{"match": creation, "do": "delay", "seconds": 600, "when": when}]})
    await create(hub, "g-0", "g-1")

    async def is_under_way():
        return hub.b.sandbox.faults.describe()["rules"][0]["struck"] == 2

    await hub.world.eventually(is_under_way)
    await hub.world.apply(cluster("b", state="Disabled"))
    await state(hub.world, "Disabled")
    hub.b.mend()
    await hub.world.apply(cluster("b"))
    await state(hub.world, "Active")
    await copies(hub.b, "g-0", "g-1")
    await hub.user.delete("pods", "team-a", "g-0")
    await hub.user.delete("pods", "team-a", "g-1")
    assert (await hub.world.record("g", "finished")).outcome == "Deleted"
    await hub.none_left(hub.b)


async def test_cluster_that_refuses_a_pod_of_a_group_is_passed_over_by_all_unless_others_run(hub, monkeypatch):
    await hub.b.user.create("pods", "team-a", member("g-1", queue=None))
    await create(hub, "g-0", "g-1")
    await copies(hub.c, "g-0", "g-1")
    assert "ClusterRefused" in [reason for reason, _ in await hub.world.history("g")]
    (own,) = hub.b.user.list("pods")
    assert "sluice.dev/origin" not in own["metadata"]["labels"]
    for name in ("g-0", "g-1"):
        assert (await seen(hub.user, name, shows("Running")))["metadata"]["annotations"][RUNS_IN] == "c"
        await hub.user.delete("pods", "team-a", name)

    for user in (hub.user, hub.c.user):
        await user.create("configmaps", "team-a", {"metadata": {"name": "settings"}})
    await create(hub, "h-0", "h-1", group="h", volumes=[{"name": "settings", "configMap": {"name": "settings"}}])
    before = await copies(hub.c, "h-0", "h-1")
    assert [reason for reason, _ in await hub.world.history("h")].count("ClusterRefused") == 1

    # A pod that comes later, and is refused, does not end those that run.
    monkeypatch.setattr(dispatching, "_REFUSED_POD", 1.0)
    await hub.c.user.create("pods", "team-a", member("h-2", queue=None))
    await hub.user.delete("pods", "team-a", "h-1")
    await create(hub, "h-2", group="h")
    record = await hub.world.record("h", "admitted", reason="PodsUnscheduled")
    assert "The cluster c has another Pod of its name" in record.message
    await hub.c.user.delete("pods", "team-a", "h-2")
    assert (await copies(hub.c, "h-0", "h-2"))["h-0"] == before["h-0"]
    await hub.world.record("h", "admitted", reason="Admitted")
    assert [reason for reason, _ in await hub.world.history("h")].count("ClusterRefused") == 1


async def test_group_runs_where_a_pod_of_it_requires_and_waits_if_another_one_says_otherwise(hub):
    for name, wanted in (("g-0", "c"), ("g-1", "b")):
        manifest = gated(member(name, 2))
        manifest["metadata"]["annotations"][CLUSTER_AFFINITY] = f'{{"required": {{"clusters": ["{wanted}"]}}}}'
        await hub.user.create("pods", "team-a", manifest)
    record = await hub.world.record("g", "pending", reason="Misconfigured")
    assert "all have the same, as they run in one cluster" in record.message
    await hub.user.delete("pods", "team-a", "g-0")
    await create(hub, "g-2")
    assert set(await copies(hub.b, "g-1", "g-2")) == {"g-1", "g-2"}
    await hub.user.delete("pods", "team-a", "g-1")
    await hub.user.delete("pods", "team-a", "g-2")
    await hub.none_left(hub.b)
    await create(hub, "h-0", group="h")
    manifest = gated(member("h-1", 2, "h"))
    manifest["metadata"]["annotations"][CLUSTER_AFFINITY] = '{"required": {"clusters": ["c"]}}'
    await hub.user.create("pods", "team-a", manifest)
    await copies(hub.c, "h-0", "h-1")


@pytest.mark.parametrize("lost", ["the answer to a creation", "the second writes", "the whole group"])
async def test_group_whose_start_was_interrupted_runs_once(hub, lost):
    if lost == "the answer to a creation":
        rule = {"match": {"user": "sluice", "verb": "create", "resource": "pods"}, "do": "drop", "when": "after"}
        hub.b.sandbox.faults.install({"rules": [{**rule, "limit": 1}]})
    elif lost == "the second writes":
        await hub.world.cut_off()
    await create(hub, "g-0", "g-1")
    before = await copies(hub.b, "g-0", "g-1")
    await hub.world.end()
    if lost == "the second writes":
        await hub.world.reconnect()
    if lost == "the whole group":
        for name in before:
            await hub.user.delete("pods", "team-a", name)
    hub.b.sandbox.faults.remove()
    await hub.start()
    if lost == "the whole group":
        await hub.none_left()
        assert (await hub.world.record("g", "finished")).outcome == "Deleted"
        return
    for name in before:
        await seen(hub.user, name, shows("Running"))
    assert await copies(hub.b, *before) == before
    assert not hub.c.user.list("pods")


async def test_user_who_removes_the_gate_of_a_pod_of_a_group_gets_no_second_one(hub):
    await create(hub, "g-0", "g-1")
    await copies(hub.b, "g-0", "g-1")
    await seen(hub.user, "g-0", shows("Running"))
    moved = {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "another"}}}
    await hub.world.end()
    await hub.user.patch("pods", "team-a", "g-1", moved)
    await hub.start()
    await hub.user.patch("pods", "team-a", "g-0", {"spec": {"schedulingGates": None}})
    await copies(hub.b, "g-1")
    assert Counter(obj["metadata"]["name"] for obj in hub.user.list("pods")) == {"g-1": 1}
    assert (await hub.world.record("g", "admitted")).admission.cluster == "b"


@pytest.fixture
async def sets(hub, tmp_path):
    """A hub with the webhook, in which StatefulSets and LeaderWorkerSets are queued, too."""
    await hub.world.end()
    hub.kinds = lambda: all_kinds(frameworks=("batch/job", "pod", *GROUPED))
    async with grouped_served(hub.world.sandbox), gating(hub.user, hub.kinds(), tmp_path / "certificates"):
        await hub.world.apply(local_queue("user-queue"))
        await hub.start()
        yield hub


def shown_as_running(*names):
    """Whether pods of these names are gated, and show that their copies run; and there are no others."""
    return lambda found: set(found) == set(names) and all(map(shows("Running"), found.values()))


@pytest.mark.costly
@pytest.mark.parametrize("management", ["OrderedReady", "Parallel"])
async def test_stateful_set_runs_elsewhere_and_follows_its_replicas(sets, management):
    for user in (sets.user, sets.b.user):
        await user.create("services", "team-a", {"metadata": {"name": "web"}, "spec": {"clusterIP": "None"}})
    await sets.user.create("statefulsets", "team-a", stateful_set(2, management=management))
    before = await copies(sets.b, "web-0", "web-1")
    await pods_until(sets.user, "team-a", shown_as_running("web-0", "web-1"))
    assert (await sets.world.record("web", "admitted")).admission.cluster == "b"

    async def is_ready():
        return sets.user.get("statefulsets", "team-a", "web")["status"].get("readyReplicas") == 2

    await sets.world.eventually(is_ready)
    await sets.user.patch("statefulsets", "team-a", "web", {"spec": {"replicas": 1}}, subresource="scale")
    await copies(sets.b, "web-0")
    await sets.world.holds(1000, "web")
    await sets.user.patch("statefulsets", "team-a", "web", {"spec": {"replicas": 2}}, subresource="scale")
    assert (await copies(sets.b, "web-0", "web-1"))["web-0"] == before["web-0"]

    # The pod of the same name that its controller creates waits until the copy of the former one is gone.
    await sets.user.delete("pods", "team-a", "web-0")
    await seen(sets.b.user, "web-0", lambda obj: runs(obj) and obj["metadata"]["uid"] != before["web-0"])
    await sets.world.order("web", held=True)
    await sets.world.record("web", "pending", reason="OnHold")
    assert not sets.b.user.list("pods")
    assert all(is_plain(obj) for obj in sets.user.list("pods"))
    await sets.world.order("web", held=False)
    await copies(sets.b, "web-0", "web-1")
    await sets.user.delete("statefulsets", "team-a", "web", propagation="Background")
    await sets.world.record("web", "finished")
    await sets.none_left(sets.b)


@pytest.mark.costly
async def test_stateful_set_whose_claims_are_missing_elsewhere_says_so(sets):
    manifest = stateful_set(1)
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]
    await sets.user.create("statefulsets", "team-a", manifest)

    await sets.world.record("web", "pending")
    for cluster_name in ("b", "c"):
        lacking = f"The cluster {cluster_name} lacks what its pods need"

        async def look(lacking=lacking):
            return lacking in str(await sets.world.history("web"))

        await sets.world.eventually(look)
    assert "Service web, PersistentVolumeClaim data-web-0" in str(await sets.world.history("web"))
    assert not sets.b.user.list("pods")


@pytest.mark.costly
async def test_each_group_of_a_leader_worker_set_runs_in_one_cluster(sets):
    for other in (sets.b, sets.c):
        await other.user.create("services", "team-a", {"metadata": {"name": "lws"}, "spec": {"clusterIP": "None"}})
    await sets.user.create("leaderworkersets", "team-a", workers())
    for number in range(2):
        record = await sets.world.record(f"lws-{number}", "admitted")
        where = sets.b if record.admission.cluster == "b" else sets.c
        await copies(where, f"lws-{number}", *(f"lws-{number}-{worker}" for worker in (1, 2, 3)))
    await sets.user.patch("leaderworkersets", "team-a", "lws", {"spec": {"replicas": 1}})
    first = (await sets.world.record("lws-0", "admitted")).admission.cluster
    where, other = (sets.b, sets.c) if first == "b" else (sets.c, sets.b)
    await sets.none_left(other)
    # Its controller recreates the whole group when one of its pods fails.
    pods = ["lws-0", "lws-0-1", "lws-0-2", "lws-0-3"]
    before = await copies(where, *pods)
    await end(where, "lws-0-2", "Failed")

    def is_new(found):
        return run(*pods)(found) and all(found[name]["metadata"]["uid"] != before[name] for name in pods)

    await pods_until(where.user, "team-a", is_new)
    await sets.user.delete("leaderworkersets", "team-a", "lws", propagation="Background")
    await sets.none_left(where)
