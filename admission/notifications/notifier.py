"""The leader's notifier: fills the outbox from what is committed, and empties it, receiver by receiver."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from admission.model.errors import StoreError
from admission.model.queues import LocalQueue, Subscription
from admission.notifications.bodies import WORKLOAD, workload_event
from admission.notifications.matching import HOUR, Making, scope_of
from admission.notifications.receivers import NOT_SERVED, DeliveryFailed
from admission.store.errors import StaleEpoch
from admission.store.notifications import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.notifications.receivers import Receivers
    from admission.notifications.sending import Sender
    from admission.store.notifications import LogBatch, Notification
    from admission.store.store import Store

log = logging.getLogger(__name__)

TICK: Final = 5.0
"""Seconds between two looks at what is due by its time."""
GATHER: Final = 0.2
"""Seconds after a commit, in which further ones may come."""
FIRST_RETRY: Final = 5.0
LONGEST_RETRY: Final = 600.0
"""Seconds after which a receiver is tried again after a first failure, doubled by each further one, and at most."""
KEPT: Final = 3 * 24 * HOUR
"""A notification that was not delivered for so long is dropped."""
CLEAN_EVERY: Final = 30.0
MOST: Final = 100
"""Subscriptions of a namespace that are served: each costs something with each event there."""
_AT_ONCE: Final = 50


class Notifier:
    """One for each process; `run` while it leads. `clock` gives seconds since the epoch."""

    def __init__(
        self, store: Store, receivers: Callable[[], Receivers], sender: Sender, *, clock: Callable[[], float]
    ) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Attempts to send by receiver and how they ended: delivered, failed."""
        self.dropped = 0
        """Notifications that could not be delivered for days."""
        self._store = store
        self._outbox = store.notifications
        self._receivers = receivers
        self._sender = sender
        self._clock = clock
        self._all: tuple[Subscription, ...] = ()
        self._subscriptions: tuple[Subscription, ...] = ()
        """Those that are served."""
        self._known_revision = -1
        """Up to which the Subscriptions are known."""
        self._source = ""
        self._retry: dict[str, tuple[float, float]] = {}
        """By receiver that has failed: when to try again, and the pause that this was."""
        self._busy: set[str] = set()
        self._clean_at = 0.0

    async def run(self, *, epoch: int) -> None:
        """Until cancelled, while the leadership of `epoch` lasts. Raises StaleEpoch."""
        self._known_revision = -1  # another leader may have written meanwhile
        async with asyncio.TaskGroup() as group:
            while True:
                seen = self._store.revisions.newest
                try:
                    for receiver in await self.round(epoch=epoch):
                        group.create_task(self.deliver(receiver, epoch=epoch), name=f"notify {receiver}")
                except StaleEpoch:
                    raise
                except StoreError as error:
                    log.warning("notifications wait until the database is back: %s", error)
                    await asyncio.sleep(TICK)
                except Exception:  # a defect must not end the lead: it would be there under the next leader again
                    log.exception("no notifications are made now")
                    await asyncio.sleep(TICK)
                await self._pause(seen)

    async def _pause(self, seen: int) -> None:
        """Until something is committed or due; without Subscriptions, until somebody writes through the API."""
        if not self._subscriptions:
            await self._store.revisions.wait_for_external(max(self._known_revision, 0))
            return
        try:
            async with asyncio.timeout(TICK):
                await self._store.revisions.wait_for(seen)
        except TimeoutError:
            return
        await asyncio.sleep(GATHER)

    async def round(self, *, epoch: int) -> list[str]:
        """Put into the outbox what is to be told by now; the receivers to deliver to. Raises StoreError."""
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
            making = await self._made(found)
            await self._add_waits(making)
            changed = {one.uid: one.state for one, before in making if one.state != before}
            new = [each for one, _ in making for each in one.made]
            if new or changed or found.progress != progress:
                await self._outbox.write(new, changed, progress=found.progress, epoch=epoch)
            progress, more = found.progress, found.more
        await self._clean(epoch)
        return await self._due()

    async def _refresh(self) -> None:
        """Know the Subscriptions, which change only by writes through the API."""
        newest = self._store.revisions.newest_external
        if newest > self._known_revision or self._known_revision < 0:
            found = await self._store.queues.list(Subscription.kind)
            self._all = cast("tuple[Subscription, ...]", found)
            self._subscriptions = _served(self._all)
            self._clean_at = 0.0
            self._known_revision = newest
        if self._subscriptions and not self._source:
            identity = await self._store.identity()
            self._source = f"urn:sluice:{identity.cluster or identity.database}"

    async def _made(self, found: LogBatch) -> list[tuple[Making, SubscriptionState]]:
        states, now = await self._outbox.states(), self._clock()
        making = []
        by_namespace: dict[str, list[Making]] = {}
        for subscription in self._subscriptions:
            before = states.get(subscription.metadata.uid, SubscriptionState())
            made = Making(subscription, before, now, self._source)
            making.append((made, before))
            by_namespace.setdefault(scope_of(subscription).namespace, []).append(made)
        for one in found.workload_events:
            for each in (*by_namespace.get(one.namespace, ()), *by_namespace.get("", ())):
                each.take_in(one)
        if found.versions:
            leading = await self._cluster_queues()
            for version in found.versions:
                for each, _ in making:
                    each.take_in_quota(version, leading.get(each.subscription.metadata.namespace, frozenset()))
        return making

    async def _cluster_queues(self) -> dict[str, set[str]]:
        """Those that the LocalQueues of each namespace lead to."""
        found: dict[str, set[str]] = {}
        for queue in cast("tuple[LocalQueue, ...]", await self._store.queues.list(LocalQueue.kind)):
            found.setdefault(queue.metadata.namespace, set()).add(queue.spec.cluster_queue)
        return found

    async def _add_waits(self, making: Iterable[tuple[Making, SubscriptionState]]) -> None:
        """Tell of workloads that have waited for as long as a Subscription says."""
        for each, _ in making:
            seconds = each.subscription.spec.pending_longer_than_seconds
            told_to = each.state.waits_told_to
            if seconds is None or (told_to is not None and each.now - seconds < told_to + TICK):
                continue
            waiting, number = await self._outbox.waiting(
                scope_of(each.subscription),
                queued_after=told_to,
                queued_by=each.now - seconds,
                limit=each.subscription.spec.limit_per_hour + 1,
            )
            for one in waiting:
                each.add(workload_event(self._source, "pending", one, at=each.now))
            if number > len(waiting):
                each.leave_out(f"{WORKLOAD}pending", number - len(waiting))
            each.state = replace(each.state, waits_told_to=each.now - seconds)

    async def _clean(self, epoch: int) -> None:
        """Now and then: drop what nobody is there for any more, and say which Subscriptions have no receiver."""
        now = self._clock()
        if now < self._clean_at:
            return
        self._clean_at = now + CLEAN_EVERY
        states = await self._outbox.states()
        deleted = {*await self._outbox.undelivered(), *states} - {each.metadata.uid for each in self._all}
        if dropped := await self._outbox.prune(deleted=deleted, before=now - KEPT, epoch=epoch):
            log.error("%d notifications were dropped: they could not be delivered for three days", dropped)
            self.dropped += dropped
        for each in self._all:
            uid = each.metadata.uid
            fault, known = self._fault(each), states.get(uid, SubscriptionState()).error
            if fault != known and (fault or known.startswith(NOT_SERVED)):
                await self._outbox.note_fault(uid, fault, at=now, epoch=epoch)

    def receiver_fault(self, name: str, namespace: str) -> str:
        """Why nothing is sent to a receiver for a namespace, as a sentence; empty: something is."""
        return self._receivers().fault(name, namespace)

    def _fault(self, subscription: Subscription) -> str:
        """Why nothing can be sent for a Subscription; empty: something can."""
        name, namespace = subscription.spec.receiver, subscription.metadata.namespace
        if subscription not in self._subscriptions:
            return f"{NOT_SERVED}: a namespace may have {MOST} Subscriptions, and older ones come first"
        return self.receiver_fault(name, namespace)

    async def _due(self) -> list[str]:
        """The receivers for which something waits, and which may be tried now."""
        waiting, now = await self._outbox.undelivered(), self._clock()
        served = (each for each in self._subscriptions if each.metadata.uid in waiting and not self._fault(each))
        return sorted(
            name
            for name in {each.spec.receiver for each in served}
            if name not in self._busy and self._retry.get(name, (0.0, 0.0))[0] <= now
        )

    async def deliver(self, name: str, *, epoch: int) -> None:
        """Send all that waits for a receiver, one after the other, until one fails. Raises StaleEpoch."""
        self._busy.add(name)
        try:
            while await self._deliver_some(name, epoch):
                pass
        except StaleEpoch:
            raise
        except StoreError as error:
            log.warning("what was sent to receiver %s may be sent again: %s", name, error)
            self._put_off(name, 0.0)
        except Exception:  # a defect must not end the lead: it would be there under the next leader again
            log.exception("notifications for receiver %s failed", name)
            self._put_off(name, 0.0)
        finally:
            self._busy.discard(name)

    async def _deliver_some(self, name: str, epoch: int) -> bool:
        """Whether there may be more to send."""
        own = [each for each in self._subscriptions if each.spec.receiver == name and not self._fault(each)]
        waiting = await self._outbox.to_send([each.metadata.uid for each in own], limit=_AT_ONCE)
        for one in waiting:
            try:
                await self._sender.send(self._receivers().by_name[name], one.event, at=self._clock())
            except DeliveryFailed as error:
                await self._has_failed(name, one, error, epoch)
                return False
            self.outcomes[name, "delivered"] += 1
            self._retry.pop(name, None)
            await self._outbox.delivered(one, at=self._clock(), epoch=epoch)
        return bool(waiting)

    async def _has_failed(self, name: str, one: Notification, error: DeliveryFailed, epoch: int) -> None:
        self.outcomes[name, "failed"] += 1
        if name not in self._retry:
            log.warning("a notification is not delivered, and tried again: %s", error)
        self._put_off(name, error.retry_after)
        await self._outbox.failed(one, error=str(error), at=self._clock(), epoch=epoch)

    def _put_off(self, name: str, retry_after: float) -> None:
        _, before = self._retry.get(name, (0.0, FIRST_RETRY / 2))
        pause = min(2 * before, LONGEST_RETRY)
        self._retry[name] = (self._clock() + max(pause, retry_after), pause)


def _served(found: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """The oldest `MOST` of each namespace."""
    served: list[Subscription] = []
    counts: Counter[str] = Counter()
    for each in sorted(found, key=lambda one: (str(one.metadata.creation_timestamp), one.name)):
        counts[each.metadata.namespace] += 1
        if counts[each.metadata.namespace] <= MOST:
            served.append(each)
    return tuple(served)
