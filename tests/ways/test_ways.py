"""The ways around the queue, for each kind: those that docs/kinds.md tells of, a part of them in each run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.ways.cluster import a_whole
from tests.ways.objects import CASES
from tests.ways.play import LOOK, Cell, play_all
from tests.ways.table import PAGE, WAYS, recorded, rendered

if TYPE_CHECKING:
    from pathlib import Path

EACH = 9
"""Of each kind every ninth way is played, other ones of the next kind; `make ways` plays all."""


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


def test_the_page_has_each_kind_and_way():
    assert rendered(recorded()) in PAGE.read_text()


@pytest.mark.long
async def test_nobody_lets_himself_in(database_url: str, tmp_path: Path):
    expected = recorded()
    async with a_whole(tmp_path, database_url) as whole:
        cells = [
            Cell(whole, case, way)
            for row, case in enumerate(CASES)
            for column, way in enumerate(WAYS)
            if (row + column) % EACH == 0
        ]
        await play_all(cells)
        waiting = cells
        while waiting:
            assert not whole.observer.violations
            waiting = [cell for cell in waiting if not _is(await cell.verdict(), expected[cell.key])]
            try:
                await asyncio.sleep(LOOK)
            except asyncio.CancelledError:  # it has waited in vain
                print([(cell.key, expected[cell.key], await cell.verdict(), cell.told()) for cell in waiting])
                raise
        assert not whole.observer.violations
        assert whole.observer.checks > len(cells) / 2, "the observer has seen the pods"


def _is(found: str, expected: str) -> bool:
    """Which of its pods waits, runs with its quota, or was stopped, may depend on which came first."""
    alike = ("waits", "charged", "stopped")
    return found == expected or (found in alike and expected in alike)
