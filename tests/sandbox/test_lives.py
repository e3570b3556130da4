"""The sandbox's controllers held to lives recorded on a real control plane: same requests, same order of states."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lives import different, misplaced, read, relive

LIVES = next(
    (found for up in Path(__file__).parents if (found := up / "shared" / "apiserver" / "lives").is_dir()), None
)
SPEED = 4.0
"""Recorded seconds in one: so slow that a busy machine does not change the order of what the clock decides."""
NAMES = (
    "job-suspend-resume-stubborn",
    "job-suspended-template-edits",
    "job-parallelism",
    "job-elastic-indexed",
    "job-failures",
    "job-deletions",
    "job-deadline-and-replacement",
    "pod-gates",
    "deployment-gated",
    "statefulset-gated",
    "cronjob",
)


async def differences(file: Path) -> list[str]:
    requests, recorded = read(file)
    lived = await relive(requests, recorded, speed=SPEED)
    refusals = [
        f"request {number}: {lived.refused.get(number, 'not refused')}, recorded: {recorded.refused.get(number)}"
        for number in sorted(lived.refused.keys() | recorded.refused.keys())
        if lived.refused.get(number) != recorded.refused.get(number)
    ]
    return [*refusals, *different(recorded, lived), *misplaced(recorded, lived)]


@pytest.mark.long
@pytest.mark.skipif(LIVES is None, reason="the recorded lives (shared/apiserver/lives) are not beside this repository")
async def test_recorded_lives_are_lived_in_the_same_order() -> None:
    """Side by side, each in a sandbox of its own: most of the time they wait."""
    assert LIVES is not None
    found = await asyncio.gather(*(differences(LIVES / f"{name}.jsonl") for name in NAMES))
    assert {name: told for name, told in zip(NAMES, found, strict=True) if told} == {}
