"""Queue objects and their versions in the database: reads, and writes that add a version and an audit record.

A write is one transaction: read the object, check it against others, write the row, add the version and the audit
record. A dry run does all of it and rolls back.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, delete, exists, func, insert, select, tuple_, update

from admission.model.errors import InvalidObject
from admission.model.names import STOP_REASON
from admission.model.queues import (
    QUEUE_OBJECTS,
    Budget,
    BudgetRequest,
    Drain,
    PriceBook,
    ProvisioningRequestConfig,
    Reservation,
    Subscription,
    Topology,
    UserLimit,
    quotas_at,
    quotas_kept,
)
from admission.model.text import clean
from admission.store import audit_log
from admission.store.database.tables import head, queue_object_versions, queue_objects
from admission.store.errors import AlreadyExists, Conflict, NotFound
from admission.store.ledger import rollup
from admission.store.objects.change_log import log_change
from admission.store.objects.references import check_change, check_deletion, check_parents
from admission.store.records import QueueObjectVersion
from admission.store.workloads.commit import next_revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sqlalchemy import ColumnElement, Connection, RowMapping, Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.queues import QueueObject
    from admission.store.audit_log import Author
    from admission.store.database.connection import Database
    from admission.store.records import Document

REPLAYED = 500
"""Versions that are read, and converted, at a time."""
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
        """Return the versions that meet a condition, oldest first; other tasks go on while many are converted."""
        statement = select(queue_object_versions).where(condition, _columns.kind.in_(MODELS))
        statement = statement.order_by(_columns.revision).limit(REPLAYED)
        found: list[QueueObjectVersion] = []
        while True:
            later = statement.where(_columns.revision > found[-1].revision) if found else statement
            rows = await self._database.read_sync(partial(_rows, statement=later))
            if rows:
                found += await asyncio.to_thread(lambda rows: list(map(_version, rows)), rows)
            if len(rows) < REPLAYED:
                return tuple(found)


def _rows(connection: Connection, *, statement: Select[Any]) -> Sequence[RowMapping]:
    return connection.execute(statement).mappings().all()


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


CHANGE_REASON = "sluice.dev/change-reason"
"""Annotation with the reason of a change."""
_MAX_STOP_REASON: Final = 300
"""Characters that are kept of the reason for a stop."""

_REFERENCE_COLUMNS = ("parent", "cluster_queue")
"""Columns with names of referenced objects, by which rows can be selected."""
_NOT_VERSIONED = (*_REFERENCE_COLUMNS, "managed_fields")
_REQUIRED_SCHEMA: Final = {
    Subscription.kind: "0007", Topology.kind: "0008", Budget.kind: "0010", ProvisioningRequestConfig.kind: "0011",
    Reservation.kind: "0013",
    Drain.kind: "0015", UserLimit.kind: "0016", PriceBook.kind: "0018", BudgetRequest.kind: "0019",
}  # fmt: skip
"""Kinds that code of an older schema than this cannot handle: once there is such an object, `compatible_with` of the
database is raised, so that older code refuses it."""


class Queues(Versions):
    """The queue objects in the database.

    Returned objects have uid, generation, resourceVersion and creationTimestamp in their metadata. If the author gives
    no reason, a new value of the annotation `sluice.dev/change-reason` is the reason.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float], on_commit: Callable[[int], None]) -> None:
        super().__init__(database)
        self._clock = clock
        self._on_commit = on_commit
        self._known: dict[str, KnownObjects] = {}
        """By kind: the objects as last read."""

    async def list(self, kind: str, *, namespace: str | None = None) -> tuple[QueueObject, ...]:
        """Return all objects of a kind, sorted by namespace and name; with `namespace`, those of one namespace."""
        found, _ = await self.snapshot(kind, namespace=namespace)
        return found

    async def snapshot(self, kind: str, *, namespace: str | None = None) -> tuple[tuple[QueueObject, ...], int]:
        """Return the result of `list`, and the revision of the database at which it was read.

        Only objects that have changed since the last call are read again: an identical object has not changed.
        """

        def query(connection: Connection) -> tuple[int, KnownObjects]:
            revision: int = connection.execute(select(head.c.revision)).scalar_one()
            return revision, read_objects(connection, kind, last)

        last = self._known.get(kind, KnownObjects())
        revision, self._known[kind] = await self._database.read_sync(query)
        found = self._known[kind].objects
        if namespace is not None:
            found = tuple(item for item in found if item.metadata.namespace == namespace)
        return found, revision

    async def names(self, *kinds: str) -> dict[str, set[str]]:
        """Return the names of all objects of these kinds, by kind."""
        columns = queue_objects.c
        statement = select(columns.kind, columns.name).where(columns.kind.in_(kinds))
        found: dict[str, set[str]] = {kind: set() for kind in kinds}
        for kind, name in await self._database.read_sync(lambda connection: connection.execute(statement).all()):
            found[kind].add(name)
        return found

    async def members(self, cohort: str) -> tuple[str, ...]:
        """Return the ClusterQueues and Cohorts directly below a Cohort: `ClusterQueue team-a`, `Cohort research`."""
        columns = queue_objects.c
        statement = select(columns.kind, columns.name).where(columns.parent == cohort)
        async with self._database.read() as connection:
            rows = await connection.execute(statement.order_by(columns.kind, columns.name))
            return tuple(f"{kind} {name}" for kind, name in rows)

    async def get(self, kind: str, name: str, *, namespace: str = "") -> QueueObject:
        """Return one object. Raises NotFound."""
        return object_of(await self._database.read_sync(partial(_existing, key=(kind, namespace, name))))

    async def revision(self) -> int:
        """Return the revision of the last write to the database."""
        async with self._database.read() as connection:
            revision: int = (await connection.execute(select(head.c.revision))).scalar_one()
        return revision

    async def create(self, obj: QueueObject, *, author: Author, dry_run: bool = False) -> QueueObject:
        """Create an object. Raises AlreadyExists, and InvalidObject for a cycle of Cohorts."""

        def new(old: QueueObject | None) -> QueueObject:
            if old is not None:
                raise AlreadyExists(f"{_title(obj.key)} exists already; replace it, or choose another name")
            return obj

        return await self.write(obj.key, new, author=author, dry_run=dry_run)

    async def replace(self, obj: QueueObject, *, author: Author, dry_run: bool = False) -> QueueObject:
        """Replace the object of the same name; without a difference nothing is written.

        `metadata.resourceVersion` and `metadata.uid` are preconditions, where given. Raises NotFound, Conflict, and
        InvalidObject for a cycle of Cohorts.
        """

        def replacement(old: QueueObject | None) -> QueueObject:
            if old is None:
                raise _not_found(obj.key)
            return obj

        return await self.write(obj.key, replacement, author=author, dry_run=dry_run)

    async def write(
        self,
        key: tuple[str, str, str],
        change: Callable[[QueueObject | None], QueueObject],
        *,
        author: Author,
        dry_run: bool = False,
    ) -> QueueObject:
        """Read, modify and write the object `key` (kind, namespace, name) in one transaction; return the new object.

        `change` receives the object (None: it does not exist) and returns the new one. No other write can happen in
        between, so that no update is lost; `change` must be fast, and is called on a worker thread where the database
        is SQLite. Without a difference nothing is written. A resourceVersion or uid in the new object is a
        precondition. Raises the errors of `change`, Conflict, and InvalidObject for a cycle of Cohorts.
        """

        def write(connection: Connection) -> tuple[Document | None, Document]:
            revision = next_revision(connection)
            old = _find(connection, key)
            obj = change(None if old is None else object_of(old))
            now = self._clock()
            before = None if old is None else object_of(old)
            obj = _with_choices_kept(quotas_at(quotas_kept(obj, before), now), before)
            check_parents(connection, obj)
            if old is None:
                row = _with_stop_reason(_row(obj), None, author)
                row |= {"uid": str(uuid.uuid4()), "generation": 1, "created_at": now, "revision": revision}
                connection.execute(insert(queue_objects), row)
                _add_version(connection, "create", author, None, row, at=now)
                if needed := _REQUIRED_SCHEMA.get(obj.kind):
                    older = head.c.compatible_with < needed
                    connection.execute(update(head).where(older).values(compatible_with=needed))
                return None, row
            _check_preconditions(
                old, resource_version=obj.metadata.resource_version, uid=obj.metadata.uid, newest=revision
            )
            check_change(object_of(old), obj)
            row = _with_stop_reason({**old, **_row(obj)}, old, author)
            if row == old:
                connection.rollback()
                return old, old
            row |= {"generation": old["generation"] + (row["content"] != old["content"]), "revision": revision}
            connection.execute(update(queue_objects).where(_key_matches(key)), row)
            _add_version(connection, "replace", author, old, row, at=now)
            return old, row

        old, row = await self._database.write_sync(write, dry_run=dry_run)
        if row is old:
            return object_of(old)
        if not dry_run:
            log_change(old, row, _with_reason(author, old, row))
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
        """Delete an object, and return its last state.

        Raises NotFound, and Conflict if `resource_version` or `uid` differ or the object is in use.
        """
        key = kind, namespace, name

        def write(connection: Connection) -> tuple[Document, Document]:
            revision = next_revision(connection)
            old = _existing(connection, key)
            _check_preconditions(old, resource_version=resource_version, uid=uid, newest=revision)
            check_deletion(connection, object_of(old))
            connection.execute(delete(queue_objects).where(_key_matches(key)))
            row = {**old, "revision": revision}
            _add_version(connection, "delete", author, old, row, at=self._clock())
            return old, row

        old, row = await self._database.write_sync(write, dry_run=dry_run)
        if not dry_run:
            log_change(old, None, _with_reason(author, old, row))
        return self._announce(row, dry_run=dry_run)

    def _announce(self, row: Document, *, dry_run: bool) -> QueueObject:
        if not dry_run:
            self._on_commit(row["revision"])
        return object_of(row)


async def all_objects(connection: AsyncConnection) -> tuple[QueueObject, ...]:
    """Return all queue objects, referenced kinds before those that refer to them.

    Objects of unknown kinds are left out: a later version of Sluice has written them before it was rolled back.
    """
    columns = queue_objects.c
    known = select(queue_objects).where(columns.kind.in_(MODELS)).order_by(columns.namespace, columns.name)
    rows = (await connection.execute(known)).mappings()
    order = {kind: position for position, kind in enumerate(MODELS)}
    return tuple(sorted(map(object_of, rows), key=lambda obj: order[obj.kind]))


def _row(obj: QueueObject) -> Document:
    """Return the columns that follow from an object's manifest."""
    kind, namespace, name = obj.key
    content = obj.model_dump(mode="json", by_alias=True, exclude={"metadata"}, exclude_none=True)
    references = dict.fromkeys(_REFERENCE_COLUMNS, "")
    for reference in obj.references:
        if reference.column:
            references[reference.column] = next(reference.names(content), "")
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        **references,
        "labels": dict(obj.metadata.labels),
        "annotations": {key: text for key, text in obj.metadata.annotations.items() if key != STOP_REASON},
        "content": content,
        "managed_fields": [dict(entry) for entry in obj.metadata.managed_fields] or None,
    }


def _find(connection: Connection, key: tuple[str, str, str]) -> Document | None:
    row = connection.execute(select(queue_objects).where(_key_matches(key))).mappings().one_or_none()
    return None if row is None else dict(row)


def _existing(connection: Connection, key: tuple[str, str, str]) -> Document:
    row = _find(connection, key)
    if row is None:
        raise _not_found(key)
    return row


def _not_found(key: tuple[str, str, str]) -> NotFound:
    kind, _, name = key
    return NotFound.of(MODELS[kind].plural, name)


def _key_matches(key: tuple[str, str, str]) -> ColumnElement[bool]:
    kind, namespace, name = key
    columns = queue_objects.c
    return and_(columns.kind == kind, columns.namespace == namespace, columns.name == name)


def _title(key: tuple[str, str, str]) -> str:
    kind, namespace, name = key
    return f'{kind} "{namespace}/{name}"' if namespace else f'{kind} "{name}"'


def _check_preconditions(row: Document, *, resource_version: str, uid: str, newest: int) -> None:
    """Raise Conflict unless uid and resourceVersion, where given, are valid for the object's row.

    A resourceVersion is a revision of the database, perhaps that of a list. So it is valid from the object's last
    change on, up to the `newest` revision, which this transaction has taken (exclusive).
    """
    title = _title((row["kind"], row["namespace"], row["name"]))
    if uid and uid != row["uid"]:
        raise Conflict(f"{title} was deleted and recreated (uid {row['uid']}, not {uid}); read it again")
    if not resource_version:
        return
    if not (resource_version.isascii() and resource_version.isdecimal() and len(resource_version) < 20):
        message = f'"{resource_version}" is no resourceVersion; read the object again'
        raise InvalidObject([("metadata.resourceVersion", message)])
    if not row["revision"] <= int(resource_version) < newest:
        raise Conflict(
            f"{title} has changed meanwhile (resourceVersion {row['revision']}, not {resource_version}); "
            "read it again and apply your change to that"
        )


def _add_version(
    connection: Connection, operation: str, author: Author, old: Document | None, row: Document, *, at: float
) -> None:
    """Add the version and the audit record of a write. `row`: the row after the write, or the deleted one."""
    author = _with_reason(author, old, row)
    kept = {name: value for name, value in row.items() if name not in _NOT_VERSIONED}
    version = {**kept, "operation": operation, "author": author.name, "reason": author.reason, "at": at}
    connection.execute(insert(queue_object_versions), version)
    rollup.reopen(connection, at)
    after = None if operation == "delete" else _audited(row)
    before = None if old is None else _audited(old)
    key = row["kind"], row["namespace"], row["name"]
    verb = "update" if operation == "replace" else operation
    audit_log.record(connection, author, verb, key, at=at, revision=row["revision"], before=before, after=after)


def _with_choices_kept(obj: QueueObject, old: QueueObject | None) -> QueueObject:
    """Return a Reservation with what Sluice has written to it: its domains and early end, until its times are changed.

    Domains also until it is about others.
    """
    if not isinstance(obj, Reservation) or not isinstance(old, Reservation):
        return obj
    spec, before = obj.spec, old.spec
    if (before.begins, before.ends) != (spec.begins, spec.ends):
        return obj.model_copy(update={"spec": spec.model_copy(update={"released_at": ""})})
    update: dict[str, object] = {"released_at": spec.released_at or before.released_at}
    wanted, had = spec.topology, before.topology
    if wanted is not None and had is not None and wanted == had.model_copy(update={"domains": ()}):
        update["topology"] = had
    return obj.model_copy(update={"spec": spec.model_copy(update=update)})


def _with_stop_reason(row: Document, old: Document | None, author: Author) -> Document:
    """Return the row with the annotation STOP_REASON while the queue is stopped, for users whose workloads wait."""
    before, policy = (_stop_policy(one) for one in (old, row))
    if policy == "None":
        return row
    stop_reason = "" if old is None else old["annotations"].get(STOP_REASON, "")
    # A write that changes nothing but gives a reason replaces the reason of the stop.
    is_unchanged = old is not None and _without_stop_reason(old) == _without_stop_reason(row)
    reason = clean(_with_reason(author, old, row).reason, longest=_MAX_STOP_REASON)
    if reason and (policy != before or is_unchanged):
        stop_reason = reason
    return {**row, "annotations": {**row["annotations"], STOP_REASON: stop_reason}} if stop_reason else row


def _without_stop_reason(row: Document) -> tuple[Document, ...]:
    annotations = {key: text for key, text in row["annotations"].items() if key != STOP_REASON}
    return row["content"], row["labels"], annotations


def _stop_policy(row: Document | None) -> str:
    spec = row["content"].get("spec") if row is not None else None
    return spec.get("stopPolicy", "None") if spec else "None"


def _with_reason(author: Author, old: Document | None, row: Document) -> Author:
    """Return the author with the reason from the annotation CHANGE_REASON, if the author has given none."""
    # An unchanged annotation is the reason of an earlier change.
    annotation = row["annotations"].get(CHANGE_REASON, "")
    if author.reason or (old is not None and annotation == old["annotations"].get(CHANGE_REASON)):
        return author
    return replace(author, reason=annotation)


def _audited(row: Document) -> Document:
    metadata = {name: row[name] for name in ("uid", "generation", "labels", "annotations") if row[name]}
    return {"metadata": metadata, **row["content"]}


_versions, _objects = queue_object_versions.c, queue_objects.c
# Writes are serialised, so the last version identifies the state of all objects. Its time is compared as well, because
# a restored database may have the same id and revision for another version.
_IDENTITY = select(_versions.id, _versions.revision, _versions.at)
_NEWEST = _IDENTITY.order_by(_versions.id.desc()).limit(1)


class _KnownVersion(NamedTuple):
    id: int
    revision: int
    at: float


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """All objects of a kind, sorted by namespace and name, at a version of the database."""

    newest: _KnownVersion | None = None
    """The newest version (of any kind) when the objects were read; None: nothing has been written yet."""
    objects: tuple[QueueObject, ...] = ()


def read_objects(connection: Connection, kind: str, last: KnownObjects) -> KnownObjects:
    """Return the objects of a kind. `last`, the result of an earlier call, saves reading those that are unchanged.

    Unchanged objects are identical to those of `last`, and so is the tuple if none has changed.
    """
    newest = _known_version(connection, _NEWEST)
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


def _is_still_there(connection: Connection, version: _KnownVersion) -> bool:
    """Return whether the database still has this version: otherwise it was restored from a backup."""
    return _known_version(connection, _IDENTITY.where(_versions.id == version.id)) == version


def _known_version(connection: Connection, statement: Select[tuple[int, int, float]]) -> _KnownVersion | None:
    row = connection.execute(statement).one_or_none()
    return None if row is None else _KnownVersion(row.id, row.revision, row.at)
