"""The preview of a calendar: coming changes, and the workloads that the next one evicts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from api_client import Client
from one_queue import job, one_queue, submitted
from queue_objects import cluster_queue, cohort
from workload_records import NOW

from admission.store.records import State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock


@pytest.fixture
async def api(store: Store, clock: Callable[[], float]) -> AsyncIterator[Client]:
    async with one_queue(store, clock) as client:
        yield client


def calendar(*, start: float, end: float, quota: str) -> dict[str, Any]:
    first, last = (datetime.fromtimestamp(NOW + each, UTC).isoformat()[:19] for each in (start, end))
    quotas = [{"flavor": "default", "resource": "cpu", "nominalQuota": quota}]
    return {"calendar": {"entries": [{"name": "night", "start": first, "end": last, "quotas": quotas}]}}


def limited(found: WorkloadRecord, seconds: int) -> WorkloadRecord:
    return replace(found, workload=replace(found.workload, max_seconds=seconds))


async def test_preview_lists_changes_and_whom_the_next_one_evicts(api: Client, store: Store) -> None:
    spec = calendar(start=3600, end=7200, quota="1") | {"overQuota": {"evictAfterSeconds": 60}}
    assert (await api.put("clusterqueues/one", cluster_queue("one", **spec))).status == 200
    await submitted(
        store,
        job("short", state=State.ADMITTED, admitted_at=NOW, age=3),
        limited(job("over", state=State.ADMITTED, admitted_at=NOW, age=2), 3000),
        job("stays", state=State.ADMITTED, admitted_at=NOW, age=4, priority=9),
    )
    found = (await api.get("clusterqueues/one/calendar")).body
    assert [[*each["quotas"]] for each in found["changes"]] == [
        [{"flavor": "default", "resource": "cpu", "from": "4", "to": "1", "entry": "night"}],
        [{"flavor": "default", "resource": "cpu", "from": "1", "to": "4", "entry": ""}],
    ]
    assert found["applied"] == []
    # 500m each and three pods: one of three has ended by its time limit, the others need 3 of the 1 CPU that is left.
    assert found["impact"]["counts"]["evicted"] == 2
    (only,) = (await api.get("clusterqueues/one/calendar?limit=1")).body["changes"]
    assert only["at"] == found["changes"][0]["at"]


async def test_time_limit_begins_when_all_checks_are_ready(api: Client, store: Store) -> None:
    spec = calendar(start=3600, end=7200, quota="1") | {"overQuota": {"evictAfterSeconds": 60}}
    assert (await api.put("clusterqueues/one", cluster_queue("one", **spec))).status == 200
    held = limited(job("checked", state=State.ADMITTED, admitted_at=NOW - 2000), 4000)
    await submitted(store, replace(held, cleared_at=NOW - 100))
    assert (await api.get("clusterqueues/one/calendar")).body["impact"]["counts"]["evicted"] == 1


async def test_quota_of_now_is_shown_and_given_by_no_manifest(api: Client) -> None:
    spec = calendar(start=-60, end=600, quota="9")
    written = await api.put("clusterqueues/one", cluster_queue("one", **spec))
    (quota,) = written.body["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert (quota["nominalQuota"], quota["currentQuota"]) == ("4", "9")
    found = (await api.get("clusterqueues/one/calendar")).body
    assert [(each["quota"], each["entry"]) for each in found["applied"]] == [("9", "night")]
    forged = cluster_queue("one")
    forged["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["currentQuota"] = "1000"
    written = await api.put("clusterqueues/one", forged)
    assert "currentQuota" not in written.body["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]


async def test_queue_without_a_calendar_has_no_changes(api: Client) -> None:
    found = (await api.get("clusterqueues/one/calendar")).body
    assert (found["changes"], found["applied"], "impact" in found) == ([], [], False)
    assert (await api.post("cohorts", cohort("all"))).status == 201
    assert (await api.get("cohorts/all/calendar")).body["changes"] == []
    assert (await api.get("clusterqueues/none/calendar")).status == 404


async def test_manifest_that_is_written_again_changes_neither_the_object_nor_its_owner(
    api: Client, clock: Clock
) -> None:
    spec = calendar(start=-60, end=600, quota="9")
    manifest = cluster_queue("one", **spec)
    manifest["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] |= {"fromNodes": {"percent": 60}}
    del manifest["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]
    first = (await api.put("clusterqueues/one", manifest)).body["metadata"]
    clock.advance(5)
    again = (await api.put("clusterqueues/one?fieldManager=other", manifest)).body["metadata"]
    assert again["resourceVersion"] == first["resourceVersion"]
    assert [each["manager"] for each in again["managedFields"]] == [each["manager"] for each in first["managedFields"]]


async def test_explanation_tells_of_more_quota_that_comes(api: Client, store: Store) -> None:
    assert (
        await api.put("clusterqueues/one", cluster_queue("one", **calendar(start=3600, end=7200, quota="9")))
    ).status == 200
    await submitted(store, job("large", cpu=2000))
    found = (await api.get("namespaces/a/workloads/large/explain")).body
    assert found["reason"] == "ExceedsMaxQuota"
    when = datetime.fromtimestamp(NOW + 3600, UTC).strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
    assert found["sentences"][-1] == f"From {when} UTC on, ClusterQueue one has 9 cpu of default, and not only 4."
