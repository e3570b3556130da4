"""Order of the clusters that a workload may be dispatched to: which ones, in which order, and from when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from admission.model import names, sentences
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal

MOST_TERMS: Final = 16
_MOST_ITEMS: Final = 64
"""Most names, and most labels, of a term: each read of a workload compares them with those of every cluster."""
_SHOWN: Final = 5
"""Most names, and most labels, of a term in a message."""
_EXAMPLE: Final = '{"required": {"clusters": ["a", "b"]}, "preferred": [{"matchLabels": {"region": "eu"}}]}'


class ClusterTerm(NamedTuple):
    """Clusters by their names, their labels, or both."""

    clusters: tuple[str, ...] = ()
    """Their names; empty: any."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that they must have."""

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a cluster with this name and these labels is meant."""
        return (not self.clusters or name in self.clusters) and all(labels.get(key) == val for key, val in self.labels)

    def __str__(self) -> str:
        return " with ".join(filter(None, [_some(self.clusters, " or "), _some([*map("=".join, self.labels)], ",")]))


def _some(items: Sequence[str], between: str) -> str:
    """Return the first items as text of bounded length."""
    more = len(items) - _SHOWN
    return between.join([*items[:_SHOWN], *([f"{more} more"] if more > 0 else [])])


class ClusterAffinity(NamedTuple):
    """The clusters that a workload requires, and those that it prefers, the most preferred first."""

    required: ClusterTerm | None = None
    preferred: tuple[ClusterTerm, ...] = ()


def parse_cluster_affinity(text: str) -> ClusterAffinity:
    """Return what the annotation `sluice.dev/cluster-affinity` says. Raises ValueError."""
    try:
        value: Any = orjson.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value or value.keys() - {"required", "preferred"}:
        raise ValueError(f"must be a JSON object such as {_EXAMPLE}")
    required, preferred = value.get("required"), value.get("preferred", [])
    if not isinstance(preferred, list) or len(preferred) > MOST_TERMS:
        raise ValueError(f"preferred: must be a list of at most {MOST_TERMS} entries, the most preferred one first")
    return ClusterAffinity(
        None if required is None else _term("required", required),
        tuple(_term(f"preferred[{number}]", each) for number, each in enumerate(preferred)),
    )


def _term(where: str, value: object) -> ClusterTerm:
    if not isinstance(value, dict) or not value or value.keys() - {"clusters", "matchLabels"}:
        raise ValueError(f"{where}: must be an object with clusters (a list of names), matchLabels, or both")
    clusters, labels = value.get("clusters", []), value.get("matchLabels", {})
    if not isinstance(clusters, list) or not all(isinstance(each, str) for each in clusters):
        raise ValueError(f"{where}.clusters: must be a list of names of clusters")
    if not all(map(names.is_dns_subdomain, clusters)):
        raise ValueError(f"{where}.clusters: must be a list of names of clusters")
    is_text = isinstance(labels, dict) and all(isinstance(each, str) for each in labels.values())
    if not is_text or not all(names.is_qualified_name(key) and names.is_label_value(labels[key]) for key in labels):
        raise ValueError(f'{where}.matchLabels: must be an object of labels, such as {{"region": "eu"}}')
    for field, items in ("clusters", clusters), ("matchLabels", labels):
        if len(items) > _MOST_ITEMS:
            raise ValueError(f"{where}.{field}: must have at most {_MOST_ITEMS} entries, not {len(items)}")
    if not (clusters or labels):
        raise ValueError(f"{where}: must name a cluster or a label")
    return ClusterTerm(tuple(dict.fromkeys(clusters)), tuple(sorted(labels.items())))


class ClusterChoice(NamedTuple):
    """A cluster that a workload may be dispatched to, or several between which only their usage decides."""

    clusters: tuple[str, ...]
    """Their names; of several, the one least used is tried first."""
    not_before: float
    """Unix time (s) from which they are tried."""


@dataclass(frozen=True, slots=True)
class ClusterOrder:
    """The rule of a ClusterQueue; the default: by name, all at once."""

    by: Literal["Name", "Cost", "Spread"] = "Name"
    """Name: as text; Cost: the cheapest first; Spread: the least used first, as it is in each cycle."""
    first: tuple[str, ...] = ()
    """Clusters that precede all others, in this order."""
    spillover: float = 0.0
    """Seconds after which a workload that waits is tried in one more candidate."""


def candidates(
    order: ClusterOrder,
    clusters: Mapping[str, Mapping[str, str]],
    affinity: ClusterAffinity,
    *,
    former: str,
    since: float,
    cost: Callable[[str], float],
) -> tuple[list[ClusterChoice], list[tuple[str, str]]]:
    """Return the candidates of a workload in order, and the clusters that it may not get, with the reasons.

    `clusters`: the labels of the clusters that are open, by name. `former`: where it ran before it was evicted, and may
    have data; empty: it has not run. That one precedes those that it prefers, these those of the ClusterQueue's list,
    and these all others. `since`: Unix time (s) since when it waits. `cost`: of an hour of the workload in a cluster.
    """
    passed = []
    ranked: list[tuple[tuple[bool, int, int, float, str], str]] = []
    for name, labels in clusters.items():
        if affinity.required is not None and not affinity.required.matches(name, labels):
            passed.append((name, sentences.requires_clusters(str(affinity.required))))
            continue
        preferred = next((i for i, term in enumerate(affinity.preferred) if term.matches(name, labels)), MOST_TERMS)
        listed = order.first.index(name) if name in order.first else len(order.first)
        price = cost(name) if order.by == "Cost" else 0.0
        last = "" if order.by == "Spread" or name == LOCAL else name  # the hub first
        ranked.append(((name != former, preferred, listed, price, last), name))
    ranked.sort()
    equals = [tuple(name for _, name in each) for _, each in groupby(ranked, key=lambda each: each[0])]
    # Without a spillover no clock decides: that of `since`, the API server's, may be ahead of this one.
    times = [since + i * order.spillover if i and order.spillover else 0.0 for i in range(len(equals))]
    return list(map(ClusterChoice, equals, times)), passed


def open_at(found: Sequence[ClusterChoice], now: float) -> tuple[tuple[tuple[str, ...], ...], float | None]:
    """Return the clusters to be tried now, and when that changes by itself (Unix time, s; None: never)."""
    later = [each.not_before for each in found if each.not_before > now]
    return tuple(each.clusters for each in found if each.not_before <= now), min(later, default=None)
