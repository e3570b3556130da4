"""Order in which a cycle decides its heads: classical, or by a tournament of dominant resource shares.

Follows Kueue's `classicalIterator` (`pkg/scheduler/scheduler.go`) and `fair_sharing_iterator.go`.
"""

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
    """Sort entries by borrowing level, lowest first; then priority, highest first (if `by_priority`), age and uid."""

    def rank(entry: Entry) -> tuple[int, int, float, str]:
        priority, since, uid = _seniority(entry.item)
        return entry.assignment.borrowing, priority if by_priority else 0, since, uid

    return sorted(entries, key=rank)


def tournament(entries: Iterable[Entry], tree: Tree) -> Iterator[Entry]:
    """Yield the entries in the order of fair sharing: each time the winner at the usage after the decisions before it.

    At each Cohort the winners of its children are compared by `Rank` (Kueue's `runTournament`). A decision changes the
    usage of the entry's ClusterQueue and of the Cohorts above only: so the heads under a Cohort stay sorted, and
    winners are computed again only on the path of the last entry.
    """
    brackets = {node: _Bracket() for node in tree.cohorts.values()}
    for entry in entries:
        parent = entry.node.parent
        if parent is None:
            yield entry  # without a Cohort nothing competes with it
        else:
            heappush(brackets[parent].heads, (rank_of(entry, entry.node, tree), entry))
    while (best := _winner(tree.root, brackets, tree)) is not None:
        heappop(brackets[best.node.path[0]].heads)
        yield best
        for node in best.node.path:
            brackets[node].known = False


Rank = tuple[bool, tuple[bool, float], int, float, str]
"""(borrows a requested flavor-resource, share with the workload, negated priority, waiting since, uid).

The smallest wins a tournament, as in Kueue's `entryComparer.less`."""


class _Bracket:
    """Undecided entries under one Cohort."""

    __slots__ = ("heads", "known", "rank", "winner")

    def __init__(self) -> None:
        self.heads: list[tuple[Rank, Entry]] = []
        """Undecided entries of the Cohort's own ClusterQueues, as a heap."""
        self.known = False
        """Whether `winner` and `rank` are up to date."""
        self.winner: Entry | None = None
        """The best entry of the Cohort's subtree; None: none is left."""
        self.rank: Rank | None = None
        """The winner's rank in the comparison with the winners of the Cohort's siblings."""


def _winner(cohort: Node, brackets: Mapping[Node, _Bracket], tree: Tree) -> Entry | None:
    """Return the best of the winners of child Cohorts and the heads of the Cohort's own ClusterQueues."""
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
    """Return the rank of an entry at a node on its path."""
    return tournament_rank(entry.item, entry.assignment.usage, entry.node, at, tree)


def tournament_rank(item: Item, usage: Mapping[int, int], node: Node, at: Node, tree: Tree) -> Rank:
    """Return the rank of a workload that would use `usage` of the ClusterQueue `node`, at the node `at` on its path.

    The share is the one that `at` would have with that usage.
    """
    for fr, amount in usage.items():
        add_usage(node, fr, amount)
    own = share(at, tree)
    for fr, amount in usage.items():
        remove_usage(node, fr, amount)
    return own.borrows_any(usage), own.rank, *_seniority(item)


def _seniority(item: Item) -> tuple[int, float, str]:
    return -item.shape.priority, item.since, item.uid
