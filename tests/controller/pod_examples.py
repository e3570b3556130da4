"""Minimal pod manifests, and a mutating webhook that gates pods of a sandbox cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from admission.kinds import Kinds
from admission.kinds.rules import QueueRule
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.certificates import Certificates
from webhooks.registration import Registration
from webhooks.review import Reviewer
from webhooks.scope import Scope
from webhooks.server import answering

Object = dict[str, Any]
GATE = {"name": "sluice.dev/admission"}
MANAGED = "sluice.dev/managed"


def pod(name: str, *, queue: str | None = "lq", cpu: str = "1", seconds: int = 1_000_000, **spec: Any) -> Object:
    """A pod that runs for `seconds` of simulated time."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"sluice.dev/queue-name": queue} if queue else {},
            "annotations": {"sandbox.sluice.dev/run-seconds": str(seconds)},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
    }


@asynccontextmanager
async def gated(
    user: Any,
    kinds: Kinds,
    directory: Path,
    managed: tuple[Object, ...] | None = None,
    rules: tuple[QueueRule, ...] = (),
) -> AsyncIterator[None]:
    """Context manager within which the webhook runs and is registered."""
    certificates = Certificates(directory, ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.renew()
    (socket,) = await open_sockets("127.0.0.1", 0)
    context = ReloadingContext(directory / "tls.crt", directory / "tls.key")
    async with answering(Reviewer(kinds.gated, own_usernames=["sluice"], rules=rules), [socket], ssl_context=context):
        url = f"https://127.0.0.1:{socket.getsockname()[1]}"
        registration = Registration(kinds.gated, url, Scope(("sluice",), managed=managed, rules=rules))
        await user.create("mutatingwebhookconfigurations", "", registration.configuration(certificates.ca_bundle))
        yield
