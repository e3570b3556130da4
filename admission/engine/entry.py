"""Entry of a head in a scheduling cycle, with its outcome, and the result of a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from admission.engine.concurrent_admission import Mover
from admission.engine.tree import add_usage, fits, remove_usage
from admission.engine.victims import without_quota

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.events import Admit, Evict, Park
    from admission.engine.pending import PendingQueue
    from admission.engine.pending_item import Item, Progress
    from admission.engine.tree import Node
    from admission.engine.victims import Target


class EntryStatus(Enum):
    """The decision of a cycle about a head (Kueue's `entryStatus`)."""

    NOT_ADMITTED = auto()
    """It does not fit, or needs preemption and has no targets."""
    SKIPPED = auto()
    """Another head of this cycle took the quota or the preemption targets that it needed."""
    PREEMPTING = auto()
    """It waits for preempted workloads to release their quota: its own targets, or those of another head."""
    GATED = auto()
    """It needs preemption, and its preemption gate is closed (`Workload.may_preempt`)."""
    REFUSED = auto()
    """A policy does not permit its admission now."""
    ADMITTED = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """A head in a cycle: its assignment, preemption targets and outcome (Kueue's `entry`)."""

    item: Item
    queue: ClusterQueue
    node: Node
    assignment: Assignment = field(init=False)
    """Set by the nomination."""
    targets: list[Target] = field(default_factory=list)
    progress: Progress | None = None
    """Where an earlier search for flavors stopped, to continue behind it; None: start at the first flavor."""
    generation: int = 0
    """`ClusterQueue.generation` when the assignment was found."""
    outcome: EntryStatus = EntryStatus.NOT_ADMITTED
    reason: str = ""
    message: str = ""
    barred: Mapping[str, str] | None = None
    """Flavors in which it must not start, with the reasons: they are drained."""
    contended: bool = False
    """Whether it entered the running cycle as a contender (see `fair_skipping`), and was no head at its start."""

    @property
    def pending(self) -> PendingQueue:
        """Where it queues."""
        moving = self.queue.moving
        return moving if moving is not None and isinstance(self.item, Mover) else self.queue.pending

    @property
    def flavors(self) -> tuple[str, ...]:
        """The flavors that it is tried in one by one, the preferred one first; empty: it is tried in all at once."""
        migration = self.queue.migration
        if migration is None:
            return ()
        limited = self.item.workload.terms.flavors
        return () if limited and not isinstance(self.item, Mover) else limited or migration.flavors

    def replaced(self) -> Held | None:
        """Return the admitted workload (slice) whose quota this one takes over; None: it replaces none here."""
        workload = self.item.workload
        replaced = self.queue.held.get(workload.replaces)
        same_namespace = replaced is not None and replaced.workload.namespace == workload.namespace
        return replaced if same_namespace else None

    def fits_without(self, victims: Mapping[str, Held]) -> bool:
        """Whether it fits without the usage of its own targets and of those of the cycle so far (Kueue's `fits`)."""
        gone = {**victims, **{target.held.workload.uid: target.held for target in self.targets}}
        with without_quota(gone.values()):
            return fits(self.node, self.assignment.usage)

    def is_placed_without(self, victims: Mapping[str, Held], ignored: str = "") -> bool:
        """Whether its domains still have room for its pods, without the usage of those targets.

        `ignored` is a resource that is not looked at.
        """
        topologies = self.queue.topologies
        if topologies is None or not self.assignment.placed:
            return True
        gone = {**victims, **{target.held.workload.uid: target.held for target in self.targets}}
        freed = (pods for held in gone.values() if held.queue.topologies is not None for pods in held.placed)
        return topologies.holds(self.assignment.placed, freed, ignored=ignored)

    def fits_beside(self, cycle_usage: Sequence[tuple[Node, int, int]]) -> bool:
        """Whether it fits while the cycle's targets still hold quota, and the heads that wait for them do not yet.

        `cycle_usage`: what these heads will use (node, flavor-resource, amount).
        """
        for node, fr, amount in cycle_usage:
            remove_usage(node, fr, amount)
        fitting = fits(self.node, self.assignment.usage)
        for node, fr, amount in cycle_usage:
            add_usage(node, fr, amount)
        return fitting


@dataclass(slots=True)
class Result:
    """The decisions of one cycle."""

    admitted: list[tuple[Admit, Held]] = field(default_factory=list)
    evicted: list[Evict] = field(default_factory=list)
    parked: list[Park] = field(default_factory=list)
    preempting: list[str] = field(default_factory=list)
    """Uids of heads that now wait until preempted workloads have released their quota."""
    moved: bool = False
    """Whether another cycle could decide more."""
