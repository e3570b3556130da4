"""Queries of the API and the command line: pages of workloads, filters, changes, and status of queues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_examples import admission, admitted, cluster_queue, finished, local_queue, pending, requeued, workload

from admission.model.workload import Admission, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.notifications import WorkloadScope
from admission.store.records import GOES_ON, Changes, LastEviction, QueueStatus, Resized, State, WorkloadRecord
from admission.store.store import Store
from admission.store.workloads.queries import ColumnFilter
from admission.store.workloads.search import WorkloadQuery

T = 1_750_000_000.0


async def test_pages_contain_all_workloads_in_order(store: Store):
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


async def test_full_last_page_has_no_continuation(store: Store):
    epoch = await store.lead("test")
    await store.commit(Changes(workloads=(pending(workload("1")), pending(workload("2")))), epoch=epoch)
    page = await store.workloads.list(limit=2)
    assert (len(page.workloads), page.after, page.remaining) == (2, None, 0)


async def test_lists_are_filtered_by_namespace_queue_and_state(store: Store):
    epoch = await store.lead("test")
    one, two, three = workload("1"), workload("2", namespace="team-b"), workload("3", queue="other")
    await store.commit(Changes(workloads=(pending(one), pending(two), pending(three))), epoch=epoch)
    await store.commit(admitted(one, admission(), at=T), epoch=epoch)

    async def uids(**narrowed) -> list[str]:
        return [record.workload.uid for record in (await store.workloads.list(**narrowed)).workloads]

    assert await uids() == ["1", "3", "2"]
    assert await uids(namespace="team-b") == ["2"]
    in_cq = ColumnFilter("cluster_queue", frozenset({"cq"}))
    assert await uids(namespace="team-a", where=[ColumnFilter("local_queue", frozenset({"other"}))]) == ["3"]
    assert await uids(where=[in_cq]) == ["1"]
    assert await uids(where=[ColumnFilter("state", frozenset({"pending", "finished"}))]) == ["3", "2"]
    assert await uids(where=[ColumnFilter("state", frozenset({"pending"}), negated=True)]) == ["1"]
    assert (await store.workloads.list(where=[in_cq])).workloads[0].admission == admission()
    assert (await store.workloads.uids(where=[in_cq]))[0] == {"1"}


async def test_workloads_are_found_by_their_names_and_by_what_these_begin_with(store: Store):
    epoch = await store.lead("test")
    names = {"web": 1, "web-a": 2, "web-b": 3, "web.c": 4, "webb": 5, "wEb-d": 6, "w_b-e": 7}
    records = [pending(workload(str(age), name=name, created=T + age)) for name, age in names.items()]
    records.append(pending(workload("8", name="web", created=T + 8)))
    records.append(pending(workload("9", name="web-a", namespace="team-b", created=T + 9)))
    await store.commit(Changes(workloads=tuple(records)), epoch=epoch)

    async def below(name: str, limit: int = 10) -> list[str]:
        return [each.workload.uid for each in await store.workloads.below("team-a", name, limit=limit)]

    assert [each.workload.uid for each in await store.workloads.of_name("team-a", "web")] == ["8", "1"]
    assert {"2", "3"} <= {*await below("web")} <= {"2", "3", "6"}, "SQLite's LIKE ignores case; names have none"
    assert await below("w_b") == ["7"], "an underscore stands for itself"
    assert await store.workloads.names("team-a", limit=3) == ("web", "w_b-e", "wEb-d")
    assert await store.workloads.namespaces_of("web-a", limit=5) == ("team-a", "team-b")
    found = await store.workloads.search(WorkloadQuery(text="web-a-x7k2p"), order="newest", limit=10)
    assert [(each.workload.namespace, each.workload.name) for each in found.workloads] == [
        ("team-b", "web-a"), ("team-a", "web"), ("team-a", "web-a"), ("team-a", "web"),
    ]  # fmt: skip
    again = pending(workload("0", name="web", created=T + 8))  # the next group of a StatefulSet has its time
    await store.commit(Changes(workloads=(again,)), epoch=epoch)
    assert [each.workload.uid for each in await store.workloads.of_name("team-a", "web")] == ["0", "8", "1"]


@pytest.mark.parametrize(
    ("order", "names"),
    [("state", "cab"), ("oldest", "cab"), ("priority", "cab"), ("newest", "bac"), ("name", "abc")],
)
async def test_workloads_of_the_same_second_are_found_in_the_order_of_their_arrival(
    store: Store, order: str, names: str
):
    epoch = await store.lead("test")
    records = [pending(workload(uid, name=name, created=T)) for uid, name in (("2", "c"), ("3", "a"), ("1", "b"))]
    await store.commit(Changes(workloads=tuple(records)), epoch=epoch)
    found = await store.workloads.search(WorkloadQuery(), order=order, limit=10)
    assert "".join(each.workload.name for each in found.workloads) == names


@pytest.mark.parametrize("since", [None, T])
async def test_workloads_are_found_and_grouped_by_the_cluster_in_which_they_run(store: Store, since: float | None):
    epoch = await store.lead("test")
    here, sent, there, ended = workload("1"), workload("2"), workload("3", cluster="b"), workload("4", cluster="c")
    records = tuple(pending(each) for each in (here, sent, there, ended))
    await store.commit(Changes(workloads=records), epoch=epoch)
    await store.commit(admitted(sent, replace(admission(), cluster="b"), at=T), epoch=epoch)
    await store.commit(finished(ended, at=T + 1), epoch=epoch)
    wanted = {"local": ["1"], "b": ["2", "3"], "c": ["4"]}
    for name, uids in wanted.items():
        query = WorkloadQuery(fields={"cluster": frozenset({name})}, since=since)
        found = await store.workloads.search(query, order="name", limit=10)
        assert sorted(each.workload.uid for each in found.workloads) == uids
        listed = await store.workloads.list(where=[ColumnFilter("runs_in", frozenset({name}))])
        assert sorted(each.workload.uid for each in listed.workloads) == uids
    groups = await store.workloads.search_groups(WorkloadQuery(since=since), by="cluster")
    assert {each.value: sum(each.counts.values()) for each in groups} == {"local": 1, "b": 2, "c": 1}


async def test_condition_matches_the_same_records_in_memory_and_in_the_database(store: Store):
    epoch = await store.lead("test")
    one = workload("1", user="ada")
    two = workload("2", namespace="team-b", queue="other", priority=7, cluster="b")
    await store.commit(Changes(workloads=(pending(one), pending(two))), epoch=epoch)
    records = (await store.workloads.list()).workloads
    wanted = {"namespace": "team-b", "name": two.name, "uid": "2", "state": "pending", "local_queue": "other",
              "cluster_queue": "", "priority": 7, "submitted_by": "", "cluster": "b", "runs_in": "b"}  # fmt: skip
    assert wanted.keys() == ColumnFilter.COLUMNS
    for column, value in wanted.items():
        for negated in (False, True):
            condition = ColumnFilter(column, frozenset({value}), negated)
            found = (await store.workloads.list(where=[condition])).workloads
            assert found == tuple(record for record in records if condition.holds(record)), condition


async def test_changes_since_a_revision_are_in_order_of_their_revisions(store: Store):
    epoch = await store.lead("test")
    one, two = workload("1"), workload("2")
    first = await store.commit(Changes(workloads=(pending(one),)), epoch=epoch)
    second = await store.commit(Changes(workloads=(pending(two),)), epoch=epoch)
    third = await store.commit(Changes(workloads=(pending(one, reason="x"),)), epoch=epoch)

    found, newest, more = await store.workloads.changes_since(first - 1, limit=5)
    assert [(record.workload.uid, record.first_revision, record.revision) for record in found] == [
        ("2", second, second), ("1", first, third),
    ]  # fmt: skip
    assert (newest, more) == (third, False)
    assert [record.workload.uid for record in (await store.workloads.changes_since(second, limit=5))[0]] == ["1"]
    assert (await store.workloads.changes_since(first - 1, limit=1))[2]


async def test_get_by_name_returns_the_latest_workload_of_that_name(store: Store):
    epoch = await store.lead("test")
    old, new = workload("9", name="job", created=T), workload("1", name="job", created=T + 1)
    await store.commit(Changes(workloads=(pending(old), pending(new))), epoch=epoch)
    await store.commit(finished(old, at=T), epoch=epoch)
    found = await store.workloads.get("team-a", "job")
    assert found is not None
    assert found.workload == new
    assert await store.workloads.get("team-b", "job") is None


async def test_queue_status_counts_workloads_and_sums_usage(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(cluster_queue("cq"), author=Author("test"))
    for name in ("main", "other"):
        await store.queues.create(local_queue(name), author=Author("test"))
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
    checked = replace(pending(running), state=State.ADMITTED, cluster_queue="cq", checks_pending=True)
    await store.commit(Changes(workloads=(checked,)), epoch=epoch)
    assert (await store.workloads.cluster_queue_status())["cq"] == QueueStatus(pending=1, reserving=2, usage=usage)
    assert (await store.workloads.local_queue_status())["team-a", "main"].admitted == 0
    await store.commit(Changes(workloads=(replace(checked, checks_pending=False),)), epoch=epoch)
    await store.commit(requeued(stopping, at=T + 2), epoch=epoch)
    assert (await store.workloads.cluster_queue_status())["cq"] == QueueStatus(
        pending=2, reserving=1, admitted=1, usage={("b", "cpu"): 500, ("b", "gpu"): 2**61}
    )


def preempted(of: Workload, *, preemptor: str, at: float, state: State = State.PENDING) -> WorkloadRecord:
    said = f"Preempted to accommodate a workload (UID: {preemptor}) due to prioritization in the ClusterQueue"
    return replace(pending(of), state=state, eviction=LastEviction("Preempted", said, at, "InClusterQueue"))


async def test_preemptions_in_vain_have_a_preemptor_that_is_still_pending(store: Store):
    epoch = await store.lead("test")
    of = {uid: workload(uid) for uid in ("vain", "started", "under-way", "new", "old", "anew", *map(str, range(8)))}
    await store.queues.create(local_queue(leads_to="cq"), author=Author("test"))
    waits = [pending(of[uid], cluster_queue="former") for uid in ("vain", "under-way", "new", "old")]
    # The preemptor `anew` has run since, and was then preempted itself.
    anew = preempted(of["anew"], preemptor="started", at=T + 50)
    victims = [
        preempted(of["0"], preemptor="vain", at=T),
        preempted(of["1"], preemptor="vain", at=T + 9),
        preempted(of["2"], preemptor="started", at=T),
        preempted(of["3"], preemptor="under-way", at=T),
        preempted(of["4"], preemptor="under-way", at=T, state=State.EVICTING),
        preempted(of["5"], preemptor="new", at=T + 300),
        preempted(of["6"], preemptor="old", at=T - 90_000),
        preempted(of["7"], preemptor="anew", at=T + 40),
    ]
    await store.commit(Changes(workloads=(*waits, *victims, anew)), epoch=epoch)
    await store.commit(admitted(of["started"], admission(), at=T + 60), epoch=epoch)
    (found,) = await store.workloads.preemptions_in_vain(now=T + 400)
    assert (found.name, found.cluster_queue, found.at) == ("job-vain", "cq", T + 9)
    assert [victim.name for victim in found.victims] == ["job-0", "job-1"]
    assert await store.workloads.preemptions_in_vain(now=T + 308) == ()
    await store.commit(admitted(of["vain"], admission(), at=T + 401), epoch=epoch)
    assert await store.workloads.preemptions_in_vain(now=T + 402) == ()


async def test_workloads_that_are_evicted_again_and_again_are_found_while_they_are_unfinished(store: Store):
    epoch = await store.lead("test")
    for uid, times in (("often", 4), ("twice", 2), ("done", 3), ("formerly", 3)):
        of, since = workload(uid), T if uid != "formerly" else T - 4000
        for number in range(times):
            await store.commit(admitted(of, admission(), at=since + 10 * number), epoch=epoch)
            await store.commit(requeued(of, at=since + 10 * number + 5), epoch=epoch)
    await store.commit(admitted(workload("done"), admission(), at=T + 90), epoch=epoch)
    await store.commit(finished(workload("done"), at=T + 95), epoch=epoch)
    scaled = workload("scaled")  # as by an autoscaler: it runs on
    await store.commit(admitted(scaled, admission(), at=T), epoch=epoch)
    for number, reason in enumerate((*GOES_ON, *GOES_ON)):
        resized = Resized(scaled, admission(1000 + number), at=T + 10 * number + 1, reason=reason)
        await store.commit(Changes(resized=(resized,)), epoch=epoch)
    (found,) = await store.workloads.evicted_again(now=T + 100)
    assert (found.uid, found.times) == ("often", 4)
    assert (await store.workloads.by_uid(["often"])).keys() == {"often"}
    assert await store.workloads.evicted_again(now=T + 3700) == ()


async def test_long_waits_are_filtered_by_the_cluster_queue_of_the_local_queue(store: Store):
    epoch = await store.lead("test")
    for queue in (local_queue(), local_queue("other", leads_to="elsewhere")):
        await store.queues.create(queue, author=Author("test"))
    never_ran, moved = pending(workload("0")), pending(workload("1", queue="other"), cluster_queue="cq")
    gone = pending(workload("2", queue="deleted"), cluster_queue="cq")
    await store.commit(Changes(workloads=(never_ran, moved, gone)), epoch=epoch)
    for name, uids in (("cq", ["0"]), ("elsewhere", ["1"]), ("", ["0", "1", "2"])):
        scope = WorkloadScope(cluster_queue=name)
        found, number = await store.notifications.waiting(scope, queued_after=None, queued_by=T, limit=len(uids))
        assert (sorted(one.uid for one in found), number) == (uids, len(uids))
    assert {one.uid: one.cluster_queue for one in found} == {"0": "cq", "1": "elsewhere", "2": ""}


@pytest.mark.costly
async def test_queue_status_after_changes_equals_a_complete_count(store: Store, database_url: str):
    epoch = await store.lead("test")
    for name in ("cq", "cq-2", "cq-3"):
        await store.queues.create(cluster_queue(name), author=Author("test"))
    for name, target in (("main", "cq"), ("other", "cq"), ("second", "cq-2"), ("third", "cq-3")):
        await store.queues.create(local_queue(name, leads_to=target), author=Author("test"))
    of = [workload(str(n), queue=("main", "other", "second", "third", "nowhere")[n % 5]) for n in range(15)]
    await store.commit(Changes(workloads=tuple(map(pending, of))), epoch=epoch)

    async def compared() -> None:
        recent, recents = await store.workloads.cluster_queue_status(), await store.workloads.local_queue_status()
        async with Store.open(database_url) as afresh:
            assert recent == await afresh.workloads.cluster_queue_status()
            assert recents == await afresh.workloads.local_queue_status()

    await compared()
    for each, holds in ((of[0], "cq"), (of[1], "cq"), (of[2], "cq-2")):
        await store.commit(admitted(each, admission(cluster_queue=holds), at=T), epoch=epoch)
        await compared()
    checked = replace(pending(of[0]), state=State.ADMITTED, cluster_queue="cq", checks_pending=True)
    await store.commit(Changes(workloads=(checked,)), epoch=epoch)
    await compared()
    # The ledger has the ClusterQueue in which an evicted workload still holds quota.
    evicting = replace(pending(of[2]), state=State.EVICTING, cluster_queue="cq-2")
    await store.commit(Changes(workloads=(evicting,)), epoch=epoch)
    await compared()
    moved = replace(of[2], queue="third")
    back = requeued(of[2], at=T + 1)
    await store.commit(replace(back, workloads=(replace(back.workloads[0], workload=moved),)), epoch=epoch)
    await compared()
    for each in (of[0], of[1]):
        await store.commit(finished(each, at=T + 2), epoch=epoch)
        await compared()
    await store.commit(Changes(workloads=(pending(workload("new", queue="third")),)), epoch=epoch)
    await compared()
    # A LocalQueue that points to another ClusterQueue takes its pending workloads along.
    elsewhere = local_queue("second", leads_to="cq-3")
    await store.queues.write(elsewhere.key, lambda _: elsewhere, author=Author("test"))
    await compared()
    await store.orders.give("3", local_queue="main", author=Author("test"))
    await store.commit(Changes(workloads=(pending(replace(of[3], queue="main")),)), epoch=epoch)
    await compared()
    # The queue label changes, also to a LocalQueue that does not exist, and back.
    for queue in ("third", "other", "nowhere", "second", "main"):
        await store.commit(Changes(workloads=(pending(replace(of[5], queue=queue)),)), epoch=epoch)
        await compared()
    # Between two comparisons a workload leaves a queue and arrives in another.
    for each in (finished(of[5], at=T + 3), Changes(workloads=(pending(replace(of[5], queue="third")),))):
        await store.commit(each, epoch=epoch)
    await compared()
