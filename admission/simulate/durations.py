"""Expected run times of workloads, learned from finished ones."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from admission.model.workload import Workload

    Key: TypeAlias = tuple[Hashable, ...]

MIN_SAMPLES: Final = 8
"""Run times that a group needs before its median is used; with fewer, a wider group is used."""

MAX_SAMPLES: Final = 300
"""Most recent run times that a group keeps."""


class _Alike:
    """The most recent run times (s) of workloads with something in common."""

    def __init__(self) -> None:
        self._by_time: deque[float] = deque()
        self.sorted: list[float] = []

    def add(self, seconds: float) -> None:
        self._by_time.append(seconds)
        insort(self.sorted, seconds)
        if len(self._by_time) > MAX_SAMPLES:
            oldest = self._by_time.popleft()
            del self.sorted[bisect_right(self.sorted, oldest) - 1]


class Durations:
    """Run times in groups of similar workloads, from narrow to wide.

    By queue, user and shape; by queue and shape; by queue and user; by queue; and all together.
    """

    def __init__(self) -> None:
        self._groups: dict[Key, _Alike] = {}

    def __len__(self) -> int:
        """The number of run times in the widest group; 0 while nothing is known."""
        everything = self._groups.get(())
        return 0 if everything is None else len(everything.sorted)

    def learn(self, workload: Workload, seconds: float) -> None:
        """Record that a workload has finished after running for `seconds`."""
        for key in _keys(workload):
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Alike()
            group.add(seconds)

    def remaining(self, workload: Workload, *, elapsed: float = 0.0, limit: float | None = None) -> float | None:
        """Return the expected remaining run time (s) after `elapsed` seconds: the median of similar workloads.

        None: unknown. `limit`: seconds after its start at which it is stopped; without known run times, this is the
        expected run time.
        """
        return remaining(self.similar(workload), elapsed=elapsed, limit=limit)

    def similar(self, workload: Workload) -> Sequence[float]:
        """Return the run times (s) of similar workloads, in ascending order; empty while nothing is known."""
        group = next((group for key in _keys(workload) if (group := self._known(key)) is not None), None)
        return () if group is None else group.sorted

    def _known(self, key: Key) -> _Alike | None:
        group = self._groups.get(key)
        return group if group is not None and (len(group.sorted) >= MIN_SAMPLES or key == ()) else None


def remaining(similar: Sequence[float], *, elapsed: float = 0.0, limit: float | None = None) -> float | None:
    """Return `Durations.remaining` for given run times of similar workloads, in ascending order."""
    if not similar:
        return None if limit is None else max(limit - elapsed, 0.0)
    longer = len(similar) - (first := bisect_right(similar, elapsed))
    # A workload that runs longer than any before is expected to run as long again: about the median of heavy-tailed
    # run times.
    expected = similar[first + longer // 2] if longer else 2 * elapsed
    return max((expected if limit is None else min(expected, limit)) - elapsed, 0.0)


def _keys(workload: Workload) -> Iterator[Key]:
    """Yield the keys of a workload's groups, from the narrowest to the widest."""
    queue = workload.namespace, workload.queue
    shape = tuple((one.count, tuple(sorted(one.requests.items()))) for one in workload.pod_sets)
    yield queue, "user", workload.user, "shape", shape
    yield queue, "shape", shape
    yield queue, "user", workload.user
    yield (queue,)
    yield ()
