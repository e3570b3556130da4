"""`python -m tests.deploy`: the lifecycle of a release, longer than in the tests, or from an earlier revision."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chart import CHART
from containers import build_tree, next_release
from release_scene import play

from tests.postgresql_server import running_postgresql

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Play the lifecycle, and print its steps with their times."""
    parser = argparse.ArgumentParser(prog="make release-scene")
    parser.add_argument("--rounds", type=int, default=5, help="how often the leader is killed (5)")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two requests of a user (0.02)")
    parser.add_argument("--before", metavar="REVISION", help="upgrade from this revision; else to an invented next one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-release-") as name, running_postgresql() as server:
        folder = Path(name)
        here = build_tree(folder / "image")
        chart = CHART
        if options.before is None:
            trees = {"0.1.0": here, "after": next_release(here, folder / "after")}
        else:
            sources = _sources_of(options.before, folder / "sources")
            trees = {"0.1.0": build_tree(folder / "before", sources=sources), "after": here}
            chart = sources / CHART.relative_to(ROOT)
        print(f"from schema {_schema(trees['0.1.0'])} to {_schema(trees['after'])}")
        server.execute("CREATE DATABASE release")
        scene = play(
            folder,
            trees,
            database_url=server.url("release"),
            schema=_schema(trees["0.1.0"]),
            first_chart=chart,
            rounds=options.rounds,
            pause=options.pause,
        )
        asyncio.run(scene)


def _sources_of(revision: str, folder: Path) -> Path:
    folder.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "--extract"], cwd=folder, input=archive.stdout, check=True)
    return folder


def _schema(tree: Path) -> str:
    """Return the number of the newest migration in a tree."""
    return max(file.name[:4] for file in (tree / "admission" / "_migrations" / "versions").glob("[0-9]*.py"))


if __name__ == "__main__":
    main()
