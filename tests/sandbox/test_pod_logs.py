"""The subresource `log`: output of simulated containers, as kubectl and `sluice logs` request it."""

import pytest

from admission.sandbox import Sandbox
from tests.user_permissions import allow

PODS = "/api/v1/namespaces/default/pods"
NODE = {"metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": {"cpu": "64", "memory": "64Gi", "pods": "100"}}}  # fmt: skip


def pod(name, *, containers=("main",), command=("sleep", "25"), node="n1", **annotations):
    notes = {f"sandbox.sluice.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    made = [{"name": each, "image": "i", "command": [*command]} for each in containers]
    spec = {"restartPolicy": "Never", "containers": made}
    return {"metadata": {"name": name, "annotations": notes}, "spec": spec | ({"nodeName": node} if node else {})}


@pytest.fixture
async def sandbox():
    async with Sandbox(speed=600) as running:
        await running.local("admin").create("nodes", "", {**NODE})
        yield running


async def log(http, name, **params):
    async with http.get(f"{PODS}/{name}/log", params=params) as response:
        return response.status, await response.text()


async def started(sandbox, name):
    """Wait until the kubelet has written the pod's container statuses."""
    async for changes in sandbox.local("admin").watch("pods"):
        for _, _, obj, _ in changes:
            if obj["metadata"]["name"] == name and obj["status"].get("containerStatuses"):
                return


async def test_followed_log_ends_with_the_container(sandbox, http):
    await sandbox.local("admin").create("pods", "default", pod("a"))
    await started(sandbox, "a")
    status, text = await log(http, "a", follow="true")
    assert status == 200
    first, *ticks, last = text.splitlines()
    assert (first, last) == ("a: simulating a run for 25 s: sleep 25", "ended with exit code 0")
    # On a slow machine the container may end late, with more ticks.
    assert ticks == [f"running for {10 * number} s" for number in range(1, max(2, len(ticks)) + 1)]
    assert (await log(http, "a"))[1] == text
    assert (await log(http, "a", tailLines="1"))[1] == "ended with exit code 0\n"
    stamp, _, line = (await log(http, "a", tailLines="1", timestamps="true"))[1].partition(" ")
    assert stamp.endswith("Z")
    assert line == "ended with exit code 0\n"


async def test_log_request_that_cannot_be_served_explains_the_reason(sandbox, http):
    local = sandbox.local("admin")
    await local.create("pods", "default", pod("two", containers=("main", "side")))
    await local.create("pods", "default", pod("stuck", start="unpullable"))
    await local.create("pods", "default", pod("nowhere", node="", start="unscheduled"))
    await started(sandbox, "two")
    await started(sandbox, "stuck")
    assert (await log(http, "nowhere"))[0] == 204
    status, text = await log(http, "two")
    assert (status, "a container name must be specified for pod two, choose one of: [main side]" in text) == (400, True)
    assert (await log(http, "two", container="side"))[0] == 200
    assert "container x is not valid for pod two" in (await log(http, "two", container="x"))[1]
    assert "is waiting to start: trying and failing to pull image" in (await log(http, "stuck"))[1]
    assert (await log(http, "none"))[0] == 404


async def test_log_request_needs_permission_for_pods_log_beyond_that_for_pods(sandbox, http):
    admin, alice = sandbox.local("admin"), {"Authorization": "Bearer alice-token"}
    await admin.create("pods", "default", pod("a"))
    await started(sandbox, "a")
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    await allow(admin, "alice", *rules, namespace="default", name="alice")
    async with http.get(f"{PODS}/a", headers=alice) as response:
        assert response.status == 200
    async with http.get(f"{PODS}/a/log", headers=alice) as response:
        assert response.status == 403
        assert 'cannot get resource "pods/log"' in (await response.json())["message"]

    rules = [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]
    await admin.patch("roles", "default", "alice", {"rules": rules})
    async with http.get(f"{PODS}/a/log", headers=alice) as response:
        assert response.status == 200
