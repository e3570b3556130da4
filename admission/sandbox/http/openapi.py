"""Minimal OpenAPI documents: they declare `fieldValidation`, which is all that kubectl looks up before a write.

Before it writes a `kind: List`, kubectl reads version 2 instead of 3. It leaves kinds that version 2 does not describe
to the server to validate, so that document describes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission.sandbox.aggregation.backend import Backend
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

_INFO: Final = {"title": "Kubernetes", "version": "v1.36.2"}
V2: Final = {"swagger": "2.0", "info": _INFO, "paths": {}}
"""The document at /openapi/v2, as JSON."""
V2_PROTOBUF: Final = b"".join(
    (b"\x0a\x03", b"2.0", b"\x12\x15", b"\x0a\x0a", b"Kubernetes", b"\x12\x07", b"v1.36.2", b"\x42\x00")
)
"""The same as the message `openapi.v2.Document` of gnostic: 1 swagger, 2 info (1 title, 2 version), 8 paths."""
V2_PROTOBUF_ACCEPT: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""Media type by which clients ask for it."""
V2_PROTOBUF_MEDIA: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Media type of the response: `@` is not allowed there."""


def index(registry: ObjectRegistry, backends: list[Backend]) -> Object:
    """Return the document at /openapi/v3, with links to the documents of extension API servers."""
    places = {_place(group, version) for group, version, _ in registry.resources}
    paths = {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in sorted(places)}
    for backend in backends:
        paths |= backend.openapi
    return {"paths": paths}


def document(registry: ObjectRegistry, group: str, version: str) -> Object:
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
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": {}}}


def _place(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"
