"""Shared watch channel: events for one selection and representation, filtered and encoded once for all subscribers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from admission.api.documents.representation import Representation
    from admission.api.documents.selection import Selection
    from admission.api.watch.changes import ChangeSource, ObjectChange, RenderedObject
    from admission.api.watch.watch_request import Watcher

BUFFERED_EVENTS = 4_096
"""Most recent events that are kept, for watchers that resume after a broken connection."""


class SharedWatch:
    """The events of one selection in one representation, from `position` (a revision of the database) on.

    `now` returns the Unix time (s).
    """

    def __init__(
        self,
        source: ChangeSource,
        representation: Representation,
        selection: Selection,
        position: int,
        *,
        now: Callable[[], float],
    ) -> None:
        self.watchers: set[Watcher] = set()
        self.source = source
        self.representation = representation
        self.selection = selection
        self.position = position
        """Revision up to which all changes have been published."""
        self.now = now
        self._buffer: deque[tuple[int, bytes]] = deque()
        """Recent events with their revisions, for watchers that resume."""
        self._buffer_start = position
        """The buffer has all events after this revision."""
        self._members: set[str] | None = None
        """Keys of the selected objects; None until they are loaded."""
        self._backlog: list[tuple[list[ObjectChange], int]] = []
        """Changes that arrive while the members are being loaded."""
        self._loading = asyncio.Lock()

    async def load_members(self) -> None:
        """Load the members of the selection. Skipped for immutable selections, whose membership cannot change."""
        async with self._loading:
            if self._members is not None:
                return
            if self.selection.is_immutable:
                self._members = set()
                return
            members, revision = await self.source.members(self.selection)
            self._members = members
            self._buffer_start = max(self.position, revision)
            backlog, self._backlog = self._backlog, []
            for changes, upto in backlog:
                self.publish([change for change in changes if change.revision > revision], upto)

    def publish(self, changes: Iterable[ObjectChange], upto: int) -> None:
        """Send changes to all watchers. They are complete up to the revision `upto`."""
        if self._members is None and not self.selection.is_immutable:
            self._backlog.append(([*changes], upto))
            return
        lines = [(change.revision, line) for change in changes if (line := self._encode_change(change, live=True))]
        self.position = max(self.position, upto)
        if not lines:
            return
        self._buffer.extend(lines)
        while len(self._buffer) > BUFFERED_EVENTS:
            self._buffer_start = max(self._buffer_start, self._buffer.popleft()[0])
        joined = b"".join(line for _, line in lines)
        for watcher in [*self.watchers]:
            watcher.enqueue(lines, joined)

    async def since(self, revision: int) -> AsyncIterator[tuple[bytes, int]]:
        """Yield the events after a revision in chunks; the revision in the last one is that of their completeness.

        Raises Expired before the first.
        """
        if revision >= self._buffer_start:
            yield b"".join(line for at, line in self._buffer if at > revision), max(self.position, revision)
            return
        # Membership at that revision is unknown, so changed objects outside of the selection are sent as DELETED (see
        # `_was_selected`). Those of other namespaces, or of clusters that are hidden from the client, never were
        # members, and the client must not learn of them.
        async for changes, upto in self.source.since(revision, self.selection):
            own = (change for change in changes if self.selection.can_have(change.subject))
            yield b"".join(self._encode_change(change, live=False) for change in own), upto

    def encode_event(self, kind: str, item: RenderedObject) -> bytes:
        """Return a watch event as a line of JSON; `kind` is its type, such as `ADDED`."""
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), item.encoded(self.representation, now=self.now()))

    def _encode_change(self, change: ObjectChange, *, live: bool) -> bytes:
        """Return the event of a change for this selection; empty: none.

        An object that leaves the selection is DELETED, one that enters it is ADDED. `live`: a current change, else one
        that is replayed for a watcher that resumes.
        """
        after = change.after
        matches = after is not None and self.selection.matches(after.subject)
        matched = self._was_selected(change, live=live, matches=matches)
        if live and self._members is not None and not self.selection.is_immutable:
            (self._members.add if matches else self._members.discard)(change.key)
        if matches:
            assert after is not None
            return self.encode_event("MODIFIED" if matched else "ADDED", after)
        left = change.before or after
        if not matched or left is None:
            return b""
        return self.encode_event("DELETED", left.at_revision(change.revision))

    def _was_selected(self, change: ObjectChange, *, live: bool, matches: bool) -> bool:
        """Return whether the object was selected before the change.

        If that is unknown, return True: a second DELETED event does no harm, a missing one would.
        """
        if change.before_is_known:
            return change.before is not None and self.selection.matches(change.before.subject)
        if self.selection.is_immutable:
            return matches
        return change.key in (self._members or ()) if live else True
