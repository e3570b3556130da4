"""Request bodies: JSON or YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import yaml

from admission.sandbox.apiserver import protobuf
from admission.sandbox.apiserver.errors import ApiError, bad_request

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

# The size that the API server takes at most.
LIMIT = 3 * 1024 * 1024
_JSON, _YAML = "application/json", "application/yaml"


def media_type(header: str) -> str:
    """The type without its parameters."""
    return header.partition(";")[0].strip().lower()


def decode(raw: bytes, content_type: str, kind: str) -> Any:
    """The value in a body. Raises ApiError (400, 415)."""
    if not raw:
        raise _unrecognised(kind, "unexpected end of JSON input (<empty>)")
    if content_type == _YAML or content_type.endswith("+yaml"):
        try:
            return yaml.load(raw, Loader=_Loader)  # noqa: S506 - a safe loader, see below
        except yaml.YAMLError as error:
            raise bad_request(f"error converting YAML to JSON: {error}") from error
    if content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if content_type not in ("", _JSON) and not content_type.endswith("+json"):
        accepted = "application/json, application/yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiError(415, "UnsupportedMediaType", text)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _unrecognised(kind, str(error)) from error


def decode_object(raw: bytes, content_type: str, kind: str) -> Object:
    """The object in a body. Raises ApiError (400, 415)."""
    value = decode(raw, content_type, kind)
    if not isinstance(value, dict):
        raise _unrecognised(kind, "the body is no JSON object")
    return value


def _unrecognised(kind: str, why: str) -> ApiError:
    text = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind"
    return bad_request(f"{text}; json parse error: {why}")


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: dates stay texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
