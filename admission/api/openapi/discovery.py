"""Discovery: `/apis`, the group and its resources, and aggregated discovery (apidiscovery.k8s.io)."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, GROUP, RESOURCES, SUBRESOURCES, UNNAMED, VERSION

if TYPE_CHECKING:
    from admission.api.http.responses import Document
    from admission.api.registry import Resource, Subresource

_VERSION: Final = {"groupVersion": API_VERSION, "version": VERSION}
_GROUP: Final = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}
_AGGREGATED: Final = ("v2", "v2beta1")
_CATEGORY: Final = "sluice"
"""Category of all queue objects: `kubectl get sluice`."""


async def groups(request: web.Request) -> web.Response:
    """Handle `/apis`: the list of groups, or aggregated discovery if the client accepts it."""
    version = _aggregated_version(request.headers.get("Accept", ""))
    if not version:
        return reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]}, headers={"Vary": "Accept"})
    body, etag = _aggregated(version)
    headers = {"Etag": etag, "Vary": "Accept", "Cache-Control": "public"}
    if etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    return web.Response(body=body, headers=headers)


async def group(request: web.Request) -> web.Response:
    """Handle `/apis/sluice.dev`: the versions of the group."""
    del request
    return reply({"kind": "APIGroup", "apiVersion": "v1", **_GROUP})


async def resources(request: web.Request) -> web.Response:
    """Handle `/apis/sluice.dev/v1`: all resources and subresources with their verbs."""
    del request
    rows = [_row(resource) for resource in (*RESOURCES, *UNNAMED)]
    rows += [_sub_row(subresource) for subresource in SUBRESOURCES]
    rows.sort(key=lambda row: str(row["name"]))
    return reply({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION, "resources": rows})


def _row(resource: Resource) -> Document:
    return {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **_names(resource),
    }


def _names(resource: Resource) -> Document:
    names: Document = {"shortNames": list(resource.short_names)} if resource.short_names else {}
    return names | ({"categories": [_CATEGORY]} if resource.is_of_queue_objects else {})


def _sub_row(subresource: Subresource) -> Document:
    return {
        "name": f"{subresource.of}/{subresource.name}",
        "singularName": "",
        "namespaced": subresource.resource.namespaced,
        "kind": subresource.kind,
        "verbs": list(subresource.verbs),
    }


# ---------------------------------------------------------------------- aggregated discovery


def _aggregated_version(accept: str) -> str:
    """Return the version of aggregated discovery that `Accept` prefers; empty if it prefers the plain list."""
    for entry in accept.split(","):
        media, *parts = (part.strip() for part in entry.split(";"))
        parameters = dict(part.split("=", 1) for part in parts if "=" in part)
        if media not in ("application/json", "*/*"):
            continue
        if not parameters.get("as"):
            return ""
        if (parameters["as"], parameters.get("g")) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io"):
            version = parameters.get("v", "")
            if version in _AGGREGATED:
                return version
    return ""


@cache
def _aggregated(version: str) -> tuple[bytes, str]:
    rows = [_aggregated_row(resource) for resource in sorted((*RESOURCES, *UNNAMED), key=lambda item: item.plural)]
    versions = [{"version": VERSION, "resources": rows, "freshness": "Current"}]
    document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": versions}],
    }
    body = orjson.dumps(document)
    return body, f'"{hashlib.sha256(body).hexdigest().upper()}"'


def _aggregated_row(resource: Resource) -> Document:
    subresources = [
        {"subresource": row.name, "responseKind": _response_kind(row.kind), "verbs": list(row.verbs)}
        for row in SUBRESOURCES
        if row.of == resource.plural
    ]
    return {
        "resource": resource.plural,
        "responseKind": _response_kind(resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_names(resource),
        **({"subresources": subresources} if subresources else {}),
    }


def _response_kind(kind: str) -> Document:
    return {"group": GROUP, "version": VERSION, "kind": kind}
