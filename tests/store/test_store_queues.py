"""Queue objects: written with preconditions and checks, never without a version that says who and why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from store_examples import (
    admission,
    admitted,
    cluster_queue,
    cohort,
    finished,
    flavor,
    local_queue,
    pending,
    priority_class,
    workload,
)

from admission.model.errors import InvalidObject
from admission.model.queues import QUEUE_OBJECTS, ClusterQueue, Cohort, ResourceFlavor
from admission.store.errors import AlreadyExists, Conflict, NotFound
from admission.store.records import Changes

if TYPE_CHECKING:
    from conftest import Clock

    from admission.store.store import Store


async def test_what_is_created_is_there(store: Store, clock: Clock):
    wanted = cluster_queue(labels={"team": "a"}, annotations={"sluice.dev/note": "ü"})
    created = await store.queues.create(wanted, author="ada")
    assert created.spec == wanted.spec
    assert created.metadata.labels == {"team": "a"}
    assert created.metadata.annotations == {"sluice.dev/note": "ü"}
    assert created.metadata.generation == 1
    assert created.metadata.creation_timestamp is not None
    assert created.metadata.creation_timestamp.timestamp() == clock.now
    assert created.metadata.resource_version == str(await store.queues.revision())
    assert await store.queues.get("ClusterQueue", "cq") == created
    assert await store.queues.list("ClusterQueue") == (created,)


async def test_every_kind_comes_back_as_it_was(store: Store):
    objects = (flavor(), priority_class("high", 1000), cohort("root"), cluster_queue(), local_queue())
    assert {type(obj) for obj in objects} == set(QUEUE_OBJECTS)
    for obj in objects:
        await store.queues.create(obj, author="ada")
        found = await store.queues.get(obj.kind, obj.name, namespace=obj.metadata.namespace)
        assert found.model_copy(update={"metadata": obj.metadata}) == obj


async def test_lists_are_sorted_and_by_namespace(store: Store):
    for name, namespace in (("z", "a"), ("b", "c"), ("b", "a")):
        await store.queues.create(local_queue(name, namespace), author="ada")
    found = await store.queues.list("LocalQueue")
    assert [(obj.metadata.namespace, obj.name) for obj in found] == [("a", "b"), ("a", "z"), ("c", "b")]
    assert [obj.name for obj in await store.queues.list("LocalQueue", namespace="a")] == ["b", "z"]


async def test_creating_twice_is_refused(store: Store):
    await store.queues.create(flavor("spot"), author="ada")
    with pytest.raises(AlreadyExists, match='ResourceFlavor "spot" exists already'):
        await store.queues.create(flavor("spot"), author="ada")


@pytest.mark.parametrize("verb", ["get", "replace", "delete"])
async def test_what_is_not_there_is_not_found(store: Store, verb: str):
    verbs = {
        "get": lambda: store.queues.get("LocalQueue", "main", namespace="team-a"),
        "replace": lambda: store.queues.replace(local_queue(), author="ada"),
        "delete": lambda: store.queues.delete("LocalQueue", "main", namespace="team-a", author="ada"),
    }
    with pytest.raises(NotFound, match='LocalQueue "team-a/main" does not exist'):
        await verbs[verb]()


async def test_the_generation_counts_changes_of_the_content_only(store: Store):
    created = await store.queues.create(cluster_queue(), author="ada")
    same = await store.queues.replace(cluster_queue(), author="ada")
    assert same == created
    labelled = await store.queues.replace(cluster_queue(labels={"a": "b"}), author="ada")
    assert labelled.metadata.generation == 1
    assert int(labelled.metadata.resource_version) > int(created.metadata.resource_version)
    bigger = await store.queues.replace(cluster_queue(cpu="11", labels={"a": "b"}), author="ada")
    assert bigger.metadata.generation == 2
    assert bigger.metadata.uid == created.metadata.uid
    assert bigger.metadata.creation_timestamp == created.metadata.creation_timestamp


async def test_a_priority_class_without_spec_has_a_generation_too(store: Store):
    await store.queues.create(priority_class("high", 1), author="ada")
    assert (await store.queues.replace(priority_class("high", 2), author="ada")).metadata.generation == 2


async def test_a_stale_resource_version_or_uid_is_a_conflict(store: Store):
    old = await store.queues.create(cluster_queue(), author="ada")
    await store.queues.replace(cluster_queue(cpu="11"), author="bob")
    with pytest.raises(Conflict, match="has changed meanwhile"):
        await store.queues.replace(cluster_queue(cpu="12", resourceVersion=old.metadata.resource_version), author="ada")
    with pytest.raises(Conflict, match="was deleted and made anew"):
        await store.queues.replace(cluster_queue(cpu="12", uid="00000000-0000"), author="ada")
    with pytest.raises(Conflict, match="has changed meanwhile"):
        await store.queues.delete("ClusterQueue", "cq", resource_version=old.metadata.resource_version, author="ada")
    with pytest.raises(Conflict, match="was deleted and made anew"):
        await store.queues.delete("ClusterQueue", "cq", uid="00000000-0000", author="ada")
    current = await store.queues.get("ClusterQueue", "cq")
    assert isinstance(current, ClusterQueue)
    assert current.spec == cluster_queue(cpu="11").spec
    await store.queues.replace(
        cluster_queue(cpu="12", resourceVersion=current.metadata.resource_version, uid=current.metadata.uid),
        author="ada",
    )


async def test_of_concurrent_writers_with_preconditions_one_wins(store: Store):
    read = await store.queues.create(cluster_queue(), author="ada")
    outcomes = await asyncio.gather(
        *(
            store.queues.replace(
                cluster_queue(cpu=str(100 + n), resourceVersion=read.metadata.resource_version), author=str(n)
            )
            for n in range(5)
        ),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ClusterQueue", *["Conflict"] * 4]


async def test_a_dry_run_checks_everything_and_changes_nothing(store: Store):
    created = await store.queues.create(cluster_queue(), author="ada")
    revision, transactions = await store.queues.revision(), store.statistics.write_transactions
    would_be = await store.queues.create(flavor(), author="ada", dry_run=True)
    assert would_be.metadata.uid
    assert (await store.queues.replace(cluster_queue(cpu="11"), author="ada", dry_run=True)).metadata.generation == 2
    assert await store.queues.delete("ClusterQueue", "cq", author="ada", dry_run=True)
    with pytest.raises(AlreadyExists):
        await store.queues.create(cluster_queue(), author="ada", dry_run=True)
    assert await store.queues.list(ResourceFlavor.kind) == ()
    assert await store.queues.get("ClusterQueue", "cq") == created
    assert await store.queues.revision() == revision
    assert len(await store.queues.changes_since(0)) == 1
    assert store.statistics.write_transactions == transactions


async def test_every_version_says_who_when_and_why_and_can_be_restored(store: Store, clock: Clock):
    first = await store.queues.create(cluster_queue(cpu="10"), author="ada", reason="new team")
    clock.advance(60)
    await store.queues.replace(cluster_queue(cpu="20"), author="bob", reason="more money")
    clock.advance(60)
    await store.queues.delete("ClusterQueue", "cq", author="eve")
    versions = await store.queues.versions("ClusterQueue", "cq")
    assert [(v.operation, v.author, v.reason, v.at - clock.now) for v in versions] == [
        ("create", "ada", "new team", -120),
        ("replace", "bob", "more money", -60),
        ("delete", "eve", "", 0),
    ]
    assert versions[0].object == first
    assert versions[2].object.spec == cluster_queue(cpu="20").spec
    restored = await store.queues.create(versions[0].object, author="ada")
    assert restored.spec == first.spec
    assert restored.metadata.uid != first.metadata.uid


async def test_changes_since_a_revision_have_their_order_and_the_deletions(store: Store):
    created = await store.queues.create(flavor("a"), author="ada")
    await store.queues.create(flavor("b"), author="ada")
    await store.queues.delete("ResourceFlavor", "a", author="ada")
    changes = await store.queues.changes_since(int(created.metadata.resource_version))
    assert [(c.operation, c.object.name) for c in changes] == [("create", "b"), ("delete", "a")]
    assert await store.queues.changes_since(changes[-1].revision) == ()


async def test_whoever_waits_for_a_change_is_woken_by_it(store: Store):
    since = await store.queues.revision()
    waiting = [asyncio.create_task(store.queues_changed(since)) for _ in range(2)]
    await asyncio.sleep(0)
    await store.queues.create(flavor(), author="ada", dry_run=True)
    assert not any(task.done() for task in waiting)
    await store.queues.create(flavor(), author="ada")
    await asyncio.gather(*waiting)
    await store.queues_changed(since)


async def test_a_cycle_of_cohorts_is_refused_and_spelt_out(store: Store):
    await store.queues.create(cohort("a", "b"), author="ada")
    await store.queues.create(cohort("b", "c"), author="ada")
    with pytest.raises(InvalidObject, match="c -> a -> b -> c") as refusal:
        await store.queues.create(cohort("c", "a"), author="ada")
    assert [field for field, _ in refusal.value.causes] == ["spec.parentName"]
    await store.queues.create(cohort("c"), author="ada")
    with pytest.raises(InvalidObject, match="c -> a -> b -> c"):
        await store.queues.replace(cohort("c", "a"), author="ada")
    await store.queues.replace(cohort("b"), author="ada")
    await store.queues.replace(cohort("c", "a"), author="ada")
    assert len(await store.queues.list(Cohort.kind)) == 3


async def test_a_cluster_queue_in_use_cannot_be_deleted(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(cluster_queue(), author="ada")
    for name in "abcd":
        await store.queues.create(local_queue(name), author="ada")
    with pytest.raises(Conflict, match=r'"cq" is in use by LocalQueue team-a/a, team-a/b, team-a/c, \.\.\.; '):
        await store.queues.delete("ClusterQueue", "cq", author="ada")
    for name in "abcd":
        await store.queues.delete("LocalQueue", name, namespace="team-a", author="ada")
    await store.commit(Changes(workloads=(pending(workload("1"), cluster_queue="cq"),)), epoch=epoch)
    with pytest.raises(Conflict, match='"cq" is in use by workload team-a/job-1; '):
        await store.queues.delete("ClusterQueue", "cq", author="ada")
    await store.commit(finished(workload("1"), at=1_750_000_000.0), epoch=epoch)
    await store.queues.delete("ClusterQueue", "cq", author="ada")
    assert await store.queues.list("ClusterQueue") == ()


async def test_a_flavor_in_use_cannot_be_deleted(store: Store):
    epoch = await store.lead("test")
    await store.queues.create(flavor("spot"), author="ada")
    await store.queues.create(cluster_queue(flavor="spot"), author="ada")
    with pytest.raises(Conflict, match='"spot" is in use by ClusterQueue cq; '):
        await store.queues.delete("ResourceFlavor", "spot", author="ada")
    await store.queues.delete("ClusterQueue", "cq", author="ada")
    one = workload("1")
    await store.commit(admitted(one, admission(flavor="spot"), at=1_750_000_000.0), epoch=epoch)
    with pytest.raises(Conflict, match='"spot" is in use by workload team-a/job-1; '):
        await store.queues.delete("ResourceFlavor", "spot", author="ada")
    await store.commit(finished(one, at=1_750_000_001.0), epoch=epoch)
    await store.queues.delete("ResourceFlavor", "spot", author="ada")
