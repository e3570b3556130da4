"""What is said when all Jobs have ended: a table of the teams, the figures, and whether the promises were kept.

The terminal and the page show the same; so these are texts already, in rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.cli.demo.account import Phase
from admission.cli.demo.units import name_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.cli.demo.account import Account, TeamSeen


@dataclass(frozen=True, slots=True)
class Costs:
    """What the run cost outside of Sluice: its writes at the API server by HTTP method, and database transactions."""

    api_writes: Mapping[str, int]
    transactions: int


@dataclass(frozen=True, slots=True)
class Closing:
    """`rows` under `columns`, which `note` explains; `figures` are (what, how much), `promises` (kept?, sentence)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    figures: tuple[tuple[str, str], ...]
    promises: tuple[tuple[bool, str], ...]

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        return all(kept for kept, _ in self.promises)


def close(account: Account, costs: Costs, elapsed: float) -> Closing:
    """The end of a run that took `elapsed` real seconds."""
    quotas = [f"{name_of(resource)} quota" for resource in account.plan.shown]
    columns = (
        "Team",
        *quotas,
        f"{account.plan.things.capitalize()} done",
        "Mean wait",
        "p99 wait",
        f"{name_of(account.plan.shown[0])} used",
    )
    return Closing(
        columns=columns,
        rows=tuple(_row(account, seen) for seen in account.teams.values()),
        note=(
            "Waits are in sandbox time, in brackets in real time. Used is in proportion to the team's own quota, "
            f"while {account.plan.things} of the team waited: more than 100% was borrowed."
        ),
        figures=_figures(account, costs, elapsed),
        promises=(
            _all_ran(account),
            *_as_often_as_right(account),
            # What is evicted may be so before its last pod was let run.
            *([_started_whole(account)] if account.plan.kinds and not account.plan.evicts else []),
            _quota_kept(account),
        ),
    )


def _row(account: Account, seen: TeamSeen) -> tuple[str, ...]:
    speed = account.plan.speed
    return (
        seen.team.name,
        *(shown(resource, seen.team.nominal[resource]) for resource in account.plan.shown),
        str(seen.jobs[Phase.DONE]),
        _wait(seen.wait_mean(), speed),
        _wait(seen.wait_p99(), speed),
        f"{seen.utilisation(account.plan.shown[0]):.0%}",
    )


def _wait(real: float, speed: float) -> str:
    """Of sandbox time, and in brackets of real time."""
    minutes, seconds = divmod(round(real * speed), 60)
    long = f"{minutes // 60}h {minutes % 60:02}m" if minutes >= 100 else f"{minutes}m {seconds:02}s"
    return f"{long} ({real:.1f} s)"


def _figures(account: Account, costs: Costs, elapsed: float) -> tuple[tuple[str, str], ...]:
    jobs, speed, things = len(account.plan.jobs), account.plan.speed, account.plan.things
    thing = things.removesuffix("s")
    writes = sum(costs.api_writes.values())
    by_method = ", ".join(f"{count} {method}" for method, count in sorted(costs.api_writes.items())) or "none"
    used = [
        (f"{name_of(resource)} quota used while {things} waited", _used(account, resource))
        for resource in account.plan.shown
    ]
    return (
        *used,
        ("API writes by Sluice", f"{writes / jobs:.2f} for each {thing} ({by_method})"),
        (
            "Database transactions",
            f"{costs.transactions / jobs:.3f} for each {thing} ({costs.transactions} in all)",
        ),
        ("Time", f"{elapsed:.0f} s, in the sandbox {elapsed * speed / 60:.0f} minutes"),
    )


def _used(account: Account, resource: str) -> str:
    by_jobs, by_pods = account.utilisation(resource), account.utilisation(resource, "bound")
    return f"{by_jobs:.1%} by running {account.plan.things}, {by_pods:.1%} by their pods on nodes"


def _all_ran(account: Account) -> tuple[bool, str]:
    planned, done = len(account.plan.jobs), account.count(Phase.DONE)
    if done == planned:
        return True, f"all {planned} {account.plan.things} ran"
    others = ", ".join(f"{account.count(phase)} {phase}" for phase in Phase if phase is not Phase.DONE)
    return False, f"only {done} of {planned} {account.plan.things} ran to their end ({others})"


def _started_whole(account: Account) -> tuple[bool, str]:
    parts = [key for key in account.jobs if not account.wholes.started_whole(key)]
    if parts:
        return False, f"{len(parts)} {account.plan.things} never had all their pods at once: {parts[0]}"
    return True, "each was started as a whole"


def _as_often_as_right(account: Account) -> tuple[tuple[bool, str], ...]:
    return (_came_back(account), _as_written(account)) if account.plan.evicts else (_once(account),)


def _came_back(account: Account) -> tuple[bool, str]:
    evicted = [job for job in account.jobs.values() if job.starts > 1]
    short = [key for key, job in account.jobs.items() if job.succeeded != job.wanted]
    if short:
        return False, f"{len(short)} Jobs ended without all their pods: {short[0]}"
    if not evicted:
        return False, "no Job was evicted, so that nothing was shown"
    return True, f"{len(evicted)} Jobs were evicted ({account.evictions} times in all), queued again and came back"


def _as_written(account: Account) -> tuple[bool, str]:
    if account.altered:
        return False, f"{len(account.altered)} Jobs waited otherwise than their users wrote them: {account.altered[0]}"
    return True, "each of them was given back exactly as its user had written it"


def _once(account: Account) -> tuple[bool, str]:
    wrong = [
        f"{key} was started {job.starts} times with {len(account.pods_of[key])} pods instead of {job.wanted}"
        for key, job in account.jobs.items()
        if (job.starts, job.succeeded, len(account.pods_of[key])) != (1, job.wanted, job.wanted)
    ]
    if not wrong:
        return True, "each Job ran exactly once" if account.plan.things == "Jobs" else "each ran exactly once"
    return False, f"{len(wrong)} {account.plan.things} did not run exactly once: {wrong[0]}"


def _quota_kept(account: Account) -> tuple[bool, str]:
    live = account.live
    if not live.checks:
        return False, "no pod was seen, so that quota was never checked"
    if not live.broken:
        return True, f"quota was never exceeded (checked {live.checks} times from the API server's side)"
    return False, f"quota was exceeded in {live.broken} of {live.checks} checks: {'; '.join(live.violations)}"
