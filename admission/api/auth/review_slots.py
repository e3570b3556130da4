"""Slots for concurrent reviews, shared fairly: users who wait for one take turns, however many reviews each needs."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ReviewSlots:
    """At most `slots` reviews are in flight, and at most `each` of one user; at most `waiting` of one user wait."""

    def __init__(self, *, slots: int, each: int, waiting: int) -> None:
        self._free = slots
        self._each = each
        self._waiting = waiting
        self._in_flight: Counter[str] = Counter()
        self._queues: OrderedDict[str, dict[asyncio.Future[bool], float]] = OrderedDict()
        """What waits, with the loop's time of its arrival, by user. First are the user whose turn is next, and the
        oldest of a user."""

    def is_full(self, user: str) -> bool:
        """Return whether no further review of the user may wait."""
        return len(self._queues.get(user, ())) >= self._waiting

    @asynccontextmanager
    async def slot(self, user: str) -> AsyncIterator[None]:
        """Hold a slot for the time of the block. Raises TimeoutError if `give_up` ends the wait for one."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._queues.setdefault(user, {})[turn] = loop.time()
        self._give_slot()
        try:
            if not await turn:
                raise TimeoutError
            yield
        finally:
            if turn.cancelled():
                self._leave(user, turn)
            elif turn.result():
                self._release(user)

    def give_up(self, seconds: float) -> None:
        """End the wait of all reviews that have waited for `seconds` or longer."""
        since = asyncio.get_running_loop().time() - seconds
        late = [(user, turn) for user, queue in self._queues.items() for turn, began in queue.items() if began <= since]
        for user, turn in late:
            if not turn.cancelled():
                self._leave(user, turn)
                turn.set_result(False)

    def _give_slot(self) -> None:
        """Give a slot, if one is free, to the first user in turn who may have one more."""
        if not self._free:
            return
        for user, queue in self._queues.items():
            # A cancelled turn leaves the queue itself, a moment later.
            turn = next((each for each in queue if not each.cancelled()), None)
            if turn is not None and self._in_flight[user] < self._each:
                self._free -= 1
                self._in_flight[user] += 1
                self._queues.move_to_end(user)
                self._leave(user, turn)
                turn.set_result(True)
                return

    def _leave(self, user: str, turn: asyncio.Future[bool]) -> None:
        del self._queues[user][turn]
        if not self._queues[user]:
            del self._queues[user]

    def _release(self, user: str) -> None:
        self._free += 1
        self._in_flight[user] -= 1
        if not self._in_flight[user]:
            del self._in_flight[user]
        self._give_slot()
