"""Watches of queue objects from an old revision: replayed events, their order, and the number of statements."""

from __future__ import annotations

from typing import Any

import pytest
from api_client import Client, on_both_databases, serving
from queue_objects import cluster_queue, cohort, flavor, local_queue
from sqlalchemy import Engine, event

from admission.api.watch import changes
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.errors import DatabaseUnavailable
from admission.store.objects import queue_objects
from admission.store.store import Store
from tests.executed_statements import executed

VERSIONS = "queue_object_versions"
PAGE = (VERSIONS, "LIMIT", "content", "kind")
"""Words of the statement that reads a chunk of versions."""


async def write(store: Store, document: dict[str, Any], **labels: str) -> int:
    """Write an object, and return its revision."""
    obj = parse_manifest({**document, "metadata": {**document["metadata"], "labels": labels}})
    return int((await store.queues.write(obj.key, lambda _: obj, author=Author("ada"))).metadata.resource_version)


async def write_queues(store: Store, count: int, target: str = "one") -> int:
    """Write LocalQueues of namespace `a`, and return the last revision."""
    return [await write(store, local_queue(f"q-{number:03}", "a", target)) for number in range(count)][-1]


async def delete(store: Store, name: str) -> int:
    deleted = await store.queues.delete("LocalQueue", name, namespace="a", author=Author("ada"))
    return int(deleted.metadata.resource_version)


async def replayed(api: Client, path: str, last: int, **options: str) -> list[dict[str, Any]]:
    """The events of a watch up to the revision `last`, or to its end."""
    events: list[dict[str, Any]] = []
    async with api.watch(path, **options) as watch:
        while not events or events[-1]["object"]["metadata"].get("resourceVersion") != str(last):
            if (found := await watch.next()) is None:
                break
            events.append(found)
    return events


def summaries(events: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Type, name and revision of events."""
    metadata = [(found["type"], found["object"]["metadata"]) for found in events]
    return [(kind, each["name"], int(each["resourceVersion"])) for kind, each in metadata]


@pytest.mark.costly
@on_both_databases
async def test_number_of_statements_of_a_replay_is_independent_of_changed_objects(store: Store) -> None:
    start = str(await write(store, flavor("before")))
    counts = []
    for count in (2, 40):
        await write_queues(store, count)
        middle = str(await write(store, flavor("between"), round=str(count)))
        last = await write_queues(store, count, "two")
        for revision in (start, middle):
            async with serving(store) as api:  # the watch of a new server has nothing else to poll
                with executed(VERSIONS, "namespace") as statements:
                    events = await replayed(api, "localqueues", last, resourceVersion=revision)
            assert len({name for _, name, _ in summaries(events)}) == count
            counts.append(len(statements))
    assert counts == [4, 4, 4, 4]


@pytest.mark.costly
@on_both_databases
async def test_replay_in_chunks_equals_the_replay_in_one_chunk(
    api: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(store, local_queue("gone-before", "a", "one"))
    await delete(store, "gone-before")
    for name in ("changed", "deleted", "untouched", "leaves"):
        await write(store, local_queue(name, "a", "one"), team="x")
    await write(store, local_queue("elsewhere", "b", "one"), team="x")
    start = await write(store, cohort("start"))
    expected = [("MODIFIED", "untouched", start)]
    expected.append(("MODIFIED", "changed", await write(store, local_queue("changed", "a", "two"), team="x")))
    expected.append(("ADDED", "gone-before", await write(store, local_queue("gone-before", "a", "one"), team="x")))
    expected.append(("DELETED", "leaves", await write(store, local_queue("leaves", "a", "one"), team="y")))
    await write(store, local_queue("elsewhere", "b", "two"), team="x")
    expected.append(("ADDED", "brief", await write(store, local_queue("brief", "a", "one"), team="x")))
    await write(store, cluster_queue("one"))
    expected.append(("MODIFIED", "changed", await write(store, local_queue("changed", "a", "three"), team="x")))
    expected.append(("DELETED", "brief", await delete(store, "brief")))
    expected.append(("DELETED", "deleted", await delete(store, "deleted")))
    expected.append(("ADDED", "deleted", await write(store, local_queue("deleted", "a", "one"), team="x")))
    last, options = expected[-1][2], {"resourceVersion": str(start), "labelSelector": "team=x"}
    whole = await replayed(api, "namespaces/a/localqueues", last, **options)
    assert summaries(whole) == expected
    assert [found["object"]["spec"]["clusterQueue"] for found in whole[1:6]] == ["two", "one", "one", "one", "three"]
    for size in (1, 2, 3):
        monkeypatch.setattr(queue_objects, "REPLAYED", size)
        monkeypatch.setattr(changes, "_RENDERED", size)
        chunks = await replayed(api, "namespaces/a/localqueues", last, **options)
        assert summaries(chunks) == expected
        # Events have the current status; that of an object deleted since is the one computed last, and may differ.
        gone = {"brief"}
        assert [each for each in chunks if each["object"]["metadata"]["name"] not in gone] == [
            each for each in whole if each["object"]["metadata"]["name"] not in gone
        ]


@on_both_databases
async def test_watch_of_one_object_reads_no_versions_of_other_objects(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = str(await write(store, flavor("before")))
    other = await write(store, local_queue("other", "b", "one"))
    last = await write_queues(store, 6)
    monkeypatch.setattr(queue_objects, "REPLAYED", 2)
    counts = []
    for path, fields, end in (
        ("namespaces/b/localqueues", "", other),
        ("localqueues", "metadata.name=other", other),
        ("localqueues", "", last),
    ):
        async with serving(store) as api:
            with executed(*PAGE) as pages:
                events = await replayed(api, path, end, resourceVersion=start, fieldSelector=fields)
        assert summaries(events)[0][1] == "other"
        counts.append(len(pages))
    assert counts == [1, 1, 4]


async def test_events_of_a_page_are_sent_before_the_next_page_is_read(
    api: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = str(await write(store, flavor("before")))
    last = await write_queues(store, 6)
    monkeypatch.setattr(queue_objects, "REPLAYED", 2)
    pages = []

    def fail_at_the_second(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if all(word in statement for word in PAGE):
            pages.append(statement)
            if len(pages) == 2:
                raise DatabaseUnavailable("the second page is not read")

    event.listen(Engine, "before_cursor_execute", fail_at_the_second)
    try:
        events = await replayed(api, "localqueues", last, resourceVersion=start)
    finally:
        event.remove(Engine, "before_cursor_execute", fail_at_the_second)
    assert (events[-1]["type"], events[-1]["object"]["code"]) == ("ERROR", 503)
    sent = summaries(events[:-1])
    assert [name for _, name, _ in sent] == ["q-000", "q-001"]
    resumed = summaries(await replayed(api, "localqueues", last, resourceVersion=str(sent[-1][2])))
    assert [name for kind, name, _ in resumed if kind == "ADDED"] == ["q-002", "q-003", "q-004", "q-005"]


@on_both_databases
async def test_watch_with_more_changes_than_max_changes_is_expired(
    api: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 3)
    start = str(await write(store, flavor("before")))
    last = await write_queues(store, 3)
    assert len(await replayed(api, "localqueues", last, resourceVersion=start)) == 3
    last = await write_queues(store, 1, "two")
    (error,) = await replayed(api, "localqueues", last, resourceVersion=start)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
