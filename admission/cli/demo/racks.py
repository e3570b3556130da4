"""Scene of training runs that need a rack each, beside small jobs: who places their pods decides how many are split.

The engine decides on virtual time, three times over the same day. Once it places by topology. Otherwise it decides by
quota alone, and a model of the Kubernetes scheduler chooses the node of each pod: one with most free GPUs
(LeastAllocated, its default) or with fewest (MostAllocated). As there, nodes of equal score are drawn at random, and
pods that fit nowhere wait, while their run holds its quota.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from admission.cli.demo.plan import GPU, queue_object
from admission.engine import (
    NamespaceChanged,
    NodeChanged,
    Policy,
    QueueObjectChanged,
    TopologyRules,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.topology.nodes import NodeState
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME, TopologyRequest
from admission.model.workload import PodSet, Workload
from admission.simulate.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.cli.demo.plan import Document
    from admission.engine import Admit

BLOCKS: Final = 4
RACKS: Final = 8
"""Of a block."""
NODES: Final = 16
"""Of a rack."""
GPUS: Final = 8
"""Of a node."""
DAY: Final = 24 * 3600.0
_LEVELS: Final = ("block", "rack", HOSTNAME)
_POOL: Final = {"pool": "gpu"}
_HOUR: Final = 3600.0
_TRAINING, _SMALL = "training", "small"
_QUOTA: Final = {_TRAINING: 24 * NODES * GPUS, _SMALL: 8 * NODES * GPUS}
"""GPUs by ClusterQueue: three quarters and one quarter of all."""


@dataclass(frozen=True, slots=True)
class Run:
    """A training run or a small job of `pods` pods with `gpus` GPUs each. Times in seconds."""

    name: str
    trains: bool
    pods: int
    gpus: int
    arrives: float
    seconds: float


def day_of_runs() -> tuple[Run, ...]:
    """Return the runs that arrive in a day, sorted by arrival: some more than the GPUs suffice for."""
    chance = random.Random(1)
    runs = [
        Run(f"train-{number:03}", True, NODES, GPUS, arrives, chance.uniform(2, 8) * _HOUR)
        for number, arrives in enumerate(_arrivals(chance, every=_HOUR / 6))
    ]
    for number, arrives in enumerate(_arrivals(chance, every=40.0)):
        gpus = chance.choices((1, 2, 4, 8), weights=(8, 4, 2, 1))[0]
        runs.append(Run(f"small-{number:04}", False, 1, gpus, arrives, chance.uniform(2, 6) * _HOUR))
    return tuple(sorted(runs, key=lambda run: run.arrives))


def _arrivals(chance: random.Random, *, every: float) -> Iterator[float]:
    at = chance.expovariate(1 / every)
    while at < DAY:
        yield at
        at += chance.expovariate(1 / every)


@dataclass(slots=True)
class Floor:
    """The nodes, by number: those of a rack are consecutive, and so are the racks of a block."""

    free: list[int] = field(default_factory=lambda: [GPUS] * (BLOCKS * RACKS * NODES))
    """Free GPUs of each node."""
    where: dict[str, list[int]] = field(default_factory=dict)
    """Name of a run to the nodes of its pods."""

    def put(self, run: Run, nodes: list[int]) -> None:
        """Let the pods of a run take GPUs of these nodes."""
        self.where[run.name] = nodes
        for node in nodes:
            self.free[node] -= run.gpus

    def take(self, run: Run) -> None:
        """Free the GPUs of a run that ends."""
        for node in self.where.pop(run.name):
            self.free[node] += run.gpus


@dataclass(slots=True)
class RackCourse:
    """What became of the runs of the day with one way of placing pods."""

    title: str
    floor: Floor = field(default_factory=Floor)
    racks: dict[str, int] = field(default_factory=dict)
    """Training run to the number of racks that it was spread over."""
    waits: dict[str, float] = field(default_factory=dict)
    """Run to the seconds from its arrival until all its pods ran."""
    busy: float = 0.0
    """GPU seconds that ran."""

    @property
    def split(self) -> int:
        """The number of training runs with pods in more than one rack."""
        return sum(number > 1 for number in self.racks.values())


class Play:
    """The day with one way of placing pods: `topology`, or the score of the Kubernetes scheduler."""

    def __init__(self, title: str, runs: tuple[Run, ...], *, topology: bool = False, packs: bool = False) -> None:
        self.course = RackCourse(title)
        self._runs = {run.name: run for run in runs}
        self._topology = topology
        self._packs = packs
        self._chance = random.Random(1)
        self._waiting: list[Run] = []
        """Admitted runs for whose pods no nodes have been found."""
        self._time = VirtualTime(Policy(topology=TopologyRules()), 0.0, places=topology)
        self._time.load([NamespaceChanged("default", {})])
        self._time.load(map(QueueObjectChanged, map(parse_manifest, _queue_documents(topology=topology))))
        if topology:
            self._time.load(NodeChanged(_node(number)) for number in range(len(self.course.floor.free)))
        for run in runs:
            self._time.schedule(run.arrives, WorkloadPending(_workload(run, topology=topology)))

    def until(self, end: float) -> None:
        """Play on until `end`, in seconds after the beginning of the day."""
        while True:
            for admit in self._time.settle().admitted:
                self._admitted(admit)
            before = self._time.now
            processed = self._time.advance(end)
            now = end if processed is None else self._time.now
            floor = self.course.floor
            self.course.busy += (now - before) * (len(floor.free) * GPUS - sum(floor.free))
            if processed is None:
                self._time.now = end
                return
            ended = [event.uid for _, event in processed if isinstance(event, WorkloadGone)]
            for name in ended:
                floor.take(self._runs[name])
            if ended:
                self._waiting = [run for run in self._waiting if not self._scheduled(run)]

    def _admitted(self, admit: Admit) -> None:
        run = self._runs[admit.workload.uid]
        placed = admit.admission.pod_sets[0].topology
        if placed is not None:
            self._starts(run, [int(values[-1]) for values, pods in placed.domains for _ in range(pods)])
        elif not self._scheduled(run):
            self._waiting.append(run)

    def _scheduled(self, run: Run) -> bool:
        """Find nodes for the pods of a run as the Kubernetes scheduler does; False: not for all of them."""
        free, nodes = [*self.course.floor.free], []
        best = min if self._packs else max
        for _ in range(run.pods):
            room = [number for number, gpus in enumerate(free) if gpus >= run.gpus]
            if not room:
                return False
            wanted = best(free[number] for number in room)
            nodes.append(self._chance.choice([number for number in room if free[number] == wanted]))
            free[nodes[-1]] -= run.gpus
        self._starts(run, nodes)
        return True

    def _starts(self, run: Run, nodes: list[int]) -> None:
        self.course.floor.put(run, nodes)
        self.course.waits[run.name] = self._time.now - run.arrives
        if run.trains:
            self.course.racks[run.name] = len({node // NODES for node in nodes})
        self._time.end(self._time.now + run.seconds, run.name)


def _workload(run: Run, *, topology: bool) -> Workload:
    wanted = TopologyRequest(required="rack") if run.trains else TopologyRequest(unconstrained=True)
    pods = PodSet("main", run.pods, {GPU: run.gpus}, topology=wanted if topology else None)
    queue = _TRAINING if run.trains else _SMALL
    return Workload(run.name, "default", run.name, queue, 0, run.arrives, (pods,))


def _node(number: int) -> NodeState:
    rack, name = number // NODES, str(number)
    labels = {**_POOL, "block": str(rack // RACKS), "rack": str(rack % RACKS), HOSTNAME: name}
    return NodeState(name, labels, {GPU: GPUS, "pods": 110})


def _queue_documents(*, topology: bool) -> Iterator[Document]:
    levels = [{"nodeLabel": level} for level in _LEVELS]
    yield queue_object("Topology", "floor", spec={"levels": levels})
    flavor = {"nodeLabels": _POOL, **({"topologyName": "floor"} if topology else {})}
    yield queue_object("ResourceFlavor", "gpu", spec=flavor)
    for name, quota in _QUOTA.items():
        resources = [{"name": GPU, "nominalQuota": quota}]
        groups = [{"coveredResources": [GPU], "flavors": [{"name": "gpu", "resources": resources}]}]
        yield queue_object("ClusterQueue", name, spec={"namespaceSelector": {}, "resourceGroups": groups})
        yield queue_object("LocalQueue", name, namespace="default", spec={"clusterQueue": name})
