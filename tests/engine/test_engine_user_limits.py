"""Limits of users: admitted workloads and requested resources, in a ClusterQueue and in all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission.engine import Engine, NamespaceChanged, Policy, QueueObjectDeleted, UserLimits, WorkloadAdmitted
from admission.model.queues import QueueObject
from admission.model.workload import Workload
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, manifest, workload

REASON = "UserLimitReached"


def limit(name: str = "", **spec: Any) -> QueueObject:
    return manifest("UserLimit", name or f"limit-{len(spec)}", spec)


def new_world(*limits: QueueObject, quota: int = 4) -> World:
    queues = [cluster_queue(name, quota, cohort="all") for name in "ab"]
    engine = Engine(Policy(policies=(UserLimits(),)))
    return World(cohort("all"), *queues, local_queue("a"), local_queue("b"), *limits, engine=engine)


def parked(world: World) -> dict[str, tuple[str, str]]:
    return {park.workload.name: (park.reason, park.message) for park in world.engine.settle(world.now).parked}


def test_user_has_at_most_so_many_workloads_in_all_queues_and_others_pass():
    world = new_world(limit(running=2))
    world.submit(*(workload(f"ann-{n}", queue, created=n, user="ann") for n, queue in enumerate("aba")))
    world.submit(workload("bob", "a", created=9, user="bob"))
    assert parked(world) == {"ann-2": (REASON, "user ann: 2 of at most 2 workloads are admitted in all ClusterQueues")}
    world.gone("ann-1")
    assert world.admitted() == ["ann-2"]


def test_limit_of_a_user_replaces_that_for_everybody_in_its_scope_only():
    world = new_world(
        limit("x", running=1), limit("y", users=["ann"], running=3), limit("z", clusterQueue="a", running=2)
    )
    world.submit(*(workload(f"ann-a{n}", "a", created=n, user="ann") for n in range(3)))
    assert parked(world) == {
        "ann-a2": (REASON, "user ann: 2 of at most 2 workloads are admitted in ClusterQueue a"),
    }
    world.submit(*(workload(f"{user}-b{n}", "b", created=n, user=user) for n in range(2) for user in ("ann", "bob")))
    found = parked(world)
    assert found["ann-b1"] == (REASON, "user ann: 3 of at most 3 workloads are admitted in all ClusterQueues")
    assert found["bob-b1"] == (REASON, "user bob: 1 of at most 1 workloads are admitted in all ClusterQueues")


def test_message_has_what_is_in_use_what_may_be_and_what_is_needed():
    world = new_world(limit(clusterQueue="a", resources={"cpu": 3}))
    world.submit(workload("first", "a", 2, user="ann"), workload("second", "a", 1.5, created=1, user="ann"))
    world.submit(workload("elsewhere", "b", 4, created=2, user="ann"))
    message = "user ann: 2 of at most 3 cpu are in use in ClusterQueue a, this needs 1500m"
    assert parked(world) == {"second": (REASON, message)}


def test_workloads_without_a_user_share_one_limit():
    world = new_world(limit(running=1))
    world.submit(workload("first", "a"), workload("second", "a", created=1))
    message = "workloads without a recorded user: 1 of at most 1 workloads are admitted in all ClusterQueues"
    assert parked(world) == {"second": (REASON, message)}


def test_what_service_accounts_submit_in_a_namespace_counts_together():
    world = new_world(limit(running=1))
    world.engine.observe(NamespaceChanged("other", {}), now=world.now)
    world.tell(manifest("LocalQueue", "a", {"clusterQueue": "a"}, namespace="other"))
    accounts = ["serviceaccount:ns:robot", "serviceaccount:argo:argo", "kube-controller-manager"]
    ours = [workload(f"w{n}", "a", created=n, user=f"system:{each}") for n, each in enumerate(accounts)]
    world.submit(*ours, replace(ours[2], uid="theirs", name="theirs", namespace="other"))
    message = (
        "service accounts and controllers in namespace ns: 1 of at most 1 workloads are admitted in all ClusterQueues"
    )
    assert parked(world) == dict.fromkeys(["w1", "w2"], (REASON, message))
    assert world.engine.is_admitted("theirs")


def test_nobody_gets_more_by_replacing_a_workload_of_somebody_else():
    world = new_world(limit(running=1))
    world.submit(workload("of-ann", "a", user="ann"), workload("of-bob", "a", created=1, user="bob"))
    assert len(world.admitted()) == 2
    world.submit(workload("more", "a", created=2, user="ann", replaces="of-bob"))
    assert parked(world)["more"][0] == REASON


def test_larger_version_counts_only_for_what_it_adds():
    world = new_world(limit(running=1, resources={"cpu": 3}))
    world.submit(workload("small", "a", 1, count=2, user="ann"))
    assert world.admitted() == ["small"]
    world.submit(workload("large", "a", 1, count=3, user="ann", replaces="small"))
    assert world.admitted() == ["large"]
    world.submit(workload("larger", "a", 1, count=4, user="ann", replaces="large"))
    assert parked(world) == {
        "larger": (REASON, "user ann: 0 of at most 3 cpu are in use in all ClusterQueues, this needs 4")
    }


def test_more_than_may_wait_are_held_in_the_order_of_the_queue_until_earlier_ones_are_admitted():
    world = new_world(limit(pending=1), quota=1)
    world.submit(*(workload(f"w{n}", "a", 2 - n / 2, created=n, user="ann") for n in range(3)))
    world.submit(workload("urgent", "a", 2, created=9, priority=5, user="ann"))
    held = REASON, "user ann: 1 of at most 1 workloads are pending in all ClusterQueues"
    found = parked(world)  # the urgent one is admitted, and w0 waits for its quota
    assert [name for name, why in found.items() if why == held] == ["w1", "w2"]
    world.gone("urgent")
    assert world.admitted() == ["w0"]
    assert world.admitted() == []
    world.gone("w0")
    assert world.admitted() == ["w1"]


def test_more_than_may_be_submitted_are_held_until_one_has_ended():
    world = new_world(limit(submitted=2))
    world.submit(*(workload(f"w{n}", "ab"[n % 2], created=n, user="ann") for n in range(4)))
    message = "user ann: 2 of at most 2 workloads are submitted in all ClusterQueues"
    assert parked(world)["w2"] == (REASON, message)
    assert not world.admitted()
    world.gone("w1")
    assert world.admitted() == ["w2"]
    world.gone("w3")  # a held one, deleted and submitted again, is the last
    world.submit(workload("w3", "a", created=9, user="ann"), workload("w4", "b", created=5, user="ann"))
    world.gone("w0")
    assert world.admitted() == ["w4"]
    world = new_world(limit(submitted=2))
    world.submit(*(workload(f"w{n}", "a", created=n, user="ann") for n in range(2)))
    assert not parked(world)  # the first one is not counted twice when it is admitted before the second


def test_what_needs_nothing_of_an_exceeded_resource_is_admitted():
    world = new_world()
    world.submit(workload("first", "a", 3, user="ann"))
    assert world.admitted() == ["first"]
    world.tell(limit(resources={"cpu": 2}))
    world.submit(workload("none", "a", 0, created=1, user="ann"), workload("some", "a", 1, created=2, user="ann"))
    assert world.admitted() == ["none"]


def test_of_workloads_with_fewer_pods_those_that_were_admitted_count():
    world = new_world(limit(resources={"cpu": 9}), quota=2)
    world.submit(workload("part", "a", 1, count=8, user="ann", pods={"min_count": 2}))
    assert world.admitted() == ["part"]  # 4 pods
    world.tell(cluster_queue("b", 9, cohort="all"))
    world.submit(workload("second", "b", 5, created=1, user="ann"))
    assert world.admitted() == ["second"]
    world.submit(workload("third", "b", 1, created=2, user="ann"))
    message = "user ann: 9 of at most 9 cpu are in use in all ClusterQueues, this needs 1"
    assert parked(world) == {"third": (REASON, message)}


def test_limits_of_a_group_replace_that_for_everybody_and_the_most_generous_holds():
    world = new_world(
        limit("everybody", running=1), limit("students", groups=["students"], running=0),
        limit("staff", groups=["staff"], running=2), limit("root", users=["root"], resources={"cpu": 8}), quota=9,
    )  # fmt: skip
    for user, groups in (("ann", ("staff", "students")), ("bob", ("students",)), ("eve", ()), ("root", ("students",))):
        world.submit(*(workload(f"{user}-{n}", "a", created=n, user=user, groups=groups) for n in range(3)))
    assert sorted(world.admitted()) == ["ann-0", "ann-1", "eve-0", "root-0", "root-1", "root-2"]


def test_members_of_a_group_share_a_limit_beside_their_own():
    world = new_world(limit("each", running=2), limit("team", groups=["ml"], together=True, resources={"cpu": 3}))
    for user in ("ann", "bob"):
        world.submit(*(workload(f"{user}-{n}", "a", created=n, user=user, groups=("ml",)) for n in range(3)))
    world.submit(workload("eve", "a", created=9, user="eve"))
    found = parked(world)
    assert found["ann-2"] == (REASON, "user ann: 2 of at most 2 workloads are admitted in all ClusterQueues")
    shared = "UserLimit team: 3 of at most 3 cpu are in use in all ClusterQueues, this needs 1"
    assert found["bob-1"] == (REASON, shared)
    assert "eve" not in found
    world.gone("ann-0")
    assert world.admitted() == ["bob-1"]


def test_limit_counts_what_was_there_before_it_and_nothing_after_its_deletion():
    world = new_world(quota=2)
    world.submit(*(workload(f"w{n}", "a", created=n, user="ann") for n in range(4)))
    world.submit(workload("large", "a", 2, created=4, user="ann"), workload("small", "a", created=5, user="ann"))
    assert len(world.admitted()) == 4
    world.tell(limit("running", running=3))
    world.gone("w0")
    message = "user ann: 3 of at most 3 workloads are admitted in all ClusterQueues"
    assert parked(world) == {"large": (REASON, message), "small": (REASON, message)}
    world.tell(limit("running", pending=1))
    assert parked(world)["small"] == (REASON, "user ann: 1 of at most 1 workloads are pending in all ClusterQueues")
    world.engine.observe(QueueObjectDeleted("UserLimit", "", "running"), now=world.now)
    assert world.admitted() == ["small"]


STEP = st.tuples(
    st.sampled_from(["submit", "submit", "end", "restart", "forget", "edit"]), st.integers(0, 99), st.sampled_from("ab")
)


@given(st.lists(STEP, max_size=40))
def test_nobody_is_ever_given_more_than_the_limits(steps):
    """Whatever is submitted, ends, is restarted, cannot be committed, or is edited at the same time."""
    running, shared, cpu = 3, 2, 4

    def limits() -> list[QueueObject]:
        return [
            limit("all", running=running, pending=4, submitted=6, resources={"cpu": cpu}),
            limit("u1", clusterQueue="b", users=["u1"], resources={"cpu": 2}),
            limit("both", clusterQueue="a", groups=["g"], together=True, running=shared),
        ]

    world, held, waiting = new_world(*limits()), {}, {}
    for number, (action, seed, queue) in enumerate(steps):
        if action == "submit":
            user = f"u{seed % 3}"
            one = workload(f"w{number}", queue, 1 + seed % 3, created=number, user=user, groups=("g",)[: seed % 3])
            waiting[one.uid] = one
            world.submit(one)
        elif action == "end" and held:
            del held[uid := sorted(held)[seed % len(held)]]
            world.gone(uid)
        elif action == "edit":
            running, shared, cpu = 1 + seed % 4, seed % 3, 3 + seed % 5
            world.tell(*limits())
        elif action == "restart":
            world = new_world(*limits())
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
        for admit in admitted:  # what was admitted under higher limits runs on
            one = admit.workload
            user, its_queue = one.user, one.queue
            mine = [each.workload for each in held.values() if each.workload.user == user]
            assert len(mine) <= running
            assert sum(map(_cpu, mine)) <= cpu * 1000
            if (user, its_queue) == ("u1", "b"):
                assert sum(_cpu(each) for each in mine if each.queue == "b") <= 2000
            if one.groups and its_queue == "a":
                of_group = [each for each in held.values() if each.workload.groups and each.workload.queue == "a"]
                assert len(of_group) <= shared
    if not held and not world.engine.settle(world.now).admitted:  # nothing is in use: only what never fits waits
        for one in waiting.values():
            never = one.queue == "b" and one.user == "u1" and _cpu(one) == 3000
            assert never or (one.groups and one.queue == "a" and not shared)


def _cpu(one: Workload) -> int:
    return one.pod_sets[0].requests["cpu"]
