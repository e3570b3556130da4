"""Assembly of the `PodGroup` object from the pods of a group (see `admission.kinds.pod_group`): pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from admission.controller.workloads.group_plan import admitted_counts, gang_pods, names_by_queue, planned
from admission.controller.workloads.group_pod_sets import group_outcome, in_pod_sets, pod_sets_of
from admission.kinds import templates
from admission.kinds.admission_gates import joined
from admission.kinds.base import HOLD
from admission.kinds.grouping import group_faults, total_of
from admission.model import child_sentences
from admission.model.pod_set_documents import pod_set_document
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence

    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_owners import GroupOwner, GroupOwners, Needed
    from admission.controller.workloads.group_plan import Member
    from admission.controller.workloads.group_pod_sets import GroupPodSets
    from admission.kinds.base import Conventions, Object
    from admission.kinds.limits import NamespaceContext


class Assembled(NamedTuple):
    """The result of `assembled`."""

    object: Object
    """The PodGroup object, without a resourceVersion."""
    excess: Sequence[Member]
    """Pods of the group that run beyond its quota."""


def assembled(
    key: tuple[str, str],
    members: Sequence[Member],
    tracked: Tracked | None,
    owners: GroupOwners,
    needed: Needed | None,
    conventions: Conventions,
    context: NamespaceContext,
) -> Assembled:
    """Assemble the group with this namespace and name from its pods.

    `members`: its pods, at least one, the oldest first, with their roles by the stored pod sets. `tracked`: its
    workload; None: it has none. `owners`: all known owners. `needed`: number of pods that have to start together, for a
    group that another system declares; None: no other system does.
    """
    holds = tracked is not None and tracked.holds_quota
    excess = planned(tracked, members, context).excess if holds and tracked is not None else ()
    known = pod_sets_of(tracked, members, context)
    if not holds:
        members = in_pod_sets(members, known.pod_sets, context)
    if needed is not None and needed.leaves and not holds:
        members = gang_pods(members, needed.leaves) or members[:1]
    uids = {each.uid for each in excess}
    group = _group(key, members, tracked, owners.of(key), uids, conventions, known, needed)
    group["spec"]["priority"] = owners.priority_class(key[0], (each.declared for each in members))
    return Assembled(group, excess)


def _group(
    key: tuple[str, str],
    members: Sequence[Member],
    tracked: Tracked | None,
    owner: GroupOwner | None,
    excess: Container[str],
    conventions: Conventions,
    known: GroupPodSets,
    needed: Needed | None,
) -> Object:
    """Return the PodGroup object.

    `owner`: the object whose pods these are, if it is of a grouped kind. `excess`: uids of pods that run without quota.
    `known`: the pod sets that the group has declared.
    """
    # The annotations of the declaring pod apply, as they name the user: a controller may have created the other pods.
    declaring = next((member for member in members if member.declares), members[0])
    declaring_pod = declaring.object
    namespace, name = key
    holds = tracked is not None and tracked.holds_quota
    queued = next((member for member in (declaring, *members) if member.queue), declaring)
    on_hold = any(member.on_hold for member in members)
    admitted = admitted_counts(tracked) if holds and tracked is not None else {}
    without_pod_set = [member for member in members if not member.pod_set] if owner is None else []
    totals = {member.total for member in without_pod_set} if needed is None else needed.numbers
    # The example of a role is a gated pod if there is one: started pods have injected node selectors and tolerations.
    examples = {member.role: member for member in sorted(members, key=lambda member: member.gated)}
    return _object(
        {
            "namespace": namespace,
            "name": name,
            "uid": tracked.uid if tracked is not None else str(uuid5(NAMESPACE_URL, f"{members[0].uid}/{name}")),
            "creationTimestamp": members[0].created,
            "labels": {**(queued.object["metadata"].get("labels") or {}), **({HOLD: "true"} if on_hold else {})},
            "annotations": _annotations(declaring_pod, members, conventions),
        },
        {
            "total": _total(declaring_pod, len(members), owner, admitted, known, needed),
            "pod_sets": [
                {"name": one.name, "count": one.count, "min_count": None, "spec": pod_set_document(one)}
                for one in known.pod_sets
            ],
            "wait_message": (needed is not None and needed.wait_message) or known.undeclared,
            "fast": members[0].fast,
            "unretriable": any(member.unretriable for member in members)
            or (needed is not None and not any(member.has_controller for member in members)),
            "faults": [
                *_faults(members, group_faults(declaring_pod, conventions), totals),
                *filter(None, [known.fault]),
            ],
            "admitted": admitted,
            "runs": tracked is not None and tracked.record.state is State.ADMITTED,
            "expected": {},
            "wanted": None if owner is None or needed is not None or known.pod_sets else owner.wanted,
            "outcome": group_outcome(tracked, members) if owner is None else owner.outcome,
            "roles": {role: _common_fields(member.object) for role, member in examples.items()},
            "pods": [_pod(member, is_excess=member.uid in excess) for member in members],
        },
        owner,
    )


def _annotations(declaring_pod: Object, members: Iterable[Member], conventions: Conventions) -> Object:
    """Return the declaring pod's annotations, with the admission gates of all gated pods."""
    annotations: Object = dict(declaring_pod["metadata"].get("annotations") or {})
    annotations.pop(key := conventions.gate_annotation, None)
    gates = joined(gate for member in members if member.gated for gate in member.gates)
    return {**annotations, key: gates} if gates else annotations


def _total(
    declaring_pod: Object,
    present: int,
    owner: GroupOwner | None,
    admitted: Mapping[str, int],
    known: GroupPodSets,
    needed: Needed | None,
) -> int:
    """Return the number of pods that the group starts with. `present`: number of existing pods."""
    if known.pod_sets:
        return sum(pod_set.count for pod_set in known.pod_sets)
    if needed is not None:
        return sum(admitted.values()) or min(needed.numbers, default=present)
    return total_of(declaring_pod) if owner is None else owner.total


def _common_fields(pod: Object) -> Object:
    """Return what the pods of one role have in common."""
    return {**templates.digest_parts(pod), "priority": pod["spec"].get("priorityClassName", "")}


def _pod(member: Member, *, is_excess: bool) -> Object:
    return {
        "role": member.role,
        "gated": member.gated,
        "deleting": member.deleting,
        "phase": member.phase,
        "ready": member.ready,
        "excess": is_excess,
    }


def without_pods(last: Object, tracked: Tracked, owner: GroupOwner) -> Object:
    """Return a group without pods, whose owner's controller will recreate them unless the owner is finished.

    `last`: its last observed version. The result has no resourceVersion.
    """
    expected = admitted_counts(tracked)
    scaled = dict.fromkeys(expected, owner.total) if len(expected) == 1 else expected
    return _object(
        last["metadata"],
        {
            **last["spec"],
            "total": owner.total,
            "admitted": expected if tracked.holds_quota else {},
            "runs": tracked.record.state is State.ADMITTED,
            "expected": scaled,
            "wanted": owner.wanted,
            "outcome": owner.outcome,
            "pods": [],
        },
        owner,
    )


def _faults(members: Sequence[Member], of_oldest: Iterable[tuple[str, str]], totals: Collection[int]) -> list[str]:
    faults = [": ".join(fault) for fault in of_oldest]
    if len({member.queue for member in members}) > 1:
        faults.append(child_sentences.group_of_several_queues(names_by_queue(members)))
    faults += [child_sentences.GROUP_OF_SEVERAL_TOTALS] if len(totals) > 1 else []
    return faults


def _object(metadata: dict[str, Any], spec: Object, owner: GroupOwner | None) -> Object:
    metadata = {**metadata, "generation": 0}
    if owner is not None:
        metadata["creationTimestamp"] = owner.created
        metadata["labels"] = {**metadata["labels"], **owner.labels}
        metadata["annotations"] = {**metadata["annotations"], **owner.annotations}
    return {"apiVersion": "sluice.dev/v1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
