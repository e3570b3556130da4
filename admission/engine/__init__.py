"""Decisions: quota tree, pending order, flavors, preemption, fair share, the cycle, explanations."""

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
)
from admission.engine.explain import Explanation, Lack
from admission.engine.policies.admission_fair_sharing import AdmissionFairSharing, LocalQueueUsed, RecentUsage
from admission.engine.policies.contract import AdmissionPolicy, EngineView, PastAdmission, PolicyEvent, Refusal
from admission.engine.preemption_hints import Prospect
from admission.engine.queue_listing import Place

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
    "Place",
    "Policy",
    "PolicyEvent",
    "Prospect",
    "QueueObjectChanged",
    "QueueObjectDeleted",
    "RecentUsage",
    "Refusal",
    "Transformation",
    "WorkloadAdmitted",
    "WorkloadEvicted",
    "WorkloadGone",
    "WorkloadPending",
]
