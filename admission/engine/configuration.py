"""The engine's configuration, which applies to all quota trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admission.engine.accounting import Accounting
from admission.engine.fair_preemption import STRATEGIES
from admission.engine.topology.placement import Rules

if TYPE_CHECKING:
    from admission.engine.policies.contract import PolicyConfig


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """Kueue's feature gates of topology-aware scheduling that an engine knows."""

    placement: Rules = field(default_factory=Rules)
    fail_fast: bool = True
    """Whether a workload is evicted at once if no other node can take the place of a failed one."""
    places_again: bool = True
    """Whether a head whose domains another head has taken is placed anew in the same cycle."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The engine's configuration, which applies to all quota trees."""

    fair_sharing: bool = False
    preemption_strategies: tuple[str, ...] = tuple(STRATEGIES)
    """Strategies of fair sharing: LessThanOrEqualToFinalShare, LessThanInitialShare, or both in this order."""
    policies: tuple[PolicyConfig, ...] = ()
    """Rules beside quota, such as AdmissionFairSharing. The first policy that orders or refuses decides."""
    accounting: Accounting = field(default_factory=Accounting)
    ignore_undeclared: bool = False
    """Kueue's quotaCheckStrategy IgnoreUndeclared: ignore resources for which a ClusterQueue has no quota."""
    topology: TopologyRules | None = None
    """How pods are placed in the domains of a topology; None: `topologyName` of flavors is ignored."""
    as_kueue: bool = False
    """Decide as Kueue does where Sluice's own rules differ (docs/semantics.md 2): only for comparisons with it.

    All heads of a cycle use the quota of its preemption targets before these have released it, and a workload is
    admitted that another one preempts at once.
    """
