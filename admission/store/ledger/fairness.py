"""Fairness: what ClusterQueues were entitled to and received over time, and who lent to whom how much.

Everything is computed hour by hour, from averages of the hour, in the quota trees as they were at its beginning.

**Entitled**, by resource: each ClusterQueue has its nominal quota as far as it has demand: what its workloads used or
waited for. What is left of the whole tree's quota is divided among the queues whose demand is larger, at each node of
the tree in proportion to the weights of its children, but to none more than its demand, or its borrowing limit.

**Lent**, by flavor and resource: what a ClusterQueue borrowed counts as lent by the Cohorts' own quota in its tree
first, then by the other ClusterQueues, both in proportion to their idle quota up to their lending limits. Kueue's rules
do not define which queue lends to which.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from admission.model.queues import ClusterQueue, Cohort
from admission.store.ledger.rollup import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.model.quotas import ResourceGroups
    from admission.store.ledger.usage_series import UsageSeries
    from admission.store.records import QueueObjectVersion


class FlavorResource(NamedTuple):
    """A resource in a flavor."""

    flavor: str
    resource: str


class Demand(NamedTuple):
    """What a workload waited for, from `begins` to `ends` (Unix times, s)."""

    cluster_queue: str
    begins: float
    ends: float
    amounts: Mapping[str, int]
    """By resource: milli-CPU for cpu, else base units."""


@dataclass(slots=True)
class Share:
    """What a ClusterQueue was entitled to of a resource, and received, in amounts times seconds."""

    cohort: str = ""
    """The Cohort that it was last in; empty: none."""
    nominal: float = 0.0
    """Its nominal quota of all flavors."""
    demand: float = 0.0
    """What its workloads used or waited for."""
    entitled: float = 0.0
    received: float = 0.0
    """What its workloads used."""
    borrowed: float = 0.0
    """The part of it beyond its nominal quota."""
    lent: float = 0.0
    """What others borrowed of its nominal quota."""


class LoanKey(NamedTuple):
    """Key of what was lent: by a ClusterQueue or a Cohort (its own quota) to a ClusterQueue."""

    lender_kind: str
    """Empty: nobody had it to lend, as quota had been lowered below what was in use."""
    lender: str
    borrower: str
    flavor: str
    resource: str


@dataclass(frozen=True, slots=True)
class Fairness:
    """Shares and loans from `start` to `end` (Unix times, s; full hours, and now)."""

    start: float
    end: float
    shares: Mapping[tuple[str, str], Share]
    """By ClusterQueue and resource."""
    loans: Mapping[LoanKey, float]
    """Amounts times seconds."""


def fairness(
    versions: Sequence[QueueObjectVersion], series: UsageSeries, demands: Iterable[Demand], start: float, end: float
) -> Fairness:
    """Return shares and loans; `start` is a full hour, and `series` has buckets of an hour."""
    hours = math.ceil((end - start) / HOUR)
    waiting = _by_hour(demands, start, end, hours)
    used: dict[int, dict[str, dict[FlavorResource, tuple[float, float]]]] = {}
    for at, rows in series.buckets:
        of_hour = used.setdefault(round((at - start) / HOUR), {})
        for row in rows:
            of = FlavorResource(str(row.group["flavor"]), str(row.group["resource"]))
            of_hour.setdefault(str(row.group["cluster_queue"]), {})[of] = row.nominal_seconds, row.borrowed_seconds
    shares: defaultdict[tuple[str, str], Share] = defaultdict(Share)
    loans: defaultdict[LoanKey, float] = defaultdict(float)
    objects: dict[tuple[str, str], ClusterQueue | Cohort] = {}
    roots: list[TreeNode] = []
    position = 0
    for hour in range(hours):
        begins = start + hour * HOUR
        seconds, before = min(end - begins, HOUR), position
        # Objects that are created within the hour count for the whole of it, as they may be used.
        while position < len(versions) and versions[position].at <= begins + (HOUR if not objects else 0):
            _apply(objects, versions[position])
            position += 1
        if position != before:
            roots = _trees(objects)
        for root in roots:
            _add_hour(root, seconds, used.get(hour, {}), waiting, hour, shares, loans)
    return Fairness(start, end, dict(sorted(shares.items())), dict(sorted(loans.items())))


@dataclass(slots=True)
class TreeNode:
    """A ClusterQueue or Cohort in its tree."""

    kind: str
    name: str
    cohort: str
    weight: float = 1.0
    nominal: dict[FlavorResource, int] = field(default_factory=dict)
    borrowing: dict[FlavorResource, int | None] = field(default_factory=dict)
    """Limits; None: no limit."""
    lending: dict[FlavorResource, int] = field(default_factory=dict)
    """Amounts of the nominal quota that may be lent."""
    children: list[TreeNode] = field(default_factory=list)

    def of_quotas(self, groups: ResourceGroups) -> None:
        """Take over the quotas of an object."""
        for group in groups:
            for flavor in group.flavors:
                for quota in flavor.resources:
                    of = FlavorResource(flavor.name, quota.name)
                    self.nominal[of], self.borrowing[of] = quota.nominal, quota.borrowing
                    self.lending[of] = quota.nominal if quota.lending is None else min(quota.lending, quota.nominal)

    def total(self, resource: str) -> int:
        """Return its own nominal quota of a resource, of all flavors."""
        return sum(amount for of, amount in self.nominal.items() if of.resource == resource)

    def most(self, resource: str) -> float:
        """Return what it may use of a resource by its borrowing limits."""
        limits = [
            math.inf if limit is None else self.nominal[of] + limit
            for of, limit in self.borrowing.items()
            if of.resource == resource
        ]
        return sum(limits) if self.cohort else self.total(resource)

    def walk(self) -> Iterable[TreeNode]:
        """Yield it and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def _apply(objects: dict[tuple[str, str], ClusterQueue | Cohort], version: QueueObjectVersion) -> None:
    found = version.object
    if isinstance(found, ClusterQueue | Cohort):
        if version.operation == "delete":
            objects.pop((found.kind, found.name), None)
        else:
            objects[found.kind, found.name] = found


def _trees(objects: Mapping[tuple[str, str], ClusterQueue | Cohort]) -> list[TreeNode]:
    """Return the roots: Cohorts, and ClusterQueues without one. Cohorts in a circle are left out, as nothing runs."""
    nodes: dict[tuple[str, str], TreeNode] = {}
    for (kind, name), found in objects.items():
        spec = found.spec
        above = found.spec.cohort_name if isinstance(found, ClusterQueue) else found.spec.parent_name
        weight = 1.0 if spec.fair_sharing is None else spec.fair_sharing.value
        nodes[kind, name] = TreeNode(kind, name, above, weight)
        nodes[kind, name].of_quotas(spec.resource_groups)
    roots: dict[tuple[str, str], TreeNode] = {}
    for key, node in [*nodes.items()]:
        if not node.cohort:
            roots[key] = node
        else:
            parent = Cohort.kind, node.cohort
            if parent not in nodes:  # named, and not defined
                nodes[parent] = roots[parent] = TreeNode(*parent, "")
            nodes[parent].children.append(node)
    return [*roots.values()]


def _add_hour(
    root: TreeNode,
    seconds: float,
    used: Mapping[str, Mapping[FlavorResource, tuple[float, float]]],
    waiting: Mapping[tuple[str, str], Sequence[float]],
    hour: int,
    shares: defaultdict[tuple[str, str], Share],
    loans: defaultdict[LoanKey, float],
) -> None:
    """Add what one tree had in an hour."""
    nodes = [*root.walk()]
    queues = [node for node in nodes if node.kind == ClusterQueue.kind]
    of = {each for node in nodes for each in node.nominal} | {
        each for node in queues for each in used.get(node.name, ())
    }
    for resource in sorted({each.resource for each in of}):
        demands: dict[str, float] = {}
        for node in queues:
            share = shares[node.name, resource]
            received = [each for key, each in used.get(node.name, {}).items() if key.resource == resource]
            share.cohort = node.cohort
            share.nominal += node.total(resource) * seconds
            share.received += sum(within + beyond for within, beyond in received)
            share.borrowed += sum(beyond for _, beyond in received)
            waits = waiting.get((node.name, resource))
            demand = sum(within + beyond for within, beyond in received) + (waits[hour] if waits else 0.0)
            share.demand += demand
            demands[node.name] = demand / seconds
        for name, amount in entitlements(root, resource, demands).items():
            shares[name, resource].entitled += amount * seconds
    for each in sorted(of):
        _add_loans(nodes, each, seconds, used, shares, loans)


def entitlements(root: TreeNode, resource: str, demands: Mapping[str, float]) -> dict[str, float]:
    """Return the amount that each ClusterQueue of a tree is entitled to, given the demands of all."""
    wanted: dict[int, float] = {}
    own: dict[int, float] = {}

    def measure(node: TreeNode) -> None:
        if node.kind == ClusterQueue.kind:
            wanted[id(node)] = min(demands.get(node.name, 0.0), node.most(resource))
            own[id(node)] = min(wanted[id(node)], node.total(resource))
            return
        for child in node.children:
            measure(child)
        wanted[id(node)] = sum(wanted[id(child)] for child in node.children)
        own[id(node)] = sum(own[id(child)] for child in node.children)

    found: dict[str, float] = {}

    def divide(node: TreeNode, rest: float) -> None:
        if node.kind == ClusterQueue.kind:
            found[node.name] = own[id(node)] + rest
            return
        rooms = [wanted[id(child)] - own[id(child)] for child in node.children]
        parts = _divided(rest, rooms, [child.weight for child in node.children])
        for child, part in zip(node.children, parts, strict=True):
            divide(child, part)

    measure(root)
    capacity = sum(node.total(resource) for node in root.walk())
    divide(root, min(max(capacity - own[id(root)], 0.0), wanted[id(root)] - own[id(root)]))
    return found


def _divided(amount: float, rooms: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Divide an amount in proportion to weights, to nobody more than its room; weight 0 gets what others leave."""
    parts = [0.0] * len(rooms)
    for weighted in (True, False):
        open_ = [n for n, room in enumerate(rooms) if room > 0 and (weights[n] > 0) == weighted]
        while open_ and amount > 0:
            total = sum(weights[n] if weighted else 1.0 for n in open_)
            level = min((rooms[n] - parts[n]) / (weights[n] if weighted else 1.0) for n in open_)
            if level * total > amount:
                level = amount / total
            for n in open_:
                parts[n] += level * (weights[n] if weighted else 1.0)
            amount -= level * total
            full = [n for n in open_ if rooms[n] - parts[n] <= 1e-9 * rooms[n]]
            if not full:
                break
            open_ = [n for n in open_ if n not in full]
    return parts


def _add_loans(
    nodes: Sequence[TreeNode],
    of: FlavorResource,
    seconds: float,
    used: Mapping[str, Mapping[FlavorResource, tuple[float, float]]],
    shares: defaultdict[tuple[str, str], Share],
    loans: defaultdict[LoanKey, float],
) -> None:
    """Add who lent to whom in a tree."""
    borrowed: dict[str, float] = {}
    idle: dict[tuple[str, str], float] = {}
    for node in nodes:
        nominal = node.nominal.get(of, 0) * seconds
        if node.kind == Cohort.kind:
            idle[node.kind, node.name] = nominal
            continue
        within, beyond = used.get(node.name, {}).get(of, (0.0, 0.0))
        if beyond:
            borrowed[node.name] = beyond
        idle[node.kind, node.name] = max(0.0, min(nominal - within, node.lending.get(of, 0) * seconds))
    whole = sum(borrowed.values())
    if not whole:
        return
    of_cohorts = {key: amount for key, amount in idle.items() if key[0] == Cohort.kind and amount}
    first = min(1.0, sum(of_cohorts.values()) / whole)
    for borrower, amount in borrowed.items():
        others = {k: one for k, one in idle.items() if k[0] == ClusterQueue.kind and k[1] != borrower and one}
        rest, available = whole * (1 - first), sum(others.values())
        second = (1 - first) * (min(1.0, available / rest) if rest else 0.0)
        for lenders, part in ((of_cohorts, first), (others, second)):
            total = sum(lenders.values())
            for (kind, name), capacity in lenders.items():
                lent = amount * part * capacity / total
                loans[LoanKey(kind, name, borrower, *of)] += lent
                if kind == ClusterQueue.kind:
                    shares[name, of.resource].lent += lent
        if (missing := amount * (1 - first - second)) > amount * 1e-9:
            loans[LoanKey("", "", borrower, *of)] += missing


def _by_hour(demands: Iterable[Demand], start: float, end: float, hours: int) -> dict[tuple[str, str], list[float]]:
    """Return by ClusterQueue and resource what was waited for in each hour, in amounts times seconds."""
    sums: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * (hours + 1))
    steps: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * (hours + 1))
    for cluster_queue, begins, ends, amounts in demands:
        begins, ends = max(begins, start) - start, min(ends, end) - start
        if begins >= ends:
            continue
        first, last = int(begins // HOUR), min(int(ends // HOUR), hours)
        for resource, amount in amounts.items():
            key = cluster_queue, resource
            if first == last:
                sums[key][first] += amount * (ends - begins)
                continue
            sums[key][first] += amount * ((first + 1) * HOUR - begins)
            sums[key][last] += amount * (ends - last * HOUR)
            steps[key][first + 1] += amount * HOUR
            steps[key][last] -= amount * HOUR
    return {
        key: [one + whole for one, whole in zip(each, accumulate(steps[key]), strict=True)]
        for key, each in sums.items()
    }
