"""Operator's settings for the controller: engine policy, `waitForPodsReady`, and rules for unlabelled objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admission.engine import Policy as EnginePolicy
from admission.engine import TopologyRules
from admission.kinds.rules import EVERYTHING_IS_LABELLED, Unlabelled
from admission.model.devices import DeviceRules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JITTER = 0.0001
"""Random share of a requeue backoff, as in Kueue, so that workloads evicted together are not requeued together."""


@dataclass(frozen=True, slots=True)
class WaitForPodsReady:
    """Kueue's `waitForPodsReady`. Times in seconds."""

    timeout: float
    """Time from admission within which all pods must be ready; then the workload is evicted."""
    recovery_timeout: float | None
    """Time within which pods that are no longer ready must recover or be replaced; None: no limit."""
    block_admission: bool = False
    """Whether no workload is admitted while pods of an admitted workload are not ready."""
    count_from_eviction: bool = True
    """Whether an evicted workload is sorted by its eviction time (`timestamp: Eviction`); False: as before."""
    backoff_limit: int | None = None
    """Number of requeues after which it is deactivated; None: no limit."""
    backoff_base: float = 60.0
    """Backoff after the first eviction; it doubles with each further one."""
    backoff_max: float = 3600.0

    def pause(self, requeues: int, chance: float) -> float:
        """Return the requeue backoff (s) after the `requeues`-th eviction, in which cycles skip the workload.

        Kueue's formula: base * 2^(n-1) with jitter, but at most the maximum. `chance`: random number from 0 to 1.
        """
        if requeues > 62:  # exceeds any maximum, and would overflow a float with enough requeues
            return self.backoff_max
        return min(self.backoff_base * 2.0 ** (requeues - 1) * (1.0 + JITTER * chance), self.backoff_max)


@dataclass(frozen=True, slots=True)
class FailureRecoveryRules:
    """When pods that stay terminating on unreachable nodes are ended by force, if their users permit it."""

    grace: float = 60.0
    """Seconds after the end of their own grace period."""
    interval: float = 5.0
    """Seconds between two looks at unreachable nodes."""


@dataclass(frozen=True, slots=True)
class UsageRules:
    """From where it is read what pods use, and when a workload counts as idle."""

    url: str | None = None
    """Prometheus; None: the metrics API of the cluster."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """PromQL by resource."""
    token_file: Path | None = None
    """File with the bearer token for Prometheus."""
    ca_file: Path | None = None
    """PEM file of the authority of its certificate; None: those of the system."""
    interval: float = 60.0
    """Seconds between two looks."""
    idle_after: float | None = None
    """Seconds without use after which the history says that a workload is idle; None: it never does."""
    idle_below: float = 0.05
    """Share of what it holds, below which it does not use it."""
    idle_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    """Resources of which that is told."""


@dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """All settings of the controller. The defaults are those of an unconfigured Kueue, without `waitForPodsReady`."""

    engine: EnginePolicy = field(default_factory=lambda: EnginePolicy(topology=TopologyRules()))
    pods_ready: WaitForPodsReady | None = None
    unlabelled: Unlabelled = EVERYTHING_IS_LABELLED
    devices: DeviceRules = field(default_factory=DeviceRules)
    failure_recovery: FailureRecoveryRules | None = None
    """None: pods on unreachable nodes are waited for."""
    lost_timeout: float = 900.0
    """Seconds after which what was dispatched to a lost cluster is queued again."""
    usage: UsageRules | None = None
    """None: it is not measured what pods use."""
