"""How users name what they mean: `cq`, `clusterqueue/team-a`, `-n team-a`, `-A`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from admission.api.registry import RESOURCES, by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.api.registry import Resource

DEFAULT_NAMESPACE = "default"

namespace_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "-n",
    "--namespace",
    default=DEFAULT_NAMESPACE,
    help=f"Namespace of LocalQueues and workloads.  [default: {DEFAULT_NAMESPACE}]",
)


def resolve(what: str, names: tuple[str, ...]) -> tuple[Resource, tuple[str, ...]]:
    """The resource and names meant by `TYPE`, `TYPE NAME...` or `TYPE/NAME`. Raises UsageError."""
    kind, slash, name = what.partition("/")
    if slash and (names or not name):
        raise click.UsageError(f'"{what}" and further names do not go together; write TYPE NAME... or TYPE/NAME')
    resource = by_name(kind)
    if resource is None:
        known = [name for resource in RESOURCES for name in resource.names]
        near = difflib.get_close_matches(kind.lower(), known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(r.plural for r in RESOURCES)}."
        raise click.UsageError(f'"{kind}" is no type of object; {hint}')
    return resource, (name,) if slash else names


def object_path(resource: Resource, name: str, namespace: str) -> str:
    """The path of one object; `namespace` does not matter for those that have none."""
    return f"{collection_path(resource, namespace)}/{quote(name, safe='')}"


def collection_path(resource: Resource, namespace: str) -> str:
    """The path of a list; an empty `namespace` means all of them."""
    return resource.collection(quote(namespace, safe="") if resource.namespaced else "")
