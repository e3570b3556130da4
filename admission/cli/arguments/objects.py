"""How users name what they mean: `cq`, `clusterqueue/team-a`, `-n team-a`, `-A`."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from admission.api.registry import RESOURCES, by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.api.registry import Resource
    from admission.client import Sluice


QUEUED: Final = ("job", "jobs", "job.batch", "jobs.batch", "pod", "pods")
"""Types of Kubernetes that users look for here."""


class Target(NamedTuple):
    """One object that a user named."""

    resource: Resource
    name: str

    @property
    def shown(self) -> str:
        """As kubectl prints it: `clusterqueue.sluice.dev/team-a`."""
        return shown(self.resource.singular, self.name)


def complete_type(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The types, or behind `TYPE/` the names."""
    kind, slash, start = incomplete.partition("/")
    if slash:
        return [CompletionItem(f"{kind}/{name}") for name in _names(ctx, kind) if name.startswith(start)]
    return [CompletionItem(name) for resource in RESOURCES for name in resource.names if name.startswith(kind.lower())]


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the type that stands before."""
    return [CompletionItem(name) for name in _names(ctx, ctx.params.get("what") or "") if name.startswith(incomplete)]


def complete_workload(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of Jobs that are queued."""
    return [CompletionItem(name) for name in _names(ctx, "workloads") if name.startswith(incomplete)]


namespace_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "-n",
    "--namespace",
    help="Namespace of LocalQueues and workloads.  [default: that of the context, or default]",
)
what_argument = click.argument("what", metavar="TYPE[/NAME]", shell_complete=complete_type)
names_argument = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)
workload_argument = click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
selector_options = (
    click.option("-l", "--selector", default="", help="Only objects with these labels, such as team=a,tier!=test."),
    click.option("--field-selector", default="", help="Only objects with these fields, such as spec.queueName=gpu."),
)


def resource_named(kind: str) -> Resource:
    """The resource that a user means. Raises UsageError with the nearest name."""
    resource = by_name(kind)
    if resource is None:
        known = [name for resource in RESOURCES for name in resource.names]
        near = difflib.get_close_matches(kind.lower(), known, n=1)
        if kind.lower() in QUEUED:
            raise click.UsageError("what is queued is shown as workloads: write wl, or wl/NAME with a Job's name")
        hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(r.plural for r in RESOURCES)}."
        raise click.UsageError(f'"{kind}" is no type of object; {hint}')
    return resource


def resources_named(kinds: str) -> list[Resource]:
    """The resources of `cq,lq`, each once. Raises UsageError."""
    return [*dict.fromkeys(map(resource_named, kinds.split(",")))]


def resolve(what: str, names: Sequence[str]) -> list[Target] | Resource:
    """The objects meant by `TYPE NAME...` or `TYPE/NAME...`, or the resource of a `TYPE` alone. Raises UsageError."""
    kind, slash, name = what.partition("/")
    if not slash:
        resource = resource_named(kind)
        return [Target(resource, _plain(name, what)) for name in names] if names else resource
    targets = []
    for pair in (what, *names):
        kind, slash, name = pair.partition("/")
        if slash and not name:
            raise click.UsageError(f'"{pair}" names no object; write {kind}/NAME, or {kind} alone for all')
        if not slash:
            raise click.UsageError(f'"{what}" and "{pair}" do not go together; write TYPE NAME... or TYPE/NAME...')
        targets.append(Target(resource_named(kind), name))
    return targets


def resolve_one(what: str, name: str | None) -> Target:
    """The one object meant by `TYPE NAME` or `TYPE/NAME`. Raises UsageError."""
    found = resolve(what, [] if name is None else [name])
    if not isinstance(found, list) or len(found) != 1:
        raise click.UsageError(f"which one? write {what.partition('/')[0]}/NAME")
    return found[0]


def workload_named(text: str) -> tuple[str, str]:
    """Kind (empty: any) and name of the workload meant by `train`, `job/train`, `wl/job-train-a1b2c`."""
    kind, slash, name = text.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.UsageError(f'"{text}" names no workload; write a Job\'s name, KIND/NAME or workload/NAME')
    resource = by_name(kind) if kind else None
    return ("" if resource is not None and resource.plural == "workloads" else kind), name


def scope(resource: Resource, namespace: str | None, sluice: Sluice) -> str | None:
    """The namespace to look in; None for what has none."""
    return (namespace or sluice.namespace) if resource.namespaced else None


def field_value(text: str) -> str:
    """A value as a field selector writes it."""
    return re.sub(r"([\\,=])", r"\\\1", text)


def shown(singular: str, name: str) -> str:
    """An object as kubectl prints it: `clusterqueue.sluice.dev/team-a`."""
    return f"{singular}.sluice.dev/{name}"


def _plain(name: str, what: str) -> str:
    if "/" in name:
        raise click.UsageError(f'"{what}" and "{name}" do not go together; write TYPE NAME... or TYPE/NAME...')
    return name


def _names(ctx: click.Context, kind: str) -> Iterable[str]:
    from admission.cli.arguments.name_completion import names_of

    resource = by_name(kind)
    return [] if resource is None else names_of(resource, ctx.params)
