"""Discovery of API groups, versions and resources; paths of health checks; version."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import orjson

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.auth.reviews import REVIEWS
from admission.sandbox.http import openapi

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.sandbox.aggregation.aggregator import Aggregator
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.resources import ServedResource, ServedSubresource

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "x",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
HEALTH = ("/healthz", "/livez", "/readyz")


class Discovery:
    """Discovery documents of the API server and the extension API servers."""

    def __init__(self, registry: ObjectRegistry, aggregator: Aggregator) -> None:
        self._registry = registry
        self._aggregator = aggregator

    def answer(self, path: str, accept: str) -> Object | None:
        """Return the document at a path; None: there is none. Raises ApiError (406)."""
        parts = [part for part in path.split("/") if part]
        match parts:
            case []:
                return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"]}
            case ["version"]:
                return self._version()
            case ["api"]:
                if aggregated := _wants_aggregated(accept):
                    return self._aggregated(core=True) if aggregated == "v2" else None
                address = {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
            case ["apis"]:
                if _wants_aggregated(accept):
                    return self._aggregated(core=False)
                return {
                    "kind": "APIGroupList",
                    "apiVersion": "v1",
                    "groups": [self._group(name) for name in self._groups()],
                }
            case ["apis", group] if group in self._groups():
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["api", "v1"]:
                return self._resources("", "v1")
            case ["apis", group, version] if version in self._versions(group):
                return self._resources(group, version)
            case ["openapi", "v2"]:
                return openapi.V2
            case ["openapi", "v3"]:
                return openapi.index(self._registry, self._aggregator.backends())
            case ["openapi", "v3", "api", "v1"]:
                return openapi.document(self._registry, "", "v1")
            case ["openapi", "v3", "apis", group, version] if version in self._versions(group):
                return openapi.document(self._registry, group, version)
        return None

    def _version(self) -> Object:
        minor = self._registry.minor
        if minor == int(VERSION["minor"]):
            return VERSION
        older = {"minor": str(minor), "emulationMinor": str(minor), "minCompatibilityMinor": str(minor - 1)}
        return {**VERSION, **older, "gitVersion": f"v1.{minor}.0"}

    def has_group(self, group: str) -> bool:
        return group in self._groups()

    def _groups(self) -> list[str]:
        found = [group for group, _, _ in self._registry.resources if group]
        found += [group for group, _ in REVIEWS]
        found += [backend.group for backend in self._aggregator.backends()]
        return list(dict.fromkeys(found))

    def _versions(self, group: str) -> list[str]:
        found = [version for known, version, _ in self._registry.resources if known == group]
        if any(known == group for known, _ in REVIEWS):
            found.append("v1")
        found += [backend.version for backend in self._aggregator.backends() if backend.group == group]
        return list(dict.fromkeys(found))

    def _group(self, group: str) -> Object:
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in self._versions(group)]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _members(self, group: str, version: str) -> Iterable[ServedResource]:
        found = [resource for (g, v, _), resource in self._registry.resources.items() if (g, v) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    # ------------------------------------------------------------------ one group version

    def _resources(self, group: str, version: str) -> Object:
        rows: list[Object] = []
        if not group:
            rows.append(
                {
                    "name": "bindings",
                    "singularName": "binding",
                    "namespaced": True,
                    "kind": "Binding",
                    "verbs": ["create"],
                }
            )
        for resource in self._members(group, version):
            rows.append(_row(resource))
            rows += [_sub_row(resource, sub) for sub in resource.subresources]
        for (known, plural), (kind, namespaced) in REVIEWS.items():
            if known == group:
                row = {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind}
                rows.append({**row, "verbs": ["create"]})
        api_version = f"{group}/{version}" if group else version
        head: Object = {"kind": "APIResourceList", "apiVersion": "v1"} if group else {"kind": "APIResourceList"}
        return {**head, "groupVersion": api_version, "resources": rows}

    # ------------------------------------------------------------------ aggregated discovery

    def _aggregated(self, *, core: bool) -> Object:
        groups = [""] if core else self._groups()
        items = []
        for group in groups:
            versions = [self._aggregated_version(group, version) for version in self._versions(group)]
            items.append({"metadata": {"name": group} if group else {}, "versions": versions})
        head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
        return {**head, "items": items}

    def _aggregated_version(self, group: str, version: str) -> Object:
        backend = self._aggregator.backend_for(f"/apis/{group}/{version}")
        if backend is None:
            resources, freshness = self._aggregated_resources(group, version), "Current"
        else:
            resources, freshness = backend.resources, "Current" if backend.available else "Stale"
        return {"version": version, "resources": resources, "freshness": freshness}

    def _aggregated_resources(self, group: str, version: str) -> list[Object]:
        found = [_aggregated_row(resource) for resource in self._members(group, version)]
        for (known, plural), (kind, namespaced) in REVIEWS.items():
            if known == group:
                found.append(
                    {
                        "resource": plural,
                        "responseKind": {"group": "", "version": "", "kind": kind},
                        "scope": "Namespaced" if namespaced else "Cluster",
                        "singularResource": kind.lower(),
                        "verbs": ["create"],
                    }
                )
        return found


def etag(document: Object) -> str:
    """Return a hash of a document."""
    return hashlib.sha256(orjson.dumps(document)).hexdigest().upper()


def _wants_aggregated(accept: str) -> str:
    """Return the accepted version of aggregated discovery, empty for the plain documents. Raises ApiError (406)."""
    entries = [entry.replace(" ", "") for entry in accept.split(",")]
    aggregated = [entry for entry in entries if "as=APIGroupDiscoveryList" in entry]
    for entry in entries:
        if entry in aggregated and "v=v2;" in entry + ";":
            return "v2"
        if entry not in aggregated and entry:
            return ""
    if aggregated:
        text = "only the following media types are accepted: application/json, application/yaml"
        raise ApiError(406, "NotAcceptable", text)
    return ""


def _row(resource: ServedResource) -> Object:
    row: Object = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        row["shortNames"] = list(resource.short)
    if resource.categories:
        row["categories"] = list(resource.categories)
    row["storageVersionHash"] = hashlib.sha256(resource.qualified.encode()).hexdigest()[:11] + "="
    return row


def _sub_row(resource: ServedResource, sub: ServedSubresource) -> Object:
    row: Object = {"name": f"{resource.plural}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
    if sub.group:
        row |= {"group": sub.group, "version": sub.version}
    return {**row, "kind": sub.kind or resource.kind, "verbs": list(sub.verbs)}


def _aggregated_row(resource: ServedResource) -> Object:
    row: Object = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": list(resource.verbs),
    }
    if resource.short:
        row["shortNames"] = list(resource.short)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.subresources:
        row["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind or resource.kind},
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]
    return row
