"""Response times of the webhook, at 200 requests per second over TLS, also while `serve` is busy or stopped."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from admission.cli.demo.plan import job_document, queue_documents, three_teams
from admission.cluster.client import Client
from admission.kinds.topology import REQUIRED_KEY
from tests.benchmarks.measure import REPOSITORY, Figure, Running, at_most, children, percentile, resident_mib, running

_RATE = 200
_SECONDS = 10
_STOPPED_SECONDS = 30
_WARM_UP = 200


async def run() -> list[Figure]:
    """Measure reviews of creations of Jobs, sent at a fixed rate, independent of the response times."""
    plan = three_teams()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        async with running(Path(folder), queue_documents(plan), controllers=False) as sluice:
            url, authority = await _mutating_webhook(sluice.client)
            context = ssl.create_default_context(cadata=authority)
            connector = aiohttp.TCPConnector(ssl=context, limit=32, keepalive_timeout=60)
            reviews = [_review(job_document(plan, job), number) for number, job in enumerate(plan.jobs)]
            placed = [_review(_placed(job_document(plan, job)), number) for number, job in enumerate(plan.jobs)]
            async with aiohttp.ClientSession(connector=connector) as session:
                quiet = await _paced(session, url, reviews, _SECONDS)
                by_topology = await _paced(session, url, placed, _SECONDS)
                with _stopped(sluice):
                    stopped = await _paced(session, url, reviews, _STOPPED_SECONDS)
                async with _disturbed(sluice):
                    disturbed = await _paced(session, url, reviews, _SECONDS)
            (gate,) = children(sluice.serving.child.process.pid)
            memory = resident_mib(gate)
    return [
        Figure("webhook p50", f"{1000 * percentile(quiet, 0.50):.2f} ms"),
        at_most("webhook p99", 1000 * percentile(quiet, 0.99), 5, "ms"),
        Figure("webhook longest", f"{1000 * max(quiet):.2f} ms"),
        at_most("p99 of Jobs with a topology request", 1000 * percentile(by_topology, 0.99), 5, "ms"),
        at_most(f"p99, serve stopped for {_STOPPED_SECONDS} s", 1000 * percentile(stopped, 0.99), 25, "ms"),
        Figure("longest", f"{1000 * max(stopped):.2f} ms"),
        at_most("p99, the API under YAML of 3 MB", 1000 * percentile(disturbed, 0.99), 25, "ms"),
        Figure("longest", f"{1000 * max(disturbed):.2f} ms"),
        Figure("memory of its process", f"{memory:.0f} MiB"),
    ]


@contextmanager
def _stopped(sluice: Running) -> Iterator[None]:
    """Stop the process of `serve` during the block, which is worse than a blocked event loop."""
    pid = sluice.serving.child.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _disturbed(sluice: Running) -> AsyncIterator[None]:
    """Run a process during the block whose clients make the API parse large documents continuously."""
    serving = sluice.serving
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.disturb", serving.server, str(serving.ca)),
        env={**os.environ, **serving.environment},
        cwd=REPOSITORY,
    )
    try:
        yield
        assert process.returncode is None, "the disturbance has ended"
    finally:
        process.kill()
        await process.wait()


async def _mutating_webhook(client: Client) -> tuple[str, str]:
    """Return URL and CA certificate (PEM) of the mutating webhook that Sluice has registered."""
    answer = await client.get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")
    (configuration,) = answer["items"]
    target = configuration["webhooks"][0]["clientConfig"]
    return target["url"], base64.b64decode(target["caBundle"]).decode()


def _placed(job: dict[str, Any]) -> dict[str, Any]:
    job["spec"]["template"].setdefault("metadata", {})["annotations"] = {REQUIRED_KEY: "rack"}
    return job


def _review(job: dict[str, Any], number: int) -> bytes:
    request = {
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "name": job["metadata"]["name"],
        "namespace": job["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": job,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def _paced(session: aiohttp.ClientSession, url: str, reviews: list[bytes], seconds: int) -> list[float]:
    """Return the duration of each request in seconds, without the first ones, which open connections and warm up."""
    started = time.perf_counter()

    async def ask(number: int) -> float:
        await asyncio.sleep(started + number / _RATE - time.perf_counter())
        sent = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        async with session.post(url, data=reviews[number % len(reviews)], headers=headers) as response:
            answer = orjson.loads(await response.read())
        assert answer["response"]["allowed"], answer
        return time.perf_counter() - sent

    taken = await asyncio.gather(*(ask(number) for number in range(_WARM_UP + _RATE * seconds)))
    return taken[_WARM_UP:]
