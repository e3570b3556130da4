"""The quota trees of a single case, on which one part of the engine is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from admission.engine.clusterqueue import ClusterQueue, Held, usage_of
from admission.engine.forest import Domain, Forest
from admission.engine.tree import FlavorResource, Node, add_usage
from admission.model.quantity import UNLIMITED
from admission.model.queues import ClusterQueue as ClusterQueueObject
from admission.model.queues import Cohort, ResourceFlavor
from admission.simulate.scenario import key_of, queue_objects, seconds
from admission.simulate.workloads import ScenarioWorkload, WorkloadReader
from tests.vectors.suites.unchecked import read_unchecked

Amounts = dict[str, dict[str, int]]
"""Flavor to resource to amount."""


class World:
    """The quota trees of a case, with its workloads that hold quota and its additional usage."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.forest = Forest()
        for item in queue_objects(document, read_unchecked):
            match item:
                case ResourceFlavor():
                    self.forest.flavors[item.name] = item
                case Cohort():
                    self.forest.cohorts[item.name] = item.spec
                case ClusterQueueObject():
                    self.forest.specs[item.name] = item.spec
                case _:
                    pass
        reader = WorkloadReader(document)
        clock = seconds(document.get("clock"))
        self.held: dict[str, Held] = {}
        for manifest in document.get("workloads") or ():
            given = reader.read(manifest)
            if given.admission is not None:
                self.held[key_of(manifest)] = self._hold(given, clock)
        self.forest.refresh()
        for name, flavors in (document.get("usage") or {}).items():
            self.use(self.queue(name), flavors)

    def _hold(self, given: ScenarioWorkload, clock: float) -> Held:
        assert given.admission is not None
        queue = self.forest.queue(given.admission.cluster_queue)
        held = Held(
            given.workload, given.admission, queue, usage_of(given.admission), given.at or clock, given.evicting
        )
        queue.hold(held)
        return held

    def queue(self, name: str) -> ClusterQueue:
        """Return a ClusterQueue of the case."""
        return self.forest.queue(name)

    def node(self, name: str) -> Node:
        """Return the tree node of a ClusterQueue."""
        node = self.queue(name).node
        assert node is not None
        return node

    def domain(self, name: str) -> Domain:
        """Return the domain (tree) of a ClusterQueue."""
        return self.forest.domain_of[self.queue(name)]

    def frs(self, name: str, flavors: Mapping[str, Mapping[str, int]]) -> dict[int, int]:
        """Return the amounts by index of the flavor-resource."""
        index = self.domain(name).tree.index
        return {index[flavor, resource]: v for flavor, amounts in flavors.items() for resource, v in amounts.items()}

    def use(self, queue: ClusterQueue, flavors: Mapping[str, Mapping[str, int]]) -> None:
        """Add amounts to the usage of a ClusterQueue."""
        assert queue.node is not None
        for fr, amount in self.frs(queue.name, flavors).items():
            add_usage(queue.node, fr, amount)


def by_flavor(
    frs: tuple[FlavorResource, ...], numbers: Mapping[int, int] | list[int], pick: Callable[[int], bool]
) -> Amounts:
    """Return the amounts by flavor and resource, for flavor-resources for which `pick` returns True."""
    result: Amounts = {}
    for number, (flavor, resource) in enumerate(frs):
        if pick(number):
            result.setdefault(flavor, {})[resource] = min(numbers[number], UNLIMITED)
    return result
