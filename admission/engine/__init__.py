"""Decision engine: quota tree, queue order, flavor assignment, preemption, fair sharing, cycles, explanations."""

from admission.engine.accounting import Accounting, Transformation
from admission.engine.engine import Engine, Policy, TopologyRules
from admission.engine.events import (
    Admit,
    Decisions,
    Event,
    Evict,
    Flap,
    NamespaceChanged,
    NodeChanged,
    NodeDeleted,
    Park,
    PodBound,
    PodEnded,
    QueueObjectChanged,
    QueueObjectDeleted,
    TopologyChanged,
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
    "NodeChanged",
    "NodeDeleted",
    "Park",
    "PastAdmission",
    "PendingWorkload",
    "PodBound",
    "PodEnded",
    "Policy",
    "PolicyEvent",
    "PreemptionHint",
    "QueueObjectChanged",
    "QueueObjectDeleted",
    "RecentUsage",
    "Refusal",
    "TopologyChanged",
    "TopologyRules",
    "Transformation",
    "WorkloadAdmitted",
    "WorkloadEvicted",
    "WorkloadGone",
    "WorkloadPending",
    "decisive_part",
]
