"""What else decides how a workload is seen: limits of its namespace, runtime classes, priorities, labels.

Each kind of object is small and changes rarely, so they are kept whole. The queue objects that matter to reading a Job
(WorkloadPriorityClasses, ResourceFlavors and what ClusterQueues ask of checks) come from the store, not from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds.limits import NamespaceContext
from admission.model.errors import Misconfigured
from admission.model.queues import ClusterQueue, ResourceFlavor, WorkloadPriorityClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.cluster.informer import Change
    from admission.model.queues import AdmissionCheckRule, QueueObject

PATHS = {
    "namespaces": "/api/v1/namespaces",
    "limitranges": "/api/v1/limitranges",
    "runtimeclasses": "/apis/node.k8s.io/v1/runtimeclasses",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
"""What is watched, by the name of the resource."""


class Context:
    """The newest known state of all of them."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, dict[str, Any]]] = {resource: {} for resource in PATHS}
        self._namespaces: dict[str, NamespaceContext] = {}
        self._priority_classes: dict[str, int] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        """ResourceFlavors by name: what starting a workload injects."""
        self._check_rules: dict[str, tuple[AdmissionCheckRule, ...]] = {}

    def see(self, resource: str, change: Change) -> str:
        """Take a change in; returns the namespace whose workloads may now look different, "" for all."""
        objects = self._objects[resource]
        if change.type == "DELETED" or change.object is None:
            objects.pop(change.key, None)
        else:
            objects[change.key] = change.object
        self._namespaces.clear()
        return change.key.partition("/")[0] if resource in ("limitranges", "namespaces") else ""

    def see_queue_object(self, obj: QueueObject) -> None:
        """A queue object is new or has changed."""
        match obj:
            case WorkloadPriorityClass():
                self._priority_classes[obj.name] = obj.value
            case ResourceFlavor():
                self.flavors[obj.name] = obj
            case ClusterQueue():
                strategy = obj.spec.admission_checks_strategy
                self._check_rules[obj.name] = () if strategy is None else strategy.admission_checks
            case _:
                pass

    def forget_queue_objects(self) -> None:
        """All of them are about to be told anew."""
        self._priority_classes.clear()
        self.flavors.clear()
        self._check_rules.clear()

    def forget_queue_object(self, kind: str, name: str) -> None:
        """A queue object is gone."""
        match kind:
            case WorkloadPriorityClass.kind:
                self._priority_classes.pop(name, None)
            case ResourceFlavor.kind:
                self.flavors.pop(name, None)
            case ClusterQueue.kind:
                self._check_rules.pop(name, None)
            case _:
                pass

    def check_rules(self, cluster_queue: str) -> tuple[AdmissionCheckRule, ...]:
        """Which admission checks a ClusterQueue asks for."""
        return self._check_rules.get(cluster_queue, ())

    def namespaces(self) -> Iterable[str]:
        """The names of all."""
        return self._objects["namespaces"].keys()

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """None: there is no such namespace."""
        namespace = self._objects["namespaces"].get(name)
        return None if namespace is None else namespace["metadata"].get("labels") or {}

    def of_namespace(self, name: str) -> NamespaceContext:
        """What the requests of a pod in this namespace depend on."""
        context = self._namespaces.get(name)
        if context is None:
            limits = [limit for key, limit in self._objects["limitranges"].items() if key.startswith(f"{name}/")]
            context = NamespaceContext(limits, self._objects["runtimeclasses"].values())
            self._namespaces[name] = context
        return context

    def priority(self, *, workload_class: str, pod_class: str) -> int:
        """The priority by WorkloadPriorityClass, else by the pods' PriorityClass, else the global default, else 0.

        Raises Misconfigured for a class that does not exist.
        """
        if workload_class:
            if workload_class not in self._priority_classes:
                raise Misconfigured(
                    f'WorkloadPriorityClass "{workload_class}" does not exist: create it, or correct the label'
                )
            return self._priority_classes[workload_class]
        classes = self._objects["priorityclasses"]
        if pod_class:
            if pod_class not in classes:
                raise Misconfigured(
                    f'spec.template.spec.priorityClassName: PriorityClass "{pod_class}" does not exist, so that '
                    "its pods would be refused: create it"
                )
            return int(classes[pod_class]["value"])
        return next((int(c["value"]) for c in classes.values() if c.get("globalDefault")), 0)
