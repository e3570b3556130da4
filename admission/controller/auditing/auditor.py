"""Audits of the leader: runs the comparison periodically or on request, and has differences repaired.

A repair takes no path of its own: an object is read again and processed like an observed one, or the whole state is
reloaded from the database, as after an outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

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
from admission.model.workload import LOCAL
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from admission.cluster.client import Client, Object
    from admission.controller.auditing.comparison import AuditDifference, View
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.leader_state import LeaderState
    from admission.controller.state.tracked import Tracked
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds
    from admission.model.queues import ResourceFlavor
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

MAX_LOGGED = 20
"""Number of differences that are logged per audit."""


class AuditedCluster(NamedTuple):
    """A cluster, as the leader has it now."""

    name: str
    client: Client
    kinds: Kinds
    flavors: Mapping[str, ResourceFlavor]
    state: LeaderState
    inbox: Inbox
    is_part: Callable[[str], bool]
    """Whether the object of a uid is part of its owner, and no workload of its own."""
    copies: Container[str]
    """Uids of objects that workloads of another cluster run as."""


class Auditor:
    """Consistency audits of the leading replica: of its memory, and of the database and the objects in each cluster.

    A cluster that is not certain to be as it is seen, such as a lost one, is left out.
    """

    def __init__(self, store: Store, *, interval: float, clock: Callable[[], float]) -> None:
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
        self._store = store
        self._sites: Callable[[], Sequence[AuditedCluster]] = tuple
        self._groups: dict[str, Mapping[str, str]] = {}
        """Uid of the group by uid of its pod, as of the last view of each cluster."""
        self._records: Callable[[], Mapping[str, WorkloadRecord]] = dict
        self._interval = interval
        self._clock = clock
        self._lock = asyncio.Lock()

    def begin(
        self, sites: Callable[[], Sequence[AuditedCluster]], *, records: Callable[[], Mapping[str, WorkloadRecord]]
    ) -> None:
        """Attach to the state of a new leader.

        `sites`: returns the clusters whose objects are all known, `local` first. `records`: returns the workloads of
        all clusters, by uid.
        """
        self._sites, self._records = sites, records

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
                    "audit: %s %s%s: %s; %s",
                    difference.problem,
                    "" if difference.cluster == LOCAL else f"cluster {difference.cluster}: ",
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
        found, sites = list(found), self._sites()
        if any(difference.problem.repair is Repair.RELOAD for difference in found):
            self.must_reload = True  # this compares all objects as well
            sites[0].inbox.wake()
            return
        for site in sites:
            wanted = [each for each in found if each.cluster == site.name and each.problem.repair is Repair.RECONCILE]
            await self._repair_in(site, {difference.uid for difference in wanted})

    async def _repair_in(self, site: AuditedCluster, uids: Iterable[str]) -> None:
        state, untracked = site.state, set()
        for uid in uids:
            if state.registry.get(uid) is None:
                untracked.add(uid)
            else:
                site.inbox.put(DelayEnded(uid))
        if untracked:
            state.ended.forget(untracked)  # they exist by the list, which unlike a watch does not lag behind
            group_of = self._groups.get(site.name, {})
            async for kind, obj in self._source(site).objects():
                uid = obj["metadata"]["uid"]
                if uid in untracked or group_of.get(uid) in untracked:
                    name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                    site.inbox.put(ObjectsChanged(kind, [WatchedChange("MODIFIED", name, uid, obj)]))

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
        home, *others = self._sites()
        stored = await self._view(home, None)
        # No await between these two: engine and registry must be of the same time.
        view = replace(stored, tracked=self._records(), engine=_flattened(home.state.engine.usage()))
        found = await compared(view)
        for site in others:
            try:
                differences = await compared(await self._view(site, stored.records))
            except ClusterError as error:
                log.warning("the cluster %s is not audited: %s", site.name, error)
                continue
            found += [replace(difference, cluster=site.name) for difference in differences]
        return found

    async def _view(self, site: AuditedCluster, stored: Mapping[str, WorkloadRecord] | None) -> View:
        """Return the view of a cluster; `stored`: the records of the view of `local`, None for that itself."""
        registry, source = site.state.registry, self._source(site)

        def is_misplaced(kind: Kind, uid: str, obj: Object) -> bool:
            return _is_misplaced(kind, registry.get(uid), obj, site.flavors)

        view = await source.view(registry.get, is_misplaced, site.is_part, stored, site.copies)
        self._groups[site.name] = source.group_of
        return view

    def _source(self, site: AuditedCluster) -> AuditSources:
        return AuditSources(self._store, site.client, site.kinds, clock=self._clock, cluster=site.name)


def _is_misplaced(kind: Kind, tracked: Tracked | None, obj: Object, flavors: Mapping[str, ResourceFlavor]) -> bool:
    """Return whether a running object's template differs from the one that its admission results in now."""
    if tracked is None:
        return False
    record = tracked.record
    if record.state is not State.ADMITTED or record.admission is None or record.original is None:
        return False
    if kind.rendered_by is not None:
        obj = tracked.object or obj  # the object itself does not contain its pods
    base = restored(kind, obj, record.original)
    try:
        patch, _ = kind.start_patch(base, record.admission, flavors, tracked.updates)
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
