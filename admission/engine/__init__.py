"""Decision engine: quota tree, queue order, flavor assignment, preemption, fair sharing, cycles, explanations."""

from admission.engine.accounting import Accounting, Transformation
from admission.engine.engine import Engine, Policy
from admission.engine.events import (
    Admit,
    Decisions,
    Event,
    Evict,
    Flap,
    NamespaceChanged,
    Park,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
    decisive_part,
)
from admission.engine.explain import Explanation, Lack
from admission.engine.policies.admission_fair_sharing import AdmissionFairSharing, LocalQueueUsed, RecentUsage
from admission.engine.policies.contract import AdmissionPolicy, EngineView, PastAdmission, PolicyEvent, Refusal
from admission.engine.preemption_hints import PreemptionHint
from admission.engine.queue_listing import PendingWorkload

__all__ = [
    "Accounting",
    "AdmissionFairSharing",
    "AdmissionPolicy",
    "Admit",
    "Decisions",
    "Engine",
    "EngineView",
    "Event",
    "Evict",
    "Explanation",
    "Flap",
    "Lack",
    "LocalQueueUsed",
    "NamespaceChanged",
    "Park",
    "PastAdmission",
    "PendingWorkload",
    "Policy",
    "PolicyEvent",
    "PreemptionHint",
    "QueueObjectChanged",
    "QueueObjectDeleted",
    "RecentUsage",
    "Refusal",
    "Transformation",
    "WorkloadAdmitted",
    "WorkloadEvicted",
    "WorkloadGone",
    "WorkloadPending",
    "decisive_part",
]
