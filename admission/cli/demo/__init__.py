"""`sluice demo`: a live demonstration of Sluice in a sandbox on this machine, in under three minutes."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.cli.demo.plan import three_teams
from admission.cli.demo.scenes import fair_share, of_kinds
from admission.cli.demo.trace import trace_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from admission.cli.demo.terminal import Terminal

_QUOTAS, _FAIR_SHARE, _TOPOLOGY, _KINDS = _SCENES = "quotas", "fair-share", "topology", "kinds"


@click.command()
@click.option("--scene", type=click.Choice(_SCENES), help="Run only this scene.  [default: all]")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Run a single scene instead: the first pods of this openb_pods.csv as Jobs.",
)
@click.option("--jobs", type=click.IntRange(1, 10_000), help="Number of Jobs.  [default: 1000; with --trace 2000]")
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

    Starts a simulated cluster and Sluice on this machine, and runs four scenes. In the first one three teams
    submit 1000 Jobs, which queue, borrow quota from each other and run. The second one shows fair sharing: quota
    is shared by weight, and reclaimed by evicting Jobs. The third one places training runs that need a rack each
    among small jobs, on 512 nodes and virtual time, with and without topology. The fourth, short one has
    RayClusters, Volcano Jobs as TorchX submits them, StatefulSets and Jobs in one cohort. Each scene ends with its
    measurements. The exit code is 1 if quota was exceeded, a Job of the first scene did not run exactly once, an
    evicted Job of the second was not restored as it was written, a training run of the third was split over racks
    in spite of topology, or an object of the fourth did not start with all its pods.

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
    from admission.cli.demo.run import run
    from admission.cli.demo.topology import place_runs

    if trace is not None:
        if nodes is not None:
            raise click.UsageError("--nodes cannot be given with --trace, which has its own nodes")
        if scene is not None:
            raise click.UsageError("--scene cannot be given with --trace, which is a separate scene")
        return [partial(run, trace_plan(trace, jobs=jobs or 2000, speed=speed or 360.0), keep=keep)]
    if scene not in (None, _QUOTAS) and (jobs is not None or nodes is not None):
        raise click.UsageError("--jobs and --nodes are for the scene quotas; the other scenes have fixed sizes")
    if scene == _TOPOLOGY and (speed is not None or keep):
        raise click.UsageError("--speed and --keep are for the other scenes; topology runs on virtual time")
    plans = {
        _QUOTAS: three_teams(jobs=jobs or 1000, nodes=nodes or 100, speed=speed or 60.0),
        _FAIR_SHARE: fair_share(speed=speed or 60.0),
        _KINDS: of_kinds(speed=speed or 60.0),
    }
    names = _SCENES if scene is None else (scene,)
    return [
        place_runs if name == _TOPOLOGY else partial(run, plans[name], keep=keep and name == names[-1])
        for name in names
    ]
