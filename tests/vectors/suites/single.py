"""Single scheduler cycles: cases with the workloads that hold quota and that wait, and the expected decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from admission.engine import (
    Admit,
    ChecksReady,
    Decisions,
    Engine,
    NamespaceChanged,
    NodesFailed,
    Park,
    QueueObjectChanged,
    SharerUsed,
    WorkloadAdmitted,
    WorkloadPending,
)
from admission.engine.policies.admission_fair_sharing import RecentUsage
from admission.engine.vocabulary import DEFERRED, OVERLAPS, SLICE_REPLACED
from admission.model.queues import LocalQueue
from admission.model.workload import Admission
from admission.simulate.player import policy_of
from admission.simulate.scenario import (
    Case,
    admission_document,
    key_of,
    natural,
    queue_objects,
    seconds,
)
from admission.simulate.workloads import WorkloadReader, topology_events
from tests.vectors.suites.status import Statuses
from tests.vectors.suites.unchecked import read_unchecked


class Single:
    """The engine with the state of a case, and the decisions so far."""

    def __init__(self, document: Case) -> None:
        self._document = document
        self._now = seconds(document.get("clock"))
        self.engine = Engine(policy_of(document))
        self._keys: dict[str, str] = {}
        self._assignments: dict[str, Admission] = {}
        self._admitted: dict[str, Admission] = {}
        self._placed_again: dict[str, Admission] = {}
        """Admissions of workloads that held quota and were tried again, with their result."""
        self._evicted: dict[str, str] = {}
        self._preempted: dict[str, str] = {}
        self._finished: dict[str, str] = {}
        self._events: list[Case] = []
        self._skipped = {item["metadata"]["name"]: 0 for item in document.get("clusterQueues") or ()}
        """By ClusterQueue: number of preemptions skipped because another workload preempts the same target."""
        self._recomputed: dict[str, dict[str, int]] = {}
        """By ClusterQueue: results of searches for other victims, and their number."""
        present = document.get("localQueuesAtCycle", document.get("localQueues")) or ()
        self._local_queues = {item["metadata"]["name"] for item in present}
        self._reader = WorkloadReader(document)
        manifests = {key_of(manifest): manifest for manifest in document.get("workloads") or ()}
        self._ready = {
            key: {
                entry["name"]
                for entry in (manifest.get("status") or {}).get("admissionChecks") or ()
                if entry.get("state") == "Ready"
            }
            for key, manifest in manifests.items()
        }
        self._statuses = Statuses(manifests, document.get("clock", ""), policy_of(document).accounting)
        self._load()

    def _load(self) -> None:
        document, now = self._document, self._now
        for namespace in document.get("namespaces") or ():
            self.engine.observe(NamespaceChanged(namespace["name"], namespace.get("labels") or {}), now=now)
        for event in topology_events(document):
            self.engine.observe(event, now=now)
        for item in queue_objects(document, read_unchecked):
            if isinstance(item, LocalQueue) and item.name not in self._local_queues:
                # The object is deleted while its workloads wait on: only its weight is lost.
                spec = item.spec.model_copy(update={"fair_sharing": None})
                item = item.model_copy(update={"spec": spec})
            self.engine.observe(QueueObjectChanged(item), now=now)
        for key, consumed in (document.get("initialLocalQueueUsage") or {}).items():
            namespaces = {item["metadata"].get("namespace", "") for item in document["localQueues"]}
            for namespace in namespaces:
                self.engine.observe(SharerUsed((namespace, key), natural(consumed), now), now=now)
        for manifest in document.get("workloads") or ():
            self._load_workload(manifest)

    def _load_workload(self, manifest: Mapping[str, Any]) -> None:
        given = self._reader.read(manifest)
        key = key_of(manifest)
        self._keys[given.workload.uid] = key
        if given.inactive:
            return
        if given.admission is None:
            self.engine.observe(WorkloadPending(given.workload, fault=given.fault), now=self._now)
        else:
            self._assignments[key] = given.admission
            at = given.at or self._now
            self.engine.observe(WorkloadAdmitted(given.workload, given.admission, at, given.evicting), now=self._now)
            self._place_again(key, given.workload.uid, manifest.get("status") or {})

    def _place_again(self, key: str, uid: str, status: Mapping[str, Any]) -> None:
        """Tell the engine that a workload which holds quota has to be placed, for failed nodes or delayed."""
        if nodes := tuple(node["name"] for node in status.get("unhealthyNodes") or ()):
            self.engine.observe(NodesFailed(uid, nodes), now=self._now)
        elif self._ready[key]:
            self.engine.observe(ChecksReady(uid, {}), now=self._now)

    def play(self) -> Case:
        """Run the cycles that the case asks for."""
        document = self._document
        per_cycle = []
        for _ in range(document.get("cycles", 1)):
            decisions = self.engine.cycle(self._now)
            per_cycle.append(self._take(decisions))
        left, inadmissible = {}, {}
        for name in self.engine.cluster_queues():
            waiting = self.engine.pending(name)
            left[name] = sorted(workload.key for workload in waiting.active)
            inadmissible[name] = sorted(workload.key for workload in waiting.inadmissible)
        decided = {**self._admitted, **self._placed_again}
        result: Case = {
            "admitted": {key: admission_document(admission) for key, admission in self._admitted.items()},
            "preempted": self._preempted,
            "evicted": self._evicted,
            "finished": self._finished,
            "left": {name: keys for name, keys in left.items() if keys},
            "inadmissible": {name: keys for name, keys in inadmissible.items() if keys},
            "statusAfter": self._statuses.document(),
            "events": self._events,
            "skippedPreemptions": self._skipped,
            "preemptionTargetRecomputations": self._recomputed,
            "newCacheAssignments": {key: admission_document(admission) for key, admission in decided.items()},
            "cacheAssignments": {key: admission_document(admission) for key, admission in self._assignments.items()},
        }
        if document.get("admissionFairSharing"):
            result["perCycle"] = per_cycle
            result["localQueueUsageAfter"] = self._consumption()
        return result

    def _take(self, decisions: Decisions) -> Case:
        error = self._document.get("admissionError")
        admitted = {}
        for admit in decisions.admitted:
            key = self._keys[admit.workload.uid]
            if error:
                self.engine.forget(admit)
                continue
            checked = self._checked(admit)
            self._statuses.admitted(key, admit, checked=checked)
            self._happened(key, "QuotaReserved", *(["Admitted"] if checked else []))
            admitted[key] = self._admitted[key] = self._assignments[key] = admit.admission
        for reassign in decisions.reassigned:
            key = self._keys[reassign.workload.uid]
            self._assignments[key] = self._placed_again[key] = reassign.admission
            if self._statuses.reassigned(key, reassign.admission):
                self._happened(key, "Admitted")
        for park in decisions.unplaced:
            key = self._keys[park.workload.uid]
            self._events.append({"object": key, "type": "Warning", "reason": park.reason, "message": park.message})
            self._placed_again[key] = self._assignments[key]
        preempted = {}
        for evict in decisions.evicted:
            key = self._keys[evict.workload.uid]
            if evict.preemptor is None:
                self._statuses.node_failed(key, evict)
                self._happened(key, f"EvictedDueTo{evict.reason}")
                self._evicted[key] = evict.reason
                self._placed_again[key] = self._assignments[key]
                continue
            self._statuses.evicted(key, evict, self._keys[evict.preemptor or ""])
            if evict.reason == SLICE_REPLACED:
                self._finished[key] = evict.reason
                self._happened(key, evict.reason)
            else:
                self._happened(key, f"EvictedDueTo{evict.reason}", evict.reason)
                self._happened(self._keys[evict.preemptor or ""], "PreemptedWorkload")
                self._evicted[key] = evict.reason
                preempted[key] = self._preempted[key] = evict.preemption_reason
        for park in decisions.parked:
            standing = self.engine.explain(park.workload.uid)
            if standing is None or standing.cluster_queue not in self.engine.cluster_queues():
                continue  # no scheduler considers it
            self._statuses.parked(self._keys[park.workload.uid], park)
            self._note(park, standing.cluster_queue)
        return {
            "admitted": {key: admission_document(admission) for key, admission in admitted.items()},
            "preempted": preempted,
        }

    def _happened(self, key: str, *reasons: str) -> None:
        self._events += ({"object": key, "type": "Normal", "reason": reason, "message": ""} for reason in reasons)

    def _note(self, park: Park, cluster_queue: str) -> None:
        key = self._keys[park.workload.uid]
        self._events.append({"object": key, "type": "Warning", "reason": park.reason, "message": park.message})
        if park.message == OVERLAPS:
            self._skipped[cluster_queue] += 1
        elif park.message == DEFERRED:
            results = self._recomputed.setdefault(cluster_queue, {})
            results["deferred_fit"] = results.get("deferred_fit", 0) + 1

    def _checked(self, admit: Admit) -> bool:
        """Return whether all admission checks that the ClusterQueue requires for the workload are Ready."""
        queues = {item["metadata"]["name"]: item["spec"] for item in self._document["clusterQueues"]}
        strategy = queues[admit.admission.cluster_queue].get("admissionChecksStrategy") or {}
        flavors = {flavor for pod_set in admit.admission.pod_sets for flavor in pod_set.flavors.values()}
        wanted = {
            rule["name"]
            for rule in strategy.get("admissionChecks") or ()
            if not rule.get("onFlavors") or flavors & set(rule["onFlavors"])
        }
        return wanted <= self._ready.get(self._keys[admit.workload.uid], set())

    def _consumption(self) -> Case:
        result = {}
        (usage,) = (policy for policy in self.engine.policies if isinstance(policy, RecentUsage))
        for (_, name), entry in sorted(usage.entries().items()):
            penalty = entry.penalty()
            result[name] = {
                "consumed": {resource: _nano_quantity(value) for resource, value in entry.consumed.items()} or None,
                "pendingPenalty": {resource: _nano_quantity(value) for resource, value in penalty.items()} or None,
            }
        return result


def schedule(document: Case) -> Case:
    """Return the decisions of a case."""
    return Single(document).play()


def _nano_quantity(value: float) -> str:
    """Format a number as a quantity, rounded down to a nano-unit."""
    nano = math.floor(value * 1e9)
    return f"{nano}n" if nano % 1_000_000_000 else str(nano // 1_000_000_000)
