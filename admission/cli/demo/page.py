"""Web page that shows the run live: one self-contained file, updated by server-sent events.

Its Content-Security-Policy allows only its own style and script, by their hashes, and connections to its origin.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Self

import orjson
from aiohttp import ClientConnectionResetError, web

from admission.cli.demo.account import Phase
from admission.cli.demo.closing import name_of, plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from admission.cli.demo.account import SceneAccount
    from admission.cli.demo.closing import Closing

_INTERVAL: Final = 0.5
"""Seconds between updates."""


class DemoPage:
    """Serves the page on a free loopback port, as an async context manager. `elapsed` returns real seconds."""

    def __init__(self, account: SceneAccount, elapsed: Callable[[], float]) -> None:
        self._account = account
        self._elapsed = elapsed
        self._history: list[list[float]] = []
        self._updated = asyncio.Condition()
        self._now: bytes = b""
        """Latest update, as an event."""
        self.url = ""

    async def __aenter__(self) -> Self:
        html = files(__package__).joinpath("page.html").read_bytes()
        headers = {"Content-Security-Policy": _policy(html.decode()), "Cache-Control": "no-store"}

        async def page(_: web.Request) -> web.Response:
            return web.Response(body=html, content_type="text/html", charset="utf-8", headers=headers)

        app = web.Application()
        app.add_routes([web.get("/", page), web.get("/events", self._events)])
        # Event streams never end by themselves; open ones must not delay the end of the demo.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def run(self) -> None:
        """Send an update to all browsers every `_INTERVAL` seconds, until cancelled."""
        while True:
            await self.publish()
            await asyncio.sleep(_INTERVAL)

    async def publish(self, closing: Closing | None = None) -> None:
        """Send the current state to all browsers; `closing` is the result of the run, with the last update."""
        now = self._state()
        self._history.append([now["elapsed"], now["waiting"], *(team["used"][0] for team in now["teams"])])
        if closing is not None:
            now["closing"] = asdict(closing)
        async with self._updated:
            self._now = _event("now", now)
            self._updated.notify_all()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        with suppress(ClientConnectionResetError):  # the browser has closed the page
            # Without the latest point, which the first update contains.
            await response.write(_event("begin", self._description() | {"history": self._history[:-1]}))
            sent = b""
            while True:
                async with self._updated:
                    while self._now == sent:
                        await self._updated.wait()
                    sent = self._now
                await response.write(sent)
        return response

    def _description(self) -> dict[str, Any]:
        plan = self._account.plan
        return {
            "title": plan.title,
            "noun": plan.noun,
            "notes": plan.notes,
            "resources": [{"name": name_of(name), "total": plain(name, plan.total(name))} for name in plan.shown],
            "teams": [
                {
                    "name": team.name,
                    "quota": [
                        {"nominal": plain(name, team.nominal[name]), "limit": plain(name, plan.limit(team, name))}
                        for name in plan.shown
                    ],
                }
                for team in plan.teams
            ],
        }

    def _state(self) -> dict[str, Any]:
        account, names = self._account, self._account.plan.shown
        return {
            "elapsed": round(self._elapsed(), 2),
            **{phase.value: account.count(phase) for phase in Phase},
            "used": [plain(name, account.used(name)) for name in names],
            "teams": [
                {
                    **{phase.value: count for phase, count in seen.jobs.items()},
                    "used": [plain(name, seen.used[name]) for name in names],
                }
                for seen in account.teams.values()
            ],
            "checks": account.live.checks,
            "broken": account.live.broken,
        }


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


def _policy(html: str) -> str:
    """Return the Content-Security-Policy: only the page's own style and script, and events from its origin."""
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
