"""Plan of an import, with an entry for each object: pure functions of what Kueue and Sluice have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from admission.cli.arguments.foreign import api_group, import_source, is_kustomization, without_equivalent
from admission.cli.arguments.object_files import in_dependency_order
from admission.cli.arguments.objects import title
from admission.cli.commands.import_kueue import multi_kueue
from admission.cli.commands.import_kueue.source import GROUP
from admission.cli.errors import Unreadable
from admission.cli.output.manifests import comparable
from admission.cli.output.tables import aligned
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, near_kind, parse_manifest, to_manifest
from admission.model.names import LAST_APPLIED
from admission.model.queues import QUEUE_OBJECTS, AdmissionCheck

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from admission.cli.commands.import_kueue.takeover import Takeover
    from admission.model.manifests import Document
    from admission.model.queues import QueueObject

_KINDS = {model.kind for model in QUEUE_OBJECTS}
_USER_METADATA = ("name", "namespace", "labels", "annotations")
_OURS = API_VERSION.partition("/")[0]
_SUGGESTED = f"{GROUP}/v1beta2"


class Action(StrEnum):
    """Action of an import for one object."""

    CREATE = "create"
    UPDATE = "update"
    SAME = "same"
    """It is here already, and as it should be."""
    TAKE_OVER = "take over"
    """A Job that keeps running, with the quota that Kueue assigned."""
    DEACTIVATE = "deactivate"
    """A Job that Kueue has deactivated: it stays so."""
    QUEUE = "queue"
    """A pending Job: nothing is written, Sluice queues it when it starts."""
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """Entry of the plan: one object, the action for it, and notes on differences from Kueue."""

    action: Action
    what: str
    """Title of the object: `localqueue/team-a/main`."""
    notes: tuple[str, ...] = ()
    item: QueueObject | None = None
    """The queue object; None for a Job, and for an unsupported kind."""
    takeover: Takeover | None = None
    """The records to write for a Job; None: nothing is written for it."""

    @property
    def writes(self) -> bool:
        """Whether the action writes anything."""
        return self.action in (Action.CREATE, Action.UPDATE, Action.TAKE_OVER, Action.DEACTIVATE)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The queue objects of an import, each behind those that it refers to, and the entries of what is skipped."""

    items: list[QueueObject]
    notes: Mapping[tuple[str, str, str], tuple[str, ...]]
    """Notes on differences from Kueue, by key of the object."""
    skipped: list[PlanEntry]


def parse(documents: Iterable[Document], *, namespace: str) -> Parsed:
    """Parse the queue objects among the documents; others are skipped. `namespace` is that of LocalQueues without one.

    Raises Unreadable with every fault: invalid objects, and those that are defined twice; or for a cycle of Cohorts.
    """
    faults: list[str] = []
    skipped: list[PlanEntry] = []
    items: dict[tuple[str, str, str], QueueObject] = {}
    notes: dict[tuple[str, str, str], tuple[str, ...]] = {}
    translated = multi_kueue.translate(documents)
    skipped += [PlanEntry(Action.SKIP, _title_of(document), (why,)) for document, why in translated.skipped]
    for document in translated.documents:
        if why := _reason_to_skip(document):
            skipped.append(PlanEntry(Action.SKIP, _title_of(document), (why,)))
            continue
        left_out: list[str] = []
        try:
            item = parse_manifest(
                _without_server_metadata(document.body),
                source=document.source,
                namespace=namespace,
                unknown=left_out,
                suggested=_SUGGESTED,
            )
        except InvalidObject as error:
            faults.append(str(error))
            continue
        if item.key in items:
            faults.append(f'{document.source}: duplicate {item.kind} "{item.name}"; keep one of the two')
        items[item.key] = item
        notes[item.key] = tuple(f"{text}; left out, as if it were not set" for text in left_out) + _differences(item)
        notes[item.key] += translated.notes.get(item.key, ())
    if faults:
        raise Unreadable("\n".join(faults))
    return Parsed(in_dependency_order(items.values()), notes, skipped)


def plan_objects(parsed: Parsed, present: Mapping[tuple[str, str, str], QueueObject]) -> list[PlanEntry]:
    """Return the plan for the queue objects, with what is skipped at the end; `present` are Sluice's objects by key."""
    names = {(kind, name) for kind, _, name in (*present, *parsed.notes)}
    entries = [
        PlanEntry(
            action_for(item, present.get(item.key)), title(item), parsed.notes[item.key] + _missing(item, names), item
        )
        for item in parsed.items
    ]
    return entries + parsed.skipped


def _missing(item: QueueObject, names: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Return a note for each object that `item` needs, and that is not among the (kind, name) after the import."""
    needed = [reference for reference in item.references if reference.needed]
    content = to_manifest(item) if needed else {}
    return tuple(
        f"{reference.path}: there is no {reference.kind} {name}; nothing is admitted before it is created"
        for reference in needed
        for name in dict.fromkeys(reference.names(content))
        if (reference.kind, name) not in names
    )


def _reason_to_skip(document: Document) -> str:
    """Return why a document is not imported; empty: it is, or should be, a queue object."""
    body, group, kind = document.body, api_group(document.body), str(document.body.get("kind") or "")
    if source := import_source(body):
        return f"it is not Kueue's: use sluice import {source}"
    if kind in _KINDS or group == _OURS:
        return ""
    if (group, kind) == (GROUP, "Workload"):
        return "Workloads are read from a cluster only, with the Jobs that they belong to"
    consequence = without_equivalent(body)
    if consequence or (group == GROUP and not near_kind(kind)):
        return f"Sluice has no {kind}: {consequence or 'it is not imported'}"
    is_other = group != GROUP and (body.get("apiVersion") or is_kustomization(document))
    return "it is not a queue object" if is_other else ""


def _title_of(document: Document) -> str:
    """Return the title of a document that is skipped: `job/team-a/train`, or the file of one without a name."""
    metadata = document.body.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return document.source
    return "/".join(
        str(part)
        for part in (str(document.body.get("kind")).lower(), metadata.get("namespace"), metadata["name"])
        if part
    )


def _differences(item: QueueObject) -> tuple[str, ...]:
    """Return the notes on an object that means less in Sluice than in Kueue."""
    if isinstance(item, AdmissionCheck) and item.is_part_of_kueue:
        name = item.spec.controller_name
        return (f"spec.controllerName: {name} works with Kueue only: workloads wait until another controller answers",)
    return ()


def lines(plan: Sequence[PlanEntry]) -> list[str]:
    """Return the plan as a table, with the notes of each entry below its row."""
    shown: list[str] = []
    rows = aligned([("ACTION", "OBJECT"), *((entry.action.value, entry.what) for entry in plan)])
    shown.append(rows[0])
    for row, entry in zip(rows[1:], plan, strict=True):
        shown.append(row)
        shown += [f"             {note}" for note in entry.notes]
    return shown


def summary(plan: Sequence[PlanEntry], *, done: bool) -> str:
    """Return the number of objects for each action, and whether the plan was carried out."""
    counts = Counter(entry.action for entry in plan)
    parts = [f"{counts[each]} {each.value}" for each in Action if counts[each]]
    if not any(entry.writes for entry in plan):
        return f"{', '.join(parts) or 'nothing found'}: there is nothing to do"
    return f"{', '.join(parts)}: {'done' if done else 'nothing was written; use --yes to write'}"


def _without_server_metadata(body: Mapping[str, object]) -> dict[str, object]:
    """Return a manifest without the metadata that Kueue's API server has added."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return dict(body)
    kept = {key: metadata[key] for key in _USER_METADATA if key in metadata}
    if isinstance(annotations := kept.get("annotations"), dict):
        kept["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**body, "metadata": kept}


def action_for(item: QueueObject, present: QueueObject | None) -> Action:
    """Return the action by which `present`, the existing object of that name, becomes `item`."""
    if present is None:
        return Action.CREATE
    same = comparable(to_manifest(item)) == comparable(to_manifest(present))
    return Action.SAME if same else Action.UPDATE
