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

from admission.cli.connection import Connection, connect, connection_options
from admission.cli.jsonpath import find
from admission.cli.objects import (
    Target,
    names_argument,
    namespace_option,
    resolve,
    resources_named,
    scope,
    selector_options,
    what_argument,
)
from admission.cli.printing import output_option
from admission.cli.showing import Form
from admission.cli.signals import until_signal

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
    selectors: dict[str, str]

    def of(self, resource: Resource, sluice: Sluice) -> dict[str, Any]:
        """For a request."""
        where = None if self.everywhere else scope(resource, self.namespace, sluice)
        return {"namespace": where, **self.selectors}


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
    workloadpriorityclasses (wpc), admissionchecks (ac) or workloads (wl), or several
    of them with commas. A workload can be named by its Job, too.

    \b
    Examples:
      sluice get cq,lq
      sluice get workloads -n team-a -o wide --watch
      sluice get workloads -A --sort-by .spec.priority
      sluice get cq/team-a -o yaml
      sluice get wl -A -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
    """
    kinds = resources_named(what) if "," in what else []
    wanted = [Target(kind, name) for kind in kinds for name in names] if kinds else resolve(what, names)
    form = Form(output, headers=not no_headers, namespaces=all_namespaces, sort_by=sort_by)
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
    where = _Scope(namespace, all_namespaces, {"label_selector": selector, "field_selector": field_selector})
    work = partial(_watch, targets, kinds) if watch else partial(_named, targets) if targets else partial(_all, kinds)
    running = _connected(connection, work, where, form)
    asyncio.run(until_signal(running) if watch else running)


async def _connected(connection: Connection, work: Any, where: _Scope, form: Form) -> None:
    async with connect(connection) as sluice:
        await work(sluice, where, form)


async def _all(kinds: Sequence[Resource], sluice: Sluice, where: _Scope, form: Form) -> None:
    """All objects of some types: a table for each, or one list of documents."""
    if form.documents is not None:
        found = [
            (kind, item)
            for kind in kinds
            async for item in sluice.documents(kind.plural).list(**where.of(kind, sluice))
        ]
        form.show_documents(found, as_list=True)
        return
    several = len(kinds) > 1
    shown = 0
    for kind in kinds:
        scoped = where.of(kind, sluice)
        table = await sluice.documents(kind.plural).table(**scoped, objects=bool(form.sort_by))
        form.show_rows(kind, table.columns, table.rows, after=shown, among_others=several, where=scoped["namespace"])
        shown += len(table.rows)


async def _named(targets: Sequence[Target], sluice: Sluice, where: _Scope, form: Form) -> None:
    """Objects in the order in which they were named; a table for each run of one type."""
    if form.documents is not None:
        found = [
            (kind, await sluice.documents(kind.plural).get(name, scope(kind, where.namespace, sluice)))
            for kind, name in targets
        ]
        form.show_documents(found, as_list=len(found) > 1)
        return
    runs = [(kind, [name for _, name in run]) for kind, run in groupby(targets, key=itemgetter(0))]
    for number, (kind, names) in enumerate(runs):
        documents = sluice.documents(kind.plural)
        tables = [
            await documents.table(namespace=scope(kind, where.namespace, sluice), name=name, objects=bool(form.sort_by))
            for name in names
        ]
        rows = [row for table in tables for row in table.rows]
        form.show_rows(kind, tables[0].columns, rows, after=number, among_others=len(runs) > 1)


async def _watch(
    targets: Sequence[Target], kinds: Sequence[Resource], sluice: Sluice, where: _Scope, form: Form
) -> None:
    """One object, or all of a type, and then what changes."""
    kind = targets[0].resource if targets else kinds[0]
    documents, scoped = sluice.documents(kind.plural), where.of(kind, sluice)
    if targets:
        named = await documents.get(targets[0].name, scoped["namespace"])
        scoped["field_selector"] = f"metadata.name={named['metadata']['name']}"
    if form.documents is None:
        await _watch_rows(kind, documents.watch(**scoped, rows=True), form, scoped["namespace"])
        return
    watching = documents.watch(**scoped)
    form.show_documents([(kind, item) for item in await watching.start()], as_list=True)
    async with aclosing(watching.changes()) as changes:
        async for change in changes:
            if form.documents == "yaml":
                click.echo("---")
            form.show_documents([(kind, change.object)], as_list=False)


async def _watch_rows(kind: Resource, watching: Watch, form: Form, namespace: str | None) -> None:
    found = await watching.start()
    table = form.show_rows(kind, watching.columns, found, where=namespace)
    async with aclosing(watching.changes()) as changes:
        async for change in changes:
            for line in table.lines(watching.columns, [change.object]):
                click.echo(line)
