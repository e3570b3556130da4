"""Arguments that name objects: `cq`, `clusterqueue/team-a`, `job/train`, `-n team-a`, `-l team=a`."""

from __future__ import annotations

import asyncio
import difflib
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from admission.api.registry import RESOURCES, by_name
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.api.registry import Resource
    from admission.client import Sluice
    from admission.model.queues import QueueObject


KUBERNETES_TYPES: Final = ("job", "jobs", "job.batch", "jobs.batch", "pod", "pods")
"""Types of Kubernetes that users may try here, although their objects are shown as workloads."""
_TIMEOUT = 2.0
"""Seconds after which completion offers no names: the shell's prompt is blocked meanwhile."""
_MAX_NAMES = 1000
"""Names that completion offers at most."""


class ObjectTarget(NamedTuple):
    """One object named on the command line."""

    resource: Resource
    name: str

    @property
    def qualified_name(self) -> str:
        """Its name as kubectl prints it: `clusterqueue.sluice.dev/team-a`."""
        return qualified_name(self.resource.singular, self.name)


def complete_type(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a type, or after `TYPE/` the name of an object."""
    kind, slash, start = incomplete.partition("/")
    if slash:
        return [CompletionItem(f"{kind}/{name}") for name in _names(ctx, kind) if name.startswith(start)]
    return [CompletionItem(name) for resource in RESOURCES for name in resource.names if name.startswith(kind.lower())]


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of an object of the type that precedes it."""
    return [CompletionItem(name) for name in _names(ctx, ctx.params.get("what") or "") if name.startswith(incomplete)]


def complete_workload(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a workload, as the name of its Job."""
    return [CompletionItem(name) for name in _names(ctx, "workloads") if name.startswith(incomplete)]


def refuse_empty(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Click callback: return the name or names. Raises BadParameter if one that was given is empty.

    It is that of an unset variable, and without a name many commands select all objects.
    """
    is_given = ctx.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
    if is_given and (value == "" or (isinstance(value, tuple) and "" in value)):
        raise click.BadParameter("a name is empty; check whether a variable is unset")
    return value


namespace_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of LocalQueues and workloads.  [default: the context's namespace, or default]",
)
what_argument = click.argument("what", metavar="TYPE[/NAME]", shell_complete=complete_type)
names_argument = click.argument(
    "names", metavar="[NAME]...", nargs=-1, callback=refuse_empty, shell_complete=complete_name
)
name_argument = click.argument(
    "name", metavar="[NAME]", required=False, callback=refuse_empty, shell_complete=complete_name
)
workload_argument = click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
selector_options = (
    click.option(
        "-l", "--selector", default="", metavar="SELECTOR", help="Filter by labels, for example team=a,tier!=test."
    ),
    click.option(
        "--field-selector", default="", metavar="SELECTOR", help="Filter by fields, for example spec.queueName=gpu."
    ),
)
"""`-l` and `--field-selector`."""


def resource_named(kind: str) -> Resource:
    """Return a resource by its plural, singular or short name. Raises UsageError with the most similar name."""
    resource = by_name(kind)
    if resource is None:
        known = [name for resource in RESOURCES for name in resource.names]
        near = difflib.get_close_matches(kind.lower(), known, n=1)
        if kind.lower() in KUBERNETES_TYPES:
            raise click.UsageError("queued Jobs and pods are shown as workloads: use wl, or wl/NAME with a Job's name")
        hint = f'did you mean "{near[0]}"?' if near else f"available types: {', '.join(r.plural for r in RESOURCES)}."
        raise click.UsageError(f'unknown resource type "{kind}"; {hint}')
    return resource


def resources_named(kinds: str) -> list[Resource]:
    """Return the resources of a list such as `cq,lq`, without duplicates. Raises UsageError."""
    return [*dict.fromkeys(map(resource_named, kinds.split(",")))]


def resolve(what: str, names: Sequence[str]) -> list[ObjectTarget] | Resource:
    """Return the objects of `TYPE NAME...` or `TYPE/NAME...`, or the resource if there is only a `TYPE`.

    Raises UsageError for an unknown type, and for arguments that mix the two forms.
    """
    kind, slash, name = what.partition("/")
    if not slash:
        resource = resource_named(kind)
        return [ObjectTarget(resource, _plain(name, what)) for name in names] if names else resource
    targets = []
    for pair in (what, *names):
        kind, slash, name = pair.partition("/")
        if slash and not name:
            raise click.UsageError(f'"{pair}" has no name; use {kind}/NAME, or {kind} for all')
        if not slash:
            raise click.UsageError(f'"{what}" and "{pair}" cannot be combined; use TYPE NAME... or TYPE/NAME...')
        targets.append(ObjectTarget(resource_named(kind), name))
    return targets


def resolve_one(what: str, name: str | None) -> ObjectTarget:
    """Return the single object of `TYPE NAME` or `TYPE/NAME`. Raises UsageError, also for a type alone."""
    found = resolve(what, [] if name is None else [name])
    if not isinstance(found, list) or len(found) != 1:
        raise click.UsageError(f"exactly one object must be named; use {what.partition('/')[0]}/NAME")
    return found[0]


def parse_workload_name(text: str) -> tuple[str, str]:
    """Split `train`, `job/train` or `wl/job-train-a1b2c` into kind (empty: any) and name. Raises UsageError."""
    kind, slash, name = text.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.UsageError(f'"{text}" is not a workload name; use the name of a Job, KIND/NAME or workload/NAME')
    resource = by_name(kind) if kind else None
    return ("" if resource is not None and resource.plural == "workloads" else kind), name


def namespace_for(resource: Resource, namespace: str | None, sluice: Sluice) -> str | None:
    """Return the namespace for requests about a resource: the given one, else the client's; None if cluster-scoped."""
    return (namespace or sluice.namespace) if resource.namespaced else None


def field_value(text: str) -> str:
    """Escape a value for a field selector: backslash, comma and equals sign."""
    return re.sub(r"([\\,=])", r"\\\1", text)


def qualified_name(singular: str, name: str) -> str:
    """Return the name of a queue object as kubectl prints it: `clusterqueue.sluice.dev/team-a`."""
    return f"{singular}.sluice.dev/{name}"


def title(item: QueueObject) -> str:
    """Return the title of an object in messages: `localqueue/team-a/main`."""
    return "/".join(filter(None, (item.kind.lower(), item.metadata.namespace, item.name)))


def _plain(name: str, what: str) -> str:
    if "/" in name:
        raise click.UsageError(f'"{what}" and "{name}" cannot be combined; use TYPE NAME... or TYPE/NAME...')
    return name


def names_of(resource: Resource, parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of objects of `resource`, requested with the flags of the command line, for completion.

    Empty if the request fails or takes longer than `_TIMEOUT`: completion prints no errors.
    """
    from admission.cli.arguments.connection import ApiConnection, connect

    flags = {key: parameters.get(key) for key in ("server", "token_file", "ca", "kubeconfig", "context")}

    async def names() -> list[str]:
        found: list[str] = []
        async with asyncio.timeout(_TIMEOUT), connect(ApiConnection(**flags), warn=lambda _: None) as sluice:
            where = namespace_for(resource, parameters.get("namespace"), sluice)
            async with aclosing(sluice.documents(resource.plural).list(namespace=where)) as items:
                async for item in items:
                    # A workload is offered by the name of its Job, which users know; all commands accept it.
                    found.append((item.get("spec", {}).get("object") or item["metadata"])["name"])
                    if len(found) == _MAX_NAMES:
                        break
        return found

    try:
        return list(dict.fromkeys(asyncio.run(names())))
    except (SluiceError, TimeoutError):
        return []


def _names(ctx: click.Context, kind: str) -> list[str]:
    resource = by_name(kind)
    return [] if resource is None else names_of(resource, ctx.params)
