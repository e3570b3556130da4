"""The scheduler's and a pretend driver's part in dynamic resource allocation: which devices a claim gets on a node."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from admission.kinds.device_selectors import Device, SelectorError, selector
from admission.model.quantity import parse_quantity
from admission.sandbox.controllers.claims import claim_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.local import LocalClient

Key = tuple[str, str, str]
"""Driver, pool and device."""


class _Slot(NamedTuple):
    """A device of a slice in the newest generation of its pool."""

    key: Key
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
        self._users: dict[Key, list[Object]] = {}
        """The same by device, without admin access."""
        self._slots: dict[str, list[_Slot]] | None = None
        """By node; "": reached from all nodes."""
        self._counters: dict[tuple[str, str, str, str], Fraction] = {}
        self._selected: dict[tuple[str, ...], set[Key]] = {}

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
                self._users[_key(each)].remove(each)
        if results:
            self._held[uid] = results
        for each in results:
            if not each.get("adminAccess"):
                self._users.setdefault(_key(each), []).append(each)

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
                if not here.issuperset(map(_key, self._held[uid])):
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

    def _select(self, expressions: tuple[str, ...]) -> set[Key]:
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
        own = [*self._users.get(slot.key, ()), *(each for each in promised if _key(each) == slot.key)]
        if slot.device.shared:
            consumed = _consumed(slot, wanted, own)
            return None if consumed is None else {**result, "consumedCapacity": consumed, "shareID": f"{len(own)}"}
        if own:
            return None
        if needed := _consumption(slot):
            free = Counter(self._counters)
            taken = {key for key, users in self._users.items() if users} | set(map(_key, promised))
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


def _key(result: Object) -> Key:
    return result["driver"], result["pool"], result["device"]
