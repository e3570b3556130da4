"""A receiver that is removed from the configuration while notifications are delivered to it."""

from __future__ import annotations

import asyncio

from receiving import LOOPBACK, inbox, process_and_deliver, receiver, subscription
from test_notifications import finishes

from admission.notifications.notifier import Notifier
from admission.notifications.receivers import Receivers
from admission.notifications.sending import NotificationSender
from admission.store.audit_log import Author
from tests.store.store_examples import admission, admitted, workload


async def test_delivery_ends_quietly_when_its_receiver_is_removed_meanwhile(store, clock, tmp_path, caplog):
    epoch = await store.lead("test")
    async with inbox() as box:
        configured = [Receivers({"pager": receiver("pager", tmp_path, box)}, (LOOPBACK,))]
        async with NotificationSender.open(lambda: configured[0]) as sender:
            notifier = Notifier(store, lambda: configured[0], sender, clock=clock)
            await store.queues.create(subscription("all", events=["Finished"]), author=Author("ada"))
            await process_and_deliver(notifier, epoch)
            for uid in ("a", "b"):
                await store.commit(admitted(workload(uid), admission(), at=clock()), epoch=epoch)
                await store.commit(finishes(workload(uid), clock()), epoch=epoch)
            box.answer.clear()
            delivering = asyncio.create_task(process_and_deliver(notifier, epoch))
            await box.arrived.wait()
            configured[0] = Receivers({})
            box.answer.set()
            await delivering
        assert len(box.received) == 1
        assert await store.notifications.undelivered() != {}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
