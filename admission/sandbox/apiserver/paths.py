"""Parsing of API paths: the resource, object and subresource that a URL names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PathTarget:
    """Resource, object or subresource of a request (RequestInfo in apiserver).

    `namespace` is None for requests across namespaces and for cluster-scoped resources, `name` empty for a collection.
    """

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    watch: bool = False  # the old /watch/ prefix


def parse(path: str) -> PathTarget | None:
    """Return the target of a resource path; None for any other path."""
    parts = path.strip("/").split("/")
    if len(parts) > 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    if rest[0] == "namespaces" and len(rest) > 2 and not (not group and rest[2] in ("status", "finalize")):
        namespace, plural, tail = rest[1], rest[2], rest[3:]
        return PathTarget(group, version, plural, namespace, *_tail(tail), watch=watch)
    return PathTarget(group, version, rest[0], None, *_tail(rest[1:]), watch=watch)


def _tail(parts: list[str]) -> tuple[str, str]:
    return (parts[0] if parts else "", "/".join(parts[1:]))
