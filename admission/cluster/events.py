"""Event recorder: Kubernetes Events about queued objects, written in the background without delay for other requests.

Fields and their limits: the events.k8s.io/v1 API (reason and action 128 characters, note 1024 bytes).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from admission.cluster.errors import AlreadyExists
from admission.model.errors import ClusterError
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import NoReturn

    from admission.cluster.client import Client, Object

log = logging.getLogger(__name__)

CONTROLLER = "sluice.dev/sluice"
"""reportingController of all events."""

QUEUE_SIZE = 10_000
"""Maximum number of queued events, while the server is slow; further ones are dropped and counted."""

IN_FLIGHT = 4
"""Concurrent requests."""
PER_SECOND = 50.0
"""Rate limit in events per second."""

MAX_POSTPONEMENT = 10.0
"""Seconds that an event is postponed at most while many patches are sent, which have precedence at the server."""
PER_SECOND_BUSY = 4.0
"""Rate limit while many patches are sent, in events per second."""

CACHE_SIZE = 10_000
"""Recent events kept in memory for deduplication."""

REPEAT_SECONDS = 600.0
"""Seconds within which equal events about the same object are written only once."""

_NOTE_BYTES = 1024
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an event is about (`regarding`)."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""
    """Empty for a cluster-scoped object, whose events are in the namespace `default`."""


class EventRecorder:
    """Event recorder with a queue; events are written while `run` runs."""

    def __init__(
        self,
        client: Client,
        *,
        busy: Callable[[], bool] = lambda: False,
        queue_size: int = QUEUE_SIZE,
        instance: str | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Parameters: `busy`: returns whether more important requests are being sent, see MAX_POSTPONEMENT.
        `instance`: reportingInstance, the name of this replica (None: the host name). `now`: Unix time (s).
        `clock`: monotonic clock (s).
        """
        self._client = client
        self._busy = busy
        self._instance = (instance or socket.gethostname())[:128]
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._queue: asyncio.Queue[tuple[float, Object]] = asyncio.Queue(queue_size)
        """Events, and when they were queued by the monotonic clock."""
        self._recent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        """When recent events were recorded, by (uid, reason, occasion or note), oldest first."""
        self._numbers = count()
        self.outcomes: Counter[str] = Counter()
        """Number of events by outcome: "ok", "repeated", "dropped", or the name of the error."""

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        warning: bool = False,
        occasion: str = "",
    ) -> bool:
        """Queue an event; return False if it repeats a recent one or the queue is full.

        Events of an object with the same reason are repetitions if they have the same `occasion` (a deduplication key),
        or without one the same note. An occasion also determines the event's name, so that the API server has one event
        of it, even if several replicas write it.
        """
        # A condition that becomes true again is another occasion, so that its event is written again, as the newest.
        key, at = (regarding.uid, reason, occasion or note), self._now()
        if at - self._recent.get(key, float("-inf")) < REPEAT_SECONDS:
            self.outcomes["repeated"] += 1
            return False
        if self._queue.full():
            self.outcomes["dropped"] += 1
            return False
        self._recent[key] = at
        self._recent.move_to_end(key)
        if len(self._recent) > CACHE_SIZE:
            self._recent.popitem(last=False)
        event = self._event(regarding, at, "Warning" if warning else "Normal", reason, action, note)
        if occasion:
            digest = hashlib.blake2b(f"{regarding.uid} {occasion}".encode(), digest_size=8).hexdigest()
            event["metadata"]["name"] = f"{regarding.name[:220]}.{digest}"
        self._queue.put_nowait((self._clock(), event))
        return True

    @property
    def pending(self) -> int:
        """Number of events that are queued or being written."""
        return self._queue.qsize()

    async def idle(self) -> None:
        """Wait until all queued events are written or have failed."""
        await self._queue.join()

    async def run(self) -> None:
        """Write queued events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._work())

    async def _work(self) -> NoReturn:
        while True:
            queued, event = await self._queue.get()
            while self._busy() and self._clock() - queued < MAX_POSTPONEMENT:
                await self._sleep(_POLL_SECONDS)
            namespace = event["metadata"]["namespace"]
            try:
                await self._client.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
            except AlreadyExists:
                outcome = "repeated"
            except ClusterError as error:
                outcome = type(error).__name__
                if not self.outcomes[outcome]:
                    log.warning("an event was not written: %s (further failures are only counted)", error)
            else:
                outcome = "ok"
            self.outcomes[outcome] += 1
            self._queue.task_done()
            await self._sleep(IN_FLIGHT / (PER_SECOND_BUSY if self._busy() else PER_SECOND))

    def _event(self, regarding: ObjectReference, at: float, kind: str, reason: str, action: str, note: str) -> Object:
        # Named as by client-go, plus a counter, because several events may have the same timestamp.
        name = f"{regarding.name[:220]}.{int(at * 1e9):x}{next(self._numbers) & 0xFFFF:04x}"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": regarding.namespace or "default"},
            "eventTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": kind,
            "reason": reason,
            "action": action,
            "note": _truncated(clean(note)),
            "regarding": _reference(regarding),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }


def _reference(reference: ObjectReference) -> Object:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {name: value for name, value in fields.items() if value}


def _truncated(note: str) -> str:
    raw = note.encode()
    return note if len(raw) <= _NOTE_BYTES else raw[: _NOTE_BYTES - 3].decode(errors="ignore") + "…"
