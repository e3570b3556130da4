"""The report `reports/fairness`: what ClusterQueues were entitled to and received, and who lent to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.http.responses import reply
from admission.api.registry import FAIRNESS_REPORT
from admission.api.resources.report_times import report_times

if TYPE_CHECKING:
    from aiohttp import web

    from admission.store.store import Store


class FairnessReports:
    """Handler of the report."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, request: web.Request) -> web.Response:
        """Return the report of the time in the query, of `cohort` if it is given. Raises BadRequest."""
        now = self._store.reports.now()
        times = report_times(request.query, now)
        selected = {name: request.query.get(name, "") for name in ("cohort", "including")}
        found = await self._store.fairness(start=times.start, end=min(times.end, now), **selected)
        items = [
            {
                "clusterQueue": name,
                "cohort": share.cohort,
                "resource": resource,
                "nominalSeconds": _plain(resource, share.nominal),
                "demandSeconds": _plain(resource, share.demand),
                "entitledSeconds": _plain(resource, share.entitled),
                "receivedSeconds": _plain(resource, share.received),
                "borrowedSeconds": _plain(resource, share.borrowed),
                "lentSeconds": _plain(resource, share.lent),
            }
            for (name, resource), share in found.shares.items()
            if share.nominal or share.demand
        ]
        loans = [
            {
                "lenderKind": loan.lender_kind,
                "lender": loan.lender,
                "borrower": loan.borrower,
                "flavor": loan.flavor,
                "resource": loan.resource,
                "amountSeconds": _plain(loan.resource, seconds),
            }
            for loan, seconds in found.loans.items()
        ]
        return reply(FAIRNESS_REPORT.document(**times.fields(found.start, found.end), items=items, loans=loans))


def _plain(resource: str, seconds: float) -> float:
    """Return amounts times seconds in cores instead of milli-CPU."""
    return round(seconds / 1000 if resource == "cpu" else seconds, 6)
