"""A database knows itself and its cluster, whatever is made of it."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import pytest

from admission.store.database.migrations import migrate
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def test_it_is_made_once_and_kept(database_url: str):
    async with Store.open(database_url) as store:
        first = await store.identity()
        assert (len(first.database), first.cluster, first.epoch) == (36, "", 0)
        await store.note_cluster("a-cluster")
        await store.lead("test")
    async with Store.open(database_url) as store:
        assert (await store.identity())[:3] == (first.database, "a-cluster", 1)


async def test_replicas_that_start_together_agree(database_url: str):
    async with Store.open(database_url) as one, Store.open(database_url) as other:
        found = await asyncio.gather(*(store.identity() for store in (one, other) * 5))
    assert len(set(found)) == 1


async def test_two_databases_differ(make_database_url: Callable[[str], Awaitable[str]]):
    names = set()
    for kind in ("sqlite", "sqlite", "postgresql"):
        async with Store.open(await make_database_url(kind)) as store:
            names.add((await store.identity()).database)
    assert len(names) == 3


async def test_an_export_that_no_sluice_has_used_leaves_the_target_its_own(make_database_url: Any, database_url: str):
    file = io.BytesIO()
    async with Store.open(database_url) as store:
        await store.dump(file.write, lambda *_: None)
    async with Store.open(await make_database_url("sqlite")) as target:
        own = (await target.identity()).database
        await target.restore(io.BytesIO(file.getvalue()), lambda *_: None)
        assert (await target.identity()).database == own


@pytest.mark.parametrize("noted", [False, True])
async def test_the_schema_before_knows_none_and_loses_it(empty_database_url: str, noted: bool):
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
