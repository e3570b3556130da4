"""The scheduler's and a pretend driver's part in dynamic resource allocation: which devices a claim gets on a node."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
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
        self._slots: list[_Slot] | None = None
        self._counters: dict[tuple[str, str, str, str], Fraction] = {}

    def observe(self, plural: str, change: str, obj: Object) -> None:
        """Process a change of a claim or a slice."""
        if plural == "resourceslices":
            self._slots = None
        elif plural == "resourceclaims":
            results = _results(obj)
            if change == "DELETED" or not results:
                self._held.pop(obj["metadata"]["uid"], None)
            else:
                self._held[obj["metadata"]["uid"]] = results

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
        for claim in claims:
            uid = claim["metadata"]["uid"]
            if uid in self._held:
                nodes = {slot.node for slot in self._all() if slot.key in {_key(each) for each in self._held[uid]}}
                if not nodes <= {"", node}:
                    return None
                continue
            results = self._satisfy(claim, node, found)
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
                self._held[uid] = found[uid]
            if all(each["uid"] != user["uid"] for each in status.get("reservedFor") or ()):
                status["reservedFor"] = [*(status.get("reservedFor") or ()), user]
            await self._local.update(
                "resourceclaims", metadata["namespace"], {**claim, "status": status}, subresource="status"
            )

    def _satisfy(self, claim: Object, node: str, promised: dict[str, list[Object]]) -> list[Object] | None:
        results: list[Object] = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or ():
            choices = (
                [("", request["exactly"])]
                if "exactly" in request
                else [(f"/{each['name']}", each) for each in request["firstAvailable"]]
            )
            for suffix, wanted in choices:
                others = [*self._held.values(), *promised.values(), results]
                got = self._choose(wanted, node, [each for some in others for each in some])
                if got is not None:
                    results += [{**each, "request": f"{request['name']}{suffix}"} for each in got]
                    break
            else:
                return None
        return results

    def _choose(self, wanted: Object, node: str, used: list[Object]) -> list[Object] | None:
        device_class = self._local.get("deviceclasses", "", wanted["deviceClassName"])
        if device_class is None:
            return None
        expressions = [
            each["cel"]["expression"]
            for each in (*(device_class["spec"].get("selectors") or ()), *(wanted.get("selectors") or ()))
        ]
        try:
            fitting = [
                slot
                for slot in self._all()
                if slot.node in ("", node) and all(selector(text).matches(slot.device) for text in expressions)
            ]
        except SelectorError:
            return None
        chosen: list[Object] = []
        for slot in fitting:
            if wanted["allocationMode"] == "ExactCount" and len(chosen) == wanted["count"]:
                break
            if (result := self._take(slot, wanted, [*used, *chosen])) is not None:
                chosen.append(result)
        needed = len(fitting) or 1 if wanted["allocationMode"] == "All" else wanted["count"]
        return chosen if len(chosen) == needed else None

    def _take(self, slot: _Slot, wanted: Object, used: list[Object]) -> Object | None:
        """Return the result for a device of a slot; None: it is taken, or too little of it is left."""
        driver, pool, name = slot.key
        result: Object = {"driver": driver, "pool": pool, "device": name}
        if wanted.get("adminAccess"):
            return {**result, "adminAccess": True}
        own = [each for each in used if _key(each) == slot.key and not each.get("adminAccess")]
        if slot.device.shared:
            asked = (wanted.get("capacity") or {}).get("requests") or {}
            consumed = {}
            for capacity, value in (slot.content.get("capacity") or {}).items():
                amount = asked.get(capacity) or (value.get("requestPolicy") or {}).get("default") or value["value"]
                before = sum(
                    (parse_quantity((each.get("consumedCapacity") or {}).get(capacity, 0)) for each in own), Fraction()
                )
                if before + parse_quantity(amount) > parse_quantity(value["value"]):
                    return None
                consumed[capacity] = amount
            return {**result, "consumedCapacity": consumed, "shareID": f"{len(own)}"}
        if own:
            return None
        free = Counter(self._counters)
        for other in self._all():
            if any(_key(each) == other.key and not each.get("adminAccess") for each in used):
                free.subtract(_consumption(other))
        return None if any(free[key] < amount for key, amount in _consumption(slot).items()) else result

    def _all(self) -> list[_Slot]:
        if self._slots is None:
            slices = self._local.list("resourceslices")
            newest: dict[tuple[str, str], int] = {}
            for each in slices:
                at = each["spec"]["driver"], each["spec"]["pool"]["name"]
                newest[at] = max(newest.get(at, 0), each["spec"]["pool"].get("generation", 0))
            self._slots, self._counters = [], {}
            for each in slices:
                spec = each["spec"]
                at = spec["driver"], spec["pool"]["name"]
                if newest[at] != spec["pool"].get("generation", 0):
                    continue
                self._slots += _slots(spec)
                for shared in spec.get("sharedCounters") or ():
                    for counter, value in shared["counters"].items():
                        self._counters[*at, shared["name"], counter] = parse_quantity(value["value"])
        return self._slots


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
