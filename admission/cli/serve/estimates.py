"""Estimated starts in `sluice serve`: a process of its own makes them, now and then, while anything waits."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.api.resources.start_estimates import StartEstimate

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping

    from admission.cli.configuration.settings import Settings
    from admission.controller.controller import Controller

log = logging.getLogger(__name__)

INTERVAL: Final = 30.0
"""Seconds between two estimates, at least."""

SHARE: Final = 0.05
"""Of a processor at most so much is spent on estimates, however long one takes."""

ANSWER_SECONDS: Final = 120.0
"""A process that has not answered by then is stuck, and is ended."""

_LINE: Final = 2**28
"""Bytes of an answer, at most: 100 for each workload that waits."""


class Estimates:
    """The last ones. `of` is for the API."""

    def __init__(self, settings: Settings, controller: Controller, *, interval: float = INTERVAL) -> None:
        self._settings = settings
        self._controller = controller
        self._interval = interval
        self._process: Process | None = None
        self._at = 0.0
        self._starts: Mapping[str, list[float]] = {}
        self._share_held: float | None = None
        self.cpu_seconds = 0.0
        """Processor time that the last ones have taken, in a process of their own."""

    def of(self, uid: str) -> StartEstimate | None:
        """The estimate for a workload; None if there is none."""
        start = self._starts.get(uid)
        return None if start is None else StartEstimate(self._at, start[0], start[1], self._share_held)

    async def run(self) -> None:
        """Estimate until cancelled, while this replica decides and anything waits."""
        pause = self._interval
        try:
            while True:
                await asyncio.sleep(pause)
                engine = self._controller.engine()
                if engine is None or not engine.waiting:
                    self._starts = {}
                    continue
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await self._ask()
                except (OSError, TimeoutError, ValueError) as error:
                    log.warning("starts are not estimated now: the process that does it failed (%r)", error)
                    self._starts = {}
                    await self._end()
                pause = max(self._interval, self.cpu_seconds / SHARE)
        finally:
            await self._end()

    async def _ask(self) -> None:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"namespaces": self._controller.namespaces(), "limits": self._controller.time_limits()}
        process.stdin.write(orjson.dumps(asked) + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise ConnectionResetError("it has ended")
        answer: dict[str, Any] = orjson.loads(line)
        if "error" in answer:
            log.debug("starts are not estimated now: %s", answer["error"])
            return
        self.cpu_seconds = answer["cpuSeconds"]
        self._at, self._starts, self._share_held = answer["at"], answer["starts"], answer["shareHeld"]

    async def _started(self) -> Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "admission.cli.serve.forecaster",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
                start_new_session=True,  # Ctrl-C is for `serve`, which then ends its process
                limit=_LINE,
            )
            assert self._process.stdin is not None
            self._process.stdin.write(orjson.dumps(self._order()) + b"\n")
        return self._process

    def _order(self) -> dict[str, Any]:
        """What it needs; the database's URL may hold a password, which other users of the machine must not see."""
        given = {"fair_sharing", "admission_fair_sharing", "resources"}
        return {
            "databaseUrl": self._settings.database_url,
            "policy": self._settings.model_dump(mode="json", include=given, by_alias=True),
        }

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()  # it holds nothing that could be lost
        await process.wait()
