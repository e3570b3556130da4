"""Whole scenarios compared with the reference: the decisions of each cycle and the final state."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from admission.model.quantity import amount
from admission.simulate import simulate
from tests.vectors.recorded import files


@pytest.mark.parametrize("path", files("recorded/*/*.json"))
def test_decisions_of_a_recorded_scenario_match_the_reference(path):
    compare(json.loads(path.read_text()))


def compare(scenario: dict[str, Any]) -> None:
    """Compare the decisions in a scenario with the reference."""
    answer = simulate(scenario)
    expected = scenario["expect"]
    assert answer["stopped"] == expected["stopped"]
    assert len(answer["cycles"]) == len(expected["cycles"])
    for ours, theirs in zip(answer["cycles"], expected["cycles"], strict=True):
        assert _cycle(ours) == _cycle(theirs), f"cycle {theirs['cycle']}"
    ours, theirs = _final(answer["final"]), _final(expected["final"])
    for field in ("weightedShare", "cohortWeightedShare"):
        if theirs[field] is None:  # not recorded
            ours[field] = None
    assert ours == theirs


def _cycle(cycle: dict[str, Any]) -> dict[str, Any]:
    waits = cycle.get("notAdmitted") or {}
    topology = ("unhealthyNodes", "reassigned", "evicted", "evictedAfter")
    return {
        **{field: cycle.get(field) or {} for field in topology},
        "admitted": {key: _amounts(admission) for key, admission in cycle["admitted"].items()},
        "preempted": cycle["preempted"],
        "finished": sorted(cycle.get("finished") or ()),
        "active": {name: sorted(keys) for name, keys in cycle["active"].items()},
        "inadmissible": {name: sorted(keys) for name, keys in cycle["inadmissible"].items()},
        "notAdmitted": {key: (why["reason"], _causes(why["message"])) for key, why in waits.items()},
    }


def _final(final: dict[str, Any]) -> dict[str, Any]:
    usage = {
        (name, flavor, resource): value
        for name, flavors in final["usage"].items()
        for flavor, amounts in flavors.items()
        for resource, value in amounts.items()
        if value
    }
    return {
        "admitted": {key: _amounts(admission) for key, admission in final["admitted"].items()},
        "pending": sorted(final["pending"]),
        "finished": sorted(final["finished"]),
        "usage": usage,
        "weightedShare": final.get("weightedShare"),
        "cohortWeightedShare": final.get("cohortWeightedShare"),
    }


def _amounts(admission: dict[str, Any]) -> dict[str, Any]:
    pod_sets = {
        entry["name"]: {
            "count": entry["count"],
            "flavors": entry["flavors"],
            "usage": {name: amount(name, value) for name, value in entry["resourceUsage"].items()},
            "topologyAssignment": entry.get("topologyAssignment"),
            "delayedTopologyRequest": entry.get("delayedTopologyRequest"),
        }
        for entry in admission["podSetAssignments"]
    }
    return {"clusterQueue": admission["clusterQueue"], "podSets": pod_sets}


def _causes(message: str) -> list[str]:
    # The reference lists the causes in no fixed order.
    return sorted(re.split(r"[,;] ", message))
