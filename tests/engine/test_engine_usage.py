"""Admission fair sharing: less recent usage comes first, and a restart restores the usage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import (
    AdmissionFairSharing,
    Engine,
    PastAdmission,
    Policy,
    SharerUsed,
    WorkloadAdmitted,
    WorkloadPending,
)
from tests.engine.scenes import World, cluster_queue, consumption, local_queue, manifest, workload

QUEUES = ("a", "b", "c")


def new_world(half_life: float = 60.0, between: str = "LocalQueues") -> World:
    policy = Policy(policies=(AdmissionFairSharing(half_life=half_life, sampling_interval=10.0),))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing", "between": between}
    return World(
        cluster_queue("cq", 4, admissionScope=scope),
        *(local_queue(name, to="cq", fairSharing={"weight": str(1 + at)}) for at, name in enumerate(QUEUES)),
        engine=Engine(policy),
    )


def test_local_queue_with_less_usage_comes_first_despite_lower_priority():
    world = new_world()
    world.submit(workload("first", "a", 4))
    assert world.admitted() == ["first"]
    world.now += 30
    world.submit(workload("greedy", "a", 4, priority=9, created=1), workload("modest", "b", 4, created=2))
    world.gone("first")
    assert world.admitted() == ["modest"]


def test_user_with_less_usage_in_the_queue_comes_first_whatever_the_local_queue():
    world = new_world(between="Users")
    world.submit(workload("first", "a", 4, user="ann"))
    assert world.admitted() == ["first"]
    world.now += 30
    world.submit(workload("greedy", "b", 4, priority=9, created=1, user="ann"))
    world.submit(workload("modest", "a", 4, created=2, user="bob"), workload("unknown", "a", 4, created=3))
    world.gone("first")
    assert world.admitted() == ["modest"]
    world.gone("modest")
    assert world.admitted() == ["unknown"]


def test_service_accounts_of_a_namespace_share_as_one_user():
    world = new_world(between="Users")
    world.submit(workload("first", "a", 4, user="system:serviceaccount:ns:one"))
    world.admitted()
    world.now += 30
    world.submit(workload("another", "b", 4, created=1, user="system:serviceaccount:ns:two"))
    world.submit(workload("modest", "a", 4, created=2, user="bob"))
    world.gone("first")
    assert world.admitted() == ["modest"]


def test_past_admissions_of_the_ledger_count_for_their_users():
    world = new_world(between="Users")
    row = PastAdmission("u", "ann", "ns", "a", "cq", "default", "cpu", 4000, world.now - 60, world.now - 1, False)
    world.engine.seed([row], now=world.now)
    world.submit(workload("greedy", "b", 4, created=1, user="ann"), workload("modest", "a", 4, created=2, user="bob"))
    assert world.admitted() == ["modest"]


def test_order_follows_when_users_are_compared_instead_of_local_queues():
    world = new_world()
    world.submit(workload("first", "a", 4, user="ann"))
    world.admitted()
    world.now += 30
    world.submit(workload("same-queue", "a", 4, created=2, user="bob"))
    world.submit(workload("same-user", "b", 4, created=1, user="ann"))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing", "between": "Users"}
    world.tell(cluster_queue("cq", 4, admissionScope=scope))
    world.gone("first")
    assert world.admitted() == ["same-queue"]


def test_usage_decays_with_the_half_life():
    world = new_world(half_life=10.0)
    world.engine.observe(SharerUsed(("ns", "a"), {"cpu": 8.0}, world.now), now=world.now)
    world.now += 20
    world.engine.settle(world.now)
    assert consumption(world.engine)["ns", "a"].consumed == {"cpu": pytest.approx(2.0)}


def test_reading_usages_does_not_change_stored_averages():
    world = new_world(half_life=60.0)
    world.engine.observe(SharerUsed(("ns", "b"), {"cpu": 8.0}, world.now), now=world.now)
    began = world.now
    world.now += 60
    world.engine.settle(world.now)
    (policy,) = world.engine.policies
    assert policy.usages() == {("ns", "a"): 0.0, ("ns", "b"): pytest.approx(2.0), ("ns", "c"): 0.0}  # b weighs two
    assert policy._averages._entries["ns", "b"].updated == began


@pytest.mark.parametrize("told_first", [True, False])
def test_past_and_current_usage_are_loaded_in_either_order_of_events(told_first):
    """Quota that is held now is observed as well, before or after the past usage; both count."""
    world = new_world(half_life=10.0)
    scout = new_world()
    scout.submit(workload("held", "a", 3))
    (admit,) = scout.engine.settle(0.0).admitted
    events = [
        SharerUsed(("ns", "a"), {"cpu": 8.0}, world.now - 10),
        WorkloadAdmitted(admit.workload, admit.admission, at=0.0),
    ]
    for event in events if told_first else reversed(events):
        world.engine.observe(event, now=world.now)
    used = consumption(world.engine)["ns", "a"]
    assert (used.consumed, used.current) == ({"cpu": pytest.approx(4.0)}, {"cpu": 3000})


def test_half_life_of_zero_drops_past_usage_and_has_no_penalty():
    world = new_world(half_life=0.0)
    world.engine.observe(SharerUsed(("ns", "a"), {"cpu": 8.0}, world.now), now=world.now)
    world.submit(workload("held", "a", 3))
    assert world.admitted() == ["held"]
    used = consumption(world.engine)["ns", "a"]
    assert (used.consumed, used.penalty()) == ({"cpu": 8.0}, {"cpu": 0.0})
    world.now += 0.5
    world.engine.settle(world.now)
    assert consumption(world.engine)["ns", "a"].consumed == {"cpu": 0.0}


def test_held_quota_counts_gradually_and_its_penalty_at_once():
    """The usage is compared after one half-life of 60 s; the penalty is the usage of a sampling interval of 10 s."""
    world = new_world(half_life=60.0)
    world.submit(workload("held", "a", 3))
    assert world.admitted() == ["held"]
    used = consumption(world.engine)["ns", "a"]
    penalty = 3 * (1 - 0.5 ** (10 / 60))
    assert (used.consumed, used.penalty()) == ({}, {"cpu": pytest.approx(penalty)})
    world.now += 60
    world.engine.settle(world.now)
    used = consumption(world.engine)["ns", "a"]
    assert (used.consumed, used.penalty()) == ({"cpu": pytest.approx(1.5 + penalty)}, {})
    world.gone("held")
    used = consumption(world.engine)["ns", "a"]
    assert (used.consumed, used.current) == ({"cpu": pytest.approx(1.5 + penalty)}, {"cpu": 0})


def test_penalty_is_removed_if_the_workload_ends_before_usage_is_sampled():
    world = new_world()
    world.submit(workload("short", "a", 3))
    assert world.admitted() == ["short"]
    world.gone("short")
    used = consumption(world.engine)["ns", "a"]
    assert (used.consumed, used.penalty()) == ({}, {})


def amounts_world(**policy: Any) -> World:
    """Return a world in which one workload fits; the LocalQueues a, b and c have the weights 1, 2 and 0."""
    config = AdmissionFairSharing(half_life=60.0, sampling_interval=10.0, **policy)
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    weights = {"a": "1", "b": "2", "c": "0"}
    return World(
        cluster_queue("cq", 1, admissionScope=scope),
        *(local_queue(name, to="cq", fairSharing={"weight": weight}) for name, weight in weights.items()),
        engine=Engine(Policy(policies=(config,))),
    )


@pytest.mark.parametrize(
    ("weights", "used", "first"),
    [
        ({}, {"a": {"cpu": 3.0}, "b": {"cpu": 5.0}}, "b"),
        ({}, {"a": {"cpu": 3.0}, "b": {"cpu": 7.0}}, "a"),
        ({}, {"a": {"cpu": 3.0, "gpu": 1.0}, "b": {"cpu": 7.0}}, "b"),
        ({"gpu": 0.0}, {"a": {"cpu": 3.0, "gpu": 9.0}, "b": {"cpu": 7.0}}, "a"),
        ({"gpu": 9.0}, {"a": {"cpu": 3.0}, "b": {"gpu": 1.0}}, "a"),
        ({}, {"a": {"cpu": 3.0}, "b": {"cpu": 99.0}, "c": {}}, "a"),
    ],
)
def test_usage_is_weighted_by_resource_and_local_queue(weights, used, first):
    world = amounts_world(resource_weights=weights)
    for name, amounts in used.items():
        world.engine.observe(SharerUsed(("ns", name), amounts, world.now), now=world.now)
    # In the reverse order of their names, so that only usage decides.
    world.submit(*(workload(f"of-{name}", name, created=-ord(name)) for name in used))
    assert world.admitted() == [f"of-{first}"]


def test_memory_counts_in_bytes():
    world = new_world()
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    world.tell(cluster_queue("cq", {"default": {"cpu": 10_000, "memory": 10_000}}, admissionScope=scope))
    item = workload("w", "a")
    pods = replace(item.pod_sets[0], requests={"cpu": 2000, "memory": 7000})
    world.submit(replace(item, pod_sets=(pods,)))
    assert world.admitted() == ["w"]
    alpha = 1 - 0.5 ** (10 / 60)
    assert consumption(world.engine)["ns", "a"].penalty() == {
        "cpu": pytest.approx(2 * alpha),
        "memory": pytest.approx(7000 * alpha),
    }


def test_usage_of_a_resource_includes_all_flavors():
    world = World(
        cluster_queue("cq", {"default": 2, "spot": 3}),
        local_queue("cq"),
        engine=Engine(Policy(policies=(AdmissionFairSharing(half_life=60.0),))),
    )
    world.tell(manifest("ResourceFlavor", "spot", {}))
    item = workload("w", "cq")
    pods = [replace(item.pod_sets[0], name=f"p{cpu}", requests={"cpu": 1000 * cpu}) for cpu in (2, 3)]
    world.submit(replace(item, pod_sets=tuple(pods)))
    assert world.admitted() == ["w"]
    assert world.engine.usage() == {"cq": {"default": {"cpu": 2000}, "spot": {"cpu": 3000}}}
    assert consumption(world.engine)["ns", "cq"].current == {"cpu": 5000}


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 17.0, 100.0])),
    ),
    min_size=4,
    max_size=40,
)


@pytest.mark.costly
@settings(max_examples=100)
@given(_steps, st.floats(0, 1), st.sampled_from(["LocalQueues", "Users"]))
def test_engine_restarted_from_stored_state_makes_the_same_decisions(steps, part, between):
    world, restarted = new_world(between=between), None
    waiting, running = {}, {}
    for number, step in enumerate(steps):
        if restarted is None and number >= part * len(steps):
            restarted = new_world(between=between)
            restarted.now = world.now
            for event in world.engine.policy_events():
                restarted.engine.observe(event, now=world.now)
            # In another order than it happened, as a database may return it.
            for admit, at in reversed(running.values()):
                restarted.engine.observe(WorkloadAdmitted(admit.workload, admit.admission, at), now=world.now)
            for item in waiting.values():
                restarted.engine.observe(WorkloadPending(item), now=world.now)
        worlds = [world] if restarted is None else [world, restarted]
        match step:
            case ("arrive", queue, cpu, priority):
                item = workload(
                    f"w{number}", queue, cpu, priority=priority, created=float(number), user=f"u{number % 3}"
                )
                waiting[item.uid] = item
                for each in worlds:
                    each.submit(item)
            case ("end", pick) if running:
                uid = list(running)[pick % len(running)]
                del running[uid]
                for each in worlds:
                    each.gone(uid)
            case ("wait", seconds):
                for each in worlds:
                    each.now += seconds
        decisions = [each.engine.settle(each.now) for each in worlds]
        assert all(decided.admitted == decisions[0].admitted for decided in decisions)
        for admit in decisions[0].admitted:
            running[admit.workload.uid] = admit, world.now
            del waiting[admit.workload.uid]
