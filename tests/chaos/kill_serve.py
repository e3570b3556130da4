"""Repeated `kill -9` of `sluice serve` under load: at the end every Job ran once, and never above quota."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from admission.cli.demo.account import SceneAccount
from admission.cli.demo.children import alongside, guarded
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.load import prepare
from admission.cli.demo.observer import Observer
from admission.cli.demo.plan import job_document, queue_documents, three_teams
from admission.cli.demo.stage import apply, running_sandbox, running_sluice
from admission.cluster.client import Client
from admission.cluster.errors import AlreadyExists
from admission.model.errors import ClusterError
from tests.benchmarks.measure import Figure
from tests.sandbox_errors import logged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.cli.demo.plan import PlannedJob, ScenePlan
    from admission.cli.demo.stage import DemoCluster, DemoSluice

_USERS = 8
_STUCK = 90.0
"""Real seconds without any start or end of a Job after which the test gives up."""


@dataclass(frozen=True)
class Outcome:
    """Result of a run; `promises` are pairs of whether it was kept and its text, as in the demo's closing table."""

    promises: tuple[tuple[bool, str], ...]
    log: str


async def run() -> list[Figure]:
    """Kill Sluice ten times during the demo's load, at times drawn from the seed SLUICE_TEST_SEED (default: random)."""
    seed = int(os.environ.get("SLUICE_TEST_SEED") or random.randrange(2**32))
    outcome = await chaos(three_teams(jobs=1000, nodes=100, speed=60), kills=10, seed=seed)
    figures = [Figure("kills", f"10, SLUICE_TEST_SEED={seed}")]
    return figures + [Figure(sentence, "yes" if kept else "NO", "yes", kept) for kept, sentence in outcome.promises]


async def chaos(plan: ScenePlan, *, kills: int, seed: int) -> Outcome:
    """Run `plan` while Sluice is killed `kills` times, each after a random number of phase changes of Jobs."""
    chance = random.Random(seed)
    moves = 3 * len(plan.jobs)  # each Job is observed waiting, running and ended
    moments = sorted(chance.sample(range(moves - len(plan.jobs) // 4), kills))
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as folder:
        directory = Path(folder)
        async with (
            running_sandbox(directory, speed=plan.speed) as cluster,
            Client.from_kubeconfig(str(cluster.kubeconfig)) as client,
        ):
            await prepare(client, plan)
            async with running_sluice(directory, cluster.sluice_kubeconfig) as serving:
                await apply(directory, serving, queue_documents(plan))
            account = SceneAccount(plan)
            observer = Observer(client, account)
            async with alongside(observer.run()):
                await observer.synced()
                async with alongside(_submit(client, plan)):
                    for moment in moments:
                        await _serve_until(moment, directory, cluster, account)
                    async with running_sluice(directory, cluster.sluice_kubeconfig) as serving, guarded(serving.child):
                        await _finish(account, observer)
            log = (directory / "serve.log").read_text(errors="replace")
        errors = logged(directory / "sandbox.log")
    promises = close(account, Costs({}, 0), observer.elapsed()).promises
    return Outcome((*promises, (not errors, f"no controller of the sandbox failed {errors[:1] or ''}")), log)


async def _serve_until(moment: int, directory: Path, cluster: DemoCluster, account: SceneAccount) -> None:
    """Run Sluice, and kill it when `moment` phase changes of Jobs were observed since the start of the test."""
    async with running_sluice(directory, cluster.sluice_kubeconfig) as serving:
        async with guarded(serving.child):
            while account.moves < moment:  # noqa: ASYNC110  the observer updates it, not this loop
                await asyncio.sleep(0.005)
        await kill(serving)


async def kill(serving: DemoSluice) -> None:
    """Kill Sluice and wait for its end; a forked one (`warm_children`) ends after the process that is killed here."""
    serving.child.process.kill()
    await serving.child.process.wait()
    address = urlsplit(serving.server)
    while True:
        try:
            _, writer = await asyncio.open_connection(address.hostname, address.port)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.005)


async def _finish(account: SceneAccount, observer: Observer) -> None:
    moves = -1
    while account.moves != moves and not observer.finished.is_set():
        moves = account.moves
        try:
            await asyncio.wait_for(observer.finished.wait(), _STUCK)
        except TimeoutError:
            continue


async def _submit(client: Client, plan: ScenePlan) -> None:
    jobs = iter(plan.jobs)
    async with asyncio.TaskGroup() as users:
        for _ in range(_USERS):
            users.create_task(_user(client, plan, jobs))


async def _user(client: Client, plan: ScenePlan, jobs: Iterator[PlannedJob]) -> None:
    """Submit Jobs one after the other; each is retried while Sluice is down and the API server therefore rejects it."""
    for job in jobs:
        while True:
            try:
                await client.create(f"/apis/batch/v1/namespaces/{job.team}/jobs", job_document(plan, job))
            except AlreadyExists:
                break
            except ClusterError:
                await asyncio.sleep(0.2)
            else:
                break
