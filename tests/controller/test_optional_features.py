"""Optional features that fail: the failure is reported, and everything else works."""

from __future__ import annotations

import pytest
from custom_kinds import definition
from grouped_kinds import pods_until
from job_examples import cluster_queue, flavor, job, local_queue, runs
from pod_examples import gated, pod

from admission.kinds import all_kinds
from admission.kinds.foreign_groups import FOREIGN
from admission.model import child_sentences

KINDS = all_kinds(frameworks=("batch/job", "pod"), group_labels=FOREIGN)
GANG = KINDS.sizes["scheduling.k8s.io", "PodGroup"]


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 4 CPUs and PodGroups; Sluice does not run yet."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    for kind in KINDS.sizes.values():
        await world.user.create("customresourcedefinitions", "", definition(kind))
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        yield world


def fails(world, code, **match):
    world.sandbox.faults.install({"rules": [{"match": {"user": "sluice", **match}, "do": "error", "code": code}]})


@pytest.mark.long
@pytest.mark.parametrize("code", [403, 500])
async def test_only_gangs_wait_while_pod_groups_cannot_be_listed(cluster, code):
    fails(cluster, code, resource=["podgroups", "workloads"])
    await cluster.start(kinds=KINDS)
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}}
    group["spec"] = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    await cluster.user.create(f"{GANG.plural}.{GANG.group}", "team-a", group)
    for number in range(2):
        one = pod(f"g-{number}", schedulingGroup={"podGroupName": "gang"})
        await cluster.user.create("pods", "team-a", one)
    await cluster.user.create("pods", "team-a", pod("alone"))
    await cluster.submit(job("a"))
    await cluster.job("a", runs)
    await cluster.record("alone", "admitted")
    waits = await cluster.record("gang", "pending")
    assert waits.message == child_sentences.group_without_object("PodGroup", "gang", "scheduling.k8s.io")
    cluster.sandbox.faults.remove()
    await cluster.record("gang", "admitted")
    await pods_until(cluster.user, "team-a", lambda found: len(found) == 4 and _run(found) == 4)


def _run(found):
    return sum(each["status"].get("phase") == "Running" for each in found.values())


@pytest.mark.costly
@pytest.mark.parametrize("code", [403, 500, 503])
async def test_workloads_start_and_finish_while_events_cannot_be_created(cluster, code):
    fails(cluster, code, verb="create", resource="events")
    await cluster.start(kinds=KINDS)
    await cluster.user.create("pods", "team-a", pod("alone"))
    await cluster.submit(job("too-large", cpu="5"))
    await cluster.submit(job("a"))
    await cluster.job("a", runs)
    await cluster.record("alone", "admitted")
    await cluster.user.delete("pods", "team-a", "alone")
    await cluster.record("alone", "finished")
    await cluster.record("too-large", "pending", reason="ExceedsMaxQuota")
    assert cluster.controller.faults.count == 0
