"""Watches of workloads: changes, selectors, resumption within a commit, and the limit of replayed changes."""

from __future__ import annotations

from api_client import on_both_databases, revision_of, serving
from workload_records import record

from admission.api.watch import changes
from admission.store.records import State


@on_both_databases
async def test_watch_delivers_added_and_modified_workloads(api, commit):
    await commit(record("1", "train"))
    start = await revision_of(api, "workloads")
    async with api.watch("workloads", resourceVersion=start) as watch:
        await commit(record("2", "eval"))
        await commit(record("1", "train", reason="ExceedsQuota"))
        events = [await watch.next() for _ in range(2)]
    assert [(event["type"], event["object"]["spec"]["object"]["name"]) for event in events] == [
        ("ADDED", "eval"), ("MODIFIED", "train"),
    ]  # fmt: skip
    assert events[1]["object"] == (await api.get("namespaces/a/workloads/train")).body


@on_both_databases
async def test_watch_that_breaks_within_a_commit_resumes_with_its_other_workloads(api, commit, store):
    start = await revision_of(api, "workloads")
    names = [f"job-{number}" for number in range(4)]
    await commit(*(record(name, name) for name in names))
    found = []
    async with serving(store) as other:
        for server in (api, other, api, other):
            async with server.watch("workloads", resourceVersion=start) as watch:
                event = await watch.next()
            found.append((event["type"], event["object"]["spec"]["object"]["name"]))
            start = event["object"]["metadata"]["resourceVersion"]
    assert found == [("ADDED", name) for name in names]


@on_both_databases
async def test_workload_entering_or_leaving_the_selector_is_sent_as_added_or_deleted(api, commit):
    await commit(record("1", "train"), record("2", "done", State.FINISHED))
    start = await revision_of(api, "workloads")
    async with api.watch("workloads", resourceVersion=start, fieldSelector="status.state=pending") as watch:
        await commit(record("2", "done", State.FINISHED, reason="x"))
        await commit(record("1", "train", State.FINISHED))
        events = [await watch.next()]  # read first: a workload that returns before would not be sent as deleted
        await commit(record("3", "new"))
        await commit(record("1", "train"))
        events += [await watch.next() for _ in range(2)]
    assert [(event["type"], event["object"]["spec"]["object"]["name"]) for event in events] == [
        ("DELETED", "train"), ("ADDED", "new"), ("ADDED", "train"),
    ]  # fmt: skip


async def test_workload_that_left_the_selector_before_the_watch_is_sent_as_deleted(api, commit):
    await commit(record("1", "train"))
    start = await revision_of(api, "workloads")
    await commit(record("1", "train", State.FINISHED))
    async with api.watch("workloads", resourceVersion=start, fieldSelector="status.state=pending") as watch:
        event = await watch.next()
    assert (event["type"], event["object"]["status"]["state"]) == ("DELETED", "finished")


async def test_workload_watch_with_more_changes_than_max_changes_is_expired(api, commit, monkeypatch):
    monkeypatch.setattr(changes, "MAX_CHANGES", 1)
    await commit(record("0", "zero"))
    start = await revision_of(api, "workloads")
    await commit(record("1", "one"), record("2", "two"))
    async with api.watch("workloads", resourceVersion=start) as watch:
        event = await watch.next()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert await watch.next() is None
