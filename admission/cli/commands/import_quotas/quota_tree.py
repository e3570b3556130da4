"""Translation of other schedulers' trees of queues with guarantees and limits to Cohorts and ClusterQueues.

No queue, and no subtree, can use more than its limit afterwards. The guarantee of a queue becomes its nominal quota,
and its limit minus the guarantee becomes its borrowing limit. A Cohort can use the nominal quota of everything below
it, its own nominal quota, and its borrowing limit: the borrowing limit of an inner queue is its limit minus the first
two. Capacity (or limit) of the root that no queue is guaranteed becomes nominal quota of the Cohort at the root, which
all queues can borrow.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from admission.engine.forest import MAX_DEPTH
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, parse_manifest
from admission.model.names import listed
from admission.model.quantity import UNLIMITED, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.model.queues import QueueObject

RECLAIMS: Final = {"reclaimWithinCohort": "Any"}
"""Preemption for schedulers that reclaim quota lent to other queues."""
PREEMPTS: Final = {**RECLAIMS, "withinClusterQueue": "LowerPriority"}
"""Preemption for schedulers that also preempt lower priorities in the same queue."""

_MAX_RESOURCES: Final = 64
"""Resources of a ClusterQueue at most, as its schema has it."""
_MAX_AMOUNT: Final = UNLIMITED - 1
"""The largest amount that does not mean "no limit"."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of another scheduler. Amounts are as in `admission.model.quantity`: `{"cpu": 4000}`."""

    name: str
    title: str
    """Prefix of messages about it."""
    parent: str = ""
    """Name of the queue above; empty: it is a root."""
    parent_field: str = ""
    """Path of the field that names the parent."""
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """Resource -> guaranteed amount; of other resources 0."""
    limit: Mapping[str, int] = field(default_factory=dict)
    """Resource -> amount that it can use at most, with all queues below it; other resources have no limit."""
    not_lent: Mapping[str, int] = field(default_factory=dict)
    """Resource -> part of the guarantee that is not lent to other queues while it is idle."""
    weight: str = ""
    """Weight for fair sharing; empty: the default."""
    preemption: Mapping[str, str] = field(default_factory=dict)
    """`RECLAIMS` or `PREEMPTS`."""
    strict: bool = False
    """Whether a workload that does not fit blocks later ones: StrictFIFO."""
    is_stopped: bool = False
    """Whether it admits nothing at present."""
    is_inner: bool = False
    """Whether it is meant for child queues, even if it has none: it becomes a Cohort."""
    only_namespace: str = ""
    """The only namespace that may use it; empty: all."""
    local_queues: tuple[tuple[str, str], ...] = ()
    """(namespace, name) of its LocalQueues; an inner queue gets none."""
    notes: tuple[str, ...] = ()
    """Notes on its fields without an equivalent."""


def with_renamed_root(queues: Iterable[Queue], system: str) -> list[Queue]:
    """Return the queues with `root` renamed to `SYSTEM-root`: several systems have a queue of this name."""
    own = {"root": f"{system}-root"}
    return [replace(each, name=own.get(each.name, each.name), parent=own.get(each.parent, each.parent))
            for each in queues]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TranslatedObject:
    """A queue object that results from a translation."""

    item: QueueObject
    notes: tuple[str, ...] = ()
    title: str = ""
    """Title of the queue that it was translated from; empty for the flavor."""


@dataclass(frozen=True, slots=True)
class Translation:
    """Result of a translation."""

    objects: list[TranslatedObject]
    """The flavor, then Cohorts and ClusterQueues parents first, then LocalQueues."""
    unbounded: list[str]
    """Resources of unknown capacity of which some queue may use more than its guarantee."""


def translate(queues: Iterable[Queue], *, flavor: str, capacity: Mapping[str, int]) -> Translation:
    """Translate queues, with quota in the ResourceFlavor `flavor`; `capacity` of the nodes limits each tree.

    Raises InvalidObject for a duplicate queue, one that is nested too deeply, a missing parent, and a cycle.
    """
    by_name: dict[str, Queue] = {}
    for queue in queues:
        if queue.name in by_name:
            message = f'becomes "{queue.name}", as does {by_name[queue.name].title}; rename or remove one of the two'
            raise InvalidObject([("", message)], subject=queue.title)
        by_name[queue.name] = queue
    trees: dict[str, _Tree] = {}
    top_of: dict[str, str] = {}
    above: dict[str, int] = {}
    for name in _parents_first(by_name):
        queue = by_name[name]
        above[name] = above[queue.parent] + 1 if queue.parent else 0
        if above[name] > MAX_DEPTH:
            message = f"is below more than {MAX_DEPTH} queues: Sluice admits nothing in queues at this depth"
            raise InvalidObject([(queue.parent_field, message)], subject=queue.title)
        top = top_of[name] = top_of.get(queue.parent, name)
        trees.setdefault(top, _Tree(flavor, capacity)).add(queue)
    objects = [TranslatedObject(_manifest("ResourceFlavor", flavor, {}))] if by_name else []
    unbounded: set[str] = set()
    for tree in trees.values():
        objects += tree.objects()
        unbounded.update(tree.unbounded())
    objects += [local_queue for tree in trees.values() for local_queue in tree.local_queues()]
    return Translation(objects, sorted(unbounded, key=_cpu_first))


class _Tree:
    """The queues of one tree; they must be added parents first."""

    def __init__(self, flavor: str, capacity: Mapping[str, int]) -> None:
        self._flavor = flavor
        self._capacity = capacity
        self._queues: list[Queue] = []
        self._children: defaultdict[str, list[Queue]] = defaultdict(list)
        """Queue name -> its children."""
        self._total: dict[str, dict[str, int]] = {}
        """Queue name -> resource -> nominal quota of its whole subtree."""
        self._own: dict[str, dict[str, int]] = {}
        """Queue name -> resource -> nominal quota of its own."""
        self._notes: defaultdict[str, list[str]] = defaultdict(list)
        """Queue name -> notes on guarantees that were lowered."""

    def add(self, queue: Queue) -> None:
        """Add a queue whose parent was added before."""
        self._queues.append(queue)
        if queue.parent:
            self._children[queue.parent].append(queue)

    def objects(self) -> Iterator[TranslatedObject]:
        """Yield the Cohorts and ClusterQueues, parents first."""
        resources = self._resources()
        for resource in resources:
            self._divide(resource)
        for queue in self._queues:
            groups = self._groups(queue, resources)
            notes = (*queue.notes, *self._notes[queue.name])
            spec: dict[str, Any] = {"resourceGroups": groups}
            if queue.weight:
                spec["fairSharing"] = {"weight": queue.weight}
            if self._is_inner(queue):
                spec["parentName"] = queue.parent
                yield TranslatedObject(_manifest("Cohort", queue.name, spec), notes, queue.title)
            else:
                item = _manifest("ClusterQueue", queue.name, spec | _leaf_spec(queue))
                yield TranslatedObject(item, notes, queue.title)

    def local_queues(self) -> Iterator[TranslatedObject]:
        """Yield the LocalQueues of its ClusterQueues."""
        for queue in self._queues:
            for namespace, name in () if self._is_inner(queue) else queue.local_queues:
                item = _manifest("LocalQueue", name, {"clusterQueue": queue.name}, namespace=namespace)
                yield TranslatedObject(item, title=queue.title)

    def unbounded(self) -> Iterator[str]:
        """Yield the resources of which the root has no limit, but some queue may use more than its guarantee."""
        root = self._queues[0]
        for resource in self._total[root.name]:
            if self._limit(root, resource) is None and any(
                self._limit(queue, resource) != self._total[queue.name][resource]
                for queue in self._queues
                if not self._is_inner(queue)
            ):
                yield resource

    def _resources(self) -> list[str]:
        """Return the resources that get quota in all objects of the tree. Raises InvalidObject for too many."""
        names = {name for queue in self._queues for name in (*queue.guaranteed, *queue.limit)}
        # Workloads that request a resource without quota are never admitted, and nearly all request these two.
        names |= {"cpu", "memory"} | self._capacity.keys()
        if len(names) > _MAX_RESOURCES:
            message = f"the tree names {len(names)} resources, but a ClusterQueue has {_MAX_RESOURCES} at most"
            raise InvalidObject([("", f"{message}; remove those that need no limit")], subject=self._title())
        return sorted(names, key=_cpu_first)

    def _title(self) -> str:
        return self._queues[0].title

    def _is_inner(self, queue: Queue) -> bool:
        """Return whether the queue becomes a Cohort."""
        return queue.is_inner or queue.name in self._children

    def _limit(self, queue: Queue, resource: str) -> int | None:
        """Return the limit of a queue, for the root at most the capacity; None: no limit."""
        limits = [queue.limit.get(resource, UNLIMITED)]
        if not queue.parent:
            limits.append(self._capacity.get(resource, UNLIMITED))
        return min(limits) if min(limits) < UNLIMITED else None

    def _divide(self, resource: str) -> None:
        """Compute the nominal quota of one resource: bottom-up the demand of each queue, then top-down its share."""
        demand: dict[str, int] = {}
        for queue in reversed(self._queues):
            below = sum(demand[child.name] for child in self._children.get(queue.name, ()))
            guaranteed = queue.guaranteed.get(resource, 0)
            limit = self._limit(queue, resource)
            maximum = _MAX_AMOUNT if limit is None else limit
            demand[queue.name] = min(max(guaranteed, below), maximum)
            if guaranteed > maximum:
                amounts = format_amount(resource, guaranteed), format_amount(resource, maximum)
                self._notes[queue.name].append(
                    f"the guarantee of {resource}, {amounts[0]}, exceeds the limit and is lowered to {amounts[1]}"
                )
        root = self._queues[0]
        limit = self._limit(root, resource)
        share = {root.name: demand[root.name] if limit is None else limit}
        for queue in self._queues:
            total = share[queue.name]
            children = self._children.get(queue.name, ())
            below = sum(demand[child.name] for child in children)
            for child in children:
                share[child.name] = demand[child.name] if below <= total else demand[child.name] * total // below
            if below > total:
                self._notes[queue.name].append(_lowered_below(resource, below, total))
            self._total.setdefault(queue.name, {})[resource] = total
            self._own.setdefault(queue.name, {})[resource] = total - sum(share[child.name] for child in children)

    def _groups(self, queue: Queue, resources: Sequence[str]) -> list[dict[str, Any]]:
        """Return `spec.resourceGroups` of a queue; a root has no parent to borrow from, and gets no limits."""
        quotas = []
        for resource in resources:
            quota = {"name": resource, "nominalQuota": format_amount(resource, self._own[queue.name][resource])}
            if queue.parent:
                total = self._total[queue.name][resource]
                if (limit := self._limit(queue, resource)) is not None:
                    quota["borrowingLimit"] = format_amount(resource, limit - total)
                if not_lent := queue.not_lent.get(resource):
                    quota["lendingLimit"] = format_amount(resource, max(0, total - not_lent))
            quotas.append(quota)
        return [{"coveredResources": list(resources), "flavors": [{"name": self._flavor, "resources": quotas}]}]


def _lowered_below(resource: str, below: int, total: int) -> str:
    """Return the note on a queue whose children have guarantees `below` that exceed its `total`."""
    return (
        f"the guarantees of {resource} below it, {format_amount(resource, min(below, _MAX_AMOUNT))}, exceed its "
        f"{format_amount(resource, total)} and are lowered in proportion"
    )


def _leaf_spec(queue: Queue) -> dict[str, Any]:
    """Return the fields of a ClusterQueue's spec that a Cohort does not have."""
    labels = {"kubernetes.io/metadata.name": queue.only_namespace} if queue.only_namespace else {}
    spec: dict[str, Any] = {
        "cohortName": queue.parent,
        "namespaceSelector": {"matchLabels": labels} if labels else {},
        "preemption": dict(queue.preemption),
    }
    if queue.strict:
        spec["queueingStrategy"] = "StrictFIFO"
    if queue.is_stopped:
        spec["stopPolicy"] = "Hold"
    return spec


def _manifest(kind: str, name: str, spec: dict[str, Any], *, namespace: str = "") -> QueueObject:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return parse_manifest({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})


def _parents_first(queues: Mapping[str, Queue]) -> Iterator[str]:
    """Yield the names of the queues, parents first. Raises InvalidObject for a missing parent and for a cycle."""
    for queue in queues.values():
        if queue.parent and queue.parent not in queues:
            message = f'queue "{queue.parent}" is not in the files; add it'
            raise InvalidObject([(queue.parent_field, message)], subject=queue.title)
    above = {name: [queue.parent] if queue.parent else [] for name, queue in queues.items()}
    try:
        yield from TopologicalSorter(above).static_order()
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]
        queue = queues[cycle[0]]
        message = f"closes a cycle of queues ({listed(cycle)}); name a parent outside the cycle"
        raise InvalidObject([(queue.parent_field, message)], subject=queue.title) from error


def _cpu_first(resource: str) -> tuple[int, str]:
    """Return the sort key of a resource: cpu, memory, then others by name."""
    return {"cpu": 0, "memory": 1}.get(resource, 2), resource
