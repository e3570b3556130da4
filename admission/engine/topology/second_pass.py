"""Second pass: workloads that hold quota get other domains for a failed node, or domains that were delayed.

They keep their flavors and their quota. Heads are nominated at the same state, and decided after them, as in Kueue.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from admission.engine.assignment import Assignment, Choice, Mode, PodSetResult
from admission.engine.events import Evict, Park, Reassign
from admission.engine.topology.placement import Question
from admission.engine.topology.replacement import beyond, on_node, replace_node
from admission.engine.topology.state import PlacedPods
from admission.engine.topology.workloads import Placer, placed_pods, pod_rules
from admission.engine.victims import eviction
from admission.engine.vocabulary import NO_LONGER_FITS, NODE_FAILURES
from admission.model.pod_set_names import titled
from admission.model.topology import TopologyAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.events import PodAdditions
    from admission.engine.pending_item import Shape
    from admission.engine.topology.state import Topologies
    from admission.engine.topology.trial import Trial
    from admission.engine.victims import Target
    from admission.model.workload import PodSet, Workload

_LONGEST_DELAY = 30.0
"""Most seconds between two attempts."""

Places = dict[str, TopologyAssignment]
"""The domains of pod sets by name."""


@dataclass(slots=True, eq=False)
class Due:
    """A workload that holds quota and has to be placed once more."""

    held: Held
    shape: Shape
    nodes: tuple[str, ...] = ()
    """Failed nodes on which it has pods; empty: its placement was delayed, and its admission checks are Ready now."""
    additions: Mapping[str, PodAdditions] = field(default_factory=dict)
    """What admission checks add to pods, by pod set."""
    at: float = 0.0
    """Unix time (s) of the next attempt."""
    delay: float = 1.0
    """Seconds until the attempt after that."""

    def written(self) -> tuple[PodSet, ...]:
        """Return the pod sets with what admission checks add to them."""
        return tuple(
            replace(
                pod_set,
                node_selector={**pod_set.node_selector, **more.node_selector},
                tolerations=(*pod_set.tolerations, *more.tolerations),
            )
            if (more := self.additions.get(pod_set.name)) is not None
            else pod_set
            for pod_set in self.shape.written
        )


class SecondPass:
    """The second pass of one cycle. `fail_fast`: evict a workload if no other node can take the place of a failed one.

    `search`: returns the preemption targets for a placement that was delayed. `victims`: those of the cycle, by uid.
    `kept_from`: returns the hostnames of the nodes that a workload must not use, by cluster.
    On return of `decide` the new places are charged; `end` undoes that, for the caller to count them for good.
    """

    def __init__(
        self,
        topologies: Topologies,
        due: Iterable[Due],
        now: float,
        *,
        fail_fast: bool,
        search: Callable[[Due, Assignment, Trial], list[Target]],
        victims: dict[str, Held],
        kept_from: Callable[[Workload], Mapping[str, Collection[str]]],
    ) -> None:
        self._topologies = topologies
        self._kept_from = kept_from
        self._now = now
        self._fail_fast = fail_fast
        self._search = search
        self._victims = victims
        self._targets: dict[str, list[Target]] = {}
        """By the uid of the workload that needs their room."""
        self._found = [(one, self._place(one)) for one in due]
        self._charged: list[PlacedPods] = []
        self.reassigned: list[tuple[Held, Reassign]] = []
        self.evicted: list[tuple[Held, Evict]] = []
        self.failed: list[Park] = []

    def decide(self) -> None:
        """Confirm the places that were found, or look for others if they are taken now."""
        for due, found in self._found:
            more = [] if isinstance(found, str) else self._more(due.held, found)
            if not isinstance(found, str) and not self._topologies.holds(more):
                found = self._place(due)
                more = [] if isinstance(found, str) else self._more(due.held, found)
                if not self._topologies.holds(more):
                    found = NO_LONGER_FITS
            if isinstance(found, str):
                self._fail(due, found)
                continue
            self._topologies.charge(more, 1)
            self._charged += more
            admission = due.held.admission
            pod_sets = tuple(
                replace(pod_set, topology=found.get(pod_set.name, pod_set.topology)) for pod_set in admission.pod_sets
            )
            self.reassigned.append((due.held, Reassign(due.held.workload, replace(admission, pod_sets=pod_sets))))

    def end(self) -> None:
        """Take back what was charged during the cycle."""
        self._topologies.charge(self._charged, -1)

    def _fail(self, due: Due, why: str) -> None:
        workload = due.held.workload
        if self._fail_fast and any(len(pods.assignment.domains) > 1 for pods in self._failed(due)):
            message = f"Workload was evicted as there was no replacement for unhealthy node(s): {','.join(due.nodes)}"
            self.evicted.append((due.held, Evict(workload, NODE_FAILURES, message)))
            return
        if targets := self._targets.get(workload.uid):
            why = f"{why}. Pending the preemption of {len(targets)} workload(s)"
            for target in targets:
                node = due.held.queue.node
                if not target.held.evicting and target.held.workload.uid not in self._victims and node is not None:
                    self.evicted.append((target.held, eviction(target, workload, node)))
                self._victims[target.held.workload.uid] = target.held
        self.failed.append(Park(workload, "SecondPassFailed", why))
        due.at = self._now + due.delay
        due.delay = min(2 * due.delay, _LONGEST_DELAY)

    @staticmethod
    def _failed(due: Due) -> list[PlacedPods]:
        """Return the pod sets with pods on the failed node. One that has all of its pods there is not evicted."""
        return [pods for pods in due.held.placed if due.nodes and on_node(pods.assignment, due.nodes[0])]

    def _place(self, due: Due) -> Places | str:
        return self._replace(due) if due.nodes else self._place_delayed(due)

    def _place_delayed(self, due: Due) -> Places | str:
        pod_sets = due.held.admission.pod_sets
        results = [
            PodSetResult(
                pod_set.name,
                pod_set.count if pod_set.topology is None else 0,  # those that were placed stay
                pod_set.usage,
                _choices(due.held, pod_set.flavors) if pod_set.topology is None else {},
                (),
                (),
            )
            for pod_set in pod_sets
        ]
        kept_from = self._kept_from(due.held.workload)
        placer = Placer(self._topologies, due.held.queue, due.written(), kept_from=kept_from)
        assignment = Assignment(results, mode=Mode.FIT)
        found = placer.search(assignment, empty=False)
        if isinstance(found, tuple):
            if not isinstance(placer.search(assignment, empty=True), tuple):
                self._targets[due.held.workload.uid] = self._search(due, assignment, placer.trial(assignment))
            return f"couldn't assign flavors to {titled(pod_sets[found[0]].name)}: {found[1]}"
        return {pod_sets[index].name: pods.assignment for index, pods in found.items()}

    def _replace(self, due: Due) -> Places | str:
        places: Places = {}
        assumed: list[PlacedPods] = []
        failure = ""
        for pod_set, (flavor, present, requests, _) in zip(
            (pod_set for pod_set in due.held.admission.pod_sets if pod_set.topology is not None),
            due.held.placed,
            strict=True,
        ):
            if not on_node(present, due.nodes[0]):
                continue
            tree = self._topologies.trees.get(flavor)
            if tree is None:
                return f'Flavor "{flavor}" information missing in TAS cache'
            written = next(each for each in due.shape.written if each.name == pod_set.name)
            kept_from = self._kept_from(due.held.workload).get(tree.cluster, ())
            rules = pod_rules(written, due.held.queue.flavors[flavor], kept_from)
            question = Question(pod_set.count, requests, written.topology, rules)
            placed = replace_node(tree, question, present, due.nodes[0], self._topologies.rules)
            if isinstance(placed, str):
                failure = f"couldn't assign flavors to {titled(pod_set.name)}: {placed}"
                break
            places[pod_set.name] = placed
            more = PlacedPods(flavor, beyond(placed, present), requests, tree.cluster)
            assumed.append(more)
            self._topologies.assume(more, 1)
        for more in assumed:
            self._topologies.assume(more, -1)
        return failure or places

    def _more(self, held: Held, found: Places) -> list[PlacedPods]:
        """Return the pods of these places that the workload does not have there already."""
        pod_sets = held.admission.pod_sets
        present = {pod_set.name: pod_set.topology for pod_set in pod_sets}
        whole = tuple(replace(pod_set, topology=found.get(pod_set.name)) for pod_set in pod_sets)
        placed = placed_pods(held.workload, replace(held.admission, pod_sets=whole), self._topologies.named)
        names = [pod_set.name for pod_set in whole if pod_set.topology is not None]
        return [
            pods._replace(assignment=beyond(pods.assignment, present[name]))
            for name, pods in zip(names, placed, strict=True)
        ]


def _choices(held: Held, flavors: Mapping[str, str]) -> dict[str, Choice]:
    """Return the flavors of a pod set as such that need the room of others, of whatever there is quota for."""
    index = held.queue.tree.index if held.queue.tree is not None else {}
    return {
        resource: Choice(flavor, index.get((flavor, resource), -1), Mode.PREEMPT, 0, 0)
        for resource, flavor in flavors.items()
    }
