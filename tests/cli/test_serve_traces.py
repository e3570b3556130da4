"""Traces of `sluice serve`, as a collector receives them over HTTP, and exemplars that lead to them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from serve_processes import AUTHORIZATION, NODE, QUEUES, all_complete, free_port, gate_flags, job, serving

from admission.sandbox.sandbox import Sandbox
from admission.serving.tracing import Tracing
from admission.store.database.migrations import ensure_ready
from tests.queue_objects import create_objects


class Collector:
    """Receives spans by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self._arrived = asyncio.Event()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            self.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self._arrived.set()
        return web.Response(content_type="application/x-protobuf")

    def called(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    async def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            self._arrived.clear()
            await self._arrived.wait()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        collector.url = f"http://127.0.0.1:{port}"
        yield collector
    finally:
        await runner.cleanup()


def attributes(span: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


@pytest.mark.costly
async def test_job_is_one_trace_and_exemplars_reference_it(tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await ensure_ready(database_url)
    await create_objects(database_url, QUEUES)
    flags = (*gate_flags(tmp_path), "--opentelemetry")
    async with collecting() as collector, Sandbox() as sandbox:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "20"}
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        local = sandbox.local("admin")
        await local.create("nodes", "", NODE)
        async with serving(tmp_path, database_url, *flags, environment=environment) as replica:
            await replica.until_ready()
            await local.create("jobs", "default", job("traced", seconds=0))
            await all_complete(local, 1)
            await collector.until(lambda: collector.called("workload") and collector.called("webhook review"))
            (whole,) = collector.called("workload")
            parts = [span for span in collector.spans if span.parent_span_id == whole.span_id]
            assert {span.name for span in parts} == {"wait", "start patch", "run"}
            assert {span.trace_id for span in parts} == {whole.trace_id}
            assert whole.parent_span_id == b""
            assert attributes(whole)["sluice.workload"] == "traced"
            assert attributes(whole)["sluice.reason"] == "Succeeded"
            times = {span.name: (span.start_time_unix_nano, span.end_time_unix_nano) for span in parts}
            assert times["wait"][1] <= times["start patch"][1] <= times["run"][1] == whole.end_time_unix_nano
            cycles = {span.span_id: span.trace_id for span in collector.called("cycle")}
            commits = [span for span in collector.called("commit") if span.parent_span_id]
            assert commits
            assert all(cycles[span.parent_span_id] == span.trace_id for span in commits)
            assert collector.services == {"sluice"}

            async with aiohttp.ClientSession(replica.url) as session:
                headers = {**AUTHORIZATION, "Accept": "application/openmetrics-text; version=1.0.0"}
                text = ""
                reviewed = re.compile(r'sluice_webhook_request_duration_seconds_bucket{.*} .* # {.*trace_id="(\w+)"')
                while not reviewed.search(text):  # the gate reports its metrics periodically
                    async with session.get("/metrics", headers=headers) as response:
                        text = await response.text()
            waited = re.search(r'sluice_admission_wait_time_seconds_bucket{.*} .* # {.*trace_id="(\w+)"', text)
            assert waited is not None
            assert waited[1] == whole.trace_id.hex()
            review = reviewed.search(text)
            assert review is not None
            assert review[1] in {span.trace_id.hex() for span in collector.called("webhook review")}
        assert b"Traceback" not in replica.log, replica.log.decode()


async def test_review_joins_the_request_trace_and_workloads_are_sampled(monkeypatch) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "batch")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
        tracing = Tracing()
        asked = f"00-{'a' * 32}-{'b' * 16}-01"
        found = tracing.remote_child("webhook review", 1.0, 2.0, {}, headers={"traceparent": asked})
        assert found is not None
        assert found["trace_id"] == "a" * 32
        uids = [f"uid-{number}" for number in range(64)]
        for uid in uids:
            part = tracing.workload_span(uid, "wait", 1.0, 2.0, {})
            tracing.workload_root(uid, "workload", 1.0, 3.0, {"uid": uid})
            exemplar = tracing.exemplar(uid)
            assert (part is None) == (exemplar is None)
        kept = {uid for uid in uids if tracing.exemplar(uid) is not None}
        assert 0 < len(kept) < len(uids)
        await asyncio.to_thread(tracing.close)
        await collector.until(lambda: len(collector.called("workload")) == len(kept))
        assert {attributes(span)["uid"] for span in collector.called("workload")} == kept
        assert len(collector.called("wait")) == len(kept)
        assert [span.parent_span_id.hex() for span in collector.called("webhook review")] == ["b" * 16]
        assert collector.services == {"batch"}


@pytest.mark.costly
def test_opentelemetry_is_not_imported_while_tracing_is_off() -> None:
    code = (
        "import sys, admission.cli.serve.command, webhooks.gate, webhooks.exposition\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.long
async def test_serve_without_the_otel_extra_names_the_package_to_install(monkeypatch) -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from admission.cli.main import main\n"
        "sys.argv = ['sluice', 'serve', '--opentelemetry']\n"
        "main()"
    )
    found = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "pip install 'sluice[otel]'" in found.stderr
    assert "Traceback" not in found.stderr
