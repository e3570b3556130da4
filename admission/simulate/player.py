"""Player of a scenario on virtual time, cycle by cycle: workloads arrive, are admitted, preempted, and finish."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.engine import (
    Accounting,
    AdmissionFairSharing,
    Budgets,
    Engine,
    NamespaceChanged,
    Policy,
    QueueObjectChanged,
    Reservations,
    Transformation,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.fair_preemption import STRATEGIES
from admission.engine.vocabulary import NODE_FAILURES
from admission.model.quantity import parse_quantity
from admission.simulate.node_events import NodeEvents
from admission.simulate.scenario import admission_document, decimal, key_of, parse_duration, queue_objects, seconds
from admission.simulate.topology import topology_events, topology_rules
from admission.simulate.workloads import WorkloadReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine import Decisions
    from admission.engine.policies.contract import PolicyConfig
    from admission.model.workload import Admission, Workload
    from admission.simulate.scenario import Case

_QUIET = 6  # cycles without any change after which the play ends as "quiet"
_FLAPPING = 16  # cycles that repeat a pattern of 2 to 4 cycles after which the play ends as "flapping"
_VISIBLE = ("admitted", "preempted", "finished", "active", "inadmissible")  # parts of a report compared for changes


def _still(states: list[Any], at: int) -> bool:
    """Whether nothing visible happened in a cycle, and its state is that of the cycle before."""
    admitted, preempted, finished, *waiting = states[at]
    return not (admitted or preempted or finished) and at > 0 and waiting == states[at - 1][3:]


def policy_of(document: Mapping[str, Any]) -> Policy:
    """Return the engine's configuration for a scenario."""
    strategies = tuple(document.get("preemptionStrategies") or STRATEGIES)
    config = document.get("admissionFairSharing")
    policies: tuple[PolicyConfig, ...] = (Budgets(),) if document.get("budgets") else ()
    policies += (Reservations(),) if document.get("reservations") else ()
    if config:
        usage = AdmissionFairSharing(
            half_life=parse_duration(config.get("usageHalfLifeTime", "0s")),
            sampling_interval=parse_duration(config.get("usageSamplingInterval", "5m")),
            resource_weights={name: float(value) for name, value in (config.get("resourceWeights") or {}).items()},
        )
        policies = (usage, *policies)
    return Policy(
        fair_sharing=bool(document.get("fairSharing")),
        preemption_strategies=strategies,
        policies=policies,
        accounting=_accounting(document),
        topology=topology_rules(document),
        as_kueue=True,
    )


def _accounting(document: Mapping[str, Any]) -> Accounting:
    rules = document.get("resourceTransformations") or ()
    return Accounting(
        transformations=tuple(
            Transformation(
                rule["input"],
                {resource: parse_quantity(value) for resource, value in rule["outputs"].items()},
                replace=rule.get("strategy") == "Replace",
            )
            for rule in rules
        )
    )


class Player:
    """Simulates the environment of the engine for one scenario: arrivals, run times and evictions of workloads."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._clock = seconds(document.get("clock"))
        self._step = document.get("stepSeconds", 1)
        self._max_cycles = document.get("maxCycles", 60)
        self._policy = policy_of(document)
        self.engine = Engine(self._policy)
        reader = WorkloadReader(document)
        self._workloads = {key_of(manifest): reader.read(manifest) for manifest in document.get("workloads") or ()}
        self._arrivals = Counter(document.get("arrivals") or {})
        self._run_cycles: Mapping[str, int] = document.get("runCycles") or {}
        self._finish: dict[int, list[str]] = {}
        for entry in document.get("finish") or ():
            self._finish.setdefault(entry["afterCycle"], []).append(entry["workload"])
        self._ends: dict[str, int] = {}
        self._finished: list[str] = []
        self._last_event = max([*self._arrivals.values(), *self._finish, 1])
        self.admitted: dict[str, Admission] = {}
        self._keys = {given.workload.uid: key for key, given in self._workloads.items()}
        self._arrived: dict[str, Workload] = {}
        self._events = NodeEvents(
            document, self.engine, {key: given.workload for key, given in self._workloads.items()}
        )
        self._last_event = max(self._last_event, self._events.last)
        self._load(document)

    def _load(self, document: Mapping[str, Any]) -> None:
        for namespace in document.get("namespaces") or ():
            self.engine.observe(NamespaceChanged(namespace["name"], namespace.get("labels") or {}), now=self._clock)
        for change in topology_events(document):
            self.engine.observe(change, now=self._clock)
        for item in queue_objects(document):
            self.engine.observe(QueueObjectChanged(item), now=self._clock)
        for key, given in self._workloads.items():
            if given.admission is not None:
                event = WorkloadAdmitted(given.workload, given.admission, given.at, given.evicting)
                self.engine.observe(event, now=self._clock)
                self.admitted[key] = given.admission
                self._arrived[key] = given.workload

    def play(self, cycles: int | None = None) -> Case:
        """Play until nothing changes any more, or `cycles` cycles; return the reports of cycles and the final state."""
        reports: list[Case] = []
        states: list[Any] = []
        stopped = "maxCycles"
        for cycle in range(1, (cycles or self._max_cycles) + 1):
            report = self._play_one(cycle)
            reports.append(report)
            states.append([report[field] for field in _VISIBLE])
            if cycles is None and (reason := self._stop_reason(cycle, states)):
                stopped = reason
                break
        if stopped == "quiet":
            while len(reports) > max(1, self._events.ready_at) and _still(states, len(reports) - 1):
                del reports[-1]
        return {"cycles": reports, "final": self._final(), "stopped": stopped}

    def _stop_reason(self, cycle: int, states: list[Any]) -> str:
        """Return why the play ends after this cycle: `quiet` or `flapping`; "" if it goes on."""
        if cycle < self._last_event or any(end > cycle for end in self._ends.values()):
            return ""
        none_active = not states[-1][_VISIBLE.index("active")] and not self.engine.is_placing_again
        if none_active or (
            len(states) > _QUIET and all(_still(states, at) for at in range(len(states) - _QUIET, len(states)))
        ):
            return "quiet"
        decided = [state[:3] for state in states[-_FLAPPING:]]
        for period in (2, 3, 4):
            if len(decided) == _FLAPPING and any(map(any, decided)) and decided[:-period] == decided[period:]:
                return "flapping"
        return ""

    def _play_one(self, cycle: int) -> Case:
        now = self._clock + (cycle - 1) * self._step
        for key, given in self._workloads.items():
            if key not in self._arrived and given.admission is None and self._arrivals.get(key, 1) == cycle:
                self._arrived[key] = given.workload
                self.engine.observe(WorkloadPending(given.workload, fault=given.fault), now=now)
        decisions = self.engine.cycle(now)
        for admit in decisions.admitted:
            key = self._keys[admit.workload.uid]
            self.admitted[key] = admit.admission
            if key in self._run_cycles:
                self._ends[key] = cycle + self._run_cycles[key] - 1
        for reassign in decisions.reassigned:
            key = self._keys[reassign.workload.uid]
            self.admitted[key] = reassign.admission
            self._events.left(key)
        for evict in decisions.evicted:
            self._requeue(self._keys[evict.workload.uid], now, at_the_end=evict.to_queue_end)
        due = [key for key, end in self._ends.items() if end == cycle] + self._finish.get(cycle, [])
        finished = sorted(key for key in set(due) if key in self.admitted)
        self._finished += finished
        for key in finished:
            del self.admitted[key]
            self._ends.pop(key, None)
            self.engine.observe(WorkloadGone(self._workloads[key].workload.uid), now=now)
            del self._arrived[key]
            self._arrivals[key] = 0
            self._events.left(key)
        failed = {}
        for key, message in list(self._events.after(cycle, self.admitted, now)):
            failed[key] = {"reason": NODE_FAILURES, "message": message}
            self._requeue(key, now)
        return {**self._report(cycle, decisions, finished), **self._placement_report(decisions, failed)}

    def _requeue(self, key: str, now: float, *, at_the_end: bool = False) -> None:
        """Complete an eviction: the workload's quota is free, and it waits again, at the queue's end if so."""
        workload = self._workloads[key].workload
        if at_the_end:
            workload = replace(workload, queued_at=now)
        del self.admitted[key]
        self._ends.pop(key, None)
        self._events.left(key)
        self.engine.observe(WorkloadGone(workload.uid, requeue=workload), now=now)

    def _placement_report(self, decisions: Decisions, failed: Case) -> Case:
        """Return the parts of a report that only placement by topology has; those that are empty are left out."""
        evicted = {
            evict.workload.key: {"reason": evict.reason, "message": evict.message}
            for evict in decisions.evicted
            if evict.preemptor is None
        }
        reassigned = {each.workload.key: admission_document(each.admission) for each in decisions.reassigned}
        report: Case = {
            "reassigned": reassigned,
            "evicted": evicted,
            "evictedAfter": failed,
            "unhealthyNodes": {key: list(names) for key, names in self._events.unhealthy.items()},
        }
        return {field: value for field, value in report.items() if value}

    def _report(self, cycle: int, decisions: Decisions, finished: list[str]) -> Case:
        active, inadmissible = {}, {}
        for name in self.engine.cluster_queues():
            waiting = self.engine.pending(name)
            active[name] = sorted(workload.key for workload in waiting.active)
            inadmissible[name] = sorted(workload.key for workload in waiting.inadmissible)
        return {
            "cycle": cycle,
            "admitted": {admit.workload.key: admission_document(admit.admission) for admit in decisions.admitted},
            "preempted": {
                evict.workload.key: {
                    "by": self._keys.get(evict.preemptor or "", ""),
                    "reason": evict.preemption_reason or evict.reason,
                }
                for evict in decisions.evicted
                if evict.preemptor is not None
            },
            "finished": finished,
            "active": {name: keys for name, keys in active.items() if keys},
            "inadmissible": {name: keys for name, keys in inadmissible.items() if keys},
            "notAdmitted": {
                park.workload.key: {"reason": park.reason, "message": park.message} for park in decisions.parked
            },
        }

    def _final(self) -> Case:
        final = {
            "admitted": {key: admission_document(admission) for key, admission in sorted(self.admitted.items())},
            "pending": sorted(key for key in self._arrived if key not in self.admitted),
            "finished": sorted(self._finished),
            "usage": self.engine.usage(),
        }
        if self._policy.fair_sharing:
            queues, cohorts = self.engine.weighted_share()
            final["weightedShare"] = {name: decimal(value) for name, value in queues.items()}
            final["cohortWeightedShare"] = {name: decimal(value) for name, value in cohorts.items()}
        return final
