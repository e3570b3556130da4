"""Audits of the leader: runs the comparison periodically or on request, and has differences repaired.

A repair takes no path of its own: an object is read again and processed like an observed one, or the whole state is
reloaded from the database, as after an outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from admission.apimachinery.patches import json_patch
from admission.cluster.informer import WatchedChange
from admission.controller.auditing.audit_sources import (
    GRACE,
    AuditSources,
    compared,
    document,
    key,
    lasting_differences,
)
from admission.controller.auditing.comparison import Repair
from admission.controller.state.inbox import DelayEnded, ObjectsChanged
from admission.kinds.abilities import restored
from admission.model.errors import ClusterError, Misconfigured, StoreError
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.cluster.client import Client, Object
    from admission.controller.auditing.comparison import AuditDifference
    from admission.controller.state.context import Context
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.leader_state import LeaderState
    from admission.controller.state.tracked import Tracked
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

MAX_LOGGED = 20
"""Number of differences that are logged per audit."""


class Auditor:
    """Consistency audits of the leading replica: of its memory, and of the database and the objects in `local`."""

    def __init__(
        self,
        store: Store,
        client: Client,
        kinds: Kinds,
        context: Context,
        *,
        interval: float,
        clock: Callable[[], float],
    ) -> None:
        """`interval`: seconds between two audits with repair; 0: none. `clock`: returns Unix time in seconds."""
        self.grace = GRACE
        """Seconds between two comparisons, and between a repair and the check of its effect."""
        self.must_reload = False
        """Set to make the controller reload its state."""
        self.counts: Counter[str] = Counter()
        """Number of differences found since the start of the process, by problem."""
        self.last: Counter[str] = Counter()
        """Number of differences that the last audit found, by problem."""
        self.last_audit_at: float | None = None
        """Unix time (s) of the last audit; None: none yet."""
        self._sources = AuditSources(store, client, kinds, clock=clock)
        self._context = context
        self._state: LeaderState | None = None
        self._inbox: Inbox | None = None
        self._is_part: Callable[[str], bool] | None = None
        self._records: Callable[[], Mapping[str, WorkloadRecord]] = dict
        self._interval = interval
        self._clock = clock
        self._lock = asyncio.Lock()

    def begin(
        self,
        state: LeaderState,
        inbox: Inbox,
        *,
        is_part: Callable[[str], bool],
        records: Callable[[], Mapping[str, WorkloadRecord]],
    ) -> None:
        """Attach to the state of a new leader, and to the inbox that repairs are put into.

        `is_part`: whether the object of a uid is part of its owner, and no workload of its own. `records`: returns the
        workloads of all clusters, by uid.
        """
        self._state, self._inbox, self._is_part, self._records = state, inbox, is_part, records

    async def run(self) -> None:
        """Audit and repair every `interval` seconds until cancelled; return immediately if it is 0."""
        while self._interval:
            await asyncio.sleep(self._interval)
            try:
                found = await self.run_once()
                await self.repair(found)
            except (ClusterError, StoreError) as error:
                log.warning("the audit is postponed: %s", error)
                continue
            for difference in found[:MAX_LOGGED]:
                log.warning(
                    "audit: %s %s: %s; %s",
                    difference.problem,
                    difference.object,
                    difference.found,
                    difference.problem.remedy,
                )

    async def run_once(self) -> list[AuditDifference]:
        """Return the differences that last longer than `grace`. Raises ClusterError and StoreError."""
        async with self._lock:
            found = await lasting_differences(self._differences, grace=self.grace)
            self.last = Counter(difference.problem.value for difference in found)
            self.counts.update(self.last)
            self.last_audit_at = self._clock()
            return found

    async def repair(self, found: Iterable[AuditDifference]) -> None:
        """Have the leader process all objects whose differences can be repaired. Raises ClusterError."""
        found = list(found)
        state, inbox = self._state, self._inbox
        assert state is not None
        assert inbox is not None
        repairs = {difference.problem.repair for difference in found}
        if Repair.RELOAD in repairs:
            self.must_reload = True  # this compares all objects as well
            inbox.wake()
            return
        untracked = set()
        for difference in found:
            tracked = state.registry.get(difference.uid)
            if difference.problem.repair is not Repair.RECONCILE:
                continue
            if tracked is None:
                untracked.add(difference.uid)
            else:
                inbox.put(DelayEnded(difference.uid))
        if untracked:
            state.ended.forget(untracked)  # they exist by the list, which unlike a watch does not lag behind
            async for kind, obj in self._sources.objects():
                uid = obj["metadata"]["uid"]
                if uid in untracked or self._sources.group_of.get(uid) in untracked:
                    name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                    inbox.put(ObjectsChanged(kind, [WatchedChange("MODIFIED", name, obj["metadata"]["uid"], obj)]))

    async def documents(self, *, repair: bool) -> list[dict[str, str]]:
        """Return the differences as JSON; `left` is "true" unless a repair was requested and has removed a difference.

        Raises ClusterError and StoreError.
        """
        found = await self.run_once()
        left = found
        if repair and found:
            await self.repair(found)
            await asyncio.sleep(self.grace)
            left = await self.run_once()
        still = set(map(key, left))
        return [document(difference, left=key(difference) in still) for difference in found]

    async def _differences(self) -> list[AuditDifference]:
        view = await self._sources.view(self._tracked, self._is_misplaced, self._is_part)
        state = self._state
        assert state is not None
        # No await between these two: engine and registry must be of the same time.
        view = replace(view, tracked=self._records(), engine=_flattened(state.engine.usage()))
        return await compared(view)

    def _tracked(self, uid: str) -> Tracked | None:
        return None if self._state is None else self._state.registry.get(uid)

    def _is_misplaced(self, kind: Kind, uid: str, obj: Object) -> bool:
        """Return whether a running object's template differs from the one that its admission results in now."""
        if (tracked := self._tracked(uid)) is None:
            return False
        record = tracked.record
        if record.state is not State.ADMITTED or record.admission is None or record.original is None:
            return False
        if kind.rendered_by is not None:
            obj = tracked.object or obj  # the object itself does not contain its pods
        base = restored(kind, obj, record.original)
        try:
            patch, _ = kind.start_patch(base, record.admission, self._context.flavors, tracked.updates)
            return _placement(kind, json_patch(base, patch)) != _placement(kind, obj)
        except (Misconfigured, KeyError):
            return True


def _placement(kind: Kind, obj: Object) -> list[tuple[object, object]]:
    """Return node selector and tolerations of each pod set: the fields that flavors set."""
    specs = [template["spec"] for template in kind.templates(obj)]
    return [(spec.get("nodeSelector") or {}, spec.get("tolerations") or []) for spec in specs]


def _flattened(usage: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[tuple[str, str, str], int]:
    return {
        (queue, flavor, resource): amount
        for queue, flavors in usage.items()
        for flavor, resources in flavors.items()
        for resource, amount in resources.items()
    }
