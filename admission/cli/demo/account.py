"""What the API server's objects say about the promises: who holds how much, who waited how long, was quota kept.

It knows nothing of Sluice: it reads Jobs and pods as anyone can see them, and does its own sums. No I/O and no clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from admission.cli.demo.live_pods import LivePods, asked_by, is_gated
from admission.cli.demo.wholes import Wholes, workload_of

if TYPE_CHECKING:
    from admission.cli.demo.plan import Plan, Team

Object: TypeAlias = dict[str, Any]
Amounts: TypeAlias = dict[str, int]


class Phase(StrEnum):
    """Where a Job is. It RUNS until no pod of it is left."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class JobSeen:
    """One Job as it was seen so far. Times are the account's, in real seconds."""

    team: str
    phase: Phase | None
    requests: Amounts
    """Of one pod."""
    parallelism: int
    wanted: int
    """How many pods have to succeed."""
    first_seen: float
    template: Object
    """The pod template as its user wrote it."""
    started: float | None = None
    suspended: bool = True
    starts: int = 0
    """How often it was unsuspended; more than 1 is allowed only after an eviction."""
    as_written: bool = True
    """Whether its template was seen as its user wrote it since the last start."""
    succeeded: int = 0

    @property
    def amounts(self) -> Amounts:
        """Of the pods that it needs at a time: towards its end they are fewer."""
        pods = max(0, min(self.parallelism, self.wanted - self.succeeded))
        return {resource: pods * value for resource, value in self.requests.items()}


@dataclass(slots=True)
class TeamSeen:
    """What a team's Jobs hold and want now, and the sums over time."""

    team: Team
    amounts: dict[Phase, Amounts]
    """Of all Jobs in that phase together."""
    jobs: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))
    waits: list[float] = field(default_factory=list)
    """Of each Job that has started, real seconds from its creation."""
    waiting_seconds: float = 0.0
    used_area: dict[str, float] = field(default_factory=dict)
    """Amount times seconds, while Jobs of the team were waiting."""

    @property
    def used(self) -> Amounts:
        """Needed by Jobs that run."""
        return self.amounts[Phase.RUNNING]

    @property
    def wanted(self) -> Amounts:
        """Asked for by Jobs that wait."""
        return self.amounts[Phase.WAITING]

    def wait_mean(self) -> float:
        """Real seconds; 0 if no Job has started."""
        return sum(self.waits) / len(self.waits) if self.waits else 0.0

    def wait_p99(self) -> float:
        """Real seconds that 99 of 100 Jobs did not exceed (nearest rank); 0 if no Job has started."""
        ranked = sorted(self.waits)
        return ranked[math.ceil(0.99 * len(ranked)) - 1] if ranked else 0.0

    def utilisation(self, resource: str) -> float:
        """Used in proportion to the nominal quota while Jobs of the team waited: above 1 thanks to borrowing."""
        area = self.team.nominal[resource] * self.waiting_seconds
        return self.used_area.get(resource, 0.0) / area if area else 0.0


class Account:
    """Fed with each version of each Job and pod in the server's order; answers at any time. Times must not go back."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.teams = {
            team.name: TeamSeen(
                team,
                amounts={phase: dict.fromkeys(plan.resources, 0) for phase in Phase},
            )
            for team in plan.teams
        }
        self.jobs: dict[str, JobSeen] = {}
        self.live = LivePods(
            {team.name: {resource: plan.limit(team, resource) for resource in plan.resources} for team in plan.teams},
            {resource: plan.total(resource) for resource in plan.resources},
        )
        """What pods ask for, and whether that was ever more than quota."""
        self.moves = 0
        """How often a Job went from one phase to another."""
        self.evictions = 0
        """How often a Job was suspended again."""
        self.altered: list[str] = []
        """The Jobs that were started again without having been given back as they were written."""
        self.pods_of: defaultdict[str, set[str]] = defaultdict(set)
        """The uids of all pods that a Job ever had, by the Job's `namespace/name`."""
        self.wholes = Wholes(plan)
        """Whether each started as a whole."""
        self._workloads: dict[str, str] = {}
        """What each pod is part of."""
        self._now = 0.0
        self._areas = {name: dict.fromkeys(plan.resources, 0.0) for name in ("used", "bound", "allowed")}

    def advance(self, now: float) -> None:
        """Let time pass up to `now`; what was seen until here held all along. Real seconds from the start."""
        passed, self._now = now - self._now, now
        if not any(team.jobs[Phase.WAITING] for team in self.teams.values()):
            return
        for team in self.teams.values():
            if team.jobs[Phase.WAITING]:
                team.waiting_seconds += passed
                for resource, used in team.used.items():
                    team.used_area[resource] = team.used_area.get(resource, 0.0) + used * passed
        for resource in self.plan.resources:
            self._areas["used"][resource] += passed * self.used(resource)
            self._areas["bound"][resource] += passed * self.bound(resource)
            self._areas["allowed"][resource] += passed * self._allowed(resource)

    def job(self, key: str, job: Object | None) -> None:
        """A Job is as `job` says; None: it is gone."""
        if job is None:
            gone = self.jobs.pop(key, None)
            if gone is not None:
                self._move(gone, None, gone.succeeded)
            return
        seen = self.jobs.get(key)
        if seen is None:
            team = job["metadata"]["namespace"]
            if team not in self.teams:
                return
            pods = job["spec"].get("parallelism", 1)
            requests = asked_by(job["spec"]["template"]["spec"], self.plan.resources)
            wanted = job["spec"].get("completions") or pods
            seen = self.jobs[key] = JobSeen(
                team, None, requests, pods, wanted, first_seen=self._now, template=job["spec"]["template"]
            )
        elif not seen.as_written:
            seen.as_written = job["spec"]["template"] == seen.template
        self._suspension(key, seen, suspended=bool(job["spec"].get("suspend")))
        self._move(seen, _phase(job), job.get("status", {}).get("succeeded") or 0)

    def pod(self, key: str, pod: Object | None) -> None:
        """A pod is as `pod` says; None: it is gone."""
        if pod is not None:
            self._workloads[key] = workload_of(pod)
            self.pods_of[self._workloads[key]].add(pod["metadata"]["uid"])
        self.live.pod(key, None if pod is None or is_gated(pod) else pod, self._now)
        self._follow(key, pod)

    def submitted(self, workload: str) -> None:
        """What is to be seen by its pods alone was submitted."""
        if (job := self.wholes.as_job(workload)) is not None:
            self.job(workload, job)

    def _follow(self, key: str, pod: Object | None) -> None:
        workload = self._workloads.get(key, "")
        self.wholes.pod(key, workload, pod)
        self.submitted(workload)

    def used(self, resource: str) -> int:
        """Needed by all Jobs that run now."""
        return sum(team.used[resource] for team in self.teams.values())

    def bound(self, resource: str) -> int:
        """Of all pods that have a node and have not ended."""
        return sum(amounts[resource] for amounts in self.live.on_nodes.values())

    def count(self, phase: Phase) -> int:
        """How many Jobs are in `phase` now."""
        return sum(team.jobs[phase] for team in self.teams.values())

    def running(self) -> list[str]:
        """The Jobs that run now, by name."""
        return sorted(key for key, job in self.jobs.items() if job.phase is Phase.RUNNING)

    def finished(self) -> bool:
        """Whether each planned Job has ended, well or not."""
        return self.count(Phase.DONE) + self.count(Phase.FAILED) >= len(self.plan.jobs)

    def utilisation(self, resource: str, of: str = "used") -> float:
        """`used` by Jobs (or `bound` by pods) in proportion to what quota allowed, over the time in which Jobs waited.

        Allowed is the whole cohort, less what no waiting Job may or wants to use: borrowing limits, and few Jobs.
        """
        allowed = self._areas["allowed"][resource]
        return self._areas[of][resource] / allowed if allowed else 0.0

    def _allowed(self, resource: str) -> int:
        most = sum(
            max(
                seen.used[resource],
                min(self.plan.limit(seen.team, resource), seen.used[resource] + seen.wanted[resource]),
            )
            for seen in self.teams.values()
        )
        return min(self.plan.total(resource), most)

    def _suspension(self, key: str, job: JobSeen, *, suspended: bool) -> None:
        """What counts as a start or an eviction: its phase may waver, as pods of a Job stopped at once come late."""
        if job.suspended and not suspended:
            if not job.as_written:
                self.altered.append(key)
            job.starts += 1
            job.as_written = False
            if job.started is None:
                job.started = self._now
                self.teams[job.team].waits.append(self._now - job.first_seen)
        elif suspended and not job.suspended:
            self.evictions += 1
        job.suspended = suspended

    def _move(self, job: JobSeen, phase: Phase | None, succeeded: int) -> None:
        """The Job is in `phase` now, None if it is gone, and so many pods of it have succeeded."""
        if (phase, succeeded) == (job.phase, job.succeeded):
            return
        team = self.teams[job.team]
        if job.phase is not None:
            team.jobs[job.phase] -= 1
            _add(team.amounts[job.phase], job.amounts, -1)
        self.moves += phase is not job.phase
        job.phase, job.succeeded = phase, succeeded
        if phase is not None:
            team.jobs[phase] += 1
            _add(team.amounts[phase], job.amounts, 1)


def _phase(job: Object) -> Phase:
    status = job.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return Phase.DONE if condition["type"] == "Complete" else Phase.FAILED
    if job["spec"].get("suspend") and not status.get("active") and not status.get("terminating"):
        return Phase.WAITING
    return Phase.RUNNING


def _add(to: Amounts, amounts: Amounts, sign: int) -> None:
    for resource, value in amounts.items():
        to[resource] += sign * value
