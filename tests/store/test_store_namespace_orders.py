"""Orders limited to one namespace: its workloads exchange positions, and other namespaces are not delayed."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from store_examples import admission, admitted, cluster_queue, flavor, local_queue, pending, workload

from admission.model.errors import InvalidObject
from admission.store.audit_log import Author
from admission.store.records import Changes, State
from admission.store.workloads.places import QueuePlace

LEA = Author("lea", reason="deadline")
NAMESPACES = {"a": "team-a", "x": "team-x"}


@pytest.fixture
async def waiting(store):
    """Pending workloads of two namespaces, in queue order: a1 x1 a2 x2 a3 a4. Return the epoch."""
    objects = (flavor(), cluster_queue(), local_queue(), local_queue(namespace="team-x"), cluster_queue("own"))
    for obj in (*objects, local_queue("own", leads_to="own")):
        await store.queues.create(obj, author=LEA)
    epoch = await store.lead("test")
    line = ("a1", "x1", "a2", "x2", "a3", "a4")
    records = [
        pending(workload(uid, namespace=NAMESPACES[uid[0]], created=1_750_000_000.0 + age))
        for age, uid in enumerate(line)
    ]
    await store.commit(Changes(workloads=tuple(records)), epoch=epoch)
    return epoch


async def queue_order(store) -> str:
    """Return the uids of all unfinished workloads in queue order."""
    state = await store.load()
    orders = {order.uid: order for order in state.orders}

    def rank(record):
        one, order = record.workload, orders.get(record.workload.uid)
        given = (order.rank_priority, order.priority, order.rank_at) if order else (None, None, None)
        priority = next(value for value in (*given[:2], one.priority) if value is not None)
        return -priority, one.created if given[2] is None else given[2], one.uid

    return " ".join(record.workload.uid for record in sorted(state.workloads, key=rank))


async def order(store, uid, **ordered):
    return await store.orders.give(uid, author=LEA, within_namespace=True, **ordered)


@pytest.mark.parametrize(
    ("uid", "place", "line"),
    [
        ("a4", QueuePlace(), "a4 x1 a1 x2 a2 a3"),
        ("a4", QueuePlace("a2"), "a1 x1 a4 x2 a2 a3"),
        ("a4", QueuePlace("a3"), "a1 x1 a2 x2 a4 a3"),
        ("a1", QueuePlace("a4"), "a2 x1 a3 x2 a1 a4"),
        ("a1", QueuePlace(), "a1 x1 a2 x2 a3 a4"),
    ],
)
async def test_position_order_exchanges_positions_within_the_namespace(store, waiting, uid, place, line):
    await order(store, uid, place=place)
    assert await queue_order(store) == line


@pytest.mark.long
async def test_orders_within_a_namespace_never_delay_other_namespaces(store, waiting):
    chance = random.Random(7)
    mine = ["a1", "a2", "a3", "a4"]
    for _ in range(60):
        uid = chance.choice(mine)
        what = chance.choice(
            [
                {"place": QueuePlace(chance.choice(["", *(one for one in mine if one != uid)]))},
                {"place": None},
                {"priority": chance.choice([None, -5, 0, 5])},
            ]
        )
        with suppress(InvalidObject):
            await order(store, uid, **what)
        line = (await queue_order(store)).split()
        assert [one for one in line if one[0] == "x"] == ["x1", "x2"]
        assert sum(one[0] == "a" for one in line[: line.index("x1")]) <= 1
        assert sum(one[0] == "a" for one in line[: line.index("x2")]) <= 2


async def test_exchange_is_stored_for_all_moved_workloads_and_undone_in_reverse(store, waiting):
    await order(store, "a4", place=QueuePlace())
    assert {entry.uid for entry in (await store.orders.of(["a1", "a2", "a3", "a4", "x1"])).orders} == {
        "a1", "a2", "a3", "a4",
    }  # fmt: skip
    # a1 is behind x1 now: its original position, before x1, belongs to a4.
    with pytest.raises(InvalidObject, match="would come before workloads of other namespaces"):
        await order(store, "a1", place=None)
    await order(store, "a4", place=None)
    assert await queue_order(store) == "x1 a1 x2 a2 a3 a4"


async def test_position_cannot_be_taken_along_to_another_cluster_queue(store, waiting):
    late = pending(workload("a9", queue="own", created=1_750_000_100.0))
    first = pending(workload("a8", queue="own", created=1_749_000_000.0))
    await store.commit(Changes(workloads=(late, first)), epoch=waiting)
    await order(store, "a9", place=QueuePlace())  # takes the position of a8, the oldest workload
    with pytest.raises(InvalidObject, match="would come before workloads of other namespaces"):
        await order(store, "a9", local_queue="main")
    await order(store, "a9", local_queue="main", place=None)
    assert (await queue_order(store)).startswith("a1 x1 a2 x2 a3 a4 ")


async def test_position_order_requires_two_pending_workloads_of_the_same_namespace(store, waiting):
    runs, stops = workload("a7"), workload("a8")
    await store.commit(admitted(runs, admission(), at=1_750_000_200.0), epoch=waiting)
    held = admitted(stops, admission(), at=1_750_000_200.0)
    await store.commit(held, epoch=waiting)
    stopping = replace(held.workloads[0], state=State.EVICTING)
    await store.commit(Changes(workloads=(stopping,)), epoch=waiting)
    rest = "is not among the first 1000 workloads of namespace team-a that wait in the ClusterQueue"
    for uid, place, says in (
        ("a7", QueuePlace(), 'Workload "job-a7": spec.order: it is admitted and does not wait'),
        ("a8", QueuePlace(), f'Workload "job-a8": spec.order: it {rest}'),
        ("a1", QueuePlace("a7", "team-a/job-a7"), f'spec.order: workload "team-a/job-a7" {rest}'),
        ("a1", QueuePlace("x1", "team-x/job-x1"), f'spec.order: workload "team-x/job-x1" {rest}'),
        ("a1", QueuePlace("a1"), "spec.order.before: is the workload itself; name another one"),
    ):
        with pytest.raises(InvalidObject, match=says):
            await order(store, uid, place=place)
    assert not (await store.orders.of(["a1", "a7", "a8"])).orders
