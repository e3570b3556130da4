"""What an import would do, object by object: a pure function of what Kueue has and what Sluice has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from admission.cli.arguments.files import in_dependency_order
from admission.cli.commands.diff import comparable
from admission.cli.commands.import_kueue.source import GROUP
from admission.cli.output.tables import aligned
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest, to_manifest
from admission.model.names import LAST_APPLIED
from admission.model.queues import QUEUE_OBJECTS, AdmissionCheck, ResourceFlavor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.cli.commands.import_kueue.takeover import Takeover
    from admission.model.manifests import Document
    from admission.model.queues import QueueObject

_KINDS = {model.kind for model in QUEUE_OBJECTS}
_KEPT = ("name", "namespace", "labels", "annotations")
_NOBODY = "workloads wait until another controller answers"
_UNSUPPORTED = {
    "Topology": "pods are placed by the Kubernetes scheduler alone, without topology-aware scheduling",
    "MultiKueueCluster": "Jobs run in this cluster only",
    "MultiKueueConfig": "Jobs run in this cluster only",
    "ProvisioningRequestConfig": "nodes are not provisioned before a Job is admitted",
}


class Action(StrEnum):
    """What is done about an object."""

    CREATE = "create"
    UPDATE = "update"
    SAME = "same"
    TAKE_OVER = "take over"
    DEACTIVATE = "deactivate"
    """It waits, but not in the queue."""
    QUEUE = "queue"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Line:
    """One object, what is done about it, and what will be different from Kueue."""

    action: Action
    what: str
    notes: tuple[str, ...] = ()
    item: QueueObject | None = None
    takeover: Takeover | None = None

    @property
    def writes(self) -> bool:
        """Whether anything is to be written."""
        return self.action in (Action.CREATE, Action.UPDATE, Action.TAKE_OVER, Action.DEACTIVATE)


def objects(
    documents: Iterable[Document], present: Mapping[tuple[str, str, str], QueueObject], *, namespace: str
) -> list[Line]:
    """The plan for the queue objects, each behind those that it names; raises InvalidObject for a faulty one."""
    skipped: list[Line] = []
    items: dict[tuple[str, str, str], QueueObject] = {}
    notes: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for document in documents:
        body = document.body
        if body.get("kind") not in _KINDS and str(body.get("apiVersion", "")).startswith(f"{GROUP}/"):
            skipped.append(_unsupported(body))
            continue
        left_out: list[str] = []
        item = parse_manifest(_users_part(body), source=document.source, namespace=namespace, unknown=left_out)
        if item.key in items:
            raise InvalidObject([("metadata.name", "was given before; keep one of the two")], subject=title(item))
        items[item.key] = item
        notes[item.key] = tuple(f"{text}; left out, as if it were not set" for text in left_out)
        if isinstance(item, AdmissionCheck) and item.spec.controller_name.startswith(f"{GROUP}/"):
            notes[item.key] += (f"spec.controllerName: {item.spec.controller_name} answers to Kueue alone: {_NOBODY}",)
        if isinstance(item, ResourceFlavor) and item.spec.topology_name is not None:
            notes[item.key] += (f"spec.topologyName: kept, and not acted on: {_UNSUPPORTED['Topology']}",)
    lines = [
        Line(action(item, present.get(item.key)), title(item), notes[item.key], item)
        for item in in_dependency_order(items.values())
    ]
    return lines + skipped


def lines(plan: Sequence[Line]) -> list[str]:
    """The plan as a table, with the notes below each row."""
    shown: list[str] = []
    rows = aligned([("ACTION", "OBJECT"), *((line.action.value, line.what) for line in plan)])
    shown.append(rows[0])
    for row, line in zip(rows[1:], plan, strict=True):
        shown.append(row)
        shown += [f"             {note}" for note in line.notes]
    return shown


def summary(plan: Sequence[Line], *, done: bool) -> str:
    """How many objects are created, updated and so on, and whether that was done."""
    counts = Counter(line.action for line in plan)
    parts = [f"{counts[each]} {each.value}" for each in Action if counts[each]]
    if not any(line.writes for line in plan):
        return f"{', '.join(parts) or 'nothing found'}: there is nothing to do"
    return f"{', '.join(parts)}: {'done' if done else 'nothing was written; add --yes'}"


def _users_part(body: Mapping[str, object]) -> dict[str, object]:
    """Without what Kueue's API server has added."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return dict(body)
    kept = {key: metadata[key] for key in _KEPT if key in metadata}
    if isinstance(annotations := kept.get("annotations"), dict):
        kept["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**body, "metadata": kept}


def action(item: QueueObject, present: QueueObject | None) -> Action:
    """What is to be done so that `present`, the object of that name, becomes `item`."""
    if present is None:
        return Action.CREATE
    same = comparable(to_manifest(item)) == comparable(to_manifest(present))
    return Action.SAME if same else Action.UPDATE


def title(item: QueueObject) -> str:
    """`localqueue/team-a/main`."""
    return "/".join(filter(None, (item.kind.lower(), item.metadata.namespace, item.name)))


def _unsupported(body: Mapping[str, object]) -> Line:
    kind, metadata = str(body.get("kind")), body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    instead = _UNSUPPORTED.get(kind, "it is left where it is")
    return Line(Action.SKIP, f"{kind.lower()}/{name}", (f"Sluice has no {kind}: {instead}",))
