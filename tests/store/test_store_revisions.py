"""Waiting for new revisions, written by this process or by another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from store_examples import flavor, pending, workload

from admission.store.audit_log import Author
from admission.store.objects.revisions import Revisions
from admission.store.records import Changes
from admission.store.store import Store


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Store]:
    """The same database as another process sees it."""
    async with Store.open(database_url) as opened:
        yield opened


async def test_waiters_are_notified_of_writes_of_this_process(store: Store):
    since = await store.queues.revision()
    waiting = [asyncio.create_task(store.revisions.wait_for(since)) for _ in range(2)]
    await asyncio.sleep(0)
    await store.queues.create(flavor(), author=Author("ada"), dry_run=True)
    assert not any(task.done() for task in waiting)
    await store.queues.create(flavor(), author=Author("ada"))
    assert await asyncio.gather(*waiting) == [since + 1, since + 1]
    assert await store.revisions.wait_for(since) == since + 1


async def test_waiters_are_notified_of_writes_of_another_process(store: Store, other: Store):
    since = await store.queues.revision()
    waiting = asyncio.create_task(store.revisions.wait_for(since))
    ordered = asyncio.create_task(store.revisions.wait_for_external(since))
    await other.queues.create(flavor(), author=Author("ada"))
    assert await waiting == since + 1
    assert await ordered == since + 1


async def test_own_commits_do_not_wake_waiters_for_external_writes(store: Store, other: Store):
    polled, never = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        polled.set()
        await never.wait()

    epoch = await store.lead("test")
    since = await store.queues.revision()
    # A poll between a commit and its announcement could not tell who wrote it: here the database is polled only once.
    store.revisions = Revisions(store._database, sleep=sleep)
    ordered = asyncio.create_task(store.revisions.wait_for_external(since))
    anything = asyncio.create_task(store.revisions.wait_for(since))
    await polled.wait()
    await store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch)
    assert await anything == since + 1
    assert not ordered.done()
    # Another process writes between two own commits: the gap in the revisions shows it, even without a poll.
    await other.queues.create(flavor(), author=Author("ada"))
    await store.commit(Changes(workloads=(pending(workload("2")),)), epoch=epoch)
    assert await ordered == since + 3
    await store.revisions.close()  # the store would not close this instance


async def test_wait_after_the_poll_has_ended_does_not_block_the_event_loop(store: Store):
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
    await store.revisions.close()  # the store would not close this instance


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_polling_continues_after_a_terminated_connection(store: Store, other: Store, postgresql):
    since = await store.queues.revision()
    waiting = asyncio.create_task(store.revisions.wait_for(since))
    await asyncio.sleep(0)
    name = str(store._database.location.url.database)
    await asyncio.to_thread(
        postgresql.execute, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    )
    await other.queues.create(flavor(), author=Author("ada"))
    assert await waiting == since + 1
