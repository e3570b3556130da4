"""The scene "topology": maps of the nodes, side by side, with and without placement by topology."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from itertools import groupby
from string import ascii_letters
from typing import TYPE_CHECKING, Final

from admission.cli.demo.closing import Closing
from admission.cli.demo.racks import BLOCKS, DAY, GPUS, NODES, RACKS, Play, Run, day_of_runs
from admission.cli.demo.terminal import RUN_STYLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.cli.demo.racks import RackCourse
    from admission.cli.demo.terminal import Terminal

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
