"""`make chaos`: the chaos test in full size. The exit code is 1 if one of the promises was broken."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from admission.cli.demo.children import cancel_on_signals
from tests.chaos.kinds import plan_of_kinds
from tests.chaos.schedule import Fault
from tests.chaos.storm import plan_of, storm
from tests.postgresql_server import running_postgresql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.storm import Outcome
    from tests.postgresql_server import PostgreSQL

PER_THOUSAND = {
    Fault.KILL_LEADER: 3,
    Fault.KILL_FOLLOWER: 2,
    Fault.FREEZE_LEADER: 1,
    Fault.KILL_DATABASE: 1,
    Fault.CUT_DATABASE: 2,
    Fault.CUT_WATCHES: 2,
    Fault.STEP_CLOCK: 2,
    Fault.CHANGE_QUOTA: 4,
    Fault.HOLD: 4,
    Fault.DRAIN: 2,
}
CLUSTERS = {
    Fault.KILL_LEADER: 8,
    Fault.STEP_CLOCK: 0,
    Fault.CUT_CLUSTER: 4,
    Fault.LOSE_CLUSTER: 2,
    Fault.SLOW_CLUSTER: 2,
    Fault.DISABLE_CLUSTER: 1,
    Fault.REBUILD_CLUSTER: 1,
    Fault.SCALE: 20,
    Fault.DELETE_COPY: 8,
    Fault.ORPHAN_CLUSTER: 4,
    Fault.FORGE_COPY: 4,
}
"""Number of faults per thousand Jobs, with several clusters."""
NODES = {Fault.NODE_FAILS: 10, Fault.NODE_GOES: 10}
"""Number of faults per thousand Jobs or other objects."""
POLICIES = {
    Fault.KILL_LEADER: 20,
    Fault.FREEZE_LEADER: 4,
    Fault.STEP_CLOCK: 10,
    Fault.EDIT_BUDGET: 30,
    Fault.CHANGE_LIMIT: 20,
    Fault.RESERVE: 30,
    Fault.CALENDAR: 20,
}
"""Number of faults per thousand Jobs, with policies."""
OF_SEVERAL = (Fault.KILL_FOLLOWER, Fault.FREEZE_LEADER, Fault.KILL_DATABASE, Fault.CUT_DATABASE)
"""Faults that need several replicas or PostgreSQL."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kinds", type=int, help="number of objects of each of six kinds, instead of Jobs only")
    parser.add_argument(
        "--topology", action="store_true", help="Jobs are placed in racks, whose nodes fail, go and come"
    )
    parser.add_argument(
        "--policies", action="store_true", help="Jobs of several users have Budgets, limits, Reservations, calendars"
    )
    parser.add_argument("--clusters", type=int, default=1, help="clusters that share the quota, and dispatch Jobs")
    parser.add_argument("--sqlite", action="store_true", help="one replica on SQLite, whose database is never down")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--steady-clocks", action="store_true", help="no clock is set; a replay has to agree")
    parser.add_argument("--speed", type=float, default=120.0, help="speed of the sandbox's clock relative to real time")
    parser.add_argument("--seed", type=int, default=None, help="seed of an earlier run, to repeat its faults")
    parser.add_argument("--folder", type=Path, help="new folder to keep logs in; by default they are deleted")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: repeat with --seed {seed} {_size(arguments)}", flush=True)
    outcome = asyncio.run(_run(seed, arguments))
    print()
    for what, figure in outcome.figures:
        print(f"{what:50} {figure}")
    print()
    for kept, sentence in outcome.promises:
        print(f"{'kept  ' if kept else 'BROKEN'}  {sentence}")
    if outcome.broken:
        print(f"\nseed {seed}\n{outcome.logs}")
    return 1 if outcome.broken else 0


def _size(arguments: argparse.Namespace) -> str:
    size = f"--jobs {arguments.jobs}" if arguments.kinds is None else f"--kinds {arguments.kinds}"
    size += " --steady-clocks" * arguments.steady_clocks
    size += f" --clusters {arguments.clusters}" if arguments.clusters > 1 else ""
    size += " --policies" * arguments.policies
    return f"{size}{' --sqlite' * arguments.sqlite}{' --topology' * arguments.topology}"


async def _run(seed: int, arguments: argparse.Namespace) -> Outcome:
    cancel_on_signals()
    of_kinds, speed = arguments.kinds is not None, arguments.speed
    plan = plan_of_kinds(arguments.kinds, speed=speed) if of_kinds else plan_of(arguments.jobs, speed=speed)
    wanted = PER_THOUSAND | (NODES if arguments.topology else {}) | (CLUSTERS if arguments.clusters > 1 else {})
    wanted |= POLICIES if arguments.policies else {}
    counts = {fault: max(1, count * len(plan.jobs) // 1000) for fault, count in wanted.items() if count}
    if arguments.sqlite:
        counts |= dict.fromkeys(OF_SEVERAL, 0)
    if arguments.steady_clocks:
        counts[Fault.STEP_CLOCK] = 0
    with _folder(arguments.folder) as folder, _database(folder, sqlite=arguments.sqlite) as (url, server):
        if server is not None:
            await asyncio.to_thread(server.execute, "CREATE DATABASE chaos")
        return await storm(
            plan,
            seed=seed,
            counts=counts,
            replicas=1 if arguments.sqlite else arguments.replicas,
            folder=folder,
            database_url=url,
            server=server,
            timeouts=2,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            by_topology=arguments.topology,
            with_policies=arguments.policies,
            clusters=arguments.clusters,
            replays=arguments.steady_clocks,
        )


@contextmanager
def _database(folder: Path, *, sqlite: bool) -> Iterator[tuple[str, PostgreSQL | None]]:
    if sqlite:
        yield f"sqlite:///{folder / 'sluice.db'}", None
        return
    with running_postgresql() as server:
        yield server.url("chaos"), server


@contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    if path is not None:
        path.mkdir(parents=True)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
