"""The reports `reports/usage` (usage by group, from the ledger), `reports/mine` and `reports/pending`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from admission.api.auth.authentication import IDENTITY
from admission.api.errors import BadRequest
from admission.api.http.calendar_periods import calendar_period, time_zone
from admission.api.http.instants import UNITS, instant
from admission.api.http.response_cache import ResponseCache, RevisionCache
from admission.api.http.responses import encode, reply, reply_encoded
from admission.api.registry import API_VERSION, PENDING_REPORT, STAY_REPORT
from admission.api.resources.largest_usage import largest
from admission.model.quantity import format_amount
from admission.store.ledger.periods import PERIODS, bounds, period_ends
from admission.store.ledger.rollup import HOUR
from admission.store.ledger.usage_reports import FILTERS, GROUPINGS

if TYPE_CHECKING:
    from datetime import tzinfo

    from aiohttp import web

    from admission.api.http.calendar_periods import CalendarPeriod
    from admission.api.http.responses import Document
    from admission.store.ledger.places import Stay
    from admission.store.ledger.usage_reports import UsageReport, UsageRow
    from admission.store.ledger.usage_series import UsageSeries
    from admission.store.store import Store

_DEFAULT_BY: Final = "queue"
_DEFAULT_FROM: Final = "30d"
_FIELDS: Final = {"local_queue": "queue", "submitted_by": "user", "cluster_queue": "clusterQueue"}
"""Names of columns in documents, where they differ."""

_MOST_INTERVALS: Final = 1000
"""Most intervals of a report with `interval`, and most periods in a time zone other than UTC."""
_SERIES_SECONDS: Final = 10.0
"""Shortest time for which a report with `interval` is cached: open pages request it periodically."""


class Reports:
    """Handlers of the reports."""

    def __init__(self, store: Store) -> None:
        self._store = store
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
        times = _times(request, now)
        top = _top(request)
        start, end, period = times.start, min(times.end, now), _period(request, times, now)
        step = _step(request, end - start)
        if step != 0.0:
            if period:
                raise BadRequest("interval: cannot be combined with period; give one of the two")

            async def make() -> bytes:
                series = await self._store.usage_series(by, start=start, end=end, step=step, where=filters)
                return encode(_series_document(by, times, series, top))

            names = "from", "to", "month", "quarter", "timezone"
            options = *(request.query.get(name) for name in names), step, top, *by
            key = *options, *((name, *sorted(values)) for name, values in sorted(filters.items()))
            return reply_encoded(await self._series.get(key, make))
        report = await self._store.reports.usage(
            by,
            start=start,
            end=times.end,
            period=period,
            zone=times.zone,
            where=filters,
            user=request[IDENTITY].name,
        )
        return reply(_document(by, times, period, report, top))

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
            raise BadRequest(f"from ({_format_time(start)}) must not be after to ({_format_time(end)})")
        found = await self._store.reports.stays(node, start=start, end=end)
        head = {"kind": STAY_REPORT, "apiVersion": API_VERSION, "metadata": {}}
        times = {"from": _format_time(start), "to": _format_time(end)}
        return reply({**head, "node": node, **times, "items": [*map(_stay, found)]})

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
                "oldest": _format_time(row.oldest),
            }
            for row in rows
        ]
        return _pending_report(items)

    async def _pending_users_body(self) -> bytes:
        rows = await self._store.workloads.waiting_users()
        return _pending_report(
            [{"user": row.user, "count": row.count, "oldest": _format_time(row.oldest)} for row in rows]
        )


def _pending_report(items: list[Document]) -> bytes:
    return encode({"kind": PENDING_REPORT, "apiVersion": API_VERSION, "metadata": {}, "items": items})


def _step(request: web.Request, seconds: float) -> float | None:
    """Return the parameter `interval` in seconds; 0: it is missing; None: it is to be chosen. Raises BadRequest."""
    text = request.query.get("interval", "")
    if not text:
        return 0.0
    if text == "auto":
        return None
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text, re.ASCII)
    step = float(int(found[1]) * UNITS[found[2]]) if found else 0.0
    if not step:
        raise BadRequest(f'interval: "{text}" is not a duration; give one such as 5m, 1h or 1d, or auto')
    if seconds / step > _MOST_INTERVALS:
        raise BadRequest(
            f"interval: {text} divides the report into more than {_MOST_INTERVALS} parts; give a longer interval, or a "
            "shorter time from `from` to `to`"
        )
    return step


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
    names = [name.strip() for part in parameters or [_DEFAULT_BY] for name in part.split(",")]
    for name in names:
        if name not in GROUPINGS:
            raise BadRequest(f'by: usage cannot be grouped by "{name}"; give one of {", ".join(GROUPINGS)}')
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class _Times:
    """The time that a report is about (Unix times, s), and the zone of its dates, months and periods."""

    start: float
    end: float
    """Infinite: until the report has its turn."""
    zone: tzinfo
    calendar: CalendarPeriod | None
    """The whole month or quarter that was asked for."""

    def fields(self, start: float, end: float) -> Document:
        """Return the fields of a report with figures from `start` to `end`; `partial` is of the month or quarter."""
        found = {"from": _format_time(start), "to": _format_time(end), "timezone": str(self.zone)}
        if self.calendar is None:
            return found
        whole = self.calendar.start, self.calendar.end
        return {**found, "calendarPeriod": self.calendar.name, "partial": (start, end) != whole}


def _times(request: web.Request, now: float) -> _Times:
    """Return the time that a report is about. Raises BadRequest."""
    query = request.query
    zone = time_zone(query.get("timezone", ""))
    month, quarter = query.get("month", ""), query.get("quarter", "")
    if month or quarter:
        if (month and quarter) or query.get("from") or query.get("to"):
            raise BadRequest("month, quarter: give one of these two, or from and to")
        calendar = calendar_period(month, quarter, zone, now)
        return _Times(calendar.start, math.inf if calendar.end > now else calendar.end, zone, calendar)
    start = instant(query.get("from") or _DEFAULT_FROM, now, field="from", zone=zone)
    end = instant(query.get("to") or "0m", now, field="to", zone=zone)
    if start >= end:
        raise BadRequest(f"from ({_format_time(start)}) must be before to ({_format_time(end)})")
    return _Times(start, end if query.get("to") else math.inf, zone, None)


def _period(request: web.Request, times: _Times, now: float) -> str:
    """Return the parameter `period`. Raises BadRequest, also if roll-ups cannot be divided into such periods."""
    period = request.query.get("period", "")
    if period and period not in PERIODS:
        raise BadRequest(f'period: "{period}" is not one of {", ".join(PERIODS)}')
    if not period or times.zone is UTC:
        return period
    end = min(times.end, now)
    for number, at in enumerate(period_ends(times.start, end, period, times.zone)):
        if number >= _MOST_INTERVALS:
            raise BadRequest(f"period: more than {_MOST_INTERVALS} of them; give a later `from`, or leave out timezone")
        if at % HOUR and at < end:
            raise BadRequest(
                f"period: a {period} of {times.zone} does not begin at a full hour of UTC; give one `month` at a time, "
                "or leave out timezone"
            )
    return period


def _document(by: list[str], times: _Times, period: str, report: UsageReport, top: int) -> Document:
    (rows,) = largest([report.rows], top) if top else [report.rows]
    return {
        "kind": "UsageReport",
        "apiVersion": API_VERSION,
        "metadata": {},
        **times.fields(report.start, report.end),
        "by": by,
        **({"period": period} if period else {}),
        "items": [_covered(row, report, times.zone) | _item(row) for row in rows],
    }


def _covered(row: UsageRow, report: UsageReport, zone: tzinfo) -> Document:
    """Return the fields that say which part of its period the figures of a row cover."""
    if "period" not in row.group:
        return {}
    start, end = bounds(str(row.group["period"]), zone)
    covered = max(start, report.start), min(end, report.end)
    times = {"from": _format_time(covered[0]), "to": _format_time(covered[1])}
    return {**times, "partial": covered != (start, end)}


def _series_document(by: list[str], times: _Times, series: UsageSeries, top: int) -> Document:
    parts = [rows for _, rows in series.buckets]
    starts = [at for at, _ in series.buckets]
    return {
        "kind": "UsageReport",
        "apiVersion": API_VERSION,
        "metadata": {},
        **times.fields(series.start, series.end),
        "by": by,
        "intervalSeconds": int(series.step),
        "items": [
            {"from": _format_time(at), **_item(row)}
            for at, rows in zip(starts, largest(parts, top) if top else parts, strict=True)
            for row in rows
        ],
    }


def _item(row: UsageRow) -> Document:
    """Return the item of a row. For cpu in core-seconds: the ledger counts milli-CPU."""
    unit = 1000 if row.group["resource"] == "cpu" else 1
    nominal, borrowed = row.nominal_seconds / unit, row.borrowed_seconds / unit
    return {
        **{_FIELDS.get(name, name): value for name, value in row.group.items()},
        **({"others": row.others} if row.others else {}),
        "amountSeconds": nominal + borrowed,
        "nominalSeconds": nominal,
        "borrowedSeconds": borrowed,
    }


def _stay(stay: Stay) -> Document:
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
        "from": _format_time(stay.start),
        **({} if stay.end is None else {"to": _format_time(stay.end), "endReason": stay.reason}),
    }


def _format_time(at: float) -> str:
    micros = round((at - math.floor(at)) * 1_000_000)
    moment = datetime.fromtimestamp(math.floor(at), UTC) + timedelta(microseconds=micros)
    return moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")
