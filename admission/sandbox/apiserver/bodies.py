"""Decoding of request bodies: JSON, YAML or protobuf."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from admission.sandbox.apiserver import protobuf
from admission.sandbox.apiserver.errors import ApiError, bad_request

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

# Bytes; a larger body gets 413. The value of kube-apiserver (MaxRequestBodyBytes).
MAX_BODY_BYTES = 3 * 1024 * 1024
_JSON, _YAML = "application/json", "application/yaml"


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
