"""Drains of flavors and nodes, from the Drain to pods that run elsewhere."""

from __future__ import annotations

import pytest
from job_examples import Object, is_gated, job, runs

from admission.controller.decisions.node_drains import NodeDrains
from admission.model import sentences
from admission.model.sentences import time
from admission.store.audit_log import Author


def drain(**spec: object) -> Object:
    return {"apiVersion": "sluice.dev/v1", "kind": "Drain", "metadata": {"name": "d"}, "spec": {"reason": "x", **spec}}


async def end(world) -> None:
    await (world.leading or world.store).queues.delete("Drain", "d", author=Author("test"))


async def evicted(world, name: str) -> str:
    """Wait until a Job was evicted by the drain, and return what its history says."""

    async def look() -> str:
        return next((text for reason, text in await world.history(name) if reason == "Drained"), "")

    text: str = await world.eventually(look)
    return text


@pytest.mark.costly
async def test_flavor_is_emptied_at_the_deadline_and_used_again_afterwards(world):
    await world.begin()
    await world.submit(job("runs"))
    await world.job("runs", runs)
    await world.apply(drain(flavors=["default"], deadline=time(world.clock() + 600)))
    await world.submit(job("waits"))
    waits = await world.record("waits", "pending", reason="Drained")
    assert waits.message == "Flavor default is drained: x."
    await world.job("runs", runs)
    await world.end()
    await world.start()
    world.pass_time(601)
    await world.job("runs", is_gated)
    assert await evicted(world, "runs") == sentences.evicted_by_drain("d", "x")
    await world.record("runs", "pending", reason="Drained")
    await end(world)
    await world.job("runs", runs)
    await world.job("waits", runs)


@pytest.mark.costly
async def test_job_on_a_node_without_topology_is_evicted_at_the_deadline(world):
    await world.begin()
    await world.submit(job("one"))
    await world.job("one", runs)

    async def bound() -> list[str]:
        return [pod["spec"]["nodeName"] for pod in world.user.list("pods", "team-a") if pod["spec"].get("nodeName")]

    (node,) = await world.eventually(bound)
    await world.user.patch("nodes", "", node, {"spec": {"unschedulable": True}})
    await world.apply(drain(nodes=[node], deadline=time(world.clock() + 30)))
    world.pass_time(31)
    assert "The deadline of Drain d has passed" in await evicted(world, "one")
    await world.job("one", runs)

    async def moved() -> list[str]:
        pods = world.user.list("pods", "team-a")
        return [each["spec"]["nodeName"] for each in pods if each["spec"].get("nodeName", node) != node]

    assert await world.eventually(moved)


@pytest.mark.costly
async def test_node_that_nobody_has_cordoned_evicts_nobody_again_and_again(world):
    await world.begin()
    for number in range(1, 4):
        await world.user.delete("nodes", "", f"node-{number}")
    await world.submit(job("one"))
    await world.job("one", lambda obj: obj.get("status", {}).get("ready") == 1)
    await world.apply(drain(nodes=["node-0"], deadline=time(world.clock() + 30)))
    world.pass_time(31)
    await evicted(world, "one")
    await world.job("one", lambda obj: runs(obj) and obj.get("status", {}).get("ready") == 1)
    looks = NodeDrains(
        world.store,
        lambda: {"local": world.controller.home},
        leads=lambda: True,
        faults=world.controller.faults,
    )
    await looks.look()
    await world.submit(job("two"))
    await world.job("two", runs)
    assert [reason for reason, _ in await world.history("one")].count("Drained") == 1
