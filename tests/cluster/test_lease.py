"""Leader election in virtual time against the sandbox: never two leaders, never none for long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest
from scripted_server import failure, reply

from admission.cluster.client import Client
from admission.cluster.errors import LeaseLost
from admission.cluster.lease import LeaderElector, Timing
from admission.sandbox import Sandbox

TIMING = Timing(lease_duration=300, renew_deadline=200, retry_period=40)
"""Requests are limited in real time by parts of these: with the defaults, a busy machine can exceed them."""

CUT = {
    "metadata": {"name": "cut"},
    "webhooks": [
        {
            "name": "cut.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/nobody-listens"},
            "rules": [
                {
                    "apiGroups": ["coordination.k8s.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["leases"],
                }
            ],
        }
    ],
}
"""Webhook configuration that fails each write of a Lease, because its URL refuses connections."""


class Time:
    """Virtual clock that advances when all tasks sleep or have ended."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.frozen: set[str] = set()
        self._sleeping: list[tuple[float, int, str, asyncio.Future[None]]] = []
        self._numbers = count()
        self._changed = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    def sleep(self, who: str) -> Callable[[float], Awaitable[None]]:
        async def sleep(seconds: float) -> None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entry = (self.now + seconds, next(self._numbers), who, future)
            self._sleeping.append(entry)
            self._changed.set()
            try:
                await future
            finally:
                if entry in self._sleeping:
                    self._sleeping.remove(entry)

        return sleep

    def start(self, who: str, what: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(what)
        task.add_done_callback(lambda _: self._changed.set())
        self.tasks[who] = task
        return task

    async def stop(self, who: str) -> None:
        """Cancel a task and wait for its end."""
        self.tasks[who].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[who]

    async def settle(self) -> None:
        """Wait until all tasks sleep or have ended."""
        while sum(not task.done() for task in self.tasks.values()) > len(self._sleeping):
            self._changed.clear()
            await self._changed.wait()

    async def step(self, end: float = float("inf")) -> bool:
        """Advance to the next wake-up of a task that is not frozen; return False if none is due by `end`."""
        await self.settle()
        awake = [entry for entry in self._sleeping if entry[2] not in self.frozen]
        if not awake or min(awake)[0] > end:
            self.now = end
            return False
        entry = until, _, _, future = min(awake)
        self.now = max(self.now, until)
        self._sleeping.remove(entry)
        future.set_result(None)
        await self.settle()
        return True

    async def run(self, seconds: float) -> None:
        end = self.now + seconds
        while await self.step(end):
            pass


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as sandbox:
        yield sandbox


@pytest.fixture
async def time() -> AsyncIterator[Time]:
    time = Time()
    yield time
    for who in time.tasks:
        with suppress(LeaseLost):
            await time.stop(who)


@pytest.fixture
async def candidate(sandbox, time, tmp_path) -> AsyncIterator[Callable[[str], LeaderElector]]:
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:

        def make(
            who: str, identity: str = "", now: Callable[[], float] = lambda: 1_750_000_000 + time.now
        ) -> LeaderElector:
            return LeaderElector(
                client,
                namespace="default",
                name="sluice",
                identity=identity or who,
                clock=time,
                now=now,
                sleep=time.sleep(who),
                timing=TIMING,
            )

        yield make


async def lead(elector: LeaderElector) -> None:
    await elector.acquire()
    await elector.keep()


async def leader(time: Time, *electors: LeaderElector) -> LeaderElector:
    """Step until a candidate leads and return it; fails if more than one leads."""
    while not any(elector.leads() for elector in electors):
        assert await time.step()
    (leads,) = [elector for elector in electors if elector.leads()]
    return leads


async def test_first_candidate_leads_and_the_other_sees_the_holder(sandbox, time, candidate):
    first, second = candidate("a"), candidate("b")
    time.start("a", lead(first))
    await time.settle()
    lease = sandbox.local("admin").get("leases", "default", "sluice")
    assert lease["spec"] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": TIMING.lease_duration,
        "acquireTime": "2025-06-15T15:23:20.000000Z",
        "renewTime": "2025-06-15T15:23:20.000000Z",
        "leaseTransitions": 0,
    }
    time.start("b", lead(second))
    for _ in range(100):
        await time.step()
        assert first.leads()
        assert not second.leads()
    assert second.holder == "a"


async def test_follower_reads_the_report_of_the_holder_until_the_lease_expires(sandbox, time, candidate):
    first, second = candidate("a"), candidate("b")
    told = {"example.com/standstill": "no database", "example.com/audit": ""}
    first.report = lambda: told
    second.report = lambda: dict.fromkeys(told, "")
    time.start("a", lead(first))
    await time.settle()
    time.start("b", lead(second))
    while second.reported != {"example.com/standstill": "no database"}:
        assert await time.step()
    assert first.reported == {}, "it knows by itself"
    admin = sandbox.local("admin")
    await admin.patch("leases", "default", "sluice", {"metadata": {"annotations": {"example.com/else": "kept"}}})
    told = {"example.com/standstill": "", "example.com/audit": "2"}
    while second.reported != {"example.com/audit": "2", "example.com/else": "kept"}:
        assert await time.step()
    time.frozen.add("a")
    while second.reported:
        assert await time.step()
    assert await leader(time, second) is second
    assert admin.get("leases", "default", "sluice")["metadata"]["annotations"] == {"example.com/else": "kept"}


async def test_another_candidate_leads_after_the_lease_of_a_crashed_leader_expired(sandbox, time, candidate):
    first, second = candidate("a"), candidate("b")
    time.start("a", lead(first))
    await time.settle()
    time.start("b", lead(second))
    await time.run(4 * TIMING.lease_duration)
    await time.stop("a")
    died = time.now
    assert await leader(time, second) is second
    assert not first.leads()
    # Its last renewal was up to a retry period before, and was observed up to half a period later.
    assert (
        died + TIMING.lease_duration - TIMING.retry_period
        <= time.now
        <= died + TIMING.lease_duration + TIMING.retry_period / 2
    )
    assert sandbox.local("admin").get("leases", "default", "sluice")["spec"]["leaseTransitions"] == 1


async def test_released_lease_is_acquired_within_half_a_retry_period(time, candidate):
    first, second = candidate("a"), candidate("b")
    time.start("a", lead(first))
    await time.settle()
    time.start("b", lead(second))
    await time.run(4 * TIMING.lease_duration)
    await time.stop("a")
    await first.release()
    assert not first.leads()
    released = time.now
    assert await leader(time, second) is second
    assert time.now <= released + TIMING.retry_period / 2


async def test_lease_edited_since_it_was_read_is_released(sandbox, time, candidate):
    """A renewal whose response was lost changes the Lease in the same way."""
    first, second, admin = candidate("a"), candidate("b"), sandbox.local("admin")
    await first.acquire()
    await admin.patch("leases", "default", "sluice", {"spec": {"renewTime": "2026-11-23T00:00:00.000000Z"}})
    await first.release()
    assert admin.get("leases", "default", "sluice")["spec"]["holderIdentity"] == ""
    await second.acquire()
    assert second.leads()


@pytest.mark.parametrize("is_taken", [True, False])
async def test_release_leaves_a_taken_or_deleted_lease_alone_without_a_warning(
    sandbox, time, candidate, caplog, is_taken
):
    first, admin = candidate("a"), sandbox.local("admin")
    await first.acquire()
    if is_taken:
        await admin.patch("leases", "default", "sluice", {"spec": {"holderIdentity": "b"}})
    else:
        await admin.delete("leases", "default", "sluice")
    with caplog.at_level("INFO", "admission.cluster.lease"):
        await first.release()
    holder = "b" if is_taken else "none"
    assert [
        (each.levelname, each.getMessage()) for each in caplog.records if each.name == "admission.cluster.lease"
    ] == [("INFO", f"the Lease default/sluice is not released: its holder is {holder}")]
    assert [each["spec"]["holderIdentity"] for each in admin.list("leases", "default")] == ["b"] * is_taken


async def test_frozen_leader_stops_leading_before_another_candidate_leads(time, candidate):
    first, second = candidate("a"), candidate("b")
    kept = time.start("a", lead(first))
    await time.settle()
    time.start("b", lead(second))
    await time.run(4 * TIMING.lease_duration)
    frozen = time.now
    time.frozen.add("a")
    while not second.leads():
        assert first.leads() <= (time.now < frozen + TIMING.renew_deadline)
        await time.step()
        assert not (first.leads() and second.leads())
    assert not first.leads()  # although none of its code has run since
    time.frozen.clear()
    await time.run(1)
    with pytest.raises(LeaseLost, match="was suspended"):
        await kept
    assert await leader(time, first, second) is second
    again = time.start("a", lead(first))
    await time.run(4 * TIMING.lease_duration)
    assert not again.done()
    assert not first.leads()


@pytest.mark.costly
async def test_rejected_renewals_end_the_leadership_at_the_renew_deadline(sandbox, time, candidate):
    first = candidate("a")
    kept = time.start("a", lead(first))
    await time.run(4 * TIMING.lease_duration)
    await sandbox.local("admin").create("validatingwebhookconfigurations", "", CUT)
    cut = time.now
    while not kept.done():
        await time.step()
    with pytest.raises(LeaseLost, match=r"the Lease default/sluice was not renewed in time: .*webhook"):
        await kept
    assert cut + TIMING.renew_deadline - TIMING.retry_period <= time.now <= cut + TIMING.renew_deadline
    assert not first.leads()

    time.start("a", lead(first))
    await time.run(4 * TIMING.lease_duration)
    assert not first.leads()
    await sandbox.local("admin").delete("validatingwebhookconfigurations", "", "cut")
    await time.run(TIMING.retry_period)
    assert first.leads()


@pytest.mark.costly
async def test_leadership_does_not_depend_on_wall_clocks(time, candidate):
    days = iter([1_750_000_000.0, 1.0, 3_000_000_000.0] * 1000)
    first = candidate("a", now=lambda: next(days))
    second = candidate("b", now=lambda: 3_000_000_000.0)
    time.start("a", lead(first))
    await time.settle()
    time.start("b", lead(second))
    await time.run(20 * TIMING.lease_duration)
    assert first.leads()
    assert not second.leads()


async def test_edit_or_deletion_of_the_lease_does_not_end_the_leadership(sandbox, time, candidate):
    first = candidate("a")
    time.start("a", lead(first))
    await time.settle()
    admin = sandbox.local("admin")
    for number in range(10):
        await admin.patch("leases", "default", "sluice", {"metadata": {"labels": {"touched": str(number)}}})
        await time.run(TIMING.retry_period)
    assert first.leads()
    assert admin.get("leases", "default", "sluice")["metadata"]["labels"] == {"touched": "9"}
    await admin.delete("leases", "default", "sluice")
    await time.run(2 * TIMING.retry_period)
    assert first.leads()


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(3))
async def test_at_most_one_candidate_leads_under_random_kills_and_freezes(seed, time, candidate):
    chance = random.Random(seed)
    electors = {who: candidate(who) for who in "abcde"}
    for who, elector in electors.items():
        time.start(who, lead(elector))
    led: set[str] = set()
    for number in count():
        if number >= 600 and len(led) > 1:  # the order of requests is random
            break
        await time.step()
        leading = [who for who, elector in electors.items() if elector.leads()]
        assert len(leading) <= 1
        led.update(leading)
        if chance.random() < 0.05:  # a candidate freezes or thaws; `a` never freezes
            time.frozen = (time.frozen ^ {chance.choice("abcde")}) - {"a"}
        if leading and chance.random() < 0.05:
            await time.stop(leading[0])
        for who, task in time.tasks.items():
            if task.done() and (who == "a" or chance.random() < 0.02):
                with suppress(LeaseLost, asyncio.CancelledError):
                    await task
                electors[who] = candidate(who, f"{who}{time.now}")
                time.start(who, lead(electors[who]))


@pytest.mark.virtual_time
async def test_unresponsive_server_ends_the_leadership(server, client):
    async def hang(_request):
        await asyncio.Event().wait()

    made = {"metadata": {"name": "sluice", "resourceVersion": "1"}, "spec": {"holderIdentity": "a"}}
    server.script = [failure(404, "NotFound"), reply(made, 201), *[hang] * 20]
    clock = asyncio.get_running_loop().time
    elector = LeaderElector(client, namespace="default", name="sluice", identity="a", timing=TIMING, clock=clock)
    await elector.acquire()
    with pytest.raises(LeaseLost, match="no answer in time"):
        await elector.keep()
    assert not elector.leads()


@pytest.mark.parametrize("wrong", [(15, 15, 2), (15, 10, 6), (15, 10, 0), (0.5, 0.3, 0.1)])
def test_invalid_timing_is_rejected(wrong):
    with pytest.raises(ValueError, match="the lease duration must be longer"):
        Timing(*wrong)
