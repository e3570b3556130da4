"""`sluice get`: what is there, as a table or as documents, and what becomes of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

import click

from admission.cli.connection import Connection, connect, connection_options
from admission.cli.objects import (
    Target,
    names_argument,
    namespace_option,
    resolve,
    scope,
    selector_options,
    what_argument,
)
from admission.cli.printing import output_option, print_documents
from admission.cli.signals import until_signal
from admission.cli.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.registry import Resource
    from admission.client import Sluice
    from admission.client.transport import Document


@dataclass(frozen=True, slots=True)
class _Form:
    """How to show what was found."""

    output: str | None
    headers: bool
    namespaces: bool

    def table(self, resource: Resource) -> Table:
        namespaces = self.namespaces and resource.namespaced
        return Table(resource.kind, namespaces=namespaces, wide=self.output == "wide", headers=self.headers)

    @property
    def documents(self) -> str | None:
        return None if self.output == "wide" else self.output


@click.command()
@what_argument
@names_argument
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Show those of all namespaces.")
@selector_options[0]
@selector_options[1]
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Go on and show what changes, until it is ended (^C).")
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
    no_headers: bool,
    connection: Connection,
) -> None:
    """Show queue objects and workloads.

    TYPE is clusterqueues (cq), cohorts (co), localqueues (lq), resourceflavors (rf),
    workloadpriorityclasses (wpc), admissionchecks (ac) or workloads (wl). A workload
    can be named by its Job, too.

    \b
    Examples:
      sluice get clusterqueues
      sluice get workloads -n team-a -o wide --watch
      sluice get cq/team-a -o yaml
      sluice get wl -A -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
    """
    wanted = resolve(what, names)
    form = _Form(output, headers=not no_headers, namespaces=all_namespaces)
    if isinstance(wanted, list):
        if all_namespaces:
            raise click.UsageError("-A shows all objects; a NAME needs the namespace that it is in (-n)")
        if selector or field_selector:
            raise click.UsageError("-l and --field-selector choose among all objects; leave the NAME out")
        if watch and len(wanted) > 1:
            raise click.UsageError("--watch shows one object, or all of a type")
    work = _get(connection, wanted, "" if all_namespaces else namespace, selector, field_selector, form, watch)
    asyncio.run(until_signal(work) if watch else work)


async def _get(
    connection: Connection,
    wanted: list[Target] | Resource,
    namespace: str | None,
    selector: str,
    field_selector: str,
    form: _Form,
    watch: bool,
) -> None:
    async with connect(connection) as sluice:
        if isinstance(wanted, list) and not watch:
            await _show_named(sluice, wanted, namespace, form)
            return
        resource = wanted[0].resource if isinstance(wanted, list) else wanted
        where = None if namespace == "" else scope(resource, namespace, sluice)
        if isinstance(wanted, list):
            named = await sluice.documents(resource.plural).get(wanted[0].name, where)
            field_selector = f"metadata.name={named['metadata']['name']}"
        documents = sluice.documents(resource.plural)
        if watch:
            watching = documents.watch(namespace=where, label_selector=selector, field_selector=field_selector)
            table = _show_list(resource, await watching.start(), form, where)
            async with aclosing(watching.changes()) as changes:
                async for change in changes:
                    _show_change(resource, change.object, table, form)
        else:
            listed = documents.list(namespace=where, label_selector=selector, field_selector=field_selector)
            _show_list(resource, [item async for item in listed], form, where)


async def _show_named(sluice: Sluice, targets: Sequence[Target], namespace: str | None, form: _Form) -> None:
    """Objects in the order in which they were named; a table for each run of one type."""
    found = [
        (target.resource, await sluice.documents(target.resource.plural).get(target.name, where))
        for target in targets
        for where in [scope(target.resource, namespace, sluice)]
    ]
    if form.documents not in (None, "name"):
        print_documents([item for _, item in found], form.documents, singular="", as_list=len(found) > 1)
        return
    for number, (resource, pairs) in enumerate(groupby(found, key=lambda pair: pair[0])):
        if number and form.documents is None:
            click.echo()
        _show_list(resource, [item for _, item in pairs], form, None)


def _show_list(resource: Resource, found: Sequence[Document], form: _Form, namespace: str | None) -> Table:
    table = form.table(resource)
    if form.documents is not None:
        print_documents(found, form.documents, singular=resource.singular, as_list=True)
    elif found:
        for line in table.lines(found, now=datetime.now(UTC)):
            click.echo(line)
    else:
        where = f" in namespace {namespace}" if namespace else ""
        click.echo(f"there are no {resource.plural}{where}", err=True)
    return table


def _show_change(resource: Resource, item: Document, table: Table, form: _Form) -> None:
    if form.documents is None:
        for line in table.lines([item], now=datetime.now(UTC)):
            click.echo(line)
        return
    if form.documents == "yaml":
        click.echo("---")
    print_documents([item], form.documents, singular=resource.singular, as_list=False)
