"""Admissions a second end to end, against a controller that decides nothing: the most that can be had here."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from admission.cli.demo.stage import running_sandbox
from tests.benchmarks.measure import TOOLS, Figure, Skipped, running

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_SCENARIO = ("--scenario", "baseline", "--scale", "0.1")
_GOAL = 0.70


async def run() -> list[Figure]:
    """The null controller first, then Sluice, each on a fresh sandbox without controllers."""
    if not (TOOLS / "jobbench.py").exists():
        raise Skipped(f"the load generator jobbench.py is not in {TOOLS.name}/ next to the repository")
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        best = await _null_controller(Path(folder))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        ours = await _sluice(Path(folder))
    ratio = ours["admissions_per_s"] / best["admissions_per_s"]
    faults = {key: ours[key] for key in ("errors", "peak_over_quota") if ours[key]}
    return [
        Figure("admissions/s, null controller", f"{best['admissions_per_s']:.1f}"),
        Figure("admissions/s, Sluice", f"{ours['admissions_per_s']:.1f}"),
        Figure("ratio", f"{ratio:.0%}", f"at least {_GOAL:.0%}", met=ratio >= _GOAL),
        Figure("Jobs done", f"{ours['done']} of {ours['total']}", "all", met=ours["done"] == ours["total"]),
        Figure("utilisation of nominal quota", f"{ours['utilisation']:.0%}"),
        Figure("errors, over-commitment", str(faults or "none"), "none", not faults),
    ]


async def _null_controller(directory: Path) -> dict[str, Any]:
    async with running_sandbox(directory, speed=1.0, controllers=False) as cluster:
        null = await _start("nullctl.py", str(cluster.kubeconfig))
        try:
            return await _jobbench(cluster.kubeconfig)
        finally:
            null.terminate()
            await null.wait()


async def _sluice(directory: Path) -> dict[str, Any]:
    queues = await _start("jobbench.py", "print-queues", *_SCENARIO, stdout=asyncio.subprocess.PIPE)
    documents = list(yaml.safe_load_all((await queues.communicate())[0]))
    async with running(directory, documents, controllers=False) as sluice:
        return await _jobbench(sluice.cluster.kubeconfig)


async def _jobbench(kubeconfig: Path) -> dict[str, Any]:
    arguments = ("run", *_SCENARIO, "--timeout", "120", "--kubeconfig", str(kubeconfig))
    process = await _start("jobbench.py", *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    result: dict[str, Any] = orjson.loads(output)
    return result


async def _start(tool: str, *arguments: str, stdout: int | None = None) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, str(TOOLS / tool), *arguments, stdout=stdout)
