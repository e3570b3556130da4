"""The limit that is named as the narrowest is the one that binds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine.tree import NodeSpec, Quota, Tree, add_usage, available, build, narrowest

FR = ("default", "cpu")
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


def lowered(quotas: dict[str, Quota], named: str) -> dict[str, Quota]:
    """The same with one unit less of the limit that was named."""
    where, _, field = named.partition(": ")
    kind, name = where.split()
    assert kind == ("ClusterQueue" if name == "cq" else "Cohort")
    quota = quotas[name]
    if field == "borrowingLimit":
        assert quota.borrowing is not None
        return {**quotas, name: replace(quota, borrowing=quota.borrowing - 1)}
    assert (name, field) == ("root", "nominalQuota")
    return {**quotas, name: replace(quota, nominal=quota.nominal - 1)}


@settings(max_examples=300, deadline=None)
@given(_quotas, _used)
def test_with_less_of_what_is_narrowest_there_is_less_to_use_now(quotas, used):
    before = tree(quotas, used)
    named = narrowest(before.queues["cq"], 0)
    after = tree(lowered(quotas, named), used)
    assert available(after.queues["cq"], 0) == available(before.queues["cq"], 0) - 1


@settings(max_examples=300, deadline=None)
@given(_quotas, _used)
def test_with_less_of_what_is_ever_narrowest_there_is_less_to_use_ever(quotas, used):
    before = tree(quotas, used)
    named = narrowest(before.queues["cq"], 0, ever=True)
    after = tree(lowered(quotas, named), used)
    assert after.queues["cq"].potential[0] == before.queues["cq"].potential[0] - 1


def test_a_queue_of_its_own_has_only_its_own_quota():
    built = build([NodeSpec("alone", "", {FR: Quota(3)})], [])
    assert narrowest(built.queues["alone"], 0) == "ClusterQueue alone: nominalQuota"
