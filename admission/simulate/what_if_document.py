"""What-if answers as JSON documents: times in seconds, CPU in cores, other resources in base units."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from admission.simulate.what_if import Agreement, Comparison, CourseSummary, Goal, NeededQuota, Waits
    from admission.store.workloads.past import Past


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return the document of a comparison."""
    changed = comparison.changed
    return {
        "from": _time(comparison.start),
        "to": _time(comparison.end),
        "happened": _account(comparison.happened),
        "replayed": _account(comparison.replayed),
        **({} if changed is None else {"changed": _account(changed)}),
        "agreement": _agreement(comparison.agreement),
    }


def needed_document(needed: NeededQuota, goal: Goal, past: Past) -> dict[str, Any]:
    """Return the document of a search for the quota that a goal needs."""
    unit = _unit(goal.resource)
    return {
        "from": _time(past.start),
        "to": _time(past.end),
        "clusterQueue": goal.cluster_queue,
        "flavor": goal.flavor,
        "resource": goal.resource,
        "p90Seconds": goal.p90,
        "nominalQuota": needed.current / unit,
        **({} if needed.needed is None else {"neededQuota": needed.needed / unit}),
        "tried": [{"quota": quota / unit, **_waits(waits)} for quota, waits in needed.tried],
    }


def _account(account: CourseSummary) -> dict[str, Any]:
    return {
        "all": _waits(account.all),
        "clusterQueues": [{"clusterQueue": name, **_waits(waits)} for name, waits in account.queues.items()],
        "users": [{"user": name, **_waits(waits)} for name, waits in account.users.items()],
        "resources": [
            {
                "flavor": use.flavor,
                "resource": use.resource,
                "quotaSeconds": use.quota / _unit(use.resource),
                "usedSeconds": use.used / _unit(use.resource),
                "borrowedSeconds": use.borrowed / _unit(use.resource),
            }
            for use in account.resources
        ],
        "budgets": [
            {
                "budget": use.budget,
                "name": each.resource.name,
                **({"flavors": list(each.resource.flavors)} if each.resource.flavors else {}),
                "unit": each.resource.unit,
                "hours": each.resource.text(each.limit).replace(",", ""),
                "spent": each.resource.text(each.spent).replace(",", ""),
            }
            for use in account.budgets
            for each in use.sums
        ],
    }


def _waits(waits: Waits) -> dict[str, Any]:
    return {
        "workloads": waits.workloads,
        "waiting": waits.waiting,
        "waitSeconds": {
            "mean": round(waits.mean, 3),
            "p50": round(waits.p50, 3),
            "p90": round(waits.p90, 3),
            "longest": round(waits.longest, 3),
        },
        "preemptions": waits.preemptions,
    }


def _agreement(agreement: Agreement) -> dict[str, int]:
    return asdict(agreement)


def _unit(resource: str) -> int:
    """Return the amounts of the model in one core, byte or device."""
    return 1000 if resource == "cpu" else 1


def _time(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
