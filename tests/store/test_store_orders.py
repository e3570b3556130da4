"""Orders of admins and reports of admission checks: merging, positions, audit, validation and revisions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from store_examples import (
    admission,
    admitted,
    cluster_queue,
    finished,
    flavor,
    local_queue,
    pending,
    requeued,
    workload,
)

from admission.model.checks import CheckReport
from admission.model.errors import InvalidObject
from admission.store.audit_log import Author
from admission.store.errors import Conflict, NotFound
from admission.store.records import Changes, CheckRecord
from admission.store.workloads.places import QueuePlace

ADA = Author("ada", reason="because")


@pytest.fixture
async def epoch(store):
    for obj in (flavor(), cluster_queue(), local_queue(), local_queue("other")):
        await store.queues.create(obj, author=ADA)
    return await store.lead("test")


@pytest.fixture
async def waiting(store, epoch):
    """Three pending workloads, the oldest first."""
    records = [pending(workload(uid, created=1_750_000_000.0 + age)) for age, uid in enumerate("abc")]
    await store.commit(Changes(workloads=tuple(records)), epoch=epoch)
    return records


async def order_of(store, uid):
    (order,) = (await store.orders.of([uid])).orders
    return order


async def test_fields_of_orders_are_merged_and_reset_separately(store, waiting):
    before = (await store.load()).revision
    await store.orders.give("a", author=ADA, priority=7, held=True)
    given = await store.orders.give("a", author=Author("bob"), local_queue="other", priority=None)

    assert (given.local_queue, given.priority, given.held, given.author) == ("other", None, True, "bob")
    assert given == await order_of(store, "a")
    assert (await store.orders.since(before)).orders == (given,)
    assert (await store.orders.since(given.revision)).orders == ()
    assert (await store.load()).orders == (given,)
    assert (await store.workloads.get("team-a", "job-a")).revision == given.revision


async def test_repeated_or_dry_run_order_writes_nothing(store, waiting):
    first = await store.orders.give("a", author=ADA, held=True)
    assert await store.orders.give("a", author=Author("bob"), held=True) == first
    assert await store.orders.give("b", author=ADA, held=False, dry_run=True) == replace(first, uid="b", held=False,
        author="", reason="", revision=0)  # fmt: skip
    assert (await store.orders.of(["b"])).orders == ()


async def test_each_order_is_audited_with_the_previous_and_the_new_spec(store, waiting):
    await store.orders.give("a", author=ADA, priority=7)
    await store.orders.give("a", author=ADA, priority=8, place=QueuePlace(before="c"))
    record, _ = (await store.audit.list({"kind": "Workload"})).records
    assert (record.user, record.reason, record.name) == ("ada", "because", "job-a")
    assert record.before == {"spec": {"priority": 7, "hold": False}}
    assert record.after["spec"]["order"]["priority"] == 0


@pytest.mark.costly
async def test_fifty_concurrent_orders_of_the_same_workload_are_merged(store, waiting):
    async def give(number):
        for _ in range(3):
            await store.orders.give("a", author=Author(f"admin-{number}"), **{"priority": number} if number % 2 else
                {"held": True})  # fmt: skip

    await asyncio.gather(*map(give, range(50)))
    order = await order_of(store, "a")
    assert order.held
    assert order.priority % 2 == 1


async def test_invalid_order_is_rejected_with_a_message(store, epoch, waiting):
    with pytest.raises(NotFound, match="no workload with the uid nobody"):
        await store.orders.give("nobody", author=ADA, held=True)
    with pytest.raises(InvalidObject, match=r'spec.queueName: LocalQueue "team-a/nowhere" does not exist'):
        await store.orders.give("a", author=ADA, local_queue="nowhere")
    with pytest.raises(InvalidObject, match=r"spec.order.before: the workload .* does not wait in the same"):
        await store.orders.give("a", author=ADA, place=QueuePlace(before="nobody"))
    with pytest.raises(Conflict, match="resourceVersion"):
        await store.orders.give("a", author=ADA, resource_version="1", held=True)
    await store.commit(finished(waiting[0].workload, at=1_750_000_100.0), epoch=epoch)
    with pytest.raises(Conflict, match="finished"):
        await store.orders.give("a", author=ADA, held=True)


async def _queue_order(store):
    """Return the uids, each a letter, in queue order."""
    state = await store.load()
    orders = {order.uid: order for order in state.orders}

    def rank(record):
        order = orders.get(record.workload.uid)
        placed = order is not None and order.rank_at is not None
        priority = order.rank_priority if placed else record.workload.priority
        return -priority, order.rank_at if placed else record.workload.created

    return "".join(record.workload.uid for record in sorted(state.workloads, key=rank))


@pytest.mark.parametrize(
    ("moves", "standing"),
    [
        ([("c", "")], "cab"),
        ([("c", ""), ("b", "")], "bca"),
        ([("c", "b")], "acb"),
        ([("c", "b"), ("a", "b")], "cab"),
        ([("c", "a"), ("b", "a")], "cba"),
        ([("a", "")], "abc"),
        ([("c", ""), ("c", None)], "abc"),
    ],
)
async def test_position_orders_determine_the_queue_order(store, waiting, moves, standing):
    for uid, place in moves:
        await store.orders.give(uid, author=ADA, place=None if place is None else QueuePlace(place))
    assert await _queue_order(store) == standing


async def test_admitted_workload_gets_a_position_only_with_a_change_of_local_queue(store, epoch, waiting):
    runs = workload("runs")
    await store.commit(admitted(runs, admission(), at=1_750_000_100.0), epoch=epoch)
    for place in (QueuePlace(), QueuePlace(before="a")):
        with pytest.raises(InvalidObject, match="it is admitted and does not wait: only what waits has a place"):
            await store.orders.give("runs", author=ADA, place=place)
    with pytest.raises(InvalidObject, match="is the workload itself; name another one"):
        await store.orders.give("a", author=ADA, place=QueuePlace(before="a"))
    moved = await store.orders.give("runs", author=ADA, local_queue="other", place=QueuePlace())
    assert (moved.local_queue, moved.rank_at is None) == ("other", False)


async def test_first_position_is_before_workloads_of_higher_priority(store, epoch, waiting):
    await store.commit(Changes(workloads=(pending(workload("high", priority=9)),)), epoch=epoch)
    await store.orders.give("c", author=ADA, place=QueuePlace())
    assert (await order_of(store, "c")).rank_priority == 9
    assert (await _queue_order(store))[0] == "c"


async def test_position_is_relative_to_workloads_of_the_same_cluster_queue(store, epoch, waiting):
    await store.queues.create(cluster_queue("elsewhere"), author=ADA)
    await store.queues.create(local_queue("far", leads_to="elsewhere"), author=ADA)
    await store.commit(Changes(workloads=(pending(workload("far", priority=9, queue="far")),)), epoch=epoch)
    await store.orders.give("b", author=ADA, place=QueuePlace())
    assert (await order_of(store, "b")).rank_priority == 0
    await store.orders.give("b", author=ADA, local_queue="far", place=QueuePlace())
    assert (await order_of(store, "b")).rank_priority == 9


async def test_deactivation_by_sluice_overrides_an_older_activation_order(store, epoch, waiting):
    await store.orders.give("a", author=ADA, active=True, priority=3)
    await store.commit(Changes(deactivated=("a", "b")), epoch=epoch)
    order = await order_of(store, "a")
    assert (order.active, order.priority) == (None, 3)
    assert (await store.orders.give("a", author=ADA, active=True)).active is True


# --- admission checks


@pytest.fixture
async def checked(store, epoch, clock):
    """A workload that holds quota and has two pending admission checks."""
    one = workload("x")
    asked = [CheckRecord("x", name, "Pending", at=clock()) for name in ("budget", "nodes")]
    changes = replace(admitted(one, admission(), at=clock()), checks=tuple(asked))
    await store.commit(changes, epoch=epoch)
    return one


def check_report(name, state, **fields):
    return CheckReport.model_validate({"name": name, "state": state, **fields})


async def test_check_report_stores_state_time_and_pod_set_updates(store, checked, clock):
    clock.advance(60)
    update = {"name": "main", "nodeSelector": {"pool": "new"}, "tolerations": [{"operator": "Exists"}]}
    said = await store.orders.report("x", [check_report("nodes", "Ready", podSetUpdates=[update])], author=ADA)

    budget, nodes = said
    assert (budget.state, budget.at) == ("Pending", clock() - 60)
    assert (nodes.state, nodes.at) == ("Ready", clock())
    assert nodes.pod_set_updates[0].node_selector == {"pool": "new"}
    assert (await store.load()).checks == said
    assert (await store.orders.since(nodes.revision - 1)).checks == (nodes,)

    clock.advance(60)
    again = await store.orders.report("x", [check_report("nodes", "Ready", message="still", podSetUpdates=[update])],
        author=ADA)  # fmt: skip
    assert again[1].at == nodes.at


async def test_check_report_requires_a_requested_check_and_reserved_quota(store, epoch, waiting, checked):
    with pytest.raises(InvalidObject, match='"weather" is not an admission check of this workload; these are: budget'):
        await store.orders.report("x", [check_report("weather", "Ready")], author=ADA)
    with pytest.raises(Conflict, match="holds no quota now"):
        await store.orders.report("a", [check_report("nodes", "Ready")], author=ADA)


async def test_check_report_about_a_former_admission_is_refused(store, epoch, checked, clock):
    ready, began = [check_report("nodes", "Ready")], clock() + 0.123_456_7
    await store.commit(requeued(workload("x"), at=clock()), epoch=epoch)
    await store.commit(admitted(workload("x"), admission(), at=began), epoch=epoch)
    with pytest.raises(Conflict, match="admitted again"):
        await store.orders.report("x", ready, author=ADA, admitted_at=began - 1)
    assert [check.state for check in (await store.orders.of(["x"])).checks] == ["Pending", "Pending"]
    assert (await store.orders.report("x", ready, author=ADA, admitted_at=began))[1].state == "Ready"


async def test_check_requested_again_by_the_leader_replaces_its_report(store, epoch, checked, clock):
    await store.orders.report("x", [check_report("nodes", "Retry", requeueAfterSeconds=30)], author=ADA)
    anew = CheckRecord("x", "nodes", "Pending", at=clock(), message="again", retries=1)
    await store.commit(Changes(checks=(anew,), dropped_checks=(("x", "budget"),)), epoch=epoch)
    (known,) = (await store.orders.of(["x"])).checks
    assert known == replace(anew, revision=known.revision)


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        ({"name": "nodes", "state": "Done"}, "state"),
        ({"name": "nodes", "state": "Retry", "requeueAfterSeconds": -1}, "requeueAfterSeconds"),
        ({"name": "nodes", "state": "Ready", "podSetUpdates": [{"name": "main"}] * 2}, "named twice"),
    ],
)
def test_invalid_check_report_is_rejected(report, complaint):
    with pytest.raises(ValueError, match=complaint):
        CheckReport.model_validate(report)
