"""`/session/workloads`: filters, orders, offsets and groups of the search among workloads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from api_client import Client, on_both_databases, serving
from queue_objects import cluster_queue, local_queue
from workload_records import ADMISSION, NOW, record

from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.records import Changes, Closed, Opened, State
from admission.store.store import Store

HOUR = 3600.0


@pytest.fixture
async def filled(store: Store, commit: Callable[..., Awaitable[int]]) -> AsyncIterator[Client]:
    """Six workloads at noon: of alice and bob, in two namespaces, in all states."""
    await store.queues.create(parse_manifest(cluster_queue("one")), author=Author("ada"))
    await store.queues.create(parse_manifest(local_queue("main", "a", "one")), author=Author("ada"))
    done: dict[str, Any] = {"state": State.FINISHED, "admitted_at": NOW - 5 * HOUR}
    await commit(
        record("1", "waits-long", reason="ExceedsMaxQuota", created=NOW - 9, priority=1),
        record("2", "waits", namespace="b", user="bob", reason="WaitingForQuota", created=NOW - 8, priority=9),
        record("3", "runs", State.ADMITTED, admitted_at=NOW - HOUR, created=NOW - 7),
        record("4", "stops", State.EVICTING, user="bob", admitted_at=NOW - 60, created=NOW - 6, reason="Preempted"),
        record("5", "failed", finished_at=NOW - 60, outcome="Failed", created=NOW - 5, reason="Failed", **done),
        record("6", "went_well", finished_at=NOW - 4 * HOUR, outcome="Succeeded", created=NOW - 4, **done),
    )
    async with serving(store, options={"now": lambda: NOW}) as api:
        yield api


async def names(api: Client, query: str) -> list[str]:
    """Names of the objects of the found workloads, in order."""
    answer = await api.get(f"/session/workloads?{query}")
    assert answer.status == 200, answer.body
    return [item["spec"]["object"]["name"] for item in answer.body["items"]]


SEARCHES: tuple[tuple[str, list[str]], ...] = (
    ("", ["stops", "runs", "waits-long", "waits", "failed", "went_well"]),
    ("order=newest", ["went_well", "failed", "stops", "runs", "waits", "waits-long"]),
    ("order=priority", ["waits", "runs", "stops", "failed", "went_well", "waits-long"]),
    ("order=name&limit=2&offset=1", ["runs", "stops"]),
    ("offset=6", []),
    ("from=1h", ["stops", "runs", "waits-long", "waits", "failed"]),
    ("state=Failed&state=pending", ["waits-long", "waits", "failed"]),
    ("state=finished", []),
    ("reason=ExceedsMaxQuota", ["waits-long"]),
    ("user=bob", ["stops", "waits"]),
    ("namespace=b&user=bob", ["waits"]),
    ("queue=main&kind=Job&state=admitted", ["runs"]),
    ("kind=RayJob", []),
    ("clusterqueue=one", ["stops", "runs", "waits-long", "failed", "went_well"]),  # b has no such LocalQueue
    ("clusterqueue=", ["waits"]),
    ("find=WAITS", ["waits-long", "waits"]),
    ("find=BO", ["stops", "waits"]),
    ("find=went_", ["went_well"]),
    ("find=t_", ["went_well"]),
    ("find=%25", []),
    ("find=!", []),
    ("find=5", ["failed"]),
)
"""Queries, and what they find."""


@on_both_databases
async def test_workloads_are_filtered_and_sorted(filled: Client) -> None:
    assert {query: await names(filled, query) for query, _ in SEARCHES} == dict(SEARCHES)


async def test_workloads_that_are_evicted_again_and_again_are_found(filled: Client, store: Store) -> None:
    assert await names(filled, "evicted=again") == []
    epoch, often = await store.lead("another"), record("1", "waits-long", reason="ExceedsMaxQuota", created=NOW - 9)
    for at in (NOW - 300, NOW - 200, NOW - 100):
        await store.commit(Changes(opened=(Opened(often.workload, ADMISSION, at),)), epoch=epoch)
        await store.commit(Changes(closed=(Closed("1", at + 1, "Preempted"),)), epoch=epoch)
    revision = await store.commit(Changes(workloads=(often,)), epoch=epoch)
    assert await names(filled, f"evicted=again&resourceVersion={revision}") == ["waits-long"]
    assert await names(filled, f"evicted=again&user=bob&resourceVersion={revision}") == []


@on_both_databases
async def test_the_total_does_not_depend_on_the_page(filled: Client) -> None:
    for page in ("", "&limit=1", "&limit=1&offset=2", "&offset=4", "&offset=40"):
        assert (await filled.get(f"/session/workloads?state=pending&state=admitted{page}")).body["metadata"][
            "total"
        ] == 3


@on_both_databases
async def test_workloads_are_counted_by_group(filled: Client) -> None:
    groups = (await filled.get("/session/workloads?by=user&from=1h")).body["items"]
    assert groups == [
        {"value": "alice", "counts": {"pending": 1, "admitted": 1, "Failed": 1}, "oldest": "2025-06-15T15:06:40Z"},
        {"value": "bob", "counts": {"pending": 1, "evicting": 1}, "oldest": "2025-06-15T15:06:40Z"},
    ]
    queues = (await filled.get("/session/workloads?by=clusterqueue&state=pending")).body["items"]
    assert [(group["value"], group["counts"]) for group in queues] == [("", {"pending": 1}), ("one", {"pending": 1})]


async def test_a_response_is_as_new_as_the_client_asks(filled: Client, commit: Callable[..., Awaitable[int]]) -> None:
    assert await names(filled, "state=admitted") == ["runs"]
    revision = await commit(record("7", "new", State.ADMITTED, admitted_at=NOW))
    assert await names(filled, f"state=admitted&resourceVersion={revision}") == ["new", "runs"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("by=colour", 'by: workloads cannot be grouped by "colour"; give one of state, reason, user'),
        ("order=colour", 'order: "colour" is not one of state, newest'),
        ("limit=501", "limit: give at most 500"),
        ("offset=-1", 'offset: "-1" is not a number'),
        ("from=yesterday", 'from: "yesterday" is not a time'),
        (f"find={'x' * 101}", "find: give at most 100 characters"),
    ],
)
async def test_wrong_parameters_are_explained(filled: Client, query: str, said: str) -> None:
    answer = await filled.get(f"/session/workloads?{query}")
    assert (answer.status, answer.body["message"][: len(said)]) == (400, said)


@on_both_databases
async def test_text_that_no_database_can_store_finds_nothing(filled: Client) -> None:
    for query in ("find=%00", "user=%00", "namespace=%00"):
        assert (await filled.get(f"/session/workloads?{query}")).status in (200, 400), query
