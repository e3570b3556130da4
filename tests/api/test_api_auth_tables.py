"""Cache and rate limiter of authentication: bounded in size, one load for concurrent callers, tokens are refilled."""

from __future__ import annotations

import asyncio

import pytest

from admission.api.auth.ttl_cache import TtlCache
from admission.api.http.rate_limits import RateLimiter


async def test_cache_evicts_the_least_recently_used_answer(clock):
    asked: list[str] = []
    cache: TtlCache[str] = TtlCache(size=2, clock=clock)

    async def get(key: str) -> str:
        async def ask() -> tuple[str, float]:
            asked.append(key)
            return key.upper(), 60

        return await cache.get(key, ask)

    for key in ("a", "b", "a", "c", "a", "b"):
        assert await get(key) == key.upper()
    assert asked == ["a", "b", "c", "b"]


async def test_failed_load_is_raised_to_all_waiters_and_not_cached(clock):
    cache: TtlCache[str] = TtlCache(size=2, clock=clock)
    fail, times = asyncio.Event(), 0

    async def ask() -> tuple[str, float]:
        nonlocal times
        times += 1
        await fail.wait()
        raise OSError("no answer")

    waiting = [asyncio.create_task(cache.get("a", ask)) for _ in range(3)]
    await asyncio.sleep(0)
    fail.set()
    for task in waiting:
        with pytest.raises(OSError, match="no answer"):
            await task
    assert (times, cache.has_answer("a")) == (1, False)


async def test_cancelled_first_caller_does_not_cancel_the_load_for_others(clock):
    cache: TtlCache[str] = TtlCache(size=2, clock=clock)
    answer = asyncio.Event()

    async def ask() -> tuple[str, float]:
        await answer.wait()
        return "yes", 1

    first, second = (asyncio.create_task(cache.get("a", ask)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    answer.set()
    assert await second == "yes"
    assert first.cancelled()


def test_token_bucket_is_refilled_up_to_its_burst(clock):
    limiter = RateLimiter(per_second=0.5, burst=2, clock=clock)
    assert [limiter.retry_after("a") for _ in range(3)] == [0, 0, 2]
    assert limiter.retry_after("b") == 0
    clock.advance(1)
    assert limiter.retry_after("a") == 1
    clock.advance(1000)
    assert [limiter.retry_after("a") for _ in range(3)] == [0, 0, 2]


def test_rate_limiter_forgets_the_least_recently_seen_client(clock):
    limiter = RateLimiter(per_second=1, burst=1, clock=clock)
    limiter.retry_after("first")
    for number in range(9_999):
        limiter.retry_after(number)
    assert limiter.retry_after("first") == 1
    limiter.retry_after("one more")
    assert limiter.retry_after(0) == 0
    assert limiter.retry_after("first") == 1
