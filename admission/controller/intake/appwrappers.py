"""Controller of MCAD's AppWrappers (v1beta1): creates the wrapped objects at admission, and deletes them at a stop.

It replaces MCAD's own controller, which is archived. An admitted AppWrapper with the annotation `DISPATCH`
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
from admission.cluster.events import ObjectReference
from admission.cluster.informer import Informer
from admission.cluster.writer import Creation, Deletion, Patch
from admission.kinds import paths
from admission.kinds.base import WORKLOAD_UID
from admission.kinds.children import controller_of
from admission.kinds.mcad import APP_WRAPPER, is_legacy, items
from admission.kinds.pod_group import FINISHED_PHASES
from admission.kinds.registry import api_root, holds_items
from admission.model.errors import ClusterError, Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import NoReturn

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import WatchedChange
    from admission.cluster.writer import Writer
    from admission.controller.intake.watches import ClusterWatches
    from admission.engine import Engine
    from admission.kinds.base import Kind
    from admission.kinds.mcad import WrappedItem

log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 2.0
"""Seconds before a failed request is repeated, and between two checks whether this replica is the leader."""
_PLURALS: Final = {"Pod": "pods", "Service": "services", "ConfigMap": "configmaps", "Job": "jobs"}
"""Resource of each kind that may be wrapped."""


class _NotCreatable(Exception):
    """A wrapped object cannot be created; the text is written to the AppWrapper's status."""


class AppWrapperItems:
    """Creates and deletes the wrapped objects of AppWrappers, while this replica leads."""

    def __init__(
        self,
        client: Client,
        writer: Writer,
        watches: ClusterWatches,
        events: EventRecorder,
        *,
        engine: Callable[[], Engine | None],
    ) -> None:
        """`engine`: returns the leader's engine; None while this replica decides nothing."""
        self._engine = engine
        self._client = client
        self._writer = writer
        self._watches = watches
        self._events = events
        self._known: dict[str, tuple[Kind, Object]] = {}
        """Kind and last observed version, by uid, of AppWrappers that are queued or whose objects were created."""
        self._pods = AppWrapperPods(client, writer, self._touch)
        self._created: set[str] = set()
        """Uids of AppWrappers whose Services and ConfigMaps were created, and are not checked again."""
        self._not_creatable: dict[str, str] = {}
        """Uid of an AppWrapper -> why one of its objects cannot be created. All its objects are deleted again."""
        self._missing_since: dict[str, dict[str, float]] = {}
        """Uid of an AppWrapper -> names of its Jobs that others have deleted -> when that was noticed (loop time)."""
        self._retries: dict[str, asyncio.TimerHandle] = {}
        """Timer of the next attempt for an AppWrapper, by uid."""
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
            group.create_task(self._pods.follow(), name="pods of AppWrappers")
            await self._pods.synced.wait()
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
            while self._changed and self._writer.may_send:
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

    def _retry(self, uid: str) -> None:
        """Reconcile an AppWrapper after _RETRY_DELAY; one timer at a time, however often it is called."""
        timer = self._retries.get(uid)
        if timer is None or timer.when() <= asyncio.get_running_loop().time():
            self._retries[uid] = asyncio.get_running_loop().call_later(_RETRY_DELAY, self._touch, uid)

    def _seen(self, kind: Kind, change: WatchedChange) -> None:
        if not holds_items(kind):
            return
        obj = change.object
        if change.type == "DELETED" or obj is None or not is_legacy(obj) or not _is_managed(kind, obj):
            self._known.pop(change.uid, None)
            self._forget(change.uid)
            if (timer := self._retries.pop(change.uid, None)) is not None:
                timer.cancel()
        else:
            self._known[change.uid] = kind, obj
            self._touch(change.uid)

    # --- one AppWrapper

    async def _reconcile(self, uid: str) -> None:
        """Create or delete the wrapped objects of an AppWrapper, and write its status. Raises ClusterError."""
        if uid not in self._known:
            self._pods.forget(uid)
            self._retries.pop(uid, None)
            self._forget(uid)
            return
        kind, obj = self._known[uid]
        status = obj.get("status") or {}
        if "deletionTimestamp" in obj["metadata"] or status.get("queuejobstate") in (COMPLETED, FAILED):
            return
        try:
            wrapped = items(obj)
        except Misconfigured:
            return  # misconfigured, so never admitted; the workload has the message
        pods = self._pods.observed(uid)
        if not kind.gate(obj) or not kind.queue_name(obj):
            if (status.get("isdispatched") or pods) and not await self._delete_all(obj, wrapped):
                self._retry(uid)
                return
            self._forget(uid)
            await self._write_status(
                kind, obj, {"state": "Pending", "queuejobstate": "Queueing", "isdispatched": False}
            )
            return
        if (engine := self._engine()) is None or not engine.is_admitted(uid):
            self._retry(uid)  # a user has set the annotation; or this replica has not recovered, or is evicting
            return
        if (done := await self._ensure_all(kind, obj, wrapped, pods)) is None:
            return
        self._created.add(uid)
        new = dispatched_status(obj, wrapped, [each for each in done if each], pods)
        if new["queuejobstate"] in (COMPLETED, FAILED) and (left := await self._pods.list_unfinished(obj)):
            # A Job that a user created under the name of an item may finish before the pods of the item's own Job.
            await self._pods.delete(left)
            self._retry(uid)
            return
        await self._write_status(kind, obj, new)

    def _forget(self, uid: str) -> None:
        """Forget what was found out about the wrapped objects of an AppWrapper that has none any more."""
        self._created.discard(uid)
        self._not_creatable.pop(uid, None)
        self._missing_since.pop(uid, None)

    async def _ensure_all(
        self, kind: Kind, obj: Object, wrapped: list[WrappedItem], pods: list[Object]
    ) -> list[str] | None:
        """Create the missing wrapped objects; return the outcome of each (see `_ensure_job`).

        None if one cannot be created: then all are deleted, and the AppWrapper fails once they are gone.
        """
        uid = obj["metadata"]["uid"]
        if uid not in self._not_creatable:
            try:
                jobs = await self._find_jobs(obj, wrapped)
                waiting = await self._waiting_jobs(obj, wrapped, jobs)
                done = [
                    await self._ensure_job(kind, obj, item, pods, jobs, waiting)
                    if item.object["kind"] == "Job"
                    else await self._ensure(kind, obj, item, pods)
                    for item in wrapped
                ]
            except _NotCreatable as error:
                self._not_creatable[uid] = str(error)
            else:
                await self._end_surplus(obj, wrapped, jobs, pods)
                return done
        if not await self._delete_all(obj, wrapped):  # it holds its quota until then
            self._retry(uid)
        else:
            why = self._not_creatable[uid]
            self._record_event(kind, obj, why)
            await self._write_status(kind, obj, {"state": FAILED, "queuejobstate": FAILED, "message": why})
        return None

    async def _ensure(self, kind: Kind, obj: Object, item: WrappedItem, pods: list[Object]) -> str:
        """Create a wrapped object, but a Job, if it is missing; return its outcome, as `_ensure_job` does.

        Services and ConfigMaps never finish. Raises _NotCreatable, ClusterError.
        """
        manifest = item.object
        if manifest["kind"] == "Pod":
            existing = next((pod for pod in pods if pod["metadata"]["name"] == manifest["metadata"]["name"]), None)
            if existing is not None:
                phase = (existing.get("status") or {}).get("phase")
                return {"Succeeded": COMPLETED, "Failed": FAILED}.get(str(phase), "")
        elif obj["metadata"]["uid"] in self._created:
            return ""
        await self._create(kind, obj, manifest)
        return ""

    async def _ensure_job(
        self, kind: Kind, obj: Object, item: WrappedItem, pods: list[Object], jobs: dict[str, Object], waiting: set[str]
    ) -> str:
        """Create a wrapped Job if it is missing; return "Completed", "Failed", or "" if it has not finished.

        `jobs`: the existing Jobs by name; a created one is added. `waiting`: names of missing Jobs that must not be
        created yet. Raises _NotCreatable, ClusterError.
        """
        name, uid = item.object["metadata"]["name"], obj["metadata"]["uid"]
        if name in waiting:
            self._retry(uid)
            return ""
        if name not in jobs:
            jobs[name] = await self._create(kind, obj, item.object)
            self._missing_since.get(uid, {}).pop(name, None)
        found = jobs[name]
        conditions = (found.get("status") or {}).get("conditions") or ()
        ends = {each["type"] for each in conditions if each.get("status") == "True"}
        if not ends & {"Complete", "Failed"} and (
            "deletionTimestamp" in found["metadata"] or not any(map(is_unfinished, pods))
        ):
            # Jobs are not watched, and the Job gets its condition some time after its last pod has finished.
            self._retry(uid)
        return COMPLETED if "Complete" in ends else FAILED if "Failed" in ends else ""

    async def _find_jobs(self, obj: Object, wrapped: Iterable[WrappedItem]) -> dict[str, Object]:
        """Return the existing Jobs among the wrapped objects, by name. Raises _NotCreatable, ClusterError."""
        found = {}
        for manifest in (item.object for item in wrapped if item.object["kind"] == "Job"):
            name = manifest["metadata"]["name"]
            with suppress(NotFound):
                found[name] = _owned(obj, manifest, await self._client.get(f"{_collection(manifest)}/{name}"))
                self._missing_since.get(obj["metadata"]["uid"], {}).pop(name, None)
        return found

    async def _waiting_jobs(self, obj: Object, wrapped: Iterable[WrappedItem], jobs: dict[str, Object]) -> set[str]:
        """Return the names of missing Jobs that would have pods beside those of their predecessors. `jobs`: the others.

        Raises ClusterError.
        """
        uid, now = obj["metadata"]["uid"], asyncio.get_running_loop().time()
        names = (item.object["metadata"]["name"] for item in wrapped if item.object["kind"] == "Job")
        missing = {name for name in names if name not in jobs}
        waiting = set[str]()
        if uid in self._created or (obj.get("status") or {}).get("isdispatched"):
            # The Job controller may create pods for some time after a deletion that it has yet to observe.
            noticed = self._missing_since.setdefault(uid, {})
            waiting = {name for name in missing if now < noticed.setdefault(name, now) + _RETRY_DELAY}
        if missing - waiting and leftover(await self._pods.list_unfinished(obj), wrapped, jobs.values()):
            return missing
        return waiting

    async def _end_surplus(
        self, obj: Object, wrapped: list[WrappedItem], jobs: dict[str, Object], pods: list[Object]
    ) -> None:
        """Delete pods of former Jobs if all Jobs exist: a user has created one of the Jobs again. Raises ClusterError.

        `pods`: the observed ones.
        """
        expected = sum(1 for item in wrapped if item.object["kind"] == "Job")
        if len(jobs) == expected and leftover(pods, wrapped, jobs.values()):
            await self._pods.delete(leftover(await self._pods.list_unfinished(obj), wrapped, jobs.values()))

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
        path = _collection(manifest)
        try:
            return await self._writer.request(Creation(path, body))
        except AlreadyExists:
            return _owned(obj, manifest, await self._client.get(f"{path}/{manifest['metadata']['name']}"))
        except (Invalid, Forbidden) as error:
            raise _NotCreatable(f"{_title(manifest)} cannot be created: {error}") from error

    async def _delete_all(self, obj: Object, wrapped: list[WrappedItem]) -> bool:
        """Delete the wrapped objects and their pods; return whether all of them are gone. Raises ClusterError.

        Pods that remain when the objects are gone are orphans, which nobody else deletes.
        """
        if await self._delete(obj, wrapped):
            return False
        left = await self._pods.list_unfinished(obj)
        await self._pods.delete(left)
        return not left

    async def _delete(self, obj: Object, wrapped: Iterable[WrappedItem]) -> bool:
        """Delete the wrapped objects that the AppWrapper controls; return whether any still existed."""
        found_any = False
        for item in wrapped:
            path = f"{_collection(item.object)}/{item.object['metadata']['name']}"
            try:
                found = await self._client.get(path)
                if (controller_of(found) or {}).get("uid") == obj["metadata"]["uid"]:
                    found_any = True
                    if "deletionTimestamp" not in found["metadata"]:
                        deletion = Deletion(path, found["metadata"]["uid"], propagation="Background")
                        await self._writer.request(deletion)
            except NotFound:
                continue
        return found_any

    async def _write_status(self, kind: Kind, obj: Object, status: Object) -> None:
        """Patch the AppWrapper's status, if it differs; fields that are not given are removed. Raises ClusterError."""
        had = obj.get("status") or {}
        wanted = {field: status.get(field) for field in STATUS_FIELDS}
        if all(had.get(field) == value for field, value in wanted.items()):
            return
        metadata = obj["metadata"]
        path = self._watches.kinds.path(kind, metadata["namespace"], metadata["name"])
        body = {"metadata": {"uid": metadata["uid"]}, "status": wanted}
        for subresource in ("status", ""):  # the CRD may have no status subresource
            with suppress(NotFound):
                await self._writer.request(Patch(path, body, subresource))
                return

    def _record_event(self, kind: Kind, obj: Object, note: str) -> None:
        metadata, version = obj["metadata"], self._watches.kinds.api_version(kind)
        regarding = ObjectReference(version, kind.kind, metadata["name"], metadata["uid"], metadata["namespace"])
        self._events.record(regarding, reason=FAILED, action="Dispatch", note=note, warning=True)


def _collection(manifest: Object) -> str:
    """Return the API path of the collection that an object is created in."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    return f"{api_root(group, version)}/namespaces/{manifest['metadata']['namespace']}/{_PLURALS[manifest['kind']]}"


def _title(manifest: Object) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _owned(obj: Object, manifest: Object, found: Object) -> Object:
    """Return the object found under the name of a wrapped one. Raises _NotCreatable if it is not the AppWrapper's.

    A Job whose pods would not have the label of the workload was created by a user: its pods could not be waited for.
    """
    uid = obj["metadata"]["uid"]
    labels = paths.at(found, ("spec", "template", "metadata", "labels")) if manifest["kind"] == "Job" else None
    unlabelled = manifest["kind"] == "Job" and (labels or {}).get(WORKLOAD_UID) != uid
    if unlabelled or (controller_of(found) or {}).get("uid") != uid:
        raise _NotCreatable(
            f"{_title(manifest)} already exists and does not belong to this AppWrapper; use another name"
        )
    return found


def _is_managed(kind: Kind, obj: Object) -> bool:
    """Return whether an AppWrapper is queued, or has wrapped objects from when it was."""
    return bool(kind.queue_name(obj) or (obj.get("status") or {}).get("isdispatched"))


class AppWrapperPods:
    """Observes the pods of AppWrappers; lists and deletes those of one AppWrapper."""

    def __init__(self, client: Client, writer: Writer, touch: Callable[[str], None]) -> None:
        """`touch` is called with the uid of an AppWrapper when one of its pods has changed."""
        self._client = client
        self._writer = writer
        self._touch = touch
        self._informer = Informer(client, "/api/v1/pods", label_selector=APP_WRAPPER)
        self.synced = self._informer.synced
        self._pods: dict[str, dict[str, Object]] = {}
        """Uid of an AppWrapper -> its pods, by uid."""
        self._owner_of_pod: dict[str, str] = {}
        """Uid of a pod -> uid of its AppWrapper."""

    async def follow(self) -> None:
        """Observe pods until cancelled."""
        async for batch in self._informer.batches():
            for change in batch:
                obj = change.object
                owner = self._owner_of_pod.pop(change.uid, "")
                self._pods.get(owner, {}).pop(change.uid, None)
                if change.type != "DELETED" and obj is not None:
                    owner = (obj["metadata"].get("labels") or {}).get(WORKLOAD_UID, "")
                    self._owner_of_pod[change.uid] = owner
                    self._pods.setdefault(owner, {})[change.uid] = obj
                self._touch(owner)

    def observed(self, uid: str) -> list[Object]:
        """Return the observed pods of an AppWrapper."""
        return list(self._pods.get(uid, {}).values())

    def forget(self, uid: str) -> None:
        """Free the memory of an AppWrapper without pods; no-op if it has any."""
        if not self._pods.get(uid):
            self._pods.pop(uid, None)

    async def list_unfinished(self, obj: Object) -> list[Object]:
        """Return the unfinished pods of an AppWrapper, as the API server has them now. Raises ClusterError.

        The observed pods may be out of date, and lack pods from which a user has removed the label APP_WRAPPER.
        """
        path = f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods"
        params = {"labelSelector": f"{WORKLOAD_UID}={obj['metadata']['uid']}"}
        pages = self._client.list_pages(path, params=params)
        return [pod async for page in pages for pod in page["items"] if is_unfinished(pod)]

    async def delete(self, pods: Iterable[Object]) -> None:
        """Delete these pods, except those that are being deleted. Raises ClusterError."""
        for pod in pods:
            metadata = pod["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            with suppress(NotFound, Conflict):  # it is gone, perhaps replaced by another one of its name
                await self._writer.request(Deletion(path, metadata["uid"]))


def is_unfinished(pod: Object) -> bool:
    """Whether a pod may still use its requests; also while it is terminating."""
    return (pod.get("status") or {}).get("phase") not in FINISHED_PHASES


def leftover(pods: Iterable[Object], wrapped: Iterable[WrappedItem], jobs: Iterable[Object]) -> Sequence[Object]:
    """Return the unfinished ones of an AppWrapper's `pods` that no existing item accounts for.

    An item accounts for the pod of its name, or for the pods whose controller it is. `jobs`: those that exist. The
    label with the name of the pod set is not compared, because users may change it.
    """
    names = {item.object["metadata"]["name"] for item in wrapped if item.object["kind"] == "Pod"}
    owners = {job["metadata"]["uid"] for job in jobs}
    return [
        pod
        for pod in pods
        if is_unfinished(pod)
        and pod["metadata"]["name"] not in names
        and (controller_of(pod) or {}).get("uid") not in owners
    ]


COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
STATUS_FIELDS: Final = (
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
"""The fields of the status that Sluice writes."""


def dispatched_status(obj: Object, wrapped: list[WrappedItem], ends: list[str], pods: list[Object]) -> Object:
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
        queued = FAILED if FAILED in ends else COMPLETED
        has_condition = any(each.get("completionstatus") for each in obj["spec"]["resources"]["GenericItems"])
        state = FAILED if queued == FAILED else COMPLETED if has_condition else state
    elif not counts["running"]:
        counts["pending"] = max(counts["pending"], 1)  # no pod runs, but it holds quota: one at least is pending
    return {"state": state, "queuejobstate": queued, "canrun": True, "isdispatched": True, **counts}


def _min_available(obj: Object, expected: int) -> int:
    """Return the number of pods that have to run for the AppWrapper to be running; by default all `expected` ones."""
    number: Any = (obj["spec"].get("schedulingSpec") or {}).get("minAvailable")
    return number if isinstance(number, int) and 0 < number <= expected else expected
