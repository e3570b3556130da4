"""Usage reports as tables and CSV, in hours: a row for each group and resource, or one for each group, with quota."""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Final

from admission.model.quantity import amount
from admission.model.resource_words import amount_text, is_in_bytes, resource_word, usage_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client.transport import Document

WIDTH: Final = 80
"""Characters of a line of `-o table` at most."""
WIDTH_WITH_QUOTA: Final = 120
"""The same of a report with quota."""
_AMOUNTS: Final = ("amountSeconds", "nominalSeconds", "borrowedSeconds")
"""Fields of an item, in amounts times seconds: used, nominal and borrowed."""
_WITH_QUOTA: Final = ("amountSeconds", "quotaSeconds", "idleSeconds")
"""Fields of an item with quota: used, quota and idle quota."""
_COVERED: Final = ("from", "to", "partial")
"""Columns of CSV: which time the figures of a row are of."""
_MIN_NAME_WIDTH: Final = 8
"""Characters to which a column of names is truncated at most, even if lines then exceed `WIDTH`."""


def write_csv(document: Document) -> None:
    """Print the report as CSV, in the units that the column `unit` names: core-hours, GiB-hours, hours."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    keys = _keys(document)
    writer.writerow([*keys, "unit", "used", "nominal", "borrowed", *_COVERED])
    for item in document["items"]:
        unit = usage_unit(item["resource"])
        amounts = [round(item[name] / unit.seconds, 6) for name in _AMOUNTS]
        writer.writerow([*map(inert, _names(keys, item)), unit.name, *amounts, *_covered(document, item)])


def _covered(document: Document, item: Document) -> Iterator[str]:
    """Yield from when to when the figures of an item are, and whether that is a part of its period: true or false."""
    of = item if "period" in item else document
    yield from (of["from"], of["to"], str(of["partial"]).lower() if "partial" in of else "")


def inert(cell: str) -> str:
    """Return a name so that spreadsheets do not evaluate it as a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _keys(document: Document) -> list[str]:
    """Return the fields by which the items are grouped, in the order of the columns."""
    names = {
        "queue": ("namespace", "queue"),
        "clusterqueue": ("clusterQueue",),
        "workload": ("namespace", "kind", "workload"),
    }
    by = (*(["period"] if "period" in document else []), *(name for name in document["by"] if name != "resource"))
    return [*dict.fromkeys(key for name in by for key in names.get(name, (name,))), "resource"]


def _names(keys: Sequence[str], item: Document) -> list[str]:
    """Return the values of an item's group, by `keys`; the sum of others (`--top`) shows how many they are."""
    values = item | {f"label:{key}": value for key, value in item.get("labels", {}).items()}
    missing = [key for key in keys if key not in values]
    return [f"{item['others']} others" if key in missing[:1] else str(values.get(key, "")) for key in keys]


def usage_table(document: Document, *, width: int | None) -> Iterator[str]:
    """Yield the report as a table. Names are truncated so that lines fit into `width` characters; None: no limit."""
    yield f"Usage {_whole(document)}from {second(document['from'])} to {second(document['to'])}, in hours"
    keys, items = _keys(document), document["items"]
    if not items:
        yield "no usage"
        return
    rows = [
        [
            *(_cell(key, name) for key, name in zip(keys, _names(keys, item), strict=True)),
            *_hours(item["resource"], item),
        ]
        for item in items
    ]
    totals = [
        [
            "TOTAL" if number == 0 else _cell(key, resource) if key == "resource" else ""
            for number, key in enumerate(keys)
        ]
        + _hours(resource, total)
        for resource, total in _totals(items).items()
    ]
    header = [*(key.upper() for key in keys), "USED", "NOMINAL", "BORROWED"]
    yield from table_lines([header, *rows, *(totals if len(totals) < len(rows) else [])], len(keys), width)


def idle_rows(document: Document, *, csv: bool) -> list[list[str]]:
    """Return a header, and a row for each group and resource of a report with measured usage, in hours.

    The most idle group of each resource comes first, with its cost, if there is a PriceBook. `csv`: with the unit and
    the time, and names that are no formulas.
    """
    keys, priced = _keys(document), "book" in document
    more = (["cost", "currency"] if csv else [f"COST {document['currency']}"]) if priced else []
    header = [*keys, "unit", "held", "used", "idle", "unknown", *more, *_COVERED]
    rows = [header if csv else [*(key.upper() for key in keys), "HELD", "USED", "IDLE", "UNKNOWN", "%IDLE", *more]]
    for item in sorted(
        document["items"], key=lambda item: (item["resource"], item["usedSeconds"] - item["measuredSeconds"])
    ):
        unit = usage_unit(item["resource"])
        held, measured, used = (item[f"{name}Seconds"] / unit.seconds for name in ("amount", "measured", "used"))
        amounts = held, used, measured - used, held - measured
        names, cost = _names(keys, item), item.get("idleCost")
        if csv:
            cells = [str(round(each, 6)) for each in amounts]
            costs = [cost or "", document["currency"]] if priced else []
            rows.append([*map(inert, names), unit.name, *cells, *costs, *_covered(document, item)])
        else:
            share = f"{1 - used / measured:.0%}" if measured else ""
            cells = [f"{each:,.1f}" for each in amounts]
            costs = [f"{float(cost):,.2f}" if cost else ""] if priced else []
            rows.append([*(_cell(key, name) for key, name in zip(keys, names, strict=True)), *cells, share, *costs])
    return rows


def quota_table(document: Document, *, width: int | None) -> Iterator[str]:
    """Yield a report with quota as a table with one row for each group. `width` as in `usage_table`."""
    nodes = document.get("capacity")
    yield f"Usage {_whole(document)}from {second(document['from'])} to {second(document['to'])}, in hours"
    keys, rows, resources = _keys(document)[:-1], _by_group(document), _resources(document)
    if not rows:
        yield "no usage, and no quota"
        return
    header = [key.upper() for key in keys]
    for name in _headings(resources).values():
        header += [f"{name}-H".upper(), "%QUOTA", *(["%NODES"] if nodes else []), "IDLE-H"]
    lines = [header]
    for names, items in rows.items():
        lines.append([_cell("", name) for name in names])
        for resource in resources:
            lines[-1] += _quota_cells(document, resource, items.get(resource))
    if len(rows) > 1:
        totals = {item["resource"]: item for item in document["totals"]}
        lines.append([*["TOTAL"][: len(keys)], *[""] * (len(keys) - 1)])
        for resource in resources:
            lines[-1] += _quota_cells(document, resource, totals[resource])
    yield from table_lines(lines, len(keys), width)
    if nodes:
        yield f"%NODES is of what the nodes can allocate now: {', '.join(_nodes(nodes, resources))}"


def write_quota_csv(document: Document) -> None:
    """Print a report with quota as CSV with one row for each group, and columns for each resource."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    resources = _resources(document)
    header = _keys(document)[:-1]
    for resource in resources:
        unit = usage_unit(resource).name
        header += [f"{resource} {of}{unit}" for of in ("", "quota ", "idle ")]
        header += [f"{resource} percent of {of}" for of in ("quota", "capacity")]
    writer.writerow([*header, *_COVERED])
    for names, items in _by_group(document).items():
        cells: list[str | float] = [inert(name) for name in names]
        for resource in resources:
            item = items.get(resource)
            if item is None:
                cells += [0.0, 0.0, 0.0, "", ""]
                continue
            amounts = (item[name] / usage_unit(resource).seconds for name in _WITH_QUOTA)
            cells += [*(round(each, 6) for each in amounts), *_shares(document, item)]
        writer.writerow([*cells, *_covered(document, next(iter(items.values())))])


_SHARES: Final = ("nominal", "demand", "entitled", "received", "borrowed", "lent")
"""Fields of an item of a report of fairness, without their ending `Seconds`."""


def fairness_rows(document: Document) -> list[list[str]]:
    """Return a header, and a row for each ClusterQueue and resource of a report of fairness, in hours."""
    rows = [["CLUSTERQUEUE", "COHORT", "RESOURCE", *(name.upper() for name in _SHARES), "OF ENTITLED"]]
    for item in document["items"]:
        unit, entitled = usage_unit(item["resource"]).seconds, item["entitledSeconds"]
        hours = [f"{item[f'{name}Seconds'] / unit:.2f}" for name in _SHARES]
        part = f"{item['receivedSeconds'] / entitled:.0%}" if entitled else "-"
        names = [inert(item["clusterQueue"]), inert(item["cohort"]), _cell("resource", item["resource"])]
        rows.append([*names, *hours, part])
    return rows


def loan_rows(document: Document) -> list[list[str]]:
    """Return a matrix: a header with the borrowers, and a row for each lender and resource, in hours."""
    borrowers = sorted({loan["borrower"] for loan in document["loans"]}, key=lambda name: (not name, name))
    sums: defaultdict[tuple[str, str], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for loan in document["loans"]:
        unnamed = "(others)" if loan["lenderKind"] == "Others" else "(over quota)"
        lender = f"Cohort {loan['lender']}" if loan["lenderKind"] == "Cohort" else loan["lender"] or unnamed
        sums[lender, loan["resource"]][loan["borrower"]] += loan["amountSeconds"]
    rows = [["LENDER", "RESOURCE", *(inert(name) or "(others)" for name in borrowers)]]
    for (lender, resource), lent in sorted(sums.items()):
        unit = usage_unit(resource).seconds
        rows.append([inert(lender), _cell("resource", resource), *(f"{lent[name] / unit:.2f}" for name in borrowers)])
    return rows


def _by_group(document: Document) -> dict[tuple[str, ...], dict[str, Document]]:
    """Return the items of each group by resource."""
    keys = _keys(document)[:-1]
    groups: defaultdict[tuple[str, ...], dict[str, Document]] = defaultdict(dict)
    for item in document["items"]:
        groups[tuple(_names(keys, item))][item["resource"]] = item
    return dict(groups)


def _resources(document: Document) -> list[str]:
    """Return the resources of a report: GPUs and other devices first, then CPU, memory, and the rest."""
    order = ("cpu", "memory", "ephemeral-storage", "pods")
    found = {item["resource"] for item in document["items"]}
    return sorted(found, key=lambda name: (order.index(name) if name in order else -1, name))


def _headings(resources: Sequence[str]) -> dict[str, str]:
    """Return what the hours of each resource are called: GPU, CPU, GiB; by its whole name if another has the same."""
    words = {name: "GiB" if name == "memory" else resource_word(name) for name in resources}
    return {name: word if [*words.values()].count(word) == 1 else name for name, word in words.items()}


def _quota_cells(document: Document, resource: str, item: Document | None) -> list[str]:
    if item is None:
        return ["-"] * (4 if document.get("capacity") else 3)
    seconds = usage_unit(resource).seconds
    used, idle = (f"{item[name] / seconds:,.2f}" for name in ("amountSeconds", "idleSeconds"))
    shares = [f"{share:.1f}" if share != "" else "-" for share in _shares(document, item)]
    return [used, *shares[: 2 if document.get("capacity") else 1], idle]


def _shares(document: Document, item: Document) -> Iterator[float | str]:
    """Yield the percentages of quota and of capacity that an item used; empty if there is none."""
    of = item if "period" in item else document
    start, end = (datetime.fromisoformat(of[name]) for name in ("from", "to"))
    resource = item["resource"]
    capacity = amount(resource, document.get("capacity", {}).get(resource, 0)) / (1000 if resource == "cpu" else 1)
    for whole in (item["quotaSeconds"], capacity * (end - start).total_seconds()):
        yield round(100 * item["amountSeconds"] / whole, 3) if whole else ""


def _nodes(nodes: Document, resources: Sequence[str]) -> Iterator[str]:
    for resource in resources:
        yield amount_text(resource, amount(resource, nodes.get(resource, 0)))


def table_lines(rows: Sequence[Sequence[str]], names: int, width: int | None) -> Iterator[str]:
    """Yield the lines of a table whose first columns, `names` of them, are text, and the others numbers."""
    widths = _widths(rows, names, width)
    for row in rows:
        texts = [_truncated(cell, width).ljust(width) for cell, width in zip(row[:names], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(row[names:], widths[names:], strict=True)]
        yield "  ".join([*texts, *numbers])


def _whole(document: Document) -> str:
    """Return the month or quarter that was asked for, for the first line; empty: none was."""
    if "calendarPeriod" not in document:
        return ""
    part = "a part of " if document["partial"] else ""
    return f"in {part}{document['calendarPeriod']} ({document['timezone']}), "


def second(instant: str) -> str:
    """Return a time without fractions of a second."""
    return re.sub(r"\.\d+", "", instant)


def _totals(items: Sequence[Document]) -> dict[str, dict[str, float]]:
    """Return the sums of all items by resource."""
    totals: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_AMOUNTS, 0.0))
    for item in items:
        for name in _AMOUNTS:
            totals[item["resource"]][name] += item[name]
    return dict(sorted(totals.items()))


def _cell(key: str, value: object) -> str:
    if key == "resource" and is_in_bytes(str(value)):
        return f"{value} (GiB)"
    return "<none>" if value == "" else str(value)


def _hours(resource: str, amounts: Document) -> list[str]:
    """Return the cells USED, NOMINAL and BORROWED in hours of the resource's unit."""
    return [f"{amounts[name] / usage_unit(resource).seconds:,.2f}" for name in _AMOUNTS]


def _widths(lines: Sequence[Sequence[str]], names: int, limit: int | None) -> list[int]:
    """Return the widths of all columns.

    The first `names` columns are narrowed, the widest one first, until a line has at most `limit` characters.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while (
        names
        and limit is not None
        and sum(widths) + 2 * (len(widths) - 1) > limit
        and (widest := max(widths[:names])) > _MIN_NAME_WIDTH
    ):
        widths[widths.index(widest)] -= 1
    return widths


def _truncated(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
