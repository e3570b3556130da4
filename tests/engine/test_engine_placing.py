"""Placement by topology in the engine: room decides beside quota, and failed nodes are replaced."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from random import Random
from types import FrameType

import pytest
import queue_objects

from admission.engine import (
    ChecksReady,
    Engine,
    NamespaceChanged,
    NodeChanged,
    NodeDeleted,
    NodesFailed,
    NodesListed,
    PodBound,
    Policy,
    QueueObjectChanged,
    TopologyRules,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.topology.nodes import NodeState
from admission.engine.topology.workloads import Placer
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME, DomainCount, SliceLayer, TopologyAssignment, TopologyRequest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload


def node(name: str, rack: str, cpu: int = 2000) -> NodeState:
    return NodeState(name, {"pool": "gpu", "rack": rack, HOSTNAME: name}, {"cpu": cpu, "pods": 10})


def workload(name: str, pods: int, request: TopologyRequest | None, priority: int = 0) -> Workload:
    pod_sets = (PodSet("main", pods, {"cpu": 1000}, topology=request),)
    return Workload(name, "ns", name, "queue", priority, float(len(name)), pod_sets)


def domains(admission) -> tuple[DomainCount, ...]:
    return admission.pod_sets[0].topology.domains


@pytest.fixture
def engine() -> Engine:
    engine = Engine(Policy(topology=TopologyRules()))
    engine.observe(NamespaceChanged("ns", {}), now=0.0)
    for document in (
        queue_objects.topology("default", "rack", HOSTNAME),
        queue_objects.manifest(
            "ResourceFlavor", "gpu", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "default"}
        ),
        queue_objects.cluster_queue(flavor="gpu", cpu=100, preemption={"withinClusterQueue": "LowerPriority"}),
        queue_objects.local_queue("queue", "ns"),
    ):
        engine.observe(QueueObjectChanged(parse_manifest(document)), now=0.0)
    for name, rack in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        engine.observe(NodeChanged(node(name, rack)), now=0.0)
    return engine


def test_devices_by_claim_are_no_room_of_nodes(engine: Engine):
    for name in ("a", "b"):
        engine.observe(NodeChanged(node(name, "r")), now=0.0)
    pod_sets = (PodSet("main", 2, {"cpu": 1600}, topology=TopologyRequest(HOSTNAME), devices={"cpu": 600}),)
    engine.observe(WorkloadPending(replace(workload("w", 1, None), pod_sets=pod_sets)), now=0.0)
    (admitted,) = engine.settle(0.0).admitted
    assert [each.pods for each in domains(admitted.admission)] == [2]


def test_workload_waits_for_room_in_one_rack_and_starts_when_a_node_comes(engine):
    engine.observe(WorkloadPending(workload("w", 5, TopologyRequest(required="rack"))), now=1.0)
    (park,) = engine.settle(1.0).parked
    assert park.reason == "TopologyPlacementFailed"
    assert 'topology "default" allows to fit only 4 out of 5 pod(s)' in park.message
    engine.observe(NodeChanged(node("a3", "a")), now=2.0)
    (admit,) = engine.settle(2.0).admitted
    assert domains(admit.admission) == ((("a1",), 2), (("a2",), 2), (("a3",), 1))


def test_pods_beyond_whole_slices_are_placed_and_replaced_too(engine):
    """Kueue places them nowhere, and they stay gated."""
    engine.observe(NodeChanged(node("b2", "b")), now=1.0)
    slices = TopologyRequest(unconstrained=True, layers=(SliceLayer("rack", 2),))
    engine.observe(WorkloadPending(workload("w", 7, slices)), now=1.0)
    (admit,) = engine.settle(1.0).admitted
    assert domains(admit.admission) == ((("a1",), 2), (("a2",), 2), (("b1",), 2), (("b2",), 1))
    engine.observe(NodeChanged(replace(node("b2", "b"), ready=False)), now=2.0)
    engine.observe(NodeChanged(node("b3", "b")), now=2.0)
    engine.observe(NodesFailed("w", ("b2",)), now=2.0)
    (again,) = engine.settle(2.0).reassigned
    assert domains(again.admission) == ((("a1",), 2), (("a2",), 2), (("b1",), 2), (("b3",), 1))


def test_freed_room_goes_to_pods_of_a_failed_node_before_others(engine):
    """Not at their next attempt only, as in Kueue, when it may be taken."""
    alone = TopologyRequest(required=HOSTNAME)
    for name in ("w", "ww", "www"):
        engine.observe(WorkloadPending(workload(name, 2, alone)), now=1.0)
    (place,) = (domains(each.admission)[0].values for each in engine.settle(1.0).admitted if each.workload.uid == "w")
    engine.observe(NodeDeleted(*place), now=2.0)
    engine.observe(NodesFailed("w", place), now=2.0)
    assert engine.settle(2.0).unplaced
    engine.observe(WorkloadPending(workload("new", 2, alone)), now=2.1)
    assert not engine.settle(2.1).admitted
    engine.observe(WorkloadGone("ww"), now=2.2)
    decisions = engine.settle(2.2)
    assert [each.workload.uid for each in decisions.reassigned] == ["w"]
    assert not decisions.admitted


@pytest.mark.parametrize("priority", [0, 1])
def test_a_delayed_placement_preempts_for_room(engine, priority):
    """Its quota is reserved already; its checks are Ready when its nodes are taken."""
    alone = TopologyRequest(required=HOSTNAME)
    for name in ("w", "ww", "www"):
        engine.observe(WorkloadPending(workload(name, 2, alone)), now=1.0)
    engine.settle(1.0)
    reserved = PodSetAssignment("main", {"cpu": "gpu"}, {"cpu": 2000}, 2, None, delayed=True)
    urgent = workload("urgent", 2, alone, priority)
    engine.observe(WorkloadAdmitted(urgent, Admission("cq", (reserved,)), 2.0), now=2.0)
    engine.observe(ChecksReady("urgent", {}), now=2.0)
    decisions = engine.settle(2.0)
    assert len(decisions.evicted) == priority
    if not priority:
        return
    (evict,) = decisions.evicted
    assert (evict.reason, evict.preemptor) == ("Preempted", "urgent")
    assert decisions.unplaced[0].message.endswith("Pending the preemption of 1 workload(s)")
    assert not engine.settle(3.5).evicted
    engine.observe(WorkloadPending(workload("late", 2, alone)), now=4.0)
    engine.observe(WorkloadGone(evict.workload.uid), now=4.0)
    decisions = engine.settle(4.0)
    assert [each.workload.uid for each in decisions.reassigned] == ["urgent"]
    assert not decisions.admitted


def test_room_of_a_finished_workload_is_free(engine):
    for name in ("w", "ww"):
        engine.observe(WorkloadPending(workload(name, 4, TopologyRequest(required="rack"))), now=1.0)
    assert [admit.workload.name for admit in engine.settle(1.0).admitted] == ["w"]
    engine.observe(WorkloadGone("w"), now=2.0)
    assert [admit.workload.name for admit in engine.settle(2.0).admitted] == ["ww"]


@pytest.mark.parametrize(("where", "cpu"), [("a1", 500), ("b1", 2000)])
def test_workload_starts_when_a_pod_of_others_becomes_smaller_or_moves(engine, where, cpu):
    engine.observe(PodBound("other", "a1", {"cpu": 2000}), now=0.0)
    engine.observe(WorkloadPending(workload("w", 3, TopologyRequest(required="rack"))), now=1.0)
    assert not engine.settle(1.0).admitted
    engine.observe(PodBound("other", where, {"cpu": cpu}), now=2.0)
    assert [admit.workload.name for admit in engine.settle(2.0).admitted] == ["w"]


def test_workload_preempts_for_room_though_quota_is_free(engine):
    engine.observe(WorkloadPending(workload("w", 6, TopologyRequest(unconstrained=True))), now=1.0)
    engine.settle(1.0)
    engine.observe(WorkloadPending(workload("urgent", 2, TopologyRequest(required=HOSTNAME), priority=1)), now=2.0)
    assert [evict.workload.name for evict in engine.settle(2.0).evicted] == ["w"]


def test_another_node_takes_the_place_of_a_failed_one(engine):
    engine.observe(WorkloadPending(workload("w", 3, TopologyRequest(preferred="rack"))), now=1.0)
    engine.settle(1.0)
    engine.observe(NodeChanged(replace(node("a2", "a"), ready=False)), now=2.0)
    engine.observe(NodesFailed("w", ("a2",)), now=2.0)
    (reassign,) = engine.settle(2.0).reassigned
    assert domains(reassign.admission) == ((("a1",), 2), (("b1",), 1))
    assert engine.wake_at() is None


def test_workload_is_evicted_if_no_node_of_its_rack_can_take_the_place(engine):
    engine.observe(WorkloadPending(workload("w", 3, TopologyRequest(required="rack"))), now=1.0)
    engine.settle(1.0)
    engine.observe(NodeChanged(replace(node("a2", "a"), ready=False)), now=2.0)
    engine.observe(NodesFailed("w", ("a2",)), now=2.0)
    (evict,) = engine.settle(2.0).evicted
    assert evict.reason == "NodeFailures"
    assert "no replacement for unhealthy node(s): a2" in evict.message


def test_occupancy_says_what_is_free_out_and_running(engine):
    engine.observe(WorkloadPending(workload("w", 3, TopologyRequest(required="rack"))), now=1.0)
    engine.settle(1.0)
    engine.observe(NodeChanged(replace(node("b1", "b"), ready=False)), now=2.0)
    engine.observe(NodeChanged(node("b2", "b")), now=2.0)
    engine.observe(PodBound("other", "b2", {"cpu": 500}), now=2.0)
    found = engine.occupancy("gpu")()
    assert [(one.name, one.why, one.values) for one in found.out] == [("b1", "is not ready", ("b", "b1"))]
    racks, nodes = found.by_level
    rows = [(rack.values, rack.nodes, rack.out, rack.whole, rack.free["cpu"]) for rack in racks]
    assert rows == [(("a",), 2, 0, 0, 1000), (("b",), 2, 1, 0, 1500)]
    assert [(leaf.values[-1], leaf.runs) for leaf in nodes] == [
        ("a1", [(0, 2)]),
        ("a2", [(0, 1)]),
        ("b1", []),
        ("b2", []),
    ]
    assert [held.workload.name for held in found.workloads] == ["w"]
    assert (found.total.capacity, found.total.used, found.total.others) == ({"cpu": 6000}, {"cpu": 3000}, {"cpu": 500})
    assert found.most_free(0, "cpu").values == ("b",)
    assert found.most_whole(0) is None
    assert engine.occupancy("unknown") is None


def test_explanation_says_where_most_room_is_who_is_there_what_is_out_and_what_helps(engine):
    engine.observe(NamespaceChanged("other", {}), now=0.0)
    manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "cq"}}
    lines = {**manifest, "metadata": {"name": "queue", "namespace": "other"}}
    engine.observe(QueueObjectChanged(parse_manifest(lines)), now=0.0)
    engine.observe(NodeChanged(node("a3", "a")), now=1.0)
    engine.observe(NodeChanged(replace(node("b2", "b"), ready=False)), now=1.0)
    engine.observe(PodBound("p", "a3", {"cpu": 500}), now=1.0)
    mine, theirs = (
        workload("w", 2, TopologyRequest(required="rack")),
        workload("o", 1, TopologyRequest(required="rack")),
    )
    racked = {"node_selector": {"rack": "a"}}  # or else it would take the smaller rack
    for each in (mine, replace(theirs, namespace="other")):
        pod_sets = (replace(each.pod_sets[0], **racked),)
        engine.observe(WorkloadPending(replace(each, pod_sets=pod_sets)), now=1.0)
    assert len(engine.settle(1.0).admitted) == 2
    engine.observe(WorkloadPending(workload("late", 4, TopologyRequest(required="rack"))), now=2.0)
    engine.settle(2.0)
    found = engine.explain("late")
    assert found.reason == "WaitingForQuota"
    assert found.placement == (
        "The best rack is a: there is room for 2 of 4 pods of main: 2.5 CPU of 6 CPU free.",
        (
            "There run ns/w (2 CPU), 1 workload of other namespaces (1 CPU), "
            "pods that are not placed by topology (0.5 CPU)."
        ),
        "Nodes that are out: b2 (b) is not ready.",
        "It would fit once ns/w has ended, or if its pods could be anywhere, or with 2 pods.",
    )
    engine.observe(WorkloadPending(workload("anywhere", 6, TopologyRequest(unconstrained=True))), now=3.0)
    engine.settle(3.0)
    (first, *_) = engine.explain("anywhere").placement
    assert first.startswith("On all nodes of the flavor gpu there is room for 4 of 6 pods")
    engine.observe(WorkloadGone(mine.uid), now=4.0)
    engine.settle(4.0)
    assert engine.explain("late").placement == ()


def test_explanation_of_a_workload_that_waits_for_another_node_says_where_there_is_room(engine):
    engine.observe(WorkloadPending(workload("w", 2, TopologyRequest(required="rack"))), now=1.0)
    engine.observe(WorkloadPending(workload("ww", 4, TopologyRequest(required="rack"))), now=1.0)
    admitted = {admit.workload.name: admit.admission for admit in engine.settle(1.0).admitted}
    assert [domain.values for domain in domains(admitted["w"])] == [("b1",)]
    engine.observe(NodeChanged(replace(node("b1", "b"), ready=False)), now=2.0)
    engine.observe(NodesFailed("w", ("b1",)), now=2.0)
    assert engine.settle(2.0).unplaced
    found = engine.explain("w")
    assert found.state == "Admitted"
    assert found.placement[0] == "The best rack is a: there is room for 0 of 2 pods of main: 0 CPU of 4 CPU free."
    assert "b1 (b) is not ready" in found.placement[2]


def test_preemption_tries_few_places_among_many_candidates(engine):
    """160 workloads, each on a node of its own; the urgent one needs a whole rack."""
    drawn = Random(1)
    racks = [number // 4 for number in range(160)]
    drawn.shuffle(racks)
    for name in ("a1", "a2", "b1"):
        engine.observe(NodeDeleted(name), now=0.0)
    for number, rack in enumerate(racks):
        name = f"n{number:03}"
        pods = PodSetAssignment(
            "main", {"cpu": "gpu"}, {"cpu": 500}, 1, TopologyAssignment((HOSTNAME,), (DomainCount((name,), 1),))
        )
        admitted = replace(workload(name, 1, None), pod_sets=(PodSet("main", 1, {"cpu": 500}),))
        engine.observe(NodeChanged(node(name, f"r{rack:02}", 1000)), now=0.0)
        engine.observe(WorkloadAdmitted(admitted, Admission("cq", (pods,)), float(number)), now=0.0)
    engine.settle(1.0)
    engine.observe(WorkloadPending(workload("urgent", 4, TopologyRequest(required="rack"), priority=1)), now=2.0)
    tries = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal tries
        tries += event == "call" and frame.f_code is Placer.search.__code__

    sys.setprofile(note)
    try:
        decisions = engine.settle(2.0)
    finally:
        sys.setprofile(None)
    newest_first = racks[::-1]
    taken = next(number for number in range(1, 161) if max(Counter(newest_first[:number]).values()) == 4)
    rack = newest_first[taken - 1]
    assert {evict.workload.name for evict in decisions.evicted} == {
        f"n{number:03}" for number, own in enumerate(racks) if own == rack
    }
    assert taken > 60
    assert tries < 10


def test_nodes_of_a_cluster_that_was_built_anew_replace_the_former_ones(engine):
    engine.observe(PodBound("other", "b1", {"cpu": 1000}), now=1.0)
    engine.observe(NodesListed("elsewhere"), now=1.0)
    engine.observe(NodesListed(), now=1.0)
    for name, rack in (("a1", "a"), ("b1", "b")):
        engine.observe(NodeChanged(node(name, rack)), now=1.0)
    for name in ("first", "other"):  # each needs a whole node: the pod is gone, too
        engine.observe(WorkloadPending(workload(name, 2, TopologyRequest(required="rack"))), now=1.0)
    engine.observe(WorkloadPending(workload("third", 1, None)), now=1.0)
    decisions = engine.settle(1.0)
    assert {domains(admit.admission)[0].values for admit in decisions.admitted} == {("a1",), ("b1",)}
    assert [park.workload.uid for park in decisions.parked] == ["third"]  # a2 is gone
