"""Assignment of pods to the pod sets of their owner: whether there is room for one more beside those that run.

A pod shows by its requests which pod sets it can belong to; often there are several, as a small pod fits in the place
of a large one, but not the other way round. So the pods of each pod set cannot simply be counted: a pod has room if all
can be assigned to pod sets that they fit, with no more pods in a pod set than it needs (a bipartite matching; found by
augmenting paths, Ford and Fulkerson 1956).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fitting: TypeAlias = frozenset[str]
"""Names of the pod sets that a pod fits."""


def has_room(pod: Fitting, others: Iterable[Fitting], needed: Mapping[str, int]) -> bool:
    """Return whether a pod can be assigned to a pod set beside others, each pod to a pod set that it fits.

    `needed`: number of pods by pod set. Others for which there is no room themselves are not counted.
    """
    matching = _Matching(needed)
    for other, number in Counter(others).items():
        matching.add(other, number)
    return matching.add(pod, 1)


class _Matching:
    """Pods assigned to pod sets; those that fit the same pod sets are interchangeable."""

    def __init__(self, needed: Mapping[str, int]) -> None:
        self._free = dict(needed)
        """Number of pods that can still be assigned, by pod set."""
        self._assigned: dict[str, Counter[Fitting]] = {name: Counter() for name in needed}

    def add(self, pod: Fitting, number: int) -> bool:
        """Assign as many of `number` such pods as possible, reassigning others if necessary; return whether all are."""
        for name in pod:
            taken = min(self._free[name], number)
            self._free[name] -= taken
            self._assigned[name][pod] += taken
            number -= taken
        while number and self._assign(pod, set()):
            number -= 1
        return not number

    def _assign(self, pod: Fitting, visited: set[str]) -> bool:
        """Assign one pod to a pod set with room, or in place of another that finds room elsewhere.

        `visited`: pod sets in which others were tried already. Return whether it was assigned.
        """
        for name in pod:
            if self._free[name] > 0:
                self._free[name] -= 1
                self._assigned[name][pod] += 1
                return True
        for name in pod:
            if name in visited:
                continue
            visited.add(name)
            for other in [each for each, count in self._assigned[name].items() if count and each != pod]:
                if self._assign(other, visited):
                    self._assigned[name][other] -= 1
                    self._assigned[name][pod] += 1
                    return True
        return False
