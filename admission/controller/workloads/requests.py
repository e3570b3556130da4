"""Requests by which objects reach their committed state: which one is due, and how its response is processed."""

from __future__ import annotations

import logging
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from admission.apimachinery.tables import duration
from admission.cluster.errors import Conflict, Forbidden, Invalid, NotFound, StatusError
from admission.cluster.events import ObjectReference
from admission.controller.state.inbox import StepDone
from admission.controller.state.lifecycle import Step
from admission.controller.state.triggers import (
    KindUnlisted,
    ObjectDeleted,
    PodProblem,
    StartImpossible,
    StopHindered,
    Stopped,
)
from admission.controller.workloads.group_plan import GroupPlan, Member, group_domains
from admission.controller.workloads.plan import (
    ScaleUp,
    Write,
    desired,
    desired_of_group,
    excess_pod,
    reference,
    started_pod,
    step_of,
    still_gated,
)
from admission.engine.vocabulary import PODS_UNSCHEDULED
from admission.kinds.base import is_watched
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.text import clean
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import Trigger
    from admission.controller.workloads.children import Children
    from admission.controller.workloads.dispatching import Dispatching
    from admission.controller.workloads.plan import Notice
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.controller.workloads.sender import Sender
    from admission.kinds.base import Kind, Observed

log = logging.getLogger(__name__)

MAX_BACKOFF = 30.0
"""Seconds between two attempts at most."""

_PAUSE: Final = 1.0
"""Seconds between two looks at whether a cluster is open that has stopped nothing yet of what it must not run."""

_RELABEL_WAIT: Final = 2.0
"""Seconds until a group is checked again whose pods got their label back: the watch has to report them first."""
_NO_PODS: Final = NotFound("no pod of the group exists", code=404, status={})
"""Outcome of the read of a group without pods."""

_CHANGES: Final = {Step.START: "start it", Step.STOP: "stop it", Step.RESTORE: "restore it"}


class Requests:
    """Has the request sent that is due for each changed workload after a commit, and processes the response."""

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        children: Children,
        groups: PodGroups,
        client: Client,
        sender: Sender,
        events: EventRecorder,
        inbox: Inbox,
    ) -> None:
        self._reconciler = reconciler
        self._children = children
        self._groups = groups
        self._client = client
        self._dispatching = reconciler.dispatching
        self._environment = reconciler.environment
        self._kinds = reconciler.environment.kinds
        self._state = reconciler.state
        self._isolated = reconciler.isolation.of
        self._sender = sender
        self._events = events
        self._inbox = inbox

    def release_stopped(self) -> None:
        """Before a commit: release the quota of evicted workloads that have stopped and are restored."""
        for uid in list(self._state.dirty):
            tracked = self._state.registry.get(uid)
            if (
                tracked is not None
                and tracked.record.state is State.EVICTING
                and tracked.seen is not None
                and tracked.kept is not None
                and not self._is_busy(uid)
            ):
                with self._isolated(uid):
                    if step_of(tracked, tracked.seen) is Step.RELEASE:
                        self._handle(tracked, Stopped())
                        if self._kinds.is_composed(tracked.record.workload):
                            self._groups.enqueue(tracked)
        self._groups.update_due()  # a pending group requests the pods that exist now, not the former ones

    def send_due(self) -> None:
        """After a commit: send the due request of each workload that has changed."""
        dirty, self._state.dirty = self._state.dirty, {}
        for uid in dirty:
            tracked = self._state.registry.get(uid)
            if tracked is None or tracked.seen is None or self._is_busy(uid):
                continue
            try:
                self._send(tracked, tracked.seen, step_of(tracked, tracked.seen))
            except Exception as error:  # noqa: BLE001  any exception is attributed to this workload
                self._reconciler.isolation.failed(uid, error)

    def send_pressing(self) -> None:
        """Between two commits, which wait for further arrivals: tell at once that dispatched workloads run or ended.

        That is no decision, and only of workloads of which all is committed.
        """
        if self._dispatching is None:
            return
        for uid in list(self._state.dirty):
            tracked = self._state.registry.get(uid)
            if (
                tracked is not None
                and tracked.seen is not None
                and not self._is_busy(uid)
                and self._dispatching.is_pressing(tracked)
                and not self._state.batch.concerns(uid)
            ):
                del self._state.dirty[uid]
                with self._isolated(uid):
                    self._dispatching.send(tracked)

    def _is_busy(self, uid: str) -> bool:
        return self._sender.is_busy(uid) or (self._dispatching is not None and self._dispatching.is_busy(uid))

    def _send(self, tracked: Tracked, seen: Observed, step: Step) -> None:
        if step is Step.RELEASE:
            self._state.dirty[seen.uid] = None  # evicted before its start: the next commit releases its quota
        elif tracked.runs_elsewhere and self._dispatching is not None:
            if tracked.unsettled and tracked.record.state is State.EVICTING:
                self._reconciler.wait_for_pods(tracked)
            if not self._kinds.is_composed(tracked.record.workload):
                self._dispatching.send(tracked)
            elif self._dispatch_group(tracked, self._dispatching, step) and tracked.start_patch is not None:
                tracked.start_patch = None
                self._record_admitted(tracked)
        elif tracked.unsettled and (seen.suspended or seen.deleting) and tracked.holds_quota:
            self._reconciler.wait_for_pods(tracked)
        elif step is Step.START and self._environment.context.is_lost:
            self._sender.remind(seen.uid, _PAUSE)
        elif step in (Step.START, Step.STOP) and self._kinds.is_composed(tracked.record.workload):
            self._send_each(tracked, seen, step)
        elif isinstance(due := desired(tracked, seen, step, self._environment.context.flavors), Write):
            self._sender.send(step, due)
        elif due is None or isinstance(due, ScaleUp):
            if step is Step.WAIT:
                tracked.attempts = 0  # the request that failed is no longer due
            if due is not None:
                self._children.scale_up(tracked.uid, due.counts)
        else:
            self._handle(tracked, due)

    def _send_each(self, tracked: Tracked, seen: Observed, step: Step) -> None:
        """Send what is due for the pods of a group."""
        workload, context, kind = tracked.record.workload, self._environment.context, self._groups.pod_kind
        due = desired_of_group(
            tracked, seen, step, self._groups.members(tracked),
            kind=kind, context=context.of_namespace(workload.namespace), flavors=context.flavors,
        )  # fmt: skip
        if isinstance(due, StartImpossible):
            self._handle(tracked, due)
            return
        writes = due

        def isolated() -> Iterator[Write | Notice]:
            with self._isolated(tracked.uid):
                yield from writes

        if not self._sender.send_each(tracked.uid, step, kind, isolated()) and step is Step.STOP:
            self._groups.enqueue(tracked)
            self._inbox.wake()

    def _dispatch_group(self, tracked: Tracked, dispatching: Dispatching, step: Step) -> bool:
        """Send what is due for the copies of a group's pods, and for the pods; return whether all are started."""
        members, kind, flavors = self._groups.members(tracked), self._groups.pod_kind, self._environment.context.flavors
        may_run = tracked.record.state is State.ADMITTED and not tracked.record.checks_pending
        plan = self._groups.plan(tracked, members) if may_run else GroupPlan((), (), ())
        if step is Step.START and may_run:
            for notice in still_gated(tracked, members, plan):
                self._sender.tell(notice.target, "Pending", notice.note)
        domains = group_domains(tracked, [dispatching.as_placed(tracked, each) for each in members])
        excess, started = {each.uid for each in plan.excess}, {each.uid for each in plan.started}
        for each in members:
            if not self._groups.has(each.uid):
                continue  # its copy only is left, and is being deleted
            if each.uid in excess and dispatching.is_known(tracked, each):
                if not (self._sender.is_busy(each.uid) or each.deleting):
                    self._sender.send(Step.STOP, excess_pod(tracked, each))
                continue

            def start(each: Member = each) -> list[Object]:
                patch = started_pod(tracked, each, kind, flavors, domains).patch
                assert isinstance(patch, list), each.name
                return patch

            runs = may_run and each.uid not in excess and (each.runs or each.uid in started)
            dispatching.send_member(tracked, each, start if runs else None)
            if self._reconciler.state.registry.get(tracked.uid) is not tracked:
                return False  # it was evicted for this pod, and the others are looked at after that is committed
        return may_run and not plan.started

    def done(self, tracked: Tracked, message: StepDone) -> None:
        """Process the response to a request."""
        if isinstance(message.result, ClusterError):
            self._failed(tracked, message.step, message.result)
            return
        if message.step is not Step.WAIT:  # a read says nothing about the request that is repeated after it
            tracked.attempts = 0
        if message.step in (Step.STOP, Step.RESTORE) and tracked.record.is_stop_hindered:
            self._handle(tracked, StopHindered(""))
        if self._kinds.is_composed(tracked.record.workload):
            self._group_done(tracked, message.step)
            return
        if message.result["metadata"]["uid"] != message.uid:
            self._handle(tracked, ObjectDeleted(tracked.seen))
            return
        if tracked.seen is None and message.step is not Step.WAIT:
            return  # this response is older than the deletion that the watch has reported
        if message.step is Step.START:
            if tracked.record.reason == PODS_UNSCHEDULED:  # its start was refused before
                self._handle(tracked, PodProblem(""))
            tracked.in_sync, tracked.start_patch = message.result["metadata"].get("generation") or 0, None
        self._state.dirty[message.uid] = None
        if (kind := self._kinds.of(tracked.record.workload)) is not None:
            runs = tracked.runs_elsewhere or not kind.observe(message.result).suspended
            if message.step is Step.START and runs:  # some kinds are started by two requests
                self._record_admitted(tracked)
                for note in kind.remarks(message.result):
                    regarding = reference(tracked.record.workload)
                    self._events.record(regarding, reason="Admitted", action="Admit", note=note, warning=True)
            self._children.process(kind, message.result)
            self._restore_label(message.uid, kind, message.result)

    def _handle(self, tracked: Tracked, trigger: Trigger) -> None:
        """Pass a trigger to the Reconciler at the present time: a commit may have passed since `now` was set."""
        self._state.now = self._state.clock()
        self._reconciler.handle(tracked, trigger)

    def _group_done(self, tracked: Tracked, step: Step) -> None:
        if step is Step.START and tracked.record.reason == PODS_UNSCHEDULED:  # some starts were refused before
            self._handle(tracked, PodProblem(""))
        if step is Step.START and tracked.start_patch is not None:  # else it was the start of recreated pods
            tracked.start_patch = None
            self._record_admitted(tracked)
        self._state.dirty[tracked.uid] = None
        self._groups.enqueue(tracked)

    def _restore_label(self, uid: str, kind: Kind, obj: Object) -> None:
        """Restore the label by which the object is watched, if it was removed."""
        tracked = self._state.registry.get(uid)
        if tracked is not None and not self._sender.is_busy(uid) and not is_watched(kind, obj):
            self._sender.label(kind, reference(tracked.record.workload))

    def read(self, tracked: Tracked) -> None:
        """Read the object of a workload."""
        if self._kinds.is_composed(tracked.record.workload):
            self._reconcile(tracked)
        else:
            self._sender.read(reference(tracked.record.workload))

    def read_unobserved(self, unlisted: Collection[Kind]) -> None:
        """Read the objects of workloads that were not observed: finished, no longer queued, or deleted.

        `unlisted`: kinds that cannot be listed. Their pending workloads stay unadmitted until the list succeeds:
        no watch would report the deletion of an object that was read before.
        """
        self._restore_watch_labels()
        for uid in [tracked.uid for tracked in self._state.registry]:
            tracked = self._state.registry.get(uid)
            if tracked is None or tracked.seen is not None or self._sender.is_busy(uid):
                continue
            if (kind := self._kinds.of(tracked.record.workload)) is None:
                continue
            if kind not in unlisted:
                self.read(tracked)
            elif tracked.record.state is State.PENDING:
                self._handle(tracked, KindUnlisted())

    def _reconcile(self, tracked: Tracked) -> None:
        """Reconcile the group from its watched pods; if none is known, search for pods without the watch label."""
        uid, workload, owner = tracked.uid, tracked.record.workload, self._groups.owner(tracked)
        if not self._sender.begin(uid):
            return
        if self._groups.members(tracked) or (owner is not None and owner.makes_pods):
            self._groups.enqueue(tracked)
            self._inbox.put(StepDone(uid, Step.WAIT, {"metadata": {"uid": uid}}))
            return

        async def search() -> None:
            if await self._restore_labels(workload.namespace):
                self._sender.pause(uid, _RELABEL_WAIT)
            else:
                self._inbox.put(StepDone(uid, Step.WAIT, _NO_PODS))

        self._sender.run(search())

    def _restore_watch_labels(self) -> None:
        """Restore the watch label of pods that lost it while no watch was running, also in groups with other pods."""
        groups = (each.record.workload for each in self._state.registry)
        for namespace in {group.namespace for group in groups if self._kinds.is_composed(group)}:
            self._sender.run(self._restore_labels(namespace))

    async def _restore_labels(self, namespace: str) -> bool:
        """Label the pods of groups in a namespace that lack their watch label, and so are not observed.

        Returns whether there are any; True, too, if they cannot be listed. The watch then reports them.
        """
        kind, found = self._groups.pod_kind, False
        path = self._kinds.path(kind, namespace, "-").removesuffix("/-")
        try:
            params = {"labelSelector": f"{kind.watched_label}!=true"}
            async with aclosing(self._client.list_pages(path, params=params)) as pages:
                async for page in pages:
                    for pod in filter(self._groups.is_lost, page["items"]):
                        found = True
                        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
                        self._sender.label(kind, ObjectReference("v1", kind.kind, name, uid, namespace))
        except ClusterError as error:
            log.warning("cannot list the objects without watch label in %s: %s", path, error)
            return True
        return found

    def _failed(self, tracked: Tracked, step: Step, error: ClusterError) -> None:
        """Handle an error by its type; when in doubt, read the object again before any other request."""
        tracked.attempts += 1
        if isinstance(error, NotFound):
            if self._kinds.is_composed(tracked.record.workload) and self._groups.members(tracked):
                self._groups.enqueue(tracked)  # other pods were created during the search for its pods
            else:
                self._handle(tracked, ObjectDeleted(tracked.seen))
                if self._dispatching is not None:
                    self._dispatching.recheck(tracked.uid)
            return
        seen, obj = tracked.seen, tracked.object
        if seen is not None and obj is not None and self._is_refused(tracked, seen, obj, step, error):
            return
        # The outcome is unknown until the object was read again. A group is not read: the watch observes its pods.
        is_read = not self._kinds.is_composed(tracked.record.workload)
        if isinstance(error, Conflict | Invalid) and tracked.attempts <= 2 and is_read:
            self.read(tracked)
            return
        first = 3 if isinstance(error, Invalid) and is_read else 1
        if tracked.attempts == first or isinstance(error, Forbidden):
            what = "read" if step is Step.WAIT else step.value
            log.warning("cannot %s %s: %s", what, tracked.record.workload.key, error)
        is_lasting = isinstance(error, Forbidden) or tracked.attempts > 2
        if step in _CHANGES and is_lasting and isinstance(error, StatusError):
            text = sentences.change_refused(_CHANGES[step], clean(str(error.status.get("message") or error)))
            self._handle(tracked, PodProblem(text) if step is Step.START else StopHindered(text))
        # After a conflict the watch delivers the present version soon, so the backoff stays short.
        tries = 1 if isinstance(error, Conflict) else tracked.attempts
        self._sender.pause(tracked.uid, random.uniform(0.5, 1.0) * min(0.2 * 2**tries, MAX_BACKOFF))

    def _is_refused(self, tracked: Tracked, seen: Observed, obj: Object, step: Step, error: ClusterError) -> bool:
        """Return whether the API server refuses the change for good; the consequence is then handled."""
        refused = isinstance(error, Invalid) and bool(error.status.get("details"))
        suspension = seen.kind.suspension if seen.started and step in (Step.START, Step.RESTORE) else None
        if refused and suspension is not None and tracked.attempts == 1:
            # Before Kubernetes 1.36 a Job's template may change only after its start time was cleared.
            cleared = Write(reference(tracked.record.workload), suspension.clear_start_time_patch(obj), "status")
            self._sender.send(Step.WAIT, cleared)
            return True
        if refused and step is Step.START:
            log.warning("%s cannot be started: %s", seen.key, error)
            self._handle(tracked, StartImpossible(seen.generation, clean(str(error))))
            return True
        return False

    def _record_admitted(self, tracked: Tracked) -> None:
        record = tracked.record
        if record.admission is None:
            return
        waited = (record.cleared_at or record.admitted_at or record.queued_at) - record.queued_at
        self._events.record(
            reference(record.workload),
            reason="Admitted",
            action="Admit",
            note=f"{sentences.admitted(record.workload, record.admission)} It waited for {duration(waited)}.",
        )
