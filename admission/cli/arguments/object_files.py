"""Queue objects from manifests in files, validated and sorted in the order in which to write them."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.files import read_documents
from admission.cli.arguments.foreign import import_source, is_kueue_configuration, is_kustomization, without_equivalent
from admission.cli.errors import Unreadable
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest
from admission.model.queues import QUEUE_OBJECTS, Cohort, ResourceFlavor
from admission.model.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.model.manifests import Document
    from admission.model.queues import QueueObject

    Translate = Callable[[Mapping[str, list[Document]]], Iterable[tuple[str, QueueObject]]]

_ORDER = {model.kind: position for position, model in enumerate(QUEUE_OBJECTS)}
"""Position of each kind: `QUEUE_OBJECTS` lists kinds behind those that they refer to."""


def read_objects(
    paths: Iterable[str],
    *,
    namespace: str,
    translate: Translate | None = None,
    note: Callable[[str], None] | None = None,
) -> list[QueueObject]:
    """Return all queue objects of the files, each behind those that it refers to. Raises Unreadable with every fault.

    `namespace` is that of LocalQueues that name none. `translate` turns quota objects of other schedulers, grouped by
    the name of the `sluice import` that reads them, into (prefix of messages, queue object); without it such objects
    are faults. `note` receives a message about each document that is skipped; by default it is printed to standard
    error.
    """
    faults: list[str] = []
    objects: dict[tuple[str, str, str], QueueObject] = {}
    foreign: dict[str, list[Document]] = {}
    for document in read_documents(paths):
        body = document.body
        if body.get("apiVersion") == "v1" and body.get("kind") == "Namespace":
            (note or print_note)(f"{document.source}: skipped a Namespace; create it in the cluster with kubectl")
            continue
        if is_kustomization(document):
            (note or print_note)(f"{document.source}: skipped; what `kubectl kustomize` prints can be given by -f -")
            continue
        if source := import_source(body):
            foreign.setdefault(source, []).append(document)
            continue
        if is_kueue_configuration(body):
            faults.append(f"{document.source}: is Kueue's own configuration; sluice import kueue -f FILE translates it")
            continue
        if consequence := without_equivalent(body):
            faults.append(
                f"{document.source}: Sluice has no {body['kind']}: {consequence}; remove it, or use sluice import kueue"
            )
            continue
        try:
            found = parse_manifest(body, source=document.source, namespace=namespace)
        except InvalidObject as error:
            faults.append(str(error))
            continue
        if found.key in objects:
            faults.append(f'{document.source}: duplicate {found.kind} "{found.name}"; keep one of the two')
        objects[found.key] = found
    for title, item in _translate_foreign(foreign, translate, faults):
        if item.key not in objects:
            objects[item.key] = item
        elif not isinstance(item, ResourceFlavor):  # a flavor in the files has the node labels, which no queue names
            faults.append(f'{title}: becomes {item.kind} "{item.name}", which is defined already; keep one of the two')
    if faults:
        raise Unreadable("\n".join(faults))
    return in_dependency_order(objects.values())


def print_note(text: str) -> None:
    """Print a note to standard error."""
    click.echo(f"note: {visible(text)}", err=True)


def _translate_foreign(
    foreign: Mapping[str, list[Document]],
    translate: Translate | None,
    faults: list[str],
) -> Iterable[tuple[str, QueueObject]]:
    """Return (prefix of messages, queue object) for quota objects of other schedulers; errors are added to `faults`."""
    if translate is None:
        for document in (each for documents in foreign.values() for each in documents):
            kind = document.body.get("kind", "queues.yaml")
            faults.append(
                f"{document.source}: is a {kind} of another scheduler; name the objects that sluice apply made of it"
            )
    elif foreign:
        try:
            return translate(foreign)
        except (InvalidObject, Unreadable) as error:
            faults.append(str(error))
    return ()


def in_dependency_order(objects: Iterable[QueueObject]) -> list[QueueObject]:
    """Return the objects sorted by kind, and Cohorts parents first. Raises Unreadable for a cycle of Cohorts."""
    by_kind = sorted(objects, key=lambda item: _ORDER[item.kind])
    cohorts = {item.name: item for item in by_kind if isinstance(item, Cohort)}
    sorter = TopologicalSorter(
        {name: {item.spec.parent_name} & cohorts.keys() for name, item in sorted(cohorts.items())}
    )
    try:
        rank = {name: position for position, name in enumerate(sorter.static_order())}
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]
        raise Unreadable(
            f'Cohort "{cycle[0]}": spec.parentName: closes a cycle of Cohorts: {" -> ".join(cycle)}; '
            "name a parent outside the cycle"
        ) from error
    return sorted(by_kind, key=lambda item: (_ORDER[item.kind], rank[item.name] if isinstance(item, Cohort) else 0))
