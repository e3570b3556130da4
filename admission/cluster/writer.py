"""Concurrent patches and deletions, never two at a time for one object: per-object order makes retries safe."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from admission.cluster.client import PatchType
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from admission.cluster.client import Client, Object

IN_FLIGHT = 48
"""Patches at the server at one time: well under the client's connections, and under the API server's share for us."""


BUSY = 20.0
"""Patches per second from which less important requests (events) wait."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One PATCH. Patches of the same `path` without its subresource are sent in the order of submission."""

    path: str
    body: object
    """JSON, or the bytes to send."""
    subresource: str = ""
    patch_type: PatchType = PatchType.MERGE
    params: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """One DELETE of the object with this uid, with the grace that it asks for itself."""

    path: str
    uid: str
    version: str = ""
    """The resourceVersion that it must still have; empty: any."""


Done: TypeAlias = "Callable[[Object | ClusterError], None]"
"""Callback for the outcome: the object afterwards, or the error. Runs in the event loop; must not raise."""


class Writer:
    """Sends submitted patches while `run` runs. What fails beyond the client's retries goes to the callback."""

    def __init__(
        self,
        client: Client,
        *,
        permitted: Callable[[], bool] = lambda: True,
        answered: Callable[[Object], None] = lambda _: None,
        in_flight: int = IN_FLIGHT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`permitted` is asked right before a patch is sent, each time that it is: if not, it ends as NotPermitted.

        `answered` is told each object as a patch has left it. `clock` gives seconds that never go back.
        """
        self._client = client
        self._answered = answered
        self._permitted = permitted
        self._in_flight = in_flight
        self._clock = clock
        self._lately, self._lately_at = 0.0, clock()
        """Patches per second: an exponential average with a time constant of one second."""
        self._waiting: dict[str, deque[tuple[Patch | Deletion, Done]]] = {}
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self.outcomes: Counter[str] = Counter()
        """How patches ended: "ok", or the name of the error."""

    @property
    def pending(self) -> int:
        """Patches submitted and not yet done."""
        return sum(len(queue) for queue in self._waiting.values())

    @property
    def busy(self) -> bool:
        """Whether many patches were submitted lately."""
        return self._fading() > BUSY

    def _fading(self) -> float:
        return self._lately * math.exp(self._lately_at - self._clock())

    def submit(self, patch: Patch | Deletion, done: Done) -> None:
        """Send it when those submitted before for the same object are done, then call `done`."""
        self._lately, self._lately_at = self._fading() + 1.0, self._clock()
        queue = self._waiting.get(patch.path)
        if queue is None:
            self._waiting[patch.path] = deque([(patch, done)])
            self._ready.put_nowait(patch.path)
        else:
            queue.append((patch, done))

    async def idle(self) -> None:
        """Wait until all that was submitted is done."""
        await self._ready.join()

    async def run(self) -> None:
        """Send until cancelled. What was not sent then is lost: what should be follows from the database."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._in_flight):
                    group.create_task(self._work())
        finally:
            self._waiting = {}
            self._ready = asyncio.Queue()

    async def _work(self) -> NoReturn:
        while True:
            path = await self._ready.get()
            queue = self._waiting[path]
            patch, done = queue[0]
            result = await self._send(patch)
            queue.popleft()
            if queue:
                self._ready.put_nowait(path)
            else:
                del self._waiting[path]
            done(result)
            self._ready.task_done()

    async def _send(self, patch: Patch | Deletion) -> Object | ClusterError:
        try:
            if isinstance(patch, Deletion):
                result = await self._delete(patch)
            else:
                path = f"{patch.path}/{patch.subresource}" if patch.subresource else patch.path
                result = await self._client.patch(
                    path, patch.body, patch_type=patch.patch_type, params=patch.params, permitted=self._permitted
                )
        except ClusterError as error:
            self.outcomes[type(error).__name__] += 1
            return error
        self.outcomes["ok"] += 1
        if isinstance(patch, Patch):
            self._answered(result)
        return result

    async def _delete(self, deletion: Deletion) -> Object:
        conditions = {"uid": deletion.uid} | ({"resourceVersion": deletion.version} if deletion.version else {})
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        return await self._client.delete(deletion.path, options, permitted=self._permitted)
