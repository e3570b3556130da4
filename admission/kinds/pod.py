"""A plain pod: gated by a scheduling gate, one pod set of one pod. What runs is stopped by deleting it.

The API server takes gates away but gives none after the creation, and lets selectors and tolerations of a gated pod
only grow; so nothing is ever given back, and a pod that has lost its gate is told to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from admission.kinds import templates
from admission.kinds.base import GATED_BY, HOLD, MANAGED, SUBMITTED_BY, KindStatus, Object, Outcome, PodCount
from admission.kinds.common import NOTHING
from admission.kinds.grouping import GATE, group_faults
from admission.kinds.patches import additions, pointer, same_generation
from admission.kinds.requests import check_resources
from admission.kinds.unchanged import UnchangedKind
from admission.model.errors import Misconfigured
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_BOUND: Final = (
    "spec.nodeName",
    "a pod in a queue is not bound to a node when it is created: leave it out, and name the node in spec.nodeSelector",
)


@dataclass(frozen=True, slots=True)
class PodKind(UnchangedKind):
    """The adapter for v1 Pod (see `Kind`)."""

    group: ClassVar[str] = ""
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    tells_of_pods: ClassVar[bool] = True
    ends_by_deletion: ClassVar[bool] = True
    watched_label: ClassVar[str] = MANAGED
    pods_label: ClassVar[str] = ""
    plural: ClassVar[str] = "pods"
    kind: ClassVar[str] = "Pod"
    annotations: ClassVar[tuple[str, ...]] = (SUBMITTED_BY, HOLD, GATED_BY)
    manager: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = ((), ())

    def makes(self, group: str, kind: str) -> bool:
        """Nothing."""
        return False

    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """By its gate and its phase: a pod holds quota from when its gate is gone until it has ended, or is gone."""
        status = obj.get("status") or NOTHING
        gated, finished = GATE.is_closed(obj), _outcome(status)
        runs = not gated and finished is None
        return KindStatus(
            suspended=gated,
            active=runs,
            started=False,
            stopped=False,
            counts=(PodCount("main", 1, int(finished is None), int(runs)),),
            finished=finished,
            ready=_is_ready(status),
            ending=deleting,
            pod_priority_class=obj["spec"].get("priorityClassName") or "",
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """One pod set, `main`. Raises Misconfigured, also for all other `faults`."""
        if faults := list(self.metadata_faults(obj)):
            raise Misconfigured("; ".join(map(": ".join, faults)))
        return _pod_sets(orjson.dumps(templates.digest_parts(obj), option=orjson.OPT_SORT_KEYS), context)

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """What is wrong in labels, annotations and resources of a new pod, and whether it is bound already."""
        faults = list(self.metadata_faults(obj))
        try:
            check_resources(obj["spec"], path="spec")
        except Misconfigured as error:
            path, _, message = str(error).partition(": ")
            faults.append((path, message))
        faults += group_faults(obj, self.conventions)
        return [*faults, _BOUND] if obj["spec"].get("nodeName") else faults

    def gate(self, obj: Object) -> list[Object]:
        """The JSON patch that gives a new pod the gate, and the label by which it is watched, where missing."""
        patch = [] if GATE.is_closed(obj) else GATE.close(obj)
        labels = obj["metadata"].get("labels")
        if (labels or NOTHING).get(MANAGED) != "true":
            patch += [] if labels else [{"op": "add", "path": "/metadata/labels", "value": {}}]
            patch.append({"op": "add", "path": pointer("metadata", "labels", MANAGED), "value": "true"})
        return patch

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """What flavors and checks add, and the gate taken away. There is nothing to restore."""
        (assignment,) = admission.pod_sets
        given = [templates.of_flavor(flavors[name]) for name in dict.fromkeys(assignment.flavors.values())]
        asked = [templates.of_check(update) for update in updates if update.name == assignment.name]
        put_in, _ = templates.inject(obj, (*given, *asked), path="")
        return [*same_generation(obj), *_added(obj, put_in), *GATE.open(obj)], {}

    def resume_patch(self, obj: Object) -> list[Object]:
        """The gate taken away, and nothing else."""
        return [*same_generation(obj), *GATE.open(obj)]

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Nothing: a gated pod has none."""
        return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}}

    def templates(self, obj: Object) -> list[Object]:
        """The pod is its own template."""
        return [obj]


def _added(obj: Object, put_in: Object) -> list[Object]:
    """The operations for what `inject` gives; tolerations are appended, so that nobody's are replaced."""
    spec = dict(put_in.get("spec") or NOTHING)
    wanted = spec.pop("tolerations", None)
    patch = list(additions(obj, {**put_in, "spec": spec}, ""))
    present = obj["spec"].get("tolerations")
    if wanted and not present:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": wanted})
    elif wanted:
        new = wanted[len(present) :]
        patch += [{"op": "add", "path": "/spec/tolerations/-", "value": each} for each in new]
    return patch


def _outcome(status: Mapping[str, str]) -> Outcome | None:
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return None
    return Outcome(phase == "Succeeded", *(clean(status.get(field) or "") for field in ("reason", "message")))


def _is_ready(status: Object) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@lru_cache(maxsize=8192)
def _pod_sets(essence: bytes, context: NamespaceContext) -> tuple[PodSet, ...]:
    return (templates.pod_set("main", orjson.loads(essence), context, path="", count=1),)
