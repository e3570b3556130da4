"""Counting upward: how many pods and slices of a pod set fit into each domain. The first phase of a placement.

Counts are kept by demand. A later use recounts only leaves that have changed since, and the domains above these.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.engine.topology.nodes import PodRules
    from admission.engine.topology.tree import Domain, Leaf, Tree
    from admission.model.topology import Values

PODS = "pods"
_NO_AMOUNTS: Mapping[str, int] = {}
_ELSEWHERE = "topologyDomain"


class Demand(NamedTuple):
    """All that counts depend on, apart from the tree."""

    requests: tuple[tuple[str, int], ...]
    """(resource, amount) of one pod, by name of the resource, with one of `pods`; amounts of 0 are left out."""
    rules: PodRules
    leader: tuple[tuple[str, int], ...] | None
    """Requests of the leader's pod, in the same form; None: the pod set has no leader."""
    slice_level: int
    """Index of the level of the outermost slices."""
    size: int
    """Pods of such a slice; 1 without slices."""
    units: tuple[int, ...]
    """For each level the size of inner slices, which pods of a domain of the level come in; 1 if there are none."""
    empty: bool = False
    """Whether to count as if no placed workload used anything."""
    within: Values = ()
    """Values of the domain outside of which no leaf is considered; empty: all are."""


def requests_of(requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return `Demand.requests` for the requests of one pod."""
    counted = {**requests, PODS: requests.get(PODS, 0) + 1}
    return tuple(sorted((resource, amount) for resource, amount in counted.items() if amount > 0))


class Counts:
    """The counts of a demand in a tree, by numbers of domains. `..._beside`: what fits beside the leader."""

    def __init__(self, tree: Tree, demand: Demand) -> None:
        self._tree = tree
        self._demand = demand
        self._epoch = -1
        self._seen = 0
        self.pods: list[int] = []
        self.slices: list[int] = []
        self.leaders: list[int] = []
        self.pods_beside: list[int] = []
        self.slices_beside: list[int] = []
        self.scores: list[int] = []
        """How much the pods prefer a domain; empty if they prefer none."""
        self._excluded: list[str] = []
        self.exclusions: Counter[str] = Counter()
        """Number of leaves by what excludes them, in the words of Kueue's messages."""

    def refresh(self) -> None:
        """Bring the counts up to the tree's present state."""
        tree = self._tree
        if self._epoch != tree.epoch:
            self._begin()
            changed: Iterable[Leaf] = tree.leaves.values()
        elif self._seen == len(tree.changed):
            return
        else:
            changed = dict.fromkeys(tree.changed[self._seen :])
        self._seen = len(tree.changed)
        above: dict[Domain, None] = {}
        for leaf in changed:
            self._count_leaf(leaf)
            if leaf.parent is not None:
                above[leaf.parent] = None
        last = len(tree.levels) - 1
        for level in range(last - 1, -1, -1):
            count = self._count_inner if self._demand.leader is None else self._count_inner_with_leader
            for domain in above:
                count(domain, level)
            above = dict.fromkeys(domain.parent for domain in above if domain.parent is not None)

    def _begin(self) -> None:
        self._epoch = self._tree.epoch
        number = len(self._tree.domains)
        self.pods, self.slices = [0] * number, [0] * number
        if self._demand.leader is None:  # beside no leader the same fits
            self.pods_beside, self.slices_beside = self.pods, self.slices
        else:
            self.pods_beside, self.slices_beside = [0] * number, [0] * number
        self.leaders = [0] * number
        self.scores = [0] * number if self._demand.rules.preferences else []
        self._excluded = [""] * number
        self.exclusions = Counter()

    def _count_leaf(self, leaf: Leaf) -> None:
        demand, at = self._demand, leaf.number
        pods = leaders = beside = 0
        why = ""
        if leaf.present:
            why = self._exclusion(leaf)
            if not why:
                pods, limiting = self._fitting(leaf, demand.requests, _NO_AMOUNTS)
                beside = pods
                if not pods:
                    why = f'resource "{limiting}"'
                if demand.leader is not None and self._fitting(leaf, demand.leader, _NO_AMOUNTS)[0]:
                    leaders = 1
                    beside, _ = self._fitting(leaf, demand.requests, dict(demand.leader))
        if self.scores:
            runs = leaf.present and self._tree.by_hostname and not self._exclusion(leaf)
            self.scores[at] = sum(map(demand.rules.score, leaf.nodes.values())) if runs else 0
        before = self._excluded[at]
        if before != why:
            self._excluded[at] = why
            if before:
                self.exclusions[before] -= 1
            if why:
                self.exclusions[why] += 1
        self.pods[at] = pods
        deepest = demand.slice_level == len(self._tree.levels) - 1
        self.slices[at] = pods // demand.size if deepest else 0
        if demand.leader is not None:
            self.leaders[at] = leaders
            self.pods_beside[at] = beside
            self.slices_beside[at] = beside // demand.size if deepest else 0

    def _exclusion(self, leaf: Leaf) -> str:
        why = ""
        if self._tree.by_hostname:
            for node in leaf.nodes.values():
                why = self._demand.rules.exclusion(node)
        within = self._demand.within
        return why or (_ELSEWHERE if leaf.values[: len(within)] != within else "")

    def _fitting(self, leaf: Leaf, requests: tuple[tuple[str, int], ...], taken: Mapping[str, int]) -> tuple[int, str]:
        """Return how many pods with these requests fit when `taken` is in use, and the resource that limits them."""
        base, assumed = leaf.base, leaf.assumed
        used, extra = (_NO_AMOUNTS, _NO_AMOUNTS) if self._demand.empty else (leaf.used, leaf.extra)
        least, limiting = 1 << 62, ""
        for resource, amount in requests:
            free = base.get(resource, 0) - used.get(resource, 0)
            if extra:
                free -= extra.get(resource, 0)
            if assumed:
                free -= assumed.get(resource, 0)
            if taken:
                free -= taken.get(resource, 0)
            fitting = free // amount if free > 0 else 0
            if fitting < least:
                least, limiting = fitting, resource
        return least, limiting

    def _count_inner(self, domain: Domain, level: int) -> None:
        demand = self._demand
        unit = demand.units[level + 1]
        pods = [self.pods[child.number] for child in domain.children]
        total = sum(pods) if unit == 1 else sum(count - count % unit for count in pods)
        at = domain.number
        self.pods[at] = total
        if self.scores:
            self.scores[at] = sum([self.scores[child.number] for child in domain.children])
        if level < demand.slice_level:
            slices = self.slices
            self.slices[at] = sum([slices[child.number] for child in domain.children])
        elif level == demand.slice_level:
            self.slices[at] = total // demand.size

    def _count_inner_with_leader(self, domain: Domain, level: int) -> None:
        self._count_inner(domain, level)
        demand, at = self._demand, domain.number
        unit = demand.units[level + 1]
        capable = [child.number for child in domain.children if self.leaders[child.number]]
        self.leaders[at] = 1 if capable else 0
        self.pods_beside[at] = self.slices_beside[at] = 0
        if not capable:
            return
        pods, beside = self.pods, self.pods_beside
        lost = min((pods[n] - pods[n] % unit) - (beside[n] - beside[n] % unit) for n in capable)
        beside[at] = pods[at] - lost
        if level < demand.slice_level:
            self.slices_beside[at] = self.slices[at] - min(self.slices[n] - self.slices_beside[n] for n in capable)
        elif level == demand.slice_level:
            self.slices_beside[at] = beside[at] // demand.size


def counts_of(tree: Tree, demand: Demand) -> Counts:
    """Return the present counts of a demand."""
    counts = tree.counts.pop(demand, None) or Counts(tree, demand)
    if not demand.within:
        tree.remember(demand, counts)
    counts.refresh()
    return counts


class Capacities(Protocol):
    """Counts by number of the domain, as of `Counts`."""

    pods: list[int]
    slices: list[int]
    leaders: list[int]
    pods_beside: list[int]
    slices_beside: list[int]
    scores: list[int]


def by_leader(
    domains: Iterable[Domain], counts: Capacities, ranks: Sequence[int], *, ascending: bool = False
) -> list[Domain]:
    """Sort by what fits beside the leader, with the best domain for the leader first.

    `ranks`: `Tree.ranks`. `ascending`: domains with fewer slices come first.
    """
    leaders, slices, pods, scores = counts.leaders, counts.slices_beside, counts.pods_beside, counts.scores
    sign = 1 if ascending else -1

    def key(domain: Domain) -> tuple[int, int, int, int]:
        n = domain.number
        return -leaders[n], sign * slices[n], pods[n], ranks[n]

    in_order = sorted(domains, key=key)
    if scores:
        in_order.sort(key=lambda domain: (-leaders[domain.number], -scores[domain.number]))
    return in_order


def by_slices(
    domains: Iterable[Domain], counts: Capacities, ranks: Sequence[int], *, ascending: bool = False
) -> list[Domain]:
    """Sort by numbers of slices (all, without a leader), then by fewest pods. Parameters as of `by_leader`."""
    slices, pods, scores, sign = counts.slices, counts.pods, counts.scores, 1 if ascending else -1
    in_order = sorted(
        domains, key=lambda domain: (sign * slices[domain.number], pods[domain.number], ranks[domain.number])
    )
    if scores:
        in_order.sort(key=lambda domain: -scores[domain.number])
    return in_order
