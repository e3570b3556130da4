"""Warnings on writes of queues and on moves of workloads: namespaces, too long names, restarts of stopped queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from api_client import PREFIX, Client
from one_queue import DRY, MERGE, job, one_queue, submitted
from queue_objects import cluster_queue, local_queue

from admission.store.store import Store


@pytest.fixture
async def api(store: Store, clock: Callable[[], float]) -> AsyncIterator[Client]:
    """A flavor, the ClusterQueue `one` with 4 CPUs, and the LocalQueue `main` of namespace `a`."""
    async with one_queue(store, clock) as client:
        yield client


async def test_local_queue_in_a_missing_or_unselected_namespace_is_a_warning(api: Client) -> None:
    created = await api.post(f"{PREFIX}/namespaces/c/localqueues", local_queue("main", "c", "one"))
    missing = "there is no namespace c; nothing is admitted before it is created"
    assert (created.status, created.headers.getall("Warning")) == (201, [f'299 - "{missing}"'])
    picky = cluster_queue("picky", namespaceSelector={"matchLabels": {"team": "x"}})
    assert (await api.post(f"{PREFIX}/clusterqueues", picky)).status == 201
    created = await api.post(f"{PREFIX}/namespaces/b/localqueues", local_queue("main", "b", "picky"))
    assert "ClusterQueue picky admits nothing of namespace b: its spec.namespaceSelector" in created.headers["Warning"]
    fine = await api.post(f"{PREFIX}/namespaces/b/localqueues", local_queue("other", "b", "one"))
    assert "Warning" not in fine.headers


async def test_local_queue_name_too_long_for_a_label_is_a_warning(api: Client) -> None:
    for characters, warned in ((63, False), (64, True)):
        created = await api.post(f"{PREFIX}/namespaces/b/localqueues", local_queue("q" * characters, "b", "one"))
        assert created.status == 201
        assert ("labels have at most 63" in created.headers.get("Warning", "")) is warned


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
async def test_replacement_that_restarts_a_stopped_cluster_queue_is_a_warning(api: Client, policy: str) -> None:
    url = f"{PREFIX}/clusterqueues/one"
    manifest = (await api.get(url)).body
    stopped = await api.send("PATCH", url, {"spec": {"stopPolicy": policy}}, headers=MERGE)
    kept = await api.send("PUT", url, stopped.body)
    assert "Warning" not in kept.headers
    del manifest["metadata"]["resourceVersion"]
    replaced = await api.send("PUT", url, manifest)
    assert replaced.body["spec"].get("stopPolicy", "None") == "None"
    assert (
        f"ClusterQueue one was stopped (spec.stopPolicy: {policy}), and admits workloads again"
        in replaced.headers["Warning"]
    )


async def test_move_to_a_queue_that_does_not_select_the_namespace_is_a_warning(api: Client, store: Store) -> None:
    picky = cluster_queue("picky", namespaceSelector={"matchLabels": {"team": "x"}})
    await api.post(f"{PREFIX}/clusterqueues", picky)
    await api.post(f"{PREFIX}/namespaces/a/localqueues", local_queue("strange", "a", "picky"))
    await submitted(store, job("train"))

    async def moved(queue: str, **options: str) -> list[str]:
        url, patch = f"{PREFIX}/namespaces/a/workloads/train", {"spec": {"queueName": queue}}
        answer = await api.send("PATCH", url, patch, params=options, headers=MERGE)
        assert answer.status == 200, answer.body
        return [*answer.headers.getall("Warning", [])]

    says = "ClusterQueue picky admits nothing of namespace a: its spec.namespaceSelector"
    (tried,) = await moved("strange", **DRY)
    (done,) = await moved("strange")
    assert says in tried
    assert says in done
    assert await moved("strange") == []  # the workload is in this queue already
    assert await moved("main") == []
