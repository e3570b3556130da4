"""What arrives, told to those whom it concerns: changes in the cluster, outcomes of requests, orders of admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.controller.state.inbox import ContextChanged, Due, ObjectsChanged, PodProblemsFound, PodsGone, StepDone
from admission.engine.events import NamespaceChanged, QueueObjectChanged, QueueObjectDeleted
from admission.model.queues import ClusterQueue, WorkloadPriorityClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.cluster.informer import Change
    from admission.controller.state.context import Context
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Message
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.workload_state import Desk
    from admission.controller.workloads.acting import Acting
    from admission.controller.workloads.admitted import Upkeep
    from admission.controller.workloads.children import Children
    from admission.controller.workloads.observing import Observing
    from admission.kinds.base import Kind, Object, Observed
    from admission.store.records import QueueObjectVersion
    from admission.store.workloads.orders import News


class Dispatcher:
    """The distribution; what follows is decided by the others."""

    def __init__(
        self,
        *,
        context: Context,
        desk: Desk,
        observing: Observing,
        isolation: Isolation,
        faults: Faults,
        acting: Acting,
        upkeep: Upkeep,
        children: Children,
    ) -> None:
        self._isolation = isolation
        self._faults = faults
        self._context = context
        self._desk = desk
        self._observing = observing
        self._acting = acting
        self._upkeep = upkeep
        self._children = children

    def messages(self, messages: Iterable[Message]) -> None:
        """What was in the inbox."""
        for message in messages:
            match message:
                case ObjectsChanged(kind, changes):
                    for change in changes:
                        self._object_changed(kind, change)
                case StepDone():
                    with self._isolation.of(message.uid):
                        self._acting.done(message)
                case Due():
                    with self._isolation.of(message.uid):
                        self._acting.due(message)
                case PodsGone(uid, wait):
                    if (tracked := self._desk.registry.get(uid)) is not None and tracked.wait == wait:
                        with self._isolation.of(uid):
                            self._observing.pods_gone(tracked)
                case PodProblemsFound(uid, text):
                    if (tracked := self._desk.registry.get(uid)) is not None:
                        with self._isolation.of(uid):
                            self._desk.note_pod_problem(tracked, text)
                case ContextChanged(namespace):
                    self._context_changed(namespace)

    def _object_changed(self, kind: Kind, change: Change) -> None:
        if change.type != "DELETED" and change.object is not None:
            self._isolation.see(kind, change.object, self._observing.see)
            return
        self._faults.forget(change.uid)
        if (tracked := self._desk.registry.get(change.uid)) is not None:
            with self._isolation.of(change.uid):
                if change.object is not None:
                    tracked.seen = self._last(kind, change.object)
                self._observing.gone(tracked)
        self._children.gone(change.uid)

    def _last(self, kind: Kind, obj: Object) -> Observed | None:
        """The last state of an object that is gone; None if that cannot be read."""
        try:
            return kind.observe(obj)
        except Exception as error:  # noqa: BLE001  it is gone, whatever is the matter with it
            self._faults.report(f"the last state of {obj['metadata']['uid']}", error)
            return None

    def _context_changed(self, namespace: str) -> None:
        if namespace:
            self._desk.tell(NamespaceChanged(namespace, self._context.namespace_labels(namespace)))
        for tracked in list(self._desk.registry):
            if not namespace or tracked.record.workload.namespace == namespace:
                with self._isolation.of(tracked.uid):
                    self._observing.look_again(tracked)

    def versions(self, versions: Iterable[QueueObjectVersion]) -> None:
        """Queue objects that were written or deleted, in this order. Telling the same again changes nothing."""
        for version in versions:
            self._desk.freed = True
            with self._isolation.of_queue_object(version.object.key):
                self._version(version)

    def _version(self, version: QueueObjectVersion) -> None:
        kind, namespace, name = version.object.key
        rules = self._context.check_rules(name)
        if version.operation == "delete":
            self._context.forget_queue_object(kind, name)
            self._desk.tell(QueueObjectDeleted(kind, namespace, name))
        else:
            self._context.see_queue_object(version.object)
            self._desk.tell(QueueObjectChanged(version.object))
        if kind == WorkloadPriorityClass.kind:
            self._context_changed("")
        if kind == ClusterQueue.kind and self._context.check_rules(name) != rules:
            self._upkeep.rules_changed(name)

    def news(self, news: News) -> None:
        """What admins have ordered and checks have answered. Telling the same again changes nothing."""
        for order in news.orders:
            with self._isolation.of(order.uid):
                self._observing.ordered(order)
        for check in news.checks:
            with self._isolation.of(check.uid):
                self._upkeep.said(check)
