"""Workloads, and counts and usage in the status of queues, after commits of the controller."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from api_client import on_both_databases
from queue_objects import cluster_queue, cohort, flavor, local_queue
from workload_records import NOW, NOW_TEXT, record

from admission.api.documents.presentation import conditions as conditions_of
from admission.store.records import LastEviction, State
from tests.executed_statements import executed


def conditions(document):
    return {each["type"]: (each["status"], each["reason"]) for each in document["status"]["conditions"]}


async def test_pending_workload_shows_its_requests_and_the_reason_it_is_pending(api, commit):
    await commit(record("u1", "train", reason="WaitingForQuota", message="1 more cpu needed"))
    (item,) = (await api.get("namespaces/a/workloads")).body["items"]
    assert item["metadata"]["name"].startswith("job-train-")
    assert item["metadata"]["uid"] == "u1"
    assert item["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice"}
    assert item["metadata"]["creationTimestamp"] == NOW_TEXT
    assert item["spec"] == {
        "object": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"},
        "queueName": "main",
        "priority": 5,
        "podSets": [{"name": "main", "count": 3, "requests": {"cpu": "500m", "memory": "1Gi"}}],
        "user": "alice",
        "active": True,
        "hold": False,
    }
    assert item["status"]["state"] == "pending"
    (condition,) = item["status"]["conditions"]
    assert condition == {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "WaitingForQuota",
        "message": "1 more cpu needed",
        "lastTransitionTime": NOW_TEXT,
    }


async def test_admitted_workload_shows_its_assigned_flavors_and_conditions(api, commit):
    await commit(record("u1", "train", State.ADMITTED, admitted_at=NOW))
    item = (await api.get("namespaces/a/workloads/train")).body
    assert item["status"]["admission"] == {
        "clusterQueue": "one",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1500m"}, "count": 3}
        ],
    }
    assert conditions(item) == {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted")}
    assert item["status"]["conditions"][1]["lastTransitionTime"] == NOW_TEXT


async def test_workload_being_evicted_has_quota_reserved_and_is_not_admitted(api, commit):
    await commit(record("u1", "train", State.EVICTING, admitted_at=NOW, evict_reason="Preempted"))
    item = (await api.get("namespaces/a/workloads/train")).body
    assert conditions(item) == {
        "QuotaReserved": ("True", "QuotaReserved"),
        "Admitted": ("False", "Evicted"),
        "Evicted": ("True", "Preempted"),
        "Preempted": ("True", "Preempted"),
    }


async def test_finished_workload_has_the_condition_finished_with_its_outcome(api, commit):
    await commit(record("u1", "train", State.FINISHED, finished_at=NOW, outcome="Succeeded"))
    item = (await api.get("namespaces/a/workloads/train")).body
    assert conditions(item) == {"Finished": ("True", "Succeeded")}


@on_both_databases
async def test_jobs_of_the_same_name_have_workloads_of_different_names(api, commit):
    await commit(
        record("u1", "train", State.FINISHED, finished_at=NOW, outcome="Succeeded"),
        record("u2", "train", created=NOW + 60),
        record("u3", "trainer"),
    )
    items = (await api.get("workloads")).body["items"]
    names = [item["metadata"]["name"] for item in items]
    assert len(set(names)) == 3
    for item in items:
        found = (await api.get(f"namespaces/a/workloads/{item['metadata']['name']}")).body
        assert found == item
    # The name of the Job stands for its newest workload.
    assert (await api.get("namespaces/a/workloads/train")).body["metadata"]["uid"] == "u2"


async def test_workload_is_found_among_many_for_jobs_of_the_same_name(api, commit):
    await commit(*(record(f"u{number:02}", "train", created=NOW + number) for number in range(25)))
    items = (await api.get("workloads")).body["items"]
    last = items[-1]
    assert (await api.get(f"namespaces/a/workloads/{last['metadata']['name']}")).body == last


@pytest.mark.parametrize("name", ["nothing", "job-train-00000", "job-train", "-", "a-b"])
async def test_an_unknown_workload_is_not_found(api, commit, name):
    await commit(record("u1", "train"))
    answer = await api.get(f"namespaces/a/workloads/{name}")
    assert (answer.status, answer.body["reason"]) == (404, "NotFound")
    assert answer.body["details"]["kind"] == "workloads"


@on_both_databases
async def test_workload_list_is_paginated(api, commit):
    await commit(*(record(f"u{number}", f"job-{number}", namespace="ab"[number % 2]) for number in range(7)))
    whole = (await api.get("workloads")).body["items"]
    paged, token = [], ""
    while True:
        page = (await api.get("workloads", params={"limit": "3", "continue": token})).body
        paged += page["items"]
        if not (token := page["metadata"].get("continue")):
            break
        assert page["metadata"]["remainingItemCount"] == 7 - len(paged)
    assert paged == whole
    assert len(whole) == 7


@on_both_databases
async def test_queue_status_shows_workload_counts_and_reserved_quota(api, commit):
    await api.post("resourceflavors", flavor("default"))
    await api.post("clusterqueues", cluster_queue("one", cpu="2"))
    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    await commit(
        record("u1", "p1"),
        record("u2", "p2"),
        record("u3", "r1", State.ADMITTED, admitted_at=NOW),
        record("u4", "r2", State.EVICTING, admitted_at=NOW, evict_reason="Preempted"),
    )
    status = (await api.get("clusterqueues/one")).body["status"]
    assert [status[f"{what}Workloads"] for what in ("pending", "reserving", "admitted")] == [2, 2, 1]
    held = [{"name": "default", "resources": [{"name": "cpu", "total": "3", "borrowed": "1"}]}]
    assert status["flavorsReservation"] == held
    local = (await api.get("namespaces/a/localqueues/main")).body["status"]
    assert [local[f"{what}Workloads"] for what in ("pending", "reserving", "admitted")] == [2, 2, 1]
    assert local["flavorsReservation"] == [{"name": "default", "resources": [{"name": "cpu", "total": "3"}]}]


async def test_cluster_queues_and_cohorts_show_their_weighted_share(api, commit):
    """As in Kueue: borrowed quota in thousandths of the lendable quota of the tree, by the weight, rounded up."""
    await api.post("resourceflavors", flavor("default"))
    await api.post("cohorts", cohort("lab", parent="all"))
    weight = {"fairSharing": {"weight": "2"}}
    await api.post("clusterqueues", cluster_queue("one", cpu="1", cohortName="lab", **weight))
    await api.post("clusterqueues", cluster_queue("rich", cpu="10", cohortName="all"))

    async def shares():
        paths = ("clusterqueues/one", "cohorts/lab", "clusterqueues/rich")
        return [(await api.get(path)).body["status"]["fairSharing"]["weightedShare"] for path in paths]

    assert await shares() == [0, 0, 0]
    await commit(*(record(uid, uid, State.ADMITTED, admitted_at=NOW) for uid in ("u1", "u2")))
    # The two workloads hold 3 of 11 CPUs, of which 2 are borrowed.
    assert await shares() == [math.ceil(2000 / 11 / 2), math.ceil(2000 / 11), 0]


async def test_usage_of_a_flavor_without_quota_is_shown_as_borrowed(api, commit):
    await api.post("clusterqueues", cluster_queue("one", flavor="other"))
    await commit(record("u1", "r1", State.ADMITTED, admitted_at=NOW))
    status = (await api.get("clusterqueues/one")).body["status"]
    assert status["flavorsReservation"] == [
        {"name": "other", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]},
        {"name": "default", "resources": [{"name": "cpu", "total": "1500m", "borrowed": "1500m"}]},
    ]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_workloads_cannot_be_created_replaced_or_deleted(api, method):
    for path, allowed in [
        ("namespaces/a/workloads", "GET"), ("namespaces/a/workloads/train", "GET,PATCH"), ("workloads", "GET"),
    ]:  # fmt: skip
        answer = await api.send(method, path, {})
        assert answer.status == 405
        assert answer.headers["Allow"] == allowed


@pytest.mark.parametrize(
    ("evicted", "reason", "requeued"),
    [
        ("ClusterQueueStopped", "Suspended", ("False", "ClusterQueueStopped")),
        ("LocalQueueStopped", "Suspended", ("False", "LocalQueueStopped")),
        ("ClusterQueueStopped", "WaitingForQuota", ("True", "ClusterQueueRestarted")),
        ("OnHold", "OnHold", ("False", "OnHold")),
        ("Preempted", "Suspended", ("False", "Suspended")),
        ("Preempted", "OnHold", ("False", "OnHold")),
        ("Preempted", "WaitingForQuota", ("True", "Preempted")),
        ("DeactivatedDueToAdmissionCheck", "WaitingForQuota", ("True", "Reactivated")),
    ],
)
def test_condition_requeued_is_false_while_a_workload_is_kept_out_of_the_queue(evicted, reason, requeued):
    """Kueue's semantics: `Requeued` is False while a queue is stopped, and True as soon as the queue is restarted."""
    waits = replace(
        record("u1", "train"), eviction=LastEviction(evicted, "why", 5.0), reason=reason, message="so it is"
    )
    found = {each["type"]: each for each in conditions_of(waits, now=10.0)}["Requeued"]
    assert (found["status"], found["reason"]) == requeued
    assert found["message"] == ("so it is" if requeued[0] == "False" else "It queues again.")


async def test_the_lookup_of_a_workload_counts_no_others(api, commit):
    await commit(*(record(f"u{number}", f"train-{number:02}") for number in range(30)))
    with executed("count(") as counts:
        assert (await api.get("namespaces/a/workloads/train-07")).body["metadata"]["uid"] == "u7"
    assert counts == []
