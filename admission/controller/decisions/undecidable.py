"""Search for the workloads on which the engine fails, by bisection, after a cycle has raised an exception."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from admission.engine import Engine
from admission.engine.events import NamespaceChanged, QueueObjectChanged, WorkloadAdmitted, WorkloadPending
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from admission.controller.state.tracked import Tracked
    from admission.engine import Policy
    from admission.engine.events import Event
    from admission.model.queues import QueueObject


def events_of(
    namespaces: Mapping[str, Mapping[str, str]], objects: Iterable[QueueObject], workloads: Iterable[Tracked]
) -> tuple[list[Event], list[Event]]:
    """Return the events that set up an engine: those of queues and admitted workloads, and one per pending workload."""
    common: list[Event] = [NamespaceChanged(name, labels) for name, labels in namespaces.items()]
    common += map(QueueObjectChanged, objects)
    waiting: list[Event] = []
    for tracked in workloads:
        record = tracked.record
        if record.admission is None:
            waiting.append(
                WorkloadPending(record.workload, on_hold=tracked.on_hold, not_before=record.not_before or 0.0)
            )
        else:
            evicting = record.state is State.EVICTING
            at = record.admitted_at or record.queued_at
            cleared_at = record.cleared_at or 0.0
            common.append(
                WorkloadAdmitted(record.workload, record.admission, at=at, evicting=evicting, cleared_at=cleared_at)
            )
    return common, waiting


def first_undecidable(
    policy: Policy, common: Sequence[Event], waiting: Sequence[Event], *, now: float
) -> tuple[str, Exception] | None:
    """Return the uid of the first pending workload with which an engine fails, and its exception.

    None if no engine fails, or one fails even without pending workloads. Bisection over the prefixes of `waiting`: it
    tries about as many engines as the length of `waiting` has binary digits. The engine in use is not touched.
    """

    def failure(count: int) -> Exception | None:
        """Return the exception of an engine with the first `count` pending workloads; None if it raises none."""
        engine = Engine(policy)
        try:
            for event in (*common, *waiting[:count]):
                engine.observe(event, now=now)
            engine.settle(now)
        except Exception as error:  # noqa: BLE001  any exception is the result
            return error
        return None

    error = failure(len(waiting))
    if error is None or failure(0) is not None:
        return None
    passing, failing = 0, len(waiting)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        found = failure(middle)
        if found is None:
            passing = middle
        else:
            failing, error = middle, found
    event = waiting[failing - 1]
    assert isinstance(event, WorkloadPending)
    return event.workload.uid, error


async def undecidable(
    policy: Policy,
    namespaces: Mapping[str, Mapping[str, str]],
    objects: Sequence[QueueObject],
    workloads: Iterable[Tracked],
    *,
    now: Callable[[], float],
) -> AsyncIterator[tuple[Tracked, Exception]]:
    """Yield all workloads with which an engine fails, and their exceptions. Engines run in a worker thread.

    `namespaces`: labels by name.
    """
    suspects = {tracked.uid: tracked for tracked in workloads}
    while suspects:
        common, waiting = events_of(namespaces, objects, suspects.values())
        found = await asyncio.to_thread(first_undecidable, policy, common, waiting, now=now())
        if found is None:
            return
        yield suspects.pop(found[0]), found[1]
