"""The gate's process as `sluice serve` sees it: started, told which LocalQueues exist, started again when it dies."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.api.errors import AddressUnusable
from admission.serving.listener import open_sockets
from webhooks.exposition import ShownCertificate, review_family
from webhooks.gate import LINE_LIMIT, LOG_LEVEL, PING, READY, TIMES, Order

if TYPE_CHECKING:
    import socket
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterable, Sequence

    from prometheus_client import Metric

    from admission.serving.logs import LogLevel

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds before a process that died is started again: the first time, and at most."""

LASTING: Final = 60.0
"""Seconds after which a process counts as well, so that its end is the first one again."""

PING_SECONDS: Final = 2.0
UNANSWERED: Final = 3
"""A process that has not answered so many pings, each after this time, is stuck."""

START_SECONDS: Final = 20.0
"""How long a start of `serve` waits for the first answer of the gate."""

_END_SECONDS: Final = 3.0
_PATIENCE: Final = 3.0
"""Seconds in which a process that held the address before may end."""
_AT_ONCE: Final = 500
"""LocalQueues in one line: well within LINE_LIMIT, as their names and namespaces have 316 characters at most."""


class Gate:
    """Supervises the process. Its listening sockets stay open here, so that who calls meanwhile is answered later."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._process: Process | None = None
        self._ready = asyncio.Event()
        self._unanswered = 0
        self._times: dict[str, Any] = {}
        """What the process has last told of its reviews; they are counted from its start on."""
        self._certificate = ShownCertificate()
        self._queues: frozenset[tuple[str, str]] | None = None
        self._told: frozenset[tuple[str, str]] | None = None

    async def health(self) -> str | None:
        """What is wrong: None while the process answers, with a certificate that is not over."""
        if not self._ready.is_set():
            return "the process that answers the webhook is not up; it is started again"
        return self._certificate.fault()

    def metrics(self) -> list[Metric]:
        """How long reviews took, and when the certificate ends, as of the last ping."""
        return [review_family(self._times), *self._certificate.metrics()]

    async def ready(self) -> None:
        """Wait for the process, but not for ever: what keeps it from answering is in the log, and in `health`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), START_SECONDS)

    def tell_queues(self, queues: Iterable[tuple[str, str]]) -> None:
        """Let the process know (namespace, name) of all LocalQueues; to be called again when they change."""
        self._queues = frozenset(queues)
        self._tell_news()

    def tell_log_level(self, level: LogLevel) -> None:
        """Let the process log from this level on, and the next one as well, if it has to be started again."""
        self._order = replace(self._order, log_level=level)
        self._tell({LOG_LEVEL: level})

    async def run(self) -> None:
        """Keep it running until cancelled, and end it then."""
        pause = FIRST_PAUSE
        while True:
            started = asyncio.get_running_loop().time()
            try:
                how = await self._live()
            except OSError as error:  # too many processes, or no memory
                how = f"cannot be started ({error.strerror or error})"
            if asyncio.get_running_loop().time() - started > LASTING:
                pause = FIRST_PAUSE
            log.error("the process that answers the webhook %s; it is started again in %g s", how, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self) -> str:
        """One life of the process; how it ended."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a folder that happens to be called webhooks is not ours
            "-m",
            "webhooks.gate",
            self._order.dump(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
            pass_fds=self._order.descriptors,
            # Ctrl-C is for `serve`, which then ends its process in order.
            start_new_session=True,
        )
        self._process, self._told, self._unanswered = process, None, 0
        try:
            async with asyncio.TaskGroup() as group:
                pinging = group.create_task(self._ping(process))
                await self._hear(process)
                pinging.cancel()
            code = await process.wait()
        finally:
            self._ready.clear()
            self._process = None
            await _end(process)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def _hear(self, process: Process) -> None:
        """Until its end."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.strip() == READY:
                self._unanswered = 0
                if not self._ready.is_set():
                    self._ready.set()
                    self._tell_news()
            elif line.startswith(b"{"):
                self._times = orjson.loads(line)[TIMES]

    async def _ping(self, process: Process) -> None:
        # Pings are counted, for a `serve` that was stopped for a while must not take its own silence for the process's.
        while self._unanswered < UNANSWERED:
            await asyncio.sleep(PING_SECONDS)
            if self._ready.is_set():
                self._unanswered += 1
                self._tell(PING)
                await self._look_at_certificate()
        log.error("the process that answers the webhook says nothing any more; it is killed")
        process.kill()

    async def _look_at_certificate(self) -> None:
        """Here, so that the process itself need not load what reads certificates."""
        with suppress(OSError):  # without one the process is not ready, and says why
            file = Path(self._order.certificate_directory) / "tls.crt"
            self._certificate.shows(await asyncio.to_thread(file.read_bytes))

    def _tell_news(self) -> None:
        if self._queues is None or not self._ready.is_set():
            return
        told = self._told or frozenset()
        added, removed = sorted(self._queues - told), sorted(told - self._queues)
        if self._told is None:
            self._tell({"added": []})  # that there are none is known then, too
        for names in _portions(added):
            self._tell({"added": names})
        for names in _portions(removed):
            self._tell({"removed": names})
        self._told = self._queues

    def _tell(self, what: object) -> None:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None or process.stdin.is_closing():
            return
        line = orjson.dumps(what) + b"\n"
        assert len(line) <= LINE_LIMIT
        process.stdin.write(line)


@asynccontextmanager
async def supervised(order: Order) -> AsyncIterator[Gate]:
    """A gate for the time of the block."""
    gate = Gate(order)
    task = asyncio.create_task(gate.run(), name="gate")
    task.add_done_callback(_tell_of_defect)
    try:
        yield gate
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _tell_of_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("nothing starts the process that answers the webhook any more", exc_info=error)


async def webhook_sockets(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, which processes may take over. Raises AddressUnusable."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    while True:
        try:
            return await open_sockets(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and loop.time() < until:
                await asyncio.sleep(0.05)
                continue
            why = error.strerror or error
            raise AddressUnusable(
                f"the webhooks cannot listen on {host}:{port} ({why}); "
                "choose another address: --webhook-address HOST:PORT"
            ) from error


def _portions(names: Sequence[tuple[str, str]]) -> Iterable[Sequence[tuple[str, str]]]:
    return (names[first : first + _AT_ONCE] for first in range(0, len(names), _AT_ONCE))


async def _end(process: Process) -> None:
    """It ends by itself when its input does."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
