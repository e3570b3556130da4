"""Single scheduling cycles: outcome of the heads, quota reservations, preemption targets and messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine import Engine, NamespaceChanged, Policy, WorkloadPending
from admission.model.sentences import BEHIND_PREEMPTOR, KEPT_FOR_PREEMPTOR
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, manifest, workload

LOWER = {"withinClusterQueue": "LowerPriority"}


@pytest.mark.parametrize(("strategy", "expected"), [("BestEffortFIFO", ["fine"]), ("StrictFIFO", [])])
def test_faulty_head_blocks_only_a_strict_fifo_queue(strategy, expected):
    world = World(cluster_queue("cq", 1, queueingStrategy=strategy), local_queue("cq"))
    fault = ("Misconfigured", "it asks for less than nothing")
    world.engine.observe(WorkloadPending(workload("broken", "cq"), fault=fault), now=world.now)
    world.submit(workload("fine", "cq", created=1))
    assert world.admitted() == expected
    assert world.engine.explain("broken").message == fault[1]
    world.submit(workload("broken", "cq"))
    world.gone("fine")
    assert world.admitted() == ["broken"], "mended"


@pytest.mark.parametrize(("strategy", "expected"), [("BestEffortFIFO", ["small"]), ("StrictFIFO", [])])
def test_gated_preemptor_is_parked_and_blocks_only_a_strict_fifo_queue(strategy, expected):
    world = World(cluster_queue("cq", 3, preemption=LOWER, queueingStrategy=strategy), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    gated = workload("high", "cq", 2, priority=5, created=1, may_preempt=False)
    world.submit(gated, workload("small", "cq", 1, created=2))
    decisions = world.engine.settle(world.now)
    assert not decisions.evicted
    assert [admit.workload.uid for admit in decisions.admitted] == expected
    assert [(park.reason, park.message) for park in decisions.parked if park.workload.uid == "high"] == [
        ("AdmissionGated", "Workload requires preemption, but it's gated")
    ]
    world.submit(replace(gated, may_preempt=True))
    assert [evict.workload.uid for evict in world.engine.settle(world.now).evicted] == ["low"]


def test_preemptor_stays_at_the_head_until_its_victims_have_stopped():
    """A workload that arrives meanwhile, and precedes the preemptor in queue order, is not tried first."""
    world = World(cluster_queue("cq", 2, preemption=LOWER), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 2, priority=5, created=5))
    decisions = world.engine.settle(world.now)
    assert [evict.preemptor for evict in decisions.evicted] == ["high"]
    (park,) = decisions.parked
    assert park.reason == "WaitingForPreemptedWorkloads"
    assert park.message.endswith(". Pending the preemption of 1 workload(s)")
    world.submit(workload("earlier", "cq", 2, priority=5, created=1))
    world.gone("low")
    assert world.admitted() == ["high"]


def test_workload_that_fits_behind_a_preemptor_is_told_that_it_waits_for_it():
    """While the preempted workload does not stop, only the preemptor is tried: no evaluation of others is due."""
    world = World(cluster_queue("cq", 3, preemption=LOWER), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 2, priority=5, created=1), workload("small", "cq", 1, created=2))
    decisions = world.engine.settle(world.now)
    assert not decisions.admitted
    reasons = {park.workload.uid: (park.reason, park.message) for park in (*decisions.parked, *world.engine.reasons(9))}
    assert reasons["small"] == ("WaitingForQuota", BEHIND_PREEMPTOR)
    world.gone("low")
    assert world.admitted() == ["high", "small"]


def test_workload_that_fits_beside_a_preemptor_of_its_cohort_is_told_for_whom_the_quota_is_kept():
    """What a cycle keeps for a preemptor is free for nobody else in the cohort, for as long as its victims stop."""
    world = World(
        cluster_queue("cq", 3, cohort="co", preemption=LOWER),
        local_queue("cq"),
        cluster_queue("beside", 0, cohort="co"),
        local_queue("beside"),
    )
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 3, priority=5, created=1), workload("first", "beside", 1, created=2))
    world.submit(workload("second", "beside", 1, created=3))
    decisions = world.engine.settle(world.now)
    assert not decisions.admitted
    reasons = {park.workload.uid: (park.reason, park.message) for park in (*decisions.parked, *world.engine.reasons(9))}
    assert reasons["first"] == reasons["second"] == ("WaitingForQuota", KEPT_FOR_PREEMPTOR)
    world.gone("low")
    assert world.admitted() == ["high"]


@pytest.mark.parametrize(
    ("namespace", "named"), [("ns", "workload ns/high"), ("other", "a workload of another namespace")]
)
def test_eviction_message_hides_the_name_of_a_preemptor_in_another_namespace(namespace, named):
    world = World(cluster_queue("cq", 2, preemption=LOWER), local_queue("cq"))
    world.tell(manifest("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="other"))
    world.engine.observe(NamespaceChanged("other", {}), now=world.now)
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(replace(workload("high", "cq", 2, priority=5, created=1), namespace=namespace))
    (evict,) = world.engine.settle(world.now).evicted
    assert evict.message.startswith(f"Preempted to accommodate {named} (UID: high) due to ")
    assert evict.message.endswith(
        "; preemptor path: /cq; preemptee path: /cq" if namespace == "ns" else "; preemptee path: /cq"
    )
    assert ("preemptor path" in evict.message) is (namespace == "ns")
    assert namespace == "ns" or "high" not in evict.message.replace("(UID: high)", "")


@pytest.mark.parametrize("namespace", ["ns", "other"])
def test_workload_slice_is_replaced_only_within_its_namespace(namespace):
    world = World(cluster_queue("cq", 3), local_queue("cq"))
    world.tell(manifest("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="other"))
    world.engine.observe(NamespaceChanged("other", {}), now=world.now)
    world.submit(workload("before", "cq", 2))
    assert world.admitted() == ["before"]
    world.submit(replace(workload("after", "cq", 3, replaces="before", created=1), namespace=namespace))
    decisions = world.engine.settle(world.now)
    if namespace == "other":
        assert not decisions.admitted
        return
    assert [admit.workload.uid for admit in decisions.admitted] == ["after"]
    (evict,) = decisions.evicted
    assert (evict.workload.uid, evict.reason, evict.preemptor) == ("before", "WorkloadSliceReplaced", "after")
    assert evict.message == ("Replaced to accommodate a workload (UID: after) due to workload slice aggregation")
    assert world.engine.usage() == {"cq": {"default": {"cpu": 3000}}}


def test_replacement_may_have_more_pod_sets():
    world = World(cluster_queue("cq", 5), local_queue("cq"))
    before = workload("before", "cq", 2)
    world.submit(before)
    assert world.admitted() == ["before"]
    (main,) = before.pod_sets
    after = replace(before, uid="after", name="after", replaces="before", created=1)
    world.submit(replace(after, pod_sets=(main, replace(main, name="more", requests={"cpu": 3000}))))
    assert world.admitted() == ["after"]
    assert world.engine.usage() == {"cq": {"default": {"cpu": 5000}}}


def test_replacement_with_an_additional_resource_is_parked_with_a_message():
    world = World(cluster_queue("cq", {"default": {"cpu": 9, "memory": 9}}), local_queue("cq"))
    before = workload("before", "cq", 2)
    world.submit(before)
    assert world.admitted() == ["before"]
    pods = replace(before.pod_sets[0], requests={"cpu": 2000, "memory": 1})
    world.submit(replace(before, uid="after", name="after", replaces="before", created=1, pod_sets=(pods,)))
    (park,) = world.engine.settle(world.now).parked
    assert park.reason == "NoMatchingFlavor"
    assert park.message.endswith("could not assign default flavor since the original workload is assigned: ")


def test_replacement_is_not_admitted_in_another_cluster_queue():
    """Another ClusterQueue would reserve the full request a second time, and preempt other workloads for it."""
    queues = cluster_queue("cq", 3), cluster_queue("new", 9, preemption=LOWER)
    world = World(*queues, local_queue("cq"), local_queue("new"))
    world.submit(workload("before", "cq", 2, priority=5), workload("there", "new", 7))
    assert sorted(world.admitted()) == ["before", "there"]
    world.tell(local_queue("cq", to="new"))
    world.submit(workload("larger", "cq", 3, replaces="before", priority=5))
    decisions = world.engine.settle(world.now)
    assert (decisions.admitted, decisions.evicted) == ((), ())
    (park,) = world.engine.reasons(9)
    assert (park.workload.uid, park.reason) == ("larger", "Suspended")
    assert park.message.startswith("LocalQueue cq now points to ClusterQueue new.")
    world.tell(local_queue("cq"))
    assert world.admitted() == ["larger"]
    assert world.engine.usage()["cq"] == {"default": {"cpu": 3000}}


def test_forgotten_replacement_returns_quota_to_the_replaced_workload():
    """Otherwise the running workload would hold nothing in the engine, and another one would get its quota."""
    world = World(cluster_queue("cq", 4), local_queue("cq"))
    world.submit(workload("runs", "cq", 2))
    assert world.admitted() == ["runs"]
    world.submit(workload("larger", "cq", 3, replaces="runs"))
    (admit,) = world.engine.settle(world.now).admitted
    world.engine.forget(admit)
    assert world.engine.usage() == {"cq": {"default": {"cpu": 2000}}}
    world.submit(workload("other", "cq", 3, priority=1))
    assert world.admitted() == ["larger"], "3 CPUs for another one beside the 2 that run do not fit"
    assert world.engine.usage() == {"cq": {"default": {"cpu": 3000}}}


def contested(strategy: str, *, held: float = 0, lent: int = 0, more: int = 1, **limits: int) -> World:
    """Return a world in which `a` cannot reclaim its nominal quota from `b`, which requests to borrow `more`."""
    reclaim = {"reclaimWithinCohort": "LowerPriority"}
    world = World(
        cluster_queue("a", 4, cohort="all", preemption=reclaim, queueingStrategy=strategy, limits=limits),
        cluster_queue("b", 4 - lent, cohort="all"),
        cluster_queue("idle", lent, cohort="all"),
        *map(local_queue, "ab"),
    )
    if held:
        world.submit(workload("own", "a", held))
    world.submit(workload("borrows", "b", 5 - held, priority=9))
    assert len(world.admitted()) == (2 if held else 1)
    world.submit(workload("mine", "a", 4, created=1), workload("more", "b", more, created=2))
    return world


@pytest.mark.parametrize("held", [0, 1])
def test_head_that_cannot_reclaim_reserves_its_nominal_quota_in_the_cycle(held):
    world = contested("BestEffortFIFO", held=held)
    decisions = world.engine.cycle(world.now)
    assert not decisions.admitted
    assert {park.workload.uid: park.message for park in decisions.parked}["more"] == (
        "Workload no longer fits after processing another workload"
    )
    decisions = world.engine.settle(world.now)
    assert [admit.workload.uid for admit in decisions.admitted] == ["more"], "as he is set aside"


def test_workload_admitted_in_a_later_cycle_is_not_reported_as_parked():
    world = contested("BestEffortFIFO")
    decisions = world.engine.settle(world.now)
    assert [admit.workload.uid for admit in decisions.admitted] == ["more"]
    assert [park.workload.uid for park in decisions.parked] == ["mine"]


def test_head_of_a_strict_fifo_queue_reserves_its_nominal_quota_permanently():
    world = contested("StrictFIFO")
    assert world.admitted() == []


@pytest.mark.parametrize(
    ("limit", "more", "expected"), [(0, 1, ["more"]), (0, 3, ["more"]), (2, 1, ["more"]), (2, 2, []), (3, 1, [])]
)
def test_reserved_quota_does_not_exceed_the_borrowing_limit(limit, more, expected):
    """All quota of the ClusterQueue is in use, 3 are free, and the other ClusterQueue requests some of them."""
    assert contested("StrictFIFO", held=4, lent=4, more=more, borrowingLimit=limit).admitted() == expected


def test_settle_stops_at_the_cycle_limit_or_the_first_admission():
    def crowd() -> World:
        world = World(cluster_queue("cq", 9), local_queue("cq"))
        world.submit(*(workload(f"w{number}", "cq", created=number) for number in range(5)))
        return world

    decisions = crowd().engine.settle(0.0, limit=2)
    assert (len(decisions.admitted), decisions.cycles) == (2, 2)
    decisions = crowd().engine.settle(0.0, until_admitted=True)
    assert (len(decisions.admitted), decisions.cycles) == (1, 1)


def test_stop_and_over_quota_evictions_are_returned_together():
    over = {"overQuota": {"evictAfterSeconds": 0}}
    world = World(
        cluster_queue("a", 1, cohort="x"),
        cluster_queue("b", 1, **over),
        cluster_queue("c", 1, **over),
        *map(local_queue, "abc"),
    )
    world.submit(*(workload(f"of-{name}", name) for name in "abc"))
    assert len(world.admitted()) == 3
    world.tell(cluster_queue("a", 1, cohort="x", stopPolicy="HoldAndDrain"))
    world.tell(*(cluster_queue(name, 0, **over) for name in "bc"))
    reasons = [(evict.workload.uid, evict.reason) for evict in world.engine.settle(world.now).evicted]
    assert sorted(reasons) == [("of-a", "ClusterQueueStopped"), ("of-b", "OverQuota"), ("of-c", "OverQuota")]


def test_queues_of_zero_weight_come_last_ordered_by_usage():
    weights = {"a": "0", "b": "0", "c": "1"}
    world = World(
        cohort("all", 4),
        *(cluster_queue(name, 0, cohort="all", fairSharing={"weight": weights[name]}) for name in "abc"),
        *map(local_queue, "abc"),
        engine=Engine(Policy(fair_sharing=True)),
    )
    world.submit(workload("a1", "a", 2), workload("b1", "b", 1), workload("c1", "c", 1))
    assert len(world.admitted()) == 3
    world.submit(*(workload(f"{name}2", name, 1, created=created) for created, name in enumerate("abc", start=1)))
    world.gone("c1")
    assert world.admitted() == ["c2"]
    world.gone("c2")
    assert world.admitted() == ["b2"]


def test_zero_weight_has_no_effect_within_nominal_quota():
    """One core of the quota of two ClusterQueues is not lent: the workload that waits longest gets it."""
    world = World(
        cluster_queue("a", 1, cohort="all", fairSharing={"weight": "0"}),
        cluster_queue("b", 1, cohort="all"),
        cluster_queue("c", 0, cohort="all"),
        *map(local_queue, "abc"),
        engine=Engine(Policy(fair_sharing=True)),
    )
    world.submit(workload("borrows", "c", 1))
    assert world.admitted() == ["borrows"]
    world.submit(workload("of-a", "a", created=1), workload("of-b", "b", created=2))
    assert world.admitted() == ["of-a"]


def test_a_share_counts_all_flavors_of_a_resource():
    world = World(
        cluster_queue("a", {"default": 0, "spot": 0}, cohort="all"),
        cluster_queue("b", {"default": 3, "spot": 2}, cohort="all"),
        *map(local_queue, "ab"),
        engine=Engine(Policy(fair_sharing=True)),
    )
    world.tell(manifest("ResourceFlavor", "spot", {}))
    world.submit(workload("first", "a", 3), workload("second", "a", 1, created=1))
    assert world.admitted() == ["first", "second"]
    queues, _ = world.engine.weighted_share()
    assert queues == {"a": pytest.approx(800), "b": 0.0}


def reclaimed(*, fair_sharing: bool, lent: int, **flavors: dict[str, int]) -> World:
    """Return ClusterQueues that lend all of their quota to the two workloads of `borrower`: to the second one 2."""
    world = World(
        cohort("all"),
        *(
            cluster_queue(name, quota, cohort="all", preemption={"reclaimWithinCohort": "Any"})
            for name, quota in flavors.items()
        ),
        cluster_queue("borrower", {"default": 0, "spot": 0}, cohort="all"),
        *map(local_queue, (*flavors, "borrower")),
        engine=Engine(Policy(fair_sharing=fair_sharing)),
    )
    world.tell(*(manifest("ResourceFlavor", name, {}) for name in ("spot", "spare")))
    world.submit(workload("second", "borrower", 2, priority=1))
    assert world.admitted() == ["second"]
    first = workload("first", "borrower")
    pods = [replace(first.pod_sets[0], name=f"p{number}", count=2) for number in range(lent // 2)]
    world.submit(replace(first, pod_sets=tuple(pods)))
    assert world.admitted() == ["first"]
    world.submit(*(workload(f"of-{name}", name, 2, created=at) for at, name in enumerate(flavors)))
    return world


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("spare", [{}, {"spare": 0}], ids=["first", "second"])
def test_preemptor_whose_targets_are_taken_finds_others_in_the_same_flavor(fair_sharing, spare):
    """The other flavor, in which the first target releases quota as well, is skipped."""
    quotas = {"a": {"default": 2}, "b": spare | {"default": 2, "spot": 2}}
    world = reclaimed(fair_sharing=fair_sharing, lent=4, **quotas)
    assert world.engine.usage() == {"borrower": {"default": {"cpu": 4000}, "spot": {"cpu": 2000}}}
    decisions = world.engine.cycle(world.now)
    assert {evict.workload.uid: evict.preemptor for evict in decisions.evicted} == {"first": "of-a", "second": "of-b"}
    (message,) = (park.message for park in decisions.parked if park.workload.uid == "of-b")
    skipped = "skipping flavor {} as it is not found in the nomination mapping for resource cpu"
    assert all(skipped.format(flavor) in message for flavor in ("spot", *spare))


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_quota_released_by_an_eviction_is_assigned_once(fair_sharing):
    """The first target releases quota for two workloads; the third workload needs another target."""
    quotas = {name: {"default": 2} for name in "abc"}
    world = reclaimed(fair_sharing=fair_sharing, lent=4, **quotas)
    decisions = world.engine.cycle(world.now)
    assert {evict.workload.uid: evict.preemptor for evict in decisions.evicted} == {"first": "of-a", "second": "of-c"}
    assert {park.workload.uid: park.message for park in decisions.parked}["of-b"] == (
        "Workload has overlapping preemption targets with another workload, but will fit after these preemptions "
        "complete"
    )


def test_inadmissible_workload_is_retried_when_the_cohort_has_new_targets():
    """Borrowing workloads of high priority are replaced by workloads of lower priority, one by one."""
    reclaim = {"reclaimWithinCohort": "LowerPriority"}
    world = World(
        cluster_queue("a", 3, cohort="all", preemption=reclaim),
        cluster_queue("b", 0, cohort="all"),
        *map(local_queue, "ab"),
    )
    world.submit(*(workload(f"high{number}", "b", priority=9) for number in range(3)))
    assert len(world.admitted()) == 3
    world.submit(
        workload("mine", "a", 3, priority=5), *(workload(f"low{number}", "b", created=1) for number in range(3))
    )
    for number in range(2):
        world.gone(f"high{number}")
        assert world.admitted() == [f"low{number}"]
    world.gone("high2")
    evicted = {evict.workload.uid for evict in world.engine.settle(world.now).evicted}
    assert evicted == {"low0", "low1"}


@pytest.mark.parametrize(("optional", "expected"), [((), []), (("memory",), ["w"])])
def test_resource_that_only_an_operator_adds_needs_no_quota_where_it_is_not_covered(optional, expected):
    world = World(cluster_queue("cq", 2), local_queue("cq"))
    plain = workload("w", "cq", 1)
    (pod_set,) = plain.pod_sets
    requests = {**pod_set.requests, "memory": 2**28}
    world.submit(replace(plain, pod_sets=(replace(pod_set, requests=requests, optional=optional),)))
    assert world.admitted() == expected
