"""Player of a scenario on virtual time, cycle by cycle: what arrives, is admitted, preempted, ends; nodes that fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.engine import (
    Accounting,
    AdmissionFairSharing,
    Budgets,
    ChecksReady,
    Engine,
    NamespaceChanged,
    NodeChanged,
    NodeDeleted,
    NodesFailed,
    PodAdditions,
    PodEnded,
    Policy,
    QueueObjectChanged,
    Reservations,
    Transformation,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.fair_preemption import STRATEGIES
from admission.engine.topology.nodes import untolerated
from admission.engine.topology.replacement import on_node
from admission.engine.vocabulary import NODE_FAILURES
from admission.kinds.placement import node_state
from admission.model.quantity import parse_quantity
from admission.model.workload import Toleration
from admission.simulate.scenario import admission_document, decimal, key_of, parse_duration, queue_objects, seconds
from admission.simulate.workloads import WorkloadReader, pod_event, topology_events, topology_rules, written_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.engine import Decisions
    from admission.engine.policies.contract import PolicyConfig
    from admission.engine.topology.nodes import NodeState
    from admission.model.workload import Admission, PodSetAssignment, Workload
    from admission.simulate.scenario import Case

_MANY_FAILURES = "Workload eviction triggered due to multiple TAS assigned node failures, including: "


class NodeEvents:
    """The events of a scenario, by cycle; all workloads' pods on a failing node count as ended."""

    def __init__(self, document: Mapping[str, Any], engine: Engine, workloads: Mapping[str, Workload]) -> None:
        self._engine = engine
        self._workloads = workloads
        """By `namespace/name`."""
        self._nodes = {manifest["metadata"]["name"]: manifest for manifest in document.get("nodes") or ()}
        self._pods = {key_of(manifest): manifest for manifest in document.get("pods") or ()}
        self._tolerations: dict[str, tuple[Toleration, ...]] = {}
        for manifest in document.get("resourceFlavors") or ():
            spec = manifest.get("spec") or {}
            self._tolerations[manifest["metadata"]["name"]] = tuple(map(_toleration, spec.get("tolerations") or ()))
        self._events: dict[int, list[tuple[str, Mapping[str, Any]]]] = {}
        if topology_rules(document) is not None:
            for kind in ("nodeEvents", "podEvents", "checkEvents"):
                for event in document.get(kind) or ():
                    self._events.setdefault(event["afterCycle"], []).append((kind, event))
        self._additions: dict[str, Mapping[str, PodAdditions]] = {}
        self.unhealthy: dict[str, list[str]] = {}
        """Failed nodes of each workload that has pods on them."""
        self.ready_at = 0
        """The last cycle after which the admission checks of a workload became Ready."""
        self.last = max(self._events, default=0)
        """The last cycle with an event."""

    def after(self, cycle: int, admitted: Mapping[str, Admission], now: float) -> Iterator[tuple[str, str]]:
        """Apply the events after a cycle; yield the workloads that are to be evicted for them, with the message."""
        for kind, event in self._events.get(cycle, ()):
            if kind == "podEvents":
                self._change_pod(event, now)
            elif kind == "checkEvents":
                self._check(event, admitted, now)
                self.ready_at = cycle
            elif name := self._change_node(event, now):
                yield from self._judge(name, admitted, now)

    def left(self, key: str) -> None:
        """A workload has lost its quota, or has other nodes."""
        self.unhealthy.pop(key, None)

    def _change_pod(self, event: Mapping[str, Any], now: float) -> None:
        if "add" in event:
            manifest = event["add"]
            self._pods[key_of(manifest)] = manifest
            self._engine.observe(pod_event(manifest), now=now)
        elif event["pod"] in self._pods:
            if event.get("delete"):
                del self._pods[event["pod"]]
                self._engine.observe(PodEnded(event["pod"]), now=now)
            else:
                manifest = self._pods[event["pod"]]
                manifest = self._pods[event["pod"]] = {**manifest, "status": {"phase": event["phase"]}}
                self._engine.observe(pod_event(manifest), now=now)

    def _change_node(self, event: Mapping[str, Any], now: float) -> str:
        """Apply an event of a node, and return the node's name; "" if there is no such node."""
        if "add" in event:
            manifest = event["add"]
        elif event["node"] not in self._nodes:
            return ""
        elif event.get("delete"):
            del self._nodes[event["node"]]
            self._engine.observe(NodeDeleted(event["node"]), now=now)
            return str(event["node"])
        else:
            manifest = _changed(self._nodes[event["node"]], event)
        name = str(manifest["metadata"]["name"])
        self._nodes[name] = manifest
        self._engine.observe(NodeChanged(written_node(manifest)), now=now)
        return name

    def _judge(self, name: str, admitted: Mapping[str, Admission], now: float) -> Iterator[tuple[str, str]]:
        """Tell the engine of which workloads the node has failed; yield those that had another failed node."""
        node = node_state(self._nodes[name]) if name in self._nodes else None
        for key, admission in sorted(admitted.items()):
            placed = [
                pod_set
                for pod_set in admission.pod_sets
                if pod_set.topology is not None and on_node(pod_set.topology, name)
            ]
            known = self.unhealthy.get(key, [])
            failed = bool(placed) and (node is None or not node.ready or self._repelled(key, placed, node))
            if failed is (name in known):
                continue
            if failed and known:
                yield key, f"{_MANY_FAILURES}{', '.join([*known, name])}"
                continue
            known = [*known, name] if failed else [each for each in known if each != name]
            self.unhealthy[key] = known
            if not known:
                del self.unhealthy[key]
            self._engine.observe(NodesFailed(self._workloads[key].uid, tuple(known)), now=now)

    def _repelled(self, key: str, placed: Iterable[PodSetAssignment], node: NodeState) -> bool:
        """Whether a taint of the node stops pods of one of these pod sets."""
        written = {pod_set.name: pod_set for pod_set in self._workloads[key].pod_sets}
        added = self._additions.get(key, {})
        for pod_set in placed:
            tolerations: list[Toleration] = [*written[pod_set.name].tolerations]
            for flavor in sorted(set(pod_set.flavors.values())):
                tolerations += self._tolerations.get(flavor, ())
            if pod_set.name in added:
                tolerations += added[pod_set.name].tolerations
            lasting = tuple(each for each in tolerations if each.toleration_seconds is None)
            if untolerated(node.taints, lasting) is not None:
                return True
        return False

    def _check(self, event: Mapping[str, Any], admitted: Mapping[str, Admission], now: float) -> None:
        admission = admitted.get(event["workload"])
        if admission is None or event["state"] != "Ready":
            return
        additions = {
            update["name"]: PodAdditions(
                update.get("nodeSelector") or {}, tuple(map(_toleration, update.get("tolerations") or ()))
            )
            for update in event.get("podSetUpdates") or ()
        }
        self._additions[event["workload"]] = additions
        self._engine.observe(ChecksReady(self._workloads[event["workload"]].uid, additions), now=now)


def _changed(manifest: Mapping[str, Any], event: Mapping[str, Any]) -> Case:
    spec, status = dict(manifest.get("spec") or {}), dict(manifest.get("status") or {})
    if "ready" in event:
        status["conditions"] = [{"type": "Ready", "status": "True" if event["ready"] else "False"}]
    if "allocatable" in event:
        status["allocatable"] = event["allocatable"]
    spec.update({field: event[field] for field in ("unschedulable", "taints") if field in event})
    return {**manifest, "spec": spec, "status": status}


def _toleration(item: Mapping[str, Any]) -> Toleration:
    return Toleration(
        item.get("key", ""),
        item.get("operator", "Equal"),
        item.get("value", ""),
        item.get("effect", ""),
        item.get("tolerationSeconds"),
    )


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
