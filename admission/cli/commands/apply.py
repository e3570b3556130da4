"""`sluice apply`: create or update queue objects from manifests, all validated before the first one is written."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.files import FilesCommand, filename_option
from admission.cli.arguments.objects import namespace_option
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.import_quotas.manifests import Manifests
from admission.cli.output.manifests import comparable, present, written
from admission.cli.output.outcomes import Outcomes
from admission.cli.output.printing import WritingFlags, output_option, writing_options
from admission.model.manifests import to_manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from admission.client import Sluice
    from admission.client.transport import Document
    from admission.model.queues import QueueObject

    _Put = Callable[[Sluice, QueueObject, WritingFlags], Awaitable[tuple[str, Document | None]]]

_JUDGED_ALONE: Final = (
    "the dry run judges each object alone: its effects and warnings are as if the other objects were not applied"
)


@click.command(cls=FilesCommand)
@filename_option()
@namespace_option
@click.option("--server-side", is_flag=True, help="Use server-side apply: change and own the fields in the files only.")
@click.option(
    "--field-manager",
    default="sluice",
    metavar="NAME",
    show_default=True,
    help="Owner of the fields, with --server-side.",
)
@click.option("--force-conflicts", is_flag=True, help="Take over fields that other managers own, with --server-side.")
@translation_options
@writing_options
@output_option(default="a message for each object")
@click.option(
    "--wait", default=30.0, metavar="SECONDS", show_default=True, help="Time to wait until the server is ready."
)
@connection_options
def apply(
    *,
    paths: tuple[str, ...],
    namespace: str | None,
    server_side: bool,
    field_manager: str,
    force_conflicts: bool,
    translation: TranslationFlags,
    writing: WritingFlags,
    output: str | None,
    wait: float,
    connection: ApiConnection,
) -> None:
    """Create or update queue objects from manifests.

    The files contain ResourceFlavors, ClusterQueues, Cohorts, LocalQueues,
    AdmissionChecks, WorkloadPriorityClasses and Topologies of sluice.dev/v1,
    kueue.x-k8s.io/v1beta2 or v1beta1, in any order. All of them are validated before the
    first one is written. A manifest replaces the existing object (unless --server-side is
    used); applying it again changes nothing. A Budget keeps its grants if the manifest has
    none. --dry-run shows which workloads would be admitted or evicted
    by each object alone, as if the other objects of the files were not applied.

    Queues of Volcano, YuniKorn, Koordinator, scheduler-plugins, KAI and MCAD are
    translated to ClusterQueues, Cohorts and, with -n, LocalQueues, as by sluice import;
    specify the capacity of the nodes with --capacity. Fields without an equivalent are
    reported.

    -o json and -o yaml print a List of the resulting objects with a report: the outcome
    of each object, its source, and what was left out and why. -o wide prints source and
    omissions below each object.

    \b
    Examples:
      sluice apply -f queues.yaml
      sluice apply -f queues/ --dry-run
      sluice apply -f volcano.yaml -n team-a --capacity cpu=640,memory=2Ti
      sluice apply -f volcano.yaml -n team-a --dry-run=client -o wide
      kubectl get clusterqueues,localqueues -A -o yaml | sluice apply -f -
    """
    if not server_side and force_conflicts:
        raise click.UsageError("--force-conflicts can only be used with --server-side")

    put = partial(_apply_server_side, manager=field_manager, force=force_conflicts) if server_side else _put
    manifests = Manifests(namespace, translation, writes=writing.dry_run == "none", prints_notes=output != "wide")

    async def run() -> None:
        async with connect(connection) as sluice:
            objects = manifests.read(paths, namespace=namespace or sluice.namespace)
            await sluice.wait_until_ready(wait, lambda text: click.echo(text, err=True))
            await manifests.note_missing_queues(sluice)
            outcomes = Outcomes(output, writing, manifests.origins)
            try:
                await _apply_all(sluice, objects, manifests, outcomes, put)
            finally:  # if the server refuses an object, those before it are written, and must be reported
                outcomes.finish(manifests.left_out, manifests.notes)

    asyncio.run(run())


async def _apply_all(
    sluice: Sluice, objects: Iterable[QueueObject], manifests: Manifests, outcomes: Outcomes, put: _Put
) -> None:
    """Apply all objects, except flavors that are used as they exist."""
    has_changed = False
    for item in objects:
        if (existing := await manifests.existing_flavor(sluice, item)) is not None:
            outcomes.add(item, "unchanged", existing)
            continue
        outcome, document = await put(sluice, item, outcomes.writing)
        outcomes.add(item, outcome, document)
        if outcome != "unchanged":
            if has_changed and outcomes.writing.dry_run == "server":
                manifests.note_once(_JUDGED_ALONE)
            has_changed = True


async def _put(sluice: Sluice, item: QueueObject, writing: WritingFlags) -> tuple[str, Document | None]:
    """Create or replace the object. Return the outcome and the response; a client dry run only compares."""
    if writing.dry_run != "client":
        return await sluice.documents(item.plural).put(to_manifest(item), options=writing.options)
    found = await present(sluice, item)
    same = found is not None and comparable(found) == comparable(written(item, found))
    return "created" if found is None else "unchanged" if same else "configured", None


async def _apply_server_side(
    sluice: Sluice, item: QueueObject, writing: WritingFlags, *, manager: str, force: bool
) -> tuple[str, Document | None]:
    """Send the fields that the manifest sets as a server-side apply. Return the outcome and the response."""
    from admission.client.collections import explicit_fields

    if writing.dry_run == "client":
        return "serverside-applied", None
    fields = explicit_fields(item, item.metadata.namespace or None)
    documents = sluice.documents(item.plural)
    return "serverside-applied", await documents.apply(fields, manager=manager, force=force, options=writing.options)
