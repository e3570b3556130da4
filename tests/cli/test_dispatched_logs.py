"""Pods and logs of a Job that runs in another cluster, for a user whom only the hub knows."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack

import aiohttp
import pytest
from serve_processes import NODE, job, serving
from serve_processes import sluice as sluice_process
from test_serve_clusters import DISPATCHING, Api, cluster

from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from admission.store.store import Store
from tests.queue_objects import cluster_queue, create_objects, local_queue, manifest
from tests.user_permissions import bind, create_roles

HERE = (
    manifest("ResourceFlavor", "in-local", spec={"clusters": ["local"]}),
    cluster_queue("here", flavor="in-local", cpu=2),
    local_queue("here", target="here"),
)
PATH = "/apis/sluice.dev/v1/namespaces/default/workloads"


def sent(name, pods, *, seconds=100_000):
    manifest = job(name, seconds=seconds)
    manifest["metadata"]["labels"] = {"sluice.dev/queue-name": "sent"}
    return {**manifest, "spec": {**manifest["spec"], "parallelism": pods, "completions": pods,
                                 "managedBy": "sluice.dev/dispatch"}}  # fmt: skip


@pytest.fixture
async def hub(tmp_path):
    """A hub in which alice may read logs in `default`, bob only workloads, and a cluster b that knows neither."""
    (tmp_path / "credentials").mkdir()
    async with AsyncExitStack() as stack:
        local, b = [await stack.enter_async_context(Sandbox(speed=60)) for _ in range(2)]
        local.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        local.write_kubeconfig(tmp_path / "alice", "alice")
        b.write_kubeconfig(tmp_path / "credentials" / "b.yaml", "sluice")
        admin = local.local("admin")
        await create_roles(admin)
        for role, user in (("view", "alice"), ("sluice-namespace-viewer", "alice"), ("sluice-namespace-viewer", "bob")):
            await bind(admin, role, user, namespace="default")
        for each in (local, b):
            await each.local("admin").create("nodes", "", NODE)
        url = f"sqlite:///{tmp_path / 'sluice.db'}"
        await ensure_ready(url)
        async with Store.open(url) as store:
            await create_objects(store, cluster("b"))
            await create_objects(store, *DISPATCHING, *HERE)
        credentials = f"--cluster-credentials={tmp_path / 'credentials'}"
        replica = await stack.enter_async_context(serving(tmp_path, url, "--admission=policies", credentials))
        await replica.until_ready()
        await Api(replica.url).until("b", "Active")
        yield replica, local, b


async def pods(replica, name, count):
    """Wait until the workload has so many running pods, and return their names and the name of the workload."""
    while True:
        _, text = await replica.get(PATH)
        for item in json.loads(text)["items"]:
            if item["spec"]["object"]["name"] != name:
                continue
            workload = item["metadata"]["name"]
            _, answer = await replica.get(f"{PATH}/{workload}/pods", token="alice-token")
            found = json.loads(answer)
            if sum(pod["phase"] == "Running" for pod in found.get("items", ())) == count:
                return [pod["name"] for pod in found["items"]], workload
        await asyncio.sleep(0.05)


async def finished(replica, workload):
    while json.loads((await replica.get(f"{PATH}/{workload}"))[1])["status"]["state"] != "finished":  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.mark.costly
async def test_logs_of_a_dispatched_job_are_those_of_its_own_pods_for_who_may_read_them_in_the_hub(hub, tmp_path):
    replica, local, b = hub
    there = b.local("admin")
    environment = {"KUBECONFIG": str(tmp_path / "alice"), "SLUICE_SERVER": replica.url, "SLUICE_TOKEN": "alice-token"}
    await local.local("admin").create("jobs", "default", sent("train", 2))
    names, workload = await pods(replica, "train", 2)
    (copy,) = [obj for obj in there.list("jobs") if obj["metadata"]["name"] == "train"]

    on_node = "/apis/sluice.dev/v1/reports/drain?node=node"
    (row,) = json.loads((await replica.get(f"{on_node}&cluster=b"))[1])["items"]
    assert (row["name"], row["pods"]) == ("train", 2)
    assert json.loads((await replica.get(on_node))[1])["items"] == []
    status, text = await replica.get(f"{on_node}&cluster=nowhere")
    assert (status, "has joined" in text) == (400, True)

    # Others in the namespace there use the labels, and whatever else they can write, of the Job and its pods.
    real = there.get("pods", "default", names[0])
    another = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "another", "controller": True}
    for name, owners in (("forged", []), ("adopted", [another])):
        metadata = {"name": name, "labels": real["metadata"]["labels"], "ownerReferences": owners}
        pod = {"metadata": metadata, "spec": {"containers": real["spec"]["containers"]}}
        await there.create("pods", "default", pod)
    marks = {key: copy["metadata"][key] for key in ("labels", "annotations")}
    await there.create("jobs", "default", {**job("other"), "metadata": {"name": "other", **marks}})
    assert (await pods(replica, "train", 2))[0] == names
    for name in ("forged", "adopted", "..", "x/../../secrets"):
        status, _ = await replica.get(f"{PATH}/{workload}/log?pod={name}", token="alice-token")
        assert status in (400, 404), name
    address = f"{PATH}/{workload}/log?pod={names[0]}"
    assert (await replica.get(address, token="bob-token"))[0] == 403
    assert (await replica.get(f"{PATH}/{workload}/pods", token="bob-token"))[0] == 403
    status, text = await replica.get(f"{address}&tailLines=1&timestamps=true", token="alice-token")
    assert status == 200
    assert text.split(" ", 1)[1].startswith((f"{names[0]}: simulating", "running for"))
    session = f"/session/namespaces/default/workloads/{workload}"
    assert names[1] in (await replica.get(f"{session}/pods", token="alice-token"))[1]
    status, text = await replica.get(f"{session}/log?pod={names[1]}", token="alice-token")
    assert f"{names[1]}: simulating a run" in json.loads(text)["text"]

    shown = await sluice_process("logs", "train", "--tail", "1", "-n", "default", **environment)
    out, err = await shown.communicate()
    assert (shown.returncode, err) == (0, b"")
    assert {line.split("]")[0] for line in out.decode().splitlines()} == {f"[{name}" for name in names}
    await local.local("admin").delete("jobs", "default", "train", propagation="Background")
    await local.local("admin").create("jobs", "default", sent("brief", 1, seconds=90))
    (name,), workload = await pods(replica, "brief", 1)
    followed = await sluice_process("logs", "brief", "--follow", "-n", "default", **environment)
    out, err = await followed.communicate()
    assert (followed.returncode, err) == (0, b"")
    lines = out.decode().splitlines()
    assert lines[0].startswith(f"{name}: simulating a run")
    assert lines[-1] == "ended with exit code 0"
    await finished(replica, workload)
    status, text = await replica.get(f"{PATH}/{workload}/log?pod={name}", token="alice-token")
    assert (status, text) == (200, out.decode())  # its copy stays as long as it does
    status, text = await replica.get(f"{PATH}/{workload}", token="alice-token")
    assert json.loads(text)["status"]["clusterName"] == "b"

    alone = {
        "metadata": {"name": "alone", "labels": {"sluice.dev/queue-name": "sent", "sluice.dev/managed": "true"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": real["spec"]["containers"],
            "schedulingGates": [{"name": "sluice.dev/admission"}],
        },
    }
    await local.local("admin").create("pods", "default", alone)
    assert (await pods(replica, "alone", 1))[0] == ["alone"]
    while local.local("admin").get("pods", "default", "alone")["status"].get("phase") != "Running":  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    shown = await sluice_process("logs", "alone", "--tail", "1", "-n", "default", **environment)
    out, err = await shown.communicate()
    assert (shown.returncode, err) == (0, b"")
    assert out.startswith((b"alone: simulating", b"running for"))


@pytest.mark.costly
async def test_logs_that_are_followed_in_the_hub_leave_the_leader_its_connections(hub):
    replica, local, _ = hub
    manifest = job("here", seconds=100_000)
    manifest["metadata"]["labels"] = {"sluice.dev/queue-name": "here"}
    await local.local("admin").create("jobs", "default", manifest)
    (name,), workload = await pods(replica, "here", 1)
    headers = {"Authorization": "Bearer alice-token"}
    address = f"{PATH}/{workload}/log?pod={name}&follow=true"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(replica.url, connector=connector, headers=headers) as session:
        answers = await asyncio.gather(*(session.get(address) for _ in range(45)))
        statuses = Counter(answer.status for answer in answers)
        assert statuses == {200: 30, 429: 15}
        await local.local("admin").create("jobs", "default", sent("later", 1))
        await pods(replica, "later", 1)  # meanwhile
        for answer in answers:
            answer.close()
        while True:  # their places are free when Sluice has seen that they have left
            async with session.get(address) as answer:
                if answer.status == 200:
                    break
            await asyncio.sleep(0.2)
