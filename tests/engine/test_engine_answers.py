"""Queries of the engine: overuse, weighted shares, usage, listings and explanations."""

from __future__ import annotations

from math import inf

import pytest

from admission.engine import Admit, Decisions, Engine, Evict, Park, Policy, WorkloadEvicted, WorkloadPending
from admission.engine.over_quota import Overuse
from admission.model.sentences import NOT_TRIED
from admission.model.workload import Admission
from tests.engine.scenes import World, cluster_queue, cohort, consumption, local_queue, manifest, workload


def test_overuse_has_the_excess_of_each_cluster_queue_and_cohort():
    """A root exceeds its quota, other nodes their quota plus borrowing limit, where there is one."""
    world = World(
        cohort("all", 4),
        cohort("part", 2, parent="all", limit=9),
        cluster_queue("a", 1, cohort="part", limits={"borrowingLimit": 9}),
        cluster_queue("b", 1, cohort="part"),
        cluster_queue("alone", 3),
        *map(local_queue, ("a", "b", "alone")),
    )
    world.submit(workload("of-a", "a", 5), workload("of-b", "b", 3, created=1), workload("of-alone", "alone", 3))
    assert len(world.admitted()) == 3
    assert world.engine.overuse() == ()
    world.tell(
        cohort("all", 3),
        cohort("part", 2, parent="all", limit=2),
        cluster_queue("a", 1, cohort="part", limits={"borrowingLimit": 3}),
        cluster_queue("alone", 1),
    )
    world.engine.settle(world.now)
    assert set(world.engine.overuse()) == {
        Overuse("ClusterQueue", "a", "default", "cpu", 1000),
        Overuse("Cohort", "part", "default", "cpu", 2000),
        Overuse("Cohort", "all", "default", "cpu", 1000),
        Overuse("ClusterQueue", "alone", "default", "cpu", 2000),
    }


def test_weighted_shares_are_reported_for_cluster_queues_and_cohorts():
    """Share: borrowed amount * 1000 / amount that the parent could lend / weight."""
    world = World(
        cohort("all", 6),
        cohort("part", 2, parent="all", fairSharing={"weight": "4"}),
        cluster_queue("a", 1, cohort="part", fairSharing={"weight": "2"}),
        cluster_queue("b", 1, cohort="all", fairSharing={"weight": "0"}),
        cluster_queue("c", 0, cohort="all", fairSharing={"weight": "0"}),
        *map(local_queue, "abc"),
        engine=Engine(Policy(fair_sharing=True)),
    )
    world.submit(workload("of-a", "a", 5), workload("of-b", "b", 3))
    assert len(world.admitted()) == 2
    queues, cohorts = world.engine.weighted_share()
    # All 10 of the tree could be lent: a borrows 4 of them, part 2, b 2.
    assert queues == {"a": pytest.approx(400 / 2), "b": inf, "c": 0.0}
    assert cohorts == {"all": 0.0, "part": pytest.approx(200 / 4)}


def test_consumption_is_empty_without_admission_fair_sharing():
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    world.submit(workload("w", "cq"))
    assert world.admitted() == ["w"]
    assert consumption(world.engine) == {}


def test_decisions_are_truthy_if_anything_was_decided():
    one = workload("w", "cq")
    assert not Decisions()
    assert not Decisions(cycles=9)
    assert Decisions(admitted=(Admit(one, Admission("cq", ())),))
    assert Decisions(evicted=(Evict(one, "Preempted", ""),))
    assert Decisions(parked=(Park(one, "OnHold", ""),))


def test_refresh_without_a_cycle_assigns_pending_workloads_to_their_queues():
    world = World()
    world.submit(workload("w", "later"))
    world.tell(cluster_queue("later", 1), local_queue("later"))
    assert world.engine.explain("w").cluster_queue == ""
    world.engine.refresh(world.now)
    explanation = world.engine.explain("w")
    assert (explanation.cluster_queue, explanation.position_in_cluster_queue) == ("later", 1)
    assert (explanation.reason, explanation.message) == ("PendingEvaluation", NOT_TRIED)
    (place,) = world.engine.listing("later", limit=1)
    assert (place.reason, place.message) == ("PendingEvaluation", NOT_TRIED)


def test_evicted_workload_that_holds_quota_has_state_evicting():
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    world.submit(workload("w", "cq"))
    assert world.admitted() == ["w"]
    world.engine.observe(WorkloadEvicted("w"), now=world.now)
    assert world.engine.explain("w").state == "Evicting"


@pytest.fixture
def waiting():
    """One pending workload for each reason; no cycle has run yet."""
    world = World(
        cluster_queue("cq", 2, namespaceSelector={"matchLabels": {"team": "x"}}),
        cluster_queue("stopped", 2, stopPolicy="Hold"),
        cluster_queue("open", 2),
        *map(local_queue, ("cq", "stopped", "open")),
        local_queue("shut", to="open", stopPolicy="Hold"),
        local_queue("astray", to="nowhere"),
    )
    world.submit(workload("stranger", "cq"), workload("first", "open", 2), workload("second", "open", 1, created=1))
    world.submit(workload("idle", "stopped"), workload("outside", "shut"), workload("lost", "astray"))
    fault = ("Misconfigured", "it asks for less than nothing")
    world.engine.observe(WorkloadPending(workload("broken", "open", 1.5, created=2), fault=fault), now=world.now)
    later = workload("later", "open", created=3)
    world.engine.observe(WorkloadPending(later, not_before=world.now + 9), now=world.now)
    world.engine.observe(WorkloadPending(workload("held", "open"), on_hold=True), now=world.now)
    return world


REASONS = {
    "stranger": ("Misconfigured", "ClusterQueue cq accepts only namespaces with team=x (its namespaceSelector), and"),
    "second": ("WaitingForQuota", "Needs 1 CPU (default): less is free. It starts as soon as enough becomes free."),
    "idle": ("Suspended", "ClusterQueue stopped is stopped (stopPolicy Hold). An admin can open it"),
    "outside": ("Suspended", "LocalQueue shut is stopped (stopPolicy Hold). An admin can open it"),
    "lost": ("Misconfigured", "LocalQueue astray points to ClusterQueue nowhere, which does not exist. Use another"),
    "broken": ("Misconfigured", "it asks for less than nothing"),
    "later": ("PendingEvaluation", "It was evicted and pauses before it queues again: it takes part again at"),
    "held": ("OnHold", "It is on hold and does not queue. Release it"),
}


def test_reason_of_each_pending_workload_is_reported_once(waiting):
    decisions = waiting.engine.settle(waiting.now)
    assert [admit.workload.uid for admit in decisions.admitted] == ["first"]
    assert {park.workload.uid for park in decisions.parked} == REASONS.keys()
    assert not waiting.engine.settle(waiting.now).parked
    told = {park.workload.uid: park for park in waiting.engine.reasons(100)}
    assert told.keys() == REASONS.keys()
    for uid, (reason, message) in REASONS.items():
        assert told[uid].reason == reason
        assert told[uid].message.startswith(message)
    assert not waiting.engine.reasons_are_due
    assert waiting.engine.reasons(100) == ()


@pytest.mark.parametrize("decided", [False, True])
def test_explain_and_listing_agree_before_and_after_a_cycle(waiting, decided):
    (waiting.engine.settle if decided else waiting.engine.refresh)(waiting.now)
    expected = REASONS if decided else REASONS | {"second": ("PendingEvaluation", NOT_TRIED)}
    for uid, (reason, message) in expected.items():
        explanation = waiting.engine.explain(uid)
        assert (explanation.state, explanation.reason) == ("Pending", reason)
        assert explanation.message.startswith(message)
        assert explanation.not_before == (waiting.now + 9 if uid == "later" else None)
    places = [place for name in ("cq", "stopped", "open", "nowhere") for place in waiting.engine.listing(name, limit=9)]
    listed = {place.workload.uid: place for place in places}
    assert expected.keys() - listed.keys() == {"outside", "held"}
    for uid in expected.keys() & listed.keys():
        assert listed[uid].reason == expected[uid][0]
        assert listed[uid].message.startswith(expected[uid][1])


def test_explain_has_exact_free_borrowable_and_missing_amounts():
    world = World(cluster_queue("a", 4, cohort="all"), cluster_queue("b", 3, cohort="all"), *map(local_queue, "ab"))
    world.submit(workload("of-a", "a", 1), workload("of-b", "b", 4))
    assert len(world.admitted()) == 2
    world.submit(workload("w", "a", 7, created=1))
    world.engine.settle(world.now)
    (lack,) = world.engine.explain("w").lacks
    assert (lack.flavor, lack.resource) == ("default", "cpu")
    assert (lack.used, lack.used_by_others) == (1000, 4000)
    assert (lack.requested, lack.free, lack.borrowable, lack.maximum, lack.missing) == (7000, 2000, 0, 7000, 5000)
    assert len(world.engine.explain("w").preemption_hints) == 1, "all there is, and not more than that"
    world.submit(workload("full", "b", 2, created=2))
    assert world.admitted() == ["full"]
    (lack,) = world.engine.explain("w").lacks
    assert (lack.free, lack.borrowable, lack.missing) == (0, 0, 7000)


def test_explain_counts_borrowable_quota_as_a_part_of_free_quota():
    world = World(cluster_queue("a", 4, cohort="all"), cluster_queue("b", 3, cohort="all"), *map(local_queue, "ab"))
    world.submit(workload("of-a", "a", 1))
    assert world.admitted() == ["of-a"]
    world.submit(workload("w", "a", 7, created=1))
    world.engine.settle(world.now)
    (lack,) = world.engine.explain("w").lacks
    assert (lack.free, lack.borrowable) == (6000, 3000)


def test_settle_admits_in_a_tree_behind_idle_trees():
    world = World(*(cluster_queue(name, 1) for name in "abc"), *map(local_queue, "abc"))
    world.engine.settle(world.now)
    world.submit(workload("of-c", "c"))
    assert world.admitted() == ["of-c"], "the trees before it have nothing to do"


def test_missing_admission_check_suspends_the_cluster_queue():
    rule = {"admissionChecks": [{"name": "budget"}]}
    world = World(cluster_queue("cq", 1, admissionChecksStrategy=rule), local_queue("cq"))
    world.submit(workload("w", "cq"))
    (park,) = world.engine.settle(world.now).parked
    assert (park.reason, park.message) == (
        "Suspended",
        "ClusterQueue cq names AdmissionCheck budget, which does not exist",
    )
    world.tell(manifest("AdmissionCheck", "budget", {"controllerName": "example.com/budget"}))
    assert world.admitted() == ["w"]
