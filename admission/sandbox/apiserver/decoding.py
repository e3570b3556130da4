"""Decoding of client input to an object of its kind: type checks, pruning of unknown fields, defaulting."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.schema import DecodeError

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource


def decode_new(resource: ServedResource, obj: Object, unknown: list[str]) -> Object:
    """Decode the body of a POST or PUT in place; paths of dropped fields go to `unknown`. Raises ApiError (400)."""
    _check_type(resource, obj)
    obj.setdefault("metadata", {})
    try:
        resource.schema.decode(obj, None, unknown)
    except DecodeError as error:
        text = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        raise errors.bad_request(text) from error
    return complete(resource, obj)


def decode_update(resource: ServedResource, obj: Object, old: Object, unknown: list[str]) -> Object:
    """Decode the result of a patch in place; paths of dropped fields go to `unknown`. Raises ApiError (422).

    The caller owns the top level and the changed parts of `obj`; the rest is shared with `old`.
    """
    if obj.get("kind", resource.kind) != resource.kind or obj.get("apiVersion", "") != old["apiVersion"]:
        raise errors.bad_patch(f"{obj.get('apiVersion')}, Kind={obj.get('kind')} is not {resource.kind}")
    try:
        resource.schema.decode(obj, old, unknown)
    except DecodeError as error:
        raise errors.bad_patch(str(error)) from error
    obj.setdefault("metadata", {})
    return complete(resource, obj)


def _check_type(resource: ServedResource, obj: Object) -> None:
    if resource.custom and not obj.get("apiVersion"):
        text = f"the API version in the data () does not match the expected API version ({resource.api_version})"
        raise errors.bad_request(text)
    version, kind = obj.get("apiVersion") or resource.api_version, obj.get("kind") or resource.kind
    if version != resource.api_version:
        text = (
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
        raise errors.bad_request(text)
    if kind != resource.kind and not resource.custom:
        expected = f'cannot be handled as a {resource.kind}: no kind "{kind}" is registered'
        text = f'{kind} in version "{resource.version}" {expected}'
        raise errors.bad_request(text)


def complete(resource: ServedResource, obj: Object) -> Object:
    """Return the object with defaults and with `kind` and `apiVersion` first, as it is stored and serialised.

    Readers rely on that order, see `ServedResource.type_length`.
    """
    resource.strategy.default(obj)
    if tuple(islice(obj, 2)) == ("kind", "apiVersion"):
        return obj
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    kind = obj.get("kind") or resource.kind
    return {"kind": kind, "apiVersion": resource.api_version, **rest}
