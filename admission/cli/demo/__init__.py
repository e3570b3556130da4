"""`sluice demo`: a live demonstration of Sluice in a sandbox on this machine, in under three minutes."""

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
@click.option("--scene", type=click.Choice([_QUOTAS, _FAIR_SHARE, _KINDS]), help="Run only this scene.  [default: all]")
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

    Starts a simulated cluster and Sluice on this machine, and runs three scenes. In the first one three teams
    submit 1000 Jobs, which queue, borrow quota from each other and run. The second one shows fair sharing: quota
    is shared by weight, and reclaimed by evicting Jobs. The third, short one has RayClusters, Volcano Jobs as
    TorchX submits them, StatefulSets and Jobs in one cohort. Each scene ends with its measurements. The exit code
    is 1 if quota was exceeded, a Job of the first scene did not run exactly once, an evicted Job of the second was
    not restored as it was written, or an object of the third did not start with all its pods.

    \b
    Examples:
      sluice demo
      sluice demo --scene fair-share --keep
      sluice demo --trace openb_pods.csv
    """
    # Imported late: these take most of a second, for which `sluice demo --help` should not wait.
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
            raise click.UsageError("--nodes cannot be given with --trace, which has its own nodes")
        if scene is not None:
            raise click.UsageError("--scene cannot be given with --trace, which is a separate scene")
        return [trace_plan(trace, jobs=jobs or 2000, speed=speed or 360.0)]
    if scene in (_FAIR_SHARE, _KINDS) and (jobs is not None or nodes is not None):
        raise click.UsageError("--jobs and --nodes are for the scene quotas; the other scenes have fixed sizes")
    scenes = {
        _QUOTAS: three_teams(jobs=jobs or 1000, nodes=nodes or 100, speed=speed or 60.0),
        _FAIR_SHARE: fair_share(speed=speed or 60.0),
        _KINDS: of_kinds(speed=speed or 60.0),
    }
    return [plan for name, plan in scenes.items() if scene in (None, name)]
