"""Suites of single cases: each calls one part of the engine, and returns the result in the form of the reference."""

from __future__ import annotations

from typing import Any

from tests.vectors.suites.parts import SUITES
from tests.vectors.suites.single import schedule


def answer_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the result of a case, by its `suite`."""
    suite = case["suite"]
    return schedule(case) if suite.startswith("schedule") else SUITES[suite](case)
