"""Queue objects as last read, of which only those that have changed since are read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import and_, exists, select

from admission.store.database.tables import queue_object_versions, queue_objects
from admission.store.objects.versions import object_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from admission.model.queues import QueueObject

_versions, _objects = queue_object_versions.c, queue_objects.c
# Writes are serialised, so the last version identifies the state of all objects. Its time is compared as well, because
# a restored database may have the same id and revision for another version.
_IDENTITY = select(_versions.id, _versions.revision, _versions.at)
_NEWEST = _IDENTITY.order_by(_versions.id.desc()).limit(1)


class _Version(NamedTuple):
    id: int
    revision: int
    at: float


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """All objects of a kind, sorted by namespace and name, at a version of the database."""

    newest: _Version | None = None
    """The newest version (of any kind) when the objects were read; None: nothing has been written yet."""
    objects: tuple[QueueObject, ...] = ()


def read_objects(connection: Connection, kind: str, last: KnownObjects) -> KnownObjects:
    """Return the objects of a kind. `last`, the result of an earlier call, saves reading those that are unchanged.

    Unchanged objects are identical to those of `last`, and so is the tuple if none has changed.
    """
    newest = _version(connection, _NEWEST)
    if newest is None or newest == last.newest:
        return KnownObjects(None, ()) if newest is None else last
    of_kind = _objects.kind == kind
    if last.newest is None or not _is_still_there(connection, last.newest):
        statement = select(queue_objects).where(of_kind).order_by(_objects.namespace, _objects.name)
        return KnownObjects(newest, tuple(map(object_of, connection.execute(statement).mappings())))
    is_later = and_(_versions.id > last.newest.id, _versions.kind == kind)
    if not connection.execute(select(exists().where(is_later))).scalar_one():
        return KnownObjects(newest, last.objects)
    changed = select(queue_objects).where(of_kind, _objects.revision > last.newest.revision)
    known = {item.key[1:]: item for item in (*last.objects, *map(object_of, connection.execute(changed).mappings()))}
    names = select(_objects.namespace, _objects.name).where(of_kind).order_by(_objects.namespace, _objects.name)
    return KnownObjects(newest, tuple(known[namespace, name] for namespace, name in connection.execute(names)))


def _is_still_there(connection: Connection, version: _Version) -> bool:
    """Return whether the database still has this version: otherwise it was restored from a backup."""
    return _version(connection, _IDENTITY.where(_versions.id == version.id)) == version


def _version(connection: Connection, statement: Select[tuple[int, int, float]]) -> _Version | None:
    row = connection.execute(statement).one_or_none()
    return None if row is None else _Version(row.id, row.revision, row.at)
