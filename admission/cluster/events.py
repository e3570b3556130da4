"""Kubernetes Events about queued objects, written in the background so that they delay no decision or patch.

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
"""The reportingController of all events."""

WAITING = 10_000
"""Events kept while the server is slow; those beyond are dropped and counted."""

IN_FLIGHT = 4
PER_SECOND = 50.0
"""Concurrent requests, and the rate limit (events per second)."""

POSTPONED = 10.0
PER_SECOND_BUSY = 4.0
"""While many patches are sent, the server is left to them: an event waits for so many seconds for that to end, and so
few in a second are written then."""

REMEMBERED = 10_000
"""Recent events kept in memory to recognise repetitions."""

REPEAT_SECONDS = 600.0
"""Seconds within which an equal event about the same object is written once."""

_NOTE_BYTES = 1024
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""
    """Empty for an object in no namespace; its events live in `default`."""


class EventRecorder:
    """Writes events in the background, while `run` runs."""

    def __init__(
        self,
        client: Client,
        *,
        busy: Callable[[], bool] = lambda: False,
        waiting: int = WAITING,
        instance: str | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`busy` says whether the server has more important things to do.

        `instance` names this process among replicas (None: the host's name); `now` gives seconds since the epoch.
        """
        self._client = client
        self._busy = busy
        self._instance = (instance or socket.gethostname())[:128]
        self._now = now
        self._sleep = sleep
        self._queue: asyncio.Queue[tuple[float, Object]] = asyncio.Queue(waiting)
        self._said: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._numbers = count()
        self.outcomes: Counter[str] = Counter()
        """What became of events: "ok", "repeated", "dropped", or the name of the error."""

    def record(
        self,
        regarding: Reference,
        *,
        reason: str,
        action: str,
        note: str,
        warning: bool = False,
        occasion: str = "",
    ) -> bool:
        """Queue an event; False if it repeats one of late, or too many wait already.

        It repeats one with the same note, or, if it has an `occasion`, one of that. The API server keeps one event of
        an occasion of an object, whoever writes how many.
        """
        # What was true, then was not, and is again, has an occasion of its own: its event is the newest once more.
        said, at = (regarding.uid, reason, occasion or note), self._now()
        if at - self._said.get(said, float("-inf")) < REPEAT_SECONDS:
            self.outcomes["repeated"] += 1
            return False
        if self._queue.full():
            self.outcomes["dropped"] += 1
            return False
        self._said[said] = at
        self._said.move_to_end(said)
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        event = self._event(regarding, at, "Warning" if warning else "Normal", reason, action, note)
        if occasion:
            digest = hashlib.blake2b(f"{regarding.uid} {occasion}".encode(), digest_size=8).hexdigest()
            event["metadata"]["name"] = f"{regarding.name[:220]}.{digest}"
        self._queue.put_nowait((at, event))
        return True

    @property
    def pending(self) -> int:
        """Events that wait to be written."""
        return self._queue.qsize()

    async def idle(self) -> None:
        """Wait until all that was queued is written or given up."""
        await self._queue.join()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._work())

    async def _work(self) -> NoReturn:
        while True:
            at, event = await self._queue.get()
            while self._busy() and self._now() - at < POSTPONED:
                await self._sleep(_LOOK_SECONDS)
            namespace = event["metadata"]["namespace"]
            try:
                await self._client.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
            except AlreadyExists:
                outcome = "repeated"
            except ClusterError as error:
                outcome = type(error).__name__
                if not self.outcomes[outcome]:
                    log.warning("an event was not written: %s (further ones are only counted)", error)
            else:
                outcome = "ok"
            self.outcomes[outcome] += 1
            self._queue.task_done()
            await self._sleep(IN_FLIGHT / (PER_SECOND_BUSY if self._busy() else PER_SECOND))

    def _event(self, regarding: Reference, at: float, kind: str, reason: str, action: str, note: str) -> Object:
        # As client-go names them, and a number, as several may fall into one tick of the clock.
        name = f"{regarding.name[:220]}.{int(at * 1e9):x}{next(self._numbers) & 0xFFFF:04x}"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": regarding.namespace or "default"},
            "eventTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": kind,
            "reason": reason,
            "action": action,
            "note": _cut(clean(note)),
            "regarding": _reference(regarding),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }


def _reference(reference: Reference) -> Object:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {name: value for name, value in fields.items() if value}


def _cut(note: str) -> str:
    raw = note.encode()
    return note if len(raw) <= _NOTE_BYTES else raw[: _NOTE_BYTES - 3].decode(errors="ignore") + "…"
