"""The leader's notifier: fills the outbox with changes that Subscriptions ask for, and delivers it to each receiver."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from admission.apimachinery.patches import differences
from admission.engine.vocabulary import PREEMPTED
from admission.model.errors import StoreError
from admission.model.queues import Budget, ClusterQueue, LocalQueue, Subscription
from admission.model.workload import LOCAL
from admission.notifications.bodies import WORKLOAD, budget_event, left_out_event, quota_event, workload_event
from admission.notifications.receivers import NOT_SERVED, DeliveryFailed
from admission.store.errors import StaleEpoch
from admission.store.notifications import Notification, SubscriptionState, WorkloadScope
from admission.store.records import IDLE, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from admission.model.subscriptions import SubscribedEvent
    from admission.notifications.receivers import Receivers
    from admission.notifications.sending import NotificationSender
    from admission.store.notifications import LogBatch, QuotaVersion, WorkloadEvent
    from admission.store.records import Document
    from admission.store.store import Store

HOUR: Final = 3600.0

_ADMITTED: Final = "Admitted"
"""Reason of a workload that holds quota and may run; with admission checks that are not Ready the reason differs."""
_QUOTA_FIELDS: Final = ("resourceGroups", "cohortName", "parentName", "stopPolicy", "fairSharing")
"""Fields of a ClusterQueue or Cohort that determine how much it may use."""


def scope_of(subscription: Subscription) -> WorkloadScope:
    """Return the filter for the workloads of a Subscription."""
    spec = subscription.spec
    namespace = subscription.metadata.namespace if spec.scope == "Namespace" else ""
    return WorkloadScope(namespace, spec.cluster_queue, spec.local_queue, spec.user, (LOCAL, *spec.clusters))


def event_type(one: WorkloadEvent) -> SubscribedEvent | None:
    """Return the event of a Subscription that a workload's transition is; None: it is not reported."""
    if one.state is State.FINISHED:
        return "Finished"
    if one.state is State.ADMITTED and one.reason == _ADMITTED:
        return "Admitted"
    if one.state is State.ADMITTED and one.reason == IDLE:
        return "Idle"
    if one.state is State.EVICTING and one.reason == PREEMPTED:
        return "Preempted"
    return None


@dataclass(slots=True)
class NotificationBatch:
    """New notifications of one Subscription, within its hourly limit."""

    subscription: Subscription
    state: SubscriptionState
    """State of the Subscription, updated by each notification."""
    now: float
    """Seconds since the epoch."""
    source: str
    """`source` of the CloudEvents."""
    notifications: list[Notification] = field(default_factory=list)
    """Notifications to put into the outbox."""

    def __post_init__(self) -> None:
        hour = self.now - self.now % HOUR
        if self.state.hour is not None and self.state.hour >= hour:
            return
        if self.state.hour is not None and self.state.left_out:
            self.notifications.append(self._notification(self._left_out_event(self.state.hour)))
        self.state = replace(self.state, hour=hour, in_hour=0, left_out={})

    @property
    def uid(self) -> str:
        """Uid of the Subscription."""
        return self.subscription.metadata.uid

    def add(self, event: Document) -> None:
        """Add a notification, or count it as left out if the limit is reached."""
        if self.state.in_hour < self.subscription.spec.limit_per_hour:
            self.notifications.append(self._notification(event))
            self.state = replace(self.state, in_hour=self.state.in_hour + 1)
        else:
            self.count_left_out(event["type"], 1)

    def count_left_out(self, type_: str, number: int) -> None:
        """Count notifications of a type that are not sent because of the limit."""
        left_out = dict(self.state.left_out)
        left_out[type_] = left_out.get(type_, 0) + number
        self.state = replace(self.state, left_out=left_out)

    def process_event(self, one: WorkloadEvent) -> None:
        """Add a notification if the Subscription includes this event."""
        event = event_type(one)
        if (
            event is not None
            and event in self.subscription.spec.events
            and _is_within(one, scope_of(self.subscription))
        ):
            self.add(workload_event(self.source, event.lower(), one, at=one.at))

    def process_quota_change(self, version: QuotaVersion, own_queues: Collection[str]) -> None:
        """Add a notification if the Subscription includes this change of a ClusterQueue or Cohort.

        `own_queues`: ClusterQueues of the namespace's LocalQueues.
        """
        spec = self.subscription.spec
        if "QuotaChanged" not in spec.events:
            return
        if spec.scope == "Namespace" and (version.kind != ClusterQueue.kind or version.name not in own_queues):
            return
        if spec.cluster_queue and (version.kind != ClusterQueue.kind or version.name != spec.cluster_queue):
            return
        if changes := quota_changes(version):
            self.add(quota_event(self.source, version, changes))

    def _left_out_event(self, hour: float) -> Document:
        metadata = self.subscription.metadata
        named = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        return left_out_event(self.source, named, self.state.left_out, hour=hour)

    def _notification(self, event: Document) -> Notification:
        return Notification(self.uid, event, self.now)


def quota_changes(version: QuotaVersion) -> list[Document]:
    """Return the quota fields that a version has changed; for a new or deleted object all its quota fields."""
    before, after = _quota_fields(version.before), _quota_fields(version.after)
    return [*differences({"spec": before}, {"spec": after})]


def _quota_fields(content: Document | None) -> Document:
    spec: Mapping[str, object] = (content or {}).get("spec") or {}
    return {name: spec[name] for name in _QUOTA_FIELDS if name in spec}


def _is_within(one: WorkloadEvent, scope: WorkloadScope) -> bool:
    return (
        one.cluster in scope.clusters
        and scope.namespace in ("", one.namespace)
        and scope.cluster_queue in ("", one.cluster_queue)
        and scope.local_queue in ("", one.local_queue)
        and scope.user in ("", one.user)
    )


log = logging.getLogger(__name__)

POLL_INTERVAL: Final = 5.0
"""Seconds between two checks for retries and long waits, which are due by time."""
DEBOUNCE: Final = 0.2
"""Seconds from a commit until it is processed, so that further commits share the work."""
FIRST_RETRY_DELAY: Final = 5.0
"""Seconds from the first failure of a receiver to the next attempt; doubled by each further failure."""
MAX_RETRY_DELAY: Final = 600.0
"""Upper bound of that delay, in seconds."""
RETENTION: Final = 3 * 24 * HOUR
"""Seconds after which an undelivered notification is dropped."""
CLEANUP_INTERVAL: Final = 30.0
"""Seconds between two clean-ups."""
MAX_SUBSCRIPTIONS: Final = 100
"""Subscriptions of a namespace that are served at most, because each one is matched with each event there."""
_BATCH: Final = 50
"""Notifications of a receiver that are read from the outbox at a time."""


class Notifier:
    """Notifier of a process; `run` runs while it leads. `clock` returns seconds since the epoch."""

    def __init__(
        self,
        store: Store,
        receivers: Callable[[], Receivers],
        sender: NotificationSender,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Number of delivery attempts by (receiver, outcome); outcomes are "delivered" and "failed"."""
        self.dropped = 0
        """Number of notifications that were dropped after RETENTION."""
        self._store = store
        self._outbox = store.notifications
        self._receivers = receivers
        self._sender = sender
        self._clock = clock
        self._all: tuple[Subscription, ...] = ()
        """All Subscriptions."""
        self._subscriptions: tuple[Subscription, ...] = ()
        """The Subscriptions that are served, see MAX_SUBSCRIPTIONS."""
        self._served_uids: frozenset[str] = frozenset()
        """Uids of the same, since comparing models with each other is slow: there may be thousands."""
        self._known_revision = -1
        """Revision up to which the Subscriptions were read; -1: not yet."""
        self._source = ""
        """`source` of the CloudEvents."""
        self._retry: dict[str, tuple[float, float]] = {}
        """(time of the next attempt, last delay) by name of each receiver that has failed."""
        self._busy: set[str] = set()
        """Receivers to which notifications are being delivered."""
        self._next_cleanup = 0.0

    async def run(self, *, epoch: int) -> None:
        """Process committed changes and deliver notifications until cancelled. Raises StaleEpoch once deposed."""
        self._known_revision = -1  # another leader may have written since the last run
        async with asyncio.TaskGroup() as group:
            while True:
                seen = self._store.revisions.newest
                try:
                    for receiver in await self.process(epoch=epoch):
                        group.create_task(self.deliver(receiver, epoch=epoch), name=f"notify {receiver}")
                except StaleEpoch:
                    raise
                except StoreError as error:
                    log.warning("notifications wait until the database is available again: %s", error)
                    await asyncio.sleep(POLL_INTERVAL)
                except Exception:  # must not end the leadership: the next leader would meet the same error
                    log.exception("notifications could not be created")
                    await asyncio.sleep(POLL_INTERVAL)
                await self._pause(seen)

    async def _pause(self, seen: int) -> None:
        """Wait for a commit, or for POLL_INTERVAL; without Subscriptions for a write through the API."""
        if not self._subscriptions:
            await self._store.revisions.wait_for_external(max(self._known_revision, 0))
            return
        try:
            async with asyncio.timeout(POLL_INTERVAL):
                await self._store.revisions.wait_for(seen)
        except TimeoutError:
            return
        await asyncio.sleep(DEBOUNCE)

    async def process(self, *, epoch: int) -> list[str]:
        """Put new notifications into the outbox; return the receivers to deliver to now. Raises StoreError."""
        await self._refresh()
        progress = await self._outbox.progress()
        if not self._subscriptions:
            if progress is not None:
                await self._outbox.end(epoch=epoch)
            return []
        if progress is None:
            await self._outbox.begin(epoch=epoch)
            progress = await self._outbox.progress()
            assert progress is not None
        more = True
        while more:
            found = await self._outbox.read_log(progress)
            batches = await self._match(found)
            await self._add_long_waits(batches)
            await self._add_alerts(batches)
            changed = {one.uid: one.state for one, before in batches if one.state != before}
            new = [each for one, _ in batches for each in one.notifications]
            if new or changed or found.progress != progress:
                await self._outbox.write(new, changed, progress=found.progress, epoch=epoch)
            progress, more = found.progress, found.more
        await self._clean_up(epoch)
        return await self._due()

    async def _refresh(self) -> None:
        """Read the Subscriptions again after a write that is not a decision of this process."""
        newest = self._store.revisions.newest_external
        if newest > self._known_revision or self._known_revision < 0:
            found = await self._store.queues.list(Subscription.kind)
            self._all = cast("tuple[Subscription, ...]", found)
            self._subscriptions = _served(self._all)
            self._served_uids = frozenset(each.metadata.uid for each in self._subscriptions)
            self._next_cleanup = 0.0
            self._known_revision = newest
        if self._subscriptions and not self._source:
            identity = await self._store.identity()
            self._source = f"urn:sluice:{identity.cluster or identity.database}"

    async def _match(self, found: LogBatch) -> list[tuple[NotificationBatch, SubscriptionState]]:
        """Return the new notifications of each Subscription for a batch of the log, with the state before."""
        states, now = await self._outbox.states(), self._clock()
        batches = []
        by_namespace: dict[str, list[NotificationBatch]] = {}
        for subscription in self._subscriptions:
            before = states.get(subscription.metadata.uid, SubscriptionState())
            batch = NotificationBatch(subscription, before, now, self._source)
            batches.append((batch, before))
            by_namespace.setdefault(scope_of(subscription).namespace, []).append(batch)
        for one in found.workload_events:
            for each in (*by_namespace.get(one.namespace, ()), *by_namespace.get("", ())):
                each.process_event(one)
        if found.versions:
            queues = await self._cluster_queues()
            for version in found.versions:
                for each, _ in batches:
                    each.process_quota_change(version, queues.get(each.subscription.metadata.namespace, frozenset()))
        return batches

    async def _cluster_queues(self) -> dict[str, set[str]]:
        """Return the ClusterQueues of each namespace's LocalQueues."""
        found: dict[str, set[str]] = {}
        for queue in cast("tuple[LocalQueue, ...]", await self._store.queues.list(LocalQueue.kind)):
            found.setdefault(queue.metadata.namespace, set()).add(queue.spec.cluster_queue)
        return found

    async def _add_long_waits(self, batches: Iterable[tuple[NotificationBatch, SubscriptionState]]) -> None:
        """Add notifications of workloads that have been pending for longer than a Subscription's limit."""
        for each, _ in batches:
            seconds = each.subscription.spec.pending_longer_than_seconds
            reported_to = each.state.waits_told_to
            if seconds is None or (reported_to is not None and each.now - seconds < reported_to + POLL_INTERVAL):
                continue
            waiting, number = await self._outbox.waiting(
                scope_of(each.subscription),
                queued_after=reported_to,
                queued_by=each.now - seconds,
                limit=each.subscription.spec.limit_per_hour + 1,
            )
            for one in waiting:
                each.add(workload_event(self._source, "pending", one, at=each.now))
            if number > len(waiting):
                each.count_left_out(f"{WORKLOAD}pending", number - len(waiting))
            each.state = replace(each.state, waits_told_to=each.now - seconds)

    async def _add_alerts(self, batches: Iterable[tuple[NotificationBatch, SubscriptionState]]) -> None:
        """Add notifications of Budgets of which a part was spent or reserved since the last ones."""
        told = [each for each, _ in batches if "BudgetUsed" in each.subscription.spec.events]
        if not told:
            return
        alerts = await self._store.budget_sums.alerts()
        budgets = cast("tuple[Budget, ...]", await self._store.queues.list(Budget.kind))
        namespaces = {each.name: each.spec.scope.namespaces if each.spec.scope else () for each in budgets}
        for each in told:
            before, spec = each.state.alerts_told_to, each.subscription.spec
            of = each.subscription.metadata.namespace if spec.scope == "Namespace" else ""
            for alert in alerts:
                if before is None or alert.at <= before or (of and of not in namespaces.get(alert.budget, ())):
                    continue
                each.add(budget_event(self._source, alert))
            newest = max((alert.at for alert in alerts), default=0.0)
            if before is None or newest > before:
                each.state = replace(each.state, alerts_told_to=max(newest, before or 0.0))

    async def _clean_up(self, epoch: int) -> None:
        """Every CLEANUP_INTERVAL: prune the outbox, and update the errors of Subscriptions that are not served."""
        now = self._clock()
        if now < self._next_cleanup:
            return
        self._next_cleanup = now + CLEANUP_INTERVAL
        states = await self._outbox.states()
        deleted = {*await self._outbox.undelivered(), *states} - {each.metadata.uid for each in self._all}
        if dropped := await self._outbox.prune(deleted=deleted, before=now - RETENTION, epoch=epoch):
            log.error("%d notifications were dropped, because they could not be delivered for three days", dropped)
            self.dropped += dropped
        for each in self._all:
            uid = each.metadata.uid
            fault, known = self._fault(each), states.get(uid, SubscriptionState()).error
            if fault != known and (fault or known.startswith(NOT_SERVED)):
                await self._outbox.note_fault(uid, fault, at=now, epoch=epoch)

    def receiver_fault(self, name: str, namespace: str) -> str:
        """Return a message why a receiver cannot be used by a namespace; empty: it can."""
        return self._receivers().fault(name, namespace)

    def _fault(self, subscription: Subscription) -> str:
        """Return a message why a Subscription is not served; empty: it is."""
        name, namespace = subscription.spec.receiver, subscription.metadata.namespace
        if subscription.metadata.uid not in self._served_uids:
            return f"{NOT_SERVED}: a namespace may have {MAX_SUBSCRIPTIONS} Subscriptions, and older ones come first"
        return self.receiver_fault(name, namespace)

    async def _due(self) -> list[str]:
        """Return the receivers with undelivered notifications that are neither busy nor in their retry delay."""
        waiting, now = await self._outbox.undelivered(), self._clock()
        served = (each for each in self._subscriptions if each.metadata.uid in waiting and not self._fault(each))
        return sorted(
            name
            for name in {each.spec.receiver for each in served}
            if name not in self._busy and self._retry.get(name, (0.0, 0.0))[0] <= now
        )

    async def deliver(self, name: str, *, epoch: int) -> None:
        """Deliver the notifications for a receiver one after the other, until one fails. Raises StaleEpoch."""
        self._busy.add(name)
        try:
            while await self._deliver_some(name, epoch):
                pass
        except StaleEpoch:
            raise
        except StoreError as error:
            log.warning("a delivery to receiver %s could not be noted and may be repeated: %s", name, error)
            self._schedule_retry(name, 0.0)
        except Exception:  # must not end the leadership: the next leader would meet the same error
            log.exception("notifications for receiver %s failed", name)
            self._schedule_retry(name, 0.0)
        finally:
            self._busy.discard(name)

    async def _deliver_some(self, name: str, epoch: int) -> bool:
        """Deliver a batch; return whether there may be more."""
        own = [each for each in self._subscriptions if each.spec.receiver == name and not self._fault(each)]
        waiting = await self._outbox.to_send([each.metadata.uid for each in own], limit=_BATCH)
        for one in waiting:
            if (receiver := self._receivers().by_name.get(name)) is None:
                return False  # the configuration was reloaded meanwhile
            try:
                await self._sender.send(receiver, one.event, at=self._clock())
            except DeliveryFailed as error:
                await self._note_failure(name, one, error, epoch)
                return False
            self.outcomes[name, "delivered"] += 1
            self._retry.pop(name, None)
            await self._outbox.delivered(one, at=self._clock(), epoch=epoch)
        return bool(waiting)

    async def _note_failure(self, name: str, one: Notification, error: DeliveryFailed, epoch: int) -> None:
        self.outcomes[name, "failed"] += 1
        if name not in self._retry:
            log.warning("a notification was not delivered, and will be retried: %s", error)
        self._schedule_retry(name, error.retry_after)
        await self._outbox.failed(one, error=str(error), at=self._clock(), epoch=epoch)

    def _schedule_retry(self, name: str, retry_after: float) -> None:
        _, before = self._retry.get(name, (0.0, FIRST_RETRY_DELAY / 2))
        delay = min(2 * before, MAX_RETRY_DELAY)
        self._retry[name] = (self._clock() + max(delay, retry_after), delay)


def _served(found: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """Return the oldest MAX_SUBSCRIPTIONS of each namespace."""
    served: list[Subscription] = []
    counts: Counter[str] = Counter()
    for each in sorted(found, key=lambda one: (str(one.metadata.creation_timestamp), one.name)):
        counts[each.metadata.namespace] += 1
        if counts[each.metadata.namespace] <= MAX_SUBSCRIPTIONS:
            served.append(each)
    return tuple(served)
