"""A receiver over HTTP for the tests of notifications, and a notifier that sends to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from admission.model.queues import Subscription
from admission.notifications.notifier import Notifier
from admission.notifications.receivers import Receiver, Receivers
from admission.notifications.sending import NotificationSender
from admission.store.store import Store

SECRET = b"a secret of many words"
LOOPBACK = ip_network("127.0.0.0/8")


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return orjson.loads(self.body)


@dataclass
class Inbox:
    """Requests that the receiver has got; it responds with `status` once `answer` is set."""

    url: str = ""
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path, headers, await request.read()))
        self.arrived.set()
        await self.answer.wait()
        return web.Response(status=self.status, headers=self.headers)

    def types_and_subjects(self) -> list[tuple[str, str]]:
        """Short type and subject of each received event."""
        events = [one.event for one in self.received]
        return [(event["type"].removeprefix("dev.sluice."), event["subject"]) for event in events]


@asynccontextmanager
async def inbox(path: str = "/hook", context: ssl.SSLContext | None = None) -> AsyncIterator[Inbox]:
    box = Inbox()
    box.answer.set()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", box.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    box.url = f"http{'s' if context else ''}://127.0.0.1:{runner.addresses[0][1]}{path}"
    try:
        yield box
    finally:
        box.answer.set()
        await runner.cleanup()


def receiver(name: str, folder: Path, box: Inbox, **more: Any) -> Receiver:
    file = folder / "secret"
    file.write_bytes(SECRET + b"\n")
    return Receiver(name, url=box.url, secret_file=file, **more)


@asynccontextmanager
async def notifying(
    store: Store, clock: Callable[[], float], *receivers: Receiver, networks: tuple[Any, ...] = (LOOPBACK,)
) -> AsyncIterator[Notifier]:
    allowed = Receivers({one.name: one for one in receivers}, networks)
    async with NotificationSender.open(lambda: allowed) as sender:
        yield Notifier(store, lambda: allowed, sender, clock=clock)


def subscription(name: str, namespace: str = "team-a", **spec: Any) -> Subscription:
    given = {"receiver": "pager", **spec}
    return Subscription.model_validate({"metadata": {"name": name, "namespace": namespace}, "spec": given})


async def process_and_deliver(notifier: Notifier, epoch: int) -> None:
    """Write the notifications that are due, and try to deliver them."""
    for name in await notifier.process(epoch=epoch):
        await notifier.deliver(name, epoch=epoch)
