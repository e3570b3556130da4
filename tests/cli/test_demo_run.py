"""The demo as its users run it: a process of its own, with a real sandbox and a real Sluice.

The processes are forked from one that has imported them; where one is killed, all are started by the interpreter, as
users do.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from admission.cluster.client import Client
from tests import sluice_server
from tests.forking import Forked

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Awaitable, Callable

    Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts `sluice demo` with arguments. What it keeps on disk is below `tmp_path`."""
    async with _starting((sys.executable, "-m", "admission.cli.main"), {"TMPDIR": str(tmp_path)}) as start:
        yield start


@pytest.fixture
async def warm_demo(tmp_path: Path, warm_sluice: dict[str, str]) -> AsyncIterator[Start]:
    """The same with a quarter of the CPU time: forked from a process that has imported the modules."""
    environment = {"TMPDIR": str(tmp_path), **warm_sluice}
    async with _starting((str(sluice_server.COMMAND),), environment) as start:
        yield start


@asynccontextmanager
async def _starting(command: tuple[str, ...], environment: dict[str, str]) -> AsyncIterator[Start]:
    started: list[Process] = []

    async def start(*arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *command,
            "demo",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **environment},
            preexec_fn=_restore_sigint,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


def _restore_sigint() -> None:
    # A shell makes its background processes ignore SIGINT, and these tests may run in the background.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def read_until(process: Process | Forked, pattern: str) -> str:
    """Output of a process up to a line with `pattern`."""
    assert process.stdout is not None
    text = ""
    while not re.search(pattern, text):
        line = await process.stdout.readline()
        assert line, f"it ended before it printed {pattern!r}:\n{text}"
        text += line.decode()
    return text


def children_of(process: Process | Forked) -> dict[str, int]:
    """Pids of the `sluice` children of a process, by subcommand."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids}
    return {words[words.index("admission.cli.main") + 1]: int(pid) for pid, words in commands.items()}


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def kubeconfig_in(folder: Path) -> Path:
    """Kubeconfig of the sandbox of a demo whose temporary files are in `folder`."""
    (found,) = folder.glob("*/sandbox/kubeconfig")
    return found


LONG = "1000"
"""Number of Jobs that keeps the demo running, on any machine, until the test has acted on it."""


@pytest.mark.long
async def test_job_that_bypasses_the_queue_is_reported_as_broken_quota(warm_demo: Start, tmp_path: Path) -> None:
    process = await warm_demo("--scene", "quotas", "--jobs", "20", "--nodes", "10", "--speed", "120")
    await read_until(process, "Live at")
    kubeconfig = kubeconfig_in(tmp_path)
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "past", "namespace": "research"},  # without a queue label nothing suspends it
        "spec": {"parallelism": 51, "completions": 51, "template": {"spec": spec}},
    }
    async with Client.from_kubeconfig(str(kubeconfig)) as client:
        await client.create("/apis/batch/v1/namespaces/research/jobs", job)
    output, _ = await process.communicate()
    assert re.search(
        r"✗ BROKEN: quota was exceeded in \d+ of \d+ checks: .*pods request \d+ cpu, at most 100 allowed",
        output.decode(),
    )
    assert process.returncode == 1


@pytest.mark.long
async def test_fair_share_scene_evicts_jobs_which_are_requeued_and_run(warm_demo: Start, tmp_path: Path) -> None:
    process = await warm_demo("--scene", "fair-share")
    output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    assert "✓ all 150 Jobs ran" in text
    assert re.search(r"✓ [1-9]\d* Jobs were evicted \(\d+ evictions\), requeued and ran later", text)
    assert "✓ each evicted Job was restored exactly as its user wrote it" in text
    assert "✓ quota was never exceeded" in text
    assert names_in(tmp_path) == []


@pytest.mark.long
async def test_kinds_scene_starts_each_object_once_with_all_its_pods(warm_demo: Start) -> None:
    process = await warm_demo("--scene", "kinds", "--speed", "30")
    output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    for sentence in ("all 54 objects ran", "each ran exactly once", "each started with all its pods"):
        assert f"✓ {sentence}" in text
    assert "222 PATCH" in text  # one for each pod of a group, one for each Job and RayCluster
    assert "✓ quota was never exceeded" in text


@pytest.mark.long
async def test_topology_scene_draws_both_maps_and_splits_no_training_run(warm_demo: Start) -> None:
    process = await warm_demo("--scene", "topology")
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    assert re.search(r"Sluice, by topology +[1-9]\d+ +0 +1\.0 ", text)
    assert re.search(r"^(\w{4}|·{4}) .*  (\w{4}|·{4}| {4}) ", text, re.MULTILINE)
    assert "\x1b" not in text
    assert "✓ by topology no training run was split over racks" in text


@pytest.mark.long
async def test_clusters_scene_shares_a_quota_and_dispatches_while_a_cluster_is_cut_off(warm_demo: Start) -> None:
    process = await warm_demo("--scene", "clusters", "--jobs", "90")
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    assert text.count("✓ all 90 Jobs ran") == text.count("✓ each Job ran exactly once") == 2
    assert text.count("✓ quota was never exceeded (180 checks") == 2
    assert text.count("Sluice cannot reach cluster c") == 2


@pytest.mark.costly
async def test_month_scene_draws_a_month_and_keeps_budget_calendar_and_reservation(warm_demo: Start) -> None:
    process = await warm_demo("--scene", "month")
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    assert re.search(r"^ 64 ▒+▓+▒+$", text, re.MULTILINE)
    assert re.search(r"^ {4}█+ {4}[\d,]+ of 17,000 GPU hours of ml$", text, re.MULTILINE)
    assert text.count("✓") == 3


@pytest.mark.costly
async def test_demo_runs_a_trace_to_its_end(warm_demo: Start, tmp_path: Path) -> None:
    file = tmp_path / "openb_pods.csv"
    rows = (
        f"pod-{number},4000,8192,{number % 3},BE,{number * 60},{number * 60 + 540},{number * 60}" for number in range(9)
    )
    file.write_text(
        "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time,scheduled_time\n" + "\n".join(rows) + "\n"
    )
    process = await warm_demo("--trace", str(file), "--speed", "900", "--jobs", "3")
    text = await read_until(process, "quota was never exceeded")
    assert "3 pods of openb_pods.csv as Jobs, 10 nodes with 80 GPUs and 1280 CPUs" in text
    assert "900 times as fast as real time" in text
    assert "GPU quota used while Jobs waited" in text
    assert "all 3 Jobs ran" in text


@pytest.mark.long
async def test_killed_serve_process_ends_the_demo_which_prints_its_last_log_lines(demo: Start) -> None:
    process = await demo("--scene", "quotas", "--jobs", LONG, "--nodes", "10")
    await read_until(process, "Live at")
    children = children_of(process)
    os.kill(children["serve"], signal.SIGKILL)
    assert process.stdout is not None
    rest = (await process.stdout.read()).decode()
    assert await process.wait() == 1
    assert "error: Sluice was ended by SIGKILL; the last lines that it wrote:" in rest
    assert re.search(r"^error:   \S+ INFO +admission\.", rest, re.MULTILINE), rest
    assert "Traceback" not in rest
    assert not is_running(children["sandbox"])


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_demo_leaves_no_processes_or_files(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = await Forked.start("demo", "--scene", "quotas", "--jobs", LONG, "--nodes", "10", environment=environment)
    await read_until(process, "Live at")
    children = children_of(process)
    assert children.keys() == {"sandbox", "serve"}
    process.send_signal(number)
    if number is signal.SIGTERM:  # as `timeout` does: once to the process, and once to its group
        process.send_signal(number)
    output, errors = await process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in (output + errors).decode()
    assert not any(is_running(pid) for pid in children.values())
    assert names_in(tmp_path) == []


@pytest.mark.costly
async def test_small_demo_with_keep_keeps_its_promises_and_runs_until_interrupted(
    warm_demo: Start, tmp_path: Path
) -> None:
    process = await warm_demo("--scene", "quotas", "--jobs", "20", "--nodes", "10", "--speed", "300", "--keep")
    text = await read_until(process, "Ctrl-C ends everything")
    assert "✓ all 20 Jobs ran" in text
    assert "✓ each Job ran exactly once" in text
    assert "✓ quota was never exceeded (200 checks of the pods in the API server)" in text
    assert re.search(r"\d\.\d\d per Job \(20 PATCH, \d+ POST\)", text)  # a slow machine has more Events
    settings = dict(re.findall(r"export (\w+)=(\S+)", text))
    get = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "admission.cli.main", "get", "clusterqueues"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **settings},
    )
    shown, _ = await get.communicate()
    assert get.returncode == 0
    assert "research" in shown.decode()
    assert "kubeconfig" in names_in(Path(settings["KUBECONFIG"]).parent)
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 0
    assert names_in(tmp_path) == []
