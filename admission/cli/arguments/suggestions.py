"""Suggestions for the name of an object that does not exist."""

from __future__ import annotations

import difflib
from contextlib import aclosing
from typing import TYPE_CHECKING

from admission.api.registry import WORKLOADS, by_name
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from admission.api.registry import Resource
    from admission.client import Sluice

_MAX_OBJECTS = 1000
"""Objects that are read at most."""

_MAX_NAMES = 10
"""Names that a hint lists at most."""


async def similar_name(
    sluice: Sluice, plural: str, name: str, namespace: str | None = None, *, fallback_namespace: str = ""
) -> str:
    """Return a hint such as `did you mean "team-a"?`, or in which other namespace the object is; empty: none.

    Without `namespace` the names in all namespaces are compared, and without permission for that, those in
    `fallback_namespace`.
    """
    from admission.client import Forbidden

    resource = by_name(plural)
    if resource is None or not name or resource == WORKLOADS:  # the API itself has hints for names of workloads
        return ""
    try:
        namespaces = await _namespaces_by_name(sluice, resource, namespace)
    except Forbidden:
        if namespace is not None or not fallback_namespace:
            return ""
        return await similar_name(sluice, plural, name, fallback_namespace)
    except SluiceError:
        return ""
    if name in namespaces:
        # An object in the namespace that was searched was not found for another reason, which the caller knows.
        elsewhere = namespaces[name] if namespaces[name] != namespace else ""
        return f'there is one in namespace "{elsewhere}": add -n {elsewhere}' if elsewhere else ""
    near = difflib.get_close_matches(name, namespaces, n=1)
    if not near:
        return ""
    where = f' in namespace "{namespaces[near[0]]}"' if namespaces[near[0]] and namespace is None else ""
    return f'did you mean "{near[0]}"{where}?'


async def existing_queues(sluice: Sluice, namespace: str) -> str:
    """Return a hint with the names of the LocalQueues in a namespace; empty: they cannot be read."""
    names: list[str] = []
    try:
        async with aclosing(sluice.documents("localqueues").list(namespace=namespace)) as items:
            async for item in items:
                names.append(item["metadata"]["name"])
                if len(names) > _MAX_NAMES:
                    break
    except SluiceError:
        return ""
    if not names:
        return f'namespace "{namespace}" has no LocalQueue'
    more = ", ..." if len(names) > _MAX_NAMES else ""
    return f'the LocalQueues in namespace "{namespace}" are {", ".join(names[:_MAX_NAMES])}{more}'


async def _namespaces_by_name(sluice: Sluice, resource: Resource, namespace: str | None) -> dict[str, str]:
    """Return name -> namespace (empty: cluster-scoped)."""
    namespaces: dict[str, str] = {}
    count = 0
    async with aclosing(sluice.documents(resource.plural).list(namespace=namespace)) as items:
        async for item in items:
            namespaces[item["metadata"]["name"]] = item["metadata"].get("namespace", "")
            count += 1
            if count == _MAX_OBJECTS:
                break
    return namespaces
