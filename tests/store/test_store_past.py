"""What is known about a past period, from which it is replayed."""

from __future__ import annotations

from store_examples import admission, admitted, finished, requeued, workload

from admission.store.records import Changes, State, Transition
from admission.store.store import Store

NOW = 1_750_000_000.0


async def test_evicted_workloads_say_how_long_pods_take_to_stop(store: Store):
    epoch = await store.lead("test")

    async def evicted(uid: str, *stops: float) -> None:
        """Write a workload that is admitted every 100 s, evicted 10 s later, and stopped so many seconds later."""
        one = workload(uid)
        for number, stop in enumerate(stops):
            at = NOW + 100 * number
            await store.commit(admitted(one, admission(), at=at), epoch=epoch)
            # What it waits for meanwhile is another transition of the same eviction.
            story = (Transition(uid, at + 10 + more, State.EVICTING, "Preempted") for more in (0, stop / 2))
            await store.commit(Changes(transitions=tuple(story)), epoch=epoch)
            await store.commit(requeued(one, at=at + 10 + stop), epoch=epoch)

    assert (await store.past(start=NOW, end=NOW + 1000)).stopping_seconds is None
    await evicted("a", 1, 3)
    await evicted("b", 30)
    runs = workload("runs")
    await store.commit(admitted(runs, admission(), at=NOW), epoch=epoch)
    await store.commit(finished(runs, at=NOW + 50), epoch=epoch)
    past = await store.past(start=NOW, end=NOW + 1000)
    assert past.stopping_seconds == 3
    assert len(past.workloads) == 3
    assert (await store.past(start=NOW + 100, end=NOW + 1000)).stopping_seconds == 3
    assert (await store.past(start=NOW, end=NOW + 100)).stopping_seconds == (1 + 30) / 2
