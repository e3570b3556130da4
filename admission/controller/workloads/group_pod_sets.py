"""Pod sets of groups whose pods declare them in advance: as declared while pending, as stored once admitted.

An admitted group so keeps its quota for pods that do not exist yet, or no longer, even if the declaring pod is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from admission.kinds import templates
from admission.kinds.base import Outcome
from admission.kinds.declared_pods import completed, declared_pod_sets, exceeding, pod_set_named
from admission.model import child_sentences
from admission.model.errors import Misconfigured
from admission.model.pod_set_names import is_computed
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_plan import Member
    from admission.kinds.base import Object
    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet


class GroupPodSets(NamedTuple):
    """The declared pod sets of a group. All fields are empty for a group that declares its total count only."""

    pod_sets: tuple[PodSet, ...] = ()
    fault: str = ""
    """Message about an invalid declaration; empty: it is valid."""
    undeclared: str = ""
    """Message about what the group still has to declare before it can be admitted; empty: nothing."""


def stored_pod_sets(tracked: Tracked | None) -> tuple[PodSet, ...]:
    """Return the pod sets that a group holds quota for, if they were declared; else ()."""
    if tracked is None or not tracked.holds_quota:
        return ()
    pod_sets = tracked.record.workload.pod_sets
    return () if any(is_computed(pod_set.name) for pod_set in pod_sets) else pod_sets


def pod_sets_of(tracked: Tracked | None, members: Sequence[Member], context: NamespaceContext) -> GroupPodSets:
    """Return the declared pod sets of a group. `tracked`: its workload, None if it has none; `members`: its pods."""
    if known := stored_pod_sets(tracked):
        return GroupPodSets(known)
    alive = [member for member in members if member.counts]
    if not any(member.declares for member in alive):
        waits = any(member.pod_set for member in alive) and not (tracked is not None and tracked.holds_quota)
        return GroupPodSets(undeclared=child_sentences.GROUP_UNDECLARED if waits else "")
    try:
        declarations = [declared_pod_sets(member.object) for member in alive if member.declares]
        if any(each != declarations[0] for each in declarations):
            return GroupPodSets(fault=child_sentences.GROUP_OF_SEVERAL_DECLARATIONS)
        pod_sets, missing = completed(declarations[0], [member.object for member in alive], context)
    except Misconfigured as error:
        return GroupPodSets(fault=str(error))
    return GroupPodSets(pod_sets, undeclared=child_sentences.pod_sets_unknown(missing) if missing else "")


def in_pod_sets(members: Sequence[Member], pod_sets: Sequence[PodSet], context: NamespaceContext) -> list[Member]:
    """Return the pods of a group with the pod set that they name as their role, where they fit into that.

    Pods that name no pod set, or exceed its requests, keep the role that is computed from their requests.
    """
    if not pod_sets:
        return list(members)
    by_name = {pod_set.name: pod_set for pod_set in pod_sets}
    cache: dict[tuple[str, str], bool] = {}  # pods of one role have the same requests

    def fits(member: Member) -> bool:
        key = member.role, member.pod_set
        if key not in cache:
            cache[key] = _fits(member.object, by_name[member.pod_set], context)
        return cache[key]

    return [
        replace(member, role=member.pod_set) if member.pod_set in by_name and fits(member) else member
        for member in members
    ]


def _fits(pod: Object, pod_set: PodSet, context: NamespaceContext) -> bool:
    """Return whether a pod is within the requests of a declared pod set."""
    try:
        return not exceeding(templates.pod_set(pod_set_named(pod), pod, context, path="", count=1), pod_set)
    except Misconfigured:
        return False


def group_outcome(tracked: Tracked | None, members: Sequence[Member]) -> Outcome | None:
    """Return the outcome of an admitted group whose declaring pods have all finished; None: it is not finished.

    While any pod is alive, the group keeps its quota, and its finished pods may be recreated.
    """
    declarers = [member for member in members if member.declares]
    if tracked is None or tracked.record.state is not State.ADMITTED or not declarers:
        return None
    if not stored_pod_sets(tracked) or any(member.is_alive for member in members):
        return None
    last = declarers[-1]
    return Outcome(last.phase == "Succeeded", "", child_sentences.declarer_ended(last.name, last.phase))
