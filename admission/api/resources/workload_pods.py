"""Pods of a workload and their logs, in the cluster in which they run: for the dashboard and `sluice logs`.

Sluice reads them with its own rights, after a SubjectAccessReview has confirmed that the user has these rights in the
namespace of the workload, too. That is asked of the cluster in which Sluice runs, also for a workload that is
dispatched: its user need not be known where the copy runs. Of the pods there only those are shown that Sluice has
signed as copies for exactly this workload, or that belong to an object which it has, whatever the labels of other pods
say.

A cluster that does not answer makes nobody wait longer than `_ANSWER_SECONDS`. A log is never kept in memory as a
whole: it is read as fast as the user takes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from admission.api.resources.clusters_in_reach import NotJoined
from admission.cluster.errors import Forbidden as ClusterForbidden
from admission.cluster.errors import NotFound as NotThere
from admission.cluster.errors import StatusError
from admission.kinds.base import POD
from admission.kinds.children import controller_of
from admission.kinds.dispatched import origin_of
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.registry import api_root
from admission.kinds.selection import own_pods, sent_pods
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.text import clean
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.resources.cluster_views import ReadableCluster
    from admission.api.resources.clusters_in_reach import ClustersInReach
    from admission.cluster.client import Object
    from admission.kinds.base import Kind
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
_VERSION: Final = re.compile(r"v[0-9a-z]{1,20}", re.ASCII)
_LIST, _READ = Attributes("list", "pods", group=""), Attributes("get", "pods", "log", group="")


class PodsOfWorkloads:
    """Handlers of the pods of workloads, and of their logs."""

    def __init__(
        self,
        store: Store,
        find: Callable[[web.Request, str, str], Awaitable[WorkloadRecord | None]],
        clusters: ClustersInReach,
    ) -> None:
        """`find`: returns the workload of a namespace and name, if the request's user may get it."""
        self._store = store
        self._find = find
        self._clusters = clusters
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
        record = await self._authorized(request, _LIST)
        clusters = await self._clusters_of(record)
        lists = (self._list(record.workload, cluster, limit) for cluster in clusters)
        found, *former = await asyncio.gather(*lists, return_exceptions=True)
        if isinstance(found, BaseException):
            raise found
        pods = {pod["name"]: pod for pod in found.pods}
        remaining, missing = found.remaining, []
        for each in former:
            if isinstance(each, ApiError):  # it does not hide the pods that there are now
                missing.append(f"pods of a former run are not shown: {each}")
            elif isinstance(each, BaseException):
                raise each
            else:
                remaining += each.remaining
                pods |= {pod["name"]: pod for pod in each.pods if pod["name"] not in pods}
        items = [*pods.values()][:limit]
        remaining += len(pods) - len(items)
        workload = record.workload
        metadata = {"namespace": workload.namespace, "name": workload.name, "uid": workload.uid}
        more = {"remainingItemCount": remaining} if remaining else {}
        return reply(
            {"kind": WORKLOAD_PODS, "apiVersion": API_VERSION, "metadata": {**metadata, **more}, "items": items},
            warnings=missing,
        )

    async def last_lines(self, request: web.Request) -> web.Response:
        """Return the last lines of the log of `?container=` in `?pod=`, which must be a pod of the workload.

        Raises as `pods`, and BadRequest.
        """
        pod, container = _names(request)
        params = {"tailLines": str(_MOST_LINES), "limitBytes": str(_MOST_BYTES), **container}
        record = await self._authorized(request, _READ)
        content = b""
        async with AsyncExitStack() as stack:
            cluster, pieces = await self._open(stack, record, pod, params)
            async with self._answered_in_time(cluster, "pods/log"):
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
        record = await self._authorized(request, _READ)
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Cache-Control": "no-cache, private"})
        try:
            async with AsyncExitStack() as stack:
                _, pieces = await self._open(stack, record, pod, params, user=request[IDENTITY].name)
                await response.prepare(request)
                await self._send(request, response, pieces)
        except (ApiError, ClusterError, TimeoutError, ConnectionError) as error:
            if not response.prepared:
                raise
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

    async def _authorized(self, request: web.Request, wanted: Attributes) -> WorkloadRecord:
        """Check the rights to the workload of the path and to its pods; return it."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        await self._check(request, wanted)
        record: WorkloadRecord | None = await self._find(request, namespace, name)
        if record is None:
            raise UnknownObject(f'there is no workload "{namespace}/{name}"')
        if (home := record.workload.cluster) != LOCAL:  # its user's rights there are not known here
            raise Unanswered(f"the pods are in the cluster {home}: look at them there")
        return record

    async def _check(self, request: web.Request, wanted: Attributes) -> None:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        authorization = request.app[AUTHORIZATION]
        await authorization.require(request, Attributes("get", WORKLOADS.plural, namespace=namespace, name=name))
        right = Attributes(wanted.verb, wanted.resource, wanted.subresource, namespace=namespace, group="")
        if not await authorization.allows(request, right):
            resource = "/".join(part for part in (wanted.resource, wanted.subresource) if part)
            raise Forbidden(f'you may not {wanted.verb} "{resource}" in the namespace "{namespace}"')

    # --- where the pods are

    async def _clusters_of(self, record: WorkloadRecord) -> list[str]:
        """Return the clusters in which a workload has pods: where it runs or ran last, and for a group former ones.

        Where others begin anew, a group leaves the pods that have succeeded.
        """
        workload, now = record.workload, [record.runs_in] if record.admission is not None else []
        is_group = (workload.group, workload.kind) == (PodGroupKind.group, PodGroupKind.kind)
        if is_group or not now:
            known = await self._store.workloads.clusters_of([workload.uid])
            now += [cluster or LOCAL for cluster in known.get(workload.uid, [LOCAL])]
        return [*dict.fromkeys(now)][: None if is_group else 1]

    async def _list(self, workload: Workload, cluster: str, limit: int) -> _Found:
        """Return the pods of a workload in a cluster. Raises Unanswered and BadRequest."""
        async with self._answered_in_time(cluster, "pods"), self._place(workload, cluster) as place:
            pods, remaining = await place.list({"limit": str(limit)})
        return _Found([_pod(pod, cluster) for pod in pods], remaining)

    async def _open(
        self, stack: AsyncExitStack, record: WorkloadRecord, pod: str, params: Mapping[str, str], *, user: str = ""
    ) -> tuple[str, AsyncIterator[bytes]]:
        """Open the log of a pod of the workload; return its cluster, and the pieces.

        `user`: for whom it is counted; empty: it is not. Raises UnknownObject if the workload has no pod of that name,
        and as `_counted` and `_list`.
        """
        workload, (now, *former) = record.workload, await self._clusters_of(record)
        missing: ApiError = UnknownObject(f'the workload "{workload.key}" has no pod "{pod}"')
        idle = _FOLLOWED_SECONDS if "follow" in params else _IDLE_SECONDS
        for cluster in (now, *former):
            try:
                async with AsyncExitStack() as own:
                    if user:
                        own.enter_context(self._counted(user, cluster))
                    async with self._answered_in_time(cluster, "pods/log"):
                        place = await own.enter_async_context(self._place(workload, cluster))
                        if not (await place.list({"fieldSelector": f"metadata.name={pod}"}))[0]:
                            continue
                        opened = place.client.stream(f"{place.path}/{pod}/log", params=params, idle_timeout=idle)
                        pieces = await own.enter_async_context(opened)
                    stack.push_async_exit(own.pop_all())
                    return cluster, pieces
            except Unanswered as error:
                if cluster == now:
                    raise
                missing = error
        raise missing

    @asynccontextmanager
    async def _place(self, workload: Workload, cluster: str) -> AsyncIterator[_Place]:
        """Context manager: the pods of a workload in a cluster. Raises as `ClustersInReach.connected`."""
        if cluster == LOCAL:
            kind = workload.group, workload.kind
            yield _Place(self._clusters.local, workload, own_pods(kind, workload.name, workload.uid))
            return
        async with self._clusters.connected(cluster) as (client, kinds):
            joined = (await self._store.joined_clusters.load()).get(cluster)
            signed = _Signed(client, kinds, workload, (joined and joined.key) or "")
            yield _Place(client, workload, [sent_pods(workload.uid)], signed)

    @asynccontextmanager
    async def _answered_in_time(self, where: str, resource: str) -> AsyncIterator[None]:
        """Context manager: say in the API's terms what a cluster has not answered."""
        cluster, role = ("cluster", "dashboard") if where == LOCAL else (f"cluster {where}", "dispatch-target")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                yield
        except NotJoined:
            raise Unanswered(f"the {cluster}, in which the pods were, has left") from None
        except ClusterForbidden as error:
            raise Unanswered(
                f"Sluice itself lacks the right to read {resource} in the {cluster}; "
                f"deploy/rbac/{role}.yaml is a role that grants it"
            ) from error
        except (TimeoutError, ClusterError) as error:
            if isinstance(error, StatusError) and error.code in (400, 404):
                raise BadRequest(clean(str(error.status.get("message") or error))) from error
            cause = f"no answer within {_ANSWER_SECONDS:g} s" if isinstance(error, TimeoutError) else error
            log.info("the %s was not read for a user: %s", cluster, cause)
            joined = (await self._store.joined_clusters.load()).get(where)
            lost = (
                f"; {sentences.lost_since(sentences.minute(joined.since))}" if joined and joined.state == "Lost" else ""
            )
            raise Unanswered(
                f"the {cluster} did not answer the request for {resource}{lost}; try again later"
            ) from error


class _Found(NamedTuple):
    """The first pods of a workload in a cluster."""

    pods: Sequence[Document]
    remaining: int
    """How many there are beside them."""


class _Place:
    """The pods of a workload in one cluster."""

    def __init__(
        self,
        client: ReadableCluster,
        workload: Workload,
        selectors: Sequence[Mapping[str, str]],
        signed: _Signed | None = None,
    ) -> None:
        """`selectors`: select its pods, to try in order. `signed`: knows which of them are really its own."""
        self.client = client
        self.path = f"/api/v1/namespaces/{workload.namespace}/pods"
        self._selectors = selectors
        self._signed = signed

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
        return pods if self._signed is None else await self._signed.own(pods), remaining


class _Signed:
    """Which objects are copies for a workload, or belong to one, by their signatures and owners: labels prove nothing.

    A copy is the pod itself, its owner, or an owner of that.
    """

    def __init__(self, client: ReadableCluster, kinds: Kinds, workload: Workload, key: str) -> None:
        """`key`: with which copies in the cluster are signed."""
        self._client = client
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}
        self._workload = workload
        self._key = key
        self._known: dict[str, bool] = {}
        """By uid of an owner, whether it is such a copy, or belongs to one."""

    async def own(self, pods: Sequence[Object]) -> list[Object]:
        """Return those of the pods that are or belong to copies. Raises ClusterError."""
        kind = self._kinds.get(POD)
        copies = [pod for pod in pods if kind is not None and self._is_copy(kind, pod)]
        own = {pod["metadata"]["uid"] for pod in copies}
        others = [pod for pod in pods if pod["metadata"]["uid"] not in own]
        await self._look(others, _MAX_DEPTH)
        return [*copies, *filter(self._belongs, others)]

    def _is_copy(self, kind: Kind, obj: Object) -> bool:
        origin = origin_of(kind, obj, self._key)
        return origin is not None and origin.workload == self._workload.uid

    def _belongs(self, obj: Object) -> bool:
        owner = controller_of(obj)
        return owner is not None and self._known.get(str(owner.get("uid")), False)

    async def _look(self, objects: Sequence[Object], depth: int) -> None:
        """Find out of the owners of these objects whether they are, or belong to, such copies."""
        owners = {str(owner.get("uid")): owner for obj in objects if (owner := controller_of(obj)) is not None}
        unknown = {uid: owner for uid, owner in owners.items() if uid not in self._known}
        if not unknown or not depth:
            return
        self._known |= dict.fromkeys(unknown, False)
        slots = asyncio.Semaphore(_AT_ONCE)
        found = await asyncio.gather(*(self._read(owner, slots) for owner in unknown.values()))
        read = [(kind, obj) for kind, obj in filter(None, found) if obj["metadata"]["uid"] in unknown]
        others = [obj for kind, obj in read if not self._is_copy(kind, obj)]
        await self._look(others, depth - 1)
        belong = dict.fromkeys((obj["metadata"]["uid"] for _, obj in read), True)
        self._known |= belong | {obj["metadata"]["uid"]: self._belongs(obj) for obj in others}

    async def _read(self, owner: Mapping[str, Any], slots: asyncio.Semaphore) -> tuple[Kind, Object] | None:
        """Return an owner and its kind; None: it is of no kind that Sluice may read."""
        group, _, version = str(owner.get("apiVersion")).rpartition("/")
        named = group, str(owner.get("kind"))
        name, kind = str(owner.get("name")), None if named == POD else self._kinds.get(named)  # pods own no pods
        if kind is None or not kind.plural or not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
            return None
        path = f"{api_root(group, version)}/namespaces/{self._workload.namespace}/{kind.plural}/{name}"
        async with slots:
            try:
                return kind, await self._client.get(path)
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


def _pod(pod: Object, cluster: str) -> Document:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    states = {each["name"]: _container(each) for each in status.get("containerStatuses") or ()}
    none = {"state": "waiting", "reason": "", "message": "", "restarts": 0}
    return {
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"].get("uid", ""),
        "phase": status.get("phase", "Unknown"),
        "cluster": cluster,
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
