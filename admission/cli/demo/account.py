"""Accounting of a demo from the objects of the API server: usage and waiting times of teams, and checks of quota.

It uses only Jobs and pods, no data of Sluice. No I/O and no clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from admission.cli.demo.gangs import Gangs, workload_of
from admission.cli.demo.live_pods import LivePods, is_gated, requests_of

if TYPE_CHECKING:
    from admission.cli.demo.plan import ScenePlan, Team

Object: TypeAlias = dict[str, Any]
Amounts: TypeAlias = dict[str, int]


class Phase(StrEnum):
    """Phase of a Job. A suspended Job is RUNNING until none of its pods is left."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class ObservedJob:
    """State of a Job as observed so far. Times are real seconds since the start of the account."""

    team: str
    phase: Phase | None
    requests: Amounts
    """Requests of one pod."""
    parallelism: int
    wanted: int
    """Number of pods that have to succeed."""
    first_seen: float
    template: Object
    """The pod template as its user wrote it."""
    started: float | None = None
    suspended: bool = True
    starts: int = 0
    """Number of times it was unsuspended; more than 1 is correct only after evictions."""
    as_written: bool = True
    """Whether its template has been as its user wrote it at some time since the last start."""
    succeeded: int = 0

    @property
    def amounts(self) -> Amounts:
        """Requests of the pods that run at the same time; towards the end of the Job these are fewer."""
        pods = max(0, min(self.parallelism, self.wanted - self.succeeded))
        return {resource: pods * value for resource, value in self.requests.items()}


@dataclass(slots=True)
class ObservedTeam:
    """Current requests of a team's Jobs, and sums over time."""

    team: Team
    amounts: dict[Phase, Amounts]
    """Total requests of the Jobs in each phase."""
    jobs: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))
    waits: list[float] = field(default_factory=list)
    """Real seconds from creation to first start, of each Job that has started."""
    waiting_seconds: float = 0.0
    """Real seconds during which Jobs of the team were waiting."""
    used_area: dict[str, float] = field(default_factory=dict)
    """Integral of the used amount over time (amount times seconds) while Jobs of the team were waiting."""

    @property
    def used(self) -> Amounts:
        """Requests of running Jobs."""
        return self.amounts[Phase.RUNNING]

    @property
    def wanted(self) -> Amounts:
        """Requests of waiting Jobs."""
        return self.amounts[Phase.WAITING]

    def wait_mean(self) -> float:
        """Return the mean wait in real seconds; 0 if no Job has started."""
        return sum(self.waits) / len(self.waits) if self.waits else 0.0

    def wait_p99(self) -> float:
        """Return the 99th percentile of the waits in real seconds (nearest rank); 0 if no Job has started."""
        ranked = sorted(self.waits)
        return ranked[math.ceil(0.99 * len(ranked)) - 1] if ranked else 0.0

    def utilisation(self, resource: str) -> float:
        """Return used quota relative to nominal quota while Jobs of the team waited; above 1 with borrowed quota."""
        area = self.team.nominal[resource] * self.waiting_seconds
        return self.used_area.get(resource, 0.0) / area if area else 0.0


class SceneAccount:
    """Accounting of a plan, updated with each version of each Job and pod in the server's order.

    Can be queried at any time. Times must not decrease.
    """

    def __init__(self, plan: ScenePlan) -> None:
        self.plan = plan
        self.teams = {
            team.name: ObservedTeam(
                team,
                amounts={phase: dict.fromkeys(plan.resources, 0) for phase in Phase},
            )
            for team in plan.teams
        }
        self.jobs: dict[str, ObservedJob] = {}
        self.live = LivePods(
            {team.name: {resource: plan.limit(team, resource) for resource in plan.resources} for team in plan.teams},
            {resource: plan.total(resource) for resource in plan.resources},
        )
        """Requests of live pods, and whether they ever exceeded quota."""
        self.moves = 0
        """Number of phase changes of Jobs."""
        self.evictions = 0
        """Number of times that a running Job was suspended."""
        self.altered: list[str] = []
        """Keys of Jobs that were started again without having been restored as their users wrote them."""
        self.pods_of: defaultdict[str, set[str]] = defaultdict(set)
        """Uids of all pods that a Job ever had, by the Job's key `namespace/name`."""
        self.gangs = Gangs(plan)
        """Observes whether each object started all-or-nothing."""
        self._workloads: dict[str, str] = {}
        """Key of the workload of each pod, by the pod's key."""
        self._now = 0.0
        self._areas = {name: dict.fromkeys(plan.resources, 0.0) for name in ("used", "bound", "allowed")}

    def advance(self, now: float) -> None:
        """Advance the clock to `now`, in real seconds since the start. The state was constant since the last update."""
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
        """Update the Job of key `namespace/name`; None if it was deleted.

        Others are ignored: the Job by which a RayJob is submitted has its name.
        """
        if self.gangs.as_job(key) is None:
            self._observe(key, job)

    def _observe(self, key: str, job: Object | None) -> None:
        if job is None:
            deleted = self.jobs.pop(key, None)
            if deleted is not None:
                self._move(deleted, None, deleted.succeeded)
            return
        seen = self.jobs.get(key)
        if seen is None:
            team = job["metadata"]["namespace"]
            if team not in self.teams:
                return
            pods = job["spec"].get("parallelism", 1)
            requests = requests_of(job["spec"]["template"]["spec"], self.plan.resources)
            wanted = job["spec"].get("completions") or pods
            seen = self.jobs[key] = ObservedJob(
                team, None, requests, pods, wanted, first_seen=self._now, template=job["spec"]["template"]
            )
        elif not seen.as_written:
            seen.as_written = job["spec"]["template"] == seen.template
        self._suspension(key, seen, suspended=bool(job["spec"].get("suspend")))
        self._move(seen, _phase(job), job.get("status", {}).get("succeeded") or 0)

    def pod(self, key: str, pod: Object | None) -> None:
        """Update the pod of key `namespace/name`; None if it was deleted."""
        if pod is not None:
            self._workloads[key] = workload_of(pod)
            self.pods_of[self._workloads[key]].add(pod["metadata"]["uid"])
        self.live.pod(key, None if pod is None or is_gated(pod) else pod, self._now)
        self._follow(key, pod)

    def submitted(self, workload: str) -> None:
        """Note that an object was submitted; kinds other than Jobs are observed only by their pods."""
        if (job := self.gangs.as_job(workload)) is not None:
            self._observe(workload, job)

    def _follow(self, key: str, pod: Object | None) -> None:
        workload = self._workloads.get(key, "")
        self.gangs.pod(key, workload, pod)
        self.submitted(workload)

    def used(self, resource: str) -> int:
        """Return the requests of all running Jobs."""
        return sum(team.used[resource] for team in self.teams.values())

    def bound(self, resource: str) -> int:
        """Return the requests of all live pods that are bound to a node."""
        return sum(amounts[resource] for amounts in self.live.on_nodes.values())

    def count(self, phase: Phase) -> int:
        """Return the number of Jobs in `phase`."""
        return sum(team.jobs[phase] for team in self.teams.values())

    def running(self) -> list[str]:
        """Return the sorted keys of running Jobs."""
        return sorted(key for key, job in self.jobs.items() if job.phase is Phase.RUNNING)

    def finished(self) -> bool:
        """Whether each planned Job has finished, successfully or not."""
        return self.count(Phase.DONE) + self.count(Phase.FAILED) >= len(self.plan.jobs)

    def utilisation(self, resource: str, of: str = "used") -> float:
        """Return the quota `used` by Jobs (or `bound` by pods) relative to the usable quota, while Jobs waited.

        Usable is the quota of the whole cohort, less what the waiting Jobs could not use because of borrowing limits or
        because they requested less.
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

    def _suspension(self, key: str, job: ObservedJob, *, suspended: bool) -> None:
        """Count starts and evictions by `suspend`; the phase may change late, since pods appear after a suspension."""
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

    def _move(self, job: ObservedJob, phase: Phase | None, succeeded: int) -> None:
        """Update phase (None: deleted) and number of succeeded pods of a Job, and the sums of its team."""
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
