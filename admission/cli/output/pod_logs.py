"""Logs of the pods of a Job: printed once, or followed until the Job has ended, over pods that come and go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.output.printing import print_line
from admission.cluster.errors import StatusError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from admission.cluster.client import Client

_SILENCE: Final = 86400.0
"""Seconds without a line after which a followed log is given up."""
_INTERVAL: Final = 1.0
"""Seconds between two looks for new pods of a Job that is followed."""
_STARTED: Final = ("Running", "Succeeded", "Failed")
"""Phases of pods that may have logs."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to print of each pod."""

    container: str = ""
    """Empty: the only one, else the first."""
    tail: int | None = None
    """Only so many of the last lines; None: all."""
    timestamps: bool = False

    def params(self, pod: dict[str, Any], *, follow: bool) -> dict[str, str]:
        """The query of a request for the log of a pod."""
        params = {"container": self.container or pod["spec"]["containers"][0]["name"]}
        if follow:
            params["follow"] = "true"
        if self.tail is not None:
            params["tailLines"] = str(self.tail)
        if self.timestamps:
            params["timestamps"] = "true"
        return params


class PodLogs:
    """The logs of all pods in a namespace that a label selector selects."""

    def __init__(self, client: Client, namespace: str, selector: str, options: LogOptions) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = selector
        self._options = options

    async def show(self) -> int:
        """Print what there is, one pod after the other, by name; how many pods have started."""
        pods = await self._started()
        for pod in pods:
            await self._print(pod, follow=False, prefix=_prefix(pod) if len(pods) > 1 else "")
        return len(pods)

    async def follow(self, ended: Callable[[], Awaitable[bool]], *, several: bool) -> None:
        """Print what all pods print, those that come later, too, until the Job has `ended` and they have.

        `several`: each line is told whose it is.
        """
        followed: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                is_over = await ended()  # asked first, so that the list has all pods that there will be
                for pod in await self._started():
                    if (uid := pod["metadata"]["uid"]) not in followed:
                        followed.add(uid)
                        group.create_task(self._print(pod, follow=True, prefix=_prefix(pod) if several else ""))
                if is_over:
                    return
                await asyncio.sleep(_INTERVAL)

    async def _started(self) -> Sequence[dict[str, Any]]:
        params = {"labelSelector": self._selector}
        pods = [pod async for page in self._client.list_pages(self._path, params=params) for pod in page["items"]]
        return [pod for pod in pods if pod.get("status", {}).get("phase") in _STARTED]

    async def _print(self, pod: dict[str, Any], *, follow: bool, prefix: str) -> None:
        """Print the log of one pod; a pod without a log is said to have none, and keeps nobody from the others."""
        name, rest = pod["metadata"]["name"], b""
        params = self._options.params(pod, follow=follow)
        try:
            async with self._client.stream(f"{self._path}/{name}/log", params=params, silence=_SILENCE) as pieces:
                async for piece in pieces:
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        _print_text(prefix, line)
        except StatusError as error:
            print_line(f"note: {error.status.get('message') or error}", err=True)
        except Unreachable as error:
            print_line(f"note: the log of {name} broke off: {error}", err=True)
        if rest:
            _print_text(prefix, rest)


def _prefix(pod: dict[str, Any]) -> str:
    return f"[{pod['metadata']['name']}] "


def _print_text(prefix: str, line: bytes) -> None:
    """As the program wrote it, which may colour it: it is the user's own."""
    click.echo(prefix + line.decode(errors="replace"))
