"""Contract of an admission policy, a rule beside quota: the methods that the engine calls, and the data it may read.

A policy consists of a frozen configuration with a method `start` (`PolicyConfig`), which `Policy.policies` lists, and
the object that `start` creates for each engine (`AdmissionPolicy`), which has the state. The methods of
`AdmissionPolicy` do nothing; a policy overrides those it needs, and the engine calls only those that are overridden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
    from admission.engine.pending_item import Item, LocalQueueKey, SharerKey
    from admission.engine.tree import FlavorResource, Tree
    from admission.model.queues import ClusterQueueSpec, LocalQueueSpec
    from admission.model.workload import Workload


class PastAdmission(NamedTuple):
    """A row of the ledger: one resource of which a workload held quota, from its admission until its release."""

    uid: str
    """Of the workload."""
    user: str
    """Who submitted it, as recorded; empty: unknown."""
    namespace: str
    local_queue: str
    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    """In the model's units: thousandths of a core for cpu, bytes, devices."""
    from_at: float
    """Seconds since the epoch."""
    to_at: float | None
    """Seconds since the epoch; None: it still holds the quota."""
    resized: bool
    """Whether the row continues an earlier row of the same admission with another amount."""
    groups: tuple[str, ...] = ()
    """Of the user, as recorded with the workload; empty also where retention has deleted it."""


class PolicyEvent:
    """Base of the events that carry a policy's state to another engine (see `AdmissionPolicy.events`)."""

    __slots__ = ()


class Refusal(NamedTuple):
    """Why a policy does not permit the admission of a workload now."""

    reason: str
    """A pending reason, such as `WaitingForQuota`; reported as the reason of the condition."""
    message: str
    """Message for the user, with the numbers: the usage and the limit. It is stored, and updated after `charge` and
    `release`: no number in it may change with time alone."""
    until: float | None = None
    """When time alone may permit it (seconds since the epoch, in the future); None: never."""


class SharerOrder(NamedTuple):
    """By what the workloads of a ClusterQueue are ordered, before priority and time."""

    by_user: bool
    """Whether by their users instead of their LocalQueues."""
    usage: Callable[[SharerKey], float]
    """The key of a LocalQueue or user, least first. It may change with time and with `charge` and `release`."""


class Eviction(NamedTuple):
    """A workload that a policy wants to release its quota."""

    uid: str
    reason: str
    """The reason of the condition Evicted."""
    message: str
    """Message for its user."""


class EngineView(Protocol):
    """The part of the engine's state that a policy may read."""

    @property
    def now(self) -> float:
        """The time of the last event or cycle, in seconds since the epoch."""

    @property
    def local_queues(self) -> Mapping[LocalQueueKey, LocalQueueSpec]:
        """All LocalQueues by (namespace, name)."""

    @property
    def ended(self) -> Mapping[tuple[str, str], Mapping[str, tuple[float, bool]]]:
        """Workloads that have ended, by (namespace, name): kind to the creation of the last one, and its success.

        Without those whose name a workload has that has not ended.
        """

    @property
    def dependency_changes(self) -> int:
        """How often it has changed what `waits_for` returns."""

    def waits_for(self, namespace: str, name: str) -> Iterable[str]:
        """Return the names of the workloads that pending workloads of this name wait for."""

    def cluster_queue_spec(self, name: str) -> ClusterQueueSpec | None:
        """Return the ClusterQueue's spec; None if it does not exist."""

    def tree_of(self, cluster_queue: str) -> Tree | None:
        """Return the quota tree of a ClusterQueue, which is another object after each change; None: it is in none."""

    def blank_tree(self, cluster_queue: str, at: float) -> Tree:
        """Return a copy of the tree of a ClusterQueue that is in one, without usage, for the policy to keep.

        Quotas are those that calendars have for the instant (seconds since the epoch).
        """


class AdmissionPolicy:
    """State of a policy in one engine. No method may do I/O or read a clock; the time is `EngineView.now`."""

    history: float = 0.0
    """Seconds of the ledger's past that `seed` needs at a start; 0: none."""
    idle: bool = False
    """Whether it has nothing to decide, so that no method but `observe` and `events` is called. It may change with
    `observe`: workloads that hold quota or are pending already are then passed to `charge` and
    `arrive`, or not to `release` and `leave`."""

    @property
    def lacking(self) -> Collection[tuple[str, str]]:
        """Queue objects (kind, name) that have changed so that their past is needed: as events of another engine that
        has these only, and was seeded."""
        return ()

    def seed(self, admissions: Iterable[PastAdmission]) -> None:
        """Process the admissions of the last `history` seconds: before any workload, in one or more calls.

        Admissions that still hold quota are among them, and are passed to `charge` as well.
        """

    def observe(self, event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted) -> None:
        """Take over state from another engine, or note that a queue object has changed; ignore all other events."""

    def events(self) -> Iterable[PolicyEvent]:
        """Return events by which `observe` brings another engine to the same state, except for what `charge` adds."""
        return ()

    def order(self, name: str, queue: ClusterQueueSpec) -> SharerOrder | None:
        """Return what orders the LocalQueues or users of a ClusterQueue.

        None: the policy does not order this ClusterQueue. Preemption candidates in it are ordered by the same key,
        largest first.
        """
        del name, queue
        return None

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Return why the workload must not be admitted now; None if it may be.

        `usage`: the quota that it would hold; `victims`: those that it would preempt for it.

        Called when the workload is the head, before it has flavors (they are
        empty then); again with its flavors, before it is admitted or preempts; and for explanations. A refused workload
        does not block others, whatever the queueing strategy. It is checked again when a workload releases its quota,
        when a queue object changes, and when time may permit one of them.
        """
        del workload, cluster_queue, usage, victims
        return None

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count a workload that holds quota from now on; `restored`: since before this engine's start, or resized.

        For a policy that filters this is called at the decision, so that `filter` counts it for the next head of the
        cycle; for one that only orders, after the cycle, because the order is fixed while a cycle runs.
        """

    def release(self, held: Held) -> None:
        """Stop counting a charged workload: its quota was released, or its admission could not be committed."""

    def arrive(self, item: Item) -> None:
        """Count a workload that is pending in a ClusterQueue from now on; one that is on hold is not."""

    def leave(self, uid: str) -> None:
        """Stop counting a pending workload. Within a cycle one that is admitted is passed to `charge` before."""

    def lowers(self, workload: Workload, cluster_queue: str, usage: Mapping[FlavorResource, int]) -> str:
        """Return why a workload runs on idle quota only, as a sentence; empty: it does not.

        It is then decided about as if it had the lowest priority, and as if its user permitted no preemption for it.
        Called when it is queued, with empty flavors; and for all workloads when `lowering_changed`.
        """
        del workload, cluster_queue, usage
        return ""

    def lowering_changed(self) -> bool:
        """Whether `lowers` may return something else than at the last call. Called in each round of decisions."""
        return False

    def evict(self) -> Iterable[Eviction]:
        """Return the workloads that must release their quota. Called in each round of decisions, so it must be cheap
        while there is nothing to do. Workloads that are being evicted already may be among them."""
        return ()

    def evicts_at(self) -> float | None:
        """Return when time alone makes `evict` return something, or `lowers` something else (seconds since the epoch);
        None: never."""


class PolicyConfig(Protocol):
    """The configuration of a policy, a frozen object."""

    def start(self, view: EngineView) -> AdmissionPolicy:
        """Create the policy's state for one engine, with nothing charged."""
