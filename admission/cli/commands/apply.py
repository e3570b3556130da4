"""`sluice apply`: manifests of mixed kinds, checked all before the first is written, in an order that works."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.files import filename_option
from admission.cli.arguments.objects import namespace_option
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.diff import comparable, present
from admission.cli.commands.import_quotas.manifests import Manifests
from admission.cli.output.outcomes import Outcomes
from admission.cli.output.printing import WritingFlags, output_option, writing_options
from admission.model.manifests import to_manifest

if TYPE_CHECKING:
    from admission.client import Sluice
    from admission.client.transport import Document
    from admission.model.queues import QueueObject


@click.command()
@filename_option()
@namespace_option
@click.option("--server-side", is_flag=True, help="Own the fields in the files only, and leave the others to others.")
@click.option("--field-manager", default="sluice", show_default=True, help="The owner, with --server-side.")
@click.option("--force-conflicts", is_flag=True, help="Take fields from other owners, with --server-side.")
@translation_options
@writing_options
@output_option()
@click.option("--wait", default=30.0, show_default=True, help="Seconds to wait until Sluice is ready.")
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
    connection: Connection,
) -> None:
    """Create or change queue objects from manifests.

    The files hold ResourceFlavors, ClusterQueues, Cohorts, LocalQueues, AdmissionChecks
    and WorkloadPriorityClasses of sluice.dev/v1, kueue.x-k8s.io/v1beta2 or v1beta1, in
    any order. All are checked before the first is written. What a file says
    replaces what was there (but see --server-side); applying it twice changes nothing.
    With --dry-run you see which workloads would start or be evicted.

    Queues of Volcano, YuniKorn, Koordinator, scheduler-plugins, KAI and MCAD become
    ClusterQueues, Cohorts and LocalQueues (those only with -n), as with sluice import:
    give what the nodes have by --capacity. What has no equivalent is noted.

    -o json and -o yaml print a List of the objects as they are now, with a report: what
    became of each, what it was made of, and what of that was left out, and why. -o wide
    tells the latter below each object.

    \b
    Examples:
      sluice apply -f queues.yaml
      sluice apply -f queues/ --dry-run
      sluice apply -f volcano.yaml -n team-a --capacity cpu=640,memory=2Ti
      sluice apply -f volcano.yaml -n team-a --dry-run=client -o wide
      kubectl get clusterqueues,localqueues -A -o yaml | sluice apply -f -
    """
    if not server_side and force_conflicts:
        raise click.UsageError("--force-conflicts goes with --server-side")

    manifests = Manifests(namespace, translation, writes=writing.dry_run == "none", told_below=output == "wide")

    async def run() -> None:
        async with connect(connection) as sluice:
            objects = manifests.read(paths, namespace=namespace or sluice.namespace)
            await sluice.wait_until_ready(wait, lambda text: click.echo(text, err=True))
            await manifests.tell_of_others(sluice)
            outcomes = Outcomes(output, writing, manifests.origins)
            try:
                for item in objects:
                    if (kept := await manifests.kept(sluice, item)) is not None:
                        outcomes.add(item, "unchanged", kept)
                    elif server_side:
                        outcomes.add(item, *await _own(sluice, item, field_manager, writing, force=force_conflicts))
                    else:
                        outcomes.add(item, *await _put(sluice, item, writing))
            finally:  # those in front of one that is refused are written
                outcomes.finish(manifests.left_out, manifests.notes)

    asyncio.run(run())


async def _put(sluice: Sluice, item: QueueObject, writing: WritingFlags) -> tuple[str, Document | None]:
    manifest = to_manifest(item)
    if writing.dry_run != "client":
        return await sluice.documents(item.plural).put(manifest, options=writing.options)
    found = await present(sluice, item)
    same = found is not None and comparable(found) == comparable(manifest)
    return "created" if found is None else "unchanged" if same else "configured", None


async def _own(
    sluice: Sluice, item: QueueObject, manager: str, writing: WritingFlags, *, force: bool
) -> tuple[str, Document | None]:
    from admission.client.collections import as_set

    if writing.dry_run == "client":
        return "serverside-applied", None
    fields = as_set(item, item.metadata.namespace or None)
    documents = sluice.documents(item.plural)
    return "serverside-applied", await documents.apply(fields, manager=manager, force=force, options=writing.options)
