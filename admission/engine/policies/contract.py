"""The contract of an admission policy: what the engine asks of a rule beside quota, and what the rule may read.

A policy is two things: a frozen configuration with a method `start` (`PolicyConfig`), which `Policy.policies` lists,
and the object that `start` makes for each engine (`AdmissionPolicy`), which has the state. The methods of
`AdmissionPolicy` do nothing; a policy overrides those it needs, and the engine calls only those that are overridden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.pending_item import LocalQueueKey
    from admission.model.queues import ClusterQueueSpec, LocalQueueSpec
    from admission.model.workload import Workload


class PastAdmission(NamedTuple):
    """A row of the ledger: one resource that a workload held, from its admission until its quota was free."""

    namespace: str
    local_queue: str
    cluster_queue: str
    resource: str
    amount: int
    """In the model's units: thousandths of a core for cpu, bytes, devices."""
    from_at: float
    """Seconds since the epoch."""
    to_at: float | None
    """None: it holds it still."""
    resized: bool
    """Whether the row goes on with another amount where an earlier row of the same admission ended."""


class PolicyEvent:
    """Base of the events that carry a policy's state from one engine to another, as `events` made it."""

    __slots__ = ()


class Refusal(NamedTuple):
    """Why a policy keeps a workload from being admitted now."""

    reason: str
    """One word of the vocabulary of reasons, such as `WaitingForQuota`; reported as the reason of the condition."""
    message: str
    """One sentence for the user, with the numbers: what is used, and what the limit is. It is stored, and brought up to
    date after `charge` and `release`: no number in it may change with time alone."""


class EngineView(Protocol):
    """What a policy may read of the engine."""

    @property
    def now(self) -> float:
        """The time of the last event or cycle, in seconds since the epoch."""

    @property
    def local_queues(self) -> Mapping[LocalQueueKey, LocalQueueSpec]:
        """All LocalQueues, by (namespace, name)."""

    def cluster_queue_spec(self, name: str) -> ClusterQueueSpec | None:
        """The ClusterQueue's spec; None if it does not exist."""


class AdmissionPolicy:
    """A policy at work in one engine. No method may do I/O or read a clock; the time is `EngineView.now`."""

    history: float = 0.0
    """Seconds of the ledger that `seed` has to be given at a start; 0: none."""

    def seed(self, admissions: Iterable[PastAdmission]) -> None:
        """Take in what was held in the last `history` seconds: before any workload is told, in one or more calls.

        What is held still is among it, and is told to `charge` as well.
        """

    def resume(self, event: PolicyEvent) -> None:
        """Take over state from another engine, if the event is of this policy; others' events are to be ignored."""

    def events(self) -> Iterable[PolicyEvent]:
        """Events by which `resume` brings another engine to the same state, less what `charge` is told there."""
        return ()

    def order(self, queue: ClusterQueueSpec) -> Callable[[LocalQueueKey], float] | None:
        """A key by which the LocalQueues of a ClusterQueue come first, least first, before priority and time.

        None: the policy does not order this ClusterQueue. Victims of preemption in it are taken by the same key,
        largest first. The key may change with time and with `charge` and `release`.
        """
        del queue
        return None

    def filter(self, workload: Workload, cluster_queue: str) -> Refusal | None:
        """Why the workload may not be admitted now; None if it may.

        Asked when it is its turn, again right before its admission if others were admitted in the same cycle, and for
        explanations. A refused workload does not block others, whatever the queueing strategy. It is asked again when a
        workload gives its quota back, when a queue object changes, and at `wake_at`.
        """
        del workload, cluster_queue
        return None

    def charge(self, held: Held, *, restored: bool) -> None:
        """A workload holds quota from now on; `restored`: it did before this engine was started, or was resized.

        For a policy that filters this is called at the decision, so that `filter` counts it for the next head of the
        cycle; for one that only orders, after the cycle, because the order is fixed while a cycle runs.
        """

    def release(self, held: Held) -> None:
        """A workload that was charged holds no quota any more: it ended, or its admission could not be committed."""

    def wake_at(self) -> float | None:
        """When time alone lets in a workload that is refused now (seconds since the epoch); None: it never does."""


class PolicyConfig(Protocol):
    """The configuration of a policy."""

    def start(self, view: EngineView) -> AdmissionPolicy:
        """The policy's state for one engine, with nothing charged."""
