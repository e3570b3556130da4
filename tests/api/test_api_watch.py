"""Watches of queue objects: resumption, selectors, bookmarks, tables, status changes, and limits."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from api_client import Events, on_both_databases, revision_of, serving
from queue_objects import cluster_queue, cohort, flavor, local_queue
from workload_records import record

from admission.api.watch import broadcast, changes, shared_watch, watch_request
from admission.api.watch.changes import StatusSchedule
from admission.store.records import State

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@on_both_databases
async def test_watch_from_a_list_version_delivers_creations_changes_and_deletions(api):
    await api.post("cohorts", cohort("before"))
    start = await revision_of(api, "cohorts")
    async with api.watch("cohorts", resourceVersion=start) as watch:
        created = (await api.post("cohorts", cohort("one"))).body
        changed = (await api.patch("cohorts/one", {"spec": {"parentName": "root"}})).body
        await api.delete("cohorts/one")
        events = [await watch.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    # Watch events have no managedFields; responses to get and list do.
    assert events[0]["object"] == without_managers(created)
    assert events[1]["object"] == without_managers(changed)
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert revisions == sorted(set(revisions))


def without_managers(document):
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


@on_both_databases
async def test_dropped_watch_resumes_from_its_last_resource_version(api):
    start = await revision_of(api, "resourceflavors")
    names = [f"c-{number}" for number in range(6)]
    seen = []
    for number, name in enumerate(names):
        await api.post("resourceflavors", flavor(name))
        if number % 2:  # two objects for each watch, so that the watch ends while an event is left
            async with api.watch("resourceflavors", resourceVersion=start) as watch:
                event = await watch.next()
            seen.append(event["object"]["metadata"]["name"])
            start = event["object"]["metadata"]["resourceVersion"]
    async with api.watch("resourceflavors", resourceVersion=start) as watch:
        seen += [name for _, name in await watch.next_types_and_names(3)]
    assert seen == names


async def test_watch_can_be_resumed_on_another_replica(api, store):
    start = await revision_of(api, "cohorts")
    await api.post("cohorts", cohort("one"))
    async with api.watch("cohorts", resourceVersion=start) as watch:
        event = await watch.next()
    await api.post("cohorts", cohort("two"))
    await api.delete("cohorts/one")
    async with (
        serving(store) as other,
        other.watch("cohorts", resourceVersion=event["object"]["metadata"]["resourceVersion"]) as watch,
    ):
        assert await watch.next_types_and_names(2) == [("ADDED", "two"), ("DELETED", "one")]


@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}])
async def test_watch_without_a_resource_version_begins_with_existing_objects(api, start):
    await api.post("cohorts", cohort("b"))
    await api.post("cohorts", cohort("a"))
    async with api.watch("cohorts", **start) as watch:
        assert await watch.next_types_and_names(2) == [("ADDED", "a"), ("ADDED", "b")]
        await api.post("cohorts", cohort("c"))
        assert await watch.next_types_and_names(1) == [("ADDED", "c")]


async def test_send_initial_events_marks_the_end_of_existing_objects_by_a_bookmark(api):
    await api.post("cohorts", cohort("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with api.watch("cohorts", **options) as watch:
        assert await watch.next_types_and_names(1) == [("ADDED", "a")]
        mark = await watch.next()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "Cohort"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) > 0


async def test_bookmarks_advance_to_the_latest_revision_of_the_database(api, monkeypatch):
    monkeypatch.setattr(watch_request, "BOOKMARK_SECONDS", 0.01)
    start = await revision_of(api, "cohorts")
    async with api.watch("cohorts", resourceVersion=start, allowWatchBookmarks="true") as watch:
        other = (await api.post("resourceflavors", flavor("x"))).body["metadata"]["resourceVersion"]
        told = ""
        while told != other:
            event = await watch.next()
            assert event["type"] == "BOOKMARK"
            told = event["object"]["metadata"]["resourceVersion"]


async def test_bookmarks_continue_without_changes(api, monkeypatch):
    monkeypatch.setattr(watch_request, "BOOKMARK_SECONDS", 0.01)
    start = await revision_of(api, "cohorts")
    async with api.watch("cohorts", resourceVersion=start, allowWatchBookmarks="true") as watch:
        marks = [await watch.next() for _ in range(3)]
    assert [mark["type"] for mark in marks] == ["BOOKMARK"] * 3
    assert {mark["object"]["metadata"]["resourceVersion"] for mark in marks} == {start}


@pytest.mark.costly
async def test_watch_without_bookmarks_has_no_bookmark_timer(api, monkeypatch):
    waits = []

    class Counting:
        """asyncio that records the arguments of `timeout`."""

        def __getattr__(self, name):
            return getattr(asyncio, name)

        def timeout(self, seconds):
            waits.append(seconds)
            return asyncio.timeout(seconds)

    monkeypatch.setattr(watch_request, "BOOKMARK_SECONDS", 0.0)
    monkeypatch.setattr(watch_request, "asyncio", Counting())
    async with api.watch("cohorts", resourceVersion=await revision_of(api, "cohorts")) as watch:
        for number in range(20):
            await api.post("cohorts", cohort(f"c-{number}"))
            await watch.next()
    assert 0.0 not in waits


async def test_object_that_stops_matching_the_label_selector_is_sent_as_deleted(api):
    start = await revision_of(api, "cohorts")
    labelled = cohort("one") | {"metadata": {"name": "one", "labels": {"team": "a"}}}
    async with api.watch("cohorts", resourceVersion=start, labelSelector="team=a") as watch:
        await api.post("cohorts", cohort("other"))
        await api.post("cohorts", labelled)
        await api.patch("cohorts/one", {"spec": {"parentName": "root"}})
        await api.patch("cohorts/one", {"metadata": {"labels": {"team": "b"}}})
        await api.patch("cohorts/one", {"metadata": {"labels": {"team": "a"}}})
        events = [await watch.next() for _ in range(4)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    # The deleted event has the last selected state of the object, with the version of the change.
    assert events[2]["object"]["metadata"]["labels"] == {"team": "a"}
    assert events[2]["object"]["metadata"]["resourceVersion"] > events[1]["object"]["metadata"]["resourceVersion"]


async def test_object_that_left_the_selector_before_the_watch_is_sent_as_deleted(api):
    labelled = cohort("one") | {"metadata": {"name": "one", "labels": {"team": "a"}}}
    await api.post("cohorts", labelled)
    await api.post("cohorts", cohort("never"))
    start = await revision_of(api, "cohorts")
    await api.patch("cohorts/never", {"spec": {"parentName": "root"}})
    await api.patch("cohorts/one", {"metadata": {"labels": None}})
    async with api.watch("cohorts", resourceVersion=start, labelSelector="team=a") as watch:
        assert await watch.next_types_and_names(1) == [("DELETED", "one")]


async def test_watch_is_filtered_by_namespace_and_field_selector(api):
    start = await revision_of(api, "localqueues")
    async with (
        api.watch("namespaces/a/localqueues", resourceVersion=start) as in_a,
        api.watch("localqueues", resourceVersion=start, fieldSelector="spec.clusterQueue=two") as to_two,
        api.watch("localqueues", resourceVersion=start, fieldSelector="metadata.name=x") as named,
    ):
        for name, namespace, target in [("x", "a", "one"), ("y", "b", "two"), ("z", "a", "two")]:
            await api.post(f"namespaces/{namespace}/localqueues", local_queue(name, namespace, target))
        assert await in_a.next_types_and_names(2) == [("ADDED", "x"), ("ADDED", "z")]
        assert await to_two.next_types_and_names(2) == [("ADDED", "y"), ("ADDED", "z")]
        assert await named.next_types_and_names(1) == [("ADDED", "x")]


async def test_table_watch_sends_column_definitions_once(api):
    await api.post("cohorts", cohort("a"))
    async with api.watch("cohorts", accept=TABLE) as watch:
        first = await watch.next()
        await api.post("cohorts", cohort("b"))
        second = await watch.next()
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Parent", "Age"]
    assert second["object"]["columnDefinitions"] is None
    (row,) = second["object"]["rows"]
    assert row["cells"][0] == "b"
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_partial_object_metadata_can_be_watched(api):
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    await api.post("cohorts", cohort("a"))
    async with api.watch("cohorts", accept=accept) as watch:
        event = await watch.next()
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"].keys() == {"kind", "apiVersion", "metadata"}


async def test_changed_condition_is_sent_as_a_modified_event(api):
    """`kubectl wait --for=condition=Active` needs this event: the status changes although the object is not written."""
    await api.post("clusterqueues", cluster_queue("one"))
    async with api.watch("clusterqueues") as watch:
        event = await watch.next()
        assert event["object"]["status"]["conditions"][0]["status"] == "False"
        await api.post("resourceflavors", flavor("default"))
        event = await watch.next()
    assert event["type"] == "MODIFIED"
    assert event["object"]["status"]["conditions"][0]["status"] == "True"
    # Its resourceVersion is good for a precondition: the object has not changed since.
    wanted = {
        "metadata": {"resourceVersion": event["object"]["metadata"]["resourceVersion"]},
        "spec": {"cohortName": "x"},
    }
    assert (await api.patch("clusterqueues/one", wanted)).status == 200


async def test_condition_changed_between_list_and_watch_is_delivered(api):
    await api.post("clusterqueues", cluster_queue("one"))
    start = await revision_of(api, "clusterqueues")
    await api.post("resourceflavors", flavor("default"))
    async with api.watch("clusterqueues", resourceVersion=start) as watch:
        event = await watch.next()
    assert event["object"]["status"]["conditions"][0]["status"] == "True"


async def test_workload_counts_in_events_match_the_api_also_in_a_new_watch(api, commit, monkeypatch):
    """A new watch must compare counts with those that it has sent itself, not with those of the previous watch."""
    monkeypatch.setattr(broadcast, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(broadcast, "CONNECTION_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(changes, "STATUS_SECONDS", 0.05)
    await api.post("resourceflavors", flavor("default"))
    for name in ("one", "two"):
        await api.post("clusterqueues", cluster_queue(name))
        await api.post("namespaces/a/localqueues", local_queue(name, "a", name))
    waiting, over = record("1", "train", queue="one"), record("1", "train", State.FINISHED, queue="one")
    for begins, *then in ((0, 1, 0, 1), (0, 1)):
        async with api.watch("clusterqueues") as watch:
            told = [(await watch.next())["object"] for _ in range(2)]
            assert [each["status"]["pendingWorkloads"] for each in told] == [begins, 0]
            for number in then:
                await commit(waiting if number else over)
                told = (await watch.next())["object"]
                assert (told["metadata"]["name"], told["status"]["pendingWorkloads"]) == ("one", number)
                assert told["status"] == (await api.get("clusterqueues/one")).body["status"]
        while any(task.get_name() == "watch" for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await commit(over)


async def test_watch_updates_the_count_of_a_queue_that_a_workload_has_left(api, commit, monkeypatch):
    """The queue itself is not written when its workload moves to another queue."""
    monkeypatch.setattr(changes, "STATUS_SECONDS", 0.05)
    await api.post("resourceflavors", flavor("default"))
    for name in ("one", "two"):
        await api.post("clusterqueues", cluster_queue(name))
        await api.post("namespaces/a/localqueues", local_queue(name, "a", name))

    async def next_numbers(watch) -> tuple[str, int]:
        told = (await watch.next())["object"]
        return told["metadata"]["name"], told["status"]["pendingWorkloads"]

    async with api.watch("clusterqueues") as watch:
        assert [await next_numbers(watch) for _ in range(2)] == [("one", 0), ("two", 0)]
        await commit(record("1", "train", queue="one"))
        assert await next_numbers(watch) == ("one", 1)
        await commit(record("1", "train", queue="two"))
        assert {await next_numbers(watch), await next_numbers(watch)} == {("one", 0), ("two", 1)}


def test_status_is_polled_each_second_and_less_often_if_polling_is_expensive():
    time, used = 0.0, 0.0
    schedule = StatusSchedule(lambda: time, lambda: used)
    looked = 0
    for cost, every in ((0.01, 1.0), (0.07, 3.5), (0.15, 5.0), (0.01, 1.0)):
        assert schedule.is_due(looked)
        looked = schedule.round
        with schedule.measure():
            used += cost
        assert not schedule.is_due(looked)
        assert schedule.pause() == pytest.approx(every)
        time += every


async def test_events_no_longer_buffered_by_a_shared_watch_are_read_again(api, monkeypatch):
    monkeypatch.setattr(shared_watch, "BUFFERED_EVENTS", 1)
    start = await revision_of(api, "cohorts")
    async with api.watch("cohorts", resourceVersion=start) as watch:
        for name in ("a", "b", "c"):
            await api.post("cohorts", cohort(name))
        await watch.next_types_and_names(3)
        async with api.watch("cohorts", resourceVersion=start) as other:
            assert await other.next_types_and_names(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_watch_ends_after_timeout_seconds(api):
    async with api.watch("cohorts", timeoutSeconds="1") as watch:
        assert await watch.next() is None


async def test_watch_from_a_future_version_starts_after_that_version(api):
    now = int(await revision_of(api, "cohorts"))
    async with api.watch("cohorts", resourceVersion=str(now + 2)) as watch:
        for name in ("a", "b", "c"):
            await api.post("cohorts", cohort(name))
        assert await watch.next_types_and_names(1) == [("ADDED", "c")]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"resourceVersion": "x"}, "resourceVersion"),
        ({"timeoutSeconds": "-1"}, "timeoutSeconds"),
        ({"continue": "x"}, "continue"),
        ({"labelSelector": "a b"}, "unable to parse"),
        ({"fieldSelector": "spec.x=1"}, "field label not supported"),
        ({"sendInitialEvents": "true"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "NotOlderThan"}, "resourceVersionMatch"),
    ],
)
async def test_watch_with_invalid_options_is_refused(api, query, says):
    answer = await api.get("cohorts", params={"watch": "1", **query})
    assert answer.status in (400, 422)
    assert says in answer.body["message"]


async def test_watch_is_aborted_when_too_many_bytes_are_queued(api, monkeypatch):
    monkeypatch.setattr(watch_request, "MAX_QUEUED_BYTES", 1)

    async def post_and_read(watch: Events) -> None:
        for name in ("a", "b"):  # the first may be part of the initial state, which is not queued
            await api.post("cohorts", cohort(name))
            await watch.next()

    async with api.watch("cohorts") as watch:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post_and_read(watch)


@pytest.mark.long
async def test_fifty_concurrent_watches_deliver_the_same_events(api):
    start = await revision_of(api, "cohorts")
    names = [f"c-{number:02}" for number in range(20)]

    async def follow() -> list[tuple[str, str]]:
        async with api.watch("cohorts", resourceVersion=start) as watch:
            return await watch.next_types_and_names(len(names))

    followers = [asyncio.create_task(follow()) for _ in range(50)]
    await asyncio.gather(*(api.post("cohorts", cohort(name)) for name in names))
    seen = await asyncio.gather(*followers)
    assert sorted(seen[0]) == [("ADDED", name) for name in names]
    assert all(one == seen[0] for one in seen)
