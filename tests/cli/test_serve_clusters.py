"""`sluice serve` for three clusters: one quota for all, also while one is cut off, and after the process was killed."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime

import aiohttp
import pytest
from gate_callers import standalone_gate
from ports import free_port
from serve_processes import AUTHORIZATION, NODE, QUEUES, all_complete, job, serving

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from admission.store.store import Store
from tests.queue_objects import cluster_queue, create_objects, local_queue, manifest
from webhooks.certificates import Certificates

QUOTA, EACH, FEW = 4, 12, 2
"""Pods of 1 CPU that may run at the same time; Jobs of one such pod in each cluster, and in the one that is cut off, so
that the others have quota."""
PREFIX = "/apis/sluice.dev/v1"
SHORT = ("--lease=default/sluice", "--lease-duration=4", "--renew-deadline=3", "--retry-period=0.5")


class Observer:
    """Counts the pods that have a node, over all clusters, as often as it can."""

    def __init__(self, *sandboxes: Sandbox) -> None:
        self._users = [sandbox.local("admin") for sandbox in sandboxes]
        self.most = self.looks = 0

    def look(self) -> int:
        pods = [pod for user in self._users for pod in user.list("pods")]
        now = sum(
            "nodeName" in pod["spec"] and pod["status"].get("phase") not in ("Succeeded", "Failed") for pod in pods
        )
        self.most, self.looks = max(self.most, now), self.looks + 1
        return now

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.005)


class Api:
    """Requests to the REST API as its admin."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def post(self, path: str, body: object) -> tuple[int, list[str]]:
        """Return status and warnings."""
        async with (
            aiohttp.ClientSession(self._url) as session,
            session.post(f"{PREFIX}/{path}", json=body, headers=AUTHORIZATION) as answer,
        ):
            return answer.status, [text.split('"')[1] for text in answer.headers.getall("Warning", [])]

    async def get(self, path: str) -> dict:
        async with (
            aiohttp.ClientSession(self._url) as session,
            session.get(f"{PREFIX}/{path}", headers=AUTHORIZATION) as answer,
        ):
            return json.loads(await answer.text())

    async def until(self, name: str, state: str) -> dict:
        """Wait until a Cluster has this state, and return its status."""
        while True:
            with suppress(aiohttp.ClientError):
                status = (await self.get(f"clusters/{name}")).get("status", {})
                if status.get("state") == state:
                    return status
            await asyncio.sleep(0.05)


def cluster(name: str, **spec: object) -> dict:
    return {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"kubeconfig": f"{name}.yaml", **spec}}  # fmt: skip


@pytest.fixture
async def sandboxes(tmp_path):
    """Three clusters with a node each; `local` is named in `kubeconfig`, b and c in the directory of credentials."""
    (tmp_path / "credentials").mkdir()
    async with AsyncExitStack() as stack:
        found = []
        for file in ("kubeconfig", "credentials/b.yaml", "credentials/c.yaml"):
            sandbox = await stack.enter_async_context(Sandbox(speed=60))
            sandbox.write_kubeconfig(tmp_path / file, "sluice")
            await sandbox.local("admin").create("nodes", "", NODE)
            found.append(sandbox)
        yield found


@pytest.fixture
async def database_url(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await ensure_ready(url)
    await create_objects(url, QUEUES)
    return url


@pytest.fixture
def postgresql_url(migrated_databases):
    with migrated_databases.one() as url:
        yield url


@pytest.mark.costly
async def test_three_clusters_never_exceed_one_quota_through_a_cut_and_a_kill(sandboxes, database_url, tmp_path):
    local, b, c = sandboxes
    gate_folder, gate_port, port = tmp_path / "gate", free_port(), free_port()
    certificates = Certificates(gate_folder, ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.renew()
    (tmp_path / "credentials" / "b.crt").write_bytes(certificates.ca_bundle)
    options = ("--admission=policies", f"--cluster-credentials={tmp_path / 'credentials'}")
    observer = Observer(local, b, c)
    api = Api(f"http://127.0.0.1:{port}")
    watching = asyncio.create_task(observer.run())
    async with standalone_gate(gate_folder, gate_port):
        async with serving(tmp_path, database_url, *options, port=port) as replica:
            await replica.until_ready()
            webhook = {"url": f"https://127.0.0.1:{gate_port}", "caFile": "b.crt"}
            assert await api.post("clusters", cluster("b", webhook=webhook)) == (201, [])
            status, warnings = await api.post("clusters", cluster("x"))
            assert status == 201
            assert "x.yaml" in warnings[0]
            assert await api.post("clusters", cluster("c")) == (201, [])
            await api.until("b", "Active")
            await api.until("c", "Active")
            assert (await api.until("x", "Connecting"))["message"].startswith("it cannot be used")
            await gated(b, "mutatingwebhookconfigurations")
            await gated(c, "mutatingadmissionpolicies")
            for number in range(QUOTA):
                await local.local("admin").create("jobs", "default", job(f"j{number}", seconds=1_000_000))
            await running(observer)
            for sandbox, first, count in ((local, QUOTA, EACH), (b, 0, EACH), (c, 0, FEW)):
                for number in range(first, count):
                    await sandbox.local("admin").create("jobs", "default", job(f"j{number}", seconds=60))
            report = await reported(api, 2 * EACH + FEW)
            here = await api.get("workloads?fieldSelector=spec.cluster%3Db")
            assert {item["spec"]["cluster"] for item in here["items"]} == {"b"}

            text = ""
            while 'sluice_cluster_nodes{cluster="local"' not in text:
                _, text = await replica.get("/metrics")
            assert 'sluice_cluster_lost{cluster="b"} 0' in text
            assert 'sluice_cluster_lost{cluster="x"} 1' in text
            assert 'sluice_cluster_pending_workloads{cluster="b"}' in text
            for name in ("local", "b", "c"):
                assert f'sluice_cluster_nodes{{cluster="{name}",state="schedulable"}} 1.0' in text
                assert f'sluice_cluster_allocatable{{cluster="{name}",resource="cpu"}} 8.0' in text
            assert [*report] == ["local", "b", "c", "x"]
            assert report["x"]["state"] == "Connecting"
            assert sum(each["reservingWorkloads"] for each in report.values()) == QUOTA
            assert sum(int(usage["used"]) for each in report.values() for usage in each["usage"]) == QUOTA
            assert report["b"]["flavors"] == ["default"]

            for pod in local.local("admin").list("pods"):  # the first ones end, and the others run
                done = {"status": {"phase": "Succeeded"}}
                await local.local("admin").patch("pods", "default", pod["metadata"]["name"], done, subresource="status")
            c.faults.install({"rules": [{"do": "closeWatches", "abrupt": True}, {"do": "drop"}]})
            await api.until("c", "Lost")
            await some_complete(local, 1)
            replica.send(signal.SIGKILL)
            await replica.process.wait()
        async with serving(tmp_path, database_url, *options, port=port) as replica:
            await replica.until_ready()
            await some_complete(b, 2)
            c.faults.remove()
            await api.until("c", "Active")
            for sandbox, count in zip(sandboxes, (EACH, EACH, FEW), strict=True):
                await all_complete(sandbox.local("admin"), count)
            status, text = await replica.get("/apis/sluice.dev/v1/reports/usage?by=cluster&resource=cpu&from=1h")
            assert {item["cluster"] for item in json.loads(text)["items"]} == {"local", "b", "c"}
    watching.cancel()
    assert observer.looks > 100
    assert observer.most == QUOTA


async def gated(sandbox: Sandbox, plural: str) -> None:
    """Wait until the gate is registered."""
    while not sandbox.local("admin").list(plural):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def reported(api: Api, unfinished: int) -> dict[str, dict]:
    """Wait until the report by cluster counts this many unfinished workloads, and return it by name."""
    while True:
        report = {item["name"]: item for item in (await api.get("reports/clusters"))["items"]}
        if sum(each["pendingWorkloads"] + each["reservingWorkloads"] for each in report.values()) == unfinished:
            return report
        await asyncio.sleep(0.05)


async def running(observer: Observer) -> None:
    while observer.look() < QUOTA:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def some_complete(sandbox: Sandbox, count: int) -> None:
    def complete() -> int:
        return sum(bool(obj.get("status", {}).get("succeeded")) for obj in sandbox.local("admin").list("jobs"))

    while complete() < count:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


DISPATCHING = (
    manifest("ResourceFlavor", "in-b", spec={"clusters": ["b"]}),
    manifest("ResourceFlavor", "in-c", spec={"clusters": ["c"]}),
    cluster_queue("sent", quotas={"in-b": {"cpu": 2}, "in-c": {"cpu": 2}}, dispatch={}),
    local_queue("sent", target="sent"),
)


def sent(name: str) -> dict:
    """A Job that is to run in another cluster."""
    found = job(name, seconds=60)
    found["metadata"]["labels"] = {"sluice.dev/queue-name": "sent"}
    return {**found, "spec": {**found["spec"], "managedBy": "sluice.dev/dispatch"}}


async def prepare_dispatch(database_url: str) -> None:
    async with Store.open(database_url) as store:
        for name in ("b", "c"):
            await create_objects(store, cluster(name))
        await create_objects(store, *DISPATCHING)


@pytest.mark.costly
@pytest.mark.parametrize("admission", ["webhooks", "policies"])
async def test_jobs_of_the_hub_run_in_other_clusters_within_their_quota_through_a_kill(
    sandboxes, database_url, tmp_path, admission
):
    local, b, c = sandboxes
    port, gate = free_port(), free_port()
    options = (f"--admission={admission}", f"--cluster-credentials={tmp_path / 'credentials'}")
    options += (f"--webhook-url=https://127.0.0.1:{gate}",) if admission == "webhooks" else ()
    await prepare_dispatch(database_url)
    observer, api = Observer(local, b, c), Api(f"http://127.0.0.1:{port}")
    watching = asyncio.create_task(observer.run())
    async with serving(tmp_path, database_url, *options, port=port) as replica:
        await replica.until_ready()
        await api.until("b", "Active")
        await api.until("c", "Active")
        await gated(local, f"mutating{'webhookconfigurations' if admission == 'webhooks' else 'admissionpolicies'}")
        wrong = sent("wrong")
        wrong["metadata"]["annotations"] = {"sluice.dev/cluster-affinity": "b"}
        if admission == "webhooks":
            with pytest.raises(ApiError, match=r"metadata.annotations\[sluice.dev/cluster-affinity\]: must be a JSON"):
                await local.local("admin").create("jobs", "default", wrong)
        for number in range(EACH):
            await local.local("admin").create("jobs", "default", sent(f"j{number}"))
        await running(observer)
        here = await api.get("workloads?fieldSelector=metadata.namespace%3Ddefault")
        assert {"b", "c"} <= {item["status"].get("clusterName") for item in here["items"]} <= {"b", "c", None}
        await some_complete(local, 2)
        replica.send(signal.SIGKILL)
        await replica.process.wait()
    async with serving(tmp_path, database_url, *options, port=port) as replica:
        await replica.until_ready()
        await all_complete(local.local("admin"), EACH)
    watching.cancel()
    assert observer.most == QUOTA
    assert local.local("admin").list("pods") == []
    copies = [obj["metadata"]["name"] for sandbox in (b, c) for obj in sandbox.local("admin").list("jobs")]
    assert sorted(copies) == sorted(f"j{number}" for number in range(EACH))


@pytest.mark.long
@pytest.mark.postgres
async def test_another_replica_goes_on_with_a_dispatch_in_which_the_leader_was_killed(
    sandboxes, postgresql_url, tmp_path
):
    """The leader is killed when its copy exists, and it has not been told so: the Job is still suspended."""
    local, b, c = sandboxes
    options = ("--admission=policies", f"--cluster-credentials={tmp_path / 'credentials'}", *SHORT)
    observer = Observer(local, b, c)
    watching = asyncio.create_task(observer.run())
    await prepare_dispatch(postgresql_url)
    async with AsyncExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        replicas = []
        for port, role in zip(ports, ("leading", "following", "following"), strict=True):
            replica = await stack.enter_async_context(serving(tmp_path, postgresql_url, *options, port=port))
            await replica.until(role)
            replicas.append(replica)
        api = Api(f"http://127.0.0.1:{ports[0]}")
        for name in ("b", "c"):
            await api.until(name, "Active")
        await gated(local, "mutatingadmissionpolicies")
        late = {"match": {"user": "sluice", "verb": "create", "resource": "jobs"}, "do": "delay", "seconds": 60,
                "when": "after"}  # fmt: skip
        for sandbox in (b, c):
            sandbox.faults.install({"rules": [late]})
        for number in range(EACH):
            await local.local("admin").create("jobs", "default", sent(f"j{number}"))
        await running(observer)
        replicas[0].send(signal.SIGKILL)
        await replicas[0].process.wait()
        for sandbox in (b, c):
            sandbox.faults.remove()
        await all_complete(local.local("admin"), EACH)
    watching.cancel()
    assert observer.most == QUOTA
    copies = [obj["metadata"]["name"] for sandbox in (b, c) for obj in sandbox.local("admin").list("jobs")]
    assert sorted(copies) == sorted(f"j{number}" for number in range(EACH))
