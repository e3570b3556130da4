"""Strategy for APIServices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, invalid, required
from admission.sandbox.apiserver.strategy import Strategy

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

GROUP, PLURAL = "apiregistration.k8s.io", "apiservices"


class ApiServices(Strategy):
    """Strategy for apiregistration.k8s.io/v1 APIService. Rules and messages are those of kube-aggregator."""

    has_generation = False

    def default(self, obj: Object) -> None:
        service = obj.get("spec", {}).get("service")
        if service is not None:
            service.setdefault("port", 443)

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {}
        if "service" not in obj.get("spec", {}):
            passed = condition("True", "Local", "Local APIServices are always available", registry.now())
            obj["status"] = {"conditions": [passed]}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec, name = obj.get("spec", {}), obj["metadata"].get("name", "")
        wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
        causes = []
        if name != wanted:
            causes.append(invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"'))
        for key, limit in (("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)):
            if not 0 < spec.get(key, 0) <= limit:
                text = f"must be positive and less than {limit}"
                causes.append(invalid(f"spec.{key}", spec.get(key, 0), text))
        return causes + _service_causes(spec)

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)


def _service_causes(spec: Object) -> list[Cause]:
    service, insecure = spec.get("service"), spec.get("insecureSkipTLSVerify", False)
    if service is None:
        causes = []
        if spec.get("caBundle"):
            text = "local APIServices may not have a caBundle"
            causes.append(invalid("spec.caBundle", f"{len(spec['caBundle'])} bytes", text))
        if insecure:
            text = "local APIServices may not have insecureSkipTLSVerify"
            causes.append(invalid("spec.insecureSkipTLSVerify", "true", text))
        return causes
    causes = [required(f"spec.service.{key}") for key in ("namespace", "name") if not service.get(key)]
    if not 0 < service["port"] < 65536:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        causes.append(invalid("spec.service.port", service["port"], text))
    if insecure and spec.get("caBundle"):
        causes.append(invalid("spec.insecureSkipTLSVerify", "true", "may not be true if caBundle is present"))
    return causes


def condition(status: str, reason: str, message: str, now: str) -> Object:
    """Return the condition Available, the only one of an APIService."""
    return {"type": "Available", "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
