"""The report `reports/objectives`: how the wished waits of ClusterQueues were met by week, and what was in the way.

A week is judged by the objective that the ClusterQueue had at its end, or, if it had none yet, by its first one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from admission.api.errors import BadRequest
from admission.api.http.calendar_periods import time_zone
from admission.api.http.responses import reply
from admission.api.registry import OBJECTIVE_REPORT
from admission.api.resources.report_times import format_time
from admission.model.durations import parse_duration
from admission.store.workloads.waits import ObjectiveOutcome, wish_of

if TYPE_CHECKING:
    from datetime import tzinfo

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.model.queues import Objective
    from admission.store.store import Store

_DEFAULT_WEEKS: Final = 8
_MOST_WEEKS: Final = 53
_NONE: Final = ObjectiveOutcome(0, 0, 0, 0.0, ())


class ObjectiveReports:
    """Handler of the report."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, request: web.Request) -> web.Response:
        """Return the report of the last `weeks`. Raises BadRequest."""
        zone = time_zone(request.query.get("timezone", ""))
        weeks, now = _weeks(request.query.get("weeks", "")), self._store.reports.now()
        only = set(request.query.getall("clusterqueue", []))
        names, bounds = _bounds(now, weeks, zone)
        wishes = {
            (name, part): wish
            for name, steps in (await self._store.wishes()).items()
            for part in range(weeks)
            if (not only or name in only) and (wish := wish_of(steps, bounds[part + 1])) is not None
        }
        items = []
        if wishes:
            outcomes = await self._store.outcomes({of: objective for of, (_, objective) in wishes.items()}, bounds)
            for name, part in sorted(wishes, key=lambda of: (of[0], -of[1])):
                since, objective = wishes[name, part]
                start, end = bounds[part], min(bounds[part + 1], now)
                head = {
                    "clusterQueue": name,
                    "week": names[part],
                    "from": format_time(start),
                    "to": format_time(end),
                    "partial": end < bounds[part + 1] or start < outcomes.kept_since,
                    "wishedSince": format_time(since),
                }
                items.append(head | _item(objective, outcomes.found.get((name, part), _NONE)))
        return reply(OBJECTIVE_REPORT.document(timezone=str(zone), items=items))


def _item(objective: Objective, outcome: ObjectiveOutcome) -> Document:
    return {
        "percentile": objective.percentile,
        "wishedSeconds": parse_duration(objective.wait),
        "workloads": outcome.workloads,
        "met": outcome.met,
        "waiting": outcome.waiting,
        "waitSeconds": round(outcome.wait, 3),
        "isMet": 100 * outcome.met >= objective.percentile * outcome.workloads,
        "obstacles": [
            {"reason": each.reason, "seconds": round(each.seconds, 3), "workloads": each.workloads}
            for each in outcome.obstacles
        ],
    }


def _weeks(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= _MOST_WEEKS):
        raise BadRequest(f'weeks: "{text}" is not a number from 1 to {_MOST_WEEKS}; give one such as {_DEFAULT_WEEKS}')
    return int(text or _DEFAULT_WEEKS)


def _bounds(now: float, weeks: int, zone: tzinfo) -> tuple[list[str], list[float]]:
    """Return the names of the last `weeks`, the present one included, and where they begin, and where the last ends.

    Weeks begin on Monday at midnight in `zone`, also where clocks change in between.
    """
    today = datetime.fromtimestamp(now, zone).date()
    first = today - timedelta(days=today.weekday() + 7 * (weeks - 1))
    mondays = [first + timedelta(days=7 * number) for number in range(weeks + 1)]
    names = [f"{day:%G-W%V}" for day in mondays[:-1]]
    return names, [datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in mondays]
