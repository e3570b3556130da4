"""Versions of queue objects in the database: histories, changes since a revision, and their replay in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select, tuple_

from admission.model.queues import QUEUE_OBJECTS
from admission.store.database.tables import queue_object_versions, queue_objects
from admission.store.records import QueueObjectVersion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import ColumnElement, Connection, RowMapping

    from admission.model.queues import QueueObject
    from admission.store.database.connection import Database
    from admission.store.records import Document

REPLAYED = 500
"""Versions in one chunk of a replay."""
MODELS: dict[str, type[QueueObject]] = {model.kind: model for model in QUEUE_OBJECTS}

_columns = queue_object_versions.c


@dataclass(frozen=True, slots=True)
class ReplayedVersions:
    """Successive versions of objects of one kind, with what is needed to present them as changes."""

    versions: tuple[QueueObjectVersion, ...]
    before: tuple[QueueObject, ...]
    """The objects before the first of these versions, of those that existed then."""
    current: tuple[QueueObject, ...]
    """Their newest state, of those that exist now."""


class Versions:
    """Reads of the versions of queue objects. Each write of an object has a revision, and one version, of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self, kind: str, name: str, *, namespace: str = "") -> tuple[QueueObjectVersion, ...]:
        """Return all versions of the object of this name, oldest first; to restore one, create or replace it."""
        return await self._select((_columns.kind == kind) & (_columns.namespace == namespace) & (_columns.name == name))

    async def changes_since(self, revision: int, *, kind: str | None = None) -> tuple[QueueObjectVersion, ...]:
        """Return all changes after `revision`, in order, including deletions; with `kind`, those of one kind."""
        later = _columns.revision > revision
        return await self._select(later if kind is None else later & (_columns.kind == kind))

    async def changed_since(self, revision: int, kind: str, *, most: int) -> set[tuple[str, str]] | None:
        """Return namespace and name of each object that changed after `revision`; None: by more than `most` changes."""
        later = (_columns.revision > revision) & (_columns.kind == kind)
        statement = select(_columns.namespace, _columns.name).where(later).limit(most + 1)
        rows = await self._database.read_sync(lambda connection: connection.execute(statement).all())
        return {(namespace, name) for namespace, name in rows} if len(rows) <= most else None

    async def replay(
        self, revision: int, kind: str, *, namespace: str | None = None, name: str | None = None
    ) -> AsyncIterator[ReplayedVersions]:
        """Yield the changes of objects of a kind after `revision`, in order, in chunks; each chunk is one transaction.

        With `namespace` and `name`, only those of objects there.
        """
        place = _columns.kind == kind
        if namespace is not None:
            place &= _columns.namespace == namespace
        if name is not None:
            place &= _columns.name == name
        while True:
            later = place & (_columns.revision > revision)
            chunk = await self._database.read_sync(partial(_replayed, later=later, place=place))
            if chunk.versions:
                yield chunk
            if len(chunk.versions) < REPLAYED:
                return
            revision = chunk.versions[-1].revision

    async def _select(self, condition: ColumnElement[bool]) -> tuple[QueueObjectVersion, ...]:
        statement = select(queue_object_versions).where(condition, _columns.kind.in_(MODELS)).order_by(_columns.id)
        rows = await self._database.read_sync(lambda connection: connection.execute(statement).mappings().all())
        return tuple(map(_version, rows))


def object_of(row: RowMapping | Document) -> QueueObject:
    """Return the object of a row of `queue_objects` or `queue_object_versions`."""
    metadata = {
        "name": row["name"],
        "namespace": row["namespace"],
        "labels": row["labels"],
        "annotations": row["annotations"],
        "uid": row["uid"],
        "generation": row["generation"],
        "resourceVersion": str(row["revision"]),
        "creationTimestamp": datetime.fromtimestamp(int(row["created_at"]), UTC),
        "managed_fields": row.get("managed_fields") or (),
    }
    return MODELS[row["kind"]].model_validate({"metadata": metadata, **row["content"]})


def _version(row: RowMapping) -> QueueObjectVersion:
    return QueueObjectVersion(
        object_of(row), row["operation"], row["author"], row["reason"], row["at"], row["revision"]
    )


def _replayed(connection: Connection, *, later: ColumnElement[bool], place: ColumnElement[bool]) -> ReplayedVersions:
    """Read the first chunk of the versions that are `later`, of the objects at `place`."""
    # In the order of revisions, for which there is an index: PostgreSQL would search an order by id from the beginning.
    page = select(queue_object_versions).where(later).order_by(_columns.revision).limit(REPLAYED)
    rows = connection.execute(page).mappings().all()
    if not rows:
        return ReplayedVersions((), (), ())
    kind, first, last = rows[0]["kind"], rows[0]["revision"], rows[-1]["revision"]
    changed = select(_columns.namespace, _columns.name).where(place, _columns.revision.between(first, last))
    earlier = (
        select(_columns.namespace, _columns.name, func.max(_columns.revision).label("revision"))
        .where(place, _columns.revision < first, tuple_(_columns.namespace, _columns.name).in_(changed))
        .group_by(_columns.namespace, _columns.name)
        .subquery()
    )
    is_earlier = and_(*(_columns[name] == earlier.c[name] for name in ("namespace", "name", "revision")))
    before = select(queue_object_versions).join(earlier, is_earlier)
    before = before.where(_columns.kind == kind, _columns.operation != "delete")
    objects = queue_objects.c
    current = select(queue_objects).where(objects.kind == kind, tuple_(objects.namespace, objects.name).in_(changed))
    versions = tuple(map(_version, rows))
    known = {version.revision: version.object for version in versions}
    return ReplayedVersions(
        versions,
        tuple(map(object_of, connection.execute(before).mappings())),
        tuple(known.get(row["revision"]) or object_of(row) for row in connection.execute(current).mappings()),
    )
