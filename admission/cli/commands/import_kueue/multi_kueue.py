"""MultiKueue's objects as Sluice's: Clusters, ResourceFlavors that name their clusters, ClusterQueues that dispatch."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.cli.arguments.foreign import PROFILES, api_group
from admission.model.manifests import API_VERSION, Document
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
