"""The demo's own hands at the API server: namespaces and nodes before the run, Jobs during it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from admission.cli.demo.manifests import PATHS, document
from admission.cli.demo.plan import node_document
from admission.cli.demo.wholes import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.cli.demo.account import Account
    from admission.cli.demo.plan import Plan, PlannedJob
    from admission.cluster.client import Client

_AT_ONCE: Final = 16
"""Requests in flight, as of so many users."""


async def prepare(client: Client, plan: Plan) -> None:
    """Create the teams' namespaces and the nodes."""
    for team in plan.teams:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.name}}
        await client.create("/api/v1/namespaces", namespace)
    for number in range(plan.nodes.count):
        await client.create("/api/v1/nodes", node_document(plan, number))


def operated(plan: Plan) -> tuple[str, ...]:
    """The custom resources of a plan."""
    return tuple(kind for kind in plan.kinds if "/" in kind)


async def submit(client: Client, plan: Plan, account: Account, elapsed: Callable[[], float]) -> None:
    """Create each Job of the plan at its time of arrival, or as soon after it as the API server takes it.

    What would run for ever is deleted by its user when it has run for its time. `elapsed` gives real seconds since the
    start.
    """
    jobs = iter(plan.jobs)
    async with asyncio.TaskGroup() as users:
        for _ in range(min(_AT_ONCE, len(plan.jobs))):
            users.create_task(_user(client, plan, account, jobs, elapsed))
        for job in plan.jobs:
            if job.kind in ENDLESS:
                users.create_task(_ended(client, plan, account, job))


async def _user(
    client: Client, plan: Plan, account: Account, jobs: Iterator[PlannedJob], elapsed: Callable[[], float]
) -> None:
    for job in jobs:
        await asyncio.sleep(max(0.0, job.arrival - elapsed()))
        await client.create(PATHS[job.kind].format(job.team), document(plan, job))
        account.submitted(f"{job.team}/{job.name}")


async def _ended(client: Client, plan: Plan, account: Account, job: PlannedJob) -> None:
    await account.wholes.all_there(job)
    await asyncio.sleep(job.run_seconds / plan.speed)
    account.wholes.deleted(f"{job.team}/{job.name}")
    await client.delete(f"{PATHS[job.kind].format(job.team)}/{job.name}")
