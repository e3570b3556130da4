"""Simulated autoscaler that answers ProvisioningRequests, as the cluster autoscaler does.

The class `check-capacity.autoscaling.x-k8s.io` only looks whether the pods fit on the nodes that exist; all others add
a node for each pod. The parameter `sandbox-answer` makes it behave badly: see `ANSWERS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.limits import NamespaceContext
from admission.kinds.requests import pod_requests
from admission.model.quantity import amount, format_amount
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import PARSE_ERRORS, SimulatedController, condition, is_over

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

REQUESTS: Final = "provisioningrequests.autoscaling.x-k8s.io"
NAME: Final = "autoscaling.x-k8s.io/provisioningrequest"
"""The kind, as `sluice sandbox --kind` names it."""
ANSWERS: Final = {
    "never": "does not answer",
    "slow": "provisions after two minutes, with an estimate until then",
    "fail": "fails",
    "expire": "provisions, and the booking expires after two minutes",
    "revoke": "provisions, and takes the nodes away after two minutes",
}
"""Values of the parameter `sandbox-answer`, and what the autoscaler does."""
_CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
_POOL: Final = "sandbox.sluice.dev/pool"
_ACCEPTED_AFTER, _PROVISIONED_AFTER, _LATER = 0.5, 2.0, 120.0
"""Sandbox seconds."""
_TEXT: Final = {"type": "string", "maxLength": 255}
_CONDITIONS: Final = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768}, "observedGeneration": {"type": "integer"},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {"type": "string", "maxLength": 316},
        },
    },
}  # fmt: skip
_IMMUTABLE: Final = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
DEFINITION: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": REQUESTS, "annotations": {"api-approved.kubernetes.io": "unapproved, simulated"}},
    "spec": {
        "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
        "names": {
            "plural": "provisioningrequests", "kind": "ProvisioningRequest", "singular": "provisioningrequest",
            "shortNames": ["provreq", "provreqs"],
        },
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object", "required": ["spec"],
                "properties": {
                    "spec": {
                        "type": "object", "required": ["podSets", "provisioningClassName"],
                        "properties": {
                            "provisioningClassName": {
                                "type": "string", "maxLength": 253, "x-kubernetes-validations": _IMMUTABLE,
                                "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                            },
                            "parameters": {
                                "type": "object", "maxProperties": 100, "additionalProperties": _TEXT,
                                "x-kubernetes-validations": _IMMUTABLE,
                            },
                            "podSets": {
                                "type": "array", "minItems": 1, "maxItems": 32,
                                "x-kubernetes-validations": _IMMUTABLE,
                                "items": {
                                    "type": "object", "required": ["count", "podTemplateRef"],
                                    "properties": {
                                        "count": {
                                            "type": "integer", "format": "int32", "minimum": 1, "maximum": 16384,
                                        },
                                        "podTemplateRef": {
                                            "type": "object", "properties": {"name": {"type": "string"}},
                                        },
                                    },
                                },
                            },
                        },
                    },
                    "status": {
                        "type": "object",
                        "properties": {
                            "conditions": _CONDITIONS,
                            "provisioningClassDetails": {
                                "type": "object", "maxProperties": 64,
                                "additionalProperties": {"type": "string", "maxLength": 32768},
                            },
                        },
                    },
                },
            }},
        }],
    },
}  # fmt: skip
"""Definition of `autoscaling.x-k8s.io/v1`, as the cluster autoscaler has it."""


class Autoscaler(SimulatedController[tuple[str, str]]):
    """Keys are namespace and name of ProvisioningRequests."""

    plurals = (REQUESTS,)
    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._began: dict[str, float] = {}
        """When each request was seen first, by uid."""

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Answer a request that is new or has changed."""
        del plural, before
        metadata = obj["metadata"]
        if change == "DELETED":
            self._began.pop(metadata["uid"], None)
        else:
            self.enqueue((metadata["namespace"], metadata["name"]))

    async def sync(self, key: tuple[str, str]) -> None:
        """Take the next step with a request, when it is due."""
        request = self.local.get(REQUESTS, *key)
        if request is None or "deletionTimestamp" in request["metadata"]:
            return
        began = self._began.setdefault(request["metadata"]["uid"], self.clock.now())
        waited = self.clock.now() - began
        bad = (request["spec"].get("parameters") or {}).get("sandbox-answer", "")
        due = _PROVISIONED_AFTER if bad != "slow" else _LATER
        after = {"expire": "BookingExpired", "revoke": "CapacityRevoked"}.get(bad, "")
        if bad == "never" or condition(request, "Failed") is not None:
            return
        if condition(request, "Accepted") is None:
            if waited < _ACCEPTED_AFTER:
                self.enqueue(key, _ACCEPTED_AFTER - waited)
                return
            estimate = ("Provisioned", False, "WaitingForNodes", f"estimated to be provisioned in {due:g} s")
            await self._tell(request, ("Accepted", True, "Accepted", "the request is accepted"), estimate)
        elif (provisioned := condition(request, "Provisioned")) is None or provisioned["status"] != "True":
            if waited < due:
                self.enqueue(key, due - waited)
            elif not self._has_templates(request):
                self.enqueue(key, _ACCEPTED_AFTER)
            elif bad == "fail" or not await self._provision(request):
                text = "the pods do not fit on the nodes" if bad != "fail" else "there are no more nodes"
                await self._tell(request, ("Failed", True, "CapacityIsNotFound", text))
            else:
                await self._tell(request, ("Provisioned", True, "Provisioned", "the nodes are ready"))
        elif after and condition(request, after) is None:
            if waited < _LATER:
                self.enqueue(key, _LATER - waited)
                return
            if after == "CapacityRevoked":
                for node in self._nodes(request):
                    await self.remove("nodes", node)
            await self._tell(request, (after, True, after, "the nodes are not kept any longer"))

    async def _tell(self, request: Object, *conditions: tuple[str, bool, str, str]) -> None:
        status = dict(request.get("status") or {})
        told = {each["type"]: each for each in status.get("conditions") or ()}
        for kind, holds, reason, message in conditions:
            told[kind] = {
                "type": kind, "status": str(holds), "reason": reason, "message": message,
                "lastTransitionTime": rfc3339(self.clock.now()),
            }  # fmt: skip
        status["conditions"] = [*told.values()]
        if "Provisioned" in told and request["spec"]["provisioningClassName"] != _CHECK_CAPACITY:
            status["provisioningClassDetails"] = {"pool": request["metadata"]["name"][:63]}
        namespace = request["metadata"]["namespace"]
        await self.local.update(REQUESTS, namespace, {**request, "status": status}, subresource="status")

    def _has_templates(self, request: Object) -> bool:
        """Return whether all of its PodTemplates exist: they are created after the request."""
        names = (each["podTemplateRef"]["name"] for each in request["spec"]["podSets"])
        return all(self.local.get("podtemplates", request["metadata"]["namespace"], name) for name in names)

    def _nodes(self, request: Object) -> list[Object]:
        pool = request["metadata"]["name"][:63]
        return [node for node in self.local.list("nodes") if node["metadata"].get("labels", {}).get(_POOL) == pool]

    async def _provision(self, request: Object) -> bool:
        """Return whether there are nodes for the pods; add them, but for the class that only looks."""
        namespace = request["metadata"]["namespace"]
        wanted: list[tuple[dict[str, int], dict[str, str]]] = []
        for pod_set in request["spec"]["podSets"]:
            template = self.local.get("podtemplates", namespace, pod_set["podTemplateRef"]["name"])
            assert template is not None, pod_set
            spec = template["template"]["spec"]
            requests = {**pod_requests(spec, NamespaceContext(), path="spec"), "pods": 1}
            wanted += [(requests, spec.get("nodeSelector") or {})] * pod_set["count"]
        if request["spec"]["provisioningClassName"] == _CHECK_CAPACITY:
            return self._fit(wanted)
        pool = request["metadata"]["name"][:63]
        for number, (requests, selector) in enumerate(wanted, start=len(self._nodes(request))):
            if number >= len(wanted):
                break
            name = f"{pool[:50]}-{number}"
            labels = {"kubernetes.io/hostname": name, "type": "kwok", _POOL: pool, **selector}
            capacity = {resource: format_amount(resource, value) for resource, value in requests.items()}
            node = {"metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}}
            await self.local.create("nodes", "", {**node, "status": {"capacity": capacity}})
        return True

    def _fit(self, wanted: list[tuple[dict[str, int], dict[str, str]]]) -> bool:
        """Return whether all pods fit on the nodes beside those that run there, each on the first with room."""
        free = {
            node["metadata"]["name"]: {name: amount(name, value) for name, value in allocatable.items()}
            for node in self.local.list("nodes")
            if (allocatable := node.get("status", {}).get("allocatable"))
        }
        labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in self.local.list("nodes")}
        for pod in self.local.list("pods"):
            node = pod["spec"].get("nodeName", "")
            if node in free and not is_over(pod):
                _take(free[node], {**pod_requests(pod["spec"], NamespaceContext(), path="spec"), "pods": 1})
        for requests, selector in wanted:
            for node, room in free.items():
                if selector.items() <= labels[node].items() and all(
                    room.get(name, 0) >= value for name, value in requests.items()
                ):
                    _take(room, requests)
                    break
            else:
                return False
        return True


def _take(room: dict[str, int], requests: dict[str, int]) -> None:
    for name, value in requests.items():
        room[name] = room.get(name, 0) - value
