"""Duration of a restart until the first decision, with 100,000 workloads waiting and 5,000 running.

Also the cost of an audit for the leader, which must not delay decisions.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from admission.cli.demo.children import free_port, guarded, sluice
from admission.kinds import all_kinds
from admission.kinds.limits import NamespaceContext
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSetAssignment, Workload
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.records import Changes, Opened, State, Transition, WorkloadRecord
from admission.store.store import Store
from tests.benchmarks.measure import Figure, at_most, cpu_seconds, peak_mib
from tests.postgresql_server import NoPostgreSQL, running_postgresql
from tests.queue_objects import cluster_queue, flavor, local_queue

_PENDING = 100_000
_RUNNING = 5_000
_QUEUES = 20
_SECONDS = 10.0
_MEBIBYTES = 600.0
_STALL = 50.0

# Runs in another process: this one is busy with the sandbox, which lists all Jobs meanwhile.
_PROBE = """
import http.client, sys, threading, time
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
server, longest = http.client.HTTPConnection(sys.argv[1]), 0.0
while not ended.wait(0.002):
    began = time.perf_counter()
    server.request("GET", "/livez")
    server.getresponse().read()
    longest = max(longest, time.perf_counter() - began)
print(longest)
"""


async def run() -> list[Figure]:
    """Measure both databases with the same cluster."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        directory = Path(folder)
        async with Sandbox(controllers=False) as sandbox:
            sandbox.write_kubeconfig(directory / "kubeconfig", "sluice")
            jobs = await _jobs(sandbox)
            figures += await _restart(sandbox, jobs, directory, "SQLite", f"sqlite:///{directory / 'sluice.db'}")
            try:
                with running_postgresql() as server:
                    await asyncio.to_thread(server.execute, "CREATE DATABASE bench")
                    figures += await _restart(sandbox, jobs, directory, "PostgreSQL", server.url("bench"))
            except NoPostgreSQL as error:
                figures.append(Figure("PostgreSQL", f"skipped: {error}"))
    return figures


_CLAIM = ("leases", "kube-system", "sluice-database")


async def _jobs(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Create the Jobs, of which the first _RUNNING run, and return them."""
    admin = sandbox.local("admin")
    made = []
    for number in range(_PENDING + _RUNNING):
        running = number < _RUNNING
        job = {
            "metadata": {"name": f"job-{number}", "labels": {"sluice.dev/queue-name": f"lq-{number % _QUEUES}"}},
            "spec": {
                "suspend": not running,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
                    }
                },
            },
        }
        made.append(await admin.create("jobs", "default", job))
    return made


async def _restart(sandbox: Sandbox, jobs: list[dict[str, Any]], directory: Path, name: str, url: str) -> list[Figure]:
    await migrate(url)
    admin = sandbox.local("admin")
    async with Store.open(url) as store:
        await _fill(store, jobs)
        # Without the note that this database belongs to the cluster, all Jobs would be compared before the start.
        await store.note_cluster(admin.get("namespaces", "", "kube-system")["metadata"]["uid"])
    if admin.get(*_CLAIM) is not None:
        await admin.delete(*_CLAIM)
    api, token = free_port(), secrets.token_hex(16)
    arguments = ("serve", "--kubeconfig", str(directory / "kubeconfig"), "--database-url", url)
    arguments += (f"--api-address=127.0.0.1:{api}",)
    started = time.perf_counter()
    log, environment = directory / f"{name}.log", {"SLUICE_ADMIN_TOKEN": token}
    async with sluice("Sluice", *arguments, log=log, environment=environment) as child, guarded(child):
        await _ready(f"http://127.0.0.1:{api}/readyz")
        ready = time.perf_counter() - started
        await _admits(sandbox, jobs)
        decides, cpu = time.perf_counter() - started, cpu_seconds(child.process.pid)
        memory = peak_mib(child.process.pid)
        longest, audited = await _audit(f"http://127.0.0.1:{api}", token)
        peak = peak_mib(child.process.pid)
    return [
        Figure(f"{name}: ready after", f"{ready:.1f} s"),
        at_most(f"{name}: a Job that ends lets another one start after", decides, _SECONDS, "s", digits=1),
        Figure(f"{name}: of which processor time of `sluice serve`", f"{cpu:.1f} s"),
        at_most(f"{name}: memory at its highest", memory, _MEBIBYTES, "MiB", digits=0),
        Figure(f"{name}: an audit of all takes", f"{audited:.1f} s"),
        at_most(f"{name}: longest wait for an answer meanwhile", 1000 * longest, _STALL, "ms", digits=0),
        at_most(f"{name}: memory at its highest after that", peak, _MEBIBYTES, "MiB", digits=0),
    ]


async def _fill(store: Store, jobs: list[dict[str, Any]]) -> None:
    epoch = await store.lead("benchmark")
    for document in _queues():
        await store.queues.create(parse_manifest(document), author=Author("benchmark"))
    records = list(_records(jobs))
    for start in range(0, len(records), 5000):
        some = records[start : start + 5000]
        opened = tuple(Opened(r.workload, r.admission, r.queued_at) for r in some if r.admission is not None)
        transitions = tuple(Transition(r.workload.uid, r.queued_at, r.state, "Queued") for r in some)
        await store.commit(Changes(workloads=tuple(some), opened=opened, transitions=transitions), epoch=epoch)


def _records(jobs: list[dict[str, Any]]) -> Iterable[WorkloadRecord]:
    kind = all_kinds().get("batch", "Job")
    context = NamespaceContext([], [])
    for job in jobs:
        seen = kind.observe(job)
        workload = Workload(
            uid=seen.uid,
            namespace=seen.namespace,
            name=seen.name,
            queue=seen.queue,
            priority=0,
            created=seen.created,
            pod_sets=kind.pod_sets(job, context),
            kind=kind.kind,
        )
        record = WorkloadRecord(workload, State.PENDING, queued_at=seen.created, reason="WaitingForQuota")
        if not seen.suspended:
            queue = f"cq-{seen.queue.rpartition('-')[2]}"
            admission = Admission(queue, (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
            record = replace(
                record,
                state=State.ADMITTED,
                admission=admission,
                cluster_queue=queue,
                admitted_at=seen.created,
                original={},
                reason="Admitted",
            )
        yield record


def _queues() -> Iterable[dict[str, Any]]:
    """Yield queues whose quota is used up by the running Jobs."""
    yield flavor()
    for number in range(_QUEUES):
        yield cluster_queue(f"cq-{number}", cpu=_RUNNING // _QUEUES)
        yield local_queue(f"lq-{number}", target=f"cq-{number}")


async def _ready(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it is still starting
            await asyncio.sleep(0.05)


async def _admits(sandbox: Sandbox, jobs: list[dict[str, Any]]) -> None:
    """Finish a running Job and wait until another one is started."""
    admin = sandbox.local("admin")
    before = sandbox.requests["PATCH", "jobs", "sluice"]
    finished = next(job for job in jobs if admin.get("jobs", "default", job["metadata"]["name"])["status"] == {})
    now = "2025-06-15T15:06:40Z"
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
    body = {"status": status}
    await admin.patch("jobs", "default", finished["metadata"]["name"], body, subresource="status")
    while sandbox.requests["PATCH", "jobs", "sluice"] == before:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _audit(url: str, token: str) -> tuple[float, float]:
    """Run an audit; return the longest response time of a probe meanwhile and the audit's duration, in seconds."""
    probe = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROBE,
        url.removeprefix("http://"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    began = time.perf_counter()
    headers = {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=300)
    try:
        async with (
            aiohttp.ClientSession(url, headers=headers, timeout=timeout) as session,
            session.get("/apis/sluice.dev/v1/audits") as response,
        ):
            assert not (await response.json())["items"], "nothing should differ"
    finally:
        output, _ = await probe.communicate(b"")  # the probe ends with its input
    return float(output), time.perf_counter() - began
