"""A caller of the gate that acts as an API server, and the gate as a process without `sluice serve`."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from serve_processes import job, sluice


class Caller:
    """Calls the webhook as an API server does."""

    def __init__(self, port: int, certificates: Path) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self._certificates = certificates

    async def review(self, queue: str = "lq", seconds: float = 20) -> Any:
        """The response to the creation of a Job; None if there is none in this time."""
        answered = await self._post(queue, seconds)
        return answered and answered[0]

    async def closes(self) -> bool:
        """Whether the gate closes the connection after its answer."""
        answered = await self._post("lq", 20)
        assert answered is not None
        return answered[1].get("Connection") == "close"

    async def refused(self) -> int:
        """Status of the answer to a body that is not a review; 0 without an answer."""
        context = ssl.create_default_context(cafile=str(self._certificates / "ca.crt"))
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
                session.post(f"{self.url}/mutate", data=b"{") as answer,
            ):
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def _post(self, queue: str, seconds: float) -> tuple[Any, Any] | None:
        """The response in the review, and the headers of the answer."""
        request = {
            "uid": "r-1",
            "operation": "CREATE",
            "namespace": "default",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "userInfo": {"username": "alice"},
            "object": {"metadata": {"labels": {"sluice.dev/queue-name": queue}}, **without_metadata(job("j"))},
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            context = ssl.create_default_context(cafile=str(self._certificates / "ca.crt"))
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session,
                session.post(f"{self.url}/mutate", json=body) as answer,
            ):
                return (await answer.json())["response"], answer.headers
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def until_answered(self, queue: str = "lq") -> Any:
        while (response := await self.review(queue)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return response


def without_metadata(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "metadata"}


@asynccontextmanager
async def standalone_gate(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await sluice(
        "webhook",
        "--username=sluice",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={folder}",
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # after SIGTERM it would still answer for a while
        await process.communicate()
