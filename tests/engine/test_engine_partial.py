"""Partial admission: the pod counts that the search tries."""

from __future__ import annotations

from admission.engine.cycle import largest_that_fits
from admission.model.workload import PodSet


def test_pod_counts_are_reduced_in_proportion_to_the_largest_that_fit():
    tried = []

    def attempt(counts):
        tried.append(list(counts))
        return tried[-1] if sum(counts) <= 10 else None

    pod_sets = (PodSet("driver", 1, {}), PodSet("wide", 9, {}, min_count=2), PodSet("narrow", 4, {}, min_count=1))
    assert largest_that_fits(pod_sets, attempt) == [1, 6, 3]
    assert all(type(count) is int for counts in tried for count in counts)
