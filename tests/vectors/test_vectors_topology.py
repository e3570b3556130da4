"""Topology-aware placement compared with the reference."""

from __future__ import annotations

import json

import pytest

from tests.vectors.recorded import files
from tests.vectors.suites.topology import placements
from tests.vectors.test_vectors_cases import check
from tests.vectors.test_vectors_recorded import compare


@pytest.mark.parametrize("path", files("topology/recorded/*/*.json"))
def test_decisions_of_a_recorded_scenario_match_the_reference(path):
    compare(json.loads(path.read_text()))


@pytest.mark.parametrize("path", files("topology/cases/schedule-tas*/*.json"))
def test_decision_of_a_single_cycle_matches_the_reference(path):
    check(json.loads(path.read_text()))


@pytest.mark.parametrize("path", files("topology/cases/topology-assign/*.json"))
def test_single_placement_matches_the_reference(path):
    case = json.loads(path.read_text())
    assert placements(case)["podSets"] == case["expect"]["podSets"]
