"""A tree of queues with guarantees and limits, as other schedulers have it, into ClusterQueues and Cohorts.

What is made never lets a queue, or all queues below one, use more than the limit that it had. A queue's guarantee
becomes its nominal quota, and its limit less its guarantee the borrowing limit. What a Cohort may use is the nominal
quota of all below it, its own, and its borrowing limit: so that of an inner queue is its limit less the first two.
Whatever the top has that nobody is guaranteed becomes quota of the Cohort at the top, for all to borrow.
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
"""Preemption of schedulers that take back what was lent to other queues."""
PREEMPTS: Final = {**RECLAIMS, "withinClusterQueue": "LowerPriority"}
"""Of those that preempt less important work of the same queue, too."""

_MOST_RESOURCES: Final = 64
_MOST: Final = UNLIMITED - 1
"""The largest amount that is not the one for "no limit"."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of another scheduler. Amounts are as in `admission.model.quantity`."""

    name: str
    title: str
    """What opens messages about it."""
    parent: str = ""
    """The name of the queue above; empty: it is the top of a tree."""
    parent_field: str = ""
    """The path of the field that names it."""
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """What it is sure to get; of others nothing."""
    limit: Mapping[str, int] = field(default_factory=dict)
    """What it may use at most, with all below it; of others any amount."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """What of the guarantee is not lent to others while it is idle."""
    weight: str = ""
    preemption: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    """Whether what does not fit blocks what came later."""
    held: bool = False
    """Whether it takes nothing at present."""
    inner: bool = False
    """Whether it is for other queues, even if there are none yet."""
    only_namespace: str = ""
    """The one namespace that may use it; empty: all."""
    doors: tuple[tuple[str, str], ...] = ()
    """(namespace, name) of its LocalQueues, if no queue is below it."""
    notes: tuple[str, ...] = ()


def with_own_root(queues: Iterable[Queue], system: str) -> list[Queue]:
    """The queues, with a root called after their system: several call theirs `root`, and may share a cluster here."""
    own = {"root": f"{system}-root"}
    return [replace(each, name=own.get(each.name, each.name), parent=own.get(each.parent, each.parent))
            for each in queues]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """A queue object, and what to tell about it."""

    item: QueueObject
    notes: tuple[str, ...] = ()
    title: str = ""
    """What opens messages about the queue that it was made of."""


@dataclass(frozen=True, slots=True)
class Translation:
    """What was made of queues."""

    made: list[Made]
    unbounded: list[str]
    """Resources that queues may use more of than they are guaranteed, where nobody says how much there is."""


def translate(queues: Iterable[Queue], *, flavor: str, capacity: Mapping[str, int]) -> Translation:
    """The queue objects for queues; `capacity` is what the nodes have, and bounds each tree.

    Raises InvalidObject for a queue that is given twice or is too deep, a parent that is not there, and a cycle.
    """
    by_name: dict[str, Queue] = {}
    for queue in queues:
        if queue.name in by_name:
            message = f'makes "{queue.name}", as {by_name[queue.name].title} does; rename or leave out one of the two'
            raise InvalidObject([("", message)], subject=queue.title)
        by_name[queue.name] = queue
    trees: dict[str, _Tree] = {}
    top_of: dict[str, str] = {}
    above: dict[str, int] = {}
    for name in _parents_first(by_name):
        queue = by_name[name]
        above[name] = above[queue.parent] + 1 if queue.parent else 0
        if above[name] > MAX_DEPTH:
            message = f"is below more than {MAX_DEPTH} queues: what is so deep admits nothing here"
            raise InvalidObject([(queue.parent_field, message)], subject=queue.title)
        top = top_of[name] = top_of.get(queue.parent, name)
        trees.setdefault(top, _Tree(flavor, capacity)).add(queue)
    made: list[Made] = [Made(_manifest("ResourceFlavor", flavor, {}))] if by_name else []
    unbounded: set[str] = set()
    for tree in trees.values():
        made += tree.objects()
        unbounded.update(tree.unbounded())
    made += [door for tree in trees.values() for door in tree.local_queues()]
    return Translation(made, sorted(unbounded, key=_cpu_first))


class _Tree:
    """The queues of one tree, each behind its parent."""

    def __init__(self, flavor: str, capacity: Mapping[str, int]) -> None:
        self._flavor = flavor
        self._capacity = capacity
        self._queues: list[Queue] = []
        self._children: defaultdict[str, list[Queue]] = defaultdict(list)
        self._total: dict[str, dict[str, int]] = {}
        """By queue: nominal quota, with that of all below it."""
        self._own: dict[str, dict[str, int]] = {}
        """By queue: nominal quota of its own."""
        self._notes: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, queue: Queue) -> None:
        self._queues.append(queue)
        if queue.parent:
            self._children[queue.parent].append(queue)

    def objects(self) -> Iterator[Made]:
        """Cohorts and ClusterQueues, parents first."""
        resources = self._resources()
        for resource in resources:
            self._divide(resource)
        for queue in self._queues:
            groups = self._groups(queue, resources)
            notes = (*queue.notes, *self._notes[queue.name])
            spec: dict[str, Any] = {"resourceGroups": groups}
            if queue.weight:
                spec["fairSharing"] = {"weight": queue.weight}
            if self._inner(queue):
                spec["parentName"] = queue.parent
                yield Made(_manifest("Cohort", queue.name, spec), notes, queue.title)
            else:
                yield Made(_manifest("ClusterQueue", queue.name, spec | _of_leaf(queue)), notes, queue.title)

    def local_queues(self) -> Iterator[Made]:
        """Those of its ClusterQueues."""
        for queue in self._queues:
            for namespace, name in () if self._inner(queue) else queue.doors:
                door = _manifest("LocalQueue", name, {"clusterQueue": queue.name}, namespace=namespace)
                yield Made(door, title=queue.title)

    def unbounded(self) -> Iterator[str]:
        """The resources of which the top has no limit, and some queue may use more than it is guaranteed."""
        top = self._queues[0]
        for resource in self._total[top.name]:
            if self._limit(top, resource) is None and any(
                self._limit(queue, resource) != self._total[queue.name][resource]
                for queue in self._queues
                if not self._inner(queue)
            ):
                yield resource

    def _resources(self) -> list[str]:
        names = {name for queue in self._queues for name in (*queue.guaranteed, *queue.limit)}
        names |= {"cpu", "memory"} | self._capacity.keys()  # a pod of a resource without quota would never start
        if len(names) > _MOST_RESOURCES:
            message = f"the tree names {len(names)} resources, and a ClusterQueue has {_MOST_RESOURCES} at most"
            raise InvalidObject([("", f"{message}; take out those that no limit is needed for")], subject=self._title())
        return sorted(names, key=_cpu_first)

    def _title(self) -> str:
        return self._queues[0].title

    def _inner(self, queue: Queue) -> bool:
        return queue.inner or queue.name in self._children

    def _limit(self, queue: Queue, resource: str) -> int | None:
        limits = [queue.limit.get(resource, UNLIMITED)]
        if not queue.parent:
            limits.append(self._capacity.get(resource, UNLIMITED))
        return min(limits) if min(limits) < UNLIMITED else None

    def _divide(self, resource: str) -> None:
        """Bottom-up what each queue wants of the resource, then top-down what it gets."""
        wanted: dict[str, int] = {}
        for queue in reversed(self._queues):
            below = sum(wanted[child.name] for child in self._children.get(queue.name, ()))
            guaranteed = queue.guaranteed.get(resource, 0)
            limit = self._limit(queue, resource)
            most = _MOST if limit is None else limit
            wanted[queue.name] = min(max(guaranteed, below), most)
            if guaranteed > most:
                shown = f"{format_amount(resource, guaranteed)} of {resource} are guaranteed"
                self._notes[queue.name].append(
                    f"{shown}, more than the limit: {format_amount(resource, most)} are kept"
                )
        top = self._queues[0]
        limit = self._limit(top, resource)
        gets = {top.name: wanted[top.name] if limit is None else limit}
        for queue in self._queues:
            total = gets[queue.name]
            children = self._children.get(queue.name, ())
            below = sum(wanted[child.name] for child in children)
            for child in children:
                want = wanted[child.name]
                gets[child.name] = want if below <= total else want * total // below
            if below > total:
                self._notes[queue.name].append(_too_much(resource, below, total))
            self._total.setdefault(queue.name, {})[resource] = total
            self._own.setdefault(queue.name, {})[resource] = total - sum(gets[child.name] for child in children)

    def _groups(self, queue: Queue, resources: Sequence[str]) -> list[dict[str, Any]]:
        quotas = []
        for resource in resources:
            quota = {"name": resource, "nominalQuota": format_amount(resource, self._own[queue.name][resource])}
            if queue.parent:
                total = self._total[queue.name][resource]
                if (limit := self._limit(queue, resource)) is not None:
                    quota["borrowingLimit"] = format_amount(resource, limit - total)
                if kept := queue.kept.get(resource):
                    quota["lendingLimit"] = format_amount(resource, max(0, total - kept))
            quotas.append(quota)
        return [{"coveredResources": list(resources), "flavors": [{"name": self._flavor, "resources": quotas}]}]


def _too_much(resource: str, below: int, total: int) -> str:
    return (
        f"{format_amount(resource, min(below, _MOST))} of {resource} are guaranteed below it, more than its "
        f"{format_amount(resource, total)}: each guarantee is lowered in proportion"
    )


def _of_leaf(queue: Queue) -> dict[str, Any]:
    labels = {"kubernetes.io/metadata.name": queue.only_namespace} if queue.only_namespace else {}
    spec: dict[str, Any] = {
        "cohortName": queue.parent,
        "namespaceSelector": {"matchLabels": labels} if labels else {},
        "preemption": dict(queue.preemption),
    }
    if queue.strict:
        spec["queueingStrategy"] = "StrictFIFO"
    if queue.held:
        spec["stopPolicy"] = "Hold"
    return spec


def _manifest(kind: str, name: str, spec: dict[str, Any], *, namespace: str = "") -> QueueObject:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return parse_manifest({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})


def _parents_first(queues: Mapping[str, Queue]) -> Iterator[str]:
    for queue in queues.values():
        if queue.parent and queue.parent not in queues:
            message = f'there is no queue "{queue.parent}" in the files; add it'
            raise InvalidObject([(queue.parent_field, message)], subject=queue.title)
    above = {name: [queue.parent] if queue.parent else [] for name, queue in queues.items()}
    try:
        yield from TopologicalSorter(above).static_order()
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]
        queue = queues[cycle[0]]
        message = f"closes a cycle of queues ({listed(cycle)}); name a parent outside of it"
        raise InvalidObject([(queue.parent_field, message)], subject=queue.title) from error


def _cpu_first(resource: str) -> tuple[int, str]:
    return {"cpu": 0, "memory": 1}.get(resource, 2), resource
