"""What a Job's pods amount to, and what follows from that: the arithmetic of upstream's job controller, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import condition, is_over, is_ready, is_terminating
from admission.sandbox.controllers.indexes import format_indexes, parse_indexes
from admission.sandbox.controllers.jobpods import ended_at, failures_of, index_of, is_tracked
from admission.sandbox.controllers.policies import judge_failure, met_success_policy

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


class Verdict(NamedTuple):
    """How a Job ends. `target` is the interim condition type, `final` the one when no pod terminates any more."""

    target: str
    final: str
    reason: str
    message: str


def _failed(reason: str, message: str) -> Verdict:
    return Verdict("FailureTarget", "Failed", reason, message)


def _succeeded(reason: str, message: str) -> Verdict:
    return Verdict("SuccessCriteriaMet", "Complete", reason, message)


COMPLETED = _succeeded("CompletionsReached", "Reached expected number of succeeded pods")


@dataclass(slots=True)
class Tally:
    """The pods of a Job, counted. `succeeded` and `failed` include what the status does not count yet."""

    job: Object
    pods: list[Object]
    active: list[Object]
    terminating: int
    succeeded: int
    failed: int
    new_failures: list[Object]
    new_successes: list[Object]
    completed: set[int] = field(default_factory=set)
    """Indexed: all succeeded indexes."""
    failed_indexes: set[int] | None = None
    """With backoffLimitPerIndex: the indexes that are given up."""
    held: dict[int, Object] = field(default_factory=dict)
    """With backoffLimitPerIndex: the failed pod of each index that has no replacement yet; it carries the count."""

    @property
    def indexed(self) -> bool:
        return bool(self.job["spec"].get("completionMode") == "Indexed")


def is_failed(job: Object, pod: Object) -> bool:
    """Whether a pod counts as failed: so does one that is being deleted, unless only Failed ones are replaced."""
    if is_over(pod) or job["spec"].get("podReplacementPolicy") == "Failed":
        return bool(pod["status"]["phase"] == "Failed")
    return "deletionTimestamp" in pod["metadata"]


def is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend"))


def finish_of(job: Object) -> Object | None:
    """The condition with which the Job ended, None if it has not."""
    for kind in ("Complete", "Failed"):
        found = condition(job, kind)
        if found is not None and found["status"] == "True":
            return found
    return None


def count(job: Object, pods: list[Object]) -> Tally:
    """Count the pods that the Job owns."""
    status, limit = job.get("status", {}), job["spec"].get("completions")
    indexed = job["spec"].get("completionMode") == "Indexed"
    uncounted = status.get("uncountedTerminatedPods") or {}
    known = {*uncounted.get("succeeded", ()), *uncounted.get("failed", ())}
    if indexed:
        pods = sorted(pods, key=lambda pod: index_of(pod) or 0)
    fresh = [pod for pod in pods if is_tracked(pod) and pod["metadata"]["uid"] not in known]
    if indexed:
        fresh = [pod for pod in fresh if (index := index_of(pod)) is not None and index < limit]
    successes = [pod for pod in fresh if pod.get("status", {}).get("phase") == "Succeeded"]
    failures = [pod for pod in fresh if is_failed(job, pod)]
    counted = sum(judge_failure(job, pod).counts for pod in failures)
    tally = Tally(
        job=job,
        pods=pods,
        active=[pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]],
        terminating=sum(map(is_terminating, pods)),
        succeeded=status.get("succeeded", 0) + len(successes) + len(uncounted.get("succeeded", ())),
        failed=status.get("failed", 0) + counted + len(uncounted.get("failed", ())),
        new_failures=failures,
        new_successes=successes,
    )
    if indexed:
        tally.completed = parse_indexes(status.get("completedIndexes", ""), limit)
        tally.completed.update(index for pod in successes if (index := index_of(pod)) is not None)
        tally.succeeded = len(tally.completed)
        if "backoffLimitPerIndex" in job["spec"]:
            _count_failed_indexes(tally)
    return tally


def _count_failed_indexes(tally: Tally) -> None:
    """Fill `failed_indexes` and `held`."""
    job = tally.job
    given_up = parse_indexes(job.get("status", {}).get("failedIndexes") or "", job["spec"]["completions"])
    for pod in tally.new_failures:
        judged, index = judge_failure(job, pod), index_of(pod)
        exhausted = judged.counts and failures_of(pod)[0] >= job["spec"]["backoffLimitPerIndex"]
        if index is not None and (exhausted or judged.action == "FailIndex"):
            given_up.add(index)
    tally.failed_indexes = given_up
    settled = given_up | tally.completed | {index_of(pod) for pod in tally.active}
    for pod in tally.pods:
        index = index_of(pod)
        if index is not None and index not in settled and is_tracked(pod) and is_failed(job, pod):
            other = tally.held.get(index)
            if other is None or failures_of(other) < failures_of(pod):
                tally.held[index] = pod


def verdict(tally: Tally, now: float) -> Verdict | None:
    """How the Job is bound to end, None as long as that is open. Completion by count is not decided here."""
    job, spec = tally.job, tally.job["spec"]
    met = condition(job, "SuccessCriteriaMet")
    if met is not None:
        return _succeeded(met["reason"], met["message"])
    doomed = condition(job, "FailureTarget")
    if doomed is not None:
        return _failed(doomed["reason"], doomed["message"])
    for pod in tally.new_failures:
        failure = judge_failure(job, pod)
        if failure.action == "FailJob":
            return _failed("PodFailurePolicy", failure.message)
    if tally.failed > spec["backoffLimit"]:
        return _failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = deadline_of(job)
    if deadline is not None and now >= deadline:
        return _failed("DeadlineExceeded", "Job was active longer than specified deadline")
    return _verdict_by_index(tally) if tally.indexed else None


def _verdict_by_index(tally: Tally) -> Verdict | None:
    spec = tally.job["spec"]
    if tally.failed_indexes:
        if len(tally.failed_indexes) > spec.get("maxFailedIndexes", spec["completions"]):
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _failed("MaxFailedIndexesExceeded", message)
        if len(tally.failed_indexes | tally.completed) >= spec["completions"]:
            return _failed("FailedIndexes", "Job has failed indexes")
    rule = met_success_policy(tally.job, tally.completed)
    return None if rule is None else _succeeded("SuccessPolicy", rule)


def deadline_of(job: Object) -> float | None:
    """When activeDeadlineSeconds is over; None without a deadline or while the Job does not run."""
    started, allowed = job.get("status", {}).get("startTime"), job["spec"].get("activeDeadlineSeconds")
    if started is None or allowed is None or is_suspended(job):
        return None
    return float(parse_rfc3339(started) + allowed)


def is_complete(tally: Tally, active: int) -> bool:
    """Whether enough pods succeeded: as many as asked for, or, as a work queue, one and the rest have ended."""
    completions = tally.job["spec"].get("completions")
    enough = tally.succeeded > 0 if completions is None else tally.succeeded >= completions
    return enough and not active


def wanted_active(tally: Tally) -> int:
    """How many pods should be active."""
    spec = tally.job["spec"]
    if is_suspended(tally.job):
        return 0
    if spec.get("completions") is None:
        return len(tally.active) if tally.succeeded else int(spec["parallelism"])
    remaining = int(spec["completions"]) - tally.succeeded - len(tally.failed_indexes or ())
    return max(0, min(int(spec["parallelism"]), remaining))


def backoff_state(tally: Tally, before: tuple[int, float]) -> tuple[int, float]:
    """(failures since the last success, time of the last), after the newly ended pods; `before` is the same earlier."""
    failures, last = before
    latest_success = max(map(ended_at, tally.new_successes), default=None)
    if latest_success is not None:
        failures, last = 0, 0.0
    for pod in tally.new_failures:
        ended = ended_at(pod)
        if latest_success is None or ended > latest_success:
            failures, last = failures + 1, max(last, ended)
    return failures, last


def put_condition(status: Object, kind: str, value: str, reason: str, message: str, now: float) -> bool:
    """Set a condition in a status that the caller owns; False if it has this value already."""
    conditions = [dict(entry) for entry in status.get("conditions") or ()]
    entry = next((entry for entry in conditions if entry["type"] == kind), None)
    if entry is not None and entry["status"] == value:
        return False
    if entry is None:
        entry = {"type": kind}
        conditions.append(entry)
    instant = rfc3339(now)
    entry.update(status=value, lastProbeTime=instant, lastTransitionTime=instant, reason=reason, message=message)
    status["conditions"] = conditions
    return True


def put_counts(status: Object, **counts: int) -> None:
    """Set counters in a status that the caller owns: a zero is left out, except for those that always show."""
    for name, number in counts.items():
        if number or name in ("ready", "terminating"):
            status[name] = number
        else:
            status.pop(name, None)


def put_indexes(status: Object, tally: Tally) -> None:
    """Set succeeded and failed indexes in a status that the caller owns."""
    if tally.completed:
        status["completedIndexes"] = format_indexes(tally.completed)
    if tally.failed_indexes is not None:
        status["failedIndexes"] = format_indexes(tally.failed_indexes)
    put_counts(status, succeeded=tally.succeeded)


def count_ready(pods: list[Object]) -> int:
    return sum(map(is_ready, pods))


def count_ended(tally: Tally, status: Object, end: Verdict | None) -> tuple[Object, list[Object]]:
    """The `uncountedTerminatedPods` to write first, and the pods whose finalizers may go after that.

    Ended pods that lost their finalizer before are moved into the totals of `status`.
    """
    job = tally.job
    tracked = {pod["metadata"]["uid"]: pod for pod in tally.pods if is_tracked(pod)}
    uncounted: Object = {}
    for kind, uids in (status.get("uncountedTerminatedPods") or {}).items():
        kept = [uid for uid in uids if uid in tracked]
        put_counts(status, **{kind: status.get(kind, 0) + len(uids) - len(kept)})
        if kept:
            uncounted[kind] = kept
    known = {uid for uids in uncounted.values() for uid in uids}
    fails_all = end is not None and end.final == "Failed"
    deleting = "deletionTimestamp" in job["metadata"]
    held = [] if end or deleting else [pod["metadata"]["uid"] for pod in tally.held.values()]
    released = []
    for uid, pod in tracked.items():
        succeeded, failed = pod.get("status", {}).get("phase") == "Succeeded", is_failed(job, pod)
        if uid in held or not (succeeded or failed or end or deleting):
            continue
        released.append(pod)
        if uid in known or (tally.indexed and index_of(pod) is None):
            continue
        if succeeded and not tally.indexed:
            uncounted.setdefault("succeeded", []).append(uid)
        elif not succeeded and (failed or fails_all) and judge_failure(job, pod).counts:
            uncounted.setdefault("failed", []).append(uid)
    return uncounted, released
