"""Watches of the client: resumed after a broken connection, listed again when the version has expired."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from client_script import stream

from admission.client import BadAnswer, Forbidden, Unreachable, watching


def cohort(name: str, version: int, uid: str = "", parent: str = "") -> dict[str, object]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": metadata, "spec": {"parentName": parent}}


def page(version: int, *items: dict[str, object], more: str = "") -> dict[str, object]:
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return {"apiVersion": "sluice.dev/v1", "kind": "CohortList", "metadata": metadata, "items": list(items)}


def event(kind: str, item: dict[str, object]) -> dict[str, object]:
    return {"type": kind, "object": item}


def bookmark(version: int) -> dict[str, object]:
    return {"type": "BOOKMARK", "object": {"kind": "Cohort", "metadata": {"resourceVersion": str(version)}}}


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


async def first(sluice, count: int, **selection: str) -> list[tuple[str, str, str]]:
    """Type, name and version of each of the first `count` events."""
    seen = []
    async with aclosing(sluice.cohorts.watch(**selection)) as events:
        async for one in events:
            seen.append((one.type, one.object.name, one.object.metadata.resource_version))
            if len(seen) == count:
                break
    return seen


async def test_watch_delivers_existing_objects_then_changes(scripted, script):
    sluice, _, _ = scripted
    changes = (event("MODIFIED", cohort("a", 6)), event("DELETED", cohort("b", 7)), event("ADDED", cohort("c", 8)))
    script.answers = [page(5, cohort("a", 1), more="token"), page(5, cohort("b", 2)), stream(*changes)]
    assert await first(sluice, 5, label_selector="x=y") == [
        ("ADDED", "a", "1"),
        ("ADDED", "b", "2"),
        ("MODIFIED", "a", "6"),
        ("DELETED", "b", "7"),
        ("ADDED", "c", "8"),
    ]
    assert script.requests[1].query["continue"] == "token"
    asked = dict(script.requests[2].query)
    assert int(asked.pop("timeoutSeconds")) > 60
    assert asked == {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": "5", "labelSelector": "x=y"}


async def test_watch_resumes_from_its_last_version_after_an_end_or_broken_connection(scripted, script):
    sluice, pauses, warnings = scripted
    script.answers = [
        page(5, cohort("a", 1)),
        stream(event("MODIFIED", cohort("a", 6)), broken=True),
        stream(bookmark(9)),
        stream(event("MODIFIED", cohort("a", 10))),
    ]
    assert await first(sluice, 3) == [("ADDED", "a", "1"), ("MODIFIED", "a", "6"), ("MODIFIED", "a", "10")]
    assert [request.query["resourceVersion"] for request in script.requests[1:]] == ["5", "6", "9"]
    assert pauses.seconds == [1.0]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"the watch broke and will go on: {script.url} gave no answer")


@pytest.mark.parametrize("told", ["in the stream", "as the answer"])
async def test_expired_watch_lists_again_and_delivers_the_differences(scripted, script, told):
    sluice, _, _ = scripted
    too_old = stream(EXPIRED) if told == "in the stream" else (410, {}, EXPIRED["object"])
    script.answers = [
        page(5, cohort("same", 1), cohort("changes", 2), cohort("goes", 3), cohort("replaced", 4)),
        too_old,
        page(20, cohort("same", 1), cohort("changes", 12), cohort("replaced", 14, uid="other"), cohort("new", 15)),
        stream(event("MODIFIED", cohort("same", 21))),
    ]
    seen = await first(sluice, 4 + 6)
    assert seen[4:] == [
        ("DELETED", "goes", "3"),
        ("DELETED", "replaced", "4"),
        ("MODIFIED", "changes", "12"),
        ("ADDED", "replaced", "14"),
        ("ADDED", "new", "15"),
        ("MODIFIED", "same", "21"),
    ]
    assert script.requests[-1].query["resourceVersion"] == "20"


async def test_watch_events_already_contained_in_the_list_are_not_repeated(scripted, script):
    sluice, _, _ = scripted
    repeated = (event("MODIFIED", cohort("a", 7)), event("DELETED", cohort("b", 8)), event("ADDED", cohort("c", 9)))
    script.answers = [page(5, cohort("a", 7)), stream(*repeated)]
    assert await first(sluice, 2) == [("ADDED", "a", "7"), ("ADDED", "c", "9")]


async def test_outage_is_retried_with_growing_pauses_and_a_single_warning(scripted, script):
    sluice, pauses, warnings = scripted
    down = (503, {}, "no endpoints available")
    script.answers = [page(5, cohort("a", 1)), down, down, down, stream(event("MODIFIED", cohort("a", 6)))]
    assert await first(sluice, 2) == [("ADDED", "a", "1"), ("MODIFIED", "a", "6")]
    assert pauses.seconds == [1.0, 2.0, 4.0]
    assert len(warnings) == 1


@pytest.mark.parametrize("ended", [(), (EXPIRED,)], ids=["empty", "expired"])
async def test_watches_that_end_at_once_are_repeated_with_growing_pauses(scripted, script, ended, monkeypatch):
    monkeypatch.setattr(watching, "_SHORT_WATCH", 600.0)  # "at once" on a busy machine, too
    sluice, pauses, warnings = scripted
    ends = [stream(*ended), *([page(5, cohort("a", 1))] if ended else [])] * 4
    script.answers = [page(5, cohort("a", 1)), *ends, stream(event("MODIFIED", cohort("a", 6)))]
    assert await first(sluice, 2) == [("ADDED", "a", "1"), ("MODIFIED", "a", "6")]
    assert (pauses.seconds, warnings) == ([1.0, 2.0, 4.0], [])


async def test_permanent_error_of_a_watch_is_raised(scripted, script):
    sluice, _, _ = scripted
    forbidden = (403, {}, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not watch"})
    script.answers = [page(5), forbidden]
    with pytest.raises(Forbidden, match="you may not watch"):
        await first(sluice, 1)
    for unknown in ({"type": "WHAT", "object": {}}, {"type": "ADDED"}, "no object", 3):
        script.answers = [page(5), stream(unknown)]
        with pytest.raises(BadAnswer):
            await first(sluice, 1)


async def test_watch_raises_unreachable_if_the_first_list_fails(sluice, url):
    from admission.client import Sluice

    async with Sluice("http://127.0.0.1:1", token="t") as nobody:
        with pytest.raises(Unreachable):
            await first(nobody, 1)
