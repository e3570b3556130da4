"""Emergency switch: turns the gate off and on by the Kubernetes API alone, without a running Sluice.

An object that is switched off remains in the cluster without effect, and its former content is kept in the annotation
SWITCHED_OFF. Sluice leaves an object with that annotation as it is, also after a restart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.desired import SWITCHED_OFF

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cluster.client import Client, Object

_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS: Final = "MutatingWebhookConfiguration"
_GATES: Final = {
    "mutatingwebhookconfigurations": _WEBHOOKS,
    "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
}
OWN_OBJECTS: Final = "app.kubernetes.io/name=sluice"
"""Label selector of the objects that Sluice creates for its own operation."""
_MATCHES_NOTHING: Final = {"namespaceSelector": {"matchLabels": {SWITCHED_OFF: "no-namespace-has-this-label"}}}


@dataclass(frozen=True, slots=True)
class GateObject:
    """A webhook configuration or policy binding of the gate, as read from the API server."""

    kind: str
    path: str
    obj: Object

    @property
    def is_off(self) -> bool:
        """Whether the object is switched off."""
        return SWITCHED_OFF in (self.obj["metadata"].get("annotations") or {})

    def __str__(self) -> str:
        return f"{self.kind} {self.obj['metadata']['name']}"

    def switched_off(self) -> Object:
        """Return the object without effect, with its former content in the annotation SWITCHED_OFF."""
        annotations = {**(self.obj["metadata"].get("annotations") or {})}
        changed = {**self.obj, "metadata": {**self.obj["metadata"], "annotations": annotations}}
        if self.kind == _WEBHOOKS:
            annotations[SWITCHED_OFF] = _compact_json(self.obj.get("webhooks", []))
            return {**changed, "webhooks": []}
        annotations[SWITCHED_OFF] = _compact_json(self.obj["spec"].get("matchResources"))
        return {**changed, "spec": {**self.obj["spec"], "matchResources": _MATCHES_NOTHING}}

    def switched_on(self) -> Object:
        """Return the object as it was before `switched_off`."""
        annotations = {**self.obj["metadata"]["annotations"]}
        before = json.loads(annotations.pop(SWITCHED_OFF))
        changed = {**self.obj, "metadata": {**self.obj["metadata"], "annotations": annotations}}
        if self.kind == _WEBHOOKS:
            return {**changed, "webhooks": before}
        spec = {key: value for key, value in self.obj["spec"].items() if key != "matchResources"}
        return {**changed, "spec": spec if before is None else {**spec, "matchResources": before}}


async def gate_objects(client: Client) -> AsyncIterator[GateObject]:
    """Yield the objects by which the cluster gates Jobs. Raises ClusterError."""
    served = {resource["name"] for resource in (await client.get(_GROUP))["resources"]}
    for plural, kind in _GATES.items():
        if plural in served:
            found = await client.get(f"{_GROUP}/{plural}", params={"labelSelector": OWN_OBJECTS})
            for obj in found["items"]:
                yield GateObject(kind, f"{_GROUP}/{plural}/{obj['metadata']['name']}", obj)


async def switch(client: Client, *, on: bool) -> list[str]:
    """Turn the gate on or off; return the names of the objects that were changed. Raises ClusterError."""
    changed = []
    async for each in gate_objects(client):
        if each.is_off is on:
            await client.replace(each.path, each.switched_on() if on else each.switched_off())
            changed.append(str(each))
    return changed


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
