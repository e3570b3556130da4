"""Ways to bypass the queue, for each kind, as documented in docs/kinds/tests.md; a part of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.ways.cluster import Setup, running_cluster
from tests.ways.objects import CASES
from tests.ways.play import LOOK, WORDS, Cell, play_all
from tests.ways.table import PAGE, WAYS, recorded, rendered, rendered_with_policies

EACH = 9
"""Each kind is tested with every ninth way, the next kind with other ones; `make ways` tests all."""
DIAGONAL = 16
"""In other setups the cells are tested whose row and column, from 0 on, add up to this: one of most kinds."""


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


def test_tables_of_the_page_equal_the_rendered_results():
    assert rendered(recorded()) in PAGE.read_text()
    assert rendered_with_policies(recorded(policies=True)) in PAGE.read_text()


@pytest.mark.costly
@pytest.mark.parametrize("setup", [Setup(), Setup(policies=True), Setup(queue_by="managed")], ids=lambda one: one.name)
async def test_no_way_bypasses_the_queue(database_url: str, tmp_path: Path, setup: Setup):
    expected = {} if setup.queue_by else recorded(policies=setup.policies)
    async with running_cluster(tmp_path, database_url, setup) as cluster:
        cells = [
            Cell(cluster, case, way)
            for row, case in enumerate(CASES)
            for column, way in enumerate(WAYS)
            if ((row + column) % EACH == 0 if setup == Setup() else row + column == DIAGONAL)
        ]
        cells = [cell for cell in cells if not cell.may_exceed]
        await play_all(cells)
        waiting = cells
        while waiting:
            assert not cluster.observer.violations
            waiting = [cell for cell in waiting if not _matches(await cell.result(), expected.get(cell.key))]
            try:
                await asyncio.sleep(LOOK)
            except asyncio.CancelledError:  # the test's timeout
                print([(cell.key, expected.get(cell.key), await cell.result(), cell.responses()) for cell in waiting])
                raise
        assert not cluster.observer.violations
        assert cluster.observer.checks > len(cells) / 2, "the observer has seen the pods"


def _matches(found: str, expected: str | None) -> bool:
    """Return whether a result is the expected one; None: any of `WORDS` is.

    Whether pods wait, run with their quota or were stopped may depend on the order of their creation.
    """
    alike = ("waits", "charged", "stopped")
    if expected is None:
        return found in WORDS
    return found == expected or (found in alike and expected in alike)
