"""Chaos test: Jobs or objects of several kinds run through several replicas during faults; then all data is checked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from zlib import crc32

from admission.cli.demo.account import Phase, SceneAccount
from admission.cli.demo.children import alongside
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.load import operated, prepare
from admission.cli.demo.observer import Observer
from admission.cli.demo.plan import queue_documents, three_teams
from admission.cli.demo.stage import SLUICE_USER, running_sandbox
from admission.cluster.client import Client
from admission.cluster.errors import AlreadyExists
from admission.model.errors import ClusterError
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.chaos import ledger
from tests.chaos.clusters import Clusters, plan_over_clusters, queues_of_clusters
from tests.chaos.fault_injector import FaultInjector
from tests.chaos.fleet import Stuck, running_fleet
from tests.chaos.kinds import PATHS, RestorationCheck, act_as_user, documents
from tests.chaos.nodes import Floor, placed, queue_objects
from tests.chaos.policies import Policies, user_of
from tests.chaos.schedule import Fault, cut_watches, rules, schedule
from tests.sandbox_errors import logged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from admission.cli.demo.plan import Document, PlannedJob, ScenePlan
    from tests.chaos.fault_injector import Server
    from tests.chaos.fleet import Fleet
    from tests.chaos.ledger import Promise

_USERS = 8
_BACKLOG = 300
"""Users submit more while the number of waiting Jobs is below this and below a quarter of all: so arrivals continue
through the whole test, and urgent ones preempt running ones."""
_ONE_OF = 5
"""One in this number of Jobs is urgent and preempts others of its team."""
_URGENT = {
    "apiVersion": "sluice.dev/v1",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
_PATIENCE = 150.0
"""Real seconds without any phase change of a Job after which the test gives up."""
_PROGRESS = 5.0
Ground: TypeAlias = "OneCluster | Clusters"
"""Where a storm takes place."""
Dress: TypeAlias = "Callable[[Document], Document]"
"""What is done to the object of a planned Job before it is submitted."""


@dataclass(frozen=True)
class Outcome:
    """Result of a run; `promises` are (whether kept, text), `figures` (name, value)."""

    promises: tuple[Promise, ...]
    figures: tuple[tuple[str, str], ...]
    logs: str

    @property
    def broken(self) -> list[str]:
        return [sentence for kept, sentence in self.promises if not kept]


def plan_of(jobs: int, *, speed: float) -> ScenePlan:
    """Return a plan of three teams with Jobs of two pods that fill one node: 40 run at a time, of 10,000 Jobs 100."""
    plan = three_teams(jobs=jobs, nodes=max(40, jobs // 100), speed=speed)
    pod = {"cpu": 5_000, "memory": 5 * 2**30}
    return replace(plan, preemption=True, jobs=tuple(replace(job, pods=2, requests=pod) for job in plan.jobs))


async def storm(
    plan: ScenePlan,
    *,
    seed: int,
    counts: Mapping[Fault, int],
    replicas: int,
    folder: Path,
    database_url: str,
    server: Server | None = None,
    timeouts: int = 0,
    say: Callable[[str], None] = lambda _: None,
    by_topology: bool = False,
    with_policies: bool = False,
    clusters: int = 1,
    replays: bool = False,
) -> Outcome:
    """Run the test. `server` is the PostgreSQL that may be killed, `timeouts` as in `rules`; `say` prints progress.

    `by_topology`: the plan has Jobs only, and their pods are placed by topology. `with_policies`: it has Jobs only, of
    several users with Budgets, limits, Reservations and calendars. `clusters`: how many share the quota; with several,
    the plan has Jobs only, of which some become groups. `replays`: a replay of the ledger has to agree with what
    happened.
    """
    queues = queue_objects(plan) if by_topology else queue_documents(plan)
    policies = Policies(plan, steady=not counts.get(Fault.STEP_CLOCK)) if with_policies else None
    if policies is not None:
        queues += policies.documents()
    dress = placed if by_topology else _as_it_is if policies is None else policies.limited
    if clusters > 1:
        plan, queues = plan_over_clusters(plan), queues_of_clusters(plan, clusters)
    await _make_queues(database_url, queues)
    scheduled = schedule(seed=seed, jobs=len(plan.jobs), counts=counts)
    account = SceneAccount(plan)
    ground: Ground = OneCluster(folder, plan, account)
    if clusters > 1:
        ground = Clusters(folder, plan, account, clusters, submit=lambda job: _create(ground, plan, job, _as_it_is))
    async with ground:
        client = ground.hub
        restoration = RestorationCheck(client, plan, may_change=("suspend", *(("replicas",) if clusters > 1 else ())))
        floor = Floor(client, plan)
        if by_topology:
            await floor.build()
        settings = {**plan.settings, **ground.settings}
        async with (
            alongside(floor.run()),
            alongside(restoration.run()),
            nullcontext() if policies is None else policies.observing(ground),
            running_fleet(
                folder, ground.kubeconfig, database_url, count=replicas, settings=settings, options=ground.options
            ) as fleet,
        ):
            await restoration.synced()
            await floor.synced()
            await fleet.leader()
            await ground.gated()
            faults = rules(seed=seed, user=SLUICE_USER, timeouts=timeouts)
            # Watches are cut, because a watch draws at its start whether it reorders events.
            await ground.install(cut_watches(faults, user=SLUICE_USER))
            injector = FaultInjector(fleet, ground, account, faults, server, say, floor, policies)
            stuck = ""
            try:
                submitting = _submit(ground, plan, account, dress)
                reporting = _report_progress(account, ground.elapsed, say)
                granting = nullcontext() if policies is None else alongside(policies.grant(fleet))
                async with alongside(submitting), alongside(reporting), granting:
                    for fault in scheduled:
                        await until(account, lambda moment=fault.moment: account.moves >= moment)
                        await injector.inject(fault)
                    await ground.all_over()
                    await until(account, account.finished)
                faults_seen = await client.get("/sandbox/faults")
                await ground.install({"rules": []})
                await settled(database_url)
                await ground.cleared()
                if policies is not None:
                    await policies.note_spent(fleet)
            except Stuck as error:
                stuck = f"{error}\n{ground.unfinished()}\n{await fleet.diagnostics()}"
                faults_seen = await client.get("/sandbox/faults")
        elapsed = ground.elapsed()
        errors, over_clusters = ground.errors(), ground.promises()
    starts = {key: job.starts for key, job in account.jobs.items()}
    if clusters > 1:
        # A copy may end before its Job is unsuspended, as that is written after it was created. Copies of a group that
        # others delete, as with a cluster, are made again in the same admission.
        are_groups = {f"{job.team}/{job.name}" for job in plan.jobs if job.kind != "Job"}
        starts = {key: 1 if key in are_groups else max(count, 1) for key, count in starts.items()}
    promises = (
        (not stuck, f"the test ran to its end {stuck}"),
        *close(account, Costs({}, 0), elapsed).promises,
        *over_clusters,
        (not restoration.altered, f"no other object of a user was altered {sorted(restoration.altered)[:2] or ''}"),
        *await ledger.promises(database_url, plan, starts, again=ground.again, unseen=ground.unseen),
        *([await ledger.replay_agrees(database_url)] if replays else []),
        *(() if policies is None else await policies.promises(database_url)),
        (not errors, f"no controller of the sandbox failed {errors[:1] or ''}"),
        (not floor.exceeded, f"{floor.checked} placed pods fit on their nodes, in one rack {floor.exceeded[:2] or ''}"),
        (not fleet.unexpected_exits, f"no sluice serve process ended by itself {fleet.unexpected_exits[:2] or ''}"),
    )
    return Outcome(promises, _figures(injector, faults_seen, elapsed), _logs(fleet))


class OneCluster:
    """One cluster in a process of its own, while the context is open; an observer of its watches feeds the account."""

    settings: Mapping[str, Any] = MappingProxyType({})
    """Further settings of `sluice serve`."""
    options: tuple[str, ...] = ()
    """Further options of `sluice serve`."""
    again: Mapping[str, int] = MappingProxyType({})
    unseen = 0

    def __init__(self, folder: Path, plan: ScenePlan, account: SceneAccount) -> None:
        self._folder = folder
        self._plan = plan
        self._account = account
        self._stack = AsyncExitStack()
        self._observer: Observer
        self.hub: Client
        self.users: Mapping[str, Client] = {}
        """Clients of users other than the admin, by name."""
        self.kubeconfig: Path

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            running = running_sandbox(self._folder, speed=self._plan.speed, kinds=operated(self._plan))
            cluster = await stack.enter_async_context(running)
            self.kubeconfig = cluster.sluice_kubeconfig
            self.hub = await stack.enter_async_context(Client.from_kubeconfig(str(cluster.kubeconfig)))
            await prepare(self.hub, self._plan)
            self._observer = Observer(self.hub, self._account)
            await stack.enter_async_context(alongside(self._observer.run()))
            await self._observer.synced()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def elapsed(self) -> float:
        return self._observer.elapsed()

    async def gated(self) -> None:
        """Wait for nothing: the API server refuses Jobs while no webhook answers."""

    async def install(self, faults: Mapping[str, Any]) -> None:
        await self.hub.create("/sandbox/faults", dict(faults))

    async def place(self, job: PlannedJob, _: object) -> Client:
        return self.users.get(user_of(job.name), self.hub)

    def client_of(self, _: str) -> Client:
        return self.hub

    def faults(self, _: Fleet) -> dict[Fault, Callable[[float], Awaitable[None]]]:
        return {}

    async def moment(self, _: float) -> None:
        """Wait for nothing: the leader is killed at any time."""

    async def all_over(self) -> None:
        """Wait for nothing: no fault lasts."""

    async def cleared(self) -> None:
        """Wait for nothing: there are no copies."""

    def unfinished(self) -> str:
        return ""

    def errors(self) -> list[str]:
        return logged(self._folder / "sandbox.log")

    def promises(self) -> list[Promise]:
        return []


async def _make_queues(database_url: str, documents: list[Document]) -> None:
    await migrate(database_url)
    async with Store.open(database_url) as store:
        for document in (*documents, _URGENT):
            await store.queues.create(parse_manifest(document), author=Author("chaos"))


async def until(account: SceneAccount, reached: Callable[[], bool]) -> None:
    """Wait until `reached` returns True. Raises Stuck if no Job changes its phase for _PATIENCE."""
    moves, since = account.moves, time.monotonic()
    while not reached():
        if account.moves != moves:
            moves, since = account.moves, time.monotonic()
        elif time.monotonic() - since > _PATIENCE:
            phases = ", ".join(f"{account.count(phase)} {phase}" for phase in Phase)
            raise Stuck(f"no Job has moved for {_PATIENCE:g} s: {phases}")
        await asyncio.sleep(0.02)


async def settled(database_url: str) -> None:
    """Wait until Sluice has stored the ends of all Jobs. Raises Stuck."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while not await ledger.settled(database_url):  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        raise Stuck(f"all Jobs have ended, but not in the database, {_PATIENCE:g} s later") from error


async def _report_progress(account: SceneAccount, elapsed: Callable[[], float], say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(_PROGRESS)
        phases = ", ".join(f"{account.count(phase)} {phase}" for phase in Phase)
        say(f"{elapsed():5.0f} s  {phases}, of {len(account.plan.jobs)}")


async def _submit(ground: Ground, plan: ScenePlan, account: SceneAccount, dress: Dress) -> None:
    jobs = iter(plan.jobs)
    async with asyncio.TaskGroup() as users:
        for _ in range(_USERS):
            users.create_task(_user(ground, plan, account, jobs, users, dress))


async def _user(
    ground: Ground,
    plan: ScenePlan,
    account: SceneAccount,
    jobs: Iterator[PlannedJob],
    users: asyncio.TaskGroup,
    dress: Dress,
) -> None:
    """Submit Jobs one after the other; each is retried while no webhook answers and the API server rejects it."""
    for job in jobs:
        while account.count(Phase.WAITING) > min(_BACKLOG, len(plan.jobs) // 4):  # noqa: ASYNC110  set by the observer
            await asyncio.sleep(0.05)
        submit = partial(_create, ground, plan, job, dress)
        await submit()
        account.submitted(f"{job.team}/{job.name}")
        users.create_task(act_as_user(ground.hub, account, job, submit))


async def _create(ground: Ground, plan: ScenePlan, job: PlannedJob, dress: Dress) -> None:
    is_urgent = crc32(job.name.encode()) % _ONE_OF == 0
    for document in documents(plan, job, priority_class=_URGENT["metadata"]["name"] if is_urgent else None):
        await _created(ground, job, dress(document))


def _as_it_is(document: Document) -> Document:
    return document


async def _created(ground: Ground, job: PlannedJob, document: Document) -> None:
    """Create an object; retry while the API server rejects it or an earlier one of that name is being deleted."""
    collection = PATHS[job.kind].format(job.team)
    while True:
        client = await ground.place(job, document)
        try:
            await client.create(collection, document)
        except AlreadyExists:
            if not await _is_ending(client, f"{collection}/{document['metadata']['name']}"):
                return
        except ClusterError:
            pass  # no webhook answers, so that the API server rejects it
        else:
            return
        await asyncio.sleep(0.2)


async def _is_ending(client: Client, path: str) -> bool:
    """Return whether an object is being deleted or is already deleted."""
    try:
        found = await client.get(path)
    except ClusterError:
        return True
    return "deletionTimestamp" in found["metadata"]


def _figures(injector: FaultInjector, faults_seen: Mapping[str, object], elapsed: float) -> tuple[tuple[str, str], ...]:
    done = Counter[str]()
    for rule in faults_seen.get("rules", ()):  # type: ignore[attr-defined]
        done[f"{rule['do']}{' ' + str(rule['code']) if rule['do'] == 'error' else ''}"] += rule["struck"]
    takeovers = {
        ready: ", ".join(f"{taken:.1f}" for taken in all_) or "-" for ready, all_ in injector.takeovers.items()
    }
    return (
        ("Time", f"{elapsed:.0f} s"),
        *((str(fault), str(count)) for fault, count in injector.done.items()),
        ("Seconds until the next leader, with a ready follower", takeovers[True]),
        ("... and without one", takeovers[False]),
        ("At the API server", ", ".join(f"{count} x {what}" for what, count in sorted(done.items()))),
    )


def _logs(fleet: Fleet) -> str:
    return "\n".join(f"--- {replica.name}\n{replica.tail()}" for replica in fleet.replicas)
