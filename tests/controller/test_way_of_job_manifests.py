"""Lifecycle of Jobs with manifests for several systems, run concurrently."""

from __future__ import annotations

import copy
from functools import partial

import pytest
from grouped_kinds import GATE, pods_until
from job_examples import TOLERATION, flavor, is_done, is_gated, job, local_queue, runs
from job_manifests import HIGH, JOBS, KATA, QUEUES, YUNIKORN
from pod_examples import gated
from test_group_manifests import kept
from test_way_of_each_kind import held_by, node, queue_of

from admission.kinds import all_kinds
from admission.kinds.foreign_groups import FOREIGN

KINDS = all_kinds(frameworks=("batch/job", "pod"), group_labels=FOREIGN, queue_labels=(YUNIKORN,))
BEFORE = "before"


async def create_queue(world, case):
    """Create the namespace of a case with its LimitRanges, and a queue with exactly the quota that its pods request."""
    user = world.user
    await user.create("namespaces", "", {"metadata": {"name": case.namespace}})
    queue = queue_of(case.amounts())
    await world.apply(
        {**queue, "metadata": {"name": case.namespace}},
        *(local_queue(name, case.namespace, case.namespace) for name in QUEUES),
    )
    for obj in case.limit_ranges():
        await user.create("limitranges", case.namespace, obj)


def theirs(obj):
    """Return the fields of a Job that belong to other systems, which Sluice must not change."""
    template = obj["spec"]["template"]
    labels = {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if "sluice.dev/" not in key}
    ours = ("controller-uid", "job-name")
    in_template, fields = kept({"metadata": template.get("metadata", {}), "spec": template["spec"]})
    pods = {key: value for key, value in in_template["labels"].items() if not key.endswith(ours)}
    return labels, {**in_template, "labels": pods}, fields, obj["spec"].get("scheduling")


async def until_running(world, case, created):
    """Wait until it runs; check its quota, the injected fields, and that other systems' fields are unchanged."""
    name, namespace, amounts = case.name, case.namespace, case.amounts()
    running = await world.job(
        name, lambda obj: runs(obj) and obj["status"].get("ready") == case.pods, namespace=namespace
    )
    assert held_by(await world.record(name, "admitted", namespace)) == amounts
    spec = running["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"type": "kwok"}
    assert spec["tolerations"] == [TOLERATION]
    assert theirs(running) == theirs(created)

    def is_so(found):
        alive = [each for name, each in found.items() if not name.startswith(BEFORE)]
        alive = [each for each in alive if each["status"]["phase"] not in ("Succeeded", "Failed")]
        return len(alive) == case.pods and not any(GATE in each["spec"].get("schedulingGates", ()) for each in alive)

    found = await pods_until(world.user, namespace, is_so)
    for pod in found.values():
        if not pod["metadata"]["name"].startswith(BEFORE):
            assert kept(pod)[1].items() >= theirs(created)[2].items()
            assert kept(pod)[0]["labels"].items() >= theirs(created)[1]["labels"].items()


async def events_of_ignored_child_podsets(world):
    """(name, type) of Events that an annotation which seems to reserve quota is ignored."""
    found = (await world.client.get("/apis/events.k8s.io/v1/events"))["items"]
    told = "the annotation sluice.dev/child-podsets is ignored: quota is reserved for the pods of this Job alone"
    return {(each["regarding"]["name"], each["type"]) for each in found if each["note"].startswith(told)}


async def end(world, case):
    """Let all its pods succeed, including those that are created then."""

    async def look():
        for each in world.user.list("pods", case.namespace):
            if each["status"].get("phase") == "Running":
                ended = {"status": {"phase": "Succeeded"}}
                await world.user.patch("pods", case.namespace, each["metadata"]["name"], ended, subresource="status")
        return is_done(world.user.get("jobs", case.namespace, case.name))

    await world.eventually(look)
    assert (await world.record(case.name, "finished", case.namespace)).outcome == "Succeeded"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster with the webhook and a running Sluice, and a queue per case, whose quota another Job holds."""
    for number in range(2):
        await world.user.create("nodes", "", node(number))
    await world.user.create("runtimeclasses", "", KATA)
    await world.apply(flavor(), HIGH)
    for case in JOBS:
        await create_queue(world, case)
    async with gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        for case in JOBS:
            cpu = f"{case.amounts()['cpu']}m"
            await world.submit(job(BEFORE, queue=QUEUES[0], cpu=cpu, namespace=case.namespace))
        for case in JOBS:
            await world.job(BEFORE, runs, namespace=case.namespace)
        yield world


@pytest.mark.long
async def test_lifecycle_of_job_manifests(cluster):
    user, alice, created = cluster.user, cluster.sandbox.local("alice"), {}
    for case in JOBS:
        submitted = case.job()
        created[case.name] = await alice.create("jobs", case.namespace, copy.deepcopy(submitted))
        assert is_gated(created[case.name])
        waiting = await cluster.record(case.name, "pending", case.namespace, reason="WaitingForQuota")
        (pod_set,) = waiting.workload.pod_sets
        assert (pod_set.count, dict(pod_set.requests)) == (case.pods, case.requests), case
        assert "less is free" in waiting.message
        _, in_template, fields, scheduling = theirs(submitted)
        fields = {"schedulerName": "default-scheduler", **fields}
        assert theirs(created[case.name])[1:] == (in_template, fields, scheduling)
    for case in JOBS:
        await user.delete("jobs", case.namespace, BEFORE, propagation="Background")
    for case in JOBS:
        await until_running(cluster, case, created[case.name])
    assert await cluster.eventually(partial(events_of_ignored_child_podsets, cluster)) == {
        ("areal-gsm8k-t0", "Warning")
    }
    for case in JOBS:
        await cluster.order(case.name, case.namespace, held=True)
    for case in JOBS:
        held = await cluster.record(case.name, "pending", case.namespace, reason="OnHold")
        assert held.admission is None
        stopped = user.get("jobs", case.namespace, case.name)
        assert stopped["spec"] == created[case.name]["spec"]
        for field in ("labels", "annotations"):
            assert stopped["metadata"].get(field) == created[case.name]["metadata"].get(field)
        assert all(each["status"]["phase"] == "Failed" for each in user.list("pods", case.namespace))
    for case in JOBS:
        await cluster.order(case.name, case.namespace, held=False)
    for case in JOBS:
        await until_running(cluster, case, created[case.name])
    for case in JOBS:
        await end(cluster, case)
    for case in JOBS:
        await user.delete("jobs", case.namespace, case.name, propagation="Background")
        cpu = f"{case.amounts()['cpu']}m"
        await cluster.submit(job(f"{BEFORE}-others", queue=QUEUES[0], cpu=cpu, namespace=case.namespace))
    for case in JOBS:
        await cluster.job(f"{BEFORE}-others", runs, namespace=case.namespace)


@pytest.mark.costly
async def test_job_whose_pods_violate_the_limit_range_is_misconfigured(cluster):
    case = next(each for each in JOBS if each.manifest == "job-limitrange")
    obj = next(each for each in case.documents() if each["metadata"]["name"] == "request-over-default-limit")
    await cluster.sandbox.local("alice").create("jobs", case.namespace, obj)
    told = await cluster.record(obj["metadata"]["name"], "pending", case.namespace, reason="Misconfigured")
    assert told.message.startswith(
        "spec.template.spec.containers[0].resources: the cpu request of 2 is more than the limit of 1 that LimitRange"
    )
