"""`python -m tests.benchmarks [NAME...]`: measures the promised speed and cost on this machine.

Benchmarks run one at a time, and need an idle machine: load, sandbox and Sluice share its processors. The exit code
is 1 if a goal was missed.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from typing import Protocol

from admission.cli.demo.children import cancel_on_signals
from tests.benchmarks.measure import Figure, Skipped


class _Benchmark(Protocol):
    async def run(self) -> list[Figure]: ...


_MODULES = {
    "jobbench": "tests.benchmarks.bench_jobbench",
    "bound": "tests.benchmarks.bench_bound",
    "burst": "tests.benchmarks.bench_burst",
    "clusters": "tests.benchmarks.bench_clusters",
    "devices": "tests.benchmarks.bench_devices",
    "sizing": "tests.benchmarks.bench_sizing",
    "kinds": "tests.benchmarks.bench_kinds",
    "webhook": "tests.benchmarks.bench_webhook",
    "whatif": "tests.benchmarks.bench_what_if",
    "ungate": "tests.benchmarks.bench_ungate",
    "api": "tests.benchmarks.bench_api",
    "store": "tests.benchmarks.bench_store",
    "trace": "tests.benchmarks.bench_trace",
    "restart": "tests.benchmarks.bench_restart",
    "report": "tests.benchmarks.bench_report",
    "migrate": "tests.benchmarks.bench_migrate",
    "kill9": "tests.chaos.kill_serve",
    "forecast": "tests.benchmarks.bench_forecast",
    "topology": "tests.benchmarks.bench_topology",
    "pages": "tests.benchmarks.bench_pages",
    "readers": "tests.benchmarks.bench_readers",
    "policies": "tests.benchmarks.bench_policies",
}
# A script that prints its own figures: they are those of one core, not of several communicating processes.
_ENGINE = "engine"
_SCRIPT = "tests.benchmarks.bench_engine"


def main(names: list[str]) -> int:
    """Run the benchmarks of these names, or all, and return the exit code."""
    unknown = [name for name in names if name not in (*_MODULES, _ENGINE)]
    if unknown:
        print(
            f"error: no benchmark is called {', '.join(unknown)}; there are {', '.join((*_MODULES, _ENGINE))}",
            file=sys.stderr,
        )
        return 2
    missed = False
    for name in names or (*_MODULES, _ENGINE):
        print(f"\n{name}: python -m tests.benchmarks {name}", flush=True)
        if name == _ENGINE:
            missed = bool(subprocess.run([sys.executable, "-m", _SCRIPT], check=False).returncode) or missed
            continue
        benchmark: _Benchmark = importlib.import_module(_MODULES[name])
        try:
            figures = asyncio.run(_interruptible(benchmark))
        except Skipped as reason:
            print(f"  skipped: {reason}", flush=True)
            continue
        width = max(len(figure.what) for figure in figures)
        for figure in figures:
            verdict = {None: "", True: f"   ok ({figure.goal})", False: f"   MISSED ({figure.goal})"}[figure.met]
            print(f"  {figure.what:{width}}  {figure.value}{verdict}", flush=True)
        missed = missed or any(figure.met is False for figure in figures)
    return 1 if missed else 0


async def _interruptible(benchmark: _Benchmark) -> list[Figure]:
    cancel_on_signals()
    return await benchmark.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
