"""Limits of users: admitted workloads and requested resources, in a ClusterQueue and in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from admission.engine import Engine, Policy, UserLimit, UserLimits, WorkloadAdmitted
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload

if TYPE_CHECKING:
    from admission.model.workload import Workload

REASON = "UserLimitReached"


def new_world(*limits: UserLimit) -> World:
    queues = [cluster_queue(name, 4, cohort="all") for name in "ab"]
    engine = Engine(Policy(policies=(UserLimits(limits),)))
    return World(cohort("all"), *queues, local_queue("a"), local_queue("b"), engine=engine)


def parked(world: World) -> dict[str, tuple[str, str]]:
    return {park.workload.name: (park.reason, park.message) for park in world.engine.settle(world.now).parked}


def test_user_has_at_most_so_many_workloads_in_all_queues_and_others_pass():
    world = new_world(UserLimit(workloads=2))
    world.submit(*(workload(f"ann-{n}", queue, created=n, user="ann") for n, queue in enumerate("aba")))
    world.submit(workload("bob", "a", created=9, user="bob"))
    assert parked(world) == {"ann-2": (REASON, "user ann: 2 of at most 2 workloads are admitted in all ClusterQueues")}
    world.gone("ann-1")
    assert world.admitted() == ["ann-2"]


def test_limit_of_a_user_replaces_that_for_everybody_in_its_scope_only():
    world = new_world(UserLimit(workloads=1), UserLimit(users=("ann",), workloads=3), UserLimit("a", workloads=2))
    world.submit(*(workload(f"ann-a{n}", "a", created=n, user="ann") for n in range(3)))
    assert parked(world) == {
        "ann-a2": (REASON, "user ann: 2 of at most 2 workloads are admitted in ClusterQueue a"),
    }
    world.submit(*(workload(f"{user}-b{n}", "b", created=n, user=user) for n in range(2) for user in ("ann", "bob")))
    found = parked(world)
    assert found["ann-b1"] == (REASON, "user ann: 3 of at most 3 workloads are admitted in all ClusterQueues")
    assert found["bob-b1"] == (REASON, "user bob: 1 of at most 1 workloads are admitted in all ClusterQueues")


def test_message_has_what_is_in_use_what_may_be_and_what_is_needed():
    world = new_world(UserLimit("a", resources={"cpu": 3000}))
    world.submit(workload("first", "a", 2, user="ann"), workload("second", "a", 1.5, created=1, user="ann"))
    world.submit(workload("elsewhere", "b", 4, created=2, user="ann"))
    message = "user ann: 2 of at most 3 cpu are in use in ClusterQueue a, this needs 1500m"
    assert parked(world) == {"second": (REASON, message)}


def test_workloads_without_a_user_share_one_limit():
    world = new_world(UserLimit(workloads=1))
    world.submit(workload("first", "a"), workload("second", "a", created=1))
    message = "workloads without a recorded user: 1 of at most 1 workloads are admitted in all ClusterQueues"
    assert parked(world) == {"second": (REASON, message)}


def test_larger_version_counts_only_for_what_it_adds():
    world = new_world(UserLimit(workloads=1, resources={"cpu": 3000}))
    world.submit(workload("small", "a", 1, count=2, user="ann"))
    assert world.admitted() == ["small"]
    world.submit(workload("large", "a", 1, count=3, user="ann", replaces="small"))
    assert world.admitted() == ["large"]
    world.submit(workload("larger", "a", 1, count=4, user="ann", replaces="large"))
    assert parked(world) == {
        "larger": (REASON, "user ann: 0 of at most 3 cpu are in use in all ClusterQueues, this needs 4")
    }


STEP = st.tuples(st.sampled_from(["submit", "end", "restart", "forget"]), st.integers(0, 99), st.sampled_from("ab"))


@given(st.lists(STEP, max_size=40))
def test_no_user_ever_has_more_than_the_limits(steps):
    limits = UserLimit(workloads=3, resources={"cpu": 4000}), UserLimit("b", users=("u1",), resources={"cpu": 2000})
    world, held, waiting = new_world(*limits), {}, {}
    for number, (action, seed, queue) in enumerate(steps):
        if action == "submit":
            one = workload(f"w{number}", queue, 1 + seed % 3, created=number, user=f"u{seed % 2}")
            waiting[one.uid] = one
            world.submit(one)
        elif action == "end" and held:
            del held[uid := sorted(held)[seed % len(held)]]
            world.gone(uid)
        elif action == "restart":
            world = new_world(*limits)
            for admit in held.values():
                world.engine.observe(WorkloadAdmitted(admit.workload, admit.admission, at=0.0), now=world.now)
            world.submit(*waiting.values())
        admitted = world.engine.settle(world.now).admitted
        if action == "forget" and admitted:
            world.engine.forget(admitted[0])
            admitted = admitted[1:]
        for admit in admitted:
            held[admit.workload.uid] = admit
            del waiting[admit.workload.uid]
        for user in "u0", "u1":
            mine = [admit for admit in held.values() if admit.workload.user == user]
            cpu = {q: sum(_cpu(a.workload) for a in mine if a.workload.queue == q) for q in "ab"}
            assert len(mine) <= 3
            assert sum(cpu.values()) <= 4000
            assert user != "u1" or cpu["b"] <= 2000
    if not held and not world.engine.settle(world.now).admitted:  # nothing is in use: only what never fits waits
        assert all(one.queue == "b" and one.user == "u1" and _cpu(one) == 3000 for one in waiting.values())


def _cpu(one: Workload) -> int:
    return one.pod_sets[0].requests["cpu"]
