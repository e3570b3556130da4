"""Which Jobs have a pod read after their start, to see whether webhooks add to it: samples, until one shows more.

Jobs are what most objects are, and nearly none has more in its pods than in its template. Webhooks that add a container
(a service mesh, an agent for secrets) choose pods by their namespace, and by labels and annotations. So Jobs of a
namespace whose templates have the same labels and annotations, whatever their values, are alike: one of them is read in
`_PAUSE`, and each of them once a pod of one requested more than its template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.kinds import paths
from admission.kinds.common import NOTHING

if TYPE_CHECKING:
    from admission.kinds.base import Object

_PAUSE: Final = 10.0
"""Seconds from one sample to the next."""
_MOST: Final = 10_000
"""Sets of alike Jobs that are remembered: a user may give each Job labels of its own."""

_Alike: TypeAlias = tuple[str, frozenset[str]]
"""Namespace, and keys of the labels and annotations of the template."""


class Samples:
    """What is known of Jobs that are alike, in this process."""

    def __init__(self) -> None:
        self._next: dict[_Alike, float] = {}
        """When another one is read (Unix time, s)."""

    def takes(self, job: Object, now: float) -> bool:
        """Return whether a pod of this Job, which has just started, is to be read; if so, it is a sample."""
        alike = _alike(job)
        if now < self._next.get(alike, now):
            return False
        if alike not in self._next and len(self._next) >= _MOST:
            self._next.clear()
        if self._next.get(alike) != 0:
            self._next[alike] = now + _PAUSE
        return True

    def requests_more(self, job: Object) -> None:
        """Note that the pods of a Job request more than its template: those of Jobs that are like it may, too."""
        self._next[_alike(job)] = 0


def _alike(job: Object) -> _Alike:
    metadata: Any = paths.at(job, ("spec", "template", "metadata")) or NOTHING
    keys = (key for field in ("labels", "annotations") for key in metadata.get(field) or ())
    return job["metadata"]["namespace"], frozenset(keys)
