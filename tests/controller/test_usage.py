"""The ledger's usage matches the API server's objects: from a Job's start until its pods have terminated."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from job_examples import cluster_queue, flavor, is_done, job, local_queue
from postgresql_databases import on_both_databases

from admission.kinds.base import SUBMITTED_BY
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from conftest import World

    from admission.store.records import WorkloadRecord

pytestmark = on_both_databases


class StoppedClock:
    """A clock that only the test advances, when ledger and observer agree, so that their sums are exactly equal."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def elapsed(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)


class Observer:
    """Sums up core-seconds by namespace, from Jobs alone: the requests of Jobs that have pods, or may have."""

    def __init__(self, world: World) -> None:
        self.used: defaultdict[str, float] = defaultdict(float)
        self.held: dict[str, tuple[str, float, int]] = {}
        self._world = world

    async def watch(self) -> None:
        with closing(self._world.user.watch("jobs")) as changes:
            async for batch in changes:
                for _, kind, obj, _ in batch:
                    self._see(obj, gone=kind == "DELETED")

    def _see(self, obj: dict[str, Any], *, gone: bool) -> None:
        metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
        name, now = metadata["name"], self._micros()
        pods = status.get("active", 0) + status.get("terminating", 0)
        holds = not gone and (bool(pods) or not (spec.get("suspend") or is_done(obj)))
        if holds and name not in self.held:
            request = spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            self.held[name] = metadata["namespace"], float(request) * spec["parallelism"], now
        elif not holds and name in self.held:
            namespace, cores, since = self.held.pop(name)
            self.used[namespace] += cores * (now - since)

    def until_now(self) -> dict[str, float]:
        used = dict(self.used)
        for namespace, cores, since in self.held.values():
            used[namespace] = used.get(namespace, 0.0) + cores * (self._micros() - since)
        return {namespace: found / 1_000_000 for namespace, found in used.items()}

    def _micros(self) -> int:
        return round(self._world.clock() * 1_000_000)


@pytest.fixture
async def observed(world: World) -> AsyncIterator[Observer]:
    world.clock = StoppedClock(1_750_000_000.5)  # type: ignore[assignment]
    await world.begin(flavor(), cluster_queue(cpu="6"), local_queue(), local_queue(namespace="team-b"))
    observer = Observer(world)
    watching = asyncio.create_task(observer.watch())
    yield observer
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def let_pass(world: World, observer: Observer, seconds: float, *, held: set[str]) -> None:
    """Wait until observer and database agree that just these Jobs hold quota, then advance the clock."""

    async def agreed() -> bool:
        records = (await world.store.load()).workloads
        return {one.workload.name for one in records if one.admission} == held == observer.held.keys()

    await world.eventually(agreed)
    world.clock.advance(seconds)


@pytest.mark.costly
async def test_usage_in_ledger_equals_usage_observed_in_the_api_server(world: World, observed: Observer):
    start = world.clock()
    await world.submit(job("runs-on", cpu="2"))
    await world.submit(job("is-held", cpu="1", pods=3, namespace="team-b"))
    await let_pass(world, observed, 1000.25, held={"runs-on", "is-held"})
    await world.submit(job("waits", cpu="4", seconds=60))
    await world.record("waits", "pending")
    await let_pass(world, observed, 500.125, held={"runs-on", "is-held"})

    await world.order("is-held", "team-b", held=True)
    await world.job("waits", is_done)
    await let_pass(world, observed, 50, held={"runs-on"})
    await world.order("is-held", "team-b", held=False)
    await let_pass(world, observed, 3600, held={"runs-on", "is-held"})
    await world.patch("runs-on", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await let_pass(world, observed, 0.000001, held={"is-held"})
    await world.submit(job("last", cpu="3"))
    await let_pass(world, observed, 7, held={"is-held", "last"})

    report = await world.leading.reports.usage(["namespace"], start=start, end=world.clock())
    found = {row.group["namespace"]: row.amount_seconds / 1000 for row in report.rows}
    assert found == pytest.approx(observed.until_now(), rel=1e-12)
    assert found["team-b"] == pytest.approx(3 * (1000.25 + 500.125 + 3600 + 0.000001 + 7), rel=1e-12)
    assert await world.leading.reports.violations() == ()
    epoch = await world.leading.lead("test")
    world.clock.advance(86400)
    assert await world.leading.roll_up(epoch=epoch) >= 24
    again = await world.leading.reports.usage(["namespace"], start=start, end=world.clock() - 86400)
    assert {row.group["namespace"]: row.amount_seconds / 1000 for row in again.rows} == pytest.approx(found, rel=1e-12)


@pytest.mark.costly
async def test_usage_of_job_being_deleted_is_charged_to_its_original_submitter(world: World):
    """Objects that are being deleted are not sent to webhooks: their users may write anything into them."""
    await world.begin(flavor(), cluster_queue(cpu="4"), local_queue(), local_queue("other", cluster_queue="cq"))
    start = world.clock()
    manifest = job("kept", pods=2)
    manifest["metadata"] |= {"finalizers": ["example.com/mine"], "annotations": {SUBMITTED_BY: "alice"}}
    await world.submit(manifest)
    await world.job("kept", lambda obj: obj.get("status", {}).get("active") == 2)
    await world.user.delete("jobs", "team-a", "kept", propagation="Background")
    await world.patch("kept", {"metadata": {"annotations": {SUBMITTED_BY: "mallory"}}})
    await world.patch("kept", {"spec": {"parallelism": 1}})
    await world.end()
    await world.start()
    await world.patch("kept", {"metadata": {"annotations": {SUBMITTED_BY: None}}})
    for queue in ("other", None, "lq"):  # it leaves the queue, and returns like a new Job
        await world.patch("kept", {"metadata": {"labels": {"sluice.dev/queue-name": queue}}, "spec": {"suspend": True}})
        await world.patch("kept", {"metadata": {"annotations": {SUBMITTED_BY: "mallory"}}})
    for pod in world.user.list("pods"):
        await world.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)

    async def settled() -> WorkloadRecord | None:
        """Return the record once it is pending until it is deleted, or finished by Sluice's stop of its pods."""
        record = await world.store.workloads.get("team-a", "kept")
        assert record is not None
        is_held = (record.state, record.reason) == (State.PENDING, "BeingDeleted")
        return record if is_held or record.state is State.FINISHED else None

    record = await world.eventually(settled)
    world.pass_time(10)
    report = await world.leading.reports.usage(["user"], start=start, end=world.clock())
    assert {row.group["submitted_by"] for row in report.rows} == {"alice"}
    assert record.workload.user == "alice"
