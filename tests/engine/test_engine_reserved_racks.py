"""Reservations of racks: who gets their nodes, what is said beforehand of what is in the way, and which are chosen."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import (
    Engine,
    NodeChanged,
    NodesFailed,
    Policy,
    QueueObjectDeleted,
    Reservations,
    TopologyRules,
)
from admission.engine.topology.nodes import NodeState
from admission.model.errors import InvalidObject
from admission.model.sentences import time
from admission.model.topology import HOSTNAME, TopologyRequest
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

NOW, HOUR = 1_796_112_000.0, 3600  # 2026-12-01T08:00:00Z
START, END = NOW + 2 * HOUR, NOW + 6 * HOUR
ANYWHERE = {"topology": TopologyRequest(unconstrained=True)}
IN_A_RACK = {"topology": TopologyRequest(required="rack")}


def node(rack: str, number: int, **fields) -> NodeState:
    name = f"{rack}-{number}"
    return NodeState(name, {"pool": "p", "rack": rack, HOSTNAME: name}, {"cpu": 2000, "pods": 10}, **fields)


def reservation(name: str = "bench", *, cpu: int = 4, domains=("r2",), level: str = "rack", count: int = 0, **spec):
    topology = {"level": level, "count": count or len(domains), "domains": [*domains]}
    quotas = [{"flavor": "default", "resource": "cpu", "amount": cpu}]
    given = {"clusterQueue": "q", "quotas": quotas, "holders": {"users": ["ann"]}, "topology": topology}
    return manifest("Reservation", name, {**given, "start": time(START)[:-1], "end": time(END)[:-1], **spec})


@pytest.fixture
def world() -> World:
    return _world()


def _world() -> World:
    """Two racks, each with two nodes of two CPUs."""
    world = World(engine=Engine(Policy(topology=TopologyRules(), policies=(Reservations(),))))
    world.tell(
        manifest("Topology", "t", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]}),
        manifest("ResourceFlavor", "default", {"nodeLabels": {"pool": "p"}, "topologyName": "t"}),
        cluster_queue("q", 100),
        local_queue("q"),
    )
    world.now = NOW
    for rack in ("r1", "r2"):
        for number in (1, 2):
            world.engine.observe(NodeChanged(node(rack, number)), now=world.now)
    return world


def started(world: World) -> dict[str, list[str]]:
    """Decide, and return the nodes of what is admitted."""
    found = {}
    for admit in world.engine.settle(world.now).admitted:
        topology = admit.admission.pod_sets[0].topology
        assert topology is not None
        found[admit.workload.name] = sorted(domain.values[-1] for domain in topology.domains)
    return found


def why(world: World, name: str) -> tuple[str, str]:
    explained = world.engine.explain(name)
    assert explained is not None
    return explained.reason, explained.message


def obstacles(world: World) -> dict[str, str]:
    return dict(world.engine.reserved_domains.obstacles())


def test_rack_is_free_at_its_start_and_its_holder_gets_it(world):
    world.tell(reservation())
    world.submit(
        workload("long", "q", 2, pods=ANYWHERE, created=1.0),  # has no time limit
        workload("later", "q", 2, pods=ANYWHERE, max_seconds=3 * HOUR, created=2.0),
        workload("other", "q", 2, pods=ANYWHERE, max_seconds=3 * HOUR, created=3.0),
        workload("short", "q", 2, pods=ANYWHERE, max_seconds=2 * HOUR, created=4.0),
    )
    found = started(world)
    assert sorted((*found["long"], *found["later"])) == ["r1-1", "r1-2"]
    assert found["short"][0].startswith("r2-"), "short work fills the rack until its start"
    assert "other" not in found
    reason, message = why(world, "other")
    assert reason == "ReservedForOthers"
    assert message == (
        "Reservation bench keeps the nodes of rack r2 from 2026-12-01 10:00:00 to 2026-12-01 14:00:00 (UTC). "
        "This may run until then: its time limit is 10800s."
    )
    assert obstacles(world) == {}

    world.gone("short")
    world.now = START
    world.submit(workload("brief", "q", 2, pods=ANYWHERE, max_seconds=60))
    assert started(world) == {}, "it has begun"
    assert why(world, "brief")[1].endswith("(UTC).")
    world.submit(workload("holder", "q", 2, user="ann", count=2, pods=IN_A_RACK))
    assert started(world) == {"holder": ["r2-1", "r2-2"]}
    world.gone("holder")
    assert started(world) == {}
    assert world.engine.wake_at() == END
    world.now = END
    assert sorted(started(world)) == ["brief", "other"]


def test_what_is_in_the_way_is_said_beforehand_and_runs_on_or_is_evicted(world):
    world.submit(
        workload("endless", "q", 2, count=2, pods=IN_A_RACK, created=1.0),
        workload("short", "q", 2, pods=ANYWHERE, max_seconds=HOUR, created=2.0),
        workload("ann", "q", 2, user="ann", pods=ANYWHERE, created=3.0),
    )
    rack = started(world)["endless"][0][:2]
    kept = f"Reservation bench keeps the nodes of rack {rack} from 2026-12-01 10:00:00 to 2026-12-01 14:00:00 (UTC)."
    told = f"{kept} 1 workload has pods there and may not have ended then: ns/endless."
    world.tell(reservation(domains=[rack]))
    assert world.engine.settle(world.now).evicted == ()
    assert obstacles(world) == {"bench": f"{told} They run on, and their nodes are not free until they end."}
    explained = world.engine.explain("endless")
    assert explained is not None
    assert explained.drained == f"It runs there. {kept} It may run until it ends."

    world.tell(reservation(domains=[rack], atStart="Preempt"))
    assert obstacles(world) == {"bench": f"{told} They are evicted then."}
    assert world.engine.settle(world.now).evicted == ()
    world.now = START
    (evict,) = world.engine.settle(world.now).evicted
    assert (evict.workload.name, evict.reason, evict.message) == ("endless", "ReservationStarted", kept)
    world.gone("endless", requeue=evict.workload)
    world.gone("short")
    other = "r1" if rack == "r2" else "r2"
    world.gone("ann")
    assert started(world)["endless"] == [f"{other}-1", f"{other}-2"]


def test_rack_with_least_in_the_way_is_chosen_and_none_twice(world):
    world.submit(workload("endless", "q", 2, pods=ANYWHERE))
    rack = started(world)["endless"][0][:2]
    free, used = ("r2", "r1") if rack == "r1" else ("r1", "r2")
    world.tell(
        reservation("first", domains=(), count=1), reservation("second", domains=(), count=1, cpu=2),
        reservation("third", domains=(), count=1, cpu=2), reservation("large", domains=(), count=1, cpu=5),
        reservation("elsewhere", domains=(), count=1, level="block"),
    )  # fmt: skip
    choices = dict(world.engine.reserved_domains.choices())
    assert (choices["first"], choices["second"]) == ((free,), (used,))
    assert choices["third"] == (
        "Reservation third keeps no nodes yet: it needs 1 of rack, each with room for its part of what is reserved and "
        "in no other Reservation of that time; there are 0."
    )
    assert "there are 0" in choices["large"]
    assert "no flavor has a Topology with the level block" in choices["elsewhere"]
    for name in ("first", "second", "third", "large", "elsewhere"):
        world.engine.observe(QueueObjectDeleted("Reservation", "", name), now=world.now)
    world.tell(reservation("both", domains=(), count=2, cpu=8))
    assert dict(world.engine.reserved_domains.choices()) == {"both": (free, used)}
    world.tell(reservation("wrong", domains=("r9",)))
    assert obstacles(world)["wrong"] == (
        "Reservation wrong keeps no nodes: there is no rack r9 with a node of its flavors."
    )


def test_no_pod_is_placed_in_a_reserved_rack_for_a_failed_node(world):
    world.submit(workload("endless", "q", 2, pods=ANYWHERE))
    (failed,) = started(world)["endless"]
    rack, other = failed[:2], "r1" if failed[:2] == "r2" else "r2"
    world.tell(reservation(domains=[other]))
    world.submit(workload("fills", "q", 2, pods=ANYWHERE))
    assert started(world)["fills"][0][:2] == rack
    world.engine.observe(NodeChanged(node(rack, int(failed[-1]), ready=False)), now=world.now)
    world.engine.observe(NodesFailed("endless", (failed,)), now=world.now)
    assert world.engine.settle(world.now).reassigned == ()
    world.engine.observe(QueueObjectDeleted("Reservation", "", "bench"), now=world.now)
    world.now = world.engine.wake_at() or 0
    (reassign,) = world.engine.settle(world.now).reassigned
    topology = reassign.admission.pod_sets[0].topology
    assert topology is not None
    assert topology.domains[0].values[-1][:2] == other


def test_released_reservation_gives_its_rack_back(world):
    world.tell(reservation(domains=("r1", "r2"), cpu=8))
    world.submit(workload("waits", "q", 2, pods=ANYWHERE))
    assert started(world) == {}
    world.tell(reservation(domains=("r1", "r2"), cpu=8, releasedAt="2026-12-01T08:00:00Z"))
    assert [*started(world)] == ["waits"]


JOBS = st.tuples(
    st.integers(0, 5 * HOUR),  # when it is submitted, before and after the Reservation is written
    st.one_of(st.none(), st.integers(600, 5 * HOUR)),  # time limit
    st.integers(1, 2),  # pods
    st.sampled_from(["ann", "bob", "eve"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(JOBS, max_size=12), st.sampled_from(["r1", "r2"]), st.booleans())
def test_rack_is_free_at_its_start_or_it_was_said_what_is_in_the_way(jobs, rack, preempts):
    world, runs, said = _world(), {}, ""
    world.now = NOW - 2 * HOUR - 1
    written_at = NOW - HOUR
    arrivals = {NOW - 2 * HOUR + at for at, *_ in jobs}
    while world.now < START:
        due = (*arrivals, written_at, START, *(until for until, _ in runs.values()))
        world.now = min(at for at in due if at > world.now)
        if world.now == written_at:
            world.tell(reservation(domains=[rack], atStart="Preempt" if preempts else "Wait"))
        for name in [name for name, (until, _) in runs.items() if until <= world.now]:
            del runs[name]
            world.gone(name)
        for number, (at, limit, pods, user) in enumerate(jobs):
            if NOW - 2 * HOUR + at == world.now < START:
                job = workload(f"{number}", "q", 2, count=pods, user=user, pods=ANYWHERE, max_seconds=limit)
                world.submit(job)
        if world.now < START:
            for name, hosts in started(world).items():
                _, limit, _, user = jobs[int(name)]
                runs[name] = inf if limit is None else world.now + limit, [] if user == "ann" else hosts
            said = obstacles(world).get("bench", "")
    there = {name for name, (_, hosts) in runs.items() if any(host.startswith(rack) for host in hosts)}
    assert (f"{len(there)} workload" in said) if there else not said
    evicted = {evict.workload.name for evict in world.engine.settle(world.now).evicted}
    assert evicted == (there if preempts else set())


def test_faults_of_a_topology_are_named():
    with pytest.raises(InvalidObject, match=r"spec\.topology\.domains: has 1, and count is 2"):
        reservation(count=2)
