"""Calculation of a Job's status and outcome from its pods and policies, as in upstream's job controller. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import condition, is_over, is_ready, is_terminating
from admission.sandbox.controllers.jobpods import ended_at, failures_of, index_of, is_tracked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.sandbox.apiserver.objects import Object


class JobOutcome(NamedTuple):
    """Outcome of a Job: `target` is the interim condition, `final` the terminal one, set when no pod terminates."""

    target: str
    final: str
    reason: str
    message: str


def _failed(reason: str, message: str) -> JobOutcome:
    return JobOutcome("FailureTarget", "Failed", reason, message)


def _succeeded(reason: str, message: str) -> JobOutcome:
    return JobOutcome("SuccessCriteriaMet", "Complete", reason, message)


COMPLETED = _succeeded("CompletionsReached", "Reached expected number of succeeded pods")


@dataclass(slots=True)
class Tally:
    """Counts of a Job's pods. `succeeded` and `failed` include pods that the status does not count yet."""

    job: Object
    pods: list[Object]
    active: list[Object]
    terminating: int
    succeeded: int
    failed: int
    new_failures: list[Object]
    new_successes: list[Object]
    completed: set[int] = field(default_factory=set)
    """Succeeded indexes, if the Job is Indexed."""
    failed_indexes: set[int] | None = None
    """Failed indexes, which are not retried; None without backoffLimitPerIndex."""
    delayed_deletions: dict[int, Object] = field(default_factory=dict)
    """Failed pod of each index without replacement yet, whose annotations carry the index's failure count.

    Only with backoffLimitPerIndex; upstream's podsWithDelayedDeletionPerIndex.
    """

    @property
    def indexed(self) -> bool:
        return bool(self.job["spec"].get("completionMode") == "Indexed")


def is_failed(job: Object, pod: Object) -> bool:
    """Return whether a pod counts as failed: also one that is being deleted, unless podReplacementPolicy is Failed."""
    if is_over(pod) or job["spec"].get("podReplacementPolicy") == "Failed":
        return bool(pod["status"]["phase"] == "Failed")
    return "deletionTimestamp" in pod["metadata"]


def is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend"))


def finished_condition(job: Object) -> Object | None:
    """Return the terminal condition of a finished Job (Complete or Failed), else None."""
    for kind in ("Complete", "Failed"):
        found = condition(job, kind)
        if found is not None and found["status"] == "True":
            return found
    return None


def count(job: Object, pods: list[Object]) -> Tally:
    """Count the pods that the Job controls."""
    status, limit = job.get("status", {}), job["spec"].get("completions")
    indexed = job["spec"].get("completionMode") == "Indexed"
    uncounted = status.get("uncountedTerminatedPods") or {}
    known = {*uncounted.get("succeeded", ()), *uncounted.get("failed", ())}
    if indexed:
        pods = sorted(pods, key=lambda pod: index_of(pod) or 0)
    new = [pod for pod in pods if is_tracked(pod) and pod["metadata"]["uid"] not in known]
    if indexed:
        new = [pod for pod in new if (index := index_of(pod)) is not None and index < limit]
    successes = [pod for pod in new if pod.get("status", {}).get("phase") == "Succeeded"]
    failures = [pod for pod in new if is_failed(job, pod)]
    counted = sum(match_failure_policy(job, pod).counts for pod in failures)
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
    """Set `failed_indexes` and `delayed_deletions`."""
    job = tally.job
    failed = parse_indexes(job.get("status", {}).get("failedIndexes") or "", job["spec"]["completions"])
    for pod in tally.new_failures:
        failure, index = match_failure_policy(job, pod), index_of(pod)
        exhausted = failure.counts and failures_of(pod)[0] >= job["spec"]["backoffLimitPerIndex"]
        if index is not None and (exhausted or failure.action == "FailIndex"):
            failed.add(index)
    tally.failed_indexes = failed
    settled = failed | tally.completed | {index_of(pod) for pod in tally.active}
    for pod in tally.pods:
        index = index_of(pod)
        if index is not None and index not in settled and is_tracked(pod) and is_failed(job, pod):
            other = tally.delayed_deletions.get(index)
            if other is None or failures_of(other) < failures_of(pod):
                tally.delayed_deletions[index] = pod


def find_outcome(tally: Tally, now: float) -> JobOutcome | None:
    """Return the outcome if it is certain, else None. Completion by count is not considered, see `is_complete`."""
    job, spec = tally.job, tally.job["spec"]
    met = condition(job, "SuccessCriteriaMet")
    if met is not None:
        return _succeeded(met["reason"], met["message"])
    failing = condition(job, "FailureTarget")
    if failing is not None:
        return _failed(failing["reason"], failing["message"])
    for pod in tally.new_failures:
        failure = match_failure_policy(job, pod)
        if failure.action == "FailJob":
            return _failed("PodFailurePolicy", failure.message)
    if tally.failed > spec["backoffLimit"]:
        return _failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = deadline_of(job)
    if deadline is not None and now >= deadline:
        return _failed("DeadlineExceeded", "Job was active longer than specified deadline")
    return _outcome_by_index(tally) if tally.indexed else None


def _outcome_by_index(tally: Tally) -> JobOutcome | None:
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
    """Return when activeDeadlineSeconds ends (s since the epoch); None if suspended, not started or without one."""
    started, allowed = job.get("status", {}).get("startTime"), job["spec"].get("activeDeadlineSeconds")
    if started is None or allowed is None or is_suspended(job):
        return None
    return float(parse_rfc3339(started) + allowed)


def is_complete(tally: Tally, active: int) -> bool:
    """Whether as many pods succeeded as `completions` says, without it (a work queue) one, and none is active."""
    completions = tally.job["spec"].get("completions")
    enough = tally.succeeded > 0 if completions is None else tally.succeeded >= completions
    return enough and not active


def wanted_active(tally: Tally) -> int:
    """Return the number of pods that should be active."""
    spec = tally.job["spec"]
    if is_suspended(tally.job):
        return 0
    if spec.get("completions") is None:
        return len(tally.active) if tally.succeeded else int(spec["parallelism"])
    remaining = int(spec["completions"]) - tally.succeeded - len(tally.failed_indexes or ())
    return max(0, min(int(spec["parallelism"]), remaining))


def backoff_state(tally: Tally, before: tuple[int, float]) -> tuple[int, float]:
    """Return (failures since the last success, time of the last one) after newly ended pods; `before`: the previous."""
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
    """Set a condition in a status that the caller owns; False: its value was the same before."""
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
    """Set counters in a status that the caller owns; zeros are omitted, but for `ready` and `terminating`."""
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


def count_ended(tally: Tally, status: Object, end: JobOutcome | None) -> tuple[Object, list[Object]]:
    """Return the `uncountedTerminatedPods` to write first, and the pods to remove finalizers from after that.

    Ended pods that lost their finalizer before are moved to the totals of `status`.
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
    kept_tracked = [] if end or deleting else [pod["metadata"]["uid"] for pod in tally.delayed_deletions.values()]
    released = []
    for uid, pod in tracked.items():
        succeeded, failed = pod.get("status", {}).get("phase") == "Succeeded", is_failed(job, pod)
        if uid in kept_tracked or not (succeeded or failed or end or deleting):
            continue
        released.append(pod)
        if uid in known or (tally.indexed and index_of(pod) is None):
            continue
        if succeeded and not tally.indexed:
            uncounted.setdefault("succeeded", []).append(uid)
        elif not succeeded and (failed or fails_all) and match_failure_policy(job, pod).counts:
            uncounted.setdefault("failed", []).append(uid)
    return uncounted, released


def parse_indexes(text: str, limit: int) -> set[int]:
    """Return the indexes below `limit` of a text like `0-2,5`; it may be empty."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the canonical text: ranges of three or more indexes have a dash, two consecutive ones a comma."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Treatment of a failed pod. `action` is that of the matching rule, empty if none matches."""

    counts: bool = True
    action: str = ""
    message: str = ""


def match_failure_policy(job: Object, pod: Object) -> Failure:
    """Return the treatment of a failed pod by the first matching rule of podFailurePolicy; without one it counts."""
    rules = job["spec"].get("podFailurePolicy", {}).get("rules") or ()
    for position, rule in enumerate(rules):
        why = _exit_code_match(rule, pod) if rule.get("onExitCodes") else _condition_match(rule, pod)
        if why:
            action: str = rule["action"]
            return Failure(action != "Ignore", action, f"{why} matching {action} rule at index {position}")
    return Failure()


def _exit_code_match(rule: Object, pod: Object) -> str:
    wanted = rule["onExitCodes"]
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        ended = container.get("state", {}).get("terminated")
        if not ended or not ended["exitCode"] or wanted.get("containerName") not in (None, container["name"]):
            continue
        if (ended["exitCode"] in wanted["values"]) == (wanted["operator"] == "In"):
            return f"Container {container['name']} for pod {_key(pod)} failed with exit code {ended['exitCode']}"
    return ""


def _condition_match(rule: Object, pod: Object) -> str:
    for wanted in rule.get("onPodConditions") or ():
        found = condition(pod, wanted["type"])
        if found is not None and found["status"] == wanted.get("status", "True"):
            return f"Pod {_key(pod)} has condition {wanted['type']}"
    return ""


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def met_success_policy(job: Object, succeeded: set[int]) -> str | None:
    """Return the message of the first rule of successPolicy that the succeeded indexes meet, else None."""
    spec = job["spec"]
    for position, rule in enumerate(spec.get("successPolicy", {}).get("rules") or ()):
        matching, needed = succeeded, rule.get("succeededCount")
        if "succeededIndexes" in rule:
            indexes = parse_indexes(rule["succeededIndexes"], spec["completions"])
            matching = succeeded & indexes
            needed = len(indexes) if needed is None else needed
        if len(matching) >= needed:
            return f"Matched rules at index {position}"
    return None
