"""Integrity of references of queue objects: no cycles of Cohorts or Budgets, no deletion of what is referenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import or_, select

from admission.model.errors import InvalidObject
from admission.model.queues import (
    QUEUE_OBJECTS,
    Budget,
    Cluster,
    ClusterQueue,
    Cohort,
    Reservation,
    ResourceFlavor,
    Topology,
)
from admission.model.topology import HOSTNAME
from admission.store.database.tables import admissions, queue_objects, workloads
from admission.store.errors import Conflict
from admission.store.records import State
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from admission.model.queues import QueueObject
    from admission.model.references import ReferenceField

_MAX_NAMED = 3
"""Number of dependent objects that an error message lists."""


def check_parents(connection: Connection, obj: QueueObject) -> None:
    """Raise InvalidObject if `obj` would become its own ancestor. A parent that does not exist is allowed."""
    columns = queue_objects.c
    if isinstance(obj, Cohort) and obj.spec.parent_name:
        field, own = "parentName", obj.spec.parent_name
        rows = connection.execute(select(columns.name, columns.parent).where(columns.kind == Cohort.kind))
        parents = {row.name: row.parent for row in rows}
    elif isinstance(obj, Budget) and obj.spec.parent:
        field, own = "parent", obj.spec.parent
        rows = connection.execute(select(columns.name, columns.content).where(columns.kind == Budget.kind))
        parents = {row.name: row.content["spec"].get("parent", "") for row in rows}
    else:
        return
    parents[obj.name] = own
    path = [obj.name]
    while (parent := parents.get(path[-1], "")) and parent not in path:
        path.append(parent)
    if parent == obj.name:
        message = f"closes a cycle of {obj.kind}s: {' -> '.join([*path, parent])}; name a parent outside of it"
        raise InvalidObject([(f"spec.{field}", message)], subject=f'{obj.kind} "{obj.name}"')


def check_change(old: QueueObject, new: QueueObject) -> None:
    """Raise InvalidObject if `new` changes what the placement of admitted workloads, or a right to write, rests on.

    As in Kueue, a flavor keeps its Topology, and the levels of a Topology may only change while the last one is the
    hostname, by which admitted pods are placed.
    """
    if isinstance(old, ResourceFlavor) and isinstance(new, ResourceFlavor):
        before, after = old.spec.topology_name, new.spec.topology_name
        if before is not None and after != before:
            message = f"cannot be changed from {before}; create another ResourceFlavor"
            raise InvalidObject([("spec.topologyName", message)], subject=f'ResourceFlavor "{new.name}"')
    if isinstance(old, Reservation) and isinstance(new, Reservation):
        before, after = old.spec.cluster_queue, new.spec.cluster_queue
        if before != after:  # whoever may reserve in one may not take reservations from another
            message = f"cannot be changed from {before}; create another Reservation"
            raise InvalidObject([("spec.clusterQueue", message)], subject=f'Reservation "{new.name}"')
    if isinstance(old, Topology) and isinstance(new, Topology) and old.spec != new.spec:
        last = old.spec.labels[-1], new.spec.labels[-1]
        if last != (HOSTNAME, HOSTNAME):
            message = f"cannot be changed unless the last level is {HOSTNAME} before and after; create another Topology"
            raise InvalidObject([("spec.levels", message)], subject=f'Topology "{new.name}"')


def check_deletion(connection: Connection, obj: QueueObject) -> None:
    """Raise Conflict, which lists some of them, if other objects or workloads with quota depend on `obj`."""
    for model in reversed(QUEUE_OBJECTS):
        for reference in model.references:
            if reference.kind == obj.kind and reference.needed:
                _refuse(obj, model.kind, _dependants(connection, model, reference, obj.name))
    if isinstance(obj, Cluster):
        holding = workloads.c.state.in_((State.ADMITTED.value, State.EVICTING.value))
        dispatched = select(admissions.c.workload_uid).where(
            admissions.c.to_at.is_(None), admissions.c.cluster == obj.name
        )
        here = or_(workloads.c.cluster == obj.name, workloads.c.uid.in_(dispatched))
        rows = connection.execute(_workloads().where(here, holding))
        _refuse(obj, "workload", [f"{row.namespace}/{row.name}" for row in rows])
        return
    columns = admissions.c
    if isinstance(obj, ClusterQueue):
        held_in = columns.cluster_queue
    elif isinstance(obj, ResourceFlavor):
        held_in = columns.flavor
    else:
        return
    holders = select(columns.workload_uid).where(columns.to_at.is_(None), held_in == obj.name)  # open rows
    rows = connection.execute(_workloads().where(workloads.c.uid.in_(holders)))
    _refuse(obj, "workload", [f"{row.namespace}/{row.name}" for row in rows])


def _dependants(connection: Connection, model: type[QueueObject], reference: ReferenceField, name: str) -> list[str]:
    """Return the objects of a kind that reference `name`, as `namespace/name`, or `name` if cluster-scoped."""
    columns = queue_objects.c
    statement = _objects(model.kind)
    if reference.column:
        found = list(connection.execute(statement.where(columns[reference.column] == name)))
    else:
        rows = connection.execute(statement.add_columns(columns.content))
        found = [row for row in rows if name in reference.names(row.content)]
    return [f"{row.namespace}/{row.name}" if model.namespaced else row.name for row in found]


def _objects(kind: str) -> Select[tuple[str, str]]:
    columns = queue_objects.c
    return select(columns.namespace, columns.name).where(columns.kind == kind).order_by(columns.namespace, columns.name)


def _workloads() -> Select[tuple[str, str]]:
    columns = workloads.c
    return select(columns.namespace, columns.name).where(UNFINISHED).order_by(columns.created_at).limit(_MAX_NAMED + 1)


def _refuse(obj: QueueObject, kind: str, names: list[str]) -> None:
    if names:
        shown = ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
        raise Conflict(f'{obj.kind} "{obj.name}" is in use by {kind} {shown}; move or delete that first')
