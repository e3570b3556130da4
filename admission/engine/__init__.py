"""Decision engine: quota tree, queue order, flavor assignment, preemption, fair sharing, cycles, explanations."""

from admission.engine.accounting import Accounting, Transformation
from admission.engine.configuration import Policy, TopologyRules
from admission.engine.engine import Engine
from admission.engine.events import (
    Admit,
    ChecksReady,
    Decisions,
    Event,
    Evict,
    Flap,
    NamespaceChanged,
    NodeChanged,
    NodeDeleted,
    NodesFailed,
    NodesListed,
    Park,
    PodAdditions,
    PodBound,
    PodEnded,
    QueueObjectChanged,
    QueueObjectDeleted,
    Reassign,
    WorkloadAdmitted,
    WorkloadCleared,
    WorkloadEnded,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
    WorkloadPreempted,
    decisive_part,
)
from admission.engine.explain import Explanation, Holder
from admission.engine.lacks import Lack, needed_now, raises_for
from admission.engine.policies.admission_fair_sharing import AdmissionFairSharing, RecentUsage, SharerUsed
from admission.engine.policies.budgets import BudgetAccounts, Budgets, BudgetsSpent
from admission.engine.policies.contract import AdmissionPolicy, EngineView, PastAdmission, PolicyEvent, Refusal
from admission.engine.policies.dependencies import Dependencies
from admission.engine.policies.reservations import KeptQuota, Reservations
from admission.engine.policies.user_limits import UserLimits
from admission.engine.preemption_hints import PreemptionHint
from admission.engine.queue_listing import ListedWorkload
from admission.engine.reserved_domains import ReservedDomains

__all__ = [
    "Accounting",
    "AdmissionFairSharing",
    "AdmissionPolicy",
    "Admit",
    "BudgetAccounts",
    "Budgets",
    "BudgetsSpent",
    "ChecksReady",
    "Decisions",
    "Dependencies",
    "Engine",
    "EngineView",
    "Event",
    "Evict",
    "Explanation",
    "Flap",
    "Holder",
    "KeptQuota",
    "Lack",
    "ListedWorkload",
    "NamespaceChanged",
    "NodeChanged",
    "NodeDeleted",
    "NodesFailed",
    "NodesListed",
    "Park",
    "PastAdmission",
    "PodAdditions",
    "PodBound",
    "PodEnded",
    "Policy",
    "PolicyEvent",
    "PreemptionHint",
    "QueueObjectChanged",
    "QueueObjectDeleted",
    "Reassign",
    "RecentUsage",
    "Refusal",
    "Reservations",
    "ReservedDomains",
    "SharerUsed",
    "TopologyRules",
    "Transformation",
    "UserLimits",
    "WorkloadAdmitted",
    "WorkloadCleared",
    "WorkloadEnded",
    "WorkloadEvicted",
    "WorkloadGone",
    "WorkloadPending",
    "WorkloadPreempted",
    "decisive_part",
    "needed_now",
    "raises_for",
]
