"""Watchers who asked for the same: each event is judged and written out once for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.api.documents.representation import Representation
    from admission.api.documents.selection import Selection
    from admission.api.watch.changes import Change, Item, Source
    from admission.api.watch.watch_request import Watcher

REMEMBERED = 4_096
"""Events that a group can tell again to those whose connections broke."""


class Group:
    """The events of one selection in one form, from `position` (a revision of the database) on."""

    def __init__(
        self, source: Source, form: Representation, selection: Selection, position: int, *, now: Callable[[], float]
    ) -> None:
        self.watchers: set[Watcher] = set()
        self.source = source
        self.form = form
        self.selection = selection
        self.position = position
        """All changes up to it have been told."""
        self.now = now
        self._told: deque[tuple[int, bytes]] = deque()
        self._told_from = position
        """What was told later than that is remembered."""
        self._members: set[str] | None = None
        self._backlog: list[tuple[list[Change], int]] = []
        self._preparing = asyncio.Lock()

    async def ready(self) -> None:
        """Wait until it is known who is selected; for what lasts nobody has to know."""
        async with self._preparing:
            if self._members is not None:
                return
            if self.selection.is_immutable:
                self._members = set()
                return
            members, revision = await self.source.members(self.selection)
            self._members = members
            self._told_from = max(self.position, revision)
            backlog, self._backlog = self._backlog, []
            for changes, upto in backlog:
                self.feed([change for change in changes if change.revision > revision], upto)

    def feed(self, changes: Iterable[Change], upto: int) -> None:
        """Tell everybody what has changed; up to `upto` that is all."""
        if self._members is None and not self.selection.is_immutable:
            self._backlog.append(([*changes], upto))
            return
        lines = [(change.revision, line) for change in changes if (line := self._line(change, live=True))]
        self.position = max(self.position, upto)
        if not lines:
            return
        self._told.extend(lines)
        while len(self._told) > REMEMBERED:
            self._told_from = max(self._told_from, self._told.popleft()[0])
        joined = b"".join(line for _, line in lines)
        for watcher in [*self.watchers]:
            watcher.tell(lines, joined)

    async def since(self, revision: int) -> tuple[list[bytes], int]:
        """The events after a revision, and up to which revision those are all. Raises Expired."""
        if revision >= self._told_from:
            return [line for told, line in self._told if told > revision], max(self.position, revision)
        changes, upto = await self.source.since(revision)
        # What was selected then nobody knows, but what is in another namespace never was: it must not be told as gone.
        namespace = self.selection.namespace
        own = (change for change in changes if namespace is None or change.namespace == namespace)
        lines = [line for change in own if (line := self._line(change, live=False))]
        return lines, upto

    def line(self, kind: str, item: Item) -> bytes:
        """An event."""
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), item.shown(self.form, now=self.now()))

    def _line(self, change: Change, *, live: bool) -> bytes:
        """The event as this group sees it: what leaves its selection is deleted for it."""
        after = change.after
        matches = after is not None and self.selection.matches(after.subject)
        matched = self._matched(change, live=live, matches=matches)
        if live and self._members is not None and not self.selection.is_immutable:
            (self._members.add if matches else self._members.discard)(change.key)
        if matches:
            assert after is not None
            return self.line("MODIFIED" if matched else "ADDED", after)
        gone = change.before or after
        if not matched or gone is None:
            return b""
        return self.line("DELETED", gone.at(change.revision))

    def _matched(self, change: Change, *, live: bool, matches: bool) -> bool:
        """Whether it was selected before. What nobody knows is assumed: to be told twice that it left does no harm."""
        if change.is_known:
            return change.before is not None and self.selection.matches(change.before.subject)
        if self.selection.is_immutable:
            return matches
        return change.key in (self._members or ()) if live else True
