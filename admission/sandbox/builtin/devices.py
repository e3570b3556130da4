"""Strategies for resource.k8s.io/v1: DeviceClasses, ResourceClaims, their templates, and ResourceSlices."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from admission.model.errors import InvalidQuantity
from admission.model.quantity import parse_quantity
from admission.sandbox.apiserver.cel import CelError, compile_expression
from admission.sandbox.apiserver.errors import Cause, duplicate, forbidden, invalid, required, unsupported
from admission.sandbox.apiserver.metadata import key_fault, label_fault, subdomain_fault
from admission.sandbox.apiserver.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

# Maximum sizes of lists: DeviceRequestsMaxSize and its siblings.
_MOST_REQUESTS = _MOST_SELECTORS = _MOST_CONSTRAINTS = 32
_MOST_ALTERNATIVES = 8
_MOST_DEVICES = 128
_LONGEST_EXPRESSION = 10 * 1024
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_ADMIN_TEXT = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
_IMMUTABLE = "field is immutable"
_NODES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_IDENTIFIER = re.compile(r"([a-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


class DeviceClasses(Strategy):
    """Strategy for DeviceClass."""

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        causes = [*_selectors(spec.get("selectors") or (), "spec.selectors")]
        name = spec.get("extendedResourceName")
        if name is not None and (
            "/" not in name or key_fault(name) or name.partition("/")[0].endswith("kubernetes.io")
        ):
            causes.append(invalid("spec.extendedResourceName", name, "must be a valid extended resource name"))
        return causes

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)


class ResourceClaims(Strategy):
    """Strategy for ResourceClaim."""

    has_generation = False
    returns_deleted = True

    def default(self, obj: Object) -> None:
        _default(obj["spec"])

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        return [*_claim(registry, obj, obj["spec"], "spec")]

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return _unchanged(new["spec"], old["spec"], "spec")


class ResourceClaimTemplates(Strategy):
    """Strategy for ResourceClaimTemplate."""

    has_generation = False
    returns_deleted = True

    def default(self, obj: Object) -> None:
        if "spec" in obj["spec"]:
            _default(obj["spec"]["spec"])

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        return [*_claim(registry, obj, obj["spec"].get("spec") or {}, "spec.spec")]

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return _unchanged(new["spec"], old["spec"], "spec")


class ResourceSlices(Strategy):
    """Strategy for ResourceSlice."""

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec, causes = obj["spec"], []
        if fault := subdomain_fault(spec.get("driver", "")):
            causes.append(invalid("spec.driver", spec.get("driver", ""), fault))
        pool = spec.get("pool") or {}
        if not pool.get("name"):
            causes.append(required("spec.pool.name"))
        if pool.get("resourceSliceCount", 0) <= 0:
            text = "must be greater than zero"
            causes.append(invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), text))
        if sum(bool(spec.get(field)) for field in _NODES) != 1:
            named = ", ".join(f"`{field}`" for field in _NODES)
            causes.append(required("spec", f"exactly one of {named} is required"))
        devices = spec.get("devices") or []
        causes += _size(devices, _MOST_DEVICES, "spec.devices")
        for index, device in enumerate(devices):
            causes += _device(device, f"spec.devices[{index}]")
        return [*causes, *_repeated([each.get("name", "") for each in devices], "spec.devices")]

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        fixed = [
            invalid(f"spec.{path}", now, _IMMUTABLE)
            for path, now, had in (
                ("driver", new["spec"].get("driver"), old["spec"].get("driver")),
                ("pool.name", new["spec"]["pool"].get("name"), old["spec"]["pool"].get("name")),
                ("nodeName", new["spec"].get("nodeName"), old["spec"].get("nodeName")),
            )
            if now != had
        ]
        return fixed or self.validate_create(registry, new)


def _requests(spec: Object) -> list[Object]:
    return (spec.get("devices") or {}).get("requests") or []


def _default(spec: Object) -> None:
    """Set the defaults of a claim: exactly one device."""
    for request in _requests(spec):
        for each in filter(None, (request.get("exactly"), *(request.get("firstAvailable") or ()))):
            if not each.get("allocationMode"):
                each["allocationMode"] = "ExactCount"
            if each["allocationMode"] == "ExactCount" and not each.get("count"):
                each["count"] = 1


def _claim(registry: ObjectRegistry, obj: Object, spec: Object, path: str) -> Iterator[Cause]:
    requests = _requests(spec)
    yield from _size(requests, _MOST_REQUESTS, f"{path}.devices.requests")
    yield from _size(
        (spec.get("devices") or {}).get("constraints") or (), _MOST_CONSTRAINTS, f"{path}.devices.constraints"
    )
    for index, request in enumerate(requests):
        yield from _request(request, f"{path}.devices.requests[{index}]")
    yield from _repeated([each.get("name", "") for each in requests], f"{path}.devices.requests")
    if any((each.get("exactly") or {}).get("adminAccess") for each in requests):
        namespace = registry.find("", "namespaces", "", obj["metadata"].get("namespace", ""))
        labels = {} if namespace is None else namespace["metadata"].get("labels") or {}
        if labels.get(_ADMIN_LABEL) != "true":
            yield forbidden(f"{path}.devices.requests", _ADMIN_TEXT)


def _request(request: Object, path: str) -> Iterator[Cause]:
    yield from _label(request.get("name", ""), f"{path}.name")
    alternatives, exactly = request.get("firstAvailable"), request.get("exactly")
    if alternatives and exactly is not None:
        text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        yield invalid(path, None, text)
    elif alternatives:
        yield from _size(alternatives, _MOST_ALTERNATIVES, f"{path}.firstAvailable")
        for index, each in enumerate(alternatives):
            yield from _label(each.get("name", ""), f"{path}.firstAvailable[{index}].name")
            yield from _wanted(each, f"{path}.firstAvailable[{index}]")
    elif exactly is not None:
        yield from _wanted(exactly, f"{path}.exactly")
    else:
        yield required(path, "exactly one of `exactly` or `firstAvailable` is required")


def _wanted(request: Object, path: str) -> Iterator[Cause]:
    name, mode, count = request.get("deviceClassName", ""), request.get("allocationMode"), request.get("count", 0)
    if not name:
        yield required(f"{path}.deviceClassName")
    elif fault := subdomain_fault(name):
        yield invalid(f"{path}.deviceClassName", name, fault)
    yield from _selectors(request.get("selectors") or (), f"{path}.selectors")
    if mode == "All" and count:
        yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{path}.count", count, "must be greater than zero")
    elif mode not in ("All", "ExactCount"):
        yield unsupported(f"{path}.allocationMode", mode, ("All", "ExactCount"))


def _selectors(selectors: Sequence[Object], path: str) -> Iterator[Cause]:
    yield from _size(selectors, _MOST_SELECTORS, path)
    for index, each in enumerate(selectors):
        expression = (each.get("cel") or {}).get("expression", "")
        at = f"{path}[{index}].cel.expression"
        if not expression:
            yield required(at)
        elif len(expression) > _LONGEST_EXPRESSION:
            yield Cause("FieldValueTooLong", at, f"Too long: may not be more than {_LONGEST_EXPRESSION} bytes")
        else:
            try:
                compile_expression(expression, ("device",))
            except CelError as error:
                yield invalid(at, expression, str(error))


def _device(device: Object, path: str) -> Iterator[Cause]:
    yield from _label(device.get("name", ""), f"{path}.name")
    for name, value in (device.get("attributes") or {}).items():
        at = f"{path}.attributes[{name}]"
        if not _IDENTIFIER.fullmatch(name):
            yield invalid(
                f"{path}.attributes", name, "a valid C identifier must start with alphabetic character or '_'"
            )
        if len(value) != 1:
            yield invalid(at, value, "exactly one value must be specified")
    quantities: list[tuple[str, Any]] = [
        (f"{path}.capacity[{name}]", value) for name, value in (device.get("capacity") or {}).items()
    ]
    quantities += chain.from_iterable(
        ((f"{path}.consumesCounters[{index}].counters[{name}]", value) for name, value in each["counters"].items())
        for index, each in enumerate(device.get("consumesCounters") or ())
    )
    for at, value in quantities:
        try:
            parse_quantity(value.get("value"))
        except InvalidQuantity as error:
            yield invalid(f"{at}.value", value.get("value"), str(error))


def _label(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
    elif fault := label_fault(name):
        yield invalid(path, name, fault)


def _size(items: Sequence[object], most: int, path: str) -> Iterator[Cause]:
    if len(items) > most:
        yield Cause("FieldValueTooMany", path, f"Too many: {len(items)}: must have at most {most} items")


def _repeated(names: list[str], path: str) -> Iterator[Cause]:
    for index, name in enumerate(names):
        if name and name in names[:index]:
            yield duplicate(f"{path}[{index}].name", name)


def _unchanged(new: Object, old: Object, path: str) -> list[Cause]:
    return [] if new == old else [invalid(path, new, _IMMUTABLE)]
