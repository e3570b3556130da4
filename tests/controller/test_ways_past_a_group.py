"""User changes to Volcano Jobs, LeaderWorkerSets and their pods: never more pods run than were admitted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing

import pytest
from custom_kinds import until
from grouped_kinds import GATE, JOBS, KINDS, grouped_served, lasting, manifest, pods_until, running
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated, pod

DDP = "train-zjcxz05r7m5lsd"
SETS = "leaderworkersets"
NAMES = {JOBS: DDP, SETS: "lws"}
GROUPS = {JOBS: DDP, SETS: "lws-0"}
NEXT_PODS = {JOBS: f"{DDP}-train-0-1", SETS: "lws-1"}
"""Names of the pods that the controllers would create next, if there were one more replica."""


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with two queues that share 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue("test"), local_queue("user-queue"))
    async with (
        grouped_served(world.sandbox),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


def objects():
    """Objects with two pods of two CPUs each."""
    job, workers = lasting(manifest("volcano-torchx-ddp")), lasting(manifest("leaderworkerset"))
    workers["spec"] |= {"replicas": 1}
    workers["spec"]["leaderWorkerTemplate"]["size"] = 2
    templates = [task["template"] for task in job["spec"]["tasks"]]
    templates += [workers["spec"]["leaderWorkerTemplate"][name] for name in ("leaderTemplate", "workerTemplate")]
    for template in templates:
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return {JOBS: job, SETS: workers}


@pytest.fixture(params=[JOBS, SETS])
def plural(request):
    return request.param


async def submit(cluster, plural):
    return await cluster.sandbox.local("alice").create(plural, "team-a", objects()[plural])


async def started(cluster, plural):
    await submit(cluster, plural)
    return await pods_until(cluster.user, "team-a", running(2))


def claimant(cluster, plural, name):
    """A pod that a user creates with a forged reference to an object's controller."""
    owner = cluster.user.get(plural, "team-a", NAMES[plural])
    made = next(iter(cluster.user.list("pods", "team-a")))
    forged = pod(name, queue="test", cpu="2")
    forged["metadata"]["labels"] = {**made["metadata"]["labels"]}
    forged["metadata"]["annotations"] |= made["metadata"]["annotations"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    forged["metadata"]["ownerReferences"] = [reference]
    return forged


async def test_pending_pods_whose_gates_are_removed_are_recreated_with_gates(cluster, plural):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await submit(cluster, plural)
    before = await pods_until(cluster.user, "team-a", running(0, 2))
    uids = {each["metadata"]["uid"] for each in before.values()}
    for name in before:
        await cluster.user.patch("pods", "team-a", name, {"spec": {"schedulingGates": None}})

    def recreated(found):
        return running(0, 2)(found) and not uids & {each["metadata"]["uid"] for each in found.values()}

    await pods_until(cluster.user, "team-a", recreated)
    await cluster.holds(0)
    status = cluster.user.get(plural, "team-a", NAMES[plural]).get("status", {})
    assert "retryCount" not in status


async def test_more_pods_than_were_admitted_stay_gated(cluster):
    await started(cluster, JOBS)
    tasks = cluster.user.get(JOBS, "team-a", DDP)["spec"]["tasks"]
    await cluster.user.patch(JOBS, "team-a", DDP, {"spec": {"tasks": [{**tasks[0], "replicas": 3}, tasks[1]]}})
    await pods_until(cluster.user, "team-a", running(2, 2))
    await cluster.holds(4000)


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_injected_queue_fields_of_templates_cannot_be_removed(cluster, plural, when):
    if when == "waiting":
        await cluster.apply(cluster_queue(stopPolicy="Hold"))
        stored = await submit(cluster, plural)
    else:
        await started(cluster, plural)
        stored = cluster.user.get(plural, "team-a", NAMES[plural])
    mine = cluster.sandbox.local("alice")
    without = await mine.patch(plural, "team-a", NAMES[plural], {"spec": objects()[plural]["spec"]})
    assert without["spec"] == stored["spec"]
    assert without["metadata"].get("labels") == stored["metadata"].get("labels")


async def test_queue_label_of_leader_worker_set_cannot_be_changed_or_removed(cluster):
    stored = await submit(cluster, SETS)
    moved = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "test"}}}
    assert (await cluster.user.patch(SETS, "team-a", "lws", moved))["metadata"]["labels"] == stored["metadata"][
        "labels"
    ]
    gone = {"metadata": {"labels": None}}
    assert (await cluster.user.patch(SETS, "team-a", "lws", gone))["metadata"]["labels"] == stored["metadata"]["labels"]


async def test_submitter_is_the_creator_and_cannot_be_changed(cluster, plural):
    forged = objects()[plural]
    forged["metadata"]["annotations"] = {"sluice.dev/submitted-by": "bob"}
    stored = await cluster.sandbox.local("alice").create(plural, "team-a", forged)
    assert stored["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
    change = {"metadata": {"annotations": {"sluice.dev/submitted-by": "bob"}}}
    changed = await cluster.sandbox.local("bob").patch(plural, "team-a", NAMES[plural], change)
    assert changed["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
    record = await cluster.record(GROUPS[plural], "admitted")
    assert record.workload.user == "alice"


@asynccontextmanager
async def always_gated(cluster, name):
    """Check each version of a pod that is stored during the block."""

    async def follow():
        with closing(cluster.user.watch("pods")) as changes:
            async for batch in changes:
                for _, _, obj, _ in batch:
                    assert obj["metadata"]["name"] != name or GATE in obj["spec"].get("schedulingGates", ())

    task = asyncio.create_task(follow())
    try:
        yield
        if task.done():
            await task
    finally:
        task.cancel()


@pytest.mark.costly
@pytest.mark.parametrize("name", ["forged", "the next one"])
async def test_pod_forged_by_a_user_never_starts(cluster, plural, name):
    """It has the owner reference, labels and annotations of a real pod, and maybe the name of the next one."""
    there = await started(cluster, plural)
    name = name if name == "forged" else NEXT_PODS[plural]
    async with always_gated(cluster, name):
        await cluster.sandbox.local("mallory").create("pods", "team-a", claimant(cluster, plural, name))
        await cluster.user.create("pods", "team-a", pod("later", queue="test", cpu="2"))
        await cluster.record("later", "pending", reason="WaitingForQuota")
        await cluster.controller.writer.idle()

        def its_own_run(found):
            return {each for each, obj in found.items() if obj["status"].get("phase") == "Running"} == set(there)

        # Volcano may treat the end of the forged pod as that of a pod of the Job, and recreate all pods.
        await pods_until(cluster.user, "team-a", its_own_run)
        await cluster.holds(4000)


@pytest.mark.costly
async def test_orphaned_pods_of_volcano_job_hold_quota_until_they_end(cluster):
    await started(cluster, JOBS)
    await cluster.user.delete(JOBS, "team-a", DDP, propagation="Orphan")
    await until(cluster.user, "pods", f"{DDP}-train-0-0", lambda each: not each["metadata"].get("ownerReferences"))
    await cluster.user.create("pods", "team-a", pod("later", queue="test", cpu="2"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    await cluster.holds(4000)
    for number in range(2):
        await cluster.user.delete("pods", "team-a", f"{DDP}-train-{number}-0")
    await cluster.record("later", "admitted")
