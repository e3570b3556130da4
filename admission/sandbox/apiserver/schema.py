"""Schemas of built-in kinds, read from the client library's generated models, and decoding by them.

Decoding drops `null`, unknown fields (collected for the client) and fields that Go omits when empty, and rejects
values of a wrong type. It works in place, on objects that the caller owns; parts that are identical (`is`) to those
of an earlier, decoded version are skipped, so that a patch costs only what it changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from kubernetes_asyncio.client import models

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")

# Fields without omitempty, by model, with their zero value: they are serialised even when empty.
_ALWAYS: dict[str, dict[str, Any]] = {
    "V1JobCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "V1PodCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "V1NodeCondition": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "V1Container": {"resources": {}},
    "CoreV1Event": {
        "source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None,
        "reportingComponent": "", "reportingInstance": "",
    },
    "V1EphemeralContainer": {"resources": {}},
    "V1ContainerStatus": {"lastState": {}, "state": {}, "image": "", "imageID": "", "ready": False, "restartCount": 0},
    "V1ContainerStateRunning": {"startedAt": None},
    "V1ContainerStateTerminated": {"exitCode": 0, "startedAt": None, "finishedAt": None},
    "V1JobSpec": {"template": {}},
    "V1Job": {"spec": {}, "status": {}},
    "V1Pod": {"spec": {}, "status": {}},
    "V1Node": {"spec": {}, "status": {}},
    "V1Namespace": {"spec": {}, "status": {}},
    "V1CronJob": {"spec": {}, "status": {}},
    "V1Deployment": {"spec": {}, "status": {}},
    "V1DeploymentSpec": {"template": {}, "strategy": {}},
    "V1ReplicaSet": {"spec": {}, "status": {}},
    "V1ReplicaSetSpec": {"template": {}},
    "V1ReplicaSetStatus": {"replicas": 0},
    "V1StatefulSet": {"spec": {}, "status": {}},
    "V1StatefulSetSpec": {"template": {}, "updateStrategy": {}},
    "V1StatefulSetStatus": {"replicas": 0, "availableReplicas": 0},
    "V1PodTemplateSpec": {"metadata": {}, "spec": {}},
    "V1JobTemplateSpec": {"metadata": {}, "spec": {}},
    "V1Lease": {"spec": {}},
}  # fmt: skip
# Numbers and booleans with omitempty, by model. All others keep zero: they are pointers in Go, or without omitempty.
_OMIT_ZERO = {
    "V1JobStatus": {"active", "succeeded", "failed"},
    "V1DeploymentSpec": {"minReadySeconds", "paused"},
    "V1DeploymentStatus": {
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "observedGeneration",
    },
    "V1ReplicaSetSpec": {"minReadySeconds"},
    "V1ReplicaSetStatus": {"fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"},
    "V1StatefulSetSpec": {"minReadySeconds"},
    "V1StatefulSetStatus": {"readyReplicas", "currentReplicas", "updatedReplicas", "observedGeneration"},
    "V1PodSpec": {"hostNetwork", "hostPID", "hostIPC"},
    "V1Container": {"stdin", "stdinOnce", "tty"},
    "V1ContainerPort": {"hostPort"},
    "V1VolumeMount": {"readOnly"},
    "V1Node": {"unschedulable"},
    "V1NodeSpec": {"unschedulable"},
    "V1ObjectMeta": {"generation"},
    "CoreV1Event": {"count"},
    "V1PriorityClass": {"globalDefault"},
}
_QUANTITY_MAPS = {"limits", "requests", "capacity", "allocatable", "hard", "used", "default", "defaultRequest",
                  "max", "min", "maxLimitRequestRatio", "overhead", "podFixed", "allocatedResources"}  # fmt: skip
_QUANTITIES = {"sizeLimit", "divisor"}
# String fields that are kept when empty, because they are pointers in Go.
_KEEP_EMPTY = {"V1LeaseSpec": {"holderIdentity"}, "V1JobStatus": {"failedIndexes"}, "V1JobSpec": {"managedBy"}}
# patchMergeKey of the lists that a strategic merge patch merges, by model and field; an empty key merges values as a
# set. All other lists are replaced.
MERGE_KEYS = {
    ("V1PodSpec", "containers"): "name",
    ("V1PodSpec", "initContainers"): "name",
    ("V1PodSpec", "ephemeralContainers"): "name",
    ("V1PodSpec", "volumes"): "name",
    ("V1PodSpec", "imagePullSecrets"): "name",
    ("V1PodSpec", "hostAliases"): "ip",
    ("V1PodSpec", "schedulingGates"): "name",
    ("V1PodSpec", "resourceClaims"): "name",
    ("V1PodSpec", "topologySpreadConstraints"): "topologyKey",
    ("V1Container", "env"): "name",
    ("V1Container", "ports"): "containerPort",
    ("V1Container", "volumeMounts"): "mountPath",
    ("V1Container", "volumeDevices"): "devicePath",
    ("V1PodStatus", "conditions"): "type",
    ("V1JobStatus", "conditions"): "type",
    ("V1NodeStatus", "conditions"): "type",
    ("V1NodeStatus", "addresses"): "type",
    ("V1NamespaceStatus", "conditions"): "type",
    ("V1DeploymentStatus", "conditions"): "type",
    ("V1NodeSpec", "taints"): "key",
    ("V1ObjectMeta", "ownerReferences"): "uid",
    ("V1ObjectMeta", "finalizers"): "",
    ("V1ServiceAccount", "secrets"): "name",
    ("V1ServiceAccount", "imagePullSecrets"): "name",
    ("V1MutatingWebhookConfiguration", "webhooks"): "name",
    ("V1ValidatingWebhookConfiguration", "webhooks"): "name",
}
# Models that are treated as free-form JSON; they refer to themselves.
_OPAQUE = {"V1JSONSchemaProps"}
_MICRO_TIMES = {("V1LeaseSpec", "acquireTime"), ("V1LeaseSpec", "renewTime"), ("EventsV1Event", "eventTime"),
                ("CoreV1Event", "eventTime"), ("CoreV1EventSeries", "lastObservedTime"),
                ("EventsV1EventSeries", "lastObservedTime")}  # fmt: skip
_BYTES = {("V1APIServiceSpec", "caBundle")}
_SECRET_MAPS = {"V1Secret": {"data"}, "V1ConfigMap": {"binaryData"}}


class DecodeError(SluiceError):
    """A value of a wrong type. `path` is the field's, such as `.spec.parallelism`."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(f"{path.removeprefix('.')}: {message}")


class Type(Protocol):
    """Decoder of one type. `old` is the value in the earlier version, or None."""

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any: ...


@dataclass(slots=True, eq=False)
class Scalar:
    """A scalar; `accepts` are the Python types, `form` the pattern of a string."""

    name: str
    accepts: tuple[type, ...]
    form: re.Pattern[str] | None = None

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
        if type(value) not in self.accepts:
            raise DecodeError(path, f"cannot unmarshal {_json_type(value)} into Go value of type {self.name}")
        if self.form is not None and type(value) is str and not self.form.fullmatch(value):
            raise DecodeError(path, f'unable to parse "{value}" as {self.name}')
        return value


@dataclass(slots=True, eq=False)
class QuantityType:
    """A quantity: numbers become strings, strings their canonical form."""

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
        text = str(value) if type(value) in (int, float) else value
        if type(text) is not str or not _QUANTITY.fullmatch(text):
            raise DecodeError(
                path, "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        return canonical_quantity(text)


@dataclass(slots=True, eq=False)
class Anything:
    """Free-form JSON."""

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
        return value


@dataclass(slots=True, eq=False)
class ListOf:
    """A list; the enclosing struct omits it if empty."""

    item: Type

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise DecodeError(path, f"cannot unmarshal {_json_type(value)} into Go value of type []")
        before = old if type(old) is list else ()
        for index, item in enumerate(value):
            earlier = before[index] if index < len(before) else None
            if item is not earlier or item is None:
                decoded = {} if item is None else item
                value[index] = self.item.decode(decoded, earlier, f"{path}[{index}]", unknown)
        return value


@dataclass(slots=True, eq=False)
class MapOf:
    """A map with arbitrary keys."""

    item: Type

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise DecodeError(path, f"cannot unmarshal {_json_type(value)} into Go value of type map")
        for key, item in value.items():
            if item is None:
                item = ""
            value[key] = self.item.decode(item, None, f"{path}.{key}", unknown)
        return value


@dataclass(slots=True, eq=False)
class Struct:
    """An object with declared fields."""

    name: str
    fields: dict[str, Type] = field(default_factory=dict)
    always: dict[str, Any] = field(default_factory=dict)
    omit_zero: frozenset[str] = frozenset()
    keep_empty: frozenset[str] = frozenset()
    merge_keys: dict[str, str] = field(default_factory=dict)

    def decode(self, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise DecodeError(path, f"cannot unmarshal {_json_type(value)} into Go value of type {self.name}")
        before = old if type(old) is dict else {}
        fields = self.fields
        for key in tuple(value):
            item = value[key]
            known = fields.get(key)
            if known is None:
                unknown.append(f"{path}.{key}".removeprefix("."))
                del value[key]
            elif item is None:
                del value[key]
            else:
                earlier = before.get(key)
                if item is not earlier or type(item) in (str, int, bool):
                    item = known.decode(item, earlier, f"{path}.{key}", unknown)
                    if self._is_empty(key, known, item):
                        del value[key]
                    else:
                        value[key] = item
        for key, empty in self.always.items():
            if key not in value:
                value[key] = fields[key].decode({}, None, path, unknown) if empty == {} else empty
        return value

    def _is_empty(self, key: str, known: Type, item: Any) -> bool:
        if item or key in self.keep_empty:
            return False
        if type(known) is Scalar:
            return item == "" if type(item) is str else key in self.omit_zero
        return type(known) is ListOf or type(known) is MapOf


class SchemaFields(Protocol):
    """Schema of one kind, built-in or custom."""

    def decode(self, obj: Object, old: Object | None, unknown: list[str]) -> Object:
        """Decode in place; paths of dropped fields are added to `unknown`. Raises DecodeError."""

    def parse(self, obj: Object, unknown: list[str]) -> Object:
        """Decode an apply configuration, which is a part of an object, without filling in defaults."""

    def struct(self) -> Struct:
        """Return the fields with the merge keys of lists, for strategic merge patch and server-side apply."""


class Schema:
    """Schema of a built-in kind; `model` is its class in the client library, for example `V1Job`."""

    def __init__(self, model: str) -> None:
        self.model = model

    def decode(self, obj: Object, old: Object | None, unknown: list[str]) -> Object:
        """Decode in place; paths of dropped fields are added to `unknown`. Raises DecodeError."""
        decoded: Object = struct_of(self.model).decode(obj, old, "", unknown)
        return decoded

    def parse(self, obj: Object, unknown: list[str]) -> Object:
        """Decode as `decode` does: the defaults of built-in kinds are not part of their schema."""
        return self.decode(obj, None, unknown)

    def struct(self) -> Struct:
        """Return the fields with the merge keys of lists, for strategic merge patch and server-side apply."""
        return struct_of(self.model)


_SCALARS: dict[str, Type] = {
    "str": Scalar("string", (str,)),
    "int": Scalar("int64", (int,)),
    "bool": Scalar("bool", (bool,)),
    "float": Scalar("float64", (int, float)),
    "datetime": Scalar("time", (str,), _TIME),
    "object": Anything(),
    "bytearray": Scalar("[]byte", (str,)),
    "file": Scalar("[]byte", (str,)),
}
_QUANTITY_TYPE = QuantityType()
_MICRO = Scalar("microtime", (str,), _MICRO_TIME)
_BASE64 = Scalar("[]byte", (str,), re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"))


_OF_OTHER_RELEASES = {"V1JobSpec": ("scheduling",), "V1PodSpec": ("workloadRef",)}
"""Fields that the client library lacks: of Jobs in Kubernetes 1.37, of pods in 1.35, removed since."""


@cache
def struct_of(model: str) -> Struct:
    """Return the fields of a model of the client library, for example `V1Job`."""
    found = getattr(models, model)
    struct = Struct(
        model, always=_ALWAYS.get(model, {}), omit_zero=frozenset(_OMIT_ZERO.get(model, ())),
        keep_empty=frozenset(_KEEP_EMPTY.get(model, ())) | _ALWAYS.get(model, {}).keys(),
    )  # fmt: skip
    struct.merge_keys = {key: by for (owner, key), by in MERGE_KEYS.items() if owner == model}
    _pending[model] = struct
    try:
        for attribute, key in found.attribute_map.items():
            struct.fields[key] = _type_of(model, key, found.openapi_types[attribute])
        struct.fields |= dict.fromkeys(_OF_OTHER_RELEASES.get(model, ()), Anything())
    finally:
        del _pending[model]
    return struct


_pending: dict[str, Struct] = {}  # structs under construction, for models that contain themselves


def _type_of(model: str, key: str, declared: str) -> Type:
    if (model, key) in _MICRO_TIMES:
        return _MICRO
    if declared == "dict(str, str)" and key in _QUANTITY_MAPS:
        return MapOf(_QUANTITY_TYPE)
    if declared == "dict(str, str)" and key in _SECRET_MAPS.get(model, ()):
        return MapOf(_BASE64)
    if (model, key) in _BYTES:
        return _BASE64
    if declared == "str" and key in _QUANTITIES:
        return _QUANTITY_TYPE
    if declared in _SCALARS:
        return _SCALARS[declared]
    if declared.startswith("list["):
        return ListOf(_type_of(model, "", declared[5:-1]))
    if declared.startswith("dict("):
        return MapOf(_type_of(model, "", declared[declared.index(",") + 1 : -1].strip()))
    if declared in _OPAQUE:
        return Anything()
    return _pending.get(declared) or struct_of(declared)


def _json_type(value: Any) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), ((int, float), "number"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "null"


_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_CANONICAL = re.compile(r"[1-9]\d{0,2}(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?|0")


@cache
def canonical_quantity(text: str) -> str:
    """Return the canonical form of a quantity: no fraction, the largest suffix that keeps it an integer."""
    if _CANONICAL.fullmatch(text):
        return text
    match = re.fullmatch(r"([+-]?)(\d*)\.?(\d*)([A-Za-z]*[+-]?\d*)", text)
    assert match is not None, text
    sign, whole, fraction, suffix = match.groups()
    exponent = re.fullmatch(r"[eE]([+-]?\d+)", suffix)
    if suffix in _BINARY and suffix:
        return _binary_form(sign, whole, fraction, suffix)
    power = int(exponent[1]) if exponent else 3 * (_DECIMAL.index(suffix) - 3)
    digits, power = int((whole + fraction) or "0"), power - len(fraction)
    if digits == 0:
        return "0"
    while digits % 10 == 0:
        digits, power = digits // 10, power + 1
    if power < -9:
        digits, power = -(-digits // 10 ** (-9 - power)), -9
    step = power // 3 * 3
    digits *= 10 ** (power - step)
    number = f"{'-' if sign == '-' else ''}{digits}"
    if exponent:
        return f"{number}e{step}" if step else number
    return number + _DECIMAL[min(step // 3 + 3, 9)]


def _binary_form(sign: str, whole: str, fraction: str, suffix: str) -> str:
    scale = 1024 ** _BINARY.index(suffix)
    units = -(-int((whole + fraction) or "0") * scale // 10 ** len(fraction))
    level = 0
    while units and units % 1024 == 0 and level < len(_BINARY) - 1:
        units, level = units // 1024, level + 1
    return f"{'-' if sign == '-' else ''}{units}{_BINARY[level]}"
