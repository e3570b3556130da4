"""`sluice tree`: the cohort tree with quota, usage and pending workloads; or the domains of a flavor's topology."""

from __future__ import annotations

import asyncio
import difflib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import refuse_empty, resource_named
from admission.cli.commands.top import cluster_item
from admission.cli.errors import CommandError
from admission.cli.output.printing import output_option, print_line, serialized
from admission.cli.output.tables import aligned, column_widths
from admission.model.quantity import amount, format_amount
from admission.model.queues import ClusterQueue, Cohort
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from admission.client.transport import Document

_COLUMNS = ("NAME", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "PENDING", "STATUS")
_WIDTH = 120
"""Characters of a line; longer names and flavors are truncated."""
_MIN_WIDTHS = (32, 16)
"""Characters to which the columns NAME and FLAVOR are truncated at most, even if lines then exceed `_WIDTH`."""
_GAPS = 2 * (len(_COLUMNS) - 1)
"""Characters between all columns."""
_SHORT_NAMES = {Cohort.kind: "co", ClusterQueue.kind: "cq"}


@dataclass(slots=True)
class _Quota:
    """Amounts of a resource in a flavor; for a Cohort the sum of its own and of everything below it."""

    nominal: int = 0
    used: int = 0


@dataclass(slots=True)
class QuotaNode:
    """A Cohort or ClusterQueue in the tree."""

    kind: str
    name: str
    parent: str
    """Name of the Cohort above; empty: it is a root."""
    quotas: dict[tuple[str, str], _Quota] = field(default_factory=lambda: defaultdict(_Quota))
    """By (flavor, resource)."""
    pending: int = 0
    """Number of pending workloads, including those of everything below it."""
    inactive: str = ""
    """Why a ClusterQueue admits nothing, such as Stopped; empty: it is active."""
    children: list[QuotaNode] = field(default_factory=list)
    is_part: bool = False
    """Whether usage and pending workloads are those of one cluster only."""

    def borrowed(self, quota: _Quota) -> int | None:
        """Return what a ClusterQueue uses beyond its nominal quota.

        None for a Cohort, where lending limits matter, and for one cluster, as others use the same quota.
        """
        is_known = self.kind == ClusterQueue.kind and not self.is_part
        return max(0, quota.used - quota.nominal) if is_known else None

    def restrict(self, cluster: Document) -> None:
        """Keep of a ClusterQueue or Cohort without children what is in a cluster, as `reports/clusters` has it."""
        self.is_part = True
        own = next((each for each in cluster["clusterQueues"] if each["name"] == self.name), None)
        found = own if self.kind == ClusterQueue.kind else None
        self.pending = found["pendingWorkloads"] if found else 0
        for key in [key for key in self.quotas if key[0] not in cluster["flavors"]]:
            del self.quotas[key]
        for quota in self.quotas.values():
            quota.used = 0
        for used in found["usage"] if found else ():
            self.quotas[used["flavor"], used["resource"]].used = amount(used["resource"], used["used"])

    def document(self) -> Document:
        """Return the subtree for `-o json` and `-o yaml`."""
        quotas: list[Document] = []
        for (flavor, resource), quota in self.quotas.items():
            amount_borrowed = self.borrowed(quota)
            borrowed = {} if amount_borrowed is None else {"borrowed": format_amount(resource, amount_borrowed)}
            nominal, used = format_amount(resource, quota.nominal), format_amount(resource, quota.used)
            quotas.append({"flavor": flavor, "resource": resource, "nominal": nominal, "used": used, **borrowed})
        children = [child.document() for child in self.children]
        return {
            "kind": self.kind,
            "name": self.name,
            "pendingWorkloads": self.pending,
            **({"inactive": self.inactive} if self.inactive else {}),
            "quotas": quotas,
            "children": children,
        }


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a Cohort or ClusterQueue."""
    from click.shell_completion import CompletionItem

    from admission.cli.arguments.objects import names_of

    known = [name for kind in _SHORT_NAMES.values() for name in names_of(resource_named(kind), ctx.params)]
    return [CompletionItem(name) for name in dict.fromkeys(known) if name.startswith(incomplete)]


@click.command()
@click.argument("name", metavar="[NAME]", required=False, callback=refuse_empty, shell_complete=_complete)
@click.option("--topology", "flavor", metavar="FLAVOR", default="", help="Show the topology of this ResourceFlavor.")
@click.option("--level", metavar="LEVEL", default="", help="Show its domains down to this level, for example rack.")
@click.option("--cluster", metavar="CLUSTER", default="", help="Only what is in this cluster.")
@output_option("json", "yaml")
@connection_options
def tree(
    *, name: str | None, flavor: str, level: str, cluster: str, output: str | None, connection: ApiConnection
) -> None:
    """Show Cohorts and ClusterQueues as a tree, with quota, usage and pending workloads.

    NAME is a Cohort or ClusterQueue whose subtree is shown. The values of a Cohort are
    the sums of its own and of everything below it. STATUS says why a ClusterQueue admits
    nothing, for example Stopped. Names that do not fit into 120
    columns are truncated; -o json and -o yaml have the full names.

    With --cluster, show the flavors that are in one cluster, and what its workloads use of
    them. Quota is shared between clusters, so that nothing is said to be borrowed. Workloads
    that are dispatched are pending in the hub, and use quota where they run.

    With --topology, show the blocks and racks of a flavor's nodes: what is used, free and
    out there, and the largest free domain of each level. IDLE is the number of nodes on
    which nothing runs. Single nodes are shown with --level kubernetes.io/hostname.

    \b
    Examples:
      sluice tree
      sluice tree research
      sluice tree cq/team-a -o yaml
      sluice tree --cluster local
      sluice tree --topology gpu
      sluice tree --topology gpu --level hostname
    """
    if flavor:
        if name is not None:
            raise click.UsageError("give a NAME or --topology, not both")
        if cluster:
            raise click.UsageError("give --cluster or --topology, not both: topology is in the cluster local only")
        asyncio.run(_show_topology(flavor, level, output, connection))
        return
    if level:
        raise click.UsageError("--level is of use with --topology only")

    async def run() -> None:
        async with connect(connection) as sluice:
            cohorts = [item async for item in sluice.documents("cohorts").list()]
            queues = [item async for item in sluice.documents("clusterqueues").list()]
            only = await cluster_item(sluice, cluster) if cluster else None
        roots = forest(cohorts, queues, only)
        shown = roots if name is None else [_named(name, roots)]
        if output is not None:
            text = serialized({"items": [root.document() for root in shown]}, output)
            click.echo(text, nl=not output.startswith("jsonpath="))
        elif shown:
            for line in _lines(shown):
                print_line(line)
        else:
            click.echo("no Cohorts or ClusterQueues found", err=True)

    asyncio.run(run())


async def _show_topology(flavor: str, level: str, output: str | None, connection: ApiConnection) -> None:
    from admission.client.transport import PREFIX

    params = [("flavor", flavor), *([("level", level)] if level else [])]
    async with connect(connection) as sluice:
        report = await sluice.request("GET", f"{PREFIX}/reports/topology", params=params)
    if output is not None:
        click.echo(serialized(report, output), nl=not output.startswith("jsonpath="))
        return
    deepest = max((len(domain["values"]) for domain in report["domains"]), default=1)
    for line in topology_lines(report, deepest if level else shown_depth(report["levels"])):
        print_line(line)


def forest(cohorts: Iterable[Document], queues: Iterable[Document], cluster: Document | None = None) -> list[QuotaNode]:
    """Return the roots, Cohorts first, each with its subtree. Cohorts that only exist as a parent are included.

    `cluster`: the cluster of which the usage is shown, as in `reports/clusters`; None: all.
    """
    found = {item["metadata"]["name"]: _node(Cohort.kind, item, "parentName") for item in cohorts}
    leaves = [_node(ClusterQueue.kind, item, "cohortName") for item in queues]
    if cluster is not None:
        for node in [*found.values(), *leaves]:
            node.restrict(cluster)
    for node in [*found.values(), *leaves]:
        if node.parent and node.parent not in found:
            found[node.parent] = QuotaNode(Cohort.kind, node.parent, "")
    roots: list[QuotaNode] = []
    for node in sorted([*found.values(), *leaves], key=lambda node: (node.kind == ClusterQueue.kind, node.name)):
        (found[node.parent].children if node.parent else roots).append(node)
    for root in roots:
        _sum_up(root)
    return roots


def _node(kind: str, item: Document, parent: str) -> QuotaNode:
    """Return the node of an object without children; `parent` is the field of its spec that names the Cohort above."""
    spec: dict[str, Any] = item.get("spec") or {}
    node = QuotaNode(kind, item["metadata"]["name"], spec.get(parent) or "")
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                resource = quota["name"]
                node.quotas[flavor["name"], resource].nominal = amount(
                    resource, quota.get("currentQuota") or quota["nominalQuota"]
                )
    status: dict[str, Any] = item.get("status") or {}
    node.pending = status.get("pendingWorkloads", 0)
    for condition in status.get("conditions", ()):
        if condition["type"] == "Active" and condition["status"] == "False":
            node.inactive = condition["reason"]
    for flavor in status.get("flavorsUsage", ()) if kind == ClusterQueue.kind else ():
        for used in flavor["resources"]:
            node.quotas[flavor["name"], used["name"]].used = amount(used["name"], used["total"])
    return node


def _sum_up(node: QuotaNode) -> None:
    """Add quota, usage and pending workloads of all nodes below to each Cohort, bottom-up."""
    for child in node.children:
        _sum_up(child)
        node.pending += child.pending
        for key, quota in child.quotas.items():
            node.quotas[key].nominal += quota.nominal
            node.quotas[key].used += quota.used


def _named(text: str, roots: Iterable[QuotaNode]) -> QuotaNode:
    """Return the node of NAME, co/NAME or cq/NAME.

    Raises UsageError for another type and an ambiguous name, CommandError for a name that does not exist.
    """
    type_name, slash, name = text.rpartition("/")
    kind = resource_named(type_name).kind if slash else None
    if kind is not None and kind not in _SHORT_NAMES:
        raise click.UsageError(f"{text} is not in the tree; use a Cohort (co/NAME) or a ClusterQueue (cq/NAME)")
    found = [node for node in _walk(roots) if node.name == name and kind in (None, node.kind)]
    if not found:
        names = [node.name for node in _walk(roots) if kind in (None, node.kind)]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise CommandError(f'{kind or "a Cohort or ClusterQueue"} "{name}" does not exist{hint}')
    if len(found) > 1:
        raise click.UsageError(f'"{name}" is a Cohort and a ClusterQueue; use co/{name} or cq/{name}')
    return found[0]


def _walk(nodes: Iterable[QuotaNode]) -> Iterator[QuotaNode]:
    """Yield the nodes and everything below them, parents first."""
    for node in nodes:
        yield node
        yield from _walk(node.children)


def _lines(roots: Sequence[QuotaNode]) -> list[str]:
    rows = [_COLUMNS, *(row for root in roots for row in _rows(root, "", ""))]
    widths = column_widths(rows)
    for column, minimum in enumerate(_MIN_WIDTHS):
        excess = max(0, sum(widths) + _GAPS - _WIDTH)
        widths[column] = max(min(widths[column], minimum), widths[column] - excess)
    return aligned([tuple(map(_truncated, row, widths)) for row in rows], widths)


def _truncated(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _rows(node: QuotaNode, head: str, rest: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a subtree. `head` are the tree lines before the node's name, `rest` those of the rows below."""
    below = rest + ("│  " if node.children else "")
    first, pending, inactive = f"{head}{_SHORT_NAMES[node.kind]}/{node.name}", str(node.pending), node.inactive
    for (flavor, resource), quota in node.quotas.items():
        amounts = (quota.nominal, quota.used, node.borrowed(quota))
        shown = ["" if value is None else format_amount(resource, value) for value in amounts]
        yield first, flavor, resource, *shown, pending, inactive
        first, pending, inactive = below, "", ""
    if not node.quotas:
        yield first, "", "", "", "", "", pending, inactive
    for child in node.children:
        last = child is node.children[-1]
        yield from _rows(child, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


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
    rows += _topology_rows(f"{report['flavor']} ({report['topology']})", report["total"], report)
    for domain in domains:
        rows += _topology_rows("  " * len(domain["values"]) + domain["values"][-1], domain, report)
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


def _topology_rows(name: str, domain: Document, report: Document) -> Iterator[tuple[str, ...]]:
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
