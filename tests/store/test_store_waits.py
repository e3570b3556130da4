"""Waits of workloads, and the reasons for which those waited that missed an objective."""

from __future__ import annotations

from admission.model.manifests import parse_manifest
from admission.model.queues import ClusterQueue, Objective
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.records import Changes, Closed, Opened, State, Transition, WorkloadRecord
from admission.store.store import Store
from admission.store.workloads.waits import ObjectiveOutcome, Obstacle, Wish, objectives_of, wish_of
from tests.conftest import Clock
from tests.queue_objects import create_objects, local_queue, manifest

NOW = 1_750_000_000.0
HOUR = 3600.0
HOLDS = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
WISHED = Objective(percentile=50, wait="1h")
OBJECTIVE = {("cq", 0): WISHED, ("cq", 1): WISHED}


async def submit(
    store: Store, epoch: int, name: str, created: float, *reasons: tuple[float, str],
    started: float | None = None, left: float | None = None, queue: str = "main",
) -> None:  # fmt: skip
    """Write a workload that was created `created` seconds after NOW, and what it waited for."""
    workload = Workload(name, "a", name, queue, 0, NOW + created, (PodSet("main", 1, {"cpu": 1000}),))
    state = State.PENDING if started is None and left is None else State.FINISHED
    finished = None if state is State.PENDING else NOW + (9 * HOUR if left is None else left)
    record = WorkloadRecord(workload, state, NOW + created, finished_at=finished)
    history = tuple(Transition(name, NOW + at, State.PENDING, reason) for at, reason in reasons)
    opened = () if started is None else (Opened(workload, HOLDS, NOW + started),)
    await store.commit(Changes(workloads=(record,), opened=opened, transitions=history), epoch=epoch)
    if started is not None:
        await store.commit(Changes(closed=(Closed(name, NOW + 9 * HOUR, "Succeeded"),)), epoch=epoch)


async def led(store: Store) -> int:
    await create_objects(store, local_queue("main", "a"))
    return await store.lead("test")


async def test_objective_is_judged_by_what_started_and_by_what_waits_for_too_long(store: Store, clock: Clock):
    epoch = await led(store)
    await submit(store, epoch, "prompt", 0, started=60)
    slow = (30 * 60, "WaitingForQuota"), (2 * HOUR, "BudgetExhausted"), (2.5 * HOUR, "WaitingForQuota")
    await submit(store, epoch, "slow", 0, *slow, started=3 * HOUR)
    await submit(store, epoch, "stuck", 10, (10, "NoMatchingFlavor"))
    await submit(store, epoch, "gave-up", 20, (20, "WaitingForQuota"), left=50 * 60)  # before it could miss
    await submit(store, epoch, "young", 9.5 * HOUR, (9.5 * HOUR, "WaitingForQuota"))
    await submit(store, epoch, "elsewhere", 0, (0, "WaitingForQuota"), queue="other")
    await submit(store, epoch, "before", -HOUR, (-HOUR, "WaitingForQuota"), started=2 * HOUR)
    clock.now = NOW + 10 * HOUR
    found = await store.outcomes(OBJECTIVE, (NOW, NOW + 9 * HOUR, NOW + 10 * HOUR))
    assert found.found == {
        ("cq", 0): ObjectiveOutcome(
            workloads=3,
            met=1,
            waiting=1,
            wait=3 * HOUR,
            obstacles=(
                Obstacle("NoMatchingFlavor", 10 * HOUR - 10, 1),
                Obstacle("WaitingForQuota", 2 * HOUR, 1),
                Obstacle("BudgetExhausted", HOUR / 2, 1),
                Obstacle("PendingEvaluation", HOUR / 2, 1),
            ),
        )
    }
    assert found.found["cq", 0].share == 1 / 3


async def test_workload_counts_where_it_got_quota_and_does_not_wait_when_it_has_left(store: Store, clock: Clock):
    epoch = await led(store)
    moved = {"apiVersion": "sluice.dev/v1", "kind": "LocalQueue", "metadata": {"name": "moved", "namespace": "a"}}
    elsewhere = parse_manifest({**moved, "spec": {"clusterQueue": "other"}})
    await store.queues.create(elsewhere, author=Author("ada"))  # to which its LocalQueue leads since
    await submit(store, epoch, "started", 0, started=60, queue="moved")
    await submit(store, epoch, "left", 0, (0, "WaitingForQuota"), left=2 * HOUR)
    await submit(store, epoch, "clock-set-back", 60, started=0)
    clock.now = NOW + 10 * HOUR
    found = await store.outcomes({("cq", 0): Objective(percentile=10, wait="1h")}, (NOW, NOW + 10 * HOUR))
    (only,) = found.found.values()
    assert (only.workloads, only.met, only.waiting, only.wait) == (3, 2, 0, 0)


async def test_reasons_after_the_first_admission_and_clocks_that_were_set_back_count_nothing(store, clock):
    epoch = await led(store)
    steps = (60, "WaitingForQuota"), (30, "WaitingForPreemptedWorkloads"), (5 * HOUR, "WaitingForQuota")
    await submit(store, epoch, "again", 0, *steps, started=2 * HOUR)
    clock.now = NOW + 10 * HOUR
    (only,) = (await store.outcomes(OBJECTIVE, (NOW, NOW + 10 * HOUR))).found.values()
    assert [(each.reason, each.seconds) for each in only.obstacles] == [
        ("WaitingForPreemptedWorkloads", 2 * HOUR - 60),
        ("PendingEvaluation", 60),
    ]


def cluster_queue(name: str, **spec: object) -> ClusterQueue:
    found = parse_manifest(manifest("ClusterQueue", name, spec=spec))
    assert isinstance(found, ClusterQueue)
    return found


async def test_objectives_are_known_from_all_that_was_ever_written(store: Store, clock: Clock):
    author = Author("ada")
    await store.queues.create(cluster_queue("never"), author=author)
    for at, hours in enumerate((0, 1, 1, 2)):
        clock.now = NOW + at
        spec = {"objective": {"wait": f"{hours}h"}} if hours else {}
        await (store.queues.replace if at else store.queues.create)(cluster_queue("cq", **spec), author=author)
    clock.now = NOW - 1  # set back
    await store.queues.delete(ClusterQueue.kind, "cq", author=author)
    one, two = (Objective(wait=f"{hours}h") for hours in (1, 2))
    found = await store.wishes()
    assert found == {"cq": [Wish(NOW + 1, one), Wish(NOW + 3, two), Wish(NOW + 3, None)]}
    assert [wish_of(found["cq"], NOW + end) for end in (0, 2, 3, 4)] == [(NOW + 1, one)] * 3 + [None]


def test_only_queues_with_an_objective_have_one():
    queues = cluster_queue("a"), cluster_queue("b", objective={"wait": "2h"})
    assert objectives_of(queues) == {"b": Objective(percentile=90, wait="2h")}
