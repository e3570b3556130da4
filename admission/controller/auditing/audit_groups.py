"""Pod groups for an audit, assembled from the pods that the API server lists, in the same way as by the leader."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from admission.controller.state.faults import cause
from admission.controller.state.tracked import Tracked
from admission.controller.workloads.group_object import assembled
from admission.controller.workloads.group_owners import GroupOwners
from admission.controller.workloads.group_plan import group_state, member_of
from admission.controller.workloads.group_pod_sets import in_pod_sets, stored_pod_sets
from admission.kinds.base import POD
from admission.kinds.grouping import GATE, STARTED_WITH, foreign_group_of, group_of
from admission.kinds.limits import NamespaceContext
from admission.kinds.pod_group import PodGroupKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.controller.workloads.group_plan import Member
    from admission.controller.workloads.group_trees import GroupState
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.registry import Kinds
    from admission.store.records import WorkloadRecord

log = logging.getLogger(__name__)

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
        group.object["metadata"]["resourceVersion"] = ""
        beyond = sum(each.runs and not each.deleting for each in group.excess)
        return AuditedGroup(self._kind.observe(group.object), beyond, frozenset(each.uid for each in members))
