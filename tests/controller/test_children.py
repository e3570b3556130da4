"""Objects that are part of a queued object run with it, without own quota; forged owner references have no effect."""

from __future__ import annotations

import copy

import pytest
from custom_kinds import definition, jobset, until
from job_examples import TOLERATION, cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.controller.workloads import child_requests
from admission.kinds import all_kinds
from admission.model import child_sentences

KINDS = all_kinds(
    frameworks=(
        "batch/job", "jobset.x-k8s.io/jobset", "ray.io/rayjob", "ray.io/raycluster", "kubeflow.org/mpijob",
        "kubeflow.org/pytorchjob", "workload.codeflare.dev/appwrapper",
    )
)  # fmt: skip
QUEUED = {"sluice.dev/queue-name": "lq"}
ASKED = {"sluice.dev/start-with-owner": "true"}
"""Annotation that the webhook sets on a child that it has suspended."""


@pytest.fixture
async def sluice(world, monkeypatch):
    """A running Sluice for Jobs and their parent kinds, with 4 CPUs and no delay of Events about waiting children."""
    monkeypatch.setattr(child_requests, "WAIT_EVENT_DELAY", 0.0)
    await world.apply(flavor(), cluster_queue(), local_queue())
    for kind in KINDS:
        if kind.is_custom:
            await world.user.create("customresourcedefinitions", "", definition(kind))
    await world.start(kinds=KINDS)
    return world


def started(obj):
    return obj["spec"]["suspend"] is False


def reference(owner):
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def made_by(owner, role=1, number=0, *, suspend=False):
    """A Job as created by the JobSet controller, gated by the webhook because it has a queue label."""
    replicated = owner["spec"]["replicatedJobs"][role]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{owner['metadata']['name']}-{replicated['name']}-{number}",
            "namespace": "team-a",
            "labels": dict(QUEUED),
            "annotations": {} if suspend else dict(ASKED),
            "ownerReferences": [reference(owner)],
        },
        "spec": {**copy.deepcopy(replicated["template"]["spec"]), "suspend": True},
    }


async def running(sluice, name="set", **fields):
    await sluice.user.create("jobsets", "team-a", jobset(name, **fields))
    return await until(sluice.user, "jobsets", name, started)


async def has_pending_event(sluice, name, words):
    """Wait until an Event about an object says why it is pending."""

    async def look():
        found = (await sluice.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        notes = [each["note"] for each in found if (each["regarding"]["name"], each["reason"]) == (name, "Pending")]
        return any(words in note for note in notes)

    return await sluice.eventually(look)


async def is_no_workload(sluice, name):
    """Wait until all earlier events are processed; return whether the object is not an unfinished workload."""
    await sluice.submit(job(f"after-{name}", cpu="0", seconds=1))
    await sluice.record(f"after-{name}", "finished")
    records = (await sluice.store.workloads.list(namespace="team-a")).workloads
    return name not in [record.workload.name for record in records if record.state != "finished"]


@pytest.mark.costly
async def test_child_jobs_of_admitted_jobset_run_without_quota_of_their_own(sluice):
    owner = await running(sluice)
    for role in (0, 1):
        await sluice.submit(made_by(owner, role))
    child = await sluice.job("set-workers-0", runs)
    await sluice.job("set-driver-0", runs)
    assert "sluice.dev/start-with-owner" not in child["metadata"].get("annotations", {})
    assert await is_no_workload(sluice, "set-workers-0")
    await sluice.submit(job("beside", cpu="1"))  # uses the rest of the quota: the JobSet holds 3 of 4 CPUs
    await sluice.job("beside", runs)
    await sluice.submit(job("too-much", cpu="1"))
    await sluice.record("too-much", "pending", reason="WaitingForQuota")


async def test_child_job_left_suspended_by_its_controller_is_not_started(sluice):
    owner = await running(sluice)
    await sluice.submit(made_by(owner, suspend=True))
    assert await is_no_workload(sluice, "set-workers-0")
    assert is_gated(sluice.user.get("jobs", "team-a", "set-workers-0"))


async def blind_for(sluice, resource):
    """Close the watch of a resource, and have Sluice learn of its objects only by requests for each."""
    match = {"user": "sluice", "resource": resource}
    closed = {"match": match, "do": "closeWatches", "abrupt": True}
    kept_away = {"match": {**match, "verb": ["list", "watch"]}, "do": "delay", "seconds": 600}
    sluice.sandbox.faults.install({"rules": [closed, kept_away]})

    async def is_kept_away():
        return sluice.sandbox.faults.describe()["rules"][1]["struck"] > 0

    await sluice.eventually(is_kept_away)


async def ray_job_with_its_cluster(sluice, workers, *, seen_first=False):
    """Start a RayJob "ray", and create its cluster "ray-x7k2p" as KubeRay does; return the cluster.

    `seen_first`: Sluice's watch tells of the cluster, but not that the RayJob has a new status, which names it.
    """
    pods = {"template": {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]}}}
    cluster = {"headGroupSpec": pods, "workerGroupSpecs": [{"groupName": "w", "replicas": workers, **pods}]}
    rayjob = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "ray", "namespace": "team-a", "labels": QUEUED},
        "spec": {
            "suspend": True, "shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode", "rayClusterSpec": cluster,
        },
    }  # fmt: skip
    await sluice.user.create("rayjobs", "team-a", rayjob)
    owner = await until(sluice.user, "rayjobs", "ray", started)
    child = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "ray-x7k2p", "namespace": "team-a", "labels": QUEUED, "annotations": ASKED,
            "ownerReferences": [reference(owner)],
        },
        "spec": {**owner["spec"]["rayClusterSpec"], "suspend": True},
    }  # fmt: skip
    if seen_first:
        await blind_for(sluice, "rayjobs")
    await sluice.user.patch(
        "rayjobs", "team-a", "ray", {"status": {"rayClusterName": "ray-x7k2p"}}, subresource="status"
    )
    await sluice.user.create("rayclusters", "team-a", copy.deepcopy(child))
    await until(sluice.user, "rayclusters", "ray-x7k2p", started)
    await sluice.submit(job("after", cpu="0", seconds=1))
    await sluice.record("after", "finished")  # all earlier events are processed
    records = (await sluice.store.workloads.list(namespace="team-a")).workloads
    assert {record.workload.name for record in records} == {"ray", "after"}  # it has never been one
    return child


@pytest.mark.costly
async def test_fewer_workers_of_a_running_rayjob_leave_its_cluster_and_its_quota(sluice):
    """KubeRay passes the lower number on to the next cluster only."""
    await ray_job_with_its_cluster(sluice, workers=2)
    groups = sluice.user.get("rayjobs", "team-a", "ray")["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    fewer = {"rayClusterSpec": {"workerGroupSpecs": [{**groups[0], "replicas": 1}]}}
    await sluice.user.patch("rayjobs", "team-a", "ray", {"spec": fewer})
    await sluice.submit(job("later", cpu="2"))
    await sluice.record("later", "pending", reason="WaitingForQuota")  # all earlier events are processed
    assert started(sluice.user.get("rayclusters", "team-a", "ray-x7k2p"))
    admission = (await sluice.record("ray", "admitted")).admission
    assert {each.name: each.count for each in admission.pod_sets} == {"head": 1, "w": 2}


@pytest.mark.costly
async def test_cluster_whose_name_a_stopped_rayjob_has_cleared_is_still_part_of_it(sluice):
    """KubeRay clears the name before it deletes the cluster."""
    await ray_job_with_its_cluster(sluice, workers=1)
    await sluice.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    cleared = {"status": {"rayClusterName": None, "jobDeploymentStatus": "Suspending"}}
    await sluice.user.patch("rayjobs", "team-a", "ray", cleared, subresource="status")
    await until(sluice.user, "rayclusters", "ray-x7k2p", lambda obj: not started(obj))
    await sluice.submit(job("later"))
    await sluice.record("later", "pending")  # all earlier events are processed
    names = [each.workload.name for each in (await sluice.store.workloads.list(namespace="team-a")).workloads]
    assert "ray-x7k2p" not in names


@pytest.mark.costly
async def test_raycluster_of_rayjob_needs_no_quota_and_a_forged_raycluster_queues(sluice):
    child = await ray_job_with_its_cluster(sluice, workers=1, seen_first=True)
    forged = {**child, "metadata": {**child["metadata"], "name": "ray-other"}}
    await sluice.submit(job("fill", cpu="2"))
    await sluice.job("fill", runs)
    await sluice.user.create("rayclusters", "team-a", forged)
    await sluice.record("ray-other", "pending", reason="WaitingForQuota")


@pytest.mark.costly
async def test_launcher_job_of_mpijob_runs_as_part_of_the_mpijob(sluice):
    template = {"spec": {"containers": [{"name": "mpi", "resources": {"requests": {"cpu": "1"}}}]}}
    replicas = {"Launcher": {"replicas": 1, "template": template}, "Worker": {"replicas": 2, "template": template}}
    mpijob = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "mpi", "namespace": "team-a", "labels": QUEUED},
        "spec": {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": replicas},
    }
    await sluice.user.create("mpijobs", "team-a", mpijob)
    owner = await until(sluice.user, "mpijobs", "mpi", lambda obj: obj["spec"]["runPolicy"]["suspend"] is False)
    launcher = made_by({**owner, "spec": jobset("mpi")["spec"]}, 0)
    launcher["metadata"]["name"] = "mpi-launcher"
    launcher["spec"]["template"]["spec"] |= {"nodeSelector": {"type": "kwok"}, "tolerations": [TOLERATION]}
    await sluice.submit(launcher)
    await sluice.job("mpi-launcher", runs)
    assert await is_no_workload(sluice, "mpi-launcher")


@pytest.mark.costly
async def test_child_of_pending_jobset_is_suspended_again_if_unsuspended(sluice):
    owner = await sluice.user.create("jobsets", "team-a", jobset("set", cpu="2"))  # 6 CPU of 4
    await sluice.record("set", "pending", reason="ExceedsMaxQuota")
    await sluice.submit(made_by(owner))
    assert await is_no_workload(sluice, "set-workers-0")
    await sluice.patch("set-workers-0", {"spec": {"suspend": False}})
    child = await sluice.job("set-workers-0", lambda obj: is_gated(obj) and obj["metadata"]["generation"] == 3)
    assert child["metadata"]["annotations"]["sluice.dev/start-with-owner"] == "true"


def renamed(child):
    child["metadata"]["name"] = "set-workers-7"


def unnumbered(child):
    child["metadata"]["name"] = "set-workers-00"


def larger(child):
    child["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"


def hungrier(child):
    child["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"


def wider(child):
    child["spec"] |= {"parallelism": 3, "completions": 3}


def of_another_kind(child):
    child["metadata"]["ownerReferences"][0] |= {"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1"}


@pytest.mark.parametrize("forge", [renamed, unnumbered, larger, hungrier, wider, of_another_kind])
async def test_forged_child_of_jobset_queues_as_a_separate_workload(sluice, forge):
    owner = await running(sluice)
    await sluice.submit(job("fill", cpu="1"))
    await sluice.job("fill", runs)
    forged = made_by(owner)
    forge(forged)
    forged["spec"]["suspend"] = False  # as if without the webhook
    await sluice.submit(forged)
    name = forged["metadata"]["name"]
    assert (await sluice.record(name, "pending")).admission is None
    await sluice.job(name, is_gated)


async def test_child_in_another_namespace_than_its_jobset_queues_as_a_separate_workload(sluice):
    await sluice.apply(local_queue(namespace="team-b"))
    owner = await running(sluice)
    await sluice.submit(job("fill", cpu="1"))
    await sluice.job("fill", runs)
    forged = made_by(owner)
    forged["metadata"]["namespace"] = "team-b"
    await sluice.submit(forged)
    assert (await sluice.record("set-workers-0", "pending", "team-b")).admission is None


async def test_misconfigured_object_of_an_owner_that_is_not_queued_says_so(sluice, caplog):
    """It names no owner of a queued kind, and its pods cannot be read."""
    owner = await sluice.user.create("configmaps", "team-a", {"metadata": {"name": "any"}})
    obj = jobset("odd", suspend=False)
    obj["metadata"]["ownerReferences"] = [reference({**owner, "apiVersion": "v1", "kind": "ConfigMap"})]
    obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"] = "x"
    await sluice.user.create("jobsets", "team-a", obj)
    assert "must be a list" in (await sluice.record("odd", "pending", reason="Misconfigured")).message
    await until(sluice.user, "jobsets", "odd", lambda each: each["spec"]["suspend"])
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.costly
async def test_child_of_unqueued_jobset_needs_its_own_quota(sluice):
    free = jobset("free", suspend=False)
    del free["metadata"]["labels"]
    owner = await sluice.user.create("jobsets", "team-a", free)
    child = made_by(owner)
    child["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    await sluice.submit(child)
    await sluice.record("free-workers-0", "pending", reason="ExceedsMaxQuota")
    await sluice.patch("free-workers-0", {"spec": {"suspend": False}})
    await sluice.job("free-workers-0", lambda obj: is_gated(obj) and obj["metadata"]["generation"] == 3)


async def test_running_child_with_more_pods_gets_back_those_of_its_owner(sluice):
    """A webhook reverts such an edit; with policies, or past it, the controller does."""
    owner = await running(sluice)
    await sluice.submit(made_by(owner))
    await sluice.job("set-workers-0", runs)
    await sluice.patch("set-workers-0", {"spec": {"parallelism": 3}})  # no more pods than before, with 2 completions
    assert await is_no_workload(sluice, "set-workers-0")
    await sluice.submit(job("fill", cpu="1"))
    await sluice.job("fill", runs)
    elastic = made_by(owner, 0)
    elastic["spec"]["completionMode"] = "Indexed"
    await sluice.submit(elastic)
    await sluice.job("set-driver-0", runs)
    await sluice.patch("set-driver-0", {"spec": {"parallelism": 2, "completions": 2}})
    await sluice.job("set-driver-0", lambda obj: obj["spec"]["parallelism"] == 1 and runs(obj))
    assert await is_no_workload(sluice, "set-driver-0")


@pytest.mark.costly
async def test_child_is_suspended_and_resumed_with_its_jobset(sluice):
    owner = await running(sluice)
    await sluice.submit(made_by(owner))
    await sluice.job("set-workers-0", runs)
    await sluice.order("set", held=True)
    await sluice.job("set-workers-0", is_gated)
    assert (await sluice.record("set", "pending", reason="OnHold")).admission is None
    assert await has_pending_event(sluice, "set-workers-0", child_sentences.starts_with_owner("JobSet", "set"))
    assert not [pod for pod in sluice.user.list("pods") if pod["status"].get("phase") == "Running"]
    await sluice.order("set", held=False)
    await sluice.job("set-workers-0", runs)
    assert await is_no_workload(sluice, "set-workers-0")


@pytest.mark.costly
async def test_child_with_other_node_selector_than_its_jobset_stays_suspended(sluice):
    owner = await running(sluice)
    child = made_by(owner)
    child["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "fast"}
    await sluice.submit(child)
    assert await is_no_workload(sluice, "set-workers-0")
    assert is_gated(sluice.user.get("jobs", "team-a", "set-workers-0"))
    assert await has_pending_event(sluice, "set-workers-0", child_sentences.older_than_owner("JobSet set"))
    selector = owner["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["nodeSelector"]
    await sluice.patch("set-workers-0", {"spec": {"template": {"spec": {"nodeSelector": selector}}}})
    await sluice.job("set-workers-0", runs)


@pytest.mark.costly
async def test_orphaned_child_queues_as_a_separate_workload(sluice):
    owner = await running(sluice)
    await sluice.submit(made_by(owner))
    await sluice.job("set-workers-0", runs)
    await sluice.submit(job("fill", cpu="1"))
    await sluice.job("fill", runs)
    await sluice.user.delete("jobsets", "team-a", "set", propagation="Orphan")
    await sluice.job("set-workers-0", is_gated)
    assert (await sluice.record("set", "finished")).outcome == "Deleted"
    record = await sluice.record("set-workers-0", "admitted")  # with the quota that the JobSet has released
    assert record.admission.pod_sets[0].usage == {"cpu": 2000}


@pytest.mark.costly
async def test_queued_child_is_dequeued_when_its_jobset_gets_a_queue_label(sluice):
    free = jobset("set", cpu="1")
    del free["metadata"]["labels"]
    owner = await sluice.user.create("jobsets", "team-a", free)
    await sluice.submit(job("fill", cpu="3"))
    await sluice.job("fill", runs)
    await sluice.submit(made_by(owner))
    await sluice.record("set-workers-0", "pending", reason="WaitingForQuota")
    await sluice.user.patch("jobsets", "team-a", "set", {"metadata": {"labels": QUEUED}})
    left = await sluice.record("set-workers-0", "finished")
    assert left.outcome == "Dequeued"
    assert left.message == "It is part of JobSet set, which is queued as a whole: it does not queue by itself."
    await sluice.record("set", "pending", reason="WaitingForQuota")


@pytest.mark.costly
async def test_children_follow_their_jobset_after_restarts_in_each_state(sluice):
    owner = await running(sluice)
    await sluice.submit(made_by(owner))
    await sluice.job("set-workers-0", runs)
    await sluice.end()
    await sluice.submit(made_by(owner, 0))
    await sluice.start(kinds=KINDS)
    await sluice.job("set-driver-0", runs)
    await sluice.order("set", held=True)
    await sluice.job("set-driver-0", is_gated)
    await sluice.end()
    await sluice.patch("set-driver-0", {"spec": {"suspend": False}})
    await sluice.start(kinds=KINDS)
    await sluice.job("set-driver-0", is_gated)
    assert await is_no_workload(sluice, "set-driver-0")
    await sluice.order("set", held=False)
    await sluice.job("set-driver-0", runs)
    await sluice.job("set-workers-0", runs)


async def test_new_child_of_finished_jobset_stays_suspended(sluice):
    owner = await running(sluice)
    done = {"conditions": [{"type": "Completed", "status": "True"}]}
    await sluice.user.patch("jobsets", "team-a", "set", {"status": done}, subresource="status")
    await sluice.record("set", "finished")
    await sluice.submit(made_by(owner))
    assert await is_no_workload(sluice, "set-workers-0")
    assert is_gated(sluice.user.get("jobs", "team-a", "set-workers-0"))
    assert await has_pending_event(sluice, "set-workers-0", child_sentences.owner_has_ended("JobSet set"))


def torch(workers):
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    worker = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "inner", "namespace": "team-a"},
        "spec": {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Worker": worker}},
    }


async def running_wrapped(sluice):
    """Start an AppWrapper of a PyTorchJob of two workers, and create that as its controller does, unlabelled."""
    path = "template.spec.pytorchReplicaSpecs.Worker.template"
    component = {"template": torch(2), "podSets": [{"replicas": 2, "path": path}]}
    wrapper = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "outer", "namespace": "team-a", "labels": QUEUED},
        "spec": {"suspend": True, "components": [component]},
    }
    await sluice.user.create("appwrappers", "team-a", wrapper)
    owner = await until(sluice.user, "appwrappers", "outer", started)
    made = torch(2)
    made["metadata"]["ownerReferences"] = [reference(owner)]
    made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"type": "kwok"}
    await sluice.user.create("pytorchjobs", "team-a", made)


def workers_of(obj):
    return obj["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]


def with_workers(number):
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": number}}}}


async def test_wrapped_object_edited_to_have_more_pods_gets_back_those_of_its_owner(sluice):
    await running_wrapped(sluice)
    assert await is_no_workload(sluice, "inner")
    await sluice.user.patch("pytorchjobs", "team-a", "inner", with_workers(6))
    obj = await until(sluice.user, "pytorchjobs", "inner", lambda each: workers_of(each) == 2)
    assert obj["spec"]["runPolicy"]["suspend"] is False


@pytest.mark.costly
async def test_wrapped_object_with_more_pods_after_a_restart_is_suspended_until_it_has_fewer(sluice):
    await running_wrapped(sluice)
    await sluice.end()
    await sluice.user.patch("pytorchjobs", "team-a", "inner", with_workers(6))
    await sluice.start(kinds=KINDS)
    await until(sluice.user, "pytorchjobs", "inner", lambda each: each["spec"]["runPolicy"]["suspend"])
    await sluice.user.patch("pytorchjobs", "team-a", "inner", with_workers(2))
    await until(sluice.user, "pytorchjobs", "inner", lambda each: not each["spec"]["runPolicy"]["suspend"])
