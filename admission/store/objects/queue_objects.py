"""Queue objects: each write is a transaction and a version with its author, checked against the other objects.

A write is one transaction: read, check, write the row, add the version. A dry run does all of it and rolls back.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, delete, insert, select, update

from admission.model.errors import InvalidObject
from admission.model.names import STOP_REASON
from admission.model.queues import QUEUE_OBJECTS, Subscription
from admission.model.text import clean
from admission.store import audit_log
from admission.store.database.tables import head, queue_object_versions, queue_objects
from admission.store.errors import AlreadyExists, Conflict, NotFound
from admission.store.ledger import rollup
from admission.store.objects.change_log import tell_of_change
from admission.store.objects.references import check_deletion, check_parents
from admission.store.records import QueueObjectVersion
from admission.store.workloads.commit import next_revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.queues import QueueObject
    from admission.store.audit_log import Author
    from admission.store.database.connection import Database
    from admission.store.records import Document

CHANGE_REASON = "sluice.dev/change-reason"
"""The annotation with the reason of a change."""
_LONGEST_STOP_REASON: Final = 300
"""Characters of what is noted."""

_REFERENCE_COLUMNS = ("parent", "cluster_queue")
"""Names of other objects that the database searches by."""
_NOT_IN_VERSIONS = (*_REFERENCE_COLUMNS, "managed_fields")
# Writes come one after the other, so that the last version tells of them all; by its time, also of a restored database.
_NEWEST = (
    select(queue_object_versions.c.id, queue_object_versions.c.revision, queue_object_versions.c.at)
    .order_by(queue_object_versions.c.id.desc())
    .limit(1)
)
_MODELS: dict[str, type[QueueObject]] = {model.kind: model for model in QUEUE_OBJECTS}
_KNOWN_SINCE: Final = {Subscription.kind: "0007"}
"""Kinds on which code of an older schema than this fails: once there is one, it has to refuse the database."""


class Queues:
    """The queue objects in the database.

    What is returned has uid, generation, resourceVersion and creationTimestamp in its metadata. If the author gives no
    reason, a new value of the annotation `sluice.dev/change-reason` is one.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float], changed: Callable[[int], None]) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed
        self._read: dict[str, tuple[object, tuple[QueueObject, ...]]] = {}
        """By kind: all objects as they were last read, and the last version that was written before."""

    async def list(self, kind: str, *, namespace: str | None = None) -> tuple[QueueObject, ...]:
        """All objects of a kind, sorted by namespace and name; of one namespace if that is given."""
        found, _ = await self.snapshot(kind, namespace=namespace)
        return found

    async def snapshot(self, kind: str, *, namespace: str | None = None) -> tuple[tuple[QueueObject, ...], int]:
        """The result of `list`, and the revision of the database as of which it is.

        The objects are read when one was written since: the same tuple again says that nothing has changed.
        """
        columns = queue_objects.c
        last = self._read.get(kind, (None, ()))

        def query(connection: Connection) -> tuple[int, tuple[object, tuple[QueueObject, ...]]]:
            revision: int = connection.execute(select(head.c.revision)).scalar_one()
            newest = connection.execute(_NEWEST).one_or_none()
            if newest is None or newest == last[0]:
                return revision, last
            statement = select(queue_objects).where(columns.kind == kind).order_by(columns.namespace, columns.name)
            return revision, (newest, tuple(map(_object, connection.execute(statement).mappings())))

        revision, self._read[kind] = await self._database.read_sync(query)
        found = self._read[kind][1]
        if namespace is not None:
            found = tuple(item for item in found if item.metadata.namespace == namespace)
        return found, revision

    async def names(self, *kinds: str) -> dict[str, set[str]]:
        """The names of all objects of some kinds, by kind."""
        columns = queue_objects.c
        statement = select(columns.kind, columns.name).where(columns.kind.in_(kinds))
        found: dict[str, set[str]] = {kind: set() for kind in kinds}
        for kind, name in await self._database.read_sync(lambda connection: connection.execute(statement).all()):
            found[kind].add(name)
        return found

    async def members(self, cohort: str) -> tuple[str, ...]:
        """What names `cohort` as its own or as its parent: `ClusterQueue team-a`, `Cohort research`."""
        columns = queue_objects.c
        statement = select(columns.kind, columns.name).where(columns.parent == cohort)
        async with self._database.read() as connection:
            rows = await connection.execute(statement.order_by(columns.kind, columns.name))
            return tuple(f"{kind} {name}" for kind, name in rows)

    async def get(self, kind: str, name: str, *, namespace: str = "") -> QueueObject:
        """One object. Raises NotFound."""
        async with self._database.read() as connection:
            return _object(await _existing(connection, (kind, namespace, name)))

    async def revision(self) -> int:
        """The revision of the last write to the database."""
        async with self._database.read() as connection:
            revision: int = (await connection.execute(select(head.c.revision))).scalar_one()
        return revision

    async def create(self, obj: QueueObject, *, author: Author, dry_run: bool = False) -> QueueObject:
        """Write an object that is not there yet.

        Raises AlreadyExists, and InvalidObject for a cycle of Cohorts.
        """

        def new(old: QueueObject | None) -> QueueObject:
            if old is not None:
                raise AlreadyExists(f"{_title(obj.key)} exists already; replace it, or choose another name")
            return obj

        return await self.write(obj.key, new, author=author, dry_run=dry_run)

    async def replace(self, obj: QueueObject, *, author: Author, dry_run: bool = False) -> QueueObject:
        """Write an object over the one of the same name; if nothing differs, nothing is written.

        `metadata.resourceVersion` and `metadata.uid`, where given, must be those of the object that is there. Raises
        NotFound, Conflict, and InvalidObject for a cycle of Cohorts.
        """

        def other(old: QueueObject | None) -> QueueObject:
            if old is None:
                raise _not_found(obj.key)
            return obj

        return await self.write(obj.key, other, author=author, dry_run=dry_run)

    async def write(
        self,
        key: tuple[str, str, str],
        change: Callable[[QueueObject | None], QueueObject],
        *,
        author: Author,
        dry_run: bool = False,
    ) -> QueueObject:
        """Make the object `key` (kind, namespace, name) into what `change` makes of it; None is what is not there.

        Nobody else can write between what `change` sees and what it returns, so that no update is lost. It must not
        take long. If nothing differs, nothing is written. A resourceVersion or uid in what it returns must be that of
        the object that is there. Raises what `change` raises, Conflict, and InvalidObject for a cycle of Cohorts.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            old = await _find(connection, key)
            obj = change(None if old is None else _object(old))
            await check_parents(connection, obj)
            now = self._clock()
            if old is None:
                row = _noted(_row(obj), None, author)
                row |= {"uid": str(uuid.uuid4()), "generation": 1, "created_at": now, "revision": revision}
                await connection.execute(insert(queue_objects), row)
                await _record(connection, "create", author, None, row, at=now)
                if needed := _KNOWN_SINCE.get(obj.kind):
                    older = head.c.compatible_with < needed
                    await connection.execute(update(head).where(older).values(compatible_with=needed))
            else:
                _check_preconditions(
                    old, resource_version=obj.metadata.resource_version, uid=obj.metadata.uid, newest=revision
                )
                row = _noted({**old, **_row(obj)}, old, author)
                if row == old:
                    await connection.rollback()
                    return _object(old)
                row |= {"generation": old["generation"] + (row["content"] != old["content"]), "revision": revision}
                await connection.execute(update(queue_objects).where(_is(key)), row)
                await _record(connection, "replace", author, old, row, at=now)
        if not dry_run:
            tell_of_change(old, row, _with_reason(author, old, row))
        return self._announce(row, dry_run=dry_run)

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "",
        resource_version: str = "",
        uid: str = "",
        author: Author,
        dry_run: bool = False,
    ) -> QueueObject:
        """Delete an object and return it as it was.

        Raises NotFound, and Conflict if it is not the one of that `resource_version` or `uid`, or still in use.
        """
        key = kind, namespace, name
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            old = await _existing(connection, key)
            _check_preconditions(old, resource_version=resource_version, uid=uid, newest=revision)
            await check_deletion(connection, _object(old))
            await connection.execute(delete(queue_objects).where(_is(key)))
            row = {**old, "revision": revision}
            await _record(connection, "delete", author, old, row, at=self._clock())
        if not dry_run:
            tell_of_change(old, None, _with_reason(author, old, row))
        return self._announce(row, dry_run=dry_run)

    async def versions(self, kind: str, name: str, *, namespace: str = "") -> tuple[QueueObjectVersion, ...]:
        """All versions of the object of this name, oldest first; to restore one, create or replace it."""
        columns = queue_object_versions.c
        return await self._versions((columns.kind == kind) & (columns.namespace == namespace) & (columns.name == name))

    async def changes_since(self, revision: int, *, kind: str | None = None) -> tuple[QueueObjectVersion, ...]:
        """All changes after `revision`, in their order, deletions included; of one kind if that is given."""
        columns = queue_object_versions.c
        later = columns.revision > revision
        return await self._versions(later if kind is None else later & (columns.kind == kind))

    async def _versions(self, condition: ColumnElement[bool]) -> tuple[QueueObjectVersion, ...]:
        columns = queue_object_versions.c
        statement = select(queue_object_versions).where(condition, columns.kind.in_(_MODELS)).order_by(columns.id)
        rows = await self._database.read_sync(lambda connection: connection.execute(statement).mappings().all())
        return tuple(
            QueueObjectVersion(_object(row), row["operation"], row["author"], row["reason"], row["at"], row["revision"])
            for row in rows
        )

    def _announce(self, row: Document, *, dry_run: bool) -> QueueObject:
        if not dry_run:
            self._changed(row["revision"])
        return _object(row)


async def all_objects(connection: AsyncConnection) -> tuple[QueueObject, ...]:
    """Every queue object there is, each kind before those that name it.

    Not those of kinds that a later version has brought, before it was rolled back: they wait for its return.
    """
    columns = queue_objects.c
    known = select(queue_objects).where(columns.kind.in_(_MODELS)).order_by(columns.namespace, columns.name)
    rows = (await connection.execute(known)).mappings()
    order = {kind: position for position, kind in enumerate(_MODELS)}
    return tuple(sorted(map(_object, rows), key=lambda obj: order[obj.kind]))


def _row(obj: QueueObject) -> Document:
    """The columns of an object that follow from its manifest."""
    kind, namespace, name = obj.key
    content = obj.model_dump(mode="json", by_alias=True, exclude={"metadata"}, exclude_none=True)
    named = dict.fromkeys(_REFERENCE_COLUMNS, "")
    for reference in obj.references:
        if reference.column:
            named[reference.column] = next(reference.names(content), "")
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        **named,
        "labels": dict(obj.metadata.labels),
        "annotations": {key: text for key, text in obj.metadata.annotations.items() if key != STOP_REASON},
        "content": content,
        "managed_fields": [dict(entry) for entry in obj.metadata.managed_fields] or None,
    }


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
        "managed_fields": row.get("managed_fields") or (),
    }
    return _MODELS[row["kind"]].model_validate({"metadata": metadata, **row["content"]})


async def _find(connection: AsyncConnection, key: tuple[str, str, str]) -> Document | None:
    row = (await connection.execute(select(queue_objects).where(_is(key)))).mappings().one_or_none()
    return None if row is None else dict(row)


async def _existing(connection: AsyncConnection, key: tuple[str, str, str]) -> Document:
    row = await _find(connection, key)
    if row is None:
        raise _not_found(key)
    return row


def _not_found(key: tuple[str, str, str]) -> NotFound:
    kind, _, name = key
    return NotFound.of(_MODELS[kind].plural, name)


def _is(key: tuple[str, str, str]) -> ColumnElement[bool]:
    kind, namespace, name = key
    columns = queue_objects.c
    return and_(columns.kind == kind, columns.namespace == namespace, columns.name == name)


def _title(key: tuple[str, str, str]) -> str:
    kind, namespace, name = key
    return f'{kind} "{namespace}/{name}"' if namespace else f'{kind} "{name}"'


def _check_preconditions(row: Document, *, resource_version: str, uid: str, newest: int) -> None:
    """A resourceVersion is one of the database: who has seen the object as of then has seen its last change, or not."""
    title = _title((row["kind"], row["namespace"], row["name"]))
    if uid and uid != row["uid"]:
        raise Conflict(f"{title} was deleted and made anew (uid {row['uid']}, not {uid}); read it again")
    if not resource_version:
        return
    if not (resource_version.isascii() and resource_version.isdecimal() and len(resource_version) < 20):
        raise InvalidObject([("metadata.resourceVersion", f'"{resource_version}" is none; read the object again')])
    if not row["revision"] <= int(resource_version) < newest:
        raise Conflict(
            f"{title} has changed meanwhile (resourceVersion {row['revision']}, not {resource_version}); "
            "read it again and apply your change to that"
        )


async def _record(
    connection: AsyncConnection, operation: str, author: Author, old: Document | None, row: Document, *, at: float
) -> None:
    """Add the version and the audit's record of a write that leaves `row` (deletion: that took `row` away)."""
    author = _with_reason(author, old, row)
    kept = {name: value for name, value in row.items() if name not in _NOT_IN_VERSIONS}
    version = {**kept, "operation": operation, "author": author.name, "reason": author.reason, "at": at}
    await connection.execute(insert(queue_object_versions), version)
    await connection.run_sync(rollup.reopen, at)
    after = None if operation == "delete" else _audited(row)
    before = None if old is None else _audited(old)
    key = row["kind"], row["namespace"], row["name"]
    verb = "update" if operation == "replace" else operation
    await audit_log.record(connection, author, verb, key, at=at, revision=row["revision"], before=before, after=after)


def _noted(row: Document, old: Document | None, author: Author) -> Document:
    """The row with the reason for which the queue was stopped, as long as it is, for those who wait in it."""
    before, policy = (_stop_policy(one) for one in (old, row))
    if policy == "None":
        return row
    noted = "" if old is None else old["annotations"].get(STOP_REASON, "")
    # Whoever stops it once more, and changes nothing else, says why.
    is_as_before = old is not None and _compared(old) == _compared(row)
    given = clean(_with_reason(author, old, row).reason, longest=_LONGEST_STOP_REASON)
    if given and (policy != before or is_as_before):
        noted = given
    return {**row, "annotations": {**row["annotations"], STOP_REASON: noted}} if noted else row


def _compared(row: Document) -> tuple[Document, ...]:
    annotations = {key: text for key, text in row["annotations"].items() if key != STOP_REASON}
    return row["content"], row["labels"], annotations


def _stop_policy(row: Document | None) -> str:
    spec = row["content"].get("spec") if row is not None else None
    return spec.get("stopPolicy", "None") if spec else "None"


def _with_reason(author: Author, old: Document | None, row: Document) -> Author:
    # An annotation that was there before tells of an earlier change.
    noted = row["annotations"].get(CHANGE_REASON, "")
    if author.reason or (old is not None and noted == old["annotations"].get(CHANGE_REASON)):
        return author
    return replace(author, reason=noted)


def _audited(row: Document) -> Document:
    metadata = {name: row[name] for name in ("uid", "generation", "labels", "annotations") if row[name]}
    return {"metadata": metadata, **row["content"]}
