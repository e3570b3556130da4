"""Child processes of `sluice serve` that simulate: what-if questions, and estimated start times of pending workloads.

They read the database, and write nothing but estimates. Each reads lines of JSON from its standard input, first the
configuration, and writes lines of JSON. Separate processes, and thus separate interpreters, so that simulations do not
delay decisions.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from admission.api.errors import TooManyRequests, Unanswered
from admission.api.resources.start_estimates import NoEstimate, StartEstimate
from admission.model.errors import InvalidObject, StoreError
from admission.simulate.calibration import MIN_SAMPLES

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, Mapping

    from admission.cli.configuration.settings import Settings
    from admission.controller.controller import Controller
    from admission.store.store import Store

log = logging.getLogger(__name__)


class Simulating(NamedTuple):
    """A running process."""

    process: Process
    requests: StreamWriter
    answers: StreamReader

    async def ask(self, request: Any) -> None:
        """Write a line."""
        self.requests.write(orjson.dumps(request) + b"\n")
        await self.requests.drain()

    async def end(self) -> None:
        """End the process: it has no state that could be lost."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def simulating(module: str, settings: Settings, *, limit: int) -> Simulating:
    """Start the process of a module, and write its configuration. `limit`: maximum bytes of a line that it writes.

    The configuration, in which the password of the database may be, is not among its arguments, which `ps` would show,
    and its environment is without the settings.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
        start_new_session=True,  # Ctrl-C is handled by `serve`, which then ends this process
        limit=limit,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    policies = {"fair_sharing", "admission_fair_sharing", "resources"}
    policy = settings.model_dump(mode="json", include=policies, by_alias=True)
    configuration = {"databaseUrl": settings.database_url, "policy": policy}
    process.stdin.write(orjson.dumps(configuration) + b"\n")
    return Simulating(process, process.stdin, process.stdout)


_WHAT_IF_LINE: Final = 2**26
"""Maximum bytes of an answer, which has some 200 for each user and ClusterQueue."""

_RETRY_SECONDS: Final = 10
"""Seconds after which a question may be asked again while another one is being answered."""


class WhatIfProcesses:
    """Starts the child processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._busy = False

    async def ask(self, question: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the lines of the process: `progress` (0 to 1), and the `answer` at the end.

        Raises TooManyRequests while another question is being answered, InvalidObject, and Unanswered.
        """
        if self._busy:
            raise TooManyRequests(
                "another what-if question is being answered, and each takes a processor; try again when it is done",
                retry_after=_RETRY_SECONDS,
            )
        self._busy = True
        try:
            async with aclosing(self._lines(question)) as lines:
                async for line in lines:
                    if "invalid" in line:
                        raise InvalidObject([("", line["invalid"])])
                    if "error" in line:
                        raise Unanswered(f"the database does not answer: {line['error']}")
                    yield line
        finally:
            self._busy = False

    async def _lines(self, question: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        process = await simulating("admission.cli.serve.what_if_process", self._settings, limit=_WHAT_IF_LINE)
        try:
            await process.ask(question)
            answered = False
            while line := await process.answers.readline():
                document: dict[str, Any] = orjson.loads(line)
                answered = answered or "progress" not in document
                yield document
            if not answered:
                raise Unanswered("the process that replays the period has ended; see the log of `sluice serve`")
        except (OSError, ValueError) as error:
            raise Unanswered(f"the process that replays the period failed: {error!r}") from error
        finally:
            await process.end()


FIRST_SECONDS: Final = 2.0
"""Seconds from the start of the process to the first estimates: then a leader has usually loaded its state."""

INTERVAL: Final = 30.0
"""Minimum seconds between two estimates."""

SHARE: Final = 0.05
"""Share of one processor that estimates may use; a slow estimate prolongs the pause before the next one."""

NOT_YET_COMPUTED: Final = "No estimate yet: the first one follows within a minute."
NOT_REACHED: Final = (
    "No estimate yet: it is new, or does not start within the simulated time. Estimates are renewed every "
    f"{INTERVAL:g} s or less often."
)

ANSWER_SECONDS: Final = 120.0
"""Seconds without an answer after which the process is considered stuck and is killed."""

_ESTIMATES_LINE: Final = 2**28
"""Maximum bytes of an answer, which has some 100 for each pending workload."""


class EstimatingProcess:
    """The latest estimates, and the child process that computes them."""

    def __init__(self, settings: Settings, controller: Controller, store: Store, *, interval: float = INTERVAL) -> None:
        self._settings = settings
        self._store = store
        self._controller = controller
        self._interval = interval
        self._process: Simulating | None = None
        self._at = 0.0
        self._starts: Mapping[str, list[float]] = {}
        self._share_held: float | None = None
        self._compared = 0
        """Number of past estimates that were compared with actual starts."""
        self.cpu_seconds = 0.0
        """Processor time (s) that the child process spent on the latest estimates."""

    def of(self, uid: str) -> StartEstimate | NoEstimate:
        """Return the estimate for a pending workload, or why there is none."""
        start = self._starts.get(uid)
        if start is not None:
            return StartEstimate(self._at, start[0], start[1], self._share_held)
        if not self._at:
            return NoEstimate(NOT_YET_COMPUTED)
        if self._compared < MIN_SAMPLES:
            return NoEstimate(
                "No estimate yet: they are learned from starts that were simulated before, of which "
                f"{self._compared} of {MIN_SAMPLES} have happened."
            )
        return NoEstimate(NOT_REACHED)

    async def run(self) -> None:
        """Update the estimates until cancelled; compute them while this replica leads and workloads are pending.

        Other replicas, and a leader before its first estimates, show those that were saved.
        """
        pause = FIRST_SECONDS
        try:
            while True:
                await asyncio.sleep(pause)
                pause = self._interval
                engine = self._controller.engine()
                if engine is None or not self._at:
                    await self._read_saved()
                if engine is None:
                    continue
                if not engine.waiting:
                    self._starts = {}
                    continue
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await self._request()
                except (OSError, TimeoutError, ValueError) as error:
                    log.warning("no estimates of starts: the process that computes them failed (%r)", error)
                    self._starts = {}
                    await self._end()
                pause = max(self._interval, self.cpu_seconds / SHARE)
        finally:
            await self._end()

    async def _read_saved(self) -> None:
        try:
            saved = await self._store.start_estimates.load()
        except StoreError as error:
            log.debug("no estimates of starts: %s", error)
            return
        if saved is not None:
            self._show(saved.at, saved.shown)

    def _show(self, at: float, shown: Mapping[str, Any]) -> None:
        self._at, self._starts = at, shown["starts"]
        self._share_held, self._compared = shown["shareHeld"], shown["compared"]

    async def _request(self) -> None:
        if self._process is None:
            self._process = await simulating("admission.cli.serve.forecaster", self._settings, limit=_ESTIMATES_LINE)
        await self._process.ask({"namespaces": self._controller.namespaces(), "limits": self._controller.time_limits()})
        line = await self._process.answers.readline()
        if not line:
            raise ConnectionResetError("it has ended")
        answer: dict[str, Any] = orjson.loads(line)
        if "error" in answer:
            log.debug("no estimates of starts: %s", answer["error"])
            return
        self.cpu_seconds = answer["cpuSeconds"]
        self._show(answer["at"], answer)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()
