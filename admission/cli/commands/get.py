"""`sluice get`: objects as the server's tables or as documents, once or with their changes (`--watch`)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from admission.api.registry import PREFIX, WORKLOADS
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import (
    ObjectTarget,
    field_value,
    names_argument,
    namespace_for,
    namespace_option,
    resolve,
    resources_named,
    selector_options,
    what_argument,
)
from admission.cli.output.jsonpath import find
from admission.cli.output.object_printer import ObjectPrinter
from admission.cli.output.printing import output_option, print_line
from admission.cli.serve.signals import until_signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.registry import Resource
    from admission.client import Sluice
    from admission.client.watching import Watch


@dataclass(frozen=True, slots=True)
class _Selection:
    """The flags that select objects of a type if none is named."""

    namespace: str | None
    all_namespaces: bool
    labels: str
    """Label selector; empty: none."""
    fields: str
    """Field selector; empty: none."""
    finished: bool
    """Whether finished workloads are included."""
    mine: bool
    """Whether only the caller's workloads are included."""
    cluster: str
    """The cluster of the workloads; empty: any."""

    async def lists(self, resource: Resource, sluice: Sluice) -> list[dict[str, Any]]:
        """Return namespace and selectors of the list requests that together select the objects.

        It is one, except for the caller's own workloads in all namespaces, if the caller may not read all of them.
        """
        parameters = await self.list_parameters(resource, sluice)
        if not (self.mine and self.all_namespaces and resource == WORKLOADS):
            return [parameters]
        from admission.client.errors import Forbidden  # imported late, as `Table`: completion needs no client

        try:
            report = await sluice.request("GET", f"{PREFIX}/reports/namespaces")
        except Forbidden:  # the role of all users is not installed; the list itself says what is missing
            return [parameters]
        if report["all"]:
            return [parameters]
        return [{**parameters, "namespace": namespace} for namespace in report["namespaces"]]

    async def list_parameters(self, resource: Resource, sluice: Sluice) -> dict[str, Any]:
        """Return namespace and selectors of a list request."""
        where = None if self.all_namespaces else namespace_for(resource, self.namespace, sluice)
        fields = [self.fields] if self.fields else []
        if resource == WORKLOADS:
            if self.hides_finished:
                fields.append("status.state!=finished")
            if self.cluster:
                fields.append(f"status.clusterName={field_value(self.cluster)}")
            if self.mine:
                fields.append(f"spec.user={field_value(await sluice.user_name())}")
        return {"namespace": where, "label_selector": self.labels, "field_selector": ",".join(fields)}

    @property
    def hides_finished(self) -> bool:
        """Whether finished workloads are left out: not if the field selector has a status.state."""
        return not self.finished and "status.state" not in self.fields

    async def nothing_found(self, resource: Resource, namespace: str | None, sluice: Sluice) -> str:
        """Return the message for an empty list."""
        within = f" in namespace {namespace}" if namespace else ""
        of_user = f" of user {await sluice.user_name()}" if self.mine else ""
        hints = ["--all to include finished ones"] if resource == WORKLOADS and self.hides_finished else []
        if namespace:
            hints.append("-A for all namespaces")
        kind = f"unfinished {resource.plural}" if resource == WORKLOADS and self.hides_finished else resource.plural
        return f"no {kind}{of_user} found{within}" + (f"; use {', '.join(hints)}" if hints else "")


def _check_path(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Click callback: return the value of `--sort-by`. Raises BadParameter for an invalid JSONPath."""
    del ctx, parameter
    try:
        if value:
            find(value, {})
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


@click.command()
@what_argument
@names_argument
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="List objects in all namespaces.")
@click.option("--all", "finished", is_flag=True, help="Include finished workloads.")
@click.option("--mine", is_flag=True, help="List only workloads that you submitted.")
@click.option("--cluster", default="", metavar="NAME", help="List only workloads that run, or wait, in this cluster.")
@selector_options[0]
@selector_options[1]
@output_option()
@click.option("-w", "--watch", is_flag=True, help="After listing, watch for changes until interrupted (^C).")
@click.option(
    "--sort-by",
    default="",
    metavar="JSONPATH",
    callback=_check_path,
    help="Sort by a field, for example .spec.priority.",
)
@click.option("--no-headers", is_flag=True, help="Do not print the headers of the table.")
@connection_options
def get(
    *,
    what: str,
    names: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    finished: bool,
    mine: bool,
    cluster: str,
    selector: str,
    field_selector: str,
    output: str | None,
    watch: bool,
    sort_by: str,
    no_headers: bool,
    connection: ApiConnection,
) -> None:
    """Display queue objects and workloads.

    TYPE is clusterqueues (cq), cohorts (co), localqueues (lq), resourceflavors (rf),
    workloadpriorityclasses (wpc), admissionchecks (ac),
    provisioningrequestconfigs (prc), topologies (topo), budgets (bud),
    reservations (resv), drains, userlimits (ul), pricebooks (pb), budgetrequests (br),
    subscriptions (sub) or workloads (wl), or several of them, separated by commas. The
    NAME of a workload may be that of its Job.

    Finished workloads are included with --all, if they are named, or if
    --field-selector selects a status.state.

    \b
    Examples:
      sluice get cq,lq
      sluice get workloads -n team-a -o wide --watch
      sluice get workloads --mine --all
      sluice get workloads -A --sort-by .spec.priority
      sluice get cq/team-a -o yaml
      sluice get wl -A -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
    """
    kinds = resources_named(what) if "," in what else []
    selected = [ObjectTarget(kind, name) for kind in kinds for name in names] if kinds else resolve(what, names)
    printer = ObjectPrinter(output, headers=not no_headers, namespaces=all_namespaces, sort_by=sort_by)
    targets = selected if isinstance(selected, list) else []
    if targets and all_namespaces:
        raise click.UsageError("a NAME cannot be used with -A; specify its namespace with -n")
    if targets and (selector or field_selector):
        raise click.UsageError("-l and --field-selector cannot be used together with a NAME")
    if watch and (len(targets) > 1 or len(kinds) > 1):
        raise click.UsageError("--watch supports one object, or one type")
    if watch and sort_by:
        raise click.UsageError("--watch cannot be used with --sort-by")
    if not isinstance(selected, list):
        kinds = [selected]
    if (finished or mine or cluster) and (targets or WORKLOADS not in kinds):
        raise click.UsageError("--all, --mine and --cluster can only be used to list workloads")
    selection = _Selection(namespace, all_namespaces, selector, field_selector, finished, mine, cluster)
    show = partial(_show_named, targets) if targets else partial(_show_all, kinds)
    running = _connected(connection, partial(_watch, targets, kinds) if watch else show, selection, printer)
    asyncio.run(until_signal(running) if watch else running)


async def _connected(connection: ApiConnection, show: Any, selection: _Selection, printer: ObjectPrinter) -> None:
    async with connect(connection) as sluice:
        await show(sluice, selection, printer)


async def _show_all(kinds: Sequence[Resource], sluice: Sluice, selection: _Selection, printer: ObjectPrinter) -> None:
    """Print the selected objects of some types: a table for each type, or one list of documents."""
    if printer.documents is not None:
        found = [
            (kind, item)
            for kind in kinds
            for parameters in await selection.lists(kind, sluice)
            async for item in sluice.documents(kind.plural).list(**parameters)
        ]
        printer.show_documents(found, as_list=True)
        return
    from admission.client.representations import Table

    several = len(kinds) > 1
    shown = 0
    for kind in kinds:
        table, lists = Table(), await selection.lists(kind, sluice)
        for parameters in lists:
            table += await sluice.documents(kind.plural).table(**parameters, objects=bool(printer.sort_by))
        where = lists[0]["namespace"] if len(lists) == 1 else None
        nothing = "" if table.rows else await selection.nothing_found(kind, where, sluice)
        printer.show_rows(kind, table.columns, table.rows, after=shown, among_others=several, nothing=nothing)
        shown += len(table.rows)


async def _show_named(
    targets: Sequence[ObjectTarget], sluice: Sluice, selection: _Selection, printer: ObjectPrinter
) -> None:
    """Print named objects in the order of their names; a table for each run of objects of the same type."""
    if printer.documents is not None:
        found = [
            (kind, await sluice.documents(kind.plural).get(name, namespace_for(kind, selection.namespace, sluice)))
            for kind, name in targets
        ]
        printer.show_documents(found, as_list=len(found) > 1)
        return
    runs = [(kind, [name for _, name in run]) for kind, run in groupby(targets, key=itemgetter(0))]
    for number, (kind, names) in enumerate(runs):
        documents = sluice.documents(kind.plural)
        tables = [
            await documents.table(
                namespace=namespace_for(kind, selection.namespace, sluice), name=name, objects=bool(printer.sort_by)
            )
            for name in names
        ]
        rows = [row for table in tables for row in table.rows]
        printer.show_rows(kind, tables[0].columns, rows, after=number, among_others=len(runs) > 1)


async def _watch(
    targets: Sequence[ObjectTarget],
    kinds: Sequence[Resource],
    sluice: Sluice,
    selection: _Selection,
    printer: ObjectPrinter,
) -> None:
    """Print one object, or the selected ones of a type, and then each changed object."""
    kind = targets[0].resource if targets else kinds[0]
    documents, parameters = sluice.documents(kind.plural), await selection.list_parameters(kind, sluice)
    nothing = await selection.nothing_found(kind, parameters["namespace"], sluice)
    if targets:
        named = await documents.get(targets[0].name, parameters["namespace"])
        parameters["field_selector"] = f"metadata.name={named['metadata']['name']}"
    if printer.documents is None:
        await _watch_rows(kind, documents.watch(**parameters, rows=True), printer, nothing)
        return
    watching = documents.watch(**parameters)
    printer.show_documents([(kind, item) for item in await watching.start()], as_list=True)
    async with aclosing(watching.changes()) as changes:
        async for change in changes:
            if printer.documents == "yaml":
                click.echo("---")
            printer.show_documents([(kind, change.object)], as_list=False)


async def _watch_rows(kind: Resource, watching: Watch, printer: ObjectPrinter, nothing: str) -> None:
    """Print a table, and then a row for each changed object; `nothing` is the message if it is empty at first."""
    found = await watching.start()
    table = printer.show_rows(kind, watching.columns, found, nothing=nothing)
    async with aclosing(watching.changes()) as changes:
        async for change in changes:
            for line in table.lines(watching.columns, [change.object]):
                print_line(line)
