"""Random trees of queues as the files of each system, for tests of imports from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

AMOUNTS = st.integers(0, 8)


@dataclass(frozen=True)
class Node:
    """A queue with its guarantee and its limit (None: no limit), in cpus."""

    guaranteed: int
    limit: int | None
    under: tuple[Node, ...] = ()

    def named(self, name: str = "n", above: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...], Node]]:
        """This node and all below it: name, names of the ancestors (parent last), node."""
        yield name, above, self
        for number, child in enumerate(self.under):
            yield from child.named(f"{name}{number}", (*above, name))


def trees(depth: int = 3) -> st.SearchStrategy[tuple[Node, ...]]:
    """Strategy for one to three top-level queues, each a tree of at most `depth` levels."""
    return st.lists(_nodes(depth), min_size=1, max_size=3).map(tuple)


def _nodes(depth: int) -> st.SearchStrategy[Node]:
    leaf = st.builds(Node, AMOUNTS, st.none() | AMOUNTS)
    if depth == 1:
        return leaf
    below = st.lists(_nodes(depth - 1), min_size=1, max_size=3).map(tuple)
    return leaf | st.builds(Node, AMOUNTS, st.none() | AMOUNTS, below)


def named(top: Iterable[Node]) -> Iterator[tuple[str, tuple[str, ...], Node]]:
    """All nodes of the trees in `top`: name, names of the ancestors (parent last), node."""
    for number, node in enumerate(top):
        yield from node.named(f"q{number}")


def volcano(top: Iterable[Node]) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {
                "deserved": {"cpu": node.guaranteed},
                "guarantee": {"resource": {"cpu": node.guaranteed // 2}},
                **({} if node.limit is None else {"capability": {"cpu": node.limit}}),
                **({"parent": above[-1]} if above else {}),
            },
        }
        for name, above, node in named(top)
    ]


def kai(top: Iterable[Node]) -> list[dict[str, Any]]:
    free = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    return [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {
                "resources": {
                    "cpu": {
                        "quota": 1000 * node.guaranteed,
                        "limit": -1 if node.limit is None else 1000 * node.limit,
                        "overQuotaWeight": 1,
                    },
                    "memory": free,
                    "gpu": free,
                },
                **({"parentQueue": above[-1]} if above else {}),
            },
        }
        for name, above, node in named(top)
    ]


def koordinator(top: Iterable[Node]) -> list[dict[str, Any]]:
    prefix = "quota.scheduling.koordinator.sh"
    return [
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {
                "name": name,
                "namespace": "kube-system",
                "labels": {
                    f"{prefix}/allow-lent-resource": str(node.guaranteed % 2 == 0).lower(),
                    **({f"{prefix}/parent": above[-1]} if above else {}),
                },
            },
            "spec": {"min": {"cpu": node.guaranteed}, **({} if node.limit is None else {"max": {"cpu": node.limit}})},
        }
        for name, above, node in named(top)
    ]


def yunikorn(top: Iterable[Node]) -> list[dict[str, Any]]:
    def queue(name: str, node: Node) -> dict[str, Any]:
        limit = {} if node.limit is None else {"max": {"vcore": node.limit}}
        below = [queue(f"{name}{number}", child) for number, child in enumerate(node.under)]
        return {"name": name, "resources": {"guaranteed": {"vcore": node.guaranteed}, **limit}, "queues": below}

    queues = [queue(f"q{number}", node) for number, node in enumerate(top)]
    return [{"partitions": [{"name": "default", "queues": [{"name": "root", "queues": queues}]}]}]


def mcad(top: Iterable[Node]) -> list[dict[str, Any]]:
    """MCAD has no separate limit: with `hardLimit` the guarantee is the limit."""

    def subtree(name: str, parent: str, node: Node) -> dict[str, Any]:
        quotas = {"requests": {"cpu": node.guaranteed}, "hardLimit": node.limit is not None}
        return {
            "apiVersion": "quota.codeflare.dev/v1alpha1",
            "kind": "QuotaSubtree",
            "metadata": {"name": name, "labels": {"tree": "t"}},
            "spec": {"children": [{"name": name, "quotas": quotas}], **({"parent": parent} if parent else {})},
        }

    root = subtree("root", "", Node(12, None))
    return [root, *(subtree(name, above[-1] if above else "root", node) for name, above, node in named(top))]
