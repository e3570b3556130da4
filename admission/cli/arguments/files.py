"""Manifests from files, directories and standard input: checked all, and in an order in which they can be written."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.foreign import import_source
from admission.cli.configuration.local_file import url_fault
from admission.cli.errors import Unreadable
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_documents, parse_manifest
from admission.model.queues import QUEUE_OBJECTS, Cohort, ResourceFlavor
from admission.model.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from admission.model.manifests import Document
    from admission.model.queues import QueueObject

    Translated = Callable[[Mapping[str, list[Document]]], Iterable[tuple[str, QueueObject]]]

_SUFFIXES = (".yaml", ".yml", ".json")
_ORDER = {model.kind: position for position, model in enumerate(QUEUE_OBJECTS)}


def filename_option(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-f`; the command gets `paths`."""
    text = "File, directory or - for standard input; repeatable."
    return click.option("-f", "--filename", "paths", multiple=True, required=required, help=text)


def read_objects(
    paths: Iterable[str],
    *,
    namespace: str,
    translated: Translated | None = None,
    note: Callable[[str], None] | None = None,
) -> list[QueueObject]:
    """All objects of the files, each behind those that it names. Raises Unreadable with every fault found.

    `translated` gives what quota objects of other schedulers become, by the name of their import, each with what opens
    a message about it; None: they are faults. `note` is told of what is skipped; None: it goes to standard error.
    """
    faults: list[str] = []
    objects: dict[tuple[str, str, str], QueueObject] = {}
    foreign: dict[str, list[Document]] = {}
    for document in read_documents(paths):
        body = document.body
        if body.get("apiVersion") == "v1" and body.get("kind") == "Namespace":
            (note or print_note)(f"{document.source}: skipped a Namespace; the cluster has it")
            continue
        if source := import_source(body):
            foreign.setdefault(source, []).append(document)
            continue
        try:
            found = parse_manifest(body, source=document.source, namespace=namespace)
        except InvalidObject as error:
            faults.append(str(error))
            continue
        if found.key in objects:
            faults.append(f'{document.source}: {found.kind} "{found.name}" was given before; keep one of the two')
        objects[found.key] = found
    for title, made in _of_others(foreign, translated, faults):
        if made.key not in objects:
            objects[made.key] = made
        elif not isinstance(made, ResourceFlavor):
            faults.append(f'{title}: makes {made.kind} "{made.name}", which was given before; keep one of the two')
    if faults:
        raise Unreadable("\n".join(faults))
    return in_order(objects.values())


def print_note(text: str) -> None:
    """To standard error."""
    click.echo(f"note: {visible(text)}", err=True)


def _of_others(
    foreign: Mapping[str, list[Document]],
    translated: Translated | None,
    faults: list[str],
) -> Iterable[tuple[str, QueueObject]]:
    """What quota objects of other schedulers become; what is wrong with them is added to `faults`."""
    if translated is None:
        for document in (each for documents in foreign.values() for each in documents):
            kind = document.body.get("kind", "queues.yaml")
            faults.append(f"{document.source}: is a {kind} of another system; name what sluice apply has made of it")
    elif foreign:
        try:
            return translated(foreign)
        except (InvalidObject, Unreadable) as error:
            faults.append(str(error))
    return ()


def read_documents(paths: Iterable[str]) -> list[Document]:
    """All documents of the files, as they are. Raises Unreadable if there is none."""
    documents = list(_documents(paths))
    if not documents:
        raise Unreadable(f"there is no object in {', '.join(paths)}")
    return documents


def in_order(objects: Iterable[QueueObject]) -> list[QueueObject]:
    """The objects by kind and, Cohorts, parents first. Raises Unreadable for a cycle of Cohorts."""
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
            "name a parent outside of it"
        ) from error
    return sorted(by_kind, key=lambda item: (_ORDER[item.kind], rank[item.name] if isinstance(item, Cohort) else 0))


def _documents(paths: Iterable[str]) -> Iterator[Document]:
    for path in paths:
        for source, text in _texts(path):
            try:
                yield from parse_documents(text, source=source)
            except InvalidObject as error:
                raise Unreadable(str(error)) from error


def _texts(path: str) -> Iterator[tuple[str, str]]:
    try:
        if path == "-":
            yield "standard input", sys.stdin.read()
            return
        if fault := url_fault(path, "-f -"):
            raise Unreadable(fault)
        for file in _files(Path(path)):
            yield str(file), file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise Unreadable(f"there is no file or directory {path}; check -f")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise Unreadable(f"the directory {path} holds no {', '.join(_SUFFIXES)} file")
    return files
