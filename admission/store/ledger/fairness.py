"""Fairness: what ClusterQueues were entitled to and received over time, and who lent to whom how much.

Everything is computed hour by hour, from averages of the hour, in the quota trees as they were at its beginning.

**Entitled**, by resource: each ClusterQueue has its nominal quota as far as it has demand: what its workloads used or
waited for. What is left of the whole tree's quota is divided among the queues whose demand is larger, at each node of
the tree in proportion to the weights of its children, but to none more than its demand, or its borrowing limit.

**Lent**, by flavor and resource: what a ClusterQueue borrowed counts as lent by the Cohorts' own quota in its tree
first, then by the other ClusterQueues, both in proportion to their idle quota up to their lending limits. Kueue's rules
do not define which queue lends to which.

In an hour each lender lends to each borrower but itself a product of two numbers, one of each (`_Lending`). So the sums
of all take time in proportion to the ClusterQueues. Pairs are named among the largest lenders and borrowers of a tree.
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.model.quotas import ResourceGroups
    from admission.store.ledger.usage_series import UsageSeries
    from admission.store.records import QueueObjectVersion

    _Used = Mapping[str, Mapping["FlavorResource", tuple[float, float]]]
    """What ClusterQueues used in an hour: within nominal quota, and borrowed."""
    _Lenders = dict[tuple[str, str], float]
    """An amount of each lender, by kind and name."""


MOST_NAMED = 50
"""Lenders, and borrowers, of a tree and resource that loans name; the others are summed up."""
OTHERS = "Others"
"""Kind of lender of what all others have lent."""


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
    """Empty for OTHERS."""
    borrower: str
    """Empty: all that are not named."""
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
    versions: Sequence[QueueObjectVersion],
    series: UsageSeries,
    demands: Iterable[Demand],
    start: float,
    end: float,
    *,
    cohort: str = "",
    including: str = "",
) -> Fairness:
    """Return shares and loans; `start` is a full hour, and `series` has buckets of an hour.

    With `cohort` only what concerns the ClusterQueues in it. Loans name the ClusterQueue `including` at any size.
    """
    waiting = _by_hour(demands, start, end, math.ceil((end - start) / HOUR))
    used: dict[int, dict[str, dict[FlavorResource, tuple[float, float]]]] = {}
    for at, rows in series.buckets:
        of_hour = used.setdefault(round((at - start) / HOUR), {})
        for row in rows:
            of = FlavorResource(str(row.group["flavor"]), str(row.group["resource"]))
            of_hour.setdefault(str(row.group["cluster_queue"]), {})[of] = row.nominal_seconds, row.borrowed_seconds
    shares: defaultdict[tuple[str, str], Share] = defaultdict(Share)
    lent: defaultdict[str, _Lenders] = defaultdict(lambda: defaultdict(float))
    roots: dict[tuple[str, str], str] = {}
    for hour, seconds, root in _trees_by_hour(versions, start, end):
        roots.update(((node.kind, node.name), root.name) for node in root.walk())
        _add_hour(root, seconds, used.get(hour, {}), waiting, hour, shares, lent)
    members = {name for (name, _), share in shares.items() if not cohort or share.cohort == cohort}
    selected = {(ClusterQueue.kind, name) for name in members} | {(Cohort.kind, cohort)}
    always = {(ClusterQueue.kind, including), (Cohort.kind, cohort)}
    lenders = {resource: _largest(amounts, roots, selected, always) for resource, amounts in lent.items()}
    borrowed: defaultdict[str, _Lenders] = defaultdict(dict)
    for (name, resource), share in shares.items():
        borrowed[resource][ClusterQueue.kind, name] = share.borrowed
    borrowers = {resource: _largest(amounts, roots, selected, always) for resource, amounts in borrowed.items()}
    loans: defaultdict[LoanKey, float] = defaultdict(float)
    # The largest are known only now; to hold the lending of all hours would take more memory than it takes time.
    for hour, seconds, root in _trees_by_hour(versions, start, end):
        nodes = [*root.walk()]
        if any((node.kind, node.name) in selected for node in nodes):
            for of, lending in _lendings(nodes, seconds, used.get(hour, {})):
                named = lenders.get(of.resource, set()), borrowers[of.resource]
                _add_loans(lending, of, named, selected, loans)
    of_members = {key: share for key, share in sorted(shares.items()) if key[0] in members}
    return Fairness(start, end, of_members, dict(sorted(loans.items())))


def _trees_by_hour(
    versions: Sequence[QueueObjectVersion], start: float, end: float
) -> Iterator[tuple[int, float, TreeNode]]:
    """Yield the number of each hour, its seconds and each root."""
    objects: dict[tuple[str, str], ClusterQueue | Cohort] = {}
    roots: list[TreeNode] = []
    position = 0
    for hour in range(math.ceil((end - start) / HOUR)):
        begins = start + hour * HOUR
        before = position
        # Objects that are created within the hour count for the whole of it, as they may be used.
        while position < len(versions) and versions[position].at <= begins + (HOUR if not objects else 0):
            _apply(objects, versions[position])
            position += 1
        if position != before:
            roots = _trees(objects)
        for root in roots:
            yield hour, min(end - begins, HOUR), root


def _largest(
    amounts: _Lenders,
    roots: Mapping[tuple[str, str], str],
    selected: set[tuple[str, str]],
    always: set[tuple[str, str]],
) -> set[tuple[str, str]]:
    """Return those with the largest amounts of each tree, the selected ones first, and those to name `always`."""
    found, places = set(always), defaultdict[str, int](int)
    for each in sorted((key for key in amounts if amounts[key]), key=lambda key: (key not in selected, -amounts[key])):
        places[roots[each]] += 1
        if places[roots[each]] <= MOST_NAMED:
            found.add(each)
    return found


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
    used: _Used,
    waiting: Mapping[tuple[str, str], Sequence[float]],
    hour: int,
    shares: defaultdict[tuple[str, str], Share],
    lent: defaultdict[str, _Lenders],
) -> None:
    """Add what one tree had in an hour."""
    nodes = [*root.walk()]
    queues = [node for node in nodes if node.kind == ClusterQueue.kind]
    for resource in sorted({each.resource for each in _all_of(nodes, used)}):
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
    for of, lending in _lendings(nodes, seconds, used):
        for lender, amount in lending.sums():
            lent[of.resource][lender] += amount
            if lender[0] == ClusterQueue.kind:
                shares[lender[1], of.resource].lent += amount


def _all_of(nodes: Iterable[TreeNode], used: _Used) -> set[FlavorResource]:
    """Return of what these have quota, or used something."""
    found: set[FlavorResource] = set()
    for node in nodes:
        found.update(node.nominal)
        if node.kind == ClusterQueue.kind:
            found.update(used.get(node.name, ()))
    return found


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
        of = [weight if weighted else 1.0 for weight in weights]
        open_ = [n for n, room in enumerate(rooms) if room > 0 and (weights[n] > 0) == weighted]
        open_.sort(key=lambda n: rooms[n] / of[n])
        totals = [*accumulate(of[n] for n in reversed(open_))]
        for n in open_:  # those that are full first
            parts[n] = min(rooms[n], amount * of[n] / totals.pop())
            amount = max(0.0, amount - parts[n])
    return parts


class _Lending(NamedTuple):
    """What was lent in an hour: by each lender to each borrower but itself the product of their numbers."""

    idle: tuple[_Lenders, _Lenders]
    """Numbers of the lenders: Cohorts, and ClusterQueues."""
    parts: tuple[dict[str, float], dict[str, float]]
    """Numbers of the borrowers, for either."""
    missing: dict[str, float]
    """What nobody had to lend, by borrower."""

    def sums(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Yield what each has lent."""
        for idle, parts in zip(self.idle, self.parts, strict=True):
            whole = sum(parts.values())
            for (kind, name), amount in idle.items():
                own = parts.get(name, 0.0) if kind == ClusterQueue.kind else 0.0
                yield (kind, name), amount * max(0.0, whole - own)


def _lendings(nodes: Sequence[TreeNode], seconds: float, used: _Used) -> Iterator[tuple[FlavorResource, _Lending]]:
    """Yield the lending of all of which something was borrowed in a tree."""
    for of in sorted(_all_of(nodes, used)):
        borrowed: dict[str, float] = {}
        of_cohorts: _Lenders = {}
        of_queues: _Lenders = {}
        for node in nodes:
            nominal = node.nominal.get(of, 0) * seconds
            if node.kind == Cohort.kind:
                if nominal:
                    of_cohorts[node.kind, node.name] = nominal
                continue
            within, beyond = used.get(node.name, {}).get(of, (0.0, 0.0))
            if beyond:
                borrowed[node.name] = beyond
            if (idle := min(nominal - within, node.lending.get(of, 0) * seconds)) > 0:
                of_queues[node.kind, node.name] = idle
        if whole := sum(borrowed.values()):
            yield of, _lending(borrowed, whole, of_cohorts, of_queues)


def _lending(borrowed: Mapping[str, float], whole: float, of_cohorts: _Lenders, of_queues: _Lenders) -> _Lending:
    found = _Lending((of_cohorts, of_queues), ({}, {}), {})
    capacity, idle = sum(of_cohorts.values()), sum(of_queues.values())
    first = min(1.0, capacity / whole)
    rest = whole * (1 - first)
    for borrower, amount in borrowed.items():
        available = idle - of_queues.get((ClusterQueue.kind, borrower), 0.0)
        second = (1 - first) * min(1.0, available / rest) if rest else 0.0
        if first:
            found.parts[0][borrower] = amount * first / capacity
        if second:
            found.parts[1][borrower] = amount * second / available
        if (missing := amount * (1 - first - second)) > amount * 1e-9:
            found.missing[borrower] = missing
    return found


def _add_loans(
    lending: _Lending,
    of: FlavorResource,
    named: tuple[set[tuple[str, str]], set[tuple[str, str]]],
    selected: set[tuple[str, str]],
    loans: defaultdict[LoanKey, float],
) -> None:
    """Add who lent to whom by the lenders and borrowers that are `named`, if either is `selected`."""

    def lender_of(key: tuple[str, str]) -> tuple[str, str, bool]:
        return *(key if key in named[0] else (OTHERS, "")), key in selected

    def borrower_of(name: str) -> tuple[str, bool]:
        key = ClusterQueue.kind, name
        return name if key in named[1] else "", key in selected

    for idle, parts in zip(lending.idle, lending.parts, strict=True):
        lenders: defaultdict[tuple[str, str, bool], float] = defaultdict(float)
        borrowers: defaultdict[tuple[str, bool], float] = defaultdict(float)
        own: defaultdict[tuple[tuple[str, str, bool], tuple[str, bool]], float] = defaultdict(float)
        for key, capacity in idle.items():
            lenders[lender_of(key)] += capacity
        for name, part in parts.items():
            borrowers[borrower_of(name)] += part
            if capacity := idle.get((ClusterQueue.kind, name), 0.0):
                own[lender_of((ClusterQueue.kind, name)), borrower_of(name)] += capacity * part
        for lender, capacity in lenders.items():
            for borrower, part in borrowers.items():
                if (lender[2] or borrower[1]) and (lent := capacity * part - own.get((lender, borrower), 0.0)) > 0:
                    loans[LoanKey(*lender[:2], borrower[0], *of)] += lent
    for name, amount in lending.missing.items():
        if (ClusterQueue.kind, name) in selected:
            loans[LoanKey("", "", borrower_of(name)[0], *of)] += amount


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
