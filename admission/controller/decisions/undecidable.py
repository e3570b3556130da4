"""Which workload an engine cannot decide about: searched for by trial, after its decisions have failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from admission.engine import Engine
from admission.engine.events import NamespaceChanged, QueueObjectChanged, WorkloadAdmitted, WorkloadPending
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from admission.controller.state.context import Context
    from admission.controller.state.tracked import Tracked
    from admission.engine import Policy
    from admission.engine.events import Event
    from admission.model.queues import QueueObject


def events_of(
    context: Context, objects: Iterable[QueueObject], workloads: Iterable[Tracked]
) -> tuple[list[Event], list[Event]]:
    """What an engine is told of the queues and of quota that is held, and what of those that wait, one by one."""
    common: list[Event] = [NamespaceChanged(name, context.namespace_labels(name)) for name in context.namespaces()]
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
            common.append(WorkloadAdmitted(record.workload, record.admission, at=at, evicting=evicting))
    return common, waiting


def first_undecidable(
    policy: Policy, common: Sequence[Event], waiting: Sequence[Event], *, now: float
) -> tuple[str, Exception] | None:
    """The uid of the first of those that wait with which an engine fails, and how; None if it is not one of them.

    It takes as many engines as the number of those that wait has binary digits; nothing else is touched.
    """

    def failure(count: int) -> Exception | None:
        engine = Engine(policy)
        try:
            for event in (*common, *waiting[:count]):
                engine.observe(event, now=now)
            engine.settle(now)
        except Exception as error:  # noqa: BLE001  that is what is asked
            return error
        return None

    error = failure(len(waiting))
    if error is None or failure(0) is not None:
        return None
    sound, unsound = 0, len(waiting)
    while unsound - sound > 1:
        middle = (sound + unsound) // 2
        found = failure(middle)
        if found is None:
            sound = middle
        else:
            unsound, error = middle, found
    event = waiting[unsound - 1]
    assert isinstance(event, WorkloadPending)
    return event.workload.uid, error


async def undecidable(
    policy: Policy,
    context: Context,
    objects: Sequence[QueueObject],
    workloads: Iterable[Tracked],
    *,
    now: Callable[[], float],
) -> AsyncIterator[tuple[Tracked, Exception]]:
    """All workloads with which an engine fails, and how, searched for on a thread of its own."""
    suspects = {tracked.uid: tracked for tracked in workloads}
    while suspects:
        common, waiting = events_of(context, objects, suspects.values())
        found = await asyncio.to_thread(first_undecidable, policy, common, waiting, now=now())
        if found is None:
            return
        yield suspects.pop(found[0]), found[1]
