"""The `status` of a case's Workloads after its decisions, as Kueue would write it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from admission.engine import Admit, Evict, Park
from admission.engine.accounting import Accounting
from admission.engine.vocabulary import OF_ANOTHER_NAMESPACE, SLICE_REPLACED
from admission.model.quantity import format_amount
from admission.model.workload import Admission, PodSet
from admission.simulate.scenario import Case, admission_document

_PREEMPTOR = re.compile(rf"(workload \S+|{OF_ANOTHER_NAMESPACE}) \(UID: [^)]*\)")


class Statuses:
    """The statuses of all Workloads of a document, updated by decisions at the document's `clock`."""

    def __init__(
        self, manifests: Mapping[str, Mapping[str, Any]], clock: str, accounting: Accounting | None = None
    ) -> None:
        self._accounting = accounting or Accounting()
        self._manifests = manifests
        self._clock = clock
        self._statuses: dict[str, Case] = {key: dict(item.get("status") or {}) for key, item in manifests.items()}

    def document(self) -> Case:
        """Return the statuses by namespace/name."""
        return self._statuses

    def parked(self, key: str, park: Park) -> None:
        """Update the status of a workload that was tried and not admitted."""
        self._set(key, "QuotaReserved", "False", park.reason, park.message)
        self._set(key, "Admitted", "False", "NoReservation", "The workload has no reservation")
        self._statuses[key]["resourceRequests"] = _requests(self._accounting.pod_sets(park.workload.pod_sets))

    def admitted(self, key: str, admit: Admit, *, checked: bool) -> None:
        """Update the status of a workload that got quota; `checked`: all its admission checks are Ready."""
        self._statuses[key].pop("resourceRequests", None)
        self._statuses[key]["admission"] = admission_document(admit.admission)
        reserved = f"Quota reserved in ClusterQueue {admit.admission.cluster_queue}"
        self._set(key, "QuotaReserved", "True", "QuotaReserved", reserved)
        if checked:
            self._set(key, "Admitted", "True", "Admitted", "The workload is admitted")
        elif self._statuses[key].get("admissionChecks"):
            self._set(key, "Admitted", "False", "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
            self._stamp_checks(key)

    def _stamp_checks(self, key: str) -> None:
        checks = self._statuses[key].get("admissionChecks")
        if checks:
            self._statuses[key]["admissionChecks"] = [{**check, "lastTransitionTime": self._clock} for check in checks]

    def reassigned(self, key: str, admission: Admission) -> bool:
        """Update the status of a workload that got other domains; returns whether it is admitted only now."""
        status = self._statuses[key]
        status["admission"] = admission_document(admission)
        reserved = f"Quota reserved in ClusterQueue {admission.cluster_queue}"
        conditions = {entry["type"]: entry for entry in status["conditions"]}
        new = "Admitted" not in conditions
        for kind, reason, message in (
            ("QuotaReserved", "QuotaReserved", reserved),
            ("Admitted", "Admitted", "The workload is admitted"),
        ):
            at = conditions[kind]["lastTransitionTime"] if kind in conditions else self._clock
            self._set(key, kind, "True", reason, message, at=at)
        if new:
            self._stamp_checks(key)
        return new

    def node_failed(self, key: str, evict: Evict) -> None:
        """Update the status of a workload that is evicted as its nodes have failed."""
        self._set(key, "Evicted", "True", evict.reason, evict.message, after="QuotaReserved")
        self._note_eviction(key, evict)

    def evicted(self, key: str, evict: Evict, by: str) -> None:
        """Update the status of a workload that is preempted by the workload `by`."""
        preemptor = self._manifests[by]["metadata"]
        uid = preemptor.get("uid", "")
        job = (preemptor.get("labels") or {}).get("kueue.x-k8s.io/job-uid", "")
        if evict.reason == SLICE_REPLACED:
            who = f"a workload (UID: {uid}, JobUID: {job})"
            message = f"Replaced to accommodate {who} due to workload slice aggregation"
            self._set(key, "Finished", "True", evict.reason, message)
            return
        who = f"a workload (UID: {uid or 'UNKNOWN'}, JobUID: {job or 'UNKNOWN'})"
        message = _PREEMPTOR.sub(who, evict.message)
        self._set(key, "Evicted", "True", evict.reason, message, after="QuotaReserved")
        self._set(key, "Preempted", "True", evict.preemption_reason, message)
        self._note_eviction(key, evict)

    def _note_eviction(self, key: str, evict: Evict) -> None:
        self._statuses[key]["schedulingStats"] = {
            "evictions": [{"count": 1, "reason": evict.reason, "underlyingCause": ""}]
        }

    def _set(
        self, key: str, kind: str, status: str, reason: str, message: str, *, after: str = "", at: str = ""
    ) -> None:
        condition = {
            "lastTransitionTime": at or self._clock,
            "message": message,
            "reason": reason,
            "status": status,
            "type": kind,
        }
        generation = self._manifests[key]["metadata"].get("generation")
        if generation:
            condition["observedGeneration"] = generation
        conditions = list(self._statuses[key].get("conditions") or ())
        types = [entry["type"] for entry in conditions]
        if kind in types:
            conditions[types.index(kind)] = condition
        else:
            conditions.insert(types.index(after) + 1 if after in types else len(conditions), condition)
        self._statuses[key]["conditions"] = conditions


def _requests(pod_sets: tuple[PodSet, ...]) -> list[Case]:
    return [
        {
            "name": pod_set.name,
            "resources": {
                name: format_amount(name, amount * pod_set.count) for name, amount in pod_set.requests.items()
            },
        }
        for pod_set in pod_sets
    ]
