"""Begin and end of the change stream of a resource, as watchers come and go."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
from queue_objects import cohort

from admission.api.documents.representation import Representation
from admission.api.documents.selection import QueueSelection
from admission.api.registry import by_name
from admission.api.watch import broadcast
from admission.api.watch.broadcast import ChangeStream
from admission.api.watch.changes import QueueObjectSource, StatusSchedule
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author

COHORTS = Representation(by_name("cohorts"))
ALL = QueueSelection()


@pytest.fixture
async def stream(store, monkeypatch):
    monkeypatch.setattr(broadcast, "LINGER_SECONDS", 0.0)
    source = QueueObjectSource(store, "Cohort", StatusSchedule(lambda: 0.0, lambda: 0.0))
    stream = ChangeStream(store, source, now=lambda: 0.0)
    yield stream
    await stream.close()


def polls():
    return [task for task in asyncio.all_tasks() if task.get_name() == "watch"]


async def test_watcher_that_comes_while_the_stream_ends_receives_changes(store, stream):
    await stream.shared_watch(COHORTS, ALL)
    stream.release(COHORTS, ALL)
    while not any(task.cancelling() for task in polls()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    shared = await stream.shared_watch(COHORTS, ALL)
    await store.queues.create(parse_manifest(cohort("one")), author=Author("ada"))
    while shared.position < store.revisions.newest:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert len(polls()) == 1


async def test_watch_that_fails_to_begin_does_not_keep_the_stream_polling(api, store, monkeypatch):
    monkeypatch.setattr(broadcast, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(broadcast, "CONNECTION_CHECK_SECONDS", 0.1)
    async with api.watch("cohorts"):
        with closing(sqlite3.connect(store.location)) as connection:
            connection.execute("ALTER TABLE queue_object_versions RENAME TO elsewhere")
        assert (await api.get("cohorts?watch=1&labelSelector=a%3Db")).status == 503
    while polls():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
