"""From what is on record to what a lead works on: all that is committed, told to an empty engine and registry.

What follows in the controller is to compare that with the cluster, and each difference has one rule:

| on record   | in the cluster                   | what is done                                                  |
| ----------- | -------------------------------- | ------------------------------------------------------------- |
| admitted    | gated                            | started: the PATCH after the commit was cut off               |
| admitted    | runs                             | nothing                                                       |
| pending     | runs                             | stopped: nobody gave it quota, or somebody took the gate away |
| pending     | runs, started by a late request  | stopped and restored: it was evicted before that came through |
| nothing     | runs or gated, queued            | recorded as pending, and stopped if it runs                   |
| evicting    | runs                             | stopped: the PATCH after the commit was cut off               |
| evicting    | stopped, with what was injected  | restored, then its quota is free                              |
| evicting    | stopped, as it was               | its quota is free, and it waits again                         |
| unfinished  | has ended                        | finished with its outcome; its quota is free                  |
| holds quota | gone                             | its quota is free when no pod of it is left                   |
| pending     | gone                             | finished, as deleted                                          |
| pending     | edited, moved to another queue   | waits as what it is now                                       |
| admitted    | gated, edited                    | evicted: what it holds is not what it asks for                |
| admitted    | in a queue that is there no more | runs on; what waits is told that the queue is not there       |
| unfinished  | of a kind that is off            | stays as it is: nothing is started, stopped or freed          |
| unfinished  | not queued any more              | finished if it waits; what runs, runs on                      |
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from admission.controller.state.leader_state import EndedWorkloads
from admission.engine.events import NamespaceChanged, QueueObjectChanged
from admission.model.names import listed
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.controller.state.context import Context
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.leader_state import LeaderState, Registry
    from admission.engine import PolicyEvent
    from admission.kinds.registry import Kinds
    from admission.store.records import CheckRecord, LoadedState

log = logging.getLogger(__name__)


def restore(
    loaded: LoadedState,
    seeds: Iterable[PolicyEvent],
    *,
    state: LeaderState,
    context: Context,
    kinds: Kinds,
    isolation: Isolation,
) -> None:
    """Put all of `loaded` into an empty state, the queue objects also into the context, the policies' `seeds` too."""
    context.forget_queue_objects()
    for namespace in context.namespaces():
        state.tell(NamespaceChanged(namespace, context.namespace_labels(namespace)))
    for obj in loaded.queue_objects:
        with isolation.of_queue_object(obj.key):
            context.see_queue_object(obj)
            state.tell(QueueObjectChanged(obj))
    state.engine.settle(now=state.now)  # the trees are built now, and not anew around all workloads
    for seed in seeds:
        state.tell(seed)
    orders = {order.uid: order for order in loaded.orders}
    checks: dict[str, list[CheckRecord]] = {}
    for check in loaded.checks:
        checks.setdefault(check.uid, []).append(check)
    state.ended = EndedWorkloads(loaded.recently_finished)
    for record in loaded.workloads:
        uid = record.workload.uid
        with isolation.of(uid):
            is_on = kinds.of(record.workload) is not None
            state.restore(record, orders.get(uid), tuple(checks.get(uid, ())), is_on=is_on)


def log_start(registry: Registry) -> None:
    """Tell that decisions begin, and warn of the objects that run and will be stopped first, because no record lets
    them: how many, and which.
    """
    total, holding = len(registry), sum(tracked.holds_quota for tracked in registry)
    log.info("decides from now on, about %d workloads, of which %d hold quota", total, holding)
    names = sorted(
        tracked.record.workload.key
        for tracked in registry
        if tracked.record.state is State.PENDING and (seen := tracked.seen) is not None
        if not seen.suspended and seen.finished is None
    )
    if names:
        log.warning("stops running Jobs that hold no quota on record, %d: %s", len(names), listed(names))
