"""Filters of Subscriptions, by queue and user."""

from __future__ import annotations

from dataclasses import replace

from receiving import inbox, notifying, process_and_deliver, receiver, subscription
from test_notifications import admits, finishes, subscribe, waits

from tests.store.store_examples import cluster_queue, flavor, local_queue, workload


async def test_subscriptions_filter_by_queue_user_and_cluster(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(
            store,
            subscription("bob", events=["Admitted"], user="bob", receiver="pager"),
            subscription("fast", events=["Admitted"], localQueue="fast"),
            subscription("cq", "ops", events=["Admitted"], clusterQueue="cq", scope="Cluster"),
            subscription("b", "ops", events=["Admitted"], user="eva", scope="Cluster", clusters=["b"]),
        )
        await process_and_deliver(notifier, epoch)
        theirs = replace(workload("3", user="eva"), cluster="b")
        own = workload("0"), workload("1", user="bob"), workload("2", queue="fast", namespace="team-b")
        for of in (theirs, *own):
            (replace(workload("3", user="eva"), cluster="b"),)
            await store.commit(admits(of, clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        assert sorted(subject[-1] for _, subject in box.types_and_subjects()) == ["0", "1", "1", "2", "3"]


async def test_end_of_a_workload_that_was_never_admitted_is_reported_in_the_queue_in_which_it_waited(
    store, clock, tmp_path
):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(
            store,
            flavor(),
            *map(cluster_queue, ("cq", "theirs")),
            local_queue(),
            local_queue("theirs", leads_to="theirs"),
            subscription("cq", "ops", events=["Finished"], clusterQueue="cq", scope="Cluster"),
        )
        await process_and_deliver(notifier, epoch)
        for of in (workload("0"), workload("1", queue="theirs"), workload("2", queue="nowhere")):
            await store.commit(waits(of, clock()), epoch=epoch)
            await store.commit(finishes(of, clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        assert [
            (subject[-1], one.event["data"]["clusterQueue"])
            for (_, subject), one in zip(box.types_and_subjects(), box.received, strict=True)
        ] == [("0", "cq")]
