"""What the observer of the fuzz counts as a violation, where `cures.py` does not show it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from fractions import Fraction

import pytest

from admission.sandbox.sandbox import Sandbox
from tests.fuzz.documents import QUEUE_LABELS, simple_job
from tests.fuzz.findings import Finding
from tests.fuzz.observer import Observer
from tests.fuzz.pod_rules import orphans_of_jobs
from tests.fuzz.topology_documents import HOST, NODES, RACK, REQUIRED
from tests.fuzz.topology_rules import check_placed, half_ungated, without_place


@pytest.fixture
async def watched():
    """Cluster without Sluice, in which every Job starts immediately, and its observer."""
    async with Sandbox(speed=60) as sandbox:
        observer = Observer(sandbox.local("admin"), {"default": "alice"})
        watching = asyncio.create_task(observer.run())
        yield sandbox.local("alice"), observer
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def suspended(name, queue, **fields):
    body = simple_job(name, queue, **fields)
    body["spec"]["suspend"] = True
    return body


async def wait_for_pods(observer, uid, count):
    while observer.alive(uid) < count:  # noqa: ASYNC110  the sandbox creates them
        await asyncio.sleep(0.01)


async def test_pods_of_a_formerly_queued_job_count_after_its_label_is_removed(watched):
    alice, observer = watched
    created = await alice.create("jobs", "default", suspended("freed", "nowhere", seconds=10_000))
    freed = {"metadata": {"labels": None}, "spec": {"suspend": False}}
    await alice.patch("jobs", "default", "freed", freed)
    unqueued = await alice.create("jobs", "default", simple_job("unqueued", "", seconds=10_000))
    await wait_for_pods(observer, created["metadata"]["uid"], 1)
    assert observer.violation is not None
    assert "1 of 0 main cpu of no ClusterQueue: 1 of default/freed" in observer.violation.details
    assert observer.alive(unqueued["metadata"]["uid"]) == 0


async def test_job_moved_from_a_boundless_queue_counts_against_the_new_queue(watched):
    alice, observer = watched
    observer.note_quota("cq", Fraction(4))
    observer.note_local_queue("default", "lq", "cq")
    observer.note_boundless("default", "vast")
    huge = await alice.create("jobs", "default", simple_job("huge", "vast", pods=5, seconds=10_000))
    moved = await alice.create("jobs", "default", suspended("moved", "vast", pods=5, seconds=10_000))
    await alice.patch("jobs", "default", "moved", {"metadata": {"labels": {QUEUE_LABELS[0]: "lq"}}})
    await alice.patch("jobs", "default", "moved", {"spec": {"suspend": False}})
    await wait_for_pods(observer, moved["metadata"]["uid"], 5)
    assert observer.violation is not None
    assert observer.violation.details == "5 of 4 main cpu of cq: 5 of default/moved (1 cpu each)"
    assert observer.alive(huge["metadata"]["uid"]) == 0


def test_running_pods_of_a_deleted_job_are_its_orphans():
    labels = {"batch.kubernetes.io/controller-uid": "train"}
    owned, orphan, bare = (on_the_floor("floor-000", number) for number in range(3))
    for pod in (owned, orphan):
        pod["metadata"]["labels"] = labels
    for pod in (orphan, bare):
        del pod["metadata"]["ownerReferences"]
    ended = {**orphan, "status": {"phase": "Succeeded"}}
    stopping = {**orphan, "metadata": {**orphan["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert orphans_of_jobs([owned, orphan, bare, ended, stopping]) == [orphan]


def on_the_floor(node, number, *, gated=False, cpu="1"):
    """Return a pod of a Job that requires one rack."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    placed = {"schedulingGates": [{"name": "sluice.dev/topology"}]} if gated else {"nodeSelector": {HOST: node}}
    return {
        "metadata": {
            "name": f"train-{number}",
            "namespace": "a",
            "annotations": {"sluice.dev/topology-pod-set": "main", REQUIRED: RACK},
            "ownerReferences": [{"uid": "train"}],
        },
        "spec": {"containers": [container], **placed},
    }


def test_placed_pods_above_a_node_or_in_two_racks_are_found():
    values = {(node, label): {value} for node, labels in NODES.items() for label, value in labels.items()}
    fitting = [on_the_floor("floor-000", 0), on_the_floor("floor-001", 1), on_the_floor("floor-001", 2)]
    check_placed(fitting, values)
    with pytest.raises(Finding, match="3 of 2 cpu of floor-001"):
        check_placed([*fitting, on_the_floor("floor-001", 3)], values)
    elsewhere = [*fitting, on_the_floor("floor-010", 3)]
    with pytest.raises(Finding, match="a required domain is left"):
        check_placed(elsewhere, values)
    check_placed(elsewhere, {**values, ("floor-010", RACK): {"b0r1", "b0r0"}})  # it was in this rack meanwhile


def test_pods_that_wait_for_their_node_or_have_no_place_are_found():
    pods = [on_the_floor("floor-000", 0), on_the_floor("floor-000", 1), on_the_floor("", 2, gated=True)]
    waits, nodes = ["a/train-2 waits for its node"], set(NODES)
    assert half_ungated(pods, {}, nodes) == waits
    assert half_ungated(pods, {("train", "floor-000"): 3}, nodes) == waits
    assert half_ungated(pods, {("train", "floor-000"): 2}, nodes) == []  # an orphan has the place
    moved = {("train", "floor-000"): 2, ("train", "floor-001"): 1}
    assert half_ungated(pods, moved, nodes) == waits
    assert half_ungated(pods, moved, nodes - {"floor-001"}) == []
    assert without_place(pods, {("train", "floor-000"): 2}) == []
    assert without_place(pods, {("train", "floor-000"): 1}) == ["train has 2 pods on floor-000, and 1 places"]
    ended = {**pods[1], "status": {"phase": "Succeeded"}}
    assert without_place([pods[0], ended], {("train", "floor-000"): 1}) == []
