"""Failure recovery: pods that stay terminating on an unreachable node free their quota, if their users permit it."""

from __future__ import annotations

from contextlib import closing

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.controller.state.policy import ControllerPolicy, FailureRecoveryRules
from admission.engine.vocabulary import WAITING_FOR_QUOTA

POLICY = ControllerPolicy(failure_recovery=FailureRecoveryRules(grace=60.0, interval=0.05))
PERMITTED = "safe-to-forcefully-delete"
UNREACHABLE = "node.kubernetes.io/unreachable"


async def lose(world, name: str, **annotations: str) -> str:
    """Let the only pod of a deleted Job stay terminating on a node that is unreachable; return its name."""
    made = job(name, cpu="1")
    template = made["spec"]["template"]
    template["metadata"]["annotations"] |= {"sandbox.sluice.dev/stop-seconds": "never", **annotations}
    template["spec"]["terminationGracePeriodSeconds"] = 1
    await world.submit(made)

    async def bound():
        pods = world.user.list("pods", "team-a")
        return next((pod for pod in pods if pod["metadata"]["labels"].get("job-name") == name and on_node(pod)), None)

    pod = await world.eventually(bound)
    node = pod["spec"]["nodeName"]
    taints = world.user.get("nodes", "", node)["spec"].get("taints") or []
    if not any(each["key"] == UNREACHABLE for each in taints):
        taints = [*taints, {"key": UNREACHABLE, "effect": "NoExecute"}]
        await world.user.patch("nodes", "", node, {"spec": {"taints": taints}})
    await world.user.delete("jobs", "team-a", name, propagation="Background")
    await world.record(name, "evicting", reason="Deleted")
    return pod["metadata"]["name"]


def on_node(pod) -> bool:
    return bool(pod["spec"].get("nodeName"))


@pytest.mark.costly
@pytest.mark.parametrize("domain", ["sluice.dev", "kueue.x-k8s.io"])
async def test_pods_on_unreachable_nodes_free_their_quota_if_that_is_permitted(world, domain):
    await world.apply(flavor(), cluster_queue(cpu="2"), local_queue())
    await world.start(POLICY)
    world.pass_time(7200)  # the clock of the cluster's API server is behind now
    kept = await lose(world, "kept", **{f"{domain}/{PERMITTED}": "false"})
    lost = await lose(world, "lost", **{f"{domain}/{PERMITTED}": "true"})
    for name in ("next", "last"):
        await world.submit(job(name, cpu="1"))
        await world.record(name, "pending", reason=WAITING_FOR_QUOTA)
    looks = world.sandbox.requests["GET", "pods", "sluice"]

    async def has_looked():
        return world.sandbox.requests["GET", "pods", "sluice"] > looks + 5

    await world.eventually(has_looked)
    assert world.user.get("pods", "team-a", lost)["status"]["phase"] != "Failed"
    with closing(world.user.watch("pods")) as watcher:
        world.pass_time(120)
        await world.job("next", runs)
        seen = []
        async for batch in watcher:
            seen += [(change, obj) for _, change, obj, _ in batch if obj["metadata"]["name"] == lost]
            if seen and seen[-1][0] == "DELETED":
                break
    (told,) = (each for each in seen[-1][1]["status"]["conditions"] if each["type"] == "SluiceFailureRecovery")
    assert (seen[-1][1]["status"]["phase"], told["reason"]) == ("Failed", "ForcefullyTerminated")
    assert "ForcefullyTerminated" in [reason for reason, _ in await world.history("lost")]

    async def noted():
        events = world.user.list("events", "team-a")
        return [each for each in events if each["reason"] == "ForcefullyTerminated"]

    (event,) = await world.eventually(noted)
    assert event["involvedObject"]["name"] == lost
    assert world.user.get("pods", "team-a", kept) is not None
    await world.record("last", "pending", reason=WAITING_FOR_QUOTA)
