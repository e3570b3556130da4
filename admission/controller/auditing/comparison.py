"""Comparison of stored workloads with the cluster and with the leader's memory: differences and their repair.

Pure functions. The inputs are read one after the other while work goes on, so a difference is real only if a second
comparison some seconds later finds it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from admission.controller.state.lifecycle import Step, next_step
from admission.engine.clusterqueue import usage_of
from admission.model.quantity import format_amount
from admission.model.workload import LOCAL
from admission.store.records import State
from admission.store.workloads.replay import BLOCKING_REASONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from admission.kinds.base import Observed
    from admission.model.workload import Admission
    from admission.store.ledger.violations import Violation
    from admission.store.records import WorkloadRecord

Usage: TypeAlias = "Mapping[tuple[str, str, str], int]"
"""Used quota by ClusterQueue, flavor and resource: `{("cq", "default", "cpu"): 4000}`."""

QUOTA_STATES = frozenset({State.ADMITTED, State.EVICTING})
"""States in which a workload holds quota."""


class Repair(StrEnum):
    """How a difference is repaired."""

    RECONCILE = "reconcile"
    """Read the object again, and process it as if it had just been observed."""
    RELOAD = "reload"
    """Reload the leader's state from the database, and compare it with the cluster."""
    NONE = ""
    """Nothing: an admin has to decide."""


class Problem(StrEnum):
    """Types of differences; the values are the `problem` in the REST API."""

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
    def repair(self) -> Repair:
        """How the leader repairs it."""
        return _REPAIRS[self][0]

    @property
    def remedy(self) -> str:
        """Text for users: what a repair does."""
        return _REPAIRS[self][1]


_REPAIRS = {
    Problem.RUNS_WITHOUT_ADMISSION: (Repair.RECONCILE, "it is stopped"),
    Problem.NOT_ON_RECORD: (Repair.RECONCILE, "it is queued"),
    Problem.NOT_STARTED: (Repair.RECONCILE, "it is started"),
    Problem.NOT_STOPPED: (Repair.RECONCILE, "it is stopped"),
    Problem.NOT_RELEASED: (Repair.RECONCILE, "it is restored, and its quota is released"),
    Problem.NOT_FINISHED: (Repair.RECONCILE, "it is recorded as finished, and its quota is released"),
    Problem.RECORD_OF_GONE: (Repair.RECONCILE, "it is recorded as finished"),
    Problem.ADMISSION_OF_GONE: (Repair.RECONCILE, "its quota is released"),
    Problem.PODS_WITHOUT_ADMISSION: (Repair.NONE, "nothing; delete the pods"),
    Problem.FLAVORS_DIFFER: (Repair.NONE, "nothing; sluice hold and sluice release restart it with its flavors"),
    Problem.PODS_BEYOND_QUOTA: (Repair.RECONCILE, "the newest of these pods are deleted"),
    Problem.QUOTA_BEYOND_PODS: (Repair.RECONCILE, "this quota is released"),
    Problem.MEMORY_DIFFERS: (Repair.RELOAD, "the leader reloads its state from the database"),
    Problem.USAGE_DIFFERS: (Repair.RELOAD, "the leader reloads its state from the database"),
    Problem.OVER_QUOTA: (Repair.NONE, "nothing; no workload is admitted there until enough quota is released"),
}


@dataclass(frozen=True, slots=True)
class AuditDifference:
    """One difference between database, cluster and the leader's memory."""

    problem: Problem
    object: str
    """`Kind namespace/name`, or `ClusterQueue name`."""
    uid: str
    """Uid of the workload; empty if the difference is not about one."""
    found: str
    expected: str
    cluster: str = LOCAL
    """Name of the cluster of the object; `local` for what concerns no object."""


class Owner(NamedTuple):
    """Owner of pods that are not finished, by the pods' owner label."""

    name: str
    """`namespace/name` of the Job."""
    pods: int
    """Number of these pods that are not being deleted."""
    had_quota: bool
    """Whether the ledger has an admission of the Job; looked up only for Jobs that were not found."""


@dataclass(frozen=True, slots=True)
class View:
    """Input of the comparison. Maps and sets of strings are keyed by the uids of objects."""

    records: Mapping[str, WorkloadRecord]
    """Unfinished workloads in the database."""
    objects: Mapping[str, Observed]
    """Objects in the cluster that name a queue or have a stored workload."""
    owners: Mapping[str, Owner]
    """Owners of pods that are not finished."""
    disabled: Collection[str] = ()
    """Uids of workloads not to compare: in other clusters or dispatched to them, of disabled kinds, and groups without
    pods whose owner will recreate these."""
    tracked: Mapping[str, WorkloadRecord] | None = None
    """The leader's workloads; None: the audit runs without a leader."""
    engine: Usage = field(default_factory=dict)
    """Usage as counted by the leader's engine, read at the same time as `tracked`."""
    misplaced: Collection[str] = ()
    """Uids of objects that run with other node selectors or tolerations than their admission's flavors have."""
    beyond: Mapping[str, int] = field(default_factory=dict)
    """Number of pods that run beyond the quota of their group, by uid of the group."""
    violations: tuple[Violation, ...] = ()
    """Admissions by which usage exceeded the quota of their time."""


def differences(view: View) -> list[AuditDifference]:
    """Return all differences."""
    return [
        *(
            found
            for uid, record in view.records.items()
            if uid not in view.disabled
            for found in _of_record(view, record)
        ),
        *_of_objects(view),
        *_of_pods(view),
        *(() if view.tracked is None else _of_memory(view.records, view.tracked)),
        *(() if view.tracked is None else _of_usage(view.tracked, view.engine)),
        *_of_quota(view),
    ]


def _of_record(view: View, record: WorkloadRecord) -> Iterator[AuditDifference]:
    workload, state = record.workload, record.state
    seen = view.objects.get(workload.uid)
    holds_quota = state in QUOTA_STATES
    pods = workload.uid in view.owners
    step = seen and next_step(state, seen, changed_by_us=False, checks_pending=record.checks_pending)

    def differs(problem: Problem, found: str, expected: str) -> AuditDifference:
        return AuditDifference(problem, f"{workload.kind} {workload.key}", workload.uid, found, expected)

    if seen is None:
        if holds_quota and not pods:
            yield differs(Problem.ADMISSION_OF_GONE, f"{state}, but neither it nor a pod of it exists", "finished")
        elif not holds_quota:
            yield differs(Problem.RECORD_OF_GONE, f"{state}, but it does not exist", "finished")
    elif seen.finished is not None:
        yield differs(Problem.NOT_FINISHED, f"{state}, but it is finished", "finished")
    # Not for one that an admin has put on hold: its record is kept though the queue label is gone.
    elif not holds_quota and not seen.queue and record.active and record.reason not in BLOCKING_REASONS:
        yield differs(Problem.NOT_FINISHED, f"{state}, but it names no queue", "finished")
    elif step is Step.STOP and state is State.ADMITTED:
        yield differs(Problem.NOT_STOPPED, "it runs, but its admission checks are not ready", "suspended")
    elif step is Step.STOP and seen.active and holds_quota:
        yield differs(Problem.NOT_STOPPED, f"evicted ({record.evict_reason}), but it runs", "suspended")
    elif step is Step.STOP and seen.active:
        yield differs(Problem.RUNS_WITHOUT_ADMISSION, "it runs and holds no quota", "suspended")
    elif step is Step.START and seen.suspended:
        yield differs(Problem.NOT_STARTED, "admitted, but suspended", "running")
    elif state is State.EVICTING and not seen.active and not pods:
        yield differs(Problem.NOT_RELEASED, "evicted and stopped, but it still holds quota", "pending")
    elif holds_quota and not seen.suspended and workload.uid in view.misplaced:
        yield differs(
            Problem.FLAVORS_DIFFER, "its node selectors or tolerations are not those of its flavors", "as admitted"
        )
    elif holds_quota and workload.uid in view.beyond:
        yield differs(Problem.PODS_BEYOND_QUOTA, f"{view.beyond[workload.uid]} pods run beyond its quota", "none")
    elif state is State.ADMITTED and (surplus := _surplus(record, seen)):
        yield differs(Problem.QUOTA_BEYOND_PODS, f"it holds quota for {surplus} pods that do not exist", "none")


def _surplus(record: WorkloadRecord, seen: Observed) -> int:
    """Return the number of pods that a group holds quota for, but neither has nor needs."""
    runs = any(count.needed or count.present for count in seen.counts)
    if record.admission is None or seen.suspended or not seen.kind.ends_by_deletion or not runs:
        return 0
    held = {each.name: each.count for each in record.admission.pod_sets}
    return sum(max(held.get(each.name, 0) - max(each.needed, each.present), 0) for each in seen.counts)


def _of_objects(view: View) -> Iterator[AuditDifference]:
    for uid, seen in view.objects.items():
        if uid not in view.records and seen.queue and seen.finished is None:
            found = (
                f"{'suspended' if seen.suspended else 'running'} in LocalQueue {seen.queue}, but not in the database"
            )
            yield AuditDifference(Problem.NOT_ON_RECORD, f"{seen.kind.kind} {seen.key}", uid, found, "in the database")


def _of_pods(view: View) -> Iterator[AuditDifference]:
    for uid, owner in view.owners.items():
        record, seen = view.records.get(uid), view.objects.get(uid)
        if not owner.pods or (record is not None and record.state in QUOTA_STATES):
            continue
        waits = seen is not None and bool(seen.queue) and seen.suspended and seen.finished is None
        if waits or (seen is None and (record is not None or owner.had_quota)):
            kind = seen.kind.kind if seen is not None else "Job" if record is None else record.workload.kind
            yield AuditDifference(
                Problem.PODS_WITHOUT_ADMISSION, f"{kind} {owner.name}", uid, f"{owner.pods} pods are alive", "no pods"
            )


def _of_memory(
    records: Mapping[str, WorkloadRecord], memory: Mapping[str, WorkloadRecord]
) -> Iterator[AuditDifference]:
    for uid in records.keys() | memory.keys():
        record, tracked = records.get(uid), memory.get(uid)
        if record is not tracked and _compared_fields(record) != _compared_fields(tracked):
            name = uid if record is None else f"{record.workload.kind} {record.workload.key}"
            found, expected = _description(tracked), _description(record)
            yield AuditDifference(Problem.MEMORY_DIFFERS, name, uid, f"the leader has it as {found}", expected)


def _compared_fields(record: WorkloadRecord | None) -> tuple[State, Admission | None] | None:
    return None if record is None else (record.state, record.admission)


def _description(record: WorkloadRecord | None) -> str:
    if record is None:
        return "finished or unknown"
    state, admission = record.state, record.admission
    if admission is None:
        return str(state)
    amounts = (
        f"{format_amount(resource, amount)} {resource} of {assignment.flavors.get(resource, 'no flavor')}"
        for assignment in admission.pod_sets
        for resource, amount in assignment.usage.items()
    )
    return f"{state} in {admission.cluster_queue} with {', '.join(amounts) or 'nothing'}"


def _of_usage(memory: Mapping[str, WorkloadRecord], engine: Usage) -> Iterator[AuditDifference]:
    sums: Counter[tuple[str, str, str]] = Counter()
    for record in memory.values():
        if (admission := record.admission) is not None:
            for (flavor, resource), amount in usage_of(admission):
                sums[admission.cluster_queue, flavor, resource] += amount
    for key in sorted(sums.keys() | engine.keys()):
        held, counted = sums[key], engine.get(key, 0)
        if held != counted:
            yield AuditDifference(
                Problem.USAGE_DIFFERS, f"ClusterQueue {key[0]}", "", _amount(key, counted), _amount(key, held)
            )


def _amount(key: tuple[str, str, str], amount: int) -> str:
    return f"{format_amount(key[2], amount)} {key[2]} of flavor {key[1]} in use"


def _of_quota(view: View) -> Iterator[AuditDifference]:
    """Return the violations of quota that last: at least one of the workloads admitted then still holds its quota."""
    for violation in view.violations:
        if any(uid in view.records and view.records[uid].state in QUOTA_STATES for uid in violation.workloads):
            quota_key = violation.quota_key
            over = format_amount(quota_key.resource, violation.over)
            yield AuditDifference(
                Problem.OVER_QUOTA,
                f"ClusterQueue {quota_key.cluster_queue}",
                "",
                f"{over} {quota_key.resource} of flavor {quota_key.flavor} more than the quota, "
                f"since revision {violation.revision}",
                "within the quota",
            )
