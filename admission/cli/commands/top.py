"""`sluice top`: current quota usage by ClusterQueue and flavor, or by user."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.output.printing import print_line
from admission.cli.output.tables import aligned
from admission.client.transport import PREFIX
from admission.model.quantity import amount, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.client.transport import Document


@click.group(cls=CommandGroup)
def top() -> None:
    """Show quota usage by queue, by user or by cluster.

    \b
    Examples:
      sluice top queues
      sluice top users -n team-a
      sluice top clusters
    """


@top.command()
@connection_options
def queues(*, connection: ApiConnection) -> None:
    """Show quota and usage by ClusterQueue and flavor, highest usage first.

    \b
    Example:
      sluice top queues
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            rows = queue_rows([item async for item in sluice.documents("clusterqueues").list()])
        _print(("NAME", "FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "USE"), rows, "no ClusterQueues found")

    asyncio.run(run())


@top.command()
@connection_options
def clusters(*, connection: ApiConnection) -> None:
    """Show state, workloads and usage of each cluster.

    \b
    Example:
      sluice top clusters
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            report = await sluice.request("GET", f"{PREFIX}/reports/clusters")
        _print(("NAME", "STATE", "RUNNING", "PENDING", "FLAVOR", "RESOURCE", "USED"), cluster_rows(report["items"]), "")

    asyncio.run(run())


@top.command()
@click.option("-n", "--namespace", metavar="NAME", help="Only workloads in this namespace.  [default: all]")
@connection_options
def users(*, namespace: str | None, connection: ApiConnection) -> None:
    """Show the quota that users hold, and the number of their workloads.

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
        _print(
            ("NAME", "ADMITTED", "PENDING", *(name.upper() for name in resources)),
            rows,
            "no unfinished workloads found",
        )

    asyncio.run(run())


def cluster_rows(items: Iterable[Document]) -> list[tuple[str, ...]]:
    """Return a row for each flavor and resource that is used in a cluster; the first one of a cluster has its name."""
    rows: list[tuple[str, ...]] = []
    for item in items:
        head = item["name"], item["state"], str(item["reservingWorkloads"]), str(item["pendingWorkloads"])
        for usage in item["usage"] or ({"flavor": "", "resource": "", "used": ""},):
            rows.append((*head, usage["flavor"], usage["resource"], usage["used"]))
            head = "", "", "", ""
    return rows


class _Usage(NamedTuple):
    """Usage of one resource in one flavor of a ClusterQueue, in amounts of `admission.model.quantity`."""

    queue: str
    flavor: str
    resource: str
    used: int
    nominal: int

    @property
    def share(self) -> float:
        """Usage divided by nominal quota; without nominal quota 1 if anything is used."""
        return self.used / self.nominal if self.nominal else float(self.used > 0)


def queue_rows(cluster_queues: Iterable[Document]) -> list[tuple[str, ...]]:
    """Return a row for each flavor and resource of each ClusterQueue, highest usage first."""
    usages = sorted(
        (usage for queue in cluster_queues for usage in _usages(queue)), key=lambda usage: (-usage.share, *usage[:3])
    )
    return [
        (
            usage.queue,
            usage.flavor,
            usage.resource,
            format_amount(usage.resource, usage.used),
            format_amount(usage.resource, usage.nominal),
            format_amount(usage.resource, max(0, usage.used - usage.nominal)),
            f"{usage.share:.0%}" if usage.nominal else "<none>",
        )
        for usage in usages
    ]


def _usages(queue: Document) -> Iterator[_Usage]:
    """Yield the usage of each quota of a ClusterQueue, and of flavors that were removed from it while in use."""
    used = {
        (flavor["name"], resource["name"]): amount(resource["name"], resource["total"])
        for flavor in queue.get("status", {}).get("flavorsUsage", ())
        for resource in flavor["resources"]
    }
    for group in queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                resource = quota["name"]
                now = used.pop((flavor["name"], resource), 0)
                nominal = amount(resource, quota.get("currentQuota") or quota["nominalQuota"])
                yield _Usage(queue["metadata"]["name"], flavor["name"], resource, now, nominal)
    for (removed, resource), now in used.items():
        yield _Usage(queue["metadata"]["name"], removed, resource, now, 0)


def user_rows(workloads: Iterable[Document]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the resources that are held, and a row for each user, in the order of what they hold, highest first."""
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
    users_by_usage = sorted(
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
        for user in users_by_usage
    ]


def _print(headers: tuple[str, ...], rows: list[tuple[str, ...]], nothing: str) -> None:
    """Print a table; without rows print the message `nothing` to standard error."""
    if not rows:
        click.echo(nothing, err=True)
        return
    for line in aligned([headers, *rows]):
        print_line(line)
