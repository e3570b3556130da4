"""Quota trees: the narrowest limit, unlimited quota, and the lowest subtree that is enough for a request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine.tree import (
    BOUNDLESS,
    Node,
    NodeSpec,
    Quota,
    Tree,
    add_usage,
    available,
    build,
    fits,
    limits_below,
    local_available,
    lowest_subtree,
)
from admission.model.quantity import UNLIMITED

FR = ("default", "cpu")
IDLE = {"cq": 0, "near": 0, "far": 0}
PARENTS = {"root": "", "upper": "root", "lower": "upper", "cq": "lower", "near": "lower", "far": "root"}

_limit = st.none() | st.integers(1, 8)
_quotas = st.fixed_dictionaries(
    {name: st.builds(Quota, st.integers(1, 9), _limit, _limit) for name in PARENTS},
).map(lambda quotas: {**quotas, "root": replace(quotas["root"], borrowing=None, lending=None)})
_used = st.fixed_dictionaries({name: st.integers(0, 9) for name in ("cq", "near", "far")})


def tree(quotas: dict[str, Quota], used: dict[str, int]) -> Tree:
    specs = {name: NodeSpec(name, parent, {FR: quotas[name]}) for name, parent in PARENTS.items()}
    queues = {name: specs.pop(name) for name in used}
    built = build(queues.values(), specs.values())
    for name, amount in used.items():
        add_usage(built.queues[name], 0, amount)
    return built


def raised(quotas: dict[str, Quota], named: str, by: int) -> dict[str, Quota]:
    """Return the quotas with the named limit raised."""
    where, _, field = named.partition(": ")
    kind, name = where.split()
    assert kind == ("ClusterQueue" if name == "cq" else "Cohort")
    quota = quotas[name]
    if field == "borrowingLimit":
        assert quota.borrowing is not None
        return {**quotas, name: replace(quota, borrowing=quota.borrowing + by)}
    assert (name, field) == ("root", "nominalQuota")
    return {**quotas, name: replace(quota, nominal=quota.nominal + by)}


def narrowest(node: Node, fr: int, *, ever: bool = False) -> str:
    return limits_below(node, fr, 0, ever=ever)[0][0]


@pytest.mark.costly
@settings(max_examples=300)
@given(_quotas, _used)
def test_available_quota_decreases_with_the_narrowest_limit(quotas, used):
    before = tree(quotas, used)
    named = narrowest(before.queues["cq"], 0)
    after = tree(raised(quotas, named, -1), used)
    assert available(after.queues["cq"], 0) == available(before.queues["cq"], 0) - 1


@pytest.mark.costly
@settings(max_examples=300)
@given(_quotas, st.integers(1, 12))
def test_raised_limits_are_enough_for_what_exceeded_them(quotas, more):
    """All limits that are too low are named, each with what it lacks."""
    before = tree(quotas, IDLE)
    amount = before.queues["cq"].potential[0] + more
    found = limits_below(before.queues["cq"], 0, amount, ever=True)
    assert found[0][1] == more
    for name, lack in found:
        quotas = raised(quotas, name, lack)
    after = tree(quotas, IDLE)
    assert after.queues["cq"].potential[0] >= amount


@pytest.mark.costly
@settings(max_examples=300)
@given(_quotas, _used)
def test_potential_quota_decreases_with_the_limit_that_is_ever_the_narrowest(quotas, used):
    before = tree(quotas, used)
    named = narrowest(before.queues["cq"], 0, ever=True)
    after = tree(raised(quotas, named, -1), used)
    assert after.queues["cq"].potential[0] == before.queues["cq"].potential[0] - 1


@pytest.mark.parametrize("ever", [False, True])
@pytest.mark.parametrize(
    ("nominal", "expected"),
    [(0, "Cohort root: nominalQuota"), (1, "ClusterQueue cq: borrowingLimit"), (2, "ClusterQueue cq: borrowingLimit")],
)
def test_quota_kept_by_lending_limits_is_not_subject_to_the_limits_above(nominal, expected, ever):
    """The queue keeps 2, `mid` keeps 1 and they lend 3, which is 6 plus the root's quota; the queue may use 7.

    Of equally narrow limits the nearest one is reported.
    """
    cohorts = [NodeSpec("root", "", {FR: Quota(nominal)}), NodeSpec("mid", "root", {FR: Quota(3, lending=3)})]
    built = build([NodeSpec("cq", "mid", {FR: Quota(3, borrowing=4, lending=1)})], cohorts)
    assert narrowest(built.queues["cq"], 0, ever=ever) == expected


def test_narrowest_limit_of_a_queue_without_cohort_is_its_nominal_quota():
    built = build([NodeSpec("alone", "", {FR: Quota(3)})], [])
    assert narrowest(built.queues["alone"], 0) == "ClusterQueue alone: nominalQuota"


def test_queue_in_full_use_fits_only_a_request_of_zero():
    node = build([NodeSpec("alone", "", {FR: Quota(3)})], []).queues["alone"]
    add_usage(node, 0, 3)
    assert fits(node, {0: 0})
    assert not fits(node, {0: 1})
    assert local_available(node, 0) == 0
    assert lowest_subtree(node, 0, 1) == (0, False)


def test_unlimited_quota_is_boundless_in_sums():
    quotas = {"all": Quota(UNLIMITED), "a": Quota(UNLIMITED), "b": Quota(UNLIMITED - 1)}
    queues = [NodeSpec(name, "all", {FR: quotas[name]}) for name in "ab"]
    built = build(queues, [NodeSpec("all", "", {FR: quotas["all"]})])
    assert built.root.quota[0] == built.root.potential[0] == BOUNDLESS
    assert built.queues["a"].nominal[0] == BOUNDLESS
    assert built.queues["b"].nominal[0] == UNLIMITED - 1


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(2, (0, True)), (3, (1, True)), (5, (1, True)), (6, (2, True)), (7, (2, True)), (8, (3, False)), (99, (3, False))],
)
def test_lowest_subtree_whose_quota_is_enough_for_the_amount_is_found(amount, expected):
    """The queue keeps 1 of its 2; `low` has 3 more and keeps 2 of its 4; `mid` has 2 more, which is 4 in total."""
    cohorts = [
        NodeSpec("root", "", {FR: Quota(9)}),
        NodeSpec("mid", "root", {FR: Quota(2)}),
        NodeSpec("low", "mid", {FR: Quota(3, lending=2)}),
    ]
    built = build([NodeSpec("cq", "low", {FR: Quota(2, lending=1)})], cohorts)
    assert lowest_subtree(built.queues["cq"], 0, amount) == expected
