"""Experiments of AReaL: the client creates role after role; they start, are evicted and end as a whole."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import closing
from itertools import chain

import orjson
import pytest
from areal import Areal
from job_examples import cluster_queue, flavor, local_queue
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import load_kube_config
from pod_examples import GATE, gated, pod

from admission.kinds import all_kinds
from admission.kinds.rules import QueueRule
from admission.model import child_sentences

KINDS = all_kinds(frameworks=("batch/job", "pod"))
AREAL = "areal.openpsi.io/"
RULE = QueueRule(
    "lq",
    kinds=("pod",),
    labels={"app.kubernetes.io/managed-by": "areal-scheduler"},
    group_name_from=(f"{AREAL}experiment", f"{AREAL}trial"),
    pod_set_from=f"{AREAL}role",
)
ROLES = {"actor": 2, "rollout": 2}
REQUESTS = {"cpu": "1", "memory": "1Gi"}


def queue(**spec):
    """A queue of 8 CPUs, for 8 pods."""
    return cluster_queue(quotas={"default": {"cpu": "8", "memory": "8Gi"}}, **spec)


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster with a queue of 8 CPUs, enough for one experiment; Sluice runs."""
    await world.apply(flavor(), queue(), local_queue())
    async with gated(world.user, KINDS, tmp_path / "certificates", rules=(RULE,)):
        await world.start(kinds=KINDS)
        yield world


@pytest.fixture
async def client(world, tmp_path):
    """API client of AReaL's scheduler."""
    path, configuration = tmp_path / "areal.kubeconfig", Configuration()
    world.sandbox.write_kubeconfig(path, "admin")
    await load_kube_config(str(path), client_configuration=configuration)
    async with ApiClient(configuration) as api:
        yield api


def controller(experiment, **declared):
    """The Job of AReaL's controller with one retry; the pod declares the pod sets of the roles."""
    pod_sets = [{"name": "controller", "count": 1}]
    pod_sets += [{"name": role, "count": count, "requests": REQUESTS} for role, count in ROLES.items()]
    template = pod("template")
    metadata = {
        "labels": {
            "sluice.dev/queue-name": "lq",
            "sluice.dev/pod-group-name": f"{experiment}.t0",
            "sluice.dev/pod-set-name": "controller",
        },
        "annotations": {
            **template["metadata"]["annotations"],
            "sluice.dev/pod-group-pod-sets": orjson.dumps(declared.get("pod_sets", pod_sets)).decode(),
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        # A Job without labels would get those of its template, and be queued as a separate workload.
        "metadata": {
            "name": f"areal-{experiment}",
            "namespace": "team-a",
            "labels": {f"{AREAL}experiment": experiment},
        },
        "spec": {"backoffLimit": 1, "template": {"metadata": metadata, "spec": template["spec"]}},
    }


def runs(obj):
    return obj["status"].get("phase") == "Running" and "deletionTimestamp" not in obj["metadata"]


def is_started(obj):
    is_over = obj["status"].get("phase") in ("Succeeded", "Failed")
    return GATE not in obj["spec"].get("schedulingGates", ()) and not is_over


def group(obj):
    return obj["metadata"]["labels"]["sluice.dev/pod-group-name"].partition(".")[0]


async def pods_until(cluster, until):
    """Wait until the pods by experiment satisfy `until`, and return them; check that quota is never exceeded."""
    with closing(cluster.user.watch("pods")) as changes:
        async for _ in changes:
            found = defaultdict(list)
            for obj in cluster.user.list("pods", "team-a"):
                found[group(obj)].append(obj)
            assert sum(map(is_started, chain(*found.values()))) <= 8
            if until(found):
                return found
    raise AssertionError("the watch ended")


def running(experiment, number):
    return lambda found: sum(map(runs, found[experiment])) == number


async def holds(cluster, **cpus):
    """Wait until the groups hold these milli-CPU of quota."""

    async def look():
        found = (await cluster.store.workloads.list(namespace="team-a")).workloads
        held = {
            each.workload.name.partition(".")[0]: sum(one.usage["cpu"] for one in each.admission.pod_sets)
            for each in found
            if each.admission is not None
        }
        return held == cpus

    await cluster.eventually(look)


async def has_ended(cluster, name, outcome):
    """Wait for a finished record of a group; one that was evicted and had no pods for a while has several."""

    async def look():
        found = (await cluster.store.workloads.list(namespace="team-a")).workloads
        return (name, "finished", outcome) in {(each.workload.name, each.state, each.outcome) for each in found}

    await cluster.eventually(look)


async def trained(areal):
    """Act as AReaL's trainer: create each role, also repeatedly, and wait for it before the next one."""
    for role, count in ROLES.items():
        for _ in range(2):
            await areal.create_workers(role, count)
        await areal.get_workers(role, count)


async def ended(cluster, experiment, outcome="Succeeded"):
    """End the controller pod of an experiment."""
    pods = [obj for obj in cluster.user.list("pods", "team-a") if group(obj) == experiment]
    (name,) = (obj["metadata"]["name"] for obj in pods if "job-name" in obj["metadata"]["labels"] and runs(obj))
    await cluster.user.patch("pods", "team-a", name, {"status": {"phase": outcome}}, subresource="status")


@pytest.mark.costly
async def test_two_experiments_with_sequential_roles_run_one_after_the_other(cluster, client):
    first, second = (Areal(client, "team-a", name) for name in ("e1", "e2"))
    await cluster.user.create("jobs", "team-a", controller("e1"))
    await pods_until(cluster, running("e1", 1))
    await holds(cluster, e1=5000)  # for all roles, before their pods exist
    await cluster.user.create("jobs", "team-a", controller("e2"))
    waiting = await cluster.record("e2.t0", "pending", reason="WaitingForQuota")
    assert [(each.name, each.count) for each in waiting.workload.pod_sets] == [("controller", 1), *ROLES.items()]
    # A client that does not wait for its controller finds gated pods, which AReaL does not treat as failed.
    impatient = asyncio.create_task(trained(second))
    await pods_until(cluster, lambda found: len(found["e2"]) == 3)
    assert {each.status.phase for each in await second.check_health("actor")} == {"Pending"}
    await trained(first)
    found = await pods_until(cluster, running("e1", 5))
    assert not any(map(runs, found["e2"]))
    await first.delete_workers(*ROLES)
    await pods_until(cluster, lambda found: len(found["e1"]) == 1)
    await holds(cluster, e1=5000)  # the client may recreate its roles
    await ended(cluster, "e1")
    await has_ended(cluster, "e1.t0", "Succeeded")
    await impatient
    assert second.looks > 2
    await pods_until(cluster, running("e2", 5))
    await holds(cluster, e2=5000)


@pytest.mark.long
async def test_experiment_continues_after_restart_and_is_evicted_and_readmitted_as_a_whole(cluster, client):
    areal = Areal(client, "team-a", "e1")
    await cluster.user.create("jobs", "team-a", controller("e1"))
    await pods_until(cluster, running("e1", 1))
    await areal.create_workers("actor", 2)
    await areal.get_workers("actor", 2)
    await cluster.end()  # the quota reserved for rollout is in the database
    await cluster.start(kinds=KINDS)
    await areal.create_workers("rollout", 2)
    await areal.get_workers("rollout", 2)
    await holds(cluster, e1=5000)
    await cluster.apply(queue(stopPolicy="HoldAndDrain"))

    def waits(found):
        alive = [obj for obj in found["e1"] if obj["status"].get("phase") != "Failed"]
        return len(alive) == 5 and all("schedulingGates" in obj["spec"] for obj in alive)

    await pods_until(cluster, waits)
    await holds(cluster)
    await cluster.apply(queue())
    await trained(areal)
    await holds(cluster, e1=5000)
    # A failed controller leaves its workers, and their quota, for inspection.
    await pods_until(cluster, running("e1", 5))
    await ended(cluster, "e1", "Failed")
    await pods_until(cluster, running("e1", 4))
    await holds(cluster, e1=5000)
    await areal.delete_workers(*ROLES)
    await has_ended(cluster, "e1.t0", "Failed")


@pytest.mark.costly
async def test_pods_that_differ_from_declared_pod_sets_stay_gated(cluster, client):
    areal = Areal(client, "team-a", "e1")
    await areal.create_workers("actor", 2)
    await cluster.record("e1.t0", "pending", reason="PendingEvaluation")
    assert (await cluster.record("e1.t0", "pending")).message == child_sentences.GROUP_UNDECLARED
    await cluster.user.create("jobs", "team-a", controller("e1"))
    await pods_until(cluster, running("e1", 3))
    await areal.create_workers("rollout", 3)  # one more
    await pods_until(cluster, lambda found: running("e1", 5)(found) and len(found["e1"]) == 6)
    await areal.create_workers("critic", 1)  # an undeclared role
    await pods_until(cluster, lambda found: running("e1", 5)(found) and len(found["e1"]) == 7)
    await areal.delete_workers("rollout")
    await pods_until(cluster, running("e1", 3))
    await areal.create_workers("rollout", 2, cpu="2")  # larger
    await pods_until(cluster, lambda found: running("e1", 3)(found) and len(found["e1"]) == 6)
    await holds(cluster, e1=5000)
    await areal.delete_workers("rollout")
    await pods_until(cluster, lambda found: len(found["e1"]) == 4)
    areal.node_selector = {"type": "another"}  # not the nodes of the reserved flavor
    await areal.create_workers("rollout", 2)
    await cluster.eventually(lambda: told(cluster, "spec.nodeSelector[type]: is another, but ResourceFlavor"))
    await pods_until(cluster, lambda found: running("e1", 3)(found) and len(found["e1"]) == 6)
    await holds(cluster, e1=5000)


async def told(cluster, words):
    """Return whether an Event about a pod contains a text."""
    events = cluster.user.list("events", "team-a")
    return any(words in each["message"] and each["involvedObject"]["kind"] == "Pod" for each in events)
