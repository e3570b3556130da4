"""Replays of object lifecycles that were recorded on a real control plane: same requests, same order of states."""

from __future__ import annotations

from pathlib import Path

import pytest
from lives import order_differences, read, replay, state_differences

LIVES = next(
    (found for up in Path(__file__).parents if (found := up / "shared" / "apiserver" / "lives").is_dir()), None
)
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
    """Replay a recording; return the differences in refusals, states and their order."""
    requests, recorded = read(file)
    lived = await replay(requests, recorded)
    refusals = [
        f"request {number}: {lived.refused.get(number, 'not refused')}, recorded: {recorded.refused.get(number)}"
        for number in sorted(lived.refused.keys() | recorded.refused.keys())
        if lived.refused.get(number) != recorded.refused.get(number)
    ]
    return [*refusals, *state_differences(recorded, lived), *order_differences(recorded, lived)]


@pytest.mark.virtual_time
@pytest.mark.skipif(LIVES is None, reason="the recorded lives (shared/apiserver/lives) are not beside this repository")
@pytest.mark.parametrize("name", NAMES)
async def test_recorded_lifecycles_have_the_same_order_of_states_in_the_sandbox(name: str) -> None:
    assert LIVES is not None
    assert await differences(LIVES / f"{name}.jsonl") == []
