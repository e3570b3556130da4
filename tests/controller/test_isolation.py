"""Exceptions caused by one workload, at any place: it is set aside with the cause, and all others go on.

The exceptions come from an adapter, as the adapter of a new kind may raise them: for Jobs with a certain name it
fails, or returns values that no other part of Sluice can handle.
"""

from __future__ import annotations

import asyncio

import pytest
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.controller.intake.unqueued import UnqueuedObjects
from admission.kinds import Kinds
from admission.kinds.base import Conventions
from admission.kinds.job import JobKind
from admission.model.base import LabelSelector
from admission.model.workload import PodSet

ODD = "odd"


class OddKind(JobKind):
    """Fails in the method called `where`, for Jobs named `odd`, as long as they have no annotation `mended`."""

    __slots__ = ("result", "where")

    def __init__(self, where, result=None):
        super().__init__(Conventions())
        object.__setattr__(self, "where", where)
        object.__setattr__(self, "result", result)

    def _odd(self, where, obj):
        metadata = obj["metadata"]
        if self.where != where or metadata["name"] != ODD or "mended" in (metadata.get("annotations") or {}):
            return None
        if self.result is None:
            raise RuntimeError(f"{where} fails\x00\n" + "x" * 5000)
        return self.result


def _failing(name):
    def method(self, obj, *arguments):
        found = self._odd(name, obj)
        return getattr(JobKind, name)(self, obj, *arguments) if found is None else found

    return method


METHODS = ("queue_name", "observe", "pod_sets", "start_patch", "carries", "resume_patch", "stop_patch", "restore_patch")
for _name in METHODS:
    setattr(OddKind, _name, _failing(_name))


async def _start(world, kind):
    await world.apply(flavor(), cluster_queue(), local_queue(), local_queue(namespace="team-b"))
    await world.start(kinds=None if kind is None else Kinds([kind]))


async def _others_run(world, name):
    await world.submit(job(name, namespace="team-b"))
    await world.job(name, runs, namespace="team-b")


def _faults(world):
    return world.controller.faults.count


@pytest.mark.parametrize("where", ["observe", "pod_sets", "start_patch", "queue_name"])
async def test_job_whose_adapter_fails_is_misconfigured_until_edited(world, where):
    await _start(world, OddKind(where))
    await world.submit(job(ODD, suspend=False))
    record = await world.record(ODD, "pending", reason="Misconfigured")
    assert record.message.startswith(f"Sluice cannot handle it (RuntimeError: {where} fails")
    assert record.message.isprintable()
    assert len(record.message) < 500
    await world.job(ODD, is_gated)  # it must not run without quota
    await _others_run(world, "one")
    await world.end()
    await world.start(kinds=Kinds([OddKind(where)]))
    await _others_run(world, "two")
    assert _faults(world) >= 1
    await world.patch(ODD, {"metadata": {"annotations": {"mended": "yes"}}})
    await world.job(ODD, runs)


UNWRITABLE = {
    "more than 64 bits": (PodSet("main", 1, {"cpu": 2**70}),),
    "a least count of more than 64 bits": (PodSet("main", 2**71, {"cpu": 1}, min_count=2**70),),
    "a text where a number should be": (PodSet("main", "many", {}),),
    "a lone surrogate": (PodSet("\ud800", 1, {"memory": 1}),),
    "no text at all": (PodSet(None, 1, {"memory": 1}),),
}


@pytest.mark.costly
@pytest.mark.parametrize("result", UNWRITABLE.values(), ids=UNWRITABLE)
async def test_job_with_invalid_pod_sets_does_not_block_other_jobs(world, result):
    await _start(world, OddKind("pod_sets", result))
    for number in range(3):  # in the same commit as the invalid Job
        await world.submit(job(f"before-{number}", namespace="team-b", cpu="100m"))
    await world.submit(job(ODD))
    await world.submit(job("behind", namespace="team-b", cpu="100m"))
    record = await world.record(ODD, "pending", reason="Misconfigured")
    assert record.workload.pod_sets == ()
    assert record.message.startswith("Sluice cannot handle it (")
    await world.job("behind", runs, namespace="team-b")
    await _others_run(world, "one")
    await world.end()
    await world.start(kinds=Kinds([OddKind("pod_sets", result)]))
    await _others_run(world, "two")
    await world.patch(ODD, {"metadata": {"annotations": {"mended": "yes"}}})
    await world.job(ODD, runs)


@pytest.mark.costly
@pytest.mark.parametrize("where", ["observe", "queue_name", "stop_patch", "restore_patch"])
async def test_admitted_job_keeps_its_quota_while_its_adapter_fails(world, where):
    await _start(world, None)
    await world.submit(job(ODD, cpu="2"))
    await world.job(ODD, runs)
    await world.record(ODD, "admitted")
    await world.end()
    await world.start(kinds=Kinds([OddKind(where)]))
    await world.patch(ODD, {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await world.submit(job("big", namespace="team-b", cpu="3"))
    await world.record("big", "pending", namespace="team-b", reason="WaitingForQuota")
    await _others_run(world, "small")
    await world.user.delete("jobs", "team-a", ODD, propagation="Background")
    await world.job("big", runs, namespace="team-b")


@pytest.mark.parametrize("where", ["observe", "queue_name"])
async def test_unlabelled_job_whose_adapter_fails_does_not_stop_the_queueing_of_others(world, where):
    await _start(world, OddKind(where))
    await world.apply(local_queue("default", namespace="team-b"))
    controller = world.controller
    everything = UnqueuedObjects(
        controller.writer,
        controller.watches,
        controller.events,
        namespaces=LabelSelector(),
        leads=lambda: True,
        is_held=lambda _: False,
    )
    labelling = asyncio.create_task(everything.run())
    try:
        await world.submit(job(ODD, queue=None))
        await world.submit(job("one", queue=None, namespace="team-b"))
        await world.record("one", "admitted", namespace="team-b")
        await _others_run(world, "two")
    finally:
        labelling.cancel()
