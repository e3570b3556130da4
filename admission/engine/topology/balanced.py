"""Balanced placement: pods that prefer a level are spread evenly over as few of its domains as possible.

Follows Kueue's `tas_balanced_placement.go` (feature gate TASBalancedPlacement).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.topology.counting import by_leader, by_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.engine.topology.counting import Capacities
    from admission.engine.topology.tree import Domain, Tree


class Balanced(NamedTuple):
    """What is to be spread."""

    searched: int
    """Index of the preferred level."""
    slice_level: int
    size: int
    """Pods of a slice."""
    wanted: int
    """Number of slices."""
    leader: bool
    units: tuple[int, ...]
    """As in `counting.Demand`."""


def balance(tree: Tree, counts: Capacities, wish: Balanced) -> tuple[int, list[tuple[Domain, int, bool]]] | None:
    """Return a level, and (domain, pods, whether it has the leader) of domains of it; None: they cannot be spread."""
    best: tuple[int, int, _Candidates] | None = None  # threshold, negated number of domains
    if wish.searched:
        above = sorted(tree.level(wish.searched - 1), key=lambda domain: domain.values)
        sets = [[child for child in domain.children if child.present] for domain in above]
    else:
        sets = [tree.level(0)]
    for domains in sets:
        found = _Candidates.of(tree, counts, wish, domains, 0 if best is None else best[0])
        if found is not None and found.threshold > 0:
            rank = found.threshold, -found.used
            if best is None or rank > best[:2]:
                best = *rank, found
    return None if best is None else best[2].spread()


class _Greedy(NamedTuple):
    """How many domains suffice if the largest ones are taken first, and the last of them."""

    used: int
    last_leader: Domain | None
    last: Domain | None


class _Candidates:
    """A set of sibling domains, with counts of their own: what is below the threshold is emptied."""

    def __init__(self, tree: Tree, counts: Capacities, wish: Balanced, domains: list[Domain]) -> None:
        self._tree = tree
        self._ranks = tree.ranks()
        self._wish = wish
        self._domains = domains
        self.pods, self.slices, self.leaders = counts.pods[:], counts.slices[:], counts.leaders[:]
        self.pods_beside, self.slices_beside = counts.pods_beside[:], counts.slices_beside[:]
        self.scores = counts.scores
        self.threshold = 0
        """Fewest slices of each domain that is used."""
        self.used = 0
        """Number of domains that greedy choice uses."""

    @classmethod
    def of(cls, tree: Tree, counts: Capacities, wish: Balanced, domains: list[Domain], best: int) -> _Candidates | None:
        """Return a set of siblings with its threshold; None: it does not suffice, or its threshold is below `best`."""
        found = cls(tree, counts, wish, domains)
        greedy = found._greedy(found._lower())
        if greedy is None or not greedy.used:
            return None
        threshold = wish.wanted // greedy.used
        if greedy.last_leader is not None:
            threshold = min(threshold, found.slices_beside[greedy.last_leader.number])
        if greedy.last is not None:
            threshold = min(threshold, found.slices[greedy.last.number])
        if threshold < best:
            return None
        if found._prune(threshold):
            return found
        if not wish.leader or greedy.last is None:
            return None
        lower = min(threshold, counts.slices_beside[greedy.last.number])
        if lower == threshold or lower <= 0 or lower < best:
            return None
        found = cls(tree, counts, wish, domains)
        return found if found._prune(lower) else None

    # --- greedy choice

    def _lower(self) -> list[Domain]:
        """Return the domains in which slices are counted first: those of the set, or their children above slices."""
        if self._wish.searched < self._wish.slice_level:
            return _children(self._domains)
        return self._domains

    def _greedy(self, domains: Sequence[Domain]) -> _Greedy | None:
        rest, used, last_leader, last = self._wish.wanted, 0, None, None
        others = list(domains)
        if self._wish.leader:
            others = by_leader(domains, self, self._ranks)
            if not others or not self.leaders[others[0].number]:
                return None
            last_leader, *others = others
            used = 1
            rest -= self.slices_beside[last_leader.number]
        for domain in by_slices(others, self, self._ranks):
            if rest <= 0 or not self.slices[domain.number]:
                break
            used, last = used + 1, domain
            rest -= self.slices[domain.number]
        return _Greedy(used, last_leader, last) if rest <= 0 else None

    # --- threshold

    def _prune(self, threshold: int) -> bool:
        """Empty what has fewer slices than the threshold; return whether the rest still suffices."""
        for child in _children(self._domains):
            self._prune_one(child, threshold)
        for domain in self._domains:
            self._recount(domain, self._wish.searched, deep=max(self._wish.units) > 1)
            self._prune_one(domain, threshold)
        greedy = self._greedy(self._domains)
        if greedy is None:
            return False
        self.threshold, self.used = threshold, greedy.used
        return True

    def _prune_one(self, domain: Domain, threshold: int) -> None:
        n = domain.number
        if self.slices[n] < threshold:
            self._clear(domain, self.pods, self.slices, self.leaders, self.pods_beside, self.slices_beside)
        elif self._wish.leader and self.leaders[n] and self.slices_beside[n] < threshold:
            self._clear(domain, self.leaders, self.pods_beside, self.slices_beside)

    def _clear(self, domain: Domain, *counts: list[int]) -> None:
        for each in counts:
            each[domain.number] = 0
        for child in domain.children:
            self._clear(child, *counts)

    def _recount(self, domain: Domain, level: int, *, deep: bool) -> None:
        """Count a domain anew from its children, without inner slices, as Kueue does. `deep`: also those below it."""
        n, size = domain.number, self._wish.size
        if domain.children:
            if deep:
                for child in domain.children:
                    self._recount(child, level + 1, deep=True)
            below = [child.number for child in domain.children if child.present]
            able = [c for c in below if not self._wish.leader or self.leaders[c]]
            self.pods[n] = sum(self.pods[c] for c in below)
            self.slices[n] = sum(self.slices[c] for c in below)
            self.leaders[n] = max((self.leaders[c] for c in below), default=0)
            self.pods_beside[n] = self.slices_beside[n] = 0
            if able:
                self.pods_beside[n] = self.pods[n] - min(self.pods[c] - self.pods_beside[c] for c in able)
                self.slices_beside[n] = self.slices[n] - min(self.slices[c] - self.slices_beside[c] for c in able)
        if level == self._wish.slice_level:
            self.slices[n], self.slices_beside[n] = self.pods[n] // size, self.pods_beside[n] // size

    # --- choice

    def spread(self) -> tuple[int, list[tuple[Domain, int, bool]]] | None:
        """Return the level and the shares, as of `balance`."""
        level, domains = self._wish.searched, self._domains
        if level < self._wish.slice_level:

            def key(domain: Domain) -> tuple[int, int, float, int]:
                n = domain.number
                return -self.leaders[n], -self.slices_beside[n], -self._entropy(domain), self._ranks[n]

            chosen = self._smallest_set(sorted(domains, key=key))
            if chosen is None:
                return None
            level, domains = level + 1, _children(chosen)
        chosen = self._smallest_set(sorted(domains, key=lambda domain: self._ranks[domain.number]))
        if chosen is None or (extra := self._wish.wanted - len(chosen) * self.threshold) < 0:
            return None
        shares = []
        leader = self._wish.leader
        for domain in by_leader(chosen, self, self._ranks):
            room = (self.slices_beside if leader else self.slices)[domain.number]
            more = min(room - self.threshold, extra)
            shares.append((domain, (self.threshold + more) * self._wish.size, leader))
            leader = False
            extra -= more
        return (level, shares) if not extra else None

    def _entropy(self, domain: Domain) -> float:
        pods = [self.pods[child.number] for child in domain.children]
        total = sum(pods)
        return sum(-count / total * math.log2(count / total) for count in pods if count) if total else 0.0

    def _smallest_set(self, in_order: list[Domain]) -> list[Domain] | None:
        """Return the domains that exceed what is wanted least, among all sets of as many as greedy choice needs.

        Of equal sets the first one found, if domains are added in this order.
        """
        greedy = self._greedy(in_order)
        if greedy is None:
            return None
        # Number of domains -> (whether the leader is missing, missing pods) -> the first domains that leave this.
        sets: list[dict[tuple[bool, int], tuple[Domain, ...]]] = [{} for _ in range(greedy.used + 1)]
        sets[0][self._wish.leader, self._wish.wanted * self._wish.size] = ()
        for domain in in_order:
            n = domain.number
            for used in range(greedy.used, 0, -1):
                for missing, rest in sorted(sets[used - 1]):
                    if not missing and rest <= 0:
                        continue
                    larger = (*sets[used - 1][missing, rest], domain)
                    if missing and self.leaders[n]:
                        sets[used].setdefault((False, rest - self.pods_beside[n]), larger)
                    if self.slices[n]:
                        sets[used].setdefault((missing, rest - self.pods[n]), larger)
        complete = [rest for missing, rest in sets[-1] if not missing and rest <= 0]
        return list(sets[-1][False, max(complete)]) if complete else None


def _children(domains: Sequence[Domain]) -> list[Domain]:
    return [child for domain in domains for child in domain.children if child.present]
