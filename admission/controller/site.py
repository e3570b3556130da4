"""A site: one cluster, and everything that the controller has for it. `Controller` has one for each cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from admission.cluster.events import EventRecorder
from admission.cluster.writer import Writer
from admission.controller.intake.watches import ClusterWatches
from admission.controller.leader import Leader
from admission.controller.state.inbox import Inbox
from admission.controller.workloads.copies import Copies, Copy
from admission.controller.workloads.failed_pods import FailedPods
from admission.controller.workloads.failure_recovery import FailureRecovery
from admission.controller.workloads.needed import Needed
from admission.controller.workloads.node_capacity import NodeCapacity
from admission.controller.workloads.nodes_and_pods import NodesAndPods
from admission.controller.workloads.pod_obstacles import PodObstacles
from admission.controller.workloads.pod_waiter import PodWaiter
from admission.controller.workloads.provisioning import Provisioning
from admission.controller.workloads.renderings import sources_first
from admission.controller.workloads.sender import Sender
from admission.kinds.base import POD_OWNER
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from admission.cluster.client import Client
    from admission.controller.leader import Shared
    from admission.controller.state.faults import Faults
    from admission.controller.state.leader_state import WorkloadRegistry
    from admission.controller.state.policy import ControllerPolicy
    from admission.controller.state.traces import Traces
    from admission.controller.state.tracked import StoredObject, Tracked
    from admission.kinds.base import Kind
    from admission.kinds.registry import Kinds
    from admission.store.store import Store

CAPACITY, CAPACITY_OF_OTHERS = 2_000, 500
"""Changes in the inbox of `local`, and of another cluster, at which its watches wait: some 50 ms for 500."""

COMPARE_BATCH = 200
"""Objects compared with their stored workloads before yielding to the event loop: some ms, for which webhooks wait."""


class Site:
    """Watches and Events for the lifetime of the process; inbox and requests of a leadership; state of a `Leader`."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        client: Client,
        kinds: Kinds,
        policy: ControllerPolicy,
        leads: Callable[[], bool],
        faults: Faults,
        copy_changed: Callable[[str], None],
        unready_copies: Callable[[Site], Iterable[tuple[Tracked, Copy, str]]],
    ) -> None:
        """`leads`: whether this replica certainly is the leader and has claimed the cluster.

        `copy_changed`: called with the uid of a workload whose copy has changed. `unready_copies`: returns those whose
        copies in a site are not ready, with the uid in the label of their pods.
        """
        self.name = name
        self.client = client
        self.kinds = kinds
        self.watches = ClusterWatches(client, kinds, faults, policy.devices)
        self.context = self.watches.context
        self.context.cluster = name
        if name != LOCAL:
            where = f" in the cluster {name}"
            self.watches.probe.effect, self.watches.probe.where = f"nothing is started{where}", where
        self.writer = Writer(client, permitted=leads, on_patched=self.watches.lag.patched)
        self.events = EventRecorder(client, busy=lambda: self.writer.busy, now=store.now)
        self.failed_pods = FailedPods(store, client, kinds, cluster=name)
        self.paused = False
        """Whether what the cluster says is left in the inbox, as it is not certain which cluster it is."""
        self.is_listed = True
        """Whether all of its objects are known, so that those which were not observed do not exist."""
        self.must_recheck = False
        """Whether pending workloads have to be looked at again, as the site was opened or closed."""
        self.closed_as = ""
        """Its state in short, for those who could be dispatched there; empty: it is open."""
        self.given_up = False
        """Whether it has been lost for so long that what was dispatched to it is regarded as gone."""
        self.own_namespace = ""
        """The namespace of Sluice itself in it; empty: not known, or there is none."""
        self.copies = Copies(copy_changed)
        """The copies of workloads of `local` that run in it."""
        self.needed = Needed(client, self.context)
        """What copies need there."""
        if name != LOCAL:
            self.watches.add_listener(self.copies.observe, lambda: None)
        self._unready_copies = unready_copies
        self._store = store
        self._policy = policy
        self._faults = faults
        self._clock = store.now
        self._uncompared: dict[str, StoredObject] = {}
        """Observed objects that were not yet compared with their stored workloads, by uid."""
        self.inbox = Inbox()
        self.nodes_and_pods: NodesAndPods
        self.provisioning: Provisioning
        self.leader: Leader
        self._pod_waiter: PodWaiter
        self._sender: Sender
        self._pod_obstacles: PodObstacles | None

    def begin(self, arrived: asyncio.Event | None, shared: Shared, traces: Traces | None) -> None:
        """Begin a leadership with an empty state. `arrived`: wakes the leader; None: an event of its own."""
        client = self.client
        self.inbox = Inbox(arrived, capacity=CAPACITY if self.name == LOCAL else CAPACITY_OF_OTHERS)
        self._pod_waiter = PodWaiter(client, self.inbox, self.name)
        is_metered = self._policy.usage is not None and self.name == LOCAL
        self.nodes_and_pods = NodesAndPods(client, self.inbox, self.name, names_pods=is_metered)
        self._sender = Sender(self.kinds, client, self.writer, self.events, self.inbox, traces)
        self.provisioning = Provisioning(
            self._store, client, self.writer, self.events, self.kinds, self.context,
            lambda: self.leader.state.registry, self._faults,
        )  # fmt: skip
        self._pod_obstacles = None
        self.reset(shared)

    @property
    def pod_waiter(self) -> PodWaiter:
        """Polls pods in the cluster."""
        return self._pod_waiter

    def pod_owners(self) -> Iterator[tuple[Tracked, str]]:
        """Yield the workloads whose pods are in the cluster, each with the uid of the object that these name."""
        for tracked in self.leader.hosted:
            copy = self.copies.get(tracked.uid)
            yield tracked, tracked.uid if copy is None or copy.kind.pods_label != POD_OWNER else copy.uid

    def knows(self, kind: Kind) -> bool:
        """Whether it is certain which objects of a kind the cluster has."""
        if not self.is_listed or self.paused:
            return False
        return all((each.group, each.kind) != (kind.group, kind.kind) for each in self.watches.unlisted())

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be stopped in the cluster now, or it still runs what was queued again elsewhere."""
        return self.context.is_lost

    def give_up(self, *, given_up: bool) -> None:
        """Regard what was dispatched to the cluster as gone, or not any more."""
        if given_up is not self.given_up:
            self.given_up, self.must_recheck = given_up, True
            self.inbox.wake()

    def close(self, why: str, *, is_lost: bool = False) -> None:
        """Start nothing in the cluster from now on, for which `why` is the message; empty: open it.

        `is_lost`: nothing can be stopped there, either.
        """
        if (why, is_lost) != (self.context.closed, self.context.is_lost):
            self.context.closed, self.context.is_lost, self.must_recheck = why, is_lost, True
            self.inbox.wake()

    def reset(self, shared: Shared) -> None:
        """Replace the state by an empty one, before it is loaded from the database."""
        self.must_recheck = bool(self.context.closed)
        self.leader = Leader(
            kinds=self.kinds,
            client=self.client,
            watches=self.watches,
            policy=self._policy,
            inbox=self.inbox,
            pod_waiter=self._pod_waiter,
            nodes_and_pods=self.nodes_and_pods,
            sender=self._sender,
            events=self.events,
            faults=self._faults,
            shared=shared,
            clock=self._clock,
        )
        if self._pod_obstacles is not None:
            self._pod_obstacles.begin(self.leader.reconciler.readiness, self.leader.groups)

    def take_over(self) -> None:
        """Take the watched objects, to be compared; further changes of them come to the inbox."""
        self._uncompared = self.watches.hand_over(self.inbox)

    def give_back(self) -> None:
        """Let the watches store the objects for the next leadership."""
        self.watches.take_back(self._uncompared | self.leader.objects(), self.inbox)

    async def run(self) -> None:
        """Send requests and poll pods, until cancelled."""
        readiness, groups = self.leader.reconciler.readiness, self.leader.groups
        obstacles = self._pod_obstacles = PodObstacles(
            self.client, self.inbox, readiness, groups,
            copies=lambda: self._unready_copies(self), flavors=self.context.flavors, clock=self._clock,
        )  # fmt: skip
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.writer.run(), name="writer")
                group.create_task(self.events.run(), name="events")
                group.create_task(self._pod_waiter.run(), name="pod waiter")
                group.create_task(self.nodes_and_pods.run(), name="nodes and pods")
                group.create_task(obstacles.run(), name="pod obstacles")
                group.create_task(self.failed_pods.run(), name="failed pods")
                group.create_task(self.provisioning.run(), name="provisioning")
                if self._policy.failure_recovery is not None:
                    recovery = FailureRecovery(
                        self.client, self.writer, self.events, self.nodes_and_pods, self.inbox, self._faults,
                        self._policy.failure_recovery, self._clock,
                    )  # fmt: skip
                    group.create_task(recovery.run(), name="failure recovery")
        finally:
            await self._sender.close()

    async def see_capacity(self, *, epoch: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Store what the nodes have, until cancelled, while that is wanted and the cluster answers."""

        def is_due() -> bool:
            return is_wanted() and not self.paused and self.watches.probe.failure is None

        capacity = NodeCapacity(
            self.name, self.client, self._store, lambda: self.nodes_and_pods, is_due, epoch=epoch, faults=self._faults
        )
        await capacity.run()

    async def compare(self, before: WorkloadRegistry | None = None) -> None:
        """Compare stored workloads with observed objects. `before`: registry before a reload."""
        state = self.leader.state
        for number, uid in enumerate(sources_first(self._uncompared, self.kinds), start=1):
            state.now = self._clock()
            kind, raw = self._uncompared.pop(uid)
            self.leader.children.process(kind, orjson.loads(raw))
            former = before.get(uid) if before is not None else None
            if former is not None and (now := state.registry.get(uid)) is not None:
                now.refused = former.refused
            if number % COMPARE_BATCH == 0:
                await asyncio.sleep(0)
        self.leader.groups.update_due()

    def keep_objects(self) -> None:
        """Keep the objects of the present state, to be compared with the next one."""
        self._uncompared = self._uncompared | self.leader.objects()
