"""The pod sets of a group that has said them beforehand: as declared while it waits, as on record once it is admitted.

So an admitted group keeps its quota for pods that are not there, or not there any more, whoever has declared them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from admission.kinds import templates
from admission.kinds.declared_pods import completed, declared_pod_sets, exceeding, pod_set_named
from admission.kinds.grouping import is_role
from admission.model import child_sentences
from admission.model.errors import Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_plan import Member
    from admission.kinds.base import Object
    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet


class GroupPodSets(NamedTuple):
    """What is known of them. All is empty for a group that says how many pods it has, and no more."""

    pod_sets: tuple[PodSet, ...] = ()
    fault: str = ""
    unsaid: str = ""


def on_record(tracked: Tracked | None) -> tuple[PodSet, ...]:
    """The pod sets that a group was admitted with, if they were declared."""
    if tracked is None or not tracked.holds_quota:
        return ()
    pod_sets = tracked.record.workload.pod_sets
    return () if any(is_role(pod_set.name) for pod_set in pod_sets) else pod_sets


def of_group(tracked: Tracked | None, members: Sequence[Member], context: NamespaceContext) -> GroupPodSets:
    """The pod sets of a group with these pods."""
    if known := on_record(tracked):
        return GroupPodSets(known)
    alive = [member for member in members if member.counts]
    if not any(member.declares for member in alive):
        waits = any(member.pod_set for member in alive) and not (tracked is not None and tracked.holds_quota)
        return GroupPodSets(unsaid=child_sentences.GROUP_UNDECLARED if waits else "")
    try:
        said = [declared_pod_sets(member.object) for member in alive if member.declares]
        if any(each != said[0] for each in said):
            return GroupPodSets(fault=child_sentences.GROUP_OF_SEVERAL_DECLARATIONS)
        pod_sets, missing = completed(said[0], [member.object for member in alive], context)
    except Misconfigured as error:
        return GroupPodSets(fault=str(error))
    return GroupPodSets(pod_sets, unsaid=child_sentences.pod_sets_unknown(missing) if missing else "")


def in_pod_sets(members: Sequence[Member], pod_sets: Sequence[PodSet], context: NamespaceContext) -> list[Member]:
    """The pods of a group; the role of those that fit into the pod set that they name is that."""
    if not pod_sets:
        return list(members)
    by_name = {pod_set.name: pod_set for pod_set in pod_sets}
    judged: dict[tuple[str, str], bool] = {}

    def fits(member: Member) -> bool:
        key = member.role, member.pod_set
        if key not in judged:
            judged[key] = _fits(member.object, by_name[member.pod_set], context)
        return judged[key]

    return [
        replace(member, role=member.pod_set) if member.pod_set in by_name and fits(member) else member
        for member in members
    ]


def _fits(pod: Object, pod_set: PodSet, context: NamespaceContext) -> bool:
    try:
        return not exceeding(templates.pod_set(pod_set_named(pod), pod, context, path="", count=1), pod_set)
    except Misconfigured:
        return False


def over(tracked: Tracked | None, members: Sequence[Member]) -> Object | None:
    """How a group has ended of which those pods have ended that declare the others; None: that is not so.

    Others that are still alive hold its quota, and those that have ended may be made again, until none is alive.
    """
    declarers = [member for member in members if member.declares]
    if tracked is None or tracked.record.state is not State.ADMITTED or not declarers:
        return None
    if not on_record(tracked) or any(member.is_alive for member in members):
        return None
    last = declarers[-1]
    return {"succeeded": last.phase == "Succeeded", "message": child_sentences.declarer_ended(last.name, last.phase)}
