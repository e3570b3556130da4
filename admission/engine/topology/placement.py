"""Choosing downward: the domains in which the pods of a pod set, and its leader, are placed. The second phase.

Follows Kueue's `TASFlavorSnapshot` (`pkg/cache/scheduler/tas_flavor_snapshot.go`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.topology.balanced import Balanced, balance
from admission.engine.topology.counting import Demand, by_leader, by_slices, counts_of
from admission.model.topology import DomainCount, TopologyAssignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.engine.topology.counting import DomainCounts
    from admission.engine.topology.nodes import PodRules
    from admission.engine.topology.tree import Domain, Tree
    from admission.model.topology import TopologyRequest, Values

NO_LEVEL: Final = "topology level not specified"


@dataclass(frozen=True, slots=True)
class Rules:
    """The algorithms of placement, which are the same for all flavors."""

    mixed: bool = True
    """Whether unconstrained pod sets take the domains with the least free capacity (Kueue's TASProfileMixed)."""
    balanced: bool = False
    """Whether pod sets with a preferred level are spread evenly over its domains (Kueue's TASBalancedPlacement)."""
    prefers: bool = False
    """Whether domains are preferred by the pods' preferred node affinity (Kueue's TASRespectNodeAffinityPreferred)."""
    as_kueue: bool = False
    """As `Policy.as_kueue`: place whole slices only; no other node for a part of one if nothing else is requested."""


class Question(NamedTuple):
    """A pod set to be placed, with its leader if it has one."""

    number: int
    """Number of pods."""
    requests: tuple[tuple[str, int], ...]
    """Requests of one pod, as in `Demand`."""
    request: TopologyRequest | None
    """None: the pod set requests nothing, and its ClusterQueue has flavors with a topology only."""
    pods: PodRules
    leader: tuple[tuple[str, int], ...] | None = None
    empty: bool = False
    """Whether to place as if no placed workload used anything."""


class Placed(NamedTuple):
    """Domains with their numbers of pods, and the domain of the leader."""

    pods: TopologyAssignment
    leader: TopologyAssignment | None


class Share(NamedTuple):
    """What a domain gets of an amount of pods or slices."""

    domain: Domain
    amount: int
    leader: bool


def place(tree: Tree, question: Question, rules: Rules) -> Placed | str:
    """Return the placement, or why there is none, as Kueue's message."""
    levels = levels_of(tree, question.request)
    if isinstance(levels, str):
        return levels
    searched, layers = levels
    return Search(tree, question, rules, searched, layers).run()


def levels_of(tree: Tree, request: TopologyRequest | None) -> tuple[int, tuple[tuple[int, int], ...]] | str:
    """Return the searched level, and (level, size) of each layer of slices; or what is wrong with the request."""
    levels = tree.levels
    last = len(levels) - 1
    if request is None:
        return last, ((last, 1),)
    wanted = request.required or request.preferred
    if not wanted and not request.unconstrained and not request.layers:
        return NO_LEVEL
    if wanted and wanted not in levels:
        return f"no requested topology level: {wanted}"
    searched = levels.index(wanted) if wanted else 0 if request.layers else last
    if not request.layers:
        return searched, ((last, 1),)
    layers: list[tuple[int, int]] = []
    for number, (level, size) in enumerate(request.layers):
        if not size:
            return "slice topology requested, but slice size not provided"
        if level not in levels:
            what = "slices" if not number else "additional slice layer"
            return f"no requested topology level for {what}: {level}"
        index = levels.index(level)
        if not layers and index < searched:
            return f"podset slice topology {level} is above the podset topology {levels[searched]}"
        if layers:
            above, parent = request.layers[number - 1]
            if index <= layers[-1][0]:
                return f"additional slice layer topology {level} must be at a lower level than {above}"
            if parent % size:
                return f"additional slice layer size {size} must evenly divide parent layer size {parent}"
        layers.append((index, size))
    return searched, tuple(layers)


def demand_of(
    tree: Tree, question: Question, rules: Rules, layers: tuple[tuple[int, int], ...], within: Values = ()
) -> Demand:
    """Return what has to be counted for a pod set in slices of these layers, (level, size) of each."""
    units = [1] * (len(tree.levels) + 1)
    for (above, _), (level, size) in pairwise(layers):
        units[above + 1 : level + 1] = [size] * (level - above)
    pods = question.pods
    return Demand(
        question.requests,
        pods if rules.prefers or not pods.preferences else replace(pods, preferences=()),
        question.leader,
        *layers[0],
        tuple(units),
        question.empty,
        within,
    )


class Search:
    """The search for the domains of one pod set.

    `within` restricts it to the leaves of one domain; `unit` overrides the slices (for the replacement of nodes).
    """

    def __init__(
        self,
        tree: Tree,
        question: Question,
        rules: Rules,
        searched: int,
        layers: tuple[tuple[int, int], ...],
        within: Values = (),
    ) -> None:
        self._tree = tree
        self._question = question
        self._rules = rules
        self._searched = searched
        self._layers = layers
        self._slice_level, self._size = layers[0]
        request = question.request
        self._required = bool(request is not None and request.required)
        self._unconstrained = request is None or not (request.required or request.preferred)
        self._least_free = self._unconstrained and rules.mixed
        self._demand = demand_of(tree, question, rules, layers, within)
        self._units = self._demand.units
        self._counts: DomainCounts
        self._ranks: list[int] = []

    def run(self) -> Placed | str:
        """Return the placement, or why there is none."""
        tree = self._tree
        if not self._look():
            return f"no topology domains at level: {tree.levels[self._searched]}"
        wanted = self._question.number // self._size
        leader = self._question.leader is not None
        if self._rules.balanced and not (self._required or self._unconstrained):
            wish = Balanced(self._searched, self._slice_level, self._size, wanted, leader, self._units)
            if (spread := balance(tree, self._counts, wish)) is not None:
                level, shared = spread
                return self._placed(self._below(level, [Share(*each) for each in shared], within_slices=False))
        found = self._choose(self._searched, wanted, leader=leader)
        if isinstance(found, str):
            return found
        level, chosen = found
        return self._placed(self._descend(level, chosen, wanted, leader=leader))

    def _look(self) -> bool:
        """Count what fits; return whether there are any domains."""
        tree = self._tree
        if not tree.by_level[self._searched] or not tree.total:
            return False
        self._counts = counts_of(tree, self._demand)
        self._ranks = tree.ranks()
        return True

    # --- orders

    def _by_leader(self, domains: Iterable[Domain]) -> list[Domain]:
        return by_leader(domains, self._counts, self._ranks, ascending=self._least_free)

    def _by_slices(self, domains: Iterable[Domain]) -> list[Domain]:
        return by_slices(domains, self._counts, self._ranks, ascending=self._least_free)

    def _best(self, domains: list[Domain]) -> list[Domain]:
        """Return the first domains of a sorted list that pods prefer equally, among which the best fit is chosen."""
        scores = self._counts.scores
        if not scores:
            return domains
        highest = scores[domains[0].number]
        return list(takewhile(lambda domain: scores[domain.number] == highest, domains))

    # --- choice of the domains of the searched level

    def _choose(self, level: int, wanted: int, *, leader: bool) -> tuple[int, list[Domain]] | str:
        counts, ranks = self._counts, self._ranks
        slices, beside, leaders, pods = counts.slices, counts.slices_beside, counts.leaders, counts.pods_beside
        lined = wanted > 0 and not leader and not counts.scores
        while True:
            if lined:  # best fit and least free capacity agree on the smallest domain that suffices
                line = counts.line(level)
                if (smallest := next(line.since(wanted), None)) is not None:
                    return level, [smallest]
                if self._required:
                    return self._failure(line.most(), wanted)
                if self._least_free:
                    return self._least(level, wanted)
            domains = self._tree.level(level)
            alone = [] if lined else [d for d in domains if beside[d.number] >= wanted and leaders[d.number] >= leader]
            if alone and counts.scores:
                if (preferred := self._preferred(domains, alone)) is not None:
                    return level, [preferred]
            elif alone:
                smallest = min(alone, key=lambda d: (beside[d.number], pods[d.number], ranks[d.number]))
                return level, [smallest]
            if self._required:
                return self._failure(slices[self._by_leader(domains)[0].number], wanted)
            if self._unconstrained or not level:
                break
            level -= 1
        if leader:  # without a leader they are sorted below
            domains = self._by_leader(domains)
        shares = self.give(domains, wanted, slices, beside, leader=leader, resort=True)
        if isinstance(shares, int):
            return self._failure(shares, wanted)
        return level, [share.domain for share in shares]

    def _least(self, level: int, wanted: int) -> tuple[int, list[Domain]] | str:
        """Take the domains with the least free capacity until they suffice."""
        chosen, rest = [], wanted
        for domain in self._counts.line(level).since(1):
            chosen.append(domain)
            rest -= self._counts.slices[domain.number]
            if rest <= 0:
                return level, chosen
        return self._failure(wanted - rest, wanted)

    def _preferred(self, domains: list[Domain], alone: list[Domain]) -> Domain | None:
        """Return which of the domains that suffice alone is chosen by preference; None: several domains are better."""
        suffice = set(alone)
        in_order = self._by_leader(domains)
        if self._required or self._least_free:  # the first that suffices, though pods prefer others
            in_order = in_order[next(at for at, domain in enumerate(in_order) if domain in suffice) :]
        if in_order[0] not in suffice or self._least_free:
            return in_order[0] if in_order[0] in suffice else None
        best = [domain for domain in self._best(in_order) if domain in suffice]
        return min(best, key=lambda domain: self._counts.slices_beside[domain.number])

    def give(
        self,
        domains: list[Domain],
        amount: int,
        capacity: Sequence[int],
        beside: Sequence[int],
        *,
        leader: bool,
        resort: bool = False,
    ) -> list[Share] | int:
        """Distribute an amount over domains in their order; return the number that was placed if it is not all.

        `capacity` and `beside` (beside the leader) are by number of the domain. `resort`: sort the domains behind
        the leader's anew.
        """
        shares: list[Share] = []
        rest = amount
        leaders = self._counts.leaders
        if leader:
            spare = sum(capacity[domain.number] for domain in domains) - amount
            for index, domain in enumerate(domains):
                n = domain.number
                if leaders[n] and capacity[n] - beside[n] <= spare:
                    domains = [domain, *domains[:index], *domains[index + 1 :]]
                    break
        at = 0
        while leader and at < len(domains):
            domain = domains[at]
            if leaders[domain.number] and not self._least_free and beside[domain.number] >= rest:
                later = [d for d in self._best(domains[at:]) if leaders[d.number] and beside[d.number] >= rest]
                domain = min(later, key=lambda d: beside[d.number])
            n = domain.number
            taken = min(rest, beside[n])
            leader = not leaders[n]
            shares.append(Share(domain, taken, not leader))
            rest -= taken
            at += 1
        if leader:
            return 0
        domains = self._by_slices(domains[at:]) if resort else domains[at:]
        for index, domain in enumerate(domains):
            if rest <= 0:
                break
            if not self._least_free and capacity[domain.number] >= rest:
                later = [d for d in self._best(domains[index:]) if capacity[d.number] >= rest]
                domain = min(later, key=lambda d: capacity[d.number])
            taken = min(rest, capacity[domain.number])
            if taken or not resort:
                shares.append(Share(domain, taken, leader=False))
            rest -= taken
        return shares if rest <= 0 else amount - rest

    # --- downward

    def _descend(self, level: int, chosen: list[Domain], wanted: int, *, leader: bool) -> list[Share]:
        counts, size = self._counts, self._size
        last = len(self._tree.levels) - 1
        given = self.give(chosen, wanted, counts.slices, counts.slices_beside, leader=leader)
        while level < min(self._slice_level, last):
            shares = self._certain(given)
            children = [child for share in shares for child in share.domain.children if child.present]
            in_order = self._by_slices(children)
            given = self.give(in_order, wanted, counts.slices, counts.slices_beside, leader=leader)
            level += 1
        return self._below(level, [Share(d, slices * size, leads) for d, slices, leads in self._certain(given)])

    def _below(self, level: int, shares: list[Share], *, within_slices: bool = True) -> list[Share]:
        """Distribute the pods of domains of a level over the leaves, each domain's over its own children.

        `within_slices`: the level is not above that of the slices.
        """
        for at in range(level + 1, len(self._tree.levels)):
            unit = self._units[at] if within_slices or at > self._slice_level else self._size
            shares = [own for share in shares for own in self.below(share, unit)]
        return shares

    def below(self, share: Share, unit: int) -> list[Share]:
        """Distribute the pods of a domain over its children, in units of that many pods."""
        counts = self._counts
        children = [child for child in share.domain.children if child.present]
        capacity: Sequence[int] | Mapping[int, int] = counts.pods
        beside: Sequence[int] | Mapping[int, int] = counts.pods_beside
        if unit > 1:
            capacity = {child.number: counts.pods[child.number] // unit for child in children}
            beside = {child.number: counts.pods_beside[child.number] // unit for child in children}
        if not share.amount and not share.leader:
            return []
        in_order = self._by_slices(children)
        given = self.give(in_order, share.amount // unit, capacity, beside, leader=share.leader)  # type: ignore[arg-type]
        return [Share(domain, amount * unit, leads) for domain, amount, leads in self._certain(given)]

    @staticmethod
    def _certain(shares: list[Share] | int) -> list[Share]:
        # What was counted upward fits downward, too.
        assert not isinstance(shares, int), "counts of domains do not agree with those of their children"
        return shares

    def _placed(self, shares: list[Share]) -> Placed:
        pods = [DomainCount(share.domain.values, share.amount) for share in shares if share.amount]
        leader = [DomainCount(share.domain.values, 1) for share in shares if share.leader]
        return Placed(self._assignment(pods), self._assignment(leader) if leader else None)

    def _assignment(self, domains: list[DomainCount]) -> TopologyAssignment:
        tree = self._tree
        in_order = (DomainCount(tree.key(values), count) for values, count in sorted(domains))
        return TopologyAssignment(tree.levels[-1:] if tree.by_hostname else tree.levels, tuple(in_order))

    # --- messages

    def _failure(self, fitting: int, wanted: int) -> str:
        tree = self._tree
        if len(self._layers) > 1:
            text = f'topology "{tree.topology}" doesn\'t allow to fit; {"; ".join(self._fitting_by_layer())}'
        else:
            unit = "pod" if self._size == 1 else "slice"
            how = f"allows to fit only {fitting} out of" if fitting else "doesn't allow to fit any of"
            text = f'topology "{tree.topology}" {how} {wanted} {unit}(s)'
        excluded = sorted(f"{why}: {number}" for why, number in self._counts.exclusions().items() if number)
        return f"{text}. Total nodes: {tree.total}; excluded: {', '.join(excluded)}" if excluded else text

    def _fitting_by_layer(self) -> list[str]:
        level = self._searched if self._required or self._unconstrained else 0
        counts, tree = self._counts, self._tree
        best = min(tree.level(level), key=lambda domain: (-counts.slices[domain.number], self._ranks[domain.number]))
        texts = []
        for at, size in self._layers:
            below = [best]
            for _ in range(level, at):
                below = [child for domain in below for child in domain.children]
            fitting = sum(counts.pods[domain.number] // size for domain in below)
            texts.append(f"{fitting}/{self._question.number // size} slice(s) fit on level {tree.levels[at]}")
        return texts
