"""`sluice describe`: details of objects for reading: fields, quota, conditions, pending workloads, history."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import names_argument, namespace_for, namespace_option, resolve, what_argument
from admission.cli.commands.history import workload_history_lines
from admission.cli.commands.top import cluster_item, queue_rows
from admission.cli.output.printing import print_line
from admission.cli.output.tables import aligned
from admission.client.errors import Refused, Unreachable
from admission.model.names import LAST_APPLIED
from admission.model.quantity import amount, readable_amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client import Sluice
    from admission.client.transport import Document

_MAX_PENDING = 5
"""Pending workloads of a queue that are listed."""
_MAX_PODS = 20
"""Pods of a workload that are listed."""
_ALL = {"namespaceSelector": "all namespaces", "scope": "all workloads"}
"""What fields select that are empty."""
_SHOWN_ELSEWHERE = ("annotations", "managedFields", "name", "namespace")
"""Metadata that the section Metadata leaves out: it is shown elsewhere, or (managedFields) not at all."""
_IN_TABLES = ("resourceGroups", "flavorsUsage", "flavorsReservation", "conditions", "podSets", "capacity")
"""Fields of spec and status that are shown as tables."""


@click.command()
@what_argument
@names_argument
@namespace_option
@connection_options
def describe(*, what: str, names: tuple[str, ...], namespace: str | None, connection: ApiConnection) -> None:
    """Show details of queue objects or workloads.

    These are the fields, conditions, quota usage, the first pending workloads of a
    queue, what a cluster has and runs, why a workload is pending and its history, and its
    pods in another cluster.

    \b
    Examples:
      sluice describe cq/team-a
      sluice describe workload train -n team-a
    """
    selected = resolve(what, names)

    async def run() -> None:
        async with connect(connection) as sluice:
            resource = selected[0].resource if isinstance(selected, list) else selected
            if isinstance(selected, list):
                targets = [(target.resource, target.name) for target in selected]
            else:
                found = sluice.documents(resource.plural).list(namespace=namespace_for(resource, namespace, sluice))
                targets = [(resource, item["metadata"]["name"]) async for item in found]
            for number, (kind, name) in enumerate(targets):
                if number:
                    click.echo("\n")
                where = namespace_for(kind, namespace, sluice)
                document = await sluice.documents(kind.plural).get(name, where)
                for line in [*described(document), *await _related(sluice, document)]:
                    print_line(line)

    asyncio.run(run())


def described(document: Document) -> Iterator[str]:
    """Yield the lines about the object itself: metadata, spec, status, and tables of quota, pod sets and conditions."""
    metadata = document["metadata"]
    yield f"Name:       {metadata['name']}"
    if metadata.get("namespace"):
        yield f"Namespace:  {metadata['namespace']}"
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != LAST_APPLIED}
    shown = {key: value for key, value in metadata.items() if key not in _SHOWN_ELSEWHERE}
    yield from _section("Metadata", shown | ({"annotations": annotations} if annotations else {}))
    for part in ("spec", "status"):
        content = document.get(part) or {}
        yield from _section(part.capitalize(), {key: value for key, value in content.items() if key not in _IN_TABLES})
    rest: Document = {key: document[key] for key in ("value", "description") if key in document}
    yield from _section("Priority", rest)
    yield from _tables(document)


def _tables(document: Document) -> Iterator[str]:
    if document["kind"] == "ClusterQueue":
        rows = [row[1:] for row in queue_rows([document])]
        yield from _table("Quota", ("FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "USE"), rows)
    pod_sets = [
        (
            item["name"],
            str(item["count"]),
            ", ".join(
                [
                    *(f"{key} {value}" for key, value in item.get("requests", {}).items()),
                    *(f"{key} {value} for all pods" for key, value in item.get("sharedRequests", {}).items()),
                ]
            ),
        )
        for item in document.get("spec", {}).get("podSets", ())
    ]
    yield from _table("Pod sets", ("NAME", "COUNT", "EACH-REQUESTS"), pod_sets)
    conditions = [
        (item["type"], item["status"], item.get("reason") or "<none>", item.get("message", ""))
        for item in document.get("status", {}).get("conditions", ())
    ]
    yield from _table("Conditions", ("TYPE", "STATUS", "REASON", "MESSAGE"), conditions)


async def _related(sluice: Sluice, document: Document) -> list[str]:
    """Return the lines from other resources.

    They are the pending workloads of a queue, what runs in a cluster, the explanation and the history of a workload,
    and its pods if they are in another cluster.
    """
    name, namespace = document["metadata"]["name"], document["metadata"].get("namespace")
    match document["kind"]:
        case "ClusterQueue":
            return await _pending(sluice, cluster_queue=name)
        case "LocalQueue":
            return await _pending(sluice, local_queue=name, namespace=namespace)
        case "Cluster":
            item = await cluster_item(sluice, name)
            usage = [
                (queue["name"], each["flavor"], each["resource"], each["used"])
                for queue in item["clusterQueues"]
                for each in queue["usage"]
            ]
            return [
                *_capacity(item.get("capacity") or {}),
                f"Workloads:  {item['reservingWorkloads']} with quota, {item['pendingWorkloads']} waiting",
                f"Flavors:    {', '.join(item['flavors']) or '<none>'}",
                *_table("Usage", ("CLUSTERQUEUE", "FLAVOR", "RESOURCE", "USED"), usage),
            ]
        case "Workload":
            explanation = await sluice.workloads.explain(name, namespace=namespace)
            history = await sluice.workloads.history(name, namespace=namespace)
            why = [f"  {line}" for text in explanation.sentences for line in text.splitlines()]
            return [
                *await _pods_elsewhere(sluice, document),
                "Explanation:",
                *why,
                "History:",
                *(f"  {line}".rstrip() for line in workload_history_lines(history)),
            ]
        case _:
            return []


def _capacity(capacity: Document) -> Iterator[str]:
    """Yield the lines about what the nodes of a cluster have."""
    if "nodes" in capacity:
        ready, schedulable = capacity["readyNodes"], capacity["schedulableNodes"]
        seen = f"seen at {capacity['seenAt']}"
        yield f"Nodes:      {capacity['nodes']}, {ready} ready, {schedulable} get new pods ({seen})"
        if "message" in capacity:
            yield f"            {capacity['message']}"
    elif capacity:
        yield f"Nodes:      unknown: {capacity['message']}"
    rows = [
        (each["name"], *(_readable(each["name"], each[field]) for field in ("used", "schedulable", "allocatable")))
        for each in capacity.get("resources", ())
    ]
    yield from _table("Capacity", ("RESOURCE", "HELD", "SCHEDULABLE", "ALLOCATABLE"), rows)


def _readable(resource: str, quantity: str) -> str:
    return readable_amount(resource, amount(resource, quantity))


async def _pods_elsewhere(sluice: Sluice, document: Document) -> list[str]:
    """Return a table of the first pods of a workload that runs in another cluster, where its user may see none."""
    if not (cluster := document["status"].get("clusterName")):
        return []
    metadata = document["metadata"]
    title = f"Pods in the cluster {cluster}"
    try:
        pods = await sluice.workloads.pods(metadata["name"], namespace=metadata["namespace"])
    except (Refused, Unreachable) as error:  # the rest is known
        return [f"{title}: {error}"]
    rows = [(pod["name"], pod["phase"], pod["node"] or "<none>") for pod in pods if pod["cluster"] == cluster]
    lines = [*_table(title, ("NAME", "PHASE", "NODE"), rows[:_MAX_PODS])] or [f"{title}: <none>"]
    return lines + ([f"  and {len(rows) - _MAX_PODS} more"] if len(rows) > _MAX_PODS else [])


async def _pending(sluice: Sluice, **queue: Any) -> list[str]:
    """Return a table of the first pending workloads of a queue, given as parameters of `Sluice.pending`."""
    rows: list[tuple[str, ...]] = []
    async with aclosing(sluice.pending(**queue)) as pending:
        async for one in pending:
            name = f"{one.metadata.namespace}/{one.metadata.name}"
            rows.append((str(len(rows) + 1), name, str(one.priority), one.reason or "<none>"))
            if len(rows) == _MAX_PENDING:
                break
    return list(_table("First in queue", ("POSITION", "WORKLOAD", "PRIORITY", "WAITS-FOR"), rows))


def _section(title: str, content: Document) -> Iterator[str]:
    lines = list(_fields(content, "  "))
    if lines:
        yield f"{title}:"
        yield from lines


def _fields(value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a value like YAML, without empty fields, except those that select all."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                yield f"{indent}{key}:"
                yield from _fields(item, f"{indent}  ")
            elif item == {} and key in _ALL:
                yield f"{indent}{key}: {_ALL[key]}"
            elif item not in ({}, [], ""):
                yield f"{indent}{key}: {item}"
    elif isinstance(value, list):
        for item in value:
            lines = list(_fields(item, f"{indent}  "))
            yield f"{indent}- {lines[0].lstrip()}" if lines else f"{indent}-"
            yield from lines[1:]
    else:
        yield f"{indent}{value}"


def _table(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield f"{title}:"
        for line in aligned([headers, *rows]):
            yield f"  {line}".rstrip()
