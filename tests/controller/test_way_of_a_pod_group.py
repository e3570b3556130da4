"""Lifecycle of pod groups with the webhook: they start as a whole, and end as a whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import count

import pytest
from job_examples import TOLERATION, cluster_queue, job, local_queue
from pod_examples import pod
from pod_groups import KINDS, create, event_says, member, pods_until, run, running_cluster, runs

from admission.cluster.writer import IN_FLIGHT
from admission.model import child_sentences
from admission.sandbox.apiserver.errors import ApiError

FAIL_TWO = {
    "metadata": {"name": "cut"},
    "webhooks": [
        {
            "name": "cut.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/nobody-listens"},
            "matchConditions": [{"name": "some", "expression": "object.metadata.name in ['g-1', 'g-3']"}],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}],
        }
    ],
}
"""Webhook configuration that fails each update of the pods g-1 and g-3, as its URL is unreachable."""


@pytest.fixture
async def cluster(world, tmp_path):
    async with running_cluster(world, tmp_path) as running:
        yield running


async def patched(cluster, number, **others):
    """Wait until `number` pods (and `others` by resource) were patched, and check that there were no other patches."""

    async def look():
        return sum(count for key, count in cluster.client.requests.items() if key[:2] == ("PATCH", "pods")) >= number

    await cluster.eventually(look)
    assert {key: count for key, count in cluster.client.requests.items() if key[0] == "PATCH"} == {
        ("PATCH", resource, "200"): count for resource, count in {"pods": number, **others}.items()
    }


@pytest.mark.costly
async def test_pod_group_starts_as_a_whole_and_releases_quota_as_its_pods_end(cluster):
    await create(cluster, member("g-0", cpu="2", seconds=240), member("g-1"))
    record = await cluster.record("g", "pending", reason="PendingEvaluation")
    assert record.workload.kind == "PodGroup"
    await cluster.says("g", "It starts as a whole, and 2 of its 3 pods are there.")
    await create(cluster, member("g-2"))
    running = await pods_until(cluster, run("g-0", "g-1", "g-2"))
    for obj in running.values():
        assert obj["spec"]["nodeSelector"] == {"type": "kwok"}
        assert TOLERATION in obj["spec"]["tolerations"]
    assert await cluster.held("g") == 4000
    await patched(cluster, 3)
    await cluster.holds(2000, "g")  # the first has ended
    await cluster.end_pods("Succeeded", "g-1", "g-2")
    over = await cluster.record("g", "finished")
    assert (over.outcome, over.message) == ("Succeeded", "Pods succeeded: 3/3.")


async def test_priority_class_of_pods_sets_priority_of_the_group(cluster):
    await cluster.user.create("priorityclasses", "", {"metadata": {"name": "soon"}, "value": 7})
    await create(cluster, *(member(f"g-{number}", priorityClassName="soon") for number in range(3)))
    await pods_until(cluster, run("g-0", "g-1", "g-2"))
    assert (await cluster.record("g", "admitted")).workload.priority == 7


@pytest.mark.costly
async def test_evicted_group_holds_quota_until_its_last_pod_is_gone(cluster):
    stubborn = member("g-2", terminationGracePeriodSeconds=400)
    stubborn["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "300"
    await create(cluster, member("g-0"), member("g-1"), stubborn)
    await pods_until(cluster, run("g-0", "g-1", "g-2"))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster, lambda found: set(found) == {"g-2"})
    assert await cluster.held("g") == 3000
    over = await cluster.record("g", "finished")
    assert over.outcome == "Evicted"
    assert cluster.user.list("pods", "team-a") == []


async def test_gated_replacement_pod_survives_eviction_and_queues_with_new_pods(cluster):
    stubborn = member("g-1", total=2, terminationGracePeriodSeconds=400)
    stubborn["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
    await create(cluster, member("g-0", total=2), stubborn)
    await pods_until(cluster, run("g-0", "g-1"))
    uid = (await cluster.record("g", "admitted")).workload.uid
    await cluster.user.delete("pods", "team-a", "g-1")
    await create(cluster, member("in-place", total=2))
    await event_says(cluster, "in-place", child_sentences.beyond_group("g", 2))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster, lambda found: set(found) == {"g-1", "in-place"})
    await cluster.user.delete("pods", "team-a", "g-1", grace=0)
    await cluster.says("g", "It starts as a whole, and 1 of its 2 pods are there.")
    await cluster.apply(cluster_queue())
    await create(cluster, member("g-0", total=2))
    await pods_until(cluster, run("g-0", "in-place"))
    assert (await cluster.record("g", "admitted")).workload.uid == uid


async def test_group_whose_pods_succeed_during_eviction_ends_as_evicted(cluster):
    members = [member(f"g-{number}", total=2, cpu="1", terminationGracePeriodSeconds=4_000_000) for number in range(2)]
    for each in members:
        each["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "3000000"
    await create(cluster, *members)
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster, lambda found: all("deletionTimestamp" in each["metadata"] for each in found.values()))
    await cluster.end_pods("Succeeded", "g-0", "g-1")
    await create(cluster, pod("other", cpu="1"))
    await cluster.record("other", "pending")  # all earlier events are processed by now
    for name in ("g-0", "g-1"):
        with suppress(ApiError):  # it is gone by now
            await cluster.user.delete("pods", "team-a", name, grace=0)
    assert (await cluster.record("g", "finished")).outcome == "Evicted"


@pytest.mark.parametrize("retriable", ["true", "false"])
async def test_evicted_group_whose_failed_pods_remain_for_a_while_ends_as_evicted(cluster, retriable):
    members = [member(f"g-{number}", total=2, cpu="1") for number in range(2)]
    for each in members:
        each["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = retriable
        each["metadata"]["finalizers"] = ["example.com/logs"]
    await create(cluster, *members)
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster, lambda found: {each["status"]["phase"] for each in found.values()} == {"Failed"})
    await cluster.record("g", "pending")
    assert await cluster.held("g") == 0
    for name in ("g-0", "g-1"):
        await cluster.user.patch("pods", "team-a", name, {"metadata": {"finalizers": None}})
    over = await cluster.record("g", "finished")
    assert over.outcome == "Evicted"
    assert over.message.startswith("ClusterQueue cq is stopped (stopPolicy HoldAndDrain)")


async def test_start_patch_that_fails_three_times_is_reported_and_retried(cluster):
    refused = {"match": {"user": "sluice", "verb": "patch", "name": "g-1"}, "do": "error", "code": 500}
    cluster.sandbox.faults.install({"rules": [refused]})
    await create(cluster, *(member(f"g-{number}", total=2, cpu="1") for number in range(2)))
    problem = await cluster.record("g", "admitted", reason="PodsUnscheduled")
    assert cluster.sandbox.faults.describe()["rules"][0]["struck"] == 3
    assert "an injected fault" in problem.message
    cluster.sandbox.faults.remove()
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.record("g", "admitted", reason="Admitted")


@pytest.mark.costly
async def test_eviction_keeps_succeeded_pod_whose_watch_event_is_late(cluster):
    await create(cluster, *(member(f"g-{number}", total=2, cpu="1") for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    await cluster.end()
    late = {"match": {"verb": "watch", "resource": "pods"}, "do": "reorder", "seconds": 0.4}
    cluster.sandbox.faults.install({"rules": [late]})
    await cluster.start(kinds=KINDS)
    await cluster.end_pods("Succeeded", "g-0")
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    assert "g-0" in await pods_until(cluster, lambda found: "g-1" not in found)
    await cluster.says("g", "It starts as a whole, and 1 of its 2 pods are there.")


@pytest.mark.costly
async def test_continuously_edited_pod_is_evicted(cluster):
    await create(cluster, member("g-0", total=1, cpu="1"))
    await pods_until(cluster, run("g-0"))
    changing = asyncio.create_task(changed_all_the_time(cluster, "g-0"))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster, lambda found: "g-0" not in found)
    await changing


async def changed_all_the_time(cluster, name):
    with suppress(ApiError):  # until it is gone
        for number in count():
            await cluster.user.patch("pods", "team-a", name, {"metadata": {"annotations": {"n": str(number)}}})
            await asyncio.sleep(0.001)


@pytest.mark.costly
async def test_partly_started_group_is_completely_started_after_restart(cluster):
    await cluster.user.create("validatingwebhookconfigurations", "", FAIL_TWO)
    await create(cluster, *(member(f"g-{number}", 4) for number in range(4)))
    await pods_until(cluster, lambda found: [*map(runs, found.values())].count(True) == 2)
    await cluster.end()
    await cluster.user.delete("validatingwebhookconfigurations", "", "cut")
    before = Counter(cluster.client.requests)
    await cluster.start(kinds=KINDS)
    await pods_until(cluster, run("g-0", "g-1", "g-2", "g-3"))
    assert await cluster.held("g") == 4000
    assert cluster.client.requests[("PATCH", "pods", "200")] - before[("PATCH", "pods", "200")] == 2


async def test_pods_that_ended_before_the_last_start_cause_no_requeue(cluster):
    await cluster.user.create("validatingwebhookconfigurations", "", FAIL_TWO)
    await create(cluster, *(member(f"g-{number}") for number in range(3)))
    await pods_until(cluster, lambda found: runs(found["g-0"]) and runs(found["g-2"]))
    await cluster.end_pods("Succeeded", "g-0", "g-2")
    await create(cluster, member("h-0", 1, group="h"))  # Sluice observes it after the end of those pods
    await pods_until(cluster, lambda found: runs(found["h-0"]))
    await cluster.user.delete("validatingwebhookconfigurations", "", "cut")
    await pods_until(cluster, lambda found: runs(found["g-1"]))
    reasons = [reason for reason, _ in await cluster.history("g") if reason in ("Admitted", "OutOfSync")]
    assert reasons == ["Admitted"]


async def test_failed_pod_is_replaced_under_the_same_admission(cluster):
    await create(cluster, *(member(f"g-{number}") for number in range(3)))
    await pods_until(cluster, run("g-0", "g-1", "g-2"))
    await cluster.user.patch("pods", "team-a", "g-1", {"status": {"phase": "Failed"}}, subresource="status")
    await create(cluster, member("again"))
    await pods_until(cluster, lambda found: found.get("again", {"status": {}})["status"].get("phase") == "Running")
    again = cluster.user.get("pods", "team-a", "again")
    assert again["spec"]["nodeSelector"] == {"type": "kwok"}
    assert await cluster.held("g") == 3000
    await create(cluster, member("too-many"))
    await pods_until(cluster, lambda found: "too-many" not in found)
    assert await cluster.held("g") == 3000


async def test_surplus_pods_of_a_running_group_get_an_event_with_the_reason(cluster):
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    await create(cluster, member("more", 2))
    await event_says(cluster, "more", child_sentences.PODS_BEYOND_GROUP)
    owned = member("owned", 2)
    owner = await cluster.user.create("configmaps", "team-a", {"metadata": {"name": "operator"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "operator", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    await create(cluster, owned)
    await event_says(cluster, "owned", child_sentences.beyond_group("g", 2))
    other = member("other", 2, cpu="2")
    other["metadata"]["ownerReferences"] = owned["metadata"]["ownerReferences"]
    await create(cluster, other)
    await event_says(cluster, "other", child_sentences.beyond_group("g", 0))


@pytest.mark.costly
async def test_evicted_group_requests_quota_for_the_group_size_of_its_new_pods(cluster):
    fast = {"kueue.x-k8s.io/pod-group-fast-admission": "true"}
    old = [member(f"g-{number}", terminationGracePeriodSeconds=400) for number in range(3)]
    for each in old:
        each["metadata"]["annotations"] |= {"sandbox.sluice.dev/stop-seconds": "300", **fast}
    await create(cluster, *old)
    await pods_until(cluster, run("g-0", "g-1", "g-2"))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record("g", "evicting")
    new = member("new", 2)
    new["metadata"]["annotations"] |= fast
    await create(cluster, new)
    await cluster.record("g", "pending", reason="Suspended")
    await cluster.apply(cluster_queue())
    await pods_until(cluster, run("new"))
    assert await cluster.held("g") == 2000


@pytest.mark.costly
async def test_group_with_non_retriable_pod_fails_when_no_pod_runs(cluster):
    manifests = [member(f"g-{number}", 2) for number in range(2)]
    manifests[0]["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = "false"
    await create(cluster, *manifests)
    await pods_until(cluster, run("g-0", "g-1"))
    for name, phase in (("g-0", "Succeeded"), ("g-1", "Failed")):
        await cluster.user.patch("pods", "team-a", name, {"status": {"phase": phase}}, subresource="status")
    over = await cluster.record("g", "finished")
    assert (over.outcome, over.message) == ("Failed", "Pods succeeded: 1/2.")


@pytest.mark.costly
async def test_name_of_a_finished_group_can_be_reused(cluster):
    for turn in ("old", "new"):
        await create(cluster, *(member(f"{turn}-{number}", 2) for number in range(2)))
        names = [f"{turn}-0", f"{turn}-1"]
        await pods_until(cluster, lambda found, names=names: all(runs(found[name]) for name in names))
        assert await cluster.held("g") == 2000
        if turn == "new":
            await cluster.end()
            await cluster.start(kinds=KINDS)
        for name in names:
            await cluster.user.patch("pods", "team-a", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            await cluster.holds(1000 if name == names[0] else 0, "g")
    await cluster.record("g", "finished")


async def test_surplus_pods_start_as_a_new_group_after_the_group_has_finished(cluster):
    await create(cluster, *(member(f"g-{number}", 2) for number in range(2)))
    await pods_until(cluster, run("g-0", "g-1"))
    configmap = await cluster.user.create("configmaps", "team-a", {"metadata": {"name": "operator"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "operator", "uid": configmap["metadata"]["uid"]}
    beside = [member(f"beside-{number}", 2) for number in range(2)]
    for each in beside:
        each["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    await create(cluster, *beside)
    await event_says(cluster, "beside-1", child_sentences.beyond_group("g", 2))
    await cluster.end_pods("Succeeded", "g-0", "g-1")
    await pods_until(cluster, lambda found: all(runs(found[name]) for name in ("beside-0", "beside-1")))
    await cluster.holds(2000, "g")


@pytest.mark.costly
async def test_large_group_takes_one_patch_per_pod_and_does_not_delay_other_jobs(cluster):
    await cluster.apply(cluster_queue(cpu="250"), cluster_queue("others"), local_queue("other", "others"))
    faults, match = cluster.sandbox.faults, {"verb": "patch", "resource": "pods"}
    held_up = {"match": match, "do": "delay", "seconds": 600}
    faults.install({"rules": [held_up]})
    await create(cluster, *(member(f"g-{number}", 250, cpu="1") for number in range(250)))

    async def as_many_as_go_at_once():
        return faults.describe()["rules"][0]["struck"] == IN_FLIGHT

    await cluster.eventually(as_many_as_go_at_once)
    await cluster.submit(job("other", queue="other"))
    await cluster.record("other", "admitted")
    faults.install({"rules": [held_up]})  # requests in flight complete, and the next ones are delayed
    await cluster.eventually(lambda: runs_by_now(cluster, "other"))
    faults.remove()
    await pods_until(cluster, lambda found: not any(obj["spec"].get("schedulingGates") for obj in found.values()))
    await patched(cluster, 250, jobs=1)
    assert await cluster.held("g") == 250_000


async def runs_by_now(cluster, name):
    return not cluster.user.get("jobs", "team-a", name)["spec"]["suspend"]
