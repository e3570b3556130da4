"""Discovery: the kinds that the API server serves, and in which version.

Custom resources are served while their CustomResourceDefinition exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.cluster.errors import BadAnswer, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from admission.cluster.client import Client, Object
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds


async def served_versions(client: Client, kinds: Iterable[Kind]) -> dict[Kind, str]:
    """Return the version to use for each served kind: the first of `Kind.versions` that is served.

    Reads the list of API groups, which every user may read, and the resources of the groups that have a kind. Raises
    ClusterError.
    """
    groups = _items(await client.get("/apis"), "groups")
    try:
        offered = {group["name"]: {version["version"] for version in group["versions"]} for group in groups}
    except (KeyError, TypeError) as error:
        raise BadAnswer(f"the API server's list of groups cannot be read ({error!r})") from error
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
    """Return the label selector of the watched objects of a kind; empty: all are watched."""
    return f"{kind.watched_label}=true" if kind.watched_label else ""


async def listed(client: Client, kinds: Kinds, kind: Kind) -> AsyncIterator[list[Object]]:
    """Yield all watched objects of a kind, page by page; nothing if its CRD is not installed. Raises ClusterError."""
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
    except NotFound:  # deleted since the groups were listed
        return frozenset()
    resources = _items(answer, "resources")
    try:
        return frozenset(resource["name"] for resource in resources)
    except (KeyError, TypeError) as error:
        raise BadAnswer(f"the API server's list of resources at {path} cannot be read ({error!r})") from error


def _items(answer: Object, field: str) -> list[dict[str, Any]]:
    items = answer.get(field)
    if not isinstance(items, list):
        raise BadAnswer(f"the API server's discovery document has no list of {field}")
    return items
