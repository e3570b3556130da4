"""`sluice get`: what is there, as the server's tables or as documents, and what becomes of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from admission.api.registry import WORKLOADS
from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.objects import (
    Target,
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
class _Scope:
    """Which objects of a type are meant if none is named."""

    namespace: str | None
    everywhere: bool
    labels: str
    fields: str
    finished: bool
    """Whether workloads that have finished are meant, too."""
    mine: bool
    """Whether only workloads are meant that the caller has submitted."""

    async def of(self, resource: Resource, sluice: Sluice) -> dict[str, Any]:
        """For a request."""
        where = None if self.everywhere else namespace_for(resource, self.namespace, sluice)
        fields = [self.fields] if self.fields else []
        if resource == WORKLOADS:
            if self.hides_finished:
                fields.append("status.state!=finished")
            if self.mine:
                fields.append(f"spec.user={field_value(await sluice.user_name())}")
        return {"namespace": where, "label_selector": self.labels, "field_selector": ",".join(fields)}

    @property
    def hides_finished(self) -> bool:
        """Not if the state is asked for."""
        return not self.finished and "status.state" not in self.fields

    async def nothing(self, resource: Resource, namespace: str | None, sluice: Sluice) -> str:
        """What to say if there is none."""
        within = f" in namespace {namespace}" if namespace else ""
        if resource != WORKLOADS:
            return f"there are no {resource.plural}{within}"
        of_whom = f" that {await sluice.user_name()} has submitted" if self.mine else ""
        if not self.hides_finished:
            return f"there are no workloads{of_whom}{within}"
        return f"there are no unfinished workloads{of_whom}{within}; --all shows finished ones, too"


def _check_path(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
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
@click.option("-A", "--all-namespaces", is_flag=True, help="Show those of all namespaces.")
@click.option("--all", "finished", is_flag=True, help="Show workloads that have finished, too.")
@click.option("--mine", is_flag=True, help="Show only workloads that you have submitted.")
@selector_options[0]
@selector_options[1]
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Go on and show what changes, until it is ended (^C).")
@click.option("--sort-by", default="", metavar="JSONPATH", callback=_check_path, help="Sort, as by .spec.priority.")
@click.option("--no-headers", is_flag=True, help="Leave out the first line of the table.")
@connection_options
def get(
    *,
    what: str,
    names: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    finished: bool,
    mine: bool,
    selector: str,
    field_selector: str,
    output: str | None,
    watch: bool,
    sort_by: str,
    no_headers: bool,
    connection: Connection,
) -> None:
    """Show queue objects and workloads.

    TYPE is clusterqueues (cq), cohorts (co), localqueues (lq), resourceflavors (rf),
    workloadpriorityclasses (wpc), admissionchecks (ac), subscriptions (sub) or workloads
    (wl), or several of them with commas. A workload can be named by its Job, too.

    Workloads that have finished are shown with --all, if they are named, or if
    --field-selector asks for a status.state.

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
    wanted = [Target(kind, name) for kind in kinds for name in names] if kinds else resolve(what, names)
    printer = ObjectPrinter(output, headers=not no_headers, namespaces=all_namespaces, sort_by=sort_by)
    targets = wanted if isinstance(wanted, list) else []
    if targets and all_namespaces:
        raise click.UsageError("-A shows all objects; a NAME needs the namespace that it is in (-n)")
    if targets and (selector or field_selector):
        raise click.UsageError("-l and --field-selector choose among all objects; leave the NAME out")
    if watch and (len(targets) > 1 or len(kinds) > 1):
        raise click.UsageError("--watch shows one object, or all of a type")
    if watch and sort_by:
        raise click.UsageError("--watch shows changes as they come; leave --sort-by out")
    if not isinstance(wanted, list):
        kinds = [wanted]
    if (finished or mine) and (targets or WORKLOADS not in kinds):
        raise click.UsageError("--all and --mine choose among workloads; write them behind: get workloads")
    where = _Scope(namespace, all_namespaces, selector, field_selector, finished, mine)
    work = partial(_watch, targets, kinds) if watch else partial(_named, targets) if targets else partial(_all, kinds)
    running = _connected(connection, work, where, printer)
    asyncio.run(until_signal(running) if watch else running)


async def _connected(connection: Connection, work: Any, where: _Scope, printer: ObjectPrinter) -> None:
    async with connect(connection) as sluice:
        await work(sluice, where, printer)


async def _all(kinds: Sequence[Resource], sluice: Sluice, where: _Scope, printer: ObjectPrinter) -> None:
    """All objects of some types: a table for each, or one list of documents."""
    if printer.documents is not None:
        found = [
            (kind, item)
            for kind in kinds
            async for item in sluice.documents(kind.plural).list(**await where.of(kind, sluice))
        ]
        printer.show_documents(found, as_list=True)
        return
    several = len(kinds) > 1
    shown = 0
    for kind in kinds:
        scoped = await where.of(kind, sluice)
        table = await sluice.documents(kind.plural).table(**scoped, objects=bool(printer.sort_by))
        nothing = "" if table.rows else await where.nothing(kind, scoped["namespace"], sluice)
        printer.show_rows(kind, table.columns, table.rows, after=shown, among_others=several, nothing=nothing)
        shown += len(table.rows)


async def _named(targets: Sequence[Target], sluice: Sluice, where: _Scope, printer: ObjectPrinter) -> None:
    """Objects in the order in which they were named; a table for each run of one type."""
    if printer.documents is not None:
        found = [
            (kind, await sluice.documents(kind.plural).get(name, namespace_for(kind, where.namespace, sluice)))
            for kind, name in targets
        ]
        printer.show_documents(found, as_list=len(found) > 1)
        return
    runs = [(kind, [name for _, name in run]) for kind, run in groupby(targets, key=itemgetter(0))]
    for number, (kind, names) in enumerate(runs):
        documents = sluice.documents(kind.plural)
        tables = [
            await documents.table(
                namespace=namespace_for(kind, where.namespace, sluice), name=name, objects=bool(printer.sort_by)
            )
            for name in names
        ]
        rows = [row for table in tables for row in table.rows]
        printer.show_rows(kind, tables[0].columns, rows, after=number, among_others=len(runs) > 1)


async def _watch(
    targets: Sequence[Target], kinds: Sequence[Resource], sluice: Sluice, where: _Scope, printer: ObjectPrinter
) -> None:
    """One object, or all of a type, and then what changes."""
    kind = targets[0].resource if targets else kinds[0]
    documents, scoped = sluice.documents(kind.plural), await where.of(kind, sluice)
    nothing = await where.nothing(kind, scoped["namespace"], sluice)
    if targets:
        named = await documents.get(targets[0].name, scoped["namespace"])
        scoped["field_selector"] = f"metadata.name={named['metadata']['name']}"
    if printer.documents is None:
        await _watch_rows(kind, documents.watch(**scoped, rows=True), printer, nothing)
        return
    watching = documents.watch(**scoped)
    printer.show_documents([(kind, item) for item in await watching.start()], as_list=True)
    async with aclosing(watching.changes()) as changes:
        async for change in changes:
            if printer.documents == "yaml":
                click.echo("---")
            printer.show_documents([(kind, change.object)], as_list=False)


async def _watch_rows(kind: Resource, watching: Watch, printer: ObjectPrinter, nothing: str) -> None:
    found = await watching.start()
    table = printer.show_rows(kind, watching.columns, found, nothing=nothing)
    async with aclosing(watching.changes()) as changes:
        async for change in changes:
            for line in table.lines(watching.columns, [change.object]):
                print_line(line)
