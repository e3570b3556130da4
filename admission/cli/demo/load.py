"""Requests of the demo's users to the API server: namespaces and nodes before the run, Jobs during it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from admission.cli.demo.gangs import UNTIL_DELETED
from admission.cli.demo.manifests import PATHS, document
from admission.cli.demo.plan import node_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.cli.demo.account import Account
    from admission.cli.demo.plan import Plan, PlannedJob
    from admission.cluster.client import Client

_AT_ONCE: Final = 16
"""Maximum number of concurrent create requests."""


async def prepare(client: Client, plan: Plan) -> None:
    """Create the teams' namespaces and the nodes."""
    for team in plan.teams:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.name}}
        await client.create("/api/v1/namespaces", namespace)
    for number in range(plan.nodes.count):
        await client.create("/api/v1/nodes", node_document(plan, number))


def operated(plan: Plan) -> tuple[str, ...]:
    """Return the custom resources of a plan, for which the sandbox has simulated operators."""
    return tuple(kind for kind in plan.kinds if "/" in kind)


async def submit(client: Client, plan: Plan, account: Account, elapsed: Callable[[], float]) -> None:
    """Create each Job of the plan at its time of arrival, or as soon after it as the API server accepts it.

    Objects that run until they are deleted are deleted at the end of their run time. `elapsed` returns the real seconds
    since the start.
    """
    jobs = iter(plan.jobs)
    async with asyncio.TaskGroup() as users:
        for _ in range(min(_AT_ONCE, len(plan.jobs))):
            users.create_task(_user(client, plan, account, jobs, elapsed))
        for job in plan.jobs:
            if job.kind in UNTIL_DELETED:
                users.create_task(_delete_at_end(client, plan, account, job))


async def _user(
    client: Client, plan: Plan, account: Account, jobs: Iterator[PlannedJob], elapsed: Callable[[], float]
) -> None:
    for job in jobs:
        await asyncio.sleep(max(0.0, job.arrival - elapsed()))
        await client.create(PATHS[job.kind].format(job.team), document(plan, job))
        account.submitted(f"{job.team}/{job.name}")


async def _delete_at_end(client: Client, plan: Plan, account: Account, job: PlannedJob) -> None:
    await account.gangs.wait_until_started(job)
    await asyncio.sleep(job.run_seconds / plan.speed)
    account.gangs.deleted(f"{job.team}/{job.name}")
    await client.delete(f"{PATHS[job.kind].format(job.team)}/{job.name}")
