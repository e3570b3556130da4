"""Cost of a Job in a burst of 1000, from arrival to end: API writes, transactions, processor time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from admission.cli.demo.account import Phase, SceneAccount
from admission.cli.demo.children import alongside
from admission.cli.demo.load import prepare, submit
from admission.cli.demo.observer import Observer
from admission.cli.demo.plan import PlannedJob, ScenePlan, queue_documents, three_teams
from admission.cli.demo.stage import sluice_writes
from admission.model.workload import LOCAL
from tests.benchmarks.measure import Figure, at_most, running

_JOBS = 1000
SPEED = 60.0


def plan() -> ScenePlan:
    """Return a plan with the demo's teams and nodes, and Jobs of one CPU for 20 real seconds that all fit together."""
    teams = three_teams(jobs=_JOBS, speed=SPEED)
    pod = {"cpu": 1_000, "memory": 2**30}
    quota = dict.fromkeys(pod, 10**15)
    return replace(
        teams,
        teams=tuple(replace(team, nominal=quota, borrowing=None) for team in teams.teams),
        jobs=tuple(PlannedJob(job.name, job.team, 1, pod, 20 * SPEED) for job in teams.jobs),
    )


async def run() -> list[Figure]:
    """Measure one burst through admission, running and finishing."""
    load = plan()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        async with running(Path(folder), queue_documents(load), speed=SPEED) as sluice:
            await prepare(sluice.client, load)
            account = SceneAccount(load)
            observer = Observer(sluice.client, account)
            async with alongside(observer.run()):
                await observer.synced()
                writes, transactions, cpu = (
                    await sluice_writes(sluice.client),
                    await sluice.transactions(),
                    sluice.cpu_seconds(),
                )
                async with alongside(submit({LOCAL: sluice.client}, load, account, observer.elapsed)):
                    await until(lambda: len(account.jobs) == _JOBS and not account.count(Phase.WAITING))
                admitted_after = observer.elapsed()
                to_admit = await sluice.transactions() - transactions
                await until(account.finished)
                await asyncio.sleep(1.0)  # until the last events are processed
                writes = await sluice_writes(sluice.client) - writes
                transactions = await sluice.transactions() - transactions
                cpu = sluice.cpu_seconds() - cpu
    return [
        Figure("all admitted after", f"{admitted_after:.1f} s"),
        at_most("API writes per Job", writes.total() / _JOBS, 2, ""),
        at_most(f"write transactions for {_JOBS} Jobs, arrival to admission", to_admit, _JOBS / 20, "", digits=0),
        Figure("transactions per Job, to the end", f"{transactions / _JOBS:.3f}"),
        at_most("CPU of `sluice serve` per Job, webhook included", 1000 * cpu / _JOBS, 4, "ms"),
    ]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  the observer updates it
        await asyncio.sleep(0.05)
