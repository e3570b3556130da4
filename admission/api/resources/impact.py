"""What would follow at once from a change: who would be admitted, evicted, or could never run. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from admission.engine import Evict, WorkloadGone, WorkloadPending
from admission.engine.vocabulary import HOPELESS, SLICE_REPLACED
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.api.http.responses import Document
    from admission.engine import Engine, Event
    from admission.engine.over_quota import Overuse
    from admission.model.workload import Workload

_ROUNDS: Final = 10
"""So often evicted workloads are taken as stopped and it is decided again; further than that nobody looks ahead."""

_LISTED: Final = 100
_NAMED: Final = 5
_ALL: Final = 10**9


@dataclass(frozen=True, slots=True)
class Impact:
    """What would follow at once."""

    admitted: tuple[Workload, ...] = ()
    evicted: tuple[Evict, ...] = ()
    impossible: tuple[tuple[Workload, str, str], ...] = ()
    """Each that waits and could never be admitted any more, with reason and message."""
    overused: tuple[Overuse, ...] = ()
    """Where more would be in use than may be, and is not yet."""


@dataclass(slots=True)
class _Following:
    admitted: dict[str, Workload] = field(default_factory=dict)
    evicted: dict[str, Evict] = field(default_factory=dict)


def impact(engine: Engine, change: Iterable[Event], *, waiting: Sequence[WorkloadPending], now: float) -> Impact:
    """Tell `engine` the change and see. It is of no use for anything else afterwards.

    What would be decided without the change is decided first, and is no part of the answer. `waiting` are the
    workloads that were told as such. Evicted workloads are taken as stopped at once.
    """
    _settle(engine, now)
    hopeless = {workload.uid for workload, _, _ in _hopeless(engine, waiting)}
    overused = {(over.kind, over.name, over.flavor, over.resource): over.by for over in engine.overuse()}
    for event in change:
        engine.observe(event, now=now)
    following = _settle(engine, now)
    return Impact(
        admitted=tuple(following.admitted.values()),
        evicted=tuple(following.evicted.values()),
        impossible=tuple(found for found in _hopeless(engine, waiting) if found[0].uid not in hopeless),
        overused=tuple(
            over
            for over in engine.overuse()
            if over.by > overused.get((over.kind, over.name, over.flavor, over.resource), 0)
        ),
    )


def _settle(engine: Engine, now: float) -> _Following:
    following = _Following()
    for _ in range(_ROUNDS):
        decisions = engine.settle(now)
        for admit in decisions.admitted:
            if following.evicted.pop(admit.workload.uid, None) is None:
                following.admitted[admit.workload.uid] = admit.workload
        for evict in decisions.evicted:
            uid = evict.workload.uid
            if following.admitted.pop(uid, None) is None:
                following.evicted[uid] = evict
            requeue = None if evict.reason == SLICE_REPLACED else evict.workload
            engine.observe(WorkloadGone(uid, requeue=requeue), now=now)
        if not decisions.evicted:
            break
    return following


def _hopeless(engine: Engine, waiting: Sequence[WorkloadPending]) -> list[tuple[Workload, str, str]]:
    found = []
    listed = set()
    for name in engine.cluster_queues():
        for place in engine.listing(name, limit=_ALL):
            listed.add(place.workload.uid)
            if place.reason in HOPELESS:
                found.append((place.workload, place.reason, place.message))
    for told in waiting:  # those that no ClusterQueue has in its order
        if told.on_hold or told.workload.uid in listed:
            continue
        standing = engine.explain(told.workload.uid)
        if standing is not None and standing.state == "Pending" and standing.reason in HOPELESS:
            found.append((told.workload, standing.reason, standing.message))
    return found


def impact_document(impact: Impact) -> Document:
    """For `status.impact`. Long lists are cut, `counts` tell how long they are."""
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
    """The same in sentences, for those who see only text; empty if nothing would follow."""
    texts = []
    for what, workloads in (
        ("admit", impact.admitted),
        ("evict", [evict.workload for evict in impact.evicted]),
        ("leave without any chance", [workload for workload, _, _ in impact.impossible]),
    ):
        if workloads:
            names = ", ".join(workload.key for workload in workloads[:_NAMED])
            more = f" and {len(workloads) - _NAMED} more" if len(workloads) > _NAMED else ""
            texts.append(f"would {what} {len(workloads)} workload{'s' * (len(workloads) > 1)}: {names}{more}")
    texts += [
        f"would have {over.kind} {over.name} use {format_amount(over.resource, over.by)} of {over.resource} in flavor "
        f"{over.flavor} more than it may; running workloads stay"
        for over in impact.overused[:_NAMED]
    ]
    return texts


def _name(workload: Workload) -> Document:
    return {"namespace": workload.namespace, "name": workload.name}


def _lower(kind: str) -> str:
    return kind[:1].lower() + kind[1:]
