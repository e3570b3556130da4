"""The reports `reports/usage` (usage by group, from the ledger), `reports/mine` and `reports/pending`."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from admission.api.auth.cluster_rights import hidden_clusters
from admission.api.auth.identity import IDENTITY
from admission.api.errors import BadRequest
from admission.api.http.request_options import instant
from admission.api.http.response_cache import ResponseCache, RevisionCache
from admission.api.http.responses import encode, reply, reply_encoded
from admission.api.registry import PENDING_REPORT, STAY_REPORT, USAGE_REPORT
from admission.api.resources.prices import MeasuredSum, measured_sums, price_books
from admission.api.resources.report_times import checked_period, covered_part, format_time, report_times, spans, step_of
from admission.model.names import is_qualified_name
from admission.model.quantity import format_amount
from admission.model.queues import Topology
from admission.model.topology import HOSTNAME
from admission.store.audit_log import OUTAGE
from admission.store.ledger.quota_history import LABEL, by_labels, names_local_queues, with_quota
from admission.store.ledger.usage import QuotaKey
from admission.store.ledger.usage_reports import FILTERS, GROUPINGS, UsageRow, columns_of
from admission.store.ledger.usage_rows import HOME, LEVEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.cluster_views import ClusterViews
    from admission.api.resources.report_times import ReportTimes
    from admission.store.audit_log import Outage
    from admission.store.ledger.places import DomainStay
    from admission.store.ledger.quota_history import QuotaEvent
    from admission.store.ledger.usage_reports import UsageReport
    from admission.store.ledger.usage_series import UsageSeries
    from admission.store.store import Store


_DEFAULT_BY: Final = "queue"
FIELDS: Final = {"local_queue": "queue", "submitted_by": "user", "cluster_queue": "clusterQueue"}
"""Names of columns in documents, where they differ."""

_SERIES_SECONDS: Final = 10.0
"""Shortest time for which a report with `interval` is cached: open pages request it periodically."""
_OF_COSTS: Final = ("clusterqueue", "queue", "user", "namespace")
"""Groupings of statements of cost, besides those by labels."""
_WITH_QUOTA: Final = ("clusterqueue", "queue", "namespace", "flavor", "resource")
"""Groupings, besides those by labels, of which each group has quota."""
_WITH_MEASURED: Final = ("clusterqueue", "queue", "user", "namespace", "flavor", "kind", "workload", "resource")
"""Groupings by which it is known what was used."""


class UsageReports:
    """Handlers of the reports."""

    def __init__(self, store: Store, views: ClusterViews) -> None:
        self._store = store
        self._views = views
        self._series: ResponseCache[bytes] = ResponseCache(_SERIES_SECONDS)
        bodies = {"": self._pending_body, "user": self._pending_users_body}
        self._pending = {
            by: RevisionCache(body, revision=lambda: store.revisions.newest) for by, body in bodies.items()
        }
        """Cached bodies of `reports/pending`, by the parameter `by`."""

    async def usage(self, request: web.Request) -> web.Response:
        """Return the usage between `from` and `to`, grouped by the fields in `by`; of a namespace if it is in the path.

        Raises BadRequest.
        """
        filters = _filters(request)
        if (namespace := request.match_info.get("namespace")) is not None:
            filters["namespace"] = _only(filters.get("namespace"), namespace, field="namespace")
        return await self._report(request, filters)

    async def mine(self, request: web.Request) -> web.Response:
        """Return the usage of the calling user's workloads. Raises BadRequest."""
        filters = _filters(request)
        filters["submitted_by"] = _only(filters.get("submitted_by"), request[IDENTITY].name, field="user")
        return await self._report(request, filters)

    async def _report(self, request: web.Request, filters: dict[str, set[str]]) -> web.Response:
        now = self._store.reports.now()
        by = _groupings(request.query.getall("by", []))
        levels = await self._levels(by)
        read_by = [levels.get(name, name) for name in _without_labels(by)]
        hidden: frozenset[str] = frozenset()
        if "workload" in by and (hidden := await hidden_clusters(request)):
            read_by.append(HOME)
        times = report_times(request.query, now)
        top, quota, measured = _top(request), _wants_quota(request, by), _wants_measured(request, by)
        if measured:
            times = times.full_hours()
        start, end, period = (
            times.start,
            min(times.end, now),
            checked_period(request.query.get("period", ""), times, now, quota=quota),
        )
        step = step_of(request, end - start)
        if step != 0.0:
            if period:
                raise BadRequest("interval: cannot be combined with period; give one of the two")

            async def make() -> bytes:
                series = await self._store.usage_series(read_by, start=start, end=end, step=step, where=filters)
                shown = [_named(_shown(rows, hidden), levels) for _, rows in series.buckets]
                parts = await self._by_labels(by, shown, series.end)
                document = _series_document(by, times, series, _largest(parts, top) if top else parts)
                return encode(document | (await self._quota_over_time(filters, series) if quota else {}))

            names = "from", "to", "month", "quarter", "timezone"
            options = *(request.query.get(name) for name in names), step, top, quota, *by
            key = *options, hidden, *((name, *sorted(values)) for name, values in sorted(filters.items()))
            return reply_encoded(await self._series.get(key, make))
        asked = partial(self._store.reports.usage, period=period, zone=times.zone, user=request[IDENTITY].name)
        report = await asked(read_by, start=start, end=times.end, where=filters)
        rows: Sequence[UsageRow]
        (rows,) = await self._by_labels(by, [_named(_shown(report.rows, hidden), levels)], report.end)
        document = _document(by, times, period, report)
        if quota:
            narrowing = {name: values for name, values in filters.items() if name in QuotaKey._fields}
            used = await asked(["clusterqueue", "flavor"], start=report.start, end=report.end, where=narrowing)
            by_queue = names_local_queues((*_columns(by), *filters))
            history = await self._store.quota_history(end=report.end, local_queues=by_queue)
            parts = [*spans(report, period, times.zone)]
            of_namespaces = await self._namespace_labels(by)
            async with self._store.reports.turn:  # as all computations that may take a second
                rows, sums = await asyncio.to_thread(
                    with_quota, rows, used.rows, _columns(by), filters, parts, history, of_namespaces
                )
            document["totals"] = [_item(row) for row in sums]
            if "namespace" not in request.match_info:
                capacity = await self._views.allocatable(filters.get("flavor"))
                document["capacity"] = {name: format_amount(name, amount) for name, amount in sorted(capacity.items())}
        elif top:
            (rows,) = _largest([rows], top)
        elif measured:
            return reply(
                document | await self._measured(rows, by, filters, request.query.get("book", ""), times, report)
            )
        if await self._store.measured_usage.is_known(report.start, report.end):
            document["measured"] = True
        document["items"] = [covered_part(row, report, times.zone) | _item(row) for row in rows]
        return reply(document)

    async def _measured(
        self,
        rows: Sequence[UsageRow],
        by: list[str],
        filters: dict[str, set[str]],
        book_name: str,
        times: ReportTimes,
        report: UsageReport,
    ) -> Document:
        """Return the items of a report with what was measured of them, and what idle hours cost."""
        books, columns = await price_books(self._store, book_name), _columns(by)
        book = books[0] if len(books) == 1 else None
        spec = None if book is None else book.spec
        span = report.start, report.end, times.zone
        sums = await measured_sums(self._store, columns, filters, spec, span)
        items, unpriced = [], set()
        for row in rows:
            one = sums.get(tuple(str(row.group[name]) for name in columns), MeasuredSum())
            measured = min(one.measured, row.amount_seconds)  # at most what was held
            used = min(one.used, measured)
            item = _item(replace(row, measured_seconds=measured, used_seconds=used))
            if book is not None:
                cost = 0.0 if measured == used else one.idle_cost
                if cost and one.measured > one.used:
                    cost *= (measured - used) / (one.measured - one.used)
                item["idleCost"] = None if cost is None else f"{cost:.6f}"
                unpriced |= one.unpriced
            items.append(item)
        found: Document = {"measured": any(one.measured for one in sums.values()), "items": items}
        if book is not None:
            lacking = [{"flavor": flavor, "resource": resource} for flavor, resource in sorted(unpriced)]
            found |= {"book": book.name, "currency": book.spec.currency, "unpriced": lacking}
        elif books:
            found["books"] = [one.name for one in books]
        return found

    async def days(
        self, request: web.Request, times: ReportTimes, default_by: str
    ) -> tuple[list[str], UsageReport, Sequence[UsageRow]]:
        """Return groupings, and usage by day, by them, and by flavor, of the time and the filters of a request.

        Its groupings have to be among those of roll-ups. Raises BadRequest.
        """
        by = _groupings(request.query.getall("by", []) or [default_by])
        for name in by:
            if name not in _OF_COSTS and not name.startswith(LABEL):
                raise BadRequest(f"by: cost cannot be grouped by {name}; give {', '.join(_OF_COSTS)} or label:KEY")
        filters = _filters(request)
        if (namespace := request.match_info.get("namespace")) is not None:
            filters["namespace"] = _only(filters.get("namespace"), namespace, field="namespace")
        checked_period("day", times, self._store.reports.now(), quota=False)
        groups = [*by, "flavor"]
        report = await self._store.reports.usage(
            _without_labels(groups),
            start=times.start,
            end=times.end,
            period="day",
            zone=times.zone,
            where=filters,
            user=request[IDENTITY].name,
        )
        (rows,) = await self._by_labels(groups, [report.rows], report.end)
        return by, report, rows

    async def _levels(self, by: list[str]) -> dict[str, str]:
        """Return what the store groups by for those groupings that are levels of Topologies. Raises BadRequest."""
        unknown = [name for name in by if name not in GROUPINGS and not _is_label(name)]
        if not unknown:
            return {}
        objects = await self._store.queues.list(Topology.kind)
        labels = {label for one in objects if isinstance(one, Topology) for label in one.spec.labels}
        found = {}
        for name in unknown:
            meant = sorted(label for label in labels if name in (label, _level(label), label.rpartition("/")[2]))
            if len(meant) != 1:
                known = ", ".join(meant or (*GROUPINGS, *sorted(map(_level, labels)), "or label:KEY"))
                raise BadRequest(f'by: usage cannot be grouped by "{name}"; give one of {known}')
            found[name] = f"{LEVEL}{meant[0]}"
        return found

    async def _quota_over_time(self, filters: dict[str, set[str]], series: UsageSeries) -> Document:
        """Return nominal quota and events in the time of a series. Those before its first bucket are of no use."""
        history = await self._store.quota_history(end=series.end, local_queues=names_local_queues(filters))
        steps = history.nominal_steps(filters, series.start, series.end)
        quotas = [
            {
                "resource": resource,
                "steps": [{"from": format_time(at), "amount": format_amount(resource, amount)} for at, amount in each],
            }
            for resource, each in steps.items()
        ]
        events = [_event(event) for event in history.events_of(filters, series.start, series.end)]
        outages = [_outage(one) for one in await self._store.audit.outages(series.start, series.end)]
        return {"quotas": quotas, "events": sorted([*events, *outages], key=itemgetter("time"))}

    async def _by_labels(
        self, by: list[str], parts: Sequence[Sequence[UsageRow]], end: float
    ) -> list[Sequence[UsageRow]]:
        """Return the rows of the intervals of a report, added up by labels if it is grouped by such."""
        if not any(name.startswith(LABEL) for name in by):
            return [*parts]
        history = await self._store.quota_history(end=end, local_queues=True)
        of_namespaces = await self._namespace_labels(by)
        return await asyncio.to_thread(
            lambda: [by_labels(rows, _columns(by), history, of_namespaces) for rows in parts]
        )

    async def _namespace_labels(self, by: list[str]) -> Mapping[str, Mapping[str, str]]:
        return await self._views.namespace_labels() if any(name.startswith(LABEL) for name in by) else {}

    async def node(self, request: web.Request) -> web.Response:
        """Return which workloads had pods on `?node=` (or another domain of a topology) between `from` and `to`.

        Raises BadRequest.
        """
        now = self._store.reports.now()
        node = request.query.get("node", "")
        if not node:
            raise BadRequest("node: give the name of a node, or of another domain of a topology")
        start = instant(request.query.get("from") or "1d", now, field="from")
        end = instant(request.query.get("to") or "0m", now, field="to")
        if start > end:
            raise BadRequest(f"from ({format_time(start)}) must not be after to ({format_time(end)})")
        found = await self._store.reports.stays(node, start=start, end=end)
        if hidden := await hidden_clusters(request):
            records = await self._store.workloads.by_uid({stay.uid for stay in found})
            # Of one that `retention` has deleted it is not known any more of which cluster it was.
            shown = {uid for uid, record in records.items() if record.workload.cluster not in hidden}
            found = [stay for stay in found if stay.uid in shown]
        times = {"from": format_time(start), "to": format_time(end)}
        return reply(STAY_REPORT.document(node=node, **times, items=[*map(_stay, found)]))

    async def pending(self, request: web.Request) -> web.Response:
        """Return the numbers of pending workloads by LocalQueue and reason, or by user; the longest wait first.

        Raises BadRequest.
        """
        by = request.query.get("by", "")
        if by not in self._pending:
            raise BadRequest(f'by: this report cannot be grouped by "{by}"; give user, or leave it out')
        return reply_encoded(await self._pending[by].get())

    async def _pending_body(self) -> bytes:
        rows = await self._store.workloads.waiting()
        items = [
            {
                "clusterQueue": row.cluster_queue,
                "namespace": row.namespace,
                "queue": row.local_queue,
                "reason": row.reason,
                "count": row.count,
                "oldest": format_time(row.oldest),
            }
            for row in rows
        ]
        return _pending_report(items)

    async def _pending_users_body(self) -> bytes:
        rows = await self._store.workloads.waiting_users()
        return _pending_report(
            [{"user": row.user, "count": row.count, "oldest": format_time(row.oldest)} for row in rows]
        )


def _pending_report(items: list[Document]) -> bytes:
    return encode(PENDING_REPORT.document(items=items))


def _top(request: web.Request) -> int:
    """Return the parameter `top`; 0 if it is missing. Raises BadRequest."""
    text = request.query.get("top", "")
    if text and not re.fullmatch(r"[1-9]\d{0,5}", text, re.ASCII):
        raise BadRequest(f'top: "{text}" is not a number from 1 to 999999; give one such as 20')
    return int(text or 0)


def _filters(request: web.Request) -> dict[str, set[str]]:
    """Return the filters of a request: accepted values by column."""
    return {column: set(request.query.getall(name)) for name, column in FILTERS.items() if name in request.query}


def _only(requested: set[str] | None, value: str, *, field: str) -> set[str]:
    """Return the filter for the only value that this report shows. Raises BadRequest if another one is requested."""
    if requested is not None and requested != {value}:
        raise BadRequest(f"{field}: this report is about {value} only; leave {field} out")
    return {value}


def _groupings(parameters: list[str]) -> list[str]:
    return list(dict.fromkeys(name.strip() for part in parameters or [_DEFAULT_BY] for name in part.split(",")))


def _is_label(name: str) -> bool:
    return name.startswith(LABEL) and is_qualified_name(name.removeprefix(LABEL))


def _level(label: str) -> str:
    return "node" if label == HOSTNAME else label


def _named(rows: Sequence[UsageRow], levels: dict[str, str]) -> Sequence[UsageRow]:
    """Return rows that name levels of topologies as the request does."""
    names = {column: name for name, column in levels.items()}
    if not names:
        return rows
    return [replace(row, group={names.get(name, name): value for name, value in row.group.items()}) for row in rows]


def _shown(rows: Sequence[UsageRow], hidden: Collection[str]) -> Sequence[UsageRow]:
    """Return rows that have HOME without it: those of workloads in the clusters `hidden` are added up, without names.

    So are those of which the cluster is not known any more.
    """
    if not hidden:
        return rows
    merged: dict[_Group, UsageRow] = {}
    for row in rows:
        group = {name: value for name, value in row.group.items() if name != HOME}
        if row.group[HOME] in ("", *hidden):
            group["workload"] = ""
        one, key = replace(row, group=group), tuple(group.items())
        if (known := merged.get(key)) is not None:
            one = replace(
                known,
                nominal_seconds=known.nominal_seconds + row.nominal_seconds,
                borrowed_seconds=known.borrowed_seconds + row.borrowed_seconds,
            )
        merged[key] = one
    return [*merged.values()]


def _document(by: list[str], times: ReportTimes, period: str, report: UsageReport) -> Document:
    fields = times.fields(report.start, report.end) | ({"period": period} if period else {})
    return USAGE_REPORT.document(by=by, **fields)


def _without_labels(by: list[str]) -> list[str]:
    """Return what is read for groupings, of which those by labels need the queues that have them."""
    read = [name for name in by if not name.startswith(LABEL)]
    return read if len(read) == len(by) else [*read, "queue", "clusterqueue"]


def _columns(by: list[str]) -> tuple[str, ...]:
    """Return the columns of groupings; labels and levels of topologies have one of their name."""
    of = ((columns_of([name])[:-1] if name in GROUPINGS else (name,)) for name in by if name != "resource")
    return (*dict.fromkeys(column for columns in of for column in columns), "resource")


def _wants_quota(request: web.Request, by: list[str]) -> bool:
    """Return the parameter `quota`. Raises BadRequest if it is combined with what has none."""
    text = request.query.get("quota", "")
    if text not in ("", "true", "false"):
        raise BadRequest(f'quota: "{text}" is neither true nor false')
    if text != "true":
        return False
    if request.path.endswith("/mine"):
        raise BadRequest("quota: usage of one user has none; ask for the report of a namespace, or of all")
    if request.query.get("interval"):
        return True
    for name in by:
        if name not in _WITH_QUOTA and not name.startswith(LABEL):
            raise BadRequest(f"quota: no quota is that of a {name}; group by {', '.join(_WITH_QUOTA)} or label:KEY")
    if request.query.get("top"):
        raise BadRequest("quota: cannot be combined with top; leave one out")
    return True


def _wants_measured(request: web.Request, by: list[str]) -> bool:
    """Return the parameter `measured`. Raises BadRequest if it is combined with what has no measurements."""
    text = request.query.get("measured", "")
    if text not in ("", "true", "false"):
        raise BadRequest(f'measured: "{text}" is neither true nor false')
    if text != "true":
        return False
    for name in by:
        if name not in _WITH_MEASURED:
            raise BadRequest(f"measured: use is not known by {name}; group by {', '.join(_WITH_MEASURED)}")
    for name in ("interval", "period", "quota", "top", "cluster"):
        if request.query.get(name):
            raise BadRequest(f"measured: cannot be combined with {name}; leave one out")
    return True


def _series_document(
    by: list[str], times: ReportTimes, series: UsageSeries, parts: Sequence[Sequence[UsageRow]]
) -> Document:
    starts = [at for at, _ in series.buckets]
    return USAGE_REPORT.document(
        **times.fields(series.start, series.end),
        by=by,
        intervalSeconds=int(series.step),
        items=[{"from": format_time(at), **_item(row)} for at, rows in zip(starts, parts, strict=True) for row in rows],
    )


def _item(row: UsageRow) -> Document:
    """Return the item of a row. For cpu in core-seconds: the ledger counts milli-CPU."""
    unit = 1000 if row.group["resource"] == "cpu" else 1
    nominal, borrowed = row.nominal_seconds / unit, row.borrowed_seconds / unit
    labels = {name.removeprefix(LABEL): value for name, value in row.group.items() if name.startswith(LABEL)}
    further = {
        "quotaSeconds": row.quota_seconds,
        "idleSeconds": row.idle_seconds,
        "measuredSeconds": row.measured_seconds,
        "usedSeconds": row.used_seconds,
    }
    return {
        **{FIELDS.get(name, name): value for name, value in row.group.items() if not name.startswith(LABEL)},
        **({"labels": labels} if labels else {}),
        **({"others": row.others} if row.others else {}),
        "amountSeconds": nominal + borrowed,
        "nominalSeconds": nominal,
        "borrowedSeconds": borrowed,
        **{name: seconds / unit for name, seconds in further.items() if seconds is not None},
    }


def _event(event: QuotaEvent) -> Document:
    changes = [
        {"flavor": flavor, "resource": resource, "from": format_amount(resource, a), "to": format_amount(resource, b)}
        for flavor, resource, a, b in event.changes
    ]
    return {
        "time": format_time(event.at),
        "kind": event.kind,
        **({"namespace": event.namespace} if event.namespace else {}),
        "name": event.name,
        "type": event.type,
        **({"changes": changes} if changes else {}),
    }


def _outage(outage: Outage) -> Document:
    return {
        "time": format_time(outage.start),
        "until": format_time(outage.end),
        "kind": OUTAGE,
        "name": "",
        "type": OUTAGE,
        "message": outage.cause,
    }


def _stay(stay: DomainStay) -> Document:
    return {
        "namespace": stay.namespace,
        "queue": stay.queue,
        "user": stay.user,
        "kind": stay.kind,
        "name": stay.name,
        "uid": stay.uid,
        "podSet": stay.pod_set,
        "domain": [*stay.domain],
        "pods": stay.pods,
        "requests": {resource: format_amount(resource, amount) for resource, amount in stay.requests.items()},
        "from": format_time(stay.start),
        **({} if stay.end is None else {"to": format_time(stay.end), "endReason": stay.reason}),
    }


_Group = tuple[tuple[str, str | int], ...]
"""Fields of a row that identify its group, with their values: `(("namespace", "a"), ("resource", "cpu"))`."""


def _largest(parts: Sequence[Sequence[UsageRow]], most: int) -> list[list[UsageRow]]:
    """Return the rows of the `most` groups with the largest usage of each resource, summed over all intervals `parts`.

    The rows of all other groups are summed up in one row for each resource and period, at the end of each interval; its
    `others` is the number of these groups in all intervals.
    """
    totals: defaultdict[str | int, defaultdict[_Group, float]] = defaultdict(lambda: defaultdict(float))
    for row in (row for part in parts for row in part):
        totals[row.group["resource"]][_group(row)] += row.amount_seconds
    kept = {resource: set(_first(groups, most)) for resource, groups in totals.items()}
    left_out = {resource: len(groups) - len(kept[resource]) for resource, groups in totals.items()}
    return [
        [*(row for row in part if _group(row) in kept[row.group["resource"]]), *_others(part, kept, left_out)]
        for part in parts
    ]


def _group(row: UsageRow) -> _Group:
    return tuple(item for item in row.group.items() if item[0] != "period")


def _first(groups: dict[_Group, float], most: int) -> Iterator[_Group]:
    for group, _ in sorted(groups.items(), key=lambda item: (-item[1], item[0]))[:most]:
        yield group


def _others(
    part: Sequence[UsageRow], kept: dict[str | int, set[_Group]], left_out: dict[str | int, int]
) -> Iterator[UsageRow]:
    sums: defaultdict[_Group, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in part:
        if _group(row) not in kept[row.group["resource"]]:
            seconds = sums[tuple((name, row.group[name]) for name in ("period", "resource") if name in row.group)]
            seconds[0] += row.nominal_seconds
            seconds[1] += row.borrowed_seconds
    for of, (nominal, borrowed) in sorted(sums.items()):
        yield UsageRow(dict(of), nominal, borrowed, left_out[dict(of)["resource"]])
