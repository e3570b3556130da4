"""Several clusters with one quota tree: their Jobs are queued together, and each starts in its own cluster."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from job_examples import cluster_queue, flavor, is_done, is_gated, job, local_queue, node, runs
from other_clusters import cluster, other_cluster, state
from queue_objects import priority_class

from admission.cli.serve.adoption import survey
from admission.cluster import credentials
from admission.cluster.claim import Claim
from admission.cluster.client import Client
from admission.controller.clusters import Connection
from admission.kinds import all_kinds
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth import certificates
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.errors import Conflict


@pytest.fixture
async def other(tmp_path):
    """A cluster with the namespaces and nodes of the first one."""
    async with other_cluster(tmp_path) as found:
        yield found


@pytest.fixture
async def joined(world, other):
    """Sluice with one queue of 4 CPUs for both clusters."""
    await world.apply(flavor(), cluster_queue(), local_queue(), cluster())
    await world.start(join=other.join)
    await state(world, "Active")
    return world


async def test_jobs_of_two_clusters_share_one_quota_and_each_starts_in_its_own(joined, other):
    await joined.submit(job("here", cpu="3", seconds=120))
    await joined.job("here", runs)
    await other.submit(job("there", cpu="2"))
    waiting = await joined.record("there", "pending", reason="WaitingForQuota")
    assert waiting.workload.cluster == "b"
    assert is_gated(await other.job("there", lambda _: True))

    await joined.job("here", is_done)
    started = await other.job("there", runs)
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    assert (await joined.record("there", "admitted")).workload.cluster == "b"
    assert joined.user.list("jobs")[0]["metadata"]["name"] == "here"


def in_clusters(name, *clusters):
    return {**flavor(name), "spec": {**flavor()["spec"], "clusters": list(clusters)}}


def two_flavors(**quotas):
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for name, cpu in quotas.items()]
    return cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": flavors}])


async def test_jobs_get_only_flavors_of_their_own_cluster(world, other):
    selected = {**flavor("sel"), "spec": {**flavor()["spec"], "clusterSelector": {"matchLabels": {"gpu": "yes"}}}}
    await world.apply(
        in_clusters("home", "local"),
        selected,
        two_flavors(home="1", sel="3"),
        local_queue(),
        cluster(labels={"gpu": "yes"}),
    )
    await world.start(join=other.join)
    await world.submit(job("big-here", cpu="2"))
    await world.record("big-here", "pending", reason="ExceedsMaxQuota")
    await other.submit(job("there", cpu="2"))
    await other.job("there", runs)
    assert (await world.record("there", "admitted")).admission.pod_sets[0].flavors == {"cpu": "sel"}
    await world.submit(job("here"))
    await world.job("here", runs)
    assert (await world.record("here", "admitted")).admission.pod_sets[0].flavors == {"cpu": "home"}

    await world.apply(cluster(labels={"gpu": "no"}))
    await other.submit(job("late", cpu="1"))
    none = await world.record("late", "pending", reason="NoMatchingFlavor")
    assert "flavor home is in local, and the workload is in the cluster b" in none.message
    assert "flavor sel is in no cluster that has joined" in none.message


@pytest.mark.costly
async def test_quota_follows_the_nodes_of_the_clusters_that_have_the_flavor(world, other):
    queue = two_flavors(far="0", home="0")
    for quota in queue["spec"]["resourceGroups"][0]["flavors"]:
        quota["resources"][0] |= {"fromNodes": {"percent": 100, "shrinkAfterSeconds": 0}}
    await world.apply(in_clusters("far", "b"), in_clusters("home", "local"), queue, local_queue(), cluster())
    await world.start(join=other.join)
    await state(world, "Active")

    async def nominal():
        found = await world.store.queues.get("ClusterQueue", "cq")
        return [each.resources[0].nominal_quota for each in found.spec.resource_groups[0].flavors]

    async def becomes(far, home):
        async def equal():
            return await nominal() == [str(far), str(home)]

        await world.eventually(equal)

    here = 10 * len(world.user.list("nodes"))
    await becomes(40, here)
    await other.user.delete("nodes", "", other.user.list("nodes")[0]["metadata"]["name"])
    await becomes(30, here)
    other.cut()
    await state(world, "Lost")
    for each in other.user.list("nodes"):
        await other.user.delete("nodes", "", each["metadata"]["name"])
    await world.user.create("nodes", "", node(99))
    await becomes(30, here + 10)
    other.mend()
    await becomes(0, here + 10)


async def test_capacity_of_each_cluster_is_seen_at_the_join_and_is_kept_while_it_is_not(joined, other):
    async def seen(until, name="b"):
        async def look():
            found = (await joined.store.joined_clusters.capacities()).get(name)
            return found if found is not None and until(found) else None

        return await joined.eventually(look)

    assert (await seen(lambda found: found.seen, "local")).capacity.nodes == len(joined.user.list("nodes"))
    first = await seen(lambda found: found.seen)
    assert (first.capacity.nodes, first.capacity.allocatable["cpu"], first.message) == (4, 40_000, "")

    await joined.end()
    await other.user.patch("nodes", "", "node-0", {"spec": {"unschedulable": True}})
    absurd = {"status": {"allocatable": {"memory": "9999Ei"}}}
    await other.user.patch("nodes", "", "node-1", absurd, subresource="status")
    await joined.start(join=other.join)
    second = await seen(lambda found: found.seen > first.seen)
    assert (second.capacity.nodes, second.capacity.schedulable) == (4, 3)
    assert (second.capacity.allocatable["cpu"], second.capacity.usable["cpu"]) == (40_000, 30_000)
    assert second.capacity.allocatable["memory"] == 2**63 - 1

    await joined.end()
    forbidden = {"match": {"verb": "list", "resource": "nodes"}, "do": "error", "code": 403}
    other.sandbox.faults.install({"rules": [forbidden]})
    await joined.start(join=other.join)
    third = await seen(lambda found: found.failure)
    assert third.message == "the right to list nodes is missing (deploy/rbac/topology.yaml grants it)"
    assert (third.seen, third.capacity) == (second.seen, second.capacity)
    await state(joined, "Active")


@pytest.mark.costly
async def test_lost_cluster_holds_its_quota_and_its_jobs_wait_while_others_start(joined, other):
    await other.submit(job("running", cpu="2"))
    await other.job("running", runs)
    await other.submit(job("ends", cpu="1"))
    await other.job("ends", runs)
    await other.submit(job("waits", cpu="3"))
    await joined.record("waits", "pending", reason="WaitingForQuota")
    other.cut()
    lost = await state(joined, "Lost")
    assert "is lost" in lost.message
    waiting = await joined.record("waits", "pending", reason="ClusterUnavailable")
    assert waiting.message.startswith("The cluster b is lost")
    await other.user.delete("jobs", "team-a", "ends", propagation="Background")
    await other.submit(job("during", cpu="2"))  # more than what "ends" frees: the clocks of two clusters give no order

    await joined.submit(job("here", cpu="1"))
    await joined.job("here", runs)
    await joined.submit(job("too-much", cpu="1"))
    await joined.record("too-much", "pending", reason="WaitingForQuota")  # what the lost cluster runs is counted

    await joined.end()  # so it is after a restart
    await joined.start(join=other.join)
    assert (await joined.record("running", "admitted")).workload.cluster == "b"
    await joined.record("waits", "pending", reason="ClusterUnavailable")
    await joined.record("too-much", "pending", reason="WaitingForQuota")

    other.mend()
    await state(joined, "Active")
    await joined.record("ends", "finished")
    await joined.job("too-much", runs)  # its quota is free
    await joined.record("during", "pending", reason="WaitingForQuota")
    for name in ("here", "too-much"):
        await joined.user.delete("jobs", "team-a", name, propagation="Background")
    await other.job("during", runs)


@pytest.mark.costly
async def test_workloads_in_a_lost_cluster_are_not_preempted(world, other):
    preempting = cluster_queue(preemption={"withinClusterQueue": "LowerPriority"})
    high = priority_class("high", 9)
    await world.apply(flavor(), preempting, local_queue(), high, cluster())
    await world.start(join=other.join)
    await other.submit(job("low", cpu="4"))
    await other.job("low", runs)
    other.cut()
    await state(world, "Lost")
    urgent = job("urgent", cpu="4")
    urgent["metadata"]["labels"]["sluice.dev/priority-class"] = "high"
    await world.submit(urgent)
    await world.record("urgent", "pending", reason="WaitingForQuota")
    assert (await world.record("low", "admitted")).state == "admitted"
    other.mend()
    await world.job("urgent", runs)
    assert (await world.record("low", "pending")).eviction.reason == "Preempted"


async def test_draining_cluster_starts_nothing_and_disabled_one_is_left_alone(joined, other):
    await other.submit(job("running"))
    await other.job("running", runs)
    await joined.apply(cluster(state="Draining"))
    await state(joined, "Draining")
    await other.submit(job("next"))
    waiting = await joined.record("next", "pending", reason="ClusterUnavailable")
    assert waiting.message.startswith("The cluster b is draining")

    await joined.apply(cluster(state="Disabled"))
    await state(joined, "Disabled")
    await other.user.delete("jobs", "team-a", "running", propagation="Background")
    await joined.submit(job("here", cpu="4"))
    await joined.record("here", "pending", reason="WaitingForQuota")
    await joined.apply(cluster())
    await joined.job("here", runs)  # the list shows that the deleted Job is gone
    await joined.record("next", "pending", reason="WaitingForQuota")


async def test_local_drains_alone(joined, other):
    local = cluster("local", state="Draining")
    del local["spec"]["kubeconfig"]
    await joined.apply(local)
    await joined.submit(job("here"))
    await joined.record("here", "pending", reason="ClusterUnavailable")
    await other.submit(job("there"))
    await other.job("there", runs)
    local["spec"]["state"] = "Active"
    await joined.apply(local)
    await joined.job("here", runs)


@pytest.mark.costly
async def test_rebuilt_cluster_under_its_old_name_is_used_only_when_its_uid_is_given(joined, other, tmp_path):
    await other.submit(job("gone", cpu="3"))
    await other.job("gone", runs)
    await joined.end()
    async with Sandbox(speed=60) as rebuilt:
        rebuilt.write_kubeconfig(tmp_path / "other", "sluice")
        await rebuilt.local("admin").create("namespaces", "", {"metadata": {"name": "team-a"}})
        await rebuilt.local("admin").create("jobs", "team-a", job("runs", suspend=False))
        await joined.start(join=surveyed(joined, other))

        async def refused():
            found = (await joined.store.joined_clusters.load())["b"]
            return found if "another cluster" in found.message else None

        lost = await joined.eventually(refused)
        assert lost.state == "Lost"
        assert "and Sluice would stop 1 running Job (team-a/runs), which would queue again" in lost.message
        await joined.submit(job("here", cpu="2"))
        await joined.record("here", "pending", reason="WaitingForQuota")  # the former one may still run its Job

        uid = rebuilt.local("admin").get("namespaces", "", "kube-system")["metadata"]["uid"]
        await joined.apply(cluster(uid=uid))
        await state(joined, "Active")
        await joined.job("here", runs)
        assert (await joined.record("gone", "finished")).outcome == "Deleted"


async def test_cluster_is_removed_only_when_nothing_of_it_runs(joined, other):
    await other.submit(job("running"))
    await other.job("running", runs)
    author = Author("test")
    with pytest.raises(Conflict, match='Cluster "b" is in use by workload team-a/running'):
        await joined.leading.queues.delete("Cluster", "b", author=author)
    await other.user.delete("jobs", "team-a", "running", propagation="Background")
    await joined.record("running", "finished")
    await joined.leading.queues.delete("Cluster", "b", author=author)
    await other.submit(job("late"))
    await joined.submit(job("here"))
    await joined.job("here", runs)
    assert await joined.store.workloads.get("team-a", "late") is None
    assert await joined.store.joined_clusters.load() == {}  # another cluster may come under this name


async def test_clusters_join_are_reached_otherwise_and_leave_without_loading_workloads(world, other):
    loads = 0

    @contextmanager
    def loading():
        nonlocal loads
        loads += 1
        yield

    lists = {"user": "sluice", "verb": "list", "resource": "jobs"}
    other.sandbox.faults.install({"rules": [{"match": lists, "do": "delay", "seconds": 0}]})

    async def is_listed(times):
        async def look():
            return other.sandbox.faults.describe()["rules"][0]["matched"] >= times

        await world.eventually(look)
        await state(world, "Active")

    await world.apply(flavor(), cluster_queue(), local_queue())
    await world.start(join=other.join, loading=loading)
    await world.submit(job("here", cpu="1"))
    await world.job("here", runs)
    await world.apply(cluster())
    await is_listed(1)
    for name, cpu in (("there", "2"), ("waits", "2")):
        await other.submit(job(name, cpu=cpu))
        await world.record(name, "admitted" if name == "there" else "pending")
    began = (await world.record("there", "admitted")).admitted_at
    uid = other.user.get("namespaces", "", "kube-system")["metadata"]["uid"]
    await world.apply(cluster(uid=uid))
    await is_listed(2)
    await other.submit(job("last", cpu="2"))
    await world.record("last", "pending", reason="WaitingForQuota")  # what runs there holds its quota
    assert (await world.record("there", "admitted")).admitted_at == began
    await world.apply(cluster(uid=uid, state="Disabled"))
    await state(world, "Disabled")
    await other.user.delete("jobs", "team-a", "there", propagation="Background")
    await world.apply(cluster(uid=uid))
    await is_listed(3)
    await other.job("waits", runs)
    await other.user.delete("jobs", "team-a", "waits", propagation="Background")
    await world.record("waits", "finished")
    await other.job("last", runs)
    await other.user.delete("jobs", "team-a", "last", propagation="Background")
    await world.record("last", "finished")
    await other.submit(job("left", cpu="4"))
    await world.record("left", "pending")
    assert loads == 1
    await world.leading.queues.delete("Cluster", "b", author=Author("test"))
    left = await world.record("left", "finished")
    assert (left.outcome, left.message) == ("Dequeued", "Its cluster b has left: it is not managed any more.")
    await world.submit(job("more", cpu="3", seconds=20))
    await world.job("more", is_done)
    await world.user.delete("jobs", "team-a", "here", propagation="Background")
    await world.record("here", "finished")
    await world.apply(cluster(uid=uid))
    await other.job("left", runs)
    assert loads == 1

    await other.submit(job("again", cpu="9"))
    await world.record("again", "pending")
    await other.user.delete("jobs", "team-a", "left", propagation="Background")
    await world.record("left", "finished")
    await world.end()
    await world.store.queues.delete("Cluster", "b", author=Author("test"))
    await world.start(join=other.join)
    assert (await world.record("again", "finished")).outcome == "Dequeued"


async def test_object_with_the_uid_of_another_cluster_has_no_effect_there(joined, other):
    await joined.submit(job("here"))
    uid = (await joined.job("here", runs))["metadata"]["uid"]
    await other.submit(job("model", cpu="9"))
    forged = copy.deepcopy(await other.job("model", lambda _: True))
    forged["metadata"] |= {"name": "forged", "uid": uid}
    registry = other.sandbox.registry
    registry.collection(registry.resources["batch", "v1", "jobs"]).put(forged, None)
    await joined.eventually(lambda: refused(joined))
    assert (await joined.store.workloads.get("team-a", "forged")) is None
    assert (await joined.record("here", "admitted")).workload.name == "here"


async def refused(world):
    return world.controller.faults.count > 0


def claim_of(database, client):
    """A claim for a database of this name."""

    async def stored():
        return 1, 1

    return Claim(
        client, database=database, location=database, holder=f"{database}-1", election="", revision=lambda: 1,
        stored=stored,
    )  # fmt: skip


@pytest.mark.costly
async def test_cluster_of_another_sluice_is_refused_while_that_one_runs(world, other):
    def join(cluster):
        client = Client.from_kubeconfig(other.kubeconfig)
        return Connection(client, all_kinds(), claim_of("ours", client))

    await world.apply(flavor(), cluster_queue(), local_queue(), cluster())
    async with Client.from_kubeconfig(other.kubeconfig) as client:
        theirs = claim_of("theirs", client)
        theirs.permit(cluster="", replacing=None)
        await theirs.take(epoch=1)
        keeping = asyncio.create_task(theirs.keep())
        await other.submit(job("there"))
        await world.start(join=join)

        async def refused():
            found = (await world.store.joined_clusters.load()).get("b")
            return found is not None and "another Sluice, theirs-1, decides for it" in found.message

        await world.eventually(refused)
        assert is_gated(await other.job("there", lambda _: True))
        keeping.cancel()
        await theirs.release()
    await state(world, "Active")
    await other.job("there", runs)


def surveyed(world, other):
    """How `other` is reached, with what its first connection would stop."""

    def join(cluster):
        client = Client.from_kubeconfig(other.kubeconfig)

        async def would_stop():
            found = await survey(world.store, client, all_kinds(), cluster.name)
            return str(found) if found.stopped else ""

        return Connection(client, all_kinds(), None, would_stop=would_stop)

    return join


async def test_first_join_that_would_stop_running_jobs_needs_the_uid(world, other):
    await other.submit(job("runs", suspend=False))
    await other.job("runs", runs)
    await world.apply(flavor(), cluster_queue(), local_queue(), cluster())
    await world.start(join=surveyed(world, other))

    async def refused():
        found = (await world.store.joined_clusters.load()).get("b")
        return found if found is not None and "would stop 1 running Job (team-a/runs)" in found.message else None

    assert (await world.eventually(refused)).state == "Connecting"
    assert runs(await other.job("runs", lambda _: True))
    uid = other.user.get("namespaces", "", "kube-system")["metadata"]["uid"]
    await world.apply(cluster(uid=uid))
    await state(world, "Active")
    await world.record("runs", "admitted")


async def test_cluster_that_joins_under_a_second_name_is_refused(joined):
    await joined.apply(cluster("c"))

    async def refused():
        found = (await joined.store.joined_clusters.load()).get("c")
        return found is not None and "it has joined already, as b" in found.message and found.state == "Connecting"

    await joined.eventually(refused)
    await state(joined, "Active")


@pytest.mark.costly
async def test_floods_and_hanging_plugins_of_others_do_not_keep_jobs_waiting(world, other):
    """In b a user changes Jobs without end, and the API server answers late; the plugin of c never ends."""
    hangs, began = asyncio.Event(), asyncio.Event()

    async def plugin():
        began.set()
        await hangs.wait()

    def join(joining):
        return other.join(joining) if joining.name == "b" else Connection(Client(plugin), all_kinds(), None)

    await world.apply(flavor(), cluster_queue(), local_queue(), cluster(), cluster("c"))
    await world.start(join=join)
    await state(world, "Active")
    await began.wait()
    for number in range(20):
        await other.submit(job(f"flood-{number}", cpu="9"))
    other.sandbox.faults.install({"rules": [{"match": {"verb": ["patch"]}, "do": "delay", "seconds": 5}]})
    floods = 0

    async def flood():
        nonlocal floods
        while True:
            name = f"flood-{floods % 20}"
            await other.user.patch("jobs", "team-a", name, {"metadata": {"annotations": {"n": str(floods)}}})
            floods += 1
            if floods % 50 == 0:
                await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    for number in range(3):
        before = floods
        await world.submit(job(f"here-{number}", cpu="3", seconds=20))
        await world.job(f"here-{number}", is_done)
        assert floods > before
    flooding.cancel()
    assert (await world.store.joined_clusters.load())["c"].state == "Connecting"
    assert world.controller.inbox.weight < 2_000


async def says(world, *parts, name="b"):
    """Wait until the status of the cluster has a message with these parts, and return what is known of it."""

    async def look():
        found = (await world.store.joined_clusters.load()).get(name)
        return found if found is not None and all(part in found.message for part in parts) else None

    return await world.eventually(look)


def write(kubeconfig, sandbox, server=None, **user):
    """Write a kubeconfig whose user has these credentials. `server`: an address; None: that of the sandbox."""
    found = sandbox.kubeconfig("sluice")
    if server is not None:
        found["clusters"][0]["cluster"]["server"] = server
    found["users"] = [{"name": "sluice", "user": user}]
    Path(kubeconfig).write_text(yaml.dump(found))


@pytest.mark.costly
async def test_plugin_that_hangs_is_killed_with_all_its_processes_and_said_while_others_go_on(
    world, other, tmp_path, monkeypatch
):
    """It hangs at first, in a process that it has started, and again when its credentials have to be renewed."""
    monkeypatch.setattr(credentials, "PLUGIN_SECONDS", 4.0)
    monkeypatch.setattr(credentials, "REFRESH_SECONDS", 1.0)
    status = {"token": other.sandbox.token("sluice"), "expirationTimestamp": "2020-01-01T00:00:00Z"}
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": "v1", "status": status}))
    pids, answer, hangs = tmp_path / "pids", tmp_path / "answer", tmp_path / "hangs"
    script = f"test ! -e {hangs} || {{ sleep 1000 & echo $$ $! >> {pids}; wait; }}; cat {answer}"
    command = {"apiVersion": "v1", "command": "sh", "args": ["-c", script]}
    write(other.kubeconfig, other.sandbox, exec=command)
    silent = "its exec plugin or identity provider has not answered"

    hangs.touch()
    await world.apply(flavor(), cluster_queue(), local_queue(), cluster())
    await world.start(join=other.join)
    assert (await says(world, silent)).state == "Connecting"
    hangs.unlink()
    await state(world, "Active")
    await other.submit(job("there", cpu="3"))
    await other.job("there", runs)
    monkeypatch.setattr(credentials, "PLUGIN_SECONDS", 20.0)
    hangs.touch()
    lost = await says(world, f"{silent} yet")  # sooner than that
    assert lost.state == "Lost"
    assert "cannot be renewed" in lost.message
    await world.submit(job("here"))
    await world.job("here", runs)
    await world.submit(job("next"))
    await world.record("next", "pending", reason="WaitingForQuota")  # what runs there holds its quota
    hangs.unlink()
    await state(world, "Active")

    folders = [Path(f"/proc/{pid}") for pid in pids.read_text().split()]
    assert len(folders) > 2  # a plugin and its process, twice or more

    async def gone():
        return not any(map(Path.exists, folders))

    await world.eventually(gone)


@pytest.mark.costly
async def test_successors_of_credentials_that_have_ended_are_used(world, other, tmp_path, monkeypatch):
    user = User("sluice", "", ("system:masters", "system:authenticated"))
    pem = tmp_path / "expired.pem"
    monkeypatch.setattr(certificates, "_LIFETIME", dt.timedelta(minutes=-30))
    pem.write_bytes(certificates.Authority("test").client("sluice").pem)
    write(other.kubeconfig, other.sandbox, **{"client-certificate": str(pem), "client-key": str(pem)})
    await world.apply(flavor(), cluster_queue(), local_queue(), cluster())
    await world.start(join=other.join)
    assert (await says(world, "the client certificate", "expired on", "renew it")).state == "Connecting"

    write(other.kubeconfig, other.sandbox, token=other.sandbox.add_user(user, expires=600))
    await state(world, "Active")
    await other.submit(job("there"))
    await other.job("there", runs)
    assert (await says(world, "401", "log in again or renew the token")).state == "Lost"
    await world.submit(job("here"))
    await world.job("here", runs)
    write(other.kubeconfig, other.sandbox, "https://127.0.0.1:1", token="unused")
    assert (await says(world, "https://127.0.0.1:1/")).state == "Lost"  # also another address is used
    write(other.kubeconfig, other.sandbox, token=other.sandbox.add_user(user))
    await state(world, "Active")
    await other.submit(job("next"))
    await other.job("next", runs)


def absurd_jobs():
    """Yield what changes a Job into one that no API server stores."""
    yield lambda job: job.update(spec="none")
    yield lambda job: job.update(spec=None, status=["none"])
    yield lambda job: job["spec"].update(template=[])
    yield lambda job: job["spec"]["template"].update(spec={"containers": [{"name": 1, "resources": {"requests": 2}}]})
    yield lambda job: job["spec"]["template"]["spec"].update(containers={"a": "b"}, nodeSelector=7, tolerations="all")
    yield lambda job: job["spec"].update(parallelism="many", completions=[1], suspend="perhaps")
    yield lambda job: job["spec"].update(parallelism=-(2**63))
    yield lambda job: job["metadata"].update(annotations=["sluice.dev/x"], ownerReferences="all", finalizers=3)
    yield lambda job: job["metadata"].update(labels={"sluice.dev/queue-name": {"a": 1}})
    yield lambda job: job["metadata"].update(labels="sluice.dev/queue-name", generation="a", creationTimestamp=[])
    yield lambda job: job["metadata"].update(annotations={f"sluice.dev/{number}": "x" * 9_999 for number in range(300)})
    yield lambda job: job.update(status={"conditions": "Complete", "active": {}, "startTime": 9})
    yield lambda job: job.update(metadata={**job["metadata"], "namespace": "no/where\n", "name": "n" * 9_999})
    yield lambda job: job["spec"]["template"].update(metadata={"labels": [[[]]], "annotations": {"a": None}})


@pytest.mark.costly
async def test_absurd_objects_of_one_cluster_do_not_keep_others_waiting(world, tmp_path):
    async with other_cluster(tmp_path, controllers=False) as other:
        registry = other.sandbox.registry
        await other.submit(job("model", cpu="9"))
        model = other.user.get("jobs", "team-a", "model")
        jobs = registry.collection(registry.resources["batch", "v1", "jobs"])

        def put(number, change):
            odd = copy.deepcopy(model)
            odd["metadata"] |= {"name": f"odd-{number}", "uid": f"odd-{number}"}
            change(odd)
            jobs.put(odd, None)

        for plural, fields in (("nodes", {"status": "full", "spec": []}), ("namespaces", {"spec": 1, "status": [2]})):
            odd = {**copy.deepcopy(other.user.list(plural)[0]), **fields}
            odd["metadata"] |= {"name": "odd", "uid": f"odd-{plural}", "labels": "none", "annotations": [1]}
            registry.collection(registry.resources["", "v1", plural]).put(odd, None)
        await world.apply(flavor(), cluster_queue(), local_queue(), cluster())
        await world.start(join=other.join)
        for number in range(2):
            for place, change in enumerate(absurd_jobs()):
                put(f"{number}-{place}", change)
            await world.submit(job(f"here-{number}", cpu="2", seconds=20))
            await world.job(f"here-{number}", is_done)
            await other.submit(job(f"there-{number}", cpu="1"))
            await other.job(f"there-{number}", lambda found: not is_gated(found))
            await world.end()
            await world.start(join=other.join)  # which lists them
        await state(world, "Active")


async def test_audit_names_and_repairs_differences_in_the_cluster_of_the_object(joined, other):
    joined.controller.auditor.grace = 0.0
    await joined.submit(job("here", cpu="1"))
    await joined.job("here", runs)
    refused = {"match": {"user": "sluice", "verb": "patch", "resource": "jobs"}, "do": "error", "code": 503}
    other.sandbox.faults.install({"rules": [refused]})
    there = await other.submit(job("there", cpu="1"))
    await joined.record("there", "admitted")

    async def differences():
        return await joined.controller.audit(repair=False)

    (found,) = await joined.eventually(differences)
    said = found["problem"], found["cluster"], found["object"], found["uid"]
    assert said == ("NotStarted", "b", "Job team-a/there", there["metadata"]["uid"])
    other.mend()

    async def repaired():
        return not await joined.controller.audit(repair=True)

    await joined.eventually(repaired)
    await other.job("there", runs)
    other.cut()
    await state(joined, "Lost")
    assert await joined.controller.audit(repair=False) == []  # a lost cluster is left out
