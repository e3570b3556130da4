"""Controller of MCAD's AppWrappers (v1beta1): creates the wrapped objects at admission, and deletes them at a stop.

It replaces MCAD's own controller, which is archived. A queued AppWrapper with the annotation `DISPATCH`
(`admission.kinds.mcad`) has its wrapped objects, one without it has none. The leader reconciles an AppWrapper at each
change of it or of one of its pods, and all after a restart, so that a crash leaves nothing unfinished. The status has
MCAD's fields and values, which TorchX reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from admission.cluster.events import Reference
from admission.cluster.informer import Informer
from admission.kinds.children import controller_of
from admission.kinds.declared import WORKLOAD_UID, DeclaredKind
from admission.kinds.mcad import APP_WRAPPER, is_legacy, items
from admission.kinds.registry import api_root, holds_items
from admission.model.errors import ClusterError, Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import Change
    from admission.controller.intake.watches import ClusterWatches
    from admission.kinds.base import Kind
    from admission.kinds.mcad import Item

log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 2.0
"""Seconds before a failed request is repeated, and between two checks whether this replica is the leader."""
_PLURALS: Final = {"Pod": "pods", "Service": "services", "ConfigMap": "configmaps", "Job": "jobs"}
"""Resource of each kind that may be wrapped."""
_COMPLETED, _FAILED = "Completed", "Failed"
_STATUS_FIELDS: Final = (
    "state",
    "queuejobstate",
    "canrun",
    "isdispatched",
    "running",
    "pending",
    "failed",
    "Succeeded",
    "message",
)
"""The fields of the status that this controller writes."""


class _NotCreatable(Exception):
    """A wrapped object cannot be created; the text is written to the AppWrapper's status."""


class AppWrapperItems:
    """Creates and deletes the wrapped objects of AppWrappers, while this replica `leads`."""

    def __init__(
        self, client: Client, watches: ClusterWatches, events: EventRecorder, *, leads: Callable[[], bool]
    ) -> None:
        self._client = client
        self._watches = watches
        self._events = events
        self._leads = leads
        self._known: dict[str, tuple[Kind, Object]] = {}
        """Kind and last observed version, by uid, of AppWrappers that are queued or whose objects were created."""
        self._pods: dict[str, dict[str, Object]] = {}
        """Uid of an AppWrapper -> its pods, by uid."""
        self._owner_of_pod: dict[str, str] = {}
        """Uid of a pod -> uid of its AppWrapper."""
        self._created: set[str] = set()
        """Uids of AppWrappers whose Services and ConfigMaps were created, and are not checked again."""
        self._not_creatable: dict[str, str] = {}
        """Uid of an AppWrapper -> why one of its objects cannot be created. All its objects are deleted again."""
        self._changed: dict[str, None] = {}
        """Uids of AppWrappers to reconcile, in order of their changes."""
        self._wakeup = asyncio.Event()
        watches.add_listener(self._seen, lambda: None)

    async def run(self) -> NoReturn:
        """Reconcile AppWrappers until cancelled. Errors of the API server are logged, and the attempt is repeated."""
        await self._watches.objects_synced.wait()
        while not self._known:  # without any AppWrapper no watch on pods is needed
            await self._wakeup.wait()
            self._wakeup.clear()
        async with asyncio.TaskGroup() as group:
            pods = Informer(self._client, "/api/v1/pods", label_selector=APP_WRAPPER)
            group.create_task(self._follow(pods), name="pods of AppWrappers")
            await pods.synced.wait()
            self._changed = dict.fromkeys(self._known)
            self._wakeup.set()
            await self._work()
        raise AssertionError("the loop runs until it is cancelled")

    async def _work(self) -> NoReturn:
        """Reconcile changed AppWrappers until cancelled; failed ones again after _RETRY_DELAY."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            again: dict[str, None] = {}
            while self._changed and self._leads():
                uid = next(iter(self._changed))
                del self._changed[uid]
                try:
                    await self._reconcile(uid)
                except Conflict:
                    again[uid] = None
                except ClusterError as error:
                    log.warning("cannot create or delete the objects of an AppWrapper, and tries again: %s", error)
                    again[uid] = None
                except Exception:  # an unforeseen object must not stop the others
                    log.exception("cannot reconcile AppWrapper %s", uid)
            if again or self._changed:
                self._changed |= again
                await asyncio.sleep(_RETRY_DELAY)
                self._wakeup.set()

    def _touch(self, uid: str) -> None:
        self._changed[uid] = None
        self._wakeup.set()

    def _seen(self, kind: Kind, changes: Iterable[Change]) -> None:
        if not holds_items(kind):
            return
        for change in changes:
            obj = change.object
            if change.type == "DELETED" or obj is None or not is_legacy(obj) or not _is_managed(kind, obj):
                self._known.pop(change.uid, None)
                self._created.discard(change.uid)
                self._not_creatable.pop(change.uid, None)
            else:
                self._known[change.uid] = kind, obj
                self._touch(change.uid)

    async def _follow(self, pods: Informer) -> None:
        async for batch in pods.batches():
            for change in batch:
                obj = change.object
                owner = self._owner_of_pod.pop(change.uid, "")
                self._pods.get(owner, {}).pop(change.uid, None)
                if change.type != "DELETED" and obj is not None:
                    owner = (obj["metadata"].get("labels") or {}).get(WORKLOAD_UID, "")
                    self._owner_of_pod[change.uid] = owner
                    self._pods.setdefault(owner, {})[change.uid] = obj
                self._touch(owner)

    # --- one AppWrapper

    async def _reconcile(self, uid: str) -> None:
        """Create or delete the wrapped objects of an AppWrapper, and write its status. Raises ClusterError."""
        if uid not in self._known:
            if not self._pods.get(uid):
                self._pods.pop(uid, None)
            return
        kind, obj = self._known[uid]
        assert isinstance(kind, DeclaredKind)
        status = obj.get("status") or {}
        if "deletionTimestamp" in obj["metadata"] or status.get("queuejobstate") in (_COMPLETED, _FAILED):
            return
        try:
            wrapped = items(obj)
        except Misconfigured:
            return  # misconfigured, so never admitted; the workload has the message
        pods = list(self._pods.get(uid, {}).values())
        if kind.gated_by.is_closed(obj) or not kind.queue_name(obj):
            if status.get("isdispatched") or pods:
                await self._delete(obj, wrapped)
                self._created.discard(uid)
                self._not_creatable.pop(uid, None)
            if not pods:
                await self._write_status(
                    kind, obj, {"state": "Pending", "queuejobstate": "Queueing", "isdispatched": False}
                )
            return
        if (done := await self._ensure_all(kind, obj, wrapped, pods)) is None:
            return
        self._created.add(uid)
        await self._write_status(kind, obj, _status(obj, wrapped, [each for each in done if each], pods))

    async def _ensure_all(self, kind: Kind, obj: Object, wrapped: list[Item], pods: list[Object]) -> list[str] | None:
        """Create the missing wrapped objects; return the outcome of each (see `_ensure`).

        None if one cannot be created: then all are deleted, and the AppWrapper fails once they are gone.
        """
        uid = obj["metadata"]["uid"]
        if uid not in self._not_creatable:
            try:
                return [await self._ensure(kind, obj, item, pods) for item in wrapped]
            except _NotCreatable as error:
                self._not_creatable[uid] = str(error)
        if await self._delete(obj, wrapped) or any(map(_is_alive, pods)):  # it holds its quota until then
            asyncio.get_running_loop().call_later(_RETRY_DELAY, self._touch, uid)
        else:
            why = self._not_creatable[uid]
            self._record_event(kind, obj, why)
            await self._write_status(kind, obj, {"state": _FAILED, "queuejobstate": _FAILED, "message": why})
        return None

    async def _ensure(self, kind: Kind, obj: Object, item: Item, pods: list[Object]) -> str:
        """Create a wrapped object if it is missing; return "Completed", "Failed", or "" if it has not finished.

        Services and ConfigMaps never finish. Raises _NotCreatable, ClusterError.
        """
        manifest, name = item.object, item.object["metadata"]["name"]
        if manifest["kind"] == "Pod":
            existing = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
            if existing is not None:
                phase = (existing.get("status") or {}).get("phase")
                return {"Succeeded": _COMPLETED, "Failed": _FAILED}.get(str(phase), "")
        elif manifest["kind"] != "Job" and obj["metadata"]["uid"] in self._created:
            return ""
        found = await self._create(kind, obj, manifest)
        if manifest["kind"] != "Job":
            return ""
        conditions = (found.get("status") or {}).get("conditions") or ()
        ends = {each["type"] for each in conditions if each.get("status") == "True"}
        if not ends & {"Complete", "Failed"} and not any(map(_is_alive, pods)):
            # Jobs are not watched, and the Job gets its condition some time after its last pod has finished.
            asyncio.get_running_loop().call_later(_RETRY_DELAY, self._touch, obj["metadata"]["uid"])
        return _COMPLETED if "Complete" in ends else _FAILED if "Failed" in ends else ""

    async def _create(self, kind: Kind, obj: Object, manifest: Object) -> Object:
        """Create a wrapped object; return it, or the existing one if the AppWrapper controls that.

        Raises _NotCreatable, ClusterError.
        """
        metadata = obj["metadata"]
        reference = {
            "apiVersion": self._watches.kinds.api_version(kind),
            "kind": kind.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        body = {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}
        path, named = _collection(manifest), f"{manifest['kind']} {manifest['metadata']['name']}"
        try:
            return await self._client.create(path, body, permitted=self._leads)
        except AlreadyExists:
            found = await self._client.get(f"{path}/{manifest['metadata']['name']}")
            if (controller_of(found) or {}).get("uid") != metadata["uid"]:
                message = f"{named} already exists and does not belong to this AppWrapper; use another name"
                raise _NotCreatable(message) from None
            return found
        except (Invalid, Forbidden) as error:
            raise _NotCreatable(f"{named} cannot be created: {error}") from error

    async def _delete(self, obj: Object, wrapped: Iterable[Item]) -> bool:
        """Delete the wrapped objects that the AppWrapper controls; return whether any still existed."""
        found_any = False
        for item in wrapped:
            path = f"{_collection(item.object)}/{item.object['metadata']['name']}"
            try:
                found = await self._client.get(path)
                if (controller_of(found) or {}).get("uid") == obj["metadata"]["uid"]:
                    found_any = True
                    options = {"propagationPolicy": "Background", "preconditions": {"uid": found["metadata"]["uid"]}}
                    if "deletionTimestamp" not in found["metadata"]:
                        await self._client.delete(path, options, permitted=self._leads)
            except NotFound:
                continue
        return found_any

    async def _write_status(self, kind: Kind, obj: Object, status: Object) -> None:
        """Patch the AppWrapper's status, if it differs; fields that are not given are removed. Raises ClusterError."""
        had = obj.get("status") or {}
        wanted = {field: status.get(field) for field in _STATUS_FIELDS}
        if all(had.get(field) == value for field, value in wanted.items()):
            return
        metadata = obj["metadata"]
        path = self._watches.kinds.path(kind, metadata["namespace"], metadata["name"])
        body = {"metadata": {"uid": metadata["uid"]}, "status": wanted}
        for where in (f"{path}/status", path):  # the CRD may have no status subresource
            with suppress(NotFound):
                await self._client.patch(where, body, permitted=self._leads)
                return

    def _record_event(self, kind: Kind, obj: Object, note: str) -> None:
        metadata, version = obj["metadata"], self._watches.kinds.api_version(kind)
        regarding = Reference(version, kind.kind, metadata["name"], metadata["uid"], metadata["namespace"])
        self._events.record(regarding, reason=_FAILED, action="Dispatch", note=note, warning=True)


def _collection(manifest: Object) -> str:
    """Return the API path of the collection that an object is created in."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    return f"{api_root(group, version)}/namespaces/{manifest['metadata']['namespace']}/{_PLURALS[manifest['kind']]}"


def _status(obj: Object, wrapped: list[Item], ends: list[str], pods: list[Object]) -> Object:
    """Return the status of a dispatched AppWrapper, in MCAD's fields and values. `ends`: outcomes of items with pods.

    TorchX does not know the state `Completed`. As in MCAD, it is only written if an item has a `completionstatus`.
    """
    expected = sum(item.pods for item in wrapped)
    phases = Counter((pod.get("status") or {}).get("phase") for pod in pods)
    counts = {"running": phases["Running"], "failed": phases["Failed"], "Succeeded": phases["Succeeded"]}
    counts["pending"] = max(expected - sum(counts.values()), phases["Pending"])
    state, queued = "Running", "Dispatched"
    if counts["running"] + counts["Succeeded"] >= _min_available(obj, expected):
        queued = "Running"
    with_pods = sum(1 for item in wrapped if item.pods)
    if len(ends) == with_pods and not counts["running"]:
        counts["pending"] = 0
        queued = _FAILED if _FAILED in ends else _COMPLETED
        has_condition = any(each.get("completionstatus") for each in obj["spec"]["resources"]["GenericItems"])
        state = _FAILED if queued == _FAILED else _COMPLETED if has_condition else state
    return {"state": state, "queuejobstate": queued, "canrun": True, "isdispatched": True, **counts}


def _is_managed(kind: Kind, obj: Object) -> bool:
    """Return whether an AppWrapper is queued, or has wrapped objects from when it was."""
    return bool(kind.queue_name(obj) or (obj.get("status") or {}).get("isdispatched"))


def _is_alive(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _min_available(obj: Object, expected: int) -> int:
    """Return the number of pods that have to run for the AppWrapper to be running; by default all `expected` ones."""
    number: Any = (obj["spec"].get("schedulingSpec") or {}).get("minAvailable")
    return number if isinstance(number, int) and 0 < number <= expected else expected
