"""A TrainJob that is edited before Trainer reconciles it: its JobSet shows other pods than those to be created."""

from __future__ import annotations

import pytest
from custom_kinds import pods_of, until
from every_kind import node, queue_of
from job_examples import flavor, job, local_queue, runs
from test_way_of_a_trainjob import AMOUNTS, NAME, SELECTOR, started, submitted, template_of, until_running
from test_ways_past_the_queue import observed
from trainer import FIELDS, KINDS, trainer

NODES = 4


def carries_start(release):
    """Predicate: the first of the two requests that start a TrainJob has taken effect."""
    return lambda each: bool(each["spec"].get(FIELDS[release]))


@pytest.fixture
async def sluice(world):
    """A running Sluice with quota for four nodes exactly, which another Job holds."""
    for number in range(2):
        await world.user.create("nodes", "", node(number))
    await world.begin(flavor(), queue_of(AMOUNTS), local_queue("user-queue"), kinds=KINDS)
    await world.submit(job("before", queue="user-queue", cpu="16"))
    await world.job("before", runs)
    return world


async def nodes(world, number):
    await world.user.patch("trainjobs", "team-a", NAME, {"spec": {"trainer": {"numNodes": number}}})


@pytest.mark.costly
@pytest.mark.parametrize("release", FIELDS)
async def test_trainjob_enlarged_before_reconciliation_is_evicted_before_pods_exist(sluice, release):
    async with trainer(sluice.sandbox, release) as late:
        await submitted(sluice)
        await sluice.record(NAME, "pending", reason="WaitingForQuota")
        late.works.clear()
        await nodes(sluice, 2 * NODES)
        await sluice.user.delete("jobs", "team-a", "before", propagation="Background")
        await sluice.record(NAME, "admitted")
        await until(sluice.user, "trainjobs", NAME, carries_start(release))
        await sluice.submit(job("after", queue="user-queue", cpu="16"))
        await sluice.record("after", "pending")
        async with observed(sluice) as pods:
            late.works.set()
            await sluice.job("after", runs)
            waits = await sluice.record(NAME, "pending", reason="ExceedsMaxQuota")
            assert [each.count for each in waits.workload.pod_sets] == [2 * NODES]
            assert pods.most == 1
        assert "OutOfSync" in [reason for reason, _ in await sluice.history(NAME)]


@pytest.mark.costly
@pytest.mark.parametrize("release", FIELDS)
async def test_trainjob_starts_when_trainer_has_reconciled(sluice, release):
    async with trainer(sluice.sandbox, release) as late:
        created = await submitted(sluice)
        await sluice.record(NAME, "pending", reason="WaitingForQuota")
        late.works.clear()
        await sluice.user.delete("jobs", "team-a", "before", propagation="Background")
        await until(sluice.user, "trainjobs", NAME, carries_start(release))
        # The next leader waits, too.
        await sluice.end()
        await sluice.start(kinds=KINDS)
        late.works.set()
        jobset = await until_running(sluice, release, created)
        assert template_of(jobset)["spec"]["nodeSelector"] == SELECTOR
        assert len(pods_of(sluice.user, jobset)) == NODES
        # If its user suspends it and changes its command, it is resumed as admitted.
        changed = {"spec": {"suspend": True, "trainer": {"command": ["python"]}}}
        await sluice.user.patch("trainjobs", "team-a", NAME, changed)
        await until(sluice.user, "trainjobs", NAME, started)
        assert "OutOfSync" not in [reason for reason, _ in await sluice.history(NAME)]
