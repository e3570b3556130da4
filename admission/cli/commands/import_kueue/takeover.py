"""Takeover of Jobs that Kueue has admitted: their admissions become records of Sluice, so that they keep running.

Pure functions of Kueue's Workloads and the Jobs. What Kueue has injected into the template of a Job follows from the
Workload, which has the original template.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from admission.cli.commands.import_kueue.plan import Action, PlanEntry, Takeover
from admission.controller.state.context import read
from admission.controller.state.workload_change import ADMITTED, DEACTIVATED, QUOTA_RESERVED
from admission.kinds.abilities import restored
from admission.kinds.base import KUEUE
from admission.model.checks import CheckReport
from admission.model.errors import InvalidObject, InvalidQuantity
from admission.model.manifests import faults
from admission.model.quantity import amount
from admission.model.topology_documents import topology_assignment
from admission.model.workload import Admission, PodSetAssignment
from admission.store.records import CheckRecord, Opened, State, Transition, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from admission.cli.commands.import_kueue.source import Importable
    from admission.kinds import Kinds, Object, Observed
    from admission.kinds.base import Kind

_JOB_CONTROLLER_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels of a template that the Job controller sets: neither the user nor Kueue."""
_ELASTIC = f"{KUEUE}elastic-job"
"""Annotation of a Job, and the scheduling gate that its pods get."""
_TAKEN_OVER = "taken over from Kueue"
_WITHOUT_QUOTA = "it is running, but holds no quota in Sluice, which will stop it"
_NOT_IMPORTED = {
    "requeueState": "status.requeueState: the backoff is not imported: it may be admitted immediately",
    "accumulatedPastExecutionTimeSeconds": (
        "status.accumulatedPastExecutionTimeSeconds: not imported: its maximum execution time starts again"
    ),
}
"""Status field of a pending Workload -> note: Sluice has no record yet into which to import it."""


class _Refused(Exception):
    """A Workload cannot be taken over; the message, for users, says why."""


def plan_takeovers(
    found: Importable, kinds: Kinds, *, queues: Collection[str], known: Mapping[str, bool], now: float
) -> list[PlanEntry]:
    """Return the plan for all Workloads of Kueue that have not finished, and for running Jobs without one.

    `queues` are the names of the ClusterQueues after the import, `known` says of each workload that Sluice has on
    record, by uid, whether it holds quota, `now` is the Unix time of the transitions.
    """
    entries = []
    finished: dict[str, bool] = {}  # uid of a Job -> whether all its Workloads have finished
    for document in found.workloads:
        metadata = document["metadata"]
        conditions = _conditions(document)
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        if owner is not None:
            finished[owner["uid"]] = "Finished" in conditions and finished.get(owner["uid"], True)
        if "Finished" in conditions:
            continue
        job = None if owner is None else found.objects.get(owner["uid"])
        name = f"{owner['kind'].lower()}/{metadata['namespace']}/{owner['name']}" if owner else metadata["name"]
        try:
            kind = None if owner is None else _kind(kinds, owner)
            if owner is None or kind is None:
                queued = ", ".join(f"{each.kind}s" for each in kinds)
                raise _Refused(f"Sluice queues {queued} only: it is not imported, and holds no quota in Sluice")
            if job is None:
                raise _Refused("it no longer exists, has no queue label, or has another controller")
            entry = _entry(
                name, document, job, kinds, kind.observe(job), found, conditions, queues=queues, known=known, now=now
            )
        except _Refused as refusal:
            entry = PlanEntry(Action.SKIP, name, (str(refusal),))
        entries.append(entry)
    return _once_for_each_job(entries) + list(_stopped(found, kinds, finished, known))


def _stopped(
    found: Importable, kinds: Kinds, finished: Mapping[str, bool], known: Mapping[str, bool]
) -> Iterator[PlanEntry]:
    """Yield an entry for each running Job that no other entry names, and that holds no quota in Sluice.

    `finished`: whether all Workloads of a Job have finished, by its uid.
    """
    for uid, job in found.objects.items():
        if known.get(uid) or not finished.get(uid, True):
            continue
        kind = _kind(kinds, job)
        assert kind is not None, job
        observed = kind.observe(job)
        if observed.suspended or observed.finished is not None:
            continue
        why = "its Workload has finished" if uid in finished else "it has no Workload"
        note = _WITHOUT_QUOTA if uid in known else f"it is running, but {why}: Sluice will stop and queue it"
        yield PlanEntry(Action.SKIP, f"{kind.kind.lower()}/{observed.key}", (note,))


def _kind(kinds: Kinds, reference: Object) -> Kind | None:
    """Return the kind of an object, or of one that is referred to; None: Sluice does not queue it."""
    return kinds.get((reference.get("apiVersion") or "").rpartition("/")[0], reference["kind"])


def _once_for_each_job(entries: list[PlanEntry]) -> list[PlanEntry]:
    """Return the plan in which each Job is taken over with its newest Workload only.

    An elastic Job of Kueue has two while it is scaled: the new one replaces the other.
    """
    newest: dict[str, Takeover] = {}
    for entry in entries:
        if (takeover := entry.takeover) is not None:
            other = newest.setdefault(takeover.record.workload.uid, takeover)
            if other.record.queued_at <= takeover.record.queued_at:
                newest[takeover.record.workload.uid] = takeover
    return [
        entry
        if entry.takeover is None or newest[entry.takeover.record.workload.uid] is entry.takeover
        else PlanEntry(Action.SKIP, entry.what, ("a newer Workload of the same Job is taken over instead",))
        for entry in entries
    ]


def _entry(
    name: str,
    document: Object,
    job: Object,
    kinds: Kinds,
    observed: Observed,
    found: Importable,
    conditions: Mapping[str, Object],
    *,
    queues: Collection[str],
    known: Mapping[str, bool],
    now: float,
) -> PlanEntry:
    """Return the entry for an unfinished Workload. Raises _Refused if its Job cannot be taken over."""
    uid: str = job["metadata"]["uid"]
    if uid in known:  # whatever Kueue's Workload says is older
        is_stopped = not known[uid] and not observed.suspended and observed.finished is None
        return PlanEntry(Action.SAME, name, (_WITHOUT_QUOTA,) if is_stopped else ())
    status = document.get("status") or {}
    admission, suspended = status.get("admission"), observed.suspended
    if "Admitted" not in conditions and not suspended:
        raise _Refused("it is running without an admission of Kueue: Sluice will stop and queue it")
    if not admission or "QuotaReserved" not in conditions:
        if document["spec"].get("active", True):
            not_imported = [text for field, text in _NOT_IMPORTED.items() if status.get(field)]
            return PlanEntry(Action.QUEUE, name, (*not_imported, *_gate_notes(job)))
        return PlanEntry(Action.DEACTIVATE, name, takeover=_deactivated(document, job, kinds, observed, found, now=now))
    if admission["clusterQueue"] not in queues:
        raise _Refused(
            f"status.admission.clusterQueue: {admission['clusterQueue']} does not exist; Sluice will stop it: "
            "import that ClusterQueue as well"
        )
    try:
        takeover, notes = _takeover(document, job, kinds, observed, found, conditions, now=now)
    except (InvalidQuantity, InvalidObject) as error:
        raise _Refused(f"{error}; Sluice will stop and queue it") from error
    notes += _gate_notes(job, takeover.record.original)
    return PlanEntry(Action.TAKE_OVER, name, tuple(notes), takeover=takeover)


def _gate_notes(job: Object, original: Object | None = None) -> list[str]:
    """Return a note for each scheduling gate that Kueue has added to the pod template. `original`: see `_original`."""
    gates = (job["spec"].get("template") or {}).get("spec", {}).get("schedulingGates") or ()
    notes = []
    for name in (gate["name"] for gate in gates if gate["name"].startswith(KUEUE)):
        advice = "recreate the Job without it"
        if name == _ELASTIC:  # set at creation, as if by the user
            advice = f"recreate the Job without the annotation {_ELASTIC}"
        elif "schedulingGates" in (original or {}):
            advice = "sluice hold and sluice release restart the Job without it"
        what = f"only Kueue removes {name} from new pods, which would never start"
        notes.append(f"spec.template.spec.schedulingGates: {what}: {advice}")
    return notes


def _takeover(
    document: Object,
    job: Object,
    kinds: Kinds,
    observed: Observed,
    found: Importable,
    conditions: Mapping[str, Object],
    *,
    now: float,
) -> tuple[Takeover, list[str]]:
    """Return the records for a Job with quota, and notes on it. Raises _Refused, InvalidObject and InvalidQuantity."""
    status, pod_sets = document["status"], document["spec"]["podSets"]
    assignments = status["admission"].get("podSetAssignments") or []
    if len(pod_sets) != 1 or len(assignments) != 1:
        raise _Refused("spec.podSets: a Job must have exactly one; Sluice will stop and queue it")
    pod_set, assignment = pod_sets[0], assignments[0]
    original = _original(job, pod_set, assignment)
    reading = read(kinds, observed, restored(observed.kind, job, original), found.context)
    if reading.fault:
        raise _Refused(f"{reading.fault}; Sluice will stop it")
    admission = Admission(status["admission"]["clusterQueue"], (_assignment(assignment, pod_set),))
    reserved, admitted = conditions["QuotaReserved"], conditions.get("Admitted")
    since = _time(reserved["lastTransitionTime"])
    record = WorkloadRecord(
        workload=reading.workload,
        state=State.ADMITTED,
        queued_at=_time(document["metadata"]["creationTimestamp"]),
        cluster_queue=admission.cluster_queue,
        reason=QUOTA_RESERVED if admitted is None else ADMITTED,
        message=_TAKEN_OVER,
        admission=admission,
        original=original,
        admitted_at=since,
        checks_pending=admitted is None,
        cleared_at=None if admitted is None else _time(admitted["lastTransitionTime"]),
        past_seconds=float(status.get("accumulatedPastExecutionTimeSeconds") or 0),
    )
    if "Evicted" in conditions:
        why = conditions["Evicted"]
        record = replace(
            record, state=State.EVICTING, evict_reason=why.get("reason", "Evicted"), message=why.get("message", "")
        )
    workload = record.workload
    transition = Transition(workload.uid, now, record.state, record.reason, _TAKEN_OVER)
    checks = _checks(status, workload.uid)
    notes = [
        f'status.admissionChecks: "{check.name}" is {check.state}; its controller must answer to Sluice from now on'
        for check in checks
        if check.state != "Ready"
    ]
    if assignment.get("topologyAssignment"):
        notes.append("status.admission.podSetAssignments[0].topologyAssignment: existing pods keep their nodes")
    return Takeover(record, transition, Opened(workload, admission, since), checks), notes


def _deactivated(
    document: Object, job: Object, kinds: Kinds, observed: Observed, found: Importable, *, now: float
) -> Takeover:
    """Return the records for a Job that is deactivated in Kueue, without which Sluice would queue and start it."""
    workload = read(kinds, observed, job, found.context).workload
    record = WorkloadRecord(
        workload=workload,
        state=State.PENDING,
        queued_at=_time(document["metadata"]["creationTimestamp"]),
        reason=DEACTIVATED,
        message="The workload was deactivated in Kueue",
        active=False,
    )
    return Takeover(record, Transition(workload.uid, now, record.state, record.reason, record.message))


def _original(job: Object, pod_set: Object, assignment: Object) -> Object:
    """Return the fields that Kueue has changed: original and injected values, in the form of `Kind.start_patch`."""
    spec, before = job["spec"], pod_set["template"]
    original: Object = {}
    injected: Object = {}
    for part, field in (("spec", "nodeSelector"), ("metadata", "labels"), ("metadata", "annotations")):
        has, had = ((each.get(part) or {}).get(field) or {} for each in (spec["template"], before))
        if field == "labels":
            had = had | {key: has[key] for key in _JOB_CONTROLLER_LABELS if key in has}
        if has != had:
            original[field] = had or None
            added = {key: value for key, value in has.items() if key not in had}
            injected.setdefault("template", {}).setdefault(part, {})[field] = added
    for field in ("tolerations", "schedulingGates"):
        has, had = ((each.get("spec") or {}).get(field) or [] for each in (spec["template"], before))
        if has != had:
            original[field] = had or None
            injected.setdefault("template", {}).setdefault("spec", {})[field] = has
    if (count := assignment.get("count", pod_set["count"])) < pod_set["count"]:  # partial admission
        annotations = job["metadata"].get("annotations") or {}
        follow = annotations.get("kueue.x-k8s.io/job-completions-equal-parallelism") == "true"
        for field in ("parallelism", "completions") if follow else ("parallelism",):
            if spec.get(field) == count:  # otherwise Kueue has not started it, or its user has changed the number since
                original[field], injected[field] = pod_set["count"], count
    return {**original, "given": injected} if injected else original


def _assignment(assignment: Object, pod_set: Object) -> PodSetAssignment:
    """Return Kueue's podSetAssignment as one of Sluice. Raises InvalidQuantity and _Refused."""
    flavors: dict[str, str] = assignment.get("flavors") or {}
    where = "status.admission.podSetAssignments[0].resourceUsage"
    usage = {
        resource: amount(resource, value, field=f"{where}.{resource}")
        for resource, value in (assignment.get("resourceUsage") or {}).items()
        if resource in flavors
    }
    count: int = assignment.get("count") or pod_set["count"]
    topology = assignment.get("topologyAssignment")
    try:
        domains = topology_assignment(topology) if topology else None
    except (LookupError, TypeError, ValueError) as error:
        raise _Refused("status.admission.podSetAssignments[0].topologyAssignment cannot be read") from error
    return PodSetAssignment(assignment["name"], flavors, usage, count, domains)


def _checks(status: Object, uid: str) -> tuple[CheckRecord, ...]:
    """Return the states of the admission checks. Raises InvalidObject."""
    found = []
    for check in status.get("admissionChecks") or ():
        fields = {key: value for key, value in check.items() if key not in ("lastTransitionTime", "retryCount")}
        report = _report(fields)
        found.append(
            CheckRecord(
                uid,
                report.name,
                report.state,
                _time(check["lastTransitionTime"]),
                message=report.message,
                requeue_after_seconds=report.requeue_after_seconds,
                retries=check.get("retryCount") or 0,
                pod_set_updates=report.pod_set_updates,
            )
        )
    return tuple(found)


def _report(fields: Object) -> CheckReport:
    from pydantic import ValidationError

    try:
        return CheckReport.model_validate(fields)
    except ValidationError as error:
        raise InvalidObject(faults(error), subject="status.admissionChecks") from error


def _conditions(document: Object) -> dict[str, Object]:
    """Return the conditions that are True, by type."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in conditions if each["status"] == "True"}


def _time(text: str) -> float:
    """Return the Unix time of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp()
