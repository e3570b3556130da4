"""batch/v1 Job, also where a CronJob creates it: gated by `spec.suspend`, one pod template, one pod set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from admission.kinds import templates
from admission.kinds.base import GATED_BY, HOLD, KUEUE, POD_OWNER, SUBMITTED_BY, KindStatus, Object, Outcome, PodCount
from admission.kinds.common import NOTHING, CommonKind, first, lock, quote
from admission.kinds.gates import SuspendField
from admission.kinds.patches import additions, merged, same_generation
from admission.kinds.requests import check_resources
from admission.model.errors import Misconfigured
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_CONTROLLER = "kubernetes.io/job-controller"
MIN_PARALLELISM = (f"{KUEUE}job-min-parallelism", "sluice.dev/job-min-parallelism")
"""The annotations that name the fewest pods a Job may run with."""
_COMPLETIONS_FOLLOW = (f"{KUEUE}job-completions-equal-parallelism", "sluice.dev/job-completions-equal-parallelism")
_TEMPLATE = "spec.template"
_GIVEN = "given"
"""In an `original`: the merge patch of the spec that a start puts in."""
_COUNTS = ("parallelism", "completions")
_REPLACEMENT = "podReplacementPolicy"
_ENDING = {"suspend": False, "activeDeadlineSeconds": 1}
"""In the spec of a Job that is being deleted, but kept by a finalizer: all that its controller still obeys."""
_GATE = SuspendField(("spec", "suspend"))
_CHILDREN = "sluice.dev/child-podsets"
_CHILDREN_TEXT = (
    f"the annotation {_CHILDREN} is not read: quota is reserved for the pods of this Job alone; declare those of "
    "others in its template by sluice.dev/pod-group-pod-sets"
)


@dataclass(frozen=True, slots=True)
class JobKind(CommonKind):
    """The adapter for batch/v1 Job (see `Kind`)."""

    group: ClassVar[str] = "batch"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    pods_label: ClassVar[str] = POD_OWNER
    plural: ClassVar[str] = "jobs"
    kind: ClassVar[str] = "Job"
    annotations: ClassVar[tuple[str, ...]] = (SUBMITTED_BY, HOLD, GATED_BY, *MIN_PARALLELISM, *_COMPLETIONS_FOLLOW)

    booleans: ClassVar[tuple[str, ...]] = _COMPLETIONS_FOLLOW
    tells_of_pods: ClassVar[bool] = True
    ends_by_deletion: ClassVar[bool] = False
    watched_label: ClassVar[str] = ""
    manager: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("spec", "managedBy"), (_CONTROLLER,))

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """As for any kind, by `manager`; asked of each Job at each change, it goes there directly."""
        return obj["spec"].get("managedBy") not in (None, "", _CONTROLLER)

    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """By its conditions, start time and counts of pods."""
        spec, status = obj["spec"], obj.get("status") or NOTHING
        suspended = spec.get("suspend") is True
        started = status.get("startTime") is not None
        finished, stopped = _conditions(status)
        # Between an unsuspension and a suspension soon after, the Job controller may not have counted its pods yet:
        # they are gone for certain only once it says by its condition that it has seen the suspension.
        # It makes none for a Job that is being deleted.
        may_start = finished is None and not deleting and (not suspended or (started and not stopped))
        active, terminating, wanted = status.get("active") or 0, status.get("terminating") or 0, _count(spec)
        return KindStatus(
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
        """One pod set, `main`, of the pods that are still needed. Raises Misconfigured, also for all other `faults`."""
        essence = _essence(obj)
        if faults := [*self.metadata_faults(obj), *_follow_faults(obj)]:
            raise Misconfigured("; ".join(map(": ".join, faults)))
        return _pod_sets(essence, context)

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """What is wrong in labels, annotations and resources."""
        faults = [*self.metadata_faults(obj), *_follow_faults(obj)]
        try:
            _min_count(obj["metadata"].get("annotations") or NOTHING, obj["spec"])
            check_resources(obj["spec"]["template"].get("spec") or {}, path=f"{_TEMPLATE}.spec")
        except Misconfigured as error:
            path, _, message = str(error).partition(": ")
            faults.append((path, message))
        return faults

    def remarks(self, obj: Object) -> list[str]:
        """Of an annotation by which somebody thinks to reserve quota."""
        return [_CHILDREN_TEXT] if _CHILDREN in (obj["metadata"].get("annotations") or NOTHING) else []

    def gate(self, obj: Object) -> list[Object]:
        """The JSON patch that suspends the Job; empty if it is suspended."""
        return [] if _GATE.is_closed(obj) else _GATE.close(obj)

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """The numbers as they were, where they would give more pods; a Job without pods is suspended instead."""
        had, wants = _count(old["spec"]), _count(new["spec"])
        if wants > had == 0:
            return self.gate(new), "a running Job without pods is suspended, and queues before it gets some"
        patch = [_set_back(new["spec"], old["spec"], field) for field in _COUNTS if wants > had]
        warning = f"a running Job gets no more pods than {had}; suspend it in the same request to ask for more"
        if old["spec"].get(_REPLACEMENT) == "Failed" != new["spec"].get(_REPLACEMENT):
            patch.append(_set_back(new["spec"], old["spec"], _REPLACEMENT))
            warning = (
                warning if wants > had else f"{_REPLACEMENT} of a running Job stays Failed, as its start has set it"
            )
        return [*filter(None, patch)], warning

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """What flavors and checks add to the template, the admitted parallelism, and `suspend: false`."""
        (assignment,) = admission.pod_sets
        needed = _needed(obj)
        given = [templates.of_flavor(flavors[name]) for name in dict.fromkeys(assignment.flavors.values())]
        asked = [templates.of_check(update) for update in updates if update.name == assignment.name]
        if obj["spec"].get("manualSelector"):  # else the API server has put the label there
            asked.append(templates.Addition("Sluice", {}, (), {POD_OWNER: obj["metadata"]["uid"]}))
        template, original = templates.inject(obj["spec"]["template"], (*given, *asked), path=_TEMPLATE)
        spec: Object = {"template": template, "suspend": False}
        if obj["spec"].get(_REPLACEMENT) == "TerminatingOrFailed":
            # That makes new pods beside those that still end: more than was admitted.
            spec[_REPLACEMENT], original[_REPLACEMENT] = "Failed", "TerminatingOrFailed"
        if assignment.count < needed:
            spec["parallelism"] = assignment.count
            original["parallelism"] = obj["spec"].get("parallelism", 1)
            if _completions_follow(obj):
                spec["completions"] = assignment.count
                original["completions"] = obj["spec"].get("completions")
        if put_in := {field: value for field, value in spec.items() if field != "suspend" and value}:
            original[_GIVEN] = put_in
        return [*same_generation(obj), *additions(obj["spec"], spec, "/spec")], original

    def carries(self, obj: Object, original: Object) -> bool:
        """Whether all of it is in the spec."""
        spec, given = obj["spec"], original.get(_GIVEN)
        return given is not None and merged(spec, given) == spec

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether all but the numbers of pods is in the spec."""
        given = {field: value for field, value in original.get(_GIVEN, NOTHING).items() if field not in _COUNTS}
        return bool(merged(obj["spec"], given) == obj["spec"])

    def resume_patch(self, obj: Object) -> list[Object]:
        """`suspend: false` alone."""
        return [*same_generation(obj), *_GATE.open(obj)]

    def stop_patch(self, obj: Object) -> list[Object]:
        """`suspend: true`; of what is being deleted, a deadline, which ends its pods."""
        if "deletionTimestamp" in obj["metadata"]:
            return [*same_generation(obj), *additions(obj["spec"], _ENDING, "/spec")]
        return [*same_generation(obj), *_GATE.close(obj)]

    def clear_start_time_patch(self, obj: Object) -> Object:
        """No start time; the Job controller of 1.36 does the same by itself."""
        return {"metadata": lock(obj), "status": {"startTime": None}}

    def restore_patch(self, obj: Object, original: Object) -> Object | None:
        """The template and the numbers as they were, but for what somebody has changed since."""
        given = original.get(_GIVEN, NOTHING)
        spec: Object = {
            field: original[field]
            for field in (*_COUNTS, _REPLACEMENT)
            if field in given and obj["spec"].get(field) == given[field]
        }
        if "completions" in spec:  # which the API server takes with a parallelism that is equal, and not otherwise
            spec["parallelism"] = spec["completions"]
        if template := templates.restore(obj["spec"]["template"], original, given.get("template", NOTHING)):
            spec["template"] = template
        return {"metadata": lock(obj), "spec": spec} if spec else None

    def restored(self, obj: Object, original: Object) -> Object:
        """The Job without what its start put in."""
        patch = self.restore_patch(obj, original)
        return obj if patch is None else merged(obj, patch)

    def templates(self, obj: Object) -> list[Object]:
        """The only one."""
        return [obj["spec"]["template"]]


def _set_back(new: Mapping[str, Any], old: Mapping[str, Any], field: str) -> Object | None:
    """The operation that gives a field of a spec its former value; None if it has that."""
    if new.get(field) == old.get(field):
        return None
    path = f"/spec/{field}"
    return {"op": "add", "path": path, "value": old[field]} if field in old else {"op": "remove", "path": path}


def _conditions(status: Mapping[str, Any]) -> tuple[Outcome | None, bool]:
    """How the Job ended, if it did, and whether its controller has seen that it is suspended."""
    finished, stopped = None, False
    for condition in status.get("conditions") or ():
        if condition["status"] == "True":
            if (what := condition["type"]) == "Suspended":
                stopped = True
            elif what in {"Complete", "Failed"}:
                said = (clean(condition.get(field) or "") for field in ("reason", "message"))
                finished = Outcome(what == "Complete", *said)
    return finished, stopped


def _count(spec: Mapping[str, Any]) -> int:
    """min(parallelism, completions): a Job never runs more pods than it has completions to reach."""
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    return parallelism if completions is None else min(parallelism, completions)


def _left(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """How many pods have still to succeed. Of an Indexed Job, an index that has failed for good is over, too."""
    completions: int | None = spec.get("completions")
    if completions is None:  # the pods decide among themselves when the work is done; once one ends, none is started
        completions = spec.get("parallelism", 1)
    over: int = status.get("succeeded") or 0
    if spec.get("completionMode") == "Indexed" and (status.get("completedIndexes") or status.get("failedIndexes")):
        over = sum(_indexes(status.get(field) or "") for field in ("completedIndexes", "failedIndexes"))
    return max(completions - over, 0)


def _indexes(text: str) -> int:
    """How many there are in a list such as `1,3-5,7`."""
    total = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _needed(obj: Object) -> int:
    """How many pods can still run at a time."""
    return min(_count(obj["spec"]), _left(obj["spec"], obj.get("status") or NOTHING))


def _ready(status: Mapping[str, Any], pods: int) -> bool:
    ended = (status.get("uncountedTerminatedPods") or NOTHING).get("succeeded") or ()
    return (status.get("ready") or 0) + (status.get("succeeded") or 0) + len(ended) >= pods


def _min_count(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> int | None:
    """The smallest parallelism that may be admitted; None unless it is asked for and less than the whole."""
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


def _follow_faults(obj: Object) -> list[tuple[str, str]]:
    """As in Kueue: the API server takes other completions of a Job only if they equal its parallelism."""
    annotations, spec = obj["metadata"].get("annotations") or NOTHING, obj["spec"]
    may_be_few = any(key in annotations for key in MIN_PARALLELISM)
    if not may_be_few or not _completions_follow(obj) or spec.get("completions") == spec.get("parallelism", 1):
        return []
    annotation = next(key for key in _COMPLETIONS_FOLLOW if annotations.get(key))
    return [("spec.completions", f"must equal spec.parallelism, as {annotation} says: give both the same number")]


def _essence(obj: Object) -> bytes:
    """All that the pod sets depend on, as a Job in canonical JSON: they are computed from it and from nothing else."""
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
