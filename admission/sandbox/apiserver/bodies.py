"""Decoding of request bodies: JSON, YAML or protobuf."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from admission.sandbox.apiserver.errors import ApiError, bad_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.apiserver.objects import Object


# Bytes; a larger body gets 413. The value of kube-apiserver (MaxRequestBodyBytes).
MAX_BODY_BYTES = 3 * 1024 * 1024
_JSON, _YAML, _PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header without its parameters, in lower case."""
    return header.partition(";")[0].strip().lower()


def decode(raw: bytes, content_type: str, kind: str) -> Any:
    """Return the value in a body; `kind` is for error messages. Raises ApiError: 400 (malformed), 415 (media type)."""
    if not raw:
        raise _unrecognised(kind, "unexpected end of JSON input (<empty>)")
    if content_type == _YAML or content_type.endswith("+yaml"):
        if raw.lstrip()[:1] == b"{":  # JSON, as kubectl and Helm send it for server-side apply
            with suppress(orjson.JSONDecodeError):
                return orjson.loads(raw)
        try:
            return yaml.load(raw, Loader=_YamlLoader)  # noqa: S506 - a safe loader, see below
        except yaml.YAMLError as error:
            raise bad_request(f"error converting YAML to JSON: {error}") from error
    if content_type == _PROTOBUF:
        return _decode_protobuf(raw)
    if content_type not in ("", _JSON) and not content_type.endswith("+json"):
        accepted = "application/json, application/yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiError(415, "UnsupportedMediaType", text)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _unrecognised(kind, str(error)) from error


def decode_object(raw: bytes, content_type: str, kind: str) -> Object:
    """Return the JSON object in a body. Raises ApiError: 400 (malformed, no object), 415 (media type)."""
    value = decode(raw, content_type, kind)
    if not isinstance(value, dict):
        raise _unrecognised(kind, "the body is no JSON object")
    return value


def _unrecognised(kind: str, why: str) -> ApiError:
    text = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind"
    return bad_request(f"{text}; json parse error: {why}")


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, if PyYAML was built with libyaml


class _YamlLoader(_Base):  # type: ignore[misc]
    """Safe YAML loader that leaves timestamps strings, as sigs.k8s.io/yaml does."""


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_MAGIC = b"k8s\x00"

# Of the kinds that `kubectl create job` and similar commands send as protobuf: fields by message, with number, name and
# type, as in the API's published .proto files. A type is str, int, bool, bytes or a message; the prefix `[]` makes it a
# repeated field, `{}` a map with string keys. Another field is rejected with 415, never dropped.
_MESSAGES: dict[str, str] = {
    "ObjectMeta": "1 name str, 2 generateName str, 3 namespace str, 4 selfLink str, 5 uid str, 6 resourceVersion "
    "str, 7 generation int, 8 creationTimestamp Time, 11 labels {}str, 12 annotations {}str, 13 ownerReferences "
    "[]OwnerReference, 14 finalizers []str",
    "OwnerReference": "1 kind str, 3 name str, 4 uid str, 5 apiVersion str, 6 controller bool, 7 "
    "blockOwnerDeletion bool",
    "Namespace": "1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status Empty",
    "NamespaceSpec": "1 finalizers []str",
    "ConfigMap": "1 metadata ObjectMeta, 2 data {}str, 3 binaryData {}bytes, 4 immutable bool",
    "Secret": "1 metadata ObjectMeta, 2 data {}bytes, 3 type str, 4 stringData {}str, 5 immutable bool",
    "ServiceAccount": "1 metadata ObjectMeta",
    "PriorityClass": "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description str, 5 "
    "preemptionPolicy str",
    "Job": "1 metadata ObjectMeta, 2 spec JobSpec, 3 status Empty",
    "JobSpec": "1 parallelism int, 2 completions int, 3 activeDeadlineSeconds int, 4 selector LabelSelector, "
    "5 manualSelector bool, 6 template PodTemplateSpec, 7 backoffLimit int, 8 ttlSecondsAfterFinished int, "
    "9 completionMode str, 10 suspend bool, 12 backoffLimitPerIndex int, 13 maxFailedIndexes int, "
    "14 podReplacementPolicy str, 15 managedBy str",
    "CronJob": "1 metadata ObjectMeta, 2 spec CronJobSpec, 3 status Empty",
    "CronJobSpec": "1 schedule str, 2 startingDeadlineSeconds int, 3 concurrencyPolicy str, 4 suspend bool, "
    "5 jobTemplate JobTemplateSpec, 6 successfulJobsHistoryLimit int, 7 failedJobsHistoryLimit int, 8 timeZone str",
    "JobTemplateSpec": "1 metadata ObjectMeta, 2 spec JobSpec",
    "Deployment": "1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status Empty",
    "DeploymentSpec": "1 replicas int, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy "
    "DeploymentStrategy, 5 minReadySeconds int, 6 revisionHistoryLimit int, 7 paused bool, "
    "9 progressDeadlineSeconds int",
    "DeploymentStrategy": "1 type str",
    "LabelSelector": "1 matchLabels {}str",
    "PodTemplateSpec": "1 metadata ObjectMeta, 2 spec PodSpec",
    "PodSpec": "2 containers []Container, 3 restartPolicy str, 4 terminationGracePeriodSeconds int, "
    "5 activeDeadlineSeconds int, 6 dnsPolicy str, 7 nodeSelector {}str, 8 serviceAccountName str, 9 "
    "serviceAccount str, 10 nodeName str, 11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool, 14 "
    "securityContext Empty, 16 hostname str, 17 subdomain str, 19 schedulerName str, 20 initContainers "
    "[]Container, 22 tolerations []Toleration, 24 priorityClassName str, 25 priority int, 30 enableServiceLinks "
    "bool, 31 preemptionPolicy str, 38 schedulingGates []Named",
    "Container": "1 name str, 2 image str, 3 command []str, 4 args []str, 5 workingDir str, 6 ports []ContainerPort, "
    "7 env []EnvVar, 8 resources ResourceRequirements, 13 terminationMessagePath str, 14 imagePullPolicy str, "
    "16 stdin bool, 17 stdinOnce bool, 18 tty bool, 20 terminationMessagePolicy str, 24 restartPolicy str",
    "ContainerPort": "1 name str, 2 hostPort int, 3 containerPort int, 4 protocol str, 5 hostIP str",
    "EnvVar": "1 name str, 2 value str",
    "ResourceRequirements": "1 limits {}Quantity, 2 requests {}Quantity",
    "Quantity": "1 string str",
    "Toleration": "1 key str, 2 operator str, 3 value str, 4 effect str, 5 tolerationSeconds int",
    "Named": "1 name str",
    "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions",
    "DeleteOptions": "1 gracePeriodSeconds int, 2 preconditions Preconditions, 3 orphanDependents bool, "
    "4 propagationPolicy str, 5 dryRun []str",
    "Preconditions": "1 uid str, 2 resourceVersion str",
    "TokenRequest": "1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status Empty",
    "TokenRequestSpec": "1 audiences []str, 4 expirationSeconds int",
    "SelfSubjectReview": "1 metadata ObjectMeta, 2 status Empty",
    "SelfSubjectRulesReview": "1 metadata ObjectMeta, 2 spec RulesSpec, 3 status Empty",
    "RulesSpec": "1 namespace str",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessSpec, 3 status Empty",
    "AccessSpec": "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes",
    "ResourceAttributes": "1 namespace str, 2 verb str, 3 group str, 4 version str, 5 resource str, 6 "
    "subresource str, 7 name str",
    "NonResourceAttributes": "1 path str, 2 verb str",
    "Role": "1 metadata ObjectMeta, 2 rules []PolicyRule",
    "ClusterRole": "1 metadata ObjectMeta, 2 rules []PolicyRule, 3 aggregationRule AggregationRule",
    "PolicyRule": "1 verbs []str, 2 apiGroups []str, 3 resources []str, 4 resourceNames []str, 5 nonResourceURLs []str",
    "AggregationRule": "1 clusterRoleSelectors []LabelSelector",
    "RoleBinding": "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef",
    "Subject": "1 kind str, 2 apiGroup str, 3 name str, 4 namespace str",
    "RoleRef": "1 apiGroup str, 2 kind str, 3 name str",
    "Unknown": "1 typeMeta TypeMeta, 2 raw raw, 3 contentEncoding str, 4 contentType str",
    "TypeMeta": "1 apiVersion str, 2 kind str",
}
_FIELDS = {
    message: {int(number): (name, kind) for number, name, kind in (field.split() for field in fields.split(", "))}
    for message, fields in _MESSAGES.items()
}
# Messages that are skipped: timestamps, which are zero in requests, and the status of objects about to be created.
_IGNORED = ("Time", "Empty")


def _decode_protobuf(raw: bytes) -> Object:
    """Return the object in a protobuf body. Raises ApiError: 400 (malformed), 415 (kind or field not in the table)."""
    if not raw.startswith(_MAGIC):
        raise bad_request("the body is no Kubernetes protobuf: it does not begin with its four magic bytes")
    try:
        envelope = _message(raw[len(_MAGIC) :], "Unknown")
        kind: Object = envelope["typeMeta"]
        return {
            "kind": kind["kind"],
            "apiVersion": kind["apiVersion"],
            **_message(envelope.get("raw", b""), kind["kind"]),
        }
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise bad_request(f"the protobuf body cannot be read: {error}") from error


def _message(raw: bytes, message: str) -> Object:
    fields = _FIELDS.get(message)
    if fields is None:
        raise _unsupported(message)
    result: Object = {}
    for number, value in _wire(raw):
        if number not in fields:
            raise _unsupported(f"{message}, field {number}")
        name, kind = fields[number]
        if kind in _IGNORED:
            continue
        if kind.startswith("[]"):
            result.setdefault(name, []).append(_value(value, kind[2:]))
        elif kind.startswith("{}"):
            entry = dict(_wire(value))
            result.setdefault(name, {})[entry.get(1, b"").decode()] = _value(entry.get(2, b""), kind[2:])
        else:
            result[name] = _value(value, kind)
    return result


def _value(value: Any, kind: str) -> Any:
    match kind:
        case "str":
            return value.decode()
        case "int":
            return value - (1 << 64) if value >= 1 << 63 else value
        case "bool":
            return bool(value)
        case "bytes":
            return base64.b64encode(value).decode()
        case "raw":
            return value
        case "Quantity":
            return _message(value, kind).get("string", "0")
        case _:
            return _message(value, kind)


def _wire(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers and values: int for varints, bytes for length-delimited fields."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(raw, position)
            yield number, value
        elif wire == 2:
            length, position = _varint(raw, position)
            yield number, raw[position : position + length]
            position += length
        else:
            raise _unsupported(f"wire type {wire}")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _unsupported(what: str) -> ApiError:
    advice = "send the object as JSON, for example with kubectl create -f"
    return ApiError(415, "UnsupportedMediaType", f"the sandbox does not read this from protobuf ({what}): {advice}")
