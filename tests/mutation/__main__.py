"""`make mutants`: break the engine in small ways and see whether a test notices (CONTRIBUTING.md, Mutation testing)."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutation.breaks import breaks
from tests.mutation.run import Run, Tests

PACKAGE = "admission.engine"
TESTS = ("tests/engine", "tests/vectors", "tests/simulate")
# The shared fixtures start databases and sandboxes, of which the engine knows nothing.
OPTIONS = ("-q", "-s", "--noconftest", "--assert=plain", "-p", "no:cacheprovider", "-o", "timeout=0", "-W", "ignore")


def main(arguments: list[str]) -> int:
    """Run the breaks that were asked for; the exit code is that of pytest."""
    given = _parsed(arguments)
    known = _rows(given.report)
    survivors = {row["name"] for row in known if row["verdict"] == "survived"}
    chosen = list(breaks(PACKAGE, given.patterns))
    if given.sample:
        chosen = random.Random(given.seed).sample(chosen, min(given.sample, len(chosen)))
        print(f"{len(chosen)} of them, seed {given.seed}")
    if given.survivors:
        chosen = [one for one in chosen if one.name in survivors]
        known = [row for row in known if row["verdict"] != "survived" or row["name"] not in {x.name for x in chosen}]
        given.report.write_text("".join(f"{json.dumps(row)}\n" for row in known))
    done = {row["name"] for row in known}
    run = Run([one for one in chosen if one.name not in done], given.report, Tests(thorough=given.thorough))
    code = pytest.main([*OPTIONS, *TESTS], plugins=[run])
    _show(_rows(given.report))
    return int(code)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"], help="such as tree.* or pending.PendingQueue.add.*")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many of them, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--survivors", action="store_true", help="only those that the report says survived, again")
    parser.add_argument("--thorough", action="store_true", help="with all tests as they are: minutes for each survivor")
    parser.add_argument("--report", type=Path, default=Path("mutants.jsonl"), help="what is in it is not run again")
    return parser.parse_args(arguments)


def _rows(report: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def _show(rows: list[dict[str, str]]) -> None:
    for row in rows:
        if row["verdict"] == "survived":
            print(f"{row['name']} survived\n{row['diff']}\n")
    of_module = Counter(row["name"].partition(".")[0] for row in rows)
    alive = Counter(row["name"].partition(".")[0] for row in rows if row["verdict"] == "survived")
    for module, count in sorted(of_module.items()):
        print(f"{module:16} {count - alive[module]:5} of {count} killed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
