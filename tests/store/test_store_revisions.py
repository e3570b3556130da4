"""Whoever has read everything up to one revision hears of the next, in whichever process it was written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from store_examples import flavor, pending, workload

from admission.store.audit_log import Author
from admission.store.objects.revisions import Revisions
from admission.store.records import Changes
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Store]:
    """The same database as another process sees it."""
    async with Store.open(database_url) as opened:
        yield opened


async def test_what_this_process_writes_is_told_at_once(store: Store):
    since = await store.queues.revision()
    waiting = [asyncio.create_task(store.revisions.wait_for(since)) for _ in range(2)]
    await asyncio.sleep(0)
    await store.queues.create(flavor(), author=Author("ada"), dry_run=True)
    assert not any(task.done() for task in waiting)
    await store.queues.create(flavor(), author=Author("ada"))
    assert await asyncio.gather(*waiting) == [since + 1, since + 1]
    assert await store.revisions.wait_for(since) == since + 1


async def test_what_another_process_writes_is_noticed(store: Store, other: Store):
    since = await store.queues.revision()
    waiting = asyncio.create_task(store.revisions.wait_for(since))
    ordered = asyncio.create_task(store.revisions.wait_for_external(since))
    await other.queues.create(flavor(), author=Author("ada"))
    assert await waiting == since + 1
    assert await ordered == since + 1


async def test_ones_own_decisions_are_no_orders(store: Store, other: Store):
    polled, never = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        polled.set()
        await never.wait()

    epoch = await store.lead("test")
    since = await store.queues.revision()
    # A look at the database between a commit and its telling could not know whose it is: here there is only the first.
    store.revisions = Revisions(store._database, sleep=sleep)
    ordered = asyncio.create_task(store.revisions.wait_for_external(since))
    anything = asyncio.create_task(store.revisions.wait_for(since))
    await polled.wait()
    await store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch)
    assert await anything == since + 1
    assert not ordered.done()
    # Between two own commits somebody else writes: the gap tells of it, if the database was not asked before.
    await other.queues.create(flavor(), author=Author("ada"))
    await store.commit(Changes(workloads=(pending(workload("2")),)), epoch=epoch)
    assert await ordered == since + 3
    await store.revisions.close()  # this one the store does not know


async def test_whoever_waits_after_nobody_did_lets_others_work(store: Store):
    breath = asyncio.Event()
    store.revisions = Revisions(store._database, sleep=lambda _: breath.wait())  # type: ignore[assignment,misc]
    first = asyncio.create_task(store.revisions.wait_for(0))
    await asyncio.sleep(0)
    store.revisions.announce(1)
    assert await first == 1
    breath.set()
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == "revisions"])
    second = asyncio.create_task(store.revisions.wait_for(1))
    await asyncio.sleep(0)
    store.revisions.announce(2)
    assert await second == 2
    await store.revisions.close()  # this one the store does not know


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_a_lost_database_is_asked_again(store: Store, other: Store, postgresql):
    since = await store.queues.revision()
    waiting = asyncio.create_task(store.revisions.wait_for(since))
    await asyncio.sleep(0)
    name = str(store._database.location.url.database)
    await asyncio.to_thread(
        postgresql.execute, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    )
    await other.queues.create(flavor(), author=Author("ada"))
    assert await waiting == since + 1
