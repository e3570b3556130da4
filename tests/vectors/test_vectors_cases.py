"""Single decisions compared with the reference: a cycle, a search for victims, a flavor assignment, a quota sum."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.vectors.recorded import files
from tests.vectors.suites import answer_of


def _cases() -> list[Any]:
    return [
        parameter
        for parameter in files("cases/*/*.json")
        if parameter.values[0] is None or not parameter.values[0].parent.name.startswith("schedule-tas")
    ]


@pytest.mark.parametrize("path", _cases())
def test_decision_of_a_single_case_matches_the_reference(path):
    check(json.loads(path.read_text()))


def check(case: dict[str, Any]) -> None:
    """Compare the decision in a case with the reference."""
    answer = answer_of(case)
    expected = case["expect"]
    assert _comparable({key: answer.get(key) for key in expected}) == _comparable(expected)


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    for status in (answer.get("statusAfter") or {}).values():
        for condition in status.get("conditions", ()):
            if condition["reason"] == "Misconfigured":
                condition["message"] = ""  # Sluice has its own wording for invalid pods
            # Sluice does not disclose the ClusterQueue of another namespace's workload to the victim's namespace.
            condition["message"] = re.sub(r"preemptor path: \S+; ", "", condition["message"])
    answer = {**answer}
    if "events" in answer:  # the reference records messages only where it checks them
        answer["events"] = sorted((event["object"], event["type"], event["reason"]) for event in answer["events"])
    if "skippedPreemptions" in answer:  # the reference does not list every ClusterQueue
        answer["skippedPreemptions"] = {name: count for name, count in answer["skippedPreemptions"].items() if count}
    return answer
