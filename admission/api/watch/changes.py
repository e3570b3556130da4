"""Sources of changes since a revision, for watches: one for queue objects, one for workloads.

Queue objects have a history in the database: a watch can begin at any revision, and receives every version, with the
object before it. Of workloads only the newest state is stored: several changes may result in one event.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from admission.api.documents.presentation import documents, workload_documents
from admission.api.documents.selection import QueueSelection, WorkloadSelection
from admission.api.errors import Expired
from admission.api.kinds.all_kinds import KINDS
from admission.model.manifests import to_manifest
from admission.store.records import WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from admission.api.documents.representation import Representation
    from admission.api.documents.selection import Selection, Subject
    from admission.api.http.responses import Document
    from admission.store.records import QueueObjectVersion
    from admission.store.store import Store

STATUS_SECONDS = 1.0
"""Shortest interval between two computations of the status of watched queue objects."""
STATUS_SHARE = 0.02
"""Share of one processor that these computations may take; with very many queues the interval becomes longer."""
STATUS_MAX_SECONDS = 5.0
"""Longest interval between two computations, whatever they cost."""
_BATCH = 1_000
"""Workloads that are read in one query."""
_RENDERED = 500
"""Queue objects that are rendered at once for a watch from an old revision."""
MAX_CHANGES = 20_000
"""Most changes that are replayed to a watch from an old revision; with more it is Expired, since a list is cheaper."""


@dataclass(slots=True)
class RenderedObject:
    """An object and its document, encoded once for each representation."""

    subject: Subject
    document: Document
    _encoded: dict[Representation, bytes] = field(default_factory=dict)

    def encoded(self, representation: Representation, *, now: float) -> bytes:
        """Return the encoded document; cached, so that the age in a table is that of the first call."""
        cached = self._encoded.get(representation)
        if cached is None:
            cached = self._encoded[representation] = representation.event(self.document, now=now)
        return cached

    def at_revision(self, revision: int) -> RenderedObject:
        """Return the same object with another resourceVersion, a later revision of the database."""
        metadata = {**self.document["metadata"], "resourceVersion": str(revision)}
        return RenderedObject(self.subject, {**self.document, "metadata": metadata})


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of one object."""

    key: str
    """`NAMESPACE/NAME` of a queue object, uid of a workload."""
    revision: int
    """Revision of the change: watchers that resume after it have received it."""
    before: RenderedObject | None
    """None: it did not exist, or see `before_is_known`."""
    after: RenderedObject | None
    """None: it was deleted."""
    before_is_known: bool = True
    """False: `before` is None because the state before the change is not stored."""

    @property
    def _object(self) -> RenderedObject:
        item = self.after or self.before
        assert item is not None
        return item

    @property
    def subject(self) -> Subject:
        """The object, of which some fields never change."""
        return self._object.subject

    @property
    def namespace(self) -> str:
        """Namespace of the object, which never changes."""
        namespace: str = self._object.document["metadata"].get("namespace", "")
        return namespace


class ChangeSource(Protocol):
    """Changes of one resource. `begin` and `poll` are for its one stream; the other methods may be called by all."""

    async def begin(self) -> int:
        """Prepare for `poll`, and return the revision from which it returns all changes."""

    async def poll(self, since: int) -> tuple[list[ObjectChange], int]:
        """Return the changes since the last poll, and the revision up to which they are complete."""

    def pause(self) -> float | None:
        """Return the seconds after which `poll` is due even if nothing was written; None: never."""

    def since(self, revision: int, selection: Selection) -> AsyncIterator[tuple[list[ObjectChange], int]]:
        """Yield the changes since any revision in chunks, in order; raises Expired before the first.

        Changes of objects that are not selected may be left out. The revision in the last chunk, which may be empty, is
        that up to which all of them are complete.
        """

    def existing(self, selection: Selection) -> AsyncIterator[tuple[list[RenderedObject], int]]:
        """Yield all selected objects in batches, each with the revision as of which it was read."""

    async def members(self, selection: Selection) -> tuple[set[str], int]:
        """Return the keys of all selected objects, and the revision as of which they were read."""


class StatusSchedule:
    """Schedule of computing the status of watched queue objects, in rounds: all kinds at the same time.

    The database then counts workloads once for all kinds. `clock`: monotonic, seconds; `used`: processor time, seconds.
    """

    def __init__(self, clock: Callable[[], float], used: Callable[[], float]) -> None:
        self._clock = clock
        self._used = used
        self._began = -STATUS_MAX_SECONDS
        self._every = STATUS_SECONDS
        self._costliest = 0.0
        self.round = 0

    def is_due(self, last_round: int) -> bool:
        """Return whether a kind last computed in `last_round` is due; begins the next round when it is time for it."""
        if self.pause() <= 0.0:
            self.round, self._began, self._costliest = self.round + 1, self._clock(), 0.0
        return self.round > last_round

    def pause(self) -> float:
        """Return the seconds until the next round."""
        return max(0.0, self._began + self._every - self._clock())

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure a computation; the most expensive of a round, for which the others mostly wait, sets the interval.

        It is measured in processor time: on an overloaded machine a computation takes longer, but costs no more.
        """
        began = self._used()
        yield
        self._costliest = max(self._costliest, self._used() - began)
        self._every = min(max(STATUS_SECONDS, self._costliest / STATUS_SHARE), STATUS_MAX_SECONDS)


class QueueObjectSource:
    """Changes of one kind of queue object, including those of its computed status."""

    def __init__(self, store: Store, kind: str, schedule: StatusSchedule) -> None:
        self._store = store
        self._kind = kind
        self._status = KINDS[kind].status
        """The computation of the status; None: the kind has none that depends on other rows."""
        self._schedule = schedule
        self._known: dict[str, RenderedObject] = {}
        """By key: the objects as last published."""
        self._status_inputs: dict[str, tuple[Subject, Any]] = {}
        """By key: the object and the inputs from which its status was last computed."""
        self._last_round = 0
        """Round of the schedule in which the status was last computed."""
        self._status_may_differ = False
        """Whether something was written since."""

    async def begin(self) -> int:
        objects, revision = await self._store.queues.snapshot(self._kind)
        self._status_inputs.clear()
        self._known = {_key(item.subject): item for item in await self._items(objects)}
        self._last_round = self._schedule.round
        return revision

    def pause(self) -> float | None:
        return self._schedule.pause() if self._status_may_differ else None

    async def poll(self, since: int) -> tuple[list[ObjectChange], int]:
        revisions = self._store.revisions
        newest = revisions.newest
        # Most writes are decisions of this process, which change workloads only: then no query is needed.
        is_written = revisions.newest_external > since
        versions = await self._store.queues.changes_since(since, kind=self._kind) if is_written else ()
        upto = max([since, newest, *(version.revision for version in versions)])
        self._status_may_differ |= self._status is not None and upto > since
        last = {_key(version.object): version for version in versions}
        current = await self._items(version.object for version in last.values() if version.operation != "delete")
        changes = _versions(versions, self._known, current)
        if self._status_may_differ and self._schedule.is_due(self._last_round):
            # Status changes come first: a watcher that has received a real revision behind them, and resumes after
            # it, must have received them, too.
            changes = [*await self._statuses(since, upto, is_all=not changes), *changes]
        return changes, upto

    async def since(self, revision: int, selection: Selection) -> AsyncIterator[tuple[list[ObjectChange], int]]:
        assert isinstance(selection, QueueSelection)
        queues, upto = self._store.queues, max(revision, self._store.revisions.newest)
        changed = await queues.changed_since(revision, self._kind, most=MAX_CHANGES)
        if changed is None:
            raise _expired(revision)
        if self._status is not None and (changed or upto > revision):
            # The status at that revision is not stored: every other object is replayed with its current status.
            others = [item.subject for item in self._known.values() if _place(item.subject) not in changed]
            selected = [*filter(selection.matches, others)]
            for start in range(0, len(selected), _RENDERED):
                items = await self._items(selected[start : start + _RENDERED])
                current = [item.at_revision(revision) for item in items]
                yield [ObjectChange(_key(item.subject), upto, item, item) for item in current], revision
        async for chunk in queues.replay(revision, self._kind, namespace=selection.namespace, name=selection.name):
            items = await self._items([*chunk.before, *chunk.current])
            known = {_key(item.subject): item for item in items[: len(chunk.before)]}
            yield _versions(chunk.versions, known, items[len(chunk.before) :]), chunk.versions[-1].revision
            upto = max(upto, chunk.versions[-1].revision)
        yield [], upto

    async def existing(self, selection: Selection) -> AsyncIterator[tuple[list[RenderedObject], int]]:
        objects, revision = await self._store.queues.snapshot(self._kind, namespace=selection.namespace)
        yield await self._items(filter(selection.matches, objects)), revision

    async def members(self, selection: Selection) -> tuple[set[str], int]:
        objects, revision = await self._store.queues.snapshot(self._kind, namespace=selection.namespace)
        return {_key(obj) for obj in filter(selection.matches, objects)}, revision

    async def _statuses(self, since: int, upto: int, *, is_all: bool) -> list[ObjectChange]:
        """Compute the status of all known objects, and return those whose status has changed.

        A status has no revision of its own. All changes but the last one carry the resourceVersion `since`: a watcher
        that received only some of them, and resumes, receives them again. `is_all`: no other changes follow, so that
        the last one carries `upto`.
        """
        assert self._status is not None
        self._last_round, self._status_may_differ = self._schedule.round, False
        changes: list[ObjectChange] = []
        new_inputs: dict[str, tuple[Subject, Any]] = {}
        known = [*self._known.items()]
        with self._schedule.measure():
            subjects = [item.subject for _, item in known]
            inputs = await self._status.inputs(self._store, subjects) if known else ()
        for (key, before), own in zip(known, inputs, strict=True):
            new_inputs[key] = before.subject, own
            subject, last_own = self._status_inputs.get(key, (None, None))
            if subject is before.subject and last_own == own:
                continue  # most objects, if there are many: nothing is rendered
            status = self._status.render(before.subject, own)
            if status != before.document["status"]:
                after = RenderedObject(before.subject, {**before.document, "status": status})
                self._known[key] = after.at_revision(since)
                changes.append(ObjectChange(key, upto, before, self._known[key]))
        self._status_inputs = new_inputs
        if changes and is_all:
            last = changes[-1]
            self._known[last.key] = item = self._known[last.key].at_revision(upto)
            changes[-1] = ObjectChange(last.key, upto, last.before, item)
        return changes

    async def _items(self, objects: Iterable[Subject]) -> list[RenderedObject]:
        queue_objects = [obj for obj in objects if not isinstance(obj, WorkloadRecord)]
        rendered = await documents(self._store, queue_objects)
        return [RenderedObject(obj, document) for obj, document in zip(queue_objects, rendered, strict=True)]


class WorkloadSource:
    """Changes of workloads. `now` returns the Unix time (s)."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def begin(self) -> int:
        return await self._store.queues.revision()

    def pause(self) -> float | None:
        return None

    async def poll(self, since: int) -> tuple[list[ObjectChange], int]:
        return await self._changes(since, most=None)

    async def since(self, revision: int, selection: Selection) -> AsyncIterator[tuple[list[ObjectChange], int]]:
        del selection
        yield await self._changes(revision, most=MAX_CHANGES)

    async def existing(self, selection: Selection) -> AsyncIterator[tuple[list[RenderedObject], int]]:
        assert isinstance(selection, WorkloadSelection)
        after = None
        while True:
            page = await self._store.workloads.list(
                namespace=selection.namespace, where=selection.conditions, limit=_BATCH, after=after
            )
            yield await self._items(filter(selection.matches, page.workloads)), page.revision
            if page.after is None:
                return
            after = page.after

    async def members(self, selection: Selection) -> tuple[set[str], int]:
        assert isinstance(selection, WorkloadSelection)
        return await self._store.workloads.uids(namespace=selection.namespace, where=selection.conditions)

    async def _changes(self, since: int, *, most: int | None) -> tuple[list[ObjectChange], int]:
        changes: list[ObjectChange] = []
        revision, uid, upto, more = since, None, since, True
        while more:
            records, upto, more = await self._store.workloads.changes_since(revision, uid=uid, limit=_BATCH)
            if records:
                revision, uid = records[-1].revision, records[-1].workload.uid
            if most is not None and len(changes) + len(records) > most:
                raise _expired(since)
            changes += [
                ObjectChange(
                    _key(item.subject),
                    int(item.document["metadata"]["resourceVersion"]),
                    None,
                    item,
                    before_is_known=is_new,
                )
                for item, is_new in zip(
                    await self._items(records), (record.first_revision > since for record in records), strict=True
                )
            ]
        return changes, upto

    async def _items(self, records: Iterable[WorkloadRecord]) -> list[RenderedObject]:
        workloads = [*records]
        rendered = await workload_documents(self._store, workloads, now=self._now())
        return [RenderedObject(record, document) for record, document in zip(workloads, rendered, strict=True)]


def _versions(
    versions: Sequence[QueueObjectVersion], known: dict[str, RenderedObject], current: Iterable[RenderedObject]
) -> list[ObjectChange]:
    """Return versions as changes of the objects `known`, which is updated.

    `current`: the changed objects that exist now. Of all their versions only the present status is known.
    """
    statuses = {_key(item.subject): item.document.get("status") for item in current}
    changes = []
    for version in versions:
        key = _key(version.object)
        before = known.pop(key, None)
        status = statuses.get(key) or (before.document.get("status") if before else None)
        document = to_manifest(version.object)
        after = RenderedObject(version.object, document if status is None else {**document, "status": status})
        if version.operation == "delete":
            changes.append(ObjectChange(key, version.revision, after, None))
        else:
            known[key] = after
            changes.append(ObjectChange(key, version.revision, before, after))
    return changes


def _place(subject: Subject) -> tuple[str, str]:
    assert not isinstance(subject, WorkloadRecord)
    return subject.metadata.namespace, subject.name


def _key(subject: Subject) -> str:
    if isinstance(subject, WorkloadRecord):
        return subject.workload.uid
    return f"{subject.metadata.namespace}/{subject.name}"


def _expired(revision: int) -> Expired:
    return Expired(f"too old resource version: {revision}; list again, and watch from that list's resourceVersion")
