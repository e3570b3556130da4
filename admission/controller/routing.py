"""Routing of inbox messages, queue objects, orders and check states to the workloads that they concern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.controller.state.inbox import (
    ContextChanged,
    CopyAnswered,
    DelayEnded,
    DevicesChanged,
    KindListed,
    NodesAndPodsChanged,
    ObjectGone,
    ObjectReturned,
    ObjectsChanged,
    Recheck,
    StepDone,
    Told,
)
from admission.controller.state.triggers import (
    CheckAnswered,
    CheckRulesChanged,
    ClaimsChanged,
    ContextChange,
    Drained,
    LastPodEnded,
    ObjectDeleted,
    Ordered,
    PodProblem,
    PodsCounted,
    StopHindered,
)
from admission.engine.events import NamespaceChanged, QueueObjectChanged, QueueObjectDeleted
from admission.model.errors import ClusterError
from admission.model.queues import (
    Cluster,
    ClusterQueue,
    LocalQueue,
    PriceBook,
    ResourceFlavor,
    WorkloadPriorityClass,
)
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.cluster.informer import WatchedChange
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Message
    from admission.controller.state.triggers import Trigger
    from admission.controller.workloads.children import Children
    from admission.controller.workloads.failed_nodes import FailedNodes
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.controller.workloads.requests import Requests
    from admission.controller.workloads.sender import Sender
    from admission.controller.workloads.ungating import Ungating
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.devices import Claimed
    from admission.store.records import QueueObjectVersion
    from admission.store.workloads.orders import OrdersAndChecks


_OF_COPIES: Final = (Drained, LastPodEnded, PodProblem, PodsCounted, StopHindered)
"""Triggers that a cluster learns of the pods of copies in it, which are workloads of the hub."""


class Router:
    """Finds the workloads that a message concerns, and passes them a trigger (`Reconciler.handle`)."""

    def __init__(
        self,
        reconciler: Reconciler,
        children: Children,
        groups: PodGroups,
        requests: Requests,
        ungating: Ungating,
        failed_nodes: FailedNodes,
        sender: Sender,
        faults: Faults,
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        tell_hub: Callable[[Message], None] | None = None,
    ) -> None:
        """`tell_hub`: puts a message about a workload of the hub into its inbox; None: this is the hub."""
        self._reconciler = reconciler
        self._state = reconciler.state
        self._dispatching = reconciler.dispatching
        self._context = reconciler.environment.context
        self._isolation = reconciler.isolation
        self._children = children
        self._groups = groups
        self._requests = requests
        self._ungating = ungating
        self._failed_nodes = failed_nodes
        self._sender = sender
        self._faults = faults
        self._namespace_labels = namespace_labels
        self._tell_hub = tell_hub

    def messages(self, messages: Iterable[Message]) -> None:
        """Process messages of the inbox, in order."""
        for message in messages:
            match message:
                case ObjectsChanged(kind, changes):
                    for change in changes:
                        self._object_changed(kind, change)
                case ObjectReturned(kind, obj):
                    self._children.object_returned(kind, obj)
                case Recheck(uid):
                    self._recheck(uid)
                case StepDone() | CopyAnswered():
                    with self._isolation.of(message.uid):
                        self._answered(message)
                case ObjectGone(uid):
                    tracked = self._state.registry.get(uid)
                    self._object_gone(uid, None if tracked is None else tracked.seen)
                case DelayEnded(uid):
                    with self._isolation.of(uid):
                        self._read(uid)
                case Told():
                    self._told(message)
                case NodesAndPodsChanged():
                    self._nodes_and_pods_changed(message)
                case ContextChanged(namespace):
                    self._context_changed(namespace)
                case DevicesChanged(claims):
                    self._devices_changed(claims)
                case KindListed(unlisted):
                    self._groups.kinds_changed()
                    self._groups.update_due()  # before the search for pods of unknown groups
                    self._requests.read_unobserved(unlisted)
        self._groups.update_due()

    def _recheck(self, uid: str) -> None:
        self._children.recheck(uid)
        if self._dispatching is not None:
            self._dispatching.recheck(uid)

    def _answered(self, message: StepDone | CopyAnswered) -> None:
        """Process the response to a request about an object, according to what the object is."""
        uid = message.uid
        if isinstance(message, CopyAnswered):
            if self._dispatching is not None:
                self._dispatching.answered(message)
            return
        self._sender.release(uid)
        if isinstance(message.result, ClusterError) and self._dispatching is not None:
            self._dispatching.report_failed(uid)
        if self._ungating.answered(message):
            return
        self._children.owner_answered(message)
        if (tracked := self._state.registry.get(uid)) is not None:
            self._requests.done(tracked, message)
        else:
            self._children.answered(message)

    def _read(self, uid: str) -> bool:
        """Read an object again; return whether it is known."""
        if (tracked := self._state.registry.get(uid)) is None:
            return self._children.read(uid)
        self._requests.read(tracked)
        return True

    def _told(self, message: Told) -> None:
        uid, trigger = message.uid, message.trigger
        if self._state.registry.get(uid) is not None:
            self._trigger(uid, trigger)
        elif self._tell_hub is not None and isinstance(trigger, _OF_COPIES):
            self._tell_hub(message)

    def _nodes_and_pods_changed(self, message: NodesAndPodsChanged) -> None:
        for event in message.events:
            self._state.observe(event)
        self._failed_nodes.changed(message)
        self._ungating.changed(message.workloads)
        for name in message.nodes:  # pods that wait for a node may be ungated when it is ready again
            self._ungating.changed(self._state.engine.placed_on(name, self._context.cluster))

    def _trigger(self, uid: str, trigger: Trigger) -> None:
        if (tracked := self._state.registry.get(uid)) is not None:
            with self._isolation.of(uid):
                self._reconciler.handle(tracked, trigger)

    def _object_changed(self, kind: Kind, change: WatchedChange) -> None:
        if change.type != "DELETED" and change.object is not None:
            self._children.process(kind, change.object)
            return
        if kind.watched_label and not _is_deleted(change) and self._read(change.uid):
            return  # the object may only have lost its watch label
        tracked = self._state.registry.get(change.uid)
        last = None if tracked is None else tracked.seen
        if tracked is not None and change.object is not None:
            last = self._last(kind, change.object)
        self._object_gone(change.uid, last)

    def _object_gone(self, uid: str, last: Observed | None) -> None:
        """Process the deletion of an object. `last`: its last observed state, if it is a workload."""
        self._faults.forget(uid)
        self._sender.forget(uid)
        if self._state.registry.get(uid) is not None:
            self._trigger(uid, ObjectDeleted(last))
        self._groups.object_deleted(uid)
        self._children.object_deleted(uid)
        if self._dispatching is not None:
            self._dispatching.recheck(uid)

    def _last(self, kind: Kind, obj: Object) -> Observed | None:
        """Return the last observed state of a deleted object; None if it cannot be read."""
        try:
            return kind.observe(obj)
        except Exception as error:  # noqa: BLE001  the deletion is processed even if the object cannot be read
            self._faults.report(f"the last state of {obj['metadata']['uid']}", error)
            return None

    def _context_changed(self, namespace: str) -> None:
        if namespace:
            self._state.observe(NamespaceChanged(namespace, self._namespace_labels(namespace)))
        self._pending_changed(namespace)

    def _pending_changed(self, namespace: str) -> None:
        """Read the pending workloads of a namespace again, "": of all."""
        for tracked in list(self._state.registry):
            if not namespace or tracked.record.workload.namespace == namespace:
                self._trigger(tracked.uid, ContextChange())

    def _devices_changed(self, claims: frozenset[Claimed] | None) -> None:
        if claims is not None:
            for uid in self._state.registry.claimants(claims):
                self._trigger(uid, ClaimsChanged())
            return
        for tracked in list(self._state.registry):
            if self._context.devices.concerns(tracked.record.workload.pod_sets):
                self._trigger(tracked.uid, ContextChange())

    def queue_objects(self, versions: Iterable[QueueObjectVersion]) -> None:
        """Process queue objects that were written or deleted, in order of their revisions; idempotent."""
        for version in versions:
            self._state.quota_freed = True
            with self._isolation.of_queue_object(version.object.key):
                self._queue_object(version)

    def _queue_object(self, version: QueueObjectVersion) -> None:
        kind, namespace, name = version.object.key
        rules, limits = self._context.check_rules.get(name, ()), self._context.time_limits(namespace, name)
        rule = self._context.dispatch_rule(namespace, name)
        if version.operation == "delete":
            self._context.forget_queue_object(kind, namespace, name)
            self._state.observe(QueueObjectDeleted(kind, namespace, name))
        else:
            self._context.update_queue_object(version.object)
            self._state.observe(QueueObjectChanged(version.object))
        if kind == WorkloadPriorityClass.kind:
            self._context_changed("")
        if kind in (ClusterQueue.kind, LocalQueue.kind) and (
            self._context.time_limits(namespace, name) != limits or self._context.dispatch_rule(namespace, name) != rule
        ):
            self._pending_changed(namespace)
        if kind in (Cluster.kind, PriceBook.kind, ResourceFlavor.kind) and self._context.destinations.any:
            self._pending_changed("")  # the order of clusters depends on them
        if kind == ClusterQueue.kind and self._context.check_rules.get(name, ()) != rules:
            self._check_rules_changed(name)

    def _check_rules_changed(self, cluster_queue: str) -> None:
        for tracked in list(self._state.registry):
            record = tracked.record
            if record.state is State.ADMITTED and record.admission and record.cluster_queue == cluster_queue:
                self._trigger(tracked.uid, CheckRulesChanged())

    def orders_and_checks(self, changes: OrdersAndChecks) -> None:
        """Process orders of users and admins, and changed states of admission checks; idempotent."""
        for order in changes.orders:
            self._trigger(order.uid, Ordered(order))
        for check in changes.checks:
            self._trigger(check.uid, CheckAnswered(check))


def _is_deleted(change: WatchedChange) -> bool:
    """Return whether the object is certainly deleted, and has not only left the watch's label selector."""
    return change.object is not None and "deletionTimestamp" in change.object["metadata"]
