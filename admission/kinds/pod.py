"""Adapter for a plain v1 Pod: gated by a scheduling gate, one pod set of one pod, evicted by deletion.

The API server lets scheduling gates be removed but not added after creation, and lets node selectors and tolerations of
a gated pod only grow. So nothing is ever restored, and a pod without its gate can only be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import orjson

from admission.kinds import templates, topology
from admission.kinds.base import MANAGED, POD_OWNER, WORKLOAD_UID, Kind, Object, Outcome, PodCount
from admission.kinds.children import controller_of
from admission.kinds.common import NOTHING, first
from admission.kinds.grouping import GATE, GROUP_NAME, group_faults
from admission.kinds.patches import additions, pointer, same_generation
from admission.kinds.requests import check_resources
from admission.model.errors import Misconfigured
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Observed
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_BOUND: Final = (
    "spec.nodeName",
    "a pod in a queue is not bound to a node when it is created: leave it out, and name the node in spec.nodeSelector",
)

_MOVABLE: Final = ("ReplicaSet",)
"""Kinds whose pods may run in another cluster than the object itself: it looks at their status only."""
_MOVABLE_TOGETHER: Final = (*_MOVABLE, "StatefulSet")
"""The same for pods of a group, which are all in one cluster; those of a LeaderWorkerSet have a StatefulSet, too."""
_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""Annotation of pods whose workers are created when their leader has a node, which a gated pod never has."""
_OF_ONE_POD: Final = ("nodeName", "priority", "preemptionPolicy", "overhead", "ephemeralContainers")
"""Fields that the API server sets by classes of its own cluster, or with which no pod can be created."""
_SHOWN: Final = (
    "phase", "conditions", "reason", "message", "startTime", "initContainerStatuses", "containerStatuses",
)  # fmt: skip
"""Fields of the status that a pod has from its copy."""
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
"""The condition of a pod that is gated, as the API server writes it at the creation."""


@dataclass(frozen=True, slots=True)
class PodKind(Kind):
    """Adapter for v1 Pod (see `Kind`)."""

    group: ClassVar[str] = ""
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    reports_pods: ClassVar[bool] = True
    watched_label: ClassVar[str] = MANAGED
    pods_label: ClassVar[str] = ""
    plural: ClassVar[str] = "pods"
    kind: ClassVar[str] = "Pod"

    def observe(self, obj: Object) -> Observed:
        """Return the state by gate and phase: a pod holds quota from the removal of its gate until it is terminated."""
        status = obj.get("status") or NOTHING
        gated, finished = GATE.is_closed(obj), _outcome(status)
        runs = not gated and finished is None
        return self._observed(
            obj,
            suspended=gated,
            active=runs,
            counts=(PodCount("main", 1, int(finished is None), int(runs)),),
            finished=finished,
            ready=_is_ready(status),
            ending="deletionTimestamp" in obj["metadata"],
            pod_priority_class=obj["spec"].get("priorityClassName") or "",
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return one pod set, `main`. Raises Misconfigured, also for all other `faults`."""
        if faults := [*self.metadata_faults(obj), *topology.faults([(obj, "", None)])]:
            raise Misconfigured("; ".join(map(": ".join, faults)))
        return _pod_sets(orjson.dumps(templates.digest_parts(obj), option=orjson.OPT_SORT_KEYS), context)

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return the faults in labels, annotations and resources of a new pod, and one if it is bound already."""
        faults = [*self.metadata_faults(obj), *topology.faults([(obj, "", None)])]
        try:
            check_resources(obj["spec"], path="spec")
        except Misconfigured as error:
            path, _, message = str(error).partition(": ")
            faults.append((path, message))
        faults += group_faults(obj, self.conventions)
        return [*faults, _BOUND] if obj["spec"].get("nodeName") else faults

    def gate(self, obj: Object) -> list[Object]:
        """Return the JSON patch that adds the gate, and the label by which pods are watched, if missing."""
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
        """Return a patch with what flavors and checks add, and without the gate. There is nothing to restore."""
        (assignment,) = admission.pod_sets
        added = templates.of_admission(assignment, flavors, updates, obj, path="", whole=True)
        injected, _ = templates.inject(obj, added, path="")
        return [*same_generation(obj), *_added(obj, injected), *GATE.open(obj)], {}

    # --- pods that run as a copy in another cluster

    def may_stay_gated(self, obj: Object) -> bool:
        """Whether a pod has no other gate, and can run in another cluster than the object that controls it."""
        return _may_move(obj, _MOVABLE)

    @property
    def shows_copies(self) -> bool:
        """True: no kubelet writes the status of a gated pod."""
        return True

    def copied_spec(self, spec: Object) -> Object:
        """Return a spec without what the API server sets for each pod, and what no pod can be created with."""
        return {name: value for name, value in spec.items() if name not in _OF_ONE_POD}

    def copied_status(self, status: Mapping[str, Any], copy: Mapping[str, Any] | None) -> Object:
        """Return the status without the addresses of its copy, to which Services of its own cluster would lead."""
        kept = {name: value for name, value in status.items() if name not in _SHOWN}
        if copy is not None:
            return {**kept, **{name: copy[name] for name in _SHOWN if name in copy}}
        return {**kept, "phase": "Pending", "conditions": [_GATED]} if shows_copy(status) else dict(status)

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return a patch that only removes the gate."""
        return [*same_generation(obj), *GATE.open(obj)]

    def templates(self, obj: Object) -> list[Object]:
        """Return the pod itself as its template."""
        return [obj]


def _added(obj: Object, injected: Object) -> list[Object]:
    """Return the operations for what `inject` returns; tolerations are appended, so that none is replaced."""
    spec = dict(injected.get("spec") or NOTHING)
    wanted = spec.pop("tolerations", None)
    patch = list(additions(obj, {**injected, "spec": spec}, ""))
    present = obj["spec"].get("tolerations")
    if wanted and not present:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": wanted})
    elif wanted:
        new = wanted[len(present) :]
        patch += [{"op": "add", "path": "/spec/tolerations/-", "value": each} for each in new]
    return patch


def _outcome(status: Mapping[str, Any]) -> Outcome | None:
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return None
    reason, message = (clean(status.get(field) or "") for field in ("reason", "message"))
    return Outcome(phase == "Succeeded", reason, message or (how_it_failed(status)[1] if phase == "Failed" else ""))


def how_it_failed(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return when and how a failed pod ended, such as `exit code 137 (OOMKilled)`; empty texts if it does not say.

    `status`: of the pod. Of several containers that failed the last one counts. The time is as in the status.
    """
    failures = [("", clean(status.get("reason") or ""))]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (container.get("state") or {}).get("terminated") or {}
        if code := ended.get("exitCode"):
            reason = clean(ended.get("reason") or "")
            cause = f" ({reason})" if reason not in ("", "Error") else ""
            failures.append((str(ended.get("finishedAt") or ""), f"exit code {code}{cause}"))
    return max(failures)


def _is_ready(status: Object) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _may_move(pod: Object, controllers: Sequence[str]) -> bool:
    is_free = (controller_of(pod) or {"kind": controllers[0]}).get("kind") in controllers
    return is_free and all(gate["name"] == GATE.name for gate in pod["spec"].get("schedulingGates") or ())


def may_move_with_group(pod: Object) -> bool:
    """Whether a pod of a group has no other gate, and can run in another cluster than what controls it."""
    return _may_move(pod, _MOVABLE_TOGETHER) and _EXCLUSIVE not in (pod["metadata"].get("annotations") or NOTHING)


def shows_copy(status: Mapping[str, Any]) -> bool:
    """Return whether the status of a gated pod says more than that it is gated."""
    reasons = [condition.get("reason") for condition in status.get("conditions") or ()]
    is_plain = status.get("phase", "Pending") == "Pending" and all(reason == _GATED["reason"] for reason in reasons)
    return not is_plain or any(status.get(name) for name in _SHOWN if name not in ("phase", "conditions"))


@lru_cache(maxsize=8192)
def _pod_sets(essence: bytes, context: NamespaceContext) -> tuple[PodSet, ...]:
    return (templates.pod_set("main", orjson.loads(essence), context, path="", count=1),)


class Occupant(NamedTuple):
    """A pod that has not ended on a node."""

    namespace: str
    uids: tuple[str, ...]
    """Uids of which the first that is a workload's is that of its own: its own, which labels cannot deny, and what
    these name."""
    group: str
    """Name of its pod group, which is that of the workload; empty: it is in none."""


def occupant(pod: Mapping[str, Any]) -> Occupant | None:
    """Return what a pod says about its workload; None: it has ended."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    named = (metadata["uid"], labels.get(WORKLOAD_UID, ""), labels.get(POD_OWNER, ""))
    return Occupant(metadata.get("namespace", ""), tuple(filter(None, named)), first(labels, GROUP_NAME))
