"""Admissions per second end to end, compared with a null controller, which is the maximum on this machine."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import orjson
import yaml

from admission.cli.demo.stage import running_sandbox
from tests.benchmarks.measure import TOOLS, Figure, Skipped, running

_SCENARIOS = (("baseline", "0.1"), ("burst", "1"))
"""Name and scale: the shape of Kueue's scalability test, and 2,000 Jobs created as fast as possible."""
_GOAL = 0.70


async def run() -> list[Figure]:
    """Measure the null controller, then Sluice, each on a new sandbox without controllers."""
    if not (TOOLS / "jobbench.py").exists():
        raise Skipped(f"the load generator jobbench.py is not in {TOOLS.name}/ next to the repository")
    return [figure for name, scale in _SCENARIOS for figure in await _compare(name, scale)]


async def _compare(name: str, scale: str) -> list[Figure]:
    scenario = ("--scenario", name, "--scale", scale)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        best = await _null_controller(Path(folder), scenario)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        ours = await _sluice(Path(folder), scenario)
    ratio = ours["admissions_per_s"] / best["admissions_per_s"]
    faults = {key: ours[key] for key in ("errors", "peak_over_quota") if ours[key]}
    # The burst is limited by the API server, and the sandbox does a fifth of a real server's work: no goal.
    goal = (f"at least {_GOAL:.0%}", ratio >= _GOAL) if name == "baseline" else ("", None)
    figures = [
        Figure(f"{name}: admissions/s, null controller", f"{best['admissions_per_s']:.1f}"),
        Figure("admissions/s, Sluice", f"{ours['admissions_per_s']:.1f}"),
        Figure("ratio", f"{ratio:.0%}", *goal),
        Figure("processor time of Sluice", f"{1000 * ours['cpu_seconds'] / ours['total']:.2f} ms a Job"),
        Figure("errors, over-commitment", str(faults or "none"), "none", not faults),
    ]
    if name == "burst":  # its Jobs never end
        figures.append(
            Figure("Jobs admitted", f"{ours['admitted']} of {ours['total']}", "all", ours["admitted"] == ours["total"])
        )
    else:
        figures += [
            Figure("Jobs done", f"{ours['done']} of {ours['total']}", "all", met=ours["done"] == ours["total"]),
            Figure("utilisation of nominal quota", f"{ours['utilisation']:.0%}"),
        ]
    return figures


async def _null_controller(directory: Path, scenario: tuple[str, ...]) -> dict[str, Any]:
    async with running_sandbox(directory, speed=1.0, controllers=False) as cluster:
        null = await _start("nullctl.py", str(cluster.kubeconfig))
        try:
            return await _jobbench(cluster.kubeconfig, scenario)
        finally:
            null.terminate()
            await null.wait()


async def _sluice(directory: Path, scenario: tuple[str, ...]) -> dict[str, Any]:
    queues = await _start("jobbench.py", "print-queues", *scenario, stdout=asyncio.subprocess.PIPE)
    documents = list(yaml.safe_load_all((await queues.communicate())[0]))
    async with running(directory, documents, controllers=False) as sluice:
        before = sluice.cpu_seconds()
        result = await _jobbench(sluice.cluster.kubeconfig, scenario)
        return {**result, "cpu_seconds": sluice.cpu_seconds() - before}


async def _jobbench(kubeconfig: Path, scenario: tuple[str, ...]) -> dict[str, Any]:
    arguments = ("run", *scenario, "--timeout", "120", "--kubeconfig", str(kubeconfig))
    process = await _start("jobbench.py", *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    result: dict[str, Any] = orjson.loads(output)
    return result


async def _start(tool: str, *arguments: str, stdout: int | None = None) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, str(TOOLS / tool), *arguments, stdout=stdout)
