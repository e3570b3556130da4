"""Lag of the watches: time from the API server's response to a patch until the watch delivers the change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram

from admission.serving.metrics import LATENCY_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.cluster.client import Object
    from admission.cluster.informer import Informer, WatchedChange
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds

_MAX_AWAITED: Final = 1000
"""Patches whose watch events are awaited at the same time; further ones are not measured, which bounds the memory."""


class WatchLag:
    """Histogram of the watch lag, measured on the objects that Sluice patches, as watch events carry no timestamp."""

    def __init__(self, kinds: Kinds, informers: Mapping[Kind, Informer]) -> None:
        """`informers`: the running informers by kind, which may change."""
        self.histogram = Histogram(
            "sluice_informer_lag_seconds",
            "Time from the API server's answer to a patch until the watch delivers the change.",
            registry=None,
            buckets=LATENCY_BUCKETS,
        )
        self._kinds = kinds
        self._informers = informers
        self._awaited: dict[tuple[Kind, str], tuple[str, float]] = {}
        """resourceVersion in the response and time of the response, by kind and key (`namespace/name`)."""

    def patched(self, obj: Object) -> None:
        """Note the object with which the API server has answered a patch."""
        metadata = obj["metadata"]
        key, version = f"{metadata['namespace']}/{metadata['name']}", metadata["resourceVersion"]
        kind = self._kinds.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
        if kind is None or kind not in self._informers:
            return
        if self._informers[kind].has_seen(key, version):
            self.histogram.observe(0.0)
        elif len(self._awaited) < _MAX_AWAITED:
            self._awaited[kind, key] = version, time.monotonic()

    def changes_delivered(self, kind: Kind, changes: list[WatchedChange]) -> None:
        """Process changes that the watch of a kind has delivered."""
        informer = self._informers.get(kind)
        if not self._awaited or informer is None:
            return
        for change in changes:
            awaited = self._awaited.get((kind, change.key))
            if awaited is not None and informer.has_seen(change.key, awaited[0]):
                del self._awaited[kind, change.key]
                self.histogram.observe(time.monotonic() - awaited[1])
            elif change.type == "DELETED":
                self._awaited.pop((kind, change.key), None)
