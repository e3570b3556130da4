"""Which pods of a group are started, deleted or stay gated, by its admission and its pods: pure functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from admission.controller.state.tracked import packed
from admission.controller.workloads.group_trees import GroupState
from admission.kinds import ranks, templates
from admission.kinds.admission_gates import gates_of
from admission.kinds.base import CLUSTER_AFFINITY, HOLD
from admission.kinds.children import controller_of
from admission.kinds.common import first
from admission.kinds.declared_pods import declares, pod_set_named
from admission.kinds.dispatched import noted_copy, runs_in
from admission.kinds.grouping import (
    FAST,
    GATE,
    RETRIABLE,
    ROLE,
    STARTED_WITH,
    foreign_group_of,
    is_being_deleted,
    role_of,
    total_of,
)
from admission.kinds.pod import may_move_with_group, shows_copy
from admission.kinds.pod_group import FINISHED_PHASES
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from admission.controller.state.tracked import Tracked
    from admission.kinds.base import Conventions, Object
    from admission.kinds.foreign_groups import Declared
    from admission.kinds.limits import NamespaceContext
    from admission.model.topology import Values

_SIZE: Final = 32
"""Length of the first part of a role: the hash of the pod's requests."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group as last observed."""

    uid: str
    name: str
    created: str
    version: str
    raw: bytes
    role: str
    annotated_role: str
    """Role in the pod's annotation; a start writes it, but users can, too."""
    gated: bool
    deleting: bool
    """Whether it is being deleted, or is finished and its controller will delete it."""
    phase: str
    ready: bool
    group: str
    """Uid of the group that has started it, from an annotation; empty: it was not started."""
    queue: str
    """LocalQueue in its label."""
    has_controller: bool
    """Whether it has a controller."""
    declared: Declared | None
    """The group of another system that it declares; None: it has Sluice's or Kueue's label, or its controller's."""
    pod_set: str
    """Pod set that it names; empty: none."""
    declares: bool
    """Whether it declares the pod sets of its group."""
    total: int
    """Number of pods of its group by its annotation; 0: it has none."""
    on_hold: bool
    """Whether it puts its group on hold."""
    fast: bool
    """Whether it permits its group to start before all pods exist."""
    gates: tuple[str, ...]
    """Controllers whose admission gates the pod, and so its group, has."""
    unretriable: bool
    """Whether it declares that failed pods are not replaced."""
    priority_class: str
    """Its PriorityClass; empty: it names none."""
    affinity: str
    """In which clusters it asks to run, as its annotation says; empty: it has none."""
    may_be_elsewhere: bool
    """Whether it can run in another cluster."""
    is_shown: bool
    """Whether it says that a copy of it runs in another cluster, or has the status of one."""
    noted: str
    """What it says of its copy; empty: nothing."""

    @property
    def leaf(self) -> str:
        """Name of its PodGroup of `scheduling.k8s.io`; empty: it has none."""
        return "" if self.declared is None else self.declared.leaf

    @property
    def object(self) -> Object:
        return dict(orjson.loads(self.raw))

    @property
    def is_alive(self) -> bool:
        """Whether it is not finished: it runs, or may run once its gate is removed."""
        return self.phase not in FINISHED_PHASES

    @property
    def runs(self) -> bool:
        """Whether it is neither gated nor finished."""
        return self.is_alive and not self.gated

    @property
    def counts(self) -> bool:
        """Whether it counts towards the group's number of pods: it has succeeded, or is alive and not being deleted."""
        return self.phase == "Succeeded" or (self.is_alive and not self.deleting)


def role_leaf(group: str, leaf: str) -> str:
    """Return the PodGroup as part of its pods' roles: equal pods of two PodGroups of one group are two pod sets.

    Empty if the group is that PodGroup itself.
    """
    return leaf if leaf != group else ""


def member_of(obj: Object, known: Member | None, group: str, *, conventions: Conventions) -> Member:
    """Return a pod of a group as observed now. `known`: its last observed version; `group`: name of the group."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    conditions, annotations = status.get("conditions") or (), metadata.get("annotations") or {}
    phase = status.get("phase") or "Pending"
    declared = foreign_group_of(obj, conventions) if known is None else known.declared
    role = role_of(obj, "" if declared is None else role_leaf(group, declared.leaf))
    if known is not None and not known.gated and known.role[:_SIZE] == role[:_SIZE]:
        role = known.role  # whatever its annotation says now; a pod that was resized gets another role
    return Member(
        uid=metadata["uid"],
        name=metadata["name"],
        created=metadata["creationTimestamp"],
        version=metadata["resourceVersion"],
        raw=packed(obj),
        role=role,
        annotated_role=annotations.get(ROLE, ""),
        gated=GATE.is_closed(obj),
        deleting="deletionTimestamp" in metadata or (phase in FINISHED_PHASES and is_being_deleted(obj)),
        phase=phase,
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        group=annotations.get(STARTED_WITH, ""),
        queue=first(metadata.get("labels"), conventions.queue_labels),
        has_controller=controller_of(obj) is not None,
        declared=declared,
        pod_set=pod_set_named(obj),
        declares=declares(obj),
        total=total_of(obj),
        on_hold="true" in (annotations.get(HOLD), (metadata.get("labels") or {}).get(HOLD)),
        fast=first(annotations, FAST) == "true",
        gates=tuple(gates_of(annotations, conventions.gate_annotation)),
        unretriable=first(annotations, RETRIABLE) == "false",
        priority_class=obj["spec"].get("priorityClassName", ""),
        affinity=annotations.get(CLUSTER_AFFINITY, ""),
        may_be_elsewhere=declared is None and may_move_with_group(obj),
        is_shown=bool(runs_in(obj)) or shows_copy(status),
        noted=noted_copy(obj),
    )


def queue_of(members: Sequence[Member]) -> str:
    """Return the LocalQueue of a group: that of the oldest pod that names one."""
    return next((each.queue for each in members if each.queue), "")


def names_by_queue(members: Sequence[Member]) -> dict[str, list[str]]:
    """Return the names of the pods of a group by LocalQueue, both in alphabetical order."""
    names: dict[str, list[str]] = {}
    for each in sorted(members, key=lambda member: (member.queue, member.name)):
        names.setdefault(each.queue, []).append(each.name)
    return names


def admitted_counts(tracked: Tracked) -> dict[str, int]:
    """Return the number of pods of each role that the group was admitted with."""
    return {pod_set.name: pod_set.count for pod_set in tracked.record.workload.pod_sets}


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What is due for the pods of a group that holds quota."""

    started: Sequence[Member]
    """Pods whose scheduling gate is removed."""
    excess: Sequence[Member]
    """Pods that are deleted."""
    gated: Sequence[Member]
    """Pods that stay gated."""


def planned(tracked: Tracked, members: Sequence[Member], context: NamespaceContext) -> GroupPlan:
    """Return the plan for a group that holds quota. `members`: its pods, the oldest first.

    Of each role, as many pods run as were admitted. Running pods beyond that were not ungated by Sluice, or were
    resized. Of the gated pods, the newest that exceed the group's total are deleted, as in Kueue; except those with a
    controller, which would recreate them, and surplus pods of another system's group, which are queued one by one.
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
        if each.counts and each.uid not in settled and not (each.gated and (each.has_controller or each.declared))
    ]
    settled.update(each.uid for each in started)
    gated = [each for each in kept if each.gated and each.uid not in settled]
    beyond_total = [*reversed(gated)][: max(len(kept) - sum(admitted.values()), 0)]
    settled.update(each.uid for each in beyond_total)
    left = [each for each in members if each.gated and each.is_alive and not each.deleting]
    return GroupPlan(started, [*excess, *beyond_total], [each for each in left if each.uid not in settled])


def group_domains(tracked: Tracked, members: Sequence[Member]) -> dict[str, Values]:
    """Return the domains of the gated pods of a group that is placed by topology, by uid. `members`: oldest first."""
    found: dict[str, Values] = {}
    admission = tracked.record.admission
    if admission is None or all(each.topology is None for each in admission.pod_sets):
        return found
    by_role: dict[str, list[ranks.PlacedPod]] = {}
    for member in members:
        if member.is_alive and not (member.gated and member.deleting):
            pod = member.object
            selector, indexes = pod["spec"].get("nodeSelector") or {}, ranks.index_labels(pod)
            placed = ranks.PlacedPod(member.uid, indexes, member.gated, selector, ranks.offset_of(pod))
            by_role.setdefault(member.role if member.gated else member.annotated_role, []).append(placed)
    for assignment in admission.pod_sets:
        if assignment.topology is not None and (pods := by_role.get(assignment.name)):
            rule = ranks.rule_of_pods(pods)
            others = (pod for role, each in by_role.items() if role != assignment.name for pod in each)
            # The workers of a LeaderWorkerSet count from 1 if the leader, with index 0, is a pod set of its own.
            led = rule.label.startswith("leaderworkerset") and any(pod.labels.get(rule.label) == "0" for pod in others)
            found |= ranks.domains_of(assignment.topology, pods, rule, leaders=int(led))
    return found


def group_state(tracked: Tracked | None, members: Collection[Member]) -> GroupState:
    """Return the state of a group from its workload and pods; `tracked` None: it has no unfinished workload."""
    if tracked is None:
        return GroupState(None, (), lambda: any(each.group for each in members))
    if not tracked.holds_quota:
        return GroupState(None, (), lambda: False)
    roles = frozenset(admitted_counts(tracked))
    leaves = frozenset(each.leaf for each in members if each.leaf and not roles.isdisjoint((each.role, each.pod_set)))
    return GroupState(leaves, roles, lambda: True)


def gang_pods(members: Iterable[Member], leaves: Mapping[str, int]) -> list[Member]:
    """Return the pods that a CompositePodGroup starts with: the oldest of each PodGroup, and all that are not gated.

    `leaves`: number of pods by name of the PodGroup; `members`: sorted by age, the oldest first.
    """
    room = Counter(leaves)
    found = []
    for each in members:
        room[each.leaf] -= each.counts
        if not (each.counts and each.gated) or room[each.leaf] >= 0:
            found.append(each)
    return found


def missing_pods(tracked: Tracked, members: Iterable[Member]) -> int:
    """Return the number of pods that a group with quota lacks; less than 0: it has surplus pods."""
    return sum(admitted_counts(tracked).values()) - sum(each.counts for each in members)


def surplus_pods(tracked: Tracked, members: Sequence[Member], plan: GroupPlan) -> list[Member]:
    """Return the newest surplus pods of another system's group, which may be queued one by one."""
    number = max(-missing_pods(tracked, members), 0)
    return [each for each in plan.gated if each.declared][-number:] if number else []


def _role(tracked: Tracked, each: Member, context: NamespaceContext) -> str:
    """Return the role of a running pod: the annotated one if it was downsized, or hashed by another Sluice version."""
    if each.role == each.annotated_role:
        return each.role
    for pod_set in tracked.record.workload.pod_sets:
        if pod_set.name == each.annotated_role and each.group == tracked.uid:
            try:
                now = templates.pod_set(each.role, each.object, context, path="", count=1).requests
            except Misconfigured:
                return each.annotated_role
            if all(amount <= pod_set.requests.get(name, 0) for name, amount in now.items()):
                return each.annotated_role
    return each.role
