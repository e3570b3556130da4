"""Many Subscriptions in one namespace: those beyond the limit are not served, and none is compared with all others."""

from __future__ import annotations

import pytest
from receiving import inbox, notifying, process_and_deliver, receiver, subscription

from admission.model.queues import Subscription
from admission.notifications.notifier import MAX_SUBSCRIPTIONS
from admission.store.audit_log import Author


@pytest.mark.costly
async def test_newest_subscription_beyond_the_limit_is_not_served(store, clock, tmp_path, monkeypatch):
    comparisons = 0
    equal = Subscription.__eq__

    def counted(self, other):
        nonlocal comparisons
        comparisons += 1
        return equal(self, other)

    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        for number in range(MAX_SUBSCRIPTIONS + 1):
            clock.advance(1)
            await store.queues.create(subscription(f"s{number}", events=["Finished"]), author=Author("ada"))
        monkeypatch.setattr(Subscription, "__eq__", counted)
        await process_and_deliver(notifier, epoch)
    errors = {uid: state.error for uid, state in (await store.notifications.states()).items() if state.error}
    newest = await store.queues.get(Subscription.kind, f"s{MAX_SUBSCRIPTIONS}", namespace="team-a")
    assert list(errors) == [newest.metadata.uid]
    assert f"a namespace may have {MAX_SUBSCRIPTIONS} Subscriptions" in errors[newest.metadata.uid]
    assert comparisons < MAX_SUBSCRIPTIONS
