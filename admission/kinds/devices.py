"""Devices by claim (dynamic resource allocation): what the ResourceClaims of pods request of quota.

`Inventory` has the cluster's claims, templates, DeviceClasses and ResourceSlices, without I/O. Rules are Kueue's
(`pkg/dra` at ff69552, KEP 2941). Beyond them Sluice counts claims that are named (Kueue refuses them), alternatives
(`firstAvailable`: of each resource the largest amount, as the driver may choose any), and `allocationMode: All` (as
many devices as the node with the most has).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds.device_selectors import Device, SelectorError, qualified, selector
from admission.model.errors import InvalidQuantity, Misconfigured
from admission.model.quantity import add, parse_quantity, to_amount, together
from admission.model.workload import ClaimReference, PodSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.kinds.limits import Amounts
    from admission.model.devices import DeviceClassMapping, DeviceRules, DeviceSource
    from admission.model.workload import Admission

CLAIMS: Final = "resourceclaims"
TEMPLATES: Final = "resourceclaimtemplates"
CLASSES: Final = "deviceclasses"
SLICES: Final = "resourceslices"
RESOURCES: Final = (CLASSES, SLICES, TEMPLATES, CLAIMS)
"""Plurals of `resource.k8s.io/v1` that the inventory needs."""
KINDS: Final = {
    CLAIMS: "ResourceClaim",
    TEMPLATES: "ResourceClaimTemplate",
    CLASSES: "DeviceClass",
    SLICES: "ResourceSlice",
}
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that each DeviceClass has by its name."""
MOST_COUNT: Final = 2**63 - 1
_REMEMBERED: Final = 4096
_REMEMBERED_OF_A_SLICE: Final = 256
_EVALUATIONS: Final = 5_000
"""Evaluations of expressions between two calls of `Inventory.refill`: a quarter of a second."""
_UNUSED: Final = Fraction(0)


class Claimed(NamedTuple):
    """A ResourceClaim or template of a namespace."""

    namespace: str
    reference: ClaimReference


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """What a change of the inventory affects."""

    claims: frozenset[Claimed] = frozenset()
    everything: bool = False
    """Whether every workload with devices may be affected."""


class _TooFewDevices(Misconfigured):
    """The cluster has too few devices for a request, at present."""


class Inventory:
    """What is known of DRA in the cluster, and the requests that follow from it.

    `unread` returns why objects of a plural cannot be read now; empty: they can.
    """

    def __init__(self, rules: DeviceRules, unread: Callable[[str], str] = lambda _: "") -> None:
        self.rules = rules
        self._unread = unread
        self._specs: dict[Claimed, Mapping[str, Any]] = {}
        self._classes: dict[str, Mapping[str, Any]] = {}
        self._slices: dict[str, _Slice] = {}
        self._pools: dict[str, list[_Slice]] | None = None
        self._budget = _EVALUATIONS
        """Number of evaluations of expressions that are left; negative: some wait for `refill`."""
        self._needs_slices = False
        """Whether requests have depended on which devices there are."""
        self._backed: dict[str, str] = {}
        self._known: dict[tuple[int, str], tuple[tuple[PodSet, ...], tuple[PodSet, ...]]] = {}
        """By id and namespace: pod sets without, and with their devices."""

    @property
    def is_on(self) -> bool:
        """Whether devices count at all."""
        return bool(self.rules.mappings)

    def refill(self) -> bool:
        """Let more expressions be evaluated, once in a second; return whether workloads wait for that."""
        waited, self._budget = self._budget <= 0, _EVALUATIONS
        return waited

    def backs(self, resource: str) -> bool:
        """Whether pods that request this extended resource get devices of a DeviceClass."""
        return self.is_on and (resource in self._backed or resource.startswith(IMPLICIT))

    def concerns(self, pod_sets: Iterable[PodSet]) -> bool:
        """Whether what pod sets request may depend on the inventory."""
        return any(each.claims or each.devices or any(map(self.backs, each.requests)) for each in pod_sets)

    # --- what the cluster has

    def update(self, plural: str, key: str, obj: Mapping[str, Any] | None) -> DeviceChange:
        """Process an object that was added or changed (None: deleted), and return what that affects."""
        match plural:
            case "deviceclasses":
                return self._update_class(key, obj)
            case "resourceslices":
                return self._update_slice(key, obj)
            case _:
                return self._update_claim(plural, key, obj)

    def _update_claim(self, plural: str, key: str, obj: Mapping[str, Any] | None) -> DeviceChange:
        namespace, _, name = key.partition("/")
        claimed = Claimed(namespace, ClaimReference(name, plural == TEMPLATES))
        spec: Mapping[str, Any] | None = None
        if obj is not None and not _is_made_for_pod(obj):
            spec = obj["spec"].get("spec") or {} if plural == TEMPLATES else obj["spec"]
        if self._specs.get(claimed) == spec:
            return DeviceChange()
        if spec is None:
            del self._specs[claimed]
        else:
            self._specs[claimed] = spec
        self._known.clear()
        return DeviceChange(frozenset((claimed,)))

    def _update_class(self, name: str, obj: Mapping[str, Any] | None) -> DeviceChange:
        if obj is None:
            self._classes.pop(name, None)
        else:
            known = {"metadata": {"name": name, "creationTimestamp": obj["metadata"].get("creationTimestamp") or ""}}
            known["spec"] = obj.get("spec") or {}
            if self._classes.get(name) == known:
                return DeviceChange()
            self._classes[name] = known
        self._backed = _backed(self._classes.values())
        self._known.clear()
        return DeviceChange(everything=True)

    def _update_slice(self, name: str, obj: Mapping[str, Any] | None) -> DeviceChange:
        former = self._slices.get(name)
        if obj is None:
            self._slices.pop(name, None)
        elif former is not None and former.spec == obj["spec"]:
            return DeviceChange()
        else:
            self._slices[name] = _Slice(obj["spec"])
        self._pools = None
        if not self._needs_slices:
            return DeviceChange()
        self._known.clear()
        return DeviceChange(everything=True)

    # --- what pods request

    def charged(self, pod_sets: tuple[PodSet, ...], namespace: str) -> tuple[PodSet, ...]:
        """Return pod sets with the devices that they request. Raises Misconfigured."""
        if not self.is_on:
            for pod_set in pod_sets:
                if pod_set.claims and not self.rules.ignore_unmapped:
                    raise Misconfigured(
                        f"pod set {pod_set.name} has resourceClaims, and the setting resources.deviceClassMappings "
                        "gives no DeviceClass a quota: request devices as an extended resource, or ask the admin for "
                        "a mapping"
                    )
            return pod_sets
        if not self.concerns(pod_sets):
            return pod_sets
        key = id(pod_sets), namespace
        known = self._known.get(key)
        if known is None or known[0] is not pod_sets:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = pod_sets, self._charged(pod_sets, namespace)
        return known[1]

    def more(self, pod_sets: tuple[PodSet, ...], namespace: str, admission: Admission) -> str:
        """Return of which resource the claims of pod sets now request more than an admission holds; empty: of none.

        A claim that is missing, or cannot be counted now, requests no more.
        """
        plain = tuple(replace(each, requests=each.beside_devices, devices={}, shared={}) for each in pod_sets)
        try:
            found = self._charged(plain, namespace)
        except Misconfigured:
            return ""
        held = {each.name: each for each in admission.pod_sets}
        for now, counted in zip(found, pod_sets, strict=True):
            grown = {name for name, amount in now.devices.items() if amount > counted.devices.get(name, 0)}
            grown |= {name for name, amount in now.shared.items() if amount > counted.shared.get(name, 0)}
            if grown and (assigned := held.get(now.name)) is not None:
                needed = together(now.devices, now.shared, assigned.count)
                # Of a workload that was taken over from Kueue only the admission shows what was counted.
                for name in sorted(grown):
                    if needed[name] > assigned.usage.get(name, 0):
                        return name
        return ""

    def _charged(self, pod_sets: tuple[PodSet, ...], namespace: str) -> tuple[PodSet, ...]:
        counted: set[ClaimReference] = set()
        found = []
        for pod_set in pod_sets:
            requests = dict(pod_set.requests)
            each_pod, together = self._extended(pod_set, requests), dict[str, Fraction]()
            for reference, number in Counter(pod_set.claims).items():
                if reference.is_template:
                    _add(each_pod, self._claim(Claimed(namespace, reference), pod_set), number)
                elif pod_set.count and reference not in counted:
                    counted.add(reference)
                    _add(together, self._claim(Claimed(namespace, reference), pod_set))
            devices = _amounts(each_pod)
            add(requests, devices)
            found.append(replace(pod_set, requests=requests, devices=devices, shared=_amounts(together)))
        return tuple(found)

    def _extended(self, pod_set: PodSet, requests: dict[str, int]) -> Amounts:
        """Move the extended resources that DeviceClasses back from the requests, and return what they count as."""
        found: Amounts = {}
        for resource in [*filter(self.backs, requests)]:
            name = self._backed.get(resource) or resource.removeprefix(IMPLICIT)
            mappings = self.rules.of(name)
            if any(mapping.sources for mapping in mappings):
                raise Misconfigured(
                    f"pod set {pod_set.name}: extended resource {resource} resolves to DeviceClass {name}, whose quota "
                    "has sources: request its devices by a ResourceClaimTemplate"
                )
            # Without a mapping the extended resource has quota under its own name, as in Kueue.
            _add(found, {(mappings[0].name if mappings else resource): Fraction(requests.pop(resource))})
        return found

    def _claim(self, claimed: Claimed, pod_set: PodSet) -> Amounts:
        """Return what a claim counts as. Raises Misconfigured."""
        plural = TEMPLATES if claimed.reference.is_template else CLAIMS
        what = f"{KINDS[plural]} {claimed.reference.name}"
        spec = self._specs.get(claimed)
        if spec is None:
            if why := self._unread(plural):
                raise Misconfigured(f"pod set {pod_set.name}: {what} cannot be read: {why}")
            raise Misconfigured(
                f"pod set {pod_set.name}: {what} does not exist in namespace {claimed.namespace}: create it, or "
                "correct the name"
            )
        total: Amounts = {}
        taken: set[int] = set()
        for number, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
            where = f"pod set {pod_set.name}: {what}: devices.requests[{number}]"
            alternatives = request.get("firstAvailable")
            try:
                if alternatives is None:
                    _add(total, self._request(request.get("exactly") or {}, f"{where}.exactly", taken))
                else:
                    _add(total, self._any_of(alternatives, f"{where}.firstAvailable"))
            except SelectorError as error:
                raise Misconfigured(f"{where}: {error}") from error
            except InvalidQuantity as error:
                raise Misconfigured(f"{where}: {error}") from error
        return total

    def _any_of(self, alternatives: Sequence[Mapping[str, Any]], where: str) -> Amounts:
        """Return, of each resource, the largest amount that an alternative requests. Those without devices are out."""
        largest: Amounts = {}
        lack: _TooFewDevices | None = None
        possible = 0
        for number, one in enumerate(alternatives):
            try:
                found = self._request(one, f"{where}[{number}]", set())
            except _TooFewDevices as error:
                lack = lack or error
                continue
            possible += 1
            for resource, amount in found.items():
                largest[resource] = max(largest.get(resource, _UNUSED), amount)
        if lack is not None and not possible:
            raise lack
        return largest

    def _request(self, request: Mapping[str, Any], where: str, taken: set[int]) -> Amounts:
        """Return what one request of a claim counts as. `taken`: ids of devices that earlier requests have."""
        if request.get("adminAccess"):
            return {}  # it monitors devices that others use
        name = request.get("deviceClassName") or ""
        mappings = self.rules.of(name)
        if not mappings:
            if self.rules.ignore_unmapped:
                return {}
            raise Misconfigured(
                f"{where}: DeviceClass {name} is not mapped in resources.deviceClassMappings: request another class, "
                "or ask the admin for a mapping"
            )
        mode = request.get("allocationMode") or "ExactCount"
        if mode not in ("ExactCount", "All"):
            raise Misconfigured(f"{where}.allocationMode: unsupported allocation mode: {mode}")
        count = request.get("count") or 1
        if type(count) is not int or not 0 < count <= MOST_COUNT:
            raise Misconfigured(f"{where}.count: must be greater than zero, but is {count}")
        wanted = _Wanted(where, name, None if mode == "All" else count, request, taken)
        found: Amounts = {}
        for mapping in mappings:
            _add(found, {mapping.name: self._amount(wanted, mapping)})
        return found

    def _amount(self, wanted: _Wanted, mapping: DeviceClassMapping) -> Fraction:
        """Return what a request counts as in the resource of a mapping."""
        if mapping.sources:
            return sum((self._from_source(wanted, source) for source in mapping.sources), start=_UNUSED)
        if wanted.count is None:
            return Fraction(wanted.most_on_a_node(self._matching(wanted)))
        if wanted.selectors:
            self._check_matching(wanted, wanted.count)
        return Fraction(wanted.count)

    def _check_matching(self, wanted: _Wanted, count: int) -> None:
        """Raise Misconfigured if fewer devices match the selectors of a request than it asks for."""
        matching = 0
        try:
            for device in self._matching(wanted):
                if id(device) not in wanted.taken:
                    wanted.taken.add(id(device))
                    matching += 1
                    if matching >= count:
                        return
        except SelectorError:
            return  # it does not decide the amount: whether devices match is for Kubernetes' scheduler to say
        raise _TooFewDevices(
            f"{wanted.where}.selectors: insufficient matching devices for CEL selector in DeviceClass "
            f"{wanted.device_class}: {matching} device(s) match in the cluster but {count} requested"
        )

    def _from_source(self, wanted: _Wanted, source: DeviceSource) -> Fraction:
        """Return the amount by a counter or capacity: the largest of all devices that match, for each device."""
        matching = [*self._matching(wanted, source)]
        count = wanted.most_on_a_node(matching) if wanted.count is None else wanted.count
        if len(matching) < count:
            kind = "capacity" if source.is_capacity else "counter"
            raise _TooFewDevices(
                f"{wanted.where}: insufficient matching devices for {kind} driver {source.driver}: {len(matching)} "
                f"device(s) match but {count} requested"
            )
        if source.is_capacity:
            return max(_capacities(matching, source, wanted)) * count
        values = [
            parse_quantity(counter["value"])
            for device in matching
            for counters in device.counters
            if (counter := counters.get(source.name)) is not None
        ]
        if not values:
            raise _TooFewDevices(
                f'{wanted.where}: matched devices have no consumesCounters entry for counter "{source.name}"'
            )
        return max(*values, _UNUSED) * count

    def _matching(self, wanted: _Wanted, source: DeviceSource | None = None) -> Iterator[Device]:
        """Yield the devices that match the class, the request, and the source."""
        self._needs_slices = True
        if why := self._unread(SLICES) or self._unread(CLASSES):
            raise Misconfigured(f"{wanted.where}: its devices cannot be read: {why}")
        device_class = self._classes.get(wanted.device_class)
        if device_class is None:
            raise Misconfigured(f"{wanted.where}: DeviceClass {wanted.device_class} does not exist: have it created")
        expressions = (
            *((source.selector,) if source is not None else ()),
            *_expressions(device_class["spec"].get("selectors")),
            *wanted.selectors,
        )
        if self._pools is None:
            self._pools = _pools(self._slices.values())
        drivers = self._pools.values() if source is None else (self._pools.get(source.driver, []),)
        for each in chain.from_iterable(drivers):
            if self._budget <= 0 and not each.knows(expressions):
                raise Misconfigured(f"{wanted.where}: its selectors are evaluated in a moment, after those of others")
            devices, evaluated = each.matching(expressions)
            self._budget -= evaluated
            yield from devices


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A request of a claim for devices of a class with a mapping."""

    where: str
    device_class: str
    count: int | None
    """None: all of a node that match."""
    request: Mapping[str, Any]
    taken: set[int]

    @property
    def selectors(self) -> tuple[str, ...]:
        return _expressions(self.request.get("selectors"))

    def most_on_a_node(self, devices: Iterable[Device]) -> int:
        """Return how many of these devices a node has at most. Raises Misconfigured if there are none."""
        by_node = Counter(device.node for device in devices)
        anywhere = by_node.pop("", 0)
        most = max(by_node.values(), default=0) + anywhere
        if not most:
            raise _TooFewDevices(
                f"{self.where}: allocationMode All: no device in the cluster matches DeviceClass {self.device_class}"
            )
        return most


class _Slice:
    """A ResourceSlice: devices of one driver's pool."""

    __slots__ = ("_devices", "_found", "driver", "generation", "pool", "slices", "spec")

    def __init__(self, spec: Mapping[str, Any]) -> None:
        pool = spec.get("pool") or {}
        self.spec = spec
        self.driver: str = spec.get("driver") or ""
        self.pool: str = pool.get("name") or ""
        self.generation: int = pool.get("generation") or 0
        self.slices: int = pool.get("resourceSliceCount") or 1
        self._devices: list[Device] | None = None
        self._found: dict[tuple[str, ...], list[Device]] = {}

    def knows(self, expressions: tuple[str, ...]) -> bool:
        """Whether these expressions were evaluated before."""
        return expressions in self._found

    def matching(self, expressions: tuple[str, ...]) -> tuple[list[Device], int]:
        """Return the devices that all expressions select, and how many were evaluated. Raises SelectorError."""
        found = self._found.get(expressions)
        evaluated = 0
        if found is None:
            if len(self._found) >= _REMEMBERED_OF_A_SLICE:
                self._found.clear()
            if self._devices is None:
                node = self.spec.get("nodeName") or ""
                try:
                    self._devices = [Device(self.driver, node, each) for each in self.spec.get("devices") or ()]
                except (ValueError, LookupError, TypeError, AttributeError) as error:
                    raise SelectorError(f"a ResourceSlice of driver {self.driver} is malformed: {error!r}") from error
            chosen = [selector(text) for text in expressions]
            evaluated = len(self._devices) * len(chosen)
            found = self._found[expressions] = [
                device for device in self._devices if all(one.matches(device) for one in chosen)
            ]
        return found, evaluated


def _pools(slices: Iterable[_Slice]) -> dict[str, list[_Slice]]:
    """Return by driver the slices of the pools that are complete, each in its newest generation."""
    newest: dict[tuple[str, str], list[_Slice]] = {}
    for each in slices:
        known = newest.setdefault((each.driver, each.pool), [])
        if known and known[0].generation < each.generation:
            known.clear()
        if not known or known[0].generation == each.generation:
            known.append(each)
    found: dict[str, list[_Slice]] = {}
    for (driver, _), pool in newest.items():
        if len(pool) == pool[0].slices:
            found.setdefault(driver, []).extend(pool)
    return found


def _backed(classes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the DeviceClass of each extended resource: of several the last that was created, then the first by name.

    So the field's documentation in Kubernetes says.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for each in sorted(classes, key=lambda each: str(each["metadata"]["name"]), reverse=True):
        resource = each["spec"].get("extendedResourceName")
        if resource and (
            resource not in found
            or each["metadata"]["creationTimestamp"] >= found[resource]["metadata"]["creationTimestamp"]
        ):
            found[resource] = each
    return {resource: each["metadata"]["name"] for resource, each in found.items()}


def _capacities(devices: Iterable[Device], source: DeviceSource, wanted: _Wanted) -> list[Fraction]:
    """Return what a request takes of the capacity of each device that has it and permits the request."""
    name = qualified(source.name, source.driver)
    requests = (wanted.request.get("capacity") or {}).get("requests") or {}
    asked = {qualified(each, source.driver): amount for each, amount in requests.items()}.get(name)
    dimensions = [device.capacity[name] for device in devices if name in device.capacity]
    if not dimensions:
        raise _TooFewDevices(f'{wanted.where}: matched devices have no capacity dimension "{name}"')
    found = [amount for each in dimensions if (amount := _consumed(each, asked)) is not None]
    if not found:
        raise _TooFewDevices(
            f"{wanted.where}: capacity request cannot be satisfied by any matched device's RequestPolicy for dimension "
            f'"{name}"'
        )
    return found


def _consumed(dimension: Mapping[str, Any], asked: str | None) -> Fraction | None:
    """Return what a request takes of a device's capacity, rounded up by its requestPolicy; None: more than permitted.

    `asked`: the amount that the request names; without one the policy's default counts, or all of it.
    """
    policy = dimension.get("requestPolicy") or {}
    wanted = asked if asked is not None else policy.get("default", dimension["value"])
    amount = max(parse_quantity(wanted), _UNUSED)
    if values := policy.get("validValues"):
        return min((value for each in values if (value := parse_quantity(each)) >= amount), default=None)
    if valid := policy.get("validRange"):
        least = parse_quantity(valid["min"]) if valid.get("min") is not None else None
        if least is not None:
            amount = max(amount, least)
            step = parse_quantity(valid["step"]) if valid.get("step") is not None else _UNUSED
            if step > 0:
                amount = least + -((least - amount) // step) * step
        if valid.get("max") is not None and amount > parse_quantity(valid["max"]):
            return None
    return amount


def _expressions(selectors: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
    return tuple(each["cel"]["expression"] for each in selectors or () if each.get("cel"))


def _is_made_for_pod(claim: Mapping[str, Any]) -> bool:
    """Whether a claim was made from a template, for one pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") == "Pod" for owner in owners)


def _add(total: Amounts, more: Mapping[str, Fraction], number: int = 1) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, _UNUSED) + amount * number


def _amounts(found: Amounts) -> dict[str, int]:
    return {resource: to_amount(resource, amount) for resource, amount in found.items()}
