"""Short form of `make fuzz`: the first moves of four fixed games."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.game import play
from tests.fuzz.moves import games
from tests.fuzz.world import a_world

if TYPE_CHECKING:
    from pathlib import Path

SEED = 9
MOVES = 24
"""Number of moves of each game; `make fuzz` plays all of them."""


@pytest.fixture
def database_kind() -> str:
    return "sqlite"  # `make fuzz ARGS="--database postgresql"` plays on PostgreSQL


@pytest.mark.long
async def test_first_moves_of_four_games_lead_to_no_finding(database_url: str, tmp_path: Path):
    async with a_world(tmp_path, database_url) as world:
        for number, game in enumerate(next(games(SEED, about))[:MOVES] for about in ("", "pods", "kinds", "topology")):
            played = await play(game, world)
            assert played.finding is None, f"game {number}, move {played.moves}: {played.finding}\n{game}"
