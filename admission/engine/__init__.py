"""Decisions: quota tree, pending order, flavors, preemption, fair share, the cycle, explanations."""

from admission.engine.accounting import Accounting, Transformation
from admission.engine.afs import AdmissionFairSharing
from admission.engine.engine import Engine, Policy
from admission.engine.events import (
    Admit,
    Decisions,
    Event,
    Evict,
    Flap,
    LocalQueueUsed,
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
from admission.engine.preemption_hints import Prospect
from admission.engine.queue_listing import Place

__all__ = [
    "Accounting",
    "AdmissionFairSharing",
    "Admit",
    "Decisions",
    "Engine",
    "Event",
    "Evict",
    "Explanation",
    "Flap",
    "Lack",
    "LocalQueueUsed",
    "NamespaceChanged",
    "Park",
    "Place",
    "Policy",
    "Prospect",
    "QueueObjectChanged",
    "QueueObjectDeleted",
    "Transformation",
    "WorkloadAdmitted",
    "WorkloadEvicted",
    "WorkloadGone",
    "WorkloadPending",
]
