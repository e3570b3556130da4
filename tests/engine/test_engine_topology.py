"""Placement by topology: no node holds more than it can, and the tree agrees with one built anew."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import FrameType, SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from admission.engine.topology.counting import requests_of
from admission.engine.topology.nodes import NodeState, PodRules
from admission.engine.topology.placement import NO_LEVEL, Placed, Question, Rules, place
from admission.engine.topology.replacement import beyond, replace_node, resize
from admission.engine.topology.state import PlacedPods, Topologies, TreeSpec
from admission.engine.topology.trial import Room, Trial
from admission.model.topology import HOSTNAME, DomainCount, SliceLayer, TopologyAssignment, TopologyRequest
from admission.model.workload import NodeRequirement

LEVELS = ("block", "rack", HOSTNAME)

cpu = st.integers(0, 6).map(lambda n: 1000 * n)
node = st.builds(
    lambda number, rack, room, ready: NodeState(
        f"n{number}",
        {"pool": "a", "block": f"b{rack % 2}", "rack": f"r{rack}", HOSTNAME: f"n{number}"},
        {"cpu": room, "pods": 10},
        ready=ready,
    ),
    st.integers(0, 9),
    st.integers(0, 3),
    cpu,
    st.booleans(),
)
request = st.one_of(
    st.sampled_from(LEVELS).map(lambda level: TopologyRequest(required=level)),
    st.sampled_from(LEVELS).map(lambda level: TopologyRequest(preferred=level)),
    st.just(TopologyRequest(unconstrained=True)),
    st.integers(1, 3).map(lambda size: TopologyRequest(preferred="block", layers=(SliceLayer("rack", size),))),
)
question = st.builds(
    lambda count, amount, wanted, leader: Question(
        count,
        requests_of({"cpu": amount}),
        wanted,
        PodRules(preferences=((5, (NodeRequirement("rack", "In", ("r1", "r2")),)),)),
        requests_of({"cpu": leader}) if leader else None,
    ),
    st.integers(1, 8),
    st.sampled_from((1000, 2000)),
    request,
    st.sampled_from((0, 0, 1000)),
)
rules = st.builds(Rules, mixed=st.booleans(), balanced=st.booleans(), prefers=st.booleans())
event = st.one_of(
    st.tuples(st.just("node"), node),
    st.tuples(st.just("gone"), st.integers(0, 9).map("n{}".format)),
    st.tuples(st.just("pod"), st.tuples(st.integers(0, 5), st.integers(0, 9).map("n{}".format), cpu)),
    st.tuples(st.just("ended"), st.integers(0, 5)),
    st.tuples(st.just("place"), question),
    st.tuples(st.just("leave"), st.integers(0, 5)),
)


class World:
    """Topologies with one flavor, and the placements in it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.topologies = Topologies()
        self.topologies.set_flavors({"f": TreeSpec("t", LEVELS, {"pool": "a"})})
        self.held: list[list[PlacedPods]] = []
        self.pods: dict[int, tuple[str, int]] = {}

    def ask(self, asked: Question) -> Placed | str:
        return place(self.topologies.trees["f"], asked, self.rules)

    def apply(self, what, value) -> None:
        match what:
            case "node":
                self.topologies.node_changed(value)
            case "gone":
                self.topologies.node_gone(value)
            case "pod":
                number, name, amount = value
                self.topologies.pod_bound(str(number), name, {"cpu": amount})
                self.pods[number] = name, amount
            case "ended":
                self.topologies.pod_ended(str(value))
                self.pods.pop(value, None)
            case "place":
                placed = self.ask(value)
                if isinstance(placed, Placed):
                    self.held.append(_pods(placed, value))
                    self.topologies.hold(self.held[-1], 1)
            case "leave" if value < len(self.held):
                self.topologies.hold(self.held.pop(value), -1)

    def anew(self, seed: int) -> World:
        """Return a world with the same nodes, pods and placements, told in another order."""
        other = World(self.rules)
        told = [("node", each) for each in self.topologies.nodes_of().values()]
        told += [("pod", (number, *pod)) for number, pod in self.pods.items()]
        told += [("hold", pods) for pods in self.held]
        Random(seed).shuffle(told)
        for what, value in told:
            if what == "hold":
                other.held.append(value)
                other.topologies.hold(value, 1)
            else:
                other.apply(what, value)
        return other


def _pods(placed: Placed, asked: Question) -> list[PlacedPods]:
    pods = [PlacedPods("f", placed.pods, asked.requests)]
    if placed.leader is not None and asked.leader is not None:
        pods.append(PlacedPods("f", placed.leader, asked.leader))
    return pods


@given(st.lists(event, max_size=25), question, rules, st.integers(0, 99))
def test_answer_is_that_of_a_tree_built_anew_in_any_order(events, asked, rules, seed):
    world = World(rules)
    for what, value in events:
        world.apply(what, value)
        world.ask(asked)  # its counts are kept, and follow the next event
    assert world.ask(asked) == world.anew(seed).ask(asked)
    assert world.ask(asked._replace(empty=True)) == world.anew(seed).ask(asked._replace(empty=True))


@given(st.lists(node, min_size=1, max_size=10), st.lists(question, min_size=1, max_size=8), rules)
def test_no_node_gets_more_than_it_holds(nodes, questions, rules):
    world = World(rules)
    for each in nodes:
        world.topologies.node_changed(each)
    free = {name: dict(each.allocatable) for name, each in world.topologies.nodes_of().items() if each.usable}
    for asked in questions:
        before = len(world.held)
        world.apply("place", asked)
        for pods in world.held[before:]:
            for _, assignment, requests, _ in pods:
                for (name,), count in assignment.domains:
                    for resource, amount in requests:
                        free[name][resource] -= amount * count
                        assert free[name][resource] >= 0


@given(st.lists(node, min_size=1, max_size=10), question, rules)
def test_all_pods_of_a_required_request_are_in_one_domain(nodes, asked, rules):
    world = World(rules)
    for each in nodes:
        world.topologies.node_changed(each)
    placed = world.ask(asked)
    if not isinstance(placed, Placed):
        return
    assert asked.request is not None
    size = asked.request.layers[0].size if asked.request.layers else 1
    assert sum(count for _, count in placed.pods.domains) == asked.number // size * size
    if asked.request.required:
        level = LEVELS.index(asked.request.required) + 1
        labels = [world.topologies.nodes_of()[name].labels for (name,), _ in placed.pods.domains]
        assert len({tuple(own[key] for key in LEVELS[:level]) for own in labels}) == 1


@given(
    st.lists(node, min_size=1, max_size=10),
    question,
    st.integers(1, 8),
)
def test_pods_stay_where_they_are_when_more_are_added(nodes, asked, more):
    world = World(Rules())
    for each in nodes:
        world.topologies.node_changed(each)
    asked = asked._replace(leader=None)
    placed = world.ask(asked)
    if not isinstance(placed, Placed):
        return
    world.topologies.hold(_pods(placed, asked), 1)
    tree = world.topologies.trees["f"]
    whole = resize(tree, asked._replace(number=asked.number + more), placed.pods, Rules())
    if isinstance(whole, str):
        return
    counts = dict(whole.domains)
    assert all(counts[values] >= pods for values, pods in placed.pods.domains)
    added = PlacedPods("f", beyond(whole, placed.pods), asked.requests)
    assert world.topologies.holds([added])
    if asked.request.required:
        level = LEVELS.index(asked.request.required) + 1
        assert len({tree.leaves[values].values[:level] for values in counts}) == 1


@given(
    st.lists(node, min_size=1, max_size=10),
    st.lists(question, min_size=1, max_size=8),
    question,
    rules,
    st.lists(st.integers(0, 7), max_size=20),
)
def test_room_without_some_workloads_is_that_of_the_tree_without_them(nodes, questions, asked, rules, moves):
    world = World(rules)
    for each in nodes:
        world.topologies.node_changed(each)
    for each in questions:
        world.apply("place", each)
    assume(isinstance(world.ask(asked._replace(empty=True)), Placed))
    room = Room(world.topologies.trees["f"], asked, rules)
    parts = [[room.part(pods) for pods in held] for held in world.held]
    gone: set[int] = set()
    for at in moves:
        if at < len(parts):
            gone ^= {at}
            sign = 1 if at in gone else -1
            for part in parts[at]:
                room.change(part, sign)
            world.topologies.charge(world.held[at], -sign)
        fits = isinstance(world.ask(asked), Placed)
        if not rules.balanced:
            assert room.suffices() == fits
        else:
            assert room.suffices() or not fits


class _Other:
    """A workload that is placed, as far as a trial looks at it."""

    def __init__(self, world: World, placed: list[PlacedPods]) -> None:
        self.queue = SimpleNamespace(topologies=world.topologies)
        self.placed = placed


@given(
    st.lists(node, min_size=1, max_size=10),
    st.lists(question, min_size=1, max_size=8),
    st.lists(question, min_size=2, max_size=3),
    rules.map(lambda drawn: replace(drawn, balanced=False)),
    st.lists(st.integers(0, 7), max_size=20),
)
def test_pod_sets_fit_without_some_workloads_as_if_placed_one_after_the_other(nodes, questions, asked, rules, moves):
    _check_trial(nodes, questions, asked, rules, moves)


def _alike(number: int, where: TopologyRequest | None, leader: int = 0) -> Question:
    led_by = requests_of({"cpu": leader}) if leader else None
    return Question(number, requests_of({"cpu": 1000}), where, PodRules(), led_by)


anywhere = TopologyRequest(unconstrained=True)
in_one_domain = st.sampled_from([TopologyRequest(required=level) for level in ("block", "rack", "rack")])


@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=8).map(
        lambda rooms: [
            NodeState(
                f"n{at}",
                {"pool": "a", "block": f"b{at // 4}", "rack": f"r{at // 2}", HOSTNAME: f"n{at}"},
                {"cpu": 1000 * room, "pods": 10},
            )
            for at, room in enumerate(rooms)
        ]
    ),
    st.lists(st.builds(_alike, st.integers(1, 4), st.just(anywhere)), min_size=2, max_size=6),
    st.builds(_alike, st.integers(1, 5), st.just(anywhere) | in_one_domain, st.sampled_from((0, 0, 1000, 2000))),
    st.lists(
        st.builds(_alike, st.integers(1, 5), st.just(anywhere) | in_one_domain, st.sampled_from((0, 0, 0, 1000))),
        max_size=2,
    ),
    st.integers(1, 2),
    st.lists(st.integers(0, 5), min_size=3, max_size=9),
)
def test_pods_that_are_alike_fit_without_some_workloads_as_if_placed_one_after_the_other(
    nodes, questions, one, others, times, moves
):
    _check_trial(nodes, questions, [one] * times + others, Rules(), moves)


def _check_trial(nodes, questions, asked, rules, moves) -> None:
    world = World(rules)
    for each in nodes:
        world.topologies.node_changed(each)
    for each in questions:
        world.apply("place", each)
    asked = [each for each in asked if isinstance(world.ask(each._replace(empty=True)), Placed)]
    assume(asked)
    others = [_Other(world, held) for held in world.held]

    def rooms() -> list[tuple[str, Room]]:
        known = {each: Room(world.topologies.trees["f"], each, world.rules) for each in asked}
        return [("f", known[each]) for each in asked]

    trial = Trial(world.topologies, rooms, lambda: _in_turn(world, asked[:-1]), in_turn=True)
    gone: dict[int, None] = {}
    for at in [number for number in moves if number < len(others)]:
        if at in gone:
            del gone[at]
        else:
            gone[at] = None
        trial.change(others[at], gone=at in gone)
        fits = trial.fits()
        fresh = world.anew(0)
        for each in gone:
            fresh.topologies.hold(others[each].placed, -1)
        assert fits == (_in_turn(fresh, asked) is not None)
    for at in [*gone]:
        trial.change(others[at], gone=False)
    assert [world.ask(each) for each in asked] == [world.anew(0).ask(each) for each in asked]


def _in_turn(world: World, asked: list[Question]) -> list[PlacedPods] | None:
    """Place pod sets one after the other, for the moment; None: one has no place."""
    found: list[PlacedPods] = []
    for each in asked:
        placed = world.ask(each)
        if not isinstance(placed, Placed):
            break
        for pods in _pods(placed, each):
            world.topologies.assume(pods, 1)
            found.append(pods)
    else:
        placed = None
    for pods in found:
        world.topologies.assume(pods, -1)
    return found if placed is None else None


def test_usage_on_a_node_that_was_away_counts_again():
    world = World(Rules())
    first = NodeState("n1", {"pool": "a", "block": "b", "rack": "r", HOSTNAME: "n1"}, {"cpu": 2000, "pods": 10})
    asked = Question(1, requests_of({"cpu": 2000}), TopologyRequest(required=HOSTNAME), PodRules())
    world.topologies.node_changed(first)
    world.apply("place", asked)
    world.topologies.node_changed(replace(first, ready=False))
    assert world.ask(asked) == f"no topology domains at level: {HOSTNAME}"
    world.topologies.node_changed(first)
    text = 'topology "t" doesn\'t allow to fit any of 1 pod(s). Total nodes: 1; excluded: resource "cpu": 1'
    assert world.ask(asked) == text


@pytest.mark.parametrize("unconstrained", [False, True])
def test_slices_without_a_level_may_be_in_racks_of_any_block(unconstrained):
    world = _racks(1)
    asked = TopologyRequest(unconstrained=unconstrained, layers=(SliceLayer("rack", 2),))
    placed = world.ask(Question(8, requests_of({"cpu": 4000}), asked, PodRules()))
    assert isinstance(placed, Placed)
    assert [pods for _, pods in placed.pods.domains] == [2, 2, 2, 2]


def test_part_of_a_slice_gets_another_node_of_its_rack_though_only_slices_are_requested():
    world = _racks(2)
    tree = world.topologies.trees["f"]
    asked = Question(2, requests_of({"cpu": 8000}), TopologyRequest(layers=(SliceLayer("rack", 2),)), PodRules())
    present = TopologyAssignment((HOSTNAME,), (DomainCount(("n00000",), 1), DomainCount(("n00001",), 1)))
    world.topologies.hold([PlacedPods("f", present, asked.requests)], 1)
    more = NodeState("n9", {"pool": "a", "block": "b0", "rack": "r000", HOSTNAME: "n9"}, {"cpu": 8000, "pods": 10})
    world.topologies.node_changed(more)
    world.topologies.node_gone("n00000")
    replaced = replace_node(tree, asked, present, "n00000", Rules())
    assert isinstance(replaced, TopologyAssignment)
    assert {values[0] for values, _ in replaced.domains} == {"n00001", "n9"}
    # Kueue asks for a level that is not there once it has dropped the slices.
    assert replace_node(tree, asked, present, "n00000", Rules(as_kueue=True)) == NO_LEVEL


def _racks(nodes_in_each: int) -> World:
    """Return a world of 100 racks, in which some nodes have less room than others."""
    world = World(Rules())
    for number in range(100 * nodes_in_each):
        rack, name = number // nodes_in_each, f"n{number:05}"
        labels = {"pool": "a", "block": f"b{rack % 4}", "rack": f"r{rack:03}", HOSTNAME: name}
        world.topologies.node_changed(NodeState(name, labels, {"cpu": 8000 + number % 3 * 1000, "pods": 10}))
    return world


def _asked(cpu: int, level: str) -> Question:
    wanted = TopologyRequest(required=level) if level else TopologyRequest(unconstrained=True)
    return Question(3, requests_of({"cpu": cpu}), wanted, PodRules())


@contextmanager
def _calls() -> Iterator[Counter[str]]:
    """Context manager that counts the calls of Python functions by their names."""
    number: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        number[frame.f_code.co_name] += event == "call"

    sys.setprofile(note)
    try:
        yield number
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("level", ["rack", "block", ""])
def test_first_placement_of_a_demand_judges_kinds_of_nodes_instead_of_nodes(level):
    totals = []
    for nodes_in_each in (4, 16):
        world = _racks(nodes_in_each)
        world.ask(_asked(1000, level))
        with _calls() as number:
            placed = world.ask(_asked(1500, level))
        assert isinstance(placed, Placed)
        totals.append(number.total())
    assert totals[1] - totals[0] < 100, "1200 nodes more"


def test_later_placement_counts_the_domains_above_changed_nodes_only():
    world = _racks(4)
    world.apply("place", _asked(1000, "rack"))
    with _calls() as number:
        world.apply("place", _asked(1000, "rack"))
    assert number["_count_inner"] == 2  # the rack and the block of the first one
    with _calls() as number:
        world.ask(_asked(1000, "rack"))
        world.ask(_asked(1000, ""))
    assert number["_count_inner"] == 2
