"""PostgreSQL behind a pgbouncer that gives each transaction any connection to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from postgresql_server import PostgreSQL
from sqlalchemy import func, select
from store_examples import admission, admitted, finished, flavor, workload

from admission.store.audit_log import Author
from admission.store.database.connection import Location, connect
from admission.store.database.migrations import migrate
from admission.store.database.tables import SCHEMA_VERSION
from admission.store.errors import AlreadyRunning, DatabaseUnusable, InvalidDatabaseUrl, StaleEpoch
from admission.store.store import Store
from tests.pgbouncer import running_pgbouncer

pytestmark = pytest.mark.postgres


@pytest.fixture
def database_kind() -> str:
    return "postgresql"


@pytest.fixture(scope="module")
def port(postgresql: PostgreSQL) -> Iterator[int]:
    with running_pgbouncer(postgresql) as running:
        yield running


@pytest.fixture
def pooled(postgresql: PostgreSQL, port: int, database_url: str) -> str:
    """URL of a migrated database, with the address of the pooler."""
    return database_url.replace(f":{postgresql.port}/", f":{port}/") + "?pgbouncer=true"


@pytest.mark.costly
async def test_concurrent_transactions_of_two_stores_are_not_mixed_up(pooled: str):
    """There are more concurrent transactions, each of several statements, than connections of the pooler."""
    async with Store.open(pooled) as leader, Store.open(pooled) as reader:
        epoch = await leader.lead("test", elected=True)
        await leader.queues.create(flavor(), author=Author("test"))

        async def live(number: int) -> None:
            one = workload(str(number))
            await leader.commit(admitted(one, admission(), at=1.0 + number), epoch=epoch)
            found = await asyncio.gather(*(reader.workloads.list() for _ in range(3)))
            assert all(one.uid in {each.workload.uid for each in page.workloads} for page in found)
            await leader.commit(finished(one, at=100.0 + number), epoch=epoch)

        await asyncio.gather(*(live(number) for number in range(40)))
        assert [each async for piece in reader.unfinished() for each in piece] == []
        assert len([each async for piece in reader.past_admissions(since=0) for each in piece]) == 40


@pytest.mark.costly
async def test_second_leader_is_rejected_unless_elected(pooled: str):
    async with Store.open(pooled) as first, Store.open(pooled) as second:
        epoch = await first.lead("first")
        with pytest.raises(AlreadyRunning, match=r"another Sluice \(first"):
            await second.lead("second")
        # Other transactions continue meanwhile, on other connections than the one that holds the lock.
        await asyncio.gather(*(second.identity() for _ in range(20)))
        await second.lead("second", elected=True)
        with pytest.raises(StaleEpoch):
            await first.commit(admitted(workload("w"), admission(), at=1.0), epoch=epoch)
    async with Store.open(pooled) as third:
        await third.lead("third")


async def test_timeouts_are_set_in_each_write_transaction_and_in_no_read(pooled: str):
    database = connect(Location.parse(pooled))
    shown = select(func.current_setting("lock_timeout"), func.current_setting("idle_in_transaction_session_timeout"))
    try:
        for _ in range(5):
            async with database.write() as connection:
                assert tuple((await connection.execute(shown)).one()) == ("10s", "30s")
            async with database.read() as connection:  # they are left on no connection of the pooler
                assert tuple((await connection.execute(shown)).one()) == ("0", "0")
    finally:
        await database.close()


@pytest.mark.costly
async def test_schema_is_migrated_down_and_concurrently_up(pooled: str):
    assert await migrate(pooled, "base") == (SCHEMA_VERSION, None)
    outcomes = await asyncio.gather(*(migrate(pooled) for _ in range(3)))
    assert sorted(outcomes, key=str) == [(SCHEMA_VERSION, SCHEMA_VERSION)] * 2 + [(None, SCHEMA_VERSION)]


@pytest.mark.costly
async def test_missing_or_invalid_pgbouncer_option_is_reported(pooled: str):
    with pytest.raises(DatabaseUnusable, match=r"is behind a pgbouncer, .* add pgbouncer=true to the database URL"):
        async with Store.open(pooled.partition("?")[0]):
            pass
    with pytest.raises(InvalidDatabaseUrl, match="pgbouncer=yes in the database URL is neither true nor false"):
        Location.parse(pooled.replace("=true", "=yes"))
