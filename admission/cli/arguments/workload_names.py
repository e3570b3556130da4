"""Lookup of a workload by its name or by the name of its Job."""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

from admission.api.documents.workload_names import object_name
from admission.cli.arguments.job_kinds import is_kind
from admission.cli.arguments.suggestions import similar_name
from admission.cli.errors import CommandError
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.client import Sluice, Workload


@contextmanager
def kubectl_hint(verb: str, kind: str, name: str, namespace: str | None, *rest: str) -> Iterator[None]:
    """Context manager: if Sluice does not answer, raise CommandError with a `kubectl VERB` of the same effect."""
    from admission.client import Unavailable, Unreachable

    try:
        yield
    except (Unavailable, Unreachable) as error:
        where = ("-n", namespace) if namespace else ()
        command = shlex.join(["kubectl", verb, *_object(kind, name), *rest, *where])
        raise CommandError(f"{error}\nto do this without Sluice's API: {command}") from error


def _object(kind: str, name: str) -> tuple[str, str]:
    """Return kind and name of the object; a workload's name, such as `job-train-1a2b3`, contains both."""
    of_workload, _, _ = name.partition("-")
    if not kind and is_kind(of_workload) and re.fullmatch(r"[a-z]+-.+-[0-9a-f]{5}", name):
        return of_workload, object_name(name)
    return kind or "job", name


async def find_workload(sluice: Sluice, name: str, namespace: str | None, kind: str) -> Workload:
    """Return the workload of that name, or of the object of that name. Raises CommandError with a suggestion."""
    from admission.client import NotFound

    try:
        return await sluice.workloads.get(name, namespace=namespace, kind=kind)
    except NotFound as error:
        where = namespace or sluice.namespace
        other = await _of_another_kind(sluice, name, where) if kind else ""
        near = "" if other else await similar_name(sluice, "workloads", name, where)
        if kind and not near and namespace is None and not is_kind(kind):
            as_namespace = f"if {kind} is its namespace, use {name} -n {kind}"
            other = f"{other}; {as_namespace}" if other else as_namespace
        unknown = (
            "check the namespace (-n), that the object has the label sluice.dev/queue-name, "
            "and that no other controller manages it (spec.managedBy)"
        )
        hint = other or near or unknown
        raise CommandError(f'{error} in namespace "{where}"; {hint}') from error


async def _of_another_kind(sluice: Sluice, name: str, namespace: str) -> str:
    """Return a hint for a name that exists in the namespace, but not with the requested kind; empty: it does not."""
    try:
        found = await sluice.workloads.get(name, namespace=namespace)
    except SluiceError:  # a hint is not worth an error of its own; the caller reports the first one
        return ""
    kind = found.object_kind
    return f"the one there is of kind {kind}: use {kind.lower()}/{found.object_name}"
