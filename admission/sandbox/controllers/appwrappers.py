"""Simulated AppWrapper controller: creates the wrapped objects, and deletes them when the AppWrapper is suspended.

As AppWrapper 1.2 does, as recorded: its own update of the object drops empty lists (Go's `omitempty`), it names the
objects in the status before it creates them, and looks every five seconds whether pods are ready, or deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.apimachinery.patches import merge_patch
from admission.kinds import described, paths
from admission.kinds.dispatched import is_dispatched
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import PARSE_ERRORS, SimulatedController, is_over, owner_reference

if TYPE_CHECKING:
    from admission.kinds.declared import DeclaredKind
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_PLURAL: Final = "appwrappers.workload.codeflare.dev"
_LABEL: Final = "workload.codeflare.dev/appwrapper"
_FINALIZER: Final = "workload.codeflare.dev/finalizer"
_POLL: Final = 5.0
"""Sandbox seconds between two looks at the wrapped objects and their pods."""
_INFERRED: Final = ("JobSet", "PyTorchJob", "RayCluster", "RayJob")
"""Custom kinds whose pods it finds by itself."""
_INDEXED: Final = {
    "annotations": {"workload.codeflare.dev.appwrapper/tas-pod-index-label": "batch.kubernetes.io/job-completion-index"}
}
_RUNS: Final = (
    ("QuotaReserved", True, "Resuming", "Suspend is false"),
    ("ResourcesDeployed", True, "Resuming", "Suspend is false"),
    ("PodsReady", False, "Resuming", "Suspend is false"),
    ("Unhealthy", False, "Resuming", "Suspend is false"),
)
_STOPPED: Final = (
    ("QuotaReserved", False, "Suspended", "Suspend is true"),
    ("ResourcesDeployed", False, "Suspended", "Suspend is true"),
    ("PodsReady", False, "Suspended", ""),
    ("DeletingResources", False, "DeletionComplete", ""),
)


class AppWrapperController(SimulatedController[tuple[str, str]]):
    """Keys are namespace and name of AppWrappers `v1beta2`."""

    plurals = (_PLURAL, "pods")
    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock, kind: DeclaredKind) -> None:
        super().__init__(local, clock)
        self._kind = kind

    async def run(self) -> None:
        """Run the controller, with its webhook, which lets nobody change the components."""
        with self.local.refusing_changes(_PLURAL, "spec.components", _fixed_components):
            await super().run()

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the AppWrapper of an event about it, or about the end of one of its pods."""
        metadata = obj["metadata"]
        if plural == _PLURAL:
            self.enqueue((metadata["namespace"], metadata["name"]))
        elif is_over(obj) and (name := (metadata.get("labels") or {}).get(_LABEL)):
            self.enqueue((metadata["namespace"], name))

    async def sync(self, key: tuple[str, str]) -> None:
        """Take the next step: each writes the object or its status, or creates or deletes wrapped objects."""
        obj = self.local.get(_PLURAL, *key)
        if obj is None or self._kind.is_managed_elsewhere(obj) or is_dispatched(self._kind, obj):
            return
        status = orjson.loads(orjson.dumps(obj.get("status") or {}))
        phase, suspended = status.get("phase", ""), obj["spec"].get("suspend") is True
        if "deletionTimestamp" in obj["metadata"]:
            if not await self._delete(obj):
                await self._write_finalizers(obj, [])
        elif not phase:
            status["componentStatus"] = [
                {"apiVersion": "", "kind": "", "name": "", "podSets": self._pod_sets(obj, number)}
                for number in range(len(obj["spec"]["components"]))
            ]
            await self._write(obj, {**status, "phase": "Suspended"})
        elif phase == "Suspended" and not suspended:
            if _FINALIZER not in (obj["metadata"].get("finalizers") or ()):
                obj = await self._write_finalizers(obj, [_FINALIZER])
            await self._write(obj, self._with(status, _RUNS, phase="Resuming"))
        elif phase == "Resuming":
            await self._create(obj, status)
        elif phase == "Running" and suspended:
            await self._write(obj, {**status, "phase": "Suspending"})
        elif phase == "Running":
            await self._look(obj, status)
        elif phase == "Suspending":
            if await self._delete(obj):
                deleting = ("DeletingResources", True, "DeletionInitiated", "")
                obj = await self._write(obj, self._with(status, [deleting]))
                status = orjson.loads(orjson.dumps(obj["status"]))
                for known in status["componentStatus"]:
                    known["conditions"] = [_condition("ResourcesDeployed", "False", "CompononetDeleted")]
                await self._write(obj, status)
                self.enqueue(key, _POLL)
            else:
                await self._write(obj, self._with(status, _STOPPED, phase="Suspended"))

    async def _create(self, obj: Object, status: Object) -> None:
        """Create the wrapped objects, each named in the status before it exists."""
        namespace = obj["metadata"]["namespace"]
        for number, component in enumerate(obj["spec"]["components"]):
            wrapped = component["template"]
            plural = self.local.plural_of(wrapped["apiVersion"], wrapped["kind"])
            known = status["componentStatus"][number]
            known |= {"apiVersion": wrapped["apiVersion"], "kind": wrapped["kind"], "name": wrapped["metadata"]["name"]}
            known["conditions"] = [_condition("ResourcesDeployed", "Unknown", "ComponentCreationInitiated")]
            obj = await self._write(obj, status)
            if plural is not None and self.local.get(plural, namespace, known["name"]) is None:
                await self.local.create(plural, namespace, self._injected(obj, number))
            known["conditions"] = [_condition("ResourcesDeployed", "True", "ComponentCreatedSuccessfully")]
            obj = await self._write(obj, status)
        await self._write(obj, {**status, "phase": "Running"})

    def _injected(self, obj: Object, number: int) -> Object:
        """Return a wrapped object as it is created: with a label, and what is added to its pods."""
        component = obj["spec"]["components"][number]
        label = {_LABEL: obj["metadata"]["name"]}
        template = orjson.loads(orjson.dumps(component["template"]))  # the stored object stays as it is
        wrapped: Object = merge_patch(template, {"metadata": {"labels": label}})
        wrapped["metadata"]["ownerReferences"] = [owner_reference(obj)]
        infos = component.get("podSetInfos") or []
        for index, pod_set in enumerate(self._pod_sets(obj, number)):
            info: dict[str, Any] = infos[index] if index < len(infos) else {}
            keys = pod_set["path"].removeprefix("template.").replace("[", ".").replace("]", "").split(".")
            pods = paths.at(wrapped, keys) if pod_set["path"] != "template" else wrapped
            metadata = pods.setdefault("metadata", {})
            metadata["labels"] = {**(metadata.get("labels") or {}), **(info.get("labels") or {}), **label}
            spec = pods["spec"]
            for part, field in ((metadata, "annotations"), (spec, "nodeSelector")):
                part[field] = {**(part.get(field) or {}), **(info.get(field) or {})}
            for field in ("tolerations", "schedulingGates"):
                spec[field] = [*(spec.get(field) or ()), *(info.get(field) or ())]
        return wrapped

    async def _look(self, obj: Object, status: Object) -> None:
        """Note whether the pods are ready, and whether they have ended."""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        pods = [
            each
            for each in self.local.list("pods", namespace)
            if (each["metadata"].get("labels") or {}).get(_LABEL) == name
        ]
        phases = [each.get("status", {}).get("phase") for each in pods]
        expected = sum(each["replicas"] for known in status["componentStatus"] for each in known["podSets"])
        running, succeeded = phases.count("Running"), phases.count("Succeeded")
        if succeeded >= expected > 0 and not running:
            await self._write(obj, self._with(status, [(kind, False, "Succeeded", "") for kind, *_ in _RUNS[:1]],
                                              phase="Succeeded"))  # fmt: skip
        elif "Failed" in phases:
            await self._delete(obj)
            await self._write(obj, self._with(status, [(kind, False, "Failed", "") for kind, *_ in _RUNS[:2]],
                                              phase="Failed"))  # fmt: skip
        elif running + succeeded >= expected:
            counts = f"{running} pods running; {succeeded} pods succeeded"
            written = self._with(status, [("PodsReady", True, "SufficientPodsReady", counts)])
            if written != obj["status"]:
                await self._write(obj, written)
        else:
            self.enqueue((namespace, name), _POLL)

    async def _delete(self, obj: Object) -> bool:
        """Delete the wrapped objects; return whether there were any, or pods of them."""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        found = any(
            (each["metadata"].get("labels") or {}).get(_LABEL) == name for each in self.local.list("pods", namespace)
        )
        for component in obj["spec"]["components"]:
            wrapped = component["template"]
            plural = self.local.plural_of(wrapped["apiVersion"], wrapped["kind"])
            present = None if plural is None else self.local.get(plural, namespace, wrapped["metadata"]["name"])
            if plural is not None and present is not None:
                found = True
                if "deletionTimestamp" not in present["metadata"]:
                    await self.remove(plural, present, propagation="Background")
        return found

    def _pod_sets(self, obj: Object, number: int) -> list[Object]:
        """Return the pod sets of a component, as declared, or as known for the kind of the wrapped object."""
        component = obj["spec"]["components"][number]
        if component.get("podSets") is not None:
            return [{"replicas": 1, **each} for each in component["podSets"]]
        wrapped = component["template"]
        spec = wrapped.get("spec") or {}
        if wrapped["kind"] == "Pod":
            return [{"path": "template", "replicas": 1}]
        if wrapped["kind"] == "Job":
            return [{"path": "template.spec.template", "replicas": spec.get("parallelism", 1), **_INDEXED}]
        if "template" in spec and "spec" in spec["template"]:
            return [{"path": "template.spec.template", "replicas": spec.get("replicas", 1)}]
        group, kind = wrapped["apiVersion"].rpartition("/")[0], wrapped["kind"]
        if kind not in _INFERRED:
            return []
        found = described(f"{group}/{kind.lower()}")
        assert found is not None, wrapped
        return [{"path": f"template.{place.path}", "replicas": place.pods} for place in found.places(wrapped)]

    def _with(self, status: Object, conditions: Any, **fields: str) -> Object:
        """Return a status with conditions and fields changed."""
        found = {each["type"]: each for each in status.get("conditions") or ()}
        now = rfc3339(self.clock.now())
        for kind, holds, reason, message in conditions:
            was = found.get(kind, {})
            since = was["lastTransitionTime"] if was.get("status") == str(holds) else now
            found[kind] = {**_condition(kind, str(holds), reason, message), "lastTransitionTime": since}
        return {**status, **fields, "conditions": [*found.values()]}

    async def _write(self, obj: Object, status: Object) -> Object:
        copied = orjson.loads(orjson.dumps(status))
        namespace = obj["metadata"]["namespace"]
        return await self.local.update(_PLURAL, namespace, {**obj, "status": copied}, subresource="status")

    async def _write_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        """Update the object as Go writes it: without empty fields."""
        components = [{key: each for key, each in one.items() if each != []} for one in obj["spec"]["components"]]
        spec = {key: value for key, value in obj["spec"].items() if value is not False}
        written = {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}
        written["spec"] = {**spec, "components": components}
        return await self.local.update(_PLURAL, obj["metadata"]["namespace"], written)


def _fixed_components(obj: Object, _: bool) -> object:
    """Return what no update may change: all of the components but what Kueue injects."""
    return [(each["template"], each.get("podSets") or []) for each in obj["spec"].get("components") or ()]


def _condition(kind: str, status: str, reason: str, message: str = "") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}
