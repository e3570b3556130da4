"""The sender: all requests about objects go through it, and all answers come back as messages of the inbox.

At most one request is under way for an object. While one is, or the pause after a failed one, the object `is_busy`, and
no other is due for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import Conflict, NotFound
from admission.cluster.writer import IN_FLIGHT, Deletion, Patch
from admission.controller.state.inbox import DelayEnded, ObjectGone, ObjectReturned, StepDone
from admission.controller.state.lifecycle import Step
from admission.controller.workloads.plan import Write
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from admission.cluster.client import Client
    from admission.cluster.events import EventRecorder, ObjectReference
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.traces import Traces
    from admission.controller.workloads.plan import Notice
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds

MAX_READS: Final = 16
"""Number of objects read at a time: the other connections are for changes."""

_MAX_CONFLICTS: Final = 10
"""Conflicts after which a member is deleted unconditionally, so that a user who keeps changing it cannot keep it.

After each the watch has some time to report the change.
"""


_ACTIONS: Final = {"Stopped": "Stop", "Limited": "Limit", "Pending": "Wait"}
"""Action of an Event by its reason."""


class Sender:
    """Requests of one leadership about objects, by the uid of the object; those of a pod group by the group's uid."""

    def __init__(
        self,
        kinds: Kinds,
        client: Client,
        writer: Writer,
        events: EventRecorder,
        inbox: Inbox,
        traces: Traces | None,
    ) -> None:
        self._kinds = kinds
        self._client = client
        self._writer = writer
        self._events = events
        self._inbox = inbox
        self._traces = traces
        self._under_way: set[str] = set()
        self._paused: set[str] = set()
        self._to_read: set[str] = set()
        """Uids of objects to read after the request under way."""
        self._conflicts: Counter[str] = Counter()
        """Consecutive 409 Conflict responses to the deletion of a member of a group, by its uid."""
        self._reading = asyncio.Semaphore(MAX_READS)
        self._tasks: set[asyncio.Task[Any]] = set()

    def is_busy(self, uid: str) -> bool:
        """Whether a request is under way, its answer not processed yet, or a failed one not to be repeated yet."""
        return uid in self._under_way or uid in self._paused

    def begin(self, uid: str) -> bool:
        """Note that a request is under way, whose `StepDone` will follow; return False if one was already."""
        if uid in self._under_way:
            return False
        self._under_way.add(uid)
        return True

    def release(self, uid: str) -> None:
        """Process that the request under way is answered, before its `StepDone` is processed."""
        self._under_way.discard(uid)
        self._paused.discard(uid)
        if uid in self._to_read:
            self._to_read.discard(uid)
            self._inbox.put(DelayEnded(uid))

    def pause(self, uid: str, seconds: float) -> None:
        """Send nothing for an object until `DelayEnded` says that some seconds are over."""
        self._under_way.discard(uid)
        self._paused.add(uid)
        self.remind(uid, seconds)

    def remind(self, uid: str, seconds: float) -> None:
        """Send `DelayEnded` for an object after some seconds, unless it changes before."""
        asyncio.get_running_loop().call_later(seconds, self._inbox.put, DelayEnded(uid))

    def tell(self, target: ObjectReference, reason: str, note: str) -> None:
        """Record an Event about an object."""
        self._events.record(target, reason=reason, action=_ACTIONS[reason], note=note)

    def send(self, step: Step, write: Write, *, group: str = "") -> None:
        """Send a request about an object; `StepDone` has the object as it is then, or the error.

        `group`: what it is a part of, so that a large one does not delay others.
        """
        uid = write.target.uid
        self._under_way.add(uid)
        self._writer.submit(self._request(write), partial(self._answered, uid, step, time.time()), group=group)

    def _request(self, write: Write) -> Patch | Deletion:
        """Return the request for a write, whose Event is recorded."""
        target = write.target
        if write.note:
            self.tell(target, "Stopped", write.note)
        path = self._path(target)
        if write.patch is not None:
            return Patch(path, write.patch, write.subresource)
        version = write.version if self._conflicts[target.uid] < _MAX_CONFLICTS else ""
        preparation = write.preparation
        if preparation is not None and version:
            preparation = {"metadata": {**preparation["metadata"], "resourceVersion": version}}
        return Deletion(path, target.uid, version, preparation)

    def _path(self, target: ObjectReference) -> str:
        if target.kind == "Pod" and target.api_version == "v1":  # placed by topology, also where pods are not queued
            return f"/api/v1/namespaces/{target.namespace}/pods/{target.name}"
        kind = self._kinds.get(target.api_version.rpartition("/")[0], target.kind)
        assert kind is not None, target
        return self._kinds.path(kind, target.namespace, target.name)

    def _answered(self, uid: str, step: Step, began: float, result: Object | ClusterError) -> None:
        if step is Step.START and self._traces is not None:
            self._traces.patched(uid, began, time.time(), failed=isinstance(result, ClusterError))
        self._inbox.put(StepDone(uid, step, result))

    def label(self, kind: Kind, target: ObjectReference) -> None:
        """Restore the label by which an object is watched."""
        labels = {kind.watched_label: "true"}
        self.send(Step.WAIT, Write(target, {"metadata": {"uid": target.uid, "labels": labels}}))

    def send_each(self, uid: str, step: Step, kind: Kind, writes: Iterator[Write | Notice]) -> bool:
        """Send the requests of a step about the members of a group, objects of `kind`; return whether there are any.

        At most IN_FLIGHT are under way, and each is created when it is sent, so that a large group does not delay other
        workloads. `ObjectReturned` and `ObjectGone` tell how the members are then; when all requests are answered,
        `StepDone` has the first error, if any.
        """
        failed: list[ClusterError] = []
        under_way = 0

        def send_next() -> None:
            nonlocal under_way
            for due in writes:
                if isinstance(due, Write):
                    under_way += 1
                    self._writer.submit(self._request(due), partial(answered, due))
                    return
                self.tell(due.target, "Pending", due.note)

        def answered(write: Write, result: Object | ClusterError) -> None:
            nonlocal under_way
            under_way -= 1
            if write.patch is None:
                self._count_conflict(write.target.uid, result)
            if isinstance(result, NotFound):
                self._inbox.put(ObjectGone(write.target.uid))
            elif isinstance(result, ClusterError):
                failed.append(result)
            elif write.patch is not None:
                self._inbox.put(ObjectReturned(kind, result))
            send_next()
            if not under_way:
                self._inbox.put(StepDone(uid, step, failed[0] if failed else {"metadata": {"uid": uid}}))

        for _ in range(IN_FLIGHT):
            send_next()
        if under_way:
            self._under_way.add(uid)
        return under_way > 0

    def _count_conflict(self, uid: str, result: Object | ClusterError) -> None:
        if isinstance(result, Conflict):
            self._conflicts[uid] += 1
        else:
            del self._conflicts[uid]

    def forget(self, uid: str) -> None:
        """Process the deletion of an object."""
        self._paused.discard(uid)
        del self._conflicts[uid]

    def read(self, target: ObjectReference) -> None:
        """Read an object; `StepDone` has it. While another request is under way, `DelayEnded` follows it."""
        if self.begin(target.uid):
            self.run(self._read(target.uid, self._path(target)))
        else:
            self._to_read.add(target.uid)

    async def _read(self, uid: str, path: str) -> None:
        try:
            async with self._reading:
                result: Object | ClusterError = await self._client.get(path)
        except ClusterError as error:
            result = error
        self._inbox.put(StepDone(uid, Step.WAIT, result))

    def run(self, reading: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine that only reads, until the end of leadership."""
        task = asyncio.create_task(reading)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel what is being read, at the end of leadership."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
