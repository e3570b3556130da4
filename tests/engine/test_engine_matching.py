"""Match of pods with flavors: taints, tolerations, node selectors and node affinity."""

from __future__ import annotations

from typing import Any

import pytest

from admission.model.workload import NodeRequirement, Toleration
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

TAINTS = [
    {"key": "soft", "value": "x", "effect": "PreferNoSchedule"},
    {"key": "gpu", "value": "a", "effect": "NoSchedule"},
]


def fits(flavor: dict[str, Any], **pods: Any) -> bool:
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    world.tell(manifest("ResourceFlavor", "default", flavor))
    world.submit(workload("w", "cq", pods=pods))
    decisions = world.engine.settle(world.now)
    if not decisions.admitted:
        assert [park.reason for park in decisions.parked] == ["NoMatchingFlavor"]
    return bool(decisions.admitted)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (None, False),
        (Toleration("gpu", "Equal", "a"), True),
        (Toleration("gpu", "", "a"), True),
        (Toleration("gpu", "Equal", "a", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "a", "NoExecute"), False),
        (Toleration("gpu", "Equal", "b"), False),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "a"), False),
        (Toleration("fpga", "Exists"), False),
        (Toleration("gpu", "Other", "a"), False),
    ],
    ids=str,
)
def test_a_taint_must_be_tolerated_by_the_pod_or_the_flavor(toleration, expected):
    assert fits({"nodeTaints": TAINTS}, tolerations=() if toleration is None else (toleration,)) == expected
    if toleration is not None and toleration.operator in ("Equal", "Exists") and (toleration.key or expected):
        spelled = {"key": toleration.key, "operator": toleration.operator, "effect": toleration.effect}
        own = spelled | ({"value": toleration.value} if toleration.value else {})
        assert fits({"nodeTaints": TAINTS, "tolerations": [own]}) == expected


def test_every_taint_must_be_tolerated():
    more = [*TAINTS, {"key": "slow", "effect": "NoExecute"}]
    gpu, slow = Toleration("gpu", "Exists"), Toleration("slow", "Exists")
    assert not fits({"nodeTaints": more}, tolerations=(gpu,))
    assert not fits({"nodeTaints": more}, tolerations=(slow,))
    assert fits({"nodeTaints": more}, tolerations=(gpu, slow))


LABELS = {"zone": "a", "cores": "8", "name": "word"}


@pytest.mark.parametrize(
    ("selector", "expected"), [({"zone": "a", "other": "x"}, True), ({"zone": "b"}, False), ({"zone": "a"}, True)]
)
def test_node_selector_is_compared_only_with_labels_that_the_flavor_has(selector, expected):
    assert fits({"nodeLabels": LABELS}, node_selector=selector) == expected


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("zone", "Exists", (), True),
        ("zone", "DoesNotExist", (), False),
        ("other", "DoesNotExist", (), True),
        ("other", "In", ("x",), True),
        ("cores", "Gt", ("7",), True),
        ("cores", "Gt", ("8",), False),
        ("cores", "Gt", ("9",), False),
        ("cores", "Lt", ("9",), True),
        ("cores", "Lt", ("8",), False),
        ("cores", "Lt", ("7",), False),
        ("cores", "Gt", ("few",), False),
        ("cores", "Lt", (), False),
        ("name", "Lt", ("9",), False),
    ],
)
def test_node_affinity_is_evaluated_only_on_labels_that_the_flavor_has(key, operator, values, expected):
    asked = NodeRequirement(key, operator, values)
    assert fits({"nodeLabels": LABELS}, affinity=((asked,),)) == expected
    never = NodeRequirement("zone", "In", ("nowhere",))
    assert fits({"nodeLabels": LABELS}, affinity=((never,), (asked,))) == expected, "one term is enough"
    assert not fits({"nodeLabels": LABELS}, affinity=((asked, never),)), "of a term, all of it"
