"""Pods that are placed beside others of their pod set, which stay: instead of a failed node, or as more are wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.engine.topology.placement import NO_LEVEL, Search, levels_of
from admission.model.topology import DomainCount, TopologyAssignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    if stale := stale_domain(tree, rest):
        return (
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the "
            f"stale domain {stale}"
        )
    amount = sum(pods for _, pods in present.domains) - sum(pods for _, pods in rest)
    return _extended(tree, question, present.levels, rest, amount, rules)


def resize(
    tree: Tree, question: Question, present: TopologyAssignment, rules: Rules, within: Values = ()
) -> TopologyAssignment | str:
    """Return the assignment of a pod set that has got another number of pods, or why there is none.

    All present pods stay where they are; if there are fewer than before, the last domains lose them. `question` is
    without a leader, which stays, too. `within`: the domain that the others have to be in; empty: none is prescribed.
    (Kueue's ElasticJobsViaWorkloadSlicesWithTAS, which does this for unconstrained pods only.)
    """
    if stale := stale_domain(tree, present.domains):
        return f"pods run in the domain {stale}, whose nodes are not ready: more pods are placed once they are"
    more = question.number - sum(pods for _, pods in present.domains)
    if more <= 0:
        return shortened(present, question.number)
    return _extended(tree, question, present.levels, present.domains, more, rules, within)


def shortened(assignment: TopologyAssignment, pods: int) -> TopologyAssignment:
    """Return the assignment with fewer pods: the last domains lose them."""
    domains = []
    for values, count in assignment.domains:
        if taken := min(count, pods):
            domains.append(DomainCount(values, taken))
            pods -= taken
    return replace(assignment, domains=tuple(domains))


def beyond(wanted: TopologyAssignment, present: TopologyAssignment | None) -> TopologyAssignment:
    """Return the pods of an assignment that another one does not have in the same domain."""
    had = dict(present.domains) if present is not None else {}
    more = (DomainCount(values, pods - had.get(values, 0)) for values, pods in wanted.domains)
    return TopologyAssignment(wanted.levels, tuple(domain for domain in more if domain.pods > 0))


def stale_domain(tree: Tree, domains: Iterable[DomainCount]) -> str:
    """Return the first of these domains that is not in the tree at present; "" if all are."""
    for values, _ in domains:
        leaf = tree.leaves.get(values)
        if leaf is None or not leaf.present:
            return ",".join(values)
    return ""


def _extended(
    tree: Tree,
    question: Question,
    names: tuple[str, ...],
    rest: Sequence[DomainCount],
    amount: int,
    rules: Rules,
    within: Values = (),
) -> TopologyAssignment | str:
    """Return the assignment of the pods that stay (`rest`) and of `amount` others, with the levels `names`."""
    levels = levels_of(tree, question.request)
    if isinstance(levels, str):
        return levels
    searched, layers = levels
    if amount % layers[0][1]:
        level, size = next(layer for layer in reversed(layers) if amount % layer[1])
        sums: dict[Values, int] = {}
        for values, count in rest:
            domain = tree.leaves[values].values[: level + 1]
            sums[domain] = sums.get(domain, 0) + count
        within = next((domain for domain, count in sums.items() if not (count + amount) % size), ())
        dividing = [layer for layer in layers if not amount % layer[1]]
        layers = (dividing[-1] if dividing else (len(tree.levels) - 1, 1),)
        asked = question.request
        if rules.as_kueue and not dividing and asked is not None and not (asked.required or asked.preferred):
            return NO_LEVEL  # without its slices the request names no level
    if not within and question.request is not None and question.request.required and rest:
        within = tree.leaves[rest[0].values].values[: searched + 1]
    placed = Search(tree, question._replace(number=amount), rules, searched, layers, within).run()
    if isinstance(placed, str):
        return placed
    total: dict[Values, int] = {}
    for values, count in (*rest, *placed.pods.domains):
        total[values] = total.get(values, 0) + count
    in_order = sorted(total.items(), key=lambda item: tree.leaves[item[0]].values)
    return TopologyAssignment(names, tuple(DomainCount(*item) for item in in_order))
