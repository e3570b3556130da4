"""Lookup of a workload by its name or by the name of its Job."""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

from admission.api.documents.workload_names import object_name
from admission.cli.arguments.job_kinds import is_kind
from admission.cli.errors import CommandError

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


async def find_workload(
    sluice: Sluice, name: str, namespace: str | None, kind: str, *, to_change: bool = False
) -> Workload:
    """Return the workload of that name, or of the object that has it or belongs to it. Raises CommandError.

    `to_change`: the name of an object that only belongs to it, such as one of its pods, does not suffice.
    """
    from admission.client import NotFound

    try:
        found = await sluice.workloads.get(name, namespace=namespace, kind=kind)
    except NotFound as error:
        hint = f"; if {kind} is its namespace, use {name} -n {kind}"
        raise CommandError(f"{error}{hint if kind and namespace is None and not is_kind(kind) else ''}") from error
    if to_change and name not in (found.name, found.object_name):
        raise CommandError(
            f'"{name}" belongs to {found.object_kind.lower()}/{found.object_name}, which is queued as a whole: '
            "use that name to change it"
        )
    return found
