"""Isolation of failing workloads: an exception that one workload causes sets aside that workload only.

A workload that is set aside is recorded as misconfigured, with the cause and without pod sets, so that nothing is
decided about it; if it runs, it is stopped. If even that fails, it is ignored. It is retried when its object changes.
A workload that holds quota, or whose quota the next commit changes, cannot be set aside in memory alone: then the
leader reloads its state from the database.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from admission.controller.state.tracked import Tracked
from admission.engine.vocabulary import MISCONFIGURED
from admission.kinds.base import Observed
from admission.model.errors import Misconfigured
from admission.model.workload import Workload
from admission.store.records import State, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.controller.state.faults import Fault, Faults
    from admission.controller.state.leader_state import LeaderState
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds


class Isolation:
    """Catches exceptions of workloads of one cluster, for one `LeaderState`; `faults` outlasts that state."""

    def __init__(
        self,
        *,
        kinds: Kinds,
        state: LeaderState,
        faults: Faults,
        cluster: str,
        is_elsewhere: Callable[[str, str], bool] | None,
    ) -> None:
        """`is_elsewhere`: whether a workload (uid) is known in another cluster; None: there is only one cluster."""
        self._kinds = kinds
        self._cluster = cluster
        self.is_elsewhere = is_elsewhere
        self._refused: set[str] = set()
        """Uids that were reported because of that."""
        self._state = state
        self.faults = faults
        """Failures of workloads since the start of the process."""
        self.failures: dict[str, tuple[Kind, Object] | None] = {}
        """Workloads to set aside, by uid: kind and object, or None if they are not known."""

    def refuses(self, obj: Object) -> bool:
        """Whether a workload in another cluster has the uid of an object, which API servers never do by themselves.

        The object is left alone then: whatever it says would be taken for that workload.
        """
        if self.is_elsewhere is None or not self.is_elsewhere(uid := obj["metadata"]["uid"], self._cluster):
            return False
        if uid not in self._refused:
            self._refused.add(uid)
            name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']} in the cluster {self._cluster}"
            self.faults.report(name, Misconfigured("an object in another cluster has the same uid"))
        return True

    def ignores(self, kind: Kind, obj: Object) -> bool:
        """Whether this version of an object is not processed, because it has failed before; it then stays set aside."""
        metadata = obj["metadata"]
        if self.faults.of(metadata["uid"], metadata["resourceVersion"]) is None:
            return False
        self.failures[metadata["uid"]] = kind, obj
        return True

    def failed_at(self, kind: Kind, obj: Object, error: Exception) -> None:
        """Note that processing an object has raised an exception."""
        metadata = obj["metadata"]
        self.faults.note(metadata["uid"], metadata["resourceVersion"], error)
        self.failures[metadata["uid"]] = kind, obj

    @contextmanager
    def of(self, uid: str) -> Iterator[None]:
        """Context manager that catches any exception of the block and attributes it to a workload."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  any exception is attributed to this workload
            self.failed(uid, error)

    @contextmanager
    def of_queue_object(self, key: tuple[str, str, str]) -> Iterator[None]:
        """Context manager that catches any exception of the block and reports it; the queue object has no effect."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  any exception is attributed to this queue object
            self.faults.report(" ".join(filter(None, key)), error)

    def failed(self, uid: str, error: Exception) -> None:
        """Note that a workload has caused an exception."""
        tracked = self._state.registry.get(uid)
        seen = None if tracked is None else tracked.seen
        self.faults.note(uid, "" if seen is None else seen.resource_version, error)
        obj = None if tracked is None else tracked.object
        self.failures[uid] = None if seen is None or obj is None else (seen.kind, obj)

    def settle(self) -> list[str]:
        """Set aside the workloads that failed since the last call; return the uids that need a reload of the state."""
        remaining = []
        while self.failures:
            uid, known = self.failures.popitem()
            fault = self.faults.by_uid.get(uid)
            if fault is None:
                continue
            try:
                done = self._set_aside(uid, known, fault)
            except Exception as error:  # noqa: BLE001  the second failure at this version makes it ignored
                self.faults.note(uid, fault.version, error)
                done = False
            if not done:
                remaining.append(uid)
        return remaining

    def _set_aside(self, uid: str, known: tuple[Kind, Object] | None, fault: Fault) -> bool:
        """Set aside a workload; return whether that was possible in memory alone."""
        state = self._state
        tracked = state.registry.get(uid)
        if tracked is not None and (tracked.holds_quota or state.batch.moves_quota(uid)):
            return tracked.seen is None  # loaded from the database since the failure: it stays as it is stored
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
            record = WorkloadRecord(
                _without_pod_sets(seen, self._kinds, self._cluster), State.PENDING, queued_at=self._state.now
            )
            tracked = Tracked(record=record)
        workload = replace(tracked.record.workload, pod_sets=(), priority=0, priority_class="", user="")
        tracked.change(workload=workload, reason=MISCONFIGURED, message=fault.message)
        tracked.seen, tracked.object = seen, None if known is None else known[1]
        state.keep_out(tracked)
        return True


def _observe(kind: Kind, obj: Object) -> Observed:
    """Return the observed state of an object; if it cannot be read, only the fields that stopping it needs."""
    try:
        return kind.observe(obj)
    except Exception:  # noqa: BLE001  it was reported already
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        labels = metadata.get("labels") or {}
        suspended = (
            spec.get("suspend") is True or kind.ends_by_deletion
        )  # an object that cannot be read is never deleted
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


def _without_pod_sets(seen: Observed, kinds: Kinds, cluster: str) -> Workload:
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
        cluster=cluster,
    )
