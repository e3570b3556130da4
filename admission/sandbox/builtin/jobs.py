"""Strategy for Jobs: defaulting, generated labels and selector, validation of creates, updates and status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, invalid, required, unsupported
from admission.sandbox.apiserver.metadata import (
    annotation_causes,
    duplicates,
    label_causes,
    label_fault,
    subdomain_fault,
)
from admission.sandbox.apiserver.selectors import matches_label_selector
from admission.sandbox.apiserver.strategy import Strategy
from admission.sandbox.builtin.podspec import default_pod_spec, pod_spec_causes

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

MAX_INT32 = 2**31 - 1
MAX_INDEXED = 100_000
_UID_LABEL, _NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_UID_LABEL, _OLD_NAME_LABEL = "controller-uid", "job-name"
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
           "backoffLimitPerIndex", "maxFailedIndexes")  # fmt: skip
_IMMUTABLE = ("completionMode", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "managedBy", "selector")
_DOTS_TEXT = (
    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
    "a DNS label is recommended: [must not contain dots]"
)
_NOT_NEGATIVE = "must be greater than or equal to 0"
_IS_IMMUTABLE = "field is immutable"


class Jobs(Strategy):
    """Strategy for batch/v1 Job."""

    default_propagation = "Orphan"

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        default_job_spec(spec)
        labels = spec["template"]["metadata"].get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"] = {**obj["metadata"], "labels": dict(labels)}

    def decorate(self, obj: Object) -> Object:
        """Return a Job without labels with those of its template at its creation, which are not stored."""
        if obj["metadata"].get("labels"):
            return obj
        labels = obj["spec"]["template"]["metadata"].get("labels")
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}} if labels else obj

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {}
        metadata, spec = obj["metadata"], obj["spec"]
        if spec["manualSelector"]:
            return
        name, uid = metadata.get("name", ""), metadata["uid"]
        template = spec["template"]
        generated = {_UID_LABEL: uid, _NAME_LABEL: name, _OLD_UID_LABEL: uid, _OLD_NAME_LABEL: name}
        new_metadata = {**template["metadata"], "labels": {**template["metadata"].get("labels", {}), **generated}}
        selector = spec.get("selector", {})
        wanted = {**selector, "matchLabels": {**selector.get("matchLabels", {}), _UID_LABEL: uid}}
        obj["spec"] = {**spec, "selector": wanted, "template": {**template, "metadata": new_metadata}}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        metadata, spec = obj["metadata"], obj["spec"]
        causes = job_spec_causes(spec)
        causes += template_causes(spec["template"], "spec.template")
        causes += _generated_causes(obj)
        if spec["completionMode"] == "Indexed" and spec.get("completions", 0) > 0:
            name = metadata.get("name", "")
            pod = f"{name}-{spec['completions'] - 1}"
            if not subdomain_fault(name) and label_fault(pod):
                text = f"will not able to create pod with invalid DNS label: {pod}"
                causes.append(invalid("metadata.name", name, text))
        return causes

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        spec, before = new["spec"], old["spec"]
        if new["metadata"]["uid"] != old["metadata"]["uid"]:
            return _generated_causes(new)
        if spec is before or spec == before:
            return []
        # On an update Kubernetes runs the validation of a create twice and reports each error twice.
        causes = job_spec_causes(spec) * 2
        if "deletionTimestamp" not in old["metadata"]:
            causes += _generated_causes(new)
        causes += _count_change_causes(spec, before)
        for key in _IMMUTABLE:
            if spec.get(key) != before.get(key):
                causes.append(invalid(f"spec.{key}", spec.get(key), _IS_IMMUTABLE))
        return causes + _template_change_causes(new, old, found=causes, before_1_36=registry.before_1_36)

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        if new.get("status") is old.get("status"):
            return []
        return status_causes(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        if old is None and "." in new["metadata"]["name"]:
            return [_DOTS_TEXT]
        return []


def default_job_spec(spec: Object) -> None:
    """Set the defaults of a Job's spec (SetDefaults_Job)."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            pattern.setdefault("status", "True")
    default_pod_spec(spec["template"]["spec"])


def job_spec_causes(spec: Object) -> list[Cause]:
    """Return the validation errors of a Job's spec, except for its template."""
    causes = [invalid(f"spec.{key}", spec[key], _NOT_NEGATIVE) for key in _COUNTS if spec.get(key, 0) < 0]
    mode = spec["completionMode"]
    if mode not in ("NonIndexed", "Indexed"):
        causes.append(unsupported("spec.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        causes += _indexed_causes(spec)
    else:
        if "successPolicy" in spec:
            causes.append(invalid("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode"))
        if "backoffLimitPerIndex" in spec:
            text = "requires indexed completion mode"
            causes.append(invalid("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], text))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        causes.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    manager = spec.get("managedBy")
    if manager is not None and ("/" not in manager or subdomain_fault(manager.partition("/")[0]) or len(manager) > 63):
        causes.append(invalid("spec.managedBy", manager, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    causes += _policy_causes(spec)
    labels = spec["template"]["metadata"].get("labels") or {}
    if "selector" not in spec:
        causes.append(required("spec.selector"))
    if "selector" not in spec or not matches_label_selector(spec["selector"], labels):
        causes.append(
            invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`")
        )
    return causes


def _indexed_causes(spec: Object) -> list[Cause]:
    causes = []
    if "completions" not in spec:
        causes.append(required("spec.completions", "when completion mode is Indexed"))
    if spec["parallelism"] > MAX_INDEXED:
        text = f"must be less than or equal to {MAX_INDEXED} when completion mode is Indexed"
        causes.append(invalid("spec.parallelism", spec["parallelism"], text))
    return causes


def _policy_causes(spec: Object) -> list[Cause]:
    causes = []
    replacement = spec["podReplacementPolicy"]
    allowed = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    if replacement not in allowed:
        causes.append(unsupported("spec.podReplacementPolicy", replacement, allowed))
    for index, rule in enumerate(spec.get("podFailurePolicy", {}).get("rules", ())):
        field = f"spec.podFailurePolicy.rules[{index}]"
        actions = ("Count", "FailIndex", "FailJob", "Ignore")
        if rule.get("action") not in actions:
            causes.append(unsupported(f"{field}.action", rule.get("action", ""), actions))
        if ("onExitCodes" in rule) == ("onPodConditions" in rule):
            text = "specifying one of OnExitCodes and OnPodConditions is required, but not both"
            causes.append(invalid(field, rule.get("action", ""), text))
    return causes


def template_causes(template: Object, field: str) -> list[Cause]:
    """Return the validation errors of a Job's pod template."""
    metadata, spec = template["metadata"], template["spec"]
    causes = label_causes(metadata.get("labels", {}), f"{field}.labels")
    causes += annotation_causes(metadata.get("annotations", {}), f"{field}.annotations")
    policy = spec["restartPolicy"]
    causes += pod_spec_causes(spec, f"{field}.spec")
    if policy == "Always":
        causes.append(required(f"{field}.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return causes


def _generated_causes(obj: Object) -> list[Cause]:
    """Check that the generated selector and labels are present and unchanged."""
    spec, metadata = obj["spec"], obj["metadata"]
    causes: list[Cause] = []
    restart = spec["template"]["spec"]["restartPolicy"]
    if "podFailurePolicy" in spec and restart == "OnFailure":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(invalid("spec.template.spec.restartPolicy", restart, text))
    if spec["manualSelector"] or "selector" not in spec:
        return causes
    labels = spec["template"]["metadata"].get("labels") or {}
    uid, name = metadata["uid"], metadata.get("name", "")
    for key, value in ((_UID_LABEL, uid), (_NAME_LABEL, name), (_OLD_UID_LABEL, uid), (_OLD_NAME_LABEL, name)):
        field = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            causes.append(required(field, f"must be '{value}'"))
        elif labels[key] != value:
            causes.append(invalid(field, labels, f"must be '{value}'"))
    if spec.get("selector") != {"matchLabels": {_UID_LABEL: uid}}:
        causes.append(invalid("spec.selector", spec.get("selector"), "`selector` not auto-generated"))
    return causes


def _count_change_causes(new: Object, old: Object) -> list[Cause]:
    """Check a change of completions: allowed for Indexed Jobs only, together with parallelism and equal to it."""
    if new.get("completions") == old.get("completions"):
        return []
    if new["completionMode"] != "Indexed":
        return [invalid("spec.completions", new.get("completions"), _IS_IMMUTABLE)]
    if new.get("completions") != new["parallelism"]:
        return [
            invalid("spec.completions", new.get("completions"), "can only be modified in tandem with spec.parallelism")
        ]
    return []


def _template_change_causes(new: Object, old: Object, found: list[Cause], *, before_1_36: bool) -> list[Cause]:
    """Check a change of the template: scheduling fields are mutable while the Job is suspended and has no active pods.

    `found` are the errors found so far; `before_1_36` is the older rule, see Registry.
    """
    template, before = new["spec"]["template"], old["spec"]["template"]
    if template is before or template == before:
        return []
    if any(cause.field.startswith("spec.template.metadata.labels[") for cause in found):
        return []
    if not _is_template_mutable(old, before_1_36=before_1_36):
        return [invalid("spec.template", template, _IS_IMMUTABLE)]
    if _immutable_part(template["spec"]) != _immutable_part(before["spec"]):
        return [invalid("spec.template.spec", template["spec"], _IS_IMMUTABLE)]
    return template_causes(template, "spec.template")


def _is_template_mutable(old: Object, *, before_1_36: bool) -> bool:
    status = old.get("status", {})
    if before_1_36:
        return bool(old["spec"]["suspend"]) and "startTime" not in status
    if not old["spec"]["suspend"] or status.get("active", 0):
        return False
    return "startTime" not in status or any(
        condition["type"] == "Suspended" and condition["status"] == "True" for condition in status.get("conditions", ())
    )


def _immutable_part(spec: Object) -> Object:
    """Return a pod spec without the fields that are mutable while a Job is suspended."""
    fixed = {key: value for key, value in spec.items() if key not in ("nodeSelector", "tolerations", "schedulingGates")}
    affinity = {key: value for key, value in fixed.pop("affinity", {}).items() if key != "nodeAffinity"}
    if affinity:
        fixed["affinity"] = affinity
    for key in ("containers", "initContainers"):
        if key in fixed:
            fixed[key] = [{**container, "resources": {}} for container in fixed[key]]
    return fixed


_STATUS_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
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
        for key in _STATUS_COUNTS
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
