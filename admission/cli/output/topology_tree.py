"""The tree of a flavor's topology as text: what is free, used and out in each domain, and the largest free domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.output.tables import aligned, column_widths
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client.transport import Document

_MOST_DOMAINS: Final = 200
"""Most domains of a level that is shown without having been asked for."""
_MOST_OUT: Final = 20
_MOST_RUNS: Final = 3


def shown_depth(levels: Sequence[Document]) -> int:
    """Return how many levels are shown if none is asked for: without single nodes, and without very long levels."""
    depth = 1
    while depth < len(levels) and levels[depth]["domains"] <= _MOST_DOMAINS and levels[depth]["nodeLabel"] != HOSTNAME:
        depth += 1
    return depth


def topology_lines(report: Document, depth: int) -> Iterator[str]:
    """Yield the domains of the first `depth` levels, then the largest free domain of each level, then nodes out."""
    levels, resources = report["levels"], report["resources"]
    by_hostname = levels[-1]["nodeLabel"] == HOSTNAME
    domains = sorted((d for d in report["domains"] if len(d["values"]) <= depth), key=lambda d: d["values"])
    rows: list[tuple[str, ...]] = [
        ("NAME", "NODES", "OUT", "IDLE", "RESOURCE", "CAPACITY", "USED", "OTHERS", "FREE", "RUNS")
    ]
    rows += _rows(f"{report['flavor']} ({report['topology']})", report["total"], report)
    for domain in domains:
        rows += _rows("  " * len(domain["values"]) + domain["values"][-1], domain, report)
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    yield from aligned(rows, column_widths(rows))
    folded = levels[depth:]
    if folded:
        numbers = ", ".join(f"{level['domains']} of {level['nodeLabel']}" for level in folded)
        yield f"not shown: {numbers}; see --level"
    yield ""
    yield "LARGEST FREE"
    largest = [
        (
            f"  {level['nodeLabel']}",
            *_idle(level, by_hostname=by_hostname),
            *(f"{fit['free']} {fit['resource']}{_place(fit['values'])}" for fit in level["mostFree"] if resources),
        )
        for level in levels
    ]
    yield from aligned(largest, column_widths(largest))
    if report["out"]:
        yield ""
        yield f"OUT ({len(report['out'])})"
        for node in report["out"][:_MOST_OUT]:
            yield f"  {node['name']} {node['reason']}{_place(node['values'][:-1] if by_hostname else node['values'])}"
        if len(report["out"]) > _MOST_OUT:
            yield f"  and {len(report['out']) - _MOST_OUT} more; -o json has all"


def _rows(name: str, domain: Document, report: Document) -> Iterator[tuple[str, ...]]:
    head = name, str(domain["nodes"]), str(domain["out"] or ""), str(domain["whole"])
    runs = _runs(domain, report["workloads"])
    for resource in report["resources"] or [""]:
        amounts = [domain[of].get(resource, "") for of in ("capacity", "used", "usedByOthers", "free")]
        yield (*head, resource, *amounts, runs)
        head, runs = ("", "", "", ""), ""


def _runs(domain: Document, workloads: Sequence[Document]) -> str:
    runs = domain.get("runs", [])
    texts = []
    for run in runs[:_MOST_RUNS]:
        workload = workloads[run["workload"]]
        name = f"{workload['namespace']}/{workload['name']}" if "name" in workload else "of another namespace"
        texts.append(f"{run['pods']} of {name}" if "name" in workload else f"{run['pods']} {name}")
    return ", ".join([*texts, *([f"{len(runs) - _MOST_RUNS} more"] if len(runs) > _MOST_RUNS else [])])


def _idle(level: Document, *, by_hostname: bool) -> Iterator[str]:
    if by_hostname and level["nodeLabel"] != HOSTNAME:
        yield f"{level['mostWhole']} idle nodes{_place(level['mostWholeIn'])}"
    else:
        yield ""


def _place(values: Sequence[str]) -> str:
    return f" in {'/'.join(values)}" if values else ""
