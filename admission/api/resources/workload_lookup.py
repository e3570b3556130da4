"""Lookup of the workload that a name leads to: its own, that of its object, or that of an object which belongs to it.

Objects that belong to a workload are its pods, and objects that its controller creates, such as the Jobs of a JobSet.
They are read from the cluster, and their owners followed. A CronJob, Deployment or LeaderWorkerSet has no workload, but
each object that it creates has one: these are known by the names that the controllers give.
"""

from __future__ import annotations

import difflib
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.api.auth.authorization import AUTHORIZATION, attributes, may_read
from admission.api.auth.cluster_rights import hidden_clusters, may_read_workload
from admission.api.auth.delegation import Attributes
from admission.api.documents.workload_names import object_name, plain_kind, workload_name
from admission.api.errors import UnknownObject
from admission.api.probes import none_not_queued
from admission.api.registry import GROUP, WORKLOADS
from admission.cluster.errors import NotFound
from admission.kinds import all_kinds, frameworks_known
from admission.kinds.base import POD_OWNER, QUEUE_NAME, WORKLOAD_UID, Conventions
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.registry import api_root
from admission.model.errors import ClusterError
from admission.model.names import listed
from admission.store.records import State
from admission.store.workloads.queries import ColumnFilter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aiohttp import web

    from admission.api.probes import NotQueuedObjects
    from admission.api.resources.cluster_views import ReadableCluster
    from admission.cluster.client import Object
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

_MAX_DEPTH: Final = 5
"""Owners of owners that are followed; a pod of an AppWrapper's JobSet has three."""
_MAX_COMPARED: Final = 1000
"""Names of the newest workloads that a mistyped name is compared with."""
_MAX_NAMESPACES: Final = 5
"""Other namespaces with a workload of the name that are looked at."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
"""A name that an object or a namespace can have."""
_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
"""Characters of the suffixes that Kubernetes generates."""


class _FoundObject(NamedTuple):
    """An object of the cluster."""

    kind: str
    group: str
    plural: str
    content: Object

    def reading(self, namespace: str) -> Attributes:
        """Return the right to read it."""
        name = self.content["metadata"]["name"]
        return Attributes("get", self.plural, namespace=namespace, name=name, group=self.group)

    def why(self) -> str:
        """Return a hint that says why it is not queued."""
        metadata: Object = self.content["metadata"]
        title = f"the {self.kind} {metadata['name']} exists, but"
        if any(label in (metadata.get("labels") or {}) for label in Conventions().queue_labels):
            return (
                f"{title} is not queued: check that its kind is in the setting integrations.frameworks, and that "
                "no other controller manages it (spec.managedBy)"
            )
        return f"{title} has no queue label ({QUEUE_NAME}), so that it is not queued"


class _Series(NamedTuple):
    """A kind whose controller creates objects that are workloads each."""

    kind: str
    workload_kind: str
    suffix: str
    """Regular expression: what follows the name in those of the created objects."""


_SERIES: Final = (
    _Series("CronJob", "Job", r"-\d{7,10}"),
    _Series("CronWorkflow", "Workflow", r"-\d{10}"),
    _Series("LeaderWorkerSet", PodGroupKind.kind, r"-\d+"),
    _Series("Deployment", "Pod", rf"-{_RANDOM}{{5,10}}-{_RANDOM}{{5}}"),
    _Series("ReplicaSet", "Pod", rf"-{_RANDOM}{{5}}"),
)
_OF_ONE_GROUP: Final = ("statefulset", "job")
"""Kinds whose pods are one PodGroup of the object's own name: StatefulSet, and Job of Volcano."""


class WorkloadLookup:
    """Lookup of workloads by name; `cluster` is None for an API without a cluster."""

    def __init__(
        self, store: Store, cluster: ReadableCluster | None, not_queued: NotQueuedObjects = none_not_queued
    ) -> None:
        self._not_queued = not_queued
        self._store = store
        self._cluster = cluster

    async def of_request(self, request: web.Request, *, exact: bool) -> WorkloadRecord:
        """Return the workload that the path names, with `exact` only by its own name or that of its object.

        `?objectKind=` is the kind of the named object. Raises UnknownObject, whose message says which workloads there
        are instead, as far as the user may list them.
        """
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        kind = plain_kind(request.query.get("objectKind", ""))
        hidden = await hidden_clusters(request)
        record = await self.exact(namespace, name, kind, hidden=hidden)
        if record is not None:
            return record
        found, unqueued = await self._related(namespace, name, kind)
        related = [record for record in found if record.workload.cluster not in hidden]
        if len(related) == 1 and not exact and await _may_read_as(request, related[0]):
            return related[0]
        may_list = await may_read(request, namespace)
        if related and may_list:
            raise UnknownObject(_named_instead(namespace, name, related))
        for each in self._not_queued() if may_list else ():
            if (each.namespace, each.name) == (namespace, name) and kind in ("", each.kind.lower()):
                raise UnknownObject(each.sentence)
        of_kind = f" of kind {request.query['objectKind']}" if kind else ""
        hint = ""
        if may_list:
            hint = await self._hint(request, namespace, name, kind, hidden)
        if unqueued is not None and await request.app[AUTHORIZATION].allows(request, unqueued.reading(namespace)):
            hint = unqueued.why()
        hint = hint or (
            "check the namespace (-n), that the object has the label sluice.dev/queue-name, and that no other "
            "controller manages it (spec.managedBy)"
        )
        if hidden:
            hint += f" (you may not see those of cluster{'s' if len(hidden) > 1 else ''} {listed(sorted(hidden))})"
        raise UnknownObject(
            f'{WORKLOADS.plural}.{GROUP} "{name}"{of_kind} not found in namespace "{namespace}"; {hint}'
        )

    async def visible(self, request: web.Request, namespace: str, name: str) -> WorkloadRecord | None:
        """Return the workload of that name or of its object, if the request's user may get it. Raises as that."""
        wanted = Attributes("get", WORKLOADS.plural, namespace=namespace, name=name)
        return await self.exact(namespace, name, hidden=await hidden_clusters(request, wanted))

    async def exact(
        self, namespace: str, name: str, kind: str = "", *, hidden: Collection[str] = ()
    ) -> WorkloadRecord | None:
        """Return the workload of that name, else the newest of the object of that name and kind (empty: any).

        Those of the clusters `hidden` are passed over.
        """
        for record in await self._store.workloads.of_name(namespace, object_name(name)):
            if workload_name(record.workload) == name and record.workload.cluster not in hidden:
                return record if _is_of_kind(record, kind) else None
        named = await self._store.workloads.of_name(namespace, name)
        visible = (record for record in named if record.workload.cluster not in hidden)
        return next((record for record in visible if _is_of_kind(record, kind)), None)

    # ------------------------------------------------------------------ objects that belong to workloads

    async def _related(
        self, namespace: str, name: str, kind: str
    ) -> tuple[Sequence[WorkloadRecord], _FoundObject | None]:
        """Return the workload that the object of that name belongs to, or those of the objects that it creates.

        If there are none, the second value is the object of that name, as far as it is known: it is not queued.
        """
        unqueued = None
        if self._cluster is not None:
            try:
                for each in [kind] if kind else ["pod", "job"]:
                    for found in await self._objects(self._cluster, namespace, each, name):
                        if (owner := await self._owner(self._cluster, namespace, found.content)) is not None:
                            return [owner], None
                        unqueued = found
            except ClusterError as error:
                log.info('the cluster was not asked what "%s/%s" is: %s', namespace, name, error)
        return await self._created(namespace, name, kind), unqueued

    async def _created(self, namespace: str, name: str, kind: str) -> Sequence[WorkloadRecord]:
        """Return the unfinished workloads of the objects that a controller created for that name, else the finished."""
        records = await self._store.workloads.below(namespace, name, limit=_MAX_COMPARED)
        for series in _SERIES:
            if kind in ("", series.kind.lower()):
                pattern = re.compile(re.escape(name) + series.suffix, re.ASCII)
                found = [
                    record
                    for record in records
                    if record.workload.kind == series.workload_kind and pattern.fullmatch(record.workload.name)
                ]
                if found:
                    return [record for record in found if record.state is not State.FINISHED] or found
        return []

    async def _owner(self, cluster: ReadableCluster, namespace: str, obj: Object) -> WorkloadRecord | None:
        """Return the workload that an object is part of, by its labels and its owners; None: of none."""
        for _ in range(_MAX_DEPTH):
            metadata: Object = obj.get("metadata") or {}
            labels: Mapping[str, str] = metadata.get("labels") or {}
            owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
            uids = [labels.get(WORKLOAD_UID), labels.get(POD_OWNER), *(owner["uid"] for owner in owners)]
            # Users write labels: they lead to no other namespace.
            page = await self._store.workloads.list(
                namespace=namespace, where=[ColumnFilter("uid", frozenset(uid for uid in uids if uid))]
            )
            # Groups of other systems have labels of their own, whose names are settings.
            groups = [value for key, value in labels.items() if "group" in key]
            for record in (*page.workloads, *[await self.exact(namespace, group, "podgroup") for group in groups]):
                if record is not None:
                    return record
            if not owners:
                return None
            kind, name = owners[0]["kind"].lower(), owners[0]["name"]
            if kind in _OF_ONE_GROUP and (record := await self.exact(namespace, name, kind)) is not None:
                return record
            found = await self._objects(cluster, namespace, kind, name)
            if not found:
                return None
            obj = found[0].content
        return None

    async def _objects(self, cluster: ReadableCluster, namespace: str, kind: str, name: str) -> list[_FoundObject]:
        """Return the objects of that name of the kinds of that name, such as Job. Raises ClusterError."""
        # Users write them, also in owner references, and they become parts of paths that Sluice's rights allow to read.
        if not (_NAME.fullmatch(name) and _NAME.fullmatch(namespace)):
            return []
        if kind == "pod":  # the basic role may list pods, but not get them
            params = {"fieldSelector": f"metadata.name={name}"}
            pods = await cluster.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
            return [_FoundObject("Pod", "", "pods", pod) for pod in pods["items"]]
        candidates = [
            (known.kind, known.group, known.plural, known.versions[0])
            for known in all_kinds(frameworks=frameworks_known())
            if known.kind.lower() == kind
        ]
        if kind == "replicaset":  # never queued itself, but between a Deployment and its pods
            candidates.append(("ReplicaSet", "apps", "replicasets", "v1"))
        objects = []
        for title, group, plural, version in candidates:
            with suppress(NotFound):  # there may be one of another group
                path = f"{api_root(group, version)}/namespaces/{namespace}/{plural}/{name}"
                objects.append(_FoundObject(title, group, plural, await cluster.get(path)))
        return objects

    # ------------------------------------------------------------------ hints for a name that leads nowhere

    async def _hint(self, request: web.Request, namespace: str, name: str, kind: str, hidden: Collection[str]) -> str:
        """Return a hint for a name that is unknown in the namespace; empty: none."""
        other = await self.exact(namespace, name, hidden=hidden) if kind else None
        if other is not None:
            found = other.workload
            return f"the one there is of kind {found.kind}: use {found.kind.lower()}/{found.name}"
        for elsewhere in await self._store.workloads.namespaces_of(name, limit=_MAX_NAMESPACES):
            there = await self.exact(elsewhere, name)
            if there is not None and await may_read_workload(request, there.workload):
                return f'there is one in namespace "{elsewhere}": add -n {elsewhere}'
        names = await self._store.workloads.names(namespace, hidden=hidden, limit=_MAX_COMPARED)
        # The names of what a controller creates begin with the name of its object.
        begins = sorted((known for known in names if name.startswith(f"{known}-")), key=len, reverse=True)
        continued = [known for known in names if known.startswith(name)] if name else []
        near = begins[:1] or continued[:1] or difflib.get_close_matches(name, names, n=1)
        return f'did you mean "{near[0]}"?' if near else ""


def _is_of_kind(record: WorkloadRecord, kind: str) -> bool:
    found = record.workload.kind
    return not kind or found.lower() == kind or (found == PodGroupKind.kind and kind in _OF_ONE_GROUP)


async def _may_read_as(request: web.Request, record: WorkloadRecord) -> bool:
    """Return whether the user may send the request for this workload, too: a right can be limited to some names."""
    own = attributes(request)
    wanted = Attributes(own.verb, own.resource, own.subresource, own.namespace, record.workload.name)
    return await request.app[AUTHORIZATION].allows(request, wanted)


def _named_instead(namespace: str, name: str, related: Sequence[WorkloadRecord]) -> str:
    """Return a message with the names of the workloads that a name leads to."""
    names = [f"{record.workload.kind.lower()}/{record.workload.name}" for record in related]
    if len(names) == 1:
        return f'"{name}" belongs to {names[0]} in namespace "{namespace}", which is queued as a whole: use that name'
    return f'"{name}" has {len(names)} workloads in namespace "{namespace}", use one of these names: {listed(names)}'
