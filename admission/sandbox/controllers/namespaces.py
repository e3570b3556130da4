"""Simulated namespace controller: default objects of new namespaces, deletion of the content of terminating ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import SimulatedController

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

# Interval between checks of a terminating namespace with content: sandbox seconds, and its minimum in real time.
_INTERVAL = 1.0
_MIN_REAL_INTERVAL = 0.1
_ROOT_CA = "kube-root-ca.crt"
_ABOUT_ROOT_CA = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)

# Conditions for errors that do not occur here: (type, status, reason, message).
_SUCCESSFUL = (
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


class NamespaceController(SimulatedController[str]):
    """Keys are the names of namespaces."""

    plurals = ("namespaces",)

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._interval = max(_INTERVAL, _MIN_REAL_INTERVAL * clock.speed)

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if change == "ADDED" or (before is not None and "deletionTimestamp" not in before["metadata"]):
            self.enqueue(obj["metadata"]["name"])

    async def sync(self, key: str) -> None:
        namespace = self.local.get("namespaces", "", key)
        if namespace is None:
            return
        if "deletionTimestamp" in namespace["metadata"]:
            await self._delete_content(namespace)
        else:
            await self._create_defaults(key)

    async def _create_defaults(self, name: str) -> None:
        """Create the service account and the ConfigMap that pods expect; the latter has no certificate."""
        if self.local.get("serviceaccounts", name, "default") is None:
            await self._create("serviceaccounts", name, {"metadata": {"name": "default"}})
        if self.local.get("configmaps", name, _ROOT_CA) is None:
            metadata = {"name": _ROOT_CA, "annotations": {"kubernetes.io/description": _ABOUT_ROOT_CA}}
            await self._create("configmaps", name, {"metadata": metadata, "data": {"ca.crt": ""}})

    async def _create(self, plural: str, namespace: str, obj: Object) -> None:
        try:
            await self.local.create(plural, namespace, obj)
        except ApiError as error:
            if error.code not in (403, 404, 409):  # terminating, deleted, or created by another client
                raise

    async def _delete_content(self, namespace: Object) -> None:
        name, plurals = namespace["metadata"]["name"], self.local.plurals(namespaced=True)
        for plural in plurals:
            for obj in self.local.list(plural, name):
                if "deletionTimestamp" not in obj["metadata"]:
                    await self.remove(plural, obj, propagation="Background")
        remaining = {plural: left for plural in plurals if (left := self.local.list(plural, name))}
        if remaining:
            status = {**namespace["status"], "conditions": _conditions(namespace, remaining, self.clock.now())}
            await self.local.update("namespaces", "", {**namespace, "status": status}, subresource="status")
            self.enqueue(name, self._interval)
        else:
            spec = {**namespace["spec"], "finalizers": []}
            await self.local.update("namespaces", "", {**namespace, "spec": spec}, subresource="finalize")


def _conditions(namespace: Object, remaining: dict[str, list[Object]], now: float) -> list[Object]:
    """Return the conditions of a terminating namespace with content: remaining objects by resource, and finalizers."""
    finalizers = Counter(
        finalizer
        for objects in remaining.values()
        for obj in objects
        for finalizer in obj["metadata"].get("finalizers", ())
    )
    content = ", ".join(f"{plural} has {len(objects)} resource instances" for plural, objects in remaining.items())
    found = [
        *_SUCCESSFUL,
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {content}"),
    ]
    kind = "NamespaceFinalizersRemaining"
    if finalizers:
        holders = ", ".join(f"{finalizer} in {count} resource instances" for finalizer, count in finalizers.items())
        text = f"Some content in the namespace has finalizers remaining: {holders}"
        found.append((kind, "True", "SomeFinalizersRemain", text))
    else:
        found.append((kind, "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"))
    before = {(entry["type"], entry["status"]): entry for entry in namespace["status"].get("conditions", ())}
    conditions: list[Object] = []
    for kind, value, reason, message in found:
        since = before.get((kind, value), {}).get("lastTransitionTime") or rfc3339(now)
        conditions.append(
            {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return conditions
