"""Skipping of ClusterQueues with fair sharing changes no decision, and saves nominations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from admission.engine import Engine, Event, Policy, WorkloadGone, WorkloadPending
from admission.engine.cycle import Cycle
from admission.model.workload import PodSet, Workload
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, manifest, workload

QUEUES = "abcde"
STRATEGIES = [
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare",),
]


def kind(draw: Random, flavor_choices: list[list[str]]) -> dict[str, Any]:
    """Return random fields of a ClusterQueue."""
    limit = draw.choice([{}, {}, {"borrowingLimit": draw.randint(0, 4)}, {"lendingLimit": draw.randint(0, 1)}])
    flavors = draw.choice(flavor_choices)
    resources = draw.choice([["cpu"], ["cpu", "memory"]])
    return {
        "resourceGroups": [
            {
                "coveredResources": resources,
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [
                            {"name": name, "nominalQuota": draw.randint(1, 4), **limit} for name in resources
                        ],
                    }
                    for flavor in flavors
                ],
            }
        ],
        "preemption": {
            "reclaimWithinCohort": draw.choice(["Any", "Any", "LowerPriority", "Never"]),
            "withinClusterQueue": draw.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        },
        "queueingStrategy": draw.choice(["BestEffortFIFO"] * 5 + ["StrictFIFO"]),
        "fairSharing": {"weight": draw.choice(["1", "1", "2", "0.5", "0"])},
    }


def world(kinds: list[dict[str, Any]], shared: int, strategies: tuple[str, ...]) -> World:
    """Return one ClusterQueue for each element of `kinds`, in a Cohort with quota of its own."""
    made = World(engine=Engine(Policy(fair_sharing=True, as_kueue=True, preemption_strategies=strategies)))
    made.tell(manifest("ResourceFlavor", "spot", {}), cohort("all", shared))
    for name, kind in zip(QUEUES, kinds, strict=False):
        made.tell(
            manifest("ClusterQueue", name, {"namespaceSelector": {}, "cohortName": "all", **kind}), local_queue(name)
        )
    return made


def run_full_cycles(made: World) -> tuple[list[str], list[str]]:
    """Return the uids that full cycles, which skip no ClusterQueue, admit and evict."""
    admitted, evicted = [], []
    for _ in range(25):
        decisions = made.engine.cycle(made.now)
        admitted += [admit.workload.uid for admit in decisions.admitted]
        evicted += [evict.workload.uid for evict in decisions.evicted]
    return admitted, evicted


def run_settle(made: World) -> tuple[list[str], list[str]]:
    decisions = made.engine.settle(made.now)
    return [a.workload.uid for a in decisions.admitted], [e.workload.uid for e in decisions.evicted]


@pytest.mark.costly
@settings(max_examples=40)
@given(st.integers(0, 2**32))
@example(1000098).via("what a head that is left out reserves decides about another one")
@example(1000000).via("a head fits behind one that is left out, and nothing else moves")
def test_settle_with_skipping_decides_like_full_cycles(seed):
    """For any preemption policies, with one flavor."""
    compare(seed, [["default"]])


@pytest.mark.parametrize("seed", range(40))
def test_settle_with_skipping_decides_like_full_cycles_with_several_flavors(seed):
    """With these seeds; about one in a thousand differs.

    An interrupted search for a flavor is continued by its age in cycles, of which there are fewer with skipping. So a
    workload may start at the first flavor again instead of continuing with the second. Of the seeds below 3,400 this
    happens with 437, 453 and 3354.
    """
    compare(seed, [["default"], ["default"], ["default", "spot"]])


def compare(seed: int, flavor_choices: list[list[str]]) -> None:
    """Compare the decisions of two engines after each of a random sequence of arrivals and ends."""
    draw = Random(seed)
    kinds = [kind(draw, flavor_choices) for _ in range(draw.randint(2, 5))]
    shared, strategies = draw.randint(0, 4), draw.choice(STRATEGIES)
    one, other = world(kinds, shared, strategies), world(kinds, shared, strategies)
    running: list[str] = []
    for number in range(60):
        if running and draw.random() < 0.4:
            uid = running.pop(draw.randrange(len(running)))
            events: list[Event] = [WorkloadGone(uid)]
        else:
            requests = {"cpu": 1000 * draw.randint(1, 3), **draw.choice([{}, {"memory": draw.randint(1, 3)}])}
            pods = PodSet("main", draw.choice([1, 1, 2]), requests)
            queue = QUEUES[draw.randrange(len(kinds))]
            priority = draw.choice([0, 0, 0, 1])
            uid = f"w{number:03}"
            item = Workload(uid, "ns", uid, queue, priority=priority, created=float(number), pod_sets=(pods,))
            events = [WorkloadPending(item)]
        for made in (one, other):
            made.now += 1
            for event in events:
                made.engine.observe(event, now=made.now)
        expected, decided = run_full_cycles(one), run_settle(other)
        assert decided == expected, number
        running += decided[0]
        assert one.engine.usage() == other.engine.usage()


@contextmanager
def nominated_queues() -> Iterator[list[str]]:
    """Context manager that collects the ClusterQueues of all heads nominated within it."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Cycle._nominate.__code__:
            names.append(frame.f_locals["entry"].queue.name)

    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("reclaim", ["Any", "Never"])
def test_completion_nominates_only_the_head_that_is_admitted(reclaim):
    """In fifty ClusterQueues all pending workloads wait for the one core that is released."""
    names = [f"q{number:02}" for number in range(50)]
    made = World(cohort("all", 50), engine=Engine(Policy(fair_sharing=True, as_kueue=True)))
    policy = {"reclaimWithinCohort": reclaim, "withinClusterQueue": "LowerPriority"}
    for name in names:
        made.tell(cluster_queue(name, 1, cohort="all", preemption=policy), local_queue(name))
    made.submit(*(workload(f"{name}-{n}", name, created=float(n)) for name in names for n in range(4)))
    assert len(made.admitted()) == 100
    for name in names[:5]:
        made.gone(f"{name}-0")
        with nominated_queues() as judged:
            assert made.admitted() == [f"{name}-2"], "it has the least share now"
        assert judged == [name]


def test_completion_nominates_no_head_that_neither_fits_nor_may_preempt():
    """With different weights, and default policies: most heads request more than is free, some less."""
    names = [f"q{number:02}" for number in range(30)]
    made = World(cohort("all", 30), engine=Engine(Policy(fair_sharing=True, as_kueue=True)))
    for number, name in enumerate(names):
        made.tell(cluster_queue(name, 1, cohort="all", fairSharing={"weight": str(1 + number % 3)}), local_queue(name))
    made.submit(*(workload(f"{name}-{n}", name, created=float(n)) for name in names for n in range(3)))
    running = made.admitted()
    assert len(running) == 60
    made.submit(*(workload(f"{name}-large", name, cpu=3, priority=1, created=9.0) for name in names))
    assert made.admitted() == []
    for uid in running[:3]:
        made.gone(uid)
        with nominated_queues() as judged:
            (admitted,) = made.admitted()
        assert judged == [admitted.partition("-")[0]], "of the small ones behind the large heads one fits"
