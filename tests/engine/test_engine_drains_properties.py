"""Drains under any sequence of events: nothing starts where it may not, and nothing runs on beyond a deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.engine import (
    Engine,
    NodeChanged,
    Policy,
    QueueObjectDeleted,
    TopologyRules,
    WorkloadGone,
)
from admission.engine.topology.nodes import NodeState
from admission.model.sentences import time
from admission.model.topology import HOSTNAME, TopologyRequest
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

_NODES = ("n0", "n1", "n2")
_FLAVORS = ("racks", "one", "two")

# Multiples and their neighbours, so that limits often end just at the beginning of a maintenance, or a second later.
_SECONDS = st.builds(lambda n, more: 50 * n + more, st.integers(1, 6), st.sampled_from((0, 0, 1)))
_INSTANT = st.none() | st.just(0) | _SECONDS
_DRAIN = st.tuples(
    st.sampled_from(("d0", "d1")),
    st.sets(st.sampled_from(_NODES)),
    st.sets(st.sampled_from(_FLAVORS), max_size=2),
    _INSTANT,
    _INSTANT,
)
_EVENT = st.one_of(
    st.tuples(st.just("submit"), st.tuples(st.sampled_from(("placed", "plain")), st.none() | _SECONDS)),
    st.tuples(st.just("drain"), _DRAIN),
    st.tuples(st.just("undrain"), st.sampled_from(("d0", "d1"))),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("wait"), _SECONDS),
)


class Model:
    """An engine, the Drains that are in force, and what holds quota where."""

    def __init__(self) -> None:
        self.world = World(engine=Engine(Policy(topology=TopologyRules())))
        self.world.tell(
            manifest("Topology", "t", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]}),
            manifest("ResourceFlavor", "racks", {"nodeLabels": {"rack": "r"}, "topologyName": "t"}),
            *(manifest("ResourceFlavor", name, {}) for name in ("one", "two")),
            cluster_queue("placed", {"racks": 6}),
            cluster_queue("plain", {"one": 2, "two": 2}),
            local_queue("placed"),
            local_queue("plain"),
        )
        for name in _NODES:
            node = NodeState(name, {"rack": "r", HOSTNAME: f"host-{name}"}, {"cpu": 2000, "pods": 10})
            self.world.engine.observe(NodeChanged(node), now=self.world.now)
        self.drains: dict[str, tuple[set[str], float | None, float | None]] = {}
        """What each Drain names, when its maintenance begins, and its deadline."""
        self.holds: dict[str, tuple[set[str], int | None]] = {}
        """What each workload that runs uses, and its time limit in seconds."""
        self.evicted: set[str] = set()
        self.number = 0

    def apply(self, what: str, value) -> None:
        match what:
            case "submit":
                queue, limit = value
                self.number += 1
                pods = {"topology": TopologyRequest(unconstrained=True)} if queue == "placed" else {}
                name, created = f"w{self.number}", float(self.number)
                self.world.submit(workload(name, queue, 1, pods=pods, max_seconds=limit, created=created))
            case "drain":
                self.drain(*value)
            case "undrain":
                self.world.engine.observe(QueueObjectDeleted("Drain", "", value), now=self.world.now)
                self.drains.pop(value, None)
            case "end" if value < len(self.holds):
                uid = [*self.holds][value]
                del self.holds[uid]
                self.evicted.discard(uid)
                self.world.engine.observe(WorkloadGone(uid), now=self.world.now)
            case "wait":
                self.wait(self.world.now + value)
        self.settle()

    def drain(self, name: str, nodes: set[str], flavors: set[str], start: int | None, end: int | None) -> None:
        if not nodes and not flavors:
            return
        begins = None if start is None else self.world.now + start
        deadline = None if end is None else (begins or self.world.now) + end
        times = {"startTime": begins, "deadline": deadline}
        written = {key: time(at) for key, at in times.items() if at is not None}
        self.world.tell(manifest("Drain", name, {"nodes": sorted(nodes), "flavors": sorted(flavors), **written}))
        self.drains[name] = nodes | flavors, begins, deadline

    def wait(self, until: float) -> None:
        """Let time pass, and have the engine decide when it wants to."""
        while (due := self.world.engine.wake_at()) is not None and due <= until:
            self.world.now = max(self.world.now, due)
            self.settle()
        self.world.now = until

    def settle(self) -> None:
        now = self.world.now
        decisions = self.world.engine.settle(now)
        for admit in decisions.admitted:
            (pod_set,) = admit.admission.pod_sets
            domains = pod_set.topology.domains if pod_set.topology is not None else ()
            used = {*pod_set.flavors.values(), *(each.values[-1].removeprefix("host-") for each in domains)}
            limit = admit.workload.max_seconds
            for drained, begins, _ in self.drains.values():
                ends_before = begins is not None and limit is not None and now + limit <= begins
                assert not drained & used or ends_before, (admit, self.drains)
            self.holds[admit.workload.uid] = used, limit
        for evict in decisions.evicted:
            used, _ = self.holds[evict.workload.uid]
            assert any(drained & used and end is not None and end <= now for drained, _, end in self.drains.values())
            assert evict.workload.uid not in self.evicted, "evicted twice"
            self.evicted.add(evict.workload.uid)
        for uid, (used, _) in self.holds.items():
            late = any(drained & used and end is not None and end <= now for drained, _, end in self.drains.values())
            assert uid in self.evicted or not late, f"{uid} runs on"


@pytest.mark.costly
@given(st.lists(_EVENT, max_size=30))
def test_nothing_starts_where_it_is_drained_and_nothing_runs_on_beyond_a_deadline(events):
    model = Model()
    for what, value in events:
        model.apply(what, value)
    model.wait(model.world.now + 1000)
