"""Query plans: queries for pending workloads read the index of unfinished ones, not all that are kept for months."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from executed_statements import executed
from store_examples import cluster_queue, flavor, local_queue, pending, workload

from admission.store.audit_log import Author
from admission.store.notifications import WorkloadScope
from admission.store.records import Changes
from admission.store.workloads.places import QueuePlace
from admission.store.workloads.search import WorkloadQuery


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


async def attention(store):
    await store.workloads.waiting()


async def users(store):
    await store.workloads.waiting_users()


async def statuses(store):
    await store.workloads.cluster_queue_status()


async def notifications(store):
    await store.notifications.waiting(WorkloadScope(), queued_after=None, queued_by=2e9, limit=10)


async def exchange_of_places(store):
    await store.orders.give("b", author=Author("ada"), place=QueuePlace(before="a"), within_namespace=True)


async def search(store):
    await store.workloads.search(WorkloadQuery(frozenset({"team-a"}), text="a", since=1.0), limit=10)


@pytest.mark.parametrize("query", [attention, users, statuses, notifications, exchange_of_places, search])
async def test_query_for_pending_workloads_reads_the_index_of_unfinished_ones(store, database_url, query):
    epoch = await store.lead("test")
    for obj in (flavor(), cluster_queue(), local_queue()):
        await store.queues.create(obj, author=Author("ada"))
    await store.commit(Changes(workloads=(pending(workload("a")), pending(workload("b")))), epoch=epoch)
    with executed("SELECT", "workloads.state =") as statements:
        await query(store)
    with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
        plan = [
            step
            for statement in statements
            for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))
        ]
    assert any("ix_workloads_unfinished" in step for step in plan), plan
