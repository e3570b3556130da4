"""Pods and logs of what runs in another cluster, for a user whom only the hub knows; also while that is cut off."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml
from serve_processes import NODE, TOKEN, job, serving
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


def gated(name, queue, *, group="", labels=None, **spec):
    """A pod as the webhook would gate it, in a group of two if that has a name."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    of_group = {"sluice.dev/pod-group-name": group} if group else {}
    return {
        "metadata": {
            "name": name,
            "labels": {"sluice.dev/queue-name": queue, "sluice.dev/managed": "true", **of_group, **(labels or {})},
            "annotations": {"sluice.dev/pod-group-total-count": "2", "sandbox.sluice.dev/run-seconds": "1000000"},
        },
        "spec": {"containers": [container], "schedulingGates": [{"name": "sluice.dev/admission"}], **spec},
    }


class Relay:
    """Forwards connections to a cluster, as long as it is not cut."""

    def __init__(self):
        self._writers = set()
        self.open = asyncio.Event()
        self.open.set()

    @asynccontextmanager
    async def to(self, kubeconfig):
        """Forward from a free port, which a kubeconfig is changed to."""
        content = yaml.safe_load(kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        self._target = urlsplit(cluster["server"])
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as server:
            cluster["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            kubeconfig.write_text(yaml.safe_dump(content))
            yield
            self.reset()

    def reset(self):
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader, writer):
        to_reader, to_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        ends = {writer, to_writer}
        self._writers |= ends
        with suppress(OSError):
            await asyncio.gather(self._pump(reader, to_writer), self._pump(to_reader, writer))
        self._writers -= ends
        for each in ends:
            each.close()

    async def _pump(self, reader, writer):
        while data := await reader.read(65536):
            await self.open.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def hub(tmp_path):
    """A hub in which alice may read logs in `default`, bob only workloads, and clusters b and c that know neither.

    Yields them with the `Relay` to b.
    """
    (tmp_path / "credentials").mkdir()
    async with AsyncExitStack() as stack:
        local, b, c = [await stack.enter_async_context(Sandbox(speed=60)) for _ in range(3)]
        local.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        local.write_kubeconfig(tmp_path / "alice", "alice")
        b.write_kubeconfig(tmp_path / "credentials" / "b.yaml", "sluice")
        c.write_kubeconfig(tmp_path / "credentials" / "c.yaml", "sluice")
        relay = Relay()
        await stack.enter_async_context(relay.to(tmp_path / "credentials" / "b.yaml"))
        admin = local.local("admin")
        await create_roles(admin)
        for role, user in (("view", "alice"), ("sluice-namespace-viewer", "alice"), ("sluice-namespace-viewer", "bob")):
            await bind(admin, role, user, namespace="default")
        for each in (local, b, c):
            await each.local("admin").create("nodes", "", NODE)
        url = f"sqlite:///{tmp_path / 'sluice.db'}"
        await ensure_ready(url)
        async with Store.open(url) as store:
            await create_objects(store, cluster("b"), cluster("c"))
            await create_objects(store, *DISPATCHING, *HERE)
        credentials = f"--cluster-credentials={tmp_path / 'credentials'}"
        replica = await stack.enter_async_context(serving(tmp_path, url, "--admission=policies", credentials))
        await replica.until_ready()
        for name in ("b", "c"):
            await Api(replica.url).until(name, "Active")
        yield replica, local, b, c, relay


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


async def until(replica, workload, state):
    while json.loads((await replica.get(f"{PATH}/{workload}"))[1])["status"]["state"] != state:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.mark.costly
async def test_logs_of_a_dispatched_job_are_those_of_its_own_pods_for_who_may_read_them_in_the_hub(hub, tmp_path):
    replica, local, b, *_ = hub
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
    # It might be a pod of the copy, whose owner others have taken away. The other one is deleted, as its owner is gone.
    await there.delete("pods", "default", "forged")
    await local.local("admin").delete("jobs", "default", "train", propagation="Background")
    await until(replica, workload, "finished")
    await local.local("admin").create("jobs", "default", sent("brief", 1, seconds=90))
    (name,), workload = await pods(replica, "brief", 1)
    followed = await sluice_process("logs", "brief", "--follow", "-n", "default", **environment)
    out, err = await followed.communicate()
    assert (followed.returncode, err) == (0, b"")
    lines = out.decode().splitlines()
    assert lines[0].startswith(f"{name}: simulating a run")
    assert lines[-1] == "ended with exit code 0"
    await until(replica, workload, "finished")
    status, text = await replica.get(f"{PATH}/{workload}/log?pod={name}", token="alice-token")
    assert (status, text) == (200, out.decode())  # its copy stays as long as it does
    status, text = await replica.get(f"{PATH}/{workload}", token="alice-token")
    assert json.loads(text)["status"]["clusterName"] == "b"

    alone = gated("alone", "sent", restartPolicy="Never")
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
    replica, local, *_ = hub
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


async def reported(replica, workload, expected):
    """Wait until the pods of a workload are these, by name their cluster and phase."""
    while True:
        _, answer = await replica.get(f"{PATH}/{workload}/pods", token="alice-token")
        found = {pod["name"]: (pod["cluster"], pod["phase"]) for pod in json.loads(answer).get("items", ())}
        if found == expected:
            return
        await asyncio.sleep(0.05)


async def output(*arguments, **environment):
    """Run a command that succeeds, and return its lines on both streams."""
    command = await sluice_process(*arguments, "-n", "default", **environment)
    out, err = await command.communicate()
    assert command.returncode == 0, err.decode()
    return out.decode().splitlines(), err.decode().splitlines()


@pytest.mark.costly
async def test_logs_of_a_group_are_those_of_its_own_copies_in_all_clusters_in_which_it_ran(hub, tmp_path):
    replica, local, b, *_ = hub
    here, there = local.local("admin"), b.local("admin")
    environment = {"KUBECONFIG": str(tmp_path / "alice"), "SLUICE_SERVER": replica.url, "SLUICE_TOKEN": "alice-token"}
    for name in ("g-0", "g-1"):
        await here.create("pods", "default", gated(name, "sent", group="g", restartPolicy="Never"))
    names, workload = await pods(replica, "g", 2)
    assert names == ["g-0", "g-1"]

    # Others in the namespace there use all that they can read of the copies.
    real = there.get("pods", "default", "g-0")
    marks = {key: real["metadata"][key] for key in ("labels", "annotations")}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "g-0", "uid": real["metadata"]["uid"], "controller": True}
    container = real["spec"]["containers"]
    for name, owners in (("forged", []), ("adopted", [owner])):
        metadata = {"name": name, "ownerReferences": owners, **marks}
        await there.create("pods", "default", {"metadata": metadata, "spec": {"containers": container}})
    await reported(replica, workload, dict.fromkeys(names, ("b", "Running")))
    for name in ("forged", "adopted"):
        assert (await replica.get(f"{PATH}/{workload}/log?pod={name}", token="alice-token"))[0] == 404
    for path in ("pods", "log?pod=g-0"):
        assert (await replica.get(f"{PATH}/{workload}/{path}", token="bob-token"))[0] == 403
    lines, err = await output("logs", "g", "--tail", "1", **environment)
    assert ({line.split("]")[0] for line in lines}, err) == ({"[g-0", "[g-1"}, [])
    lines, _ = await output("describe", "workload", "g", **environment)
    shown = lines[lines.index("Pods in the cluster b:") + 2 :]
    assert [line.split() for line in shown[:2]] == [[name, "Running", "node"] for name in names]

    status, audit = await replica.get("/apis/sluice.dev/v1/audits")
    assert (status, json.loads(audit)["items"]) == (200, [])

    # A group whose pods are created in b is for those whom b lets read its pods.
    for name in ("own-0", "own-1"):
        await there.create("pods", "default", gated(name, "sent", group="own", restartPolicy="Never"))

    async def of_b():
        items = json.loads((await replica.get(PATH))[1])["items"]
        return [item["metadata"]["name"] for item in items if item["spec"].get("cluster") == "b"]

    while not (found := await of_b()):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for path in ("pods", "log?pod=own-0"):
        status, text = await replica.get(f"{PATH}/{found[0]}/{path}", token="alice-token")
        assert (status, "in the cluster b: look at them there" in text) == (503, True)
    for name in ("own-0", "own-1"):
        await there.delete("pods", "default", name)

    # It goes on in c, without the pod that has succeeded.
    await there.patch("pods", "default", "g-0", {"status": {"phase": "Succeeded"}}, subresource="status")
    while here.get("pods", "default", "g-0")["status"]["phase"] != "Succeeded":  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await output("hold", "g", SLUICE_SERVER=replica.url, SLUICE_TOKEN=TOKEN)
    await until(replica, workload, "pending")
    await reported(replica, workload, {"g-0": ("b", "Succeeded")})
    await here.create("jobs", "default", sent("fill", 2))
    await pods(replica, "fill", 2)
    await output("release", "g", SLUICE_SERVER=replica.url, SLUICE_TOKEN=TOKEN)
    await reported(replica, workload, {"g-0": ("b", "Succeeded"), "g-1": ("c", "Running")})
    lines, err = await output("logs", "g", "--tail", "1", **environment)
    assert ({line.split("]")[0] for line in lines}, err) == ({"[g-0", "[g-1"}, [])
    refused = {"match": {"user": "sluice", "verb": "list", "resource": "pods"}, "do": "error", "code": 403}
    b.faults.install({"rules": [refused]})
    lines, (warning,) = await output("logs", "g", "--tail", "1", **environment)
    assert lines[0].startswith(("g-1: simulating", "running for"))
    assert warning.startswith("warning: pods of a former run are not shown: Sluice itself lacks the right")
    b.faults.remove()
    following = asyncio.create_task(output("logs", "g", "--follow", "--tail", "0", **environment))
    for name in names:
        await here.delete("pods", "default", name)
    await following
    await until(replica, workload, "finished")


@pytest.mark.costly
async def test_logs_of_a_stateful_set_are_found_by_its_name_in_the_hub(hub, tmp_path):
    replica, local, *_ = hub
    here = local.local("admin")
    environment = {"KUBECONFIG": str(tmp_path / "alice"), "SLUICE_SERVER": replica.url, "SLUICE_TOKEN": "alice-token"}
    template = gated("", "here", labels={"app": "web"})
    spec = {
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
    }
    metadata = {"name": "web", "labels": {"sluice.dev/queue-name": "here"}}
    await here.create("statefulsets", "default", {"metadata": metadata, "spec": spec})
    names, _ = await pods(replica, "web", 2)
    assert names == ["web-0", "web-1"]
    lines, err = await output("logs", "web", "--tail", "1", **environment)
    assert ({line.split("]")[0] for line in lines}, err) == ({"[web-0", "[web-1"}, [])
    (row,) = json.loads((await replica.get("/apis/sluice.dev/v1/reports/drain?node=node"))[1])["items"]
    assert (row["name"], row["pods"]) == ("web", 2)


@pytest.mark.costly
async def test_log_that_is_followed_goes_on_after_a_cut_and_ends_with_a_sentence_while_its_cluster_does_not_answer(
    hub, tmp_path
):
    replica, local, _, _, relay = hub
    environment = {"KUBECONFIG": str(tmp_path / "alice"), "SLUICE_SERVER": replica.url, "SLUICE_TOKEN": "alice-token"}
    await local.local("admin").create("jobs", "default", sent("train", 1))
    await pods(replica, "train", 1)
    followed = await sluice_process("logs", "train", "--follow", "-n", "default", **environment)
    assert b"simulating" in await followed.stdout.readline()
    relay.reset()
    noted = (await followed.stderr.readline()).decode()
    assert noted.startswith("note: the log of train-")
    assert "is incomplete" in noted
    await followed.stdout.readline()  # what is written after the cut
    relay.open.clear()
    _, err = await followed.communicate()
    assert followed.returncode == 1
    *_, last = err.decode().splitlines()
    assert last.startswith("error: the cluster b did not answer the request for pods")
    assert "Traceback" not in err.decode()
