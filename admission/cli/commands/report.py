"""`sluice report`: quota usage over time from the ledger, as a table or CSV in hours, or as exact JSON and YAML."""

from __future__ import annotations

import asyncio
import csv
import difflib
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click

from admission.apimachinery.tables import spoken
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.arguments.times import time_options
from admission.cli.errors import CommandError
from admission.cli.output.costs import FOCUS_VERSION, cost_rows, write_focus
from admission.cli.output.printing import output_option, print_line, serialized
from admission.cli.output.tables import aligned
from admission.cli.output.usage_tables import (
    WIDTH,
    WIDTH_WITH_QUOTA,
    fairness_rows,
    idle_rows,
    loan_rows,
    quota_table,
    second,
    table_lines,
    usage_table,
    write_csv,
    write_quota_csv,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.cli.arguments.times import TimeRange
    from admission.client.transport import Document

_GROUPINGS: Final = (
    *("queue", "clusterqueue", "user", "namespace", "flavor", "priority", "kind", "cluster", "workload", "resource"),
)
_FIELDS: Final = {"clusterqueue": "clusterQueue"}
"""Filter -> field of an item, where the two differ."""
_TIMES: Final = ("from", "to", "month", "quarter", "timezone")
"""Parameters that say which time a report is about."""


_BOOK: Final = "PriceBook.  [default: the only one, or that named default]"
_OBSTACLES: Final = 3
"""Reasons in a line of the table of objectives; -o json and csv have all."""


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say of whom a report is."""
    for option in reversed(
        (
            click.option("-n", "--namespace", default="", metavar="NAME",
                         help="Only this namespace; access to it is sufficient."),
            click.option("--mine", is_flag=True, help="Only workloads that you submitted, in all namespaces."),
            click.option("--queue", multiple=True, metavar="NAME",
                         help="Only LocalQueues of this name; repeatable, like the filters below."),
            click.option("--clusterqueue", multiple=True, metavar="NAME", help="Only this ClusterQueue."),
            click.option("--user", multiple=True, metavar="NAME", help="Only workloads that this user submitted."),
            click.option("--flavor", multiple=True, metavar="NAME", help="Only this ResourceFlavor."),
            click.option("--kind", multiple=True, metavar="KIND",
                         help="Only workloads of this kind, for example Job."),
            click.option("--resource", multiple=True, metavar="NAME", help="Only this resource, for example cpu."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _by_option(default: str, names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option by which a report is grouped."""
    text = f"Group by one or several of: {names}."
    return click.option("--by", "groupings", default=default, show_default=True, metavar="NAME,...", help=text)


def _format_option(*formats: str, text: str = "Output format.") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `-o` of a report, a table unless another format is given."""
    choice = click.Choice(["table", *formats])
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help=text)


@click.group(cls=CommandGroup)
def report() -> None:
    """Report quota usage over time.

    \b
    Example:
      sluice report usage --by user --from 7d
      sluice report node n17 --at 3h
    """


@report.command()
@_by_option(
    "queue",
    f"{', '.join(_GROUPINGS)}, node or another level of a Topology, or label:KEY of queues and namespaces",
)
@click.option(
    "--quota",
    is_flag=True,
    help="One row for each group: hours of each resource, share of quota and of the nodes, and idle quota.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 999_999),
    metavar="N",
    help="Show the N groups that used most of each resource, and the sum of the others.",
)
@click.option("--period", type=click.Choice(["day", "month"]), help="Group by time as well, from midnight.")
@time_options(start="30d")
@filter_options
@click.option("--cluster", multiple=True, metavar="NAME", help="Only workloads in this cluster.")
@_format_option("wide", "json", "yaml", "csv")
@connection_options
def usage(
    *,
    groupings: str,
    quota: bool,
    top: int | None,
    period: str | None,
    times: TimeRange,
    namespace: str,
    mine: bool,
    output: str,
    connection: ApiConnection,
    **only: tuple[str, ...],
) -> None:
    """Report how much quota was held, and for how long.

    Usage within the nominal quota that the ClusterQueue had at that time counts as
    nominal, starting with the earliest admissions; the rest is borrowed. Tables and CSV
    are in core-hours, GiB-hours, or hours of one unit of other resources; JSON and YAML
    are exact, in core-seconds, byte-seconds, or seconds of one unit. -o wide does not
    truncate names. Kinds, clusters and workloads are known only while finished workloads
    are kept (setting retention), which limits the start of such a report; so are nodes,
    racks and other domains of topologies, by the label of their level or its last part.

    With --quota a group has the nominal quota of its ClusterQueues, as it was at the
    time; idle is what their workloads did not use of it, also if it was lent. A label is
    that of the LocalQueue, else of its namespace, else of the ClusterQueue.

    \b
    Examples:
      sluice report usage --by user --from 7d
      sluice report usage --mine --period day
      sluice report usage --by workload --top 20 -n team-a
      sluice report usage -n team-a --by user,flavor --period month --from 2025-01-01
      sluice report usage --by queue --flavor h100 --month last --timezone Europe/Berlin -o csv
      sluice report usage --quota --by namespace --month last
      sluice report usage --quota --by label:cost-center --quarter last -o csv
    """
    params = [
        ("by", groupings),
        ("period", period or ""),
        *times.params(),
        ("top", str(top or "")),
        ("quota", "true" if quota else ""),
    ]
    params += [(name, value) for name, values in only.items() for value in values]
    params += [("namespace", namespace)] if mine else []
    asked = [pair for pair in params if pair[1]]
    document = asyncio.run(_ask(connection, namespace, asked, mine=mine))
    hints = asyncio.run(_unknown_names(connection, namespace, document, asked, only, mine=mine))
    for note in (*_partial_periods(document), *hints):
        print_line(f"note: {note}", err=True)
    if output == "csv":
        (write_quota_csv if quota else write_csv)(document)
    elif output in ("json", "yaml"):
        click.echo(serialized(document, output))
    else:
        table, width = (quota_table, WIDTH_WITH_QUOTA) if quota else (usage_table, WIDTH)
        for line in table(document, width=width if output == "table" else None):
            print_line(line)


@report.command()
@_by_option("user", "queue, clusterqueue, user, namespace, flavor, kind, workload, resource")
@click.option("--book", default="", metavar="NAME", help=_BOOK)
@time_options(start="7d")
@filter_options
@_format_option("wide", "json", "yaml", "csv")
@connection_options
def idle(
    *,
    groupings: str,
    book: str,
    times: TimeRange,
    namespace: str,
    mine: bool,
    output: str,
    connection: ApiConnection,
    **only: tuple[str, ...],
) -> None:
    """Report how much of the quota that was held was not used.

    HELD is that of the ledger. Of it was USED what the pods used, as the metrics say that
    the setting usageMetrics names, at most what they had requested; the rest was IDLE. Of
    the time without metrics it is UNKNOWN, and never idle. Full hours are reported, in
    hours of cores, GiB, or one unit of other resources. COST is what the idle hours cost by
    a PriceBook, if there is one.

    \b
    Examples:
      sluice report idle --resource nvidia.com/gpu
      sluice report idle --by workload -n team-a --from 1d
      sluice report idle --by queue,user --month last -o csv
    """
    params = [("by", groupings), ("measured", "true"), *([("book", book)] if book else []), *times.params()]
    params += [(name, value) for name, values in only.items() for value in values]
    params += [("namespace", namespace)] if mine and namespace else []
    document = asyncio.run(_ask(connection, namespace, params, mine=mine))
    items = document["items"]
    if items and not document["measured"]:
        print_line("note: nothing was measured in this time; set usageMetrics, or see the log of Sluice", err=True)
    if books := document.get("books"):
        print_line(
            f"note: idle hours have no cost, as there are several PriceBooks: give --book, one of {', '.join(books)}",
            err=True,
        )
    if lacking := [f"{each['resource']} of {each['flavor']}" for each in document.get("unpriced", ())]:
        print_line(f"note: there is no price for {', '.join(lacking)}", err=True)
    if output == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows(idle_rows(document, csv=True))
    elif output in ("json", "yaml"):
        click.echo(serialized(document, output))
    else:
        for note in _partial_periods(document):
            print_line(f"note: {note}", err=True)
        by = f"; COST in {document['currency']} by PriceBook {document['book']}" if "book" in document else ""
        print_line(f"from {second(document['from'])} to {second(document['to'])}, in hours{by}")
        rows = idle_rows(document, csv=False)
        for line in table_lines(
            rows, len(rows[0]) - 5 - ("book" in document), WIDTH_WITH_QUOTA if output == "table" else None
        ):
            print_line(line if items else "no usage")


@report.command()
@click.option("--book", default="", metavar="NAME", help=_BOOK)
@_by_option("namespace", "queue, clusterqueue, user, namespace, or label:KEY")
@time_options(month="last", days=True)
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only this namespace; access to it is sufficient.")
@_format_option(
    "csv",
    "focus",
    "json",
    "yaml",
    text=f"Output format; focus: CSV with the columns of FOCUS {FOCUS_VERSION}, for FinOps tools.",
)
@connection_options
def cost(
    *,
    book: str,
    groupings: str,
    times: TimeRange,
    namespace: str,
    output: str,
    connection: ApiConnection,
) -> None:
    """Report what the usage of a month costs by a PriceBook, as statements of teams.

    cpu is priced by the core-hour, memory by the GiB-hour, others by the hour of a unit.
    A resource has a line for each price that it had in the month.

    \b
    Examples:
      sluice report cost --by namespace --month last -o csv
      sluice report cost --by label:cost-center --quarter last -o focus
    """
    params = [("book", book), ("by", groupings), *times.params()]

    within = f"namespaces/{namespace}/" if namespace else ""
    document = _requested(connection, f"{within}reports/cost", params)
    if output in ("json", "yaml"):
        click.echo(serialized(document, output))
        return
    if not document["book"]:
        raise CommandError("there is no PriceBook; create one with `sluice apply -f FILE`")
    if document.get("partial"):
        print_line("note: the time is not over; this is what it has cost so far", err=True)
    unpriced = sorted({f"{each['resource']} of {each['flavor']}" for each in document["items"] if not each["cost"]})
    if unpriced:
        print_line(f"note: there is no price for {', '.join(unpriced)}", err=True)
    if output == "focus":
        write_focus(document)
        return
    rows = cost_rows(document)
    if output == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return
    total = sum((Decimal(each["cost"]) for each in document["items"] if each["cost"]), Decimal())
    rows.append(["TOTAL", *[""] * (len(rows[0]) - 3), f"{total:.2f}", document["currency"]])
    for line in aligned([[each.upper() for each in rows[0]], *rows[1:]]):
        print_line(line)


@report.command()
@time_options(start="30d")
@click.option("--cohort", default="", metavar="NAME", help="Only ClusterQueues in this Cohort.")
@click.option("--resource", default="", metavar="NAME", help="Only this resource, for example nvidia.com/gpu.")
@click.option("--loans", is_flag=True, help="Who lent to whom: a row for each lender, a column for each borrower.")
@_format_option("json", "yaml", "csv")
@connection_options
def fairness(
    *,
    times: TimeRange,
    cohort: str,
    resource: str,
    loans: bool,
    output: str,
    connection: ApiConnection,
) -> None:
    """Report what ClusterQueues were entitled to and received, and who lent to whom.

    A ClusterQueue is entitled to its nominal quota as far as it had demand (its workloads
    used or waited for it), and to a share by weight of what the others in its tree left.
    Amounts are in hours of cores, GiB, or one unit of other resources. -o json is exact.

    \b
    Examples:
      sluice report fairness --resource nvidia.com/gpu
      sluice report fairness --loans --month last
      sluice report fairness --quarter last -o csv
    """
    params = [*times.params(), ("cohort", cohort)]

    document = _requested(connection, "reports/fairness", params)
    if resource:
        for field in ("items", "loans"):
            document[field] = [item for item in document[field] if item["resource"] == resource]
    if output in ("json", "yaml"):
        click.echo(serialized(document, output))
        return
    rows = loan_rows(document) if loans else fairness_rows(document)
    if output == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return
    for note in _partial_periods(document):
        print_line(f"note: {note}", err=True)
    print_line(f"from {second(document['from'])} to {second(document['to'])}, in hours")
    if len(rows) == 1:
        print_line("nothing was lent" if loans else "no quota, and no demand")
        return
    for line in table_lines(rows, 2 if loans else 3, None):
        print_line(line)


@report.command()
@click.option(
    "--weeks", type=click.IntRange(1, 53), default=8, show_default=True, help="Weeks, the present one included."
)
@click.option("--clusterqueue", multiple=True, metavar="NAME", help="Only this ClusterQueue; repeatable.")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Time zone in which weeks begin.")
@_format_option("json", "yaml", "csv")
@connection_options
def objectives(
    *, weeks: int, clusterqueue: tuple[str, ...], timezone: str, output: str, connection: ApiConnection
) -> None:
    """Report how the wished waits of ClusterQueues were met, by week.

    A ClusterQueue has a wished wait by spec.objective. WITHIN is the wait within which
    the wished share of workloads started; IN THE WAY are the reasons for which those
    waited that started too late, with their shares of that time. A week is judged by the
    objective that it had at its end, or by the first one, if none was set until then.

    \b
    Examples:
      sluice report objectives
      sluice report objectives --clusterqueue ml --weeks 26 -o csv
    """
    params = [("weeks", str(weeks)), ("timezone", timezone), *(("clusterqueue", name) for name in clusterqueue)]

    document = _requested(connection, "reports/objectives", params)
    if output in ("json", "yaml"):
        click.echo(serialized(document, output))
        return
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        columns = ("clusterQueue", "week", "from", "to", "partial", "wishedSince", "percentile", "wishedSeconds",
                   "workloads", "met", "waiting", "waitSeconds", "isMet")  # fmt: skip
        reasons = sorted({each["reason"] for item in document["items"] for each in item["obstacles"]})
        writer.writerow([*columns, *(f"{reason} seconds" for reason in reasons)])
        for item in document["items"]:
            spent = {each["reason"]: each["seconds"] for each in item["obstacles"]}
            cells = (str(item[name]).lower() if isinstance(item[name], bool) else item[name] for name in columns)
            writer.writerow([*cells, *(spent.get(reason, 0.0) for reason in reasons)])
        return
    if not document["items"]:
        print_line("no ClusterQueue has an objective: set spec.objective, as in {percentile: 90, wait: 2h}", err=True)
        return
    rows = [("CLUSTERQUEUE", "WEEK", "OBJECTIVE", "WORKLOADS", "IN TIME", "WITHIN", "WAITING", "MET", "IN THE WAY")]
    rows += [
        (
            item["clusterQueue"],
            item["week"] + ("*" if item["partial"] else ""),
            f"{item['percentile']} % in {spoken(item['wishedSeconds'])}"
            + (" (set later)" if item["wishedSince"] > item["to"] else ""),
            f"{item['workloads']:,}",
            f"{100 * item['met'] / item['workloads']:.1f} %" if item["workloads"] else "-",
            spoken(item["waitSeconds"]) if item["workloads"] else "-",
            f"{item['waiting']:,}",
            ("yes" if item["isMet"] else "no") if item["workloads"] else "-",
            _in_the_way(item["obstacles"]) or "-",
        )
        for item in document["items"]
    ]
    for line in aligned(rows):
        print_line(line)
    if any(item["partial"] for item in document["items"]):
        print_line("* a part of the week", err=True)


def _in_the_way(obstacles: Sequence[Document]) -> str:
    whole = sum(each["seconds"] for each in obstacles)
    return ", ".join(f"{each['reason']} {each['seconds'] / whole:.0%}" for each in obstacles[:_OBSTACLES])


@report.command()
@click.argument("name", metavar="NODE")
@click.option("--at", default="", metavar="TIME", help="An instant: a time, or a duration before now.")
@click.option("--from", "start", default="", metavar="TIME", show_default="1d", help="Start, in the same form.")
@click.option("--to", "end", default="", metavar="TIME", help="End, in the same form.  [default: now]")
@output_option("json", "yaml")
@connection_options
def node(*, name: str, at: str, start: str, end: str, output: str | None, connection: ApiConnection) -> None:
    """Report which workloads had pods on a node, as after a failure of it.

    The ledger knows this of workloads that were placed by topology. NODE may also be a
    rack or another domain.

    \b
    Examples:
      sluice report node n17 --at 3h
      sluice report node n17 --from 2d
    """
    if at and (start or end):
        raise click.UsageError("use either --at, or --from with --to")
    params = [("node", name), ("from", at or start or "1d"), ("to", at or end)]

    document = _requested(connection, "reports/node", params)
    if output is not None:
        click.echo(serialized(document, output), nl=not output.startswith("jsonpath="))
        return
    if not document["items"]:
        print_line(f"no workload that was placed by topology had pods on {name} in this time", err=True)
        return
    rows = [("NAMESPACE", "KIND", "NAME", "USER", "WHERE", "PODS", "REQUESTS", "FROM", "TO", "END")]
    rows += [
        (
            item["namespace"],
            item["kind"] or "<none>",
            item["name"] or item["uid"],
            item["user"] or "<none>",
            "/".join(filter(None, item["domain"])),
            str(item["pods"]),
            ", ".join(f"{amount} {resource}" for resource, amount in item["requests"].items()),
            second(item["from"]),
            second(item.get("to", "")),
            item.get("endReason", "still there"),
        )
        for item in document["items"]
    ]
    for line in aligned(rows):
        print_line(line)


def _requested(connection: ApiConnection, path: str, params: Iterable[tuple[str, str]]) -> Document:
    """Return a report; parameters without a value are left out."""

    async def ask() -> Document:
        from admission.client.transport import PREFIX

        async with connect(connection) as sluice:
            asked = [pair for pair in params if pair[1]]
            return await sluice.request("GET", f"{PREFIX}/{path}", params=asked)

    return asyncio.run(ask())


def _partial_periods(document: Document) -> Iterator[str]:
    """Yield a note for each month, quarter or day of which the figures cover a part only."""
    parts = {item["period"]: item for item in document["items"] if item.get("period") and item["partial"]}
    if document.get("partial"):
        parts[document["calendarPeriod"]] = document
    for name, part in sorted(parts.items()):
        yield f"only a part of {name} is reported: from {second(part['from'])} to {second(part['to'])}"


async def _ask(connection: ApiConnection, namespace: str, params: Sequence[tuple[str, str]], *, mine: bool) -> Document:
    """Request the report. Raises CommandError with a narrower report to try, if that of all namespaces is forbidden."""
    from admission.client import Forbidden
    from admission.client.sluice import usage_path

    async with connect(connection) as sluice:
        try:
            return await sluice.request("GET", usage_path(namespace=namespace, mine=mine), params=params)
        except Forbidden as error:
            if namespace or mine:
                raise
            hint = "you may have access to a single namespace (-n NAMESPACE), and to your own usage (--mine)"
            raise CommandError(f"{error}; {hint}") from error


async def _unknown_names(
    connection: ApiConnection,
    namespace: str,
    document: Document,
    params: Sequence[tuple[str, str]],
    only: Mapping[str, tuple[str, ...]],
    *,
    mine: bool,
) -> list[str]:
    """Return a hint for each value of a filter that has no usage in this time even without the filters.

    Of a filter with a single value that is known by the report, unless it is empty.
    """
    hints = []
    times = [(name, value) for name, value in params if name in _TIMES]
    within = [(name, value) for name, value in params if name == "namespace"]
    filters = {"namespace": (namespace,) if namespace else (), **only}
    for name, values in filters.items():
        if not values or (document["items"] and len(values) == 1):
            continue
        where = ("", []) if name == "namespace" else (namespace, within)
        try:
            without = await _ask(connection, where[0], [("by", name), *where[1], *times], mine=mine)
        except CommandError:  # whose permission is for this namespace only knows no others
            continue
        known = sorted({str(item[_FIELDS.get(name, name)]) for item in without["items"]})
        for value in values:
            if value not in known:
                near = difflib.get_close_matches(value, known, n=1)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                hints.append(f'{name} "{value}" has no usage in this time{hint}')
    return hints
