"""Replacement of a failed node: its pods are placed elsewhere, all others of the workload stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.topology.placement import Search, levels_of
from admission.model.topology import DomainCount, TopologyAssignment

if TYPE_CHECKING:
    from admission.engine.topology.placement import Question, Rules
    from admission.engine.topology.tree import Tree
    from admission.model.topology import Values


def on_node(assignment: TopologyAssignment, node: str) -> bool:
    """Whether pods are assigned to the node."""
    return any(values[-1] == node for values, _ in assignment.domains)


def replace_node(
    tree: Tree, question: Question, present: TopologyAssignment, node: str, rules: Rules
) -> TopologyAssignment | str:
    """Return the assignment of one pod set with another place for the node's pods, or why there is none.

    `question` is that of the whole pod set, without a leader: a leader is a pod set of its own here.
    """
    rest = [domain for domain in present.domains if domain.values[-1] != node]
    amount = sum(domain.pods for domain in present.domains) - sum(domain.pods for domain in rest)
    for values, _ in rest:
        leaf = tree.leaves.get(values)
        if leaf is None or not leaf.present:
            return (
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the "
                f"stale domain {','.join(values)}"
            )
    levels = levels_of(tree, question.request)
    if isinstance(levels, str):
        return levels
    searched, layers = levels
    within: Values = ()
    if amount % layers[0][1]:
        level, size = next(layer for layer in reversed(layers) if amount % layer[1])
        sums: dict[Values, int] = {}
        for values, count in rest:
            domain = tree.leaves[values].values[: level + 1]
            sums[domain] = sums.get(domain, 0) + count
        within = next((domain for domain, count in sums.items() if not (count + amount) % size), ())
        dividing = [layer for layer in layers if not amount % layer[1]]
        layers = (dividing[-1] if dividing else (len(tree.levels) - 1, 1),)
    elif question.request is not None and question.request.required and rest:
        within = tree.leaves[rest[0].values].values[: searched + 1]
    placed = Search(tree, question._replace(number=amount), rules, searched, layers, within).run()
    if isinstance(placed, str):
        return placed
    total: dict[Values, int] = {}
    for values, count in (*rest, *placed.pods.domains):
        total[values] = total.get(values, 0) + count
    return TopologyAssignment(
        present.levels,
        tuple(DomainCount(*item) for item in sorted(total.items(), key=lambda item: tree.leaves[item[0]].values)),
    )
