"""The candidates of a workload that may be dispatched, and the annotation that names clusters."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.kinds.base import affinity_of
from admission.model.cluster_order import (
    ClusterAffinity,
    ClusterOrder,
    ClusterTerm,
    candidates,
    open_at,
    parse_cluster_affinity,
)

NAMES = ("a", "b", "c", "d", "e")
REGIONS = st.sampled_from(["eu", "us"])
CLUSTERS = st.dictionaries(st.sampled_from(NAMES), st.builds(lambda region: {"region": region}, REGIONS))
TERMS = st.builds(
    ClusterTerm,
    st.lists(st.sampled_from(NAMES), unique=True, max_size=3).map(tuple),
    st.one_of(st.just(()), REGIONS.map(lambda region: (("region", region),))),
)
AFFINITIES = st.builds(ClusterAffinity, st.none() | TERMS, st.lists(TERMS, max_size=3).map(tuple))
ORDERS = st.builds(
    ClusterOrder,
    st.sampled_from(["Name", "Cost", "Spread"]),
    st.lists(st.sampled_from(NAMES), unique=True).map(tuple),
    st.sampled_from([0.0, 60.0]),
)


@given(
    ORDERS,
    CLUSTERS,
    AFFINITIES,
    st.sampled_from(["", *NAMES]),
    st.dictionaries(st.sampled_from(NAMES), st.floats(0, 9)),
)
def test_each_cluster_is_a_candidate_once_or_passed_over_and_what_precedes_is_tried_earlier(
    order, clusters, affinity, former, costs
):
    def cost(name):
        return costs.get(name, 0.0)

    found, passed = candidates(order, clusters, affinity, former=former, since=1000.0, cost=cost)
    names = [name for each in found for name in each.clusters]
    assert sorted([*names, *(name for name, _ in passed)]) == sorted(clusters)
    required = affinity.required
    assert {name for name, _ in passed} == {n for n in clusters if required and not required.matches(n, clusters[n])}
    if former in names:
        assert names[0] == former
    times = [each.not_before for each in found]
    assert times[:1] in ([], [0.0])
    assert times[1:] == [1000.0 + 60.0 * i if order.spillover else 0.0 for i in range(1, len(found))]
    assert order.by == "Spread" or all(len(each.clusters) == 1 for each in found)
    others = [name for name in names if name != former]

    def rank(name):
        preferred = [term.matches(name, clusters[name]) for term in affinity.preferred]
        listed = order.first.index(name) if name in order.first else len(order.first)
        return (preferred.index(True) if True in preferred else len(preferred)), listed

    assert [rank(name) for name in others] == sorted(map(rank, others))
    if order.by == "Cost" and not order.first and not affinity.preferred:
        assert [cost(name) for name in others] == sorted(map(cost, others))


def test_further_candidates_open_one_after_the_other():
    found, _ = candidates(
        ClusterOrder(spillover=60),
        {"a": {}, "b": {}, "c": {}},
        ClusterAffinity(),
        former="",
        since=100,
        cost=lambda _: 0,
    )
    assert open_at(found, 100) == ((("a",),), 160)
    assert open_at(found, 160) == ((("a",), ("b",)), 220)
    assert open_at(found, 220) == ((("a",), ("b",), ("c",)), None)


def test_affinity_has_names_and_labels():
    text = (
        '{"required": {"clusters": ["a", "b"]}, "preferred": [{"matchLabels": {"region": "eu"}}, {"clusters": ["b"]}]}'
    )
    affinity = parse_cluster_affinity(text)
    assert affinity.required == ClusterTerm(("a", "b"))
    assert affinity.preferred == (ClusterTerm((), (("region", "eu"),)), ClusterTerm(("b",)))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a", "must be a JSON object"),
        ("{}", "must be a JSON object"),
        ('{"require": {}}', "must be a JSON object"),
        ('{"required": {}}', "required: "),
        ('{"required": {"clusters": "a"}}', "required.clusters: "),
        ('{"required": {"clusters": ["A"]}}', "required.clusters: "),
        ('{"required": {"clusters": [{}]}}', "required.clusters: "),
        ('{"required": {"matchLabels": {"region": 1}}}', "required.matchLabels: "),
        (json.dumps({"required": {"clusters": [f"c{i}" for i in range(65)]}}), "required.clusters: "),
        (json.dumps({"required": {"matchLabels": {f"l{i}": "" for i in range(65)}}}), "required.matchLabels: "),
        ('{"preferred": {"clusters": ["a"]}}', "preferred: "),
        ('{"preferred": [{"clusters": ["a"]}, {"clusters": []}]}', "preferred[1]: "),
    ],
)
def test_wrong_affinity_is_refused_where_it_is_wrong(text, where):
    with pytest.raises(ValueError, match=f"^{where}".replace("[", r"\[")):
        parse_cluster_affinity(text)


def test_affinity_of_many_clusters_has_a_short_message():
    names = [f"cluster-{number}" for number in range(64)]
    affinity = parse_cluster_affinity(json.dumps({"required": {"clusters": names}}))
    _, passed = candidates(ClusterOrder(), {"a": {}}, affinity, former="", since=0.0, cost=lambda _: 0.0)
    assert passed == [
        ("a", f"this workload requires {' or '.join(names[:5])} or 59 more"),
    ]


def test_very_long_affinity_is_refused_before_it_is_parsed():
    text = json.dumps({"required": {"clusters": ["a" * 250] * 1000}})
    assert affinity_of(text) == (ClusterAffinity(), f"must have at most 32768 characters, not {len(text)}")
