"""Keeps workloads apart: an exception that one of them causes is caught, and that one alone is set aside.

It is recorded as misconfigured, with the cause, without pod sets, so that nothing is decided about it, and if it runs
it is stopped. Where even that fails it is ignored. It is tried again when its object changes. What holds quota, or
gives it back just now, cannot be set aside in memory alone: then the leader begins anew from the database.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from admission.controller.state.tracked import Tracked
from admission.engine.vocabulary import MISCONFIGURED
from admission.kinds.base import Observed
from admission.model.workload import Workload
from admission.store.records import State, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.controller.state.faults import Fault, Faults
    from admission.controller.state.leader_state import LeaderState
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds


class Isolation:
    """For the state of one leader; `faults` outlasts it."""

    def __init__(self, *, kinds: Kinds, state: LeaderState, faults: Faults) -> None:
        self._kinds = kinds
        self._state = state
        self.faults = faults
        """What is known of workloads that have failed."""
        self.failures: dict[str, tuple[Kind, Object] | None] = {}
        """The uids of those that have to be set aside, with kinds and objects as far as they are known."""

    def leaves_alone(self, kind: Kind, obj: Object) -> bool:
        """Whether this version of an object is left alone, because it has failed before; it stays set aside then."""
        metadata = obj["metadata"]
        if self.faults.of(metadata["uid"], metadata["resourceVersion"]) is None:
            return False
        self.failures[metadata["uid"]] = kind, obj
        return True

    def failed_at(self, kind: Kind, obj: Object, error: Exception) -> None:
        """An object caused an exception as it was taken in."""
        metadata = obj["metadata"]
        self.faults.note(metadata["uid"], metadata["resourceVersion"], error)
        self.failures[metadata["uid"]] = kind, obj

    @contextmanager
    def of(self, uid: str) -> Iterator[None]:
        """Whatever is raised within the block is the fault of this workload, and ends there."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this workload
            self.failed(uid, error)

    @contextmanager
    def of_queue_object(self, key: tuple[str, str, str]) -> Iterator[None]:
        """Whatever is raised within the block is the fault of this queue object, which has no effect then."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this object
            self.faults.report(" ".join(filter(None, key)), error)

    def failed(self, uid: str, error: Exception) -> None:
        """A workload caused an exception."""
        tracked = self._state.registry.get(uid)
        seen = None if tracked is None else tracked.seen
        self.faults.note(uid, "" if seen is None else seen.resource_version, error)
        obj = None if tracked is None else tracked.object
        self.failures[uid] = None if seen is None or obj is None else (seen.kind, obj)

    def settle(self) -> list[str]:
        """Set all aside that failed since the last call; the uids of those for which the leader has to begin anew."""
        beyond = []
        while self.failures:
            uid, known = self.failures.popitem()
            fault = self.faults.by_uid.get(uid)
            if fault is None:
                continue
            try:
                done = self._set_aside(uid, known, fault)
            except Exception as error:  # noqa: BLE001  so it is ignored
                self.faults.note(uid, fault.version, error)
                done = False
            if not done:
                beyond.append(uid)
        return beyond

    def _set_aside(self, uid: str, known: tuple[Kind, Object] | None, fault: Fault) -> bool:
        """Whether that was possible."""
        state = self._state
        tracked = state.registry.get(uid)
        if tracked is not None and (tracked.holds_quota or state.batch.moves_quota(uid)):
            return tracked.seen is None  # it was loaded since, and is left as it is on record
        if tracked is not None:
            state.drop(tracked)
        if fault.is_ignored:
            return True
        seen = None if known is None else _observe(*known)
        if tracked is None:
            if seen is None or not seen.queue or seen.finished is not None:
                return True
            if state.ended.has(uid, seen.resource_version):
                return True
            record = WorkloadRecord(_bare(seen, self._kinds), State.PENDING, queued_at=self._state.now)
            tracked = Tracked(record=record)
        workload = replace(tracked.record.workload, pod_sets=(), priority=0, priority_class="", user="")
        tracked.change(workload=workload, reason=MISCONFIGURED, message=fault.message)
        tracked.seen, tracked.object = seen, None if known is None else known[1]
        state.keep_out(tracked)
        return True


def _observe(kind: Kind, obj: Object) -> Observed:
    """The object's state, or of one that cannot be read just what it takes to stop it."""
    try:
        return kind.observe(obj)
    except Exception:  # noqa: BLE001  that was reported already
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        labels = metadata.get("labels") or {}
        suspended = spec.get("suspend") is True or kind.ends_by_deletion  # what is not understood is not deleted
        return Observed(
            kind=kind,
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            resource_version=metadata["resourceVersion"],
            generation=metadata.get("generation") or 0,
            created=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
            queue=next((labels[key] for key in kind.conventions.queue_labels if labels.get(key)), ""),
            priority_class="",
            pod_priority_class="",
            user="",
            on_hold=True,
            suspended=suspended,
            active=not suspended,
            started=False,
            counts=(),
            deleting="deletionTimestamp" in metadata,
            finished=None,
        )


def _bare(seen: Observed, kinds: Kinds) -> Workload:
    return Workload(
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        queue=seen.queue,
        priority=0,
        created=seen.created,
        pod_sets=(),
        kind=seen.kind.kind,
        api_version=kinds.api_version(seen.kind),
    )
