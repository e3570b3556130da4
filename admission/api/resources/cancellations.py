"""The subresource `cancel` of workloads: delete the object of a workload in the cluster, or the pods of a pod group.

A user needs the right to delete the object in the cluster itself: a SubjectAccessReview asks for it. Sluice then
deletes it by uid, with its own right, if it may itself create `workloads/cancel`: the chart's value `rbac.cancel`. A
request is complete when the cluster has answered: no order to delete outlives it, as the right of its user may not.
Where a process was killed between the record and the deletion, the next one that starts writes that to the history.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import NAMESPACE_URL, uuid5

from admission.api.auth.authorization import AUTHORIZATION
from admission.api.auth.delegation import Attributes, Reviewer
from admission.api.auth.identity import AuthMethod, author, identity
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import BadRequest, Forbidden, ReviewUnavailable
from admission.api.http.bodies import read_document
from admission.api.http.request_options import dry_run
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, CANCELLATION
from admission.api.resources.cluster_views import ReadableCluster
from admission.cluster.errors import Conflict as ClusterConflict
from admission.cluster.errors import Forbidden as ClusterForbidden
from admission.cluster.errors import NotFound
from admission.kinds.base import POD
from admission.kinds.grouping import GROUP_NAME, STARTED_WITH
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.registry import api_root
from admission.model import sentences
from admission.model.errors import ClusterError, SluiceError, StoreError
from admission.model.workload import LOCAL
from admission.store.errors import Conflict
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiohttp import web

    from admission.api.resources.workload_lookup import WorkloadLookup
    from admission.cluster.client import Object
    from admission.model.workload import Workload
    from admission.store.store import Store

log = logging.getLogger(__name__)

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_KNOWN_SECONDS: Final = 30.0
"""Time for which it is cached whether Sluice may cancel."""
_RETRY_SECONDS: Final = 2.0
"""Seconds until the next attempt to find out which cancelled workloads were not deleted."""
_GRANT: Final = "the value rbac.cancel of the chart, or deploy/rbac/cancel.yaml, grants it"


class ChangeableCluster(ReadableCluster, Reviewer, Protocol):
    """Requests to the cluster's API server, with Sluice's own rights."""

    async def delete(self, path: str, body: object = None) -> Object:
        """Delete an object with these DeleteOptions. Raises ClusterError."""


class _Target(NamedTuple):
    """An object to delete."""

    api_version: str
    kind: str
    plural: str
    namespace: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        root = api_root(self.group, self.api_version.rpartition("/")[2])
        return f"{root}/namespaces/{self.namespace}/{self.plural}/{self.name}"

    async def is_left(self, cluster: ChangeableCluster) -> bool:
        """Return whether it is there and not being deleted. Raises ClusterError."""
        try:
            metadata = (await cluster.get(self.path))["metadata"]
        except NotFound:
            return False
        return metadata["uid"] == self.uid and "deletionTimestamp" not in metadata

    async def delete(self, cluster: ChangeableCluster, *, dry_run: bool) -> None:
        """Delete it, unless it has another uid. Raises NotFound, and what `_refusal` tells about."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": self.uid},
            **({"dryRun": ["All"]} if dry_run else {}),
        }
        try:
            await cluster.delete(self.path, options)
        except NotFound:
            raise
        except ClusterError as error:
            raise _refusal(error, self) from error


class Cancellations:
    """Handler of `cancel`; `cluster` is None for an API without a cluster."""

    def __init__(self, store: Store, lookup: WorkloadLookup, cluster: ChangeableCluster | None) -> None:
        self._store = store
        self._lookup = lookup
        self._cluster = cluster
        self._is_granted: TtlCache[bool] = TtlCache(size=1, clock=time.monotonic)

    async def available(self, request: web.Request) -> bool:
        """Return whether Sluice may cancel, and the request's user is one of the cluster. False if unknown."""
        if self._cluster is None or identity(request).auth_method is AuthMethod.ADMIN_TOKEN:
            return False
        try:
            return await self._may_cancel(self._cluster)
        except ClusterError as error:
            log.info("the cluster was not asked whether Sluice may cancel workloads: %s", error)
            return False

    async def _may_cancel(self, cluster: ChangeableCluster) -> bool:
        """Return whether Sluice was granted to cancel; it may delete Jobs for other reasons. Raises ClusterError."""

        async def review() -> tuple[bool, float]:
            wanted = Attributes("create", "workloads", "cancel").review()
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": wanted}
            allowed = bool((await cluster.create(_REVIEWS, body))["status"].get("allowed"))
            return allowed, _KNOWN_SECONDS if allowed else 0.0

        return await self._is_granted.get("", review)

    async def telling_of_lost_ones(self, _: web.Application) -> AsyncIterator[None]:
        """Write to the history, beside the server, which deletions a process had ordered when it was killed."""
        task = asyncio.create_task(self._tell_of_lost_ones())
        yield
        task.cancel()
        await asyncio.wait([task])

    async def _tell_of_lost_ones(self) -> None:
        cluster, is_done, is_logged = self._cluster, False, False
        while cluster is not None and not is_done:
            try:
                for workload in await self._store.orders.cancelled():
                    if await _is_left(cluster, workload):
                        await self._store.orders.not_deleted(workload.uid, sentences.NOT_DELETED_BEFORE_RESTART)
                is_done = True
            except (ClusterError, StoreError) as error:
                if not is_logged:
                    log.warning("it is not known yet whether all cancelled workloads were deleted: %s", error)
                is_logged = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def create(self, request: web.Request) -> web.Response:
        """Cancel a workload, and return what was deleted; with `?dryRun=All` what would be.

        The body `{"uid": "..."}` names the workload that the user means, if there may be another one of the name by
        now. Raises BadRequest, Forbidden, UnknownObject, Conflict and ReviewUnavailable.
        """
        uid = (await read_document(request) or {}).get("uid", "")
        if not isinstance(uid, str):
            raise BadRequest("uid: must be the uid of the workload, or be left out")
        record = await self._lookup.of_request(request, exact=True)
        workload = record.workload
        if identity(request).auth_method is AuthMethod.ADMIN_TOKEN:
            raise Forbidden(
                "forbidden: the admin token is no user of the cluster, whose right to delete could be reviewed; "
                "cancel as a user of the cluster, or use kubectl delete"
            )
        if self._cluster is None:
            raise ReviewUnavailable("there is no cluster in which a workload could be cancelled")
        if workload.cluster != LOCAL:
            raise Conflict(f"workload {workload.key} is in the cluster {workload.cluster}: delete its object there")
        if uid not in ("", workload.uid):
            raise Conflict(f"workload {workload.key} is another one now (uid {workload.uid}, not {uid}); read it again")
        if record.state is State.FINISHED:
            raise Conflict(f"workload {workload.key} is finished; delete its object with kubectl, if it is still there")
        try:
            if not await self._may_cancel(self._cluster):
                raise Forbidden(f"forbidden: Sluice itself lacks the right to cancel workloads; {_GRANT}")
            plural = await _plural(self._cluster, workload)
            await _authorize(request, workload, plural)
            targets = await _targets(self._cluster, workload, plural)
        except ClusterError as error:
            raise _unanswered(error) from error
        gone = 0
        for target in targets:  # the refusals come before the record
            try:
                await target.delete(self._cluster, dry_run=True)
            except NotFound:
                gone += 1
        if gone == len(targets):
            raise Conflict(f"{workload.kind} {workload.key} is already deleted")
        dry = dry_run(request)
        if not dry:
            await self._store.orders.cancel(workload.uid, author=author(request, verb="cancel"))
            try:
                await _delete(self._cluster, targets)
            except SluiceError as error:
                await self._store.orders.not_deleted(workload.uid, sentences.not_deleted(str(error)))
                raise
        return reply(
            {
                "apiVersion": API_VERSION,
                "kind": CANCELLATION,
                "metadata": {"namespace": workload.namespace, "name": workload.name, "uid": workload.uid},
                "objects": [
                    {
                        "apiVersion": target.api_version,
                        "kind": target.kind,
                        "namespace": target.namespace,
                        "name": target.name,
                        "uid": target.uid,
                    }
                    for target in targets
                ],
            }
        )


async def _delete(cluster: ChangeableCluster, targets: list[_Target]) -> None:
    """Delete objects that may be deleted meanwhile. Raises what `_refusal` tells about."""
    for target in targets:
        try:
            await target.delete(cluster, dry_run=False)
        except NotFound:
            log.info("%s %s/%s was deleted meanwhile", target.kind, target.namespace, target.name)


async def _is_left(cluster: ChangeableCluster, workload: Workload) -> bool:
    """Return whether anything is left that a cancellation of the workload deletes. Raises ClusterError."""
    try:
        targets = await _targets(cluster, workload, await _plural(cluster, workload))
    except Conflict:
        return False
    for target in targets:
        if await target.is_left(cluster):
            return True
    return False


async def _authorize(request: web.Request, workload: Workload, plural: str) -> None:
    """Check the user's right to delete the object, or for a group all pods of the namespace. Raises Forbidden."""
    name, group = ("", "") if _is_group(workload) else (workload.name, workload.api_version.rpartition("/")[0])
    wanted = Attributes("delete", plural, namespace=workload.namespace, name=name, group=group)
    if not await request.app[AUTHORIZATION].allows(request, wanted):
        resource, subject = f"{plural}.{group}" if group else plural, f'"{name}" ' if name else ""
        raise Forbidden(
            f'forbidden: User "{identity(request).name}" cannot delete {resource} {subject}in the '
            f'namespace "{workload.namespace}", and so cannot cancel the workload'
        )


async def _targets(cluster: ChangeableCluster, workload: Workload, plural: str) -> list[_Target]:
    """Return the objects to delete, at least one. Raises Conflict and ClusterError."""
    if not _is_of_pods(workload):
        return [_Target(workload.api_version, workload.kind, plural, workload.namespace, workload.name, workload.uid)]
    if _is_group(workload):
        pods = await _pods_of_group(cluster, workload)
    else:
        found = await _pods(cluster, workload.namespace, {"fieldSelector": f"metadata.name={workload.name}"})
        pods = [pod for pod in found if pod["metadata"]["uid"] == workload.uid]
        if not pods:
            raise Conflict(f"Pod {workload.key} is already deleted")
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                raise Conflict(
                    f"pod {pod['metadata']['name']} belongs to {owner['kind']} {owner['name']}, which would create "
                    "another one; delete that, or scale it down"
                )
    return [
        _Target("v1", "Pod", "pods", workload.namespace, pod["metadata"]["name"], pod["metadata"]["uid"])
        for pod in pods
    ]


async def _pods_of_group(cluster: ChangeableCluster, workload: Workload) -> list[Object]:
    """Return the pods of a group that are not being deleted. Raises Conflict if it has none that are known as its own.

    Users write labels: a later group may have the same name. The pods of this one have its uid since they started; its
    uid is derived from that of its first pod.
    """
    for label in GROUP_NAME:
        found = await _pods(cluster, workload.namespace, {"labelSelector": f"{label}={workload.name}"})
        marks = [(pod["metadata"].get("annotations") or {}).get(STARTED_WITH, "") for pod in found]
        founders = (str(uuid5(NAMESPACE_URL, f"{pod['metadata']['uid']}/{workload.name}")) for pod in found)
        if workload.uid in marks or workload.uid in founders:
            own = [
                pod
                for pod, mark in zip(found, marks, strict=True)
                if mark in ("", workload.uid) and "deletionTimestamp" not in pod["metadata"]
            ]
            if own:
                return own
    raise Conflict(
        f"no pod has a label {GROUP_NAME[0]} or {GROUP_NAME[1]} by which it is known as one of the pod group "
        f"{workload.key}; delete its pods, or what owns them, with kubectl"
    )


async def _pods(cluster: ChangeableCluster, namespace: str, params: Mapping[str, str]) -> list[Object]:
    pages = cluster.list_pages(f"/api/v1/namespaces/{namespace}/pods", params=params)
    return [pod async for page in pages for pod in page.get("items", ())]


async def _plural(cluster: ChangeableCluster, workload: Workload) -> str:
    """Return the plural of what is deleted, by the cluster's discovery. Raises Conflict and ClusterError."""
    if _is_of_pods(workload):
        return "pods"
    group, _, version = workload.api_version.rpartition("/")
    try:
        served: list[dict[str, Any]] = (await cluster.get(api_root(group, version)))["resources"]
    except NotFound:
        served = []
    for resource in served:
        if resource["kind"] == workload.kind and "/" not in resource["name"]:
            return str(resource["name"])
    raise Conflict(f"the cluster does not serve {workload.kind} of {workload.api_version}; use kubectl delete")


def _is_of_pods(workload: Workload) -> bool:
    return _is_group(workload) or (workload.api_version.rpartition("/")[0], workload.kind) == POD


def _is_group(workload: Workload) -> bool:
    return workload.kind == PodGroupKind.kind and workload.api_version.startswith(f"{PodGroupKind.group}/")


def _refusal(error: ClusterError, target: _Target) -> Conflict | Forbidden | ReviewUnavailable:
    if isinstance(error, ClusterConflict):
        return Conflict(
            f"{target.kind} {target.namespace}/{target.name} has been created again under its name; it was not deleted"
        )
    if isinstance(error, ClusterForbidden):
        text = str(error.status.get("message") or error)
        if "cannot delete resource" in text:
            return Forbidden(f"forbidden: Sluice itself lacks the right to delete {target.resource}; {_GRANT}")
        return Forbidden(f"forbidden: the cluster refuses to delete {target.resource}: {text}")
    return _unanswered(error)


def _unanswered(error: ClusterError) -> ReviewUnavailable:
    log.info("the cluster did not answer a cancellation: %s", error)
    return ReviewUnavailable("the cluster did not answer: look whether the object is still there, and try again")
