"""Dispatch: Jobs that are created in `local` run as copies in the cluster of their flavors."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from job_examples import cluster_queue, flavor, is_done, job, local_queue, runs
from other_clusters import cluster, other_cluster, state
from test_refused_stops import EVENTS, KINDS, denied

from admission.cluster.client import Client
from admission.controller.clusters import Connection
from admission.controller.decisions import committer
from admission.controller.workloads import dispatching
from admission.kinds import all_kinds
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS
from admission.store.audit_log import Author
from admission.store.errors import Conflict

DISPATCH = "sluice.dev/dispatch"
RUNS_IN = "sluice.dev/runs-in"


def dispatched(name, *, managed_by=DISPATCH, **fields):
    """A Job that runs in another cluster."""
    manifest = job(name, **fields)
    return {**manifest, "spec": {**manifest["spec"], "managedBy": managed_by}}


class Clusters:
    """The other clusters of a test, by the name of their Cluster objects."""

    def __init__(self, others):
        self.others = others

    def join(self, cluster):
        return Connection(Client.from_kubeconfig(self.others[cluster.name].kubeconfig), all_kinds(), None)

    def __getattr__(self, name):
        return self.others[name]


@pytest.fixture
async def clusters(tmp_path):
    async with AsyncExitStack() as stack:
        yield Clusters({name: await stack.enter_async_context(other_cluster(tmp_path, name)) for name in ("b", "c")})


def in_clusters(name, *names):
    return {**flavor(name), "spec": {**flavor()["spec"], **({"clusters": list(names)} if names else {})}}


def queue(**quotas):
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for name, cpu in quotas.items()]
    return cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": flavors}], dispatch={})


OBJECTS = (in_clusters("in-b", "b"), in_clusters("in-c", "c"), local_queue())


@pytest.fixture
async def hub(world, clusters):
    """Sluice with a queue of 2 CPUs in b and 2 in c."""
    await world.apply(*OBJECTS, queue(**{"in-b": "2", "in-c": "2"}), cluster("b"), cluster("c"))
    await world.start(join=clusters.join)
    await state(world, "Active", "b")
    await state(world, "Active", "c")
    return world


def is_active(obj):
    """Whether a Job in the hub is unsuspended, and shows the pods of its copy."""
    return not obj["spec"]["suspend"] and bool((obj.get("status") or {}).get("active"))


def names(other):
    return {obj["metadata"]["name"] for obj in other.user.list("jobs")}


async def none_left(world, other):
    async def look():
        return not other.user.list("jobs") and not other.user.list("pods")

    await world.eventually(look)


async def test_job_runs_as_a_copy_where_there_is_room_and_its_status_comes_back(hub, clusters):
    await hub.submit(dispatched("one", cpu="2", seconds=60))
    copy = await clusters.b.job("one", runs)
    assert copy["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    assert "managedBy" not in copy["spec"]
    assert "sluice.dev/queue-name" not in copy["metadata"]["labels"]
    original = await hub.job("one", is_active)
    assert original["spec"]["template"]["spec"].get("nodeSelector") is None

    await hub.submit(dispatched("two", cpu="2", seconds=1_000_000, managed_by="kueue.x-k8s.io/multikueue"))
    await clusters.c.job("two", runs)
    record = await hub.record("two", "admitted")
    assert record.admission.cluster == "c"
    await hub.submit(dispatched("three", cpu="1", seconds=60))
    await hub.submit(dispatched("four", cpu="3"))
    never = await hub.record("four", "pending", reason="ExceedsMaxQuota")
    assert never.message.startswith("In b: Needs 3 CPU")
    # kubectl shows a Job without this condition as Running.
    waits = await hub.job("four", lambda obj: obj.get("status", {}).get("conditions"))
    (suspended,) = waits["status"]["conditions"]
    assert (suspended["type"], suspended["status"]) == ("Suspended", "True")

    done = await hub.job("one", is_done)
    assert done["status"]["succeeded"] == 1
    assert done["status"]["startTime"] == copy["status"]["startTime"]
    assert (await hub.record("one", "finished")).outcome == "Succeeded"
    await clusters.b.job("three", is_done)
    assert (await hub.record("three", "finished")).outcome == "Succeeded"
    assert hub.user.list("pods") == []
    assert names(clusters.b) == {"one", "three"}  # the logs of their pods are there
    await hub.user.delete("jobs", "team-a", "one")
    await hub.user.delete("jobs", "team-a", "three")
    await none_left(hub, clusters.b)


async def test_start_and_end_of_a_copy_are_told_without_waiting_for_a_commit(hub, clusters, monkeypatch):
    monkeypatch.setattr(committer, "BATCH_SIZE", 1)
    monkeypatch.setattr(committer, "INTERVAL", 1e6)  # after the commit of the start there is none any more
    await hub.submit(dispatched("one", cpu="1", seconds=60))
    await hub.job("one", runs)
    await hub.job("one", is_done)
    await hub.record("one", "admitted")


def waits_for_its_copy(cluster):
    """Whether a Job in the hub is suspended, and says in which cluster its copy runs."""
    return lambda obj: obj["spec"]["suspend"] and obj["metadata"].get("annotations", {}).get(RUNS_IN) == cluster


async def test_job_without_managed_by_stays_suspended_and_gets_the_last_status_of_its_copy(hub, clusters):
    await hub.submit(job("one", cpu="2"))
    copy = await clusters.b.job("one", runs)
    assert RUNS_IN not in copy["metadata"]["annotations"]
    await hub.job("one", waits_for_its_copy("b"))
    await hub.end()
    await hub.user.patch("jobs", "team-a", "one", {"spec": {"suspend": False}})
    await hub.start(join=clusters.join)
    await hub.job("one", lambda obj: waits_for_its_copy("b")(obj) and obj["metadata"]["generation"] == 3)
    assert not any(pod["status"].get("phase") == "Running" for pod in hub.user.list("pods"))
    await state(hub, "Active", "b")

    await clusters.b.user.delete("jobs", "team-a", "one", propagation="Background")
    again = await clusters.b.job("one", lambda obj: runs(obj) and obj["metadata"]["uid"] != copy["metadata"]["uid"])
    assert ("CopyDeleted", "Its copy in the cluster b was deleted. It queues again.") in await hub.history("one")
    await hub.order("one", held=True)
    await hub.record("one", "pending", reason="OnHold")
    assert names(clusters.b) == set()
    await hub.job("one", lambda obj: RUNS_IN not in obj["metadata"].get("annotations", {}))
    await hub.order("one", held=False)
    await hub.job("one", waits_for_its_copy("b"))

    await clusters.b.job("one", runs)
    lost = {"match": {"user": "sluice", "verb": "patch", "resource": "jobs/status"}, "do": "error", "code": 503}
    hub.sandbox.faults.install({"rules": [{**lost, "limit": 1}]})
    for pod in clusters.b.user.list("pods"):
        status = {"status": {"phase": "Succeeded"}}
        await clusters.b.user.patch("pods", "team-a", pod["metadata"]["name"], status, subresource="status")
    done = await hub.job("one", is_done)
    copy = await clusters.b.job("one", is_done)
    assert copy["metadata"]["uid"] != again["metadata"]["uid"]
    assert done["spec"]["suspend"]
    assert {key: done["status"][key] for key in ("succeeded", "startTime", "completionTime")} == {
        key: copy["status"][key] for key in ("succeeded", "startTime", "completionTime")
    }
    assert (await hub.record("one", "finished")).outcome == "Succeeded"
    await hub.user.delete("jobs", "team-a", "one", propagation="Background")
    await none_left(hub, clusters.b)


async def test_job_without_managed_by_runs_in_the_hub_first_and_elsewhere_if_that_is_full(hub, clusters):
    await hub.submit(job("one", cpu="3"))
    never = await hub.record("one", "pending", reason="ExceedsMaxQuota")
    assert never.message.startswith("In b: Needs 3 CPU")
    await hub.apply(in_clusters("here", "local"), queue(**{"in-b": "1", "here": "3"}))
    await hub.job("one", runs)
    await hub.submit(job("two", cpu="1"))
    await hub.job("two", waits_for_its_copy("b"))
    assert (await hub.record("one", "admitted")).admission.cluster == ""
    assert (await hub.record("two", "admitted")).admission.cluster == "b"
    at_home = job("three", cpu="1")
    at_home["metadata"]["annotations"] = {"sluice.dev/cluster-affinity": '{"required": {"clusters": ["local"]}}'}
    await hub.submit(at_home)
    await hub.record("three", "pending", reason="WaitingForQuota")
    await hub.user.delete("jobs", "team-a", "one", propagation="Background")
    await hub.job("three", runs)


async def test_preempted_job_leaves_its_cluster_and_runs_elsewhere_later(hub, clusters):
    rules = {"withinClusterQueue": "LowerPriority"}
    high = {"apiVersion": "sluice.dev/v1", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100}
    spec = queue(**{"in-b": "2", "in-c": "2"})["spec"]
    await hub.apply(cluster_queue(**{**spec, "preemption": rules}), high)
    await hub.submit(dispatched("low", cpu="2"))
    first = await clusters.b.job("low", runs)
    await hub.submit(dispatched("other", cpu="2"))
    await clusters.c.job("other", runs)
    urgent = dispatched("urgent", cpu="2", seconds=60)
    urgent["metadata"]["labels"]["sluice.dev/priority-class"] = "high"
    await hub.submit(urgent)
    await hub.job("urgent", is_done)
    assert {each.workload.name for each in [await hub.record("urgent", "finished")]} == {"urgent"}
    again = await clusters.b.job("low", runs)  # where there is room again
    gone = "b" if again["metadata"]["uid"] != first["metadata"]["uid"] else "c"
    reasons = [reason for reason, _ in await hub.history("low" if gone == "b" else "other")]
    assert "Preempted" in reasons
    await hub.job("low", is_active)


async def test_deleted_job_ends_its_copy_before_its_quota_is_free(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.b.job("one", runs)
    await hub.user.delete("jobs", "team-a", "one", propagation="Background")
    assert (await hub.record("one", "finished")).outcome == "Deleted"
    await none_left(hub, clusters.b)


@pytest.mark.parametrize(
    "moment", ["before the object is unsuspended", "while it runs", "after its object was deleted"]
)
async def test_end_of_sluice_loses_and_doubles_no_copy(hub, clusters, moment):
    if moment == "before the object is unsuspended":
        await hub.cut_off()
        await hub.submit(dispatched("one", cpu="2", seconds=600))
        copy = await clusters.b.job("one", runs)
        await hub.end()
        await hub.reconnect()
    else:
        await hub.submit(dispatched("one", cpu="2", seconds=600))
        copy = await clusters.b.job("one", runs)
        await hub.end()
    if moment == "after its object was deleted":
        await hub.user.delete("jobs", "team-a", "one", propagation="Background")
    await hub.start(join=clusters.join)
    if moment == "after its object was deleted":
        assert (await hub.record("one", "finished")).outcome == "Deleted"
        await none_left(hub, clusters.b)
        return
    await hub.job("one", is_active)
    assert (await clusters.b.job("one", runs))["metadata"]["uid"] == copy["metadata"]["uid"]
    assert not clusters.c.user.list("jobs")


async def test_copy_that_others_delete_is_made_again_and_its_end_comes_back(hub, clusters):
    """Its Job is not suspended for long enough that its former start time is taken away, which is then immutable."""
    await hub.submit(dispatched("one", cpu="2", seconds=300))
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await clusters.b.user.delete("jobs", "team-a", "one", propagation="Background")
    again = await clusters.b.job("one", lambda obj: runs(obj) and obj["metadata"]["uid"] != copy["metadata"]["uid"])
    assert again["spec"]["suspend"] is False
    assert ("CopyDeleted", "Its copy in the cluster b was deleted. It queues again.") in await hub.history("one")
    await hub.job("one", is_done)
    assert (await hub.record("one", "finished")).outcome == "Succeeded"


@pytest.mark.parametrize("way", ["Orphan", "Background"])
async def test_pods_of_a_copy_that_others_delete_hold_its_quota_until_they_end(hub, clusters, way):
    manifest = dispatched("one", cpu="2", seconds=1_000_000)
    manifest["spec"]["template"]["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
    await hub.submit(manifest)
    await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await hub.submit(dispatched("two", cpu="2", seconds=1_000_000))
    await clusters.c.job("two", runs)
    await clusters.b.user.delete("jobs", "team-a", "one", propagation=way)
    await hub.record("one", "evicting", reason="CopyDeleted")
    await hub.submit(dispatched("three", cpu="2"))
    await hub.record("three", "pending", reason="WaitingForQuota")
    (pod,) = clusters.b.user.list("pods")
    if way == "Orphan":

        async def is_named():
            message = (await hub.store.workloads.get("team-a", "one")).message
            return f"kubectl delete pod -n team-a {pod['metadata']['name']}` in the cluster b ends it now" in message

        await hub.eventually(is_named)
    await hub.end()
    await hub.start(join=clusters.join)
    await hub.submit(dispatched("four", cpu="2"))
    await hub.record("four", "pending", reason="WaitingForQuota")
    await hub.holds(2000, "one")
    if way == "Background":
        await hub.user.delete("jobs", "team-a", "one", propagation="Background")
        await hub.submit(dispatched("five", cpu="2"))
        await hub.record("five", "pending", reason="WaitingForQuota")
        await hub.holds(2000, "one")
    await clusters.b.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
    await clusters.b.job("one" if way == "Orphan" else "three", runs)


async def test_copy_that_ends_before_its_deletion_arrives_is_the_end_of_its_job(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    late = {"match": {"user": "sluice", "verb": "delete", "resource": "jobs"}, "do": "delay", "seconds": 600}
    clusters.b.sandbox.faults.install({"rules": [late]})
    await hub.order("one", held=True)
    await hub.record("one", "evicting")
    for pod in clusters.b.user.list("pods"):
        status = {"status": {"phase": "Succeeded"}}
        await clusters.b.user.patch("pods", "team-a", pod["metadata"]["name"], status, subresource="status")
    await clusters.b.job("one", is_done)
    clusters.b.sandbox.faults.remove()
    assert (await hub.job("one", is_done))["status"]["succeeded"] == 1
    assert (await hub.record("one", "finished")).outcome == "Succeeded"
    assert (await clusters.b.job("one", is_done))["metadata"]["uid"] == copy["metadata"]["uid"]


async def test_status_that_could_not_be_written_is_written_again(hub, clusters):
    await hub.submit(dispatched("one", cpu="2", seconds=60))
    await hub.job("one", is_active)
    failing = {"match": {"resource": "jobs/status"}, "do": "error", "code": 500, "limit": 2}
    hub.sandbox.faults.install({"rules": [failing]})
    await hub.job("one", is_done)


async def test_copy_that_others_give_more_pods_is_ended_and_made_again(hub, clusters):
    manifest = dispatched("one", cpu="1")
    manifest["spec"]["completions"] = 9
    await hub.submit(manifest)
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await clusters.b.user.patch("jobs", "team-a", "one", {"spec": {"parallelism": 3}})
    again = await clusters.b.job("one", lambda obj: runs(obj) and obj["metadata"]["uid"] != copy["metadata"]["uid"])
    assert again["spec"]["parallelism"] == 1
    assert [reason for reason, _ in await hub.history("one")].count("OutOfSync") == 1
    assert (await hub.record("one", "admitted")).admission.cluster == "b"
    assert hub.user.get("jobs", "team-a", "one")["spec"]["parallelism"] == 1


@pytest.mark.parametrize("is_down", [False, True], ids=["seen", "while no Sluice looks"])
async def test_copy_from_which_others_take_its_marks_gets_them_back(hub, clusters, is_down):
    jobs = ((clusters.b, job("one", cpu="2")), (clusters.c, dispatched("two", cpu="2")))
    marked = []
    for at, manifest in jobs:
        await hub.submit(manifest)
        marked.append(await at.job(manifest["metadata"]["name"], runs))
    for name in ("one", "two"):
        await hub.job(name, lambda obj: "sluice.dev/copy" in obj["metadata"].get("annotations", ()))
    if is_down:
        await hub.end()
    await clusters.b.user.patch("jobs", "team-a", "one", {"metadata": {"labels": {"sluice.dev/origin": None}}})
    signature = {"annotations": {"sluice.dev/origin-admission": "1.forged"}}
    await clusters.c.user.patch("jobs", "team-a", "two", {"metadata": signature})
    if is_down:
        await hub.start(join=clusters.join)
    for (at, manifest), before in zip(jobs, marked, strict=True):
        name = manifest["metadata"]["name"]
        labels, annotations = before["metadata"]["labels"], before["metadata"]["annotations"]
        keys = (labels["sluice.dev/origin"], annotations["sluice.dev/origin-admission"])

        def is_as_before(obj, keys=keys):
            now = obj["metadata"]
            return keys == (now["labels"].get("sluice.dev/origin"), now["annotations"]["sluice.dev/origin-admission"])

        assert (await at.job(name, is_as_before))["metadata"]["uid"] == before["metadata"]["uid"]
        assert [reason for reason, _ in await hub.history(name)] == ["Queued", "Admitted"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey("sluice.dev/origin")}', "takes the label"),
        ('{op: "add", path: "/spec/parallelism", value: 9}', "gives the copy more pods"),
    ],
)
async def test_cluster_that_alters_a_copy_at_its_creation_is_passed_over(hub, clusters, change, why):
    admin, of = clusters.b.user, {"metadata": {"name": "alter"}}
    jobs = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[JSONPatch{change}]"}}
    policy = {"matchConstraints": {"resourceRules": [jobs]}, "reinvocationPolicy": "Never", "mutations": [mutation]}
    await admin.create("mutatingadmissionpolicies", "", {**of, "spec": policy})
    await admin.create("mutatingadmissionpolicybindings", "", {**of, "spec": {"policyName": "alter"}})
    manifest = dispatched("one", cpu="1")
    manifest["spec"]["completions"] = 9
    await hub.submit(manifest)
    await clusters.c.job("one", runs)
    (refusal,) = [text for reason, text in await hub.history("one") if reason == "ClusterRefused"]
    assert why in refusal
    await none_left(hub, clusters.b)


async def test_pods_of_a_copy_that_cannot_run_are_reported_in_the_hub(hub, clusters):
    manifest = dispatched("one", cpu="2")
    manifest["spec"]["template"]["metadata"]["annotations"] |= {"sandbox.sluice.dev/start": "unscheduled"}
    await hub.submit(manifest)
    await clusters.b.job("one", runs)
    await hub.job("one", lambda obj: not obj["spec"]["suspend"])
    hub.pass_time(20)
    told = await hub.record("one", "admitted", reason="PodsUnscheduled")
    assert told.message.startswith("Its pod one-")


async def test_warning_of_a_pod_of_a_copy_that_no_status_shows_is_reported_in_the_hub(hub, clusters):
    manifest = dispatched("one", cpu="2")
    manifest["spec"]["template"]["metadata"]["annotations"] |= {"sandbox.sluice.dev/start": "unpullable"}
    await hub.submit(manifest)
    await clusters.b.job("one", runs)
    await hub.job("one", lambda obj: not obj["spec"]["suspend"])
    user = clusters.b.user

    async def waits():
        return next(filter(lambda pod: (pod.get("status") or {}).get("containerStatuses"), user.list("pods")), None)

    pod = await hub.eventually(waits)
    containers = [{**each, "state": {"waiting": {"reason": "ContainerCreating"}}}
                  for each in pod["status"]["containerStatuses"]]  # fmt: skip
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await user.patch("pods", "team-a", name, {"status": {"containerStatuses": containers}}, subresource="status")
    event = {
        "metadata": {"name": f"{name}.1"},
        "involvedObject": {"kind": "Pod", "namespace": "team-a", "name": name, "uid": uid},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'configmap "settings" not found',
    }
    await user.create("events", "team-a", event)
    hub.pass_time(20)
    told = f'Kubernetes warns of the Pod {name}: FailedMount: configmap "settings" not found'

    async def is_told():
        return (await hub.record("one", "admitted")).message == told

    await hub.eventually(is_told)


async def test_fewer_pods_and_another_priority_reach_what_runs(hub, clusters):
    high = {"apiVersion": "sluice.dev/v1", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100}
    await hub.apply(high)
    manifest = dispatched("one", cpu="500m", pods=4)
    manifest["spec"]["completions"] = 9
    await hub.submit(manifest)
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await hub.user.patch("jobs", "team-a", "one", {"spec": {"parallelism": 1}})
    fewer = await clusters.b.job("one", lambda obj: obj["spec"]["parallelism"] == 1)
    assert fewer["metadata"]["uid"] == copy["metadata"]["uid"]
    label = {"metadata": {"labels": {"sluice.dev/priority-class": "high"}}}
    await hub.user.patch("jobs", "team-a", "one", label)

    async def follows():
        record = await hub.record("one", "admitted")
        return record.workload.priority == 100 and record.admission.pod_sets[0].count == 1

    await hub.eventually(follows)


async def test_job_that_its_user_suspends_stops_and_begins_anew(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await hub.user.patch("jobs", "team-a", "one", {"spec": {"suspend": True}})
    again = await clusters.b.job("one", lambda obj: runs(obj) and obj["metadata"]["uid"] != copy["metadata"]["uid"])
    assert again["spec"]["suspend"] is False
    assert "It was suspended by others" in dict(await hub.history("one"))["OutOfSync"]


@pytest.mark.parametrize("managed_by", [None, DISPATCH])
async def test_more_pods_get_quota_in_the_cluster_of_the_copy_or_wait_for_it(hub, clusters, managed_by):
    """They wait although the other cluster has room for them, also after a restart of Sluice."""
    manifest = job("one", cpu="500m", seconds=6000)
    manifest["spec"] |= {"completions": 9, **({"managedBy": managed_by} if managed_by else {})}
    await hub.submit(manifest)
    await clusters.b.job("one", runs)
    await hub.submit(dispatched("other", cpu="500m", seconds=6000))
    copy = await clusters.b.job("one", runs)
    await clusters.b.job("other", runs)
    await hub.job("one", is_active if managed_by else lambda obj: RUNS_IN in (obj["metadata"].get("annotations") or {}))

    async def grow(to):
        await hub.user.patch("jobs", "team-a", "one", {"spec": {"parallelism": to}})

    async def holds(count, told=""):
        async def look():
            record = await hub.record("one", "admitted")
            return record.admission.pod_sets[0].count == count and told in record.message

        await hub.eventually(look)

    await grow(3)
    await holds(3)
    larger = await clusters.b.job("one", lambda obj: obj["status"].get("ready") == 3)
    assert larger["metadata"]["uid"] == copy["metadata"]["uid"]
    await grow(4)
    await holds(3, "It asks for 1 more pod: as soon as there is quota, without a restart.")
    await hub.end()
    await hub.start(join=clusters.join)
    await holds(3, "It asks for 1 more pod: as soon as there is quota, without a restart.")
    await hub.apply(cluster("b", state="Draining"))
    await holds(3, "It asks for 1 more pod, and gets none as it is: Not in cluster b: it is draining.")
    await hub.apply(cluster("b"))
    await holds(3, "It asks for 1 more pod: as soon as there is quota, without a restart.")
    await hub.user.delete("jobs", "team-a", "other", propagation="Background")
    await holds(4)
    larger = await clusters.b.job("one", lambda obj: obj["status"].get("ready") == 4)
    assert larger["metadata"]["uid"] == copy["metadata"]["uid"]
    assert not clusters.c.user.list("jobs")
    reasons = [reason for reason, _ in await hub.history("one")]
    assert (reasons.count("Resized"), "OutOfSync" in reasons) == (2, False)


@pytest.mark.parametrize("reason", ["Forbidden", "Invalid"])
async def test_user_is_told_that_the_cluster_of_the_copy_refuses_more_pods(hub, clusters, reason):
    grows = "object.spec.parallelism > oldObject.spec.parallelism"
    for kind, obj in zip(KINDS, denied(grows, reason), strict=True):
        await clusters.b.user.create(kind, "", obj)
    manifest = dispatched("one", cpu="500m", seconds=6000)
    manifest["spec"]["completions"] = 9
    await hub.submit(manifest)
    await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await hub.user.patch("jobs", "team-a", "one", {"spec": {"parallelism": 2}})
    told = "The cluster b does not accept the changed number of pods of its copy: "

    async def is_told():
        found = (await hub.record("one", "admitted")).message
        return found if found.startswith(told) else None

    message = await hub.eventually(is_told)
    assert message.endswith("not on Fridays. It runs on as it is; the next change is tried again.")

    async def has_event():
        events = (await hub.client.get(EVENTS))["items"]
        return any(each["note"] == message and each["regarding"]["name"] == "one" for each in events)

    await hub.eventually(has_event)
    # That stays so while its pods come and go, and it runs on with those that it has.
    (name,) = [obj["metadata"]["name"] for obj in clusters.b.user.list("pods")]
    await clusters.b.user.delete("pods", "team-a", name)
    await clusters.b.job("one", lambda obj: obj["status"].get("failed") or obj["status"].get("ready"))
    await hub.submit(dispatched("later", cpu="500m"))
    await clusters.b.job("later", runs)
    assert (await hub.record("one", "admitted")).message == message
    assert clusters.b.user.get("jobs", "team-a", "one")["spec"]["parallelism"] == 1
    await hub.user.patch("jobs", "team-a", "one", {"spec": {"parallelism": 1}})

    async def is_as_before():
        record = await hub.record("one", "admitted")
        return record.admission.pod_sets[0].count == 1 and told not in record.message

    await hub.eventually(is_as_before)


async def test_cluster_that_refuses_a_copy_is_passed_over(hub, clusters):
    await clusters.b.user.delete("namespaces", "", "team-a")
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.c.job("one", runs)
    refusals = [message for reason, message in await hub.history("one") if reason == "ClusterRefused"]
    missing = "The cluster b lacks what its pods need: namespace team-a. Create it there."
    assert refusals == [missing]


async def test_cluster_whose_limit_ranges_let_pods_request_more_is_passed_over(hub, clusters):
    limits = [{"type": "Container", "defaultRequest": {"cpu": "1500m", "memory": "1Gi"}, "max": {"cpu": "1500m"}}]
    metadata = {"name": "limits", "namespace": "team-a"}
    await clusters.b.user.create("limitranges", "team-a", {"metadata": metadata, "spec": {"limits": limits}})
    nothing, large = dispatched("nothing"), dispatched("large", cpu="2")
    nothing["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    for manifest in (nothing, large):
        await hub.submit(manifest)
        await clusters.c.job(manifest["metadata"]["name"], runs)
    await hub.submit(dispatched("small", cpu="1"))
    await clusters.b.job("small", runs)
    refused = [
        [why for reason, why in await hub.history(name) if reason == "ClusterRefused"] for name in ("nothing", "large")
    ]
    assert [len(each) for each in refused] == [1, 1]
    assert refused[0][0].startswith("In the cluster b each of its pods would request 1.5 CPU, which is more than")
    assert "the cpu request of 2 is more than the limit of 1500m that LimitRange" in refused[1][0]
    assert clusters.b.sandbox.requests["POST", "jobs", "sluice"] == 1


def needing(name, *volumes, **pod):
    """A Job that needs other objects."""
    manifest = dispatched(name, cpu="500m")
    manifest["spec"]["template"]["spec"] |= {"volumes": [{"name": f"v{i}", **each} for i, each in enumerate(volumes)]}
    manifest["spec"]["template"]["spec"] |= pod
    return manifest


async def test_cluster_that_lacks_what_the_pods_need_is_passed_over(hub, clusters):
    volumes = (
        {"configMap": {"name": "settings"}},
        {"configMap": {"name": "others", "optional": True}},
        {"projected": {"sources": [{"secret": {"name": "token"}}]}},
        {"persistentVolumeClaim": {"claimName": "data"}},
    )
    both = {"metadata": {"name": "settings"}}
    for other in (clusters.b, clusters.c):
        await other.user.create("configmaps", "team-a", both)
        await other.user.create("serviceaccounts", "team-a", {"metadata": {"name": "trainer"}})
    await clusters.c.user.create("secrets", "team-a", {"metadata": {"name": "token"}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await clusters.c.user.create("persistentvolumeclaims", "team-a", {"metadata": {"name": "data"}, "spec": claim})
    await hub.submit(needing("one", *volumes, serviceAccountName="trainer"))
    await clusters.c.job("one", runs)
    refusals = [message for reason, message in await hub.history("one") if reason == "ClusterRefused"]
    lacks = "The cluster b lacks what its pods need: Secret token, PersistentVolumeClaim data."
    assert refusals == [f"{lacks} Create it in the namespace team-a there."]

    await hub.submit(needing("two", *volumes, serviceAccountName="trainer"))
    await clusters.c.job("two", runs)
    assert clusters.c.sandbox.requests["GET", "secrets", "sluice"] == 1  # it is known for some time
    assert clusters.c.sandbox.requests["GET", "configmaps", "sluice"] == 1

    forbidden = {"match": {"verb": "get", "resource": "secrets"}, "do": "error", "code": 403}
    clusters.c.sandbox.faults.install({"rules": [forbidden]})
    await hub.submit(needing("three", {"secret": {"secretName": "unseen"}}, volumes[3]))
    await clusters.c.job("three", runs)  # what Sluice may not read may be there


async def test_cluster_that_fails_to_create_or_delete_a_copy_is_told_of_and_passed_over(hub, clusters, monkeypatch):
    failing = {"match": {"user": "sluice", "verb": "create", "resource": "jobs"}, "do": "error", "code": 500}
    clusters.b.sandbox.faults.install({"rules": [failing]})
    await hub.submit(dispatched("one", cpu="2"))
    told = await hub.record("one", "admitted", reason="PodsUnscheduled")
    assert told.message.startswith("The cluster b fails to create its copy, and is asked again: ")
    hub.pass_time(100)
    await clusters.c.job("one", runs)
    assert "ClusterRefused" in [reason for reason, _ in await hub.history("one")]
    clusters.b.sandbox.faults.remove()
    assert not names(clusters.b)

    kept = {"match": {"user": "sluice", "verb": "delete", "resource": "jobs"}, "do": "error", "code": 403}
    clusters.c.sandbox.faults.install({"rules": [kept]})
    monkeypatch.setattr(dispatching, "_PAUSE", 0.01)

    async def is_told():
        record = await hub.record("one", "evicting")
        return record.message.startswith("The cluster c does not delete its copy, and is asked again: ")

    await hub.order("one", held=True)
    await hub.eventually(is_told)
    await hub.submit(dispatched("two", cpu="1"))
    await clusters.b.job("two", runs)
    await hub.user.delete("jobs", "team-a", "one", propagation="Background")
    await hub.submit(dispatched("three", cpu="1"))
    await clusters.b.job("three", runs)
    await hub.eventually(is_told)
    assert clusters.c.sandbox.requests["DELETE", "jobs", "sluice"] < 30  # after longer and longer pauses
    clusters.c.sandbox.faults.remove()
    await hub.record("one", "finished")


async def test_nothing_runs_as_a_copy_in_the_namespace_of_sluice_there(world, clusters):
    account = "system:serviceaccount:team-a:sluice"
    clusters.b.sandbox.add_user(User(account, groups=(MASTERS, AUTHENTICATED)))
    clusters.b.sandbox.write_kubeconfig(Path(clusters.b.kubeconfig), account)
    await world.apply(*OBJECTS, queue(**{"in-b": "2", "in-c": "2"}), cluster("b"), cluster("c"))
    await world.start(join=clusters.join)
    await state(world, "Active", "b")
    await state(world, "Active", "c")
    await world.submit(dispatched("one"))
    await clusters.c.job("one", runs)
    assert any("Sluice itself has its account in this namespace" in text for _, text in await world.history("one"))
    assert not names(clusters.b)


async def test_name_that_no_object_can_have_reads_nothing(hub, clusters):
    await clusters.b.user.create("secrets", "team-b", {"metadata": {"name": "theirs"}})
    path = "../../team-b/secrets/theirs"
    await hub.submit(needing("one", {"secret": {"secretName": path}}, {"secret": {"secretName": "theirs"}}))
    waiting = await hub.record("one", "pending", reason="ClusterUnavailable")
    assert waiting.message.count(path) == 2
    for other in (clusters.b, clusters.c):
        assert other.user.list("jobs") == []


def created(owner, kind, name):
    """An object as the user of a cluster creates it, or finds it."""
    return owner.user.get(f"{kind.lower()}s", "team-a", name)


VOLUMES = ({"configMap": {"name": "settings"}}, {"secret": {"secretName": "token"}})


async def test_what_the_queue_allows_is_copied_along_and_goes_with_the_copies(hub, clusters):
    await hub.apply(ordered(copyAlong={"configMaps": ["set*"], "secrets": ["token"]}))
    settings = {"metadata": {"name": "settings", "labels": {"meaning": "here"}}, "data": {"a": "1", "b": "2"}}
    await hub.user.create("configmaps", "team-a", settings)
    token = {"metadata": {"name": "token"}, "type": "example.com/x", "data": {"t": "czNjcmV0"}, "immutable": True}
    await hub.user.create("secrets", "team-a", token)
    await hub.submit(needing("one", *VOLUMES))
    one = await clusters.b.job("one", runs)
    copied, secret = created(clusters.b, "ConfigMap", "settings"), created(clusters.b, "Secret", "token")
    assert copied["data"] == {"a": "1", "b": "2"}
    assert set(copied["metadata"]["labels"]) == {"sluice.dev/origin"}
    assert [each["uid"] for each in copied["metadata"]["ownerReferences"]] == [one["metadata"]["uid"]]
    assert (secret["type"], secret["data"], secret.get("immutable")) == ("example.com/x", {"t": "czNjcmV0"}, None)
    assert clusters.b.sandbox.requests["PATCH", "jobs", "sluice"] == 1

    await hub.user.patch("configmaps", "team-a", "settings", {"data": {"a": "3", "b": None}})
    assert created(clusters.b, "ConfigMap", "settings")["data"] == {"a": "1", "b": "2"}  # as the running pods found it
    await hub.submit(needing("two", *VOLUMES))
    two = await clusters.b.job("two", runs)
    shared = created(clusters.b, "ConfigMap", "settings")
    assert shared["data"] == {"a": "3"}
    owners = [each["uid"] for each in shared["metadata"]["ownerReferences"]]
    assert owners == [one["metadata"]["uid"], two["metadata"]["uid"]]

    for name in ("one", "two"):
        await hub.user.delete("jobs", "team-a", name, propagation="Background")
    await none_left(hub, clusters.b)

    async def are_gone():
        found = [*clusters.b.user.list("configmaps"), *clusters.b.user.list("secrets")]
        return not {each["metadata"]["name"] for each in found} & {"settings", "token"}

    await hub.eventually(are_gone)


async def test_what_others_have_there_is_neither_overwritten_nor_owned(hub, clusters):
    await hub.apply(ordered(copyAlong={"configMaps": ["*"], "secrets": ["*"]}))
    for name, owner in (("hub", hub), ("theirs", clusters.b)):
        await owner.user.create("configmaps", "team-a", {"metadata": {"name": "settings"}, "data": {"of": name}})
        await owner.user.create("secrets", "team-a", {"metadata": {"name": "token"}, "data": {"of": "eA=="}})
    await hub.submit(needing("one", *VOLUMES))
    await clusters.b.job("one", runs)
    theirs = created(clusters.b, "ConfigMap", "settings")
    assert theirs["data"] == {"of": "theirs"}
    assert "ownerReferences" not in theirs["metadata"]
    assert "ownerReferences" not in created(clusters.b, "Secret", "token")["metadata"]


async def test_what_cannot_be_copied_along_is_named_and_no_pod_starts(hub, clusters):
    await hub.apply(ordered(copyAlong={"secrets": ["*"]}))
    account = {"name": "sa", "annotations": {"kubernetes.io/service-account.name": "default"}}
    await hub.user.create("secrets", "team-a", {"metadata": account, "type": "kubernetes.io/service-account-token"})
    await hub.submit(needing("one", {"secret": {"secretName": "sa"}}))
    waiting = await hub.record("one", "pending", reason="ClusterUnavailable")
    assert "Secret sa cannot be copied along: it is a credential of the hub." in waiting.message
    await hub.submit(needing("two", {"secret": {"secretName": "nowhere"}}))
    waiting = await hub.record("two", "pending", reason="ClusterUnavailable")
    assert "Secret nowhere cannot be copied along: it exists neither there nor in the hub." in waiting.message
    for other in (clusters.b, clusters.c):
        await none_left(hub, other)
        assert "sa" not in {each["metadata"]["name"] for each in other.user.list("secrets")}
        assert other.sandbox.requests["PATCH", "jobs", "sluice"] == 0


async def test_users_of_the_other_cluster_get_nothing_copied_by_what_they_put_in_place_of_a_copy(hub, clusters):
    await hub.apply(ordered(copyAlong={"configMaps": ["*"], "secrets": ["*"]}))
    await hub.user.create("configmaps", "team-a", {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    await hub.user.create("secrets", "team-a", {"metadata": {"name": "hidden"}, "data": {"a": "eA=="}})
    failing = {"match": {"verb": "create", "resource": "configmaps"}, "do": "error", "code": 500}
    clusters.b.sandbox.faults.install({"rules": [failing]})
    await hub.submit(needing("one", VOLUMES[0]))
    copy = await clusters.b.job("one", lambda obj: obj["spec"]["suspend"])
    theirs = needing("one", *VOLUMES[:1], {"secret": {"secretName": "hidden"}})
    del theirs["spec"]["managedBy"]
    theirs["metadata"] |= {key: copy["metadata"][key] for key in ("labels", "annotations")}
    await clusters.b.user.delete("jobs", "team-a", "one", propagation="Background")
    await clusters.b.submit(theirs)
    clusters.b.mend()
    await clusters.b.job("one", runs)
    assert "hidden" not in {each["metadata"]["name"] for each in clusters.b.user.list("secrets")}


async def test_end_of_sluice_before_all_is_copied_along_starts_no_pod_without_it(hub, clusters):
    await hub.apply(ordered(copyAlong={"configMaps": ["settings"]}))
    await hub.user.create("configmaps", "team-a", {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    failing = {"match": {"verb": "create", "resource": "configmaps"}, "do": "error", "code": 500}
    clusters.b.sandbox.faults.install({"rules": [failing]})
    await hub.submit(needing("one", VOLUMES[0]))
    copy = await clusters.b.job("one", lambda obj: obj["spec"]["suspend"])
    await hub.end()
    clusters.b.mend()
    await hub.start(join=clusters.join)
    again = await clusters.b.job("one", runs)
    assert again["metadata"]["uid"] == copy["metadata"]["uid"]
    assert created(clusters.b, "ConfigMap", "settings")["data"] == {"a": "1"}


async def test_object_of_the_same_name_is_left_alone(hub, clusters):
    await clusters.b.submit(job("one", queue=None, suspend=False))
    theirs = await clusters.b.job("one", runs)
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.c.job("one", runs)
    assert (await clusters.b.job("one", runs))["metadata"]["uid"] == theirs["metadata"]["uid"]
    refusals = [message for reason, message in await hub.history("one") if reason == "ClusterRefused"]
    assert refusals == ["The cluster b has another Job of its name, which Sluice has not created there."]


async def test_label_of_origin_that_others_write_means_nothing(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    copy = await clusters.b.job("one", runs)
    forged = job("forged", queue=None, suspend=False)
    forged["metadata"] |= {key: copy["metadata"][key] for key in ("labels", "annotations")}
    await clusters.b.submit(forged)
    await clusters.b.job("forged", runs)
    await clusters.b.user.patch("jobs", "team-a", "one", {"metadata": {"labels": {"sluice.dev/origin": None}}})
    await hub.user.delete("jobs", "team-a", "one", propagation="Background")
    await hub.record("one", "finished")

    async def look():
        return names(clusters.b) == {"forged"}

    await hub.eventually(look)


@pytest.mark.parametrize("is_down", [False, True], ids=["", "while Sluice is down"])
async def test_object_that_others_put_in_place_of_a_copy_is_not_taken_for_it(hub, clusters, is_down):
    await hub.submit(dispatched("one", cpu="2", seconds=900))
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    forged = job("one", queue=None, suspend=False)
    forged["metadata"] |= {key: copy["metadata"][key] for key in ("labels", "annotations")}
    if is_down:
        await hub.end()
    await clusters.b.user.delete("jobs", "team-a", "one", propagation="Background")
    await clusters.b.submit(forged)
    if is_down:
        await hub.start(join=clusters.join)
    await clusters.c.job("one", runs)
    assert (await hub.record("one", "admitted")).admission.cluster == "c"
    told = await hub.history("one")
    assert ("CopyDeleted", "Its copy in the cluster b was deleted. It queues again.") in told
    refused = "ClusterRefused", "The cluster b has another Job of its name, which Sluice has not created there."
    assert is_down or refused in told  # after a restart b may not be connected yet when c is


async def test_cluster_is_not_removed_while_copies_run_there(hub, clusters):
    await hub.apply(flavor(), queue(default="2"), *(in_clusters(name) for name in ("in-b", "in-c")))
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.b.job("one", runs)
    with pytest.raises(Conflict, match='Cluster "b" is in use by workload team-a/one'):
        await hub.leading.queues.delete("Cluster", "b", author=Author("test"))


async def test_job_that_can_be_dispatched_nowhere_says_why(hub, clusters):
    await hub.apply(cluster_queue(name="other"), local_queue(name="at-home", cluster_queue="other"))
    await hub.submit(dispatched("one", queue="at-home"))
    waiting = await hub.record("one", "pending", reason="Misconfigured")
    assert "does not dispatch" in waiting.message
    await clusters.b.submit(dispatched("two"))
    waiting = await hub.record("two", "pending", reason="Misconfigured")
    assert "only those in the cluster local do" in waiting.message
    for name in ("b", "c"):
        await hub.apply(cluster(name, state="Draining"))
        await state(hub, "Draining", name)
    await hub.submit(dispatched("three"))
    await hub.record("three", "pending", reason="ClusterUnavailable")
    await hub.apply(cluster("c"))
    await clusters.c.job("three", runs)


async def test_lost_cluster_is_given_up_and_what_it_still_runs_is_stopped_when_it_is_back(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.b.job("one", runs)
    clusters.b.cut()
    await state(hub, "Lost", "b")
    clusters.b.mend()
    await state(hub, "Active", "b")
    hub.pass_time(5000)  # after a loss that does not count for the next one
    await hub.submit(dispatched("short", cpu="2", seconds=600))
    clusters.b.cut()
    await state(hub, "Lost", "b")
    hub.clock.step(5000)  # which is no time for which it is lost
    for wanted in ("Draining", "Active"):  # clusters are looked at once a second
        await hub.apply(cluster("c", state=wanted))
        await state(hub, wanted, "c")
    assert (await hub.record("one", "admitted")).admission.cluster == "b"
    hub.clock.step(-9000)
    hub.pass_time(1000)
    await hub.job("short", is_done)
    await clusters.c.job("one", runs)
    assert "ClusterLost" in [reason for reason, _ in await hub.history("one")]
    clusters.b.mend()
    await state(hub, "Active", "b")
    await none_left(hub, clusters.b)
    assert (await hub.record("one", "admitted")).admission.cluster == "c"


@pytest.mark.costly
async def test_cluster_is_given_up_by_a_new_leader_only_if_it_does_not_answer_after_the_timeout(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.b.job("one", runs)
    await hub.job("one", is_active)

    async def take_over_without_it():
        await hub.end()
        clusters.b.cut()
        await hub.start(join=clusters.join)
        await hub.apply(cluster("b"))

        async def cannot_be_used():
            return "cannot be used" in (await state(hub, "Lost", "b")).message

        await hub.eventually(cannot_be_used)

    await take_over_without_it()
    hub.pass_time(1000)
    unlisted = {"match": {"user": "sluice", "verb": "list"}, "do": "error", "code": 503}
    clusters.b.sandbox.faults.install({"rules": [unlisted]})

    async def answers():
        return clusters.b.sandbox.faults.describe()["rules"][0]["matched"] > 0

    await hub.eventually(answers)
    clusters.b.mend()
    await state(hub, "Active", "b")
    await hub.job("one", is_active)
    assert "ClusterLost" not in [reason for reason, _ in await hub.history("one")]

    await hub.apply(cluster("b", state="Disabled"))
    await state(hub, "Disabled", "b")
    await take_over_without_it()
    hub.pass_time(1000)
    await clusters.c.job("one", runs)
    assert "ClusterLost" in [reason for reason, _ in await hub.history("one")]


async def test_nothing_is_started_in_a_cluster_that_is_back_before_the_former_copies_are_stopped(hub, clusters):
    await hub.submit(dispatched("moved", cpu="1"))
    await clusters.b.job("moved", runs)
    jobs = {"user": "sluice", "resource": "jobs"}
    clusters.b.sandbox.faults.install({"rules": [{"match": jobs | {"verb": "patch"}, "do": "error", "code": 500}]})
    await clusters.b.submit(job("own", cpu="1"))
    await hub.record("own", "admitted")
    clusters.b.cut()
    await state(hub, "Lost", "b")
    hub.pass_time(1000)
    await clusters.c.job("moved", runs)
    late = {"match": jobs | {"verb": "delete"}, "do": "delay", "seconds": 600}
    looks = {"match": jobs | {"verb": "get", "name": "own"}, "do": "delay", "seconds": 0}
    clusters.b.sandbox.faults.install({"rules": [late, looks]})

    async def was_looked_at_twice():
        return clusters.b.sandbox.faults.describe()["rules"][1]["matched"] >= 2

    await hub.eventually(was_looked_at_twice)
    assert clusters.b.user.get("jobs", "team-a", "own")["spec"]["suspend"] is True
    await hub.submit(requiring("waits", '{"required": {"clusters": ["b"]}}', cpu="1"))
    back = "is back, and 1 workload that was queued again meanwhile still runs there and was not stopped yet"

    async def says_that_it_is_back():
        known = (await hub.store.joined_clusters.load())["b"]
        return known.message == back and f"cluster b: it {back}" in (await hub.record("waits", "pending")).message

    await hub.eventually(says_that_it_is_back)
    await hub.user.delete("jobs", "team-a", "waits")
    clusters.b.sandbox.faults.remove()
    await clusters.b.job("own", runs)
    assert names(clusters.b) == {"own"}


async def test_cluster_that_is_reached_otherwise_while_a_copy_is_created_has_one_copy(hub, clusters):
    created = {"match": {"user": "sluice", "verb": "create", "resource": "jobs"}, "when": "after"}
    clusters.b.sandbox.faults.install({"rules": [{**created, "do": "delay", "seconds": 600}]})
    await hub.submit(dispatched("one", cpu="1"))
    copy = await clusters.b.job("one", lambda _: True)
    uid = clusters.b.user.get("namespaces", "", "kube-system")["metadata"]["uid"]
    await hub.apply(cluster("b", uid=uid))
    await hub.job("one", is_active)
    clusters.b.sandbox.faults.remove()
    await hub.user.delete("jobs", "team-a", "one")
    await none_left(hub, clusters.b)
    assert (await hub.record("one", "finished")).outcome == "Deleted"
    assert copy["metadata"]["name"] == "one"


async def test_former_status_keeps_no_job_waiting_after_a_restart(hub, clusters):
    await hub.submit(requiring("one", '{"required": {"clusters": ["b"]}}', cpu="2"))
    await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    status = {"user": "sluice", "verb": "patch", "resource": "jobs/status"}
    hub.sandbox.faults.install({"rules": [{"match": status, "do": "error", "code": 500}]})
    await hub.order("one", held=True)
    await hub.record("one", "pending")
    await hub.end()
    hub.sandbox.faults.remove()
    assert hub.user.get("jobs", "team-a", "one")["status"]["active"] == 1
    await hub.start(join=clusters.join)
    await hub.order("one", held=False)
    await clusters.b.job("one", runs)
    await hub.job("one", is_active)


async def deleted_while(hub, clusters, phase, finalizers):
    """Have a copy deleted, and let its pods end meanwhile. Return it as it was before."""
    manifest = dispatched("one", cpu="2")
    manifest["spec"]["backoffLimit"] = 0
    manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1_000_000
    await hub.submit(manifest)
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await clusters.b.user.patch("jobs", "team-a", "one", {"metadata": {"finalizers": finalizers}})
    await hub.order("one", held=True)
    await clusters.b.job("one", lambda obj: "deletionTimestamp" in obj["metadata"])
    for pod in clusters.b.user.list("pods"):
        status = {"status": {"phase": phase}}
        await clusters.b.user.patch("pods", "team-a", pod["metadata"]["name"], status, subresource="status")
    return copy


async def test_copy_that_succeeds_while_it_is_deleted_is_the_end_of_its_job(hub, clusters):
    await deleted_while(hub, clusters, "Succeeded", [])
    assert (await hub.job("one", is_done))["status"]["succeeded"] == 1


async def test_copy_that_fails_because_it_is_deleted_is_not_the_end_of_its_job(hub, clusters):
    copy = await deleted_while(hub, clusters, "Failed", ["example.com/keep"])
    failed = await clusters.b.job("one", lambda obj: obj["status"].get("failed"))
    assert [each["type"] for each in failed["status"]["conditions"]][-1] == "Failed"
    await hub.submit(dispatched("other", cpu="2"))
    await clusters.c.job("other", runs)
    assert (await hub.record("one", "evicting")).evict_reason
    await clusters.b.user.patch("jobs", "team-a", "one", {"metadata": {"finalizers": []}})
    await hub.record("one", "pending")
    await hub.order("one", held=False)
    assert (await clusters.b.job("one", runs))["metadata"]["uid"] != copy["metadata"]["uid"]


async def test_time_in_which_no_sluice_looks_gives_no_cluster_up(hub, clusters):
    await hub.submit(dispatched("one", cpu="2"))
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    clusters.b.cut()
    await state(hub, "Lost", "b")
    await hub.end()
    clusters.b.mend()
    hub.clock.advance(5000)
    await hub.start(join=clusters.join)
    await state(hub, "Active", "b")
    assert (await hub.record("one", "admitted")).admission.cluster == "b"
    assert "ClusterLost" not in [reason for reason, _ in await hub.history("one")]
    assert (await clusters.b.job("one", runs))["metadata"]["uid"] == copy["metadata"]["uid"]


def ordered(**dispatch):
    """The queue of the fixture `hub`, with an order of clusters."""
    plain = queue(**{"in-b": "2", "in-c": "2"})
    return {**plain, "spec": {**plain["spec"], "dispatch": dispatch}}


def requiring(name, affinity, **fields):
    manifest = dispatched(name, **fields)
    manifest["metadata"]["annotations"] = {"sluice.dev/cluster-affinity": affinity}
    return manifest


async def test_listed_cluster_comes_first_and_others_after_the_workload_has_waited(hub, clusters):
    await hub.apply(ordered(clusters=["c"], spilloverAfterSeconds=600))
    await hub.submit(dispatched("one", cpu="2"))
    await clusters.c.job("one", runs)
    await hub.submit(dispatched("two", cpu="2"))
    waiting = await hub.record("two", "pending", reason="WaitingForQuota")
    assert "Cluster b has room, but it is tried from " in waiting.message
    hub.pass_time(700)
    await clusters.b.job("two", runs)


async def test_cheapest_cluster_comes_first_and_follows_the_prices(hub, clusters):
    def book(b, c):
        prices = [
            {"flavor": "in-b", "resource": "cpu", "perHour": b},
            {"flavor": "in-c", "resource": "cpu", "perHour": c},
        ]
        spec = {"currency": "EUR", "prices": prices}
        return {"apiVersion": "sluice.dev/v1", "kind": "PriceBook", "metadata": {"name": "prices"}, "spec": spec}

    await hub.submit(requiring("zero", '{"required": {"clusters": ["c"]}}', cpu="1"))
    await clusters.c.job("zero", runs)  # c takes Jobs
    await hub.apply(book(2, 1), ordered(order="Cost", priceBook="prices"))
    await hub.submit(dispatched("one", cpu="1"))
    await clusters.c.job("one", runs)
    await hub.apply(book(1, 2))
    await hub.submit(dispatched("two", cpu="1"))
    await clusters.b.job("two", runs)


async def test_least_used_cluster_comes_first(hub, clusters):
    await hub.apply(ordered(order="Spread"))
    for name, at in (("one", clusters.b), ("two", clusters.c), ("three", clusters.b), ("four", clusters.c)):
        await hub.submit(dispatched(name, cpu="1"))
        await at.job(name, runs)


async def test_workload_waits_for_the_cluster_that_it_requires(hub, clusters):
    await hub.apply(cluster("c", labels={"region": "eu"}))
    await hub.submit(requiring("one", '{"preferred": [{"matchLabels": {"region": "eu"}}]}', cpu="2"))
    await clusters.c.job("one", runs)
    await hub.submit(requiring("two", '{"required": {"clusters": ["c"]}}', cpu="2"))
    waiting = await hub.record("two", "pending", reason="WaitingForQuota")
    assert waiting.message.endswith("Cluster b has room, but this workload requires c.")
    await hub.submit(requiring("three", '{"required": {"matchLabels": {"region": "us"}}}', cpu="1"))
    assert "region=us" in (await hub.record("three", "pending", reason="ClusterUnavailable")).message
    await hub.apply(cluster("b", labels={"region": "us"}))
    await clusters.b.job("three", runs)


@pytest.mark.costly
async def test_workload_that_requires_a_lost_cluster_says_so_and_follows_its_changed_annotation(hub, clusters):
    async def require(text):
        await hub.patch("one", {"metadata": {"annotations": {"sluice.dev/cluster-affinity": text}}})

    clusters.b.cut()
    await state(hub, "Lost", "b")
    await hub.submit(requiring("one", '{"required": {"clusters": ["b"]}}', cpu="1"))
    waiting = await hub.record("one", "pending", reason="ClusterUnavailable")
    assert "this workload requires b" in waiting.message
    await require('{"required": {"clusters": ["unknown"], "matchLabels": {"x": "y"}}}')

    async def says(text):
        async def look():
            record = await hub.record("one", "pending")
            return record if text in record.message else None

        return await hub.eventually(look)

    await says("requires unknown with x=y")
    await require('{"required": ["c"]}')
    await hub.record("one", "pending", reason="Misconfigured")
    await require('{"required": {"clusters": ["c"]}}')
    await clusters.c.job("one", runs)
    await require('{"required": {"clusters": ["b"]}}')
    await hub.submit(dispatched("two", cpu="1"))
    await clusters.c.job("two", runs)
    assert (await hub.record("one", "admitted")).admission.cluster == "c"  # where it runs, it stays
    await hub.submit(dispatched("three", cpu="1"))
    waiting = await hub.record("three", "pending", reason="WaitingForQuota")
    assert "Cluster b has room, but it is lost since 20" in waiting.message
    await hub.apply(cluster("c", state="Draining"))
    closed = "Not in cluster b: it is lost since 20"

    async def none_is_open():
        record = await hub.record("three", "pending")
        return closed in record.message and record.message.endswith("Not in cluster c: it is draining.")

    await hub.eventually(none_is_open)


async def test_evicted_workload_is_first_tried_where_it_was(hub, clusters):
    await hub.apply(ordered(clusters=["c"]))
    await hub.submit(dispatched("filler", cpu="2"))
    await clusters.c.job("filler", runs)
    await hub.submit(dispatched("one", cpu="2"))
    copy = await clusters.b.job("one", runs)
    await hub.job("one", is_active)
    await hub.user.delete("jobs", "team-a", "filler", propagation="Background")
    await hub.record("filler", "finished")
    await clusters.b.user.delete("jobs", "team-a", "one", propagation="Background")
    again = await clusters.b.job("one", lambda obj: runs(obj) and obj["metadata"]["uid"] != copy["metadata"]["uid"])
    assert again["spec"]["suspend"] is False
