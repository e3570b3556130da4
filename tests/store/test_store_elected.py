"""An election outvotes a lead, and nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from admission.store.errors import AlreadyRunning
from admission.store.store import Store


@pytest.fixture
def database_kind() -> str:
    return "postgresql"  # SQLite has room for one


async def test_who_was_not_elected_does_not_depose_who_was(store, database_url):
    epoch = await store.lead("first", elected=True)
    async with Store.open(database_url) as other:
        with pytest.raises(AlreadyRunning, match="first, since"):
            await other.lead("import")
        assert await other.lead("second", elected=True) == epoch + 1


async def test_who_was_elected_is_gone_with_its_connections(store, database_url):
    async with Store.open(database_url) as other:
        epoch = await other.lead("first", elected=True)
    while True:
        try:
            assert await store.lead("import") == epoch + 1
        except AlreadyRunning:  # PostgreSQL has not noticed yet
            await asyncio.sleep(0.01)
        else:
            return


async def test_an_election_outvotes_who_was_not_elected(store, database_url):
    epoch = await store.lead("import")
    async with Store.open(database_url) as other:
        assert await other.lead("first", elected=True) == epoch + 1
