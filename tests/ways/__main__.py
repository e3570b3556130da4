"""`make ways`: every way to bypass the queue, for every kind. The exit code is 1 if one of them succeeded."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does

from admission.cli.demo.children import cancel_on_signals
from admission.store.database.migrations import ensure_ready
from tests.ways.cluster import Setup, running_cluster
from tests.ways.objects import CASES
from tests.ways.play import WORDS, Cell, play_all
from tests.ways.table import WAYS, recorded, write

_STABLE = 5
"""Seconds without change after which the results are final."""
_LONGEST = 90
"""Maximum number of seconds to wait for final results."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ways", description=__doc__)
    parser.add_argument("--kinds", default="", help="kinds to test: parts of their names, separated by commas")
    parser.add_argument("--ways", default="", help="ways to test: their numbers in docs/kinds/tests.md, by commas")
    parser.add_argument("--policies", action="store_true", help="gate by admission policies instead of webhooks")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--managed",
        dest="queue_by",
        action="store_const",
        const="managed",
        help="without queue labels, in managed namespaces",
    )
    how.add_argument(
        "--rules", dest="queue_by", action="store_const", const="rules", help="without queue labels, queued by a rule"
    )
    parser.add_argument("--write", action="store_true", help="rewrite the table of docs/kinds/tests.md")
    parser.add_argument("--verbose", action="store_true", help="print the response to each request")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    cancel_on_signals()  # else it would leave its `sluice serve` behind
    kinds = [part for part in arguments.kinds.split(",") if part]
    numbers = {int(part) for part in arguments.ways.split(",") if part}
    with tempfile.TemporaryDirectory(prefix="sluice-ways-") as folder:
        url = f"sqlite:///{folder}/sluice.db"
        await ensure_ready(url)
        setup = Setup(arguments.policies, arguments.queue_by or "")
        async with running_cluster(Path(folder), url, setup) as cluster:
            cells = [
                Cell(cluster, case, way)
                for case in CASES
                for number, way in enumerate(WAYS, start=1)
                if (not kinds or any(part in case.name for part in kinds)) and (not numbers or number in numbers)
            ]
            print(f"{len(cells)} combinations of kind and way", flush=True)
            await play_all(cells)
            found = await _final_results(cells)
            violations = list(cluster.observer.violations)
    known = recorded(policies=setup.policies)
    may_exceed = {cell.namespace for cell in found if cell.may_exceed}
    for cell, word in found.items():
        documented_word = known.get(cell.key, "")
        if word != documented_word or arguments.verbose:
            print(
                f"{cell.case.name}, {cell.way}: {word}"
                + (f" (docs/kinds/tests.md: {documented_word})" if word != documented_word else "")
            )
        for line in cell.responses() if arguments.verbose or word not in WORDS else ():
            print(f"    {line}")
    for line in violations:
        print(f"QUOTA {line}")
    documented = [line for line in violations if line.partition(":")[0] in may_exceed]
    bad = [cell for cell, word in found.items() if word not in WORDS]
    if arguments.write and not bad and not setup.queue_by:
        write({**known, **{cell.key: word for cell, word in found.items()}}, policies=setup.policies)
    print(
        f"let in: {len(bad)}; the observer saw pods beyond their quota: {len(violations)}, documented {len(documented)}"
    )
    return 1 if bad or len(violations) > len(documented) else 0


async def _final_results(cells: list[Cell]) -> dict[Cell, str]:
    """Return the results once they have not changed for _STABLE seconds, at the latest after _LONGEST."""
    found: dict[Cell, str] = {}
    stable = 0
    for _ in range(_LONGEST):
        before, found = found, {cell: await cell.result() for cell in cells}
        stable = stable + 1 if found == before else 0
        if stable == _STABLE:
            break
        await asyncio.sleep(1.0)
    return found


if __name__ == "__main__":
    sys.exit(main())
