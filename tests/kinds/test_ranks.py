"""Which pod of a pod set goes to which domain of its topology assignment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.kinds.base import RENDERED
from admission.kinds.ranks import PlacedPod, RankRule, domains_of, index_labels, rule_of, rule_of_pods
from admission.model.topology import DomainCount, TopologyAssignment

INDEX = "batch.kubernetes.io/job-completion-index"
COPY = "jobset.sigs.k8s.io/job-index"
A, B, C = ("a",), ("b",), ("c",)
BY_INDEX = RankRule(INDEX)


def assigned(**counts: int) -> TopologyAssignment:
    return TopologyAssignment(("rack",), tuple(DomainCount((name,), count) for name, count in counts.items()))


def pod(index: int | None, *, at: str = "", copy: int | None = None, offset: int = 0, name: str = "") -> PlacedPod:
    labels = {} if index is None else {INDEX: str(index)}
    labels |= {} if copy is None else {COPY: str(copy)}
    uid = name or f"{'' if copy is None else copy}.{index}"
    return PlacedPod(uid, labels, not at, {"rack": at} if at else {}, offset)


def test_pods_go_to_the_domains_of_their_ranks_whatever_their_order():
    pods = [pod(3), pod(0), pod(2), pod(1)]
    assert domains_of(assigned(a=1, b=3), pods, BY_INDEX) == {".3": B, ".0": A, ".2": B, ".1": B}


def test_a_pod_that_is_made_again_gets_the_place_of_its_rank():
    assert domains_of(assigned(a=1, b=2), [pod(0, at="a"), pod(2, at="b"), pod(1)], BY_INDEX) == {".1": B}


JOBSET = {"spec": {"replicatedJobs": [{"name": "w", "replicas": 2}]}}
WRAPPER = "workload.codeflare.dev.appwrapper/"
SAID = {f"{WRAPPER}tas-pod-index-label": INDEX, f"{WRAPPER}tas-sub-group-index-label": COPY}
WRAPPED = {
    "template": {"apiVersion": "example.com/v1", "kind": "Train"},
    "podSets": [{"annotations": {**SAID, f"{WRAPPER}tas-sub-group-count": "2"}}],
}


@pytest.mark.parametrize(
    ("group", "kind", "obj", "pod_set"),
    [
        ("jobset.x-k8s.io", "JobSet", JOBSET, "w"),
        ("trainer.kubeflow.org", "TrainJob", {"spec": {}, RENDERED: JOBSET}, "w"),
        ("workload.codeflare.dev", "AppWrapper", {"spec": {"components": [{}, WRAPPED]}}, "component-1-0"),
    ],
)
def test_ranks_of_copies_follow_each_other(group, kind, obj, pod_set):
    rule = rule_of(group, kind, obj, pod_set)
    pods = [pod(0, copy=1), pod(1, copy=0), pod(0, copy=0), pod(1, copy=1)]
    assert domains_of(assigned(a=2, b=2), pods, rule) == {"1.0": B, "0.1": A, "0.0": A, "1.1": B}


def test_indexes_may_begin_later():
    assert domains_of(assigned(a=1, b=1), [pod(2, offset=1), pod(1, offset=1)], BY_INDEX) == {".2": B, ".1": A}
    assert domains_of(assigned(a=1, b=1), [pod(2), pod(1)], BY_INDEX, leaders=1) == {".2": B, ".1": A}


def test_without_valid_ranks_domains_are_filled_in_their_order():
    for pods in (
        [pod(None, name="x"), pod(1, name="y")],
        [pod(1, name="x"), pod(1, name="y")],
        [pod(7, name="x"), pod(1, name="y")],
    ):
        assert domains_of(assigned(b=1, a=1), pods, BY_INDEX) == {"x": B, "y": A}
    elsewhere = [pod(0, at="b"), pod(1)]
    assert domains_of(assigned(a=1, b=1), elsewhere, BY_INDEX) == {".1": A}


def test_pods_beyond_the_assignment_and_of_failed_nodes_stay_gated():
    pods = [pod(None, name=name) for name in "xyz"]
    assert domains_of(assigned(a=1, b=1), pods, RankRule("")) == {"x": A, "y": B}
    assert domains_of(assigned(a=1, b=1), pods, RankRule(""), excluded={"a"}) == {"y": B}


def test_the_index_of_a_grouped_pod_is_that_of_the_label_it_names():
    metadata = {"labels": {"my/rank": "4"}, "annotations": {"kueue.x-k8s.io/pod-group-pod-index-label": "my/rank"}}
    labels = index_labels({"metadata": metadata})
    one = PlacedPod("u", labels, gated=True)
    assert rule_of_pods([one]).label == "kueue.x-k8s.io/pod-group-pod-index"
    assert domains_of(assigned(a=4, b=1), [one], rule_of_pods([one])) == {"u": B}


@given(st.data())
def test_no_domain_ever_gets_more_pods_than_it_is_assigned(data):
    """Pods are made, ungated as told, deleted and made again in any order; at the end each place is taken once."""
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    placed = TopologyAssignment(("rack",), tuple(DomainCount((f"r{i}",), n) for i, n in enumerate(counts)))
    total = sum(counts)
    has_ranks = data.draw(st.booleans())
    pods: dict[int, PlacedPod] = {}
    made = 0
    for _ in range(data.draw(st.integers(0, 30))):
        index = data.draw(st.integers(0, total - 1))
        if index in pods and data.draw(st.booleans()):
            del pods[index]
            continue
        if index not in pods:
            made += 1
            pods[index] = PlacedPod(str(made), {INDEX: str(index)} if has_ranks else {}, gated=True)
        found = domains_of(placed, list(pods.values()), BY_INDEX)
        for one in pods.values():
            if one.gated and one.uid in found and data.draw(st.booleans()):
                one.gated, one.selector = False, {"rack": found[one.uid][0]}
        for values, count in placed.domains:
            assert sum(one.selector.get("rack") == values[0] for one in pods.values()) <= count
    for index in range(total):
        if index not in pods:
            pods[index] = PlacedPod(f"last{index}", {INDEX: str(index)} if has_ranks else {}, gated=True)
    found = domains_of(placed, list(pods.values()), BY_INDEX)
    assert found.keys() == {one.uid for one in pods.values() if one.gated}
