"""Suite of single placements: pod sets placed in the tree of one flavor, and the replacement of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from admission.engine.topology.counting import requests_of
from admission.engine.topology.nodes import PodRules
from admission.engine.topology.placement import Placed, Question, place
from admission.engine.topology.replacement import replace_node, resize, stale_domain
from admission.engine.topology.state import PlacedPods, Topologies, TreeSpec
from admission.engine.topology.tree import Tree
from admission.kinds.placement import node_state, taken_by
from admission.model.topology import DomainCount, TopologyAssignment
from admission.model.topology_documents import topology_assignment, topology_request
from admission.simulate.scenario import Case
from admission.simulate.workloads import WorkloadReader, placement_rules

_FLAVOR = "default"
_OTHER = "other"


def placements(document: Case) -> Case:
    """Return for each pod set its domains, or why it could not be placed."""
    return {"podSets": _Placements(document).answer()}


class _Placements:
    def __init__(self, document: Case) -> None:
        self._document = document
        levels = tuple(document["levels"])
        self._rules = placement_rules(document.get("featureGates") or {})
        self._topologies = Topologies()
        spec = TreeSpec("default", levels, document.get("flavorNodeLabels") or {})
        self._topologies.set_flavors({_FLAVOR: spec})
        for node in document["nodes"]:
            self._topologies.node_changed(node_state(node))
        for pod in document.get("pods") or ():
            if (taken := taken_by(pod)) is not None:
                self._topologies.pod_bound(pod["metadata"]["name"], *taken)
        self._levels = levels[-1:] if levels[-1] == "kubernetes.io/hostname" else levels
        for flavor, field in ((_FLAVOR, "priorOwnUsage"), (_OTHER, "priorFlavorUsage")):
            for usage in document.get(field) or ():
                domain = DomainCount(tuple(usage["values"]), usage["count"])
                self._topologies.hold([self._pods(flavor, [domain], usage["singlePodRequests"])], 1)
        for values, amounts in (document.get("aggregatedDomainUsages") or {}).items():
            assumed = TopologyAssignment(self._levels, (DomainCount(tuple(values.split(",")), 1),))
            if not (document.get("priorFlavorUsage") or document.get("priorOwnUsage")):
                self._topologies.assume(PlacedPods(_FLAVOR, assumed, tuple(amounts.items())), 1)
        self._answer: Case = {}

    def _pods(self, flavor: str, domains: Iterable[DomainCount], requests: Mapping[str, int]) -> PlacedPods:
        return PlacedPods(flavor, TopologyAssignment(self._levels, tuple(domains)), requests_of(requests))

    def answer(self) -> Case:
        groups: dict[str, list[Case]] = {}
        for number, request in enumerate(self._document["podSetRequests"]):
            groups.setdefault(request.get("podSetGroupName") or f"#{number}", []).append(request)
        for group in groups.values():
            self._place(group)
        return self._answer

    def _place(self, group: list[Case]) -> None:
        workers, *leaders = sorted(group, key=lambda request: -request["count"])
        manifest = {"metadata": {"name": "wl"}, "spec": {"podSets": [{**workers["podSet"], "count": 1}]}}
        pod_set = WorkloadReader({}).read(manifest).workload.pod_sets[0]
        question = Question(
            workers["count"],
            requests_of(workers["singlePodRequests"]),
            topology_request(workers["podSet"].get("topologyRequest")) if not workers["implied"] else None,
            PodRules(
                pod_set.tolerations,
                tuple(sorted(pod_set.node_selector.items())),
                pod_set.affinity,
                pod_set.preferences,
            ),
            requests_of(leaders[0]["singlePodRequests"]) if leaders else None,
        )
        tree = self._topologies.trees[_FLAVOR]
        workload = self._document.get("workload") or {}
        status = workload.get("status") or {}
        unhealthy = [node["name"] for node in status.get("unhealthyNodes") or ()]
        name = workers["podSet"].get("name", "")
        if unhealthy and not _keeps(self._document):
            (entry,) = (entry for entry in status["admission"]["podSetAssignments"] if entry["name"] == name)
            present = topology_assignment(entry["topologyAssignment"])
            replaced = replace_node(tree, question, present, unhealthy[0], self._rules)
            self._record(name, replaced)
            return
        if unhealthy:
            (entry,) = (entry for entry in status["admission"]["podSetAssignments"] if entry["name"] == name)
            self._record(name, topology_assignment(entry["topologyAssignment"]))
            return
        present = [
            topology_assignment(request["previousAssignment"])
            for request in (workers, *leaders)
            if request.get("previousAssignment")
        ]
        if len(present) == 1 + len(leaders) and not any(stale_domain(tree, each.domains) for each in present):
            self._resize(tree, question, group, present)
            return
        placed = place(tree, question, self._rules)
        if not isinstance(placed, Placed):
            self._record(name, placed)
            return
        self._record(name, placed.pods)
        self._topologies.assume(PlacedPods(_FLAVOR, placed.pods, question.requests), 1)
        if placed.leader is not None and question.leader is not None:
            self._record(leaders[0]["podSet"].get("name", ""), placed.leader)
            self._topologies.assume(PlacedPods(_FLAVOR, placed.leader, question.leader), 1)

    def _resize(self, tree: Tree, question: Question, group: list[Case], present: list[TopologyAssignment]) -> None:
        workers, *leaders = sorted(group, key=lambda request: -request["count"])
        stay = [PlacedPods(_FLAVOR, present[0], question.requests)]
        for leader, where in zip(leaders, present[1:], strict=True):
            stay.append(PlacedPods(_FLAVOR, where, requests_of(leader["singlePodRequests"])))
            self._record(leader["podSet"].get("name", ""), where)
        for pods in stay:
            self._topologies.assume(pods, 1)
        self._record(
            workers["podSet"].get("name", ""), resize(tree, question._replace(leader=None), present[0], self._rules)
        )

    def _record(self, name: str, result: TopologyAssignment | str) -> None:
        if isinstance(result, str):
            self._answer[name] = {"failureReason": result}
            return
        domains = [{"values": list(values), "count": count} for values, count in result.domains]
        assignment = {"levels": list(result.levels), "domains": domains}
        self._answer[name] = {"failureReason": "", "topologyAssignment": assignment}


def _keeps(document: Case) -> bool:
    """Whether the workload is a single plain pod, which no other node can replace."""
    owners: list[Any] = document["workload"]["metadata"].get("ownerReferences") or []
    gate = (document.get("featureGates") or {}).get("SkipReassignmentForPodOwnedWorkloads", True)
    return bool(gate and len(owners) == 1 and owners[0]["kind"] == "Pod")
