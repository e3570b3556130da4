"""Plan of an import, with an entry for each object: pure functions of what Kueue and Sluice have.

MultiKueue's objects become Clusters, ResourceFlavors that name their clusters, and ClusterQueues that dispatch.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.cli.arguments.foreign import PROFILES, api_group, import_source, is_kustomization, without_equivalent
from admission.cli.arguments.object_files import in_dependency_order
from admission.cli.arguments.objects import title
from admission.cli.commands.import_kueue.source import GROUP
from admission.cli.errors import Unreadable
from admission.cli.output.manifests import comparable
from admission.cli.output.tables import aligned
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, Document, near_kind, parse_manifest, to_manifest
from admission.model.names import LAST_APPLIED
from admission.model.queues import QUEUE_OBJECTS, AdmissionCheck
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from admission.model.queues import QueueObject
    from admission.store.records import CheckRecord, Opened, Transition, WorkloadRecord

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
class Takeover:
    """Records to write for one Job."""

    record: WorkloadRecord
    transition: Transition
    opened: Opened | None = None
    """Its admission in the ledger; None: it holds no quota."""
    checks: tuple[CheckRecord, ...] = ()


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
    translated = translate(documents)
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


_GROUP: Final = "kueue.x-k8s.io"
_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
_MEANS: Final = (
    "spec.dispatch: its Jobs run in the clusters of its flavors, tried in the order of the MultiKueueConfig; without "
    "spec.managedBy, which Kueue's webhook has set and Sluice's does not, they stay suspended in the hub, and show the "
    "last status of their copy. Quotas of the clusters' own queues are not imported"
)
_UNNAMED: Final = "is also used without MultiKueue, or with other clusters: say in spec.clusters where its nodes are"

Key = tuple[str, str, str]


class Translated(NamedTuple):
    """Documents without MultiKueue's, the notes on those that were changed, and why others are skipped."""

    documents: list[Document]
    notes: dict[Key, tuple[str, ...]]
    skipped: list[tuple[Document, str]]


def translate(documents: Iterable[Document]) -> Translated:
    """Translate MultiKueue's objects; without any of them the documents are returned as they are."""
    documents = list(documents)
    clusters_of = {name: config["spec"].get("clusters") or [] for name, config in _named(documents, "MultiKueueConfig")}
    checks: dict[str, list[str]] = {}
    for name, check in _named(documents, "AdmissionCheck"):
        if check["spec"].get("controllerName") == _CONTROLLER:
            config = (check["spec"].get("parameters") or {}).get("name", "")
            checks[name] = list(map(str, clusters_of.get(config, ())))
    found = Translated([], {}, [])
    uses: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for _, queue in _named(documents, "ClusterQueue"):
        for flavor, clusters in _clusters_by_flavor(queue["spec"], checks).items():
            uses[flavor].add(clusters)
    providers = {name: _providers(profile) for name, profile in _named(documents, "ClusterProfile", group=PROFILES)}
    for document in documents:
        body = dict(document.body)
        kind, metadata, spec = body.get("kind"), body.get("metadata"), body.get("spec") or {}
        if api_group(body) != _GROUP or not isinstance(metadata, dict) or not isinstance(spec, dict):
            found.documents.append(document)
            continue
        name = str(metadata.get("name"))
        if kind == "MultiKueueCluster":
            _add_cluster(found, document, name, spec, providers)
        elif kind == "MultiKueueConfig":
            found.skipped.append(
                (document, "its clusters are named by the ResourceFlavors of ClusterQueues (spec.clusters)")
            )
        elif kind == "AdmissionCheck" and name in checks:
            found.skipped.append((document, "ClusterQueues that name it dispatch (spec.dispatch)"))
        elif kind == "ClusterQueue" and (by_flavor := _dispatched(spec, checks)):
            found.documents.append(Document(document.source, {**body, "spec": _without_checks(spec, checks)}))
            unclear = [f"flavor {flavor} {_UNNAMED}" for flavor in by_flavor if len(uses[flavor]) > 1]
            found.notes[kind, "", name] = (_MEANS, *unclear)
        elif kind == "ResourceFlavor" and len(uses[name]) == 1 and (clusters := next(iter(uses[name]))):
            found.documents.append(Document(document.source, {**body, "spec": {**spec, "clusters": list(clusters)}}))
        else:
            found.documents.append(document)
    return found


def _named(documents: Iterable[Document], kind: str, *, group: str = _GROUP) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and content of the objects of a kind that have a spec."""
    for document in documents:
        body = dict(document.body)
        metadata, is_kind = body.get("metadata"), api_group(body) == group and body.get("kind") == kind
        if is_kind and isinstance(metadata, dict) and isinstance(body.get("spec"), dict):
            yield str(metadata.get("name")), body


def _providers(profile: dict[str, Any]) -> str:
    """Return the access providers of a ClusterProfile and the addresses to which they give access, for a message."""
    status = profile.get("status") or {}
    found = status.get("accessProviders") or status.get("credentialProviders") or ()  # the former name
    return ", ".join(f"{each.get('name')} for {(each.get('cluster') or {}).get('server')}" for each in found)


def _add_cluster(
    found: Translated, document: Document, name: str, spec: dict[str, Any], providers: dict[str, str]
) -> None:
    if name == LOCAL:
        found.skipped.append((document, f"{LOCAL} is the name of the cluster of Sluice itself: give it another one"))
        return
    file = f"{name}.yaml"
    found.documents.append(
        Document(
            document.source,
            {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": {"kubeconfig": file}},
        )
    )
    source = spec.get("kubeConfig") or (spec.get("clusterSource") or {}).get("kubeConfig") or {}
    if source.get("location"):
        place, other = f"{source.get('locationType', 'Secret')} {source['location']}", ""
    else:
        profile = ((spec.get("clusterSource") or {}).get("clusterProfileRef") or {}).get("name")
        place = f"the ClusterProfile {profile}" if profile else "a ClusterProfile"
        known = f" ({named})" if (named := providers.get(str(profile))) else ""
        other = (
            f"; or write it with the address and certificate authority of an access provider of the profile{known}, "
            "and the execConfig of that name in Kueue's configuration as its exec plugin, whose command the image needs"
        )
    note = (
        f"its credentials are not imported from {place}: sluice cluster join {name} --dispatch makes {file}, with the "
        f"rights that Sluice needs there{other}"
    )
    found.notes["Cluster", "", name] = (note,)


def _dispatched(spec: dict[str, Any], checks: dict[str, list[str]]) -> list[str]:
    """Return the flavors of a ClusterQueue that it has in other clusters."""
    return [flavor for flavor, clusters in _clusters_by_flavor(spec, checks).items() if clusters]


def _clusters_by_flavor(spec: dict[str, Any], checks: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """Return the clusters of each flavor of a ClusterQueue by its MultiKueue checks; empty: it has none."""
    everywhere = {each for each in spec.get("admissionChecks") or () if each in checks}
    on_flavors: defaultdict[str, set[str]] = defaultdict(set)
    for rule in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ():
        if rule.get("name") in checks:
            for flavor in rule.get("onFlavors") or ("",):
                on_flavors[flavor].add(rule["name"])
    found = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            named = everywhere | on_flavors[""] | on_flavors[flavor["name"]]
            found[flavor["name"]] = tuple(sorted({cluster for check in named for cluster in checks[check]}))
    return found


def _without_checks(spec: dict[str, Any], checks: dict[str, list[str]]) -> dict[str, Any]:
    """Return the spec of a ClusterQueue that dispatches in place of its MultiKueue checks."""
    everywhere = [str(each) for each in spec.get("admissionChecks") or ()]
    rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    named = [*everywhere, *(str(rule.get("name")) for rule in rules)]
    order = list(dict.fromkeys(cluster for check in named for cluster in checks.get(check, ())))
    changed = {**copy.deepcopy(spec), "dispatch": {} if order == sorted(order) else {"clusters": order}}
    if "admissionChecks" in changed:
        changed["admissionChecks"] = [each for each in changed["admissionChecks"] or () if each not in checks]
    if strategy := changed.get("admissionChecksStrategy"):
        rest = [rule for rule in strategy.get("admissionChecks") or () if rule.get("name") not in checks]
        changed["admissionChecksStrategy"] = {**strategy, "admissionChecks": rest}
        if not rest:
            del changed["admissionChecksStrategy"]
    return changed
