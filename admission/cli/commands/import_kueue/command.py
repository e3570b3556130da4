"""The command `sluice import kueue`: print the plan of an import, and with `--yes` carry it out."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import ApiConnection
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.arguments.files import FilesCommand, read_documents
from admission.cli.arguments.foreign import is_kueue_configuration
from admission.cli.commands.import_kueue import plan as plans
from admission.cli.commands.import_kueue.configuration import only_one, translate
from admission.cli.commands.import_kueue.destination import open_destination
from admission.cli.commands.import_kueue.plan import Action
from admission.cli.commands.import_kueue.source import CONFIG_MAP, Importable, configurations_in, in_cluster
from admission.cli.commands.import_kueue.takeover import plan_takeovers
from admission.cli.errors import BadFlag, CommandError
from admission.cli.output.output_file import output_file
from admission.cli.output.printing import print_line
from admission.cluster.client import Client
from admission.kinds import all_kinds
from admission.model.queues import ClusterQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.cli.commands.import_kueue.configuration import TranslatedSettings
    from admission.cli.commands.import_kueue.destination import Destination
    from admission.cli.commands.import_kueue.plan import Parsed, PlanEntry
    from admission.kinds import Kinds
    from admission.model.manifests import Document

_NOT_TAKEN_OVER = "a running Sluice cannot take over Jobs: stop it, and use --database-url"


@click.command(cls=FilesCommand)
@click.option(
    "-f", "--filename", "paths", multiple=True, metavar="FILE", help="Manifests, instead of a cluster; repeatable."
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    metavar="NAME",
    show_default=True,
    help="Namespace of LocalQueues that name none.",
)
@click.option("--kubeconfig", metavar="FILE", help="Kubeconfig file of the cluster that runs Kueue.  [env: KUBECONFIG]")
@click.option(
    "--context",
    metavar="NAME",
    help="Kubeconfig context of the cluster that runs Kueue.  [default: the current context]",
)
@database_options
@click.option("--server", metavar="URL", help="URL of the API of a running Sluice.  [env: SLUICE_SERVER]")
@click.option(
    "--token-file", metavar="FILE", type=click.Path(path_type=Path), help="File with the bearer token for --server."
)
@click.option(
    "--ca", metavar="FILE", type=click.Path(path_type=Path), help="PEM file with the CA certificate of --server."
)
@click.option(
    "--config-out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="New file for the settings that Kueue's configuration becomes.  [default: those of -f are printed]",
)
@click.option("--yes", is_flag=True, help="Carry out the plan.")
def kueue(
    *,
    paths: tuple[str, ...],
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    database: DatabaseFlags,
    server: str | None,
    token_file: Path | None,
    ca: Path | None,
    config_out: Path | None,
    yes: bool,
) -> None:
    """Import Kueue's queues and settings, and take over the Jobs that Kueue has admitted.

    Without --yes the plan is printed, and nothing is written. ResourceFlavors,
    ClusterQueues, Cohorts, LocalQueues, WorkloadPriorityClasses, AdmissionChecks and
    Topologies are read from manifests (-f), or from the cluster that runs Kueue. An import from a
    cluster into the database of a stopped Sluice takes over running Jobs as well: they
    keep running, and hold the quota that Kueue assigned to them. The command can be
    repeated.

    Kueue's own configuration, of -f or in the cluster's ConfigMap kueue-manager-config,
    becomes a configuration file of sluice serve, with what became of each field.

    \b
    Examples:
      sluice import kueue -f queues/
      sluice import kueue -f kueue-config.yaml --config-out sluice.yaml
      sluice import kueue --context prod --database-url sqlite:///sluice.db
      sluice import kueue --context prod --database-url sqlite:///sluice.db --yes
    """
    if paths and (kubeconfig or context) and (server or database.is_set):
        raise click.UsageError("-f cannot be used together with the cluster of --kubeconfig or --context")
    if database.is_set and (server or token_file):
        raise click.UsageError("--database-url cannot be used together with --server and --token-file")
    if server or token_file or os.environ.get("SLUICE_SERVER"):
        connection = ApiConnection(server, token_file, ca)
    else:  # Sluice's API is registered in the cluster that runs Kueue
        connection = ApiConnection(kubeconfig=kubeconfig, context=context)

    documents, translation = _read(paths)
    if translation is not None and not documents:
        _give_settings(translation, config_out)
        return
    if translation is None and config_out is not None and paths:
        raise BadFlag("--config-out: no file of -f contains Kueue's configuration; leave it out, or add that file")

    async def run() -> None:
        async with AsyncExitStack() as stack:
            kinds = all_kinds()
            configurations: list[Document] = []
            if paths:
                found = Importable(documents)
                parsed = plans.parse(documents, namespace=namespace)
            else:
                client = await stack.enter_async_context(Client.from_kubeconfig(kubeconfig, context))
                found = await in_cluster(client, kinds)
                parsed = plans.parse(found.documents, namespace=namespace)
                configurations = await configurations_in(client)
            destination = await stack.enter_async_context(
                open_destination(connection, database.url() if database.is_set else None, reason="imported from Kueue")
            )
            plan = await _plan(found, parsed, kinds, destination)
            if yes and found.workloads and any(entry.writes for entry in plan):
                await destination.lead()
                plan = await _plan(found, parsed, kinds, destination)  # with what the former leader decided at last
            # A new file only when nothing is left that could fail before the plan is printed: the command is repeated.
            if translation is not None:
                _give_settings(translation, config_out)
            elif not paths:
                _give_settings_of_cluster(configurations, config_out)
            for line in plans.lines(plan):
                print_line(line)
            if yes:
                await _carry_out(plan, destination)
            click.echo(plans.summary(plan, done=yes))

    asyncio.run(run())


def _read(paths: Sequence[str]) -> tuple[list[Document], TranslatedSettings | None]:
    """Return the manifests, and the settings that Kueue's configuration among them becomes. Raises Unreadable."""
    documents = read_documents(paths) if paths else []
    configuration = only_one([document for document in documents if is_kueue_configuration(document.body)])
    rest = [document for document in documents if document is not configuration]
    return rest, None if configuration is None else translate(configuration)


def _give_settings(translation: TranslatedSettings, file: Path | None) -> None:
    """Write the settings to a new file, and print what became of Kueue's; without a file, print both as one.

    Raises BadFlag if the file exists: it may have other settings.
    """
    if file is None:
        for line in translation.text().splitlines():
            print_line(line)
        return
    if file.is_file():
        raise BadFlag(f"--config-out: {file} exists already; name a new file, and compare the two")
    with output_file(file) as out:
        out.write(translation.text().encode())
    for line in translation.lines():
        print_line(line)
    print_line(f"{file}: written; sluice config check {file} validates it")


def _give_settings_of_cluster(documents: Sequence[Document], file: Path | None) -> None:
    """Print what becomes of the settings in the cluster, and write them to a new file, if one is given.

    Raises CommandError if a file is given, but there are no settings to write; otherwise as `_give_settings`.
    """
    configuration = only_one(documents)
    if configuration is None:
        missing = f"there is no ConfigMap {CONFIG_MAP} with Kueue's configuration that you may read"
        if file is not None:
            raise CommandError(f"--config-out: {missing}")
        print_line(f"{missing}: its settings are not imported (-f FILE reads them)")
        return
    translation = translate(configuration)
    if file is not None:
        _give_settings(translation, file)
        return
    for line in translation.lines():
        print_line(line)
    print_line("--config-out FILE writes them as a configuration file of sluice serve")


async def _plan(found: Importable, parsed: Parsed, kinds: Kinds, destination: Destination) -> list[PlanEntry]:
    """Return the plan: queue objects, then workloads."""
    present = {item.key: item for item in await destination.present()}
    plan = plans.plan_objects(parsed, present)
    items = present | {entry.item.key: entry.item for entry in plan if entry.item is not None}
    for item in items.values():
        found.context.update_queue_object(item)
    workloads = plan_takeovers(
        found,
        kinds,
        queues={item.name for item in items.values() if isinstance(item, ClusterQueue)},
        known=await destination.known() if found.objects else {},
        now=time.time(),
    )
    if not destination.takes_over:
        workloads = [
            plans.PlanEntry(Action.SKIP, entry.what, (_NOT_TAKEN_OVER,)) if entry.takeover is not None else entry
            for entry in workloads
        ]
    return plan + workloads


async def _carry_out(plan: Sequence[PlanEntry], destination: Destination) -> None:
    """Write the plan. Queue objects come first: the ledger is judged by the quota at the revision of an admission."""
    for entry in plan:
        if entry.item is not None and entry.writes:
            await destination.write(entry.item)
    takeovers = [entry.takeover for entry in plan if entry.takeover is not None]
    if takeovers:
        await destination.take_over(takeovers)
