"""Minimal OpenAPI documents: they declare `fieldValidation`, which is all that kubectl looks up before a write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.sandbox.aggregation.backend import Backend
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import Registry


def index(registry: Registry, backends: list[Backend]) -> Object:
    """Return the document at /openapi/v3, with links to the documents of extension API servers."""
    places = {_place(group, version) for group, version, _ in registry.resources}
    paths = {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in sorted(places)}
    for backend in backends:
        paths |= backend.openapi
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Object:
    """Return the document of one group and version: each kind's patch operation with its parameter fieldValidation."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths: Object = {}
    for (known, served, plural), resource in registry.resources.items():
        if (known, served) == (group, version):
            scope = "/namespaces/{namespace}" if resource.namespaced else ""
            patch = {
                "parameters": [parameter],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
            }
            paths[f"/{_place(group, version)}{scope}/{plural}/{{name}}"] = {"patch": patch}
    info = {"title": "Kubernetes", "version": "v1.36.2"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _place(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"
