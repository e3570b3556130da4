"""Short form of `python -m tests.benchmarks kill9`."""

from __future__ import annotations

import random

import pytest

from admission.cli.demo.plan import three_teams
from tests.chaos.kill_serve import chaos


@pytest.mark.usefixtures("warm_children")
@pytest.mark.costly
async def test_kills_of_serve_lose_or_repeat_no_job_and_never_exceed_quota() -> None:
    seed = random.randrange(2**32)
    outcome = await chaos(three_teams(jobs=40, nodes=20, speed=120), kills=2, seed=seed)
    broken = [sentence for kept, sentence in outcome.promises if not kept]
    assert not broken, f"seed {seed}: {broken}\n{outcome.log}"
