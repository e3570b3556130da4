"""Lifecycle of LeaderWorkerSets with the webhook: a leader and its workers are one workload."""

from __future__ import annotations

import pytest
from grouped_kinds import GATE, GROUPED, KINDS, grouped_served, lasting, manifest, pods_until, running
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated

from admission.kinds import all_kinds
from admission.sandbox.apiserver.errors import ApiError

SETS = "leaderworkersets"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue("user-queue"))
    async with (
        grouped_served(world.sandbox),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


def workers(**spec):
    """Two groups of a leader and three workers, of half a CPU each: two CPUs per group."""
    obj = lasting(manifest("leaderworkerset"))
    for template in ("leaderTemplate", "workerTemplate"):
        for container in obj["spec"]["leaderWorkerTemplate"][template]["spec"]["containers"]:
            container["resources"] = {"requests": {"cpu": "500m"}}
    return {**obj, "spec": {**obj["spec"], **spec}}


async def submit(cluster, obj):
    return await cluster.sandbox.local("alice").create(SETS, "team-a", obj)


async def scale(cluster, replicas):
    await cluster.user.patch(SETS, "team-a", "lws", {"spec": {"replicas": replicas}})


@pytest.mark.costly
async def test_leader_with_its_workers_is_one_workload_and_quota_follows_replicas(cluster):
    stored = await submit(cluster, workers())
    for name in ("leaderTemplate", "workerTemplate"):
        metadata = stored["spec"]["leaderWorkerTemplate"][name]["metadata"]
        assert metadata["labels"]["sluice.dev/queue-name"] == "user-queue"
        assert metadata["annotations"]["sluice.dev/pod-group-total-count"] == "4"
    await pods_until(cluster.user, "team-a", running(8))
    for number in range(2):
        record = await cluster.record(f"lws-{number}", "admitted")
        assert (record.workload.kind, record.workload.user) == ("PodGroup", "alice")
        assert sum(each.count for each in record.workload.pod_sets) == 4
    await scale(cluster, 3)
    waiting = await cluster.record("lws-2", "pending", reason="WaitingForQuota")
    assert sum(each.count for each in waiting.workload.pod_sets) == 4
    await pods_until(cluster.user, "team-a", running(8, 4))
    await cluster.holds(4000)
    await scale(cluster, 1)
    await pods_until(cluster.user, "team-a", running(4))
    await cluster.holds(2000)
    await cluster.record("lws-2", "finished")
    await cluster.user.delete(SETS, "team-a", "lws", propagation="Background")
    await cluster.holds(0)


@pytest.mark.costly
async def test_recreated_group_keeps_its_admission(cluster):
    await submit(cluster, workers(replicas=1))
    before = await pods_until(cluster.user, "team-a", running(4))
    first = await cluster.record("lws-0", "admitted")
    await cluster.user.patch("pods", "team-a", "lws-0-2", {"status": {"phase": "Failed"}}, subresource="status")

    def recreated(found):
        uids = {each["metadata"]["uid"] for each in found.values()}
        return running(4)(found) and not uids & {each["metadata"]["uid"] for each in before.values()}

    await pods_until(cluster.user, "team-a", recreated)
    now = await cluster.record("lws-0", "admitted")
    assert (now.workload.uid, now.admitted_at) == (first.workload.uid, first.admitted_at)


async def test_leader_ready_set_is_admitted_with_quota_for_leader_and_workers(cluster):
    obj = workers(replicas=1, startupPolicy="LeaderReady")
    del obj["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    await submit(cluster, obj)
    await pods_until(cluster.user, "team-a", running(4))
    record = await cluster.record("lws-0", "admitted")
    assert [each.count for each in record.workload.pod_sets] == [4]


async def test_leader_ready_set_with_different_worker_template_is_rejected(cluster):
    with pytest.raises(ApiError, match=r"spec\.startupPolicy: a leader and workers of another form"):
        await submit(cluster, workers(startupPolicy="LeaderReady"))


async def test_leader_worker_set_without_queue_label_is_not_gated(cluster):
    obj = workers(replicas=1)
    del obj["metadata"]["labels"]
    for template in obj["spec"]["leaderWorkerTemplate"].values():
        if isinstance(template, dict):
            template["spec"]["tolerations"] = [{"operator": "Exists"}]
    stored = await submit(cluster, obj)
    assert "labels" not in stored["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]
    found = await pods_until(cluster.user, "team-a", running(4))
    assert all(GATE not in each["spec"].get("schedulingGates", ()) for each in found.values())


@pytest.mark.costly
async def test_sets_are_queued_where_stateful_sets_are_not(world, tmp_path):
    kinds = all_kinds(frameworks=("batch/job", "pod", *GROUPED))
    await world.apply(flavor(), cluster_queue(), local_queue("user-queue"))
    async with grouped_served(world.sandbox), gated(world.sandbox.local("admin"), kinds, tmp_path / "certificates"):
        await world.start(kinds=kinds)
        await submit(world, workers(replicas=3))
        await pods_until(world.user, "team-a", running(8, 4))
        await world.holds(4000)
