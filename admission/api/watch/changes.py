"""What has changed since a revision, for watches: of queue objects with what was there before, of workloads as it is.

Queue objects have a history in the database, so that a watch can begin at any revision and is told every version. Of
a workload only the newest state is known: several changes may show as one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from admission.api.documents.presentation import documents, workload_documents
from admission.api.documents.selection import WorkloadSelection
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
"""The numbers in the status of queues are looked at so often, as long as somebody watches them ..."""
STATUS_SHARE = 0.02
"""... but more seldom where that would take more than this part of a processor, as there are very many queues ..."""
STATUS_SECONDS_AT_MOST = 5.0
"""... though not more seldom than that."""
_BATCH = 1_000
MOST = 20_000
"""A watch cannot begin so many changes ago; to list again costs less."""


@dataclass(slots=True)
class Item:
    """An object and how it is shown, written out once for all who want the same form."""

    subject: Subject
    document: Document
    _shown: dict[Representation, bytes] = field(default_factory=dict)

    def shown(self, form: Representation, *, now: float) -> bytes:
        """The document in a form; the age in a table is that at the first time."""
        known = self._shown.get(form)
        if known is None:
            known = self._shown[form] = form.event(self.document, now=now)
        return known

    def at(self, revision: int) -> Item:
        """The same object as of a later revision of the database."""
        metadata = {**self.document["metadata"], "resourceVersion": str(revision)}
        return Item(self.subject, {**self.document, "metadata": metadata})


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one object; None is what is not there."""

    key: str
    revision: int
    """Who resumes behind it, has been told of it."""
    before: Item | None
    after: Item | None
    is_known: bool = True
    """Whether `before` tells what was there before, and not just nothing."""

    @property
    def namespace(self) -> str:
        """Of the object; it never changes."""
        item = self.after or self.before
        assert item is not None
        namespace: str = item.document["metadata"].get("namespace", "")
        return namespace


class Source(Protocol):
    """The changes of one resource. One stream asks `begin` and then `live`, anybody the rest."""

    async def begin(self) -> int:
        """The revision from which on `live` can tell all changes."""

    async def live(self, since: int) -> tuple[list[Change], int]:
        """What has changed since it was last asked, and up to which revision that is all."""

    def pause(self) -> float | None:
        """Seconds after which `live` should be asked though nothing was written; None: not at all."""

    async def since(self, revision: int) -> tuple[list[Change], int]:
        """What has changed since any revision, as `live` tells it. Raises Expired."""

    def existing(self, selection: Selection) -> AsyncIterator[tuple[list[Item], int]]:
        """All that is selected, in parts, each with the revision as of which it is read."""

    async def members(self, selection: Selection) -> tuple[set[str], int]:
        """The keys of all that is selected, and the revision as of which they are."""


class StatusPace:
    """When the numbers in the status of queue objects are looked at: in rounds, those of all kinds at one moment.

    So the database counts once for all of them. `clock` gives seconds, ever more, `used` those of processor time.
    """

    def __init__(self, clock: Callable[[], float], used: Callable[[], float]) -> None:
        self._clock = clock
        self._used = used
        self._began = -STATUS_SECONDS_AT_MOST
        self._every = STATUS_SECONDS
        self._costliest = 0.0
        self.round = 0

    def is_due(self, looked: int) -> bool:
        """Whether it is time for who has `looked` last in that round; perhaps the next round begins with it."""
        if self.pause() <= 0.0:
            self.round, self._began, self._costliest = self.round + 1, self._clock(), 0.0
        return self.round > looked

    def pause(self) -> float:
        """Seconds until the next round."""
        return max(0.0, self._began + self._every - self._clock())

    @contextmanager
    def look(self) -> Iterator[None]:
        """For a look in this round: the costliest, which the others mostly wait for, decides the pace.

        Processor time counts: on a machine with more to do than processors a look takes longer, and costs no more.
        """
        began = self._used()
        yield
        self._costliest = max(self._costliest, self._used() - began)
        self._every = min(max(STATUS_SECONDS, self._costliest / STATUS_SHARE), STATUS_SECONDS_AT_MOST)


class QueueObjectSource:
    """The changes of one kind of queue object, those of its status included."""

    def __init__(self, store: Store, kind: str, pace: StatusPace) -> None:
        self._store = store
        self._kind = kind
        self._status = KINDS[kind].status
        """What follows from workloads, if anything does."""
        self._pace = pace
        self._known: dict[str, Item] = {}
        self._facts: dict[str, tuple[Subject, Any]] = {}
        """By key: the object and the facts that were last looked at."""
        self._looked = 0
        """In which round of the pace."""
        self._may_differ = False

    async def begin(self) -> int:
        objects, revision = await self._store.queues.snapshot(self._kind)
        self._facts.clear()
        self._known = {_key(item.subject): item for item in await self._items(objects)}
        self._looked = self._pace.round
        return revision

    def pause(self) -> float | None:
        return self._pace.pause() if self._may_differ else None

    async def live(self, since: int) -> tuple[list[Change], int]:
        revisions = self._store.revisions
        newest = revisions.newest
        # Most of what is written are decisions of this process, which are about workloads alone.
        is_written = revisions.newest_order > since
        versions = await self._store.queues.changes_since(since, kind=self._kind) if is_written else ()
        upto = max([since, newest, *(version.revision for version in versions)])
        self._may_differ |= self._status is not None and upto > since
        changes = await self._versions(versions, self._known)
        if self._may_differ and self._pace.is_due(self._looked):
            # First, so that who has got the rest, whose revisions are true ones, has got these, too.
            changes = [*await self._statuses(since, upto, is_all=not changes), *changes]
        return changes, upto

    async def since(self, revision: int) -> tuple[list[Change], int]:
        newest = self._store.revisions.newest
        versions = await self._store.queues.changes_since(revision, kind=self._kind)
        if len(versions) > MOST:
            raise _expired(revision)
        upto = max([revision, newest, *(version.revision for version in versions)])
        known = await self._as_of(revision, versions)
        changes = await self._versions(versions, known)
        if self._status is not None and upto > revision:
            # What the numbers were then is not known.
            told = {change.key for change in changes}
            objects = [item.subject for key, item in self._known.items() if key not in told]
            fresh = [item.at(revision) for item in await self._items(objects)]
            changes = [*(Change(_key(item.subject), upto, item, item) for item in fresh), *changes]
        return changes, upto

    async def existing(self, selection: Selection) -> AsyncIterator[tuple[list[Item], int]]:
        objects, revision = await self._store.queues.snapshot(self._kind, namespace=selection.namespace)
        yield await self._items(filter(selection.matches, objects)), revision

    async def members(self, selection: Selection) -> tuple[set[str], int]:
        objects, revision = await self._store.queues.snapshot(self._kind, namespace=selection.namespace)
        return {_key(obj) for obj in filter(selection.matches, objects)}, revision

    async def _versions(self, versions: Sequence[QueueObjectVersion], known: dict[str, Item]) -> list[Change]:
        """The versions as changes of what is `known`, which is brought up to date."""
        last = {_key(version.object): version for version in versions}
        kept = [version.object for version in last.values() if version.operation != "delete"]
        status = {_key(item.subject): item.document.get("status") for item in await self._items(kept)}
        changes = []
        for version in versions:
            key = _key(version.object)
            before = known.pop(key, None)
            shown = status.get(key) or (before.document.get("status") if before else None)
            document = to_manifest(version.object)
            after = Item(version.object, document if shown is None else {**document, "status": shown})
            if version.operation == "delete":
                changes.append(Change(key, version.revision, after, None))
            else:
                known[key] = after
                changes.append(Change(key, version.revision, before, after))
        return changes

    async def _statuses(self, since: int, upto: int, *, is_all: bool) -> list[Change]:
        """What differs in the status of those that are known.

        The numbers have no revision of their own. All but the last of them say `since`, so that who was told of some
        only and resumes is told again.
        """
        assert self._status is not None
        self._looked, self._may_differ = self._pace.round, False
        changes: list[Change] = []
        looked_at: dict[str, tuple[Subject, Any]] = {}
        known = [*self._known.items()]
        with self._pace.look():
            subjects = [item.subject for _, item in known]
            facts = await self._status.inputs(self._store, subjects) if known else ()
        for (key, before), fact in zip(known, facts, strict=True):
            looked_at[key] = before.subject, fact
            subject, same = self._facts.get(key, (None, None))
            if subject is before.subject and same == fact:
                continue  # nearly all, where there are many
            status = self._status.render(before.subject, fact)
            if status != before.document["status"]:
                self._known[key] = Item(before.subject, {**before.document, "status": status}).at(since)
                changes.append(Change(key, upto, before, self._known[key]))
        self._facts = looked_at
        if changes and is_all:
            last = changes[-1]
            self._known[last.key] = item = self._known[last.key].at(upto)
            changes[-1] = Change(last.key, upto, last.before, item)
        return changes

    async def _as_of(self, revision: int, versions: Iterable[QueueObjectVersion]) -> dict[str, Item]:
        """What there was, at a revision, of all that has changed since."""
        known = {}
        for obj in {_key(version.object): version.object for version in versions}.values():
            earlier = await self._store.queues.versions(obj.kind, obj.name, namespace=obj.metadata.namespace)
            past = [version for version in earlier if version.revision <= revision]
            if past and past[-1].operation != "delete":
                (known[_key(obj)],) = await self._items([past[-1].object])
        return known

    async def _items(self, objects: Iterable[Subject]) -> list[Item]:
        found = [obj for obj in objects if not isinstance(obj, WorkloadRecord)]
        shown = await documents(self._store, found)
        return [Item(obj, document) for obj, document in zip(found, shown, strict=True)]


class WorkloadSource:
    """The changes of workloads. `now` gives seconds since the epoch."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def begin(self) -> int:
        return await self._store.queues.revision()

    def pause(self) -> float | None:
        return None

    async def live(self, since: int) -> tuple[list[Change], int]:
        return await self._changes(since, most=None)

    async def since(self, revision: int) -> tuple[list[Change], int]:
        return await self._changes(revision, most=MOST)

    async def existing(self, selection: Selection) -> AsyncIterator[tuple[list[Item], int]]:
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

    async def _changes(self, since: int, *, most: int | None) -> tuple[list[Change], int]:
        changes: list[Change] = []
        revision, uid, upto, more = since, None, since, True
        while more:
            records, upto, more = await self._store.workloads.changes_since(revision, uid=uid, limit=_BATCH)
            if records:
                revision, uid = records[-1].revision, records[-1].workload.uid
            if most is not None and len(changes) + len(records) > most:
                raise _expired(since)
            changes += [
                Change(_key(item.subject), int(item.document["metadata"]["resourceVersion"]), None, item, is_known=new)
                for item, new in zip(
                    await self._items(records), (record.first_revision > since for record in records), strict=True
                )
            ]
        return changes, upto

    async def _items(self, records: Iterable[WorkloadRecord]) -> list[Item]:
        found = [*records]
        shown = await workload_documents(self._store, found, now=self._now())
        return [Item(record, document) for record, document in zip(found, shown, strict=True)]


def _key(subject: Subject) -> str:
    if isinstance(subject, WorkloadRecord):
        return subject.workload.uid
    return f"{subject.metadata.namespace}/{subject.name}"


def _expired(revision: int) -> Expired:
    return Expired(f"too old resource version: {revision}; list again, and watch from that list's resourceVersion")
