"""`sluice demo`: Sluice doing its main job before one's eyes, on this machine, in under three minutes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from admission.cli.demo.plan import Plan, three_teams
from admission.cli.demo.trace import trace_plan


@click.command()
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
def demo(*, trace: Path | None, jobs: int | None, nodes: int | None, speed: float | None, keep: bool) -> None:
    """See Sluice at work in a sandbox.

    Starts a pretend cluster and a Sluice on this machine, submits 1000 Jobs of three teams, shows how they
    queue, borrow quota from each other and run, and ends with what was measured. Exit code 1 if quota was
    exceeded, or a Job did not run exactly once.

    \b
    Examples:
      sluice demo
      sluice demo --keep
      sluice demo --trace openb_pods.csv
    """
    # Their imports take most of a second, which `sluice demo --help` need not wait for.
    from admission.cli.demo.children import cancel_on_signals
    from admission.cli.demo.run import run
    from admission.cli.demo.terminal import Terminal

    plan = _plan(trace, jobs=jobs, nodes=nodes, speed=speed)

    async def interruptible() -> bool:
        cancel_on_signals()
        return await run(plan, Terminal.of(sys.stdout), keep=keep)

    try:
        kept = asyncio.run(interruptible())
    except asyncio.CancelledError as error:
        raise click.Abort from error
    if not kept:
        sys.exit(1)


def _plan(trace: Path | None, *, jobs: int | None, nodes: int | None, speed: float | None) -> Plan:
    if trace is None:
        return three_teams(jobs=jobs or 1000, nodes=nodes or 100, speed=speed or 60.0)
    if nodes is not None:
        raise click.UsageError("--nodes cannot be given with --trace, which has nodes of its own kind")
    return trace_plan(trace, jobs=jobs or 2000, speed=speed or 360.0)
