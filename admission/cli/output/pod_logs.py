"""Logs of the pods of a Job: printed once, or followed until the Job has ended, over pods that come and go."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.cluster.errors import StatusError, Unreachable
from admission.model.names import listed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

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
    """The logs of all pods in a namespace that a selector selects, given as parameters of a list."""

    def __init__(self, client: Client, namespace: str, selector: dict[str, str], options: LogOptions) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = selector
        self._options = options

    async def show(self) -> int:
        """Print what there is, one pod after the other, by name; how many pods have started.

        Raises CommandError if no pod has the container that was asked for, or lets its log be read.
        """
        started = await self._started()
        if why := self._lacks_container(started):
            raise CommandError(why)
        pods = [*filter(self._has_container, started)]
        prefixes = [_prefix(pod) if len(pods) > 1 else "" for pod in pods]
        with _telling_the_shell():
            printed = [
                await self._print(pod, follow=False, prefix=prefix) for pod, prefix in zip(pods, prefixes, strict=True)
            ]
        if pods and not any(printed):
            raise CommandError("no log could be read")
        return len(pods)

    async def follow(self, ended: Callable[[], Awaitable[bool]], *, expected: int) -> None:
        """Print what all pods print, those that come later, too, until the Job has `ended` and they have.

        `expected`: how many pods it shall have; with several, each line is told whose it is. Raises CommandError if
        none of them has the container that was asked for.
        """
        followed: set[str] = set()
        why = ""
        with _telling_the_shell():
            async with asyncio.TaskGroup() as group:
                while True:
                    is_over = await ended()  # asked first, so that the list has all pods that there will be
                    pods = await self._started()
                    # Pods of other roles may have it, as long as not all are there.
                    if (is_over or len(pods) >= expected) and (why := self._lacks_container(pods)):
                        break
                    for pod in pods:
                        if (uid := pod["metadata"]["uid"]) not in followed and self._has_container(pod):
                            followed.add(uid)
                            mark = _prefix(pod) if expected > 1 else ""
                            group.create_task(self._print(pod, follow=True, prefix=mark))
                    if is_over:
                        return
                    await asyncio.sleep(_INTERVAL)
        raise CommandError(why)

    def _has_container(self, pod: dict[str, Any]) -> bool:
        return not self._options.container or self._options.container in _containers(pod)

    def _lacks_container(self, pods: Sequence[dict[str, Any]]) -> str:
        """What is wrong if none of the pods has the container that was asked for; empty if one has."""
        if not pods or any(map(self._has_container, pods)):
            return ""
        there = listed([*dict.fromkeys(name for pod in pods for name in _containers(pod))])
        return f'no pod has a container "{self._options.container}"; there are {there}'

    async def _started(self) -> Sequence[dict[str, Any]]:
        params = self._selector
        pods = [pod async for page in self._client.list_pages(self._path, params=params) for pod in page["items"]]
        return [pod for pod in pods if pod.get("status", {}).get("phase") in _STARTED]

    async def _print(self, pod: dict[str, Any], *, follow: bool, prefix: str) -> bool:
        """Print the log of one pod, if there is one; one that cannot be had is told, and stops no other."""
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
            return False
        except Unreachable as error:
            print_line(f"note: the log of {name} broke off: {error}", err=True)
        if rest:
            _print_text(prefix, rest)
        return True


@contextmanager
def _telling_the_shell() -> Iterator[None]:
    """What is raised where nobody reads, as from any other command: the end of a pipe, or a full disk."""
    try:
        yield
    except* _NobodyReads as group:
        error = group.exceptions[0]
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        cause = error.__cause__
    else:
        return
    assert isinstance(cause, OSError)
    raise cause


def _containers(pod: dict[str, Any]) -> list[str]:
    """The names of all that may have logs, the main ones first."""
    groups = ("containers", "initContainers", "ephemeralContainers")
    return [container["name"] for group in groups for container in pod["spec"].get(group) or ()]


def _prefix(pod: dict[str, Any]) -> str:
    return f"[{pod['metadata']['name']}] "


class _NobodyReads(Exception):
    """What was printed to is closed. Not an OSError, which would be taken for one of the connection to the cluster."""


def _print_text(prefix: str, line: bytes) -> None:
    """As the program wrote it, which may colour it: it is the user's own."""
    try:
        click.echo(prefix + line.decode(errors="replace"))
    except OSError as error:
        raise _NobodyReads from error
