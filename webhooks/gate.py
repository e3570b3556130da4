"""The gate: a process that only serves the webhook, so that no other work can delay or stop it.

`sluice serve` starts it (`python -m webhooks.gate CONFIG`) and communicates by its standard input and output, with one
JSON document or word in each line; `sluice webhook` runs it separately. Reviews need nothing from `serve`, which may be
busy, stopped or restarting. When `serve` ends for any reason, the input of the process ends, and the process exits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from admission.apimachinery.errors import UnusableCertificate
from admission.kinds import BATCH_JOB, all_kinds, parse_form
from admission.kinds.rules import QueueRule
from admission.serving.logs import log_to_stderr, set_log_level
from admission.serving.runtime import new_loop
from admission.serving.tls import ReloadingContext
from webhooks.review import Reviewer
from webhooks.server import answering
from webhooks.times import ReviewTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.serving.logs import LogFormat, LogLevel
    from webhooks.server import SelfReport

logger = logging.getLogger("webhooks.gate")  # as a process it is __main__

READY: Final = b"ready"
"""Line that the gate writes once it serves the webhook."""
PING: Final = {"ping": True}
"""JSON line by which `serve` checks that the gate responds."""
TIMES: Final = "reviewTimes"
"""Key of the JSON line that answers each PING, also before READY; its value is `ReviewTimes.document`."""

LOG_LEVEL: Final = "logLevel"
"""Key of the JSON line by which `serve` changes the log level."""

LINE_LIMIT: Final = 2**20
"""Largest line on standard input, in bytes."""

DRAIN_SECONDS: Final = 5.0
"""Seconds for which a separate gate still serves after SIGTERM. It may take that long until all nodes stop sending
requests to its terminating pod, and the API server would refuse the Jobs in these requests."""

_CERTIFICATE_POLL_SECONDS: Final = 5.0
"""Seconds between checks for changed certificate files."""


@dataclass(frozen=True, slots=True)
class GateConfig:
    """Configuration of a gate, passed to the process as JSON."""

    certificate_directory: str
    """Directory of `tls.crt` and `tls.key`, which are reloaded when they change."""
    own_usernames: tuple[str, ...]
    """User names of Sluice itself; only these users may start queued objects."""
    kueue_labels: bool
    """Whether Kueue's labels are accepted."""
    log_level: LogLevel
    log_format: LogFormat = "text"
    descriptors: tuple[int, ...] = ()
    """File descriptors of the sockets to serve, which are listening already."""
    frameworks: tuple[str, ...] = (BATCH_JOB,)
    """Names of the enabled kinds, as in `integrations.frameworks`."""
    by_label: tuple[str, ...] = ()
    """Names of the kinds of which only labels name the queue."""
    kinds: tuple[dict[str, Any], ...] = ()
    """Definitions of custom kinds, as in `integrations.kinds`."""
    queue_labels: tuple[str, ...] = ()
    priority_labels: tuple[str, ...] = ()
    group_labels: tuple[str, ...] = ()
    """Labels of other systems that are read in addition to those of Sluice and Kueue; never written."""
    rules: tuple[QueueRule, ...] = ()
    """Rules that name the queue of objects without a queue label."""
    refuses_claims: bool = False
    """Whether objects whose pods have `resourceClaims` wait, as no DeviceClass has a quota."""
    opentelemetry: bool = False
    """Whether a span is sent for each review."""

    def dump(self) -> str:
        """Return the configuration as JSON, for `load`."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def load(cls, text: str) -> GateConfig:
        """Return the configuration from the result of `dump`."""
        content: dict[str, Any] = orjson.loads(text)
        labels = ("queue_labels", "priority_labels", "group_labels")
        sequences = ("own_usernames", "descriptors", "frameworks", "by_label", "kinds", *labels)
        content["rules"] = tuple(map(_rule, content["rules"]))
        return cls(**content | {field: tuple(content[field]) for field in sequences})


def _rule(fields: dict[str, Any]) -> QueueRule:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return QueueRule(**values)


class KnownQueues:
    """Names of the LocalQueues as reported by `serve`; used only to warn of a LocalQueue that does not exist."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] | None = None

    def exists(self, namespace: str, name: str) -> bool:
        """Whether the LocalQueue exists; true as long as the LocalQueues are unknown."""
        return self._names is None or (namespace, name) in self._names

    def apply(self, change: dict[str, Any]) -> None:
        """Apply a line from `serve`: lists of (namespace, name) under `added` and `removed`."""
        names = self._names if self._names is not None else set()
        names.update((namespace, name) for namespace, name in change.get("added", ()))
        names.difference_update((namespace, name) for namespace, name in change.get("removed", ()))
        self._names = names


async def serve_until_cancelled(
    config: GateConfig,
    sockets: Sequence[socket.socket],
    report: SelfReport | None = None,
    *,
    ending: asyncio.Event | None = None,
) -> NoReturn:
    """Serve the webhook until cancelled; certificate errors are logged and retried.

    Once `ending` is set, each response closes its connection.
    """
    await _serve(config, sockets, KnownQueues(), asyncio.Event(), ReviewTimes(), report, ending)


async def serve_while_parent_lives(config: GateConfig, sockets: Sequence[socket.socket]) -> None:
    """Serve the webhook until standard input ends, which happens when the parent process exits.

    An error of either task ends the process, so that its parent restarts it: it would still answer pings otherwise.
    """
    queues, ready, times = KnownQueues(), asyncio.Event(), ReviewTimes()
    async with asyncio.TaskGroup() as group:
        serving_task = group.create_task(_serve(config, sockets, queues, ready, times))
        try:
            await _listen_to_parent(queues, ready, times)
        finally:
            for each in sockets:
                each.close()  # first of all: the next `serve` may already wait for the address
            serving_task.cancel()


async def _serve(
    config: GateConfig,
    sockets: Sequence[socket.socket],
    queues: KnownQueues,
    ready: asyncio.Event,
    times: ReviewTimes,
    report: SelfReport | None = None,
    ending: asyncio.Event | None = None,
) -> NoReturn:
    custom = [parse_form(document) for document in config.kinds]
    kinds = all_kinds(
        kueue_labels=config.kueue_labels,
        frameworks=config.frameworks,
        by_label=config.by_label,
        own=custom,
        queue_labels=config.queue_labels,
        priority_labels=config.priority_labels,
        group_labels=config.group_labels,
    )
    reviewer = Reviewer(
        kinds.gated,
        own_usernames=config.own_usernames,
        queue_exists=queues.exists,
        rules=config.rules,
        refuses_claims=config.refuses_claims,
    )
    context = await _context(Path(config.certificate_directory))
    async with AsyncExitStack() as stack:
        tracing: Tracing | None = None
        if config.opentelemetry:
            from admission.serving.tracing import Tracing  # needs an optional dependency

            tracing = Tracing()
            stack.callback(tracing.close)
        await stack.enter_async_context(
            answering(
                reviewer,
                sockets,
                ssl_context=context,
                times=times,
                report=report,
                ending=ending,
                tracing=tracing,
            )
        )
        logger.info("serving the webhooks at %s", ", ".join(map(_address, sockets)))
        ready.set()
        while True:
            if report is not None:
                report.update_certificate(context.certificate)
            await asyncio.sleep(_CERTIFICATE_POLL_SECONDS)
            try:
                context.refresh()
            except UnusableCertificate as error:  # the files may be half written
                logger.warning("the certificate was not reloaded, and the previous one stays in use: %s", error)


async def _context(directory: Path) -> ReloadingContext:
    """Load the certificate; wait until there is one, because a `serve` that starts now may still create the Secret."""
    logged = False
    while True:
        try:
            return ReloadingContext(directory / "tls.crt", directory / "tls.key")
        except UnusableCertificate as error:
            if not logged:
                logger.error("cannot serve the webhooks yet, retrying every second: %s", error)
                logged = True
            await asyncio.sleep(1.0)


async def _listen_to_parent(queues: KnownQueues, ready: asyncio.Event, times: ReviewTimes) -> None:
    """Process the lines on standard input until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_LIMIT)
    async with AsyncExitStack() as stack:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
        stack.callback(transport.close)
        reporting = asyncio.create_task(_report_ready(ready))
        stack.callback(reporting.cancel)
        while line := await reader.readline():
            message = orjson.loads(line)
            if message == PING:
                _write_line(orjson.dumps({TIMES: times.document()}))
            elif LOG_LEVEL in message:
                set_log_level(message[LOG_LEVEL])
            else:
                queues.apply(message)


async def _report_ready(ready: asyncio.Event) -> None:
    await ready.wait()
    _write_line(READY)


def _write_line(content: bytes) -> None:
    """Write a line to `serve`, or drop it if the pipe is closed or full.

    A pipe holds thousands of lines: when it is full, `serve` has not read for a long time.
    """
    try:
        os.write(sys.stdout.fileno(), content + b"\n")
    except (BlockingIOError, BrokenPipeError):
        logger.debug("a message to `serve` was dropped: it does not read standard output")


def run(config: GateConfig, *, sockets: Sequence[socket.socket], alone: bool, report: SelfReport | None = None) -> None:
    """Run the gate until SIGTERM or SIGINT; unless `alone`, also until its parent process exits.

    `report`, only with `alone`, serves GET /metrics and GET /readyz.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)  # reviews create no reference cycles; a full collection takes milliseconds
    with log_to_stderr(config.log_level, config.log_format):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_run_until_signal(config, sockets, alone=alone, report=report))
        logger.log(_shutdown_log_level(alone=alone), "ended")


async def _run_until_signal(
    config: GateConfig, sockets: Sequence[socket.socket], *, alone: bool, report: SelfReport | None
) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(
        serve_until_cancelled(config, sockets, report, ending=ending)
        if alone
        else serve_while_parent_lives(config, sockets)
    )

    def end(number: signal.Signals) -> None:
        if alone and number == signal.SIGTERM and not ending.is_set():
            logger.info("shutting down: %s; answers for another %g s", number.name, DRAIN_SECONDS)
            ending.set()
            loop.call_later(DRAIN_SECONDS, task.cancel)
        else:
            logger.log(_shutdown_log_level(alone=alone), "shutting down: %s", number.name)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _shutdown_log_level(*, alone: bool) -> int:
    """Return the level of log messages about the shutdown; as a child of `serve` only debug: `serve` logs its own."""
    return logging.INFO if alone else logging.DEBUG


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def main() -> None:
    """Entry point of the process that `serve` starts."""
    config = GateConfig.load(sys.argv[1])
    os.set_blocking(sys.stdout.fileno(), False)
    run(config, sockets=[socket.socket(fileno=number) for number in config.descriptors], alone=False)


if __name__ == "__main__":
    main()
