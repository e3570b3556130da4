"""How long workloads run, learned from those that have ended."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from admission.model.workload import Workload

    Key: TypeAlias = tuple[Hashable, ...]

LEAST: Final = 8
"""So many run times have to be known of a group before it is judged by them rather than by a larger group."""

MOST: Final = 300
"""The last run times of a group that count; older ones are forgotten."""


class _Group:
    """The last run times (s) of what has something in common."""

    def __init__(self) -> None:
        self._in_order_of_time: deque[float] = deque()
        self.sorted: list[float] = []

    def add(self, seconds: float) -> None:
        self._in_order_of_time.append(seconds)
        insort(self.sorted, seconds)
        if len(self._in_order_of_time) > MOST:
            oldest = self._in_order_of_time.popleft()
            del self.sorted[bisect_right(self.sorted, oldest) - 1]


class Durations:
    """By queue, user and shape; then by queue and shape, queue and user, queue alone, and all together."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}

    def __len__(self) -> int:
        """How many run times count at most in one group; 0 while nothing is known."""
        everything = self._groups.get(())
        return 0 if everything is None else len(everything.sorted)

    def learn(self, workload: Workload, seconds: float) -> None:
        """A workload has ended that ran for `seconds`."""
        for key in _keys(workload):
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group()
            group.add(seconds)

    def remaining(self, workload: Workload, *, elapsed: float = 0.0, limit: float | None = None) -> float | None:
        """Seconds that it runs on after `elapsed` ones: half of its like run longer, half less. None: unknown.

        `limit`: seconds after its start at which it is stopped. Without run times to go by it is what is expected.
        """
        return remaining(self.like(workload), elapsed=elapsed, limit=limit)

    def like(self, workload: Workload) -> Sequence[float]:
        """The last run times (s) of its like, in ascending order; empty while nothing is known."""
        group = next((group for key in _keys(workload) if (group := self._known(key)) is not None), None)
        return () if group is None else group.sorted

    def _known(self, key: Key) -> _Group | None:
        group = self._groups.get(key)
        return group if group is not None and (len(group.sorted) >= LEAST or key == ()) else None


def remaining(like: Sequence[float], *, elapsed: float = 0.0, limit: float | None = None) -> float | None:
    """`Durations.remaining` of a workload of which the run times of its like are known."""
    if not like:
        return None if limit is None else max(limit - elapsed, 0.0)
    longer = len(like) - (first := bisect_right(like, elapsed))
    # One that runs longer than any before runs as long again: so it is in the middle of heavy-tailed times.
    expected = like[first + longer // 2] if longer else 2 * elapsed
    return max((expected if limit is None else min(expected, limit)) - elapsed, 0.0)


def _keys(workload: Workload) -> Iterator[Key]:
    """From the narrowest group to the widest."""
    queue = workload.namespace, workload.queue
    shape = tuple((one.count, tuple(sorted(one.requests.items()))) for one in workload.pod_sets)
    yield queue, "user", workload.user, "shape", shape
    yield queue, "shape", shape
    yield queue, "user", workload.user
    yield (queue,)
    yield ()
