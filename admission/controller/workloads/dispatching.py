"""Workloads of the hub that run as copies in other clusters: their state, and the requests that start and stop them.

A pod group has a copy for each of its pods: what is due is decided for each of them as for a workload of its own, after
`group_plan` has said which of them may run (`pod_groups`, `requests`).

Requests about the object go through the hub's Sender, those about the copy through the Writer of its cluster; answers
are messages of the hub's inbox. What is due is decided by `copies.due`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeGuard

from admission.apimachinery.errors import PatchFailed
from admission.apimachinery.patches import json_patch
from admission.apimachinery.tables import duration
from admission.cluster.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, StatusError
from admission.cluster.events import ObjectReference
from admission.cluster.writer import Creation, Deletion, Patch
from admission.controller.state.faults import cause
from admission.controller.state.inbox import CopyAnswered, Recheck
from admission.controller.state.lifecycle import Step
from admission.controller.state.triggers import (
    DispatchFailed,
    LastPodEnded,
    PodProblem,
    StartImpossible,
    StopHindered,
)
from admission.controller.workloads.copies import CopyStep, due
from admission.controller.workloads.group_plan import member_of
from admission.controller.workloads.needed import Lacking
from admission.controller.workloads.observed import DELETED, OUT_OF_SYNC
from admission.controller.workloads.plan import Write
from admission.controller.workloads.scaling import exceeds, reserved_scale_up
from admission.engine.vocabulary import CLUSTER_LOST, CLUSTER_REFUSED, COPY_DELETED
from admission.kinds.base import POD_OWNER, RENDERED, is_watched
from admission.kinds.dispatched import (
    ADMISSION,
    ORIGIN,
    Origin,
    attempt_of,
    begin_patch,
    copy_note,
    copy_of,
    end_patch,
    is_dispatched,
    is_noted,
    is_stray,
    marks_patch,
    noted_copy,
    observed,
    own_state,
    status_patch,
    took_its_place,
    without_status,
)
from admission.kinds.needs import copied_along, needs_of
from admission.model import sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.model.names import listed
from admission.model.resource_words import amount_text
from admission.model.text import clean
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from admission.cluster.client import Client
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.leader_state import LeaderState
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.copies import Copies, Copy
    from admission.controller.workloads.group_plan import Member
    from admission.controller.workloads.needed import Needed
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.controller.workloads.reconciler import Reconciler
    from admission.controller.workloads.sender import Sender
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.needs import Need
    from admission.kinds.registry import Kinds

log = logging.getLogger(__name__)

_PAUSE: Final = 5.0
"""Seconds before a request about a copy that failed is repeated."""
_LONGEST_PAUSE: Final = 60.0
"""Seconds to which that pause grows while a cluster refuses to delete a copy."""
_NAME_TAKEN: Final = 1.0
"""Seconds after which a copy is created again whose name one that is being deleted has."""
_BARRED: Final = 300.0
"""Seconds for which a workload is not dispatched again to a cluster that has refused it."""
_FAILS_FOR: Final = 60.0
"""Seconds for which a cluster may fail to create a copy until it is passed over."""
_REFUSED_POD: Final = 30.0
"""Seconds after which the copy of a pod that a cluster has refused is created again, while its group runs there."""
_REFUSALS: Final = (Forbidden, Invalid, NotFound)
"""Errors by which a cluster says that it will not have a copy as it is."""


class Original(NamedTuple):
    """An object that has a copy, or is to get one: that of a workload, or a pod of a group."""

    tracked: Tracked
    """Its workload, or that of its group."""
    kind: Kind
    object: Object
    member: Member | None = None
    """As a pod of a group, if a copy of it may be created."""

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])

    @property
    def group(self) -> str:
        """Uid of its group; empty: it is in none."""
        return self.tracked.uid if self.tracked.uid != self.uid else ""

    @property
    def origin(self) -> Origin:
        """What its copy is made for. Its workload is admitted."""
        admitted_at = self.tracked.record.admitted_at
        assert admitted_at is not None, self.tracked
        return Origin(self.uid, attempt_of(admitted_at), self.group)


class Creating(NamedTuple):
    """A copy whose creation is under way."""

    kind: Kind
    origin: Origin
    member: Member | None
    """Its object, if that is a pod of a group."""


class DispatchTarget(Protocol):
    """A cluster that workloads are dispatched to."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kinds(self) -> Kinds:
        """The kinds in the versions that it serves."""

    @property
    def client(self) -> Client:
        """Its client."""

    @property
    def writer(self) -> Writer:
        """Sends the changes there."""

    @property
    def pod_waiter(self) -> PodWaiter:
        """Polls pods there, and tells the hub."""

    @property
    def copies(self) -> Copies:
        """The copies that it has."""

    @property
    def needed(self) -> Needed:
        """What copies need there."""

    @property
    def own_namespace(self) -> str:
        """The namespace of Sluice itself there; empty: not known, or there is none."""

    @property
    def given_up(self) -> bool:
        """Whether it has been lost for so long that what it runs is regarded as gone."""

    def knows(self, kind: Kind) -> bool:
        """Whether it is certain which objects of a kind it has."""


class Dispatching:
    """The dispatched workloads of one leader's state."""

    def __init__(
        self,
        state: LeaderState,
        sender: Sender,
        inbox: Inbox,
        client: Client,
        *,
        targets: Callable[[], Mapping[str, DispatchTarget]],
        exists: Callable[[Kind, str, str], bool],
    ) -> None:
        """`client`: of the hub. `targets`: returns the clusters other than the hub, by name.

        `exists`: whether an object of a kind, key (`namespace/name`) and uid may exist in the hub.
        """
        self._state = state
        self._sender = sender
        self._inbox = inbox
        self._client = client
        self._targets = targets
        self._exists = exists
        self._reconciler: Reconciler
        self._groups: PodGroups
        self._under_way: dict[str, str] = {}
        """By uid of an object about whose copy a request is under way, the cluster that it was sent to."""
        self._created: dict[str, Creating] = {}
        """By uid of an object, the copy that is being created for it."""
        self._unsure: set[str] = set()
        """Uids of objects whose copy may exist although no watch shows it: it has to be read."""
        self._reported: dict[str, tuple[str, str]] = {}
        """By uid, the version of the copy whose status was last written, and that of the object before."""
        self._completed: dict[str, str] = {}
        """By uid, the copy that was seen unsuspended: others who suspend it again are left alone."""
        self._begun: dict[str, str] = {}
        """By uid, the copy for which the object was seen unsuspended."""
        self._noted: dict[str, str] = {}
        """By uid, what the object says of its copy."""
        self.has_ended = False
        """Whether the state was replaced, so that what is still to be sent for it may not be due any more."""
        self._looked_for: set[str] = set()
        """Uids of copies that are being read, because they have left their watch."""
        self._purged: set[str] = set()
        """Uids of copies that are being deleted, because nobody needs them."""
        self._failing: dict[str, float] = {}
        """By uid, since when (Unix time, s) its cluster fails to create the copy, though it answers."""
        self._kept: dict[str, int] = {}
        """By uid of a copy, how often in a row its cluster has refused to delete it."""
        self._starting: set[str] = set()
        """Uids of groups of which not all pods have had a copy since the first one was created."""
        self._marking: set[str] = set()
        """Uids of copies that have just been given back what shows that they are copies."""

    def begin(self, reconciler: Reconciler, groups: PodGroups) -> None:
        """Use this reconciler and these groups; called once, before anything else."""
        self._reconciler = reconciler
        self._groups = groups

    def is_busy(self, uid: str) -> bool:
        """Whether a request about a copy is under way, so that nothing else is due for its workload."""
        return uid in self._under_way

    # --- state

    def observe(self, kind: Kind, obj: Object, seen: Observed) -> Observed:
        """Return the state of an object that is dispatched, with that of its copy."""
        tracked = self._state.registry.get(seen.uid)
        self._noted[seen.uid] = noted_copy(obj)
        copy, certain = (None, True) if tracked is None else self._copy(tracked, kind, tracked.uid)
        there = None if copy is None else copy.seen
        is_new = tracked is not None and tracked.seen is None and tracked.record.admission is not None
        if is_new and (kind.watched_label or self._noted[seen.uid]):
            self._unsure.add(seen.uid)  # while no watch ran, its copy may have lost what shows that it is one
        if copy is not None and kind.rendered_by is not None:  # the child there has the pods of the one here
            there = kind.observe({**copy.object, RENDERED: obj.get(RENDERED)})
        return observed(kind, obj, seen, there, certain=certain)

    def member(self, tracked: Tracked, each: Member) -> Member:
        """Return a pod of a group in the state of its copy, if its group is dispatched: gated only without one.

        Its own status says only whether it has finished.
        """
        admission = tracked.record.admission
        if admission is None or not admission.cluster:
            return each
        self._noted[each.uid] = each.noted
        if tracked.seen is None and each.is_alive:
            self._unsure.add(each.uid)  # as in `observe`
        copy, certain = self._copy(tracked, self._groups.pod_kind, each.uid)
        if copy is None:
            runs = each.is_alive and (each.is_shown or not certain)
            return replace(each, gated=False) if runs else each
        seen = copy.seen
        if seen.finished is not None:
            return replace(each, gated=False) if each.is_alive else each
        phase = each.phase if each.is_alive else "Running"
        is_ending = each.deleting or seen.deleting or not each.is_alive
        return replace(each, gated=False, phase=phase, ready=seen.ready, deleting=is_ending)

    def leaving(self, tracked: Tracked, present: Container[str]) -> list[Member]:
        """Return the pods of a group that are deleted, or of a former admission, and whose copies still run.

        `present`: uids of its pods.
        """
        target = self.target(tracked)
        if target is None or target.given_up:
            return []
        name, conventions = tracked.record.workload.name, self._groups.pod_kind.conventions
        found = {
            copy.origin.uid: member_of(copy.object, None, name, conventions=conventions)
            for copy in target.copies.of_group(tracked.uid)
            if copy.seen.finished is None and copy.origin.uid not in present
        }
        found |= {
            uid: creating.member
            for uid, creating in self._created.items()
            if creating.member is not None
            and creating.origin.group == tracked.uid
            and uid not in found
            and uid not in present
        }
        return [
            replace(pod, uid=uid, gated=False, deleting=True, phase="Running", ready=False)
            for uid, pod in found.items()
        ]

    def is_known(self, tracked: Tracked, each: Member) -> bool:
        """Whether it is certain that a pod of a group has a copy, or has none."""
        copy, certain = self._copy(tracked, self._groups.pod_kind, each.uid)
        return certain or copy is not None

    def as_placed(self, tracked: Tracked, each: Member) -> Member:
        """Return a pod of a group with the node selector of its copy."""
        copy, _ = self._copy(tracked, self._groups.pod_kind, each.uid)
        return each if copy is None else replace(each, raw=copy.raw, annotated_role=each.role)

    def target(self, tracked: Tracked) -> DispatchTarget | None:
        """Return the cluster that a workload is dispatched to; None: it has left, or it is dispatched to none."""
        admission = tracked.record.admission
        return None if admission is None else self._targets().get(admission.cluster)

    def _copy(self, tracked: Tracked, kind: Kind, uid: str) -> tuple[Copy | None, bool]:
        """Return the copy of an object of a workload, and whether it is certain that there is no other one."""
        admission = tracked.record.admission
        if admission is None or not admission.cluster:
            return None, True
        target = self.target(tracked)
        if target is None:
            return None, False
        if target.given_up:
            return None, True
        copy = target.copies.get(uid)
        if copy is not None and _is_of(copy, tracked):
            note, key = self._noted.get(uid, ""), target.copies.key
            if not took_its_place(note, copy.kind, key, copy.seen.key, copy.origin, copy.uid):
                return copy, True
            log.warning("%s in %s was put in the place of a copy by others", copy.seen.key, target.name)
            target.copies.remove(copy.uid)
            copy = None
        is_sure = uid not in self._unsure and not self.is_busy(uid)
        return None, copy is None and is_sure and target.knows(kind)

    def unwanted(self, target: DispatchTarget) -> list[Copy]:
        """Return the copies in a cluster that no workload needs any more, and none holds quota for."""
        return [
            copy for copy in target.copies if not self._is_counted(target, copy) and not self._is_wanted(target, copy)
        ]

    def _is_counted(self, target: DispatchTarget, copy: Copy) -> bool:
        """Whether a workload holds quota in a cluster for a copy."""
        tracked = self._state.registry.get(copy.origin.workload)
        if tracked is None or target.given_up:
            return False
        admission = tracked.record.admission
        return admission is not None and admission.cluster == target.name and _is_of(copy, tracked)

    def _is_wanted(self, target: DispatchTarget, copy: Copy) -> bool:
        origin, seen = copy.origin, copy.seen
        if origin.group and not self._exists(copy.kind, seen.key, origin.uid):
            return False
        if self._is_counted(target, copy):
            return True
        if self._state.registry.get(origin.workload) is not None and (
            not origin.group or self._groups.is_alive(origin.uid)
        ):
            return False
        # The copy of what has finished stays as long as its object, so that the logs of its pods do.
        return seen.finished is not None and self._exists(copy.kind, seen.key, origin.uid)

    def unready(self, target: DispatchTarget) -> list[tuple[Tracked, Copy, str]]:
        """Return the workloads whose copies in a cluster are not ready, with these and the uid in their pods' label."""
        found = []
        for tracked in self._reconciler.readiness.unready():
            copy = target.copies.get(tracked.uid) if self.target(tracked) is target else None
            if tracked.runs_elsewhere and copy is not None and _is_of(copy, tracked):
                found.append((tracked, copy, copy.uid if copy.kind.pods_label == POD_OWNER else tracked.uid))
        return found

    # --- requests

    def is_pressing(self, tracked: Tracked) -> bool:
        """Whether users are to learn of the copy of a workload that it runs, or has ended. Not of a group's."""
        copy = None if (target := self.target(tracked)) is None else target.copies.get(tracked.uid)
        if copy is None or copy.seen.suspended or not _is_of(copy, tracked):
            return False
        return copy.seen.finished is not None or self._begun.get(tracked.uid) != copy.uid

    def send(self, tracked: Tracked) -> None:
        """Send the request that is due for a dispatched workload, after its state was committed."""
        seen, obj, record = tracked.seen, tracked.object, tracked.record
        if seen is None or obj is None:
            return
        kind = seen.kind

        def start() -> list[Object]:
            assert record.admission is not None, record
            flavors = self._reconciler.environment.context.flavors
            return kind.start_patch(without_status(kind, obj), record.admission, flavors, tracked.updates)[0]

        self._send(Original(tracked, kind, obj), record.state, start)

    def send_member(self, tracked: Tracked, each: Member, start: Callable[[], list[Object]] | None) -> None:
        """Send the request that is due for a pod of a dispatched group.

        `start`: returns the JSON patch that would start it, or raises Misconfigured; None: it is not to run.
        """
        state = State.EVICTING if start is None else State.ADMITTED
        self._send(Original(tracked, self._groups.pod_kind, each.object, each), state, start or list)

    def _send(self, one: Original, state: State, start: Callable[[], list[Object]]) -> None:
        tracked, kind, obj, _ = one
        uid = one.uid
        if self.is_busy(uid) or self._sender.is_busy(uid):
            return
        target = self.target(tracked)
        copy, certain = self._copy(tracked, kind, uid)
        if copy is not None:
            self._unsure.discard(uid)
        elif uid in self._unsure and target is not None and target.knows(kind) and not target.given_up:
            self._read(one, target)
            return
        if is_stray(kind, obj):
            self._end(one)
            return
        own = own_state(kind, obj)
        if copy is not None and not copy.seen.suspended:
            self._completed[uid] = copy.uid
        patches = {CopyStep.REPORT: status_patch(kind, obj, None if copy is None else copy.object)}
        scaling, seen = kind.scaling, tracked.seen
        if copy is not None and scaling is not None and seen is not None and tracked.not_scaled[0] != own.generation:
            if counts := reserved_scale_up(tracked, seen):
                patches[CopyStep.GROW] = scaling.scale_patch(obj, counts)
            patches[CopyStep.SCALE] = scaling.follow_patch(copy.object, obj, counts)
        reported = "" if copy is None else copy.version, own.resource_version
        step = due(
            state,
            own,
            None if copy is None else copy.seen,
            differs=bool(patches[CopyStep.REPORT]) and self._reported.get(uid) != reported,
            certain=certain,
            checks_pending=tracked.record.checks_pending,
            completed=copy is not None and self._completed.get(uid) == copy.uid,
            begun=copy is not None and is_dispatched(kind, obj) and self._begun.get(uid) == copy.uid,
            grows=bool(patches.get(CopyStep.GROW)),
            scales=bool(patches.get(CopyStep.SCALE)),
        )
        if copy is not None and not own.suspended:
            self._begun[uid] = copy.uid
        if step is CopyStep.NOTHING:
            tracked.attempts = 0  # the request that failed is no longer due
        elif step is not CopyStep.VANISHED:
            log.debug("%s: %s", own.key, step.name)
        if step is CopyStep.REPORT and kind.rendered_by is None:
            self._reported[uid] = reported
        if step is CopyStep.CREATE and target is not None and not target.given_up:
            self._create(one, target, start)
        else:
            self._request(step, one, copy, patches.get(step, []))

    def _request(self, step: CopyStep, one: Original, copy: Copy | None, patch: list[Object]) -> None:
        """Send the request of a step. `patch`: of the object, of its status, or of the copy, if it is a change."""
        tracked, kind, obj, _ = one
        target = self.target(tracked)
        match step:
            case _ if tracked.record.state is State.ADMITTED and target is not None and target.given_up:
                pass  # it is about to be evicted
            case CopyStep.DELETE if target is not None and copy is not None:
                self._delete(one.uid, target, copy)
            case CopyStep.COMPLETE if target is not None and copy is not None:
                self._complete(one, target, copy)
            case CopyStep.GROW:
                self._sender.send(Step.WAIT, Write(self._reference(one), patch))
            case CopyStep.SCALE if target is not None and copy is not None:
                self._under_way[one.uid] = target.name
                answer = partial(self._answer, one.uid, target.name, "scale", copy.uid)
                target.writer.submit(Patch(_path(target, copy), patch), answer)
            case CopyStep.STOPPED if target is not None:
                self._fail(tracked, OUT_OF_SYNC, sentences.suspended_in_hub(target.name))
            case CopyStep.RESUME if target is not None:
                assert copy is not None
                note = copy_note(copy.kind, target.copies.key, copy.seen.key, copy.origin, copy.uid)
                begin = begin_patch(kind, obj, target.name, note, one.group)
                self._sender.send(Step.START, Write(self._reference(one), begin), group=one.group)
            case CopyStep.SUSPEND:
                self._end(one)
            case CopyStep.VANISHED if one.group:
                self._end(one)  # it gets another one: the other pods of its group go on
            case CopyStep.REPORT if kind.rendered_by is not None:
                self._report_to_child(tracked, kind.rendered_by, obj, patch)
            case CopyStep.REPORT:
                self._sender.send(Step.WAIT, Write(self._reference(one), patch, "status"), group=one.group)
            case CopyStep.VANISHED if target is not None:
                self._fail(tracked, COPY_DELETED, sentences.copy_deleted(target.name))
            case _:
                pass

    def _reference(self, one: Original) -> ObjectReference:
        metadata, version = one.object["metadata"], self._reconciler.environment.kinds.api_version(one.kind)
        return ObjectReference(version, one.kind.kind, metadata["name"], one.uid, metadata["namespace"])

    def _report_to_child(self, tracked: Tracked, source: tuple[str, str], obj: Object, patch: list[Object]) -> None:
        """Write the last status of the child that an object is rendered by, until that object has ended by it."""
        kinds, workload, uid = self._reconciler.environment.kinds, tracked.record.workload, obj[RENDERED]["uid"]
        kind = kinds.get(*source)
        if kind is None or self._sender.is_busy(uid):
            return
        child = ObjectReference(kinds.api_version(kind), kind.kind, workload.name, uid, workload.namespace)
        self._sender.send(Step.WAIT, Write(child, patch, "status"))
        self._sender.remind(tracked.uid, _PAUSE)

    def report_failed(self, uid: str) -> None:
        """Have the status written again that is to be written, as the last request may not have arrived."""
        self._reported.pop(uid, None)

    def _end(self, one: Original) -> None:
        """Gate an object, and take the cluster away; one that others have ungated for good is deleted."""
        target = self._reference(one)
        write = Write(target, end_patch(one.kind, one.object))
        if one.kind.ends_by_deletion and is_stray(one.kind, one.object):
            write = Write(target, None, note=sentences.POD_WITHOUT_QUOTA)
        self._sender.send(Step.STOP, write, group=one.group)

    def _create(self, one: Original, target: DispatchTarget, start: Callable[[], list[Object]]) -> None:
        tracked, kind, obj, _ = one
        there = target.kinds.get(kind.group, kind.kind)
        if there is None or (kind.is_custom and not target.kinds.is_served(kind.group, kind.kind)):
            self._refused(one, target, f"it does not serve {kind.plural}.{kind.group}")
            return
        if obj["metadata"]["namespace"] == target.own_namespace:  # its pods could be Sluice there
            self._refused(one, target, sentences.namespace_of_sluice(target.name), whole=True)
            return
        origin = one.origin
        try:
            version = target.kinds.api_version(there)
            copy = copy_of(kind, obj, start(), origin, api_version=version, key=target.copies.key)
            needs = needs_of(kind, obj)
        except (Misconfigured, PatchFailed) as error:
            generation = 0 if tracked.seen is None else tracked.seen.generation
            self._handle(tracked, StartImpossible(generation, str(error)))
            return
        namespace, name = copy["metadata"]["namespace"], copy["metadata"]["name"]
        if along := self._along(tracked, needs):
            copy = json_patch(copy, kind.gate(copy))  # until they are there
            needs = tuple(need for need in needs if need not in along)
        missing = target.needed.missing(namespace, needs)
        if missing is None:
            self._look(one, needs, target)
            return
        if missing:
            self._refused(one, target, sentences.lacks(target.name, namespace, missing), whole=True)
            return
        if why := self._requests_more(one, target):
            self._refused(one, target, why, whole=True)
            return
        path = target.kinds.path(there, namespace, name).rpartition("/")[0]
        if one.group and not target.copies.of_group(one.group):
            self._starting.add(one.group)
        self._under_way[one.uid] = target.name
        self._created[one.uid] = Creating(kind, origin, one.member)
        target.copies.expect(origin)
        creation = Creation(path, copy, partial(self._is_due_there, origin, target))
        target.writer.submit(creation, partial(self._answer, one.uid, target.name, "create", ""), group=one.group)

    def _requests_more(self, one: Original, target: DispatchTarget) -> str:
        """Return a message if pods would request more in a cluster than their quota counts, or be refused there."""
        context, namespace = self._reconciler.environment.context, one.object["metadata"]["namespace"]
        here, there = context.of_namespace(namespace), target.needed.context(namespace)
        if here is there:
            return ""
        covered = context.destinations.covered(one.tracked.record.cluster_queue)
        counted = {pod_set.name: pod_set.requests for pod_set in one.kind.pod_sets(one.object, here)}
        try:
            found = one.kind.pod_sets(one.object, there)
        except Misconfigured as error:
            return sentences.refused_in(target.name, str(error))
        more = {
            amount_text(resource, amount)
            for pod_set in found
            for resource, amount in pod_set.requests.items()
            if resource in covered and amount > counted.get(pod_set.name, {}).get(resource, 0)
        }
        return sentences.pods_request_more(target.name, listed(sorted(more)), namespace) if more else ""

    def _is_due_there(self, origin: Origin, target: DispatchTarget) -> bool:
        """Whether an object is still to run in a cluster, whose Writer may have had to wait for it."""
        tracked = self._state.registry.get(origin.workload)
        if self.has_ended or tracked is None or target.given_up:
            return False
        if origin.group and not self._groups.is_alive(origin.uid):
            return False
        record = tracked.record
        return (
            record.state is State.ADMITTED
            and record.admitted_at is not None
            and (attempt_of(record.admitted_at) == origin.attempt)
        )

    def _delete(self, uid: str, target: DispatchTarget, copy: Copy) -> None:
        """Delete a copy as it was last seen: one that has ended since then is the end of its workload."""
        self._under_way[uid] = target.name
        deletion = replace(_deletion(target, copy), version=copy.version)
        answer = partial(self._answer, uid, target.name, "delete", copy.uid)
        target.writer.submit(deletion, answer, group=copy.origin.group)

    def _answer(self, uid: str, cluster: str, verb: str, copy: str, result: Object | ClusterError) -> None:
        self._inbox.put(CopyAnswered(uid, cluster, verb, result, copy))

    def _read(self, one: Original, target: DispatchTarget) -> None:
        """Read the object that has, or would have, the name of a copy."""
        metadata = one.object["metadata"]
        there = target.kinds.get(one.kind.group, one.kind.kind) or one.kind
        path = target.kinds.path(there, metadata["namespace"], metadata["name"])
        self._under_way[one.uid] = target.name

        async def read() -> None:
            try:
                result: Object | ClusterError = await target.client.get(path)
            except ClusterError as error:
                result = error
            self._answer(one.uid, target.name, "get", "", result)

        self._sender.run(read())

    def _along(self, tracked: Tracked, needs: tuple[Need, ...]) -> tuple[Need, ...]:
        """Return what is copied along for a workload."""
        rule = self._reconciler.environment.context.dispatch_rule("", tracked.record.cluster_queue)
        return () if rule is None else copied_along(needs, rule[0].copy_along)

    def _complete(self, one: Original, target: DispatchTarget, copy: Copy) -> None:
        """Copy along what the pods of an object need, then unsuspend its copy.

        What that is only the object says: others can write into the copy, or put another one in its place.
        """
        tracked, kind, obj, _ = one
        namespace, resume = obj["metadata"]["namespace"], kind.resume_patch(copy.object)
        there = target.kinds.get(kind.group, kind.kind) or kind
        path = _path(target, copy)
        owner = {
            "apiVersion": target.kinds.api_version(there),
            "kind": kind.kind,
            "name": obj["metadata"]["name"],
            "uid": copy.uid,
        }
        self._under_way[one.uid] = target.name

        async def complete() -> None:
            try:
                along = self._along(tracked, needs_of(kind, obj))
                await target.needed.provide(self._client, target.writer, namespace, along, owner, target.copies.key)
                result: Object | ClusterError = await target.writer.request(Patch(path, resume))
            except ClusterError as error:
                result = error
            except Exception as error:  # noqa: BLE001  a cluster that answers absurdly must not hold the workload for ever
                result = ClusterError(f"cannot copy along what it needs: {cause(error)}")
            self._answer(one.uid, target.name, "complete", copy.uid, result)

        self._sender.run(complete())

    def _look(self, one: Original, needs: tuple[Need, ...], target: DispatchTarget) -> None:
        """Look for what the copy of an object needs, so that it can be created after that."""
        uid, namespace = one.uid, one.object["metadata"]["namespace"]
        self._under_way[uid] = target.name

        async def look() -> None:
            await target.needed.look(namespace, needs)
            self._answer(uid, target.name, "look", "", {})

        self._sender.run(look())

    def answered(self, message: CopyAnswered) -> None:
        """Process the answer to a request about a copy."""
        uid, result = message.uid, message.result
        if uid not in self._under_way:
            return  # it was asked for before the state was loaded from the database
        del self._under_way[uid]
        if message.verb == "delete" and not isinstance(result, ClusterError):
            self._kept.pop(message.copy, None)
        created = self._created.pop(uid, None)
        target, one = self._targets().get(message.cluster), self._original(uid)
        if target is None or one is None:
            if created is not None and target is not None and not isinstance(result, ClusterError):
                self._put(target, created.kind, result, created.origin)  # its object was deleted meanwhile
            self._inbox.put(Recheck(uid))
            return
        tracked = one.tracked
        kind = target.kinds.get(one.kind.group, one.kind.kind)
        if isinstance(result, NotFound) and message.verb in ("get", "delete", "complete", "scale"):
            self._unsure.discard(uid)
            target.copies.remove(message.copy)
        elif (isinstance(result, AlreadyExists) and message.verb == "create") or (
            isinstance(result, Conflict) and message.verb == "delete"
        ):
            self._read(one, target)
            return
        elif isinstance(result, _REFUSALS) and message.verb == "create":
            self._refused(one, target, clean(str(result.status.get("message") or result)))
        elif message.verb == "scale" and _is_refused(result):
            text = sentences.number_refused(target.name, clean(str(result.status.get("message") or result)))
            tracked.not_scaled = own_state(one.kind, one.object).generation, text
            self._handle(tracked, PodProblem(text))
        elif isinstance(result, Lacking):
            self._refused(one, target, str(result))
        elif isinstance(result, ClusterError):
            self._failed(one, target, message.verb, result)
            return
        elif message.verb in ("create", "get", "complete", "scale") and kind is not None:
            self._unsure.discard(uid)
            is_noted_copy = message.verb == "get" and self._is_noted(one, target, result)
            made_for = one.origin if is_noted_copy else None if created is None else created.origin
            is_copy = self._put(target, kind, result, made_for)
            self._accepted(one, target, was_created=created is not None)
            if message.verb == "get" and not is_copy and own_state(one.kind, one.object).suspended:
                self._refused(one, target, sentences.name_taken(target.name, kind.kind), whole=True)
            elif message.verb == "get" and is_copy and target.copies.get(uid) is None:
                self._sender.pause(uid, _NAME_TAKEN)  # by the copy of a former object, which is about to be deleted
                return
        self._inbox.put(Recheck(uid))

    def _failed(self, one: Original, target: DispatchTarget, verb: str, error: ClusterError) -> None:
        """Repeat a request about a copy that has failed, after a pause."""
        tracked, name = one.tracked, one.object["metadata"]["name"]
        log.warning(
            "cannot %s the copy of %s/%s in %s: %s", verb, tracked.record.workload.namespace, name, target.name, error
        )
        text = clean(str(error.status.get("message") or error)) if isinstance(error, StatusError) else ""
        if verb == "create":
            self._unsure.add(one.uid)
            if text:
                self._not_created(one, target, text)
        elif verb == "delete" and text:
            self._handle(tracked, StopHindered(sentences.copy_not_deleted(target.name, text)))
        copy = target.copies.get(one.uid) if verb == "delete" else None
        self._sender.pause(one.uid, self._pause("" if copy is None else copy.uid, error))

    def _pause(self, copy: str, error: ClusterError) -> float:
        """Return the seconds until a request is repeated: longer and longer while a cluster keeps a copy (its uid)."""
        pause = _PAUSE
        if copy and isinstance(error, StatusError):
            refusals = self._kept[copy] = self._kept.get(copy, 0) + 1
            pause = min(_PAUSE * 2.0 ** (refusals - 1), _LONGEST_PAUSE)
        return random.uniform(0.5, 1.0) * pause

    def _not_created(self, one: Original, target: DispatchTarget, cause: str) -> None:
        """Tell that a cluster fails to create a copy, though it answers; after some time it is passed over."""
        tracked, now = one.tracked, self._state.clock()
        if now - self._failing.setdefault(one.uid, now) < _FAILS_FOR:
            self._handle(tracked, PodProblem(sentences.copy_not_created(target.name, cause)))
        else:
            self._failing.pop(one.uid)
            self._refused(one, target, cause)

    def _accepted(self, one: Original, target: DispatchTarget, *, was_created: bool) -> None:
        """Tell no more that a cluster does not create the copy of an object, and note whether its group has started."""
        tracked, admission = one.tracked, one.tracked.record.admission
        copy = target.copies.get(one.uid)
        has_copy = copy is not None and _is_of(copy, tracked)
        was_refused = has_copy and tracked.pod_refused[0] == one.uid
        if was_refused:
            tracked.pod_refused = "", ""
        if self._failing.pop(one.uid, None) is not None or was_refused:
            self._handle(tracked, PodProblem(""))
        if has_copy and one.group in self._starting and admission is not None:
            wanted = sum(pod_set.count for pod_set in admission.pod_sets)
            if len(target.copies.of_group(one.group)) >= wanted:
                self._starting.discard(one.group)
        if has_copy and was_created and copy is not None:
            self._check_created(one, target, copy)

    def _is_noted(self, one: Original, target: DispatchTarget, found: Object) -> bool:
        """Whether an object that was read is the copy that its object says it has, whatever it says itself."""
        note, metadata = self._noted.get(one.uid, ""), found["metadata"]
        if not note or one.tracked.record.admitted_at is None:
            return False
        name = f"{metadata['namespace']}/{metadata['name']}"
        return is_noted(note, one.kind, target.copies.key, name, one.origin, metadata["uid"])

    def _check_created(self, one: Original, target: DispatchTarget, copy: Copy) -> None:
        """Evict a workload whose copy was altered when it was created, as it would be again."""
        if not copy.is_marked:
            self._refused(one, target, sentences.marks_taken(ORIGIN, ADMISSION))
        elif not one.group and exceeds(one.tracked, copy.seen):
            self._refused(one, target, sentences.PODS_ADDED_AT_CREATION)

    def _original(self, uid: str) -> Original | None:
        """Return what has, or is to get, a copy; None: it is not known."""
        tracked = self._state.registry.get(uid)
        if tracked is None and (pod := self._groups.member(uid)) is not None:
            group = self._groups.workload_of(uid)
            return None if group is None else Original(group, self._groups.pod_kind, pod)
        if tracked is None or tracked.seen is None or (obj := tracked.object) is None:
            return None
        return Original(tracked, tracked.seen.kind, obj)

    def _refused(self, one: Original, target: DispatchTarget, cause: str, *, whole: bool = False) -> None:
        """Evict a workload that its cluster does not accept; the others are tried for some time. `cause`: why.

        A group that has started there goes on without the pod, which is tried again: a wrong change of its template
        must not end the pods that run.
        """
        tracked, message = one.tracked, cause if whole else sentences.refused_in(target.name, cause)
        if one.group and one.group not in self._starting and self._runs_beside(one, target):
            before = tracked.pod_refused
            if before[0] in ("", one.uid) or self._groups.member(before[0]) is None:  # else one of them is told of
                if before != (one.uid, message):
                    log.warning("%s goes on without a pod: %s", tracked.record.workload.key, message)
                tracked.pod_refused = one.uid, message
                self._handle(tracked, PodProblem(message))
            self._sender.pause(one.uid, random.uniform(0.5, 1.0) * _REFUSED_POD)
            return
        self._fail(tracked, CLUSTER_REFUSED, message, barred=target.name)
        self._sender.remind(tracked.uid, _BARRED + 1.0)

    def _runs_beside(self, one: Original, target: DispatchTarget) -> bool:
        """Whether other pods of a group run in a cluster."""
        others = (copy for copy in target.copies.of_group(one.group) if copy.origin.uid != one.uid)
        return any(copy.seen.finished is None and not copy.seen.deleting for copy in others)

    def _fail(self, tracked: Tracked, reason: str, message: str, *, barred: str = "") -> None:
        log.warning("%s is evicted: %s", tracked.record.workload.key, message)
        self._handle(tracked, DispatchFailed(reason, message, barred, self._state.clock() + _BARRED))

    def _handle(
        self, tracked: Tracked, trigger: DispatchFailed | StartImpossible | StopHindered | LastPodEnded | PodProblem
    ) -> None:
        self._state.now = self._state.clock()
        self._reconciler.handle(tracked, trigger)

    # --- clusters that come and go

    def recheck(self, uid: str) -> None:
        """Delete the copies of an object that nobody needs, and release the quota of a deleted one without a copy."""
        for target in self._targets().values():
            copy = target.copies.get(uid)
            if copy is not None and uid in target.copies.doubtful:
                self._look_again(target, copy)
            elif copy is not None and not self._is_wanted(target, copy):
                self._purge(target, copy)
            elif copy is not None and not copy.is_marked:
                self._mark(target, copy)
        tracked = self._state.registry.get(uid)
        if tracked is None:
            if self._groups.has(uid):
                return
            self._reported.pop(uid, None)
            self._failing.pop(uid, None)
            self._starting.discard(uid)
            for known in (self._completed, self._begun, self._noted):
                known.pop(uid, None)
            return
        record = tracked.record
        is_deleted = record.state is State.EVICTING and record.evict_reason == DELETED and tracked.seen is None
        kind = self._reconciler.environment.kinds.of(record.workload)
        if not is_deleted or kind is None or self.is_busy(uid):
            return
        to = self.target(tracked)
        if to is not None and self._reconciler.environment.kinds.is_composed(record.workload):
            is_known = to.given_up or to.knows(self._groups.pod_kind)
            if is_known and not self.leaving(tracked, ()):  # `recheck` of its pods has their copies deleted
                self._handle(tracked, LastPodEnded(tracked.wait_number))
            return
        copy, certain = self._copy(tracked, kind, uid)
        if copy is not None and to is not None:
            self._purge(to, copy)
        elif copy is None and certain and to is not None and kind.pods_label and not to.given_up:
            self._reconciler.wait_for_pods(tracked)
        elif copy is None and certain and to is not None:
            self._handle(tracked, LastPodEnded(tracked.wait_number))

    def _look_again(self, target: DispatchTarget, copy: Copy) -> None:
        """Read a copy that has left its watch; if it has only lost the label of that, restore it."""
        if copy.uid in self._looked_for:
            return
        self._looked_for.add(copy.uid)

        async def look() -> None:
            try:
                found = await target.client.get(_path(target, copy))
            except NotFound:
                target.copies.remove(copy.uid)
            except ClusterError:
                asyncio.get_running_loop().call_later(_PAUSE, self._inbox.put, Recheck(copy.origin.uid))
            else:
                if found["metadata"]["uid"] != copy.uid:
                    target.copies.remove(copy.uid)
                else:
                    self._put(target, copy.kind, found)
            finally:
                self._looked_for.discard(copy.uid)

        self._sender.run(look())

    def _put(self, target: DispatchTarget, kind: Kind, obj: Object, made_for: Origin | None = None) -> bool:
        """Process a version of an object that was read; return whether it is a copy. `made_for`: see `Copies.put`."""
        if not target.copies.put(kind, obj, made_for):
            return False
        copy = target.copies.of(obj["metadata"]["uid"])
        if copy is not None and not is_watched(kind, obj):
            self._mark(target, copy)
        return True

    def _mark(self, target: DispatchTarget, copy: Copy) -> None:
        """Give a copy back what others have taken from it, by which it is watched and known as a copy."""
        if copy.uid in self._marking:
            return
        log.info("%s in %s has lost its labels of a copy: they are restored", copy.seen.key, target.name)
        self._marking.add(copy.uid)
        patch = marks_patch(copy.kind, copy.object, copy.origin, target.copies.key)
        target.writer.submit(Patch(_path(target, copy), patch), lambda _: None)

        def again() -> None:
            self._marking.discard(copy.uid)
            self._inbox.put(Recheck(copy.origin.uid))

        asyncio.get_running_loop().call_later(_PAUSE, again)

    def _purge(self, target: DispatchTarget, copy: Copy) -> None:
        """Delete a copy that nobody needs."""
        is_ending = copy.seen.deleting and copy.seen.finished is None
        if copy.uid in self._purged or is_ending or target.given_up:
            return
        log.info("deletes the copy of %s in %s: nobody needs it", copy.seen.key, target.name)
        self._purged.add(copy.uid)
        answer = partial(self._purge_answered, target, copy)
        target.writer.submit(_deletion(target, copy), answer, group=copy.origin.group)

    def _purge_answered(self, target: DispatchTarget, copy: Copy, result: Object | ClusterError) -> None:
        if isinstance(result, NotFound):
            target.copies.remove(copy.uid)
        if isinstance(result, NotFound) or not isinstance(result, ClusterError):
            self._purged.discard(copy.uid)
            self._kept.pop(copy.uid, None)
        else:
            log.warning("cannot delete the copy of %s in %s: %s", copy.seen.key, target.name, result)
            tracked = self._state.registry.get(copy.origin.uid)
            if tracked is not None and isinstance(result, StatusError):
                text = clean(str(result.status.get("message") or result))
                self._handle(tracked, StopHindered(sentences.copy_not_deleted(target.name, text)))

            def again() -> None:
                self._purged.discard(copy.uid)
                self._inbox.put(Recheck(copy.origin.uid))

            asyncio.get_running_loop().call_later(self._pause(copy.uid, result), again)

    def target_replaced(self, former: DispatchTarget) -> None:
        """Expect no answers from a cluster any more: the connection to it is made anew, or it has left."""
        for tracked in self._state.registry:
            admission = tracked.record.admission
            if admission is not None and admission.cluster == former.name:
                tracked.wait_number = 0  # its PodWaiter has ended, too
                self._reported.pop(tracked.uid, None)
                has_note = bool(self._noted.get(tracked.uid))
                if tracked.seen is not None and (has_note or tracked.seen.kind.watched_label):
                    self._unsure.add(tracked.uid)
                self._inbox.put(Recheck(tracked.uid))
        for uid in [uid for uid, cluster in self._under_way.items() if cluster == former.name]:
            del self._under_way[uid]
            self._created.pop(uid, None)  # whether there is a copy is known when the cluster is listed again
            if self._groups.member(uid) is not None:
                self._unsure.add(uid)
            self._inbox.put(Recheck(uid))
        for copy in former.copies:
            self._purged.discard(copy.uid)
            self._kept.pop(copy.uid, None)
            self._looked_for.discard(copy.uid)
            self._marking.discard(copy.uid)

    def target_changed(self, target: DispatchTarget, lost_timeout: float) -> None:
        """Look again at all that runs in a cluster, because it was lost, has come back, or is given up.

        `lost_timeout`: seconds for which it may be lost before it is given up.
        """
        for tracked in list(self._state.registry):
            admission = tracked.record.admission
            if admission is None or admission.cluster != target.name:
                continue
            if target.given_up and tracked.record.state is State.ADMITTED:
                self._fail(tracked, CLUSTER_LOST, sentences.cluster_lost(target.name, duration(lost_timeout)))
            if target.given_up:
                tracked.wait_number = 0  # nobody waits for pods there any more
            self._inbox.put(Recheck(tracked.uid))
        for copy in target.copies:
            self._inbox.put(Recheck(copy.origin.uid))


def _is_refused(result: Object | ClusterError) -> TypeGuard[StatusError]:
    """Whether a cluster says that it will not have a change of a copy; not that the copy has changed meanwhile."""
    return isinstance(result, Forbidden) or (isinstance(result, _REFUSALS) and bool(result.status.get("details")))


def _is_of(copy: Copy, tracked: Tracked) -> bool:
    """Whether a copy was made for the present admission of a workload."""
    began = tracked.record.admitted_at
    return began is not None and copy.origin.attempt == attempt_of(began)


def _deletion(target: DispatchTarget, copy: Copy) -> Deletion:
    """Return the request that deletes a copy after its pods."""
    return Deletion(_path(target, copy), copy.uid, propagation="Foreground")


def _path(target: DispatchTarget, copy: Copy) -> str:
    """Return the path of a copy in its cluster."""
    there = target.kinds.get(copy.kind.group, copy.kind.kind) or copy.kind
    return target.kinds.path(there, *copy.seen.key.split("/"))
