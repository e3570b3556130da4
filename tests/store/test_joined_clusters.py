"""What the leader stores of clusters: by its epoch only, and each cluster under one name."""

from __future__ import annotations

import pytest

from admission.model.capacity import Capacity, SeenCapacity
from admission.store.errors import StaleEpoch
from admission.store.joined_clusters import JoinedCluster


async def test_deposed_leader_writes_no_cluster(store):
    former = await store.lead("former")
    b = JoinedCluster("b", "uid-b", "Active", 1.0, "", key="of the former leader")
    await store.joined_clusters.note(b, epoch=former)
    epoch = await store.lead("present", elected=True)
    now = b._replace(key="of the present leader")
    await store.joined_clusters.note(now, epoch=epoch)
    with pytest.raises(StaleEpoch):
        await store.joined_clusters.note(b._replace(state="Lost"), epoch=former)
    with pytest.raises(StaleEpoch):
        await store.joined_clusters.keep((), epoch=former)
    assert await store.joined_clusters.load() == {"b": now}


async def test_cluster_is_written_under_its_first_name_only(store):
    epoch = await store.lead("test")
    await store.note_cluster("uid-of-local")
    b = JoinedCluster("b", "uid-b", "Active", 1.0, "")
    unknown = JoinedCluster("c", "", "Connecting", 1.0, "is not connected yet")
    assert [await store.joined_clusters.note(each, epoch=epoch) for each in (b, unknown, b)] == ["", "", ""]
    assert await store.joined_clusters.note(unknown._replace(identity="uid-b"), epoch=epoch) == "b"
    assert await store.joined_clusters.note(unknown._replace(identity="uid-of-local"), epoch=epoch) == "local"
    assert await store.joined_clusters.load() == {"b": b, "c": unknown}
    await store.joined_clusters.keep(["c"], epoch=epoch)
    assert await store.joined_clusters.note(unknown._replace(identity="uid-b"), epoch=epoch) == ""


async def test_capacity_stays_after_a_failure_and_goes_with_the_cluster(store):
    former = await store.lead("former")
    clusters = store.joined_clusters
    seen = SeenCapacity(7.0, Capacity(3, 2, 1, {"cpu": 2**63 - 1}, {"cpu": 1}, "only the first"))
    for name in ("b", "local"):
        await clusters.note_capacity(name, seen, epoch=former)
    failed = SeenCapacity(None, Capacity(), "no right")
    for name in ("b", "c"):
        await clusters.note_capacity(name, failed, epoch=former)
    after = SeenCapacity(7.0, seen.capacity, "no right")
    assert await clusters.capacities() == {"b": after, "c": failed, "local": seen}
    assert (after.message, seen.message) == ("no right", "only the first")

    epoch = await store.lead("present", elected=True)
    with pytest.raises(StaleEpoch):
        await clusters.note_capacity("b", failed, epoch=former)
    await clusters.note_capacity("b", seen, epoch=epoch)
    await clusters.keep(["b", "local"], epoch=epoch)
    assert await clusters.capacities() == {"b": seen, "local": seen}
    await clusters.keep(["local"], epoch=epoch)
    assert await clusters.capacities() == {}
