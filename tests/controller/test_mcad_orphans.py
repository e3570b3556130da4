"""Pods of an MCAD AppWrapper whose Job was deleted by others: they hold its quota, and nothing runs beside them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing

import pytest
from custom_kinds import definition, until
from job_examples import cluster_queue, flavor, local_queue

from admission.kinds import all_kinds
from admission.kinds.base import WORKLOAD_UID
from admission.kinds.mcad import APP_WRAPPER as LABEL
from admission.kinds.mcad import items

KINDS = all_kinds(frameworks=("batch/job", "workload.codeflare.dev/appwrapper", "mcad.ibm.com/appwrapper"))
APP_WRAPPER = KINDS.get("workload.codeflare.dev", "AppWrapper")
QUOTA = 2


@pytest.fixture
async def cluster(world):
    """A cluster with the definition of AppWrappers and a queue of 2 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(cpu=str(QUOTA)), local_queue("user-queue"))
    await world.user.create("customresourcedefinitions", "", definition(APP_WRAPPER, "v1beta1"))
    await world.start(kinds=KINDS, makes_items=True)
    return world


def job(name="inner", *, pods=2, stop="10", run="1000000"):
    """A Job with pods of 1 CPU, which take `stop` seconds to end."""
    annotations = {"sandbox.sluice.dev/run-seconds": run, "sandbox.sluice.dev/stop-seconds": stop}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1_000_000,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
    }
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def wrapper(item, *, name="outer", **fields):
    return {
        "apiVersion": "workload.codeflare.dev/v1beta1",
        "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
        "spec": {"resources": {"GenericItems": [{"generictemplate": item, **fields}]}},
    }


def unfinished(cluster):
    """The pods that may use their requests, by name."""
    found = {each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")}
    return {name: each for name, each in found.items() if each["status"].get("phase") not in ("Succeeded", "Failed")}


@asynccontextmanager
async def within_quota(cluster):
    """Check after each change of a pod that unfinished pods of 1 CPU are within the quota."""
    numbers = [0]

    async def follow():
        with closing(cluster.user.watch("pods")) as changes:
            async for _ in changes:
                numbers.append(len(unfinished(cluster)))

    task = asyncio.create_task(follow())
    try:
        yield
        assert not task.done()  # no change was missed
    finally:
        task.cancel()
    assert max(numbers) == QUOTA


async def submit(cluster, item, **fields):
    """Create an AppWrapper, and wait until its two pods run; return their names."""
    await cluster.user.create("appwrappers", "team-a", wrapper(item, **fields))
    await others_run(cluster, set())
    return set(unfinished(cluster))


async def has(cluster, name="outer", **fields):
    """Wait until the AppWrapper's status has these values."""

    def holds(obj):
        status = obj.get("status") or {}
        return all(status.get(field) == value for field, value in fields.items())

    return await until(cluster.user, "appwrappers", name, holds)


async def checked(cluster, times=2):
    """Wait until Sluice has looked for the Job `inner` and for pods of the AppWrapper this many times more."""

    def looked():
        return cluster.client.requests["GET", "jobs", "404"], cluster.client.requests["GET", "pods", "200"]

    before = looked()

    async def enough():
        return all(now >= was + times for now, was in zip(looked(), before, strict=True))

    await cluster.eventually(enough)


async def recreated(cluster, uid, name="inner"):
    """Wait until another Job than that of `uid` exists under its name, and return it."""
    return await until(cluster.user, "jobs", name, lambda obj: obj["metadata"]["uid"] != uid)


async def replace_job(cluster, body):
    """Delete the Job `inner` with orphaned pods, and create another one of its name at once."""
    await cluster.user.delete("jobs", "team-a", "inner", propagation="Orphan")
    with closing(cluster.user.watch("jobs")) as changes:
        async for batch in changes:
            if any(change == "DELETED" for _, change, _, _ in batch) or not cluster.user.list("jobs", "team-a"):
                break
    await cluster.user.create("jobs", "team-a", body)


async def others_run(cluster, names):
    """Wait until two pods run that are none of `names`."""

    async def running():
        found = [name for name, each in unfinished(cluster).items() if each["status"].get("phase") == "Running"]
        return len(found) == 2 and not names & set(found)

    await cluster.eventually(running)


def test_pod_template_of_job_item_gets_the_appwrapper_label():
    """Sluice observes pods by this label. The AppWrapper itself and other labels stay unchanged."""
    inner = job()
    inner["spec"]["template"]["metadata"]["labels"] = {"a": "b"}
    obj = wrapper(inner)
    (item,) = items(obj)
    assert item.object["spec"]["template"]["metadata"]["labels"] == {"a": "b", LABEL: "outer"}
    assert item.object["metadata"]["labels"] == {LABEL: "outer"}
    assert obj == wrapper(inner)
    assert inner["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


@pytest.mark.long
@pytest.mark.parametrize("labelled", [True, False])
async def test_deleted_job_is_recreated_only_after_its_orphaned_pods_have_ended(cluster, labelled):
    """Each time the Job is deleted, also if a user removes the label by which Sluice observes its pods."""
    async with within_quota(cluster):
        first = await submit(cluster, job())
        for _ in range(2):
            uid = cluster.user.get("jobs", "team-a", "inner")["metadata"]["uid"]
            before = set(unfinished(cluster))
            await cluster.user.delete("jobs", "team-a", "inner", propagation="Orphan")
            if not labelled:
                for name in before:
                    await cluster.user.patch("pods", "team-a", name, {"metadata": {"labels": {LABEL: None}}})
            await checked(cluster)
            assert set(unfinished(cluster)) == before
            assert (await cluster.record("outer", "admitted")).admission is not None
            await cluster.end_pods("Succeeded", *before)
            await recreated(cluster, uid)
            await others_run(cluster, before)
        assert not first & set(unfinished(cluster))


@pytest.mark.parametrize(("stop", "propagation"), [("300", "Background"), ("0", "Foreground")])
async def test_deleted_job_is_recreated_after_its_pods_have_terminated(cluster, stop, propagation):
    """The pods terminate slowly, or are gone before the Job."""
    async with within_quota(cluster):
        before = await submit(cluster, job(stop=stop))
        uid = cluster.user.get("jobs", "team-a", "inner")["metadata"]["uid"]
        await cluster.user.delete("jobs", "team-a", "inner", propagation=propagation)
        await recreated(cluster, uid)
        await others_run(cluster, before)


@pytest.mark.costly
async def test_orphans_are_deleted_before_quota_is_released_if_the_job_name_is_taken(cluster):
    async with within_quota(cluster):
        before = await submit(cluster, job(stop="300"))
        await cluster.user.create("appwrappers", "team-a", wrapper(job("second"), name="second"))
        await cluster.record("second", "pending")
        mine = job()
        mine["spec"]["suspend"] = True
        await replace_job(cluster, mine)
        await has(cluster, state="Failed")
        assert not before & set(unfinished(cluster))
        await others_run(cluster, before)


@pytest.mark.costly
@pytest.mark.parametrize(("labelled", "ended"), [(True, "Completed"), (False, "Failed")])
async def test_orphans_are_gone_when_a_job_that_a_user_created_as_item_ends(cluster, labelled, ended):
    """The Job names the AppWrapper as its controller, and ends at once. Without labels its pods cannot be counted."""
    before = await submit(cluster, job(stop="300"))
    own = cluster.user.get("jobs", "team-a", "inner")
    mine = job(run="0")
    mine["metadata"]["ownerReferences"] = own["metadata"]["ownerReferences"]
    mine["spec"]["template"]["spec"] = own["spec"]["template"]["spec"]
    if labelled:
        labels = own["spec"]["template"]["metadata"]["labels"]
        mine["spec"]["template"]["metadata"]["labels"] = {LABEL: "outer", WORKLOAD_UID: labels[WORKLOAD_UID]}
    await replace_job(cluster, mine)
    await has(cluster, queuejobstate=ended)
    assert not before & set(unfinished(cluster))


@pytest.mark.costly
@pytest.mark.parametrize("labelled", [True, False])
async def test_orphans_are_deleted_at_an_eviction(cluster, labelled):
    async with within_quota(cluster):
        before = await submit(cluster, job(stop="300"))
        await cluster.user.create("appwrappers", "team-a", wrapper(job("second"), name="second"))
        await cluster.record("second", "pending")
        await cluster.user.delete("jobs", "team-a", "inner", propagation="Orphan")
        if not labelled:
            for name in before:
                await cluster.user.patch("pods", "team-a", name, {"metadata": {"labels": {LABEL: None}}})
        await cluster.order("outer", held=True)
        await has(cluster, state="Pending", isdispatched=False)
        assert not before & set(unfinished(cluster))
        await others_run(cluster, before)


@pytest.mark.costly
async def test_slowly_terminating_pods_hold_quota_during_eviction(cluster):
    async with within_quota(cluster):
        before = await submit(cluster, job(stop="300"))
        await cluster.user.create("appwrappers", "team-a", wrapper(job("second"), name="second"))
        await cluster.record("second", "pending")
        await cluster.order("outer", held=True)
        await has(cluster, state="Pending", isdispatched=False)
        await others_run(cluster, before)


@pytest.mark.costly
async def test_a_sibling_of_a_deleted_job_runs_on(cluster):
    async with within_quota(cluster):
        before = await submit(cluster, job(pods=1), replicas=2)
        gone = cluster.user.get("jobs", "team-a", "inner-0")
        sibling = cluster.user.get("jobs", "team-a", "inner-1")
        (orphan,) = (name for name in before if name.startswith("inner-0-"))
        (running,) = before - {orphan}
        await cluster.user.delete("jobs", "team-a", "inner-0", propagation="Orphan")
        await checked(cluster)
        assert set(unfinished(cluster)) == before
        await cluster.end_pods("Succeeded", orphan)
        await recreated(cluster, gone["metadata"]["uid"], "inner-0")
        await others_run(cluster, {orphan})
        assert running in unfinished(cluster)
        assert cluster.user.get("jobs", "team-a", "inner-1")["metadata"]["uid"] == sibling["metadata"]["uid"]


async def test_appwrapper_whose_pods_have_all_failed_holds_quota_for_new_pods(cluster):
    """The Job delays the creation of new pods; `pending` shows meanwhile that the quota is in use."""
    before = await submit(cluster, job())
    # The delay begins with the last failure: far in the future, for it is a third of a second in the sandbox.
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2099-01-01T00:00:00Z"}}
    for name in before:
        status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": ended}]}
        await cluster.user.patch("pods", "team-a", name, {"status": status}, subresource="status")
    await has(cluster, running=0, pending=1, failed=2)
    await cluster.user.create("appwrappers", "team-a", wrapper(job("second"), name="second"))
    await cluster.record("second", "pending", reason="WaitingForQuota")
    held = (await cluster.record("outer", "admitted")).admission.pod_sets
    assert sum(each.usage["cpu"] for each in held) == 1000 * QUOTA
