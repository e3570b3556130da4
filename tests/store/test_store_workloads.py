"""What the API and the command line read: pages of workloads, and numbers for each queue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from store_examples import admission, admitted, cluster_queue, finished, local_queue, pending, requeued, workload

from admission.model.workload import Admission, PodSetAssignment
from admission.store.records import Changes, QueueStatus, State

if TYPE_CHECKING:
    from admission.store.store import Store

T = 1_750_000_000.0


async def test_pages_make_up_the_whole_list_in_order(store: Store):
    epoch = await store.lead("test")
    names = [("b", "x", "1"), ("a", "x", "2"), ("a", "x", "0"), ("a", "y", "3"), ("b", "a", "4")]
    records = tuple(pending(workload(uid, namespace=namespace, name=name)) for namespace, name, uid in names)
    await store.commit(Changes(workloads=records), epoch=epoch)
    found, after, remaining = [], None, []
    while True:
        page = await store.workloads.list(limit=2, after=after)
        found += [(r.workload.namespace, r.workload.name, r.workload.uid) for r in page.workloads]
        remaining.append(page.remaining)
        if page.after is None:
            break
        after = page.after
    assert found == sorted(names)
    assert remaining == [3, 1, 0]


async def test_a_last_page_that_is_full_is_known_to_be_the_last(store: Store):
    epoch = await store.lead("test")
    await store.commit(Changes(workloads=(pending(workload("1")), pending(workload("2")))), epoch=epoch)
    page = await store.workloads.list(limit=2)
    assert (len(page.workloads), page.after, page.remaining) == (2, None, 0)


async def test_lists_are_narrowed_by_namespace_queue_and_state(store: Store):
    epoch = await store.lead("test")
    one, two, three = workload("1"), workload("2", namespace="team-b"), workload("3", queue="other")
    await store.commit(Changes(workloads=(pending(one), pending(two), pending(three))), epoch=epoch)
    await store.commit(admitted(one, admission(), at=T), epoch=epoch)

    async def uids(**narrowed) -> list[str]:
        return [record.workload.uid for record in (await store.workloads.list(**narrowed)).workloads]

    assert await uids() == ["1", "3", "2"]
    assert await uids(namespace="team-b") == ["2"]
    assert await uids(namespace="team-a", queue="other") == ["3"]
    assert await uids(cluster_queue="cq") == ["1"]
    assert await uids(states={State.PENDING, State.FINISHED}) == ["3", "2"]
    assert (await store.workloads.list(cluster_queue="cq")).workloads[0].admission == admission()


async def test_a_name_means_the_workload_that_had_it_last(store: Store):
    epoch = await store.lead("test")
    old, new = workload("9", name="job", created=T), workload("1", name="job", created=T + 1)
    await store.commit(Changes(workloads=(pending(old), pending(new))), epoch=epoch)
    await store.commit(finished(old, at=T), epoch=epoch)
    found = await store.workloads.get("team-a", "job")
    assert found is not None
    assert found.workload == new
    assert await store.workloads.get("team-b", "job") is None


async def test_queue_numbers_count_what_waits_and_add_up_what_is_held(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(cluster_queue("cq"), author="test")
    for name in ("main", "other"):
        await store.queues.create(local_queue(name), author="test")
    gpu = Admission("cq", (PodSetAssignment("main", {"cpu": "b", "gpu": "b"}, {"cpu": 500, "gpu": 2**61}, 1),))
    waiting, lost = workload("1"), workload("2", queue="nowhere")
    running, stopping, done = workload("3"), workload("4", queue="other"), workload("5")
    await store.commit(Changes(workloads=(pending(waiting), pending(lost))), epoch=epoch)
    for one, holds in ((running, gpu), (stopping, admission(1000, flavor="b")), (done, admission(7))):
        await store.commit(admitted(one, holds, at=T), epoch=epoch)
    evicting = replace(pending(stopping), state=State.EVICTING, cluster_queue="cq")
    await store.commit(Changes(workloads=(evicting,)), epoch=epoch)
    await store.commit(finished(done, at=T + 1), epoch=epoch)

    usage = {("b", "cpu"): 1500, ("b", "gpu"): 2**61}
    assert await store.workloads.cluster_queue_status() == {
        "cq": QueueStatus(pending=1, reserving=2, admitted=1, usage=usage)
    }
    assert await store.workloads.local_queue_status() == {
        ("team-a", "main"): QueueStatus(
            pending=1, reserving=1, admitted=1, usage={("b", "cpu"): 500, ("b", "gpu"): 2**61}
        ),
        ("team-a", "nowhere"): QueueStatus(pending=1),
        ("team-a", "other"): QueueStatus(reserving=1, usage={("b", "cpu"): 1000}),
    }
    await store.commit(requeued(stopping, at=T + 2), epoch=epoch)
    assert (await store.workloads.cluster_queue_status())["cq"] == QueueStatus(
        pending=2, reserving=1, admitted=1, usage={("b", "cpu"): 500, ("b", "gpu"): 2**61}
    )
