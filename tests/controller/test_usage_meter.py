"""What workloads use of what they hold, read from a real Prometheus, or from the metrics API of the cluster."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from aiohttp import web
from job_examples import cluster_queue, flavor, job, local_queue, runs
from ports import free_port
from topology_examples import topology

from admission.cli.configuration.settings import UsageMetricsSettings
from admission.cluster.usage_sources import Prometheus
from admission.controller.decisions.usage_meter import IdleTimes, Part, UsageMeter, parts_used
from admission.controller.state.faults import Faults
from admission.controller.state.inbox import Inbox
from admission.controller.state.policy import ControllerPolicy, UsageRules
from admission.controller.state.tracked import Tracked
from admission.kinds.base import WORKLOAD_UID
from admission.kinds.pod import Occupant, occupant
from admission.model.errors import ClusterError
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import IDLE, Changes, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from conftest import World

GPU = "nvidia.com/gpu"
HOUR = 500_000 * 3600.0
"""The start of an hour (Unix time, s)."""


class Exporter:
    """Metrics of GPUs as NVIDIA's exporter has them: percentages, with the pods that have the GPUs."""

    def __init__(self) -> None:
        self.percent: dict[str, list[int]] = {}
        """By pod."""

    async def answer(self, _: web.Request) -> web.Response:
        lines = (
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{number}",namespace="team-a",pod="{pod}"}} {value}\n'
            for pod, values in self.percent.items()
            for number, value in enumerate(values)
        )
        return web.Response(text="".join(lines))


@asynccontextmanager
async def exporting(exporter: Exporter) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/metrics", exporter.answer)
    runner, port = web.AppRunner(app), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield port
    finally:
        await runner.cleanup()


@asynccontextmanager
async def prometheus(folder: Path, port: int, exporter: int) -> AsyncIterator[None]:
    """Prometheus, which adds labels of the exporter's own pod, as it does in a cluster."""
    target = {"targets": [f"127.0.0.1:{exporter}"], "labels": {"namespace": "monitoring", "pod": "dcgm-exporter-x"}}
    (folder / "prometheus.yml").write_bytes(
        orjson.dumps(
            {
                "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
                "scrape_configs": [{"job_name": "dcgm", "static_configs": [target]}],
            }
        )
    )
    process = await asyncio.create_subprocess_exec(
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def job_with(name: str, *, pods: int, **requests: str) -> dict[str, Any]:
    made = job(name, pods=pods)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
    return made


async def with_gpus(world: World) -> None:
    """Give all nodes GPUs, and a ClusterQueue quota of them."""
    for each in world.user.list("nodes"):
        amounts = {**each["status"]["allocatable"], GPU: "8"}
        status = {"allocatable": amounts, "capacity": amounts}
        await world.user.patch("nodes", "", each["metadata"]["name"], {"status": status}, subresource="status")
    await world.apply(flavor(), cluster_queue(quotas={"default": {"cpu": "40", GPU: "32"}}), local_queue())


async def started(world: World, made: dict[str, Any]) -> list[str]:
    """Submit a Job, and return the names of its running pods."""
    await world.submit(made)
    name = made["metadata"]["name"]
    await world.job(name, runs)

    async def pods() -> list[str] | None:
        found = [
            pod["metadata"]["name"]
            for pod in world.user.list("pods", "team-a")
            if pod["metadata"]["labels"].get("job-name") == name and pod["spec"].get("nodeName")
        ]
        return found if len(found) == made["spec"]["parallelism"] else None

    return sorted(await world.eventually(pods))


async def measured(world: World, resource: str = GPU) -> dict[str, tuple[float, float]]:
    """Return amounts times seconds that were measured, and used, of each workload."""
    found = await world.store.measured_usage.sums(
        ("workload", "resource"), start=0, end=time.time() + 7200, where={"resource": {resource}}
    )
    return {key[0]: sums for key, sums in found.items()}


@pytest.mark.costly
async def test_gpus_that_are_held_and_not_used_are_measured_and_told(world: World, tmp_path: Path, caplog) -> None:
    assert shutil.which("prometheus"), "see tests/install-tools.sh"
    caplog.set_level(logging.INFO, "admission.controller.decisions.usage_meter")
    exporter, port = Exporter(), free_port()
    settings = UsageMetricsSettings.model_validate(
        {"prometheus": {"url": f"http://127.0.0.1:{port}", "queries": {"cpu": "", "memory": ""}}, "idleAfter": "1s"}
    )
    await with_gpus(world)

    async def said(text: str) -> bool:
        return any(text in record.getMessage() for record in caplog.records)

    async with exporting(exporter) as target:
        async with prometheus(tmp_path, port, target):
            await world.start(ControllerPolicy(usage=replace(settings.rules(), interval=0.2)))
            busy = await started(world, job_with("busy", pods=2, **{GPU: "2"}))
            idle = await started(world, job_with("idle", pods=1, **{GPU: "4"}))
            half = await started(world, job_with("half-known", pods=2, **{GPU: "1"}))
            await started(world, job_with("unknown", pods=1, **{GPU: "1"}))
            exporter.percent = {busy[0]: [100, 50], busy[1]: [50, 0], idle[0]: [0, 0, 0, 0], half[0]: [0]}

            async def told() -> bool:
                return any(reason == IDLE for reason, _ in await world.history("idle"))

            await world.eventually(told)
            sums = await measured(world)
            assert sums.keys() == {"busy", "idle", "half-known"}
            assert sums["busy"][1] / sums["busy"][0] == pytest.approx(0.5)
            assert sums["idle"][1] == 0.0
            # Nobody knows whether the other pod uses its GPU, so that it is not known whether the workload is idle.
            notes = {name: [text for why, text in await world.history(name) if why == IDLE] for name in sums}
            assert notes["idle"][0].startswith("It holds 4 nvidia.com/gpu, and has used less than 5% of that for")
            assert notes == {"idle": notes["idle"][:1], "busy": [], "half-known": []}
        await world.eventually(lambda: said("what is used of nvidia.com/gpu is not known"))
        away = time.time()
        before = await measured(world)
        async with prometheus(tmp_path, port, target):
            await world.eventually(lambda: said("what is used of nvidia.com/gpu is known again"))
            away = time.time() - away

            async def goes_on() -> bool:
                return (await measured(world))["idle"][0] > before["idle"][0]

            await world.eventually(goes_on)
            report = await world.store.reports.usage(["workload"], start=0, end=time.time() + 60)
            sums = await measured(world)
            held = {row.group["workload"]: row.amount_seconds for row in report.rows if row.group["resource"] == GPU}
            assert held["idle"] - sums["idle"][0] > 4 * (away - 0.5)  # values stand for two intervals at most
            assert held["unknown"] > 0
            # A new leader does not tell it again.
            await world.end()
            await world.start(ControllerPolicy(usage=replace(settings.rules(), interval=0.2)))
            known = sums["idle"][0] + 8.0

            async def idle_again() -> bool:
                return (await measured(world))["idle"][0] > known

            await world.eventually(idle_again)
            assert [reason for reason, _ in await world.history("idle")].count(IDLE) == 1


METRICS: dict[str, Any] = {
    "metadata": {"name": "pods.metrics.k8s.io"},
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "PodMetrics", "plural": "pods", "singular": "pod", "listKind": "PodMetricsList"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_cpu_is_measured_by_the_metrics_api(world: World) -> None:
    await world.user.create("customresourcedefinitions", "", METRICS)
    await world.apply(flavor(), cluster_queue(), local_queue())
    rules = UsageMetricsSettings.model_validate({"metricsApi": True}).rules()
    await world.start(ControllerPolicy(usage=replace(rules, interval=0.05)))
    (pod,) = await started(world, job("train", cpu="2"))
    containers = [{"name": name, "usage": {"cpu": cpu, "memory": "1Gi"}} for name, cpu in (("a", "250m"), ("b", "1"))]
    sample = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "containers": containers}
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods"
    await world.client.create(path, {**sample, "metadata": {"name": pod, "namespace": "team-a"}})

    async def known() -> tuple[float, float] | None:
        return (await measured(world, "cpu")).get("train")

    held, used = await world.eventually(known)
    assert used / held == pytest.approx(1250 / 2000)
    assert not await measured(world, "memory")  # of which it holds no quota


async def test_only_times_are_measured_of_which_use_is_known(world: World) -> None:
    """Since the admission, two intervals at most, while it leads, by pods of its namespace; each hour for itself."""
    await world.user.create("customresourcedefinitions", "", METRICS)
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods"
    containers = [{"name": "a", "usage": {"cpu": "500m", "memory": "1Gi"}}]
    sample = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "containers": containers}
    await world.client.create(path, {**sample, "metadata": {"name": "pod", "namespace": "team-a"}})
    clock = Clock(HOUR + 1000)
    leads, started_at = True, clock() - 5
    holds = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))

    def holding(name: str, admission: Admission, namespace: str = "team-a") -> Tracked:
        one = Workload(name, namespace, name, "lq", 0, 0.0, (PodSet("main", 1, {"cpu": 1000}),))
        admission = replace(admission, cluster_queue=name)
        return Tracked(WorkloadRecord(one, State.ADMITTED, 0.0, admission=admission, admitted_at=started_at))

    elsewhere = holding("elsewhere", replace(holds, cluster="b"))
    workloads = [holding("here", holds), elsewhere, holding("foreign", holds, "team-b")]
    async with Store.open(world.url, clock=clock) as store:
        epoch = await store.lead("test")
        await store.commit(Changes(workloads=tuple(each.record for each in workloads)), epoch=epoch)
        by_pod = {"team-a/pod": Occupant("team-a", ("foreign", "here"), "")}
        rules = replace(UsageMetricsSettings.model_validate({"metricsApi": True}).rules(), interval=10.0)
        meter = UsageMeter(
            store, world.client, Inbox(), lambda: workloads, lambda: by_pod, rules,
            leads=lambda: leads, epoch=epoch, faults=Faults(clock),
        )  # fmt: skip

        async def look(after: float) -> dict[tuple[str, int], tuple[float, float]]:
            clock.advance(after)
            await meter.look()
            found = {}
            for number, start in enumerate((HOUR, HOUR + 3600)):
                sums = await store.measured_usage.sums(("cluster_queue",), start=start, end=start + 1, where={})
                found |= {(name, number): each for (name,), each in sums.items()}
            return found

        assert await look(0) == {}
        assert await look(10) == {("here", 0): (10_000, 5000)}
        assert await look(100) == {("here", 0): (30_000, 15_000)}  # nothing is known of the looks that it missed
        leads = False
        await look(10)
        leads = True
        assert await look(10) == {("here", 0): (30_000, 15_000)}
        by_pod["team-a/pod"] = Occupant("team-a", ("elsewhere",), "")
        assert await look(10) == {("here", 0): (30_000, 15_000)}
        started_at = clock() + 4
        workloads[0] = holding("here", holds)
        by_pod["team-a/pod"] = Occupant("team-a", ("here",), "")
        assert await look(10) == {("here", 0): (36_000, 18_000)}
        clock.advance(HOUR + 3600 - clock() - 17)
        await look(10)
        assert await look(10) == {("here", 0): (63_000, 31_500), ("here", 1): (3000, 1500)}


async def test_pods_are_watched_once_for_their_use_and_for_topology(world: World) -> None:
    await world.user.create("customresourcedefinitions", "", METRICS)
    await world.apply(flavor(), cluster_queue(), local_queue())
    pods = {"verb": "watch", "resource": "pods", "user": "sluice", "group": ""}
    world.sandbox.faults.install({"rules": [{"match": pods, "do": "delay", "seconds": 0}]})
    rules = UsageMetricsSettings.model_validate({"metricsApi": True}).rules()
    policy = ControllerPolicy(usage=replace(rules, interval=0.05))
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods"
    containers = [{"name": "a", "usage": {"cpu": "1", "memory": "1Gi"}}]
    sample = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "containers": containers}

    async def measures(name: str) -> None:
        (pod,) = await started(world, job(name, cpu="1"))
        await world.client.create(path, {**sample, "metadata": {"name": pod, "namespace": "team-a"}})

        async def known() -> bool:
            return name in await measured(world, "cpu")

        await world.eventually(known)

    def watches() -> int:
        return int(world.sandbox.faults.describe()["rules"][0]["matched"])

    await world.start(policy)
    await measures("before")
    assert watches() == 1
    of_topology = {"nodeLabels": {"pool": "none"}, "topologyName": "dc"}
    await world.apply(
        topology("dc", "kubernetes.io/hostname"),
        {"apiVersion": "sluice.dev/v1", "kind": "ResourceFlavor", "metadata": {"name": "placed"}, "spec": of_topology},
    )
    await measures("meanwhile")
    assert watches() == 2  # the second one replaces the first
    await world.end()
    await world.start(policy)
    await measures("after")
    assert watches() == 3


def test_use_beyond_what_is_held_does_not_count_and_pods_without_value_are_unknown() -> None:
    launcher = PodSetAssignment("launcher", {"cpu": "small"}, {"cpu": 1000}, 1)
    workers = PodSetAssignment("worker", {"cpu": "large", GPU: "a100"}, {"cpu": 3000, GPU: 8}, 4)
    admission = Admission("cq", (launcher, workers))
    assert [*parts_used(admission, {"cpu": (5, 9000.0), GPU: (1, 1.0), "memory": (5, 1.0)})] == [
        Part("small", "cpu", 1000, 1000, 1000),
        Part("large", "cpu", 3000, 3000, 3000),
        Part("a100", GPU, 8, 2, 1),
    ]


def test_idle_time_ends_with_use_and_does_not_grow_while_nothing_is_known() -> None:
    times = IdleTimes(UsageRules(idle_after=100.0, idle_below=0.1))

    def after(seconds: float, used: float, measured: float = 8.0, admitted_at: float = 1.0) -> str:
        return times.add("a", [Part("a100", GPU, 8.0, measured, used)], seconds, admitted_at)

    assert not after(60.0, 0.0)
    assert not after(60.0, 0.0, measured=4.0)
    assert after(40.0, 0.7) == "It holds 8 nvidia.com/gpu, and has used less than 10% of that for 2 min."
    assert not after(200.0, 0.0)
    assert not after(60.0, 0.9)
    assert not after(60.0, 0.0)
    assert after(60.0, 0.0)
    # It was evicted, and admitted again before the next look.
    assert not after(60.0, 0.0, admitted_at=2.0)
    assert after(60.0, 0.0, admitted_at=2.0)

    times = IdleTimes(UsageRules(idle_after=30.0, idle_below=0.1))
    assert after(40.0, 0.0).endswith("for 40 s.")


def test_labels_of_a_pod_that_is_a_workload_do_not_give_its_use_to_another() -> None:
    pod = {"metadata": {"name": "a", "namespace": "team-a", "uid": "own", "labels": {WORKLOAD_UID: "of-another"}}}
    seen = occupant(pod)
    assert seen is not None
    assert seen.uids[0] == "own"


async def test_absurd_answers_of_prometheus_are_errors_and_bounded() -> None:
    labels = {"namespace": "team-a", "pod": "a"}
    sample = {"metric": labels, "value": [1, "0.5"]}
    answers: list[Any] = [
        None, [], {}, {"data": None}, {"data": {"resultType": "scalar", "result": [1, "2"]}},
        *({"data": {"resultType": "vector", "result": each}} for each in (
            None, 7, [1], [None], [{}], [{"metric": None, "value": [1, "1"]}], [{"metric": labels}],
            *([sample, {"metric": labels, "value": each}] for each in (None, "", [], [1, None], [1, "a"], [1, {}])),
        )),
    ]  # fmt: skip
    numbers = {"NaN": {}, "+Inf": {}, "-5": {"team-a/a": 0.0}, "1e308": {"team-a/a": 1e308}}
    texts = [orjson.dumps(each) for each in answers] + [b"<html>", b"\xff"]
    texts += [
        orjson.dumps({"data": {"resultType": "vector", "result": [{**sample, "value": [1, each]}]}}) for each in numbers
    ]
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        query = (await request.post())["query"]
        if query == "redirect":
            return web.Response(status=302, headers={"Location": "/else"})
        if query != "endless":
            return web.Response(body=texts[int(str(query))])
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 1 << 30:
            await response.write(b" " * (1 << 20))
            sent += 1 << 20
        return response

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner, port = web.AppRunner(app), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        queries = {str(number): str(number) for number in range(len(texts))}
        queries |= {"redirect": "redirect", "endless": "endless"}
        found = await Prometheus(f"http://127.0.0.1:{port}", queries).read()
    finally:
        await runner.cleanup()
    known = {number: found.pop(str(number)) for number in range(len(texts) - len(numbers), len(texts))}
    assert [*known.values()] == [*numbers.values()]
    assert [name for name, each in found.items() if not isinstance(each, ClusterError)] == []
    assert "more than 67108864 bytes" in str(found["endless"])
    assert sent < 1 << 28
