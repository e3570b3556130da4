"""A storm over kinds: RayClusters, Volcano Jobs, StatefulSets and Jobs, mixed, while Sluice is killed again and again.

    python -m tests.chaos.kinds_storm --objects 200 --kills 12

Nothing is evicted here: whatever is, is made anew by its controller, and no more what was submitted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from admission.cli.demo.account import Account
from admission.cli.demo.children import alongside, cancel_on_signals
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.kinds import of_kinds
from admission.cli.demo.load import operated, prepare
from admission.cli.demo.manifests import ENDLESS, PATHS, document
from admission.cli.demo.observer import Observer
from admission.cli.demo.plan import queue_documents
from admission.cli.demo.stage import running_sandbox
from admission.cluster.client import Client
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.chaos.fleet import Stuck, running_fleet
from tests.chaos.storm import created, settled, until

if TYPE_CHECKING:
    from admission.cli.demo.plan import Plan, PlannedJob
    from tests.chaos.ledger import Promise

_USERS = 8


def plan_of(objects: int, *, speed: float) -> Plan:
    """As the third scene of the demo, with so many objects."""
    scene = of_kinds(speed=speed)
    jobs = [scene.jobs[number % len(scene.jobs)] for number in range(objects)]
    named = tuple(replace(job, name=f"{job.team}-{number:04}") for number, job in enumerate(jobs))
    return replace(scene, jobs=named)


async def storm(plan: Plan, *, seed: int, kills: int, folder: Path) -> list[Promise]:
    """Run it on SQLite with one replica; (kept?, sentence)."""
    database_url = f"sqlite:///{folder / 'sluice.db'}"
    await migrate(database_url)
    async with Store.open(database_url) as store:
        for queue in queue_documents(plan):
            await store.queues.create(parse_manifest(queue), author=Author("chaos"))
    moments = sorted(random.Random(seed).sample(range(1, 2 * len(plan.jobs)), kills))
    account, stuck = Account(plan), ""
    async with (
        running_sandbox(folder, speed=plan.speed, kinds=operated(plan)) as cluster,
        Client.from_kubeconfig(str(cluster.kubeconfig)) as client,
    ):
        await prepare(client, plan)
        observer = Observer(client, account)
        async with (
            alongside(observer.run()),
            running_fleet(folder, cluster.sluice_kubeconfig, database_url, count=1, settings=plan.settings) as fleet,
        ):
            await observer.synced()
            await fleet.leader()
            try:
                async with alongside(_submit(client, plan, account)):
                    for moment in moments:
                        await until(account, lambda moment=moment: account.moves >= moment)
                        await (await fleet.leader()).kill()
                    await until(account, account.finished)
                await settled(database_url)
            except Stuck as error:
                stuck = f"{error}\n{await fleet.told()}"
    return [
        (not stuck, f"the storm came to its end {stuck}"),
        *close(account, Costs({}, 0), observer.elapsed()).promises,
        (not fleet.deaths, f"no Sluice ended by itself {fleet.deaths[:2] or ''}"),
    ]


async def _submit(client: Client, plan: Plan, account: Account) -> None:
    jobs = iter(plan.jobs)

    async def user() -> None:
        for job in jobs:
            await created(client, PATHS[job.kind].format(job.team), document(plan, job))
            account.submitted(f"{job.team}/{job.name}")

    async def ended(job: PlannedJob) -> None:
        await account.wholes.all_there(job)
        await asyncio.sleep(job.run_seconds / plan.speed)
        await client.delete(f"{PATHS[job.kind].format(job.team)}/{job.name}")

    async with asyncio.TaskGroup() as users:
        for _ in range(_USERS):
            users.create_task(user())
        for job in plan.jobs:
            if job.kind in ENDLESS:
                users.create_task(ended(job))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kinds_storm")
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)

    async def run() -> list[Promise]:
        cancel_on_signals()
        with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as folder:
            plan = plan_of(arguments.objects, speed=60)
            return await storm(plan, seed=arguments.seed, kills=arguments.kills, folder=Path(folder))

    promises = asyncio.run(run())
    for kept, sentence in promises:
        print(f"{'kept  ' if kept else 'BROKEN'}  {sentence}")
    return 0 if all(kept for kept, _ in promises) else 1


if __name__ == "__main__":
    sys.exit(main())
