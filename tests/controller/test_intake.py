"""`read` returns the known workload only if its object still requests exactly the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.controller.state.context import Context, read
from admission.kinds import all_kinds
from admission.model.workload import PodSet

JOB = {
    "metadata": {
        "uid": "1",
        "namespace": "team-a",
        "name": "train",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2025-06-15T15:06:40Z",
        "labels": {"sluice.dev/queue-name": "main"},
        "annotations": {"sluice.dev/submitted-by": "ada"},
    },
    "spec": {
        "suspend": True,
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}},
    },
}


@pytest.fixture
def asked():
    """Function that reads the Job, optionally with its known workload."""
    kinds = all_kinds()
    context = Context()

    def again(known=None):
        return read(kinds, kinds.get("batch", "Job").observe(JOB), JOB, context, known=known).workload

    return again


def test_known_workload_is_reused_if_unchanged(asked):
    known = replace(asked(), pod_sets=(PodSet("main", 1, {"cpu": 1000}),))
    assert asked(known) is known


@pytest.mark.parametrize(
    "other",
    [
        {"queue": "other"},
        {"priority": 5},
        {"priority_class": "high"},
        {"user": "eve"},
        {"created": 0.0},
        {"pod_sets": (PodSet("main", 1, {"cpu": 2000}),)},
        {"pod_sets": ()},
    ],
    ids=str,
)
def test_known_workload_with_any_difference_is_replaced(asked, other):
    assert asked(replace(asked(), **other)) == asked()
