"""Validation of Job status updates (ValidateJobUpdateStatus), which applies to all writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, invalid, required
from admission.sandbox.apiserver.metadata import duplicates

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_IS_IMMUTABLE = "field is immutable"
# Pairs of conditions that must not both be True.
_EXCLUSIVE = (("Complete", "Failed"), ("Complete", "FailureTarget"),
              ("SuccessCriteriaMet", "Failed"), ("SuccessCriteriaMet", "FailureTarget"))  # fmt: skip
# Pairs of a terminal condition and the interim condition that must be True as well.
_INTERIM = (("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget"))


def status_causes(new: Object, old: Object) -> list[Cause]:
    """Return the validation errors of a Job's new status."""
    status, before = new.get("status", {}), old.get("status", {})
    true, was_true = _true_conditions(status), _true_conditions(before)
    causes = _count_causes(status, before)
    causes += _uncounted_causes(status, finished=bool(true & {"Complete", "Failed"}))
    causes += _condition_causes(true, was_true)
    causes += _finished_causes(new["spec"], status, true)
    causes += _time_causes(new, old, true)
    return causes + _index_causes(new["spec"], status)


def _true_conditions(status: Object) -> set[str]:
    return {condition["type"] for condition in status.get("conditions", ()) if condition.get("status") == "True"}


def _count_causes(status: Object, before: Object) -> list[Cause]:
    causes = [
        invalid(f"status.{key}", status[key], "must be greater than or equal to 0")
        for key in _COUNTS
        if status.get(key, 0) < 0
    ]
    causes += [
        invalid(f"status.{key}", status.get(key, 0), f"cannot decrease the {key} counter")
        for key in ("succeeded", "failed")
        if status.get(key, 0) < before.get(key, 0)
    ]
    if status.get("ready", 0) > max(status.get("active", 0), 0):
        causes.append(invalid("status.ready", status["ready"], "cannot set more ready pods than active"))
    return causes


def _uncounted_causes(status: Object, *, finished: bool) -> list[Cause]:
    causes: list[Cause] = []
    uncounted = status.get("uncountedTerminatedPods", {})
    for key in ("succeeded", "failed"):
        uids = uncounted.get(key, [])
        field = f"status.uncountedTerminatedPods.{key}"
        causes += [invalid(f"{field}[{index}]", "", "must not be empty") for index, uid in enumerate(uids) if not uid]
        causes += duplicates(uids, field)
    if finished and any(uncounted.values()):
        text = "uncountedTerminatedPods needs to be empty for finished job"
        causes.append(invalid("status.uncountedTerminatedPods", uncounted, text))
    return causes


def _condition_causes(true: set[str], was_true: set[str]) -> list[Cause]:
    texts = [f"cannot set {one}=True and {other}=true conditions" for one, other in _EXCLUSIVE if {one, other} <= true]
    for final, interim in _INTERIM:
        if final in true and interim not in true:
            texts.append(f"cannot set {final}=True condition without the {interim}=true condition")
        if final in was_true and final not in true:
            texts.append(f"cannot disable the terminal {final}=True condition")
        if interim in was_true and interim not in true:
            texts.append(f"cannot disable the {interim}=True condition")
    return [Cause("FieldValueInvalid", "status.conditions", f"Invalid value: {text}") for text in texts]


def _finished_causes(spec: Object, status: Object, true: set[str]) -> list[Cause]:
    if not true & {"Complete", "Failed"}:
        return []
    causes = [
        invalid(f"status.{key}", status[key], f"{key}>0 is invalid for finished job")
        for key in ("active", "terminating")
        if status.get(key, 0) > 0
    ]
    never_started = spec.get("suspend") and spec.get("completions") == 0
    if "startTime" not in status and "Complete" in true and not never_started:
        causes.append(required("status.startTime", "startTime is required for finished job"))
    if "completionTime" not in status and "Complete" in true:
        causes.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    return causes


def _time_causes(new: Object, old: Object, true: set[str]) -> list[Cause]:
    status, before = new.get("status", {}), old.get("status", {})
    causes = []
    start, end = status.get("startTime"), status.get("completionTime")
    if (
        "startTime" in before
        and start != before["startTime"]
        and not new["spec"]["suspend"]
        and not _resumes(status, before)
    ):
        causes.append(invalid("status.startTime", start, "field is immutable for unsuspended job once set"))
    if end is None:
        return causes
    if "Complete" not in true:
        causes.append(
            invalid("status.completionTime", end, "cannot set completionTime when there is no Complete=True condition")
        )
    elif "completionTime" in before and before["completionTime"] != end:
        causes.append(invalid("status.completionTime", end, _IS_IMMUTABLE))
    elif start is not None and end < start:
        causes.append(invalid("status.completionTime", end, "must be equal to or after `startTime`"))
    return causes


def _resumes(status: Object, before: Object) -> bool:
    """Return whether this update changes the condition Suspended from True to False."""
    return "Suspended" in _true_conditions(before) and any(
        condition["type"] == "Suspended" and condition.get("status") == "False"
        for condition in status.get("conditions", ())
    )


def _index_causes(spec: Object, status: Object) -> list[Cause]:
    causes: list[Cause] = []
    found: dict[str, set[int]] = {}
    indexed = spec["completionMode"] == "Indexed"
    if status.get("completedIndexes") and not indexed:
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        causes.append(invalid("status.completedIndexes", status["completedIndexes"], text))
    if "failedIndexes" in status and "backoffLimitPerIndex" not in spec:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        causes.append(invalid("status.failedIndexes", status["failedIndexes"], text))
    if causes or not indexed:
        return causes
    for key in ("completedIndexes", "failedIndexes"):
        text = status.get(key, "")
        try:
            found[key] = parse_indexes(text, spec.get("completions", 0))
        except ValueError as error:
            causes.append(invalid(f"status.{key}", text, f"error parsing {key}: {error}"))
    if not causes and found["completedIndexes"] & found["failedIndexes"]:
        text = status["failedIndexes"]
        causes.append(invalid("status.failedIndexes", text, "failedIndexes and completedIndexes overlap"))
    return causes


def parse_indexes(text: str, completions: int) -> set[int]:
    """Parse completion indexes such as `0,2-4`. Raises ValueError if malformed, not increasing or too large."""
    found: set[int] = set()
    last = -1
    for part in text.split(",") if text else ():
        first, dash, end = part.partition("-")
        bounds = [first, end] if dash else [first]
        for bound in bounds:
            if not bound.isdigit():
                raise ValueError(f'cannot convert string to integer for index: "{bound}"')
            if int(bound) >= completions:
                raise ValueError(f'too large index: "{bound}"')
            if int(bound) <= last:
                raise ValueError(f"non-increasing order, previous: {last}, current: {bound}")
            last = int(bound)
        found.update(range(int(first), last + 1))
    return found
