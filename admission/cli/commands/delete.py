"""`sluice delete`: away with queue objects that nothing needs any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.api.registry import by_name
from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.files import filename_option, read_objects
from admission.cli.arguments.objects import (
    Target,
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
@click.option("--all", "everything", is_flag=True, help="Delete all objects of the TYPE (in the namespace).")
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
    connection: Connection,
) -> None:
    """Delete queue objects.

    What others depend on is not deleted: a ClusterQueue that LocalQueues or
    workloads name, a ResourceFlavor that holds quota.

    \b
    Examples:
      sluice delete localqueue main -n team-a
      sluice delete cq/team-a --dry-run
      sluice delete -f queues.yaml
      sluice delete lq -l project=old -n team-a
    """
    wanted = _wanted(what, names, paths, selector, everything=everything)

    async def run() -> None:
        async with connect(connection) as sluice:
            if paths:
                # Those that name others first.
                for item in reversed(read_objects(paths, namespace=namespace or sluice.namespace)):
                    resource = by_name(item.plural)
                    assert resource is not None
                    await _delete(sluice, Target(resource, item.name), item.metadata.namespace, writing)
            elif isinstance(wanted, list):
                for target in wanted:
                    await _delete(sluice, target, namespace_for(target.resource, namespace, sluice), writing)
            elif wanted is not None:
                where = namespace_for(wanted, namespace, sluice)
                found = sluice.documents(wanted.plural).list(namespace=where, label_selector=selector)
                for name in [item["metadata"]["name"] async for item in found]:
                    await _delete(sluice, Target(wanted, name), where, writing)

    asyncio.run(run())


def _wanted(
    what: str | None, names: Sequence[str], paths: Sequence[str], selector: str, *, everything: bool
) -> list[Target] | Resource | None:
    """What the arguments mean; None for files. Raises UsageError for what goes not together, or too far."""
    if what is None or paths:
        if what is not None or selector or everything or not paths:
            raise click.UsageError("name either objects (TYPE NAME, TYPE/NAME, or TYPE with -l or --all) or files (-f)")
        return None
    wanted = resolve(what, names)
    resources = [target.resource for target in wanted] if isinstance(wanted, list) else [wanted]
    for resource in resources:
        if "delete" not in resource.verbs:
            raise click.UsageError(f"{resource.plural} cannot be deleted here; delete the Job")
    if isinstance(wanted, list):
        if selector or everything:
            raise click.UsageError("-l and --all choose among all objects; leave the NAME out")
    elif not (selector or everything):
        raise click.UsageError(f"which of the {wanted.plural}? write {what} NAME, or -l, or --all")
    return wanted


async def _delete(sluice: Sluice, target: Target, namespace: str | None, writing: WritingFlags) -> None:
    status = None
    if writing.dry_run != "client":
        documents = sluice.documents(target.resource.plural)
        status = await documents.delete(target.name, namespace or None, options=writing.options)
    print_outcome(target.qualified_name, "deleted", writing, status)
