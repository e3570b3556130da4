"""`sluice demo`: a live demonstration of Sluice in a sandbox on this machine, in three minutes."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from admission.cli.demo.plan import three_teams
from admission.cli.demo.scenes import fair_share, of_clusters, of_kinds
from admission.cli.demo.trace import trace_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from admission.cli.demo.terminal import Terminal

_QUOTAS, _FAIR_SHARE, _TOPOLOGY, _MONTH, _KINDS = _ALL = "quotas", "fair-share", "topology", "month", "kinds"
_CLUSTERS: Final = "clusters"
_SCENES: Final = (*_ALL, _CLUSTERS)
_VIRTUAL: Final = (_TOPOLOGY, _MONTH)
"""Scenes without processes, on virtual time."""


@click.command()
@click.option("--scene", type=click.Choice(_SCENES), help="Run only this scene.  [default: all but clusters]")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Run a single scene instead: the first pods of this openb_pods.csv as Jobs.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 10_000),
    help="Number of Jobs.  [default: 1000; with --trace 2000; of clusters 3000]",
)
@click.option(
    "--nodes",
    type=click.IntRange(10, 1000),
    help="Number of nodes with 10 CPUs each; not with --trace.  [default: 100]",
)
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    help="Speed of the sandbox's clock, in multiples of real time.  [default: 60; with --trace 360]",
)
@click.option("--keep", is_flag=True, help="Keep everything running at the end, to explore it with kubectl and sluice.")
def demo(
    *,
    scene: str | None,
    trace: Path | None,
    jobs: int | None,
    nodes: int | None,
    speed: float | None,
    keep: bool,
) -> None:
    """See Sluice at work in a sandbox.

    Each scene ends with its measurements and with what it has promised; the exit code is 1 if a promise was broken.

    \b
      quotas      1000 Jobs of three teams queue, borrow quota and run: each once,
                  and never more than the quota at a time
      fair-share  quota is shared by weight, and reclaimed by evicting Jobs: each
                  is restored as it was written, and runs later
      topology    training runs that need a rack each, among small jobs, on 512
                  nodes and virtual time: by topology none is split over racks
      month       a month of virtual time of two teams, with a Budget, a calendar
                  of weekends and a Reservation
      kinds       RayClusters, Volcano Jobs as TorchX submits them, StatefulSets
                  and Jobs in one cohort: each starts with all its pods
      clusters    3000 Jobs in three clusters with one quota, then 1000 that one
                  cluster dispatches to two others; one is cut off for some time

    \b
    Examples:
      sluice demo
      sluice demo --scene fair-share --keep
      sluice demo --trace openb_pods.csv
    """
    # Imported late: these take most of a second, for which `sluice demo --help` should not wait.
    from admission.cli.demo.children import cancel_on_signals
    from admission.cli.demo.terminal import Terminal

    scenes = _scenes(scene, trace, jobs=jobs, nodes=nodes, speed=speed, keep=keep)

    async def interruptible() -> bool:
        cancel_on_signals()
        terminal = Terminal.of(sys.stdout)
        return all([await play(terminal) for play in scenes])

    try:
        kept = asyncio.run(interruptible())
    except asyncio.CancelledError as error:
        raise click.Abort from error
    if not kept:
        sys.exit(1)


def _scenes(
    scene: str | None, trace: Path | None, *, jobs: int | None, nodes: int | None, speed: float | None, keep: bool
) -> list[Callable[[Terminal], Coroutine[None, None, bool]]]:
    """Return what plays each scene. Only the last one is kept."""
    from admission.cli.demo.month import play_month
    from admission.cli.demo.run import run
    from admission.cli.demo.topology import place_runs

    if trace is not None:
        if nodes is not None:
            raise click.UsageError("--nodes cannot be given with --trace, which has its own nodes")
        if scene is not None:
            raise click.UsageError("--scene cannot be given with --trace, which is a separate scene")
        return [partial(run, trace_plan(trace, jobs=jobs or 2000, speed=speed or 360.0), keep=keep)]
    if (scene not in (None, _QUOTAS) and nodes is not None) or (scene not in (None, _QUOTAS, _CLUSTERS) and jobs):
        raise click.UsageError(
            "--jobs and --nodes are for the scene quotas, --jobs for clusters; others have fixed sizes"
        )
    if scene in _VIRTUAL and (speed is not None or keep):
        raise click.UsageError(f"--speed and --keep are for the other scenes; {scene} runs on virtual time")
    virtual = {_TOPOLOGY: place_runs, _MONTH: play_month}
    plans = {
        _QUOTAS: three_teams(jobs=jobs or 1000, nodes=nodes or 100, speed=speed or 60.0),
        _FAIR_SHARE: fair_share(speed=speed or 60.0),
        _KINDS: of_kinds(speed=speed or 60.0),
    }
    if scene == _CLUSTERS:
        numbers = ((False, jobs or 3000), (True, jobs or 1000))
        shared, dispatched = (of_clusters(dispatches=each, jobs=count, speed=speed or 60.0) for each, count in numbers)
        return [partial(run, shared, keep=False), partial(run, dispatched, keep=keep)]
    names = _ALL if scene is None else (scene,)
    return [
        virtual[name] if name in _VIRTUAL else partial(run, plans[name], keep=keep and name == names[-1])
        for name in names
    ]
