"""Answers of others, remembered for a short while: bounded, and asked for once by however many wait for the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

V = TypeVar("V")


class Remembered(Generic[V]):
    """At most `size` answers by key, those that were not used for longest forgotten first.

    `clock` gives seconds. An exception is never remembered.
    """

    def __init__(self, *, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[V]] = {}

    def known(self, key: Hashable) -> bool:
        """Whether `get` has an answer without asking, or is asking already."""
        return key in self._asking or (key in self._kept and self._clock() < self._kept[key][1])

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """The answer to `key`; if none is known, that of `ask`, which is good for the seconds that come with it."""
        if (found := self._kept.get(key)) is not None and self._clock() < found[1]:
            self._kept.move_to_end(key)
            return found[0]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            asking.add_done_callback(_looked_at)
        # Whoever asked first may go away; the others still want the answer.
        return await asyncio.shield(asking)

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        try:
            answer, seconds = await ask()
        finally:
            del self._asking[key]
        self._kept[key] = answer, self._clock() + seconds
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return answer


def _looked_at(task: asyncio.Task[V]) -> None:
    if not task.cancelled():
        task.exception()
