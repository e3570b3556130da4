"""Why pods have no place in a topology, in numbers: the domain with most room, who is there, what is out, what helps.

Computed when somebody asks. Workloads of other namespaces are counted, and not named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.engine.topology.counting import PODS, Demand, counts_of, requests_of
from admission.engine.topology.occupancy import nodes_out
from admission.engine.topology.placement import levels_of
from admission.engine.topology.workloads import pod_rules
from admission.model.names import listed
from admission.model.resource_words import amount_text
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.registry import Registry
    from admission.engine.topology.nodes import PodRules
    from admission.engine.topology.tree import Domain, Leaf, Tree
    from admission.model.topology import Values
    from admission.model.workload import PodSet

_NAMED: Final = 3
"""Of many workloads or nodes a sentence names so many."""


@dataclass(slots=True)
class _Holder:
    """What a workload uses in a domain."""

    held: Held
    amount: int = 0
    """Of the resource that is told about."""
    leaves: dict[Values, dict[str, int]] | None = None


def advice(registry: Registry, flavor: str, pod_set: PodSet, pods: int, *, uid: str, namespace: str) -> Iterator[str]:
    """Yield sentences about the room for so many pods of a pod set in the nodes of a flavor; none if there is nothing.

    `uid`: the workload that asks. `namespace`: that whose workloads may be named.
    """
    placed = registry.placed
    tree = placed.topologies.trees.get(flavor) if placed is not None else None
    if placed is None or tree is None or not pods:
        return
    levels = levels_of(tree, pod_set.topology)
    if isinstance(levels, str):
        return
    request = pod_set.topology
    level = levels[0] if request is not None and request.required else None
    rules = pod_rules(pod_set, registry.forest.flavors[flavor])
    about = _About(tree, requests_of(pod_set.beside_devices), rules, pods)
    best, room = about.best(level)
    where, resource = _where(tree, best, flavor), about.resource
    leaves = tree.below(best.values) if best is not None else [leaf for leaf in tree.leaves.values() if leaf.present]
    free = sum(max(0, leaf.base.get(resource, 0) - leaf.used.get(resource, 0)) for leaf in leaves)
    of = sum(leaf.base.get(resource, 0) + sum(_foreign(leaf, resource)) for leaf in leaves)
    yield (
        f"{where} there is room for {room} of {pods} pods of {pod_set.name}: {amount_text(resource, free)} of "
        f"{amount_text(resource, of)} free."
    )
    holders = _holders(registry, tree, flavor, leaves, resource, uid)
    others = sum(sum(_foreign(leaf, resource)) for leaf in leaves)
    if users := _users(holders, others, resource, namespace):
        yield f"There run {users}."
    flavors = registry.forest.flavors
    out = [*nodes_out(tree, flavors[flavor].spec.tolerations, placed.topologies.nodes_of(tree.cluster).values())]
    if best is not None:  # those that would add to this room first
        out.sort(key=lambda node: node.values[: len(best.values)] != best.values)
    if out:
        names = [f"{node.name} ({'/'.join(node.values[:-1])}) {node.why}" for node in out[:_NAMED]]
        yield f"Nodes that are out: {listed([*names, *('' for _ in out[_NAMED:])], limit=_NAMED)}."
    if helps := [*_help(about, level, leaves, holders, room, namespace)]:
        yield f"It would fit {', or '.join(helps)}."


class _About:
    """The question: how many of these pods fit where."""

    def __init__(self, tree: Tree, requests: tuple[tuple[str, int], ...], rules: PodRules, pods: int) -> None:
        self.tree = tree
        self.pods = pods
        self.requests = requests
        self._rules = rules
        own = [resource for resource, _ in requests if resource != PODS]
        self.resource = next((name for name in own if "/" in name), own[0] if own else PODS)
        """The resource that sentences have: the first extended one."""

    def fitting(self, *, empty: bool = False) -> list[int]:
        """Return how many pods fit into each domain, by its number; `empty`: if no placed workload ran."""
        last = len(self.tree.levels) - 1
        units = (1,) * (last + 2)
        return counts_of(self.tree, Demand(self.requests, self._rules, None, last, 1, units, empty)).pods

    def best(self, level: int | None) -> tuple[Domain | None, int]:
        """Return the domain of a level in which there is most room, and for how many pods; without a level that of all.

        A domain that could never hold them all is only returned if each is such.
        """
        counts = self.fitting()
        if level is None:
            return None, sum(counts[domain.number] for domain in self.tree.level(0))
        ever = self.fitting(empty=True)
        best = max(
            self.tree.level(level),
            key=lambda domain: (ever[domain.number] >= self.pods, counts[domain.number], ever[domain.number]),
            default=None,
        )
        return best, counts[best.number] if best is not None else 0

    def in_leaf(self, leaf: Leaf, freed: Mapping[str, int]) -> int:
        """Return how many pods would fit into a leaf if these amounts became free."""
        if any(self._rules.exclusion(node) for node in leaf.nodes.values()) and self.tree.by_hostname:
            return 0
        room = (
            (leaf.base.get(resource, 0) - leaf.used.get(resource, 0) + freed.get(resource, 0)) // amount
            for resource, amount in self.requests
        )
        return max(0, min(room))


def _help(
    about: _About,
    level: int | None,
    leaves: list[Leaf],
    holders: list[_Holder],
    room: int,
    namespace: str,
) -> Iterator[str]:
    """Yield what would let the pods fit, each alone."""
    tree = about.tree
    counts = about.fitting()
    enough = []
    for holder in holders:
        freed = holder.leaves or {}
        after = room + sum(
            about.in_leaf(leaf, freed[leaf.values]) - about.in_leaf(leaf, {}) for leaf in leaves if leaf.values in freed
        )
        if after >= about.pods:
            enough.append(holder)
    if enough:
        own = [holder.held.workload.key for holder in enough if holder.held.workload.namespace == namespace]
        which = own[0] if own else f"one of {len(enough)} workloads there" if len(enough) > 1 else "a workload there"
        yield f"once {which} has ended"
    for wider in range((level or 0) - 1, -1, -1):
        found = next((domain for domain in tree.level(wider) if counts[domain.number] >= about.pods), None)
        if found is not None:
            yield f"at the level {tree.levels[wider]}, in {'/'.join(found.values)}"
            break
    else:
        if level is not None and sum(counts[domain.number] for domain in tree.level(0)) >= about.pods:
            yield "if its pods could be anywhere"
    if 0 < room < about.pods:
        yield f"with {room} pods"


def _where(tree: Tree, best: Domain | None, flavor: str) -> str:
    if best is None:
        return f"On all nodes of the flavor {flavor}"
    label = tree.levels[len(best.values) - 1]
    return f"The best {'node' if label == HOSTNAME else label} is {'/'.join(best.values)}:"


def _foreign(leaf: Leaf, resource: str) -> Iterator[int]:
    return (amounts.get(resource, 0) for amounts in leaf.foreign.values())


def _holders(registry: Registry, tree: Tree, flavor: str, leaves: list[Leaf], resource: str, uid: str) -> list[_Holder]:
    """Return the workloads with pods in these leaves, those with the largest amounts first."""
    keys = {tree.key(leaf.values): leaf.values for leaf in leaves}
    found = []
    for held in registry.held.values():
        if held.workload.uid == uid:
            continue
        leaves_of: dict[Values, dict[str, int]] = {}
        amount = 0
        for pods in held.placed:
            if pods.flavor != flavor and not tree.shares_nodes_with(pods.assignment, pods.cluster):
                continue
            for values, count in pods.assignment.domains:
                if values in keys:
                    there = leaves_of.setdefault(keys[values], {})
                    for name, each in pods.requests:
                        there[name] = there.get(name, 0) + each * count
                        amount += each * count if name == resource else 0
        if leaves_of:
            found.append(_Holder(held, amount, leaves_of))
    return sorted(found, key=lambda holder: -holder.amount)


def _users(holders: list[_Holder], foreign: int, resource: str, namespace: str) -> str:
    own = [holder for holder in holders if holder.held.workload.namespace == namespace]
    texts = [f"{holder.held.workload.key} ({amount_text(resource, holder.amount)})" for holder in own[:_NAMED]]
    if len(own) > _NAMED:
        amount = sum(holder.amount for holder in own[_NAMED:])
        texts.append(f"{len(own) - _NAMED} more of this namespace ({amount_text(resource, amount)})")
    if others := [holder for holder in holders if holder.held.workload.namespace != namespace]:
        amount = sum(holder.amount for holder in others)
        plural = "s" if len(others) > 1 else ""
        texts.append(f"{len(others)} workload{plural} of other namespaces ({amount_text(resource, amount)})")
    if foreign:
        texts.append(f"pods that are not placed by topology ({amount_text(resource, foreign)})")
    return listed(texts, limit=len(texts)) if texts else ""
