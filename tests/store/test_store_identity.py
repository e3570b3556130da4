"""Identity of a database and of its cluster: creation, concurrent starts, restore and downgrade."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admission.store.database.migrations import migrate
from admission.store.store import Store


async def test_database_identity_is_created_once_and_kept(database_url: str):
    async with Store.open(database_url) as store:
        first = await store.identity()
        assert (len(first.database), first.cluster, first.epoch) == (36, "", 0)
        await store.note_cluster("a-cluster")
        await store.lead("test")
    async with Store.open(database_url) as store:
        assert (await store.identity())[:3] == (first.database, "a-cluster", 1)


async def test_concurrent_replicas_agree_on_the_database_identity(database_url: str):
    async with Store.open(database_url) as one, Store.open(database_url) as other:
        found = await asyncio.gather(*(store.identity() for store in (one, other) * 5))
    assert len(set(found)) == 1


async def test_each_database_has_its_own_identity(make_database_url: Callable[[str], Awaitable[str]]):
    names = set()
    for kind in ("sqlite", "sqlite", "postgresql"):
        async with Store.open(await make_database_url(kind)) as store:
            names.add((await store.identity()).database)
    assert len(names) == 3


async def test_restore_of_a_dump_without_identity_keeps_that_of_the_target(make_database_url: Any, database_url: str):
    file = io.BytesIO()
    async with Store.open(database_url) as store:
        await store.dump(file.write, lambda *_: None)
    async with Store.open(await make_database_url("sqlite")) as target:
        own = (await target.identity()).database
        await target.restore(io.BytesIO(file.getvalue()), lambda *_: None)
        assert (await target.identity()).database == own


@pytest.mark.costly
@pytest.mark.parametrize("noted", [False, True])
async def test_downgrade_to_schema_0002_drops_the_identity_and_the_cluster(empty_database_url: str, noted: bool):
    await migrate(empty_database_url)
    async with Store.open(empty_database_url) as store:
        if noted:
            await store.note_cluster("a-cluster")
        before = (await store.identity()).database
    await migrate(empty_database_url, "0002")
    await migrate(empty_database_url)
    async with Store.open(empty_database_url) as store:
        found = await store.identity()
        assert found.cluster == ""
        assert found.database != before
