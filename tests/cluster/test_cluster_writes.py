"""Writer and EventRecorder: order, concurrency, limits and counters of patches and events."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from aiohttp import web
from scripted_server import failure, reply

from admission.cluster.errors import Conflict, NotPermitted
from admission.cluster.events import EventRecorder, ObjectReference
from admission.cluster.writer import AT_FIRST, IN_GROUP, Creation, Deletion, Patch, Writer

JOB = ObjectReference("batch/v1", "Job", "train", "uid-1", "ns")


@pytest.fixture
async def running():
    """Return a function that runs an object's `run` until the test ends; an exception in it fails the test."""
    async with asyncio.TaskGroup() as group:
        tasks = []
        yield lambda thing: tasks.append(group.create_task(thing.run()))
        for task in tasks:
            task.cancel()


class Hold:
    """A handler that answers once `release` is set; `most` is the maximum of concurrent requests."""

    def __init__(self, full: int) -> None:
        self.full = asyncio.Event()
        self.release = asyncio.Event()
        self.held = self.most = 0
        self._enough = full

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.held += 1
        self.most = max(self.most, self.held)
        if self.held >= self._enough:
            self.full.set()
        await self.release.wait()
        self.held -= 1
        return await reply({"path": request.path})(request)


async def test_patches_keep_their_order_per_object_and_may_overtake_other_objects(server, client, running):
    hold = Hold(1)
    server.script = [hold, *[reply({"ok": True})] * 3]
    writer, done = Writer(client), []
    running(writer)
    for path, body in [("/a", 1), ("/a", 2), ("/b", 3)]:
        patch = Patch(path, {"n": body}, subresource="status" if body == 2 else "")
        writer.submit(patch, lambda result, body=body: done.append(body) or (body == 3 and hold.release.set()))
    assert writer.pending == 3
    await writer.idle()
    assert done == [3, 1, 2]
    assert server.requests[-1].path == "/a/status"
    assert writer.pending == 0
    assert writer.outcomes == {"ok": 3}


async def test_writer_limits_the_patches_in_flight(server, client, running):
    hold = Hold(8)
    server.script = [hold] * 40
    writer, done = Writer(client, in_flight=8), []
    running(writer)
    for number in range(40):
        writer.submit(Patch(f"/{number}", {}), done.append)
    await hold.full.wait()
    assert hold.held == 8
    hold.release.set()
    await writer.idle()
    assert hold.most == 8
    assert len(done) == 40


async def test_burst_begins_with_few_requests_and_widens_while_some_wait(server, client, running):
    few, more, all_, waited = Hold(AT_FIRST), Hold(AT_FIRST), Hold(10 - 2 * AT_FIRST), asyncio.Queue()
    server.script = [*[few] * AT_FIRST, *[more] * AT_FIRST, *[all_] * (10 - 2 * AT_FIRST)]
    writer, done = Writer(client, sleep=lambda _: waited.get()), []
    running(writer)
    for number in range(10):
        writer.submit(Patch(f"/{number}", {}), done.append)
    await few.full.wait()
    assert len(server.requests) == AT_FIRST
    waited.put_nowait(None)
    await more.full.wait()
    assert len(server.requests) == 2 * AT_FIRST
    waited.put_nowait(None)
    await all_.full.wait()
    for hold in (few, more, all_):
        hold.release.set()
    await writer.idle()
    assert writer.outcomes == {"ok": 10}


async def test_large_group_comes_after_later_requests_of_others(server, client, running):
    hold = Hold(IN_GROUP + 1)
    server.script = [hold] * 102
    writer, done = Writer(client), []
    running(writer)
    for number in range(100):
        writer.submit(Patch(f"/group/{number}", {}), done.append, group="group")
    for _ in range(2):
        writer.submit(Patch("/other", {}), done.append)
    await hold.full.wait()
    assert hold.held == IN_GROUP + 1
    assert "/other" in {request.path for request in server.requests}
    hold.release.set()
    await writer.idle()
    assert len(done) == 102
    assert writer.outcomes == {"ok": 102}


async def test_failed_patch_is_reported_to_its_callback_and_the_next_is_sent(server, client, running):
    server.script = [failure(409, "Conflict"), reply({"ok": True})]
    writer, done = Writer(client), []
    running(writer)
    writer.submit(Patch("/a", {}), done.append)
    writer.submit(Patch("/a", {}), done.append)
    await writer.idle()
    assert isinstance(done[0], Conflict)
    assert done[1] == {"ok": True}
    assert writer.outcomes == {"Conflict": 1, "ok": 1}


async def test_request_is_answered_by_its_object_or_its_error(server, client, running):
    server.script = [reply({"ok": True}, 201), failure(409, "Conflict")]
    writer = Writer(client)
    running(writer)
    await asyncio.sleep(0)
    assert await writer.request(Creation("/a", {"metadata": {"name": "b"}})) == {"ok": True}
    with pytest.raises(NotPermitted):
        await writer.request(Creation("/a", {"metadata": {"name": "c"}}, is_wanted=lambda: False))
    with pytest.raises(Conflict):
        await writer.request(Deletion("/a/b", "uid-1", propagation="Background"))
    assert [(request.method, request.path) for request in server.requests] == [("POST", "/a"), ("DELETE", "/a/b")]


async def test_requests_of_a_replica_that_does_not_lead_are_not_permitted(server, client):
    hold = Hold(1)
    server.script = [hold]
    writer = Writer(client)
    with pytest.raises(NotPermitted):
        await writer.request(Patch("/a", {}))
    leading = asyncio.create_task(writer.run())
    await asyncio.sleep(0)
    assert writer.may_send
    sent, queued = [asyncio.create_task(writer.request(Patch("/a", {}))) for _ in range(2)]
    await hold.full.wait()
    leading.cancel()
    assert [type(each) for each in await asyncio.gather(sent, queued, return_exceptions=True)] == [NotPermitted] * 2
    hold.release.set()
    assert writer.pending == 0
    assert not writer.may_send


async def test_recorded_event_has_the_form_of_events_k8s_io(server, client, running):
    server.script = [reply({}, 201)] * 2
    recorder = EventRecorder(client, instance="sluice-0", now=lambda: 1_700_000_000.25)
    running(recorder)
    assert recorder.record(JOB, reason="Admitted", action="Admit", note="admitted by ClusterQueue a")
    node = ObjectReference("v1", "Node", "n1", "uid-2")
    assert recorder.record(node, reason="Odd", action="Look", note="ü" * 2000, warning=True)
    await recorder.idle()
    first, second = sorted(map(orjson.loads, server.bodies), key=lambda event: event["reason"])
    assert first["metadata"].pop("name").startswith("train.")
    assert first == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "eventTime": "2023-11-14T22:13:20.250000Z",
        "type": "Normal",
        "reason": "Admitted",
        "action": "Admit",
        "note": "admitted by ClusterQueue a",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "train", "uid": "uid-1"},
        "reportingController": "sluice.dev/sluice",
        "reportingInstance": "sluice-0",
    }
    assert second["type"] == "Warning"
    assert second["metadata"]["namespace"] == "default"
    assert 1000 < len(second["note"].encode()) <= 1024
    assert {request.path for request in server.requests} == {
        "/apis/events.k8s.io/v1/namespaces/ns/events",
        "/apis/events.k8s.io/v1/namespaces/default/events",
    }


async def test_identical_event_is_recorded_once_in_ten_minutes(server, client, running):
    now = [1000.0]
    server.script = [reply({}, 201)] * 3
    recorder = EventRecorder(client, now=lambda: now[0])
    running(recorder)
    said = []
    for advance, note in [(0, "x"), (599, "x"), (0, "y"), (1, "x")]:
        now[0] += advance
        said.append(recorder.record(JOB, reason="Pending", action="Queue", note=note))
    await recorder.idle()
    assert said == [True, False, True, True]
    assert len({orjson.loads(body)["metadata"]["name"] for body in server.bodies}) == 3
    assert recorder.outcomes == {"ok": 3, "repeated": 1}


async def test_repeated_note_is_recorded_again_for_a_new_occasion(server, client, running):
    server.script = [reply({}, 201)] * 3
    recorder = EventRecorder(client)
    running(recorder)
    said = [("waits", "since 1"), ("stopped", "since 2"), ("waits", "since 3"), ("waits", "since 3")]
    assert [
        recorder.record(JOB, reason="Pending", action="Queue", note=note, occasion=f"{note} {since}")
        for note, since in said
    ] == [True, True, True, False]
    await recorder.idle()
    assert [orjson.loads(body)["note"] for body in server.bodies] == ["waits", "stopped", "waits"]


async def test_events_beyond_the_queue_size_are_dropped_and_counted(client):
    recorder = EventRecorder(client, queue_size=2)
    kept = [recorder.record(JOB, reason="Pending", action="Queue", note=str(n)) for n in range(5)]
    assert kept == [True, True, False, False, False]
    assert recorder.outcomes["dropped"] == 3


async def test_rejected_event_does_not_block_other_events(server, client, running, caplog):
    server.script = [failure(403, "Forbidden", "namespace is being terminated")] * 2 + [reply({}, 201)]
    recorder = EventRecorder(client)
    running(recorder)
    for note in "abc":
        recorder.record(JOB, reason="Pending", action="Queue", note=note)
    await recorder.idle()
    assert recorder.outcomes == {"Forbidden": 2, "ok": 1}
    assert caplog.text.count("namespace is being terminated") == 1


async def test_event_is_delayed_while_many_patches_are_sent(server, client, running):
    seconds = [0.0]
    server.script = [reply({"ok": True})] * 30 + [reply({}, 201)]
    writer = Writer(client, clock=lambda: seconds[0])
    waits = asyncio.Queue()
    go_on = asyncio.Queue()

    async def sleep(duration):
        waits.put_nowait(duration)
        await go_on.get()

    recorder = EventRecorder(client, busy=lambda: writer.busy, sleep=sleep)
    running(writer)
    running(recorder)
    for number in range(30):
        writer.submit(Patch(f"/{number}", {}), lambda _: None)
    recorder.record(JOB, reason="Admitted", action="Admit", note="x")
    await waits.get()
    await writer.idle()
    assert {request.method for request in server.requests} == {"PATCH"}
    seconds[0] = 1.0
    go_on.put_nowait(None)
    await recorder.idle()
    assert [request.method for request in server.requests] == ["PATCH"] * 30 + ["POST"]


async def test_event_is_sent_after_ten_seconds_even_if_the_writer_stays_busy(server, client, running):
    """Also if the system clock is set back in the meantime."""
    seconds, now = [1000.0], [1_700_000_000.0]
    server.script = [reply({}, 201)]

    async def sleep(duration):
        seconds[0] += duration
        now[0] -= 3600
        await asyncio.sleep(0)

    recorder = EventRecorder(client, busy=lambda: True, now=lambda: now[0], clock=lambda: seconds[0], sleep=sleep)
    running(recorder)
    recorder.record(JOB, reason="Admitted", action="Admit", note="x")
    await recorder.idle()
    assert 1010 <= seconds[0] <= 1011
    assert recorder.outcomes == {"ok": 1}
