"""Domains of single pods: which pod of a pod set goes to which domain of its topology assignment. Pure functions.

As in Kueue's topology ungater: by rank, where all pods have a valid index, otherwise in the order of the domains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds.base import RENDERED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from admission.kinds.base import Object
    from admission.model.topology import TopologyAssignment, Values

_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_COPY_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_INDEX_LABELS: Final = {
    ("batch", "Job"): _JOB_INDEX,
    ("jobset.x-k8s.io", "JobSet"): _JOB_INDEX,
    ("trainer.kubeflow.org", "TrainJob"): _JOB_INDEX,
    **{
        ("kubeflow.org", kind): _REPLICA_INDEX
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
    },
}
"""(Group, kind) -> label with the index of a pod in its pod set."""
_GROUP_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
_GROUP_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
_POD_INDEXES: Final = (_GROUP_INDEX, "apps.kubernetes.io/pod-index", "leaderworkerset.sigs.k8s.io/worker-index")
"""Labels with the index of a pod of a group, of a StatefulSet, or of a LeaderWorkerSet."""
_COMPONENT: Final = re.compile(r"component-(\d+)-(\d+)")
"""The name of a pod set of an AppWrapper, with the numbers of component and pod set."""
_WRAPPER: Final = "workload.codeflare.dev.appwrapper/"
"""Prefix of annotations of these."""
_OFFSET: Final = "kueue.x-k8s.io/pod-index-offset"
_INDEXED: Final = frozenset((_JOB_INDEX, _COPY_INDEX, _REPLICA_INDEX, *_POD_INDEXES))


class RankRule(NamedTuple):
    """How the rank of a pod follows from its labels."""

    label: str
    """Label with its index; empty: the pods have no ranks."""
    copy_label: str = ""
    """Label with the number of the copy that it is in, where a pod set consists of copies; empty: it does not."""
    copies: int = 1


@dataclass(slots=True)
class PlacedPod:
    """What counts of a pod that is not terminated."""

    uid: str
    labels: Mapping[str, str]
    """Those of its labels that may be an index, see `index_labels`."""
    gated: bool
    selector: Mapping[str, str] = field(default_factory=dict)
    """Its node selector."""
    offset: int = 0
    """Index of the first pod of the pod set (`offset_of`)."""


def index_labels(pod: Object) -> dict[str, str]:
    """Return the labels of a pod that may be an index. For a pod group one that an annotation names is among them."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    found = {label: labels[label] for label in _INDEXED if label in labels}
    named = (metadata.get("annotations") or {}).get(_GROUP_INDEX_LABEL)
    if named and named in labels:
        found[_GROUP_INDEX] = labels[named]
    return found


def offset_of(pod: Object) -> int:
    """Return the index of the first pod of the pod set, which an annotation of the pods gives."""
    text = (pod["metadata"].get("annotations") or {}).get(_OFFSET, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def rule_of(group: str, kind: str, obj: Mapping[str, Any] | None, pod_set: str) -> RankRule:
    """Return the rule for a pod set of an object.

    `obj`: the object, if it is known; of a JobSet, also that of a TrainJob, the numbers of copies are read.
    """
    label = _INDEX_LABELS.get((group, kind), "")
    if kind == "AppWrapper" and obj is not None:
        return _rule_of_component(obj, pod_set)
    if kind not in ("JobSet", "TrainJob") or obj is None:
        return RankRule(label)
    for job in (obj.get(RENDERED) or obj)["spec"].get("replicatedJobs") or ():
        if job.get("name") == pod_set:
            return RankRule(label, _COPY_INDEX, job.get("replicas", 1))
    return RankRule(label)


def _rule_of_component(obj: Mapping[str, Any], pod_set: str) -> RankRule:
    """Return the rule for a pod set of an AppWrapper: by annotations of it, or the index of the wrapped kind."""
    found = _COMPONENT.fullmatch(pod_set)
    components = obj["spec"].get("components") or ()
    if found is None or int(found[1]) >= len(components):
        return RankRule("")
    component = components[int(found[1])]
    declared = component.get("podSets") or ()
    said = (declared[int(found[2])].get("annotations") or {}) if int(found[2]) < len(declared) else {}
    copies = said.get(f"{_WRAPPER}tas-sub-group-count", "")
    if (label := said.get(f"{_WRAPPER}tas-pod-index-label")) and copies.isascii() and copies.isdecimal():
        return RankRule(label, said.get(f"{_WRAPPER}tas-sub-group-index-label", ""), int(copies))
    wrapped = component.get("template") or {}
    group = str(wrapped.get("apiVersion", "")).rpartition("/")[0]
    return RankRule(label or _INDEX_LABELS.get((group, str(wrapped.get("kind"))), ""))


def rule_of_pods(pods: Sequence[PlacedPod]) -> RankRule:
    """Return the rule for the pods of a group: the first index that they have."""
    first = pods[0].labels if pods else {}
    return RankRule(next((label for label in _POD_INDEXES if label in first), ""))


def domains_of(
    assignment: TopologyAssignment,
    pods: Sequence[PlacedPod],
    rule: RankRule,
    *,
    leaders: int = 0,
    excluded: Collection[str] = (),
) -> dict[str, Values]:
    """Return the domain of each gated pod that has one, by uid.

    `pods`: all pods of the pod set that are not terminated, in the order of a list. `leaders`: pods of the leader that
    their indexes count first. `excluded`: failed nodes, which get no pods.
    """
    if (ranked := _by_rank(assignment, pods, rule, leaders)) is None:
        ranked = _in_order(assignment, pods)
    return {uid: values for uid, values in ranked.items() if values[-1] not in excluded}


def _by_rank(
    assignment: TopologyAssignment, pods: Sequence[PlacedPod], rule: RankRule, leaders: int
) -> dict[str, Values] | None:
    """Return the domains by rank; None: not every pod has a rank of its own that agrees with where it is already."""
    if not rule.label or not pods:
        return None
    places = [values for values, count in assignment.domains for _ in range(count)]
    each = len(places) // rule.copies if rule.copies else 0
    found: dict[str, Values] = {}
    taken: set[int] = set()
    for pod in pods:
        index = _number(pod.labels.get(rule.label))
        if index is None:
            return None
        if rule.copy_label:
            copy = _number(pod.labels.get(rule.copy_label))
            if copy is None or index >= each:
                return None
            index += copy * each
        rank = index - pods[0].offset - leaders
        if rank in taken or not 0 <= rank < len(places):
            return None
        taken.add(rank)
        if pod.gated:
            found[pod.uid] = places[rank]
        elif values_of(assignment, pod) != places[rank]:
            return None
    return found


def _in_order(assignment: TopologyAssignment, pods: Sequence[PlacedPod]) -> dict[str, Values]:
    free = dict(assignment.domains)
    for pod in pods:
        if not pod.gated and (values := values_of(assignment, pod)) in free:
            free[values] -= 1
    places = (values for values, count in free.items() for _ in range(max(count, 0)))
    waiting = (pod.uid for pod in pods if pod.gated)
    return dict(zip(waiting, places, strict=False))


def values_of(assignment: TopologyAssignment, pod: PlacedPod) -> Values:
    """Return the domain that the node selector of a pod leads to."""
    return tuple(pod.selector.get(level, "") for level in assignment.levels)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None
