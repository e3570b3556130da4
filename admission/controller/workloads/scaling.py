"""Scaling of admitted workloads: their quota follows their number of pods. Pure functions on a change.

Down: the quota of pods that are no longer needed, or no longer requested, is released as soon as they have terminated.

Up: pods beyond the admission do not start. The engine receives a larger version of the workload, which is pending like
any other, and which takes over the quota of the running one once it fits (Kueue's workload slices,
`Workload.replaces`). Running pods are not touched. The larger version is not persisted: it is computed from the object,
which a new leader observes, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.engine.vocabulary import PENDING_EVALUATION, WAITING_FOR_PREEMPTED, WAITING_FOR_QUOTA
from admission.model import sentences
from admission.model.quantity import UNLIMITED
from admission.model.topology import pods_in
from admission.store.records import RECLAIMED, RESIZED, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import (
        LargerAdmitted,
        PlacesGivenUp,
        PodsCounted,
    )
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.engine.events import Park
    from admission.kinds.base import Observed, PodCount
    from admission.model.workload import Admission, PodSetAssignment, Workload

LARGER: Final = "+"
"""Suffix of a workload's uid that gives the uid of its larger version in the engine."""
_FREED_QUOTA_RESOLVES: Final = frozenset({PENDING_EVALUATION, WAITING_FOR_PREEMPTED, WAITING_FOR_QUOTA})
"""Reasons for waiting that end when other workloads release quota."""


def follow_pod_counts(change: WorkloadChange, seen: Observed, environment: Environment) -> None:
    """Process a version of an admitted workload's object that differs from its admission in numbers of pods at most."""
    _release_surplus(change, seen)
    request_more(change, seen, environment)


def exceeds(tracked: Tracked, seen: Observed) -> bool:
    """Return whether an object requests more pods at a time than its workload holds quota for, in any pod set."""
    held = _held_pods(tracked)
    return any(count.needed > held.get(count.name, 0) for count in seen.counts)


def violates_admission(tracked: Tracked, seen: Observed) -> bool:
    """Return whether a running object has more pods than quota, or was scaled to zero although completions are left.

    One that was admitted without pods matches its admission: stopped, it would be admitted and stopped again for ever.
    """
    if exceeds(tracked, seen):
        return True
    if not any(_held_pods(tracked).values()):
        return False
    return not any(count.needed for count in seen.counts) and any(count.left for count in seen.counts)


def may_take_over(tracked: Tracked, admission: Admission) -> bool:
    """Return whether a running workload may adopt this admission: same queue and cluster, and flavors per pod set."""
    record = tracked.record
    if record.state is not State.ADMITTED or record.admission is None:
        return False

    def place(of: Admission) -> tuple[str, str, dict[str, Mapping[str, str]]]:
        return of.cluster_queue, of.cluster, {each.name: each.flavors for each in of.pod_sets}

    return place(record.admission) == place(admission)


def larger_admitted(change: WorkloadChange, event: LargerAdmitted, _: Environment) -> None:
    """Replace the admission by that of the larger version, which the engine has admitted."""
    workload = _with_counts(
        change.tracked.record.workload, {each.name: each.count for each in event.admission.pod_sets}
    )
    change.withdraw_larger()
    message = sentences.admitted(workload, event.admission)
    change.tracked.change(message=message)
    change.resize(event.admission, workload, why=RESIZED)
    change.write(reason=RESIZED, message=message)
    change.is_due = True


def larger_parked(change: WorkloadChange, decision: Park) -> None:
    """Note why the larger version is pending, and add it to the workload's message."""
    tracked = change.tracked
    if tracked.larger is None or tracked.record.admission is None:
        return
    tracked.larger_obstacle = "" if decision.reason in _FREED_QUOTA_RESOLVES else decision.message
    more = sum(each.count for each in tracked.larger.pod_sets) - sum(_held_pods(tracked).values())
    change.report_larger(sentences.waits_for_more(more, tracked.larger_obstacle))


def pods_counted(change: WorkloadChange, event: PodsCounted, _: Environment) -> None:
    """Release the quota of surplus pods that have terminated, by a count of those that have not."""
    tracked = change.tracked
    if tracked.record.state is State.ADMITTED and tracked.surplus_pod_sets and tracked.seen is not None:
        _release_surplus(change, tracked.seen, event.pods)
        change.is_due = True


def places_given_up(change: WorkloadChange, event: PlacesGivenUp, _: Environment) -> None:
    """Release the places of pods that are no longer needed: the domains of those that are left are known."""
    record = change.tracked.record
    if record.state is not State.ADMITTED or record.admission is None:
        return
    pod_sets = tuple(
        replace(each, topology=event.places[each.name])
        if each.name in event.places and pods_in(event.places[each.name]) == each.count
        else each
        for each in record.admission.pod_sets
    )
    change.resize(replace(record.admission, pod_sets=pod_sets), record.workload, why=RECLAIMED)
    change.frees_quota = True


def reserved_scale_up(tracked: Tracked, seen: Observed) -> dict[str, int]:
    """Return the pod sets whose quota is reserved but whose object is not scaled up yet: number of pods by name.

    Pod sets with surplus pods are left out until those have terminated: the object's controller would create new pods
    beside them.
    """
    if tracked.record.state is not State.ADMITTED or seen.suspended or seen.deleting or tracked.record.checks_pending:
        return {}
    held, surplus = _held_pods(tracked), tracked.surplus_pod_sets
    return {
        count.name: held[count.name]
        for count in seen.counts
        if count.name not in surplus and count.wanted < count.scale_up <= held.get(count.name, 0)
    }


def _release_surplus(change: WorkloadChange, seen: Observed, counted: Mapping[str, int] | None = None) -> None:
    """Release the quota of pods that are no longer needed or no longer requested, once they have terminated.

    `counted`: number of unfinished pods by pod set, for kinds whose status does not show it; None: not counted yet.
    """
    tracked = change.tracked
    tracked.surplus_pod_sets = frozenset()
    if seen.suspended or (seen.kind.reports_pods and tracked.unsettled) or _is_ending(seen):
        return
    held, new_counts, wanted = _held_pods(tracked), {}, {}
    admitted = {each.name: each.count for each in tracked.record.workload.pod_sets}
    for count in seen.counts:
        if count.stays:
            continue
        had = held.get(count.name, 0)
        # Pods for which quota is reserved and that the object is about to be scaled to are needed as well.
        least = max(count.needed, count.scale_up if count.scale_up <= had else 0)
        present = count.present
        if present == UNLIMITED:  # unknown: at most those that were admitted and have not succeeded
            present = admitted.get(count.name, had) - (0 if count.left is None else count.wanted - count.left)
            if counted is not None:
                present = min(present, _most_of(count.name, counted, held))
            if count.needed < min(present, had):
                tracked.surplus_pod_sets |= {count.name}
        pods = max(least, min(present, had))
        if pods < had:
            new_counts[count.name], wanted[count.name] = pods, max(count.wanted, pods)
    if not new_counts:
        return
    admission = tracked.record.admission
    assert admission is not None, tracked
    shared = {each.name: each.shared for each in tracked.record.workload.pod_sets}
    pod_sets = tuple(
        _shrunk(each, new_counts[each.name], shared.get(each.name, {})) if each.name in new_counts else each
        for each in admission.pod_sets
    )
    # Pods that are no longer requested leave the workload's pod sets; those that have succeeded remain counted in them.
    workload = _with_counts(tracked.record.workload, wanted, downwards=True)
    if workload.pod_sets != tracked.record.workload.pod_sets:
        change.write(reason=RESIZED, message=tracked.record.message)
    change.resize(replace(admission, pod_sets=pod_sets), workload, why=RECLAIMED)
    change.frees_quota = True


def _most_of(name: str, counted: Mapping[str, int], held: Mapping[str, int]) -> int:
    """Return how many unfinished pods a pod set may have: those with its label, and those that may have lost it.

    Before Kubernetes 1.30 no policy keeps the label of a running pod: pods without it, and pods of another pod set
    beyond the quota of that, are counted as its own.
    """
    lost = sum(max(number - held.get(other, 0), 0) for other, number in counted.items() if other not in ("", name))
    return counted.get(name, 0) + counted.get("", 0) + lost


def _is_ending(seen: Observed) -> bool:
    """Return whether all work of the object is done, so that it is about to finish; false if it was scaled to zero."""
    if seen.kind.ends_by_deletion:  # a pod or pod group: finished when its pods are
        return not any(count.needed or count.present for count in seen.counts)
    return any(count.wanted for count in seen.counts) and not any(count.needed for count in seen.counts)


def request_more(change: WorkloadChange, seen: Observed, environment: Environment) -> None:
    """Submit a larger version of the workload to the engine if the object requests more pods than it holds quota for.

    A workload with admission checks is not enlarged: its checks have judged the present number of pods. One that runs
    elsewhere gets more where it runs.
    """
    tracked = change.tracked
    held, cluster = _held_pods(tracked), _cluster(tracked)
    admitted = {each.name: each.count for each in tracked.record.workload.pod_sets}

    def requested(count: PodCount) -> int:
        # An object that starts with fewer pods (partial admission), or whose copy has, has its full count: no request
        # for more.
        least = admitted[count.name] if cluster else count.wanted if seen.suspended else 0
        return count.scale_up if count.scale_up > least else 0

    counts = {count.name: max(held[count.name], requested(count)) for count in seen.counts if count.name in held}
    more = sum(counts.values()) - sum(held[name] for name in counts)
    if not more or (refusal := _why_no_more(tracked, seen, environment, more)):
        change.withdraw_larger()
        change.report_larger(refusal if more else "")
        return
    pending, workload = tracked.larger, _with_counts(tracked.record.workload, {**held, **counts})
    larger = replace(
        workload,
        pod_sets=tuple(replace(each, min_count=None) for each in workload.pod_sets),  # no partial admission
        uid=f"{tracked.uid}{LARGER}",
        replaces=tracked.uid,
        clusters=((cluster,),) if cluster else (),
        passed_over=(),
        queued_at=change.now if pending is None else pending.queued_at,
    )
    if larger != pending:
        change.queue_larger(larger)
    change.report_larger(sentences.waits_for_more(more, tracked.larger_obstacle))


def _why_no_more(tracked: Tracked, seen: Observed, environment: Environment, more: int) -> str:
    """Return why no quota is requested for `more` pods of a running workload; empty: it is."""
    cluster, scaling = _cluster(tracked), seen.kind.scaling
    # Each further pod of a group gets a copy of its own.
    grows = scaling.copies_grow if scaling is not None else environment.kinds.is_composed(tracked.record.workload)
    if cluster and not grows:
        return sentences.no_more_elsewhere(more, cluster)
    if tracked.checks:
        return sentences.no_more_with_checks(more)
    destinations = environment.context.destinations
    if not cluster or cluster in destinations.open:
        return ""
    why = destinations.closed.get(cluster) or sentences.is_not_active("Connecting")
    return sentences.waits_for_more(more, sentences.passed_over(cluster, why))


def _cluster(tracked: Tracked) -> str:
    """Return the cluster in which a copy runs in place of the object; empty: it runs itself."""
    admission = tracked.record.admission
    return "" if admission is None else admission.cluster


def _held_pods(tracked: Tracked) -> dict[str, int]:
    """Return the number of pods that quota is held for, by pod set."""
    admission = tracked.record.admission
    assert admission is not None, tracked.record
    return {assignment.name: assignment.count for assignment in admission.pod_sets}


def _with_counts(workload: Workload, counts: Mapping[str, int], *, downwards: bool = False) -> Workload:
    """Return a copy of the workload with these numbers of pods, by pod set.

    `downwards`: never raise a number, and leave pod sets alone that permit partial admission.
    """
    pod_sets = []
    for each in workload.pod_sets:
        count = counts.get(each.name, each.count)
        if downwards and (each.min_count is not None or count > each.count):
            count = each.count
        pod_sets.append(each if count == each.count else replace(each, count=count, min_count=None))
    return replace(workload, pod_sets=tuple(pod_sets))


def _shrunk(assignment: PodSetAssignment, count: int, shared: Mapping[str, int]) -> PodSetAssignment:
    """Return a copy of the assignment with the usage of `count` pods. `shared`: `PodSet.shared`."""
    usage = {}
    for resource, amount in assignment.usage.items():
        once = min(shared.get(resource, 0), amount)
        # An amount at the maximum was cut off there, and the amount per pod is unknown: none of it is released early.
        less = (amount - once) * count // assignment.count + (once if count else 0)
        usage[resource] = amount if amount >= UNLIMITED else less
    placed = assignment.topology
    if placed is not None and len(placed.domains) == 1:  # with several, the pods that are left show which are free
        placed = replace(placed, domains=(placed.domains[0]._replace(pods=min(placed.domains[0].pods, count)),))
    return replace(assignment, usage=usage, count=count, topology=placed)
