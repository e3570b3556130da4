"""Reads what `audit` compares, now and then or when somebody asks, and has the controller look at what differs.

A repair is no second way of acting: an object is read again and handled as if it had just been seen, or all is derived
anew from the database, as after an outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from admission.cluster.informer import Change
from admission.controller.audit import Cure, Owner, View, differences
from admission.controller.drain import ENDED, OWNER_LABEL
from admission.controller.inbox import Due, ObjectsChanged
from admission.engine.clusterqueue import usage_of
from admission.kinds.patches import merged
from admission.machinery.patches import json_patch
from admission.model.errors import ClusterError, Misconfigured, StoreError
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from admission.cluster.client import Client, Object
    from admission.controller.audit import Difference
    from admission.controller.context import Context
    from admission.controller.desk import Desk
    from admission.controller.inbox import Inbox
    from admission.kinds.base import Kind, Observed
    from admission.store.store import Store

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds between two looks: what only one of them finds was under way."""

NAME_LABEL = "batch.kubernetes.io/job-name"

PAST = 86400.0
"""Seconds of the ledger that are searched for quota that was not there."""

TOLD = 20
"""How many differences are logged each time."""


class Auditor:
    """Of the replica that leads."""

    def __init__(
        self,
        store: Store,
        client: Client,
        kind: Kind,
        context: Context,
        working: Callable[[], tuple[Desk, Inbox]],
        *,
        interval: float,
        clock: Callable[[], float],
    ) -> None:
        """`working` gives what the leader works on now. Every `interval` seconds it audits and repairs; 0: never."""
        self.grace = GRACE
        """Seconds between two looks, and between a repair and the look at its effect."""
        self.doubts = False
        """Set for the controller: it is to derive anew what it works on."""
        self.counts: Counter[str] = Counter()
        """Differences that were found since the start, by kind."""
        self._store = store
        self._client = client
        self._kind = kind
        self._context = context
        self._working = working
        self._interval = interval
        self._clock = clock
        self._one = asyncio.Lock()

    async def run(self) -> None:
        """Audit and repair for ever, if that is wanted."""
        while self._interval:
            await asyncio.sleep(self._interval)
            try:
                found = await self.look()
                await self.repair(found)
            except (ClusterError, StoreError) as error:
                log.warning("the audit is put off: %s", error)
                continue
            for difference in found[:TOLD]:
                log.warning(
                    "audit: %s %s: %s; %s",
                    difference.problem,
                    difference.object,
                    difference.found,
                    difference.problem.remedy,
                )

    async def look(self) -> list[Difference]:
        """What differs for longer than `grace`. Raises ClusterError and StoreError."""
        async with self._one:
            if not (first := differences(await self._view())):
                return []
            await asyncio.sleep(self.grace)
            before = set(map(_key, first))
            found = [difference for difference in differences(await self._view()) if _key(difference) in before]
            self.counts.update(difference.problem.value for difference in found)
            return found

    async def repair(self, found: Iterable[Difference]) -> None:
        """Have the leader look at all that can be cured. Raises ClusterError."""
        found = list(found)
        desk, inbox = self._working()
        cures = {difference.problem.cure for difference in found}
        if Cure.BEGIN_ANEW in cures:
            self.doubts = True  # all objects are then compared, too
            inbox.wake()
            return
        strange = set()
        for difference in found:
            tracked = desk.registry.get(difference.uid)
            if difference.problem.cure is not Cure.LOOK:
                continue
            if tracked is None:
                strange.add(difference.uid)
            elif tracked.in_flight is None:
                inbox.put(Due(difference.uid))
        if strange:
            desk.ended -= strange  # the list that showed them alive, unlike a watch, does not lag behind
            async for obj in self._objects():
                if obj["metadata"]["uid"] in strange:
                    key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                    inbox.put(ObjectsChanged([Change("MODIFIED", key, obj["metadata"]["uid"], obj)]))

    async def documents(self, *, repair: bool) -> list[dict[str, str]]:
        """What differs, for programs; `left` is "true" unless a repair was wanted and has cured it.

        Raises ClusterError and StoreError.
        """
        found = await self.look()
        left = found
        if repair and found:
            await self.repair(found)
            await asyncio.sleep(self.grace)
            left = await self.look()
        still = set(map(_key, left))
        return [_document(difference, left=_key(difference) in still) for difference in found]

    async def _view(self) -> View:
        records = {record.workload.uid: record for record in (await self._store.load()).workloads}
        violations = await self._store.reports.violations(since=max(self._clock() - PAST, 0.0))
        objects: dict[str, Observed] = {}
        otherwise: set[str] = set()
        async for obj in self._objects():
            uid = obj["metadata"]["uid"]
            if uid in records or self._kind.queue_name(obj):
                objects[uid] = seen = self._kind.observe(obj)
                if uid in records and not seen.suspended and seen.finished is None and self._is_elsewhere(uid, obj):
                    otherwise.add(uid)
        owners = await self._owners(objects.keys() | records.keys())
        # From here on nothing is waited for: engine and memory are of one moment.
        desk, _ = self._working()
        held: Counter[tuple[str, str, str]] = Counter()
        for tracked in desk.registry:
            if (admission := tracked.record.admission) is not None:
                for (flavor, resource), amount in usage_of(admission):
                    held[admission.cluster_queue, flavor, resource] += amount
        return View(
            records=records,
            objects=objects,
            owners=owners,
            tracked={tracked.uid: (tracked.record.state, tracked.record.admission) for tracked in desk.registry},
            held=held,
            engine=_flat(desk.engine.usage()),
            otherwise=otherwise,
            violations=violations,
        )

    async def _objects(self) -> AsyncIterator[Object]:
        kind = self._kind
        async for page in self._client.list_pages(f"/apis/{kind.group}/{kind.version}/{kind.plural}"):
            for obj in page["items"]:
                yield obj

    async def _owners(self, known: Iterable[str]) -> dict[str, Owner]:
        pods: Counter[str] = Counter()
        names: dict[str, str] = {}
        async for page in self._client.list_pages("/api/v1/pods", params={"labelSelector": OWNER_LABEL}):
            for pod in page["items"]:
                metadata = pod["metadata"]
                if pod.get("status", {}).get("phase") not in ENDED and "deletionTimestamp" not in metadata:
                    uid, labels = metadata["labels"][OWNER_LABEL], metadata["labels"]
                    pods[uid] += 1
                    names[uid] = f"{metadata['namespace']}/{labels.get(NAME_LABEL, uid)}"
        known = set(known)
        return {
            uid: Owner(names[uid], count, uid not in known and bool(await self._store.workloads.ledger(uid)))
            for uid, count in pods.items()
        }

    def _is_elsewhere(self, uid: str, obj: Object) -> bool:
        """Whether what runs has another template than its admission would give it now."""
        desk, _ = self._working()
        if (tracked := desk.registry.get(uid)) is None:
            return False
        record = tracked.record
        if record.state is not State.ADMITTED or record.admission is None or record.original is None:
            return False
        restored = self._kind.restore_patch(obj, record.original)
        base = obj if restored is None else merged(obj, restored)
        try:
            patch, _ = self._kind.start_patch(base, record.admission, self._context.flavors, tracked.updates)
        except (Misconfigured, KeyError):
            return True
        return _place(json_patch(base, patch)) != _place(obj)


def _key(difference: Difference) -> tuple[str, str, str]:
    return difference.problem, difference.object, difference.uid


def _document(difference: Difference, *, left: bool) -> dict[str, str]:
    return {
        "problem": difference.problem.value,
        "object": difference.object,
        "uid": difference.uid,
        "found": difference.found,
        "expected": difference.expected,
        "remedy": difference.problem.remedy,
        "left": str(left).lower(),
    }


def _place(obj: Object) -> tuple[object, object]:
    """Where the pods may run, as far as flavors say."""
    spec = obj["spec"]["template"]["spec"]
    return spec.get("nodeSelector") or {}, spec.get("tolerations") or []


def _flat(usage: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[tuple[str, str, str], int]:
    return {
        (queue, flavor, resource): amount
        for queue, flavors in usage.items()
        for flavor, resources in flavors.items()
        for resource, amount in resources.items()
    }
