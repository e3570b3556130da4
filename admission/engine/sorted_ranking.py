"""A sorted list of pending workloads: lookup of positions, and of the workloads at one, in microseconds."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.pending_item import Item

Rank = tuple[int, float, str]
"""(negated priority, waiting since, uid): what comes first is the smallest."""

Entry = tuple[int, float, str, "Item"]
"""A rank, then the workload that has it."""


class Ranking:
    """Entries in ascending order. They lie in chunks of at most `full`, so that a change moves few of them."""

    __slots__ = ("_chunks", "_full", "_lasts")

    def __init__(self, full: int = 1024) -> None:
        self._full = full
        self._chunks: list[list[Entry]] = []
        self._lasts: list[Entry] = []
        """The last entry of each chunk."""

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, entry: Entry) -> None:
        """Insert an entry."""
        chunks, lasts = self._chunks, self._lasts
        at = len(lasts) if lasts and lasts[-1] < entry else bisect_left(lasts, entry)  # most come last
        if at < len(lasts):
            insort(chunks[at], entry)
        elif chunks:
            at -= 1
            chunks[at].append(entry)
            lasts[at] = entry
        else:
            chunks.append([entry])
            lasts.append(entry)
        chunk = chunks[at]
        if len(chunk) > self._full:
            half = self._full // 2
            chunks.insert(at + 1, chunk[half:])
            lasts.insert(at, chunk[half - 1])
            del chunk[half:]

    def remove(self, rank: Rank) -> None:
        """Remove the entry of a rank. There must be one."""
        at = bisect_left(self._lasts, rank)  # see `_find`
        chunk = self._chunks[at]
        index = bisect_left(chunk, rank)
        del chunk[index]
        if not chunk:
            del self._chunks[at], self._lasts[at]
        elif index == len(chunk):
            self._lasts[at] = chunk[-1]

    def count_before(self, rank: Rank) -> int:
        """The number of entries before a rank."""
        at, index = self._find(rank)
        return sum(map(len, self._chunks[:at])) + index

    def _find(self, rank: Rank | tuple[Any, ...]) -> tuple[int, int]:
        # A rank sorts just before the entry that begins with it.
        at = bisect_left(self._lasts, rank)
        return at, bisect_left(self._chunks[at], rank) if at < len(self._chunks) else 0

    def items(self, offset: int = 0) -> Iterator[Item]:
        """The workloads in order, without the first `offset`."""
        for chunk in self._chunks:
            if offset < len(chunk):
                for entry in chunk[offset:] if offset else chunk:
                    yield entry[3]
            offset = max(0, offset - len(chunk))
