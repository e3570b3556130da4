"""The pods/log subresource: simulated output of a container, also while it is followed."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aiohttp import ClientConnectionResetError, web

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.errors import bad_request
from admission.sandbox.clock import parse_rfc3339, rfc3339_micro
from admission.sandbox.controllers.podlife import run_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import StoredCollection
    from admission.sandbox.clock import Clock

INTERVAL = 10.0
"""Seconds of the sandbox's clock between two lines of a running container's output."""


async def serve_log(
    request: web.BaseRequest,
    collection: StoredCollection,
    resource: ServedResource,
    *,
    namespace: str,
    name: str,
    query: Query,
    clock: Clock,
) -> web.StreamResponse:
    """Serve the log of a pod, by `container`, `follow`, `tailLines`, `timestamps`. Raises ApiError (400, 404)."""
    version = collection.get(namespace, name)
    if version is None:
        raise errors.not_found(resource, name)
    pod = version.obj
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)  # of an unscheduled pod, as recorded from an API server
    container = _container(pod, query.get("container"))
    lines = list(_lines(pod, container, clock.now()))
    tail = query.integer("tailLines")
    first = 0 if tail is None else max(0, len(lines) - tail)
    response = web.StreamResponse(headers={"Content-Type": "text/plain", "Cache-Control": "no-cache, private"})
    await response.prepare(request)
    stamped = query.flag("timestamps")
    await response.write(_text(lines[first:], stamped=stamped))
    if query.flag("follow"):
        await _follow(response, collection, pod, container, len(lines), clock=clock, stamped=stamped)
    await response.write_eof()
    return response


async def _follow(
    response: web.StreamResponse,
    collection: StoredCollection,
    pod: Object,
    container: Object,
    written: int,
    *,
    clock: Clock,
    stamped: bool,
) -> None:
    """Write each further line when it is due, until the container terminates, the pod is deleted or the client leaves.

    `written` is the number of lines written so far.
    """
    metadata, wake = pod["metadata"], asyncio.Event()
    collection.subscribe(wake.set)
    try:
        while True:
            wake.clear()
            version = collection.get(metadata["namespace"], metadata["name"])
            if version is None or version.obj["metadata"]["uid"] != metadata["uid"]:
                return
            now = clock.now()
            lines = list(_lines(version.obj, container, now))
            if len(lines) > written:
                await response.write(_text(lines[written:], stamped=stamped))
                written = len(lines)
            state = _state(version.obj, container["name"])
            if "terminated" in state:
                return
            elapsed = now - parse_rfc3339(state["running"]["startedAt"])
            pause = INTERVAL - math.fmod(elapsed, INTERVAL)
            try:
                async with asyncio.timeout(pause / clock.speed):
                    await wake.wait()
            except TimeoutError:
                continue
    except ClientConnectionResetError:
        return  # the client disconnected, which is how following usually ends
    finally:
        collection.unsubscribe(wake.set)


def _lines(pod: Object, container: Object, now: float) -> Iterator[tuple[float, str]]:
    """Yield the time and text of each line that the container has printed by `now`."""
    state = _state(pod, container["name"])
    ended = state.get("terminated")
    started = parse_rfc3339((ended or state["running"])["startedAt"])
    until = parse_rfc3339(ended["finishedAt"]) if ended else now
    command = " ".join([*container.get("command", ()), *container.get("args", ())]) or container["image"]
    duration = run_seconds(pod)
    length = "until it is deleted" if duration is None else f"for {duration:g} s"
    yield started, f"{pod['metadata']['name']}: simulating a run {length}: {command}"
    for number in range(1, int((until - started) / INTERVAL) + 1):
        yield started + number * INTERVAL, f"running for {number * INTERVAL:g} s"
    if ended:
        yield until, f"ended with exit code {ended['exitCode']}"


def _text(lines: list[tuple[float, str]], *, stamped: bool) -> bytes:
    return "".join(f"{rfc3339_micro(at)} {text}\n" if stamped else f"{text}\n" for at, text in lines).encode()


def _container(pod: Object, wanted: str) -> Object:
    """Return the selected container, which must have started. Raises ApiError (400), with the API server's messages."""
    name, containers = pod["metadata"]["name"], pod["spec"]["containers"]
    if not wanted and len(containers) > 1:
        listed = " ".join(one["name"] for one in containers)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    found: Object | None = next((one for one in containers if one["name"] == (wanted or one["name"])), None)
    if found is None:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    state = _state(pod, found["name"])
    if "running" not in state and "terminated" not in state:
        waits = state.get("waiting", {}).get("reason", "ContainerCreating")
        why = "trying and failing to pull image" if waits == "ImagePullBackOff" else waits
        raise bad_request(f'container "{found["name"]}" in pod "{name}" is waiting to start: {why}')
    return found


def _state(pod: Object, container: str) -> Object:
    """Return the state of a container; empty before the kubelet has reported one."""
    statuses = pod["status"].get("containerStatuses") or ()
    found: Object = next((status["state"] for status in statuses if status["name"] == container), {})
    return found
