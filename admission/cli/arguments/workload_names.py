"""Finding the workload that a user means by the name of a Job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.cli.arguments.suggestions import similar_name
from admission.cli.errors import CommandError

if TYPE_CHECKING:
    from admission.client import Sluice, Workload


async def found_workload(sluice: Sluice, name: str, namespace: str | None, kind: str) -> Workload:
    """The workload of that name, or of the object of that name. Raises CommandError that says what may be wrong."""
    from admission.client import NotFound

    try:
        return await sluice.workloads.get(name, namespace=namespace, kind=kind)
    except NotFound as error:
        near = await similar_name(sluice, "workloads", name, namespace or sluice.namespace)
        hint = near or "is it the right namespace (-n), and has the object the label sluice.dev/queue-name?"
        raise CommandError(f'{error} in namespace "{namespace or sluice.namespace}"; {hint}') from error
