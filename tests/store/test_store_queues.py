"""Queue objects in the store: preconditions, validation, versions, dry runs, and annotations of the store."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import queue_objects as manifests
from sqlalchemy import update
from store_examples import (
    admission,
    admitted,
    cluster_queue,
    cohort,
    finished,
    flavor,
    local_queue,
    priority_class,
    requeued,
    workload,
)

from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest
from admission.model.queues import (
    QUEUE_OBJECTS,
    Budget,
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueObject,
    ResourceFlavor,
)
from admission.store.audit_log import Author
from admission.store.database.tables import queue_object_versions, queue_objects
from admission.store.errors import AlreadyExists, Conflict, NotFound
from admission.store.objects import queue_objects as stored
from admission.store.store import Store
from tests.conftest import Clock


async def test_created_object_is_returned_by_get_and_list(store: Store, clock: Clock):
    wanted = cluster_queue(labels={"team": "a"}, annotations={"sluice.dev/note": "ü"})
    created = await store.queues.create(wanted, author=Author("ada"))
    assert created.spec == wanted.spec
    assert created.metadata.labels == {"team": "a"}
    assert created.metadata.annotations == {"sluice.dev/note": "ü"}
    assert created.metadata.generation == 1
    assert created.metadata.creation_timestamp is not None
    assert created.metadata.creation_timestamp.timestamp() == clock.now
    assert created.metadata.resource_version == str(await store.queues.revision())
    assert await store.queues.get("ClusterQueue", "cq") == created
    assert await store.queues.list("ClusterQueue") == (created,)


async def test_objects_of_every_kind_are_read_as_written(store: Store):
    grant = {"day": "2026-11-28", "resource": "nvidia.com/gpu", "hours": "-2.5", "reason": "paid twice"}
    told = {"receiver": "pager", "events": ["Admitted"], "pendingLongerThanSeconds": 60, "user": "alice"}
    more = {"budget": "ml", "resource": "cpu", "hours": "96", "day": "2026-12-01", "reason": "deadline"}
    joined = {
        "kubeconfig": "b.yaml",
        "state": "Draining",
        "webhook": {"service": {"namespace": "sluice-system", "name": "sluice-webhook"}, "caFile": "b.crt"},
    }
    documents = (
        manifests.topology("dc", "rack"),
        manifests.manifest("Cluster", "b", spec=joined),
        manifests.flavor(),
        manifests.priority_class("high", 1000),
        manifests.provisioning_config("up", "example.com", retryStrategy={"backoffLimitCount": 0}),
        manifests.admission_check("prov"),
        manifests.cohort("root"),
        manifests.cluster_queue(),
        manifests.local_queue(),
        manifests.budget("ml", 10, parent="all", scope={"users": ["ann"]}, grants=[grant]),
        manifests.reservation("bench", "cq", 4, atStart="Preempt", releaseUnusedAfterSeconds=600),
        manifests.drain("d", "n17"),
        manifests.user_limit("u", 1, groups=["ml"], together=True, pending=2, resources={"cpu": "4"}),
        manifests.price_book("p", {"resource": "cpu", "perHour": 0.5, "from": "2026-07-01"}),
        manifests.manifest("BudgetRequest", "ml-1", namespace="team-a", spec=more),
        manifests.manifest("Subscription", "mine", namespace="team-a", spec=told),
    )
    objects = [*map(parse_manifest, documents)]
    assert {type(obj) for obj in objects} == set(QUEUE_OBJECTS)
    for obj in objects:
        await store.queues.create(obj, author=Author("ada"))
        found = await store.queues.get(obj.kind, obj.name, namespace=obj.metadata.namespace)
        assert found.model_copy(update={"metadata": obj.metadata}) == obj


async def test_lists_are_sorted_and_filtered_by_namespace(store: Store):
    for name, namespace in (("z", "a"), ("b", "c"), ("b", "a")):
        await store.queues.create(local_queue(name, namespace), author=Author("ada"))
    found = await store.queues.list("LocalQueue")
    assert [(obj.metadata.namespace, obj.name) for obj in found] == [("a", "b"), ("a", "z"), ("c", "b")]
    assert [obj.name for obj in await store.queues.list("LocalQueue", namespace="a")] == ["b", "z"]


async def test_lists_read_only_objects_that_have_changed(store: Store):
    """Else a write would cost as much as there are objects, and applying thousands of them the square of that."""
    for name in ("a", "c", "d"):
        await store.queues.create(cluster_queue(name), author=Author("ada"))
    first = await store.queues.list("ClusterQueue")
    await store.queues.create(local_queue(), author=Author("ada"))
    assert await store.queues.list("ClusterQueue") is first
    await store.queues.create(cluster_queue("b"), author=Author("ada"))
    await store.queues.replace(cluster_queue("c", labels={"changed": "yes"}), author=Author("ada"))
    await store.queues.delete("ClusterQueue", "d", author=Author("ada"))
    second = await store.queues.list("ClusterQueue")
    assert [(obj.name, obj.metadata.labels) for obj in second] == [("a", {}), ("b", {}), ("c", {"changed": "yes"})]
    assert second[0] is first[0]


async def test_an_object_that_was_recreated_between_lists_is_read_again(store: Store):
    await store.queues.create(cluster_queue(), author=Author("ada"))
    await store.queues.list("ClusterQueue")
    await store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    recreated = await store.queues.create(cluster_queue(), author=Author("ada"))
    assert await store.queues.list("ClusterQueue") == (recreated,)


async def test_lists_read_all_objects_again_after_a_restore_with_the_same_revisions(store: Store):
    await store.queues.create(cluster_queue(), author=Author("ada"))
    await store.queues.list("ClusterQueue")
    async with store._database.write() as connection:
        await connection.execute(update(queue_object_versions).values(at=1.0))
        await connection.execute(update(queue_objects).values(labels={"restored": "yes"}))
    await store.queues.create(local_queue(), author=Author("ada"))
    (found,) = await store.queues.list("ClusterQueue")
    assert found.metadata.labels == {"restored": "yes"}


async def test_creation_of_an_existing_object_is_rejected(store: Store):
    await store.queues.create(flavor("spot"), author=Author("ada"))
    with pytest.raises(AlreadyExists, match='ResourceFlavor "spot" exists already'):
        await store.queues.create(flavor("spot"), author=Author("ada"))


@pytest.mark.parametrize("verb", ["get", "replace", "delete"])
async def test_missing_object_is_reported_as_not_found(store: Store, verb: str):
    verbs = {
        "get": lambda: store.queues.get("LocalQueue", "main", namespace="team-a"),
        "replace": lambda: store.queues.replace(local_queue(), author=Author("ada")),
        "delete": lambda: store.queues.delete("LocalQueue", "main", namespace="team-a", author=Author("ada")),
    }
    with pytest.raises(NotFound, match=r'^localqueues\.sluice\.dev "main" not found$'):
        await verbs[verb]()


async def test_generation_increases_only_with_changes_of_the_spec(store: Store):
    created = await store.queues.create(cluster_queue(), author=Author("ada"))
    same = await store.queues.replace(cluster_queue(), author=Author("ada"))
    assert same == created
    labelled = await store.queues.replace(cluster_queue(labels={"a": "b"}), author=Author("ada"))
    assert labelled.metadata.generation == 1
    assert int(labelled.metadata.resource_version) > int(created.metadata.resource_version)
    bigger = await store.queues.replace(cluster_queue(cpu="11", labels={"a": "b"}), author=Author("ada"))
    assert bigger.metadata.generation == 2
    assert bigger.metadata.uid == created.metadata.uid
    assert bigger.metadata.creation_timestamp == created.metadata.creation_timestamp


async def test_generation_increases_for_a_priority_class_which_has_no_spec(store: Store):
    await store.queues.create(priority_class("high", 1), author=Author("ada"))
    assert (await store.queues.replace(priority_class("high", 2), author=Author("ada"))).metadata.generation == 2


async def test_a_stale_resource_version_or_uid_is_a_conflict(store: Store):
    old = await store.queues.create(cluster_queue(), author=Author("ada"))
    await store.queues.replace(cluster_queue(cpu="11"), author=Author("bob"))
    with pytest.raises(Conflict, match="has changed meanwhile"):
        await store.queues.replace(
            cluster_queue(cpu="12", resourceVersion=old.metadata.resource_version), author=Author("ada")
        )
    with pytest.raises(Conflict, match="was deleted and recreated"):
        await store.queues.replace(cluster_queue(cpu="12", uid="00000000-0000"), author=Author("ada"))
    with pytest.raises(Conflict, match="has changed meanwhile"):
        await store.queues.delete(
            "ClusterQueue", "cq", resource_version=old.metadata.resource_version, author=Author("ada")
        )
    with pytest.raises(Conflict, match="was deleted and recreated"):
        await store.queues.delete("ClusterQueue", "cq", uid="00000000-0000", author=Author("ada"))
    current = await store.queues.get("ClusterQueue", "cq")
    assert isinstance(current, ClusterQueue)
    assert current.spec == cluster_queue(cpu="11").spec
    await store.queues.replace(
        cluster_queue(cpu="12", resourceVersion=current.metadata.resource_version, uid=current.metadata.uid),
        author=Author("ada"),
    )


async def test_single_writer_wins_among_concurrent_writers_with_preconditions(store: Store):
    read = await store.queues.create(cluster_queue(), author=Author("ada"))
    outcomes = await asyncio.gather(
        *(
            store.queues.replace(
                cluster_queue(cpu=str(100 + n), resourceVersion=read.metadata.resource_version), author=Author(str(n))
            )
            for n in range(5)
        ),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ClusterQueue", *["Conflict"] * 4]


async def test_dry_run_returns_results_and_conflicts_and_changes_nothing(store: Store):
    created = await store.queues.create(cluster_queue(), author=Author("ada"))
    revision, transactions = await store.queues.revision(), store.statistics.write_transactions
    would_be = await store.queues.create(flavor(), author=Author("ada"), dry_run=True)
    assert would_be.metadata.uid
    assert (
        await store.queues.replace(cluster_queue(cpu="11"), author=Author("ada"), dry_run=True)
    ).metadata.generation == 2
    assert await store.queues.delete("ClusterQueue", "cq", author=Author("ada"), dry_run=True)
    with pytest.raises(AlreadyExists):
        await store.queues.create(cluster_queue(), author=Author("ada"), dry_run=True)
    assert await store.queues.list(ResourceFlavor.kind) == ()
    assert await store.queues.get("ClusterQueue", "cq") == created
    assert await store.queues.revision() == revision
    assert len(await store.queues.changes_since(0)) == 1
    assert store.statistics.write_transactions == transactions


async def test_versions_have_author_time_and_reason_and_can_be_restored(store: Store, clock: Clock):
    first = await store.queues.create(cluster_queue(cpu="10"), author=Author("ada", reason="new team"))
    clock.advance(60)
    await store.queues.replace(cluster_queue(cpu="20"), author=Author("bob", reason="more money"))
    clock.advance(60)
    await store.queues.delete("ClusterQueue", "cq", author=Author("eve"))
    versions = await store.queues.versions("ClusterQueue", "cq")
    assert [(v.operation, v.author, v.reason, v.at - clock.now) for v in versions] == [
        ("create", "ada", "new team", -120),
        ("replace", "bob", "more money", -60),
        ("delete", "eve", "", 0),
    ]
    assert versions[0].object == first
    assert versions[2].object.spec == cluster_queue(cpu="20").spec
    restored = await store.queues.create(versions[0].object, author=Author("ada"))
    assert restored.spec == first.spec
    assert restored.metadata.uid != first.metadata.uid


@pytest.mark.parametrize("at_a_time", [1, 2, 500])
async def test_changes_since_a_revision_are_in_order_and_include_deletions(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_a_time: int
):
    monkeypatch.setattr(stored, "REPLAYED", at_a_time)
    created = await store.queues.create(flavor("a"), author=Author("ada"))
    await store.queues.create(flavor("b"), author=Author("ada"))
    await store.queues.delete("ResourceFlavor", "a", author=Author("ada"))
    changes = await store.queues.changes_since(int(created.metadata.resource_version))
    assert [(c.operation, c.object.name) for c in changes] == [("create", "b"), ("delete", "a")]
    assert await store.queues.changes_since(changes[-1].revision) == ()


async def test_cycle_of_cohorts_is_rejected_with_its_path(store: Store):
    await store.queues.create(cohort("a", "b"), author=Author("ada"))
    await store.queues.create(cohort("b", "c"), author=Author("ada"))
    with pytest.raises(InvalidObject, match="c -> a -> b -> c") as refusal:
        await store.queues.create(cohort("c", "a"), author=Author("ada"))
    assert [field for field, _ in refusal.value.causes] == ["spec.parentName"]
    await store.queues.create(cohort("c"), author=Author("ada"))
    with pytest.raises(InvalidObject, match="c -> a -> b -> c"):
        await store.queues.replace(cohort("c", "a"), author=Author("ada"))
    await store.queues.replace(cohort("b"), author=Author("ada"))
    await store.queues.replace(cohort("c", "a"), author=Author("ada"))
    assert len(await store.queues.list(Cohort.kind)) == 3


async def test_a_cluster_queue_in_use_cannot_be_deleted(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(cluster_queue(), author=Author("ada"))
    for name in "abcd":
        await store.queues.create(local_queue(name), author=Author("ada"))
    with pytest.raises(Conflict, match=r'"cq" is in use by LocalQueue team-a/a, team-a/b, team-a/c, \.\.\.; '):
        await store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    for name in "abcd":
        await store.queues.delete("LocalQueue", name, namespace="team-a", author=Author("ada"))
    await store.commit(admitted(workload("1"), admission(), at=1_750_000_000.0), epoch=epoch)
    with pytest.raises(Conflict, match='"cq" is in use by workload team-a/job-1; '):
        await store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    await store.commit(finished(workload("1"), at=1_750_000_000.0), epoch=epoch)
    await store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    assert await store.queues.list("ClusterQueue") == ()


async def test_a_cluster_queue_in_which_a_pending_workload_ran_can_be_deleted(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(cluster_queue(), author=Author("ada"))
    await store.commit(admitted(workload("1"), admission(), at=1_750_000_000.0), epoch=epoch)
    stopped = requeued(workload("1"), at=1_750_000_001.0)
    (record,) = stopped.workloads
    await store.commit(replace(stopped, workloads=(replace(record, cluster_queue="cq"),)), epoch=epoch)
    await store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    assert await store.queues.list("ClusterQueue") == ()


async def test_a_flavor_in_use_cannot_be_deleted(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(flavor("spot"), author=Author("ada"))
    await store.queues.create(cluster_queue(flavor="spot"), author=Author("ada"))
    with pytest.raises(Conflict, match='"spot" is in use by ClusterQueue cq; '):
        await store.queues.delete("ResourceFlavor", "spot", author=Author("ada"))
    await store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    one = workload("1")
    await store.commit(admitted(one, admission(flavor="spot"), at=1_750_000_000.0), epoch=epoch)
    with pytest.raises(Conflict, match='"spot" is in use by workload team-a/job-1; '):
        await store.queues.delete("ResourceFlavor", "spot", author=Author("ada"))
    await store.commit(finished(one, at=1_750_000_001.0), epoch=epoch)
    await store.queues.delete("ResourceFlavor", "spot", author=Author("ada"))


async def test_concurrent_writes_by_callback_lose_no_change(store: Store):
    async def add(label: str) -> None:
        def change(old: QueueObject | None) -> QueueObject:
            assert old is not None
            metadata = old.metadata.model_copy(update={"labels": {**old.metadata.labels, label: ""}})
            return old.model_copy(update={"metadata": metadata})

        await store.queues.write(("Cohort", "", "root"), change, author=Author("ada"))

    await store.queues.create(cohort("root"), author=Author("ada"))
    await asyncio.gather(*(add(f"l-{number}") for number in range(20)))
    assert len((await store.queues.get("Cohort", "root")).metadata.labels) == 20


async def test_callback_of_a_write_may_create_an_object_or_raise(store: Store):
    seen: list[QueueObject | None] = []

    def make(old: QueueObject | None) -> QueueObject:
        seen.append(old)
        return cohort("root")

    made = await store.queues.write(("Cohort", "", "root"), make, author=Author("ada"))
    assert (seen, made.metadata.generation) == ([None], 1)

    def refuse(old: QueueObject | None) -> QueueObject:
        raise NotFound("not so")

    revision = await store.queues.revision()
    with pytest.raises(NotFound, match="not so"):
        await store.queues.write(("Cohort", "", "root"), refuse, author=Author("ada"))
    assert await store.queues.revision() == revision


async def test_field_managers_are_kept_with_the_object_and_not_with_its_versions(store: Store):
    entry = {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:parentName": {}}}}
    wanted = cohort("root")
    metadata = wanted.metadata.model_copy(update={"managed_fields": (entry,)})
    created = await store.queues.create(wanted.model_copy(update={"metadata": metadata}), author=Author("ada"))
    assert created.metadata.managed_fields == (entry,)
    assert (await store.queues.get("Cohort", "root")).metadata.managed_fields == (entry,)
    (version,) = await store.queues.versions("Cohort", "root")
    assert version.object.metadata.managed_fields == ()


@pytest.mark.parametrize(("behind", "accepted"), [(-1, False), (0, True), (1, True), (2, False)])
async def test_replace_is_rejected_if_the_object_changed_after_the_given_version(
    store: Store, behind: int, accepted: bool
):
    one = await store.queues.create(cohort("one"), author=Author("ada"))
    await store.queues.create(cohort("other"), author=Author("ada"))  # a later revision, at which `one` is unchanged
    seen = str(int(one.metadata.resource_version) + behind)
    wanted = cohort("one", parent="root")
    wanted = wanted.model_copy(update={"metadata": wanted.metadata.model_copy(update={"resource_version": seen})})
    if accepted:
        await store.queues.replace(wanted, author=Author("ada"))
    else:
        with pytest.raises(Conflict, match="has changed meanwhile"):
            await store.queues.replace(wanted, author=Author("ada"))


def stop_reason(obj: QueueObject) -> str | None:
    return obj.metadata.annotations.get("sluice.dev/stop-reason")


async def test_reason_of_a_stop_is_annotated_while_a_queue_is_stopped(store: Store):
    """Only the store sets the annotation: a value written by a user is ignored."""

    async def write(policy: str, reason: str = "", **metadata: object) -> str | None:
        queue = {"metadata": {"name": "main", "namespace": "team-a", **metadata}}
        queue["spec"] = {"clusterQueue": "cq", "stopPolicy": policy}
        return stop_reason(
            await store.queues.replace(LocalQueue.model_validate(queue), author=Author("ada", reason=reason))
        )

    assert stop_reason(await store.queues.create(local_queue(), author=Author("ada", reason="a new team"))) is None
    assert await write("Hold", "maintenance\non Friday") == "maintenance on Friday"
    assert await write("Hold") == "maintenance on Friday"
    assert await write("Hold", "a label", labels={"team": "a"}) == "maintenance on Friday"
    assert await write("Hold", "it lasts", labels={"team": "a"}) == "it lasts"
    assert await write("HoldAndDrain") == "it lasts"
    assert await write("None", "done") is None
    assert await write("Hold") is None
    assert len(await write("Hold", "x" * 1000) or "") == 300
    forged = {"sluice.dev/stop-reason": "forged"}
    assert await write("None", annotations=forged) is None
    assert await write("Hold", annotations=forged) is None


async def test_budget_must_not_become_its_own_ancestor(store: Store):
    def budget(name: str, parent: str = "") -> Budget:
        spec = {"parent": parent, "resources": [{"name": "cpu", "hours": "1"}], "period": {"every": "Month"}}
        return Budget.model_validate({"metadata": {"name": name}, "spec": spec})

    for one in (budget("top"), budget("middle", "top"), budget("low", "middle"), budget("other", "missing")):
        await store.queues.create(one, author=Author("ada"))
    with pytest.raises(InvalidObject, match="closes a cycle of Budgets: top -> low -> middle -> top; name a parent"):
        await store.queues.replace(budget("top", "low"), author=Author("ada"))
    with pytest.raises(Conflict, match="is in use by Budget middle"):
        await store.queues.delete("Budget", "top", author=Author("ada"))
