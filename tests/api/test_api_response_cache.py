"""Response caches: one computation for concurrent requests, lifetimes by cost, one entry for each key."""

from __future__ import annotations

import asyncio

import pytest
from api_client import Client

from admission.api.http.response_cache import MAX_ENTRIES, ResponseCache, RevisionCache

HOUR = 3600.0


class Maker:
    """Computes answers once `go` is set, and counts them."""

    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()

    async def make(self) -> int:
        self.made += 1
        await self.go.wait()
        return self.made


async def test_concurrent_requests_share_a_computation_even_if_the_first_is_cancelled():
    answers, maker = ResponseCache[int](HOUR), Maker()
    first, second = (asyncio.create_task(answers.get("a", maker.make)) for _ in range(2))
    other = asyncio.create_task(answers.get("b", maker.make))
    await asyncio.sleep(0)
    first.cancel()
    maker.go.set()
    assert await second == await answers.get("a", maker.make)
    await other
    assert maker.made == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_expired_or_failed_response_is_computed_again_and_entries_are_bounded():
    answers, maker = ResponseCache[int](0.0), Maker()
    maker.go.set()
    assert [await answers.get("a", maker.make), await answers.get("a", maker.make)] == [1, 2]

    async def fail() -> int:
        raise ValueError("no")

    kept = ResponseCache[int](HOUR)
    with pytest.raises(ValueError, match="no"):
        await kept.get("a", fail)
    assert await kept.get("a", maker.make) == 3
    assert [await kept.get(number, maker.make) for number in range(MAX_ENTRIES + 5)][-1] == MAX_ENTRIES + 8
    assert len(kept._entries) == MAX_ENTRIES


@pytest.mark.parametrize(("cost", "lasts"), [(0.01, 10.0), (0.1, 20.0), (5.0, 60.0)])
async def test_response_with_a_high_processor_time_is_cached_longer(monkeypatch, cost, lasts):
    used, now, maker = 0.0, 0.0, Maker()
    monkeypatch.setattr("admission.api.http.response_cache.time.monotonic", lambda: now)
    maker.go.set()

    async def made() -> int:
        nonlocal used
        used += cost
        return await maker.make()

    answers = ResponseCache[int](10.0, used=lambda: used)
    assert await answers.get("a", made) == 1
    now = lasts - 1
    assert await answers.get("a", made) == 1
    now = lasts
    assert await answers.get("a", made) == 2


async def test_lists_of_different_namespaces_are_cached_separately(api: Client):
    for namespace in ("team-a", "team-b"):
        body = {
            "apiVersion": "sluice.dev/v1",
            "kind": "LocalQueue",
            "metadata": {"name": f"of-{namespace}"},
            "spec": {"clusterQueue": "cq"},
        }
        assert (await api.post(f"namespaces/{namespace}/localqueues", body)).status == 201
    for namespace in ("team-a", "team-b", "team-a"):
        found = (await api.get(f"namespaces/{namespace}/localqueues")).body["items"]
        assert [item["metadata"]["name"] for item in found] == [f"of-{namespace}"]
    assert len((await api.get("localqueues")).body["items"]) == 2


async def test_revision_cache_recomputes_only_after_a_change_and_the_lifetime(monkeypatch):
    revision, maker = 1, Maker()
    maker.go.set()
    answer = RevisionCache(maker.make, revision=lambda: revision, share=1e9, max_seconds=HOUR)
    monkeypatch.setattr(RevisionCache, "MIN_SECONDS", 0.0)
    assert await asyncio.gather(*(answer.get() for _ in range(3))) == [1, 1, 1]
    revision = 2
    assert await asyncio.gather(answer.get(), answer.get()) == [2, 2]
    monkeypatch.setattr(RevisionCache, "MIN_SECONDS", HOUR)
    revision = 3
    assert await answer.get() == 3
    revision = 4
    assert await answer.get() == 3, "it lasts, however much changes meanwhile"


async def test_revision_cache_retries_after_a_failed_computation():
    async def fail() -> int:
        calls.append(1)
        raise ValueError("no answer")

    calls: list[int] = []
    answer = RevisionCache(fail, revision=lambda: 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            await answer.get()
    assert len(calls) == 2
