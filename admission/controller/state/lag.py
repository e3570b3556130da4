"""How late the watch of the API server is: the time from the answer to a change of ours until the watch tells of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram

from admission.serving.metrics import LATENCY_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.cluster.client import Object
    from admission.cluster.informer import Change, Informer
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds

_MOST: Final = 1000
"""Changes that are waited for at a time; of others the time is not taken."""


class WatchLag:
    """Events have no time of their own, so it is taken for the objects that Sluice itself patches."""

    def __init__(
        self, kinds: Kinds, informers: Mapping[Kind, Informer], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`informers` are those that watch now, which may change."""
        self.histogram = Histogram(
            "sluice_informer_lag_seconds",
            "Time from the API server's answer to a patch until the watch told of it.",
            registry=None,
            buckets=LATENCY_BUCKETS,
        )
        self._kinds = kinds
        self._informers = informers
        self._clock = clock
        self._awaited: dict[tuple[Kind, str], tuple[str, float]] = {}
        """By kind and key: the version that the answer had, and when it came."""

    def answered(self, obj: Object) -> None:
        """A patch was answered with this object."""
        metadata = obj["metadata"]
        key, version = f"{metadata['namespace']}/{metadata['name']}", metadata["resourceVersion"]
        kind = self._kinds.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
        if kind is None or kind not in self._informers:
            return
        if self._informers[kind].has_seen(key, version):
            self.histogram.observe(0.0)
        elif len(self._awaited) < _MOST:
            self._awaited[kind, key] = version, self._clock()

    def heard(self, kind: Kind, changes: list[Change]) -> None:
        """The watch of a kind has told of these changes."""
        informer = self._informers.get(kind)
        if not self._awaited or informer is None:
            return
        for change in changes:
            awaited = self._awaited.get((kind, change.key))
            if awaited is not None and informer.has_seen(change.key, awaited[0]):
                del self._awaited[kind, change.key]
                self.histogram.observe(self._clock() - awaited[1])
            elif change.type == "DELETED":
                self._awaited.pop((kind, change.key), None)
