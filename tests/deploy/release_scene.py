"""The lifecycle of a release under load: installation, certificate rotation, kills, upgrade, rollback, removal."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
from chart import CHART, NAMESPACE, Object
from containers import contained
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from node import Node, Pod

from admission.sandbox.sandbox import Sandbox
from tests.deploy.commands import output_of
from tests.queue_objects import cluster_queue, flavor, local_queue, text_of

VALUES: Object = {
    "database": {"type": "postgresql", "postgresql": {"secretName": "sluice-database"}},
    "config": {"logFormat": "json", "leaseDuration": 5, "renewDeadline": 3, "retryPeriod": 0.5},
}
"""Values of the chart, without the number of replicas. The Lease is short, so that a killed leader is replaced soon."""

CERTIFICATES = "sluice-webhook-certificates"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NODES = 4
QUEUES = (flavor(), cluster_queue(cpu=16), local_queue())


def everything(sandbox: Sandbox) -> dict[tuple[str, str, str], Object]:
    """Return all objects without resource versions, except Events and objects that a cluster creates by itself."""
    found = {}
    for (group, plural), collection in sandbox.registry.store.collections.items():
        for stored in collection.versions():
            metadata = stored.obj["metadata"]
            of_cluster = plural in ("pods", "leases", "nodes") and "sluice" not in metadata["name"]
            if plural != "events" and not of_cluster and metadata["name"] not in ("default", "kube-root-ca.crt"):
                key = f"{plural}.{group}", metadata.get("namespace", ""), metadata["name"]
                found[key] = {**stored.obj, "metadata": {**metadata, "resourceVersion": ""}}
    return found


def _differences(before: dict[tuple[str, str, str], Object], after: dict[tuple[str, str, str], Object]) -> list[str]:
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in before.keys() | after.keys()
            if before.get(key) != after.get(key)]  # fmt: skip


def job(name: str, *, cpu: str = "1") -> Object:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
    }
    template = {"metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": "30"}}, "spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {"template": template},
    }


@dataclass
class Load:
    """Users who submit Jobs: nine of ten requests are dry runs, every tenth one creates a Job."""

    sandbox: Sandbox
    pause: float
    """Seconds between two requests of one user."""
    asked: int = 0
    created: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @asynccontextmanager
    async def running(self, users: int = 2) -> AsyncIterator[Load]:
        self._tasks = [asyncio.create_task(self._submit(number)) for number in range(users)]
        try:
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self, count: int) -> None:
        """Wait until `count` more requests were answered; fail if any request failed."""
        wanted = self.asked + count
        while self.asked < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self.none_failed()

    def none_failed(self) -> None:
        assert not self.failed, f"{len(self.failed)} of {self.asked}: {self.failed[:3]}"

    async def _submit(self, user: int) -> None:
        context = ssl.create_default_context(cadata=self.sandbox.ca_pem)
        headers = {"Authorization": f"Bearer {self.sandbox.token('admin')}"}
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(self.sandbox.url, headers=headers, connector=connector) as session:
            number = 0
            while True:
                number += 1
                meant = number % 10 == 0
                name = f"job-{user}-{number}"
                parameters = {} if meant else {"dryRun": "All"}
                async with session.post(JOBS, json=job(name), params=parameters) as answer:
                    body = await answer.json()
                self.asked += 1
                if answer.status != 201 or body["spec"].get("suspend") is not True:
                    self.failed.append(json.dumps(body)[:500])
                elif meant:
                    self.created.append(name)
                await asyncio.sleep(self.pause)


@dataclass
class Scene:
    """A release in a sandbox, with its load and its administrator's commands."""

    sandbox: Sandbox
    node: Node
    load: Load
    folder: Path
    first_chart: Path
    """Chart of the release that is installed first; the release after it has the chart of this checkout."""
    say: Callable[[str], object]
    replicas: int
    began: float = field(default_factory=time.monotonic)

    def tell(self, what: str) -> None:
        self.say(f"{time.monotonic() - self.began:6.1f} s  {what} ({self.load.asked} reviews so far)")

    async def helm(self, action: str, values: Object | None = None) -> None:
        script = (sys.executable, str(Path(__file__).with_name("helm_release.py")))
        chart = self.first_chart if action == "install" else CHART
        await output_of(*script, str(self.folder / "kubeconfig"), action, str(chart), json.dumps(values or {}))

    async def kubectl(self, *arguments: str) -> str:
        return await output_of("kubectl", f"--kubeconfig={self.folder / 'kubeconfig'}", *arguments)

    async def leader(self) -> Pod:
        """Wait for a pod that holds the Lease and makes decisions; return it."""
        while True:
            for pod in self.node.of("serve"):
                if pod.process is not None and pod.process.returncode is None:
                    lease = self.sandbox.local("admin").get("leases", NAMESPACE, "sluice")
                    holder = (lease or {}).get("spec", {}).get("holderIdentity", "")
                    if f"_{pod.process.pid}_" in holder and pod.said("decides from now on"):
                        return pod
            await asyncio.sleep(0.05)

    async def replace(self, pod: Pod, number: signal.Signals) -> Pod:
        """End a pod by a signal, start another one in its place and return that."""
        await self.node.end(pod, number)
        return await self.node.start(pod.component, pod.template)

    # ------------------------------------------------------------------ certificates

    def secret(self) -> dict[str, bytes]:
        found = self.sandbox.local("admin").get("secrets", NAMESPACE, CERTIFICATES)
        assert found is not None
        return {name: base64.b64decode(value) for name, value in found["data"].items()}

    async def age(self, name: str, *, days_left: int) -> None:
        """Replace the newest certificate of a file by one that expires in `days_left` days; key and signer stay."""
        data = self.secret()
        first, *others = x509.load_pem_x509_certificates(data[name])
        (signer, *_) = x509.load_pem_x509_certificates(data["ca.crt"])
        key = serialization.load_pem_private_key(data["ca.key"], password=None)
        aged = _until(first, datetime.now(UTC) + timedelta(days=days_left), signer.subject, key)
        pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (aged, *others))
        body = {"data": {name: base64.b64encode(pem).decode()}}
        await self.sandbox.local("admin").patch("secrets", NAMESPACE, CERTIFICATES, body)

    async def shown(self, *, other_than: set[bytes]) -> set[bytes]:
        """Wait until all pods of the gate serve the same certificate, other than these; return it."""
        while (found := await self.node.shown_certificates()) & other_than or len(found) != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        return found

    def trusted(self) -> int:
        """Return the number of CA certificates that the API server accepts for the gate."""
        (found,) = self.sandbox.local("admin").list("mutatingwebhookconfigurations")
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])
        return len(x509.load_pem_x509_certificates(bundle))

    # ------------------------------------------------------------------ Jobs

    async def all_ran_once(self) -> None:
        """Wait until all created Jobs succeeded; check that each was started once."""
        wanted = set(self.load.created)
        watcher = self.sandbox.local("admin").watch("jobs")
        done: dict[str, int] = {}
        async for batch in watcher:
            for _, _, obj, _ in batch:
                conditions = obj.get("status", {}).get("conditions", ())
                if any(each["type"] == "Complete" and each["status"] == "True" for each in conditions):
                    done[obj["metadata"]["name"]] = obj["metadata"]["generation"]
            if wanted <= done.keys():
                watcher.close()
        assert {name: done[name] for name in wanted} == dict.fromkeys(wanted, 2)  # 1: created, 2: started


def _until(certificate: x509.Certificate, end: datetime, issuer: x509.Name, key: Any) -> x509.Certificate:
    """Return the certificate with another end, and a start in the past."""
    builder = x509.CertificateBuilder(
        issuer, certificate.subject, certificate.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(datetime.now(UTC) - timedelta(days=100)).not_valid_after(end)
    for each in certificate.extensions:
        builder = builder.add_extension(each.value, each.critical)
    return builder.sign(key, hashes.SHA256())


@asynccontextmanager
async def opened(
    folder: Path,
    images: dict[str, Path],
    *,
    first_chart: Path,
    database_url: str,
    pause: float,
    replicas: int,
    say: Callable[[str], object],
) -> AsyncIterator[Scene]:
    """Run a cluster with nodes and the Secret with the database URL, in which nothing is installed yet."""
    async with Sandbox(speed=60) as sandbox:
        admin = sandbox.local("admin")
        for number in range(NODES):
            node = {"metadata": {"name": f"node-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"}}}
            amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            await admin.create("nodes", "", node | {"status": {"allocatable": amounts, "capacity": amounts}})
        await admin.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
        data = {"url": base64.b64encode(database_url.encode()).decode()}
        await admin.create("secrets", NAMESPACE, {"metadata": {"name": "sluice-database"}, "data": data})
        sandbox.write_kubeconfig(folder / "kubeconfig")
        async with Node(sandbox, folder / "pods", images) as node:
            yield Scene(sandbox, node, Load(sandbox, pause), folder, first_chart, say, replicas)


async def install(scene: Scene) -> None:
    """Install the first release as described in docs/install.md."""
    await scene.helm("install", VALUES | {"replicas": scene.replicas})
    await scene.node.roll_out()
    await scene.kubectl("wait", "--for=condition=Available", "apiservice/v1.sluice.dev", "--timeout=5m")
    (scene.folder / "queues.yaml").write_text(text_of(*QUEUES))
    await scene.kubectl("apply", f"--filename={scene.folder / 'queues.yaml'}")
    assert (len(scene.node.of("serve")), len(scene.node.of("webhook"))) == (scene.replicas, 2)
    scene.tell(f"installed, {scene.replicas} replicas and two gates are ready, and there are queues")


async def rotate_and_kill(scene: Scene) -> None:
    """Kill the leader when the gate's certificate is due for renewal; the next leader has to renew it."""
    before = await scene.node.shown_certificates()
    await scene.age("tls.crt", days_left=29)
    aged = await scene.shown(other_than=before)
    leader = await scene.leader()
    await scene.replace(leader, signal.SIGKILL)
    assert await scene.leader() is not leader
    await scene.shown(other_than=before | aged)
    await scene.load.more(20)
    scene.tell("the leader was killed, another one leads, and the gate shows a new certificate")


async def upgrade(scene: Scene) -> None:
    """Upgrade with a CA that expires within a year, so that the first new replica adds a second CA."""
    await scene.age("ca.crt", days_left=300)
    assert scene.trusted() == 1
    await scene.helm("upgrade", VALUES | {"replicas": scene.replicas, "image": {"tag": "after"}})
    await scene.node.roll_out()
    while scene.trusted() != 2:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert all(pod.container["image"].endswith(":after") for pod in scene.node.of("serve"))
    assert any(pod.said('"schema ') for pod in scene.node.of("serve")), "nobody has migrated the tables"
    await scene.leader()
    await scene.load.more(20)
    scene.tell("upgraded to another schema, one pod after the other; a second authority is trusted")


async def roll_back(scene: Scene) -> None:
    """Roll back; the older release works on the newer schema and renews a certificate, signed by the new CA."""
    before = await scene.node.shown_certificates()
    await scene.age("tls.crt", days_left=29)
    aged = await scene.shown(other_than=before)
    await scene.helm("rollback")
    await scene.node.roll_out()
    assert not any(pod.container["image"].endswith(":after") for pod in scene.node.of("serve"))
    await scene.leader()
    (renewed,) = await scene.shown(other_than=before | aged)
    (authority, *_) = x509.load_pem_x509_certificates(scene.secret()["ca.crt"])
    x509.load_der_x509_certificate(renewed).verify_directly_issued_by(authority)
    await scene.load.more(20)
    scene.tell("rolled back, on the newer schema; the gate shows a certificate of the second authority")


async def migrate_back(scene: Scene, tree: Path, schema: str, database_url: str) -> None:
    """Migrate the schema back with the newer program, as the runbook says, while the older one is running."""
    given = scene.folder / "migrate-volume"
    given.mkdir()
    (given / "url").write_text(database_url)
    arguments = ["migrate", "--database-url-file=/given/url", f"--to={schema}"]
    async with contained(tree, scene.folder / "migrate", arguments, volumes={"/given": given}) as process:
        assert process.stderr is not None
        errors = await process.stderr.read()
        assert await process.wait() == 0, errors.decode()
    await scene.load.more(20)
    scene.tell("the tables are those of the release before again")


async def uninstall(scene: Scene) -> None:
    """Uninstall: Helm removes the chart's objects, its hook those that Sluice created."""
    hook = asyncio.create_task(scene.node.run_hook())
    removing = asyncio.create_task(scene.helm("uninstall"))
    while scene.sandbox.local("admin").list("deployments", NAMESPACE):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await scene.node.roll_out()
    ran, _ = await asyncio.gather(hook, removing)
    # While Sluice is still terminating, the hook is refused and retried.
    assert all(pod.said("Sluice is still running") for pod in ran[:-1]), [pod.log for pod in ran]
    scene.tell(f"uninstalled, by attempt {len(ran)} of the hook")


async def play(
    folder: Path,
    trees: dict[str, Path],
    *,
    database_url: str,
    schema: str,
    first_chart: Path = CHART,
    rounds: int = 1,
    replicas: int = 3,
    pause: float = 0.1,
    say: Callable[[str], object] = print,
) -> None:
    """Play the whole lifecycle; `trees` are the images of the installed release (0.1.0) and of the one after it.

    `schema` and `first_chart` belong to the first release; `rounds` is the number of kills of the leader, each with a
    rotation of the certificate.
    """
    async with opened(
        folder, trees, first_chart=first_chart, database_url=database_url, pause=pause, replicas=replicas, say=say
    ) as scene:
        before = everything(scene.sandbox)
        await install(scene)
        async with scene.load.running():
            await scene.load.more(20)
            for _ in range(rounds):
                await rotate_and_kill(scene)
            await upgrade(scene)
            await roll_back(scene)
            await migrate_back(scene, trees["after"], schema, database_url)
        await scene.all_ran_once()
        admin = scene.sandbox.local("admin")
        created = await admin.create("jobs", "default", job("waits", cpu="17"))
        assert created["spec"]["suspend"] is True
        scene.tell(f"all {len(scene.load.created)} Jobs that were meant have run, each once")
        await uninstall(scene)
        waits = admin.get("jobs", "default", "waits")
        assert waits is not None
        assert waits["spec"]["suspend"] is True
        assert "sluice.dev/submitted-by" not in (waits["metadata"].get("annotations") or {})
        for name in ("waits", *scene.load.created):
            await admin.delete("jobs", "default", name)
        with suppress(TimeoutError):
            async with asyncio.timeout(30):  # for the garbage collector to delete dependent objects
                while everything(scene.sandbox) != before:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        assert everything(scene.sandbox) == before, _differences(before, everything(scene.sandbox))
        scene.load.none_failed()
