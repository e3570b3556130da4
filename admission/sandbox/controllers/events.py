"""Recorder of Kubernetes Events."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import rfc3339

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient


class Recorder:
    """Writes the Events of one component."""

    def __init__(self, local: LocalClient, clock: Clock, component: str) -> None:
        self._local = local
        self._clock = clock
        self._component = component
        self._serial = itertools.count(int(clock.now() * 1e6))

    async def write(self, about: Object, reason: str, message: str, *, kind: str = "Normal") -> None:
        """Write an Event about a namespaced object; without effect in a namespace that is terminating."""
        metadata, instant = about["metadata"], rfc3339(self._clock.now())
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{next(self._serial):x}"},
            "involvedObject": {
                "kind": about["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": about["apiVersion"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": instant,
            "lastTimestamp": instant,
            "count": 1,
            "type": kind,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        try:
            await self._local.create("events", metadata["namespace"], event)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
