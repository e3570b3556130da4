"""Compares what is on record with the cluster and with what the leader works on: each difference, and what cures it.

Pure. What is compared is read one after the other while work goes on, so a difference means something only if a second
look some seconds later finds it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from admission.engine.clusterqueue import usage_of
from admission.store.records import State
from admission.store.workloads.replay import BLOCKING_REASONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from admission.kinds.base import Observed
    from admission.model.workload import Admission
    from admission.store.ledger.violations import Violation
    from admission.store.records import WorkloadRecord

Usage: TypeAlias = "Mapping[tuple[str, str, str], int]"
"""What is held, by ClusterQueue, flavor and resource."""

HOLDING = frozenset({State.ADMITTED, State.EVICTING})


class Cure(StrEnum):
    """What a repair does about a difference."""

    LOOK = "look"
    """The object is read again, and what is due for it is done."""
    BEGIN_ANEW = "begin anew"
    """The leader forgets what it works on, and derives it again from the database and the cluster."""
    NONE = ""
    """People decide."""


class Problem(StrEnum):
    """The kinds of differences."""

    RUNS_WITHOUT_ADMISSION = "RunsWithoutAdmission"
    NOT_ON_RECORD = "NotOnRecord"
    NOT_STARTED = "NotStarted"
    NOT_STOPPED = "NotStopped"
    NOT_RELEASED = "NotReleased"
    NOT_FINISHED = "NotFinished"
    RECORD_OF_GONE = "RecordOfGone"
    ADMISSION_OF_GONE = "AdmissionOfGone"
    PODS_WITHOUT_ADMISSION = "PodsWithoutAdmission"
    FLAVORS_DIFFER = "FlavorsDiffer"
    PODS_BEYOND_QUOTA = "PodsBeyondQuota"
    QUOTA_BEYOND_PODS = "QuotaBeyondPods"
    MEMORY_DIFFERS = "MemoryDiffers"
    USAGE_DIFFERS = "UsageDiffers"
    OVER_QUOTA = "OverQuota"

    @property
    def cure(self) -> Cure:
        return _CURES[self][0]

    @property
    def remedy(self) -> str:
        """What a repair does about it, for people."""
        return _CURES[self][1]


_CURES = {
    Problem.RUNS_WITHOUT_ADMISSION: (Cure.LOOK, "it is stopped"),
    Problem.NOT_ON_RECORD: (Cure.LOOK, "it is recorded, and waits"),
    Problem.NOT_STARTED: (Cure.LOOK, "it is started"),
    Problem.NOT_STOPPED: (Cure.LOOK, "it is stopped"),
    Problem.NOT_RELEASED: (Cure.LOOK, "it is restored, and its quota is freed"),
    Problem.NOT_FINISHED: (Cure.LOOK, "its record is finished, and its quota is freed"),
    Problem.RECORD_OF_GONE: (Cure.LOOK, "its record is finished"),
    Problem.ADMISSION_OF_GONE: (Cure.LOOK, "its quota is freed"),
    Problem.PODS_WITHOUT_ADMISSION: (Cure.NONE, "nothing; delete the pods"),
    Problem.FLAVORS_DIFFER: (Cure.NONE, "nothing; sluice hold and sluice release start it again as it should be"),
    Problem.PODS_BEYOND_QUOTA: (Cure.LOOK, "the newest of them are deleted"),
    Problem.QUOTA_BEYOND_PODS: (Cure.LOOK, "it is freed"),
    Problem.MEMORY_DIFFERS: (Cure.BEGIN_ANEW, "the leader begins anew from the database"),
    Problem.USAGE_DIFFERS: (Cure.BEGIN_ANEW, "the leader begins anew from the database"),
    Problem.OVER_QUOTA: (Cure.NONE, "nothing; nothing more is admitted there until enough has ended"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it should be."""

    problem: Problem
    object: str
    """`Kind namespace/name`, or what else it is about."""
    uid: str
    """Of the workload; empty if it is about none."""
    found: str
    expected: str


class Owner(NamedTuple):
    """Whose pods have not ended: by their labels."""

    name: str
    """`namespace/name` of the Job."""
    pods: int
    """How many of them nobody has told to end."""
    had_quota: bool
    """Whether the ledger knows it; asked only where the Job is not there."""


@dataclass(frozen=True, slots=True)
class View:
    """All that is compared, by the uids of objects."""

    records: Mapping[str, WorkloadRecord]
    """In the database, unfinished."""
    objects: Mapping[str, Observed]
    """In the cluster: those that are queued or on record."""
    owners: Mapping[str, Owner]
    """Of pods that have not ended."""
    off: Collection[str] = ()
    """Those of kinds that are switched off, about whose objects nothing is known."""
    tracked: Mapping[str, WorkloadRecord] | None = None
    """What the leader works on; None: there is none to ask."""
    engine: Usage = field(default_factory=dict)
    """What its engine counts as held, at the same moment."""
    otherwise: Collection[str] = ()
    """Those that run elsewhere than their admission says."""
    beyond: Mapping[str, int] = field(default_factory=dict)
    """How many pods of groups run beyond their quota."""
    violations: tuple[Violation, ...] = ()
    """Quota that was given although it was not there."""


def differences(view: View) -> list[Difference]:
    """All that is not as it should be."""
    return [
        *(found for uid, record in view.records.items() if uid not in view.off for found in _of_record(view, record)),
        *_of_objects(view),
        *_of_pods(view),
        *(() if view.tracked is None else _of_memory(view.records, view.tracked)),
        *(() if view.tracked is None else _of_usage(view.tracked, view.engine)),
        *_of_quota(view),
    ]


def _of_record(view: View, record: WorkloadRecord) -> Iterator[Difference]:
    workload, state = record.workload, record.state
    seen = view.objects.get(workload.uid)
    is_held = state in HOLDING
    pods = workload.uid in view.owners

    def differs(problem: Problem, found: str, expected: str) -> Difference:
        return Difference(problem, f"{workload.kind} {workload.key}", workload.uid, found, expected)

    if seen is None:
        if is_held and not pods:
            yield differs(Problem.ADMISSION_OF_GONE, f"{state}, but neither it nor a pod of it exists", "finished")
        elif not is_held:
            yield differs(Problem.RECORD_OF_GONE, f"{state}, but it does not exist", "finished")
    elif seen.finished is not None:
        yield differs(Problem.NOT_FINISHED, f"{state}, but it has ended", "finished")
    # An admin's hold outlasts the label of the queue.
    elif not is_held and not seen.queue and record.active and record.reason not in BLOCKING_REASONS:
        yield differs(Problem.NOT_FINISHED, f"{state}, but it names no queue", "finished")
    elif not is_held and not seen.suspended and seen.active:
        yield differs(Problem.RUNS_WITHOUT_ADMISSION, "it runs and holds no quota", "suspended")
    elif state is State.ADMITTED and record.checks_pending and not seen.suspended:
        yield differs(Problem.NOT_STOPPED, "it runs, but its admission checks are not ready", "suspended")
    elif state is State.ADMITTED and not record.checks_pending and seen.suspended and not seen.active:
        yield differs(Problem.NOT_STARTED, "admitted, but suspended", "running")
    elif state is State.EVICTING and not seen.suspended and seen.active and not seen.ending:
        yield differs(Problem.NOT_STOPPED, f"evicted ({record.evict_reason}), but it runs", "suspended")
    elif state is State.EVICTING and not seen.active and not pods:
        yield differs(Problem.NOT_RELEASED, "evicted and stopped, but it holds its quota", "pending")
    elif is_held and not seen.suspended and workload.uid in view.otherwise:
        yield differs(Problem.FLAVORS_DIFFER, "its pods do not go where its flavors are", "as admitted")
    elif is_held and workload.uid in view.beyond:
        yield differs(Problem.PODS_BEYOND_QUOTA, f"{view.beyond[workload.uid]} pods run beyond its quota", "none")
    elif state is State.ADMITTED and (surplus := _surplus(record, seen)):
        yield differs(Problem.QUOTA_BEYOND_PODS, f"it holds quota for {surplus} pods that it has no more", "none")


def _surplus(record: WorkloadRecord, seen: Observed) -> int:
    """For how many pods a group holds quota that it neither has nor needs."""
    runs = any(count.needed or count.present for count in seen.counts)
    if record.admission is None or seen.suspended or not seen.kind.ends_by_deletion or not runs:
        return 0
    held = {each.name: each.count for each in record.admission.pod_sets}
    return sum(max(held.get(each.name, 0) - max(each.needed, each.present), 0) for each in seen.counts)


def _of_objects(view: View) -> Iterator[Difference]:
    for uid, seen in view.objects.items():
        if uid not in view.records and seen.queue and seen.finished is None:
            found = f"{'suspended' if seen.suspended else 'running'} in LocalQueue {seen.queue}, but not on record"
            yield Difference(Problem.NOT_ON_RECORD, f"{seen.kind.kind} {seen.key}", uid, found, "on record")


def _of_pods(view: View) -> Iterator[Difference]:
    for uid, owner in view.owners.items():
        record, seen = view.records.get(uid), view.objects.get(uid)
        if not owner.pods or (record is not None and record.state in HOLDING):
            continue
        waits = seen is not None and bool(seen.queue) and seen.suspended and seen.finished is None
        if waits or (seen is None and (record is not None or owner.had_quota)):
            kind = seen.kind.kind if seen is not None else "Job" if record is None else record.workload.kind
            yield Difference(
                Problem.PODS_WITHOUT_ADMISSION, f"{kind} {owner.name}", uid, f"{owner.pods} pods are alive", "no pods"
            )


def _of_memory(records: Mapping[str, WorkloadRecord], memory: Mapping[str, WorkloadRecord]) -> Iterator[Difference]:
    for uid in records.keys() | memory.keys():
        record, tracked = records.get(uid), memory.get(uid)
        if record is not tracked and _standing(record) != _standing(tracked):
            name = uid if record is None else f"{record.workload.kind} {record.workload.key}"
            found, expected = _shown(tracked), _shown(record)
            yield Difference(Problem.MEMORY_DIFFERS, name, uid, f"the leader has it as {found}", expected)


def _standing(record: WorkloadRecord | None) -> tuple[State, Admission | None] | None:
    return None if record is None else (record.state, record.admission)


def _shown(record: WorkloadRecord | None) -> str:
    if record is None:
        return "finished or unknown"
    state, admission = record.state, record.admission
    if admission is None:
        return str(state)
    amounts = (
        f"{amount} {resource} of {assignment.flavors.get(resource, 'no flavor')}"
        for assignment in admission.pod_sets
        for resource, amount in assignment.usage.items()
    )
    return f"{state} in {admission.cluster_queue} with {', '.join(amounts) or 'nothing'}"


def _of_usage(memory: Mapping[str, WorkloadRecord], engine: Usage) -> Iterator[Difference]:
    sums: Counter[tuple[str, str, str]] = Counter()
    for record in memory.values():
        if (admission := record.admission) is not None:
            for (flavor, resource), amount in usage_of(admission):
                sums[admission.cluster_queue, flavor, resource] += amount
    for pot in sorted(sums.keys() | engine.keys()):
        held, counted = sums[pot], engine.get(pot, 0)
        if held != counted:
            yield Difference(
                Problem.USAGE_DIFFERS, f"ClusterQueue {pot[0]}", "", _amount(pot, counted), _amount(pot, held)
            )


def _amount(pot: tuple[str, str, str], amount: int) -> str:
    return f"{amount} {pot[2]} of flavor {pot[1]} in use"


def _of_quota(view: View) -> Iterator[Difference]:
    """Of those violations that last: some of what was given then is still held."""
    for violation in view.violations:
        if any(uid in view.records and view.records[uid].state in HOLDING for uid in violation.workloads):
            quota_key = violation.quota_key
            yield Difference(
                Problem.OVER_QUOTA,
                f"ClusterQueue {quota_key.cluster_queue}",
                "",
                f"{violation.over} {quota_key.resource} of flavor {quota_key.flavor} more than there was, "
                f"since revision {violation.revision}",
                "within the quota",
            )
