"""Players of the moves about other kinds (`wholes`) and about pod groups that other systems declare."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.fuzz.documents import LOCAL_QUEUES, QUEUE_LABELS, QUOTAS
from tests.fuzz.kind_documents import BESIDE, KINDS, groups_of, numbered, pod_template_of, pods_wanted, whole
from tests.fuzz.topology_documents import REQUIRED, SLICE_LEVEL
from tests.fuzz.world import MERGE, NAMESPACES

if TYPE_CHECKING:
    from tests.fuzz.players import Players
    from tests.fuzz.world import Object

_PODS = "/api/v1/namespaces/{}/pods"
_SIZES = {
    "plugins": ("scheduling.x-k8s.io/v1alpha1", lambda total: {"minMember": total}),
    "native": ("scheduling.k8s.io/v1beta1", lambda total: {"schedulingPolicy": {"gang": {"minCount": total}}}),
}
_KOORDINATOR = "gang.scheduling.koordinator.sh/"
_YUNIKORN = "yunikorn.apache.org/"


@dataclass(frozen=True)
class WrittenWhole:
    """Record of a user's writes to an object of another kind."""

    spec: Object
    """Spec as returned by the API server at its creation."""
    odd: bool
    """Whether a write may prevent it from running, or changed the spec to be restored."""


class KindPlayers:
    """Players of these moves; each public method is a move."""

    def __init__(self, players: Players) -> None:
        self._players = players
        self._world = players.world
        self._count = 0
        self.wholes: dict[str, WrittenWhole] = {}
        """Records by UID."""
        self.gang_pods: set[str] = set()
        """UIDs of pods that declare a group in the form of another system."""

    # ------------------------------------------------------------------ objects of other kinds

    async def whole(
        self,
        user: str,
        kind: str,
        name: str,
        queue: str,
        stop: str | None,
        pods: list[int],
        settle: bool,
        fewest: str = "",
        placed: Object | None = None,
    ) -> None:
        """Create an object; `placed`: annotations of its pods that request a placement by topology."""
        template = _template(stop)
        template["metadata"]["annotations"] |= placed or {}
        body = whole(kind, _named(kind, name), pods, template)
        if fewest:
            body["metadata"]["annotations"] = {"sluice.dev/min-count": fewest}
        if kind == "vcjobs":
            body["spec"]["queue"] = queue or "nowhere"
        elif queue:
            body["metadata"]["labels"][QUEUE_LABELS[self._count % 2]] = queue
        self._count += 1
        status, created = await self._world.request(user, "POST", KINDS[kind].path.format(NAMESPACES[user]), body)
        if status == 201:
            cluster_queue = LOCAL_QUEUES.get((NAMESPACES[user], queue))
            may_be_few = fewest == "w0=1,w1=1" and all(pods)
            needed = len(pods) + BESIDE.get(kind, 0) if may_be_few else pods_wanted(kind, body)
            odd = cluster_queue is None or stop == "never" or not 0 < needed <= QUOTAS[cluster_queue]
            odd = odd or any(name in (placed or {}) for name in (REQUIRED, SLICE_LEVEL))
            self._note(kind, created, WrittenWhole(created["spec"], odd))
        if settle:
            await self._players.settle()

    async def resize(self, user: str, kind: str, name: str, group: int, numbers: list[int]) -> None:
        """Change the number of pods of a group several times in succession."""
        for number in numbers:
            found = self._found(user, kind, name)
            if found is None:
                return
            if kind == "statefulsets":
                await self._patch(user, kind, found, {"spec": {"replicas": number}}, "/scale" * group)
            else:
                path, groups, field, _ = groups_of(kind, found["spec"])
                if group < len(groups):
                    numbered(groups[group], field)[field] = number
                    await self._patch(user, kind, found, _nested(path, groups))

    async def rework(self, user: str, kind: str, name: str, what: str, pods: int) -> None:
        """Change the groups: rename, add, reverse, enlarge their pods, or write an invalid template."""
        if (found := self._found(user, kind, name)) is None:
            return
        if kind == "statefulsets":
            template = copy.deepcopy(found["spec"]["template"])
            _enlarge(template, pods)
            await self._patch(user, kind, found, {"spec": {"template": {"spec": template["spec"]}}})
            return
        path, groups, number, name_field = groups_of(kind, found["spec"])
        if not groups:
            return
        match what:
            case "rename":
                groups[0] |= {name_field: "renamed", number: pods}
            case "add":
                groups.append({**copy.deepcopy(groups[0]), name_field: "added", number: pods})
            case "reverse":
                groups.reverse()
                groups[0][number] = pods
            case "misshape" if kind == "trainingruns":  # its definition accepts any fields
                groups[0]["template"]["spec"] |= _MISSHAPED[pods % len(_MISSHAPED)]
            case _:
                _enlarge(pod_template_of(groups[0]), pods)
        await self._patch(user, kind, found, _nested(path, groups))

    async def start_and_change(self, user: str, kind: str, name: str, stop: str, what: str, numbers: list[int]) -> None:
        """Create an object with slowly terminating pods, and change it as soon as it runs."""
        await self.whole(user, kind, name, "main", stop, [2, 1], settle=False)
        for _ in range(6):
            if any(each["metadata"]["name"].startswith(_named(kind, name)) for each in self._running(user)):
                break
            await asyncio.sleep(0.25)
        if what == "sway":  # reduced and increased again, while the surplus pods are terminating
            numbers = [1, 2]
        elif what != "resize":
            await self.rework(user, kind, name, what, max(numbers))
            return
        for number in numbers:
            await self.resize(user, kind, name, 0, [number])
            await asyncio.sleep(0.2)

    async def note_whole(self, user: str, kind: str, name: str, changes: list[Object]) -> None:
        if (found := self._found(user, kind, name)) is not None:
            body: Object = {}
            for change in changes:
                await self._players.put(body, change, user)
            await self._patch(user, kind, found, body)

    async def flip_whole(self, user: str, kind: str, name: str, times: int) -> None:
        """Suspend and resume an object as its user, several times."""
        for number in range(2 * times):
            if (found := self._found(user, kind, name)) is None:
                return
            await self._patch(user, kind, found, {"spec": {"suspend": number % 2 == 0, "paused": number % 2 == 0}})
            await asyncio.sleep(0.1)

    async def delete_whole(self, user: str, kind: str, name: str, propagation: str) -> None:
        path = f"{KINDS[kind].path.format(NAMESPACES[user])}/{_named(kind, name)}?propagationPolicy={propagation}"
        await self._world.request(user, "DELETE", path)

    async def recreate_whole(self, user: str, kind: str, name: str, times: int, propagation: str, **new: Any) -> None:
        """Delete an object shortly after its creation and recreate it while its pods are terminating, several times."""
        for _ in range(times):
            await self.whole(user, kind, name, **new, settle=False)
            await asyncio.sleep(0.4)
            await self.delete_whole(user, kind, name, propagation)
        await self.whole(user, kind, name, **new, settle=True)

    # ------------------------------------------------------------------ pod groups of other systems

    async def gang(self, user: str, way: str, name: str, total: int, count: int, large: bool) -> None:
        """Create `count` pods of a group of `total`, or of the size that a PodGroup object declares."""
        for number in range(count):
            self._count += 1
            pod = _template("5")
            pod["metadata"] |= {"name": f"{name}-{self._count}", "labels": {QUEUE_LABELS[0]: "main"}}
            _name_group(pod, way, name, total, first=number == 0)
            if large and number == 1:
                _enlarge(pod, 2)
            status, created = await self._world.request(user, "POST", _PODS.format(NAMESPACES[user]), pod)
            if status == 201:
                self.gang_pods.add(created["metadata"]["uid"])

    async def gang_size(self, user: str, way: str, name: str, total: Any) -> None:
        """Create or change the object that declares the size of a group; None: delete it."""
        api, spec = _SIZES[way]
        path = f"/apis/{api}/namespaces/{NAMESPACES[user]}/podgroups"
        if total is None:
            await self._world.request(user, "DELETE", f"{path}/{name}")
            return
        body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec(total)}
        status, _ = await self._world.request(user, "POST", path, body)
        if status == 409:
            await self._world.request(user, "PATCH", f"{path}/{name}", {"spec": spec(total)}, content=MERGE)

    async def gang_tree(self, user: str, plural: str, name: str, parent: str, number: Any, gone: bool) -> None:
        """Create, change or delete a PodGroup or CompositePodGroup with a parent."""
        is_leaf = plural == "podgroups"
        api = f"scheduling.k8s.io/{'v1beta1' if is_leaf else 'v1alpha3'}"
        path = f"/apis/{api}/namespaces/{NAMESPACES[user]}/{plural}"
        if gone:
            await self._world.request(user, "DELETE", f"{path}/{name}")
            return
        gang = {"minCount" if is_leaf else "minGroupCount": number}
        spec = {"schedulingPolicy": {"gang": gang}, "parentCompositePodGroupName": parent or None}
        kind = "PodGroup" if is_leaf else "CompositePodGroup"
        body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
        status, _ = await self._world.request(user, "POST", path, body)
        if status == 409:
            await self._world.request(user, "PATCH", f"{path}/{name}", {"spec": spec}, content=MERGE)

    # ------------------------------------------------------------------ helpers

    def _found(self, user: str, kind: str, name: str) -> Object | None:
        return self._world.local.get(KINDS[kind].plural, NAMESPACES[user], _named(kind, name))

    def _running(self, user: str) -> list[Object]:
        pods = self._world.local.list("pods", NAMESPACES[user])
        return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]

    def _note(self, kind: str, obj: Object, written: WrittenWhole) -> None:
        self.wholes[obj["metadata"]["uid"]] = written
        if kind == "statefulsets":
            self._players.pods.odd_controllers[obj["metadata"]["uid"]] = written.odd

    async def _patch(self, user: str, kind: str, found: Object, body: Object, subresource: str = "") -> None:
        if (written := self.wholes.get(found["metadata"]["uid"])) is not None:
            self._note(kind, found, replace(written, odd=True))
        path = f"{KINDS[kind].path.format(NAMESPACES[user])}/{found['metadata']['name']}{subresource}"
        await self._world.request(user, "PATCH", path, body, content=MERGE)


def _named(kind: str, name: str) -> str:
    """Return a name that differs between kinds, so that the names of their pods differ too."""
    return f"{name}-{list(KINDS).index(kind)}"


def _template(stop: str | None) -> Object:
    annotations = {"sandbox.sluice.dev/run-seconds": "10000"}
    if stop is not None:
        annotations["sandbox.sluice.dev/stop-seconds"] = stop
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}


_MISSHAPED = (
    {"containers": "x"},
    {"containers": [{"name": "main", "resources": []}]},
    {"nodeSelector": ["gpu"]},
    {"tolerations": {"key": "a"}},
    {"affinity": "x", "priorityClassName": 3},
)


def _enlarge(pod: Object, cpu: int) -> None:
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)


def _nested(path: list[str], value: Any) -> Object:
    for key in reversed(path):
        value = {key: value}
    return {"spec": value}


def _name_group(pod: Object, way: str, name: str, total: int, *, first: bool) -> None:
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    match way:
        case "koordinator":
            annotations |= {f"{_KOORDINATOR}name": name, f"{_KOORDINATOR}min-available": str(total)}
        case "plugins":
            labels["scheduling.x-k8s.io/pod-group"] = name
        case "native":
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        case "yunikorn":
            labels[f"{_YUNIKORN}app-id"] = name
            annotations[f"{_YUNIKORN}task-group-name"] = "workers"
            if first:
                groups = [{"name": "workers", "minMember": total}]
                annotations[f"{_YUNIKORN}task-groups"] = json.dumps(groups)
        case _:
            labels |= {"sluice.dev/pod-group-name": name, "sluice.dev/pod-set-name": "main" if first else "workers"}
            if first:
                sets = [{"name": "main", "count": 1}, {"name": "workers", "count": total, "requests": {"cpu": "1"}}]
                annotations["sluice.dev/pod-group-pod-sets"] = json.dumps(sets)
