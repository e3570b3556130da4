"""The scene "topology": training runs that need a rack each, beside small jobs, with and without placement by topology.

The engine decides on virtual time, three times over the same day. Once it places by topology. Otherwise it decides by
quota alone, and a model of the Kubernetes scheduler chooses the node of each pod: one with most free GPUs
(LeastAllocated, its default) or with fewest (MostAllocated). As there, nodes of equal score are drawn at random, and
pods that fit nowhere wait, while their run holds its quota. Maps of the nodes are shown side by side.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
from dataclasses import dataclass, field
from itertools import groupby
from string import ascii_letters
from typing import TYPE_CHECKING, Final

from admission.cli.demo.closing import Closing
from admission.cli.demo.plan import GPU, queue_object
from admission.cli.demo.terminal import RUN_STYLES
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
    from admission.cli.demo.terminal import Terminal
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


_FRAMES: Final = 96
_PACE: Final = 0.06
"""Shortest seconds between two frames, so that a fast machine shows something, too."""
_ACROSS: Final = 4
"""Nodes of a rack are drawn as a square."""
_WIDTH: Final = RACKS * (_ACROSS + 1) - 1
_GAP: Final = "  "


async def place_runs(terminal: Terminal) -> bool:
    """Play the day with each way of placing pods, and return whether topology has split no training run."""
    count = BLOCKS * RACKS * NODES
    runs = day_of_runs()
    terminal.say(
        f"Sluice demo: training runs that need a rack each ({NODES} pods with {GPUS} GPUs) among small jobs; "
        f"{count} nodes in {BLOCKS} blocks of {RACKS} racks."
    )
    terminal.say("A day of virtual time, decided by the engine; the note below says what is a model.")
    plays = [
        Play("Scheduler, spreading (its default)", runs),
        Play("Scheduler, packing (MostAllocated)", runs, packs=True),
        Play("Sluice, by topology", runs, topology=True),
    ]
    letters = {run.name: number for number, run in enumerate(run for run in runs if run.trains)}
    with terminal:
        for frame in range(1, _FRAMES + 1):
            pause = asyncio.create_task(asyncio.sleep(_PACE if terminal.interactive else 0))
            for play in plays:
                play.until(DAY * frame / _FRAMES)
            await pause
            if terminal.interactive or frame == _FRAMES:
                terminal.redraw([*_picture(terminal, [play.course for play in plays], letters, frame)])
    closing = _close([play.course for play in plays], runs)
    terminal.close(closing)
    return closing.kept


def _picture(
    terminal: Terminal, courses: list[RackCourse], letters: dict[str, int], frame: int
) -> Iterator[tuple[str, int]]:
    """Yield lines with their lengths: the maps beside each other, as many as fit, the last ones first."""
    columns = max(_WIDTH, shutil.get_terminal_size().columns)
    shown = courses[-((columns + len(_GAP)) // (_WIDTH + len(_GAP))) :]
    length = len(shown) * (_WIDTH + len(_GAP)) - len(_GAP)
    minutes = round(DAY * frame / _FRAMES / 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}"
    yield "", 0
    yield terminal.paint("bold", _GAP.join(f"{course.title:{_WIDTH}}" for course in shown)), length
    counts = (f"{clock}  {course.split} of {len(course.racks)} training runs split" for course in shown)
    yield _GAP.join(f"{text:{_WIDTH}}" for text in counts), length
    for rows in zip(*(_map(terminal, course, letters) for course in shown), strict=True):
        yield _GAP.join(rows), length
    legend = "letter: node of a training run   ·: small jobs   blank: nothing"
    yield "", 0
    yield terminal.paint("dim", legend), len(legend)


def _map(terminal: Terminal, course: RackCourse, letters: dict[str, int]) -> Iterator[str]:
    """Yield the lines of a map: a square of nodes for each rack, the racks of a block beside each other."""
    floor = course.floor
    nodes = [None if free == GPUS else -1 for free in floor.free]
    for name, places in floor.where.items():
        if name in letters:
            for place in places:
                nodes[place] = letters[name]
    for block in range(BLOCKS):
        yield " " * _WIDTH
        for row in range(NODES // _ACROSS):
            begins = ((block * RACKS + rack) * NODES + row * _ACROSS for rack in range(RACKS))
            yield " ".join(_cells(terminal, nodes[begin : begin + _ACROSS]) for begin in begins)


def _cells(terminal: Terminal, nodes: list[int | None]) -> str:
    text = ""
    for what, same in groupby(nodes):
        number = len([*same])
        if what is None:
            text += " " * number
        elif what < 0:
            text += terminal.paint("dim", "·" * number)
        else:
            letter = ascii_letters[what % len(ascii_letters)]
            text += terminal.paint(RUN_STYLES[what % len(RUN_STYLES)], letter * number)
    return text


def _close(courses: list[RackCourse], runs: tuple[Run, ...]) -> Closing:
    trains = {run.name for run in runs if run.trains}
    rows = []
    for course in courses:
        waits = [wait for name, wait in course.waits.items() if name in trains]
        used = course.busy / DAY / (BLOCKS * RACKS * NODES * GPUS)
        rows.append(
            (
                course.title,
                str(len(course.racks)),
                str(course.split),
                f"{statistics.mean(course.racks.values()):.1f}",
                f"{statistics.mean(waits) / 60:.0f} m",
                f"{used:.0%}",
            )
        )
    kept = not courses[-1].split
    outcome = "by topology no training run was split over racks" if kept else "topology has split training runs"
    return Closing(
        ("Nodes chosen by", "Training runs", "split", "Racks of each", "Mean wait", "GPUs used"),
        tuple(rows),
        "Split runs have pods in several racks; waits are those of training runs until all pods ran. Without "
        "topology Sluice decides by quota, and each pod gets a node by the score of Kubernetes' LeastAllocated or "
        "MostAllocated, at random among equal ones.",
        (("Runs", f"{len(trains)} training runs and {len(runs) - len(trains)} small jobs arrived"),),
        ((kept, outcome),),
    )
