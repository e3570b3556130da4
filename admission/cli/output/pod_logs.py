"""Logs of the pods of a Job: printed once, or followed until the Job finishes, with pods that are created later."""

from __future__ import annotations

import asyncio
import codecs
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import click

from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.client.errors import Refused, Unauthorized
from admission.client.errors import Unreachable as NoSluice
from admission.cluster.errors import StatusError, Unreachable
from admission.model.errors import SluiceError
from admission.model.names import listed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from admission.client import Sluice
    from admission.cluster.client import Client

_IDLE_TIMEOUT: Final = 86400.0
"""Seconds without a line after which a followed log is closed: one day, since Jobs may be silent for long."""
_POLL_INTERVAL: Final = 1.0
"""Seconds between two lists of the pods of a followed Job, by which new pods are found."""
_STARTED_PHASES: Final = ("Running", "Succeeded", "Failed")
"""Phases of pods that may have logs."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Part of the logs to print, for each pod."""

    container: str = ""
    """Name of the container; empty: the first one."""
    tail: int | None = None
    """Number of lines from the end of the log; None: all."""
    timestamps: bool = False
    """Whether each line starts with its time."""

    def params(self, pod: dict[str, Any], *, follow: bool) -> dict[str, str]:
        """Return the query parameters of a request for the log of a pod."""
        params = {"container": self.container or pod["spec"]["containers"][0]["name"]}
        if follow:
            params["follow"] = "true"
        if self.tail is not None:
            params["tailLines"] = str(self.tail)
        if self.timestamps:
            params["timestamps"] = "true"
        return params


class PodSource(Protocol):
    """The pods of a Job, and their logs."""

    async def pods(self) -> Sequence[dict[str, Any]]:
        """Return the pods by name, with at least names of containers and phase. Raises SluiceError."""

    def log(self, pod: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the log of a pod, by the query parameters of Kubernetes. Raises SluiceError."""


class ClusterPods:
    """The pods in a namespace that match a selector, which is given as parameters of a list request."""

    def __init__(self, client: Client, namespace: str, selector: Mapping[str, str]) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = selector

    async def pods(self) -> Sequence[dict[str, Any]]:
        """Return the pods. Raises ClusterError."""
        pages = self._client.list_pages(self._path, params=self._selector)
        return [pod async for page in pages for pod in page["items"]]

    def log(self, pod: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the log of a pod. Raises ClusterError."""
        return self._client.stream(f"{self._path}/{pod}/log", params=params, idle_timeout=_IDLE_TIMEOUT)


class DispatchedPods:
    """The pods of a workload that runs in another cluster, where its user has no credentials: Sluice reads them."""

    def __init__(self, sluice: Sluice, namespace: str, name: str) -> None:
        self._workloads = sluice.workloads
        self._namespace = namespace
        self._name = name

    async def pods(self) -> Sequence[dict[str, Any]]:
        """Return the pods. Raises ClientError."""
        return [
            {
                "metadata": {"name": pod["name"], "uid": pod["uid"]},
                "spec": {
                    "containers": pod["containers"],
                    "initContainers": [{"name": name} for name in pod["otherContainers"]],
                },
                "status": {"phase": pod["phase"]},
            }
            for pod in await self._workloads.pods(self._name, namespace=self._namespace)
        ]

    def log(self, pod: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the log of a pod. Raises ClientError."""
        return self._workloads.log(self._name, {"pod": pod, **params}, namespace=self._namespace)


class PodLogs:
    """Logs of the pods of a Job."""

    def __init__(self, source: PodSource, options: LogOptions) -> None:
        self._source = source
        self._options = options

    async def show(self) -> int:
        """Print the logs, one pod after the other, and return the number of pods that have started.

        Raises CommandError if no pod has the requested container, or no log can be read.
        """
        started = await self._started()
        if why := self._missing_container(started):
            raise CommandError(why)
        pods = [*filter(self._has_container, started)]
        prefixes = [_prefix(pod) if len(pods) > 1 else "" for pod in pods]
        with _errors_unwrapped():
            printed = [
                await self._print(pod, follow=False, prefix=prefix, tail=self._options.tail)
                for pod, prefix in zip(pods, prefixes, strict=True)
            ]
        if pods and all(each is False for each in printed):
            raise CommandError("no log could be read")
        return len(pods)

    async def follow(self, is_finished: Callable[[], Awaitable[bool]], *, expected: int) -> None:
        """Print the logs of all pods, including later ones, until the Job `is_finished` and all logs have ended.

        `expected` is the number of pods that the Job will have; if it is more than one, each line is prefixed with the
        name of its pod. Raises CommandError if no pod has the requested container.
        """
        followed: set[str] = set()
        why = ""
        with _errors_unwrapped():
            async with asyncio.TaskGroup() as group:
                while True:
                    # Asked before the list: if the Job is finished, the list has all pods that there will ever be.
                    is_over = await is_finished()
                    pods = await self._started()
                    # While pods are missing, one of another role (launcher, worker) may have the container.
                    if (is_over or len(pods) >= expected) and (why := self._missing_container(pods)):
                        break
                    for pod in pods:
                        if (uid := pod["metadata"]["uid"]) not in followed and self._has_container(pod):
                            followed.add(uid)
                            group.create_task(self._follow(pod, _prefix(pod) if expected > 1 else ""))
                    if is_over:
                        return
                    await asyncio.sleep(_POLL_INTERVAL)
        raise CommandError(why)

    def _has_container(self, pod: dict[str, Any]) -> bool:
        return not self._options.container or self._options.container in _containers(pod)

    def _missing_container(self, pods: Sequence[dict[str, Any]]) -> str:
        """Return an error message if none of the pods has the requested container; empty: one has it."""
        if not pods or any(map(self._has_container, pods)):
            return ""
        containers = listed([*dict.fromkeys(name for pod in pods for name in _containers(pod))])
        return f'no pod has a container "{self._options.container}"; available containers: {containers}'

    async def _started(self) -> Sequence[dict[str, Any]]:
        """Return the pods that may have logs, by name."""
        pods = await self._source.pods()
        return [pod for pod in pods if pod.get("status", {}).get("phase") in _STARTED_PHASES]

    async def _follow(self, pod: dict[str, Any], prefix: str) -> None:
        """Print the log of one pod until it ends; when the connection is lost, go on with what is written then."""
        tail: int | None = self._options.tail
        while await self._print(pod, follow=True, prefix=prefix, tail=tail) is None:
            tail = 0
            await asyncio.sleep(_POLL_INTERVAL)

    async def _print(self, pod: dict[str, Any], *, follow: bool, prefix: str, tail: int | None) -> bool | None:
        """Print the log of one pod. Return False, after a note, if it cannot be read: other pods go on.

        None, after a note: it breaks off.
        """
        name = pod["metadata"]["name"]
        params = replace(self._options, tail=tail).params(pod, follow=follow)
        try:
            with _Printer(prefix) as printer:
                async with self._source.log(name, params) as pieces:
                    async for piece in pieces:
                        printer.print(piece)
        except StatusError as error:
            print_line(f"note: {error.status.get('message') or error}", err=True)
            return False
        except Unauthorized:
            raise
        except Refused as error:
            print_line(f"note: {error}", err=True)
            return False
        except (NoSluice, Unreachable) as error:
            print_line(f"note: the log of {name} is incomplete: {error}", err=True)
            return None
        return True


class _Printer:
    """Prints a log unchanged, with its control characters: programs colour their output.

    With a prefix whole lines are printed, else each piece as it arrives: a progress bar may not end its line for hours.
    Used as a context manager, which ends the last line.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []
        """With a prefix: what has been received of the current line."""
        self._has_ended = True
        """Whether the last line has ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._print(self._decoder.decode(b"", final=True))
        if not self._has_ended:
            self._print("\n")

    def print(self, piece: bytes) -> None:
        """Print a piece of the log."""
        self._print(self._decoder.decode(piece))

    def _print(self, text: str) -> None:
        if not text:
            return
        self._has_ended = text.endswith("\n")
        if not self._prefix:
            _write(text)
            return
        *lines, rest = text.split("\n")
        for line in lines:
            _write(f"{self._prefix}{''.join(self._line)}{line}\n")
            self._line.clear()
        self._line.append(rest)


@contextmanager
def _errors_unwrapped() -> Iterator[None]:
    """Context manager: raise expected errors of tasks without the TaskGroup's wrapping, as for any other command.

    They are an OSError of writing to stdout (closed pipe, full disk), and a SluiceError, for example of a request after
    the user's token has expired. `admission.cli.main` handles both.
    """
    try:
        yield
    except* (_OutputFailed, SluiceError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    else:
        return
    if isinstance(error, _OutputFailed):
        assert isinstance(error.__cause__, OSError)
        raise error.__cause__
    raise error


def _containers(pod: dict[str, Any]) -> list[str]:
    """Return the names of all containers of a pod, the main ones first."""
    groups = ("containers", "initContainers", "ephemeralContainers")
    return [container["name"] for group in groups for container in pod["spec"].get(group) or ()]


def _prefix(pod: dict[str, Any]) -> str:
    return f"[{pod['metadata']['name']}] "


class _OutputFailed(Exception):
    """Writing to stdout failed; the OSError is its cause.

    It is no OSError itself, because the client would take one for a failed connection to the cluster.
    """


def _write(text: str) -> None:
    try:
        click.echo(text, nl=False)
    except OSError as error:
        raise _OutputFailed from error
