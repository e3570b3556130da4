"""The emergency switch: takes the gate's effect away and brings it back, without Sluice.

What is switched off stays there, empty, with what it was in an annotation; Sluice leaves it so when it starts.
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
OURS: Final = "app.kubernetes.io/name=sluice"
"""The label of all that Sluice writes for itself."""
_NOWHERE: Final = {"namespaceSelector": {"matchLabels": {SWITCHED_OFF: "no-namespace-has-this-label"}}}


@dataclass(frozen=True, slots=True)
class Part:
    """One object of the gate."""

    kind: str
    path: str
    obj: Object

    @property
    def is_off(self) -> bool:
        """Whether it has been switched off."""
        return SWITCHED_OFF in (self.obj["metadata"].get("annotations") or {})

    def __str__(self) -> str:
        return f"{self.kind} {self.obj['metadata']['name']}"

    def off(self) -> Object:
        """The object without effect, and with what it was."""
        annotations = {**(self.obj["metadata"].get("annotations") or {})}
        changed = {**self.obj, "metadata": {**self.obj["metadata"], "annotations": annotations}}
        if self.kind == _WEBHOOKS:
            annotations[SWITCHED_OFF] = _noted(self.obj.get("webhooks", []))
            return {**changed, "webhooks": []}
        annotations[SWITCHED_OFF] = _noted(self.obj["spec"].get("matchResources"))
        return {**changed, "spec": {**self.obj["spec"], "matchResources": _NOWHERE}}

    def on(self) -> Object:
        """The object as it was."""
        annotations = {**self.obj["metadata"]["annotations"]}
        before = json.loads(annotations.pop(SWITCHED_OFF))
        changed = {**self.obj, "metadata": {**self.obj["metadata"], "annotations": annotations}}
        if self.kind == _WEBHOOKS:
            return {**changed, "webhooks": before}
        spec = {key: value for key, value in self.obj["spec"].items() if key != "matchResources"}
        return {**changed, "spec": spec if before is None else {**spec, "matchResources": before}}


async def parts(client: Client) -> AsyncIterator[Part]:
    """All that gates Jobs in the cluster. Raises ClusterError."""
    offered = {resource["name"] for resource in (await client.get(_GROUP))["resources"]}
    for plural, kind in _GATES.items():
        if plural in offered:
            found = await client.get(f"{_GROUP}/{plural}", params={"labelSelector": OURS})
            for obj in found["items"]:
                yield Part(kind, f"{_GROUP}/{plural}/{obj['metadata']['name']}", obj)


async def switch(client: Client, *, on: bool) -> list[str]:
    """Bring the whole gate on or off; the names of what had to be changed. Raises ClusterError."""
    changed = []
    async for part in parts(client):
        if part.is_off is on:
            await client.replace(part.path, part.on() if on else part.off())
            changed.append(str(part))
    return changed


def _noted(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
