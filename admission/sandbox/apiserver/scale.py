"""The scale subresource of built-in and custom resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.sandbox.apiserver.errors import invalid, unprocessable

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource


def scale_of(resource: ServedResource, obj: Object) -> Object:
    """Return the Scale of an object."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec = {"replicas": _find(obj, resource.scale_paths[0])}
    status: Object = {"replicas": _find(obj, resource.scale_paths[1]) or 0}
    labels = obj.get("spec", {}).get("selector", {})
    if isinstance(labels, dict) and labels.get("matchLabels"):
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels["matchLabels"].items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {key: value for key, value in spec.items() if value},
        "status": status,
    }


def with_scale(resource: ServedResource, obj: Object, scale: Object) -> Object:
    """Return the object with the replicas of a Scale, and the Scale's resourceVersion as precondition.

    Raises ApiError (422) if the number is negative.
    """
    replicas = scale.get("spec", {}).get("replicas", 0)
    if replicas < 0:
        cause = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise unprocessable("autoscaling", "Scale", obj["metadata"]["name"], [cause])
    new = {**obj, "metadata": dict(obj["metadata"])}
    version = scale.get("metadata", {}).get("resourceVersion")
    if version:
        new["metadata"]["resourceVersion"] = version
    _put(new, resource.scale_paths[0].lstrip(".").split("."), replicas)
    return new


def _find(obj: Object, path: str) -> Any:
    found: Any = obj
    for part in path.lstrip(".").split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _put(obj: Object, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        obj[part] = dict(obj.get(part) or {})
        obj = obj[part]
    obj[path[-1]] = value
