"""Many usage reports at the same time: they share sums, take turns and are limited."""

from __future__ import annotations

import asyncio
from datetime import UTC

import pytest
from store_examples import admission, admitted, cluster_queue, finished, workload
from usage_examples import HOUR, START

from admission.store.audit_log import Author
from admission.store.errors import TooManyReports
from admission.store.ledger.usage import MICROSECONDS
from admission.store.ledger.usage_reports import MAX_WAITING, MAX_WAITING_OF_USER, LedgerSum, LedgerSums, SumKey, wanted
from admission.store.ledger.usage_rows import HOLDER_COLUMNS
from admission.store.store import Store
from tests.conftest import Clock
from tests.executed_statements import executed

ROWS = ("FROM admissions", "to_at IS NULL")
"""Words of one of the two statements by which a sum reads rows of the ledger."""


@pytest.fixture
async def epoch(store: Store, clock: Clock) -> int:
    """Epoch of a leader; a workload has held 4 cores for half an hour."""
    clock.now = START
    epoch = await store.lead("test")
    await store.queues.create(cluster_queue(), author=Author("ada"))
    await store.commit(admitted(workload("1"), admission(4000), at=START), epoch=epoch)
    clock.now = START + HOUR / 2
    return epoch


@pytest.fixture
def sums(store: Store, clock: Clock) -> LedgerSums:
    return LedgerSums(store._database, clock=clock)


def until_now(start: float = START) -> SumKey:
    return wanted(start, None, "", UTC, HOLDER_COLUMNS, {})


async def request(sums: LedgerSums, what: SumKey, *, user: str = "") -> asyncio.Task[LedgerSum]:
    """Request a sum, and return when it waits for its turn or is refused."""
    task = asyncio.create_task(sums.get(what, user=user))
    await asyncio.sleep(0)
    return task


def core_seconds(found: LedgerSum) -> float:
    return sum(used.total for _, accounts in found.accounts for used in accounts.values()) / MICROSECONDS / 1000


async def test_equal_sums_that_wait_are_computed_once_from_what_is_committed_by_then(
    store: Store, clock: Clock, epoch: int, sums: LedgerSums
):
    with executed(*ROWS) as reads:
        async with sums.turn:
            tasks = [await request(sums, until_now()) for _ in range(50)]
            clock.advance(HOUR / 2)
            await store.commit(finished(workload("1"), at=START + HOUR), epoch=epoch)
            clock.advance(60)
        found = await asyncio.gather(*tasks)
        assert len(reads) == 1
        assert {(core_seconds(one), one.end) for one in found} == {(4 * HOUR, START + HOUR + 60)}
        assert core_seconds(await sums.get(until_now(), user="")) == 4 * HOUR  # afterwards it is computed again
        assert len(reads) == 2


@pytest.mark.costly
async def test_a_sum_begins_anew_for_those_who_come_while_it_is_computed(
    store: Store, clock: Clock, epoch: int, sums: LedgerSums
):
    first = await request(sums, until_now())
    for _ in range(3):
        await asyncio.sleep(0)
    assert sums.turn.locked()
    await store.commit(finished(workload("1"), at=clock.now), epoch=epoch)
    clock.advance(HOUR)
    second = await request(sums, until_now())
    await first
    assert core_seconds(await second) == 2 * HOUR


@pytest.mark.usefixtures("epoch")
async def test_too_many_sums_are_refused_in_total_and_for_a_user(sums: LedgerSums):
    async with sums.turn:
        tasks = [await request(sums, until_now(START + n), user="ada") for n in range(MAX_WAITING_OF_USER)]
        with pytest.raises(TooManyReports, match='10 usage reports of user "ada" wait already') as refused:
            await sums.get(until_now(START + 99), user="ada")
        assert refused.value.retry_after == 1
        tasks.append(await request(sums, until_now(START + 1), user="ada"))  # one that waits already
        more = range(MAX_WAITING - MAX_WAITING_OF_USER)
        tasks += [await request(sums, until_now(START + 100 + n), user=f"user-{n}") for n in more]
        with pytest.raises(TooManyReports, match="too many usage reports"):
            await sums.get(until_now(START + 99), user="bob")
    assert len(await asyncio.gather(*tasks)) == MAX_WAITING + 1


@pytest.mark.usefixtures("epoch")
async def test_a_sum_that_nobody_waits_for_any_more_is_not_computed(sums: LedgerSums):
    with executed(*ROWS) as reads:
        async with sums.turn:
            cancelled, other = [await request(sums, until_now(START + n)) for n in range(2)]
            cancelled.cancel()
            await asyncio.wait({cancelled})
        await other
        assert len(reads) == 1
