"""Commits of the leader: stored fields, atomicity, shared transactions, and rejection of stale epochs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from store_examples import (
    ELABORATE_POD_SETS,
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

from admission.model.workload import Admission, PodSetAssignment
from admission.store.audit_log import Author
from admission.store.errors import ContradictsLedger, StaleEpoch
from admission.store.records import Changes, Closed, Opened, State, Transition
from admission.store.store import Store

T = 1_750_000_000.25


async def loaded(store: Store):
    """Return the loaded records by uid, with revision 0 instead of the one assigned by the database."""
    return {record.workload.uid: replace(record, revision=0) for record in (await store.load()).workloads}


async def test_all_fields_of_a_workload_survive_commit_and_load(store: Store):
    epoch = await store.lead("test")
    one = workload(
        "1", kind="RayJob", priority=-(2**31), priority_class="high", user="system:serviceaccount:a:b",
        pod_sets=ELABORATE_POD_SETS, created=T, queued_at=T + 1,
    )  # fmt: skip
    holds = Admission(
        "cq",
        (
            PodSetAssignment("driver", {"cpu": "a", "nvidia.com/gpu": "b"}, {"cpu": 500, "nvidia.com/gpu": 2**62}, 1),
            PodSetAssignment("workers", {}, {}, 60),
        ),
    )
    record = replace(
        pending(one), state=State.EVICTING, cluster_queue="cq", reason="Preempted", message="for “b”", queued_at=T + 2,
        evict_reason="Preempted", admission=holds, original={"spec": {"nodeSelector": None}, "n": [1, 1.5, "ü"]},
        admitted_at=T + 3, finished_at=T + 4, outcome="?",
    )  # fmt: skip
    revision = await store.commit(Changes(workloads=(record,), opened=(Opened(one, holds, T),)), epoch=epoch)
    state = await store.load()
    assert state.workloads == (replace(record, revision=revision),)
    assert state.revision == revision


async def test_times_survive_commit_and_load_to_the_microsecond(store: Store):
    epoch = await store.lead("test")
    at = [1_750_000_000 + 0.000001 * number for number in (1, 123_457, 333_333, 999_999)]
    one = workload("1", created=at[0], queued_at=at[1])
    record = replace(
        pending(one), queued_at=at[2], admitted_at=at[3], finished_at=at[0], cleared_at=at[1], ready_at=at[2],
        unready_at=at[3], not_before=at[0],
    )  # fmt: skip
    revision = await store.commit(Changes(workloads=(record,)), epoch=epoch)
    expected = replace(record, revision=revision)
    assert (await store.load()).workloads == (expected,)
    assert await store.workloads.get("team-a", "job-1") == expected


async def test_load_returns_time_of_the_last_pending_or_evicting_transition(store: Store):
    epoch = await store.lead("test")
    waits, runs = workload("1"), workload("2")
    story = [
        Transition("1", T, State.PENDING, "Queued"),
        Transition("2", T, State.ADMITTED, "Admitted"),
        Transition("1", T + 0.000001, State.PENDING, "ExceedsMaxQuota"),
    ]
    await store.commit(Changes(workloads=(pending(waits), pending(runs)), transitions=tuple(story)), epoch=epoch)
    assert (await store.load()).last_transition_at == {"1": T + 0.000001}
    stopped = Transition("2", T + 1, State.EVICTING, "Preempted")
    await store.commit(Changes(transitions=(stopped,)), epoch=epoch)
    assert (await store.load()).last_transition_at == {"1": T + 0.000001, "2": T + 1}


async def test_later_record_replaces_the_earlier_record_of_a_workload(store: Store):
    epoch = await store.lead("test")
    one = workload("1")
    await store.commit(Changes(workloads=(pending(one, reason="WaitingForQuota", original={"a": 1}),)), epoch=epoch)
    edited = replace(one, pod_sets=ELABORATE_POD_SETS, queue="other", priority=7)
    await store.commit(Changes(workloads=(pending(edited),)), epoch=epoch)
    assert await loaded(store) == {"1": pending(edited)}


async def test_last_record_of_a_workload_in_the_same_changes_wins(store: Store):
    epoch = await store.lead("test")
    one, other = workload("1"), workload("2")
    both = (pending(one, reason="first"), pending(other), pending(one, reason="second"))
    await store.commit(Changes(workloads=both), epoch=epoch)
    assert await loaded(store) == {"1": pending(one, reason="second"), "2": pending(other)}


async def test_special_characters_survive_commit_and_load(store: Store):
    epoch = await store.lead("test")
    odd = "'; -- \"\\\\n{}[],: %s :rows $1 \t\r\n\x01\x7f\u2028 ü 🚀 null"
    one = workload("1", user=odd, priority_class=odd)
    record = pending(one, message=odd, original={odd: odd, "\0": ["\0", 2**53 + 1, -0.1, None, {}]})
    story = (Transition("1", T, State.PENDING, odd, odd), Transition("1", T, State.PENDING, "", ""))
    await store.commit(Changes(workloads=(record,), transitions=story), epoch=epoch)
    assert await loaded(store) == {"1": record}
    assert await store.workloads.history("1") == story


async def test_load_orders_queue_objects_and_workloads_and_omits_finished_workloads(store: Store):
    epoch = await store.lead("test")
    for obj in (flavor(), cluster_queue(), local_queue()):
        await store.queues.create(obj, author=Author("test"))
    young, old, done = workload("1", created=T + 5), workload("2", created=T), workload("3", created=T)
    await store.commit(Changes(workloads=(pending(young), pending(old), pending(done))), epoch=epoch)
    await store.commit(finished(done, at=T), epoch=epoch)
    state = await store.load()
    assert [obj.kind for obj in state.queue_objects] == ["ResourceFlavor", "ClusterQueue", "LocalQueue"]
    assert [record.workload.uid for record in state.workloads] == ["2", "1"]
    assert state.workloads[0].workload.pod_sets is state.workloads[1].workload.pod_sets


async def test_second_admission_is_rejected_and_nothing_of_its_changes_is_written(store: Store):
    epoch = await store.lead("test")
    one, other = workload("1"), workload("2")
    await store.commit(admitted(one, admission(), at=T), epoch=epoch)
    before = await loaded(store)
    again = Changes(
        workloads=(pending(other),), opened=(Opened(one, admission(1, cluster_queue="elsewhere"), T + 1),),
        closed=(Closed("2", T, "x"),),
    )  # fmt: skip
    with pytest.raises(ContradictsLedger, match="contradict"):
        await store.commit(again, epoch=epoch)
    assert await loaded(store) == before


async def test_admission_without_requests_is_recorded_like_any_other(store: Store):
    epoch = await store.lead("test")
    one, nothing = workload("1"), Admission("cq", (PodSetAssignment("main", {}, {}, 3),))
    await store.commit(admitted(one, nothing, at=T), epoch=epoch)
    assert (await loaded(store))["1"].admission == nothing
    with pytest.raises(ContradictsLedger):
        await store.commit(admitted(one, nothing, at=T), epoch=epoch)
    await store.commit(requeued(one, at=T), epoch=epoch)
    assert (await loaded(store))["1"].admission is None


async def test_single_commit_may_close_an_admission_and_open_the_next(store: Store):
    epoch = await store.lead("test")
    one = workload("1")
    await store.commit(admitted(one, admission(1), at=T), epoch=epoch)
    both = replace(admitted(one, admission(2), at=T + 9), closed=(Closed("1", T + 9, "Preempted"),))
    await store.commit(both, epoch=epoch)
    assert (await loaded(store))["1"].admission == admission(2)


async def test_a_deposed_leader_commits_nothing(store: Store):
    old = await store.lead("first")
    await store.commit(Changes(workloads=(pending(workload("1")),)), epoch=old)
    new = await store.lead("second")
    assert new > old
    with pytest.raises(StaleEpoch, match="no longer the leader"):
        await store.commit(Changes(workloads=(pending(workload("2")),)), epoch=old)
    await store.commit(Changes(workloads=(pending(workload("3")),)), epoch=new)
    assert set(await loaded(store)) == {"1", "3"}


async def test_revisions_increase_and_no_two_records_share_one(store: Store):
    epoch = await store.lead("test")
    first = await store.commit(Changes(workloads=(pending(workload("1")), pending(workload("2")))), epoch=epoch)
    second = await store.commit(Changes(workloads=(pending(workload("2")),)), epoch=epoch)
    assert second > first
    assert {r.workload.uid: r.revision for r in (await store.load()).workloads} == {"1": first - 1, "2": second}


async def test_concurrent_commits_share_transactions(store: Store):
    epoch = await store.lead("test")
    before = store.statistics
    many = [Changes(workloads=(pending(workload(str(n))),)) for n in range(200)]
    await asyncio.gather(*(store.commit(changes, epoch=epoch) for changes in many))
    after = store.statistics
    assert len(await loaded(store)) == 200
    assert after.commits - before.commits == 200
    assert after.write_transactions - before.write_transactions <= 2


async def test_invalid_commit_does_not_fail_others_in_the_same_transaction(store: Store):
    epoch = await store.lead("test")
    holder = workload("held")
    await store.commit(admitted(holder, admission(), at=T), epoch=epoch)
    outcomes = await asyncio.gather(
        store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch),
        store.commit(admitted(holder, admission(), at=T), epoch=epoch),
        store.commit(Changes(workloads=(pending(workload("2")),)), epoch=epoch),
        store.commit(Changes(workloads=(pending(workload("3")),)), epoch=epoch + 1),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [int, ContradictsLedger, int, StaleEpoch]
    assert set(await loaded(store)) == {"held", "1", "2"}


async def test_cancelled_commit_call_does_not_fail_concurrent_commits(store: Store):
    epoch = await store.lead("test")
    calls = [
        asyncio.create_task(store.commit(Changes(workloads=(pending(workload(str(n))),)), epoch=epoch))
        for n in range(3)
    ]
    await asyncio.sleep(0)
    calls[0].cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, int, int]
    assert {"1", "2"} <= set(await loaded(store))


async def test_submitted_changes_are_committed_before_the_store_closes(database_url: str):
    async with Store.open(database_url) as store:
        epoch = await store.lead("test")
        call = asyncio.create_task(store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch))
        await asyncio.sleep(0)
    await call
    async with Store.open(database_url) as store:
        assert set(await loaded(store)) == {"1"}


async def test_history_of_a_workload_has_its_transitions_in_order(store: Store):
    epoch = await store.lead("test")
    story = (
        Transition("1", T, State.PENDING, "Queued"),
        Transition("1", T, State.ADMITTED, "Admitted", "by ClusterQueue cq"),
        Transition("1", T + 1, State.FINISHED, "Succeeded"),
    )
    other = Transition("2", T, State.PENDING)
    await store.commit(
        Changes(workloads=(pending(workload("1")), pending(workload("2"))), transitions=(story[0], other)), epoch=epoch
    )
    await store.commit(Changes(transitions=story[1:]), epoch=epoch)
    assert await store.workloads.history("1") == story
