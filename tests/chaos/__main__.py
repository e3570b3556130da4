"""`make chaos`: the storm in full. The exit code is 1 if anything of what is promised did not hold."""

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
from tests.chaos.schedule import Fault
from tests.chaos.storm import plan_of, storm
from tests.postgresql_server import running_postgresql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.storm import Outcome

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
}
"""Strikes for each thousand Jobs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--speed", type=float, default=120.0, help="how much faster than time the sandbox runs")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to have the same storm again")
    parser.add_argument("--folder", type=Path, help="where logs are left; by default nothing is")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: again with --seed {seed} --jobs {arguments.jobs}", flush=True)
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


async def _run(seed: int, arguments: argparse.Namespace) -> Outcome:
    cancel_on_signals()
    counts = {fault: max(1, count * arguments.jobs // 1000) for fault, count in PER_THOUSAND.items()}
    with _folder(arguments.folder) as folder, running_postgresql() as server:
        await asyncio.to_thread(server.execute, "CREATE DATABASE chaos")
        return await storm(
            plan_of(arguments.jobs, speed=arguments.speed),
            seed=seed,
            counts=counts,
            replicas=arguments.replicas,
            folder=folder,
            database_url=server.url("chaos"),
            server=server,
            timeouts=2,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
