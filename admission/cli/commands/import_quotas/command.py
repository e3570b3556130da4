"""The commands `sluice import volcano`, `kai`, ...: print the plan of an import, and with `--yes` carry it out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import ApiConnection, connection_options
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.arguments.files import FilesCommand, filename_option, read_documents
from admission.cli.arguments.objects import title
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.import_kueue.destination import open_destination
from admission.cli.commands.import_kueue.plan import Action, PlanEntry, action_for, lines, summary
from admission.cli.commands.import_quotas.notes import (
    CAPACITY_REQUIRED,
    capacity_notes,
    missing_queue_notes,
    print_notes,
)
from admission.cli.commands.import_quotas.quota_tree import translate
from admission.cli.commands.import_quotas.systems import SYSTEMS
from admission.cli.errors import BadFlag, CommandError, Unreadable
from admission.cli.output.printing import print_line, serialized
from admission.model.manifests import to_manifest
from admission.model.names import is_dns_label
from admission.model.queues import ResourceFlavor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.cli.commands.import_quotas.quota_tree import Translation
    from admission.cli.commands.import_quotas.system import FoundQuotas, System
    from admission.model.queues import QueueObject


def _command(name: str, system: System) -> click.Command:
    """Return the command `sluice import NAME`; schedulers differ in texts and the function that reads documents."""

    @filename_option()
    @click.option(
        "-n",
        "--namespace",
        "namespaces",
        multiple=True,
        metavar="NAME",
        help="Namespace in which each queue gets a LocalQueue; repeatable.",
    )
    @translation_options
    @click.option(
        "-o", "--output", type=click.Choice(["yaml", "json"]), help="Print manifests in this format, and write nothing."
    )
    @click.option("--yes", is_flag=True, help="Carry out the plan.")
    @database_options
    @connection_options
    def command(
        *,
        paths: tuple[str, ...],
        namespaces: tuple[str, ...],
        translation: TranslationFlags,
        output: str | None,
        yes: bool,
        database: DatabaseFlags,
        connection: ApiConnection,
    ) -> None:
        if database.is_set and connection != ApiConnection():
            raise click.UsageError(
                "--database-url cannot be used together with --server, --token-file, --kubeconfig and --context"
            )
        if output and yes:
            raise click.UsageError("-o cannot be used together with --yes")
        for namespace in namespaces:
            if not is_dns_label(namespace):
                raise BadFlag(f'--namespace: "{namespace}" is not a valid namespace name')
        found = system.read(read_documents(paths), namespaces)
        if not found.queues:
            raise Unreadable(f"{', '.join(paths)}: no {system.document} found; to get one: {system.export_command}")
        result = translate(found.queues, flavor=translation.flavor, capacity=translation.capacity)
        if output:
            _print(found, result, output)
        else:
            asyncio.run(_import(system, found, result, connection, database, yes=yes))

    short = f"Import {system.plural} of {system.name}."
    return click.command(name, cls=FilesCommand, help=_help(name, system), short_help=short)(command)


def _help(name: str, system: System) -> str:
    return f"""Import {system.plural} of {system.name} as ClusterQueues, Cohorts and LocalQueues.

    Without --yes the plan is printed, with a note on each field that has no equivalent,
    and nothing is written. No queue can use more afterwards than its limit allowed. The
    command can be repeated. Jobs are not changed.

    \b
    Examples:
      sluice import {name} -f queues.yaml -n team-a --capacity cpu=640,memory=2Ti,nvidia.com/gpu=64
      sluice import {name} -f queues.yaml -n team-a -o yaml > for-review.yaml
      {system.export_command} | sluice import {name} -f - --yes
    """


def _print(found: FoundQuotas, translation: Translation, output: str) -> None:
    """Print the manifests as a List, and all notes to standard error."""
    items = [to_manifest(each.item) for each in translation.objects]
    click.echo(serialized({"apiVersion": "v1", "kind": "List", "items": items}, output))
    print_notes(found, translation)


async def _import(
    system: System,
    found: FoundQuotas,
    translation: Translation,
    connection: ApiConnection,
    database: DatabaseFlags,
    *,
    yes: bool,
) -> None:
    """Print the plan, and with `yes` write it. Raises CommandError if that requires a capacity that is not given."""
    source = f"imported from {system.name}"
    url = database.url() if database.is_set else None
    async with open_destination(connection, url, reason=source) as destination:
        present = {item.key: item for item in await destination.present()}
        plan = [_entry(each.item, each.notes, present) for each in translation.objects]
        plan += [PlanEntry(Action.SKIP, what, (note,)) for what, note in found.skipped]
        for text in lines(plan):
            print_line(text)
        missing = capacity_notes(translation)
        for note in (*missing, *missing_queue_notes(translation, present.values())):
            print_line(f"note: {note}", err=True)
        if yes and missing:
            raise CommandError(CAPACITY_REQUIRED)
        for entry in plan if yes else ():
            if entry.item is not None and entry.writes:
                await destination.write(entry.item)
        click.echo(summary(plan, done=yes))


def _entry(item: QueueObject, notes: Sequence[str], present: Mapping[tuple[str, str, str], QueueObject]) -> PlanEntry:
    """Return the entry of the plan for a queue object."""
    existing = present.get(item.key)
    if isinstance(item, ResourceFlavor) and existing is not None:  # it has the admin's node labels, the new one none
        return PlanEntry(Action.SAME, title(existing))
    return PlanEntry(action_for(item, existing), title(item), tuple(notes), item)


kai = _command("kai", SYSTEMS["kai"])
koordinator = _command("koordinator", SYSTEMS["koordinator"])
mcad = _command("mcad", SYSTEMS["mcad"])
scheduler_plugins = _command("scheduler-plugins", SYSTEMS["scheduler-plugins"])
volcano = _command("volcano", SYSTEMS["volcano"])
yunikorn = _command("yunikorn", SYSTEMS["yunikorn"])
