"""Injection of the schedule's faults into real processes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from admission.cli.demo.account import Phase
from admission.cli.demo.plan import queue_documents
from admission.cluster.errors import NotFound
from admission.model.errors import ClusterError
from tests.chaos.fleet import LEASE_SECONDS, Stuck
from tests.chaos.kinds import path_of
from tests.chaos.schedule import Fault, cut_watches
from tests.chaos.stepped import set_offset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cli.demo.account import SceneAccount
    from admission.cli.demo.plan import ScenePlan, Team
    from tests.chaos.fleet import Fleet
    from tests.chaos.nodes import Floor
    from tests.chaos.policies import Policies
    from tests.chaos.schedule import ScheduledFault
    from tests.chaos.storm import Ground

_CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sluice'"
_HOUR = 3600.0
_HOLD = "sluice.dev/hold"
_STOPS = 150.0
"""Real seconds within which a Job that is put on hold has to stop or end."""


class Server(Protocol):
    """Database server that can be killed, see `tests/postgresql_server.py`."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def execute(self, *statements: str) -> None: ...


class FaultInjector:
    """Injects faults one after the other and counts them."""

    def __init__(
        self,
        fleet: Fleet,
        ground: Ground,
        account: SceneAccount,
        faults: dict[str, object],
        server: Server | None,
        say: Callable[[str], None],
        floor: Floor | None = None,
        policies: Policies | None = None,
    ) -> None:
        """`faults` are the request faults installed in the API servers, `say` prints a line."""
        self.done: Counter[Fault] = Counter()
        self.takeovers: dict[bool, list[float]] = {True: [], False: []}
        """Whether a follower was ready, to seconds until the next leader for each leader that was killed or frozen."""
        self._fleet = fleet
        self._ground = ground
        self._account = account
        self._plan = account.plan
        # Objects that can be put on hold by a label: not pod groups, which have no object.
        self._hold_paths = {
            f"{job.team}/{job.name}": path_of(job) for job in account.plan.jobs if job.kind != "PodGroup"
        }
        self._by_pods = {f"{job.team}/{job.name}" for job in account.plan.jobs if job.kind != "Job"}
        self._faults = faults
        self._server = server
        self._say = say
        self._floor = floor
        self._policies = policies

    async def inject(self, fault: ScheduledFault) -> None:
        """Inject a fault. Raises Stuck if Sluice does not recover."""
        self._say(f"       {fault.fault}")
        doing: dict[Fault, Callable[[float], Awaitable[None]]] = {
            Fault.KILL_LEADER: self._kill_leader,
            Fault.KILL_FOLLOWER: self._kill_follower,
            Fault.FREEZE_LEADER: self._freeze_leader,
            Fault.KILL_DATABASE: self._kill_database,
            Fault.CUT_DATABASE: self._cut_database,
            Fault.CUT_WATCHES: self._cut_watches,
            Fault.STEP_CLOCK: self._step_clock,
            Fault.CHANGE_QUOTA: self._change_quota,
            Fault.HOLD: self._hold,
            Fault.DRAIN: self._drain,
        }
        if self._floor is not None:
            doing |= {Fault.NODE_FAILS: self._floor.fail, Fault.NODE_GOES: self._floor.replace}
        if self._policies is not None:
            doing |= self._policies.faults(self._fleet)
        doing |= self._ground.faults(self._fleet)
        await doing[fault.fault](fault.draw)
        self.done[fault.fault] += 1

    async def _kill_leader(self, draw: float) -> None:
        leader = await self._fleet.leader()
        ready = await self._fleet.is_followed(leader)
        await self._ground.moment(draw)
        began = time.monotonic()
        await leader.kill()
        await self._fleet.leader()  # possibly the same replica, after its restart
        self.takeovers[ready].append(time.monotonic() - began)

    async def _kill_follower(self, draw: float) -> None:
        leader = await self._fleet.leader()
        followers = [replica for replica in self._fleet.replicas if replica is not leader]
        await followers[int(draw * len(followers))].kill()

    async def _freeze_leader(self, _: float) -> None:
        """Freeze the leader's process past its lease; it continues in the middle of its work, unaware of the pause."""
        leader = await self._fleet.leader()
        ready = await self._fleet.is_followed(leader)
        began = time.monotonic()
        leader.send(signal.SIGSTOP)
        try:
            await self._fleet.leader(but=leader)
            self.takeovers[ready].append(took := time.monotonic() - began)
            await asyncio.sleep(max(0.0, LEASE_SECONDS - took))
        finally:
            leader.send(signal.SIGCONT)
        await self._fleet.until_one_leads()

    async def _kill_database(self, draw: float) -> None:
        assert self._server is not None, "only with PostgreSQL"
        await _in_thread(self._server.kill)
        await asyncio.sleep(2 * draw)
        await _in_thread(self._server.start)

    async def _cut_database(self, _: float) -> None:
        assert self._server is not None, "only with PostgreSQL"
        await asyncio.to_thread(self._server.execute, _CUT)

    async def _cut_watches(self, _: float) -> None:
        await self._ground.install(cut_watches(self._faults, user="sluice"))

    async def _step_clock(self, draw: float) -> None:
        """Set the clock of a replica, leader or follower, by up to an hour forwards or backwards."""
        replica = self._fleet.replicas[int(draw * len(self._fleet.replicas))]
        set_offset(replica.clock, _HOUR * (2 * (draw * 1009 % 1) - 1))

    async def _change_quota(self, draw: float) -> None:
        """Change a team's nominal quota, never above the plan's, whose limits the observer checks."""
        team = self._plan.teams[int(draw * len(self._plan.teams))]
        share = 0.5 + (draw * 1009 % 1) / 2
        nominal = {resource: int(most * share) // 1000 * 1000 for resource, most in team.nominal.items()}
        body = {"spec": {"resourceGroups": _groups(self._plan, replace(team, nominal=nominal))}}
        await self._change_queue(team, body)

    async def _drain(self, draw: float) -> None:
        """Set HoldAndDrain on a ClusterQueue, wait until its pods have ended, and resume it."""
        team = self._plan.teams[int(draw * len(self._plan.teams))]
        await self._change_queue(team, {"spec": {"stopPolicy": "HoldAndDrain"}})
        alive = self._account.live.alive[team.name]
        try:
            async with asyncio.timeout(_STOPS):
                while any(alive.values()):  # noqa: ASYNC110  the observer updates it
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise Stuck(f"pods of {team.name}, whose ClusterQueue is drained, are alive {_STOPS:g} s later") from error
        await self._change_queue(team, {"spec": {"stopPolicy": None}})

    async def _change_queue(self, team: Team, body: dict[str, object]) -> None:
        await self._fleet.written("PATCH", f"/apis/sluice.dev/v1/clusterqueues/{team.name}", body)

    async def _hold(self, draw: float) -> None:
        """Put a running Job on hold until it stops, then release it; retry with another one if it ended by itself."""
        try:
            async with asyncio.timeout(_STOPS):
                while not self._account.finished():
                    running = [key for key in self._account.running() if key in self._hold_paths]
                    if running and await self._stopped(running[int(draw * len(running))]):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise Stuck(f"no Job that was held has stopped for {_STOPS:g} s") from error

    async def _stopped(self, key: str) -> bool:
        await self._label(key, "true")
        while key in self._account.running():
            if key in self._by_pods and self._account.gangs.none_alive(key):
                break  # some pods have ended and the others are still gated, so that the observer sees no stop
            await asyncio.sleep(0.05)
        stopped = key in self._account.jobs and self._account.jobs[key].phase is Phase.WAITING
        await self._label(key, None)
        return stopped

    async def _label(self, key: str, value: str | None) -> None:
        """Set the hold label as the object's user; retry while the webhooks are down."""
        path = self._hold_paths[key]
        while True:
            try:
                await self._ground.client_of(key).patch(path, {"metadata": {"labels": {_HOLD: value}}})
            except NotFound:  # an endless object was deleted meanwhile
                return
            except ClusterError:
                await asyncio.sleep(0.2)
            else:
                return


def _groups(plan: ScenePlan, team: Team) -> object:
    (queue,) = (
        document for document in queue_documents(replace(plan, teams=(team,))) if document["kind"] == "ClusterQueue"
    )
    return queue["spec"]["resourceGroups"]


async def _in_thread(work: Callable[[], None]) -> None:
    """Run in a thread, and wait for its end even if cancelled: a server that is starting would outlive the test."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise
