"""Objects that start after others (`sluice.dev/after`), across kinds and restarts, and what users may write there."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, is_done, job, local_queue, runs

from admission.controller.state.policy import ControllerPolicy
from admission.engine import Dependencies
from admission.engine import Policy as EnginePolicy
from admission.kinds import all_kinds

POLICY = ControllerPolicy(engine=EnginePolicy(policies=(Dependencies(),)))


def after(name, text, **fields):
    made = job(name, **fields)
    made["metadata"]["annotations"] = {"sluice.dev/after": text}
    return made


async def set_up(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    await world.start(POLICY)


@pytest.mark.costly
async def test_job_starts_after_one_that_has_succeeded_also_after_a_restart(world):
    await set_up(world)
    await world.submit(job("prep"))
    await world.job("prep", runs)
    await world.submit(after("train", "ok(job/prep)"))
    waits = await world.record("train", "pending", reason="Dependency")
    assert waits.message == "It starts when job/prep has succeeded (annotation sluice.dev/after)."
    await world.end()
    await world.start(POLICY)
    await world.record("train", "pending", reason="Dependency")
    await world.user.delete("jobs", "team-a", "prep", propagation="Background")
    await world.submit(job("prep", seconds=1))
    await world.job("prep", is_done)
    await world.record("train", "admitted")
    await world.end()
    await world.start(POLICY)
    await world.submit(after("later", "ok(prep)"))
    await world.record("later", "admitted")
    assert any(reason == "Dependency" for reason, _ in await world.history("train"))


@pytest.mark.costly
async def test_set_is_counted_after_a_restart(world):
    await set_up(world)
    for name in ("one", "two"):
        made = job(name)
        made["metadata"]["annotations"] = {"sluice.dev/at-most": "sweep=1"}
        await world.submit(made)
        if name == "one":
            await world.record("one", "admitted")
    await world.record("two", "pending", reason="SetLimitReached")
    await world.end()
    await world.start(POLICY)
    assert (await world.record("two", "pending", reason="SetLimitReached")).workload.terms.at_most == ("sweep", 1)
    await world.user.delete("jobs", "team-a", "one", propagation="Background")
    await world.record("two", "admitted")


def test_text_that_is_no_list_is_a_fault():
    (kind,) = [kind for kind in all_kinds() if kind.kind == "Job" and kind.group == "batch"]
    ((path, message),) = kind.faults(after("j", "afterok:prep"))
    assert path == "metadata.annotations[sluice.dev/after]"
    assert message == 'must be a list such as ok(prep),any(jobset/clean), not "afterok:prep"'
