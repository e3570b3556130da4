"""Immediate impact of a change on workloads: admitted, evicted, or never admissible any more. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from admission.engine import Evict, WorkloadGone, WorkloadPending
from admission.engine.vocabulary import HOPELESS, SLICE_REPLACED
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from admission.api.http.responses import Document
    from admission.engine import Engine, Event
    from admission.engine.over_quota import Overuse
    from admission.model.workload import Workload

_ROUNDS: Final = 10
"""Most rounds of decisions; after each one evicted workloads count as stopped. What follows later is not predicted."""

_LISTED: Final = 100
"""Most workloads in each list of the document."""
_NAMED: Final = 5
"""Most workloads that a warning names."""
_ALL: Final = 10**9
"""A limit that no queue reaches."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Immediate impact of a change."""

    admitted: tuple[Workload, ...] = ()
    evicted: tuple[Evict, ...] = ()
    impossible: tuple[tuple[Workload, str, str], ...] = ()
    """Pending workloads that could never be admitted any more, with reason and message."""
    overused: tuple[Overuse, ...] = ()
    """Usage beyond quota that would be new, or larger than before."""

    @property
    def workloads(self) -> Iterator[Workload]:
        """All workloads that it names."""
        yield from self.admitted
        yield from (each.workload for each in self.evicted)
        yield from (workload for workload, _, _ in self.impossible)

    def without(self, clusters: Collection[str], *, namespace: str = "") -> Impact:
        """Return the impact but for that on the workloads of a namespace (empty: of all) in these clusters."""

        def stays(workload: Workload) -> bool:
            return workload.cluster not in clusters or namespace not in ("", workload.namespace)

        return replace(
            self,
            admitted=tuple(each for each in self.admitted if stays(each)),
            evicted=tuple(each for each in self.evicted if stays(each.workload)),
            impossible=tuple(each for each in self.impossible if stays(each[0])),
        )


@dataclass(slots=True)
class _Outcome:
    """Net result of some rounds of decisions, by uid of the workload."""

    admitted: dict[str, Workload] = field(default_factory=dict)
    evicted: dict[str, Evict] = field(default_factory=dict)


def impact(
    engine: Engine,
    change: Iterable[Event],
    *,
    waiting: Sequence[WorkloadPending],
    now: float,
    until: float = 0.0,
) -> Impact:
    """Return the impact of the events `change` on `engine`, which must not be used for anything else afterwards.

    Decisions that are due without the change are made first, and are not part of the result. `waiting` are the events
    of pending workloads that the engine has observed. Evicted workloads count as stopped immediately. What follows
    from the passing of time alone, such as evictions by `overQuota`, is included if it comes before `until`.
    """
    _settle(engine, now)
    hopeless = {workload.uid for workload, _, _ in _hopeless(engine, waiting)}
    overused = {(over.kind, over.name, over.flavor, over.resource): over.by for over in engine.overuse()}
    for event in change:
        engine.observe(event, now=now)
    outcome = _settle(engine, now, until)
    return Impact(
        admitted=tuple(outcome.admitted.values()),
        evicted=tuple(outcome.evicted.values()),
        impossible=tuple(found for found in _hopeless(engine, waiting) if found[0].uid not in hopeless),
        overused=tuple(
            over
            for over in engine.overuse()
            if over.by > overused.get((over.kind, over.name, over.flavor, over.resource), 0)
        ),
    )


def _settle(engine: Engine, now: float, until: float = 0.0) -> _Outcome:
    outcome = _Outcome()
    for _ in range(_ROUNDS):
        decisions = engine.settle(now)
        for admit in decisions.admitted:
            if outcome.evicted.pop(admit.workload.uid, None) is None:
                outcome.admitted[admit.workload.uid] = admit.workload
        for evict in decisions.evicted:
            uid = evict.workload.uid
            if outcome.admitted.pop(uid, None) is None:
                outcome.evicted[uid] = evict
            requeue = None if evict.reason == SLICE_REPLACED else evict.workload
            engine.observe(WorkloadGone(uid, requeue=requeue), now=now)
        if not decisions.evicted:
            due = engine.wake_at()
            if due is None or due > until:
                break
            now = max(now, due)
    return outcome


def _hopeless(engine: Engine, waiting: Sequence[WorkloadPending]) -> list[tuple[Workload, str, str]]:
    found = []
    listed = set()
    for name in engine.cluster_queues():
        for place in engine.listing(name, limit=_ALL):
            listed.add(place.workload.uid)
            if place.reason in HOPELESS:
                found.append((place.workload, place.reason, place.message))
    for pending in waiting:  # workloads whose ClusterQueue does not exist are listed nowhere
        if pending.on_hold or pending.workload.uid in listed:
            continue
        explanation = engine.explain(pending.workload.uid)
        if explanation is not None and explanation.state == "Pending" and explanation.reason in HOPELESS:
            found.append((pending.workload, explanation.reason, explanation.message))
    return found


def impact_document(impact: Impact) -> Document:
    """Return the document for `status.impact`. Long lists are truncated; `counts` has their full lengths."""
    return {
        "counts": {
            "admitted": len(impact.admitted),
            "evicted": len(impact.evicted),
            "impossible": len(impact.impossible),
        },
        "admitted": [_name(workload) for workload in impact.admitted[:_LISTED]],
        "evicted": [
            {**_name(evict.workload), "reason": evict.preemption_reason or evict.reason, "message": evict.message}
            for evict in impact.evicted[:_LISTED]
        ],
        "impossible": [
            {**_name(workload), "reason": reason, "message": message}
            for workload, reason, message in impact.impossible[:_LISTED]
        ],
        "overQuota": [
            {
                _lower(over.kind): over.name,
                "flavor": over.flavor,
                "resource": over.resource,
                "by": format_amount(over.resource, over.by),
            }
            for over in impact.overused[:_LISTED]
        ],
    }


def impact_warnings(impact: Impact) -> list[str]:
    """Return the impact as warnings, for clients that show text only; empty if there is none."""
    texts = []
    for what, workloads in (
        ("admit", impact.admitted),
        ("evict", [evict.workload for evict in impact.evicted]),
        ("make it impossible to admit", [workload for workload, _, _ in impact.impossible]),
    ):
        if workloads:
            names = ", ".join(workload.key for workload in workloads[:_NAMED])
            more = f" and {len(workloads) - _NAMED} more" if len(workloads) > _NAMED else ""
            texts.append(f"would {what} {len(workloads)} workload{'s' * (len(workloads) > 1)}: {names}{more}")
    texts += [
        f"would have {over.kind} {over.name} use {format_amount(over.resource, over.by)} of {over.resource} in flavor "
        f"{over.flavor} more than it may; running workloads stay, except in ClusterQueues with spec.overQuota"
        for over in impact.overused[:_NAMED]
    ]
    return texts


def _name(workload: Workload) -> Document:
    return {"namespace": workload.namespace, "name": workload.name}


def _lower(kind: str) -> str:
    return kind[:1].lower() + kind[1:]
