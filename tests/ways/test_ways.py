"""The ways around the queue, for each kind: those that docs/kinds.md tells of, a part of them in each run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.ways.cluster import Setup, a_whole
from tests.ways.objects import CASES
from tests.ways.play import LOOK, WORDS, Cell, play_all
from tests.ways.table import PAGE, WAYS, recorded, rendered, rendered_with_policies

if TYPE_CHECKING:
    from pathlib import Path

EACH = 9
"""Of each kind every ninth way is played, other ones of the next kind; `make ways` plays all."""
DIAGONAL = 16
"""Of other setups the cells whose row and column, from 0 on, add up to this: one of each kind that is no pod."""


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


def test_the_page_has_each_kind_and_way():
    assert rendered(recorded()) in PAGE.read_text()
    assert rendered_with_policies(recorded(policies=True)) in PAGE.read_text()


@pytest.mark.long
@pytest.mark.parametrize("setup", [Setup(), Setup(policies=True), Setup(queue_by="managed")], ids=lambda one: one.name)
async def test_nobody_lets_himself_in(database_url: str, tmp_path: Path, setup: Setup):
    expected = {} if setup.queue_by else recorded(policies=setup.policies)
    async with a_whole(tmp_path, database_url, setup) as whole:
        cells = [
            Cell(whole, case, way)
            for row, case in enumerate(CASES)
            for column, way in enumerate(WAYS)
            if ((row + column) % EACH == 0 if setup == Setup() else row + column == DIAGONAL)
        ]
        cells = [cell for cell in cells if not cell.may_exceed]
        await play_all(cells)
        waiting = cells
        while waiting:
            assert not whole.observer.violations
            waiting = [cell for cell in waiting if not _is(await cell.verdict(), expected.get(cell.key))]
            try:
                await asyncio.sleep(LOOK)
            except asyncio.CancelledError:  # it has waited in vain
                print([(cell.key, expected.get(cell.key), await cell.verdict(), cell.told()) for cell in waiting])
                raise
        assert not whole.observer.violations
        assert whole.observer.checks > len(cells) / 2, "the observer has seen the pods"


def _is(found: str, expected: str | None) -> bool:
    """Which of its pods waits, runs with its quota, or was stopped, may depend on which came first.

    `expected` is None: any word will do.
    """
    alike = ("waits", "charged", "stopped")
    if expected is None:
        return found in WORDS
    return found == expected or (found in alike and expected in alike)
