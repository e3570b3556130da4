"""Result of a scene after all Jobs have finished: a table of the teams, measurements, and the checked promises.

Terminal and page show the same result, so it consists of formatted texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.cli.demo.account import Phase
from admission.cli.demo.plan import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.cli.demo.account import ObservedTeam, SceneAccount

_NAMES: Final = {"cpu": "CPU", GPU: "GPU", "memory": "Memory"}


def name_of(resource: str) -> str:
    """Return the display name of a resource: `CPU` for `cpu`."""
    return _NAMES.get(resource, resource)


def plain(resource: str, amount: int) -> float:
    """Return an amount in units of the resource: 1.5 for 1500 milli-CPU."""
    return amount / 1000 if resource == "cpu" else float(amount)


def shown(resource: str, amount: int) -> str:
    """Return an amount as text, with at most one decimal."""
    return f"{round(plain(resource, amount), 1):g}"


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of a run: Sluice's writes to the API server by HTTP method, and its database transactions."""

    api_writes: Mapping[str, int]
    transactions: int
    queued_events: int = 0
    """How many of the writes are of Events that are still to be written."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Result of a scene: `rows` with a `note`; `figures` are (name, value), `promises` are (kept, message)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    figures: tuple[tuple[str, str], ...]
    promises: tuple[tuple[bool, str], ...]

    @property
    def kept(self) -> bool:
        """Whether all promises were kept."""
        return all(kept for kept, _ in self.promises)


def close(account: SceneAccount, costs: Costs, elapsed: float) -> Closing:
    """Return the result of a run that took `elapsed` real seconds."""
    quotas = [f"{name_of(resource)} quota" for resource in account.plan.shown]
    columns = (
        "Team",
        *quotas,
        f"{account.plan.noun.capitalize()} done",
        "Mean wait",
        "p99 wait",
        f"{name_of(account.plan.shown[0])} used",
    )
    return Closing(
        columns=columns,
        rows=tuple(_row(account, seen) for seen in account.teams.values()),
        note=(
            "Waits are in sandbox time, with real time in brackets. The last column is the average usage relative to "
            f"the team's nominal quota while its {account.plan.noun} waited; above 100% is borrowed quota."
        ),
        figures=_figures(account, costs, elapsed),
        promises=(
            _all_ran(account),
            *_as_often_as_right(account),
            # Not if there are evictions: an object may be evicted before its last pod is ungated.
            *([_started_whole(account)] if account.plan.kinds and not account.plan.evicts else []),
            _quota_kept(account),
        ),
    )


def _row(account: SceneAccount, observed: ObservedTeam) -> tuple[str, ...]:
    speed = account.plan.speed
    return (
        observed.team.name,
        *(shown(resource, observed.team.nominal[resource]) for resource in account.plan.shown),
        str(observed.jobs[Phase.DONE]),
        _wait(observed.wait_mean(), speed),
        _wait(observed.wait_p99(), speed),
        f"{observed.utilisation(account.plan.shown[0]):.0%}",
    )


def _wait(real: float, speed: float) -> str:
    """Return a wait in sandbox time, with real time in brackets; `real` is in seconds."""
    minutes, seconds = divmod(round(real * speed), 60)
    long = f"{minutes // 60}h {minutes % 60:02}m" if minutes >= 100 else f"{minutes}m {seconds:02}s"
    return f"{long} ({real:.1f} s)"


def _figures(account: SceneAccount, costs: Costs, elapsed: float) -> tuple[tuple[str, str], ...]:
    jobs, speed, nouns = len(account.plan.jobs), account.plan.speed, account.plan.noun
    noun = nouns.removesuffix("s")
    writes = sum(costs.api_writes.values())
    by_method = ", ".join(f"{count} {method}" for method, count in sorted(costs.api_writes.items())) or "none"
    if costs.queued_events:
        by_method += f" with {costs.queued_events} Events to come"
    used = [
        (f"{name_of(resource)} quota used while {nouns} waited", _used(account, resource))
        for resource in account.plan.shown
    ]
    return (
        *used,
        ("API writes by Sluice", f"{writes / jobs:.2f} per {noun} ({by_method})"),
        (
            "Database transactions",
            f"{costs.transactions / jobs:.3f} per {noun} ({costs.transactions} in total)",
        ),
        ("Time", f"{elapsed:.0f} s ({elapsed * speed / 60:.0f} minutes of sandbox time)"),
    )


def _used(account: SceneAccount, resource: str) -> str:
    by_jobs, by_pods = account.utilisation(resource), account.utilisation(resource, "bound")
    return f"{by_jobs:.1%} by running {account.plan.noun}, {by_pods:.1%} by their pods on nodes"


def _all_ran(account: SceneAccount) -> tuple[bool, str]:
    planned, done = len(account.plan.jobs), account.count(Phase.DONE)
    if done == planned:
        return True, f"all {planned} {account.plan.noun} ran"
    others = ", ".join(f"{account.count(phase)} {phase}" for phase in Phase if phase is not Phase.DONE)
    return False, f"only {done} of {planned} {account.plan.noun} ran to completion ({others})"


def _started_whole(account: SceneAccount) -> tuple[bool, str]:
    partial = [key for key in account.jobs if not account.gangs.has_started(key)]
    if partial:
        return False, f"{len(partial)} {account.plan.noun} did not start with all their pods: {partial[0]}"
    return True, "each started with all its pods"


def _as_often_as_right(account: SceneAccount) -> tuple[tuple[bool, str], ...]:
    return (_came_back(account), _as_written(account)) if account.plan.evicts else (_once(account),)


def _came_back(account: SceneAccount) -> tuple[bool, str]:
    evicted = [job for job in account.jobs.values() if job.starts > 1]
    short = [key for key, job in account.jobs.items() if job.succeeded != job.wanted]
    if short:
        return False, f"{len(short)} Jobs finished without running all their pods: {short[0]}"
    if not evicted:
        return False, "no Job was evicted, so eviction was not shown"
    return True, f"{len(evicted)} Jobs were evicted ({account.evictions} evictions), requeued and ran later"


def _as_written(account: SceneAccount) -> tuple[bool, str]:
    if account.altered:
        return False, f"{len(account.altered)} Jobs were not restored as their users wrote them: {account.altered[0]}"
    return True, "each evicted Job was restored exactly as its user wrote it"


def _once(account: SceneAccount) -> tuple[bool, str]:
    wrong = [
        f"{key} was started {job.starts} times with {len(account.pods_of[key])} pods instead of {job.wanted}"
        for key, job in account.jobs.items()
        if (job.starts, job.succeeded, len(account.pods_of[key])) != (1, job.wanted, job.wanted)
    ]
    if not wrong:
        return True, "each Job ran exactly once" if account.plan.noun == "Jobs" else "each ran exactly once"
    return False, f"{len(wrong)} {account.plan.noun} did not run exactly once: {wrong[0]}"


def _quota_kept(account: SceneAccount) -> tuple[bool, str]:
    live = account.live
    if not live.checks:
        return False, "no pod was observed, so quota was never checked"
    if not live.broken:
        return True, f"quota was never exceeded ({live.checks} checks of the pods in the API server)"
    return False, f"quota was exceeded in {live.broken} of {live.checks} checks: {'; '.join(live.violations)}"
