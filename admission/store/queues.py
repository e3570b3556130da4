"""Queue objects: written one at a time, each write a version with its author, checked against the others.

A write is one transaction: read, check, write the row, add the version. A dry run does all of it and rolls back.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, insert, select, update

from admission.model.queues import QUEUE_OBJECTS, ClusterQueue, Cohort, LocalQueue
from admission.store.commit import next_revision
from admission.store.errors import AlreadyExists, Conflict, NotFound
from admission.store.records import QueueObjectVersion
from admission.store.references import check_deletion, check_parents
from admission.store.tables import head, queue_object_versions, queue_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.queues import QueueObject
    from admission.store.database import Database
    from admission.store.records import Document

_MODELS: dict[str, type[QueueObject]] = {model.kind: model for model in QUEUE_OBJECTS}


class Queues:
    """The ResourceFlavors, ClusterQueues, Cohorts, LocalQueues and WorkloadPriorityClasses in the database.

    What is returned has uid, generation, resourceVersion and creationTimestamp in its metadata. `reason` is why the
    author made the change, in the author's words.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float], changed: Callable[[int], None]) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed

    async def list(self, kind: str, *, namespace: str | None = None) -> tuple[QueueObject, ...]:
        """All objects of a kind, sorted by namespace and name; of one namespace if that is given."""
        columns = queue_objects.c
        statement = select(queue_objects).where(columns.kind == kind).order_by(columns.namespace, columns.name)
        if namespace is not None:
            statement = statement.where(columns.namespace == namespace)
        async with self._database.read() as connection:
            return tuple(map(_object, (await connection.execute(statement)).mappings()))

    async def get(self, kind: str, name: str, *, namespace: str = "") -> QueueObject:
        """One object. Raises NotFound."""
        async with self._database.read() as connection:
            return _object(await _existing(connection, (kind, namespace, name)))

    async def revision(self) -> int:
        """That of the last write to the database, of whatever kind."""
        async with self._database.read() as connection:
            revision: int = (await connection.execute(select(head.c.revision))).scalar_one()
        return revision

    async def create(self, obj: QueueObject, *, author: str, reason: str = "", dry_run: bool = False) -> QueueObject:
        """Write an object that is not there yet.

        Raises AlreadyExists, and InvalidObject for a cycle of Cohorts.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            if await _find(connection, obj.key) is not None:
                raise AlreadyExists(f"{_title(obj.key)} exists already; replace it, or choose another name")
            await check_parents(connection, obj)
            now = self._clock()
            row = _row(obj) | {"uid": str(uuid.uuid4()), "generation": 1, "created_at": now, "revision": revision}
            await connection.execute(insert(queue_objects), row)
            await _add_version(connection, row, "create", author=author, reason=reason, at=now)
        return self._announce(row, dry_run=dry_run)

    async def replace(self, obj: QueueObject, *, author: str, reason: str = "", dry_run: bool = False) -> QueueObject:
        """Write an object over the one of the same name; if nothing differs, nothing is written.

        `metadata.resourceVersion` and `metadata.uid`, where given, must be those of the object that is there. Raises
        NotFound, Conflict, and InvalidObject for a cycle of Cohorts.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            old = await _existing(connection, obj.key)
            _check_preconditions(old, resource_version=obj.metadata.resource_version, uid=obj.metadata.uid)
            await check_parents(connection, obj)
            row = {**old, **_row(obj)}
            if row == dict(old):
                await connection.rollback()
                return _object(old)
            row |= {"generation": old["generation"] + (row["content"] != old["content"]), "revision": revision}
            await connection.execute(update(queue_objects).where(_is(obj.key)), row)
            await _add_version(connection, row, "replace", author=author, reason=reason, at=self._clock())
        return self._announce(row, dry_run=dry_run)

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "",
        resource_version: str = "",
        uid: str = "",
        author: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> QueueObject:
        """Take an object away and return what it was.

        Raises NotFound, and Conflict if it is not the one of that `resource_version` or `uid`, or still in use.
        """
        key = kind, namespace, name
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            old = await _existing(connection, key)
            _check_preconditions(old, resource_version=resource_version, uid=uid)
            await check_deletion(connection, _object(old))
            await connection.execute(delete(queue_objects).where(_is(key)))
            row = {**old, "revision": revision}
            await _add_version(connection, row, "delete", author=author, reason=reason, at=self._clock())
        return self._announce(row, dry_run=dry_run)

    async def versions(self, kind: str, name: str, *, namespace: str = "") -> tuple[QueueObjectVersion, ...]:
        """All that was ever written under this name, oldest first; to restore one, create or replace it."""
        columns = queue_object_versions.c
        return await self._versions((columns.kind == kind) & (columns.namespace == namespace) & (columns.name == name))

    async def changes_since(self, revision: int) -> tuple[QueueObjectVersion, ...]:
        """All changes after `revision`, in their order, deletions included."""
        return await self._versions(queue_object_versions.c.revision > revision)

    async def _versions(self, condition: ColumnElement[bool]) -> tuple[QueueObjectVersion, ...]:
        statement = select(queue_object_versions).where(condition).order_by(queue_object_versions.c.id)
        async with self._database.read() as connection:
            rows = (await connection.execute(statement)).mappings().all()
        return tuple(
            QueueObjectVersion(_object(row), row["operation"], row["author"], row["reason"], row["at"], row["revision"])
            for row in rows
        )

    def _announce(self, row: Document, *, dry_run: bool) -> QueueObject:
        if not dry_run:
            self._changed(row["revision"])
        return _object(row)


async def all_objects(connection: AsyncConnection) -> tuple[QueueObject, ...]:
    """Every queue object there is, each kind before those that name it."""
    rows = (
        await connection.execute(select(queue_objects).order_by(queue_objects.c.namespace, queue_objects.c.name))
    ).mappings()
    order = {kind: position for position, kind in enumerate(_MODELS)}
    return tuple(sorted(map(_object, rows), key=lambda obj: order[obj.kind]))


def _row(obj: QueueObject) -> Document:
    """The columns that follow from what the user wrote."""
    kind, namespace, name = obj.key
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "parent": _parent(obj),
        "cluster_queue": obj.spec.cluster_queue if isinstance(obj, LocalQueue) else "",
        "labels": dict(obj.metadata.labels),
        "annotations": dict(obj.metadata.annotations),
        "content": obj.model_dump(mode="json", by_alias=True, exclude={"metadata"}, exclude_none=True),
    }


def _parent(obj: QueueObject) -> str:
    match obj:
        case ClusterQueue():
            return obj.spec.cohort_name
        case Cohort():
            return obj.spec.parent_name
        case _:
            return ""


def _object(row: RowMapping | Document) -> QueueObject:
    metadata = {
        "name": row["name"],
        "namespace": row["namespace"],
        "labels": row["labels"],
        "annotations": row["annotations"],
        "uid": row["uid"],
        "generation": row["generation"],
        "resourceVersion": str(row["revision"]),
        "creationTimestamp": datetime.fromtimestamp(int(row["created_at"]), UTC),
    }
    return _MODELS[row["kind"]].model_validate({"metadata": metadata, **row["content"]})


async def _find(connection: AsyncConnection, key: tuple[str, str, str]) -> Document | None:
    row = (await connection.execute(select(queue_objects).where(_is(key)))).mappings().one_or_none()
    return None if row is None else dict(row)


async def _existing(connection: AsyncConnection, key: tuple[str, str, str]) -> Document:
    row = await _find(connection, key)
    if row is None:
        raise NotFound(f"{_title(key)} does not exist")
    return row


def _is(key: tuple[str, str, str]) -> ColumnElement[bool]:
    kind, namespace, name = key
    columns = queue_objects.c
    return and_(columns.kind == kind, columns.namespace == namespace, columns.name == name)


def _title(key: tuple[str, str, str]) -> str:
    kind, namespace, name = key
    return f'{kind} "{namespace}/{name}"' if namespace else f'{kind} "{name}"'


def _check_preconditions(row: Document, *, resource_version: str, uid: str) -> None:
    title = _title((row["kind"], row["namespace"], row["name"]))
    if uid and uid != row["uid"]:
        raise Conflict(f"{title} was deleted and made anew (uid {row['uid']}, not {uid}); read it again")
    if resource_version and resource_version != str(row["revision"]):
        raise Conflict(
            f"{title} has changed meanwhile (resourceVersion {row['revision']}, not {resource_version}); "
            "read it again and apply your change to that"
        )


async def _add_version(
    connection: AsyncConnection, row: Document, operation: str, *, author: str, reason: str, at: float
) -> None:
    kept = {name: value for name, value in row.items() if name not in ("parent", "cluster_queue")}
    version = {**kept, "operation": operation, "author": author, "reason": reason, "at": at}
    await connection.execute(insert(queue_object_versions), version)
