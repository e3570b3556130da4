"""The working state of a head in a cycle, and the result of a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.events import Admit, Evict, Park
    from admission.engine.pending_item import Item, Progress
    from admission.engine.tree import Node
    from admission.engine.victims import Target


class Outcome(Enum):
    """What a cycle decided about a head."""

    NOT_ADMITTED = auto()
    """It does not fit, or would have to preempt and may not."""
    SKIPPED = auto()
    """Another head of this cycle took what it needed."""
    PREEMPTING = auto()
    GATED = auto()
    """It would have to preempt, and is not allowed to yet."""
    REFUSED = auto()
    """A policy does not let it in now."""
    ADMITTED = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """A head in a cycle, with its assignment, its victims and what was decided."""

    item: Item
    queue: ClusterQueue
    node: Node
    assignment: Assignment = field(init=False)
    """Set when it is nominated."""
    targets: list[Target] = field(default_factory=list)
    progress: Progress | None = None
    """Where an earlier search for flavors has ended, for this one to go on."""
    generation: int = 0
    """`ClusterQueue.generation` when the assignment was found."""
    outcome: Outcome = Outcome.NOT_ADMITTED
    reason: str = ""
    message: str = ""
    contended: bool = False
    """Whether it came in as a contender (see `fair_standby`) and not as the head of its ClusterQueue at the start."""

    def replaced(self) -> Held | None:
        """The admitted workload whose quota this one takes over."""
        workload = self.item.workload
        replaced = self.queue.held.get(workload.replaces)
        same_namespace = replaced is not None and replaced.workload.namespace == workload.namespace
        return replaced if same_namespace else None


@dataclass(slots=True)
class Result:
    """The decisions of one cycle."""

    admitted: list[tuple[Admit, Held]] = field(default_factory=list)
    evicted: list[Evict] = field(default_factory=list)
    parked: list[Park] = field(default_factory=list)
    preempting: list[str] = field(default_factory=list)
    """Uids of heads that wait from now on until preempted workloads have stopped."""
    moved: bool = False
    """Whether a further cycle could decide more."""
