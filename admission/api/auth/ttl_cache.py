"""Bounded cache with a time to live for each entry; concurrent callers of a missing key share one load."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

V = TypeVar("V")


class TtlCache(Generic[V]):
    """Least-recently-used cache of at most `size` values with an expiry each.

    `clock`: monotonic, seconds. An exception of `load` is raised to all waiting callers, and not cached.
    """

    def __init__(self, *, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()
        """Value and time of expiry by key, the least recently used first."""
        self._loading: dict[Hashable, asyncio.Task[V]] = {}

    def has_answer(self, key: Hashable) -> bool:
        """Return whether `get` would not start a load: the key is cached, or being loaded."""
        return key in self._loading or (key in self._entries and self._clock() < self._entries[key][1])

    async def get(self, key: Hashable, load: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """Return the cached value of `key`, or that of `load`, which returns a value and its seconds to live."""
        if (found := self._entries.get(key)) is not None and self._clock() < found[1]:
            self._entries.move_to_end(key)
            return found[0]
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.create_task(self._load(key, load))
            loading.add_done_callback(_retrieve_exception)
        # Shielded: if the caller that started the load is cancelled, the other callers still need its result.
        return await asyncio.shield(loading)

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        try:
            value, seconds = await load()
        finally:
            del self._loading[key]
        self._entries[key] = value, self._clock() + seconds
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return value


def _retrieve_exception(task: asyncio.Task[V]) -> None:
    """Mark the exception as retrieved: asyncio logs it otherwise when all callers were cancelled."""
    if not task.cancelled():
        task.exception()
