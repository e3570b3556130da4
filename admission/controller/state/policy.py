"""What the operator decides for all workloads: the engine's policy, how long pods may take, what needs no label."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.engine import Policy as EnginePolicy
from admission.kinds.rules import EVERYTHING_IS_LABELLED, Unlabelled

JITTER = 0.0001
"""The share of a pause that is up to chance, as in Kueue, so that those evicted together do not come back together."""


@dataclass(frozen=True, slots=True)
class WaitForPodsReady:
    """Kueue's `waitForPodsReady`. Times in seconds."""

    timeout: float
    """How long the pods may take from the admission on, until the workload is evicted."""
    recovery_timeout: float | None
    """How long they may take after some that were ready are not any more; None: as long as they like."""
    block_admission: bool = False
    """Whether nothing is admitted while the pods of an admitted workload are not ready."""
    count_from_eviction: bool = True
    """Whether it waits at the end of its queue afterwards, as if it had come then; else as if nothing had happened."""
    backoff_limit: int | None = None
    """How often it may come back before it is deactivated; None: always."""
    backoff_base: float = 60.0
    backoff_max: float = 3600.0

    def pause(self, requeues: int, chance: float) -> float:
        """How long a workload takes no part in cycles after it was evicted for the `requeues`-th time.

        Kueue's formula: base * 2^(n-1), plus a little that `chance` (0 to 1) decides, but at most the maximum.
        """
        if requeues > 62:  # beyond any maximum
            return self.backoff_max
        return min(self.backoff_base * 2.0 ** (requeues - 1) * (1.0 + JITTER * chance), self.backoff_max)


@dataclass(frozen=True, slots=True)
class Policy:
    """All of it. The default is Kueue's without any configuration, but that nobody waits for pods."""

    engine: EnginePolicy = field(default_factory=EnginePolicy)
    pods_ready: WaitForPodsReady | None = None
    unlabelled: Unlabelled = EVERYTHING_IS_LABELLED
