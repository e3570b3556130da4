"""Rules for pods that Sluice has placed by topology, from the pods as they are and what is known of the nodes.

A pod counts from the removal of its topology gate until it ends or is being deleted: it may be replaced from then on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from admission.cli.demo.live_pods import requests_of
from tests.fuzz.documents import BY_RACK
from tests.fuzz.findings import Finding
from tests.fuzz.topology_documents import CPUS, HOST, RACK, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

Object = dict[str, Any]

GATE = "sluice.dev/topology"
_POD_SET = "sluice.dev/topology-pod-set"
_GROUP = "sluice.dev/pod-group-uid"
_UID = "sluice.dev/workload-uid"
_JOB_UID = "batch.kubernetes.io/controller-uid"
_ENDED = ("Succeeded", "Failed")


def check_placed(pods: Iterable[Object], values: Mapping[tuple[str, str], set[str | None]]) -> None:
    """Raise Finding if placed pods exceed a node or a rack, or are not in one domain that they require.

    `values`: what each label of each node has been, by (node, label).
    """
    pods = list(pods)
    used: dict[str, Fraction] = defaultdict(Fraction)
    groups: dict[tuple[str, str, str], list[Object]] = defaultdict(list)
    for pod in _placed(pods):
        annotations = pod["metadata"]["annotations"]
        used[_node(pod)] += Fraction(requests_of(pod["spec"], ("cpu",))["cpu"], 1000)
        if (level := annotations.get(REQUIRED)) is not None:
            groups[_workload(pod), annotations.get(_POD_SET, ""), level].append(pod)
    in_racks: dict[str, Fraction] = defaultdict(Fraction)
    for pod in pods:
        selector = pod["spec"].get("nodeSelector") or {}
        if selector.get("sluice.test/pool") == BY_RACK and not _is_over(pod) and not pod["spec"].get("schedulingGates"):
            in_racks[str(selector.get(RACK))] += Fraction(requests_of(pod["spec"], ("cpu",))["cpu"], 1000)
    for rack, cpu in in_racks.items():
        if cpu > 2 * CPUS:
            raise Finding("a node is exceeded", f"{float(cpu):g} of {2 * CPUS} cpu of the rack {rack}")
    for node, cpu in used.items():
        if cpu > CPUS:
            raise Finding("a node is exceeded", f"{float(cpu):g} of {CPUS} cpu of {node}")
    for (_, _, level), group in groups.items():
        nodes = {_node(pod) for pod in group}
        if not set.intersection(*(values.get((node, level), set()) for node in nodes)):
            names = sorted(pod["metadata"]["name"] for pod in group)
            raise Finding("a required domain is left", f"{names} require one {level} and are on {sorted(nodes)}")


def half_ungated(pods: Iterable[Object], places: Mapping[tuple[str, str], int], usable: Container[str]) -> list[str]:
    """Return the pods that still wait for their node, although their workload has a place for one of them.

    A place is for none if a former pod of the workload is ending, if an orphan still runs there, or if its node is not
    `usable`: a pod set that has all of its pods on a failed node keeps its places until there is room elsewhere.
    """
    pods = list(pods)
    ending = {_workload(pod) for pod in pods if "deletionTimestamp" in pod["metadata"]}
    taken = Counter((_workload(pod), _node(pod)) for pod in _placed(pods))
    free: dict[str, int] = defaultdict(int)  # a workload without a place on a single node is not in it
    for (uid, node), count in places.items():
        free[uid] += max(0, count - taken[uid, node]) if node in usable else 0
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} waits for its node"
        for pod in pods
        if any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())
        and not _is_over(pod)
        and _workload(pod) not in ending
        and free.get(_workload(pod), 1)
    ]


def without_place(pods: Iterable[Object], places: Mapping[tuple[str, str], int]) -> list[str]:
    """Return where a workload has more placed pods than places: a rank was placed twice, or nowhere.

    `places`: number of pods that a workload was assigned to a node, by (uid of the workload, node).
    """
    counts = Counter((_workload(pod), _node(pod)) for pod in _placed(pods))
    return [
        f"{uid} has {count} pods on {node}, and {places.get((uid, node), 0)} places"
        for (uid, node), count in counts.items()
        if count > places.get((uid, node), 0)
    ]


def _placed(pods: Iterable[Object]) -> Iterator[Object]:
    for pod in pods:
        annotations, selector = pod["metadata"].get("annotations") or {}, pod["spec"].get("nodeSelector") or {}
        is_ours = (_POD_SET in annotations or _GROUP in annotations) and HOST in selector
        if is_ours and not _is_over(pod) and not pod["spec"].get("schedulingGates"):
            yield pod


def _is_over(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in _ENDED


def _node(pod: Object) -> str:
    return str(pod["spec"]["nodeSelector"][HOST])


def _workload(pod: Object) -> str:
    """Return the uid of the pod's workload: that of its group, its label's, or its Job's."""
    metadata = pod["metadata"]
    if group := (metadata.get("annotations") or {}).get(_GROUP):
        return str(group)
    labels = metadata.get("labels") or {}
    owner = next((each["uid"] for each in metadata.get("ownerReferences") or ()), metadata.get("uid", ""))
    return str(labels.get(_UID) or labels.get(_JOB_UID) or owner)  # an orphan has no owner any more
