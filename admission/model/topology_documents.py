"""Conversion of topology assignments to and from Kueue's JSON document, which names equal parts of values only once."""

from __future__ import annotations

import json
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final

from admission.model.topology import HOSTNAME, DomainCount, SliceLayer, TopologyAssignment, TopologyRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DELAYED: Final = "delayedTopologyRequest"
"""Field of the document, without domains, of an assignment that is made when all admission checks are Ready."""
_MOST_SLICES: Final = 1000
_MOST_DOMAINS: Final = 100_000
"""Most domains of one slice of a document."""


def topology_assignment(document: Mapping[str, Any]) -> TopologyAssignment:
    """Return the assignment of a document, also of one in the form of Kueue's v1beta1, which lists the domains."""
    domains = [DomainCount(tuple(each["values"]), each["count"]) for each in document.get("domains") or ()]
    for part in document.get("slices") or ():
        number = part["domainCount"]
        columns = [_values(level, number) for level in part["valuesPerLevel"]]
        counts = part["podCounts"]
        pods = counts["individual"] if "individual" in counts else [counts["universal"]] * number
        domains += map(DomainCount, zip(*columns, strict=True), pods)
    return TopologyAssignment(tuple(document["levels"]), tuple(domains))


def placed_pods(document: Mapping[str, Any]) -> TopologyAssignment:
    """Return the assignment of a document of the ledger, which names the domains of all levels also above hostnames."""
    found = topology_assignment(document)
    if found.levels[-1:] != (HOSTNAME,) or len(found.levels) == 1:
        return found
    return TopologyAssignment((HOSTNAME,), tuple(DomainCount(values[-1:], pods) for values, pods in found.domains))


def _values(level: Mapping[str, Any], number: int) -> list[str]:
    if "universal" in level:
        return [level["universal"]] * number
    own = level["individual"]
    prefix, suffix = own.get("prefix") or "", own.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in own["roots"]]


def topology_document(assignment: TopologyAssignment) -> dict[str, Any]:
    """Return the document of an assignment.

    Hostnames with a common prefix form a part of their own, if that makes the document no longer.
    """
    domains = assignment.domains
    levels = list(assignment.levels)
    whole = {"levels": levels, "slices": list(map(_slice, _bounded([domains]))) if domains else []}
    if assignment.levels[-1] != HOSTNAME or len(domains) < 2:
        return whole
    parts = list(_bounded(_by_prefix(domains)))
    if len(parts) < 2:
        return whole
    divided = {"levels": levels, "slices": list(map(_slice, parts))}
    return divided if _length(divided) <= _length(whole) else whole


def _bounded(parts: Sequence[Sequence[DomainCount]]) -> Iterator[Sequence[DomainCount]]:
    for part in parts:
        for at in range(0, len(part), _MOST_DOMAINS):
            yield part[at : at + _MOST_DOMAINS]


def _by_prefix(domains: Sequence[DomainCount]) -> list[list[DomainCount]]:
    """Divide domains where the longest prefix that a hostname has in common with another one changes."""
    candidates = [_prefixes(domain.values[-1]) for domain in domains]
    depth = max(map(len, candidates), default=0)
    while True:
        seen: dict[str, int] = {}
        for prefix in chain.from_iterable(own[:depth] for own in candidates):
            seen[prefix] = seen.get(prefix, 0) + 1
        keys = [next((prefix for prefix in reversed(own[:depth]) if seen[prefix] > 1), "") for own in candidates]
        parts = [
            [domain for domain, _ in group]
            for _, group in groupby(zip(domains, keys, strict=True), key=lambda pair: pair[1])
        ]
        if len(parts) <= _MOST_SLICES or not depth:
            return parts
        depth -= 1


def _prefixes(hostname: str) -> list[str]:
    """Return the parts of a hostname up to each hyphen that does not end it, shortest first."""
    return [hostname[: at + 1] for at, letter in enumerate(hostname[:-1]) if letter == "-"]


def _slice(domains: Sequence[DomainCount]) -> dict[str, Any]:
    counts = [domain.pods for domain in domains]
    same = len(set(counts)) == 1
    return {
        "domainCount": len(domains),
        "podCounts": {"universal": counts[0]} if same else {"individual": counts},
        "valuesPerLevel": [_level(column) for column in zip(*(domain.values for domain in domains), strict=True)],
    }


def _level(values: Sequence[str]) -> dict[str, Any]:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common(values)
    suffix = _common([value[::-1] for value in values])[::-1]
    prefix = prefix[: max(0, min(map(len, values)) - len(suffix))]
    end = len(suffix)
    individual: dict[str, Any] = {"prefix": prefix} if prefix else {}
    if suffix:
        individual["suffix"] = suffix
    individual["roots"] = [value[len(prefix) : len(value) - end] for value in values]
    return {"individual": individual}


def _common(values: Sequence[str]) -> str:
    """Return the longest beginning that all texts have in common."""
    first, last = min(values), max(values)
    for at, letter in enumerate(first):
        if letter != last[at]:
            return first[:at]
    return first


def _length(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())


def topology_request(document: Mapping[str, Any] | None) -> TopologyRequest | None:
    """Return the request of Kueue's `topologyRequest`; None if it requests nothing of the topology."""
    if not document:
        return None
    given = document.get("podsetSliceRequiredTopologyConstraints") or ()
    layers = tuple(SliceLayer(layer["topology"], layer["size"]) for layer in given)
    level, size = document.get("podSetSliceRequiredTopology"), document.get("podSetSliceSize")
    if level and not layers:
        layers = (SliceLayer(level, size or 0),)
    request = TopologyRequest(
        document.get("required") or "", document.get("preferred") or "", bool(document.get("unconstrained")), layers
    )
    return request if request.explicit else None
