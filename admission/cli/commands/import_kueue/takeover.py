"""Jobs that Kueue lets run, as admissions in Sluice's ledger, so that they run on: a pure function of what Kueue wrote.

What Kueue has put into a Job's template is known from its Workload, which keeps the template as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from admission.cli.commands.import_kueue.plan import Action, Line
from admission.controller.state.context import read
from admission.controller.state.workload_change import ADMITTED, DEACTIVATED, QUOTA_RESERVED
from admission.kinds.base import KUEUE
from admission.model.checks import CheckReport
from admission.model.errors import InvalidObject, InvalidQuantity
from admission.model.manifests import faults
from admission.model.quantity import amount
from admission.model.workload import Admission, PodSetAssignment
from admission.store.records import CheckRecord, Opened, State, Transition, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.cli.commands.import_kueue.source import Found
    from admission.kinds import Kinds, Object, Observed

_OF_THE_JOB_CONTROLLER = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels of a template that neither the user nor Kueue has set."""
_TAKEN_OVER = "taken over from Kueue"
_NOT_CARRIED = {
    "requeueState": "status.requeueState: its wait after evictions is not carried over: it may be admitted at once",
    "accumulatedPastExecutionTimeSeconds": (
        "status.accumulatedPastExecutionTimeSeconds: its time so far is not carried over: its limit begins anew"
    ),
}
"""What Kueue knows of one that waits, and Sluice finds out by itself later."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """What is written for one Job."""

    record: WorkloadRecord
    transition: Transition
    opened: Opened | None = None
    checks: tuple[CheckRecord, ...] = ()


class _Refused(Exception):
    """It cannot be taken over; the text says why."""


def running(found: Found, kinds: Kinds, *, queues: Collection[str], held: Collection[str], now: float) -> list[Line]:
    """The plan for all Workloads of Kueue that have not finished.

    `queues` are the ClusterQueues that there will be, `held` the uids of what Sluice has admitted or given up already.
    """
    lines = []
    for document in found.workloads:
        metadata = document["metadata"]
        conditions = _conditions(document)
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        if "Finished" in conditions:
            continue
        job = None if owner is None else found.objects.get(owner["uid"])
        name = f"{owner['kind'].lower()}/{metadata['namespace']}/{owner['name']}" if owner else metadata["name"]
        try:
            kind = (
                None if owner is None else kinds.get((owner.get("apiVersion") or "").rpartition("/")[0], owner["kind"])
            )
            if owner is None or kind is None:
                queued = ", ".join(f"{each.kind}s" for each in kinds)
                raise _Refused(f"Sluice queues {queued} only: it is left alone, and holds no quota here")
            if job is None:
                raise _Refused("it does not exist any more, names no queue by a label, or has another controller")
            line = _line(
                name, document, job, kinds, kind.observe(job), found, conditions, queues=queues, held=held, now=now
            )
        except _Refused as refusal:
            line = Line(Action.SKIP, name, (str(refusal),))
        lines.append(line)
    return lines


def _line(
    name: str,
    document: Object,
    job: Object,
    kinds: Kinds,
    seen: Observed,
    found: Found,
    conditions: Mapping[str, Object],
    *,
    queues: Collection[str],
    held: Collection[str],
    now: float,
) -> Line:
    uid: str = job["metadata"]["uid"]
    if uid in held:
        return Line(Action.SAME, name)
    status = document.get("status") or {}
    admission, suspended = status.get("admission"), seen.suspended
    if "Admitted" not in conditions and not suspended:
        raise _Refused("Kueue has not admitted it, yet it runs: Sluice will stop it, and let it queue")
    if not admission or "QuotaReserved" not in conditions:
        if document["spec"].get("active", True):
            not_carried = [text for field, text in _NOT_CARRIED.items() if status.get(field)]
            return Line(Action.QUEUE, name, (*not_carried, *_gates(job)))
        return Line(Action.DEACTIVATE, name, takeover=_deactivated(document, job, kinds, seen, found, now=now))
    if admission["clusterQueue"] not in queues:
        raise _Refused(
            f"status.admission.clusterQueue: there is no {admission['clusterQueue']}; Sluice will stop it: "
            "import that ClusterQueue as well"
        )
    try:
        takeover, notes = _takeover(document, job, kinds, seen, found, conditions, now=now)
    except (InvalidQuantity, InvalidObject) as error:
        raise _Refused(f"{error}; Sluice will stop it, and let it queue") from error
    return Line(Action.TAKE_OVER, name, (*notes, *_gates(job)), takeover=takeover)


def _gates(job: Object) -> list[str]:
    """A sentence for each gate that Kueue has put into the pod template: of an elastic Job."""
    gates = (job["spec"].get("template") or {}).get("spec", {}).get("schedulingGates") or ()
    return [
        f"spec.template.spec.schedulingGates: {gate['name']} is taken from new pods by Kueue alone, and they wait for "
        f"ever: create the Job anew, without the annotation {KUEUE}elastic-job"
        for gate in gates
        if gate["name"].startswith(KUEUE)
    ]


def _takeover(
    document: Object,
    job: Object,
    kinds: Kinds,
    seen: Observed,
    found: Found,
    conditions: Mapping[str, Object],
    *,
    now: float,
) -> tuple[Takeover, list[str]]:
    status, pod_sets = document["status"], document["spec"]["podSets"]
    assignments = status["admission"].get("podSetAssignments") or []
    if len(pod_sets) != 1 or len(assignments) != 1:
        raise _Refused("spec.podSets: a Job has one; Sluice will stop it, and let it queue")
    pod_set, given = pod_sets[0], assignments[0]
    original = _original(job, pod_set, given)
    reading = read(kinds, seen, seen.kind.restored(job, original), found.context)
    if reading.fault:
        raise _Refused(f"{reading.fault}; Sluice will stop it")
    admission = Admission(status["admission"]["clusterQueue"], (_assignment(given, pod_set),))
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
    story = Transition(workload.uid, now, record.state, record.reason, _TAKEN_OVER)
    checks = _checks(status, workload.uid)
    notes = [
        f'status.admissionChecks: "{check.name}" says {check.state}; its controller has to answer to Sluice from now on'
        for check in checks
        if check.state != "Ready"
    ]
    if given.get("topologyAssignment"):
        notes.append("status.admission.podSetAssignments[0].topologyAssignment: pods that exist keep their nodes")
    return Takeover(record, story, Opened(workload, admission, since), checks), notes


def _deactivated(document: Object, job: Object, kinds: Kinds, seen: Observed, found: Found, *, now: float) -> Takeover:
    """One that Kueue, or an admin, has taken out of the queue for good; else it would start under Sluice."""
    workload = read(kinds, seen, job, found.context).workload
    record = WorkloadRecord(
        workload=workload,
        state=State.PENDING,
        queued_at=_time(document["metadata"]["creationTimestamp"]),
        reason=DEACTIVATED,
        message="The workload was deactivated in Kueue",
        active=False,
    )
    return Takeover(record, Transition(workload.uid, now, record.state, record.reason, record.message))


def _original(job: Object, pod_set: Object, given: Object) -> Object:
    """What Kueue has replaced, and by what, as `Kind.start_patch` would have noted it."""
    spec, before = job["spec"], pod_set["template"]
    original: Object = {}
    put_in: Object = {}
    for part, field in (("spec", "nodeSelector"), ("metadata", "labels"), ("metadata", "annotations")):
        has, had = ((each.get(part) or {}).get(field) or {} for each in (spec["template"], before))
        if field == "labels":
            had = had | {key: has[key] for key in _OF_THE_JOB_CONTROLLER if key in has}
        if has != had:
            original[field] = had or None
            added = {key: value for key, value in has.items() if key not in had}
            put_in.setdefault("template", {}).setdefault(part, {})[field] = added
    has, had = ((each.get("spec") or {}).get("tolerations") or [] for each in (spec["template"], before))
    if has != had:
        original["tolerations"] = had or None
        put_in.setdefault("template", {}).setdefault("spec", {})["tolerations"] = has
    if given.get("count", pod_set["count"]) < pod_set["count"]:
        annotations = job["metadata"].get("annotations") or {}
        follow = annotations.get("kueue.x-k8s.io/job-completions-equal-parallelism") == "true"
        for field in ("parallelism", "completions") if follow else ("parallelism",):
            original[field] = pod_set["count"]
            put_in[field] = spec.get(field)
    return {**original, "given": put_in} if put_in else original


def _assignment(given: Object, pod_set: Object) -> PodSetAssignment:
    flavors: dict[str, str] = given.get("flavors") or {}
    where = "status.admission.podSetAssignments[0].resourceUsage"
    usage = {
        resource: amount(resource, value, field=f"{where}.{resource}")
        for resource, value in (given.get("resourceUsage") or {}).items()
        if resource in flavors
    }
    count: int = given.get("count") or pod_set["count"]
    return PodSetAssignment(given["name"], flavors, usage, count)


def _checks(status: Object, uid: str) -> tuple[CheckRecord, ...]:
    found = []
    for said in status.get("admissionChecks") or ():
        fields = {key: value for key, value in said.items() if key not in ("lastTransitionTime", "retryCount")}
        report = _report(fields)
        found.append(
            CheckRecord(
                uid,
                report.name,
                report.state,
                _time(said["lastTransitionTime"]),
                message=report.message,
                requeue_after_seconds=report.requeue_after_seconds,
                retries=said.get("retryCount") or 0,
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
    """Those that are True, by type."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in conditions if each["status"] == "True"}


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
