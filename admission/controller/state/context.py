"""Conversion of Kubernetes objects to workloads, and the cluster state it depends on.

Requests and priority of a workload depend on LimitRanges, RuntimeClasses, PriorityClasses and namespaces. There are few
of these objects and they rarely change, so they are cached whole. The queue objects that matter
(WorkloadPriorityClasses, ResourceFlavors, admission checks of ClusterQueues) come from the store, not from a watch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from admission.controller.state.destinations import Destinations, Found
from admission.controller.state.learned import with_learned
from admission.kinds.devices import Inventory
from admission.kinds.dispatched import autoscaler, is_dispatched, without_status
from admission.kinds.limits import NamespaceContext
from admission.model import sentences
from admission.model.devices import DeviceRules
from admission.model.errors import Misconfigured
from admission.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    LocalQueue,
    ProvisioningRequestConfig,
    ResourceFlavor,
    WorkloadPriorityClass,
)
from admission.model.workload import LOCAL, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.cluster.informer import WatchedChange
    from admission.kinds.base import Object, Observed
    from admission.kinds.registry import Kinds
    from admission.model.provisioning import ProvisioningRequestConfigSpec
    from admission.model.queues import AdmissionCheckRule, Dispatch, QueueObject, TimeLimits
    from admission.model.workload import PodSet

PATHS = {
    "namespaces": "/api/v1/namespaces",
    "limitranges": "/api/v1/limitranges",
    "runtimeclasses": "/apis/node.k8s.io/v1/runtimeclasses",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
"""List and watch paths of the cached resources, by plural resource name."""


class Context:
    """Cache of the objects that requests, priorities and start patches are computed from."""

    def __init__(self, devices: Inventory | None = None) -> None:
        """`devices`: what ResourceClaims request; None: no devices count."""
        self.devices = devices or Inventory(DeviceRules())
        self.cluster = LOCAL
        """Name of the cluster of these objects."""
        self.closed = ""
        """Message why nothing is started in the cluster; empty: it is open."""
        self.is_lost = False
        """Whether nothing can be stopped in the cluster now, or it still runs what was queued again elsewhere."""
        self._objects: dict[str, dict[str, dict[str, Any]]] = {resource: {} for resource in PATHS}
        self._namespaces: dict[str, NamespaceContext] = {}
        self._priority_classes: dict[str, int] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        """ResourceFlavors by name; their node labels and tolerations are injected when a workload is started."""
        self.destinations = Destinations(self.flavors)
        """The clusters that workloads may be dispatched to."""
        self.check_rules: dict[str, tuple[AdmissionCheckRule, ...]] = {}
        """Admission checks that each ClusterQueue requires, by its name."""
        self.provisioned_checks: dict[str, str] = {}
        """The ProvisioningRequestConfig of each AdmissionCheck that asks for nodes, by the name of the check."""
        self.provisioning_configs: dict[str, ProvisioningRequestConfigSpec] = {}
        """The ProvisioningRequestConfigs, by name."""
        self._cluster_queues: dict[tuple[str, str], str] = {}
        """The ClusterQueue of each LocalQueue, by (namespace, name)."""
        self._time_limits: dict[tuple[str, str], TimeLimits] = {}
        """Of LocalQueues and ClusterQueues that have some, by (namespace or "", name)."""

    def update(self, resource: str, change: WatchedChange) -> str:
        """Process a change from a watch; return the namespace whose workloads it may affect, "" for all namespaces."""
        objects = self._objects[resource]
        if change.type == "DELETED" or change.object is None:
            objects.pop(change.key, None)
        else:
            objects[change.key] = change.object
        self._namespaces.clear()
        return change.key.partition("/")[0] if resource in ("limitranges", "namespaces") else ""

    def update_queue_object(self, obj: QueueObject) -> None:
        """Store a queue object that is new or has changed."""
        self.destinations.update(obj)
        match obj:
            case WorkloadPriorityClass():
                self._priority_classes[obj.name] = obj.value
            case ResourceFlavor():
                self.flavors[obj.name] = obj
            case AdmissionCheck():
                self.provisioned_checks.pop(obj.name, None)
                if (config := obj.provisioning_config) is not None:
                    self.provisioned_checks[obj.name] = config
            case ProvisioningRequestConfig():
                self.provisioning_configs[obj.name] = obj.spec
            case ClusterQueue():
                strategy = obj.spec.admission_checks_strategy
                self.check_rules[obj.name] = () if strategy is None else strategy.admission_checks
                self._put_time_limits(obj)
            case LocalQueue():
                self._cluster_queues[obj.metadata.namespace, obj.name] = obj.spec.cluster_queue
                self._put_time_limits(obj)
            case _:
                pass

    def _put_time_limits(self, obj: ClusterQueue | LocalQueue) -> None:
        key = obj.metadata.namespace, obj.name
        if obj.spec.time_limits is None:
            self._time_limits.pop(key, None)
        else:
            self._time_limits[key] = obj.spec.time_limits

    def forget_queue_objects(self) -> None:
        """Remove all queue objects, before they are loaded from the database again."""
        self._priority_classes.clear()
        self.flavors.clear()
        self.check_rules.clear()
        self.provisioned_checks.clear()
        self.provisioning_configs.clear()
        self.destinations.clear()
        self._cluster_queues.clear()
        self._time_limits.clear()

    def forget_queue_object(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted queue object."""
        self.destinations.forget(kind, name)
        match kind:
            case WorkloadPriorityClass.kind:
                self._priority_classes.pop(name, None)
            case ResourceFlavor.kind:
                self.flavors.pop(name, None)
            case AdmissionCheck.kind:
                self.provisioned_checks.pop(name, None)
            case ProvisioningRequestConfig.kind:
                self.provisioning_configs.pop(name, None)
            case ClusterQueue.kind:
                self.check_rules.pop(name, None)
                self._time_limits.pop((namespace, name), None)
            case LocalQueue.kind:
                self._cluster_queues.pop((namespace, name), None)
                self._time_limits.pop((namespace, name), None)
            case _:
                pass

    def dispatch_rule(self, namespace: str, name: str) -> tuple[Dispatch, tuple[str, ...]] | None:
        """Return `Destinations.rule` of a LocalQueue's ClusterQueue, or without a namespace of that ClusterQueue."""
        return self.destinations.rule(self.cluster_queue(namespace, name) if namespace else name)

    def cluster_queue(self, namespace: str, queue: str) -> str:
        """Return the ClusterQueue of a LocalQueue; empty: it is not known."""
        return self._cluster_queues.get((namespace, queue), "")

    def time_limits(self, namespace: str, name: str) -> tuple[tuple[str, TimeLimits], ...]:
        """Return the time limits of a LocalQueue and of its ClusterQueue, with their kinds and names, where they exist.

        Without a namespace: those of the ClusterQueue `name`.
        """
        if not self._time_limits:
            return ()
        keys = [("", name)]
        if namespace:
            keys = [(namespace, name), ("", self._cluster_queues.get((namespace, name), ""))]
        found = ((f"{'LocalQueue' if key[0] else 'ClusterQueue'} {key[1]}", self._time_limits.get(key)) for key in keys)
        return tuple((queue, limits) for queue, limits in found if limits is not None)

    def max_seconds(self, own: int | None, namespace: str, queue: str) -> int | None:
        """Return the time limit (s) of a workload in a LocalQueue, None: none. `own`: the one that its user has set.

        Raises Misconfigured if its own one is longer than permitted.
        """
        if not (limits := self.time_limits(namespace, queue)):
            return own
        longest = min(((each.max_seconds, name) for name, each in limits if each.max_seconds is not None), default=None)
        if own is None:
            defaults = [each.default_seconds for _, each in limits if each.default_seconds is not None]
            return min([*defaults[:1], *(longest or ())[:1]], default=None)
        if longest is not None and own > longest[0]:
            raise Misconfigured(
                f"its label max-exec-time-seconds has {own} s, and {longest[1]} permits {longest[0]} s at most: "
                "lower it, or use another LocalQueue"
            )
        return own

    def namespaces(self) -> Iterable[str]:
        """Return the names of all namespaces."""
        return self._objects["namespaces"].keys()

    def lasting_namespaces(self) -> list[str]:
        """Return the names of the namespaces that are not being deleted."""
        found = self._objects["namespaces"].items()
        return [name for name, obj in found if "deletionTimestamp" not in obj["metadata"]]

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if there is no such namespace."""
        namespace = self._objects["namespaces"].get(name)
        return None if namespace is None else namespace["metadata"].get("labels") or {}

    def has_class(self, resource: str, name: str) -> bool:
        """Whether there is a PriorityClass or RuntimeClass (`resource`: the plural) of this name."""
        return name in self._objects[resource]

    def of_namespace(self, name: str) -> NamespaceContext:
        """Return the LimitRanges and RuntimeClasses that the requests of pods in a namespace depend on."""
        context = self._namespaces.get(name)
        if context is None:
            limits = [limit for key, limit in self._objects["limitranges"].items() if key.startswith(f"{name}/")]
            context = NamespaceContext(limits, self._objects["runtimeclasses"].values())
            self._namespaces[name] = context
        return context

    def priority(self, *, workload_class: str, pod_class: str) -> int:
        """Return the priority of the WorkloadPriorityClass, else of the pods' PriorityClass, else the default, else 0.

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
                    f'priorityClassName: PriorityClass "{pod_class}" does not exist: create it, or name another one'
                )
            return int(classes[pod_class]["value"])
        # Of several defaults the lowest counts, as in Kubernetes' own admission plugin.
        return min((int(each["value"]) for each in classes.values() if each.get("globalDefault")), default=0)


@dataclass(frozen=True, slots=True)
class Reading:
    """A workload as read from its object.

    `fault`: message for the user if the object is misconfigured, so that it must not be admitted; else empty.
    """

    workload: Workload
    fault: str = ""
    closed: str = ""
    """Message why nothing is started in its cluster, or in those that it may be dispatched to; else empty."""
    until: float | None = None
    """Unix time (s) from which it may be dispatched to further clusters; None: no time is known."""


def read(
    kinds: Kinds,
    seen: Observed,
    obj: Object,
    context: Context,
    *,
    former: Workload | None = None,
    known: Workload | None = None,
    moved_to: str | None = None,
    barred: Mapping[str, tuple[float, str]] = MappingProxyType({}),
    sent_to: str = "",
    now: float = 0.0,
) -> Reading:
    """Return the workload of an object that names a queue; `known` itself if the object still requests the same.

    `former`: as it was before, with what was learned from its pods. `moved_to`: the LocalQueue to which an admin has
    moved it, whose time limits apply. `barred`: clusters that it is not dispatched to now, with the messages why.
    `sent_to`: the cluster that it was last dispatched to; empty: to none. `now`: Unix time (s).
    """
    pod_sets: tuple[PodSet, ...] = ()
    priority = 0
    fault = ""
    max_seconds = seen.max_seconds
    found = Found()
    closed = context.closed
    try:
        if is_dispatched(seen.kind, obj):
            obj = without_status(seen.kind, obj)
        pod_sets = seen.kind.pod_sets(obj, context.of_namespace(seen.namespace))
        is_sent = _is_sent(context, seen, obj, moved_to or seen.queue, pod_sets)
        pod_sets = context.devices.charged(pod_sets, seen.namespace)
        pod_sets = pod_sets if former is None else with_learned(pod_sets, former.pod_sets)
        priority = context.priority(workload_class=seen.priority_class, pod_class=seen.pod_priority_class)
        max_seconds = context.max_seconds(max_seconds, seen.namespace, moved_to or seen.queue)
        if is_sent:
            source = known or former
            since = seen.created if source is None else source.since
            cluster_queue = context.cluster_queue(seen.namespace, moved_to or seen.queue)
            found = context.destinations.find(
                cluster_queue, obj["metadata"].get("annotations") or {}, pod_sets, barred,
                former=sent_to, since=since, now=now, or_here=not is_dispatched(seen.kind, obj),
            )  # fmt: skip
            closed = _closed(found, barred)
            if found.clusters == ((LOCAL,),):
                found = replace(found, clusters=())
    except Misconfigured as error:
        fault = str(error)
    is_placed = known is not None and (known.clusters, known.passed_over) == (found.clusters, found.passed_over)
    if known is not None and is_placed and _matches(known, seen, pod_sets, priority, max_seconds):
        return Reading(known, fault, closed, found.until)
    workload = Workload(
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        queue=seen.queue,
        priority=priority,
        created=seen.created,
        pod_sets=pod_sets,
        kind=seen.kind.kind,
        api_version=kinds.api_version(seen.kind),
        priority_class=seen.priority_class,
        user=seen.user,
        max_seconds=max_seconds,
        terms=seen.terms,
        cluster=context.cluster,
        groups=seen.groups,
        clusters=found.clusters,
        passed_over=found.passed_over,
    )
    return Reading(workload, fault, closed, found.until)


def _closed(found: Found, barred: Mapping[str, tuple[float, str]]) -> str:
    """Return the message why a workload can be dispatched to no cluster now; empty: it can."""
    if found.clusters:
        return ""
    closed = [sentences.passed_over(cluster, why) for cluster, why in found.closed]
    if len(found.passed_over) > len(closed) and not barred:
        return " ".join([sentences.no_required_cluster(found.passed_over[0][1]), *closed])
    return " ".join([sentences.no_destination([message for _, message in barred.values()]), *closed])


def _is_sent(context: Context, seen: Observed, obj: Object, queue: str, pod_sets: tuple[PodSet, ...]) -> bool:
    """Whether a workload may be dispatched. Raises Misconfigured if it says that it is, but cannot be.

    One that does not say so may, if its copy would have the pods that it asks for: it would begin anew.
    """
    is_dispatching = context.destinations.any and context.dispatch_rule(seen.namespace, queue) is not None
    if is_dispatched(seen.kind, obj):
        if context.cluster != LOCAL:
            raise Misconfigured(sentences.dispatched_from(LOCAL))
        if not is_dispatching:
            raise Misconfigured(sentences.not_dispatching(queue))
        if path := autoscaler(obj):
            raise Misconfigured(sentences.dispatched_with_autoscaler(path))
        return True
    if not (is_dispatching and context.cluster == LOCAL and seen.kind.may_stay_gated(obj)) or autoscaler(obj):
        return False
    anew: Object = {**obj, "status": {}}
    return seen.kind.pod_sets(anew, context.of_namespace(seen.namespace)) == pod_sets


def _matches(
    known: Workload, seen: Observed, pod_sets: tuple[PodSet, ...], priority: int, max_seconds: int | None
) -> bool:
    """Whether a new workload would equal the known one of the same uid, whose kind and name never change."""
    return (
        known.queue == seen.queue
        and known.priority == priority
        and known.priority_class == seen.priority_class
        and known.user == seen.user
        and known.groups == seen.groups
        and known.max_seconds == max_seconds
        and known.terms == seen.terms
        and known.created == seen.created
        and known.pod_sets == pod_sets
    )
