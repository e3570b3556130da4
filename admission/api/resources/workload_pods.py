"""Pods of a workload and their logs, in the cluster in which they run: for the dashboard and `sluice logs`.

Sluice reads them with its own rights, after a SubjectAccessReview has confirmed that the user has these rights in the
namespace of the workload, too. That is asked of the cluster in which Sluice runs, also for a workload that is
dispatched: its user need not be known where the copy runs. Of the pods there only those are shown that are owned by
the copy which Sluice has signed for exactly this workload, whatever the labels of other pods say.

A cluster that does not answer makes nobody wait longer than `_ANSWER_SECONDS`. A log is never kept in memory as a
whole: it is read as fast as the user takes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aiohttp import web

from admission.api.auth.authorization import AUTHORIZATION, recheck
from admission.api.auth.delegation import Attributes
from admission.api.auth.identity import IDENTITY
from admission.api.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    ReviewUnavailable,
    TooManyRequests,
    Unanswered,
    UnknownObject,
)
from admission.api.http.request_options import flag, number
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, WORKLOAD_PODS, WORKLOADS
from admission.cluster.errors import Forbidden as ClusterForbidden
from admission.cluster.errors import NotFound as NotThere
from admission.cluster.errors import StatusError
from admission.kinds.base import POD, POD_OWNER, WORKLOAD_UID
from admission.kinds.children import controller_of
from admission.kinds.dispatched import origin_of
from admission.kinds.grouping import GROUP_NAME
from admission.kinds.registry import api_root
from admission.model.errors import ClusterError
from admission.model.queues import Cluster as JoinedCluster
from admission.model.text import clean
from admission.model.workload import LOCAL
from admission.store.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from admission.api.http.responses import Document
    from admission.api.resources.cluster_views import ReadableCluster
    from admission.cluster.client import Object
    from admission.kinds.registry import Kinds
    from admission.model.workload import Workload
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 10.0
"""Seconds that a cluster may take until a list is there, or a log begins."""
_MOST_PODS, _ALL_PODS = 200, 1000
"""Most pods in a response without `limit`, and with it."""
_MOST_LINES, _MOST_BYTES = 200, 256 * 1024
"""Limits of the last lines of a log: how many, and bytes of these."""
_STREAMS: Final = 50
"""Most logs that a user may read at the same time: a follower has one for each pod."""
_STREAMS_OF_CLUSTER: Final = 80
"""Most logs of a cluster that are read at the same time: fewer than the connections of a client ..."""
_STREAMS_AT_HOME: Final = 30
"""... and of the cluster in which Sluice runs, whose connections the leader's watches and requests need."""
_IDLE_SECONDS: Final = 60.0
"""Seconds without a byte after which a log that is not followed has ended, and for which a user may take none."""
_FOLLOWED_SECONDS: Final = 86400.0
"""The same for a log that is followed: programs may be silent for long."""
_LOOK_SECONDS: Final = 5.0
"""Interval at which a silent log is looked at: whether its user is still there ..."""
_RECHECK_SECONDS: Final = 30.0
"""... and this one at which it is asked whether the user still has the rights."""
_MAX_DEPTH: Final = 5
"""Owners of owners that are followed; a pod of an AppWrapper's JobSet has three."""
_AT_ONCE: Final = 8
"""Owners that are read at the same time."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
"""A name that a pod, its owner or a container can have: they become parts of what Sluice's rights allow to read."""
_LIST, _READ = Attributes("list", "pods", group=""), Attributes("get", "pods", "log", group="")


class Reached(NamedTuple):
    """A cluster beside `local` to which there is a connection."""

    client: ReadableCluster
    kinds: Kinds


class Reach(Protocol):
    """Returns a context with the connection to a cluster. Entering it raises ClusterError."""

    def __call__(self, cluster: JoinedCluster, /) -> AbstractAsyncContextManager[Reached]:
        """Return the context."""


class PodsOfWorkloads:
    """Handlers of the pods of workloads, and of their logs.

    `cluster` is None for an API without a cluster, `reach` for one that knows no others.
    """

    def __init__(
        self,
        store: Store,
        find: Callable[[str, str], Awaitable[WorkloadRecord | None]],
        cluster: ReadableCluster | None,
        reach: Reach | None,
    ) -> None:
        """`find`: returns the workload of a namespace and name."""
        self._store = store
        self._find = find
        self._cluster = cluster
        self._reach = reach
        self._of_user: Counter[str] = Counter()
        self._of_cluster: Counter[str] = Counter()
        """Logs that are being read, by user and by cluster."""
        self._closing = asyncio.Event()

    async def close(self) -> None:
        """End all logs that are being followed, as the server stops."""
        self._closing.set()

    async def pods(self, request: web.Request) -> web.Response:
        """Return the pods of a workload (at most `?limit=`), with the states of their containers.

        Raises Forbidden, UnknownObject and Unanswered.
        """
        limit = min(number(request, "limit") or _MOST_PODS, _ALL_PODS)
        record, where = await self._authorized(request, _LIST)
        async with AsyncExitStack() as stack:
            with _answered_in_time(where, "pods"):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    place = await self._place(stack, record.workload, where)
                    found, remaining = await place.list({"limit": str(limit)}) if place is not None else ([], 0)
        workload = record.workload
        metadata = {"namespace": workload.namespace, "name": workload.name, "uid": workload.uid}
        more = {"remainingItemCount": remaining} if remaining else {}
        items = [_pod(pod) for pod in found]
        return reply(
            {"kind": WORKLOAD_PODS, "apiVersion": API_VERSION, "metadata": {**metadata, **more}, "items": items}
        )

    async def last_lines(self, request: web.Request) -> web.Response:
        """Return the last lines of the log of `?container=` in `?pod=`, which must be a pod of the workload.

        Raises as `pods`, and BadRequest.
        """
        pod, container = _names(request)
        params = {"tailLines": str(_MOST_LINES), "limitBytes": str(_MOST_BYTES), **container}
        record, where = await self._authorized(request, _READ)
        content = b""
        async with AsyncExitStack() as stack:
            with _answered_in_time(where, "pods/log"):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    pieces = await self._open(stack, record.workload, where, pod, params)
                    async for piece in pieces:  # that a cluster keeps to the limit is not taken for granted
                        content += piece
                        if len(content) >= _MOST_BYTES:
                            break
        text = content[:_MOST_BYTES].decode(errors="replace")
        return reply({"pod": pod, "container": container.get("container", ""), "text": text})

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Stream the log of a pod, by the parameters of Kubernetes `container`, `follow`, `tailLines`, `timestamps`.

        It breaks off when it cannot be read any more. Raises as `last_lines`, and TooManyRequests.
        """
        pod, params = _names(request)
        tail = number(request, "tailLines")
        params |= {name: "true" for name in ("follow", "timestamps") if flag(request, name)}
        params |= {} if tail is None else {"tailLines": str(tail)}
        record, where = await self._authorized(request, _READ)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._counted(request[IDENTITY].name, where))
            with _answered_in_time(where, "pods/log"):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    pieces = await self._open(stack, record.workload, where, pod, params)
            response = web.StreamResponse(headers={"Content-Type": "text/plain", "Cache-Control": "no-cache, private"})
            await response.prepare(request)
            try:
                await self._send(request, response, pieces)
            except (ApiError, ClusterError, TimeoutError, ConnectionError) as error:
                # The headers have been sent: a response that breaks off is the only sign that it is incomplete.
                log.info("the log of %s of %s breaks off: %s", pod, record.workload.key, error)
                if request.transport is not None:
                    request.transport.abort()
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, pieces: AsyncIterator[bytes]) -> None:
        loop = asyncio.get_running_loop()
        recheck_at = loop.time() + _RECHECK_SECONDS
        closing = asyncio.create_task(self._closing.wait())
        piece: asyncio.Task[bytes] | None = None
        try:
            while True:
                if piece is None:
                    piece = asyncio.ensure_future(_next(pieces))
                done, _ = await asyncio.wait(
                    (piece, closing), timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if closing in done or request.transport is None or request.transport.is_closing():
                    raise ConnectionError("the server stops, or its user has left")
                if loop.time() >= recheck_at:
                    await recheck(request)
                    with suppress(ReviewUnavailable):  # as for watches, the earlier permission remains in force
                        await self._check(request, _READ)
                    recheck_at = loop.time() + _RECHECK_SECONDS
                if piece in done:
                    content, piece = piece.result(), None
                    async with asyncio.timeout(_IDLE_SECONDS):  # also at the end: it waits until the user takes it
                        await (response.write(content) if content else response.write_eof())
                    if not content:
                        return
        finally:
            tasks = [task for task in (piece, closing) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def _counted(self, user: str, cluster: str) -> Iterator[None]:
        """Context manager: one log more is being read. Raises TooManyRequests."""
        most = _STREAMS_AT_HOME if cluster == LOCAL else _STREAMS_OF_CLUSTER
        if self._of_user[user] >= _STREAMS or self._of_cluster[cluster] >= most:
            raise TooManyRequests(
                f"{_STREAMS} logs of a user, and {most} of the cluster {cluster}, can be read at the same time",
                retry_after=5,
            )
        for counter, key in ((self._of_user, user), (self._of_cluster, cluster)):
            counter[key] += 1
        try:
            yield
        finally:
            for counter, key in ((self._of_user, user), (self._of_cluster, cluster)):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]

    # --- rights

    async def _authorized(self, request: web.Request, wanted: Attributes) -> tuple[WorkloadRecord, str]:
        """Check the rights to the workload and to its pods; return the workload of the path, and where its pods are."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        await self._check(request, wanted)
        record: WorkloadRecord | None = await self._find(namespace, name)
        if record is None:
            raise UnknownObject(f'there is no workload "{namespace}/{name}"')
        if self._cluster is None:
            raise Unanswered("there is no cluster whose pods could be shown")
        if (home := record.workload.cluster) != LOCAL:  # its user's rights there are not known here
            raise Unanswered(f"the pods are in the cluster {home}: look at them there")
        if record.admission is not None:
            return record, record.admission.cluster or LOCAL
        uid = record.workload.uid
        return record, (await self._store.workloads.last_clusters([uid])).get(uid, LOCAL)

    async def _check(self, request: web.Request, wanted: Attributes) -> None:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        authorization = request.app[AUTHORIZATION]
        await authorization.require(request, Attributes("get", WORKLOADS.plural, namespace=namespace, name=name))
        right = Attributes(wanted.verb, wanted.resource, wanted.subresource, namespace=namespace, group="")
        if not await authorization.allows(request, right):
            resource = "/".join(part for part in (wanted.resource, wanted.subresource) if part)
            raise Forbidden(f'you may not {wanted.verb} "{resource}" in the namespace "{namespace}"')

    # --- where the pods are

    async def _open(
        self, stack: AsyncExitStack, workload: Workload, where: str, pod: str, params: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """Open the log of a pod of the workload. Raises UnknownObject if it has none of that name, and as `_place`."""
        place = await self._place(stack, workload, where)
        if place is None or not (await place.list({"fieldSelector": f"metadata.name={pod}"}))[0]:
            raise UnknownObject(f'the workload "{workload.key}" has no pod "{pod}"')
        idle = _FOLLOWED_SECONDS if "follow" in params else _IDLE_SECONDS
        opened = place.client.stream(f"{place.path}/{pod}/log", params=params, idle_timeout=idle)
        return await stack.enter_async_context(opened)

    async def _place(self, stack: AsyncExitStack, workload: Workload, where: str) -> _Place | None:
        """Return the workload's pods in the cluster `where`; None: it has no copy there.

        Raises ClusterError and Unanswered.
        """
        if where == LOCAL:
            assert self._cluster is not None, workload
            return _Place(self._cluster, workload, _selectors(workload))
        try:
            cluster = await self._store.queues.get(JoinedCluster.kind, where)
        except NotFound:
            raise Unanswered(f"the cluster {where}, in which the pods were, has left") from None
        assert isinstance(cluster, JoinedCluster), cluster
        if self._reach is None or cluster.spec.state == "Disabled":
            raise Unanswered(f"the pods are in the cluster {where}, which is disabled")
        joined = (await self._store.joined_clusters.load()).get(where)
        client, kinds = await stack.enter_async_context(self._reach(cluster))
        copy = await _copy(client, kinds, workload, (joined and joined.key) or "")
        if copy is None:
            return None
        label = f"{POD_OWNER}={copy}" if _is_kind(workload, "batch", "Job") else f"{WORKLOAD_UID}={workload.uid}"
        selector = {"labelSelector": label}
        if _is_kind(workload, *POD):
            selector = {"fieldSelector": f"metadata.name={workload.name}"}
        return _Place(client, workload, [selector], _Owners(client, kinds, workload.namespace, copy))


async def _copy(client: ReadableCluster, kinds: Kinds, workload: Workload, key: str) -> str | None:
    """Return the uid of the copy of a workload that is signed with `key`; None: there is none. Raises ClusterError."""
    kind = kinds.of(workload)
    if kind is None:
        return None
    for version in kind.versions:
        path = f"{api_root(kind.group, version)}/namespaces/{workload.namespace}/{kind.plural}/{workload.name}"
        try:
            found = await client.get(path)
        except NotThere:
            continue
        origin = origin_of(kind, found, key)
        return None if origin is None or origin.uid != workload.uid else str(found["metadata"]["uid"])
    return None


class _Place:
    """The pods of a workload in one cluster."""

    def __init__(
        self,
        client: ReadableCluster,
        workload: Workload,
        selectors: Sequence[Mapping[str, str]],
        owners: _Owners | None = None,
    ) -> None:
        """`selectors`: select its pods, to try in order. `owners`: knows which of them are really its own."""
        self.client = client
        self.path = f"/api/v1/namespaces/{workload.namespace}/pods"
        self._selectors = selectors
        self._owners = owners

    async def list(self, params: Mapping[str, str]) -> tuple[Sequence[Object], int]:
        """Return a page of the pods, and how many there are beside it. Raises ClusterError."""
        page: Object = {}
        for selector in self._selectors:
            both = {key: f"{selector[key]},{params[key]}" for key in selector.keys() & params.keys()}
            page = await self.client.get(self.path, params={**selector, **params, **both})
            if page.get("items"):
                break
        pods = page.get("items") or ()
        remaining: int = (page.get("metadata") or {}).get("remainingItemCount") or 0
        return pods if self._owners is None else await self._owners.owned(pods), remaining


class _Owners:
    """Which objects belong to a copy, by their owners and the owners of these: anybody there may write labels."""

    def __init__(self, client: ReadableCluster, kinds: Kinds, namespace: str, copy: str) -> None:
        """`copy`: uid of the copy."""
        self._client = client
        self._kinds = {(kind.group, kind.kind): kind.plural for kind in kinds}
        self._namespace = namespace
        self._known = {copy: True}
        """By uid, whether the object is the copy, or belongs to it."""

    async def owned(self, objects: Sequence[Object]) -> list[Object]:
        """Return those of the objects that belong to the copy. Raises ClusterError."""
        await self._look(objects, _MAX_DEPTH)
        return [obj for obj in objects if self._belongs(obj)]

    def _belongs(self, obj: Object) -> bool:
        owner = controller_of(obj)
        is_owned = owner is not None and self._known.get(str(owner.get("uid")), False)
        return is_owned or self._known.get(obj["metadata"]["uid"], False)

    async def _look(self, objects: Sequence[Object], depth: int) -> None:
        """Find out of the owners of these objects whether they belong to the copy."""
        owners = {str(owner.get("uid")): owner for obj in objects if (owner := controller_of(obj)) is not None}
        unknown = {uid: owner for uid, owner in owners.items() if uid not in self._known}
        if not unknown or not depth:
            return
        self._known |= dict.fromkeys(unknown, False)
        slots = asyncio.Semaphore(_AT_ONCE)
        found = await asyncio.gather(*(self._read(owner, slots) for owner in unknown.values()))
        read = [obj for obj in found if obj is not None and obj["metadata"]["uid"] in unknown]
        await self._look(read, depth - 1)
        self._known |= {obj["metadata"]["uid"]: self._belongs(obj) for obj in read}

    async def _read(self, owner: Mapping[str, Any], slots: asyncio.Semaphore) -> Object | None:
        """Return an owner; None: it is of no kind that Sluice may read."""
        group, _, version = str(owner.get("apiVersion")).rpartition("/")
        name, plural = str(owner.get("name")), self._kinds.get((group, str(owner.get("kind"))))
        if not plural or not _NAME.fullmatch(name) or not re.fullmatch(r"v[0-9a-z]{1,20}", version, re.ASCII):
            return None
        async with slots:
            try:
                return await self._client.get(
                    f"{api_root(group, version)}/namespaces/{self._namespace}/{plural}/{name}"
                )
            except (ClusterForbidden, NotThere):
                return None


def _names(request: web.Request) -> tuple[str, dict[str, str]]:
    """Return the pod that a request names, and the parameter `container` if it names one. Raises BadRequest."""
    pod, container = request.query.get("pod", ""), request.query.get("container", "")
    if _NAME.fullmatch(pod) is None:
        raise BadRequest("pod: give the name of a pod of the workload")
    if container and _NAME.fullmatch(container) is None:
        raise BadRequest("container: give the name of a container of the pod")
    return pod, {"container": container} if container else {}


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    """Return the next piece; empty at the end."""
    return await anext(pieces, b"")


@contextmanager
def _answered_in_time(where: str, resource: str) -> Iterator[None]:
    """Context manager: say in the API's terms what the cluster `where` has not answered."""
    cluster, role = ("cluster", "dashboard") if where == LOCAL else (f"cluster {where}", "dispatch-target")
    try:
        yield
    except TimeoutError:
        log.info("the %s did not answer a request for %s within %g s", cluster, resource, _ANSWER_SECONDS)
        raise Unanswered(f"the {cluster} did not answer the request for {resource}; try again later") from None
    except ClusterForbidden as error:
        raise Unanswered(
            f"Sluice itself lacks the right to read {resource} in the {cluster}; "
            f"deploy/rbac/{role}.yaml is a role that grants it"
        ) from error
    except ClusterError as error:
        if isinstance(error, StatusError) and error.code in (400, 404):
            raise BadRequest(clean(str(error.status.get("message") or error))) from error
        log.info("the %s was not read for a user: %s", cluster, error)
        raise Unanswered(f"the {cluster} did not answer the request for {resource}; try again later") from error


def _labels(workload: Workload) -> list[tuple[str, str]]:
    """Return labels (name and value) of which each pod of the workload has one."""
    if _is_kind(workload, "batch", "Job"):
        return [(POD_OWNER, workload.uid)]
    groups = [(name, workload.name) for name in GROUP_NAME]
    return groups if _is_kind(workload, *POD) else [(WORKLOAD_UID, workload.uid), *groups]


def _selectors(workload: Workload) -> list[dict[str, str]]:
    """Return selectors of the workload's pods, to try in order: which label pods have is known for some kinds only."""
    own = [{"fieldSelector": f"metadata.name={workload.name}"}] if _is_kind(workload, *POD) else []
    return [*own, *({"labelSelector": f"{name}={value}"} for name, value in _labels(workload))]


def _is_kind(workload: Workload, group: str, kind: str) -> bool:
    return (workload.group, workload.kind) == (group, kind)


def _pod(pod: Object) -> Document:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    states = {each["name"]: _container(each) for each in status.get("containerStatuses") or ()}
    none = {"state": "waiting", "reason": "", "message": "", "restarts": 0}
    return {
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"].get("uid", ""),
        "phase": status.get("phase", "Unknown"),
        "node": spec.get("nodeName", ""),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "startTime": status.get("startTime"),
        "isEnding": "deletionTimestamp" in pod["metadata"],
        "containers": [states.get(each["name"], {"name": each["name"], **none}) for each in spec.get("containers", ())],
        "otherContainers": [
            each["name"] for group in ("initContainers", "ephemeralContainers") for each in spec.get(group) or ()
        ],
    }


def _container(status: dict[str, Any]) -> Document:
    states: dict[str, dict[str, Any]] = status.get("state") or {"waiting": {}}
    state, details = next(iter(states.items()))
    return {
        "name": status["name"],
        "state": state,
        "reason": details.get("reason", ""),
        "message": details.get("message", ""),
        "restarts": status.get("restartCount", 0),
        **({"exitCode": details["exitCode"]} if "exitCode" in details else {}),
    }
