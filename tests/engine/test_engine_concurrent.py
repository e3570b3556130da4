"""Concurrent admission (`concurrentAdmissionPolicy`): each flavor by itself, and moves to the preferred one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from admission.engine import Decisions, Engine, Policy, WorkloadAdmitted, WorkloadEvicted
from admission.model.errors import InvalidObject
from admission.model.terms import Terms
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

FLAVORS = ("reserved", "on-demand", "spot")


def queue(name: str = "q", cpu: int = 4, **fields: Any) -> Any:
    constraints = {key: fields.pop(key) for key in ("lastAcceptableFlavorName", "minimumRuntime") if key in fields}
    migration = {
        "mode": fields.pop("mode", "TryPreferredFlavors"),
        **({"constraints": constraints} if constraints else {}),
    }
    quota = fields.pop("quota", dict.fromkeys(FLAVORS, cpu))
    return cluster_queue(name, quota, concurrentAdmissionPolicy={"migration": migration}, **fields)


def scene(policy: Policy | None = None, **fields: Any) -> World:
    world = World(*(manifest("ResourceFlavor", name, {}) for name in FLAVORS), engine=Engine(policy))
    world.tell(queue(**fields), local_queue("q"))
    return world


def settle(world: World) -> Decisions:
    return world.engine.settle(world.now)


def flavors(decisions: Decisions) -> dict[str, str]:
    return {admit.workload.name: admit.admission.pod_sets[0].flavors["cpu"] for admit in decisions.admitted}


def reasons(decisions: Decisions) -> dict[str, str]:
    return {evict.workload.name: evict.reason for evict in decisions.evicted}


def full(world: World) -> None:
    """`old` holds the preferred flavor, `w` the next one."""
    world.submit(workload("old", "q", 4, created=1.0))
    assert flavors(settle(world)) == {"old": "reserved"}
    world.submit(workload("w", "q", 4, created=2.0))
    assert flavors(settle(world)) == {"w": "on-demand"}


def test_workload_moves_when_the_preferred_flavor_is_free():
    world = scene()
    full(world)
    world.gone("old")
    moved = settle(world)
    assert reasons(moved) == {"w": "FlavorMigration"}
    assert "It moves from flavor on-demand to reserved" in moved.evicted[0].message
    assert moved.admitted == ()
    assert world.engine.waiting == 0
    assert not settle(world)
    world.gone("w", requeue=workload("w", "q", 4, created=2.0))
    assert flavors(settle(world)) == {"w": "reserved"}
    assert not settle(world)


def test_quota_is_kept_for_it_while_it_stops():
    world = scene()
    full(world)
    world.gone("old")
    settle(world)
    world.submit(workload("later", "q", 4, created=3.0))
    assert flavors(settle(world)) == {"later": "spot"}
    world.gone("w", requeue=workload("w", "q", 4, created=2.0))
    decisions = settle(world)
    assert flavors(decisions) == {"w": "reserved"}
    assert reasons(decisions) == {"later": "FlavorMigration"}, "on-demand is free for it now"


def test_first_flavor_that_fits_is_taken_even_where_it_borrows_or_others_could_be_preempted():
    world = scene(preemption={"withinClusterQueue": "LowerPriority"})
    full(world)
    world.submit(workload("high", "q", 4, priority=9, created=3.0))
    assert flavors(settle(world)) == {"high": "spot"}


def test_all_pod_sets_get_the_same_flavor():
    world = scene(cpu=2)
    world.submit(workload("old", "q", 1, created=1.0))
    settle(world)
    pods = workload("w", "q", 1).pod_sets[0]
    world.submit(replace(workload("w", "q", created=2.0), pod_sets=(pods, replace(pods, name="second"))))
    (admit,) = settle(world).admitted
    assert {pod_set.flavors["cpu"] for pod_set in admit.admission.pod_sets} == {"on-demand"}


def test_it_stays_with_retain_first_admission():
    world = scene(mode="RetainFirstAdmission")
    full(world)
    world.gone("old")
    assert not settle(world)


def test_it_moves_to_no_flavor_behind_the_last_acceptable_one():
    world = scene(lastAcceptableFlavorName="reserved")
    full(world)
    world.submit(workload("third", "q", 4, created=3.0))
    assert flavors(settle(world)) == {"third": "spot"}
    world.gone("w")
    assert not settle(world)
    world.gone("old")
    assert reasons(settle(world)) == {"third": "FlavorMigration"}


def test_it_runs_for_the_minimum_runtime_before_it_moves():
    world = scene(minimumRuntime="20m")
    full(world)
    world.gone("old")
    assert not settle(world)
    assert world.engine.wake_at() == 1000 + 1200
    world.now = 2200
    assert reasons(settle(world)) == {"w": "FlavorMigration"}


def test_state_loaded_at_a_start_moves_as_well():
    world = scene(minimumRuntime="20m")
    world.submit(workload("w", "q", 4))
    (admit,) = settle(world).admitted
    spot = replace(admit.admission.pod_sets[0], flavors={"cpu": "spot"})
    other = scene(minimumRuntime="20m")
    other.engine.observe(
        WorkloadAdmitted(admit.workload, replace(admit.admission, pod_sets=(spot,)), at=500.0), now=other.now
    )
    assert not settle(other)
    assert other.engine.wake_at() == 1700
    other.now = 1700
    assert reasons(settle(other)) == {"w": "FlavorMigration"}


def test_waiting_workload_of_higher_priority_comes_first():
    world = scene()
    full(world)
    world.submit(workload("third", "q", 4, created=3.0), workload("high", "q", 4, priority=9, created=4.0))
    settle(world)
    world.gone("old")
    first = settle(world)
    assert not reasons(first).get("w") or "high" in flavors(first)


def test_it_preempts_for_the_preferred_flavor_as_its_variant_would():
    world = scene(preemption={"withinClusterQueue": "LowerPriority"}, quota={"reserved": 4, "spot": 4})
    world.submit(workload("low", "q", 4, created=1.0))
    settle(world)
    world.submit(workload("high", "q", 4, priority=9, created=2.0))
    first = settle(world)
    assert flavors(first) == {"high": "spot"}
    assert reasons(first) == {"low": "Preempted"}
    world.gone("low", requeue=workload("low", "q", 4, created=1.0))
    assert reasons(settle(world)) == {"high": "FlavorMigration"}
    world.gone("high", requeue=workload("high", "q", 4, priority=9, created=2.0))
    assert flavors(settle(world)) == {"high": "reserved", "low": "spot"}
    assert not settle(world)


@pytest.mark.parametrize("stop", [True, False])
def test_it_does_not_move_while_it_could_not_start_again(stop):
    world = scene()
    full(world)
    if stop:
        world.tell(local_queue("q", stopPolicy="Hold"))
    else:
        world.engine.observe(WorkloadEvicted("w"), now=world.now)
    world.gone("old")
    assert not settle(world).evicted
    if stop:
        world.tell(local_queue("q"))
        assert reasons(settle(world)) == {"w": "FlavorMigration"}


def test_pod_does_not_move_as_it_would_not_come_back():
    world = scene()
    world.submit(workload("old", "q", 4, created=1.0))
    settle(world)
    world.submit(workload("w", "q", 4, created=2.0, kind="Pod", api_version="v1"))
    settle(world)
    world.gone("old")
    assert not settle(world)


def test_explanation_names_only_flavors_in_which_it_could_run():
    world = scene(quota={"reserved": 1, "on-demand": 4, "spot": 4})
    full_or_none = workload("w", "q", 4, created=2.0)
    world.submit(workload("old", "q", 4, created=1.0))
    settle(world)
    world.submit(full_or_none)
    assert flavors(settle(world)) == {"w": "spot"}
    explained = [world.engine.explain(name) for name in ("w", "old")]
    assert all(each is not None for each in explained)
    assert [each.moves for each in explained if each is not None] == [
        "It moves to flavor on-demand, which ClusterQueue q prefers, as soon as it fits there.",
        "",
    ]


def test_policy_that_is_removed_lets_it_stay():
    world = scene()
    full(world)
    world.tell(cluster_queue("q", dict.fromkeys(FLAVORS, 4)))
    world.gone("old")
    assert not settle(world)


def variant(name: str, flavor: str, **fields: Any) -> Any:
    """Return a variant that is a workload of its own, as in Kueue."""
    return workload(name, "q", 4, terms=Terms(flavors=(flavor,), variant_of="parent"), **fields)


def test_variants_that_are_workloads_get_their_flavor_alone():
    world = scene()
    world.submit(variant("a", "spot"))
    assert flavors(settle(world)) == {"a": "spot"}
    world.submit(variant("b", "on-demand"))
    decisions = world.engine.cycle(world.now)
    assert reasons(decisions) == {"a": "FlavorMigration"}
    assert decisions.evicted[0].message == (
        "Evicted to accommodate a workload (UID: b) due to migration to more favorable resource flavor"
    )
    assert [(park.reason, park.message) for park in decisions.parked] == [
        ("WaitingForPreemptedWorkloads", ". Pending the migration of 1 workload(s)")
    ]


def test_variants_that_are_workloads_yield_to_better_ones():
    world = scene(lastAcceptableFlavorName="reserved")
    world.submit(variant("a", "on-demand"))
    settle(world)
    world.submit(variant("b", "spot"))
    (park,) = world.engine.cycle(world.now).parked
    assert (park.reason, park.message) == ("PendingEvaluation", "A more favorable variant is already admitted")
    other = scene(lastAcceptableFlavorName="reserved")
    other.submit(variant("a", "spot"))
    settle(other)
    other.submit(variant("b", "on-demand"))
    decisions = other.engine.cycle(other.now)
    (park,) = decisions.parked
    assert (park.reason, park.message) == ("PendingEvaluation", "Target flavor is below LastAcceptableFlavorName")
    assert not decisions.evicted


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_ends_with_each_in_the_best_flavor(seed, fair_sharing):
    """Quota is never exceeded; nobody moves for ever; at the end nobody could move any more."""
    random = Random(seed)
    world = scene(Policy(fair_sharing=fair_sharing), cpu=6)
    alive: dict[str, Any] = {}
    moves: Counter[str] = Counter()
    for step in range(40):
        world.now += 10
        if random.random() < 0.6 or not alive:
            alive[f"w{step}"] = workload(f"w{step}", "q", random.randint(1, 4), created=world.now)
            world.submit(alive[f"w{step}"])
        else:
            name = random.choice(sorted(alive))
            del alive[name]
            world.gone(name)
        leaving = list(settle(world).evicted)
        while leaving:
            assert {evict.reason for evict in leaving} == {"FlavorMigration"}
            for evict in leaving:
                moves[evict.workload.name] += 1
                world.gone(evict.workload.uid, requeue=evict.workload)
            leaving = list(settle(world).evicted)
        for amounts in world.engine.usage().get("q", {}).values():
            assert amounts["cpu"] <= 6000
    assert max(moves.values(), default=0) <= 6
    used = world.engine.usage().get("q", {})
    for name in alive:
        if world.engine.is_admitted(name):
            continue
        needs = alive[name].pod_sets[0].requests["cpu"]
        assert all(6000 - used.get(flavor, {}).get("cpu", 0) < needs for flavor in FLAVORS)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"queueingStrategy": "StrictFIFO"}, "concurrentAdmissionPolicy: needs queueingStrategy BestEffortFIFO"),
        ({"resourceGroups": []}, "concurrentAdmissionPolicy: needs exactly one resource group"),
        ({"quota": {f"f{n}": 1 for n in range(17)}}, "concurrentAdmissionPolicy: permits 16 flavors at most"),
        ({"lastAcceptableFlavorName": "gone"}, "constraints.lastAcceptableFlavorName: gone is no flavor of the Cl"),
        ({"mode": "RetainFirstAdmission", "minimumRuntime": "1h"}, "migration.constraints: needs mode TryPreferred"),
        ({"mode": "Always"}, "migration.mode: "),
        ({"minimumRuntime": "0s"}, "constraints.minimumRuntime: must be more than 0"),
    ],
)
def test_faults_are_named(fields, fault):
    with pytest.raises(InvalidObject, match=fault):
        queue(**fields)
