"""`sluice apply`: manifests of mixed kinds, checked all before the first is written, in an order that works."""

from __future__ import annotations

import asyncio
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.api.registry import by_name
from admission.cli.connection import Connection, connection_options
from admission.cli.errors import CommandError, Refused
from admission.cli.http import Api, connect
from admission.cli.objects import collection_path, namespace_option, object_path
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_documents, parse_manifest, to_manifest
from admission.model.queues import QUEUE_OBJECTS, Cohort

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.model.manifests import Document
    from admission.model.queues import QueueObject

_SUFFIXES = (".yaml", ".yml", ".json")
_ATTEMPTS = 5
_METADATA = ("name", "namespace", "labels", "annotations")
_ORDER = {model.kind: position for position, model in enumerate(QUEUE_OBJECTS)}


@click.command()
@click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    required=True,
    help="File, directory or - for standard input; repeatable.",
)
@namespace_option
@click.option("--wait", default=30.0, show_default=True, help="Seconds to wait until Sluice is ready.")
@connection_options
def apply(*, paths: tuple[str, ...], namespace: str, wait: float, connection: Connection) -> None:
    """Create or change queue objects from manifests.

    The files hold ResourceFlavors, ClusterQueues, Cohorts, LocalQueues and
    WorkloadPriorityClasses of sluice.dev/v1, kueue.x-k8s.io/v1beta2 or v1beta1, in
    any order. All are checked before the first is written. What a file says
    replaces what was there; applying it twice changes nothing.

    \b
    Examples:
      sluice apply -f queues.yaml
      kubectl get clusterqueues,localqueues -A -o yaml | sluice apply -f -
    """
    objects = read_objects(paths, namespace=namespace)
    asyncio.run(_apply(objects, wait=wait, connection=connection))


def read_objects(paths: Iterable[str], *, namespace: str) -> list[QueueObject]:
    """All objects of the files, each behind those that it names. Raises CommandError with every fault found."""
    faults: list[str] = []
    objects: dict[tuple[str, str, str], QueueObject] = {}
    for document in _documents(paths):
        body = document.body
        if body.get("apiVersion") == "v1" and body.get("kind") == "Namespace":
            click.echo(f"note: {document.source}: skipped a Namespace; the cluster has it", err=True)
            continue
        try:
            found = parse_manifest(body, source=document.source, namespace=namespace)
        except InvalidObject as error:
            faults.append(str(error))
            continue
        if found.key in objects:
            faults.append(f'{document.source}: {found.kind} "{found.name}" was given before; keep one of the two')
        objects[found.key] = found
    if faults:
        raise CommandError("\n".join(faults))
    return in_order(objects.values())


def in_order(objects: Iterable[QueueObject]) -> list[QueueObject]:
    """The objects by kind and, Cohorts, parents first. Raises InvalidObject for a cycle of Cohorts."""
    by_kind = sorted(objects, key=lambda item: _ORDER[item.kind])
    cohorts = {item.name: item for item in by_kind if isinstance(item, Cohort)}
    sorter = TopologicalSorter(
        {name: {item.spec.parent_name} & cohorts.keys() for name, item in sorted(cohorts.items())}
    )
    try:
        rank = {name: position for position, name in enumerate(sorter.static_order())}
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]
        message = f"closes a cycle of Cohorts: {' -> '.join(cycle)}; name a parent outside of it"
        raise InvalidObject([("spec.parentName", message)], subject=f'Cohort "{cycle[0]}"') from error
    return sorted(by_kind, key=lambda item: (_ORDER[item.kind], rank[item.name] if isinstance(item, Cohort) else 0))


def _documents(paths: Iterable[str]) -> Iterator[Document]:
    for path in paths:
        if path == "-":
            yield from parse_documents(sys.stdin.read(), source="standard input")
            continue
        for file in _files(Path(path)):
            try:
                text = file.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise CommandError(f"{file} cannot be read: {error}") from error
            yield from parse_documents(text, source=str(file))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise CommandError(f"there is no file or directory {path}; check -f")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise CommandError(f"the directory {path} holds no {', '.join(_SUFFIXES)} file")
    return files


async def _apply(objects: Iterable[QueueObject], *, wait: float, connection: Connection) -> None:
    async with connect(connection, lambda text: click.echo(text, err=True)) as api:
        await api.wait_until_ready(wait)
        for item in objects:
            click.echo(f"{item.kind.lower()}.sluice.dev/{item.name} {await apply_object(api, item)}")


async def apply_object(api: Api, item: QueueObject) -> str:
    """Make the object in Sluice what `item` says: `created`, `configured` or `unchanged`."""
    resource = by_name(item.plural)
    assert resource is not None
    namespace = item.metadata.namespace
    path = object_path(resource, item.name, namespace)
    document = to_manifest(item)
    # The rest of the metadata belongs to the server that the manifest may have been read from.
    metadata = {key: value for key, value in document["metadata"].items() if key in _METADATA}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            version = await _version(api, path)
            if version is None:
                await api.create(collection_path(resource, namespace), document | {"metadata": metadata})
                return "created"
            change = document | {"metadata": metadata | {"resourceVersion": version}}
            written = await api.replace(path, change)
        except Refused as error:
            # Somebody else wrote in between: look again.
            if error.code != 409 or attempt == _ATTEMPTS:
                raise
        else:
            return "unchanged" if written["metadata"]["resourceVersion"] == version else "configured"
    raise AssertionError("the last attempt returns or raises")


async def _version(api: Api, path: str) -> str | None:
    try:
        found = await api.get(path)
    except Refused as error:
        if error.code != 404:
            raise
        return None
    return str(found["metadata"]["resourceVersion"])
