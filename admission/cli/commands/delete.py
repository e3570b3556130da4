"""`sluice delete`: delete queue objects by name, by selector or by the manifests in files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.api.registry import by_name
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.files import filename_option
from admission.cli.arguments.object_files import read_objects
from admission.cli.arguments.objects import (
    ObjectTarget,
    complete_type,
    names_argument,
    namespace_for,
    namespace_option,
    resolve,
    selector_options,
)
from admission.cli.output.printing import WritingFlags, print_outcome, writing_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.registry import Resource
    from admission.client import Sluice


@click.command()
@click.argument("what", metavar="[TYPE[/NAME]]", required=False, shell_complete=complete_type)
@names_argument
@filename_option(required=False)
@selector_options[0]
@click.option(
    "--all", "everything", is_flag=True, help="Delete all objects of the type, in the namespace if it has one."
)
@namespace_option
@writing_options
@connection_options
def delete(
    *,
    what: str | None,
    names: tuple[str, ...],
    paths: tuple[str, ...],
    selector: str,
    everything: bool,
    namespace: str | None,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Delete queue objects.

    Objects that others depend on are not deleted: a ClusterQueue that LocalQueues or
    workloads refer to, a ResourceFlavor that has quota.

    \b
    Examples:
      sluice delete localqueue main -n team-a
      sluice delete cq/team-a --dry-run
      sluice delete -f queues.yaml
      sluice delete lq -l project=old -n team-a
    """
    selected = _selected(what, names, paths, selector, everything=everything)

    async def run() -> None:
        async with connect(connection) as sluice:
            if paths:
                # In reverse order objects that refer to others come before them.
                for item in reversed(read_objects(paths, namespace=namespace or sluice.namespace)):
                    resource = by_name(item.plural)
                    assert resource is not None
                    await _delete(sluice, ObjectTarget(resource, item.name), item.metadata.namespace, writing)
            elif isinstance(selected, list):
                for target in selected:
                    await _delete(sluice, target, namespace_for(target.resource, namespace, sluice), writing)
            elif selected is not None:
                where = namespace_for(selected, namespace, sluice)
                found = sluice.documents(selected.plural).list(namespace=where, label_selector=selector)
                for name in [item["metadata"]["name"] async for item in found]:
                    await _delete(sluice, ObjectTarget(selected, name), where, writing)

    asyncio.run(run())


def _selected(
    what: str | None, names: Sequence[str], paths: Sequence[str], selector: str, *, everything: bool
) -> list[ObjectTarget] | Resource | None:
    """Return the named objects, or the type that `-l` or `--all` select from; None: those in files.

    Raises UsageError for a combination of arguments that is invalid, and for a type without `-l` or `--all`.
    """
    if what is None or paths:
        if what is not None or selector or everything or not paths:
            raise click.UsageError(
                "specify either objects (TYPE NAME, TYPE/NAME, or TYPE with -l or --all) or files (-f)"
            )
        return None
    selected = resolve(what, names)
    resources = [target.resource for target in selected] if isinstance(selected, list) else [selected]
    for resource in resources:
        if "delete" not in resource.verbs:
            raise click.UsageError(f"{resource.plural} cannot be deleted; delete the Job instead")
    if isinstance(selected, list):
        if selector or everything:
            raise click.UsageError("-l and --all cannot be used together with a NAME")
    elif not (selector or everything):
        raise click.UsageError(f"no {selected.plural} are selected; use {what} NAME, -l or --all")
    return selected


async def _delete(sluice: Sluice, target: ObjectTarget, namespace: str | None, writing: WritingFlags) -> None:
    status = None
    if writing.dry_run != "client":
        documents = sluice.documents(target.resource.plural)
        status = await documents.delete(target.name, namespace or None, options=writing.options)
    print_outcome(target.qualified_name, "deleted", writing, status)
