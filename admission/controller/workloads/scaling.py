"""How the quota of what runs follows the number of its pods, down and up. Pure functions on a change.

Down: the quota of pods that are not needed any more, or not wanted, is free as soon as they are gone. Up: pods that an
object is to have beyond its admission do not run. The engine is told of a larger version of the workload that waits as
all others do, and takes over the quota that is held once it fits (Kueue's workload slices, `Workload.replaces`); those
that run are not touched. What waits is no record: it follows from the object, which whoever leads next sees, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.engine.vocabulary import PENDING_EVALUATION, WAITING_FOR_PREEMPTED, WAITING_FOR_QUOTA
from admission.model import sentences
from admission.model.quantity import UNLIMITED
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.tracked import Tracked
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.triggers import LargerAdmitted, LargerReasonChanged, SurplusCounted
    from admission.kinds.base import Observed
    from admission.model.workload import Admission, PodSetAssignment, Workload

RESIZED: Final = "Resized"
RECLAIMED: Final = "Reclaimed"
"""Why a part of an admission ends: its pods are not needed any more."""
LARGER: Final = "+"
"""After the uid of a workload: by what the engine knows the larger version of it that waits."""
_BY_ITSELF: Final = frozenset({PENDING_EVALUATION, WAITING_FOR_PREEMPTED, WAITING_FOR_QUOTA})
"""Reasons for waiting that go away when others give back quota."""


def follow(change: WorkloadChange, seen: Observed) -> None:
    """An admitted workload was seen, as it was admitted but for numbers of pods."""
    _give_back(change, seen)
    _ask(change, seen)


def exceeds(tracked: Tracked, seen: Observed) -> bool:
    """Whether an object asks for more pods at a time than quota is held for."""
    held = _held_pods(tracked)
    return any(count.needed > held.get(count.name, 0) for count in seen.counts)


def has_more(tracked: Tracked, seen: Observed) -> bool:
    """Whether something that runs has more pods than it holds quota for, or asks for none though it has work left."""
    if exceeds(tracked, seen):
        return True
    return not any(count.needed for count in seen.counts) and any(count.left for count in seen.counts)


def may_take_over(tracked: Tracked, admission: Admission) -> bool:
    """Whether it runs on where this admission is: its pods stay in their flavors, and in their ClusterQueue."""
    record = tracked.record
    if record.state is not State.ADMITTED or record.admission is None:
        return False
    held, given = ({each.name: each.flavors for each in one.pod_sets} for one in (record.admission, admission))
    return held == given and record.admission.cluster_queue == admission.cluster_queue


def larger_admitted(change: WorkloadChange, event: LargerAdmitted, _: Environment) -> None:
    """The engine gave it quota for the pods that it asked for beyond what it held."""
    workload = _with_counts(
        change.tracked.record.workload, {each.name: each.count for each in event.admission.pod_sets}
    )
    change.ask_no_more()
    message = sentences.admitted(workload, event.admission)
    change.tracked.change(message=message)
    change.resize(event.admission, workload, why=RESIZED)
    change.write(reason=RESIZED, message=message)
    change.is_due = True


def larger_reason_changed(change: WorkloadChange, event: LargerReasonChanged, _: Environment) -> None:
    """The engine says why it has no quota yet for the pods that it asks for beyond what it holds."""
    tracked = change.tracked
    if tracked.larger is None or tracked.record.admission is None:
        return
    tracked.larger_barred = "" if event.reason in _BY_ITSELF else event.message
    more = sum(each.count for each in tracked.larger.pod_sets) - sum(_held_pods(tracked).values())
    change.tell_wish(sentences.waits_for_more(more, tracked.larger_barred))


def surplus_counted(change: WorkloadChange, event: SurplusCounted, _: Environment) -> None:
    """So many of its pods have not ended: the quota of the others that it does not want is free."""
    tracked = change.tracked
    if tracked.record.state is State.ADMITTED and tracked.surplus and tracked.seen is not None:
        _give_back(change, tracked.seen, event.pods)
        change.is_due = True


def promised(tracked: Tracked, seen: Observed) -> dict[str, int]:
    """The pod sets for whose pods it holds quota, though its object is still to be given them, and how many it holds.

    Not before those have ended that it did not want meanwhile: a controller makes others beside them.
    """
    if tracked.record.state is not State.ADMITTED or seen.suspended or seen.deleting or tracked.record.checks_pending:
        return {}
    held, surplus = _held_pods(tracked), tracked.surplus
    return {
        count.name: held[count.name]
        for count in seen.counts
        if count.name not in surplus and count.wanted < count.wished <= held.get(count.name, 0)
    }


def _give_back(change: WorkloadChange, seen: Observed, counted: Mapping[str, int] | None = None) -> None:
    """Give back the quota of pods that are not needed any more, or not wanted, once they are gone.

    `counted`: how many have not ended, of kinds whose objects do not tell; None: they were not counted.
    """
    tracked = change.tracked
    tracked.surplus = frozenset()
    if seen.suspended or (seen.kind.tells_of_pods and tracked.unsettled) or _is_ending(seen):
        return
    held, smaller, wanted = _held_pods(tracked), {}, {}
    admitted = {each.name: each.count for each in tracked.record.workload.pod_sets}
    for count in seen.counts:
        had = held.get(count.name, 0)
        # Those that it is to have in a moment, as their quota is there, are needed as well.
        least = max(count.needed, count.wished if count.wished <= had else 0)
        present = count.present
        if present == UNLIMITED:  # but those are gone that have ended well
            present = admitted.get(count.name, had) - (0 if count.left is None else count.wanted - count.left)
            if counted is not None:
                present = min(present, counted.get(count.name, 0) + counted.get("", 0))
            if count.needed < min(present, had):
                tracked.surplus |= {count.name}
        pods = max(least, min(present, had))
        if pods < had:
            smaller[count.name], wanted[count.name] = pods, max(count.wanted, pods)
    if not smaller:
        return
    admission = tracked.record.admission
    assert admission is not None, tracked
    pod_sets = tuple(
        _shrunk(given, smaller[given.name]) if given.name in smaller else given for given in admission.pod_sets
    )
    # What is wanted no more is no part of it any more; what has ended well is.
    workload = _with_counts(tracked.record.workload, wanted, downwards=True)
    if workload.pod_sets != tracked.record.workload.pod_sets:
        change.write(reason=RESIZED, message=tracked.record.message)
    change.resize(replace(admission, pod_sets=pod_sets), workload, why=RECLAIMED)
    change.frees_quota = True


def _is_ending(seen: Observed) -> bool:
    """Whether all of its work is done, so that it ends as a whole; what was scaled to no pods at all does not."""
    if seen.kind.ends_by_deletion:  # it has ended when its pods have
        return not any(count.needed or count.present for count in seen.counts)
    return any(count.wanted for count in seen.counts) and not any(count.needed for count in seen.counts)


def _ask(change: WorkloadChange, seen: Observed) -> None:
    """Have it wait for the quota of pods that it is to have beyond those that it holds quota for.

    Admission checks were asked about the pods that it has: where there are any, it gets no more.
    """
    tracked = change.tracked
    held = _held_pods(tracked)
    # What is still to be started with fewer pods has all of them in its object: that is no wish.
    counts = {
        count.name: max(held[count.name], 0 if seen.suspended and count.wished <= count.wanted else count.wished)
        for count in seen.counts
        if count.name in held
    }
    more = sum(counts.values()) - sum(held[name] for name in counts)
    if tracked.checks or not more:
        change.ask_no_more()
        change.tell_wish(sentences.no_more_with_checks(more) if more else "")
        return
    waits, workload = tracked.larger, _with_counts(tracked.record.workload, {**held, **counts})
    larger = replace(
        workload,
        pod_sets=tuple(replace(each, min_count=None) for each in workload.pod_sets),  # all of it, or nothing
        uid=f"{tracked.uid}{LARGER}",
        replaces=tracked.uid,
        queued_at=change.now if waits is None else waits.queued_at,
    )
    if larger != waits:
        change.ask_for(larger)
    change.tell_wish(sentences.waits_for_more(more, tracked.larger_barred))


def _held_pods(tracked: Tracked) -> dict[str, int]:
    """By pod set."""
    admission = tracked.record.admission
    assert admission is not None, tracked.record
    return {assignment.name: assignment.count for assignment in admission.pod_sets}


def _with_counts(workload: Workload, counts: Mapping[str, int], *, downwards: bool = False) -> Workload:
    """With so many pods of these pod sets; `downwards`: no more than it has, and not where fewer may be admitted."""
    pod_sets = []
    for each in workload.pod_sets:
        count = counts.get(each.name, each.count)
        if downwards and (each.min_count is not None or count > each.count):
            count = each.count
        pod_sets.append(each if count == each.count else replace(each, count=count, min_count=None))
    return replace(workload, pod_sets=tuple(pod_sets))


def _shrunk(given: PodSetAssignment, count: int) -> PodSetAssignment:
    """With the quota of `count` pods."""
    # What was cut off at the most that can be counted is not known: of that nothing is given back early.
    usage = {
        resource: amount if amount >= UNLIMITED else amount * count // given.count
        for resource, amount in given.usage.items()
    }
    return replace(given, usage=usage, count=count)
