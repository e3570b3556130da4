"""The order in which the heads of a cycle are decided: classically, or by a tournament of dominant resource shares."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from admission.engine.fair import share
from admission.engine.tree import add_usage, remove_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.engine.entry import Entry
    from admission.engine.pending_item import Item
    from admission.engine.tree import Node, Tree


def classical(entries: Iterable[Entry], *, by_priority: bool = True) -> list[Entry]:
    """Entries by borrowing level, lowest first; then by priority (unless not `by_priority`), age and uid."""

    def rank(entry: Entry) -> tuple[int, int, float, str]:
        priority, since, uid = _seniority(entry.item)
        return entry.assignment.borrowing, priority if by_priority else 0, since, uid

    return sorted(entries, key=rank)


def tournament(entries: Iterable[Entry], tree: Tree) -> Iterator[Entry]:
    """Each time the entry that leaves the shares most even, at the usage that those before it left.

    What an entry decides changes the usage of its own ClusterQueue and of the Cohorts above only: so heads stay ordered
    under their Cohort, and winners are found anew on the path of the last one alone.
    """
    brackets = {node: _Bracket() for node in tree.cohorts.values()}
    for entry in entries:
        parent = entry.node.parent
        if parent is None:
            yield entry  # it has no rivals
        else:
            heappush(brackets[parent].heads, (rank_of(entry, entry.node, tree), entry))
    while (best := _winner(tree.root, brackets, tree)) is not None:
        heappop(brackets[best.node.path[0]].heads)
        yield best
        for node in best.node.path:
            brackets[node].known = False


Rank = tuple[bool, tuple[bool, float], int, float, str]
"""(borrows, share with it, negated priority, waiting since, uid): the smallest wins a tournament."""


class _Bracket:
    """The entries under one Cohort that have not been decided."""

    __slots__ = ("heads", "known", "rank", "winner")

    def __init__(self) -> None:
        self.heads: list[tuple[Rank, Entry]] = []
        """Those of the Cohort's own ClusterQueues, as a heap."""
        self.known = False
        """Whether `winner` and `rank` are up to date."""
        self.winner: Entry | None = None
        self.rank: Rank | None = None
        """The winner's rank among those of the Cohort's siblings."""


def _winner(cohort: Node, brackets: Mapping[Node, _Bracket], tree: Tree) -> Entry | None:
    """The first of the winners of child Cohorts and the heads of the Cohort's own ClusterQueues."""
    if cohort.leaf:
        return None
    bracket = brackets[cohort]
    if bracket.known:
        return bracket.winner
    best_rank, best = bracket.heads[0] if bracket.heads else (None, None)
    for child in cohort.cohorts:
        entry, rank = _winner(child, brackets, tree), brackets[child].rank
        if entry is not None and rank is not None and (best_rank is None or rank < best_rank):
            best, best_rank = entry, rank
    bracket.known, bracket.winner = True, best
    bracket.rank = None if best is None else rank_of(best, cohort, tree)
    return best


def rank_of(entry: Entry, at: Node, tree: Tree) -> Rank:
    """The rank of an entry at a node on its path."""
    return tournament_rank(entry.item, entry.assignment.usage, entry.node, at, tree)


def tournament_rank(item: Item, usage: Mapping[int, int], node: Node, at: Node, tree: Tree) -> Rank:
    """How a workload of the ClusterQueue `node` that would use `usage` ranks at `at`, a node on its path.

    By the share that `at` would have with it.
    """
    for fr, amount in usage.items():
        add_usage(node, fr, amount)
    own = share(at, tree)
    for fr, amount in usage.items():
        remove_usage(node, fr, amount)
    return own.borrows_any(usage), own.rank, *_seniority(item)


def _seniority(item: Item) -> tuple[int, float, str]:
    return -item.shape.priority, item.since, item.uid
