"""Simulated resource claim controller: makes the claims of pods from templates, and takes them back when pods end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.controllers.base import SimulatedController, is_over, owner_reference

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_FOR = "resource.kubernetes.io/pod-claim-name"


def claim_names(pod: Object) -> dict[str, str | None]:
    """Return by entry of the pod's `resourceClaims` the name of its claim; None: it is not made yet."""
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    made = {each["name"]: each.get("resourceClaimName") for each in statuses}
    return {
        each["name"]: each.get("resourceClaimName") or made.get(each["name"])
        for each in pod["spec"].get("resourceClaims") or ()
    }


class ClaimController(SimulatedController[tuple[str, str]]):
    """Keys are the namespace and name of a pod with claims."""

    plurals = ("pods", "resourceclaimtemplates")

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        metadata = obj["metadata"]
        if plural == "pods":
            if obj["spec"].get("resourceClaims"):
                if change == "DELETED":
                    self._ended[metadata["namespace"], metadata["name"]] = obj
                self.enqueue((metadata["namespace"], metadata["name"]))
        elif change == "ADDED":
            for key in self._waiting.pop((metadata["namespace"], metadata["name"]), ()):
                self.enqueue(key)

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._waiting: dict[tuple[str, str], dict[tuple[str, str], None]] = {}  # template -> pods
        self._ended: dict[tuple[str, str], Object] = {}

    async def sync(self, key: tuple[str, str]) -> None:
        if (gone := self._ended.pop(key, None)) is not None:
            await self._take_back(gone)
        pod = self.local.get("pods", *key)
        if pod is None or not pod["spec"].get("resourceClaims"):
            return
        if is_over(pod):
            await self._take_back(pod)
        elif "deletionTimestamp" not in pod["metadata"]:
            await self._make(pod)

    async def _make(self, pod: Object) -> None:
        """Make the claims that the pod lacks, and note their names in its status."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        names = claim_names(pod)
        statuses = [*(pod["status"].get("resourceClaimStatuses") or ())]
        for entry in pod["spec"]["resourceClaims"]:
            if names[entry["name"]] is not None:
                continue
            template = self.local.get("resourceclaimtemplates", namespace, entry["resourceClaimTemplateName"])
            if template is None:
                at = namespace, entry["resourceClaimTemplateName"]
                self._waiting.setdefault(at, {})[namespace, name] = None
                continue
            content: Object = orjson.loads(orjson.dumps(template["spec"]))
            metadata = content.get("metadata") or {}
            metadata["generateName"] = f"{name}-{entry['name']}-"
            metadata["annotations"] = {**(metadata.get("annotations") or {}), _FOR: entry["name"]}
            metadata["ownerReferences"] = [owner_reference(pod)]
            body = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": content["spec"],
            }
            made = await self.local.create("resourceclaims", namespace, body)
            statuses.append({"name": entry["name"], "resourceClaimName": made["metadata"]["name"]})
        if len(statuses) > len(pod["status"].get("resourceClaimStatuses") or ()):
            changed = {**pod, "status": {**pod["status"], "resourceClaimStatuses": statuses}}
            await self.local.update("pods", namespace, changed, subresource="status")

    async def _take_back(self, pod: Object) -> None:
        """Delete the claims that were made for a pod that has ended, and free those that it shared."""
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        for name in claim_names(pod).values():
            claim = None if name is None else self.local.get("resourceclaims", namespace, name)
            if claim is None:
                continue
            if any(owner["uid"] == uid for owner in claim["metadata"].get("ownerReferences") or ()):
                await self.remove("resourceclaims", claim)
                continue
            users = claim["status"].get("reservedFor") or []
            left = [each for each in users if each["uid"] != uid]
            if left != users:
                status = {**claim["status"], "reservedFor": left} if left else {}
                try:
                    await self.local.update(
                        "resourceclaims", namespace, {**claim, "status": status}, subresource="status"
                    )
                except ApiError as error:
                    if error.code != 404:
                        raise
