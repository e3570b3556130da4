"""Elected leaders (by a Kubernetes Lease) and leaders without election on the same PostgreSQL database."""

from __future__ import annotations

import asyncio

import pytest

from admission.store.errors import AlreadyRunning
from admission.store.store import Store


@pytest.fixture
def database_kind() -> str:
    return "postgresql"  # a SQLite database is for a single Sluice


async def test_elected_leader_is_deposed_only_by_another_elected_leader(store, database_url):
    epoch = await store.lead("first", elected=True)
    async with Store.open(database_url) as other:
        with pytest.raises(AlreadyRunning, match="first, since"):
            await other.lead("import")
        assert await other.lead("second", elected=True) == epoch + 1


async def test_leadership_without_election_is_possible_after_an_elected_leader_closes(store, database_url):
    async with Store.open(database_url) as other:
        epoch = await other.lead("first", elected=True)
    while True:
        try:
            assert await store.lead("import") == epoch + 1
        except AlreadyRunning:  # PostgreSQL has not noticed yet
            await asyncio.sleep(0.01)
        else:
            return


async def test_elected_leader_deposes_a_leader_without_election(store, database_url):
    epoch = await store.lead("import")
    async with Store.open(database_url) as other:
        assert await other.lead("first", elected=True) == epoch + 1
