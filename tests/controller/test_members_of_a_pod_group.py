"""Pod groups: pods that join a pending or running group or leave it, and users who remove gates or labels."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import cluster_queue
from pod_examples import MANAGED, pod
from pod_groups import KINDS, create, event_says, member, pods_until, run, running_cluster, runs

from admission.controller.workloads.children import _RETRY_DELAY
from admission.model import child_sentences


@pytest.fixture
async def cluster(world, tmp_path):
    async with running_cluster(world, tmp_path) as running:
        yield running


async def test_pod_of_running_group_resized_beyond_its_quota_is_deleted(cluster):
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    for name, cpu in (("g-0", "500m"), ("g-1", "3")):
        resized = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        await cluster.user.patch("pods", "team-a", name, {"spec": {"containers": [resized]}}, subresource="resize")
    await pods_until(cluster, run("g-0"))
    await create(cluster, member("again", 2))
    await pods_until(cluster, run("g-0", "again"))
    assert await cluster.held("g") == 2000


async def test_oversized_pod_with_removed_gate_does_not_join_running_group(cluster):
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.user.delete("pods", "team-a", "g-1")
    await create(cluster, member("large", 2, cpu="4"))
    await event_says(cluster, "large", child_sentences.beyond_group("g", 0))
    await cluster.user.patch("pods", "team-a", "large", {"spec": {"schedulingGates": None}})
    await pods_until(cluster, run("g-0"))
    assert await cluster.held("g") == 2000


@pytest.mark.costly
async def test_pods_recreated_during_slow_startup_run_with_the_quota_of_the_group(cluster):
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.end()
    for number in range(2):
        await cluster.user.delete("pods", "team-a", f"g-{number}", grace=0)
    looks = {"user": "sluice", "verb": "list", "resource": "pods", "namespace": "team-a"}
    cluster.sandbox.faults.install({"rules": [{"match": looks, "do": "delay", "seconds": 1}]})
    await cluster.start(kinds=KINDS)
    await create(cluster, *(member(f"again-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("again-0", "again-1"))
    assert await cluster.held("g") == 2000


@pytest.mark.costly
@pytest.mark.parametrize("those", [["g-1"], ["g-0", "g-1"]], ids=["one", "all"])
async def test_pods_unlabelled_during_downtime_keep_their_quota(cluster, those):
    await create(cluster, *(member(f"g-{number}", 2, cpu="2") for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.end()
    for name in those:
        await cluster.user.patch("pods", "team-a", name, {"metadata": {"labels": None}})
    await cluster.start(kinds=KINDS)
    await pods_until(
        cluster, lambda found: all("sluice.dev/managed" in found[name]["metadata"].get("labels", {}) for name in those)
    )
    await create(cluster, pod("beside"), member("again", 2, cpu="2"))
    await cluster.record("beside", "pending", reason="WaitingForQuota")
    await pods_until(cluster, lambda found: "again" not in found)
    assert await cluster.held("g") == 4000


async def test_pod_of_another_queue_does_not_join_running_group(cluster):
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.user.delete("pods", "team-a", "g-1")
    await create(cluster, member("other", 2, queue="another"))
    await event_says(cluster, "other", "the pods of a group must all be for the same queue")
    await create(cluster, member("again", 2))
    await pods_until(cluster, lambda found: runs(found.get("again", {"status": {}})))


async def test_pending_group_is_misconfigured_when_a_pod_loses_its_queue_label(cluster):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await cluster.record("g", "pending", reason="Suspended")
    await cluster.user.patch("pods", "team-a", "g-0", {"metadata": {"labels": {"sluice.dev/queue-name": None}}})
    await cluster.record("g", "pending", reason="Misconfigured")
    await cluster.says("g", child_sentences.group_of_several_queues({"": ["g-0"], "lq": ["g-1"]}))


def test_message_about_several_queues_names_a_bounded_number_of_pods():
    pods = {"lq": [f"g-{number}" for number in range(5)], "": ["lost"], "other": ["x"], "another": ["y"]}
    assert child_sentences.group_of_several_queues(pods).endswith(
        ": delete those that are for another one (g-0, g-1, g-2 and 2 more for lq; lost for no queue; x for other; ...)"
    )


async def test_fast_admission_starts_first_pod_with_quota_for_the_whole_group(cluster):
    manifests = [member(f"g-{number}") for number in range(3)]
    for each in manifests:
        each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
    await create(cluster, manifests[0])
    await pods_until(cluster, run("g-0"))
    assert await cluster.held("g") == 3000
    await create(cluster, *manifests[1:])
    await pods_until(cluster, run("g-0", "g-1", "g-2"))
    assert await cluster.held("g") == 3000


@pytest.mark.costly
async def test_pods_whose_gate_is_removed_by_a_user_are_deleted(cluster):
    await create(cluster, *(member(f"large-{number}", 4, "large") for number in range(4)))
    await cluster.record("large", "admitted")
    await create(cluster, *(member(f"g-{number}") for number in range(3)))
    await cluster.record("g", "pending", reason="WaitingForQuota")
    gate = {"spec": {"schedulingGates": None}}
    await cluster.user.patch("pods", "team-a", "g-1", gate)
    await pods_until(cluster, lambda found: "g-1" not in found)
    # One pod is moved into the running group, another one out of both groups.
    other = {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "large"}}}
    await cluster.user.patch("pods", "team-a", "g-0", other)
    await cluster.user.patch("pods", "team-a", "g-0", gate)
    alone = {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": None, "sluice.dev/managed": None}}}
    await cluster.user.patch("pods", "team-a", "g-2", {**alone, **gate})
    await pods_until(cluster, lambda found: not {"g-0", "g-2"} & set(found))
    assert await cluster.held("large") == 4000
    bare = member("bare")
    del bare["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"]
    with pytest.raises(Exception, match="must say how many pods the group has"):
        await create(cluster, bare)


async def test_label_that_the_api_server_refuses_to_restore_is_not_requested_without_pause(cluster):
    def refused():
        return sum(count for key, count in cluster.client.requests.items() if key[:2] == ("PATCH", "pods"))

    async def tried_again():
        return refused() >= 2

    await create(cluster, member("g-0"))  # gated: the group is incomplete
    await cluster.record("g", "pending")
    await cluster.cut_off()
    began = asyncio.get_running_loop().time()
    await cluster.user.patch("pods", "team-a", "g-0", {"metadata": {"labels": {MANAGED: None}}})
    await cluster.eventually(tried_again)
    assert asyncio.get_running_loop().time() - began >= _RETRY_DELAY
    await cluster.reconnect()
    await pods_until(cluster, lambda found: MANAGED in found["g-0"]["metadata"]["labels"])
