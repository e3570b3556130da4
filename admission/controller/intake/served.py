"""Which kinds the API server serves, and in which version: custom resources come and go with their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.cluster.errors import BadAnswer, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from admission.cluster.client import Client, Object
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds


async def served_versions(client: Client, kinds: Iterable[Kind]) -> dict[Kind, str]:
    """The version of each kind to use: the first that it knows of those served. What is not served is left out.

    Asks for the list of groups, which every user may read, and for the resources of those that a kind is in.
    Raises ClusterError.
    """
    offered = {
        group["name"]: {version["version"] for version in group["versions"]}
        for group in _items(await client.get("/apis"), "groups")
    }
    found: dict[Kind, str] = {}
    resources: dict[str, frozenset[str]] = {}
    for kind in kinds:
        for version in kind.versions:
            if version not in offered.get(kind.group, ()):
                continue
            path = f"/apis/{kind.group}/{version}"
            if path not in resources:
                resources[path] = await _resources(client, path)
            if kind.plural in resources[path]:
                found[kind] = version
                break
    return found


def watched(kind: Kind) -> str:
    """The label selector of the objects of a kind that are watched; empty: all are."""
    return f"{kind.watched_label}=true" if kind.watched_label else ""


async def listed(client: Client, kinds: Kinds, kind: Kind) -> AsyncIterator[list[Object]]:
    """All watched objects of a kind, page by page; none if the API server has no such kind. Raises ClusterError."""
    try:
        params = {"labelSelector": selector} if (selector := watched(kind)) else None
        async for page in client.list_pages(kinds.path(kind), params=params):
            yield page["items"]
    except NotFound:
        if not kind.is_custom:
            raise


async def _resources(client: Client, path: str) -> frozenset[str]:
    try:
        answer = await client.get(path)
    except NotFound:  # it went since the groups were listed
        return frozenset()
    return frozenset(resource["name"] for resource in _items(answer, "resources"))


def _items(answer: Object, field: str) -> list[dict[str, Any]]:
    items = answer.get(field)
    if not isinstance(items, list):
        raise BadAnswer(f"the API server's discovery document has no list of {field}")
    return items
