"""The informer against a scripted API server: expiry, broken streams, resets, malformed events, bursts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import orjson
import pytest
from aiohttp import web
from scripted_server import failure, reply

from admission.cluster.errors import Unreachable
from admission.cluster.informer import Informer

PATH = "/apis/batch/v1/jobs"


def job(name: str, version: int, uid: str | None = None) -> dict:
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}}


def listing(version: int, *items: dict, token: str = ""):
    return reply({"kind": "JobList", "metadata": {"resourceVersion": str(version), "continue": token}, "items": items})


def event(kind: str, body: dict) -> bytes:
    return orjson.dumps({"type": kind, "object": body}) + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


def watch(*pieces: bytes, end: str = "clean"):
    """A watch that sends `pieces`, then ends cleanly, breaks off in the middle of a chunk, or hangs."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if end == "hang":
            await asyncio.Event().wait()
        if end == "break":
            request.transport.abort()
        return response

    return handler


@pytest.fixture
def observe(server, client, sleeps):
    """Return a function that runs an informer until it reported `count` changes: (type, name, version or None)."""

    async def run(count: int, *script, **options) -> list[tuple]:
        server.script = list(script)
        ticks = iter(range(10**6))
        options = {"clock": lambda: next(ticks) * 10.0, "sleep": sleeps} | options
        seen: list[tuple] = []
        informer = run.informer = Informer(client, PATH, **options)
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                assert batch
                for change in batch:
                    version = change.object and change.object["metadata"]["resourceVersion"]
                    seen.append((change.type, change.key.removeprefix("ns/"), version))
                if len(seen) >= count:
                    return seen
        return seen

    return run


def query_of(server, number: int) -> dict[str, str]:
    return dict(server.requests[number].query)


async def test_informer_lists_then_watches_from_the_version_of_the_list(server, observe):
    seen = await observe(
        4,
        listing(10, job("a", 3), job("b", 7)),
        watch(event("MODIFIED", job("a", 11)), event("DELETED", job("b", 12)), end="hang"),
    )
    assert seen == [("ADDED", "a", "3"), ("ADDED", "b", "7"), ("MODIFIED", "a", "11"), ("DELETED", "b", "12")]
    assert query_of(server, 1)["resourceVersion"] == "10"
    assert query_of(server, 1)["allowWatchBookmarks"] == "true"
    assert 300 <= int(query_of(server, 1)["timeoutSeconds"]) <= 600


async def test_synced_is_set_after_the_consumer_processed_the_first_list(server, client):
    server.script = [listing(1, job("a", 1)), watch(event("MODIFIED", job("a", 2)), end="hang")]
    informer = Informer(client, PATH)
    states = []
    async with aclosing(informer.batches()) as batches:
        async for _ in batches:
            states.append(informer.synced.is_set())
            if len(states) == 2:
                break
    assert states == [False, True]


async def test_empty_list_sets_synced_without_a_batch(server, client):
    server.script = [listing(1), watch(event("ADDED", job("a", 2)), end="hang")]
    informer = Informer(client, PATH)
    async with aclosing(informer.batches()) as batches:
        assert [change.key for change in await anext(batches)] == ["ns/a"]
        assert informer.synced.is_set()


async def test_list_requests_use_page_size_and_label_selector(server, observe):
    seen = await observe(
        2,
        listing(10, job("a", 3), token="next"),
        listing(10, job("b", 7)),
        label_selector="queue=x",
        page=1,
    )
    assert [name for _, name, _ in seen] == ["a", "b"]
    assert query_of(server, 0) == {"labelSelector": "queue=x", "limit": "1"}
    assert query_of(server, 1) == {"labelSelector": "queue=x", "limit": "1", "continue": "next"}


async def test_expired_continue_token_causes_an_immediate_list_without_pages(server, observe, sleeps):
    seen = await observe(
        4,
        listing(10, job("a", 3), job("b", 7), token="next"),
        failure(410, "Expired", "the continue token is too old"),
        listing(20, job("a", 3), job("c", 15)),
    )
    assert seen == [("ADDED", "a", "3"), ("ADDED", "b", "7"), ("ADDED", "c", "15"), ("DELETED", "b", None)]
    assert "limit" not in query_of(server, 2)
    assert sleeps == []


@pytest.mark.parametrize("expiry", [watch(EXPIRED), failure(410, "Expired")], ids=["in-stream", "http"])
async def test_410_causes_a_new_list_and_reports_only_the_difference(server, observe, sleeps, expiry):
    seen = await observe(
        6,
        listing(10, job("same", 1), job("changed", 2), job("gone", 3)),
        expiry,
        listing(20, job("same", 1), job("changed", 15), job("new", 16)),
    )
    assert seen[3:] == [("MODIFIED", "changed", "15"), ("ADDED", "new", "16"), ("DELETED", "gone", None)]
    assert "resourceVersion" not in query_of(server, 2)
    assert len(sleeps) == 1


async def test_deletion_during_a_gap_is_reported_with_the_uid_of_the_old_object(server, client, sleeps):
    server.script = [listing(1, job("a", 1, "old")), watch(EXPIRED), listing(5, job("a", 4, "new"))]
    informer = Informer(client, PATH, sleep=sleeps)
    told = []
    async with aclosing(informer.batches()) as batches:
        async for batch in batches:
            told += [(change.type, change.uid, change.object is None) for change in batch]
            if len(told) == 3:
                break
    assert told == [("ADDED", "old", False), ("DELETED", "old", True), ("ADDED", "new", False)]


async def test_watch_resumes_from_the_last_bookmark_after_a_clean_end(server, observe, sleeps):
    seen = await observe(
        2,
        listing(10, job("a", 3)),
        watch(bookmark(50)),
        watch(event("MODIFIED", job("a", 60)), end="hang"),
    )
    assert seen[-1] == ("MODIFIED", "a", "60")
    assert query_of(server, 2)["resourceVersion"] == "50"
    assert sleeps == []


async def test_watch_broken_within_an_event_resumes_after_the_last_complete_event(server, observe):
    half = event("MODIFIED", job("b", 12))[:30]
    seen = await observe(
        4,
        listing(10, job("a", 3), job("b", 7)),
        watch(event("MODIFIED", job("a", 11)), half, end="break"),
        listing(11),
        watch(event("MODIFIED", job("b", 12)), end="hang"),
    )
    assert seen[2:] == [("MODIFIED", "a", "11"), ("MODIFIED", "b", "12")]
    assert query_of(server, 2) == {"limit": "1"}  # whether the server's version is older than ours; here it is not
    assert query_of(server, 3)["resourceVersion"] == "11"


async def test_reset_of_the_servers_versions_is_detected_after_a_broken_watch(server, observe):
    seen = await observe(
        3,
        listing(5000, job("a", 4000)),
        watch(end="break"),
        listing(7),
        listing(7, job("b", 6)),
    )
    assert seen == [("ADDED", "a", "4000"), ("ADDED", "b", "6"), ("DELETED", "a", None)]


async def test_idle_watch_is_reopened_without_a_log_message(server, observe, caplog):
    seen = await observe(
        2,
        listing(10, job("a", 3)),
        watch(end="hang"),
        listing(10),
        watch(event("DELETED", job("a", 11)), end="hang"),
        idle_timeout=0.05,
    )
    assert seen[-1] == ("DELETED", "a", "11")
    assert query_of(server, 3)["resourceVersion"] == "10"
    assert caplog.text == ""


async def test_failure_is_cleared_when_the_next_watch_is_open_without_events(server, client):
    opened = asyncio.Event()

    async def quiet(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        opened.set()
        await asyncio.Event().wait()
        return response

    failures = []

    async def sleep(_seconds: float) -> None:
        failures.append(informer.failure)

    server.script = [listing(10, job("a", 3)), watch(end="break"), listing(10), quiet]
    informer = Informer(client, PATH, sleep=sleep)
    async with aclosing(informer.batches()) as batches, asyncio.TaskGroup() as group:
        await anext(batches)
        reading = group.create_task(anext(batches))
        await opened.wait()
        for _ in range(1000):  # iterations of the event loop in which the response arrives
            await asyncio.sleep(0)
        reading.cancel()
    assert informer.failure is None
    assert isinstance(failures[0], Unreachable)


async def test_outdated_and_repeated_events_are_ignored(server, observe):
    seen = await observe(
        4,
        listing(10, job("a", 8), job("b", 9)),
        watch(
            event("ADDED", job("a", 8)),
            event("MODIFIED", job("a", 7)),
            event("DELETED", job("b", 6)),
            event("DELETED", job("b", 11)),
            event("MODIFIED", job("b", 9)),
            event("DELETED", job("b", 11)),
            event("MODIFIED", job("a", 12)),
            end="hang",
        ),
    )
    assert seen[2:] == [("DELETED", "b", "11"), ("MODIFIED", "a", "12")]


async def test_event_of_a_new_object_is_reported_even_after_newer_events(server, observe):
    reordered = [event("ADDED", job("b", 7)), event("ADDED", job("a", 6)), event("MODIFIED", job("b", 5))]
    again = [event("ADDED", job("gone", 3)), event("ADDED", job("c", 9))]  # from before the start of the second watch
    seen = await observe(3, listing(4), watch(*reordered), watch(*again, end="hang"))
    assert seen == [("ADDED", "b", "7"), ("ADDED", "a", "6"), ("ADDED", "c", "9")]


async def test_recreated_object_is_reported_as_deletion_and_addition(server, observe):
    seen = await observe(3, listing(10, job("a", 8, "one")), watch(event("ADDED", job("a", 12, "two")), end="hang"))
    assert seen[1:] == [("DELETED", "a", None), ("ADDED", "a", "12")]


@pytest.mark.parametrize(
    "line",
    [
        b"{garbage}\n",
        b"[]\n",
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"ADDED"}\n',
        b'{"type":"ERROR","object":{"code":"Gone"}}\n',
        b'"x' + b"x" * 9 * 2**20,
    ],
    ids=["no-json", "no-object", "no-metadata", "no-body", "no-code", "too-long"],
)
async def test_malformed_event_causes_a_new_list_instead_of_a_resumed_watch(server, observe, line):
    seen = await observe(
        3,
        listing(10, job("a", 8)),
        watch(event("MODIFIED", job("a", 11)), line),
        listing(30, job("a", 30)),
    )
    assert seen[1:] == [("MODIFIED", "a", "11"), ("MODIFIED", "a", "30")]
    assert "resourceVersion" not in query_of(server, 2)


@pytest.mark.parametrize("item", [{}, {"metadata": None}, {"metadata": ["a"]}, "a", None])
async def test_malformed_list_is_requested_again(observe, item):
    assert await observe(1, listing(10, item), listing(11, job("a", 8))) == [("ADDED", "a", "8")]


async def test_list_without_metadata_after_a_broken_watch_does_not_end_the_informer(observe):
    seen = await observe(
        2,
        listing(10, job("a", 8)),
        watch(end="break"),
        reply({"kind": "JobList", "metadata": None}),
        listing(11, job("a", 11)),
    )
    assert seen[1:] == [("MODIFIED", "a", "11")]


async def test_events_of_unknown_type_and_empty_lines_are_ignored(server, observe):
    strange = event("SHOUTED", {"metadata": {"resourceVersion": "11"}})
    seen = await observe(1, listing(10), watch(strange, b"\n", event("ADDED", job("a", 12)), end="hang"))
    assert seen == [("ADDED", "a", "12")]


async def test_backoff_grows_during_failures_and_the_failure_is_exposed(server, observe, sleeps):
    shown = []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        shown.append(str(observe.informer.failure))

    refused = [failure(403, "Forbidden", 'User "alice" cannot list resource "jobs"')] * 10
    seen = await observe(1, *refused, listing(3, job("a", 3)), sleep=sleep)
    assert seen == [("ADDED", "a", "3")]
    assert len(sleeps) == 10
    assert all(0.1 * 2**n <= pause <= min(0.2 * 2**n, 30) for n, pause in enumerate(sleeps[:7], start=1))
    assert max(sleeps) <= 30
    assert shown[0] == f'GET {server.url}{PATH}: 403: User "alice" cannot list resource "jobs"'


@pytest.mark.parametrize("end", [watch(EXPIRED), watch()], ids=["expired", "clean"])
async def test_watch_that_always_ends_immediately_is_reopened_with_backoff(server, observe, sleeps, end):
    rounds = [step for _ in range(8) for step in (end, listing(10, job("a", 3)))]
    happy = watch(event("ADDED", job("b", 11)), end="hang")
    await observe(2, listing(10, job("a", 3)), *rounds, happy, clock=lambda: 0.0)
    assert len(sleeps) == 8
    assert sleeps[-1] > 10


async def test_failure_is_cleared_after_a_successful_list_and_an_event(server, observe):
    await observe(2, failure(500), listing(3, job("a", 3)), watch(event("ADDED", job("b", 4)), end="hang"))
    assert observe.informer.failure is None


async def test_burst_of_events_is_delivered_in_few_batches(server, client):
    burst = b"".join(event("ADDED", job(f"job-{n}", 100 + n)) for n in range(1000))
    server.script = [listing(10), watch(burst, end="hang")]
    sizes = []
    async with aclosing(Informer(client, PATH).batches()) as batches:
        async for batch in batches:
            sizes.append(len(batch))
            if sum(sizes) == 1000:
                break
    assert len(sizes) <= 50


async def test_slow_consumer_applies_backpressure_to_the_server(server, client):
    filler = {"spec": {"filler": "x" * 100_000}}
    written = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for version in range(100, 1100):
            await response.write(event("ADDED", job(f"j{version}", version) | filler))
            written += 1
        return response

    server.script = [listing(10), flood]
    async with aclosing(Informer(client, PATH).batches()) as batches:
        await anext(batches)
        for _ in range(5000):  # many more iterations than reading everything would take
            await asyncio.sleep(0)
        assert 0 < written < 300
