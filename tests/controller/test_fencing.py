"""A leader that does not know that it was deposed: its commits are rejected, and its requests change nothing."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs
from sqlalchemy import select

from admission.cluster.client import PatchType
from admission.cluster.errors import Invalid
from admission.controller.controller import Controller
from admission.kinds import all_kinds
from admission.store.database.tables import admissions
from admission.store.errors import StaleEpoch
from admission.store.store import Store


@pytest.fixture
def database_kind() -> str:
    """PostgreSQL: on SQLite a lock prevents a second leader."""
    return "postgresql"


@pytest.fixture
async def queues(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    return world


@pytest.mark.costly
async def test_commit_of_deposed_leader_is_rejected_and_successor_starts_the_job(queues):
    await queues.start()
    await queues.submit(job("before"))
    await queues.job("before", runs)
    async with Store.open(queues.url) as other:
        epoch = await other.lead("successor", elected=True)
        await queues.submit(job("late"))
        with pytest.raises(ExceptionGroup) as caught:
            await queues.deposed()
        assert caught.group_contains(StaleEpoch, match="its epoch is 1", depth=2)
        assert is_gated(queues.user.get("jobs", "team-a", "late"))
        assert [record.workload.name for record in (await other.workloads.list()).workloads] == ["before"]

        successor = Controller(store=other, client=queues.client, kinds=all_kinds())
        tasks = [asyncio.create_task(successor.watch()), asyncio.create_task(successor.decide(epoch=epoch))]
        await queues.job("late", runs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert queues.user.get("jobs", "team-a", "before")["metadata"]["generation"] == 2


@pytest.mark.costly
async def test_controller_leads_again_without_listing_objects_again(queues):
    """One process leads in three epochs, with another leader between them."""
    kinds = all_kinds()
    async with Store.open(queues.url) as store:
        controller = Controller(store=store, client=queues.client, kinds=kinds)
        watching = asyncio.create_task(controller.watch())
        for number in range(1, 4):
            epoch = await store.lead("it", elected=True)
            deciding = asyncio.create_task(controller.decide(epoch=epoch))
            name = f"j{number}"
            await queues.submit(job(name))
            await queues.job(name, runs)
            await store.lead("another one", elected=True)
            await queues.submit(job(f"unseen-{number}", cpu="100"))
            with pytest.raises(ExceptionGroup):
                await deciding
            assert controller.watches.failure() is None
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert queues.sandbox.requests["GET", "jobs", "sluice"] == 2  # one list, one watch
    for number in range(1, 4):
        assert queues.user.get("jobs", "team-a", f"j{number}")["metadata"]["generation"] == 2


async def test_no_patch_is_sent_while_leadership_is_uncertain(queues):
    kinds = all_kinds()
    leads = False
    async with Store.open(queues.url) as store:
        controller = Controller(store=store, client=queues.client, kinds=kinds, leads=lambda: leads)
        epoch = await store.lead("it", elected=True)
        tasks = [asyncio.create_task(controller.watch()), asyncio.create_task(controller.decide(epoch=epoch))]
        await queues.submit(job("waits"))
        await queues.record("waits", "admitted")

        async def refused() -> int:
            return controller.writer.outcomes["NotPermitted"]

        await queues.eventually(refused)
        assert is_gated(queues.user.get("jobs", "team-a", "waits"))
        assert queues.sandbox.requests["PATCH", "jobs", "sluice"] == 0
        leads = True
        await queues.job("waits", runs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.costly
async def test_late_stop_patch_of_old_leader_does_not_stop_restarted_job(queues):
    """The old leader was frozen between the commit of an eviction and its PATCH; the Job was restarted meanwhile."""
    kind = all_kinds().get("batch", "Job")
    await queues.start()
    await queues.submit(job("again"))
    running = await queues.job("again", runs)
    late = kind.stop_patch(running)
    hold = "sluice.dev/hold"
    await queues.patch("again", {"metadata": {"labels": {hold: "true"}}})
    await queues.record("again", "pending", reason="OnHold")
    await queues.patch("again", {"metadata": {"labels": {hold: None}}})
    await queues.job("again", lambda obj: runs(obj) and obj["metadata"]["generation"] > 2)
    path = "/apis/batch/v1/namespaces/team-a/jobs/again"
    with pytest.raises(Invalid):
        await queues.client.patch(path, late, patch_type=PatchType.JSON)
    assert runs(queues.user.get("jobs", "team-a", "again"))


async def test_ledger_records_queue_revision_known_to_the_leader(queues):
    """A replay uses the known revision to tell late decisions from wrong ones."""
    await queues.start()
    await queues.submit(job("before"))
    await queues.job("before", runs)
    await queues.apply(cluster_queue(cpu="30"))
    revision = await queues.store.queues.revision()
    await queues.submit(job("after", cpu="8"))
    await queues.job("after", runs)
    async with queues.store._database.read() as connection:
        columns = admissions.c
        known = [
            (row.known_revision >= revision, row.known_revision < row.from_revision)
            for row in await connection.execute(select(columns).order_by(columns.id))
        ]
    assert known == [(False, True), (True, True)]
    assert await queues.store.reports.violations() == ()
