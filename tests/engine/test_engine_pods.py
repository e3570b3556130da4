"""Workloads with several pod sets, partial admission, and reclaimable pods."""

from __future__ import annotations

from dataclasses import replace

from admission.engine import WorkloadAdmitted
from admission.model.workload import Admission, PodSet, Workload
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload


def of(name: str, *pod_sets: PodSet, **fields: object) -> Workload:
    return replace(workload(name, "cq", **fields), pod_sets=pod_sets)


def pods(name: str, count: int, cpu: int, **fields: object) -> PodSet:
    return PodSet(name, count, {"cpu": cpu * 1000}, **fields)


def admit(world: World, item: Workload) -> Admission | None:
    world.submit(item)
    admitted = world.engine.settle(world.now).admitted
    return admitted[0].admission if admitted else None


def counts(admission: Admission | None) -> dict[str, int]:
    return {} if admission is None else {pod_set.name: pod_set.count for pod_set in admission.pod_sets}


def flavors(admission: Admission | None) -> dict[str, str]:
    return {} if admission is None else {pod_set.name: pod_set.flavors["cpu"] for pod_set in admission.pod_sets}


def test_workload_is_admitted_with_all_pod_sets_or_not_at_all():
    world = World(cluster_queue("cq", 5), local_queue("cq"))
    driver, workers = pods("driver", 1, 1), pods("workers", 4, 1)
    assert admit(world, of("too-large", driver, replace(workers, count=5))) is None
    assert world.engine.usage() == {}
    assert counts(admit(world, of("fits", driver, workers))) == {"driver": 1, "workers": 4}


def test_partial_admission_takes_as_many_pods_as_fit_and_at_least_min_count():
    world = World(cluster_queue("cq", 5), local_queue("cq"))
    assert counts(admit(world, of("a", pods("main", 9, 1, min_count=2)))) == {"main": 5}
    assert admit(world, of("b", pods("main", 9, 1, min_count=2))) is None
    world.gone("a")
    assert [item.workload.uid for item in world.engine.settle(world.now).admitted] == ["b"]


def test_what_pods_share_counts_once_however_many_are_admitted():
    world = World(cluster_queue("cq", 5), local_queue("cq"))
    assert counts(admit(world, of("a", pods("main", 9, 1, min_count=2, shared={"cpu": 2000})))) == {"main": 3}
    assert world.engine.usage()["cq"]["default"]["cpu"] == 5000
    world.gone("a")
    assert admit(world, of("b", pods("main", 4, 1, shared={"cpu": 2000}))) is None
    assert counts(admit(world, of("c", pods("main", 0, 1, shared={"cpu": 9000})))) == {"main": 0}
    assert counts(admit(world, of("d", pods("main", 3, 1, shared={"cpu": 2000})))) == {"main": 3}


def test_partial_admission_reduces_pod_sets_in_proportion():
    world = World(cluster_queue("cq", 7), local_queue("cq"))
    item = of("a", pods("one", 8, 1, min_count=2), pods("other", 4, 1, min_count=1), pods("fixed", 1, 1))
    admission = admit(world, item)
    # 6 of the 9 that may be missing are: 8 - 6*6//9 and 4 - 3*6//9.
    assert counts(admission) == {"one": 4, "other": 2, "fixed": 1}
    assert world.engine.usage()["cq"]["default"]["cpu"] == 7000


def test_preemption_for_all_pods_is_preferred_to_partial_admission():
    """Partial admission is tried last."""
    policies = {"withinClusterQueue": "LowerPriority"}
    world = World(cluster_queue("cq", 4, preemption=policies), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    item = of("high", pods("main", 4, 1, min_count=1), priority=5, created=1)
    world.submit(item)
    assert [evict.workload.uid for evict in world.engine.settle(world.now).evicted] == ["low"]
    world.gone("low")
    (admitted,) = world.engine.settle(world.now).admitted
    assert counts(admitted.admission) == {"main": 4}


def two_flavors() -> World:
    return World(
        cluster_queue("cq", {"default": 2, "spot": 9}), local_queue("cq"), manifest("ResourceFlavor", "spot", {})
    )


def test_each_pod_set_is_assigned_a_flavor_of_its_own():
    assert flavors(admit(two_flavors(), of("a", pods("small", 1, 1), pods("large", 4, 1)))) == {
        "small": "default",
        "large": "spot",
    }


def test_pod_sets_of_a_group_get_the_same_flavor():
    small, large = pods("small", 1, 1, group="g"), pods("large", 4, 1, group="g")
    assert flavors(admit(two_flavors(), of("a", small, large))) == {"small": "spot", "large": "spot"}


def test_partial_admission_of_a_group_takes_as_many_pods_as_fit_together():
    world = World(cluster_queue("cq", 5), local_queue("cq"))
    item = of("a", pods("leader", 1, 1, group="g"), pods("workers", 8, 1, group="g", min_count=1))
    assert counts(admit(world, item)) == {"leader": 1, "workers": 4}


def test_usage_of_earlier_pod_sets_counts_for_later_pod_sets():
    assert flavors(admit(two_flavors(), of("a", pods("one", 1, 1), pods("two", 1, 1), pods("three", 1, 1)))) == {
        "one": "default",
        "two": "default",
        "three": "spot",
    }


def test_reclaimed_pods_release_their_quota_at_once():
    world = World(cluster_queue("cq", 4), local_queue("cq"))
    item = of("a", pods("main", 4, 1))
    admission = admit(world, item)
    assert admission is not None
    assert admit(world, of("b", pods("main", 3, 1), created=1)) is None
    (main,) = admission.pod_sets
    smaller = replace(admission, pod_sets=(replace(main, count=1, usage={"cpu": 1000}),))
    world.engine.observe(WorkloadAdmitted(item, smaller, at=world.now), now=world.now)
    assert world.admitted() == ["b"]
    assert world.engine.usage() == {"cq": {"default": {"cpu": 4000}}}
    world.gone("a")
    assert world.engine.usage() == {"cq": {"default": {"cpu": 3000}}}


def test_usage_of_pod_sets_in_the_same_flavor_is_summed_after_a_restart():
    world = World(cluster_queue("cq", 5), local_queue("cq"))
    item = of("a", pods("one", 2, 1), pods("other", 1, 2))
    admission = admit(world, item)
    restarted = World(cluster_queue("cq", 5), local_queue("cq"))
    restarted.engine.observe(WorkloadAdmitted(item, admission, at=0.0), now=0.0)
    assert restarted.engine.usage() == world.engine.usage() == {"cq": {"default": {"cpu": 4000}}}
