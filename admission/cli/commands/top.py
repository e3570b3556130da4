"""`sluice top`: how full the queues are, and who holds how much."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.groups import Group
from admission.cli.output.printing import print_line
from admission.cli.output.tables import aligned
from admission.model.quantity import amount, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.client.transport import Document


@click.group(cls=Group)
def top() -> None:
    """Show how full queues are, or who holds how much.

    \b
    Examples:
      sluice top queues
      sluice top users -n team-a
    """


@top.command()
@connection_options
def queues(*, connection: Connection) -> None:
    """Show quota and its use by ClusterQueue and flavor, the fullest first.

    \b
    Example:
      sluice top queues
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            rows = queue_rows([item async for item in sluice.documents("clusterqueues").list()])
        _print(("NAME", "FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "USE"), rows, "there are no ClusterQueues")

    asyncio.run(run())


@top.command()
@click.option("-n", "--namespace", help="Only workloads of this namespace.")
@connection_options
def users(*, namespace: str | None, connection: Connection) -> None:
    """Show what is held by whom, and how many of their workloads wait.

    \b
    Example:
      sluice top users
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            unfinished = sluice.documents("workloads").list(
                namespace=namespace, field_selector="status.state!=finished"
            )
            found = [item async for item in unfinished]
        resources, rows = user_rows(found)
        _print(("NAME", "ADMITTED", "PENDING", *(name.upper() for name in resources)), rows, "nobody has workloads")

    asyncio.run(run())


class _Use(NamedTuple):
    queue: str
    flavor: str
    resource: str
    used: int
    nominal: int

    @property
    def share(self) -> float:
        return self.used / self.nominal if self.nominal else float(self.used > 0)


def queue_rows(cluster_queues: Iterable[Document]) -> list[tuple[str, ...]]:
    """A row for each flavor and resource of each ClusterQueue."""
    uses = sorted((use for queue in cluster_queues for use in _uses(queue)), key=lambda use: (-use.share, *use[:3]))
    return [
        (
            use.queue,
            use.flavor,
            use.resource,
            format_amount(use.resource, use.used),
            format_amount(use.resource, use.nominal),
            format_amount(use.resource, max(0, use.used - use.nominal)),
            f"{use.share:.0%}",
        )
        for use in uses
    ]


def _uses(queue: Document) -> Iterator[_Use]:
    used = {
        (flavor["name"], resource["name"]): amount(resource["name"], resource["total"])
        for flavor in queue.get("status", {}).get("flavorsUsage", ())
        for resource in flavor["resources"]
    }
    for group in queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                resource = quota["name"]
                now = used.get((flavor["name"], resource), 0)
                nominal = amount(resource, quota["nominalQuota"])
                yield _Use(queue["metadata"]["name"], flavor["name"], resource, now, nominal)


def user_rows(workloads: Iterable[Document]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The resources that are held, and a row for each user, who holds most first."""
    held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    admitted: dict[str, int] = defaultdict(int)
    pending: dict[str, int] = defaultdict(int)
    for item in workloads:
        user = item["spec"].get("user") or "<unknown>"
        admission: dict[str, Any] = item["status"].get("admission") or {}
        (admitted if admission else pending)[user] += 1
        for pod_set in admission.get("podSetAssignments", ()):
            for resource, quantity in pod_set["resourceUsage"].items():
                held[user][resource] += amount(resource, quantity)
    resources = sorted({resource for amounts in held.values() for resource in amounts})
    everybody = sorted(
        admitted.keys() | pending.keys(),
        key=lambda user: (*(-held[user][resource] for resource in reversed(resources)), user),
    )
    return resources, [
        (
            user,
            str(admitted[user]),
            str(pending[user]),
            *(format_amount(resource, held[user][resource]) for resource in resources),
        )
        for user in everybody
    ]


def _print(headers: tuple[str, ...], rows: list[tuple[str, ...]], nothing: str) -> None:
    if not rows:
        click.echo(nothing, err=True)
        return
    for line in aligned([headers, *rows]):
        print_line(line)
