"""Supervisor of the gate, the child process of `sluice serve` that serves the webhooks.

It starts the process, sends it the names of all LocalQueues, and restarts it when it exits or hangs.
"""

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
from webhooks.exposition import ServedCertificate, review_family
from webhooks.gate import LINE_LIMIT, LOG_LEVEL, PING, READY, TIMES, GateConfig

if TYPE_CHECKING:
    import socket
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterable, Sequence

    from prometheus_client import Metric

    from admission.serving.logs import LogLevel

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
"""Seconds before the first restart; the pause doubles with each further one."""
LONGEST_PAUSE: Final = 5.0
"""Longest pause before a restart, in seconds."""

STABLE_SECONDS: Final = 60.0
"""Lifetime of a process after which the pause is reset to FIRST_PAUSE."""

PING_SECONDS: Final = 2.0
"""Seconds between pings."""
MAX_UNANSWERED: Final = 3
"""Number of unanswered pings after which the process is considered stuck and is killed."""

START_SECONDS: Final = 20.0
"""Seconds that the start of `serve` waits for the gate to be ready; also the time to answer the first ping."""

_END_SECONDS: Final = 3.0
"""Seconds that the process has to exit after the end of its input, before it is killed."""
_ADDRESS_SECONDS: Final = 3.0
"""Seconds to wait for a previous process to release the address."""
_BATCH: Final = 500
"""LocalQueues in one line. It stays below LINE_LIMIT: name and namespace together have at most 316 characters."""


class GateProcess:
    """Supervises the process. The listening sockets stay open here, so that requests during a restart wait."""

    def __init__(self, config: GateConfig) -> None:
        self._config = config
        self._process: Process | None = None
        self._ready = asyncio.Event()
        self._unanswered = 0
        """Pings since the last response."""
        self._responds = False
        """Whether the current process has answered a ping. It does before it is ready, while it has no certificate."""
        self._times: dict[str, Any] = {}
        """Durations of admission reviews as last reported by the process, cumulative since its start."""
        self._certificate = ServedCertificate()
        self._queues: frozenset[tuple[str, str]] | None = None
        """(namespace, name) of all LocalQueues; None until they are known."""
        self._sent: frozenset[tuple[str, str]] | None = None
        """The LocalQueues that the current process knows; None if it has received none yet."""

    async def health(self) -> str | None:
        """Return what is wrong; None while the process answers and its certificate has not expired."""
        if not self._ready.is_set():
            return "the process that serves the webhooks is not running; it is being restarted"
        return self._certificate.fault()

    def metrics(self) -> list[Metric]:
        """Return the metrics of reviews and certificate as of the last ping."""
        return [review_family(self._times), *self._certificate.metrics()]

    async def ready(self) -> None:
        """Wait for the process to be ready, for at most START_SECONDS; log and `health` then say why it is not."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), START_SECONDS)

    def send_queues(self, queues: Iterable[tuple[str, str]]) -> None:
        """Send (namespace, name) of all LocalQueues to the process; call it again when they change."""
        self._queues = frozenset(queues)
        self._send_queue_changes()

    def send_log_level(self, level: LogLevel) -> None:
        """Set the log level of the process, and of those that replace it after a restart."""
        self._config = replace(self._config, log_level=level)
        self._send({LOG_LEVEL: level})

    async def run(self) -> None:
        """Keep the process running until cancelled; then end it."""
        pause = FIRST_PAUSE
        while True:
            started = asyncio.get_running_loop().time()
            try:
                how = await self._run_process()
            except OSError as error:  # process limit or out of memory
                how = f"cannot be started ({error.strerror or error})"
            if asyncio.get_running_loop().time() - started > STABLE_SECONDS:
                pause = FIRST_PAUSE
            log.error("the process that serves the webhooks %s; it is started again in %g s", how, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_process(self) -> str:
        """Start the process and wait for its end; return how it ended, for the log."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # do not import from a directory `webhooks` in the working directory
            "-m",
            "webhooks.gate",
            self._config.dump(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
            pass_fds=self._config.descriptors,
            # Ctrl-C is handled by `serve`, which then ends this process.
            start_new_session=True,
        )
        self._process, self._sent, self._unanswered, self._responds = process, None, 0, False
        try:
            async with asyncio.TaskGroup() as group:
                pinging = group.create_task(self._ping(process))
                await self._read_output(process)
                pinging.cancel()
            code = await process.wait()
        finally:
            self._ready.clear()
            self._process = None
            await _end(process)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def _read_output(self, process: Process) -> None:
        """Process the lines of the process until it closes its output."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.strip() == READY and not self._ready.is_set():
                self._ready.set()
                self._send_queue_changes()
            elif line.startswith(b"{"):
                self._unanswered, self._responds = 0, True
                self._times = orjson.loads(line)[TIMES]

    async def _ping(self, process: Process) -> None:
        # Unanswered pings are counted, not seconds: after a pause of `serve` itself (SIGSTOP) the process is not stuck.
        while self._unanswered < (MAX_UNANSWERED if self._responds else START_SECONDS / PING_SECONDS):
            await asyncio.sleep(PING_SECONDS)
            self._unanswered += 1
            self._send(PING)
            await self._read_certificate()
        log.error("the process that serves the webhooks does not respond any more; it is killed")
        process.kill()

    async def _read_certificate(self) -> None:
        """Read the certificate's expiry here, so that the process itself does not have to load a library for it."""
        with suppress(OSError):  # without a certificate the process is not ready, and logs why
            file = Path(self._config.certificate_directory) / "tls.crt"
            self._certificate.update(await asyncio.to_thread(file.read_bytes))

    def _send_queue_changes(self) -> None:
        if self._queues is None or not self._ready.is_set():
            return
        sent = self._sent or frozenset()
        added, removed = sorted(self._queues - sent), sorted(sent - self._queues)
        if self._sent is None:
            self._send({"added": []})  # so that the process knows it if there are no LocalQueues at all
        for names in _batches(added):
            self._send({"added": names})
        for names in _batches(removed):
            self._send({"removed": names})
        self._sent = self._queues

    def _send(self, message: object) -> None:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None or process.stdin.is_closing():
            return
        line = orjson.dumps(message) + b"\n"
        assert len(line) <= LINE_LIMIT
        process.stdin.write(line)


@asynccontextmanager
async def supervised(config: GateConfig) -> AsyncIterator[GateProcess]:
    """Run a gate for the duration of the block."""
    gate = GateProcess(config)
    task = asyncio.create_task(gate.run(), name="gate")
    task.add_done_callback(_log_defect)
    try:
        yield gate
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _log_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the supervisor of the webhooks' process failed; nothing restarts it any more", exc_info=error)


async def webhook_sockets(host: str, port: int) -> list[socket.socket]:
    """Open listening sockets that child processes can inherit. Raises AddressUnusable."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _ADDRESS_SECONDS
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


def _batches(names: Sequence[tuple[str, str]]) -> Iterable[Sequence[tuple[str, str]]]:
    return (names[first : first + _BATCH] for first in range(0, len(names), _BATCH))


async def _end(process: Process) -> None:
    """Close the input of the process, upon which it exits; kill it if it does not."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
