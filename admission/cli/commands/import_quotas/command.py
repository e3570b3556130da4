"""The commands `sluice import volcano`, `kai`, ...: first the plan, then, with --yes, what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import Connection, connection_options
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.arguments.files import filename_option, read_documents
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.import_kueue.destination import opened
from admission.cli.commands.import_kueue.plan import Action, Line, action, lines, summary, title
from admission.cli.commands.import_quotas.quota_tree import translate
from admission.cli.commands.import_quotas.systems import SYSTEMS
from admission.cli.commands.import_quotas.telling import NOTHING_WRITTEN, left_out, tell, unbounded
from admission.cli.errors import BadFlag, CommandError, Unreadable
from admission.cli.output.printing import print_line, serialized
from admission.model.manifests import to_manifest
from admission.model.names import is_dns_label
from admission.model.queues import ResourceFlavor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.cli.commands.import_quotas.quota_tree import Translation
    from admission.cli.commands.import_quotas.system import Found, System
    from admission.model.queues import QueueObject


def _command(name: str, system: System) -> click.Command:
    help_text = f"""Make ClusterQueues, Cohorts and LocalQueues of {system.name}'s {system.what}.

    Without --yes you see the plan, with a sentence about each field that has no
    equivalent, and nothing is written. No queue may use more afterwards than its limit
    allowed. It may be repeated. Jobs are left as they are.

    \b
    Examples:
      sluice import {name} -f queues.yaml -n team-a --capacity cpu=640,memory=2Ti,nvidia.com/gpu=64
      sluice import {name} -f queues.yaml -n team-a -o yaml > for-review.yaml
      {system.how} | sluice import {name} -f - --yes
    """

    @filename_option()
    @click.option("-n", "--namespace", "namespaces", multiple=True, help="Make LocalQueues in it; repeatable.")
    @translation_options
    @click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="Print manifests; nothing is written.")
    @click.option("--yes", is_flag=True, help="Do what the plan says.")
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
        connection: Connection,
    ) -> None:
        if database.is_set and connection != Connection():
            raise click.UsageError("--database-url is instead of --server, --token-file, --kubeconfig and --context")
        if output and yes:
            raise click.UsageError("-o only prints; leave out --yes, or -o")
        for namespace in namespaces:
            if not is_dns_label(namespace):
                raise BadFlag(f'--namespace: "{namespace}" is no name of a namespace')
        found = system.read(read_documents(paths), namespaces)
        if not found.queues:
            raise Unreadable(f"{', '.join(paths)}: there is no {system.reads}; get it by: {system.how}")
        made = translate(found.queues, flavor=translation.flavor, capacity=translation.capacity)
        if output:
            _print(found, made, output)
        else:
            asyncio.run(_import(system, found, made, connection, database, yes=yes))

    return click.command(name, help=help_text)(command)


def _print(found: Found, made: Translation, output: str) -> None:
    items = [to_manifest(each.item) for each in made.made]
    click.echo(serialized({"apiVersion": "v1", "kind": "List", "items": items}, output))
    tell(found, made)


async def _import(
    system: System,
    found: Found,
    made: Translation,
    connection: Connection,
    database: DatabaseFlags,
    *,
    yes: bool,
) -> None:
    source = f"imported from {system.name}"
    async with opened(connection, database.url() if database.is_set else None, reason=source) as door:
        present = {item.key: item for item in await door.present()}
        plan = [_line(each.item, each.notes, present) for each in made.made]
        plan += [Line(Action.SKIP, what, (note,)) for what, note in found.skipped]
        for text in lines(plan):
            print_line(text)
        missing = unbounded(made)
        for note in (*missing, *left_out(made, present.values())):
            print_line(f"note: {note}", err=True)
        if yes and missing:
            raise CommandError(NOTHING_WRITTEN)
        for line in plan if yes else ():
            if line.item is not None and line.writes:
                await door.write(line.item)
        click.echo(summary(plan, done=yes))


def _line(item: QueueObject, notes: Sequence[str], present: Mapping[tuple[str, str, str], QueueObject]) -> Line:
    there = present.get(item.key)
    if isinstance(item, ResourceFlavor) and there is not None:  # with node labels, which are the admin's
        return Line(Action.SAME, title(there))
    return Line(action(item, there), title(item), tuple(notes), item)


kai = _command("kai", SYSTEMS["kai"])
koordinator = _command("koordinator", SYSTEMS["koordinator"])
mcad = _command("mcad", SYSTEMS["mcad"])
scheduler_plugins = _command("scheduler-plugins", SYSTEMS["scheduler-plugins"])
volcano = _command("volcano", SYSTEMS["volcano"])
yunikorn = _command("yunikorn", SYSTEMS["yunikorn"])
