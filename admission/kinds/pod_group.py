"""Adapter for groups of pods that are queued as one workload, as Kueue's pod groups are.

The API server has no objects of this kind: `admission.controller.workloads.pod_groups` assembles one from the pods of a
namespace that name the same group:

    metadata: as of an object; annotations of the oldest pod, labels of the oldest pod that names a queue
    spec:
      total: number of pods that the group starts with
      pod_sets: pod sets that its pods have declared, as rows of `pod_set`; empty: none are declared
      wait_message: why the group cannot be queued yet, whatever pods it has; empty: no reason is known
      fast: whether it may start before all pods exist
      unretriable: whether failed pods are not replaced
      faults: messages about errors in its pods
      admitted: {role: count} while it holds quota
      runs: whether it is admitted, and not being evicted
      roles: {role: fields of a pod of this role that quota depends on, and `priority`, its PriorityClass}
      pods: [{role, gated, deleting, phase, ready, excess}], the oldest first; `excess`: runs beyond the quota
      expected: {role: count} that its owner's controller will create while it has no pods
      wanted: number of pods that its owner requests now; null: unknown, or the owner is finished or being deleted
      priority: PriorityClass of the group as a whole, by another system; empty: its pods' classes apply
      outcome: outcome of its owner as {succeeded, message}; null: it has no owner, or that is not finished

Equal pods have one role and make up one pod set; in a CompositePodGroup, if they are of the same PodGroup.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from admission.kinds import templates
from admission.kinds.base import SUBMITTED_BY, SUBMITTER_GROUPS, Kind, Object, Outcome, PodCount
from admission.model import child_sentences
from admission.model.errors import Misconfigured
from admission.model.pod_set_documents import pod_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Observed
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_MAX_ROLES: Final = 32
FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that no longer run."""


@dataclass(frozen=True, slots=True)
class PodGroupKind(Kind):
    """Adapter for pod groups (see `Kind`)."""

    group: ClassVar[str] = "sluice.dev"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    reports_pods: ClassVar[bool] = True
    pods_label: ClassVar[str] = ""
    plural: ClassVar[str] = "podgroups"
    kind: ClassVar[str] = "PodGroup"
    annotations: ClassVar[tuple[str, ...]] = (SUBMITTED_BY, SUBMITTER_GROUPS)

    def observe(self, obj: Object) -> Observed:
        """Return the state of the group, computed from its pods."""
        spec = obj["spec"]
        alive = [pod for pod in spec["pods"] if pod["phase"] not in FINISHED_PHASES]
        runs = [pod for pod in alive if not pod["gated"]]
        is_waiting = bool(alive) and not runs
        # A pod that succeeds while it is being deleted does not count: it is deleted soon, and has to be recreated.
        succeeded = Counter(pod["role"] for pod in spec["pods"] if pod["phase"] == "Succeeded" and not pod["deleting"])
        present = Counter(pod["role"] for pod in runs)
        requested = _requested(spec)
        counts = tuple(
            PodCount(
                role,
                wanted := min(requested.get(role, count), count),
                max(wanted - succeeded[role], 0),
                present[role],
                requested[role] if requested.get(role, 0) > count else 0,
            )
            for role, count in _counts(spec).items()
        )
        done = sum(succeeded.values())
        ready = done + sum(pod["ready"] for pod in runs)
        pod_classes = (role["priority"] for role in spec["roles"].values() if role["priority"])
        return self._observed(
            obj,
            # If others than Sluice delete all of its pods, a controller may recreate them: the group is not suspended.
            suspended=all(pod["deleting"] for pod in runs) and (is_waiting or not spec["runs"]),
            active=bool(runs),
            counts=counts,
            finished=_outcome(spec, alive, done),
            ready=ready >= min(spec["total"], sum(spec["admitted"].values()) or spec["total"]) > 0,
            ending=False,
            pod_priority_class=spec.get("priority") or next(pod_classes, ""),
            waits_for=_missing(spec, sum(not pod["deleting"] for pod in alive) + done),
            is_uneven=any((pod["gated"] or pod["excess"]) and not pod["deleting"] for pod in alive),
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return one pod set per role, or the declared ones. Raises Misconfigured."""
        spec = obj["spec"]
        if faults := [*(": ".join(fault) for fault in self.metadata_faults(obj)), *spec["faults"]]:
            raise Misconfigured("; ".join(faults))
        if spec["pod_sets"]:
            return tuple(map(pod_set, spec["pod_sets"]))
        counts = _counts(spec)
        if len(counts) > _MAX_ROLES:
            differences = "which differ in requests, placement or PodGroup"
            raise Misconfigured(f"the group has pods of {len(counts)} roles, {differences}; {_MAX_ROLES} is the most")
        return tuple(
            templates.pod_set(role, spec["roles"][role], context, path="", count=count)
            for role, count in sorted(counts.items())
            if role in spec["roles"]
        )

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return []: its pods were validated themselves."""
        return []

    def gate(self, obj: Object) -> list[Object]:
        """Return []: its pods are gated themselves."""
        return []

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return no patch, as each pod has its own. Raises Misconfigured if the pods of a role cannot be injected."""
        for assignment in admission.pod_sets:
            role = obj["spec"]["roles"].get(assignment.name)
            if role is not None:
                templates.inject(role, templates.of_admission(assignment, flavors, updates, role, path=""), path="")
        return [], {}

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return []: each pod has a resume patch of its own."""
        return []

    def templates(self, obj: Object) -> list[Object]:
        """Return a pod of each role."""
        return list(obj["spec"]["roles"].values())


def _counts(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of pods of each role that exist or are expected."""
    if spec["admitted"]:
        return dict(spec["admitted"])
    if spec["pod_sets"]:
        return {each["name"]: each["count"] for each in spec["pod_sets"]}
    counted = [pod["role"] for pod in spec["pods"] if pod["phase"] != "Failed" and not pod["deleting"]]
    counts = Counter(counted[: spec["total"] or len(counted)])
    if not counted:
        return dict(spec["expected"])
    if spec["fast"]:
        counts[counted[0]] += spec["total"] - counts.total()
    return dict(counts)


def _requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of pods per role that its owner requests, if scaled; known for groups of one role only."""
    is_known = spec["wanted"] is not None and len(spec["admitted"]) == 1
    return dict.fromkeys(spec["admitted"], spec["wanted"]) if is_known else {}


def _missing(spec: Mapping[str, Any], present: int) -> str:
    if spec["wait_message"] and not spec["admitted"]:
        return str(spec["wait_message"])
    if spec["admitted"] or spec["pod_sets"] or present >= spec["total"] or (spec["fast"] and present):
        return ""
    return child_sentences.group_incomplete(present, spec["total"])


def _outcome(spec: Mapping[str, Any], alive: Sequence[Object], succeeded: int) -> Outcome | None:
    """Return the outcome as in Kueue: all pods succeeded, or none is alive or replaced; or that of the owner."""
    if succeeded >= spec["total"] > 0 and not (alive and spec["wanted"] is not None):
        return Outcome(True, "", child_sentences.group_ended(succeeded, spec["total"]))
    if spec["outcome"] and not alive:
        return Outcome(spec["outcome"]["succeeded"], "", spec["outcome"]["message"])
    # A pod that is being deleted has failed because of that.
    if spec["unretriable"] and spec["pods"] and not alive and not any(pod["deleting"] for pod in spec["pods"]):
        return Outcome(False, "", child_sentences.group_ended(succeeded, spec["total"]))
    return None
