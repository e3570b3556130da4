"""A group of pods that is queued as one: Kueue's pod groups. There is no such object: it is put together from its pods.

`admission.controller.workloads.pod_groups` makes one of the pods of a namespace that name the same group:

    metadata: as of an object; annotations are those of the oldest pod, labels those of the oldest that names a queue
    spec:
      total: how many pods there are to be
      pod_sets: what its pods have declared that it will have, as rows of `pod_set`; empty: they have not
      unsaid: why what it will have is not known, as a sentence; empty: it is
      fast: whether it may start before all of them are there
      unretriable: whether no pod is made again in place of one that has failed
      faults: what is wrong in its pods, as text
      admitted: {role: count} while it holds quota
      runs: whether it is admitted, and not being evicted
      roles: {role: a pod of this role, as far as quota depends on it, and `priority`, its PriorityClass}
      pods: [{role, gated, deleting, phase, ready, excess}], the oldest first; `excess`: beyond what holds quota
      expected: {role: count}, what it is to have while none of its pods is there, where they are made again
      wanted: how many pods the object asks for by now whose pods they are; null: it is not told
      priority: the PriorityClass of the group as a whole, where another system says it; empty: its pods have theirs
      over: how the object has ended whose pods they are, as {succeeded, message}; null: that is not so

Pods that are alike have one role, and make up one pod set; in a CompositePodGroup only pods of the same PodGroup do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from admission.kinds import templates
from admission.kinds.base import SUBMITTED_BY, KindStatus, Object, Outcome, PodCount
from admission.kinds.unchanged import UnchangedKind
from admission.model import child_sentences
from admission.model.errors import Misconfigured
from admission.model.pod_set_documents import pod_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_MOST_ROLES: Final = 32
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that run no more."""


@dataclass(frozen=True, slots=True)
class PodGroupKind(UnchangedKind):
    """The adapter for what is put together of pods (see `Kind`)."""

    group: ClassVar[str] = "sluice.dev"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    is_composed: ClassVar[bool] = True
    tells_of_pods: ClassVar[bool] = True
    ends_by_deletion: ClassVar[bool] = True
    watched_label: ClassVar[str] = ""
    pods_label: ClassVar[str] = ""
    plural: ClassVar[str] = "podgroups"
    kind: ClassVar[str] = "PodGroup"
    annotations: ClassVar[tuple[str, ...]] = (SUBMITTED_BY,)
    manager: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = ((), ())

    def makes(self, group: str, kind: str) -> bool:
        """Nothing."""
        return False

    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """By its pods."""
        spec = obj["spec"]
        alive = [pod for pod in spec["pods"] if pod["phase"] not in ENDED]
        runs = [pod for pod in alive if not pod["gated"]]
        is_waiting = bool(alive) and not runs
        # One that succeeds while it is told to end is soon gone: its controller makes it again, or its user has to.
        succeeded = Counter(pod["role"] for pod in spec["pods"] if pod["phase"] == "Succeeded" and not pod["deleting"])
        present = Counter(pod["role"] for pod in runs)
        asked = _asked(spec)
        counts = tuple(
            PodCount(
                role,
                wanted := min(asked.get(role, count), count),
                max(wanted - succeeded[role], 0),
                present[role],
                asked[role] if asked.get(role, 0) > count else 0,
            )
            for role, count in _counts(spec).items()
        )
        done = sum(succeeded.values())
        ready = done + sum(pod["ready"] for pod in runs)
        of_pods = (role["priority"] for role in spec["roles"].values() if role["priority"])
        return KindStatus(
            # Its pods may all be deleted by others than Sluice, and made again: it runs on.
            suspended=all(pod["deleting"] for pod in runs) and (is_waiting or not spec["runs"]),
            active=bool(runs),
            started=False,
            stopped=False,
            counts=counts,
            finished=_outcome(spec, alive, done),
            ready=ready >= min(spec["total"], sum(spec["admitted"].values()) or spec["total"]) > 0,
            ending=False,
            pod_priority_class=spec.get("priority") or next(of_pods, ""),
            waits_for=_missing(spec, sum(not pod["deleting"] for pod in alive) + done),
            is_uneven=any((pod["gated"] or pod["excess"]) and not pod["deleting"] for pod in alive),
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """One for each role. Raises Misconfigured."""
        spec = obj["spec"]
        if faults := [*(": ".join(fault) for fault in self.metadata_faults(obj)), *spec["faults"]]:
            raise Misconfigured("; ".join(faults))
        if spec["pod_sets"]:
            return tuple(map(pod_set, spec["pod_sets"]))
        counts = _counts(spec)
        if len(counts) > _MOST_ROLES:
            many = f"the group has pods of {len(counts)} different forms or PodGroups"
            raise Misconfigured(f"{many}, but {_MOST_ROLES} is the most")
        return tuple(
            templates.pod_set(role, spec["roles"][role], context, path="", count=count)
            for role, count in sorted(counts.items())
            if role in spec["roles"]
        )

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """None: its pods were judged."""
        return []

    def gate(self, obj: Object) -> list[Object]:
        """Nothing: its pods are gated."""
        return []

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Nothing: each pod has its own. Raises Misconfigured if a pod of a role cannot have what it would be given."""
        for assignment in admission.pod_sets:
            of_flavors = [templates.of_flavor(flavors[name]) for name in dict.fromkeys(assignment.flavors.values())]
            asked = [templates.of_check(update) for update in updates if update.name == assignment.name]
            role = obj["spec"]["roles"].get(assignment.name)
            if role is not None:
                templates.inject(role, (*of_flavors, *asked), path="")
        return [], {}

    def templates(self, obj: Object) -> list[Object]:
        """A pod of each role."""
        return list(obj["spec"]["roles"].values())


def _counts(spec: Mapping[str, Any]) -> dict[str, int]:
    """How many pods there are, or are to be, of each role."""
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


def _asked(spec: Mapping[str, Any]) -> dict[str, int]:
    """How many pods of a role its object is to have, as it was scaled since; of which of several, it does not say."""
    is_known = spec["wanted"] is not None and len(spec["admitted"]) == 1
    return dict.fromkeys(spec["admitted"], spec["wanted"]) if is_known else {}


def _missing(spec: Mapping[str, Any], there: int) -> str:
    if spec["unsaid"] and not spec["admitted"]:
        return str(spec["unsaid"])
    if spec["admitted"] or spec["pod_sets"] or there >= spec["total"] or (spec["fast"] and there):
        return ""
    return child_sentences.group_incomplete(there, spec["total"])


def _outcome(spec: Mapping[str, Any], alive: Sequence[Object], succeeded: int) -> Outcome | None:
    """As in Kueue: all have succeeded, or none is left where none is made again; or it is said of their owner."""
    if succeeded >= spec["total"] > 0 and not (alive and spec["wanted"] is not None):
        return Outcome(True, "", child_sentences.group_ended(succeeded, spec["total"]))
    if spec["over"] and not alive:
        return Outcome(spec["over"]["succeeded"], "", spec["over"]["message"])
    # One that is being deleted has failed because it was told to end.
    if spec["unretriable"] and spec["pods"] and not alive and not any(pod["deleting"] for pod in spec["pods"]):
        return Outcome(False, "", child_sentences.group_ended(succeeded, spec["total"]))
    return None
