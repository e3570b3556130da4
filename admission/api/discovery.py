"""The documents by which Kubernetes clients find out what is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.registry import API_VERSION, GROUP, RESOURCES, VERSION, Resource
from admission.api.replies import reply

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.replies import Document

_VERSION = {"groupVersion": API_VERSION, "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}


async def groups(request: web.Request) -> web.Response:
    """`/apis`: the one group."""
    del request
    return reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]})


async def group(request: web.Request) -> web.Response:
    """`/apis/sluice.dev`: its versions."""
    del request
    return reply({"kind": "APIGroup", "apiVersion": "v1", **_GROUP})


async def resources(request: web.Request) -> web.Response:
    """`/apis/sluice.dev/v1`: all resources and their verbs."""
    del request
    rows = [_row(resource) for resource in RESOURCES]
    return reply({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION, "resources": rows})


def _row(resource: Resource) -> Document:
    return {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        "shortNames": list(resource.short_names),
    }
