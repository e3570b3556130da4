"""The gate: the process that answers the webhook, and nothing else, so that nothing else can delay or end it.

`sluice serve` starts it (`python -m webhooks.gate ORDER`) and talks to it through its standard input and output, one
JSON document or word on each line; `sluice webhook` runs it alone. Its answers need nothing from `serve`, which may be
busy, stopped, or busy with starting again. But it ends with `serve`, however that ends: its input ends then.
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
from admission.serving.loop import new_loop
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
"""Said once the gate answers the webhook."""
PING: Final = {"ping": True}
TIMES: Final = "reviewTimes"
"""Key of the JSON line that answers a PING, also before READY; its value is `ReviewTimes.document`."""

LOG_LEVEL: Final = "logLevel"
"""The key of the JSON line by which `serve` tells from which level on to log from now on."""

LINE_LIMIT: Final = 2**20
"""Bytes of a line that the gate is told something by."""

LINGERING: Final = 5.0
"""Seconds for which a gate alone still answers after SIGTERM: so long it may take until all nodes know that
its pod is going, and Jobs that they send there meanwhile would be refused."""

_LOOK_SECONDS: Final = 5.0
"""Between two looks at the files of the certificate."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a gate is started with."""

    certificate_directory: str
    """Holds `tls.crt` and `tls.key`, which are read again when they change."""
    own_usernames: tuple[str, ...]
    """Those of Sluice itself, which alone may start what is queued."""
    kueue_labels: bool
    log_level: LogLevel
    log_format: LogFormat = "text"
    descriptors: tuple[int, ...] = ()
    """The sockets to answer on, which listen already."""
    frameworks: tuple[str, ...] = (BATCH_JOB,)
    """The names of the kinds that are on."""
    kinds: tuple[dict[str, Any], ...] = ()
    """Users' descriptions of their own."""
    queue_labels: tuple[str, ...] = ()
    priority_labels: tuple[str, ...] = ()
    group_labels: tuple[str, ...] = ()
    """Labels of other systems that are read."""
    rules: tuple[QueueRule, ...] = ()
    """Which queue what has no queue label is for."""
    opentelemetry: bool = False
    """Whether spans of reviews are sent."""

    def dump(self) -> str:
        """JSON, for `load`."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def load(cls, text: str) -> Order:
        """The order that was dumped."""
        content: dict[str, Any] = orjson.loads(text)
        labels = ("queue_labels", "priority_labels", "group_labels")
        sequences = ("own_usernames", "descriptors", "frameworks", "kinds", *labels)
        content["rules"] = tuple(map(_rule, content["rules"]))
        return cls(**content | {field: tuple(content[field]) for field in sequences})


def _rule(fields: dict[str, Any]) -> QueueRule:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return QueueRule(**values)


class KnownQueues:
    """The LocalQueues that `serve` has told of. They decide about a warning, and about nothing else."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] | None = None

    def exists(self, namespace: str, name: str) -> bool:
        """True also while nobody has told anything."""
        return self._names is None or (namespace, name) in self._names

    def told(self, change: dict[str, Any]) -> None:
        """Take in what has come (`added`) and gone (`removed`) since the last time."""
        names = self._names if self._names is not None else set()
        names.update((namespace, name) for namespace, name in change.get("added", ()))
        names.difference_update((namespace, name) for namespace, name in change.get("removed", ()))
        self._names = names


async def answer_for_ever(
    order: Order,
    sockets: Sequence[socket.socket],
    report: SelfReport | None = None,
    *,
    ending: asyncio.Event | None = None,
) -> NoReturn:
    """Answer the webhook until cancelled, with whatever certificate is in the files. Raises nothing.

    Once `ending` is set, each answer closes its connection.
    """
    await _answer(order, sockets, KnownQueues(), asyncio.Event(), ReviewTimes(), report, ending)


async def answer_while_told(order: Order, sockets: Sequence[socket.socket]) -> None:
    """Answer the webhook for as long as the process that started this one lives."""
    queues, ready, times = KnownQueues(), asyncio.Event(), ReviewTimes()
    answering_task = asyncio.create_task(_answer(order, sockets, queues, ready, times))
    try:
        await _listen_to_parent(queues, ready, times)
    finally:
        for one in sockets:
            one.close()  # before all else: the next `serve` may want the address already
        answering_task.cancel()
        await asyncio.gather(answering_task, return_exceptions=True)


async def _answer(
    order: Order,
    sockets: Sequence[socket.socket],
    queues: KnownQueues,
    ready: asyncio.Event,
    times: ReviewTimes,
    report: SelfReport | None = None,
    ending: asyncio.Event | None = None,
) -> NoReturn:
    own = [parse_form(document) for document in order.kinds]
    kinds = all_kinds(
        kueue_labels=order.kueue_labels,
        frameworks=order.frameworks,
        own=own,
        queue_labels=order.queue_labels,
        priority_labels=order.priority_labels,
        group_labels=order.group_labels,
    )
    reviewer = Reviewer(kinds.gated, own_usernames=order.own_usernames, queue_exists=queues.exists, rules=order.rules)
    context = await _context(Path(order.certificate_directory))
    async with AsyncExitStack() as stack:
        tracing: Tracing | None = None
        if order.opentelemetry:
            from admission.serving.tracing import Tracing  # an extra

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
        logger.info("answers the webhooks at %s", ", ".join(map(_address, sockets)))
        ready.set()
        while True:
            if report is not None:
                report.shows(context.certificate)
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                context.refresh()
            except UnusableCertificate as error:  # perhaps it is being written
                logger.warning("the certificate stays as it was: %s", error)


async def _context(directory: Path) -> ReloadingContext:
    """Wait for a certificate: a Secret may be filled by a `serve` that starts at the same time."""
    told = False
    while True:
        try:
            return ReloadingContext(directory / "tls.crt", directory / "tls.key")
        except UnusableCertificate as error:
            if not told:
                logger.error("cannot answer yet, and tries again until it can: %s", error)
                told = True
            await asyncio.sleep(1.0)


async def _listen_to_parent(queues: KnownQueues, ready: asyncio.Event, times: ReviewTimes) -> None:
    """Until its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_LIMIT)
    async with AsyncExitStack() as stack:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
        stack.callback(transport.close)
        announcing = asyncio.create_task(_announce(ready))
        stack.callback(announcing.cancel)
        while line := await reader.readline():
            told = orjson.loads(line)
            if told == PING:
                _say(orjson.dumps({TIMES: times.document()}))
            elif LOG_LEVEL in told:
                set_log_level(told[LOG_LEVEL])
            else:
                queues.told(told)


async def _announce(ready: asyncio.Event) -> None:
    await ready.wait()
    _say(READY)


def _say(word: bytes) -> None:
    """A word to `serve`. A pipe holds thousands of them: if one is full, `serve` has not listened for a long time."""
    try:
        os.write(sys.stdout.fileno(), word + b"\n")
    except (BlockingIOError, BrokenPipeError):
        logger.debug("nobody listens to this process")


def run(order: Order, *, sockets: Sequence[socket.socket], alone: bool, report: SelfReport | None = None) -> None:
    """What the process does, until it is asked to end; not `alone`: until the process that started it ends.

    `report`, for a process alone, answers GET /metrics and GET /readyz.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)  # a review leaves no cycles behind; to look for some takes milliseconds
    with log_to_stderr(order.log_level, order.log_format):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_until_asked(order, sockets, alone=alone, report=report))
        logger.log(_of_end(alone=alone), "ended")


async def _until_asked(
    order: Order, sockets: Sequence[socket.socket], *, alone: bool, report: SelfReport | None
) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(
        answer_for_ever(order, sockets, report, ending=ending) if alone else answer_while_told(order, sockets)
    )

    def end(number: signal.Signals) -> None:
        if alone and number == signal.SIGTERM and not ending.is_set():
            logger.info("shutting down: %s; answers for another %g s", number.name, LINGERING)
            ending.set()
            loop.call_later(LINGERING, task.cancel)
        else:
            logger.log(_of_end(alone=alone), "shutting down: %s", number.name)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _of_end(*, alone: bool) -> int:
    """The level of lines about the end: that of `serve` is told by `serve`."""
    return logging.INFO if alone else logging.DEBUG


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def main() -> None:
    """The process that `serve` starts."""
    order = Order.load(sys.argv[1])
    os.set_blocking(sys.stdout.fileno(), False)
    run(order, sockets=[socket.socket(fileno=number) for number in order.descriptors], alone=False)


if __name__ == "__main__":
    main()
