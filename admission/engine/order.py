"""The order in which the heads of a cycle are decided: classically, or by a tournament of dominant resource shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.fair import Share, share
from admission.engine.tree import add_usage, remove_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.engine.cycle import Entry
    from admission.engine.tree import Node, Tree


def classical(entries: Iterable[Entry], *, by_priority: bool = True) -> list[Entry]:
    """Those that need not borrow first, and among them as in a queue, or only by how long they have waited."""

    def rank(entry: Entry) -> tuple[int, int, float, str]:
        priority, since, uid = _seniority(entry)
        return entry.assignment.borrowing, priority if by_priority else 0, since, uid

    return sorted(entries, key=rank)


def tournament(entries: Iterable[Entry], tree: Tree) -> Iterator[Entry]:
    """Each time the entry that leaves the shares most even, at the usage that those before it left."""
    waiting = {entry.node: entry for entry in entries}
    while waiting:
        shares = {node: _shares(entry, tree) for node, entry in waiting.items()}
        winner = _winner(tree.root, waiting, shares)
        assert winner is not None
        del waiting[winner.node]
        yield winner


def _shares(entry: Entry, tree: Tree) -> dict[Node, Share]:
    """The share that each node on the entry's path below the root would have with it."""
    node, usage = entry.node, entry.assignment.usage
    for fr, amount in usage.items():
        add_usage(node, fr, amount)
    shares = {at: share(at, tree) for at in (node, *node.path) if at.parent is not None}
    for fr, amount in usage.items():
        remove_usage(node, fr, amount)
    return shares


def _winner(node: Node, waiting: dict[Node, Entry], shares: dict[Node, dict[Node, Share]]) -> Entry | None:
    """The best of the winners of the child Cohorts and the heads of the own ClusterQueues."""
    if node.leaf:
        return waiting.get(node)
    best: Entry | None = None
    best_rank: tuple[bool, Share, int, float, str] | None = None
    for child in (*node.cohorts, *node.queues):
        entry = _winner(child, waiting, shares)
        if entry is None:
            continue
        own = shares[entry.node][child]
        rank = own.borrows_any(entry.assignment.usage), own, *_seniority(entry)
        if best_rank is None or rank < best_rank:
            best, best_rank = entry, rank
    return best


def _seniority(entry: Entry) -> tuple[int, float, str]:
    return -entry.item.shape.priority, entry.item.since, entry.item.uid
