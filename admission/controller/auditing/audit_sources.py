"""Collection of an audit's input from database and cluster, in batches that let other tasks run in between."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from admission.controller.auditing.comparison import Owner, View, differences
from admission.controller.intake.served import listed, served_versions
from admission.controller.state.faults import cause
from admission.controller.state.tracked import Tracked
from admission.controller.workloads.group_object import assembled
from admission.controller.workloads.group_owners import GroupOwners
from admission.controller.workloads.group_plan import group_state, member_of, planned
from admission.controller.workloads.group_pod_sets import in_pod_sets, stored_pod_sets
from admission.kinds.base import POD
from admission.kinds.children import claimed_owner
from admission.kinds.foreign_groups import NATIVE
from admission.kinds.grouping import GATE, STARTED_WITH, foreign_group_of, group_of
from admission.kinds.limits import NamespaceContext
from admission.kinds.pod_group import FINISHED_PHASES, PodGroupKind
from admission.model.errors import ClusterError
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Mapping

    from admission.cluster.client import Client, Object
    from admission.controller.auditing.comparison import AuditDifference
    from admission.controller.workloads.group_plan import Member
    from admission.controller.workloads.group_trees import GroupState
    from admission.kinds.base import Kind, Observed
    from admission.kinds.registry import Kinds
    from admission.store.ledger.violations import Violation
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds between two comparisons: a difference that only one of them finds was a change in progress."""

NAME_LABEL = "batch.kubernetes.io/job-name"
"""Label of the Job controller on pods, with the name of their Job."""

LEDGER_PERIOD = 86400.0
"""Age in seconds of the oldest ledger entries that are searched for violations of quota."""

BATCH_SIZE = 100
"""Objects processed before yielding to the event loop: some milliseconds."""


class AuditSources:
    """Reads one database and one cluster. `clock` returns Unix time (s). Raises ClusterError and StoreError."""

    def __init__(
        self, store: Store, client: Client, kinds: Kinds, *, clock: Callable[[], float], cluster: str = LOCAL
    ) -> None:
        self._store = store
        self._client = client
        self._kinds = kinds
        self._clock = clock
        self._cluster = cluster
        self.group_of: dict[str, str] = {}
        """Uid of the group by uid of its pod, as of the last view."""

    async def view(
        self,
        memory: Callable[[str], Tracked | None] = lambda _: None,
        is_misplaced: Callable[[Kind, str, Object], bool] = lambda *_: False,
        is_part: Callable[[str], bool] | None = None,
        stored: Mapping[str, WorkloadRecord] | None = None,
        copies: Container[str] = (),
    ) -> View:
        """Return all input of the comparison except for the leader's memory.

        `memory`: returns the leader's workload by uid; where it equals the stored one, the view has its record, so that
        100,000 workloads are not in memory twice. `is_misplaced`: whether the template of a running object differs from
        the one that results from its admission. `is_part`: whether an object is part of its owner; None: it is one
        whose owner, or the owner of that, is on record. `stored`: the records of a view that was just made of another
        cluster; then this one has only what concerns the objects of its own. `copies`: uids of objects that
        workloads of another cluster run as.
        """
        violations: tuple[Violation, ...] = ()
        if stored is None:
            records = await self._records(memory)
            violations = await self._store.reports.violations(since=max(self._clock() - LEDGER_PERIOD, 0.0))
        else:
            records = {uid: record for uid, record in stored.items() if record.workload.cluster == self._cluster}
        objects: dict[str, Observed] = {}
        misplaced: set[str] = set()
        claims: dict[str, str] = {}  # uid of an object that is not on record -> uid of the owner that it names
        groups = AuditedGroups(self._kinds, records)
        async for kind, obj in self._sizes():
            groups.take(kind, obj)
        async for kind, obj in self.objects():
            uid = obj["metadata"]["uid"]
            try:
                if not groups.take(kind, obj) and (uid in records or kind.queue_name(obj)):
                    objects[uid] = seen = _observed(kind, obj, memory(uid))
                    if uid in records and not seen.suspended and seen.finished is None and is_misplaced(kind, uid, obj):
                        misplaced.add(uid)
                    if uid not in records and (claimed := claimed_owner(kind, obj, self._kinds)) is not None:
                        claims[uid] = claimed.reference["uid"]
            except Exception as error:  # noqa: BLE001  a faulty object must not end the audit of all others
                log.error("workload %s cannot be compared: %s", uid, cause(error))
        of_groups = {seen.observed.uid: seen for seen in groups.groups()}
        self.group_of = {pod: uid for uid, seen in of_groups.items() for pod in seen.pods}
        objects.update((uid, seen.observed) for uid, seen in of_groups.items())
        for uid in claims:
            if _has_owner(uid, claims, records) if is_part is None else is_part(uid):
                del objects[uid]
        return View(
            records=records,
            objects=objects,
            disabled={
                uid
                for uid, record in records.items()
                if record.workload.cluster != self._cluster
                or self._kinds.of(record.workload) is None
                or (record.admission is not None and record.admission.cluster)
            }
            | (set(groups.uids_with_owner()) - of_groups.keys()),
            beyond={uid: seen.beyond for uid, seen in of_groups.items() if seen.beyond},
            owners=await self._owners(records, objects, copies),
            misplaced=misplaced,
            violations=violations,
        )

    async def _records(self, memory: Callable[[str], Tracked | None]) -> dict[str, WorkloadRecord]:
        found: dict[str, WorkloadRecord] = {}
        async with aclosing(self._store.unfinished()) as batches:
            async for batch in batches:
                found.update((record.workload.uid, _known(record, memory)) for record in batch)
                await asyncio.sleep(0)
        return found

    async def objects(self) -> AsyncIterator[tuple[Kind, Object]]:
        """Yield all objects of the enabled kinds, as the API server lists them now."""
        for kind in self._kinds:
            async for page in listed(self._client, self._kinds, kind):
                for number, obj in enumerate(page):
                    if number % BATCH_SIZE == 0:
                        await asyncio.sleep(0)
                    yield kind, obj

    async def _sizes(self) -> AsyncIterator[tuple[Kind, Object]]:
        """Yield the PodGroups and CompositePodGroups of `scheduling.k8s.io`, except for kinds that cannot be listed."""
        for kind in self._kinds.sizes.values():
            if kind.group == NATIVE and self._kinds.is_served(kind.group, kind.kind):
                try:
                    async for page in listed(self._client, self._kinds, kind):
                        for obj in page:
                            yield kind, obj
                except ClusterError as error:
                    log.warning("groups are compared without %s: %s", kind.plural, error)

    async def _owners(self, *known: Container[str]) -> dict[str, Owner]:
        pods: Counter[str] = Counter()
        names: dict[str, str] = {}
        for owner in {kind.pods_label for kind in self._kinds} - {""}:
            async for page in self._client.list_pages("/api/v1/pods", params={"labelSelector": owner}):
                for pod in page["items"]:
                    metadata = pod["metadata"]
                    # A gated pod does not run, whatever labels its user has given it.
                    is_gated = bool(pod["spec"].get("schedulingGates"))
                    if not is_gated and pod.get("status", {}).get("phase") not in FINISHED_PHASES:
                        uid, labels = metadata["labels"][owner], metadata["labels"]
                        pods[uid] += "deletionTimestamp" not in metadata
                        names[uid] = f"{metadata['namespace']}/{labels.get(NAME_LABEL, uid)}"
        unknown = {uid for uid, count in pods.items() if count and not any(uid in each for each in known)}
        had_quota = {uid for uid in unknown if await self._store.workloads.ledger(uid)}
        return {uid: Owner(names[uid], count, uid in had_quota) for uid, count in pods.items()}


async def compared(view: View) -> list[AuditDifference]:
    """Return the `differences`, computed on a thread: with 100,000 workloads it must not delay the event loop."""
    return await asyncio.to_thread(differences, view)


async def lasting_differences(
    compare: Callable[[], Awaitable[list[AuditDifference]]], *, grace: float
) -> list[AuditDifference]:
    """Compare twice, `grace` seconds apart; return the differences that both comparisons find."""
    if not (first := await compare()):
        return []
    await asyncio.sleep(grace)
    before = set(map(key, first))
    return [difference for difference in await compare() if key(difference) in before]


async def without_leader(
    store: Store, client: Client, kinds: Kinds, *, clock: Callable[[], float]
) -> list[dict[str, str]]:
    """Return the differences between database and cluster as JSON, for an audit without a leader. Changes nothing.

    Raises ClusterError and StoreError.
    """
    custom = [*(kind for kind in kinds if kind.is_custom), *kinds.sizes.values()]
    for kind, version in (await served_versions(client, custom) if custom else {}).items():
        kinds.serve(kind, version)
    sources = AuditSources(store, client, kinds, clock=clock)

    async def compare() -> list[AuditDifference]:
        return await compared(await sources.view())

    return [document(difference, left=True) for difference in await lasting_differences(compare, grace=GRACE)]


def key(difference: AuditDifference) -> tuple[str, ...]:
    """Return the key by which the same difference is recognised in two comparisons."""
    return difference.problem, difference.object, difference.uid, difference.cluster


def document(difference: AuditDifference, *, left: bool) -> dict[str, str]:
    """Return a difference as JSON; `left`: it was not repaired."""
    return {
        "problem": difference.problem.value,
        **({} if difference.cluster == LOCAL else {"cluster": difference.cluster}),
        "object": difference.object,
        "uid": difference.uid,
        "found": difference.found,
        "expected": difference.expected,
        "remedy": difference.problem.remedy,
        "left": str(left).lower(),
    }


def _observed(kind: Kind, obj: Object, tracked: Tracked | None) -> Observed:
    seen = None if tracked is None else tracked.seen
    if seen is not None and seen.resource_version == obj["metadata"]["resourceVersion"]:
        return seen
    return kind.observe(obj)


def _has_owner(uid: str, claims: Mapping[str, str], records: Container[str]) -> bool:
    """Whether an object names an owner that is on record, or that names one itself, and so on."""
    passed: set[str] = set()
    while uid in claims and uid not in passed:
        passed.add(uid)
        uid = claims[uid]
    return uid in records


def _known(record: WorkloadRecord, memory: Callable[[str], Tracked | None]) -> WorkloadRecord:
    tracked = memory(record.workload.uid)
    return tracked.record if tracked is not None and _fields(tracked.record) == _fields(record) else record


def _fields(record: WorkloadRecord) -> tuple[object, ...]:
    """Return the fields of a record that are compared."""
    return record.state, record.admission, record.checks_pending, record.evict_reason


_Key = tuple[str, str]
"""Namespace and name of a group."""


class AuditedGroup(NamedTuple):
    """One pod group, as its pods are now."""

    observed: Observed
    beyond: int
    """Number of its running pods that exceed its quota and are not being deleted."""
    pods: frozenset[str]
    """Uids of its pods."""


class AuditedGroups:
    """All pod groups of an audit. `records`: stored workloads by uid."""

    def __init__(self, kinds: Kinds, records: Mapping[str, WorkloadRecord]) -> None:
        self._kind = kinds.get(PodGroupKind.group, PodGroupKind.kind)
        self._records = records
        self._stored: dict[_Key, WorkloadRecord] = {
            (record.workload.namespace, record.workload.name): record
            for record in records.values()
            if kinds.is_composed(record.workload)
        }
        self._started = {record.workload.uid: key for key, record in self._stored.items()}
        self._owners = GroupOwners(kinds, self._state_of)
        self._members: dict[_Key, list[Member]] = defaultdict(list)
        self._unassigned: list[tuple[str, Object]] = []
        """Gated pods with the name of their PodGroup of `scheduling.k8s.io`; assigned when all other pods are known."""

    def take(self, kind: Kind, obj: Object) -> bool:
        """Add an object if it is a pod of a group or an owner of such pods; return whether it is."""
        if kind.grouping is not None:
            self._owners.take(kind.grouping, obj)
            return True
        metadata = obj["metadata"]
        if self._kind is None or (kind.group, kind.kind) != POD or metadata["uid"] in self._records:
            return False
        namespace, started = metadata["namespace"], (metadata.get("annotations") or {}).get(STARTED_WITH, "")
        key = self._started.get(started, ("", ""))
        if key[0] != namespace or GATE.is_closed(obj):
            key = namespace, group_of(obj, self._kind.conventions)
            if not key[1] or not kind.queue_name(obj):
                return False
            declared = foreign_group_of(obj, self._kind.conventions)
            if declared is not None and declared.leaf and GATE.is_closed(obj):
                self._unassigned.append((declared.leaf, obj))
                return True
        self._add(key, obj)
        return True

    def _add(self, key: _Key, obj: Object) -> None:
        assert self._kind is not None
        self._members[key].append(member_of(obj, None, key[1], conventions=self._kind.conventions))

    def _state_of(self, namespace: str, name: str) -> GroupState:
        record = self._stored.get((namespace, name))
        tracked = None if record is None else Tracked(record)
        return group_state(tracked, self._members.get((namespace, name), ()))

    def groups(self) -> Iterator[AuditedGroup]:
        """Yield the groups that have pods."""
        unassigned, self._unassigned = self._unassigned, []
        for leaf, obj in unassigned:
            namespace = obj["metadata"]["namespace"]
            self._add((namespace, self._owners.assign(namespace, leaf, obj).group or leaf), obj)
        for key, members in self._members.items():
            record = self._stored.get(key)
            present = [
                each for each in members if each.is_alive or (record and each.group in ("", record.workload.uid))
            ]
            try:
                if present:
                    yield self._audited(key, sorted(present, key=lambda each: (each.created, each.name)), record)
            except Exception as error:  # noqa: BLE001  a group that cannot be read must not end the audit of all others
                log.error("group %s/%s cannot be compared: %s", *key, cause(error))

    def uids_with_owner(self) -> Iterator[str]:
        """Yield the uids of stored groups whose pods an owner's controller creates, whether any exist now or not."""
        for key, record in self._stored.items():
            owner = self._owners.of(key)
            if owner is not None and (owner.makes_pods or owner.outcome):
                yield record.workload.uid

    def _audited(self, key: _Key, members: list[Member], record: WorkloadRecord | None) -> AuditedGroup:
        assert self._kind is not None
        tracked, context = None if record is None else Tracked(record), NamespaceContext()
        members = in_pod_sets(members, stored_pod_sets(tracked), context)
        needed = self._owners.needed(key, (each.declared for each in members))
        group = assembled(key, members, tracked, self._owners, needed, self._kind.conventions, context)
        group["metadata"]["resourceVersion"] = ""
        beyond = 0
        if tracked is not None and tracked.holds_quota:
            excess = planned(tracked, members, context).excess
            beyond = sum(each.runs and not each.deleting for each in excess)
        return AuditedGroup(self._kind.observe(group), beyond, frozenset(each.uid for each in members))
