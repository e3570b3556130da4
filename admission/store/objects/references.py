"""Integrity between queue objects: no cycle of Cohorts, and no deletion of an object that others name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from admission.model.errors import InvalidObject
from admission.model.queues import QUEUE_OBJECTS, ClusterQueue, Cohort, ResourceFlavor
from admission.store.database.tables import admissions, queue_objects, workloads
from admission.store.errors import Conflict
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.queues import QueueObject
    from admission.model.references import Reference

_NAMED = 3
"""How many dependants a message names."""


async def check_parents(connection: AsyncConnection, obj: QueueObject) -> None:
    """Raise InvalidObject if `obj`, once written, were its own ancestor. A Cohort need not exist to be named."""
    if not isinstance(obj, Cohort) or not obj.spec.parent_name:
        return
    columns = queue_objects.c
    rows = await connection.execute(select(columns.name, columns.parent).where(columns.kind == Cohort.kind))
    parents = {row.name: row.parent for row in rows} | {obj.name: obj.spec.parent_name}
    path = [obj.name]
    while (parent := parents.get(path[-1], "")) and parent not in path:
        path.append(parent)
    if parent == obj.name:
        message = f"closes a cycle of Cohorts: {' -> '.join([*path, parent])}; name a parent outside of it"
        raise InvalidObject([("spec.parentName", message)], subject=f'Cohort "{obj.name}"')


async def check_deletion(connection: AsyncConnection, obj: QueueObject) -> None:
    """Raise Conflict, naming some of them, if other objects or unfinished workloads need `obj`."""
    for model in reversed(QUEUE_OBJECTS):
        for reference in model.references:
            if reference.kind == obj.kind and reference.needed:
                _refuse(obj, model.kind, await _naming(connection, model, reference, obj.name))
    if isinstance(obj, ClusterQueue):
        in_use = workloads.c.cluster_queue == obj.name
    elif isinstance(obj, ResourceFlavor):
        columns = admissions.c
        holders = select(columns.workload_uid).where(columns.to_at.is_(None), columns.flavor == obj.name)
        in_use = workloads.c.uid.in_(holders)
    else:
        return
    rows = await connection.execute(_workloads().where(in_use))
    _refuse(obj, "workload", [f"{row.namespace}/{row.name}" for row in rows])


async def _naming(connection: AsyncConnection, model: type[QueueObject], reference: Reference, name: str) -> list[str]:
    """Names (`namespace/name` if they have one) of the objects of a kind whose reference names `name`."""
    columns = queue_objects.c
    statement = _objects(model.kind)
    if reference.column:
        found = list(await connection.execute(statement.where(columns[reference.column] == name)))
    else:
        rows = await connection.execute(statement.add_columns(columns.content))
        found = [row for row in rows if name in reference.names(row.content)]
    return [f"{row.namespace}/{row.name}" if model.namespaced else row.name for row in found]


def _objects(kind: str) -> Select[tuple[str, str]]:
    columns = queue_objects.c
    return select(columns.namespace, columns.name).where(columns.kind == kind).order_by(columns.namespace, columns.name)


def _workloads() -> Select[tuple[str, str]]:
    columns = workloads.c
    return select(columns.namespace, columns.name).where(UNFINISHED).order_by(columns.created_at).limit(_NAMED + 1)


def _refuse(obj: QueueObject, kind: str, names: list[str]) -> None:
    if names:
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise Conflict(f'{obj.kind} "{obj.name}" is in use by {kind} {shown}; move or delete that first')
