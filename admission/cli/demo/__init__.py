"""`sluice demo`: Sluice doing its main job before one's eyes, on this machine, in under three minutes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from admission.cli.demo.fair_share import fair_share
from admission.cli.demo.kinds import of_kinds
from admission.cli.demo.plan import Plan, three_teams
from admission.cli.demo.trace import trace_plan

_QUOTAS, _FAIR_SHARE, _KINDS = "quotas", "fair-share", "kinds"


@click.command()
@click.option("--scene", type=click.Choice([_QUOTAS, _FAIR_SHARE, _KINDS]), help="Play only this one.  [default: all]")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Replay the first pods of this openb_pods.csv as Jobs instead."
)
@click.option("--jobs", type=click.IntRange(1, 10_000), help="How many Jobs.  [default: 1000, of a trace 2000]")
@click.option(
    "--nodes", type=click.IntRange(10, 1000), help="How many nodes of 10 CPUs; not for a trace.  [default: 100]"
)
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    help="How many times faster than time the sandbox runs.  [default: 60, for a trace 360]",
)
@click.option("--keep", is_flag=True, help="Keep everything running at the end, to look around.")
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

    Starts a pretend cluster and a Sluice on this machine, submits 1000 Jobs of three teams, shows how they
    queue, borrow quota from each other and run, and ends with what was measured. Then a second scene, of quota
    that is shared by weight and taken back by evicting Jobs, and a third, short one, of RayClusters, what TorchX
    submits, StatefulSets and Jobs in one cohort. Exit code 1 if quota was exceeded, a Job of the first scene did
    not run exactly once, one of the second did not come back as it was written, or anything of the third was
    started in parts.

    \b
    Examples:
      sluice demo
      sluice demo --scene fair-share --keep
      sluice demo --trace openb_pods.csv
    """
    # Their imports take most of a second, which `sluice demo --help` need not wait for.
    from admission.cli.demo.children import cancel_on_signals
    from admission.cli.demo.run import run
    from admission.cli.demo.terminal import Terminal

    plans = _plans(scene, trace, jobs=jobs, nodes=nodes, speed=speed)

    async def interruptible() -> bool:
        cancel_on_signals()
        terminal = Terminal.of(sys.stdout)
        return all([await run(plan, terminal, keep=keep and plan is plans[-1]) for plan in plans])

    try:
        kept = asyncio.run(interruptible())
    except asyncio.CancelledError as error:
        raise click.Abort from error
    if not kept:
        sys.exit(1)


def _plans(
    scene: str | None, trace: Path | None, *, jobs: int | None, nodes: int | None, speed: float | None
) -> list[Plan]:
    if trace is not None:
        if nodes is not None:
            raise click.UsageError("--nodes cannot be given with --trace, which has nodes of its own kind")
        if scene is not None:
            raise click.UsageError("--scene cannot be given with --trace, which is a scene of its own")
        return [trace_plan(trace, jobs=jobs or 2000, speed=speed or 360.0)]
    if scene in (_FAIR_SHARE, _KINDS) and (jobs is not None or nodes is not None):
        raise click.UsageError("--jobs and --nodes are for the scene of quotas; the others have their own")
    scenes = {
        _QUOTAS: three_teams(jobs=jobs or 1000, nodes=nodes or 100, speed=speed or 60.0),
        _FAIR_SHARE: fair_share(speed=speed or 60.0),
        _KINDS: of_kinds(speed=speed or 60.0),
    }
    return [plan for name, plan in scenes.items() if scene in (None, name)]
