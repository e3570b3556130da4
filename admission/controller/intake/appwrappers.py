"""What MCAD's AppWrappers hold: made when one is admitted, deleted when it is stopped, and told of in its status.

MCAD did this, and is archived. An AppWrapper that is queued and has the annotation of `admission.kinds.mcad` is to have
its objects; one that has not is to have none. That is looked at whenever it or one of its pods changes, by the replica
that leads, and is so repaired after a crash. Its status is written in MCAD's words, which TorchX reads.
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

_PAUSE: Final = 2.0
"""Seconds before a request that failed is tried again, and between two looks whether this replica leads by now."""
_PLURALS: Final = {"Pod": "pods", "Service": "services", "ConfigMap": "configmaps", "Job": "jobs"}
_COMPLETED, _FAILED = "Completed", "Failed"
_TOLD: Final = (
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
"""The fields of a status that are written here."""


class _Hopeless(Exception):
    """What it holds cannot be made."""


class AppWrapperItems:
    """Makes and deletes them while `run` runs, on the replica that `leads`."""

    def __init__(
        self, client: Client, watches: ClusterWatches, events: EventRecorder, *, leads: Callable[[], bool]
    ) -> None:
        self._client = client
        self._watches = watches
        self._events = events
        self._leads = leads
        self._known: dict[str, tuple[Kind, Object]] = {}
        """By uid: all that are queued, or were when what they hold was made."""
        self._pods: dict[str, dict[str, Object]] = {}
        """By uid of an AppWrapper: its pods by uid."""
        self._owner: dict[str, str] = {}
        self._made: set[str] = set()
        """Those whose other objects than pods are there, as far as is known."""
        self._hopeless: dict[str, str] = {}
        """By uid of those that cannot be made: why. A part alone is of no use: it is deleted again."""
        self._changed: dict[str, None] = {}
        self._news = asyncio.Event()
        watches.tell(self._seen, lambda: None)

    async def run(self) -> NoReturn:
        """Until cancelled. Failures are waited out."""
        await self._watches.objects_synced.wait()
        while not self._known:  # where there is none, pods cost no watch
            await self._news.wait()
            self._news.clear()
        async with asyncio.TaskGroup() as group:
            pods = Informer(self._client, "/api/v1/pods", label_selector=APP_WRAPPER)
            group.create_task(self._follow(pods), name="pods of AppWrappers")
            await pods.synced.wait()
            self._changed = dict.fromkeys(self._known)
            self._news.set()
            await self._work()
        raise AssertionError("it works until it is cancelled")

    async def _work(self) -> NoReturn:
        while True:
            await self._news.wait()
            self._news.clear()
            again: dict[str, None] = {}
            while self._changed and self._leads():
                uid = next(iter(self._changed))
                del self._changed[uid]
                try:
                    await self._look(uid)
                except Conflict:
                    again[uid] = None
                except ClusterError as error:
                    log.warning("cannot bring about what an AppWrapper holds, and tries again: %s", error)
                    again[uid] = None
                except Exception:  # one bad object stops nothing else
                    log.exception("cannot read what AppWrapper %s holds", uid)
            if again or self._changed:
                self._changed |= again
                await asyncio.sleep(_PAUSE)
                self._news.set()

    def _touch(self, uid: str) -> None:
        self._changed[uid] = None
        self._news.set()

    def _seen(self, kind: Kind, changes: Iterable[Change]) -> None:
        if not holds_items(kind):
            return
        for change in changes:
            obj = change.object
            if change.type == "DELETED" or obj is None or not is_legacy(obj) or not _concerns_us(kind, obj):
                self._known.pop(change.uid, None)
                self._made.discard(change.uid)
                self._hopeless.pop(change.uid, None)
            else:
                self._known[change.uid] = kind, obj
                self._touch(change.uid)

    async def _follow(self, pods: Informer) -> None:
        async for batch in pods.batches():
            for change in batch:
                obj = change.object
                owner = self._owner.pop(change.uid, "")
                self._pods.get(owner, {}).pop(change.uid, None)
                if change.type != "DELETED" and obj is not None:
                    owner = (obj["metadata"].get("labels") or {}).get(WORKLOAD_UID, "")
                    self._owner[change.uid] = owner
                    self._pods.setdefault(owner, {})[change.uid] = obj
                self._touch(owner)

    # --- one AppWrapper

    async def _look(self, uid: str) -> None:
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
            held = items(obj)
        except Misconfigured:
            return  # it is never admitted, and says so
        pods = list(self._pods.get(uid, {}).values())
        if kind.gated_by.is_closed(obj) or not kind.queue_name(obj):
            if status.get("isdispatched") or pods:
                await self._delete(obj, held)
                self._made.discard(uid)
                self._hopeless.pop(uid, None)
            if not pods:
                await self._tell(kind, obj, {"state": "Pending", "queuejobstate": "Queueing", "isdispatched": False})
            return
        if (done := await self._bring_all(kind, obj, held, pods)) is None:
            return
        self._made.add(uid)
        await self._tell(kind, obj, _status(obj, held, [each for each in done if each], pods))

    async def _bring_all(self, kind: Kind, obj: Object, held: list[Item], pods: list[Object]) -> list[str] | None:
        """Make what is not there; how each has ended. None: it cannot be made, and nothing of it is to be there."""
        uid = obj["metadata"]["uid"]
        if uid not in self._hopeless:
            try:
                return [await self._bring(kind, obj, item, pods) for item in held]
            except _Hopeless as error:
                self._hopeless[uid] = str(error)
        if await self._delete(obj, held) or any(map(_is_alive, pods)):  # it holds its quota as long
            asyncio.get_running_loop().call_later(_PAUSE, self._touch, uid)
        else:
            why = self._hopeless[uid]
            self._record(kind, obj, why)
            await self._tell(kind, obj, {"state": _FAILED, "queuejobstate": _FAILED, "message": why})
        return None

    async def _bring(self, kind: Kind, obj: Object, item: Item, pods: list[Object]) -> str:
        """Make it where it is not there; how it has ended, empty: it has not, or it never does."""
        made, name = item.object, item.object["metadata"]["name"]
        if made["kind"] == "Pod":
            there = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
            if there is not None:
                phase = (there.get("status") or {}).get("phase")
                return {"Succeeded": _COMPLETED, "Failed": _FAILED}.get(str(phase), "")
        elif made["kind"] != "Job" and obj["metadata"]["uid"] in self._made:
            return ""
        found = await self._make(kind, obj, made)
        if made["kind"] != "Job":
            return ""
        conditions = (found.get("status") or {}).get("conditions") or ()
        ends = {each["type"] for each in conditions if each.get("status") == "True"}
        if not ends & {"Complete", "Failed"} and not any(map(_is_alive, pods)):
            asyncio.get_running_loop().call_later(_PAUSE, self._touch, obj["metadata"]["uid"])  # it tells of that late
        return _COMPLETED if "Complete" in ends else _FAILED if "Failed" in ends else ""

    async def _make(self, kind: Kind, obj: Object, made: Object) -> Object:
        """The object as it is there. Raises _Hopeless, ClusterError."""
        metadata = obj["metadata"]
        reference = {
            "apiVersion": self._watches.kinds.api_version(kind),
            "kind": kind.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        body = {**made, "metadata": {**made["metadata"], "ownerReferences": [reference]}}
        path, what = _collection(made), f"{made['kind']} {made['metadata']['name']}"
        try:
            return await self._client.create(path, body)
        except AlreadyExists:
            found = await self._client.get(f"{path}/{made['metadata']['name']}")
            if (controller_of(found) or {}).get("uid") != metadata["uid"]:
                raise _Hopeless(f"{what} is there already, and is not of this AppWrapper: name it otherwise") from None
            return found
        except (Invalid, Forbidden) as error:
            raise _Hopeless(f"{what} cannot be made: {error}") from error

    async def _delete(self, obj: Object, held: Iterable[Item]) -> bool:
        """Delete what there is of it; whether there was any."""
        found_any = False
        for item in held:
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

    async def _tell(self, kind: Kind, obj: Object, status: Object) -> None:
        had = obj.get("status") or {}
        wanted = {field: status.get(field) for field in _TOLD}
        if all(had.get(field) == value for field, value in wanted.items()):
            return
        metadata = obj["metadata"]
        path = self._watches.kinds.path(kind, metadata["namespace"], metadata["name"])
        body = {"metadata": {"uid": metadata["uid"]}, "status": wanted}
        for where in (f"{path}/status", path):  # a definition may have no such subresource
            with suppress(NotFound):
                await self._client.patch(where, body, permitted=self._leads)
                return

    def _record(self, kind: Kind, obj: Object, note: str) -> None:
        metadata, version = obj["metadata"], self._watches.kinds.api_version(kind)
        regarding = Reference(version, kind.kind, metadata["name"], metadata["uid"], metadata["namespace"])
        self._events.record(regarding, reason=_FAILED, action="Dispatch", note=note, warning=True)


def _collection(made: Object) -> str:
    group, _, version = made["apiVersion"].rpartition("/")
    return f"{api_root(group, version)}/namespaces/{made['metadata']['namespace']}/{_PLURALS[made['kind']]}"


def _status(obj: Object, held: list[Item], ends: list[str], pods: list[Object]) -> Object:
    """In MCAD's words. TorchX looks for as many pods as there are, and knows no state `Completed`.

    So that one is only written where an item says what completes it, as in MCAD.
    """
    expected = sum(item.pods for item in held)
    phases = Counter((pod.get("status") or {}).get("phase") for pod in pods)
    counts = {"running": phases["Running"], "failed": phases["Failed"], "Succeeded": phases["Succeeded"]}
    counts["pending"] = max(expected - sum(counts.values()), phases["Pending"])
    state, queued = "Running", "Dispatched"
    enough = _needed(obj, expected)
    if counts["running"] + counts["Succeeded"] >= enough:
        queued = "Running"
    with_pods = sum(1 for item in held if item.pods)
    if len(ends) == with_pods and not counts["running"]:
        counts["pending"] = 0
        queued = _FAILED if _FAILED in ends else _COMPLETED
        uses = any(each.get("completionstatus") for each in obj["spec"]["resources"]["GenericItems"])
        state = _FAILED if queued == _FAILED else _COMPLETED if uses else state
    return {"state": state, "queuejobstate": queued, "canrun": True, "isdispatched": True, **counts}


def _concerns_us(kind: Kind, obj: Object) -> bool:
    return bool(kind.queue_name(obj) or (obj.get("status") or {}).get("isdispatched"))


def _is_alive(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _needed(obj: Object, expected: int) -> int:
    """How many of its pods have to run for it to be ready."""
    said: Any = (obj["spec"].get("schedulingSpec") or {}).get("minAvailable")
    return said if isinstance(said, int) and 0 < said <= expected else expected
