"""Requests for pod groups: a start or stop of a group is one PATCH or DELETE for each of its pods.

After a crash in the middle of a start the pods that are still gated are observed by the new leader, and ungated.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import NotFound
from admission.cluster.events import ObjectReference
from admission.controller.state.inbox import StepDone
from admission.controller.state.lifecycle import Step
from admission.controller.workloads.group_plan import (
    GroupPlan,
    Member,
    admitted_counts,
    group_domains,
    names_by_queue,
    queue_of,
    surplus_pods,
)
from admission.controller.workloads.plan import deleted_pod, started_pod
from admission.model import child_sentences, sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.model.pod_set_names import is_computed
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.cluster.client import Client
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.dispatching import Dispatching
    from admission.controller.workloads.plan import Write
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.controller.workloads.sender import Sender
    from admission.kinds.base import Object
    from admission.model.topology import Values

log = logging.getLogger(__name__)


class GroupRequests:
    """Starts and stops pod groups. When all requests of a step are done, `StepDone` is put into the inbox."""

    def __init__(
        self,
        *,
        groups: PodGroups,
        reconciler: Reconciler,
        client: Client,
        sender: Sender,
        inbox: Inbox,
    ) -> None:
        self._groups = groups
        self._registry = reconciler.state.registry
        self._isolation = reconciler.isolation
        self._environment = reconciler.environment
        self._kinds = reconciler.environment.kinds
        self._client = client
        self._sender = sender
        self._inbox = inbox

    def start(self, tracked: Tracked) -> None:
        """Ungate the group's pods, up to the admitted number of each role, and delete excess pods.

        Raises Misconfigured if no pod of the group is started yet and one cannot be started with its admission.
        """
        members = self._groups.members(tracked)
        plan = self._groups.plan(tracked, members)
        if tracked.start_patch is not None:  # otherwise other pods of the group run already
            domains = group_domains(tracked, members)
            for member in _distinct_patches(tracked, plan.started):
                self._started(tracked, member, domains)  # raises Misconfigured before any request is sent
        self._tell_gated(tracked, members, plan)
        self._send(tracked, Step.START, self._start_writes(tracked, plan))

    def _tell_gated(self, tracked: Tracked, members: Sequence[Member], plan: GroupPlan) -> None:
        """Record Events about pods that stay gated."""
        queue = queue_of(members)
        alone = {member.uid for member in surplus_pods(tracked, members, plan)}
        for member in plan.gated:
            if member.uid in alone:
                continue  # it queues by itself
            count = admitted_counts(tracked).get(member.role, 0)
            message = child_sentences.beyond_group if tracked.larger is None else child_sentences.waits_beside
            note = message(tracked.record.workload.name, count)
            if member.queue != queue:
                note = child_sentences.group_of_several_queues(names_by_queue(members))
            self._sender.tell(self._target(tracked, member), "Pending", note)

    def dispatch(self, tracked: Tracked, dispatching: Dispatching, step: Step) -> bool:
        """Send what is due for the copies of the group's pods, and for the pods; return whether all are started."""
        members = self._groups.members(tracked)
        may_run = tracked.record.state is State.ADMITTED and not tracked.record.checks_pending
        plan = self._groups.plan(tracked, members) if may_run else GroupPlan((), (), ())
        if step is Step.START and may_run:
            self._tell_gated(tracked, members, plan)
        domains = group_domains(tracked, [dispatching.as_placed(tracked, each) for each in members])
        excess, started = {each.uid for each in plan.excess}, {each.uid for each in plan.started}
        for each in members:
            if not self._groups.has(each.uid):
                continue  # its copy only is left, and is being deleted
            if each.uid in excess and dispatching.is_known(tracked, each):
                if not (self._sender.is_busy(each.uid) or each.deleting):
                    note = child_sentences.PODS_BEYOND_GROUP if each.gated else sentences.POD_WITHOUT_QUOTA
                    self._sender.send(Step.STOP, deleted_pod(each, self._target(tracked, each), note))
                continue

            def start(each: Member = each) -> list[Object]:
                patch = self._started(tracked, each, domains).patch
                assert isinstance(patch, list), each.name
                return patch

            runs = may_run and each.uid not in excess and (each.runs or each.uid in started)
            dispatching.send_member(tracked, each, start if runs else None)
        return may_run and not plan.started

    def _start_writes(self, tracked: Tracked, plan: GroupPlan) -> Iterator[Write]:
        """Yield what a start is: created only when they are sent, and none after an eviction."""
        domains = group_domains(tracked, self._groups.members(tracked))
        for member in plan.started:
            if tracked.record.state is not State.ADMITTED:
                return
            try:
                yield self._started(tracked, member, domains)
            except Misconfigured as error:
                self._sender.tell(self._target(tracked, member), "Pending", str(error))
        for member in plan.excess:
            note = child_sentences.PODS_BEYOND_GROUP if member.gated else sentences.POD_WITHOUT_QUOTA
            yield deleted_pod(member, self._target(tracked, member), note)

    def stop(self, tracked: Tracked) -> None:
        """Delete the group's ungated pods: it was evicted, or never had quota. As in Kueue, gated pods are kept."""
        evicted = tracked.record.state is State.EVICTING
        note = "" if evicted else sentences.POD_WITHOUT_QUOTA  # an eviction is reported for the group as a whole
        running = (each for each in self._groups.members(tracked) if each.runs and not each.deleting)
        deletions = (deleted_pod(each, self._target(tracked, each), note) for each in running)
        if not self._send(tracked, Step.STOP, deletions):
            self._groups.enqueue(tracked)
            self._inbox.wake()

    def reconcile(self, tracked: Tracked) -> None:
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

    def restore_watch_labels(self) -> None:
        """Restore the watch label of pods that lost it while no watch was running, also in groups with other pods."""
        groups = (each.record.workload for each in self._registry)
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
                        self._sender.label(kind, self._pod(namespace, pod["metadata"]["name"], pod["metadata"]["uid"]))
        except ClusterError as error:
            log.warning("cannot list the objects without watch label in %s: %s", path, error)
            return True
        return found

    def _started(self, tracked: Tracked, member: Member, domains: Mapping[str, Values]) -> Write:
        kind, flavors = self._groups.pod_kind, self._environment.context.flavors
        return started_pod(tracked, member, kind, self._target(tracked, member), flavors, domains)

    def _target(self, tracked: Tracked, member: Member) -> ObjectReference:
        return self._pod(tracked.record.workload.namespace, member.name, member.uid)

    def _pod(self, namespace: str, name: str, uid: str) -> ObjectReference:
        kind = self._groups.pod_kind
        return ObjectReference(self._kinds.api_version(kind), kind.kind, name, uid, namespace)

    def _send(self, tracked: Tracked, step: Step, writes: Iterator[Write]) -> bool:
        def isolated() -> Iterator[Write]:
            with self._isolation.of(tracked.uid):
                yield from writes

        return self._sender.send_each(tracked.uid, step, self._groups.pod_kind, isolated())


def _distinct_patches(tracked: Tracked, members: Iterable[Member]) -> Iterable[Member]:
    """Return pods whose start patches may differ: one of each computed role, whose pods get the same patch.

    All pods of declared pod sets, which may differ, and all pods if admission checks add labels, as labels are no part
    of a role.
    """
    if tracked.updates:
        return members
    return {each.role if is_computed(each.role) else each.uid: each for each in members}.values()


_RELABEL_WAIT: Final = 2.0
"""Seconds until a group is checked again whose pods got their label back: the watch has to report them first."""
_NO_PODS: Final = NotFound("no pod of the group exists", code=404, status={})
"""Outcome of the read of a group without pods."""
