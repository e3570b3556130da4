"""`make fuzz`: play games until the time is over. The exit code is 1 if there were findings."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from admission.cli.demo.children import cancel_on_signals
from admission.store.database.migrations import migrate
from tests.fuzz.findings import Finding
from tests.fuzz.game import Played, play
from tests.fuzz.moves import games
from tests.fuzz.shrink import shrink
from tests.fuzz.world import a_world
from tests.postgresql_server import running_postgresql

if TYPE_CHECKING:
    from tests.fuzz.moves import Game
    from tests.fuzz.world import World
    from tests.postgresql_server import PostgreSQL

_TEMPLATE = "fuzz"
"""Name of a migrated database, copied for each world."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="minimum duration; the last game is played to its end"
    )
    parser.add_argument("--seed", type=int, default=None, help="seed of an earlier run, to play the same games")
    parser.add_argument("--skip", type=int, default=0, help="number of games to skip")
    for about, what in (
        ("pods", "pods and groups of pods"),
        ("kinds", "RayClusters, StatefulSets and the like"),
        ("topology", "nodes and placed Jobs"),
    ):
        parser.add_argument(
            f"--{about}",
            dest="about",
            action="store_const",
            const=about,
            default="",
            help=f"more moves about {what} than about Jobs",
        )
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--until", default=None, help="stop at the first finding whose title has this text")
    parser.add_argument(
        "--shrink", type=int, default=0, help="maximum number of attempts to shorten the game of each finding"
    )
    parser.add_argument("--replay", type=Path, help="file with one game, as printed: play only that")
    parser.add_argument("--folder", type=Path, help="folder in which to keep the log of each game with a finding")
    arguments = parser.parse_args()
    return asyncio.run(Run(arguments).run())


class Run:
    """All games of one run, and their findings."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._server: PostgreSQL | None = None
        self._found: dict[str, int] = {}
        self._databases = 0
        self._folder = Path()
        self._world: World | None = None
        self._stack = AsyncExitStack()
        """Holds the current world."""

    async def run(self) -> int:
        cancel_on_signals()
        with ExitStack() as stack:
            if self._arguments.database == "postgresql":
                self._server = server = stack.enter_context(running_postgresql())
                await asyncio.to_thread(server.execute, f"CREATE DATABASE {_TEMPLATE}")
                await migrate(server.url(_TEMPLATE))
            async with self._stack:
                await self._all_games()
        return 1 if self._found else 0

    async def _all_games(self) -> None:
        arguments = self._arguments
        if arguments.replay is not None:
            await self._game("replay", json.loads(arguments.replay.read_text()))
        else:
            seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
            print(f"seed {seed}: repeat with --seed {seed}", flush=True)
            await self._games(seed)

    async def _games(self, seed: int) -> None:
        arguments, began, moves, number = self._arguments, time.monotonic(), 0, 0
        for number, game in enumerate(games(seed, arguments.about)):
            if time.monotonic() - began > 60 * arguments.minutes:
                break
            if number < arguments.skip:
                continue
            played = await self._game(str(number), game)
            moves += played.moves
            if played.finding is not None and arguments.until is not None and arguments.until in played.finding.title:
                break
        minutes = (time.monotonic() - began) / 60
        found = ", ".join(f"{count} x {title}" for title, count in self._found.items()) or "nothing was found"
        print(f"seed {seed}: {number} games, {moves} moves, {minutes:.1f} minutes: {found}", flush=True)

    async def _game(self, name: str, game: Game) -> Played:
        played = await self._play(game)
        title = "" if played.finding is None else played.finding.title
        print(
            f"game {name}: {played.moves} moves, {played.seconds:.0f} s, at most {played.most:g} cpu  {title}",
            flush=True,
        )
        if played.finding is not None:
            self._found[title] = self._found.get(title, 0) + 1
            print("    " + played.finding.details.replace("\n", "\n    "), flush=True)
            game = game[: played.moves]
            if self._arguments.shrink:
                end = played.resting

                async def is_found(shorter: Game) -> bool:
                    again = await self._play(shorter, to_the_end=end)
                    return again.finding is not None and again.finding.title == title

                game = await shrink(game, is_found, attempts=self._arguments.shrink)
            print(f"    {json.dumps(game)}", flush=True)
        return played

    async def _play(self, game: Game, *, to_the_end: bool = True) -> Played:
        """Play a game, in the world of the last one, or in a new world after a finding."""
        if self._world is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-fuzz-")))
            world = a_world(self._folder, await self._database(self._folder))
            try:
                self._world = await self._stack.enter_async_context(world)
            except Finding as found:
                await self._close_world()
                return Played(0, 0.0, 0.0, found, resting=False)
        played = await play(game, self._world, to_the_end=to_the_end)
        if played.finding is not None:
            if self._arguments.folder is not None:
                target = self._arguments.folder / f"{int(time.time())}"
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(self._folder / "serve.log", target)
            await self._close_world()
        return played

    async def _close_world(self) -> None:
        self._world = None
        await self._stack.aclose()

    async def _database(self, folder: Path) -> str:
        if self._server is None:
            url = f"sqlite:///{folder}/sluice.db"
            await migrate(url)
            return url
        self._databases += 1
        name = f"fuzz{self._databases}"
        await asyncio.to_thread(self._server.execute, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        return self._server.url(name)


if __name__ == "__main__":
    sys.exit(main())
