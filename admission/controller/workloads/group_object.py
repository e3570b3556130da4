"""What the pods of a group, and its owner, say of it as one workload: pure functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from admission.controller.workloads.group_plan import admitted_counts, gang_pods, names_by_queue, planned
from admission.controller.workloads.group_pod_sets import group_outcome, in_pod_sets, pod_sets_of
from admission.kinds.admission_gates import joined
from admission.kinds.base import CLUSTER_AFFINITY, HOLD, Outcome, PodCount
from admission.kinds.grouping import group_faults, total_of
from admission.kinds.pod_group import PodGroup, as_object, group_in
from admission.model import child_sentences
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_owners import GroupOwner, GroupOwners, Needed
    from admission.controller.workloads.group_plan import Member
    from admission.controller.workloads.group_pod_sets import GroupPodSets
    from admission.kinds.base import Conventions, Object
    from admission.kinds.limits import NamespaceContext


def assembled(
    key: tuple[str, str],
    members: Sequence[Member],
    tracked: Tracked | None,
    owners: GroupOwners,
    needed: Needed | None,
    conventions: Conventions,
    context: NamespaceContext,
    leaving: Sequence[Member] = (),
) -> Object:
    """Return the group with this namespace and name as an object (see `as_object`), without a resourceVersion.

    `members`: its pods, at least one, the oldest first, with their roles by the stored pod sets. `tracked`: its
    workload; None: it has none. `owners`: all known owners. `needed`: number of pods that have to start together, for a
    group that another system declares; None: no other system does. `leaving`: pods that are deleted, and whose copies
    in another cluster still run.
    """
    known = pod_sets_of(tracked, members, context)
    excess: Sequence[Member] = ()
    if tracked is not None and tracked.holds_quota:
        excess = planned(tracked, [*members, *leaving], context).excess
    else:
        members = in_pod_sets(members, known.pod_sets, context)
        if needed is not None and needed.leaves:
            members = gang_pods(members, needed.leaves) or members[:1]
    # The annotations of the declaring pod apply, as they name the user: a controller may have created the other pods.
    declaring = next((each for each in members if each.declares), members[0])
    uids = {each.uid for each in excess}
    pods = _Pods(members, leaving, declaring.object, tracked, owners.of(key), needed, known, uids)
    queued = next((each for each in (declaring, *members) if each.queue), declaring)
    on_hold = {HOLD: "true"} if any(each.on_hold for each in members) else {}
    metadata = {
        "namespace": key[0],
        "name": key[1],
        "uid": tracked.uid if tracked is not None else str(uuid5(NAMESPACE_URL, f"{members[0].uid}/{key[1]}")),
        "creationTimestamp": members[0].created,
        "labels": {**(queued.object["metadata"].get("labels") or {}), **on_hold},
        "annotations": pods.annotations(conventions),
    }
    group = pods.group(
        owners.priority_class(key[0], (each.declared for each in members)), tuple(pods.faults(conventions))
    )
    return as_object(_of_owner(metadata, pods.owner), group)


@dataclass(frozen=True, slots=True)
class _Pods:
    """The pods of a group, and what else is known of it (see `assembled`)."""

    members: Sequence[Member]
    leaving: Sequence[Member]
    declaring: Object
    """The pod whose annotations apply to the group."""
    tracked: Tracked | None
    owner: GroupOwner | None
    needed: Needed | None
    known: GroupPodSets
    """The pod sets that it has declared."""
    excess: Collection[str]
    """Uids of pods that run beyond its quota."""

    def group(self, priority_class: str, faults: tuple[str, ...]) -> PodGroup:
        """Return what they say. `priority_class`: the group's own; empty: that of its pods applies."""
        admitted, total, wanted = _admitted(self.tracked), self._total(), self._wanted()
        requested = admitted or self._requested(total)
        alive = self._alive
        runs = [each for each in alive if not each.gated]
        # A pod that succeeds while it is being deleted does not count: it is deleted soon, and has to be recreated.
        succeeded = Counter(each.role for each in self.members if each.phase == "Succeeded" and not each.deleting)
        done, is_gated = succeeded.total(), bool(alive) and not runs
        # The example of a role is a gated pod if there is one: started pods have injected selectors and tolerations.
        examples = {each.role: each for each in sorted(self.members, key=lambda member: member.gated)}
        pod_class = next((each.priority_class for each in examples.values() if each.priority_class), "")
        wait_message = (self.needed is not None and self.needed.wait_message) or self.known.undeclared
        present = sum(not each.deleting for each in alive) + done
        is_complete = self.known.pod_sets or present >= total or (self.members[0].fast and present > 0)
        missing = "" if is_complete else child_sentences.group_incomplete(present, total)
        return PodGroup(
            # If others than Sluice delete all pods, a controller may recreate them: the group is not suspended.
            suspended=all(each.deleting for each in runs) and (is_gated or not _is_admitted(self.tracked)),
            active=bool(runs),
            counts=_counts(requested, admitted, wanted, succeeded, Counter(each.role for each in runs)),
            finished=self._outcome(done, total, is_scaled=wanted is not None),
            ready=done + sum(each.ready for each in runs) >= min(total, sum(admitted.values()) or total) > 0,
            waits_for="" if admitted else wait_message or missing,
            is_uneven=any((each.gated or each.uid in self.excess) and not each.deleting for each in alive),
            pod_priority_class=priority_class or pod_class,
            requested=requested,
            pod_sets=self.known.pod_sets,
            examples={role: each.raw for role, each in examples.items()},
            faults=faults,
            wait_message=wait_message,
            may_be_elsewhere=all(each.may_be_elsewhere for each in self.members),
        )

    @property
    def _alive(self) -> list[Member]:
        """The pods that are not finished."""
        return [*(each for each in self.members if each.is_alive), *self.leaving]

    def _total(self) -> int:
        """Return the number of pods that the group starts with."""
        if self.known.pod_sets:
            return sum(pod_set.count for pod_set in self.known.pod_sets)
        if self.needed is not None:
            return sum(_admitted(self.tracked).values()) or min(self.needed.numbers, default=len(self.members))
        return total_of(self.declaring) if self.owner is None else self.owner.total

    def _wanted(self) -> int | None:
        """Return the number of pods that its owner requests now; None: it has none that scales it."""
        if self.owner is None or self.needed is not None or self.known.pod_sets:
            return None
        return self.owner.wanted

    def _requested(self, total: int) -> dict[str, int]:
        """Return the number of pods of each role that a group without quota requests."""
        if self.known.pod_sets:
            return {each.name: each.count for each in self.known.pod_sets}
        counted = [each.role for each in self.members if each.phase != "Failed" and not each.deleting]
        counts = Counter(counted[: total or len(counted)])
        if counted and self.members[0].fast:
            counts[counted[0]] += total - counts.total()
        return dict(counts)

    def _outcome(self, done: int, total: int, *, is_scaled: bool) -> Outcome | None:
        """Return the outcome as in Kueue: all pods succeeded, or none is alive or replaced; or that of the owner."""
        is_alive = bool(self._alive)
        if done >= total > 0 and not (is_alive and is_scaled):
            return Outcome(True, "", child_sentences.group_ended(done, total))
        if is_alive:
            return None
        if outcome := group_outcome(self.tracked, self.members) if self.owner is None else self.owner.outcome:
            return outcome
        is_replaced = self.needed is None or any(each.has_controller for each in self.members)
        is_unretriable = not is_replaced or any(each.unretriable for each in self.members)
        # A pod that is being deleted has failed because of that.
        if is_unretriable and not any(each.deleting for each in self.members):
            return Outcome(False, "", child_sentences.group_ended(done, total))
        return None

    def annotations(self, conventions: Conventions) -> Object:
        """Return the declaring pod's annotations, with the clusters that any pod names, and the gates of gated pods."""
        annotations: Object = dict(self.declaring["metadata"].get("annotations") or {})
        if affinity := next((each.affinity for each in self.members if each.affinity), ""):
            annotations[CLUSTER_AFFINITY] = affinity
        annotations.pop(key := conventions.gate_annotation, None)
        gates = joined(gate for member in self.members if member.gated for gate in member.gates)
        return {**annotations, key: gates} if gates else annotations

    def faults(self, conventions: Conventions) -> Iterator[str]:
        """Yield messages about errors in pods."""
        yield from map(": ".join, group_faults(self.declaring, conventions))
        if len({each.queue for each in self.members}) > 1:
            yield child_sentences.group_of_several_queues(names_by_queue(self.members))
        by_pods = {each.total for each in self.members if not each.pod_set} if self.owner is None else set()
        if len(by_pods if self.needed is None else self.needed.numbers) > 1:
            yield child_sentences.GROUP_OF_SEVERAL_TOTALS
        if self.owner is None and len({each.affinity for each in self.members if each.affinity}) > 1:
            yield child_sentences.GROUP_OF_SEVERAL_AFFINITIES
        if self.known.fault:
            yield self.known.fault


def without_pods(last: Object, tracked: Tracked, owner: GroupOwner, leaving: Sequence[Member]) -> Object:
    """Return a group without pods, whose owner's controller will recreate them unless the owner is finished.

    `last`: as it was assembled last. `leaving`: as for `assembled`. The result has no resourceVersion.
    """
    before = group_in(last)
    admitted, expected, none = _admitted(tracked), admitted_counts(tracked), Counter[str]()
    expected = dict.fromkeys(expected, owner.total) if len(expected) == 1 else expected
    requested = admitted or {each.name: each.count for each in before.pod_sets} or expected
    missing = "" if before.pod_sets or not owner.total else child_sentences.group_incomplete(0, owner.total)
    group = replace(
        before,
        suspended=not _is_admitted(tracked),
        active=bool(leaving),
        counts=_counts(requested, admitted, owner.wanted, none, Counter(each.role for each in leaving)),
        finished=owner.outcome,
        ready=False,
        waits_for="" if admitted else before.wait_message or missing,
        is_uneven=False,
        requested=requested,
    )
    return as_object(_of_owner(last["metadata"], owner), group)


def _of_owner(metadata: Object, owner: GroupOwner | None) -> Object:
    """Return the metadata of a group with what its owner says instead of its pods."""
    metadata = {**metadata, "generation": 0}
    if owner is not None:
        metadata["creationTimestamp"] = owner.created
        metadata["labels"] = {**metadata["labels"], **owner.labels}
        metadata["annotations"] = {**metadata["annotations"], **owner.annotations}
    return metadata


def _admitted(tracked: Tracked | None) -> dict[str, int]:
    """Return the number of pods of each role that a group holds quota for."""
    return admitted_counts(tracked) if tracked is not None and tracked.holds_quota else {}


def _is_admitted(tracked: Tracked | None) -> bool:
    return tracked is not None and tracked.record.state is State.ADMITTED


def _counts(
    requested: Mapping[str, int],
    admitted: Mapping[str, int],
    wanted: int | None,
    succeeded: Mapping[str, int],
    present: Mapping[str, int],
) -> tuple[PodCount, ...]:
    """Return the pod counts by role. `wanted`: the number that its owner requests now, if it is scaled; else None."""
    # The owner is scaled: known for groups of one role only.
    scaled = dict.fromkeys(admitted, wanted) if wanted is not None and len(admitted) == 1 else {}
    return tuple(
        PodCount(
            role,
            runs := min(scaled.get(role, number), number),
            max(runs - succeeded[role], 0),
            present[role],
            scaled[role] if scaled.get(role, 0) > number else 0,
        )
        for role, number in requested.items()
    )
