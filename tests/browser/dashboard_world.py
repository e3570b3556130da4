"""Running dashboard for tests: the API on a filled store, and a sandbox API server with the users.

PYTHONPATH=tests python tests/browser/dashboard_world.py [EXTRA_QUEUES [PENDING]]   serves it until interrupted
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dashboard_scenario import TEAMS, Scenario, ScenarioClock, Teams, fill
from user_permissions import bind, create_roles

from admission.api.application import create_app, listening
from admission.api.auth.delegation import Delegation
from admission.api.auth.oidc.client import OidcClient
from admission.cluster.client import Client
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import migrate
from admission.store.store import Store

ADMIN_TOKEN = "the-admins-token"
USERS = {
    "admin-token": User("admin", "1", ("system:masters", AUTHENTICATED)),
    "viewer-token": User("viewer", "2", (AUTHENTICATED,)),
    "grace-token": User("grace", "3", (AUTHENTICATED,)),
    "nobody-token": User("nobody", "4", (AUTHENTICATED,)),
    "lead-token": User("lea", "5", (AUTHENTICATED,)),
    "sluice-token": User("sluice", "6", ("system:masters", AUTHENTICATED)),
}
"""By token. viewer may read all of Sluice, grace has the role `edit` in the namespace vision, where
lea is the team lead; nobody has no role."""


@dataclass
class World:
    """Running dashboard: its URL, its store and the contents, the sandbox, and the controller stub."""

    url: str
    store: Store
    scenario: Scenario
    sandbox: Sandbox
    deciding: Teams


@dataclass(frozen=True)
class SavedScenario:
    """Database with a scenario, which several worlds can copy."""

    database: Path
    now: float
    teams: tuple[str, ...]
    number: int

    @classmethod
    async def load_or_create(
        cls, folder: Path, *, extra_queues: int, add: Callable[[Scenario], Awaitable[None]]
    ) -> SavedScenario:
        """Return the database in `folder`; the first process creates it, because a large one takes long."""
        await asyncio.to_thread(folder.mkdir, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            told = folder / "made.json"
            if not told.exists():
                database = folder / "sluice.db"
                url = f"sqlite:///{database}"
                await asyncio.to_thread(lambda: asyncio.run(migrate(url)))
                clock = ScenarioClock()
                async with Store.open(url, clock=clock) as store:
                    scenario = await fill(store, clock, extra_queues=extra_queues)
                    await add(scenario)
                told.write_text(json.dumps([str(database), scenario.now, scenario.teams, scenario.number]))
            database, now, teams, number = json.loads(told.read_text())
            return cls(Path(database), now, tuple(teams), number)

    async def load_into(self, store: Store) -> Scenario:
        """Return the scenario of a store that is open on a copy of the database."""
        epoch = await store.lead("tests")
        return Scenario(store, self.now, epoch, Random(7), self.teams, self.number)


@asynccontextmanager
async def world(
    folder: Path,
    *,
    extra_queues: int = 0,
    pending: int = 120,
    past: int = 700,
    port: int = 0,
    oidc: OidcClient | None = None,
    made: SavedScenario | None = None,
) -> AsyncIterator[World]:
    """Serve the dashboard on loopback for the duration of the block; without `made`, with a new scenario."""
    url = f"sqlite:///{folder / 'sluice.db'}"
    if made is None:
        await asyncio.to_thread(lambda: asyncio.run(migrate(url)))
    else:
        await asyncio.to_thread(shutil.copyfile, made.database, folder / "sluice.db")
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(controllers=False, users=USERS))
        await _roles(sandbox)
        await _nodes(sandbox)
        kubeconfig = folder / "sluice.kubeconfig"
        sandbox.write_kubeconfig(kubeconfig, "sluice")
        cluster = await stack.enter_async_context(Client.from_kubeconfig(str(kubeconfig)))
        clock = ScenarioClock()
        store = await stack.enter_async_context(Store.open(url, clock=clock))
        if made is None:
            scenario = await fill(store, clock, extra_queues=extra_queues, pending=pending, past=past)
        else:
            clock.back = 0.0
            scenario = await made.load_into(store)
        deciding = Teams(scenario.teams)
        app = create_app(
            store,
            checks={},
            token=ADMIN_TOKEN,
            delegation=Delegation(cluster),
            oidc=oidc,
            controller=deciding,
            leader=deciding,
            cluster=cluster,
        )
        base = await stack.enter_async_context(listening(app, "127.0.0.1", port))
        yield World(base, store, scenario, sandbox, deciding)


async def _roles(sandbox: Sandbox) -> None:
    admin = sandbox.local("admin")
    await create_roles(admin)
    for team in TEAMS:
        await admin.create("namespaces", "", {"metadata": {"name": team}})
    await bind(admin, "sluice-viewer", "viewer")
    for role, user in (("edit", "grace"), ("view", "lea"), ("sluice-team-lead", "lea")):
        await bind(admin, role, user, namespace="vision")


async def _nodes(sandbox: Sandbox) -> None:
    """Three nodes of the flavor a100 with 8 GPUs each, and none of the flavor spot."""
    admin = sandbox.local("admin")
    allocatable = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
    for number in range(3):
        node = await admin.create("nodes", "", {"metadata": {"name": f"gpu-{number}", "labels": {"pool": "a100"}}})
        await admin.update("nodes", "", {**node, "status": {"allocatable": allocatable}}, subresource="status")


async def _serve(extra_queues: int, pending: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder), extra_queues=extra_queues, pending=pending, port=18080) as running:
            print(f"{running.url}/ui/ with the tokens {ADMIN_TOKEN}, {', '.join(USERS)}", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    asyncio.run(_serve(*(numbers + [0, 120][len(numbers) :])))
