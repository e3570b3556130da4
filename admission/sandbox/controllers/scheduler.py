"""Simulated scheduler: binds pods to nodes with sufficient free amounts, and allocates the devices of their claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from admission.kinds.device_selectors import Device, SelectorError, selector
from admission.model.quantity import parse_quantity
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import SimulatedController, is_over
from admission.sandbox.controllers.claims import claim_names
from admission.sandbox.controllers.fit import PodShape, allocatable_of, fits, matches_node, shape_key, shape_of
from admission.sandbox.controllers.podlife import start_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

Key = tuple[str, str]

# Seconds of real time that a scheduling pass waits for further pods.
_DELAY = 0.005
_SIMULATED = "kwok.x-k8s.io/node"
_NAMES = ("default-scheduler", "kai-scheduler", "volcano", "yunikorn")
"""`schedulerName` of the pods that are scheduled; of others only the requests are counted once they are bound.

One scheduler stands for all of these: several that do not know of each other would assign the same free amounts.
"""


def is_simulated(node: Object) -> bool:
    """Return whether the sandbox simulates a node: `kwok.x-k8s.io/node: fake` in its annotations or labels."""
    metadata = node["metadata"]
    return "fake" in (metadata.get("annotations", {}).get(_SIMULATED), metadata.get("labels", {}).get(_SIMULATED))


@dataclass(slots=True)
class _Queue:
    """Pending pods with equal requirements, oldest first.

    `unreported` are pods without a condition Unschedulable yet. `nodes` match the pods, apart from free amounts; the
    search for one starts at index `start`.
    """

    shape: PodShape
    pods: dict[Key, None] = field(default_factory=dict)
    unreported: list[Key] = field(default_factory=list)
    nodes: list[str] | None = None
    start: int = 0


class PodScheduler(SimulatedController[str]):
    """Its only key is "", a pass over all queues of pending pods, each until its next pod does not fit.

    Without any simulated node it does nothing, not even report pods as unschedulable.
    """

    plurals: tuple[str, ...] = ("nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims")

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        served = local.plurals()
        self.plurals = tuple(plural for plural in self.plurals if plural in served)
        super().__init__(local, clock)
        self._devices = Allocation(local)
        self._nodes: dict[str, Object] = {}
        self._free: dict[str, dict[str, int]] = {}
        self._placed: dict[str, tuple[str, PodShape]] = {}
        self._queues: dict[bytes, _Queue] = {}
        self._waiting: dict[Key, bytes] = {}
        self._delay = _DELAY * clock.speed

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "nodes":
            self._observe_node(change, obj)
        elif plural == "pods":
            self._observe_pod(change, obj)
        else:
            self._devices.observe(plural, change, obj)
            if self._waiting:
                self.enqueue("", self._delay)

    def _observe_node(self, change: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED" or not is_simulated(node):
            self._nodes.pop(name, None)
            self._free.pop(name, None)
        else:
            self._nodes[name] = node
            self._free[name] = allocatable_of(node)
            for where, shape in self._placed.values():
                if where == name:
                    self._reserve(where, shape, 1)
        for queue in self._queues.values():
            queue.nodes = None
        self.enqueue("", self._delay)

    def _observe_pod(self, change: str, pod: Object) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        key, uid, node = (metadata["namespace"], metadata["name"]), metadata["uid"], spec.get("nodeName")
        released = change == "DELETED" or is_over(pod)
        if released and uid in self._placed:
            self._reserve(*self._placed.pop(uid), -1)
            self.enqueue("", self._delay)
        elif not released and node is not None and uid not in self._placed:
            self._place(uid, node, shape_of(spec))
        if released or node is not None or "schedulingGates" in spec or "deletionTimestamp" in metadata:
            self._dequeue(key)
        elif key not in self._waiting and spec["schedulerName"] in _NAMES:
            unschedulable = start_fault(pod) == "unscheduled"
            text = self._waiting[key] = shape_key(spec) + (b" unschedulable" if unschedulable else b"")
            if text not in self._queues:
                shape = shape_of(spec)
                self._queues[text] = _Queue(replace(shape, terms=()) if unschedulable else shape)
            self._queues[text].pods[key] = None
            self._queues[text].unreported.append(key)
            self.enqueue("", self._delay)

    def _place(self, uid: str, node: str, shape: PodShape) -> None:
        self._placed[uid] = (node, shape)
        self._reserve(node, shape, 1)

    def _reserve(self, node: str, shape: PodShape, sign: int) -> None:
        free = self._free.get(node)
        if free is not None:
            for name, needed in shape.requests:
                free[name] = free.get(name, 0) - sign * needed

    def _dequeue(self, key: Key) -> None:
        text = self._waiting.pop(key, None)
        if text is not None:
            del self._queues[text].pods[key]

    async def sync(self, key: str) -> None:
        if not self._nodes:
            return
        busy = [queue for queue in self._queues.values() if queue.pods]
        for queue in sorted(busy, key=lambda queue: -queue.shape.priority):
            while queue.pods:
                pod_key = next(iter(queue.pods))
                pod = self.local.get("pods", *pod_key)
                if pod is not None and "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
                    claims = self._devices.claims(pod) if "resourceClaims" in pod["spec"] else []
                    node = None if claims is None else self._find(queue, claims)
                    if node is not None and claims:
                        devices = self._devices.find(claims, node)
                        assert devices is not None, node
                        await self._devices.reserve(claims, devices, pod, node)
                    if node is None:
                        await self._report_unschedulable(queue)
                        break
                    await self.local.bind(*pod_key, node)
                    self._place(pod["metadata"]["uid"], node, queue.shape)
                    await self.yield_to_loop()
                self._dequeue(pod_key)

    def _find(self, queue: _Queue, claims: list[Object]) -> str | None:
        """Return the next node that fits; the search starts after the last result, which spreads the pods."""
        if queue.nodes is None:
            queue.nodes = [name for name, node in self._nodes.items() if matches_node(queue.shape, node)]
        count = len(queue.nodes)
        for step in range(count):
            position = (queue.start + step) % count
            fitting = fits(self._free[queue.nodes[position]], queue.shape)
            if fitting and (not claims or self._devices.find(claims, queue.nodes[position]) is not None):
                queue.start = position + 1
                return queue.nodes[position]
        return None

    async def _report_unschedulable(self, queue: _Queue) -> None:
        """Set the condition Unschedulable on the queue's pods that do not have it yet."""
        possible = len(queue.nodes or ())
        message = (
            f"0/{len(self._nodes)} nodes are available: {possible} have too little room, "
            f"{len(self._nodes) - possible} do not match the pod's node selector, affinity or tolerations."
        )
        while queue.unreported:
            pod = self.local.get("pods", *queue.unreported.pop())
            if pod is None or "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
                continue
            others = [entry for entry in pod["status"].get("conditions", ()) if entry["type"] != "PodScheduled"]
            entry = {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": rfc3339(self.clock.now()),
                "reason": "Unschedulable",
                "message": message,
            }
            status = {**pod["status"], "conditions": [*others, entry]}
            namespace: str = pod["metadata"]["namespace"]
            await self.local.update("pods", namespace, {**pod, "status": status}, subresource="status")
            await self.yield_to_loop()


DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""


class _Slot(NamedTuple):
    """A device of a slice in the newest generation of its pool."""

    key: DeviceKey
    node: str
    """Empty: it can be reached from all nodes."""
    device: Device
    content: Object


class Allocation:
    """Devices of the cluster, and the claims that hold them."""

    def __init__(self, local: LocalClient) -> None:
        self._local = local
        self._held: dict[str, list[Object]] = {}
        """Results of the allocation of each claim, by its uid."""
        self._users: dict[DeviceKey, list[Object]] = {}
        """The same by device, without admin access."""
        self._slots: dict[str, list[_Slot]] | None = None
        """By node; "": reached from all nodes."""
        self._counters: dict[tuple[str, str, str, str], Fraction] = {}
        self._selected: dict[tuple[str, ...], set[DeviceKey]] = {}

    def observe(self, plural: str, change: str, obj: Object) -> None:
        """Process a change of a claim, a class or a slice."""
        if plural == "resourceslices":
            self._slots = None
            self._selected.clear()
        elif plural == "resourceclaims":
            self._hold(obj["metadata"]["uid"], [] if change == "DELETED" else _results(obj))

    def _hold(self, uid: str, results: list[Object]) -> None:
        for each in self._held.pop(uid, ()):
            if not each.get("adminAccess"):
                self._users[_device_key(each)].remove(each)
        if results:
            self._held[uid] = results
        for each in results:
            if not each.get("adminAccess"):
                self._users.setdefault(_device_key(each), []).append(each)

    def claims(self, pod: Object) -> list[Object] | None:
        """Return the claims of a pod; None: some do not exist yet."""
        found = []
        for name in claim_names(pod).values():
            claim = None if name is None else self._local.get("resourceclaims", pod["metadata"]["namespace"], name)
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                return None
            found.append(claim)
        return found

    def find(self, claims: Iterable[Object], node: str) -> dict[str, list[Object]] | None:
        """Return by uid the devices that these claims would get on a node; None: there are too few."""
        found: dict[str, list[Object]] = {}
        here = {slot.key for slot in self._on(node)}
        for claim in claims:
            uid = claim["metadata"]["uid"]
            if uid in self._held:
                if not here.issuperset(map(_device_key, self._held[uid])):
                    return None
                continue
            results = self._satisfy(claim, node, [each for some in found.values() for each in some])
            if results is None:
                return None
            found[uid] = results
        return found

    async def reserve(self, claims: Iterable[Object], found: dict[str, list[Object]], pod: Object, node: str) -> None:
        """Write the allocation of claims, and that the pod uses them."""
        metadata = pod["metadata"]
        user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        for claim in claims:
            status = dict(claim.get("status") or {})
            uid = claim["metadata"]["uid"]
            if uid in found:
                here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
                status["allocation"] = {"devices": {"results": found[uid]}, "nodeSelector": {"nodeSelectorTerms": here}}
                self._hold(uid, found[uid])
            if all(each["uid"] != user["uid"] for each in status.get("reservedFor") or ()):
                status["reservedFor"] = [*(status.get("reservedFor") or ()), user]
            changed = {**claim, "status": status}
            await self._local.update("resourceclaims", metadata["namespace"], changed, subresource="status")

    def _satisfy(self, claim: Object, node: str, promised: list[Object]) -> list[Object] | None:
        results: list[Object] = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or ():
            choices = [("", request["exactly"])] if "exactly" in request else []
            choices += [(f"/{each['name']}", each) for each in request.get("firstAvailable") or ()]
            for suffix, wanted in choices:
                got = self._choose(wanted, node, [*promised, *results])
                if got is not None:
                    results += [{**each, "request": f"{request['name']}{suffix}"} for each in got]
                    break
            else:
                return None
        return results

    def _choose(self, wanted: Object, node: str, promised: list[Object]) -> list[Object] | None:
        device_class = self._local.get("deviceclasses", "", wanted["deviceClassName"])
        if device_class is None:
            return None
        selectors = (*(device_class["spec"].get("selectors") or ()), *(wanted.get("selectors") or ()))
        try:
            selected = self._select(tuple(each["cel"]["expression"] for each in selectors))
        except SelectorError:
            return None
        fitting = [slot for slot in self._on(node) if slot.key in selected]
        chosen: list[Object] = []
        for slot in fitting:
            if wanted["allocationMode"] == "ExactCount" and len(chosen) == wanted["count"]:
                break
            if (result := self._take(slot, wanted, [*promised, *chosen])) is not None:
                chosen.append(result)
        needed = len(fitting) or 1 if wanted["allocationMode"] == "All" else wanted["count"]
        return chosen if len(chosen) == needed else None

    def _select(self, expressions: tuple[str, ...]) -> set[DeviceKey]:
        found = self._selected.get(expressions)
        if found is None:
            chosen = [selector(text) for text in expressions]
            found = self._selected[expressions] = {
                slot.key for slot in self._all() if all(each.matches(slot.device) for each in chosen)
            }
        return found

    def _take(self, slot: _Slot, wanted: Object, promised: list[Object]) -> Object | None:
        """Return the result for a device of a slot; None: it is taken, or too little of it is left."""
        driver, pool, name = slot.key
        result: Object = {"driver": driver, "pool": pool, "device": name}
        if wanted.get("adminAccess"):
            return {**result, "adminAccess": True}
        own = [*self._users.get(slot.key, ()), *(each for each in promised if _device_key(each) == slot.key)]
        if slot.device.shared:
            consumed = _consumed(slot, wanted, own)
            return None if consumed is None else {**result, "consumedCapacity": consumed, "shareID": f"{len(own)}"}
        if own:
            return None
        if needed := _consumption(slot):
            free = Counter(self._counters)
            taken = {key for key, users in self._users.items() if users} | set(map(_device_key, promised))
            for other in self._all():
                if other.key in taken:
                    free.subtract(_consumption(other))
            if any(free[counter] < amount for counter, amount in needed.items()):
                return None
        return result

    def _all(self) -> Iterable[_Slot]:
        return chain.from_iterable(self._by_node().values())

    def _on(self, node: str) -> list[_Slot]:
        """Return the devices that can be reached from a node."""
        slots = self._by_node()
        return [*slots.get(node, ()), *slots.get("", ())]

    def _by_node(self) -> dict[str, list[_Slot]]:
        if self._slots is None:
            slices = [each["spec"] for each in self._local.list("resourceslices")]
            newest: dict[tuple[str, str], int] = {}
            for spec in slices:
                at = spec["driver"], spec["pool"]["name"]
                newest[at] = max(newest.get(at, 0), spec["pool"].get("generation", 0))
            self._slots, self._counters = {}, {}
            for spec in slices:
                at = spec["driver"], spec["pool"]["name"]
                if newest[at] != spec["pool"].get("generation", 0):
                    continue
                for slot in _slots(spec):
                    self._slots.setdefault(slot.node, []).append(slot)
                for shared in spec.get("sharedCounters") or ():
                    for counter, value in shared["counters"].items():
                        self._counters[*at, shared["name"], counter] = parse_quantity(value["value"])
        return self._slots


def _consumed(slot: _Slot, wanted: Object, own: list[Object]) -> Object | None:
    """Return by capacity what a request takes of a device beside its other users; None: too little is left."""
    requests = (wanted.get("capacity") or {}).get("requests") or {}
    asked = {name.removeprefix(f"{slot.key[0]}/"): amount for name, amount in requests.items()}
    found = {}
    for name, value in (slot.content.get("capacity") or {}).items():
        amount = asked.get(name) or (value.get("requestPolicy") or {}).get("default") or value["value"]
        before = sum((parse_quantity((each.get("consumedCapacity") or {}).get(name, 0)) for each in own), Fraction())
        if before + parse_quantity(amount) > parse_quantity(value["value"]):
            return None
        found[name] = amount
    return found


def _slots(spec: Object) -> Iterator[_Slot]:
    for content in spec.get("devices") or ():
        device = Device(spec["driver"], spec.get("nodeName") or "", content)
        yield _Slot((spec["driver"], spec["pool"]["name"], content["name"]), device.node, device, content)


def _consumption(slot: _Slot) -> dict[tuple[str, str, str, str], Fraction]:
    driver, pool, _ = slot.key
    return {
        (driver, pool, each["counterSet"], counter): parse_quantity(value["value"])
        for each in slot.content.get("consumesCounters") or ()
        for counter, value in each["counters"].items()
    }


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return found


def _device_key(result: Object) -> DeviceKey:
    return result["driver"], result["pool"], result["device"]
