"""The typed client on the API as it is served: queue objects and workloads."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from admission.client import AlreadyExists, Conflict, Invalid, NotFound, NotReady, Sluice, watching
from admission.model.base import LabelSelector, ObjectMeta
from admission.model.queues import (
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    CohortSpec,
    LocalQueue,
    LocalQueueSpec,
    ResourceFlavor,
)
from admission.model.quotas import FlavorQuotas, ResourceGroup, ResourceQuota
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import Changes, Opened, State, WorkloadRecord


def cohort(name: str, parent: str = "", **labels: str) -> Cohort:
    return Cohort(metadata=ObjectMeta(name=name, labels=labels), spec=CohortSpec(parent_name=parent))


def cluster_queue(name: str, cpu: str) -> ClusterQueue:
    quota = ResourceQuota(name="cpu", nominal_quota=cpu)
    group = ResourceGroup(covered_resources=("cpu",), flavors=(FlavorQuotas(name="default", resources=(quota,)),))
    return ClusterQueue(
        metadata=ObjectMeta(name=name),
        spec=ClusterQueueSpec(resource_groups=(group,), namespace_selector=LabelSelector()),
    )


async def test_queue_object_is_created_replaced_patched_and_deleted(sluice):
    created = (await sluice.cohorts.create(cohort("a"))).object
    assert created.metadata.uid
    with pytest.raises(AlreadyExists):
        await sluice.cohorts.create(cohort("a"))
    changed = (await sluice.cohorts.replace(created.model_copy(update={"spec": CohortSpec(parent_name="b")}))).object
    assert changed.spec.parent_name == "b"
    with pytest.raises(Conflict):
        await sluice.cohorts.replace(created)
    patched = (await sluice.cohorts.patch("a", {"spec": {"parentName": "c"}}, reason="because")).object
    assert patched.spec.parent_name == "c"
    assert await sluice.cohorts.get("a") == patched
    await sluice.cohorts.delete("a")
    with pytest.raises(NotFound):
        await sluice.cohorts.get("a")


async def test_put_creates_or_replaces_an_object(sluice):
    for parent in ("x", "y"):
        written = (await sluice.cohorts.put(cohort("a", parent))).object
        assert written.spec.parent_name == parent
    version = written.metadata.resource_version
    assert (await sluice.cohorts.put(cohort("a", "y"))).object.metadata.resource_version == version


async def test_concurrent_puts_all_succeed(sluice):
    await asyncio.gather(*(sluice.cohorts.put(cohort("a", f"p{number}")) for number in range(5)))
    assert (await sluice.cohorts.get("a")).metadata.generation == 5


async def test_server_side_apply_owns_only_the_given_fields(sluice):
    await sluice.cohorts.create(cohort("a", "b", team="x"))
    mine = Cohort(metadata=ObjectMeta(name="a", labels={"tier": "1"}))
    applied = (await sluice.cohorts.apply(mine, manager="me")).object
    assert (applied.spec.parent_name, dict(applied.metadata.labels)) == ("b", {"team": "x", "tier": "1"})
    with pytest.raises(Conflict, match="conflict"):
        await sluice.cohorts.apply(cohort("a", "c"), manager="me")
    taken = (await sluice.cohorts.apply(cohort("a", "c"), manager="me", force=True)).object
    assert taken.spec.parent_name == "c"


async def test_a_dry_run_writes_nothing(sluice):
    written = await sluice.cohorts.create(cohort("a"), dry_run=True)
    assert written.object.name == "a"
    assert [item async for item in sluice.cohorts.list()] == []


async def test_invalid_error_names_the_refused_field(sluice):
    await sluice.cluster_queues.create(cluster_queue("a", "1"))
    with pytest.raises(Invalid) as caught:
        await sluice.cluster_queues.patch("a", {"spec": {"stopPolicy": "Sometimes"}})
    assert [field for field, _ in caught.value.causes] == ["spec.stopPolicy"]


async def test_list_returns_all_or_the_selected_objects_of_several_pages(sluice, monkeypatch):
    monkeypatch.setattr(watching, "PAGE", 2)
    for number in range(7):
        await sluice.cohorts.create(cohort(f"c{number}", odd=str(number % 2)))
    assert [item.name async for item in sluice.cohorts.list()] == [f"c{number}" for number in range(7)]
    assert [item.name async for item in sluice.cohorts.list(label_selector="odd=1")] == ["c1", "c3", "c5"]
    assert [item.name async for item in sluice.cohorts.list(field_selector="metadata.name=c4")] == ["c4"]


async def test_local_queues_default_to_the_namespace_of_the_client(url):
    def queue(namespace: str = "") -> LocalQueue:
        return LocalQueue(metadata=ObjectMeta(name="main", namespace=namespace), spec=LocalQueueSpec(cluster_queue="x"))

    async with Sluice(url, token="a-token", namespace="mine", warn=lambda _: None) as sluice:
        await sluice.local_queues.create(queue())
        await sluice.local_queues.create(queue("theirs"))
        assert (await sluice.local_queues.get("main")).metadata.namespace == "mine"
        assert (await sluice.local_queues.get("main", namespace="theirs")).metadata.namespace == "theirs"
        found = [item.metadata.namespace async for item in sluice.local_queues.list()]
        assert found == ["mine", "theirs"]
        await sluice.local_queues.delete("main", namespace="theirs")
        assert [item.metadata.namespace async for item in sluice.local_queues.list(namespace="theirs")] == []


async def test_watch_delivers_added_modified_and_deleted_objects(sluice):
    await sluice.cohorts.create(cohort("a"))
    seen = []
    async with aclosing(sluice.cohorts.watch()) as events:
        async for event in events:
            seen.append((event.type, event.object.name, event.object.spec.parent_name))
            match len(seen):
                case 1:
                    await sluice.cohorts.patch("a", {"spec": {"parentName": "b"}})
                case 2:
                    await sluice.cohorts.create(cohort("c"))
                case 3:
                    await sluice.cohorts.delete("a")
                case 4:
                    break
    assert seen == [("ADDED", "a", ""), ("MODIFIED", "a", "b"), ("ADDED", "c", ""), ("DELETED", "a", "b")]


async def test_history_lists_revisions_and_rollback_restores_a_revision(sluice):
    await sluice.cohorts.create(cohort("a", "x"), reason="we need it")
    await sluice.cohorts.patch("a", {"spec": {"parentName": "b"}}, reason="moved")
    newest, oldest = [revision async for revision in sluice.cohorts.history("a")]
    assert (newest.reason, oldest.reason) == ("moved", "we need it")
    assert (newest.operation, oldest.operation) == ("replace", "create")
    assert newest.user
    assert [(change.path, change.before, change.after) for change in newest.diff] == [("spec.parentName", "x", "b")]
    back = (await sluice.cohorts.rollback("a", oldest.revision)).object
    assert back.spec.parent_name == "x"


POD_SETS = (PodSet(name="main", count=2, requests={"cpu": 1000}),)


def record(uid: str, name: str, state: State, *, kind: str = "Job", **fields: object) -> WorkloadRecord:
    created = 1_700_000_000.0 + int(uid)
    workload = Workload(uid, "team-a", name, "main", 100, created, POD_SETS, kind=kind, user="alice")
    return WorkloadRecord(workload, state, queued_at=created, cluster_queue="team-a", **fields)  # type: ignore[arg-type]


@pytest.fixture
async def workloads(store, sluice):
    """A pending and an admitted workload, and two workloads of objects with the same name."""
    await sluice.resource_flavors.create(ResourceFlavor(metadata=ObjectMeta(name="default")))
    await sluice.cluster_queues.create(cluster_queue("team-a", "2"))
    for name in ("main", "express"):
        queue = LocalQueue(
            metadata=ObjectMeta(name=name, namespace="team-a"), spec=LocalQueueSpec(cluster_queue="team-a")
        )
        await sluice.local_queues.create(queue)
    records = (
        record("1", "runs", State.ADMITTED, admitted_at=1_700_000_010.0),
        record("2", "waits", State.PENDING, reason="WaitingForQuota", message="no cpu"),
        record("3", "twin", State.PENDING),
        record("4", "twin", State.PENDING, kind="RayJob"),
    )
    admission = Admission("team-a", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 2),))
    opened = (Opened(records[0].workload, admission, 1_700_000_010.0),)
    await store.commit(Changes(workloads=records, opened=opened), epoch=await store.lead("tests"))


@pytest.mark.costly
async def test_workload_is_found_by_workload_name_object_name_and_kind(sluice, workloads):
    runs = await sluice.workloads.get("runs", namespace="team-a")
    assert (runs.object_kind, runs.object_name, runs.queue, runs.user) == ("Job", "runs", "main", "alice")
    assert (runs.admitted, runs.finished, runs.cluster_queue, runs.priority) == (True, False, "team-a", 100)
    assert await sluice.workloads.get(runs.name, namespace="team-a") == runs
    waits = await sluice.workloads.get("waits", namespace="team-a")
    assert not waits.admitted
    assert (waits.conditions["QuotaReserved"].reason, waits.conditions["QuotaReserved"].message) == (
        "WaitingForQuota",
        "no cpu",
    )
    for kind in ("Job", "rayjob"):
        found = await sluice.workloads.get("twin", namespace="team-a", kind=kind)
        assert found.object_kind.lower() == kind.lower()
    with pytest.raises(NotFound):
        await sluice.workloads.get("runs", namespace="team-a", kind="RayJob")
    assert len([item async for item in sluice.workloads.list(namespace="team-a")]) == 4


async def test_wait_returns_the_workload_or_raises_not_ready(sluice, workloads):
    assert (await sluice.workloads.wait("runs", namespace="team-a")).object_name == "runs"
    for uid, kind in (("3", "Job"), ("4", "RayJob")):
        found = await sluice.workloads.wait("twin", lambda _: True, uid=uid, namespace="team-a")
        assert found.object_kind == kind
    with pytest.raises(NotReady, match=r'"waits" still waits \(WaitingForQuota: no cpu\) after 0 s'):
        await sluice.workloads.wait("waits", namespace="team-a", timeout=0.0)
    with pytest.raises(NotReady, match='"nothing" does not exist'):
        await sluice.workloads.wait("nothing", namespace="team-a", timeout=0.0)


@pytest.mark.costly
async def test_admin_orders_change_the_workload_spec(sluice, workloads):
    held = (await sluice.workloads.hold("waits", namespace="team-a")).object
    assert held.document["spec"]["hold"] is True
    await sluice.workloads.release("waits", namespace="team-a")
    off = (await sluice.workloads.deactivate("waits", namespace="team-a", reason="superseded")).object
    assert off.document["spec"]["active"] is False
    on = (await sluice.workloads.activate("waits", namespace="team-a")).object
    assert on.document["spec"]["active"] is True
    moved = (await sluice.workloads.move("waits", "express", namespace="team-a")).object
    assert moved.queue == "express"
    raised = (await sluice.workloads.prioritize("waits", priority=7, namespace="team-a")).object
    assert raised.priority == 7
    first = (await sluice.workloads.prioritize("waits", top=True, namespace="team-a")).object
    assert first.document["spec"]["order"]
    before = (await sluice.workloads.prioritize("waits", before="twin", namespace="team-a")).object
    assert before.document["spec"]["order"]
    again = (await sluice.workloads.prioritize("waits", namespace="team-a")).object
    assert not again.document["spec"].get("order")
    with pytest.raises(NotFound):
        await sluice.workloads.hold("nothing", namespace="team-a")


async def test_rollback_restores_a_deleted_object(sluice):
    await sluice.cohorts.create(cohort("a", "x"))
    await sluice.cohorts.delete("a", reason="a mistake")
    deletion, creation = [revision async for revision in sluice.cohorts.history("a")]
    assert (deletion.operation, deletion.reason, creation.operation) == ("delete", "a mistake", "create")
    assert (await sluice.cohorts.rollback("a", creation.revision)).object.spec.parent_name == "x"
    assert (await sluice.cohorts.get("a")).spec.parent_name == "x"
