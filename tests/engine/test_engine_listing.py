"""Queue order of pending workloads: positions, pages, and positions set by an admin."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import WorkloadPending, needed_now
from admission.engine.pending import Ranking
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload


@pytest.fixture
def world():
    """Two LocalQueues of a ClusterQueue without free quota, so that only the order matters."""
    world = World(cluster_queue("cq", 4), local_queue("left", to="cq"), local_queue("right", to="cq"))
    world.submit(workload("full", "left", 4))
    assert world.admitted() == ["full"]
    world.submit(
        workload("a", "left", 2, created=1),
        workload("b", "right", 2, created=2),
        workload("c", "left", 2, created=3),
        workload("urgent", "right", 3, priority=5, created=4),
        workload("d", "left", 4, created=5),
    )
    world.engine.settle(world.now)
    return world


def order(world: World, **which: object) -> list[str]:
    return [place.workload.name for place in world.engine.listing("cq", limit=100, **which)]


def test_listing_has_positions_in_both_queues_and_reasons(world):
    places = world.engine.listing("cq", limit=10)
    assert [(at.workload.name, at.position_in_cluster_queue, at.position_in_local_queue) for at in places] == [
        ("urgent", 1, 1),
        ("a", 2, 1),
        ("b", 3, 2),
        ("c", 4, 2),
        ("d", 5, 3),
    ]
    assert {at.reason for at in places} == {"WaitingForQuota"}
    assert places[1].message == "Needs 2 CPU (default): less is free. It starts as soon as enough becomes free."
    assert needed_now(places[1].lacks) == "2 CPU (default): 0 of 4 free"


def test_page_of_the_listing_continues_after_the_previous_page(world):
    pages = [world.engine.listing("cq", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [[place.workload.name for place in page] for page in pages] == [["urgent", "a"], ["b", "c"], ["d"], []]
    assert [place.position_in_cluster_queue for page in pages for place in page] == [1, 2, 3, 4, 5]
    assert world.engine.count_waiting("cq") == 5


def test_listing_of_a_local_queue_has_only_its_workloads(world):
    places = world.engine.listing("cq", limit=2, offset=1, local_queue=("ns", "left"))
    assert [(at.workload.name, at.position_in_cluster_queue, at.position_in_local_queue) for at in places] == [
        ("c", 4, 2),
        ("d", 5, 3),
    ]
    assert world.engine.count_waiting("cq", ("ns", "left")) == 3
    assert world.engine.listing("cq", limit=9, local_queue=("ns", "nowhere")) == ()
    assert world.engine.listing("nowhere", limit=9) == ()


def test_workloads_have_a_position_in_backoff_and_none_on_hold(world):
    world.engine.observe(WorkloadPending(workload("late", "left", created=9), not_before=world.now + 5), now=world.now)
    world.engine.observe(WorkloadPending(workload("held", "left", created=9), on_hold=True), now=world.now)
    assert order(world)[-1] == "late"
    explanation = world.engine.explain("late")
    assert (explanation.position_in_cluster_queue, explanation.not_before) == (6, world.now + 5)
    explanation = world.engine.explain("held")
    assert (explanation.position_in_cluster_queue, explanation.position_in_local_queue) == (0, 0)


def positions(world: World) -> dict[str, tuple[int, int]]:
    """Return the positions of the listing, after checking that `explain` reports the same."""
    found = {}
    for place in world.engine.listing("cq", limit=100):
        found[place.workload.name] = place.position_in_cluster_queue, place.position_in_local_queue
        alone = world.engine.explain(place.workload.uid)
        assert (alone.position_in_cluster_queue, alone.position_in_local_queue) == found[place.workload.name]
    return found


def test_workload_that_can_never_start_has_no_position(world):
    """The cause is its request, a resource without quota, its namespace, or a fault of the workload itself."""
    world.submit(
        workload("large", "left", 9, created=0.1),
        workload("elsewhere", "right", 1, created=0.2, others={"example.com/port": 1}),
        replace(workload("alien", "left", 1, created=0.3), namespace="alien"),
    )
    world.tell(manifest("LocalQueue", "left", {"clusterQueue": "cq"}, namespace="alien"))
    faulty = workload("faulty", "left", 1, created=0.4)
    world.engine.observe(WorkloadPending(faulty, fault=("Misconfigured", "it is wrong")), now=world.now)
    world.engine.settle(world.now)
    real = {"urgent": (1, 1), "a": (2, 1), "b": (3, 2), "c": (4, 2), "d": (5, 3)}
    assert positions(world) == real | dict.fromkeys(("large", "elsewhere", "alien", "faulty"), (0, 0))
    world.tell(cluster_queue("cq", 9))
    world.submit(workload("fills", "right", 5, priority=9))
    assert world.admitted() == ["fills"]
    assert positions(world)["large"] == (2, 1)
    assert positions(world)["a"] == (3, 2)


def test_strict_fifo_queue_waits_behind_a_workload_that_can_never_start(world):
    world.tell(cluster_queue("cq", 4, queueingStrategy="StrictFIFO"))
    world.submit(workload("large", "left", 9, priority=9, created=6))
    world.gone("full")
    assert world.admitted() == []
    assert positions(world) == {"large": (0, 0), "urgent": (2, 1), "a": (3, 2), "b": (4, 2), "c": (5, 3), "d": (6, 4)}
    explanation = world.engine.explain("urgent")
    assert explanation.ahead_first == ("ns/large",)
    assert "the workloads in front of it come first, even those that cannot start" in explanation.message


def move(world: World, name: str, priority: int, at: float) -> None:
    (item,) = (at.workload for at in world.engine.listing("cq", limit=100) if at.workload.name == name)
    world.submit(replace(item, rank_priority=priority, rank_at=at))


def test_rank_set_by_an_admin_determines_the_position(world):
    move(world, "d", 0, 1.5)
    assert order(world) == ["urgent", "a", "d", "b", "c"]
    move(world, "c", 0, 1.25)
    assert order(world) == ["urgent", "a", "c", "d", "b"]
    move(world, "a", 5, 3.0)
    assert order(world) == ["a", "urgent", "c", "d", "b"]
    assert order(world, local_queue=("ns", "left")) == ["a", "c", "d"]
    assert world.engine.listing("cq", limit=9, local_queue=("ns", "left"))[2].position_in_local_queue == 3


def test_rank_determines_admission_order_and_real_priority_preemption(world):
    world.gone("full")
    world.tell(cluster_queue("cq", 4, preemption={"withinClusterQueue": "LowerPriority"}))
    move(world, "d", 5, 0.0)
    first, second = world.engine.cycle(world.now), world.engine.cycle(world.now)
    assert [admit.workload.name for admit in first.admitted] == ["d"]
    assert [(evict.workload.name, evict.preemptor) for evict in second.evicted] == [("d", "urgent")]


def test_rank_does_not_permit_preemption():
    world = World(cluster_queue("cq", 1, preemption={"withinClusterQueue": "LowerPriority"}), local_queue("cq"))
    world.submit(workload("runs", "cq", priority=3))
    assert world.admitted() == ["runs"]
    world.submit(workload("ranked", "cq", created=2, rank_priority=9, rank_at=0.0))
    assert not world.engine.settle(world.now).evicted


_entries = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5).map(float), st.integers(0, 400).map(str)), unique=True, max_size=60
)


@pytest.mark.costly
@settings(max_examples=60)
@given(_entries, st.randoms(use_true_random=False), st.integers(2, 9))
def test_ranking_behaves_like_a_sorted_list(entries, random, full):
    """For any chunk size of the ranking."""
    ranking, model = Ranking(full), []
    for entry in entries:
        ranking.add((*entry, entry))
        model.append(entry)
        if random.random() < 0.4:
            gone = model.pop(random.randrange(len(model)))
            ranking.remove(gone)
        model.sort()
        assert list(ranking.items()) == model
        assert len(ranking) == len(model)
        for offset in (0, 1, len(model) // 2):
            assert list(ranking.items(offset)) == model[offset:]
    for entry in entries:
        assert ranking.count_before(entry) == sum(other < entry for other in model)
