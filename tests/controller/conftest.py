"""Fixtures for controller tests: sandbox cluster (over real TLS), database, and a controller to start and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from job_examples import cluster_queue, flavor, local_queue, node

from admission.cluster.client import Client
from admission.controller.clusters import Join
from admission.controller.controller import Controller
from admission.controller.intake.appwrappers import AppWrapperItems
from admission.controller.state.policy import ControllerPolicy
from admission.kinds import Kinds, all_kinds
from admission.model.checks import CheckReport
from admission.model.manifests import parse_manifest
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.errors import AlreadyExists
from admission.store.records import WorkloadRecord
from admission.store.store import Store
from admission.store.workloads.queries import ColumnFilter

Object = dict[str, Any]

SPEED = 60.0
"""Factor by which pods of the sandbox run and terminate faster than real time."""
_UNSEEN_WRITES = 8
"""Polls after which the database is queried although no store of `World` has written: other processes may have."""

CUT: Object = {
    "metadata": {"name": "cut"},
    "webhooks": [
        {
            "name": "cut.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/nobody-listens"},
            "matchConditions": [{"name": "sluice", "expression": "request.userInfo.username == 'sluice'"}],
            "rules": [
                {
                    "apiGroups": ["batch", "", "ray.io"],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["jobs", "pods", "rayclusters"],
                }
            ],
        }
    ],
}
"""Webhook configuration that fails all of Sluice's updates, as its URL is unreachable."""


class Clock:
    """Unix clock that a test can advance, for timeouts of minutes and hours, and its monotonic clock."""

    def __init__(self) -> None:
        self._ahead = self._off = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead + self._off

    def elapsed(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds

    def step(self, seconds: float) -> None:
        """Set the Unix clock, although no time passes."""
        self._off += seconds


class World:
    """Cluster, database and controller of a test, with helpers to change and observe them."""

    def __init__(self, sandbox: Sandbox, client: Client, store: Store, url: str, clock: Clock) -> None:
        self.sandbox = sandbox
        self.client = client
        self.store = store
        """Store of the test: it reads, and writes queue objects while Sluice does not run."""
        self.user = sandbox.local("admin")
        self.controller: Controller | None = None
        self.leading: Store | None = None
        """Store of the running controller."""
        self.url = url
        self.clock = clock
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self.leads = True
        """Whether it is sure to lead."""

    async def start(
        self,
        policy: ControllerPolicy | None = None,
        *,
        audit_interval: float = 0.0,
        kinds: Kinds | None = None,
        makes_items: bool = False,
        join: Join | None = None,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Start Sluice, and wait until it decides.

        `makes_items`: also create the items of admitted MCAD AppWrappers. `join`: how further clusters are reached.
        `loading`: entered whenever the stored workloads are loaded.
        """
        self.leading = await self._stack.enter_async_context(
            Store.open(self.url, clock=self.clock, elapsed=self.clock.elapsed)
        )
        epoch = await self.leading.lead("test")
        self.controller = Controller(
            store=self.leading,
            client=self.client,
            kinds=kinds or all_kinds(),
            policy=policy,
            leads=lambda: self.leads,
            audit_interval=audit_interval,
            join=join,
            loading=loading,
        )
        watches, events = self.controller.watches, self.controller.events
        self.controller.quota_interval = 0.2
        watches.discovery_interval, watches.max_list_wait = 0.2, 1.0
        items = None
        if makes_items:
            engine = self.controller.engine
            items = AppWrapperItems(self.client, self.controller.writer, watches, events, engine=engine)
        self._running = asyncio.create_task(self._run(self.controller, epoch, items))
        await self.eventually(self._decides)

    async def _run(self, controller: Controller, epoch: int, items: AppWrapperItems | None) -> None:
        async with asyncio.TaskGroup() as group:
            if items is not None:
                group.create_task(items.run())
            group.create_task(controller.watch())
            group.create_task(controller.decide(epoch=epoch))

    async def end(self) -> None:
        """Stop Sluice abruptly, in whatever state it is; no-op if it does not run."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = self.leading = None
            await self._stack.aclose()

    async def deposed(self) -> None:
        """Wait until Sluice stops by itself, which raises its ExceptionGroup, and close its store."""
        running, self._running, self.leading = self._running, None, None
        assert running is not None
        try:
            await running
        finally:
            await self._stack.aclose()

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of Sluice, but not that of the cluster, and wake the leader."""
        assert self.controller is not None
        self.clock.advance(seconds)
        self.controller.inbox.wake()

    async def order(self, name: str, namespace: str = "team-a", **ordered: Any) -> None:
        """Store an admin's order about a workload, as the API would."""
        record = await self.store.workloads.get(namespace, name)
        assert record is not None
        store = self.leading or self.store
        await store.orders.give(record.workload.uid, author=Author("ada", reason="because"), **ordered)

    async def report(self, name: str, *reports: Object, namespace: str = "team-a") -> None:
        """Store reports of admission check controllers about a workload, as the API would."""
        record = await self.store.workloads.get(namespace, name)
        assert record is not None
        store = self.leading or self.store
        answers = [CheckReport.model_validate(report) for report in reports]
        await store.orders.report(record.workload.uid, answers, author=Author("checker"))

    async def history(self, name: str, namespace: str = "team-a") -> list[tuple[str, str]]:
        """Return (reason, message) of each history entry of a workload."""
        record = await self.store.workloads.get(namespace, name)
        assert record is not None
        return [(line.reason, line.message) for line in await self.store.workloads.history(record.workload.uid)]

    async def begin(self, *queues: Object, **options: Any) -> None:
        """Create queues, without any named one of 4 CPUs, and start Sluice."""
        await self.apply(*(queues or (flavor(), cluster_queue(), local_queue())))
        await self.start(**options)

    async def apply(self, *manifests: Object, reason: str = "") -> None:
        """Create or replace queue objects as the API would."""
        store, author = self.leading or self.store, Author("test", reason=reason)
        for obj in map(parse_manifest, manifests):
            try:
                await store.queues.create(obj, author=author)
            except AlreadyExists:
                await store.queues.replace(obj, author=author)

    async def submit(self, job: Object) -> Object:
        """Create a Job as a user."""
        return await self.user.create("jobs", job["metadata"]["namespace"], job)

    async def patch(self, name: str, body: Object, namespace: str = "team-a") -> Object:
        """Patch a Job as a user."""
        return await self.user.patch("jobs", namespace, name, body)

    async def cut_off(self) -> None:
        """Let the API server reject all updates of Jobs, pods and RayClusters by Sluice; watches still work."""
        await self.user.create("validatingwebhookconfigurations", "", CUT)

    async def reconnect(self) -> None:
        """Undo `cut_off`."""
        await self.user.delete("validatingwebhookconfigurations", "", "cut")

    async def job(self, name: str, until: Callable[[Object], bool], namespace: str = "team-a") -> Object:
        """Wait until a Job satisfies `until`, and return it."""
        with closing(self.user.watch("jobs")) as changes:
            async for batch in changes:
                for _, kind, obj, _ in batch:
                    key = obj["metadata"]["namespace"], obj["metadata"]["name"]
                    if key == (namespace, name) and kind != "DELETED" and until(obj):
                        return obj
        raise AssertionError("the watch ended")

    async def record(
        self, name: str, state: str, namespace: str = "team-a", *, reason: str | None = None
    ) -> WorkloadRecord:
        """Wait until the database has a workload in this state (and with this reason), and return it."""
        where = (ColumnFilter("name", frozenset({name})), ColumnFilter("state", frozenset({state})))

        async def look() -> WorkloadRecord | None:
            for record in (await self.store.workloads.list(namespace=namespace, where=where)).workloads:
                if reason in (None, record.reason):
                    return record
            return None

        found: WorkloadRecord = await self.eventually(self._after_writes(look))
        return found

    async def held(self, *names: str) -> int:
        """Return the milli-CPU of quota that the workloads of team-a, or those of these names, hold."""
        found = (await self.store.workloads.list(namespace="team-a")).workloads
        records = [record for record in found if record.admission and (not names or record.workload.name in names)]
        return sum(each.usage["cpu"] for record in records for each in record.admission.pod_sets)

    async def holds(self, amount: int, *names: str) -> None:
        """Wait until `held` is so much."""

        async def look() -> bool:
            return await self.held(*names) == amount

        await self.eventually(look)

    async def says(self, name: str, message: str, state: str = "pending") -> None:
        """Wait until a workload is in this state with this message."""

        async def look() -> bool:
            return (await self.record(name, state)).message == message

        await self.eventually(look)

    async def end_pods(self, phase: str, *names: str) -> None:
        """Let these pods of team-a end."""
        for name in names:
            await self.user.patch("pods", "team-a", name, {"status": {"phase": phase}}, subresource="status")

    def _after_writes(self, look: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Wrap `look` to query only after a write of one of the stores, and each `_UNSEEN_WRITES`th time."""
        seen: object = None
        skipped = 0

        async def looked() -> Any:
            nonlocal seen, skipped
            now = [store and (store, store.statistics.write_transactions) for store in (self.store, self.leading)]
            skipped = skipped + 1 if now == seen else 0
            if skipped % _UNSEEN_WRITES:
                return None
            seen = now
            return await look()

        return looked

    async def eventually(self, look: Callable[[], Any], *, longest: float = 0.05) -> Any:
        """Call `look` until it returns a true value, and return that. Only the test's time limit ends the wait.

        `longest`: seconds between two calls at most, reached after some calls; larger for an expensive `look`.
        """
        pause = 0.004
        while not (found := await look()):
            # A database sends no events, and polling without pause would slow down the code under test.
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, longest)
        return found

    async def _decides(self) -> bool:
        assert self.controller is not None
        assert self._running is not None
        if self._running.done():
            await self._running
        return await self.controller.health() is None


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    """SQLite, unless a module is marked `on_both_databases`: `tests/store` runs all statements on both databases."""
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
def before_1_36() -> bool:
    """Whether the API server has the rules of before 1.36 for changing templates of suspended Jobs."""
    return False


@pytest.fixture
def controllers() -> bool:
    """Whether the sandbox runs the workload controllers, scheduler and kubelets."""
    return True


@pytest.fixture
async def world(database_url: str, tmp_path: Path, before_1_36: bool, controllers: bool) -> AsyncIterator[World]:
    """A cluster with nodes and namespaces, in which Sluice does not run yet."""
    clock = Clock()
    async with (
        Sandbox(speed=SPEED, minor=35 if before_1_36 else 36, controllers=controllers) as sandbox,
        Store.open(database_url, clock=clock) as store,
    ):
        kubeconfig = tmp_path / "kubeconfig"
        sandbox.write_kubeconfig(kubeconfig, "sluice")
        async with Client.from_kubeconfig(str(kubeconfig)) as client:
            world = World(sandbox, client, store, database_url, clock)
            for namespace in ("team-a", "team-b"):
                await world.user.create("namespaces", "", {"metadata": {"name": namespace}})
            for number in range(4):
                await world.user.create("nodes", "", node(number))
            try:
                yield world
            finally:
                await world.end()
