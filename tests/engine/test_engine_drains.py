"""Drains of flavors and nodes: what starts there, what is evicted when, and what a waiting workload is told."""

from __future__ import annotations

import pytest

from admission.engine import (
    Decisions,
    Engine,
    NodeChanged,
    Policy,
    QueueObjectChanged,
    QueueObjectDeleted,
    TopologyRules,
    WorkloadAdmitted,
)
from admission.engine.topology.nodes import NodeState
from admission.model.errors import InvalidObject
from admission.model.sentences import time
from admission.model.topology import HOSTNAME, TopologyRequest
from admission.model.workload import NodeRequirement
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

NOW = 1000.0


def drain(*flavors: str, nodes: tuple[str, ...] = (), start: float | None = None, end: float | None = None):
    spec = {"flavors": [*flavors], "nodes": [*nodes], "reason": "new switch"}
    times = {name: time(at) for name, at in (("startTime", start), ("deadline", end)) if at is not None}
    return manifest("Drain", "d", {**spec, **times})


def scene(quota: dict[str, int] | None = None, **fields) -> World:
    world = World(manifest("ResourceFlavor", "spare", {}))
    world.tell(cluster_queue("q", quota or {"default": 4, "spare": 4}, **fields), local_queue("q"))
    return world


def undrain(world: World) -> None:
    world.engine.observe(QueueObjectDeleted("Drain", "", "d"), now=world.now)


def settle(world: World) -> Decisions:
    return world.engine.settle(world.now)


def flavor_of(decisions: Decisions) -> dict[str, str]:
    return {admit.workload.name: admit.admission.pod_sets[0].flavors["cpu"] for admit in decisions.admitted}


def why(world: World, name: str) -> tuple[str, str]:
    explained = world.engine.explain(name)
    assert explained is not None
    return explained.reason, explained.message


def test_nothing_starts_in_a_drained_flavor():
    world = scene()
    world.tell(drain("default"))
    world.submit(workload("w", "q"))
    assert flavor_of(settle(world)) == {"w": "spare"}
    world.submit(workload("x", "q", 4))
    assert not settle(world).admitted
    assert why(world, "x") == ("Drained", "Flavor default is drained: new switch.")
    undrain(world)
    assert flavor_of(settle(world)) == {"x": "default"}
    world.tell(drain("default"))
    world.submit(workload("y", "q", 4))
    reason, message = why(world, "y")
    assert reason == "WaitingForQuota"
    assert "Flavor default is drained: new switch." in message


def test_workload_is_told_that_all_of_its_flavors_are_drained():
    world = scene({"default": 4})
    world.tell(drain("default"))
    world.submit(workload("w", "q"))
    assert not settle(world).admitted
    assert why(world, "w") == ("Drained", "Flavor default is drained: new switch.")
    (park,) = [park for park in world.engine.reasons(9) if park.workload.name == "w"]
    assert park.reason == "Drained"


def test_running_workload_runs_on_until_the_deadline():
    world = scene()
    world.submit(workload("w", "q"))
    settle(world)
    world.tell(drain("default", end=NOW + 600))
    assert not settle(world)
    explained = world.engine.explain("w")
    assert explained is not None
    assert explained.drained == (
        "What it runs on is drained by Drain d: new switch; it is evicted at 1970-01-01T00:26:40Z if it still runs."
    )
    assert world.engine.wake_at() == NOW + 600
    world.now = NOW + 600
    (evict,) = settle(world).evicted
    assert (evict.workload.name, evict.reason) == ("w", "Drained")
    assert "The deadline of Drain d has passed: new switch" in evict.message
    assert not settle(world).evicted
    world.gone("w", requeue=workload("w", "q"))
    assert flavor_of(settle(world)) == {"w": "spare"}


def test_without_a_deadline_nobody_is_evicted():
    world = scene()
    world.submit(workload("w", "q"))
    settle(world)
    world.tell(drain("default", start=NOW + 10))
    world.now = NOW + 10_000
    assert not settle(world).evicted


def test_deadline_that_passed_before_a_start_is_kept():
    world = scene()
    world.submit(workload("w", "q"))
    (admit,) = settle(world).admitted
    other = scene()
    other.tell(drain("default", end=NOW - 10))
    other.engine.observe(WorkloadAdmitted(admit.workload, admit.admission, at=NOW - 500), now=NOW)
    assert [evict.reason for evict in settle(other).evicted] == ["Drained"]


def test_only_what_ends_before_the_maintenance_starts():
    """Also where workloads differ in their time limit alone."""
    world = scene({"default": 4})
    world.tell(drain("default", start=NOW + 600))
    world.submit(
        workload("none", "q", created=1.0),
        workload("long", "q", max_seconds=601, created=2.0),
        workload("short", "q", max_seconds=500, created=3.0),
        workload("same", "q", max_seconds=600, created=4.0),
    )
    assert flavor_of(settle(world)) == {"short": "default", "same": "default"}
    assert why(world, "long")[0] == "Drained"
    assert "only what ends before" in why(world, "long")[1]
    world.now = NOW + 200
    world.submit(workload("late", "q", max_seconds=500))
    world.gone("short")
    assert not settle(world).admitted
    undrain(world)
    assert sorted(flavor_of(settle(world))) == ["late", "long", "none"]


def test_many_that_may_not_start_are_looked_at_once():
    world = scene({"default": 1000})
    world.tell(drain("default", start=NOW + 600))
    world.submit(*(workload(f"w{number}", "q", created=number) for number in range(200)))
    assert settle(world).cycles < 10
    world.submit(workload("short", "q", max_seconds=9, created=500.0))
    decisions = settle(world)
    assert flavor_of(decisions) == {"short": "default"}
    assert decisions.cycles < 10


def test_maintenance_begins_also_if_nothing_else_happens():
    world = scene()
    world.tell(drain("default", start=NOW + 600))
    world.submit(workload("w", "q", max_seconds=60))
    assert flavor_of(settle(world)) == {"w": "default"}
    assert world.engine.wake_at() == NOW + 600
    world.now = NOW + 601
    world.submit(workload("x", "q", max_seconds=1))
    assert flavor_of(settle(world)) == {"x": "spare"}


def test_workload_does_not_move_into_a_drained_flavor():
    world = scene(concurrentAdmissionPolicy={})
    world.submit(workload("old", "q", 4, created=1.0), workload("w", "q", 4, created=2.0))
    settle(world)
    world.tell(drain("default"))
    world.gone("old")
    assert not settle(world).evicted
    undrain(world)
    assert [evict.reason for evict in settle(world).evicted] == ["FlavorMigration"]


def node(name: str) -> NodeState:
    return NodeState(name, {"rack": "r", HOSTNAME: f"host-{name}"}, {"cpu": 2000, "pods": 10})


@pytest.fixture
def placed() -> World:
    world = World(engine=Engine(Policy(topology=TopologyRules())))
    world.tell(
        manifest("Topology", "t", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]}),
        manifest("ResourceFlavor", "default", {"nodeLabels": {"rack": "r"}, "topologyName": "t"}),
        cluster_queue("q", 100),
        local_queue("q"),
    )
    for name in ("n1", "n2"):
        world.engine.observe(NodeChanged(node(name)), now=world.now)
    return world


def hosts(decisions: Decisions) -> list[str]:
    found = []
    for admit in decisions.admitted:
        topology = admit.admission.pod_sets[0].topology
        assert topology is not None
        found += [domain.values[-1] for domain in topology.domains]
    return sorted(found)


REQUEST = {"topology": TopologyRequest(unconstrained=True)}


def test_drained_node_gets_no_pods(placed):
    placed.tell(drain(nodes=("n1",)))
    placed.submit(workload("w", "q", 2, pods=REQUEST), workload("x", "q", 2, pods=REQUEST, created=1.0))
    assert hosts(settle(placed)) == ["host-n2"]
    placed.engine.observe(NodeChanged(node("n1")), now=placed.now)
    assert not settle(placed).admitted, "its heartbeat is no end of the drain"
    undrain(placed)
    assert hosts(settle(placed)) == ["host-n1"]


def test_workloads_on_a_drained_node_are_evicted_at_the_deadline(placed):
    placed.submit(workload("w", "q", 2, pods=REQUEST), workload("x", "q", 2, pods=REQUEST, created=1.0))
    placed_on = {admit.workload.name: hosts(Decisions(admitted=(admit,)))[0] for admit in settle(placed).admitted}
    placed.tell(drain(nodes=("n1",), end=NOW + 60))
    assert not settle(placed).evicted
    placed.now = NOW + 60
    evicted = [evict.workload.name for evict in settle(placed).evicted]
    assert [placed_on[name] for name in evicted] == ["host-n1"]


@pytest.mark.parametrize("affinity", [None, ((NodeRequirement("rack", "Exists"),),)])
def test_node_is_used_until_its_maintenance_by_what_ends_before(placed, affinity):
    pods = {**REQUEST, "affinity": affinity}
    placed.tell(drain(nodes=("n1", "n2"), start=NOW + 600))
    placed.submit(
        workload("long", "q", 2, pods=pods, max_seconds=601, created=1.0),
        workload("short", "q", 2, pods=pods, max_seconds=600, created=2.0),
    )
    decisions = settle(placed)
    assert [admit.workload.name for admit in decisions.admitted] == ["short"]
    reason, message = why(placed, "long")
    assert reason == "Drained"
    assert message == "Nodes are drained on which it would not have ended in time (n1, n2): new switch."
    undrain(placed)
    assert [admit.workload.name for admit in settle(placed).admitted] == ["long"]


def test_what_a_workload_requires_of_nodes_holds_beside_a_drain(placed):
    not_there = ((NodeRequirement(HOSTNAME, "NotIn", ("host-n2",)),),)
    placed.tell(drain(nodes=("n1",), start=NOW + 600))
    placed.submit(workload("long", "q", 2, pods={**REQUEST, "affinity": not_there}, max_seconds=601))
    assert not settle(placed).admitted
    undrain(placed)
    assert hosts(settle(placed)) == ["host-n1"]


def test_drain_without_anybody_who_waits_costs_no_further_cycle():
    world = scene()
    world.tell(drain("default"))
    settle(world)
    assert world.engine.wake_at() is None


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({}, "spec.nodes: give nodes, flavors or both"),
        ({"nodes": ["n"], "deadline": "18:00"}, 'spec.deadline: "18:00" is no instant; write it as'),
        ({"nodes": ["n"], "deadline": "2026-11-30T18:00:00"}, "with a zone"),
        (
            {"nodes": ["n"], "startTime": "2026-11-30T18:00:00Z", "deadline": "2026-11-30T17:00:00Z"},
            "spec.deadline: 2026-11-30T17:00:00Z is before the startTime",
        ),
    ],
)
def test_faults_are_named(spec, fault):
    with pytest.raises(InvalidObject, match=fault):
        manifest("Drain", "d", spec)


def test_drain_may_be_changed(placed):
    placed.engine.observe(QueueObjectChanged(drain(nodes=("n1",))), now=placed.now)
    placed.engine.observe(QueueObjectChanged(drain(nodes=("n2",))), now=placed.now)
    placed.submit(workload("w", "q", 2, pods=REQUEST))
    assert hosts(settle(placed)) == ["host-n1"]
