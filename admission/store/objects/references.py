"""What queue objects owe each other: no cycle of Cohorts, nothing deleted that others still name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from admission.model.errors import InvalidObject
from admission.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from admission.store.database.tables import admissions, queue_objects, workloads
from admission.store.errors import Conflict
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.queues import QueueObject

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
    match obj:
        case ClusterQueue():
            uses = {
                "LocalQueue": _objects(LocalQueue.kind).where(queue_objects.c.cluster_queue == obj.name),
                "workload": _workloads().where(workloads.c.cluster_queue == obj.name),
            }
        case ResourceFlavor():
            holders = select(admissions.c.workload_uid).where(
                admissions.c.to_at.is_(None), admissions.c.flavor == obj.name
            )
            uses = {"workload": _workloads().where(workloads.c.uid.in_(holders))}
            for kind in (ClusterQueue.kind, Cohort.kind):
                rows = await connection.execute(_objects(kind).add_columns(queue_objects.c.content))
                _refuse(obj, kind, [row.name for row in rows if obj.name in _flavors(row.content)])
        case AdmissionCheck():
            uses = {}
            rows = await connection.execute(_objects(ClusterQueue.kind).add_columns(queue_objects.c.content))
            _refuse(obj, ClusterQueue.kind, [row.name for row in rows if obj.name in _checks(row.content)])
        case _:
            return
    for kind, statement in uses.items():
        rows = await connection.execute(statement)
        _refuse(obj, kind, [f"{row.namespace}/{row.name}" for row in rows])


def _objects(kind: str) -> Select[tuple[str, str]]:
    columns = queue_objects.c
    return select(columns.namespace, columns.name).where(columns.kind == kind).order_by(columns.namespace, columns.name)


def _workloads() -> Select[tuple[str, str]]:
    columns = workloads.c
    return select(columns.namespace, columns.name).where(UNFINISHED).order_by(columns.created_at).limit(_NAMED + 1)


def _flavors(content: dict[str, dict[str, list[dict[str, list[dict[str, str]]]]]]) -> set[str]:
    return {flavor["name"] for group in content["spec"]["resourceGroups"] for flavor in group["flavors"]}


def _checks(content: dict[str, dict[str, dict[str, list[dict[str, str]]]]]) -> set[str]:
    strategy = content["spec"].get("admissionChecksStrategy") or {}
    return {rule["name"] for rule in strategy.get("admissionChecks", ())}


def _refuse(obj: QueueObject, kind: str, names: list[str]) -> None:
    if names:
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise Conflict(f'{obj.kind} "{obj.name}" is in use by {kind} {shown}; move or delete that first')
