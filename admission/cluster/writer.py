"""Concurrent changes of objects, at most one at a time for each object: the order per object makes retries safe."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from admission.cluster.client import PatchType
from admission.cluster.errors import NotPermitted
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import NoReturn

    from admission.cluster.client import Client, Object

IN_FLIGHT = 48
"""Concurrent requests: well below the client's connection limit, and our share of the API server's concurrency."""

AT_FIRST = 4
"""Concurrent requests of a burst at first: to open a connection costs several times as much as a request on it."""

WIDENING = 0.02
"""Seconds in which requests wait for others to be answered, until twice as many may be under way."""

IN_GROUP = 16
"""Requests of one group that are under way or come before later ones, so that a large group does not delay others."""

BUSY = 20.0
"""Rate in patches per second above which less important requests (events) are postponed."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A PATCH request. Requests with the same `path`, whatever their subresource, are sent in order of submission."""

    path: str
    body: Object | list[Object]
    """A merge patch, or the operations of a JSON patch."""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A DELETE request with a precondition on the uid."""

    path: str
    uid: str
    version: str = ""
    """Precondition on the resourceVersion; empty: none."""
    preparation: Object | None = None
    """Merge patch that is sent before; None: none."""
    propagation: str = ""
    """What becomes of its dependents, such as "Background"; empty: what the API server does by default."""
    grace: int | None = None
    """`gracePeriodSeconds`; None: the object's own."""


@dataclass(frozen=True, slots=True)
class Creation:
    """A POST request to the `collection` of an object."""

    collection: str
    body: Object
    is_wanted: Callable[[], bool] = lambda: True
    """Called before each attempt; if it returns False, the outcome is NotPermitted: creations have no precondition."""

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.body['metadata']['name']}"


Request: TypeAlias = "Patch | Deletion | Creation"
Callback: TypeAlias = "Callable[[Object | ClusterError], None]"
"""Called with the outcome of a request: the object in the response, or the error. Must not raise."""


class Writer:
    """Sends submitted requests while `run` runs; a failure after the client's retries is passed to the callback."""

    def __init__(
        self,
        client: Client,
        *,
        permitted: Callable[[], bool] = lambda: True,
        on_patched: Callable[[Object], None] = lambda _: None,
        in_flight: int = IN_FLIGHT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Parameters: `permitted`: called before each attempt; if it returns False, the outcome is NotPermitted.
        `on_patched`: called with the object in the response to each patch. `clock`: monotonic clock (s).
        """
        self._client = client
        self._on_patched = on_patched
        self._permitted = permitted
        self._in_flight = in_flight
        self._clock = clock
        self._sleep = sleep
        self._rate, self._rate_at = 0.0, clock()
        """Submissions per second (exponential moving average, time constant 1 s), and when it was last updated."""
        self._clear()
        self._awaited: dict[asyncio.Future[Object | ClusterError], Request] = {}
        self._is_running = False
        self.outcomes: Counter[str] = Counter()
        """Number of requests by outcome: "ok", or the name of the error."""

    def _clear(self) -> None:
        self._queues: dict[str, deque[tuple[Request, Callback]]] = {}
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._crowded = asyncio.Event()
        """Set when a request may have to wait for others to be answered."""
        self._groups: dict[str, str] = {}
        """Group of each path of one that has requests."""
        self._waiting: dict[str, deque[str]] = {}
        """By group, the paths that are not ready yet, because `IN_GROUP` others of it are."""
        self._ready_of = Counter[str]()
        """By group, how many of its paths are ready or have a request under way."""

    @property
    def pending(self) -> int:
        """Number of requests that are submitted and not completed."""
        return sum(len(queue) for queue in self._queues.values())

    @property
    def busy(self) -> bool:
        """Whether the recent rate of submissions is above BUSY."""
        return self._current_rate() > BUSY

    def _current_rate(self) -> float:
        return self._rate * math.exp(self._rate_at - self._clock())

    def submit(self, request: Request, callback: Callback, *, group: str = "") -> None:
        """Send a request after earlier ones for the same object are completed, then call `callback`.

        `group`: what the object is a part of; at most `IN_GROUP` requests of it come before later ones of others.
        """
        self._rate, self._rate_at = self._current_rate() + 1.0, self._clock()
        path = request.path
        queue = self._queues.get(path)
        if queue is None:
            self._queues[path] = deque([(request, callback)])
            if group:
                self._groups[path] = group
                self._waiting.setdefault(group, deque()).append(path)
                self._next_of(group)
            else:
                self._make_ready(path)
        else:
            queue.append((request, callback))

    def _make_ready(self, path: str) -> None:
        self._ready.put_nowait(path)
        self._crowded.set()

    def _next_of(self, group: str) -> None:
        waiting = self._waiting[group]
        if waiting and self._ready_of[group] < IN_GROUP:
            self._ready_of[group] += 1
            self._make_ready(waiting.popleft())
        elif not self._ready_of[group]:
            del self._waiting[group], self._ready_of[group]

    @property
    def may_send(self) -> bool:
        """Whether `run` runs, and this replica is certainly the leader."""
        return self._is_running and self._permitted()

    async def request(self, request: Request) -> Object:
        """Send a request as `submit` does; return the object in its response. Raises ClusterError.

        Raises NotPermitted, too, if `run` does not run, or ends before the response.
        """
        if not self._is_running:
            raise _not_leading(request)
        outcome: asyncio.Future[Object | ClusterError] = asyncio.get_running_loop().create_future()
        self._awaited[outcome] = request
        try:
            self.submit(request, lambda result: None if outcome.done() else outcome.set_result(result))
            result = await outcome
        finally:
            del self._awaited[outcome]
        if isinstance(result, ClusterError):
            raise result
        return result

    async def idle(self) -> None:
        """Wait until all submitted requests are completed."""
        await self._ready.join()

    async def run(self) -> None:
        """Send requests until cancelled. Those still queued are dropped: the next leader derives them again."""
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_FIRST, self._in_flight)):
                    group.create_task(self._work())
                await self._widen(group)
        finally:
            self._is_running = False
            self._clear()
            for outcome, request in self._awaited.items():
                if not outcome.done():
                    outcome.set_result(_not_leading(request))

    async def _widen(self, group: asyncio.TaskGroup) -> NoReturn:
        """Have more requests under way while some wait."""
        first = min(AT_FIRST, self._in_flight)
        further = set[asyncio.Task[None]]()
        while True:
            await self._crowded.wait()
            await self._sleep(WIDENING)
            under_way = first + len(further)
            for _ in range(min(self._ready.qsize(), under_way, self._in_flight - under_way)):
                task = group.create_task(self._send_ready())
                further.add(task)
                task.add_done_callback(further.discard)
            if self._ready.empty() or first + len(further) >= self._in_flight:
                self._crowded.clear()

    async def _work(self) -> NoReturn:
        while True:
            await self._send_next(await self._ready.get())

    async def _send_ready(self) -> None:
        while not self._ready.empty():
            await self._send_next(self._ready.get_nowait())

    async def _send_next(self, path: str) -> None:
        queue = self._queues[path]
        request, callback = queue[0]
        result = await self._send(request)
        queue.popleft()
        if queue:
            self._make_ready(path)
        else:
            del self._queues[path]
            if group := self._groups.pop(path, ""):
                self._ready_of[group] -= 1
                self._next_of(group)
        callback(result)
        self._ready.task_done()

    async def _send(self, request: Request) -> Object | ClusterError:
        try:
            match request:
                case Patch(path, body, subresource):
                    patch_type = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
                    path = f"{path}/{subresource}" if subresource else path
                    result = await self._client.patch(path, body, patch_type=patch_type, permitted=self._permitted)
                    self._on_patched(result)
                case Deletion():
                    result = await self._delete(request)
                case _:
                    permitted = partial(self._may_create, request.is_wanted)
                    result = await self._client.create(request.collection, request.body, permitted=permitted)
        except ClusterError as error:
            self.outcomes[type(error).__name__] += 1
            return error
        self.outcomes["ok"] += 1
        return result

    def _may_create(self, is_wanted: Callable[[], bool]) -> bool:
        return self._permitted() and is_wanted()

    async def _delete(self, deletion: Deletion) -> Object:
        version = deletion.version
        if deletion.preparation is not None:
            prepared = await self._client.patch(deletion.path, deletion.preparation, permitted=self._permitted)
            version = version and prepared["metadata"]["resourceVersion"]
        conditions = {"uid": deletion.uid} | ({"resourceVersion": version} if version else {})
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        if deletion.propagation:
            options["propagationPolicy"] = deletion.propagation
        if deletion.grace is not None:
            options["gracePeriodSeconds"] = deletion.grace
        return await self._client.delete(deletion.path, options, permitted=self._permitted)


def _not_leading(request: Request) -> NotPermitted:
    return NotPermitted(f"{request.path}: not changed, because this replica does not lead")
