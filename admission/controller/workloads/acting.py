"""Drives objects towards what is committed: which request is due for each, and what its outcome means."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from admission.apimachinery.tables import duration
from admission.cluster.client import PatchType
from admission.cluster.errors import Conflict, Forbidden, Invalid, NotFound
from admission.cluster.events import Reference
from admission.cluster.writer import Patch
from admission.controller.state.inbox import Due, StepDone
from admission.controller.state.lifecycle import Step, next_step
from admission.model import sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.model.text import clean
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.context import Context
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.workload_state import Desk
    from admission.controller.workloads.observing import Observing
    from admission.kinds.base import Kind, Observed
    from admission.kinds.registry import Kinds
    from admission.model.workload import Admission, Workload

log = logging.getLogger(__name__)

READS_AT_ONCE = 16
"""Objects that are read at one time: the connections are for the patches."""

LONGEST_PAUSE = 30.0
"""Seconds between two attempts, at most."""


class Acting:
    """Looks at workloads that changed, does the one step that is due for each, and takes in how that went.

    At most one request is under way for each workload; until its outcome is known nothing else is decided about it.
    """

    def __init__(
        self,
        *,
        kinds: Kinds,
        client: Client,
        writer: Writer,
        events: EventRecorder,
        inbox: Inbox,
        context: Context,
        desk: Desk,
        observing: Observing,
        isolation: Isolation,
        reads: set[asyncio.Task[None]],
    ) -> None:
        self._kinds = kinds
        self._client = client
        self._writer = writer
        self._events = events
        self._inbox = inbox
        self._context = context
        self._desk = desk
        self._observing = observing
        self._isolation = isolation
        self._reads = reads
        self._reading = asyncio.Semaphore(READS_AT_ONCE)

    def release_stopped(self) -> None:
        """Before a commit: evicted workloads that have stopped and are restored give their quota back with it."""
        for uid in list(self._desk.dirty):
            tracked = self._desk.registry.get(uid)
            if (
                tracked is not None
                and tracked.record.state is State.EVICTING
                and tracked.in_flight is None
                and tracked.seen is not None
                and (obj := tracked.object) is not None
            ):
                with self._isolation.of(uid):
                    if self._due(tracked, tracked.seen) is Step.RELEASE:
                        self._observing.release(tracked, tracked.seen, obj)

    def act(self) -> None:
        """After a commit: send what is due for all workloads that changed."""
        dirty, self._desk.dirty = self._desk.dirty, {}
        for uid in dirty:
            tracked = self._desk.registry.get(uid)
            if tracked is None or tracked.in_flight is not None or tracked.seen is None:
                continue
            with self._isolation.of(uid):
                step = self._due(tracked, tracked.seen)
                if step is Step.RELEASE:
                    self._desk.dirty[uid] = None  # evicted before it was started: the next commit frees its quota
                elif tracked.holds_quota and tracked.unsettled and (tracked.seen.suspended or tracked.seen.deleting):
                    self._observing.wait_for_pods(tracked)
                elif step is not Step.WAIT and (obj := tracked.object) is not None:
                    self._do(step, tracked, tracked.seen, obj)

    def original_for(self, seen: Observed, obj: Object, admission: Admission) -> Object:
        """What has to be on record before the workload is started. Raises Misconfigured if it cannot be started."""
        return seen.kind.start_patch(obj, admission, self._context.flavors)[1]

    def done(self, message: StepDone) -> None:
        """The outcome of a request."""
        tracked = self._desk.registry.get(message.uid)
        if tracked is None:
            return
        tracked.in_flight = None
        if isinstance(message.result, ClusterError):
            self._failed(tracked, message.step, message.result)
            return
        tracked.attempts = 0
        if message.result["metadata"]["uid"] != message.uid:
            self._observing.gone(tracked)
            return
        if message.step is Step.START:
            tracked.in_sync = message.result["metadata"]["generation"]
            self._say_admitted(tracked)
        self._desk.dirty[message.uid] = None
        if (kind := self._kinds.of(tracked.record.workload)) is not None:
            self._isolation.see(kind, message.result, self._observing.see)

    def due(self, message: Due) -> None:
        """After a pause: what became of it, and what is due now?"""
        tracked = self._desk.registry.get(message.uid)
        if tracked is not None:
            self.look(tracked)

    def look(self, tracked: Tracked) -> None:
        """Read the object; nothing is decided about it before the answer is there."""
        tracked.in_flight = tracked.in_flight or Step.WAIT
        task = asyncio.create_task(self._read(tracked.record.workload))
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    def look_for_the_unseen(self, forbidden: Collection[Kind]) -> None:
        """Those on record that were not seen: ended, or not queued any more, or gone. The API server knows.

        `forbidden`: kinds that it does not tell of. What waits of them is on hold until it does.
        """
        for tracked in self._desk.registry:
            if tracked.seen is None and tracked.in_flight is None and (kind := self._kinds.of(tracked.record.workload)):
                if kind in forbidden and tracked.record.state is State.PENDING:
                    self._desk.bar_kind_forbidden(tracked)
                self.look(tracked)

    def _do(self, step: Step, tracked: Tracked, seen: Observed, obj: Object) -> None:
        match step:
            case Step.START:
                self._start(tracked, seen, obj)
            case Step.STOP:
                self._send(tracked, Step.STOP, seen.kind.stop_patch(obj))
            case Step.RESTORE:
                patch = _restoration(tracked, seen, obj)
                assert patch is not None, tracked
                self._send(tracked, Step.RESTORE, patch)
            case _:
                pass

    def _due(self, tracked: Tracked, seen: Observed) -> Step:
        # Whether something is to be restored matters, and costs, only then.
        stopped = (tracked.record.state is State.EVICTING or tracked.came_late) and not seen.active
        return next_step(
            tracked.record.state,
            seen,
            changed_by_us=stopped
            and (obj := tracked.object) is not None
            and _restoration(tracked, seen, obj) is not None,
            checks_pending=tracked.record.checks_pending,
            settled=not tracked.unsettled,
        )

    def _start(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        record = tracked.record
        assert record.admission is not None, record
        if _restoration(tracked, seen, obj) is not None:  # it was started before, and suspended by its user
            self._send(tracked, Step.START, seen.kind.resume_patch(obj))
            return
        try:
            patch, original = seen.kind.start_patch(obj, record.admission, self._context.flavors, tracked.updates)
        except Misconfigured as error:
            self._desk.refuse(tracked, generation=seen.generation, message=str(error))
            return
        if original != record.original:
            # It was edited since: what is to be restored has to be on record before it is replaced.
            self._desk.amend(tracked, original=original)
            return
        self._send(tracked, Step.START, patch)

    def _send(self, tracked: Tracked, step: Step, body: Object | list[Object]) -> None:
        self._submit(tracked, step, body)

    def _submit(self, tracked: Tracked, step: Step, body: Object | list[Object], *, subresource: str = "") -> None:
        tracked.in_flight = step
        path = self._path(tracked.record.workload)
        patch_type = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        self._writer.submit(
            Patch(path, body, subresource=subresource, patch_type=patch_type), self._tell(tracked.uid, step)
        )

    def _tell(self, uid: str, step: Step) -> Callable[[Object | ClusterError], None]:
        return lambda result: self._inbox.put(StepDone(uid, step, result))

    def _failed(self, tracked: Tracked, step: Step, error: ClusterError) -> None:
        """Decide by the kind of failure; in doubt look at the object again before anything else is done."""
        tracked.attempts += 1
        if isinstance(error, NotFound):
            self._observing.gone(tracked)
            return
        seen, obj = tracked.seen, tracked.object
        if seen is not None and obj is not None and self._refused(tracked, seen, obj, step, error):
            return
        tracked.in_flight = step  # its outcome is not known before the object was read again
        if isinstance(error, Conflict | Invalid) and tracked.attempts <= 2:
            self.look(tracked)
            return
        if tracked.attempts == 1 or (isinstance(error, Forbidden) and step is not Step.WAIT):
            log.warning("cannot %s %s: %s", step.value, tracked.record.workload.key, error)
        pause = random.uniform(0.5, 1.0) * min(0.2 * 2**tracked.attempts, LONGEST_PAUSE)
        asyncio.get_running_loop().call_later(pause, self._inbox.put, Due(tracked.uid))

    def _refused(self, tracked: Tracked, seen: Observed, obj: Object, step: Step, error: ClusterError) -> bool:
        """Whether the API server will never have the change; what follows from that is then done."""
        refused = isinstance(error, Invalid) and bool(error.status.get("details"))
        if refused and seen.started and step in (Step.START, Step.RESTORE) and tracked.attempts == 1:
            # Before Kubernetes 1.36 a Job's template may change only after its start time was cleared.
            self._submit(tracked, Step.WAIT, seen.kind.clear_start_time_patch(obj), subresource="status")
            return True
        if refused and step is Step.START:
            log.warning("%s cannot be started: %s", seen.key, error)
            self._desk.refuse(tracked, generation=seen.generation, message=clean(str(error)))
            return True
        return False

    async def _read(self, workload: Workload) -> None:
        try:
            async with self._reading:
                result: Object | ClusterError = await self._client.get(self._path(workload))
        except ClusterError as error:
            result = error
        self._inbox.put(StepDone(workload.uid, Step.WAIT, result))

    def _path(self, workload: Workload) -> str:
        kind = self._kinds.of(workload)
        assert kind is not None, workload
        return self._kinds.path(kind, workload.namespace, workload.name)

    def _say_admitted(self, tracked: Tracked) -> None:
        record = tracked.record
        if record.admission is None:
            return
        waited = (record.admitted_at or record.queued_at) - record.queued_at
        self._events.record(
            reference(record.workload),
            reason="Admitted",
            action="Admit",
            note=f"{sentences.admitted(record.workload, record.admission)} It waited for {duration(waited)}.",
        )


def _restoration(tracked: Tracked, seen: Observed, obj: Object) -> Object | list[Object] | None:
    original = tracked.record.original
    return None if original is None else seen.kind.restore_patch(obj, original)


def reference(workload: Workload) -> Reference:
    """The object of a workload, for an Event."""
    return Reference(
        api_version=workload.api_version,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
    )
