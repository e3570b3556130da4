"""Violations found in the ledger: admissions beyond the quota of their revision, independent of clocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from store_examples import admission, admitted, cluster_queue, cohort, finished, workload

from admission.model.queues import ClusterQueue
from admission.store.audit_log import Author
from admission.store.database.tables import admissions
from admission.store.ledger.usage import QuotaKey
from admission.store.ledger.violations import RecordVersion, Row, Violation, violations
from admission.store.records import Changes, Resized
from admission.store.store import Store
from tests.conftest import Clock

NOW = 1_750_000_000.0
KEY = QuotaKey("cq", "default", "cpu")


@pytest.fixture
async def epoch(store: Store) -> int:
    await store.queues.create(cluster_queue(cpu="10"), author=Author("ada"))
    return await store.lead("test")


async def admit(
    store: Store,
    uid: str,
    amount: int,
    epoch: int,
    *,
    at: float = NOW,
    queue: str = "cq",
    known: int | None = None,
) -> int:
    changes = admitted(workload(uid), admission(amount, cluster_queue=queue), at=at)
    return await store.commit(replace(changes, known=known), epoch=epoch)


async def test_admission_beyond_the_quota_is_a_violation(store: Store, epoch: int):
    await admit(store, "1", 6_000, epoch)
    await admit(store, "2", 4_000, epoch)
    assert await store.reports.violations() == ()
    revision = await admit(store, "3", 1, epoch, at=NOW + 5)
    assert await store.reports.violations() == (Violation(revision, NOW + 5, KEY, 1, ("3",)),)
    assert await store.reports.violations(since=NOW + 6) == ()


async def test_released_quota_may_be_reused_although_the_clock_was_set_back(store: Store, epoch: int):
    await admit(store, "1", 10_000, epoch)
    await store.commit(finished(workload("1"), at=NOW + 3600), epoch=epoch)
    await admit(store, "2", 10_000, epoch, at=NOW + 60)  # the clock was set back by an hour
    assert await store.reports.violations() == ()


async def test_end_and_admission_in_the_same_commit_are_no_violation(store: Store, epoch: int):
    await admit(store, "1", 10_000, epoch)
    ends, begins = finished(workload("1"), at=NOW + 1), admitted(workload("2"), admission(10_000), at=NOW + 1)
    together = Changes(ends.workloads + begins.workloads, closed=ends.closed, opened=begins.opened)
    await store.commit(together, epoch=epoch)
    assert await store.reports.violations() == ()


async def test_lowered_quota_is_no_violation_but_a_further_admission_is(store: Store, clock: Clock, epoch: int):
    await admit(store, "1", 6_000, epoch, at=clock.now)
    await admit(store, "2", 3_000, epoch, at=clock.now)
    clock.advance(1000)
    await store.queues.replace(cluster_queue(cpu="5"), author=Author("ada"))
    clock.advance(1000)
    shrinks = Changes(resized=(Resized(workload("1"), admission(5_000), clock.now),))
    await store.commit(shrinks, epoch=epoch)
    assert await store.reports.violations() == ()
    await admit(store, "3", 500, epoch, at=clock.now)
    (violation,) = await store.reports.violations()
    assert (violation.workloads, violation.over) == (("3",), 3_500)


async def test_admission_is_judged_by_the_quota_that_the_leader_knew(store: Store, epoch: int):
    before = await store.queues.revision()
    await store.queues.replace(cluster_queue(cpu="5"), author=Author("ada"))
    await admit(store, "1", 10_000, epoch, known=before)
    assert await store.reports.violations() == ()
    await store.commit(finished(workload("1"), at=NOW), epoch=epoch)
    await admit(store, "2", 10_000, epoch, known=before + 1)
    (violation,) = await store.reports.violations()
    assert violation.workloads == ("2",)


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
async def test_violations_are_correct_with_clocks_of_replicas_an_hour_apart(
    database_url: str, store: Store, clock: Clock, epoch: int, ahead: float
):
    """A replica whose clock differs from the leader's lowers the quota."""
    async with Store.open(database_url, clock=lambda: clock.now + ahead) as other:
        await admit(store, "1", 10_000, epoch, at=clock.now)
        await store.commit(finished(workload("1"), at=clock.now + 1), epoch=epoch)
        before = await store.queues.revision()
        clock.advance(5)
        await other.queues.replace(cluster_queue(cpu="5"), author=Author("ada"))
        await admit(store, "2", 10_000, epoch, at=clock.now, known=before)
        assert await store.reports.violations() == ()  # the leader had not read the lowered quota
        await store.commit(finished(workload("2"), at=clock.now + 1), epoch=epoch)
        over = await admit(store, "3", 10_000, epoch, at=clock.now, known=await store.queues.revision())
        assert [violation.revision for violation in await other.reports.violations()] == [over]  # now it had


async def test_admission_stored_without_revision_is_no_violation(store: Store, epoch: int):
    await admit(store, "1", 11_000, epoch)
    async with store._database.write() as connection:
        await connection.execute(update(admissions).values(from_revision=None))
    assert await store.reports.violations() == ()
    await admit(store, "2", 1, epoch)
    assert [violation.over for violation in await store.reports.violations()] == [1_001]


def in_cohort(name: str, **quota: Any) -> ClusterQueue:
    spec = {
        "cohortName": "all",
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "5", **quota}]}],
            }
        ],
    }
    return ClusterQueue.model_validate({"metadata": {"name": name}, "spec": spec})


async def test_violations_respect_cohort_quota_and_borrowing_and_lending_limits(store: Store, epoch: int):
    for obj in (cohort("all"), in_cohort("lends", lendingLimit="3"), in_cohort("borrows", borrowingLimit="2")):
        await store.queues.create(obj, author=Author("ada"))
    await admit(store, "1", 7_000, epoch, at=NOW + 60, queue="borrows")
    assert await store.reports.violations() == ()
    await admit(store, "2", 1, epoch, at=NOW + 60, queue="borrows")
    (violation,) = await store.reports.violations()
    assert violation.quota_key == QuotaKey("borrows", "default", "cpu")
    await admit(store, "3", 3_000, epoch, at=NOW + 60, queue="lends")
    assert len(await store.reports.violations()) == 2  # 2,999 were left: the cohort as a whole has 10,000


async def test_admission_in_a_missing_cluster_queue_is_a_violation(store: Store, epoch: int):
    await admit(store, "1", 1, epoch, queue="nowhere")
    (violation,) = await store.reports.violations()
    assert violation.quota_key.cluster_queue == "nowhere"


AMOUNTS = st.integers(1, 6)


@pytest.mark.long
@settings(max_examples=300)
@given(
    st.lists(st.tuples(AMOUNTS, st.integers(1, 20), st.none() | st.integers(1, 20)), max_size=10), st.integers(0, 12)
)
def test_violations_of_a_single_queue_equal_a_direct_count(rows: list[tuple[int, int, int | None]], quota: int):
    """A commit is a violation if it admits workloads and more than the quota is in use after it."""
    from admission.engine.tree import NodeSpec, Quota

    ledger = [
        Row(str(number), KEY, amount, NOW, begun, None if length is None else begun + length, begun)
        for number, (amount, begun, length) in enumerate(rows)
    ]
    spec = NodeSpec("cq", "", {("default", "cpu"): Quota(quota)})
    found = {
        v.revision: (v.over, v.workloads) for v in violations(ledger, [RecordVersion(0, "ClusterQueue", "cq", spec)])
    }
    expected = {}
    for revision in range(1, 41):
        held = sum(r.amount for r in ledger if r.begun <= revision and (r.ended is None or r.ended > revision))
        given_now = tuple(sorted(r.uid for r in ledger if r.begun == revision))
        if given_now and held > quota:
            expected[revision] = (held - quota, given_now)
    assert found == expected
