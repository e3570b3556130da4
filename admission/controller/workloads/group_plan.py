"""Which pods of a group may run: pure functions of its pods and of what it was admitted with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from admission.controller.state.tracked import packed
from admission.controller.workloads.group_trees import GroupState
from admission.kinds import templates
from admission.kinds.admission_gates import gates_of
from admission.kinds.base import HOLD
from admission.kinds.children import controller_of
from admission.kinds.common import first
from admission.kinds.declared_pods import declares, pod_set_named
from admission.kinds.grouping import (
    FAST,
    GATE,
    RETRIABLE,
    ROLE,
    STARTED_WITH,
    foreign_group_of,
    is_let_go,
    role_of,
    total_of,
)
from admission.kinds.pod_group import ENDED
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from admission.controller.state.tracked import Tracked
    from admission.kinds.base import Conventions, Object
    from admission.kinds.foreign_groups import Declared
    from admission.kinds.limits import NamespaceContext

_SIZE: Final = 32
"""Characters of a role that tell what a pod requests."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group as it was last seen."""

    uid: str
    name: str
    created: str
    version: str
    raw: bytes
    role: str
    noted_role: str
    """What an annotation says of its role: a start has written that, or anybody."""
    gated: bool
    deleting: bool
    """Whether it is told to end, or will be as soon as its controller looks, though it has ended."""
    phase: str
    ready: bool
    group: str
    """The uid of the group that has started it, by an annotation; empty: none has."""
    queue: str
    """The LocalQueue that it names."""
    owned: bool
    """Whether a controller has made it."""
    declared: Declared | None
    """What it says of its group in the way of another system; None: it has one of ours."""
    pod_set: str
    """The pod set that it says it is in; empty: it does not say."""
    declares: bool
    """Whether it says which pods its group will have."""
    total: int
    """How many pods it says that its group has; 0: it does not say."""
    held: bool
    """Whether it puts its group on hold."""
    fast: bool
    """Whether it lets its group start before all of its pods are there."""
    gates: tuple[str, ...]
    """The controllers that hold it, and so its group."""
    unretriable: bool
    """Whether it says that no pod is made again in place of one that has failed."""

    @property
    def leaf(self) -> str:
        """The name of its PodGroup of `scheduling.k8s.io`; empty: it has none."""
        return "" if self.declared is None else self.declared.leaf

    @property
    def object(self) -> Object:
        return dict(orjson.loads(self.raw))

    @property
    def is_alive(self) -> bool:
        """Whether it may run, or may come to it."""
        return self.phase not in ENDED

    @property
    def runs(self) -> bool:
        """Whether it may run."""
        return self.is_alive and not self.gated

    @property
    def counts(self) -> bool:
        """Whether it is one of those that the group is to have."""
        return self.phase == "Succeeded" or (self.is_alive and not self.deleting)


def role_leaf(group: str, leaf: str) -> str:
    """The PodGroup as part of the role of its pods: equal pods of two PodGroups in one group are two pod sets.

    Empty if the group is that PodGroup itself.
    """
    return leaf if leaf != group else ""


def member_of(obj: Object, known: Member | None, group: str, *, conventions: Conventions) -> Member:
    """A pod of the group of this name as it is now; `known`: as it was before."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    conditions, annotations = status.get("conditions") or (), metadata.get("annotations") or {}
    phase = status.get("phase") or "Pending"
    declared = foreign_group_of(obj, conventions) if known is None else known.declared
    role = role_of(obj, "" if declared is None else role_leaf(group, declared.leaf))
    if known is not None and not known.gated and known.role[:_SIZE] == role[:_SIZE]:
        role = known.role  # whatever becomes of the annotation; but one that was resized is another
    return Member(
        uid=metadata["uid"],
        name=metadata["name"],
        created=metadata["creationTimestamp"],
        version=metadata["resourceVersion"],
        raw=packed(obj),
        role=role,
        noted_role=annotations.get(ROLE, ""),
        gated=GATE.is_closed(obj),
        deleting="deletionTimestamp" in metadata or (phase in ENDED and is_let_go(obj)),
        phase=phase,
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        group=annotations.get(STARTED_WITH, ""),
        queue=first(metadata.get("labels"), conventions.queue_labels),
        owned=controller_of(obj) is not None,
        declared=declared,
        pod_set=pod_set_named(obj),
        declares=declares(obj),
        total=total_of(obj),
        held="true" in (annotations.get(HOLD), (metadata.get("labels") or {}).get(HOLD)),
        fast=first(annotations, FAST) == "true",
        gates=tuple(gates_of(annotations, conventions.gate_annotation)),
        unretriable=first(annotations, RETRIABLE) == "false",
    )


def queue_of(members: Sequence[Member]) -> str:
    """The LocalQueue that a group is for: the oldest pod that names one says so."""
    return next((each.queue for each in members if each.queue), "")


def admitted_counts(tracked: Tracked) -> dict[str, int]:
    """How many pods of each role it was admitted with."""
    return {pod_set.name: pod_set.count for pod_set in tracked.record.workload.pod_sets}


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the pods of a group that holds quota."""

    started: Sequence[Member]
    """Lose their gate."""
    excess: Sequence[Member]
    """Are deleted."""
    beside: Sequence[Member]
    """Stay gated."""


def planned(tracked: Tracked, members: Sequence[Member], context: NamespaceContext) -> Plan:
    """For a group that holds quota; `members` are the oldest first.

    As many of each role run as it was admitted with. What runs beyond that has let itself run, or has grown. Of those
    that are gated, as in Kueue, the newest that are more than the group is to have are deleted; but what a controller
    has made stays, as it would only be made again, and what is beside a group of another system queues by itself.
    """
    admitted = admitted_counts(tracked)
    room = Counter(admitted)
    room.subtract(each.role for each in members if each.phase == "Succeeded")
    running = [(each, _role(tracked, each, context)) for each in members if each.runs]
    room.subtract(role for each, role in running if each.deleting)
    excess = []
    for each, role in running:
        if not each.deleting:
            room[role] -= 1
            if room[role] < 0:
                excess.append(each)
    started, queue = [], queue_of(members)
    for each in members:
        waits = each.gated and each.is_alive and not each.deleting and each.queue == queue
        if waits and room[each.role] > 0:
            room[each.role] -= 1
            started.append(each)
    settled = {each.uid for each in excess}
    kept = [
        each
        for each in members
        if each.counts and each.uid not in settled and not (each.gated and (each.owned or each.declared))
    ]
    settled.update(each.uid for each in started)
    gated = [each for each in kept if each.gated and each.uid not in settled]
    beyond_total = [*reversed(gated)][: max(len(kept) - sum(admitted.values()), 0)]
    settled.update(each.uid for each in beyond_total)
    left = [each for each in members if each.gated and each.is_alive and not each.deleting]
    return Plan(started, [*excess, *beyond_total], [each for each in left if each.uid not in settled])


def group_state(tracked: Tracked | None, members: Collection[Member]) -> GroupState:
    """The state of a group by its workload and known pods; `tracked` None: it has no workload, or that has finished."""
    if tracked is None:
        return GroupState(None, (), lambda: any(each.group for each in members))
    if not tracked.holds_quota:
        return GroupState(None, (), lambda: False)
    roles = frozenset(admitted_counts(tracked))
    leaves = frozenset(each.leaf for each in members if each.leaf and not roles.isdisjoint((each.role, each.pod_set)))
    return GroupState(leaves, roles, lambda: True)


def gang_pods(members: Iterable[Member], leaves: Mapping[str, int]) -> list[Member]:
    """The pods that a CompositePodGroup starts with: the oldest of each PodGroup, and all that are not gated.

    `leaves`: number of pods by name of the PodGroup; `members`: sorted by age, the oldest first.
    """
    room = Counter(leaves)
    found = []
    for each in members:
        room[each.leaf] -= each.counts
        if not (each.counts and each.gated) or room[each.leaf] >= 0:
            found.append(each)
    return found


def room_in(tracked: Tracked, members: Iterable[Member]) -> int:
    """How many pods a group that holds quota lacks; less than 0: it has more than it needs."""
    return sum(admitted_counts(tracked).values()) - sum(each.counts for each in members)


def beyond(tracked: Tracked, members: Sequence[Member], plan: Plan) -> list[Member]:
    """Those of a group of another system that it does not need, and that may queue by themselves, the newest."""
    number = max(-room_in(tracked, members), 0)
    return [each for each in plan.beside if each.declared][-number:] if number else []


def _role(tracked: Tracked, each: Member, context: NamespaceContext) -> str:
    """The role of a pod that runs; a smaller one than was admitted, or one hashed by another version, keeps its own."""
    if each.role == each.noted_role:
        return each.role
    for pod_set in tracked.record.workload.pod_sets:
        if pod_set.name == each.noted_role and each.group == tracked.uid:
            try:
                now = templates.pod_set(each.role, each.object, context, path="", count=1).requests
            except Misconfigured:
                return each.noted_role
            if all(amount <= pod_set.requests.get(name, 0) for name, amount in now.items()):
                return each.noted_role
    return each.role
