"""The leader's timer under the event loop that `serve` uses, whose times are whole milliseconds."""

from __future__ import annotations

import asyncio

import pytest

from admission.controller.state.repeating import Timer
from admission.serving.runtime import new_loop


async def set_in_own_callback() -> None:
    """Set the timer in its own call, when the clock may still show less than the due time; wait for the second call."""
    timer, called = Timer(), asyncio.Event()
    await asyncio.sleep(0.001)  # so that the loop's clock is fresh
    timer.set(0.0104, lambda: timer.set(0.0009, called.set))
    await called.wait()


@pytest.mark.parametrize("factory", [new_loop, asyncio.new_event_loop])
def test_timer_set_in_its_own_callback_fires_again(factory):
    async def often() -> None:
        for _ in range(20):
            await set_in_own_callback()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(often())


async def test_timer_fires_at_the_earliest_of_several_times():
    timer, calls = Timer(), asyncio.Queue()
    timer.set(3600, lambda: calls.put_nowait("late"))
    timer.set(0.001, lambda: calls.put_nowait("early"))
    timer.set(3600, lambda: calls.put_nowait("later"))
    assert await calls.get() == "early"
    timer.set(0.001, lambda: calls.put_nowait("next"))
    assert await calls.get() == "next"
    timer.set(3600, lambda: calls.put_nowait("never"))
    timer.cancel()
    timer.set(0, lambda: calls.put_nowait("after"))
    assert await calls.get() == "after"
    assert calls.empty()
