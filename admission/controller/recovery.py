"""Loading of the committed state into an empty `LeaderState`: registry and engine.

The controller then compares that state with the cluster. Each difference has one rule:

| in the database | in the cluster                  | action                                                       |
| --------------- | ------------------------------- | ------------------------------------------------------------ |
| admitted        | gated                           | started: the PATCH after the commit did not succeed          |
| admitted        | runs                            | none                                                         |
| pending         | runs                            | stopped: it has no quota (never gated, or ungated by others) |
| pending         | runs, started by a late request | stopped and restored: the start took effect after eviction   |
| not stored      | runs or gated, queued           | recorded as pending, and stopped if it runs                  |
| evicting        | runs                            | stopped: the PATCH after the commit did not succeed          |
| evicting        | stopped, with injected fields   | restored, then its quota is released                         |
| evicting        | stopped, restored               | its quota is released, and it is pending again               |
| unfinished      | has finished                    | finished with its outcome; its quota is released             |
| holds quota     | deleted                         | its quota is released when no pod of it is left              |
| pending         | deleted                         | finished, with outcome Deleted                               |
| pending         | edited, moved to another queue  | pending with its new contents                                |
| admitted        | gated, edited                   | evicted: its admission does not match its requests           |
| admitted        | in a queue that was deleted     | runs on; pending workloads report the missing queue          |
| unfinished      | of a kind that is not enabled   | unchanged: nothing is started, stopped or released           |
| unfinished      | not queued any more             | finished if it is pending; if it runs, it runs on            |
| pending         | in a cluster that has left      | finished                                                     |
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from admission.controller.state.leader_state import EndedWorkloads
from admission.controller.state.tracked import Tracked
from admission.controller.state.workload_change import WorkloadChange
from admission.engine.events import NamespaceChanged, QueueObjectChanged, WorkloadAdmitted, WorkloadPreempted
from admission.model import sentences
from admission.model.names import listed
from admission.model.queues import Cluster
from admission.model.workload import LOCAL
from admission.store.records import DEQUEUED, State
from admission.store.workloads.replay import ended_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.controller.leader import Leader
    from admission.controller.state.leader_state import LeaderState
    from admission.engine import PolicyEvent
    from admission.store.records import CheckRecord, LoadedState, WorkloadRecord

log = logging.getLogger(__name__)


def restore(
    loaded: LoadedState,
    seeds: Iterable[PolicyEvent],
    leaders: Mapping[str, Leader],
    *,
    namespaces: Mapping[str, Mapping[str, str]],
) -> None:
    """Fill the empty states of all clusters with `loaded`, and their contexts with its queue objects.

    `seeds`: events for policies. `leaders`: by cluster, that of `LOCAL` first. `namespaces`: labels by name.
    """
    state, isolation = leaders[LOCAL].state, leaders[LOCAL].isolation
    for leader in leaders.values():
        leader.context.forget_queue_objects()
    for namespace, labels in namespaces.items():
        state.observe(NamespaceChanged(namespace, labels))
    for obj in loaded.queue_objects:
        with isolation.of_queue_object(obj.key):
            for leader in leaders.values():
                leader.context.update_queue_object(obj)
            state.observe(QueueObjectChanged(obj))
    state.engine.settle(now=state.now)  # builds the cohort trees now, while they contain no workloads
    for seed in seeds:
        state.observe(seed)
    for uid, at in loaded.preemptions:
        state.observe(WorkloadPreempted(uid, at))
    orders = {order.uid: order for order in loaded.orders}
    checks: dict[str, list[CheckRecord]] = {}
    for check in loaded.checks:
        checks.setdefault(check.uid, []).append(check)
    for leader in leaders.values():
        leader.state.ended = EndedWorkloads(one.uid for one in loaded.recently_finished)
    for ended in ended_workloads(loaded):
        state.observe(ended)
    clusters = {obj.name for obj in loaded.queue_objects if isinstance(obj, Cluster)}
    for record in loaded.workloads:
        uid = record.workload.uid
        here = leaders.get(record.workload.cluster)
        if here is None and record.admission is None and record.workload.cluster not in clusters:
            left = WorkloadChange(Tracked(record=record), now=state.now)
            left.finish(outcome=DEQUEUED, message=sentences.cluster_left(record.workload.cluster))
            state.apply(left)
            continue
        if here is None:
            _keep_quota(record, state)
            continue
        with here.isolation.of(uid):
            is_on = here.kinds.of(record.workload) is not None
            here.state.restore(record, orders.get(uid), tuple(checks.get(uid, ())), is_on=is_on)


def _keep_quota(record: WorkloadRecord, state: LeaderState) -> None:
    """Count the quota of a workload whose cluster has left; it waits, or holds its quota, until that joins again."""
    if record.admission is not None:
        at = record.admitted_at or record.queued_at
        key, cluster = record.workload.key, record.workload.cluster
        log.error("workload %s in the cluster %s, which has left, holds quota", key, cluster)
        state.observe(WorkloadAdmitted(record.workload, record.admission, at=at, evicting=True))


def log_start(workloads: Sequence[Tracked]) -> None:
    """Log that decisions begin, and warn of running objects that are stopped first, because they hold no quota."""
    total, holding = len(workloads), sum(tracked.holds_quota for tracked in workloads)
    log.info("decides from now on, about %d workloads, of which %d hold quota", total, holding)
    names = sorted(
        tracked.record.workload.key
        for tracked in workloads
        if tracked.record.state is State.PENDING and (seen := tracked.seen) is not None
        if not seen.suspended and seen.finished is None
    )
    if names:
        log.warning("stops running Jobs that hold no quota on record, %d: %s", len(names), listed(names))
