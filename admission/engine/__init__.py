"""Decisions: quota tree, pending order, flavors, preemption, fair share, the cycle, explanations."""

from admission.engine.accounting import Accounting, Transformation
from admission.engine.afs import AdmissionFairSharing
from admission.engine.engine import Engine, Policy
from admission.engine.events import (
    Admit,
    Decisions,
    Event,
    Evict,
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

__all__ = [
    "Accounting",
    "AdmissionFairSharing",
    "Admit",
    "Decisions",
    "Engine",
    "Event",
    "Evict",
    "LocalQueueUsed",
    "NamespaceChanged",
    "Park",
    "Policy",
    "QueueObjectChanged",
    "QueueObjectDeleted",
    "Transformation",
    "WorkloadAdmitted",
    "WorkloadEvicted",
    "WorkloadGone",
    "WorkloadPending",
]
