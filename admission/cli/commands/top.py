"""`sluice top`: current quota usage by ClusterQueue and flavor, or by user."""

from __future__ import annotations

import asyncio
import difflib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.cli.output.tables import aligned
from admission.client.transport import PREFIX
from admission.model.names import listed
from admission.model.quantity import amount, format_amount
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.client import Sluice
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


_cluster = click.option("--cluster", metavar="NAME", default="", help="Only what is in this cluster.  [default: all]")


@top.command()
@_cluster
@connection_options
def queues(*, cluster: str, connection: ApiConnection) -> None:
    """Show quota and usage by ClusterQueue and flavor, highest usage first.

    With --cluster, of the flavors that are there, and only what is used there: others use
    the same quota.

    \b
    Examples:
      sluice top queues
      sluice top queues --cluster local
    """
    headers = ("NAME", "FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "USE")

    async def run() -> None:
        async with connect(connection) as sluice:
            found = [item async for item in sluice.documents("clusterqueues").list()]
            only = await cluster_item(sluice, cluster) if cluster else None
        if only is None:
            _print(headers, queue_rows(found), "no ClusterQueues found")
            return
        rows = [(*row[:5], row[6]) for row in queue_rows(in_cluster(queue, only) for queue in found)]
        _print((*headers[:5], headers[6]), rows, f"no ClusterQueue has a flavor in the cluster {cluster}")

    asyncio.run(run())


@top.command()
@connection_options
def clusters(*, connection: ApiConnection) -> None:
    """Show state, nodes, workloads and usage of each cluster.

    Of nodes the number of those that get new pods, and that of all.

    \b
    Example:
      sluice top clusters
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            report = await sluice.request("GET", f"{PREFIX}/reports/clusters")
        _print(
            ("NAME", "STATE", "NODES", "RUNNING", "PENDING", "FLAVOR", "RESOURCE", "USED"),
            cluster_rows(report["items"]),
            "",
        )

    asyncio.run(run())


@top.command()
@click.option("-n", "--namespace", metavar="NAME", help="Only workloads in this namespace.  [default: all]")
@_cluster
@connection_options
def users(*, namespace: str | None, cluster: str, connection: ApiConnection) -> None:
    """Show the quota that users hold, and the number of their workloads.

    With --cluster, of workloads that run there or, if they wait, were created there.

    \b
    Examples:
      sluice top users
      sluice top users -n team-a --cluster local
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            unfinished = sluice.documents("workloads").list(
                namespace=namespace, field_selector="status.state!=finished"
            )
            found = [item async for item in unfinished if not cluster or cluster_of(item) == cluster]
            if cluster and not found:
                await cluster_item(sluice, cluster)
        resources, rows = user_rows(found)
        _print(
            ("NAME", "ADMITTED", "PENDING", *(name.upper() for name in resources)),
            rows,
            "no unfinished workloads found",
        )

    asyncio.run(run())


async def cluster_item(sluice: Sluice, name: str) -> Document:
    """Return what `reports/clusters` has of a cluster. Raises CommandError if there is none of this name."""
    items: dict[str, Document] = {
        item["name"]: item for item in (await sluice.request("GET", f"{PREFIX}/reports/clusters"))["items"]
    }
    if name not in items:
        near = difflib.get_close_matches(name, items, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; there are {listed([*items])}"
        raise CommandError(f'the cluster "{name}" does not exist{hint}')
    return items[name]


def cluster_of(workload: Document) -> str:
    """Return the cluster in which a workload runs or, if it waits, in which its object is."""
    return workload["status"].get("clusterName") or workload["spec"].get("cluster") or LOCAL


def in_cluster(queue: Document, cluster: Document) -> Document:
    """Return a ClusterQueue with the flavors that are in a cluster, and their usage there, as in `reports/clusters`."""
    groups = [
        {**group, "flavors": [each for each in group["flavors"] if each["name"] in cluster["flavors"]]}
        for group in queue["spec"].get("resourceGroups", ())
    ]
    own = next((each for each in cluster["clusterQueues"] if each["name"] == queue["metadata"]["name"]), {"usage": ()})
    usage = [
        {"name": each["flavor"], "resources": [{"name": each["resource"], "total": each["used"]}]}
        for each in own["usage"]
    ]
    return {**queue, "spec": {**queue["spec"], "resourceGroups": groups}, "status": {"flavorsUsage": usage}}


def cluster_rows(items: Iterable[Document]) -> list[tuple[str, ...]]:
    """Return a row for each flavor and resource that is used in a cluster; the first one of a cluster has its name."""
    rows: list[tuple[str, ...]] = []
    for item in items:
        capacity = item.get("capacity") or {}
        nodes = f"{capacity['schedulableNodes']}/{capacity['nodes']}" if "nodes" in capacity else "-"
        head = item["name"], item["state"], nodes, str(item["reservingWorkloads"]), str(item["pendingWorkloads"])
        for usage in item["usage"] or ({"flavor": "", "resource": "", "used": ""},):
            rows.append((*head, usage["flavor"], usage["resource"], usage["used"]))
            head = "", "", "", "", ""
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
