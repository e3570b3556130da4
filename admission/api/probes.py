"""Health probes `/livez`, `/readyz` and `/healthz`, in the text format of kube-apiserver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from admission.api.auth.authorization import is_superuser
from admission.api.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from admission.api.auth.authentication import Authentication
    from admission.kinds.not_queued import NotQueued

Checks: TypeAlias = "Mapping[str, Callable[[], Awaitable[str | None]]]"
"""Readiness checks by name; each returns None if it passes, else a message that says what is wrong."""

WebhookFault: TypeAlias = "Callable[[], str]"
"""Returns a sentence that says why the API server does not reach the webhooks; empty: it does, as far as is known."""


def no_webhook_fault() -> str:
    """For an API without webhooks."""
    return ""


NotQueuedObjects: TypeAlias = "Callable[[], Sequence[NotQueued]]"
"""Returns the objects that have a queue label and are not queued, as far as is known."""


def none_not_queued() -> tuple[NotQueued, ...]:
    """For an API without a cluster."""
    return ()


_CHECK_SECONDS = 5.0
"""Timeout of a check, which then counts as failed."""


class Probes:
    """Handlers of the probes: ready if all checks pass; alive if it answers, as a restart would not repair a database.

    Details of failures are shown to superusers only; others see `reason withheld`, as in kube-apiserver.
    """

    def __init__(
        self, checks: Checks, authentication: Authentication, *, webhook_fault: WebhookFault = no_webhook_fault
    ) -> None:
        """`webhook_fault` is shown by `?verbose`, and makes nothing unready: see `cli.serve.webhook_check`."""
        self._checks = checks
        self._webhook_fault = webhook_fault
        self._authentication = authentication

    async def alive(self, request: web.Request) -> web.Response:
        """Handle `/livez`."""
        return await self._answer(request, "livez", {})

    async def ready(self, request: web.Request) -> web.Response:
        """Handle `/readyz` and `/healthz`."""
        faults = await asyncio.gather(*(_run(check) for check in self._checks.values()))
        return await self._answer(request, request.path.strip("/"), dict(zip(self._checks, faults, strict=True)))

    async def _answer(self, request: web.Request, probe: str, faults: Mapping[str, str | None]) -> web.Response:
        failed = any(faults.values())
        headers = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok", headers=headers)
        show_details = await self._is_admin(request)
        lines = ["[+]ping ok"]
        for name, fault in faults.items():
            shown = fault if show_details else "reason withheld"
            lines.append(f"[-]{name} failed: {shown}" if fault else f"[+]{name} ok")
        if faults and (remark := self._webhook_fault()):
            lines.append(f"[!]webhook-address: {remark if show_details else 'reason withheld'}")
        lines.append(f"{probe} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200, headers=headers)

    async def _is_admin(self, request: web.Request) -> bool:
        try:
            who = await self._authentication.identify(request)
        except ApiError:  # authentication may be the very thing that is broken
            return False
        return who is not None and is_superuser(who)


async def _run(check: Callable[[], Awaitable[str | None]]) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await check()
    except TimeoutError:
        return f"no answer within {_CHECK_SECONDS:g} s"
