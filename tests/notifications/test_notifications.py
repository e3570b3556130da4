"""Notifications from a commit to the HTTP receiver, on real databases and sockets."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from receiving import SECRET, inbox, notifying, process_and_deliver, receiver, subscription

from admission.model.manifests import parse_manifest
from admission.model.workload import Workload
from admission.notifications.bodies import slack_text
from admission.store.audit_log import Author
from admission.store.errors import StaleEpoch
from admission.store.notifications import WorkloadScope
from admission.store.records import Changes, State, Transition
from admission.store.retention import Retention
from admission.store.store import Store
from tests.store.store_examples import (
    admission,
    admitted,
    cluster_queue,
    finished,
    flavor,
    local_queue,
    pending,
    workload,
)

ADA = Author("ada")
ALL = ["Admitted", "Preempted", "Finished", "Idle"]
DOCS = Path(__file__).parents[2] / "docs" / "notifications.md"


def admits(of: Workload, at: float) -> Changes:
    line = Transition(of.uid, at, State.ADMITTED, "Admitted", "It holds 3 pods in flavor default.")
    return replace(admitted(of, admission(), at=at), transitions=(line,))


def is_idle(of: Workload, at: float) -> Changes:
    return Changes(transitions=(Transition(of.uid, at, State.ADMITTED, "Idle", "It holds 4 nvidia.com/gpu"),))


def finishes(of: Workload, at: float) -> Changes:
    return replace(finished(of, at=at), transitions=(Transition(of.uid, at, State.FINISHED, "Succeeded", "Done"),))


def preempts(of: Workload, at: float) -> Changes:
    record = replace(pending(of), state=State.EVICTING, cluster_queue="cq")
    story = Transition(of.uid, at, State.EVICTING, "Preempted", "for a workload of another namespace (UID: x)")
    return Changes(workloads=(record,), transitions=(story,))


def waits(of: Workload, since: float) -> Changes:
    record = replace(pending(of, reason="WaitingForQuota", message="cpu is short"), queued_at=since)
    return Changes(workloads=(record,), transitions=(Transition(of.uid, since, State.PENDING, "Queued"),))


async def subscribe(store: Store, *found: object) -> None:
    for each in found:
        await store.queues.create(each, author=ADA)


async def test_events_of_the_subscribed_namespace_are_delivered_exactly_once(store, clock, tmp_path):
    epoch = await store.lead("test")
    train, other = workload("train"), workload("other", namespace="team-b")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await store.commit(admits(workload("before"), clock()), epoch=epoch)
        await subscribe(store, subscription("all", events=ALL))
        await process_and_deliver(notifier, epoch)
        for of in (train, other):
            await store.commit(admits(of, clock()), epoch=epoch)
            await store.commit(is_idle(of, clock()), epoch=epoch)
            await store.commit(preempts(of, clock()), epoch=epoch)
            await store.commit(finishes(of, clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        await process_and_deliver(notifier, epoch)
        subject = "namespaces/team-a/workloads/job-train"
        assert box.types_and_subjects() == [
            (f"workload.{what}", subject) for what in ("admitted", "idle", "preempted", "finished")
        ]
        said = slack_text(box.received[1].event)
        assert said == "Job *team-a/job-train* does not use what it holds\nIt holds 4 nvidia.com/gpu"
        event = box.received[0].event
        assert box.received[0].headers["content-type"] == "application/cloudevents+json"
        assert event["specversion"] == "1.0"
        assert event["time"] == "2025-06-15T15:06:40.000000Z"
        assert event["data"]["message"] == "It holds 3 pods in flavor default."
        assert len({one.event["id"] for one in box.received}) == 4
        states, left = await store.notifications.states(), await store.notifications.undelivered()
        assert ([state.delivered for state in states.values()], left) == ([4], {})


async def test_signature_check_in_the_documentation_accepts_only_signed_requests(store, clock, tmp_path, monkeypatch):
    example: dict[str, object] = {}
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    exec(code, example)  # it is the documentation's own
    is_from_sluice = example["is_from_sluice"]
    monkeypatch.setattr(example["time"], "time", clock)
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, subscription("all", events=ALL))
        await process_and_deliver(notifier, epoch)
        await store.commit(admits(workload("train"), clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
    (one,) = box.received
    assert is_from_sluice(one.headers, one.body, SECRET)
    assert not is_from_sluice(one.headers, one.body + b" ", SECRET)
    assert not is_from_sluice(one.headers, one.body, b"another secret")
    assert not is_from_sluice(one.headers | {"webhook-id": "other"}, one.body, SECRET)
    clock.advance(301)
    assert not is_from_sluice(one.headers, one.body, SECRET)


async def test_notifier_writes_nothing_without_subscriptions(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await store.commit(admits(workload("train"), clock()), epoch=epoch)
        before = store.statistics.write_transactions
        await process_and_deliver(notifier, epoch)
        assert store.statistics.write_transactions == before
        await subscribe(store, subscription("all", events=ALL))
        await process_and_deliver(notifier, epoch)
        await store.queues.delete("Subscription", "all", namespace="team-a", author=ADA)
        await process_and_deliver(notifier, epoch)
        before = store.statistics.write_transactions
        await store.commit(admits(workload("later"), clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        assert store.statistics.write_transactions == before + 1, "the commit alone"
        assert await store.notifications.progress() is None


@pytest.mark.long
async def test_failing_receiver_loses_no_notification_and_does_not_delay_others(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with (
        inbox() as broken,
        inbox() as fine,
        notifying(store, clock, receiver("pager", tmp_path, broken), receiver("fine", tmp_path, fine)) as notifier,
    ):
        await subscribe(store, subscription("a", events=ALL), subscription("b", events=ALL, receiver="fine"))
        await process_and_deliver(notifier, epoch)
        broken.status = 500
        began = clock()
        for number in range(60):
            await store.commit(admits(workload(str(number)), clock()), epoch=epoch)
            await process_and_deliver(notifier, epoch)
            assert len(fine.received) == number + 1, "the other receiver is told at once"
            clock.advance(60)
        assert 5 < len(broken.received) < 20, "the pauses become longer"
        (state,) = [state for state in (await store.notifications.states()).values() if state.failures]
        assert "answers 500" in state.error
        assert clock() - began == 3600
        broken.status = 200
        attempts = len(broken.received)
        clock.advance(600)
        await process_and_deliver(notifier, epoch)
        assert {one.event["id"] for one in broken.received[attempts:]} == {one.event["id"] for one in fine.received}
        assert len(broken.received) == attempts + 60
        assert await store.notifications.undelivered() == {}


async def test_receiver_gets_no_request_before_its_retry_after_has_passed(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, subscription("all", events=ALL))
        await process_and_deliver(notifier, epoch)
        box.status, box.headers = 429, {"Retry-After": "1800"}
        for seconds, requests in ((0, 1), (1799, 1), (1, 2)):
            clock.advance(seconds)
            await store.commit(admits(workload(str(seconds)), clock()), epoch=epoch)
            await process_and_deliver(notifier, epoch)
            assert len(box.received) == requests


async def test_refused_notification_does_not_block_later_notifications(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, subscription("all", events=ALL))
        await process_and_deliver(notifier, epoch)
        box.status = 400
        for number in range(3):
            await store.commit(admits(workload(str(number)), clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        box.status = 200
        clock.advance(5)
        await process_and_deliver(notifier, epoch)
        refused, *rest = [event["subject"][-1] for event in (one.event for one in box.received)]
        assert (refused, rest) == ("0", ["1", "2", "0"])


async def test_notification_is_resent_with_the_same_id_if_its_leader_is_killed(store, clock, tmp_path):
    epoch = await store.lead("first")
    async with inbox() as box:
        async with notifying(store, clock, receiver("pager", tmp_path, box)) as first:
            await subscribe(store, subscription("all", events=ALL))
            await process_and_deliver(first, epoch)
            await store.commit(admits(workload("train"), clock()), epoch=epoch)
            box.answer.clear()
            killed = asyncio.create_task(process_and_deliver(first, epoch))
            await box.arrived.wait()
            killed.cancel()
            await asyncio.gather(killed, return_exceptions=True)
            box.answer.set()
        successor = await store.lead("second", elected=True)
        async with notifying(store, clock, receiver("pager", tmp_path, box)) as second:
            await process_and_deliver(second, successor)
            assert [one.headers["webhook-id"] for one in box.received] == [box.received[0].event["id"]] * 2
            assert await store.notifications.undelivered() == {}
            await store.commit(admits(workload("next"), clock()), epoch=successor)
            with pytest.raises(StaleEpoch):
                await process_and_deliver(second, epoch)


@pytest.mark.long
async def test_hour_over_the_limit_ends_with_a_summary_of_left_out_notifications(store, clock, tmp_path):
    epoch = await store.lead("test")
    clock.now -= clock.now % 3600
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, subscription("some", events=ALL, limitPerHour=2))
        await process_and_deliver(notifier, epoch)
        for number in range(5):
            await store.commit(admits(workload(str(number)), clock()), epoch=epoch)
            await store.commit(finishes(workload(str(number)), clock()), epoch=epoch)
            await process_and_deliver(notifier, epoch)
        assert [what for what, _ in box.types_and_subjects()] == ["workload.admitted", "workload.finished"]
        clock.advance(3600)
        await process_and_deliver(notifier, epoch)
        await process_and_deliver(notifier, epoch)
        what, subject = box.types_and_subjects()[-1]
        assert (what, subject) == ("notifications.leftout", "namespaces/team-a/subscriptions/some")
        assert box.received[-1].event["data"]["leftOut"] == {
            "dev.sluice.workload.admitted": 4, "dev.sluice.workload.finished": 4,
        }  # fmt: skip
        assert "4 admitted, 4 finished" in slack_text(box.received[-1].event)
        await store.commit(admits(workload("new"), clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        assert len(box.received) == 4


async def test_long_pending_workload_is_notified_once_for_each_wait(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        long, late, again = workload("long"), workload("late"), workload("again", user="bob")
        await subscribe(store, subscription("long", pendingLongerThanSeconds=600))
        await store.commit(waits(long, clock()), epoch=epoch)
        await store.commit(waits(again, clock()), epoch=epoch)
        clock.advance(599)
        await process_and_deliver(notifier, epoch)
        assert box.received == []
        await store.commit(waits(late, clock()), epoch=epoch)
        for _ in range(3):
            clock.advance(10)
            await process_and_deliver(notifier, epoch)
        assert sorted(box.types_and_subjects()) == [
            ("workload.pending", "namespaces/team-a/workloads/job-again"),
            ("workload.pending", "namespaces/team-a/workloads/job-long"),
        ]
        assert box.received[0].event["data"]["reason"] == "WaitingForQuota"
        await store.commit(waits(again, clock()), epoch=epoch)
        await store.commit(admits(late, clock()), epoch=epoch)
        clock.advance(601)
        await process_and_deliver(notifier, epoch)
        assert [subject for _, subject in box.types_and_subjects()][2:] == ["namespaces/team-a/workloads/job-again"]


async def test_pending_notifications_over_the_limit_are_counted_as_left_out(store, clock, tmp_path):
    epoch = await store.lead("test")
    clock.now -= clock.now % 3600
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, subscription("long", pendingLongerThanSeconds=60, limitPerHour=3))
        records = [waits(workload(str(number)), clock()).workloads[0] for number in range(10)]
        await store.commit(Changes(workloads=tuple(records)), epoch=epoch)
        clock.advance(61)
        await process_and_deliver(notifier, epoch)
        assert len(box.received) == 3
        (state,) = (await store.notifications.states()).values()
        assert state.left_out == {"dev.sluice.workload.pending": 7}
    read, number = await store.notifications.waiting(WorkloadScope(), queued_after=None, queued_by=clock(), limit=4)
    assert (len(read), number) == (4, 10), "no more records than the limit are read"


async def test_namespace_subscription_gets_quota_changes_of_its_own_queues_only(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, flavor(), cluster_queue("cq"), cluster_queue("theirs"), local_queue())
        await subscribe(
            store,
            subscription("own", events=["QuotaChanged"]),
            subscription("all", "ops", events=["QuotaChanged"], scope="Cluster"),
        )
        await process_and_deliver(notifier, epoch)
        for name in ("cq", "theirs"):
            await store.queues.replace(cluster_queue(name, cpu="20"), author=Author("ada", reason="more for <all>"))
        await store.queues.replace(cluster_queue("cq", cpu="20", labels={"a": "b"}), author=ADA)
        await process_and_deliver(notifier, epoch)
        assert sorted(box.types_and_subjects()) == [
            ("quota.changed", "clusterqueues/cq"),
            ("quota.changed", "clusterqueues/cq"),
            ("quota.changed", "clusterqueues/theirs"),
        ]
        event = box.received[0].event
        assert event["data"]["user"] == "ada"
        (change,) = event["data"]["changes"]
        assert (change["before"], change["after"]) == ("10", "20")
        text = slack_text(event)
        assert text.splitlines()[0] == "ClusterQueue *cq* was changed by ada: more for &lt;all&gt;"
        assert text.splitlines()[1].endswith('nominalQuota: "10" -&gt; "20"')


async def test_alerts_of_budgets_are_notified_once_where_they_concern(store, clock, tmp_path):
    epoch = await store.lead("test")
    spec = {"resources": [{"name": "cpu", "hours": 10}], "period": {"every": "Month"}}

    def alerts(*reached: tuple[str, int]):
        period = {"start": "2025-06-01T00:00:00Z", "end": "2025-07-01T00:00:00Z"}
        message = "Budget {} has spent or reserved {} of 10 hours of cpu ({} %)"
        return {
            name: {"period": period, "resources": [], "alerts": [
                {"resource": "cpu", "level": level, "at": clock(), "message": message.format(name, level / 10, level)}
            ]}
            for name, level in reached
        }  # fmt: skip

    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        for name, namespace in (("ml", "team-a"), ("other", "team-b")):
            given = {**spec, "scope": {"namespaces": [namespace]}}
            await subscribe(store, parse_manifest(
                {"apiVersion": "sluice.dev/v1", "kind": "Budget", "metadata": {"name": name}, "spec": given}
            ))  # fmt: skip
        await store.budget_sums.save(alerts(("ml", 50)), at=clock())
        await subscribe(store, subscription("own", events=["BudgetUsed"]))
        await process_and_deliver(notifier, epoch)
        assert box.received == []  # reached before the Subscription
        clock.advance(10)
        await store.budget_sums.save(alerts(("ml", 80), ("other", 100)), at=clock())
        for _ in range(2):
            await process_and_deliver(notifier, epoch)
        (one,) = box.received
        assert one.event["type"] == "dev.sluice.budget.used"
        assert (one.event["subject"], one.event["data"]["percent"]) == ("budgets/ml", 80)
        assert slack_text(one.event) == "Budget ml has spent or reserved 8.0 of 10 hours of cpu (80 %)"


async def test_receiver_is_used_only_by_subscriptions_of_its_namespaces(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box:
        own = receiver("pager", tmp_path, box, namespaces=frozenset({"team-a"}))
        async with notifying(store, clock, own) as notifier:
            await subscribe(
                store,
                subscription("ours", events=["Admitted"]),
                subscription("theirs", "team-b", events=["Admitted"]),
                subscription("nobody", events=["Admitted"], receiver="missing"),
            )
            await process_and_deliver(notifier, epoch)
            for of in (workload("b", namespace="team-b"), workload("a")):
                await store.commit(admits(of, clock()), epoch=epoch)
            await process_and_deliver(notifier, epoch)
            assert [subject for _, subject in box.types_and_subjects()] == ["namespaces/team-a/workloads/job-a"]
            errors = sorted(state.error for state in (await store.notifications.states()).values())
            assert errors[0] == ""
            assert 'there is no receiver "missing" for namespace team-a' in errors[1]
            assert 'there is no receiver "pager" for namespace team-b' in errors[2]
        async with notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
            await process_and_deliver(notifier, epoch)
            assert len(box.received) == 2, "what waited is sent once the admin allows it"


async def test_notification_undelivered_for_three_days_is_dropped_and_counted(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        box.status = 503
        await subscribe(store, subscription("all", events=ALL))
        await process_and_deliver(notifier, epoch)
        await store.commit(admits(workload("a"), clock()), epoch=epoch)
        for hours in (0, 71, 1.1):
            clock.advance(hours * 3600)
            await process_and_deliver(notifier, epoch)
        (state,) = (await store.notifications.states()).values()
        assert (state.dropped, await store.notifications.undelivered()) == (1, {})
        assert len(box.received) == 2


async def test_slack_text_escapes_user_content_and_has_no_signature(store, clock, tmp_path):
    epoch = await store.lead("test")
    name = "<!channel> & *job*" + "x" * 4096
    async with inbox() as box:
        chat = replace(receiver("pager", tmp_path, box), format="Slack", secret_file=None)
        async with notifying(store, clock, chat) as notifier:
            await subscribe(store, subscription("all", events=ALL))
            await process_and_deliver(notifier, epoch)
            await store.commit(admits(workload("a", name=name, user="<script>"), clock()), epoch=epoch)
            await process_and_deliver(notifier, epoch)
    (one,) = box.received
    assert one.headers["content-type"] == "application/json"
    assert "webhook-signature" not in one.headers
    text = one.event["text"]
    assert "<" not in text
    assert text.startswith("Job *team-a/&lt;!channel&gt; &amp; \u200bjob\u200bx")
    assert len(text) < 600


@pytest.mark.costly
async def test_notifications_continue_after_all_finished_workloads_are_pruned(store, clock, tmp_path):
    epoch = await store.lead("test")
    async with inbox() as box, notifying(store, clock, receiver("pager", tmp_path, box)) as notifier:
        await subscribe(store, subscription("all", events=["Finished"]))
        await process_and_deliver(notifier, epoch)
        for number in range(5):
            await store.commit(admits(workload(str(number)), clock()), epoch=epoch)
            await store.commit(finishes(workload(str(number)), clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        clock.advance(10 * 24 * 3600)
        await store.roll_up(epoch=epoch)
        assert await store.prune(Retention(finished=24 * 3600), epoch=epoch) == 5
        await store.commit(finishes(workload("new"), clock()), epoch=epoch)
        await process_and_deliver(notifier, epoch)
        assert [subject[-3:] for _, subject in box.types_and_subjects()][5:] == ["new"]
