"""Topology-aware placement compared with the reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vectors.recorded import files
from tests.vectors.suites.topology import placements
from tests.vectors.test_vectors_cases import check
from tests.vectors.test_vectors_recorded import compare

UNSUPPORTED = {"TASBalancedPlacement", "TASRespectNodeAffinityPreferred", "ElasticJobsViaWorkloadSlicesWithTAS"}
"""Feature gates of Kueue that are off by default, and that Sluice does not have."""


def read(path: Any) -> dict[str, Any]:
    """Return a document; skips the test if the document needs an unsupported gate."""
    document: dict[str, Any] = json.loads(path.read_text())
    gates = UNSUPPORTED.intersection(gate for gate, on in document["featureGates"].items() if on)
    if gates:
        pytest.skip(f"Sluice has no {', '.join(sorted(gates))}")
    return document


@pytest.mark.parametrize("path", files("topology/recorded/*/*.json"))
def test_decisions_of_a_recorded_scenario_match_the_reference(path):
    compare(read(path))


@pytest.mark.parametrize("path", files("topology/cases/schedule-tas*/*.json"))
def test_decision_of_a_single_cycle_matches_the_reference(path):
    check(read(path))


@pytest.mark.parametrize("path", files("topology/cases/topology-assign/*.json"))
def test_single_placement_matches_the_reference(path):
    case = read(path)
    assert placements(case)["podSets"] == case["expect"]["podSets"]
