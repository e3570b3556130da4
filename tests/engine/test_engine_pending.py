"""Order of pending workloads in buckets of equal shape, and changes of the key that orders them."""

from __future__ import annotations

import random
from dataclasses import replace

from admission.engine import AdmissionFairSharing, Engine, NamespaceChanged, Policy, SharerUsed, WorkloadPending
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

BY_USAGE = {"admissionMode": "UsageBasedAdmissionFairSharing"}


def test_explanation_counts_and_lists_the_workloads_ahead():
    world = World(cluster_queue("cq", 2, queueingStrategy="StrictFIFO"), local_queue("cq"))
    world.submit(workload("runs", "cq", 2))
    assert world.admitted() == ["runs"]
    ranks = [(priority, created) for priority in range(3) for created in range(20)]
    shuffled = random.Random(1).sample(ranks, len(ranks))
    world.submit(*(workload(f"w{p}-{at:02}", "cq", 2, priority=p, created=float(at)) for p, at in shuffled))
    world.engine.settle(world.now)
    in_order = [f"w{p}-{at:02}" for p, at in sorted(ranks, key=lambda rank: (-rank[0], rank[1]))]
    for number, uid in enumerate(in_order):
        explanation = world.engine.explain(uid)
        assert explanation.ahead == number
        assert explanation.ahead_first == tuple(f"ns/{other}" for other in in_order[: min(number, 5)])
        assert explanation.position_in_cluster_queue == number + 1


def test_workloads_of_a_shape_are_admitted_by_creation_in_any_order_of_arrival():
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    for created in (5, 3, 9, 1, 7):
        world.submit(workload(f"w{created}", "cq", created=float(created)))
    world.gone("w1")
    admitted = []
    while some := world.admitted():
        admitted += some
        world.gone(some[0])
    assert admitted == ["w3", "w5", "w7", "w9"]


def test_usage_orders_workloads_only_while_enabled_in_the_cluster_queue():
    config = AdmissionFairSharing(half_life=60.0)
    local_queues = [local_queue(name, to="cq") for name in "ab"]
    world = World(cluster_queue("cq", 1), *local_queues, engine=Engine(Policy(policies=(config,))))
    world.engine.observe(SharerUsed(("ns", "a"), {"cpu": 9.0}, world.now), now=world.now)
    world.submit(*(workload(f"{name}{at}", name, created=at) for at in (1, 2, 3) for name in "ab"))
    late = workload("b0", "b", created=0)
    world.engine.observe(WorkloadPending(late, not_before=world.now + 50), now=world.now)

    def following() -> str:
        (name,) = world.admitted()
        world.gone(name)
        return name

    assert following() == "a1"
    world.tell(cluster_queue("cq", 1, admissionScope=BY_USAGE))
    assert [following(), following()] == ["b1", "b2"]
    world.tell(cluster_queue("cq", 1))
    assert [following(), following()] == ["a2", "a3"]
    world.tell(cluster_queue("cq", 1, admissionScope=BY_USAGE))
    assert following() == "b3"
    assert world.admitted() == []
    world.now += 50
    assert following() == "b0"


def test_workload_of_a_rejected_namespace_is_not_admitted_with_its_shape():
    selector = {"matchLabels": {"team": "x"}}
    world = World(cluster_queue("cq", 1, namespaceSelector=selector), local_queue("cq"))
    world.engine.observe(NamespaceChanged("ns", {"team": "x"}), now=world.now)
    world.tell(*(manifest("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace=name) for name in ("p", "q")))
    for name in ("p", "q"):
        world.engine.observe(NamespaceChanged(name, {"team": "y"}), now=world.now)
    runs, waits = workload("runs", "cq"), workload("waits", "cq", created=5)
    world.submit(runs)
    assert world.admitted() == ["runs"]
    world.submit(waits)
    assert world.admitted() == []
    for name in ("p", "q"):  # in the ClusterQueue where their shape is inadmissible already
        world.submit(replace(workload(f"of-{name}", "cq", created=1), namespace=name))
    assert world.admitted() == []
    world.gone("runs")
    assert world.admitted() == ["waits"]
    world.gone("waits")
    assert world.admitted() == []
    world.engine.observe(NamespaceChanged("q", {"team": "x"}), now=world.now)
    assert world.admitted() == ["of-q"]


def test_workload_that_may_not_preempt_gets_released_quota():
    world = World(cluster_queue("cq", 1, preemption={"withinClusterQueue": "LowerPriority"}), local_queue("cq"))
    world.submit(workload("low", "cq"))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", priority=1, may_preempt=False))
    assert not world.engine.settle(world.now).evicted
    world.gone("low")
    assert world.admitted() == ["high"]


def test_levels_count_active_workloads_by_local_queue():
    world = World(cluster_queue("cq", 4), local_queue("cq"), local_queue("other", to="cq"))
    world.submit(workload("runs", "cq", 4))
    assert world.admitted() == ["runs"]
    world.submit(*(workload(f"w{n}", "cq" if n % 3 else "other", 1 + n % 2) for n in range(9)))

    def active() -> tuple[int, dict[str, int]]:
        (queue,), _ = world.engine.levels()
        return queue.inadmissible, {name: number for (_, name), number in queue.active.items() if number}

    assert active() == (0, {"cq": 6, "other": 3})
    world.engine.settle(world.now)
    assert active() == (9, {})
    world.submit(workload("large", "other", 3))
    assert active() == (9, {"other": 1})
    world.submit(*(workload(f"large-{n}", "cq", 3) for n in range(20)))
    assert active() == (9, {"cq": 20, "other": 1})
