"""Adapter for batch/v1 Job, including Jobs of CronJobs: `spec.suspend`, one pod template, one pod set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from admission.kinds import templates, topology
from admission.kinds.abilities import Ownership, Scaling, Suspension
from admission.kinds.base import (
    ANNOTATIONS,
    DISPATCHED,
    KUEUE,
    POD,
    POD_OWNER,
    WORKLOAD_UID,
    Kind,
    Object,
    Outcome,
    PodCount,
)
from admission.kinds.children import find_pod_set
from admission.kinds.common import NOTHING, first, lock, quote
from admission.kinds.gates import SuspendField
from admission.kinds.patches import additions, merged, same_generation
from admission.kinds.requests import check_resources
from admission.model.errors import Misconfigured
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Observed
    from admission.kinds.children import Belonging
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_CONTROLLER = "kubernetes.io/job-controller"
_MANAGERS = frozenset({None, "", _CONTROLLER, *DISPATCHED})
MIN_PARALLELISM = (f"{KUEUE}job-min-parallelism", "sluice.dev/job-min-parallelism")
"""Annotations with the minimum number of pods that a Job may start with (partial admission)."""
_COMPLETIONS_FOLLOW = (f"{KUEUE}job-completions-equal-parallelism", "sluice.dev/job-completions-equal-parallelism")
_TEMPLATE = "spec.template"
_GIVEN = "given"
"""Key in an `original`: the merge patch of the spec that a start injects."""
_COUNTS = ("parallelism", "completions")
_REPLACEMENT = "podReplacementPolicy"
_BESIDE_TERMINATING = "TerminatingOrFailed"
"""The default: replacements are created beside terminating pods, which are more pods than were admitted."""
_ENDING = {"suspend": False, "activeDeadlineSeconds": 1}
"""Spec fields that end the pods of a Job that is being deleted, but kept by a finalizer.

Its controller obeys nothing else then: it ignores a suspension.
"""
_GENERATED = frozenset(
    f"{prefix}{name}" for name in ("controller-uid", "job-name") for prefix in ("", "batch.kubernetes.io/")
)
"""Labels that the API server gives the pods of each Job."""
_GATE = SuspendField(("spec", "suspend"))
_CHILDREN = "sluice.dev/child-podsets"
_CHILDREN_TEXT = (
    f"the annotation {_CHILDREN} is ignored: quota is reserved for the pods of this Job alone; declare further pods "
    "in its template by the annotation sluice.dev/pod-group-pod-sets"
)


@dataclass(frozen=True, slots=True)
class JobKind(Suspension, Scaling, Ownership, Kind):
    """Adapter for batch/v1 Job (see `Kind`)."""

    group: ClassVar[str] = "batch"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    pods_label: ClassVar[str] = POD_OWNER
    plural: ClassVar[str] = "jobs"
    kind: ClassVar[str] = "Job"
    annotations: ClassVar[tuple[str, ...]] = (*ANNOTATIONS, *MIN_PARALLELISM, *_COMPLETIONS_FOLLOW)

    booleans: ClassVar[tuple[str, ...]] = _COMPLETIONS_FOLLOW
    min_count_fault: ClassVar[str] = f"a Job has {MIN_PARALLELISM[-1]} instead: give the minimum number of pods there"
    reports_pods: ClassVar[bool] = True
    suspend_fields: ClassVar[tuple[tuple[str, ...], ...]] = (("spec", "suspend"),)
    manager: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("spec", "managedBy"), (_CONTROLLER, *DISPATCHED))

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """As for any kind, by `manager`, but without the generic path: called for each Job at each watch event."""
        return obj["spec"].get("managedBy") not in _MANAGERS

    def observe(self, obj: Object) -> Observed:
        """Return the state by conditions, start time and pod counts."""
        spec, status = obj["spec"], obj.get("status") or NOTHING
        deleting = "deletionTimestamp" in obj["metadata"]
        suspended = spec.get("suspend") is True
        started = status.get("startTime") is not None
        finished, stopped = _conditions(status)
        # If a suspension soon follows an unsuspension, the Job controller may not have counted its pods yet: they are
        # certainly terminated only once its condition confirms the suspension. It creates no pods for a Job that is
        # being deleted.
        may_start = finished is None and not deleting and (not suspended or (started and not stopped))
        active, terminating, wanted = status.get("active") or 0, status.get("terminating") or 0, _count(spec)
        return self._observed(
            obj,
            suspended=suspended,
            active=may_start or active > 0 or terminating > 0,
            started=started,
            stopped=stopped,
            counts=(PodCount("main", wanted, _left(spec, status), active + terminating),),
            finished=finished,
            ready=_ready(status, wanted),
            ending=deleting and _ENDING.items() <= spec.items(),
            pod_priority_class=spec["template"].get("spec", NOTHING).get("priorityClassName") or "",
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return one pod set, `main`, of the pods that are still needed.

        Raises Misconfigured, also for all other `faults`.
        """
        essence = _essence(obj)
        if faults := [*self.metadata_faults(obj), *_own_faults(obj)]:
            raise Misconfigured("; ".join(map(": ".join, faults)))
        return _pod_sets(essence, context)

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return the faults in labels, annotations and resources."""
        faults = [*self.metadata_faults(obj), *_own_faults(obj)]
        try:
            _min_count(obj["metadata"].get("annotations") or NOTHING, obj["spec"])
            check_resources(obj["spec"]["template"].get("spec") or {}, path=f"{_TEMPLATE}.spec")
        except Misconfigured as error:
            path, _, message = str(error).partition(": ")
            faults.append((path, message))
        return faults

    def remarks(self, obj: Object) -> list[str]:
        """Warn of an annotation that Sluice does not read, though it looks as if it reserved quota."""
        return [_CHILDREN_TEXT] if _CHILDREN in (obj["metadata"].get("annotations") or NOTHING) else []

    def gate(self, obj: Object) -> list[Object]:
        """Return the JSON patch that suspends the Job; empty if it is suspended."""
        return [] if _GATE.is_closed(obj) else _GATE.close(obj)

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Set pod counts back where they would give more pods; suspend a Job that had none.

        One that is dispatched runs elsewhere: its copy gets more pods when there is quota for them.
        """
        if old["spec"].get("managedBy") in DISPATCHED:
            return [], ""
        before, after = _count(old["spec"]), _count(new["spec"])
        if after > before == 0:
            return self.gate(new), "a running Job without pods is suspended, and queues before it gets some"
        patch = [_set_back(new["spec"], old["spec"], field) for field in _COUNTS if after > before]
        warning = f"a running Job gets no more pods than {before}; suspend it in the same request to ask for more"
        if old["spec"].get(_REPLACEMENT) == "Failed" != new["spec"].get(_REPLACEMENT):
            patch.append(_set_back(new["spec"], old["spec"], _REPLACEMENT))
            warning = (
                warning if after > before else f"{_REPLACEMENT} of a running Job stays Failed, as its start has set it"
            )
        return [*filter(None, patch)], warning

    @property
    def copies_grow(self) -> bool:
        """Return True: its controller follows parallelism."""
        return True

    def follow_patch(self, copy: Object, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Set parallelism; completions, too, if they are to be equal, as only then they may change."""
        spec, to = copy["spec"], obj["spec"]
        more = _needed({**copy, "spec": to}) if _count(to) > _count(spec) else 0
        if _count(to) == _count(spec) or more > held.get("main", 0):
            return []
        fields = _COUNTS if to.get("completions") == to.get("parallelism", 1) else _COUNTS[:1]
        return [*same_generation(copy), *filter(None, (_set_back(spec, to, field) for field in fields))]

    def confine_patch(self, obj: Object) -> list[Object]:
        """Have only finished pods replaced, before a deleted one is: its replacement comes after 10 s at the earliest.

        Its controller counts a deleted pod as failed, and waits so long after a failure.
        """
        terminating = (obj.get("status") or NOTHING).get("terminating")
        is_due = terminating and obj["spec"].get(_REPLACEMENT) == _BESIDE_TERMINATING
        return [{"op": "replace", "path": f"/spec/{_REPLACEMENT}", "value": "Failed"}] if is_due else []

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return a patch with the additions of flavors and checks, the admitted parallelism, and `suspend: false`."""
        (assignment,) = admission.pod_sets
        needed = _needed(obj)
        injections = templates.of_admission(assignment, flavors, updates, obj["spec"]["template"], path=_TEMPLATE)
        if admission.cluster:  # its pods name the copy, not this Job
            injections.append(templates.Addition("Sluice", {}, (), {WORKLOAD_UID: obj["metadata"]["uid"]}))
        if obj["spec"].get("manualSelector"):  # otherwise the API server has added the label
            injections.append(templates.Addition("Sluice", {}, (), {POD_OWNER: obj["metadata"]["uid"]}))
        template, original = templates.inject(obj["spec"]["template"], injections, path=_TEMPLATE)
        spec: Object = {"template": template, "suspend": False}
        if obj["spec"].get(_REPLACEMENT) == _BESIDE_TERMINATING:
            spec[_REPLACEMENT], original[_REPLACEMENT] = "Failed", _BESIDE_TERMINATING
        if assignment.count < needed:
            spec["parallelism"] = assignment.count
            original["parallelism"] = obj["spec"].get("parallelism", 1)
            if _completions_follow(obj):
                spec["completions"] = assignment.count
                original["completions"] = obj["spec"].get("completions")
        if injected := {field: value for field, value in spec.items() if field != "suspend" and value}:
            original[_GIVEN] = injected
        return [*same_generation(obj), *additions(obj["spec"], spec, "/spec")], original

    def carries_start(self, obj: Object, original: Object) -> bool:
        """Whether the spec has all that was injected."""
        spec, injected = obj["spec"], original.get(_GIVEN)
        return injected is not None and merged(spec, injected) == spec

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether the spec has all that was injected, pod counts excepted."""
        injected = {field: value for field, value in original.get(_GIVEN, NOTHING).items() if field not in _COUNTS}
        return bool(merged(obj["spec"], injected) == obj["spec"])

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return a patch with `suspend: false` only."""
        return [*same_generation(obj), *_GATE.open(obj)]

    def makes(self, group: str, kind: str) -> bool:
        """Whether the given kind is Pod."""
        return (group, kind) == POD

    def part(
        self,
        obj: Object,
        child_kind: Kind,
        child: Object,
        context: NamespaceContext,
        held: Mapping[str, int] = NOTHING,
        *,
        was_part: bool = False,
    ) -> Belonging:
        """Return how a pod belongs to the Job, by the pod's requests."""
        return find_pod_set(self.pod_sets, obj, child_kind, child, context)

    def stop_patch(self, obj: Object) -> list[Object]:
        """Return a patch with `suspend: true`; for a Job that is being deleted, with a deadline that ends its pods."""
        if "deletionTimestamp" in obj["metadata"]:
            return [*same_generation(obj), *additions(obj["spec"], _ENDING, "/spec")]
        return [*same_generation(obj), *_GATE.close(obj)]

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Return a patch that clears the start time; the Job controller of 1.36 does this itself."""
        return {"metadata": lock(obj), "status": {"startTime": None}}

    def restore_patch(self, obj: Object, original: Object) -> Object | None:
        """Return a patch that restores template and pod counts, except fields that were changed since the start."""
        injected = original.get(_GIVEN, NOTHING)
        spec: Object = {
            field: original[field]
            for field in (*_COUNTS, _REPLACEMENT)
            if field in injected and obj["spec"].get(field) == injected[field]
        }
        if "completions" in spec:  # the API server accepts completions only if parallelism is equal
            spec["parallelism"] = spec["completions"]
        if template := templates.restore(obj["spec"]["template"], original, injected.get("template", NOTHING)):
            spec["template"] = template
        # A patch that changes nothing would be sent forever, and the quota of an evicted Job never released.
        return {"metadata": lock(obj), "spec": spec} if merged(obj["spec"], spec) != obj["spec"] else None

    def restored(self, obj: Object, original: Object) -> Object:
        """Return the Job without what its start injected."""
        patch = self.restore_patch(obj, original)
        return obj if patch is None else merged(obj, patch)

    def templates(self, obj: Object) -> list[Object]:
        """Return its only template."""
        return [obj["spec"]["template"]]

    def may_stay_gated(self, obj: Object) -> bool:
        """Return True."""
        return True

    def copied_spec(self, spec: Object) -> Object:
        """Return it without the selector, and without the labels of its pods, which are those of one uid."""
        if spec.get("manualSelector"):
            return spec
        template = spec["template"]
        metadata = template.get("metadata") or {}
        labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name not in _GENERATED}
        rest = {field: value for field, value in spec.items() if field != "selector"}
        return {**rest, "template": {**template, "metadata": {**metadata, "labels": labels}}}

    def copied_status(self, status: Mapping[str, Any], copy: Mapping[str, Any] | None) -> Object:
        """Return one that the API server accepts, whatever an earlier copy has left in `status`."""
        wanted: Object = {"conditions": [_suspended(status)]} if copy is None else dict(copy)
        for name in ("succeeded", "failed"):  # no lower numbers than before
            if most := max(wanted.get(name) or 0, status.get(name) or 0):
                wanted[name] = most
        conditions = wanted.get("conditions") or ()
        if not any(each.get("type") in _TERMINAL and each.get("status") == "True" for each in conditions):
            # What announces an end cannot be taken back, and another copy may end otherwise.
            kept = [each for each in conditions if each.get("type") not in _ANNOUNCING]
            if len(kept) < len(conditions):
                wanted["conditions"] = kept
        if copy is not None and (started := status.get("startTime")):
            # Another start time is refused unless it is suspended, and an end before it, by another cluster's clock.
            wanted["startTime"] = started
            if (ended := wanted.get("completionTime")) and ended < started:
                wanted["completionTime"] = started
        return wanted


_TERMINAL = ("Complete", "Failed")
_ANNOUNCING = ("SuccessCriteriaMet", "FailureTarget")
"""Conditions of a Job whose pods are ending before it is over."""


def _set_back(new: Mapping[str, Any], old: Mapping[str, Any], field: str) -> Object | None:
    """Return the operation that gives a field of a spec its former value; None if it has that value."""
    if new.get(field) == old.get(field):
        return None
    path = f"/spec/{field}"
    return {"op": "add", "path": path, "value": old[field]} if field in old else {"op": "remove", "path": path}


def _conditions(status: Mapping[str, Any]) -> tuple[Outcome | None, bool]:
    """Return the Job's outcome, if it is finished, and whether its controller confirms a suspension."""
    finished, stopped = None, False
    for condition in status.get("conditions") or ():
        if condition["status"] == "True":
            if (type_ := condition["type"]) == "Suspended":
                stopped = True
            elif type_ in {"Complete", "Failed"}:
                texts = (clean(condition.get(field) or "") for field in ("reason", "message"))
                finished = Outcome(type_ == "Complete", *texts)
    return finished, stopped


def _suspended(status: Mapping[str, Any]) -> Object:
    """Return the condition of a suspended Job."""
    conditions = status.get("conditions") or ()
    known: Mapping[str, Any] = next((each for each in conditions if each.get("type") == "Suspended"), {})
    return {**known, "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}


def _count(spec: Mapping[str, Any]) -> int:
    """Return min(parallelism, completions): a Job never runs more pods than it has completions to reach."""
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    return parallelism if completions is None else min(parallelism, completions)


def _left(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """Return how many pods have still to succeed.

    An index of an Indexed Job that has failed for good does not count.
    """
    completions: int | None = spec.get("completions")
    if completions is None:  # a work queue: pods decide when it is done; once one succeeds, none is started
        completions = spec.get("parallelism", 1)
    finished: int = status.get("succeeded") or 0
    if spec.get("completionMode") == "Indexed" and (status.get("completedIndexes") or status.get("failedIndexes")):
        finished = sum(_indexes(status.get(field) or "") for field in ("completedIndexes", "failedIndexes"))
    return max(completions - finished, 0)


def _indexes(text: str) -> int:
    """Return how many indexes a list such as `1,3-5,7` has."""
    total = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _needed(obj: Object) -> int:
    """Return how many pods can still run at a time."""
    return min(_count(obj["spec"]), _left(obj["spec"], obj.get("status") or NOTHING))


def _ready(status: Mapping[str, Any], pods: int) -> bool:
    uncounted = (status.get("uncountedTerminatedPods") or NOTHING).get("succeeded") or ()
    return (status.get("ready") or 0) + (status.get("succeeded") or 0) + len(uncounted) >= pods


def _min_count(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> int | None:
    """Return the minimum parallelism that may be admitted; None unless requested and less than the whole."""
    for key in MIN_PARALLELISM:
        if (text := annotations.get(key)) is not None:
            count = _count(spec)
            if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= max(count, 1)):
                raise Misconfigured(
                    f"metadata.annotations[{key}]: must be an integer from 1 to the parallelism of {count}, "
                    f'not "{quote(text)}"'
                )
            return int(text) if int(text) < count else None
    return None


def _completions_follow(obj: Object) -> bool:
    """Whether a start with fewer pods lowers the completions, too."""
    is_asked = first(obj["metadata"].get("annotations"), _COMPLETIONS_FOLLOW) == "true"
    return is_asked and obj["spec"].get("completionMode") == "Indexed"


def _own_faults(obj: Object) -> list[tuple[str, str]]:
    spec = obj["spec"]
    return [*_follow_faults(obj), *topology.faults([(spec["template"], _TEMPLATE, _count(spec))])]


def _follow_faults(obj: Object) -> list[tuple[str, str]]:
    """Return a fault if completions cannot follow parallelism.

    As in Kueue: the API server accepts a change of a Job's completions only if they equal its parallelism.
    """
    annotations, spec = obj["metadata"].get("annotations") or NOTHING, obj["spec"]
    is_partial = any(key in annotations for key in MIN_PARALLELISM)
    if not is_partial or not _completions_follow(obj) or spec.get("completions") == spec.get("parallelism", 1):
        return []
    annotation = next(key for key in _COMPLETIONS_FOLLOW if annotations.get(key))
    return [("spec.completions", f"must equal spec.parallelism, as {annotation} says: give both the same number")]


def _essence(obj: Object) -> bytes:
    """Return the cache key of the pod sets: canonical JSON of all that they depend on, from which they are computed."""
    annotations = obj["metadata"].get("annotations") or NOTHING
    spec = obj["spec"]
    essence = {
        "annotations": {key: annotations[key] for key in MIN_PARALLELISM if key in annotations},
        "parallelism": spec.get("parallelism", 1),
        "completions": spec.get("completions"),
        "needed": _needed(obj),
        "template": templates.digest_parts(spec["template"]),
    }
    return orjson.dumps(essence, option=orjson.OPT_SORT_KEYS)


@lru_cache(maxsize=8192)
def _pod_sets(essence: bytes, context: NamespaceContext) -> tuple[PodSet, ...]:
    spec = orjson.loads(essence)
    min_count = _min_count(spec["annotations"], spec)
    template, count = spec["template"], spec["needed"]
    if min_count is not None and min_count >= count:
        min_count = None
    return (templates.pod_set("main", template, context, path=_TEMPLATE, count=count, min_count=min_count),)
