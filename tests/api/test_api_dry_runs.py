"""Dry runs: writes that cannot have an impact read no workloads; all others are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from api_client import Client, on_both_databases
from one_queue import DRY, job, one_queue, submitted
from queue_objects import admission_check, cluster_queue, cohort, flavor, local_queue, priority_class
from workload_records import NOW

from admission.store.records import State
from admission.store.store import Store
from tests.executed_statements import executed

NOTHING = {
    "counts": {"admitted": 0, "evicted": 0, "impossible": 0},
    "admitted": [],
    "evicted": [],
    "impossible": [],
    "overQuota": [],
}
QUEUE = "namespaces/a/localqueues/main"
LABELS = {"team": "a"}


@pytest.fixture
async def api(store: Store, clock: Callable[[], float]) -> AsyncIterator[Client]:
    """The API with one object of each kind; its workloads are admitted, admissible, waiting, and too large."""
    async with one_queue(store, clock) as client:
        for path, document in (
            ("cohorts", cohort("all")),
            ("admissionchecks", admission_check("budget")),
            ("workloadpriorityclasses", priority_class("high", 5)),
        ):
            assert (await client.post(path, document)).status == 201
        await submitted(
            store,
            job("runs", state=State.ADMITTED, admitted_at=NOW, age=3),
            job("fits", age=2),
            job("waits", cpu=700, age=1),
            job("large", cpu=2000),
        )
        yield client


def labelled(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "labels": LABELS}}


UNCHANGED = {
    "resourceflavors/default": flavor("default"),
    "cohorts/all": cohort("all"),
    "clusterqueues/one": cluster_queue("one"),
    QUEUE: local_queue("main", "a", "one"),
    "admissionchecks/budget": admission_check("budget"),
    "workloadpriorityclasses/high": priority_class("high", 5),
}
WITHOUT_EFFECT = {
    **{path: labelled(document) for path, document in UNCHANGED.items()},
    "admissionchecks/budget": {**admission_check("budget"), "spec": {"controllerName": "example.com/other"}},
    "workloadpriorityclasses/high": priority_class("high", 6),
}


@pytest.mark.costly
@on_both_databases
async def test_a_dry_run_without_effect_on_decisions_reads_no_workloads(api: Client) -> None:
    for documents in (UNCHANGED, WITHOUT_EFFECT):
        for path, document in documents.items():
            with executed("FROM pod_sets") as loads:
                answer = await api.put(path, document, params=DRY)
            assert (answer.status, answer.body["status"]["impact"], len(loads)) == (200, NOTHING, 0), path
            with executed("FROM pod_sets") as loads:
                answer = await api.patch(path, document, form="apply", fieldManager="x", force="true", **DRY)
            assert (answer.status, answer.body["status"]["impact"], len(loads)) == (200, NOTHING, 0), path


async def test_dry_run_of_priority_class_creation_and_deletion_reads_no_workloads(api: Client) -> None:
    with executed("FROM pod_sets") as loads:
        created = await api.post("workloadpriorityclasses", priority_class("low", 1), params=DRY)
        deleted = await api.delete("workloadpriorityclasses/high", params=DRY)
    assert (created.status, deleted.status, len(loads)) == (201, 200, 0)
    assert created.body["status"]["impact"] == deleted.body["details"]["impact"] == NOTHING


async def test_dry_run_of_a_rollback_to_an_equal_spec_reads_no_workloads(api: Client) -> None:
    first = (await api.get("clusterqueues/one")).body["metadata"]["resourceVersion"]
    await api.put("clusterqueues/one", labelled(cluster_queue("one")))
    with executed("FROM pod_sets") as loads:
        answer = await api.post("clusterqueues/one/rollback", {"kind": "Rollback", "revision": first}, params=DRY)
    assert (answer.status, answer.body["status"]["impact"], len(loads)) == (200, NOTHING, 0)
    assert "labels" not in answer.body["metadata"]


@pytest.mark.parametrize(
    ("path", "document", "counts"),
    [
        ("clusterqueues/one", cluster_queue("one", cpu="7"), {"admitted": 1, "evicted": 0, "impossible": 0}),
        ("clusterqueues/one", cluster_queue("one", cpu="2"), {"admitted": 0, "evicted": 0, "impossible": 1}),
        (QUEUE, local_queue("main", "a", "gone"), {"admitted": 0, "evicted": 0, "impossible": 1}),
    ],
)
async def test_dry_run_of_a_spec_change_simulates_its_impact(
    api: Client, path: str, document: dict[str, Any], counts: dict[str, int]
) -> None:
    with executed("FROM pod_sets") as loads:
        answer = await api.put(path, document, params=DRY)
    assert answer.body["status"]["impact"]["counts"] == counts
    assert len(loads) == 1


async def test_dry_runs_of_creating_and_deleting_queue_objects_are_simulated(api: Client) -> None:
    assert (await api.delete(QUEUE)).status == 200
    with executed("FROM pod_sets") as loads:
        created = await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"), params=DRY)
        applied = await api.patch(QUEUE, local_queue("main", "a", "one"), form="apply", fieldManager="x", **DRY)
        deleted = await api.delete("admissionchecks/budget", params=DRY)
    assert (created.status, applied.status, deleted.status, len(loads)) == (201, 201, 200, 3)
    assert created.body["status"]["impact"]["counts"]["admitted"] == 1
    assert applied.body["status"]["impact"] == created.body["status"]["impact"]
