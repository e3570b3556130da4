"""Resource accounting: excluded prefixes, transformations, and the order in which missing quotas are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

from admission.engine import Accounting, Engine, Policy, Transformation
from admission.model.queues import QueueObject
from admission.model.workload import PodSet
from tests.engine.scenes import World, cluster_queue, local_queue, workload


def queue_of(*resources: str) -> QueueObject:
    return cluster_queue("cq", {"default": dict.fromkeys(resources, 1000)})


def counted(rules: Accounting, requests: Mapping[str, int], *resources: str) -> dict[str, int]:
    world = World(queue_of(*resources), local_queue("cq"), engine=Engine(Policy(accounting=rules)))
    item = workload("a", "cq")
    world.submit(replace(item, pod_sets=(replace(item.pod_sets[0], requests=requests),)))
    assert world.admitted() == ["a"]
    return world.engine.usage()["cq"]["default"]


def test_resources_with_an_excluded_prefix_are_not_counted():
    rules = Accounting(excluded_prefixes=("net/", "disk"))
    assert counted(rules, {"cpu": 1500, "net/card": 9, "disk-io": 1}, "cpu") == {"cpu": 1500}


def test_devices_by_claim_are_neither_excluded_nor_transformed():
    rules = Accounting(("gpu",), (Transformation("gpu", {"credits": Fraction(2)}, replace=True),))
    pod_set = PodSet("main", 1, {"cpu": 500, "gpu": 3}, devices={"gpu": 2})
    (found,) = rules.pod_sets((pod_set,))
    assert found.requests == {"cpu": 500, "gpu": 2}
    assert Accounting((), rules.transformations).pod_sets((pod_set,))[0].requests == {
        "cpu": 500,
        "gpu": 2,
        "credits": 2,
    }


TIMES_COUNT = Transformation("gpu", {"credits": Fraction(2)}, multiply_by="count")
AND_MORE = Transformation("cpu", {"credits": Fraction(3, 2), "memory": Fraction(10)})
NOT_ASKED = Transformation("fpga", {"credits": Fraction(99)})


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([AND_MORE], {"cpu": 2000, "gpu": 4, "count": 5, "memory": 20, "credits": 3}),
        ([TIMES_COUNT], {"cpu": 2000, "gpu": 4, "count": 5, "credits": 40}),
        ([NOT_ASKED, AND_MORE, TIMES_COUNT], {"cpu": 2000, "gpu": 4, "count": 5, "memory": 20, "credits": 43}),
        (
            [replace(TIMES_COUNT, replace=True), replace(TIMES_COUNT, replace=True)],
            {"cpu": 2000, "count": 5, "credits": 80},
        ),
    ],
)
def test_outputs_of_transformations_add_up(rules, expected):
    """The requests are two cores and four devices, times five where `multiply_by` names the count."""
    requests = {"cpu": 2000, "gpu": 4, "count": 5}
    resources = ("cpu", "gpu", "count", "memory", "credits")
    assert counted(Accounting(transformations=tuple(rules)), requests, *resources) == expected


def test_output_of_a_transformation_is_added_to_the_request_of_that_resource():
    rules = Accounting(transformations=(Transformation("gpu", {"cpu": Fraction(1, 2)}),))
    assert counted(rules, {"cpu": 1, "gpu": 1}, "cpu", "gpu") == {"cpu": 501, "gpu": 1}


def fnv1a(text: str) -> int:
    """Return the 64-bit FNV-1a hash as published: of "a" it is 0xAF63DC4C8601EC8C."""
    value = 14695981039346656037
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return value


NAMES = ("nvidia.com/gpu", "memory", "pods", "a", "b", "ephemeral-storage")


@pytest.mark.parametrize("pair", [*combinations(NAMES, 2)])
def test_resource_without_quota_with_the_lowest_fnv1a_hash_is_reported(pair):
    assert fnv1a("a") == 0xAF63DC4C8601EC8C
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    item = workload("w", "cq")
    world.submit(replace(item, pod_sets=(PodSet("main", 1, dict.fromkeys(pair, 1)),)))
    (park,) = world.engine.settle(world.now).parked
    assert f"resource {min(pair, key=fnv1a)} unavailable in ClusterQueue" in park.message
