"""The checks of the ledger after a chaos test detect errors in it."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, insert, update

from admission.cli.demo.plan import queue_documents
from admission.store.database.connection import Location, connect
from admission.store.database.tables import admissions, transitions, workloads
from admission.store.store import Store
from tests.chaos import ledger
from tests.chaos.storm import plan_of
from tests.queue_objects import create_objects

PLAN = plan_of(2, speed=60)
JOBS = [f"{job.team}/{job.name}" for job in PLAN.jobs]


@pytest.fixture
async def good(database_url):
    """Ledger of two Jobs that ran one after the other; yields a function that corrupts it with SQL statements."""
    database = connect(Location.parse(database_url))
    async with Store.open(database_url) as store:
        for document in queue_documents(PLAN):
            await create_objects(store, document)

    async def spoil(*statements):
        async with database.write() as connection:
            for statement in statements:
                await connection.execute(statement)

    await spoil(*(statement for number, job in enumerate(PLAN.jobs) for statement in _ran(number, job)))
    yield spoil
    await database.close()


def _ran(number, job):
    """Yield the rows of a Job that was queued for a second, then waited for quota, then ran."""
    begin, end, revision = 1000.0 + 10 * number, 1005.0 + 10 * number, 100 + 10 * number
    common = {"namespace": job.team, "cluster_queue": job.team, "local_queue": "jobs", "priority": 0}
    yield insert(workloads).values(
        **common, uid=f"u{number}", name=job.name, kind="Job", priority_class="", submitted_by="", shape="", reason="",
        message="", evict_reason="", created_at=1.0, queued_at=1.0, state="finished", outcome="Succeeded",
        admitted_at=begin, finished_at=end, revision=1,
    )  # fmt: skip
    for at, state, reason in (
        (1.0, "pending", "Queued"), (2.0, "pending", "WaitingForQuota"), (begin, "admitted", "Admitted"),
        (end, "finished", "Succeeded"),
    ):  # fmt: skip
        yield insert(transitions).values(workload_uid=f"u{number}", at=at, state=state, reason=reason, message="")
    for resource in PLAN.resources:
        yield insert(admissions).values(
            **common, workload_uid=f"u{number}", pod_set="main", resource=resource, flavor="simulated-nodes", count=2,
            amount=2 * job.requests[resource], submitted_by="", from_at=begin, to_at=end, end_reason="Succeeded",
            from_revision=revision, to_revision=revision + 5,
        )  # fmt: skip


async def broken_promises(database_url, *, starts=1):
    kept = await ledger.promises(database_url, PLAN, dict.fromkeys(JOBS, starts))
    return " ".join(sentence for is_kept, sentence in kept if not is_kept)


async def test_correct_ledger_passes_all_checks(good, database_url):
    assert await broken_promises(database_url) == ""
    assert await ledger.settled(database_url)


ADMITTED = (transitions.c.workload_uid == "u0") & (transitions.c.state == "admitted")
FIRST = admissions.c.workload_uid == "u0"


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (update(admissions).where(FIRST).values(to_at=None, end_reason=None, to_revision=None), "2 rows open"),
        (update(admissions).where(FIRST).values(amount=10**15), "by a query over the ledger"),
        (update(admissions).where(FIRST).values(amount=10**15), "by a replay of the ledger"),
        (update(admissions).where(FIRST).values(to_at=1004.0), "lasted from admission to end"),
        (update(admissions).where(FIRST).values(to_revision=99), "ends before it begins (2)"),
        (update(admissions).where(FIRST).values(workload_uid="u1", to_revision=115), "overlaps another (2)"),
        (update(admissions).where(FIRST).values(workload_uid="u1"), "2 admissions, 2 of them to its end, 1 starts"),
        (
            update(transitions).where(ADMITTED).values(at=500.0),
            "u0: 499.000 s of waiting and 5.000 s of admissions in",
        ),
        (delete(transitions).where(ADMITTED), "u0: 0 admissions in the history, 1 in the ledger"),
        (update(workloads).values(outcome="Failed"), "how each Job ended: {'Failed': 2}"),
    ],
)
async def test_corrupted_row_is_detected(good, database_url, statement, says):
    await good(statement)
    assert says in await broken_promises(database_url)


@pytest.mark.parametrize("starts", [0, 2])
async def test_number_of_starts_that_differs_from_admissions_is_detected(good, database_url, starts):
    assert f"1 admissions, 1 of them to its end, {starts} starts" in await broken_promises(database_url, starts=starts)
