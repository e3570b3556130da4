"""Control loop of a replica: processes the inbox, runs the engine, commits the decisions, and sends the requests.

A cycle processes everything that has arrived since the previous one, so a burst of a thousand Jobs takes a few
transactions. While the database does not answer there are no cycles. Decisions that may not have been committed are
then discarded, and the state is reloaded from the database and from the observed objects, exactly as at a start.

All replicas watch the cluster (`ClusterWatches`), one decides. Its state (`Leader`) is recreated at each takeover.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING

from admission.controller.auditing.auditor import AuditedCluster, Auditor
from admission.controller.clusters import RemoteCluster
from admission.controller.decisions.budget_reports import BudgetReports
from admission.controller.decisions.committer import Committer
from admission.controller.decisions.node_drains import NodeDrains
from admission.controller.decisions.outages import record_outages
from admission.controller.decisions.quota_calendars import CalendarQuotas
from admission.controller.decisions.quota_from_nodes import INTERVAL, QuotasFromNodes
from admission.controller.decisions.reservation_care import ReservationCare
from admission.controller.decisions.scheduler import Scheduler
from admission.controller.decisions.undecidable import undecidable
from admission.controller.decisions.usage_meter import UsageMeter
from admission.controller.leader import Shared
from admission.controller.recovery import log_start, restore
from admission.controller.site import Site
from admission.controller.state.faults import Faults
from admission.controller.state.inbox import ContextChanged, DelayEnded, Recheck
from admission.controller.state.leader_state import Batch
from admission.controller.state.policy import ControllerPolicy
from admission.controller.state.repeating import Timer
from admission.controller.state.triggers import LeftQueue
from admission.engine import BudgetsSpent, Engine
from admission.engine.events import ClustersLost, WorkloadGone
from admission.model import sentences
from admission.model.errors import SluiceError
from admission.model.queues import MODELS, Cluster
from admission.model.workload import LOCAL
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable, Unwritable
from admission.store.policy_seeds import policy_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from admission.cluster.client import Client
    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.clusters import Connection, Join
    from admission.controller.intake.watches import ClusterWatches
    from admission.controller.state.context import Context
    from admission.controller.state.inbox import Inbox, Message
    from admission.controller.state.leader_state import WorkloadRegistry
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.copies import Copy
    from admission.engine import Policy as EnginePolicy
    from admission.kinds.registry import Kinds
    from admission.model.queues import QueueObject
    from admission.serving.tracing import Tracing
    from admission.store.records import QueueObjectVersion, WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

DEBOUNCE = 0.005
"""Debounce in seconds: delay between the first message of an empty inbox and the cycle that processes it."""

RETRY_INTERVAL = 1.0
"""Seconds between two checks of a database that does not answer, and before the first reload of the state."""

MAX_RETRY_INTERVAL = 30.0
"""Seconds before a reload of the state at most, after repeated failures."""


class Controller:
    """One store and the sites of all clusters. Every replica runs `watch`; the leader also runs `decide`."""

    def __init__(
        self,
        *,
        store: Store,
        client: Client,
        kinds: Kinds,
        policy: ControllerPolicy | None = None,
        leads: Callable[[], bool] = lambda: True,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        audit_interval: float = 0.0,
        tracing: Tracing | None = None,
        join: Join | None = None,
    ) -> None:
        """`leads`: whether this replica is certainly still the leader; called right before each change of an object.

        `loading`: context manager for loading the stored workloads: it may pause the garbage collector.
        `audit_interval`: seconds between two audits; 0: only on request. `tracing`: receives spans; None: no tracing.
        `join`: returns how the cluster of a Cluster object is reached; None: no cluster joins.
        """
        self.faults = Faults(store.now)
        """Workloads that caused exceptions, and are ignored until they change."""
        self._store = store
        self._kinds = kinds
        self._loading = loading
        self._policy = policy or ControllerPolicy()
        self._clock = store.now
        self.home = Site(
            LOCAL, store=store, client=client, kinds=kinds, policy=self._policy, leads=leads, faults=self.faults,
            copy_changed=self._copy_changed,
            unready_copies=self._unready_copies,
        )  # fmt: skip
        """The site of the cluster `local`, which must answer for any decision."""
        self._sites = {LOCAL: self.home}
        """By cluster, that of `local` first; the others while this replica leads."""
        self._join = join
        self._members: dict[str, tuple[RemoteCluster, asyncio.Task[None]]] = {}
        """The clusters beside `local`, by name, and the tasks that follow them."""
        self._tasks: asyncio.TaskGroup
        """The tasks of the present leadership."""
        self._epoch = 0
        self._revision = 0
        self._recovered = asyncio.Event()
        self._orders_processed = asyncio.Event()
        self._timer = Timer()
        self._leads = leads
        self._committer = Committer(
            store,
            self.faults,
            tracing,
            events=self._events_of,
            failed_pods=lambda: [site.failed_pods for site in self._sites.values()],
        )
        self.quota_interval = INTERVAL
        """Seconds between two looks at the nodes that quota follows."""
        self.metrics = self._committer.metrics
        self._must_reload = False
        """Whether the in-memory state may differ from the database, so that it has to be reloaded."""
        self._changed_members: set[str] = set()
        """Names of clusters that have joined, left, or must be connected anew."""
        self.database_fault: str | None = None
        """Why the last write or load failed, until a load succeeds; None: it succeeded."""
        self._undecidable = False
        """Whether a cycle raised an exception that could not be attributed to a workload."""
        self._failures = 0
        """Number of reloads since the last cycle that succeeded."""
        self._queue_objects: tuple[QueueObject, ...] = ()
        """Queue objects at the last load of the state."""
        self.auditor = Auditor(store, interval=audit_interval, clock=store.now)
        self._begin()

    @property
    def watches(self) -> ClusterWatches:
        """The watches of `local`."""
        return self.home.watches

    @property
    def context(self) -> Context:
        """What requests and priorities in `local` are computed from."""
        return self.home.context

    @property
    def inbox(self) -> Inbox:
        """The inbox of `local`, whose event wakes the leader for all clusters."""
        return self.home.inbox

    @property
    def writer(self) -> Writer:
        """The sender of all changes of objects in `local`."""
        return self.home.writer

    @property
    def events(self) -> EventRecorder:
        """The recorder of Events in `local`."""
        return self.home.events

    @property
    def queued_events(self) -> int:
        """Number of Events that are still to be written, in all clusters."""
        return sum(site.events.pending for site in self._sites.values())

    async def health(self) -> str | None:
        """Return None if this replica is deciding; else the message that names what it waits for."""
        compared = None if self._recovered.is_set() else "the stored workloads were not yet compared with the cluster"
        return self.watches.failure() or compared

    @property
    def is_deciding(self) -> bool:
        """Whether it leads, has recovered, neither waits for API server or database, nor has to reload its state."""
        return self._recovered.is_set() and self.watches.probe.failure is None and not self._must_reload

    def standstill(self) -> str:
        """Return the message about an outage that prevents decisions, or would if this replica led; empty: none."""
        return sentences.standstill(silent=self._is_silent, unwritable=self._is_unwritable)

    @property
    def _is_silent(self) -> bool:
        return self.watches.probe.failure is not None

    @property
    def _is_unwritable(self) -> bool:
        return self._recovered.is_set() and self.database_fault is not None

    def _cause_of_outage(self) -> str:
        return sentences.outage(silent=self._is_silent, unwritable=self._is_unwritable)

    @property
    def policy(self) -> EnginePolicy:
        """Configuration of the engine."""
        return self._policy.engine

    def engine(self) -> Engine | None:
        """Return the leader's engine, for reading before the next await; None while this replica decides nothing."""
        if not self._recovered.is_set():
            return None
        self._shared.engine.note_time(self._clock())
        return self._shared.engine

    def namespaces(self) -> dict[str, Mapping[str, str]]:
        """Return the labels of each namespace, by its name: those in `local`, else in the first cluster that has it."""
        found: dict[str, Mapping[str, str]] = {}
        for site in self._sites.values():
            for name in site.context.namespaces():
                if name not in found:
                    found[name] = site.context.namespace_labels(name) or {}
        return found

    def _namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace in `local`, else in the first cluster that has it; None: none has."""
        found = (site.context.namespace_labels(name) for site in self._sites.values())
        return next((labels for labels in found if labels is not None), None)

    def _tell_hub(self, message: Message) -> None:
        self.home.inbox.put(message)

    def _copy_changed(self, uid: str) -> None:
        self._tell_hub(Recheck(uid))

    def _unready_copies(self, site: Site) -> list[tuple[Tracked, Copy, str]]:
        dispatching = self.home.leader.dispatching
        return [] if site is self.home or dispatching is None else dispatching.unready(site)

    def _targets(self) -> dict[str, Site]:
        """Return the sites that workloads of `local` can be dispatched to, by name."""
        return {name: site for name, site in self._sites.items() if site is not self.home}

    def _unwanted(self, site: Site) -> int:
        """Return the number of workloads that run in a cluster, and were queued again while it was lost."""
        dispatching = self.home.leader.dispatching
        assert dispatching is not None
        return sum(copy.seen.finished is None for copy in dispatching.unwanted(site))

    def _follow_targets(self) -> None:
        """Note which clusters workloads can be dispatched to now."""
        targets = sorted(self._targets().items())
        is_open = tuple(name for name, site in targets if not site.context.closed)
        closed = {name: site.closed_as for name, site in targets if site.context.closed}
        destinations = self.context.destinations
        if (is_open, closed) != (destinations.open, destinations.closed):
            destinations.open, destinations.closed = is_open, closed
            self.home.must_recheck |= destinations.any

    def _is_elsewhere(self, uid: str, cluster: str) -> bool:
        """Whether a workload is known in another cluster than that of this name."""
        others = (site for site in self._sites.values() if site.name != cluster)
        return any(site.leader.state.registry.get(uid) is not None for site in others)

    def lost_clusters(self) -> dict[str, bool]:
        """Return of each cluster that has joined whether it is lost, or not connected yet; none without the lead."""
        return {name: member.is_lost for name, (member, _) in self._members.items()}

    def _workloads(self) -> Iterator[Tracked]:
        """Return the workloads of all clusters."""
        return chain.from_iterable(site.leader.state.registry for site in self._sites.values())

    def _events_of(self, cluster: str) -> EventRecorder | None:
        site = self._sites.get(cluster)
        return None if site is None else site.events

    def _records(self) -> dict[str, WorkloadRecord]:
        """Return a snapshot of the records of all clusters, by uid."""
        found = self._state.registry.records()
        for site in self._sites.values():
            if site is not self.home:
                found |= site.leader.state.registry.records()
        return found

    def _find(self, uid: str) -> tuple[Site, Tracked | None]:
        """Return a workload and its site; None, and that of `local`, if it is not known."""
        for site in self._sites.values():
            if (tracked := site.leader.state.registry.get(uid)) is not None:
                return site, tracked
        return self.home, None

    def is_held_by_disabled(self, uid: str) -> bool:
        """Whether the workload of this uid holds quota, and its kind is not queued any more."""
        site, tracked = self._find(uid)
        return tracked is not None and tracked.holds_quota and site.kinds.of(tracked.record.workload) is None

    def time_limits(self) -> dict[str, float]:
        """Return by uid the seconds that workloads with a time limit may run, counted from their last or next start."""
        found: dict[str, float] = {}
        for site in self._sites.values():
            found |= site.leader.state.registry.time_limits()
        return found

    async def audit(self, *, repair: bool) -> list[dict[str, str]] | None:
        """Run an audit (`Auditor.documents`); None while this replica decides nothing."""
        return await self.auditor.documents(repair=repair) if self._recovered.is_set() else None

    async def watch(self) -> None:
        """Watch the cluster until cancelled."""
        await self.home.watches.run()

    async def decide(self, *, epoch: int, after: float | None = None) -> None:
        """Lead until cancelled; may be called again afterwards. Outages of API server and database are waited out.

        `after`: when the last leader was last known to be there (Unix time, s); None: there was none.

        Raises StaleEpoch, in an ExceptionGroup, if another replica has taken over.
        """
        self._epoch = epoch
        self._begin()
        self._orders_processed.set()
        self.home.take_over()
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = group
                group.create_task(self.home.run(), name="requests")
                group.create_task(self._committer.workload_events.run(), name="workload events")
                outages = record_outages(
                    self._store, cause=self._cause_of_outage, is_deciding=lambda: self.is_deciding, since=after
                )
                group.create_task(outages, name="outages")
                await self.watches.context_synced()
                await self._load()
                group.create_task(self._watch_orders(), name="orders")
                await self._compare()
                await self._await_lists()
                log_start(list(self._workloads()))
                self._read_unobserved()
                self._recovered.set()
                self.inbox.wake()
                group.create_task(self.auditor.run(), name="audit")
                reports = BudgetReports(self._store, self.events, self.engine, self.faults)
                group.create_task(reports.run(), name="budgets")
                following = QuotasFromNodes(
                    self._store,
                    lambda: {name: site.nodes_and_pods for name, site in self._sites.items()},
                    flavors=lambda: self.context.flavors,
                    leads=lambda: self.is_deciding,
                    faults=self.faults,
                    interval=self.quota_interval,
                )
                group.create_task(following.run(), name="quota from nodes")
                calendars = CalendarQuotas(
                    self._store, leads=lambda: self.is_deciding, faults=self.faults, longest=self.quota_interval
                )
                group.create_task(calendars.run(), name="calendars")
                care = ReservationCare(self._store, self.events, self.engine, self.faults, interval=self.quota_interval)
                group.create_task(care.run(), name="reservations")
                drains = NodeDrains(
                    self._store, lambda: self._sites,
                    leads=lambda: self.is_deciding, faults=self.faults, interval=self.quota_interval,
                )  # fmt: skip
                group.create_task(drains.run(), name="drains of nodes")
                seeing = self.home.see_capacity(epoch=epoch, is_wanted=lambda: bool(self._members))
                group.create_task(seeing, name="capacity")
                if self._policy.usage is not None:
                    meter = UsageMeter(
                        self._store, self.home.client, self.home.inbox, lambda: self.home.leader.state.registry,
                        self.home.nodes_and_pods.occupants, self._policy.usage,
                        leads=lambda: self.is_deciding, epoch=epoch, faults=self.faults,
                    )  # fmt: skip
                    group.create_task(meter.run(), name="usage")
                self._provisioning_changed()
                await self._loop()
        finally:
            self._recovered.clear()
            self.home.give_back()
            self._members.clear()
            self._sites = {LOCAL: self.home}
            self._timer.cancel()
            self._committer.work_log.flush()

    async def _watch_orders(self) -> None:
        while True:
            await self._store.revisions.wait_for_external(self._revision)
            self._orders_processed.clear()
            self.inbox.wake()
            await self._orders_processed.wait()

    def _begin(self) -> None:
        """Begin a leadership with an empty state."""
        self._shared = self._new_shared()
        arrived = None
        for site in self._sites.values():
            site.begin(arrived, self._shared, self._committer.traces)
            arrived = self.inbox.arrived
        self._begun()

    def _reset(self, added: Iterable[Site] = ()) -> None:
        """Replace the state by an empty one. `added`: sites that have none yet."""
        assert self.home.leader.dispatching is not None
        self.home.leader.dispatching.has_ended = True
        self._shared = self._new_shared()
        for site in self._sites.values():
            if site in added:
                site.begin(self.inbox.arrived, self._shared, self._committer.traces)
                site.take_over()
            else:
                site.reset(self._shared)
        self._begun()

    async def _forget_former_clusters(self, objects: Iterable[QueueObject]) -> None:
        """Delete what is stored of clusters whose objects were deleted: others may come under their names."""
        if self._join is not None:
            names = {obj.name for obj in objects if isinstance(obj, Cluster)}
            if (await self._store.joined_clusters.load()).keys() - names:
                await self._store.joined_clusters.keep(names, epoch=self._epoch)

    def _adjust_members(self, objects: Iterable[QueueObject]) -> list[Site]:
        """Let clusters join and leave as Cluster objects say; return the sites that were added."""
        wanted = {obj.name: obj for obj in objects if isinstance(obj, Cluster)}
        self.home.close(_draining(wanted.pop(LOCAL, None)))
        if self._join is None:
            return []
        added, former = [], {}
        for name, (member, task) in list(self._members.items()):
            if name not in wanted or not member.follows(wanted[name]):
                task.cancel()
                former[name] = member
                del self._members[name], self._sites[name]
        for name, cluster in sorted(wanted.items()):
            if name not in self._members:
                added.append(self._new_member(cluster, self._join(cluster), former.get(name)))
        return added

    def _new_member(self, cluster: Cluster, connection: Connection, former: RemoteCluster | None) -> Site:
        claim = connection.claim
        site = self._sites[cluster.name] = Site(
            cluster.name,
            store=self._store,
            client=connection.client,
            kinds=connection.kinds,
            policy=self._policy,
            leads=lambda: self._leads() and (claim is None or claim.holds()),
            faults=self.faults,
            copy_changed=self._copy_changed,
            unready_copies=self._unready_copies,
        )
        member = RemoteCluster(
            cluster, connection, site, self._store, former,
            unwanted=lambda: self._unwanted(site), lost_timeout=self._policy.lost_timeout,
        )  # fmt: skip

        def ended() -> None:
            self._changed_members.add(cluster.name)
            self.inbox.wake()

        task = self._tasks.create_task(member.run(epoch=self._epoch, on_end=ended), name=f"cluster {cluster.name}")
        self._members[cluster.name] = member, task
        return site

    def _clusters_changed(self, versions: Iterable[QueueObjectVersion]) -> None:
        """Follow changed Cluster objects; what joins, leaves or is reached otherwise is replaced then."""
        for version in versions:
            if not isinstance(cluster := version.object, Cluster):
                continue
            is_deleted = version.operation == "delete"
            if cluster.name == LOCAL:
                self.home.close(_draining(None if is_deleted else cluster))
            elif self._join is not None:
                known = self._members.get(cluster.name)
                if is_deleted or known is None or not known[0].follows(cluster):
                    self._changed_members.add(cluster.name)

    async def _replace_members(self) -> None:
        """Let clusters join, leave and be connected anew; their workloads are taken over as they are in memory.

        What was decided is committed first, so that these are as they are stored. The state is loaded only if a cluster
        joins under a name that unfinished workloads have, as one had that has left.
        """
        self._changed_members = set()
        await self._committer.commit(self._shared.batch, self._failed, known=self._revision, epoch=self._epoch)
        objects = [each for kind in MODELS for each in await self._store.queues.list(kind)]
        new = {each.name for each in objects if isinstance(each, Cluster)} - self._sites.keys()
        if new and new & (await self._store.workloads.by_cluster()).keys():
            self._must_reload = True
        if not self._isolate_failed():
            return
        await self._forget_former_clusters(objects)
        before, added = dict(self._sites), self._adjust_members(objects)
        self._shared = self._shared._replace(is_elsewhere=self._is_elsewhere)
        self.home.leader.isolation.is_elsewhere = self._is_elsewhere
        for site in added:
            site.begin(self.inbox.arrived, self._shared, self._committer.traces)
            site.take_over()
            for each in objects:
                with site.leader.isolation.of_queue_object(each.key):
                    site.context.update_queue_object(each)
        self._state.now = self._clock()
        for name, site in before.items():
            if self._sites.get(name) is not site:
                self._hand_over(site, self._sites.get(name))
        self._scheduler = Scheduler([site.leader.reconciler for site in self._sites.values()])
        self._note_lost(self._state.now)
        self._follow_targets()
        self._isolate_failed()

    def _hand_over(self, former: Site, site: Site | None) -> None:
        """Let a site take over the workloads of the one whose place it takes; None: the cluster has left."""
        assert self.home.leader.dispatching is not None
        self.home.leader.dispatching.target_replaced(former)
        state = former.leader.state
        state.now = self._state.now
        for tracked in list(state.registry):
            if tracked.larger is not None:
                state.observe(WorkloadGone(tracked.larger.uid))
            if site is not None:
                is_on = site.kinds.of(tracked.record.workload) is not None
                with site.leader.isolation.of(tracked.uid):
                    site.leader.state.restore(tracked.record, tracked.order, tracked.checks, is_on=is_on)
            elif tracked.holds_quota:
                self._must_reload = True  # its quota is held although its cluster has left
            else:
                with former.leader.isolation.of(tracked.uid):
                    former.leader.reconciler.handle(tracked, LeftQueue(sentences.cluster_left(former.name)))
        if site is not None:
            site.leader.state.ended = state.ended
            site.leader.reconciler.readiness.restored()

    def _new_shared(self) -> Shared:
        is_elsewhere = self._is_elsewhere if len(self._sites) > 1 else None
        return Shared(
            Engine(self._policy.engine),
            Batch(),
            self._namespace_labels,
            self._tell_hub,
            lambda: self.home.leader.state.registry,
            self._targets,
            is_elsewhere,
        )

    def _begun(self) -> None:
        self._lost: frozenset[str] = frozenset()
        self._leader, self._state = self.home.leader, self.home.leader.state
        self._follow_targets()
        self._scheduler = Scheduler([site.leader.reconciler for site in self._sites.values()])
        self.auditor.begin(self._audited, records=self._records)

    def _audited(self) -> list[AuditedCluster]:
        """Return the clusters of which all objects are known, `local` first."""
        others = (site for site in self._sites.values() if site is not self.home)
        certain = [self.home, *(site for site in others if site.is_listed and not site.paused and not site.is_lost)]
        return [
            AuditedCluster(
                site.name, site.client, site.kinds, site.context.flavors, site.leader.state, site.inbox,
                site.leader.children.is_part, {uid for copy in site.copies for uid in (copy.uid, copy.origin.workload)},
            )
            for site in certain
        ]  # fmt: skip

    def _read_unobserved(self) -> None:
        for site in self._sites.values():
            if site.is_listed:
                site.leader.requests.read_unobserved(site.watches.unlisted())
            self._target_changed(site)

    def _provisioning_changed(self) -> None:
        for site in self._sites.values():
            site.provisioning.changed()

    async def _load(self) -> None:
        """Load all committed state once the database answers; after a failed write, once it can be written as well."""
        logged = ""
        while True:
            try:
                if (fault := await self._store.health()) is None:
                    with self._loading():
                        await self._load_now()
                    self.database_fault = None
                    return
            except (DatabaseUnavailable, DatabaseUnusable) as error:
                fault = str(error)
            self.database_fault = fault
            if fault != logged:  # a conflict with a migration is followed by what the migration has left
                log.error("no decisions until the database is back: %s", fault)
                logged = fault
            await asyncio.sleep(RETRY_INTERVAL)

    async def _load_now(self) -> None:
        self._changed_members = set()
        loaded = await self._store.load()
        seeds = await policy_seeds(self._store, self.policy, loaded.queue_objects, now=self._clock())
        await self._forget_former_clusters(loaded.queue_objects)
        added = self._adjust_members(loaded.queue_objects)
        self._reset(added)
        self._revision, self._queue_objects = loaded.revision, loaded.queue_objects
        for uid, error in loaded.faults.items():
            self.faults.report(f"the row of workload {uid}", error)
        leaders = {name: site.leader for name, site in self._sites.items()}
        restore(loaded, seeds, leaders, namespaces=self.namespaces())
        for site in self._sites.values():
            site.nodes_and_pods.follow(self.context.flavors)
            site.nodes_and_pods.report()
        for leader in leaders.values():
            leader.reconciler.readiness.restored()
        records = [tracked.record for tracked in self._workloads()]
        self.metrics.restored(records)
        self._committer.workload_events.begin(records, loaded.last_transition_at)

    async def _compare(self, before: Mapping[str, WorkloadRegistry] | None = None) -> None:
        """Compare stored workloads with observed objects. `before`: registries before a reload, by cluster."""
        for name, site in self._sites.items():
            await site.compare(None if before is None else before.get(name))
        self._isolate_failed()

    async def _await_lists(self) -> None:
        """Process changes until all kinds are listed: all the work of a start, none of a takeover."""
        while not self.watches.objects_synced.is_set():
            await self.inbox.wait()  # the last list wakes it, too
            self._process_inbox()
        self._process_inbox()
        self._isolate_failed()

    async def _reload(self) -> None:
        """Reload the state after a commit of unknown outcome: only what the database contains has been decided."""
        before = {name: site.leader.state.registry for name, site in self._sites.items()}
        for site in self._sites.values():
            site.keep_objects()
        await asyncio.sleep(min(RETRY_INTERVAL * 2**self._failures, MAX_RETRY_INTERVAL))
        self._failures += 1
        await self._load()
        if self._undecidable:  # isolate the workloads with which decisions fail
            suspects = undecidable(
                self.policy,
                self.namespaces(),
                self._queue_objects,
                chain.from_iterable(before.values()),
                now=self._clock,
            )
            async for tracked, error in suspects:
                self.faults.note(tracked.uid, "" if tracked.seen is None else tracked.seen.resource_version, error)
        self._must_reload = self._undecidable = False
        await self._compare(before)
        self._read_unobserved()
        log.info("deciding again")

    def _isolate_failed(self) -> bool:
        """Isolate the workloads that failed; return False if the state has to be reloaded for that."""
        for site in self._sites.values():
            isolation = site.leader.isolation
            for uid in isolation.settle() if isolation.failures else ():
                self._must_reload = True
                if pause := self.faults.start_backoff(uid):
                    asyncio.get_running_loop().call_later(pause, site.inbox.put, DelayEnded(uid))
        return not self._must_reload

    def _failed(self, uid: str, error: Exception) -> None:
        self._find(uid)[0].leader.isolation.failed(uid, error)

    async def _loop(self) -> None:
        while True:
            try:
                if self._must_reload:
                    await self._reload()
                    self.inbox.wake()
                await self.inbox.wait()
                if self.watches.probe.failure is not None:  # no decisions while the cluster's state may be outdated
                    await self.watches.probe.wait_until_alive()
                await asyncio.sleep(DEBOUNCE)
                await self._cycle()
            except (DatabaseUnavailable, DatabaseUnusable, Unwritable) as error:
                log.error("reloads the state, as decisions may not have been committed: %s", error)
                self._must_reload = True
                self.database_fault = None if isinstance(error, Unwritable) else str(error)
            except SluiceError:
                raise
            except Exception as error:  # noqa: BLE001  a defect must not end the loop: it would recur at each restart
                self.faults.report("a cycle of decisions", error)
                self._must_reload = self._undecidable = True

    async def _cycle(self) -> None:
        """Process the inbox, and decide and commit if that is due."""
        if self.auditor.must_reload:
            self.auditor.must_reload = False
            await self._reload()
        if not self._orders_processed.is_set():
            await self._process_orders()
        if self._changed_members:
            await self._replace_members()
            if self._must_reload:
                return
        self._process_inbox()
        leaders = [site.leader for site in self._sites.values()]
        for leader in leaders:
            leader.reconciler.handle_deadlines()
            if leader.state.dirty:
                leader.requests.release_stopped()
        if not self._isolate_failed():
            return
        arrived = sum(leader.state.arrivals for leader in leaders)
        freed = any(leader.state.quota_freed for leader in leaders)
        wanted = freed and self._shared.engine.waiting > arrived  # others than those that have just arrived
        pause = self._committer.batching.due_in(time.monotonic(), arrived=arrived, wanted=wanted)
        if pause > 0:
            self.home.leader.requests.send_pressing()
            self._timer.set(pause, self.inbox.wake)
            return
        try:
            await self._decide_and_commit()
        finally:
            self._committer.flush_reports()
        self._failures = 0

    async def _decide_and_commit(self) -> None:
        """Run the engine on all changes, commit its decisions in one transaction, then send the requests."""
        leaders = [site.leader for site in self._sites.values()]
        for leader in leaders:
            leader.state.quota_freed, leader.state.arrivals = False, 0
        began = time.perf_counter()
        decisions = self._scheduler.decide()
        self._committer.decided(decisions, time.perf_counter() - began, self._shared.engine.cluster_queue_of)
        if not self._isolate_failed():
            return
        try:
            due_in = await self._committer.commit(
                self._shared.batch, self._failed, known=self._revision, epoch=self._epoch
            )
        except Unwritable:
            self._isolate_failed()
            raise
        for leader in leaders:
            leader.requests.send_due()
            leader.see_pods(leader.state.resized)
            if leader is not self._leader:  # it may run in one of the others
                leader.see_pods(self._state.resized)
        for leader in leaders:
            leader.state.resized.clear()
            leader.ungating.send_due()
        self._provisioning_changed()
        self._isolate_failed()
        if self._shared.batch.urgent or any(leader.state.dirty for leader in leaders):
            self.inbox.wake()
        await asyncio.sleep(0)  # let the requests be sent before the work below and the next cycle
        for pause in (due_in, self._scheduler.seconds_until_next(self._clock())):
            if pause is not None:
                self._timer.set(pause, self.inbox.wake)

    async def _seed_policies(self) -> None:
        """Read what policies have to know of the past, because a queue object has changed.

        Nothing else changes meanwhile, and all that has happened is committed first: so memory and ledger agree.
        """
        await self._committer.commit(self._shared.batch, self._failed, known=self._revision, epoch=self._epoch)
        lacking = self._shared.engine.lacking
        kinds = {kind for kind, _ in lacking}
        objects = [
            each for kind in kinds for each in await self._store.queues.list(kind) if (kind, each.name) in lacking
        ]
        for event in await policy_seeds(self._store, self.policy, objects, now=self._state.now):
            if isinstance(event, BudgetsSpent):
                self._state.observe(event)

    def _process_inbox(self) -> None:
        """Process the messages that are in the inbox now."""
        # Each `take` clears the common event: messages that come while others are processed must set it again.
        taken = [(site, [] if site.paused else site.inbox.take()) for site in self._sites.values()]
        now = self._clock()
        if any(site.must_recheck for site in self._sites.values()):
            self._note_lost(now)
            self._follow_targets()
        for site, messages in taken:
            site.leader.state.now = now
            if site.must_recheck:
                site.must_recheck = False
                messages.append(ContextChanged())
                self._target_changed(site)
            site.leader.router.messages(messages)

    def _target_changed(self, site: Site) -> None:
        dispatching = self.home.leader.dispatching
        if site is not self.home and dispatching is not None:
            dispatching.target_changed(site, self._policy.lost_timeout)

    def _note_lost(self, now: float) -> None:
        """Tell the engine in which clusters nothing can be stopped, if others are lost now."""
        lost = frozenset(site.name for site in self._sites.values() if site.is_lost)
        if lost != self._lost:
            self._lost, self._state.now = lost, now
            self._state.observe(ClustersLost(lost))
            self._state.quota_freed = True

    async def _process_orders(self) -> None:
        """Process what other writers have committed since the last call, before Jobs that were submitted after it."""
        # Writes during these reads have higher revisions: they are read again next time, which has no effect.
        revision = self._store.revisions.newest_external
        versions = await self._store.queues.changes_since(self._revision)
        orders = await self._store.orders.since(self._revision)
        now = self._clock()
        for site in self._sites.values():
            site.leader.state.now = now
            site.leader.router.queue_objects(versions)
        self._clusters_changed(versions)
        for site in self._sites.values():
            site.nodes_and_pods.follow(self.context.flavors)
        if self._shared.engine.lacks_history:
            await self._seed_policies()
        for site in self._sites.values():
            site.leader.router.orders_and_checks(orders)
        self._provisioning_changed()
        self._revision = max(self._revision, revision)
        self._orders_processed.set()


def _draining(local: Cluster | None) -> str:
    """Return why nothing is started in `local`, as its Cluster object says; empty: it is open."""
    return "" if local is None or local.spec.state == "Active" else sentences.cluster_closed(LOCAL, "is draining")
