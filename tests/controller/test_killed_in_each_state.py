"""`kill -9` of `sluice serve` in each state of a workload, with a manifest of every kind in that state."""

from __future__ import annotations

import pytest
from custom_kinds import restored_spec
from every_kind import EveryKind, plural_of, urgent

from admission.sandbox.background import background


@pytest.fixture
async def cluster(world, tmp_path):
    found = EveryKind(world, tmp_path)
    await found.prepare()
    controllers = {name: each.run() for name, each in found.controllers().items()}
    async with background(quota=found.watch_quota(), **controllers):
        await found.start()
        try:
            yield found
        finally:
            await found.kill()


def objects(cluster):
    """Return all objects as they are, by namespace, kind and name."""
    return {
        (namespace, obj["kind"], obj["metadata"]["name"]): cluster.user.get(
            plural_of(obj), namespace, obj["metadata"]["name"]
        )
        for namespace, case in cluster.cases.items()
        for obj in case.objects
    }


@pytest.mark.long
async def test_every_kind_continues_after_kill_in_each_state(cluster):
    user, faults = cluster.user, cluster.world.sandbox.faults
    for case in cluster.cases.values():
        await cluster.submit(case)
    waiting = await cluster.wait_for_state("pending")
    as_submitted = objects(cluster)
    await cluster.restart()
    assert await cluster.wait_for_state("pending") == waiting
    assert cluster.pods() == []

    # All workloads hold quota, but none is started, as the API server rejects all changes by Sluice.
    refused = {"do": "error", "code": 503}
    changes = [{"match": {"user": "sluice", "verb": "patch"}, **refused},
               {"match": {"user": "sluice", "verb": "create", "resource": ["jobs", "pods"]}, **refused}]  # fmt: skip
    faults.install({"rules": changes})
    await cluster.stop_queues(None)
    admitted = await cluster.wait_for_state("admitted")
    assert cluster.pods() == []
    await cluster.kill()
    faults.remove()
    await cluster.start()
    pods = await cluster.wait_until_ready()
    assert {uid: each[2] for uid, each in (await cluster.wait_for_state("admitted")).items()} == {
        uid: each[2] for uid, each in admitted.items()
    }
    await cluster.restart()
    assert await cluster.wait_until_ready() == pods
    running = await cluster.wait_for_state("admitted")
    assert running.keys() == admitted.keys()

    for each in cluster.pods():
        note = {"metadata": {"annotations": {"sandbox.sluice.dev/stop-seconds": "never"}}}
        await user.patch("pods", each["metadata"]["namespace"], each["metadata"]["name"], note)
    await cluster.stop_queues("HoldAndDrain")
    await cluster.wait_for_state("evicting")
    await cluster.restart()
    await cluster.wait_for_state("evicting")
    await cluster.kill()
    for each in cluster.pods():
        await user.delete("pods", each["metadata"]["namespace"], each["metadata"]["name"], grace=0)
    await cluster.start()
    for case in cluster.cases.values():
        if case.is_remade:
            await cluster.submit(case)
    await cluster.wait_for_state("pending")
    assert cluster.pods() == []
    restored = {key: obj["spec"] for key, obj in objects(cluster).items()}
    assert restored == {key: restored_spec(obj) for key, obj in as_submitted.items()}
    await cluster.stop_queues(None)
    await cluster.wait_until_ready()
    await cluster.wait_for_state("admitted")

    # Another object of the same kind, with a higher priority, takes the quota, and gives it back.
    await cluster.submit_urgent()
    await cluster.restart()
    await cluster.wait_until_run(urgent_ones=True)
    await cluster.delete_urgent()
    for case in cluster.cases.values():
        if case.is_remade and urgent(case):
            await cluster.submit(case)
    await cluster.wait_until_run(urgent_ones=False)

    await cluster.kill()
    await cluster.end_all()
    await cluster.start()
    await cluster.wait_until_finished()
    await cluster.restart()
    await cluster.wait_until_finished()
