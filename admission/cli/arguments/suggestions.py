"""What a user may have meant by a name that is not there."""

from __future__ import annotations

import difflib
from contextlib import aclosing
from typing import TYPE_CHECKING

from admission.api.registry import by_name
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from admission.api.registry import Resource
    from admission.client import Sluice

_MOST = 1000
"""So many objects are looked at: the hint is not worth reading a hundred thousand workloads."""


async def similar_name(
    sluice: Sluice, plural: str, name: str, namespace: str | None = None, *, asked_in: str = ""
) -> str:
    """`did you mean "team-a"?`, or that it is in another namespace; empty if nothing is like it, or may not be read.

    Without a `namespace`, names of all namespaces are looked at; by who may not read them, those of `asked_in`.
    """
    from admission.client import Forbidden

    resource = by_name(plural)
    if resource is None or not name:
        return ""
    try:
        places = await _places(sluice, resource, namespace)
    except Forbidden:
        if namespace is not None or not asked_in:
            return ""
        return await similar_name(sluice, plural, name, asked_in)
    except SluiceError:
        return ""
    if name in places:
        return f'there is one in namespace "{places[name]}": add -n {places[name]}' if places[name] else ""
    near = difflib.get_close_matches(name, places, n=1)
    if not near:
        return ""
    where = f' in namespace "{places[near[0]]}"' if places[near[0]] and namespace is None else ""
    return f'did you mean "{near[0]}"{where}?'


async def _places(sluice: Sluice, resource: Resource, namespace: str | None) -> dict[str, str]:
    """Names, and the namespace of each (empty: it has none). Workloads also go by the names of their objects."""
    places: dict[str, str] = {}
    looked_at = 0
    async with aclosing(sluice.documents(resource.plural).list(namespace=namespace)) as items:
        async for item in items:
            metadata = item["metadata"]
            names = [metadata["name"], item.get("spec", {}).get("object", {}).get("name", "")]
            places |= {name: metadata.get("namespace", "") for name in reversed(names) if name}
            looked_at += 1
            if looked_at == _MOST:
                break
    return places
