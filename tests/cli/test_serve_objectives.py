"""Objectives of a queue: what `sluice report objectives` and the metrics of a real `sluice serve` say."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from command_runner import Sluice
from serve_processes import NODE, QUEUES, TOKEN, job, serving, until_job

from admission.sandbox.sandbox import Sandbox


@pytest.mark.costly
async def test_met_objective_is_reported_and_exposed(tmp_path: Path):
    async with Sandbox() as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        local = sandbox.local("admin")
        await local.create("nodes", "", {**NODE})
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}") as replica:
            await replica.until_ready()
            sluice = Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN})
            wished = QUEUES.replace("  namespaceSelector: {}", "  namespaceSelector: {}\n  objective: {wait: 2h}")
            assert (await sluice("apply", "-f", "-", stdin=wished.replace("kueue.x-k8s.io/v1beta1", "sluice.dev/v1"))
            ).exit_code == 0  # fmt: skip
            one = job("one", seconds=100_000)
            one["spec"]["suspend"] = True  # there is no webhook
            await local.create("jobs", "default", one)
            await until_job(sandbox, "one", lambda obj: obj["status"].get("ready") == 1)
            shown = await sluice("report", "objectives", "--weeks", "1")
            line = shown.stdout.splitlines()[1].split()
            assert line[0] == "cq", shown.output
            assert " ".join(line[2:8]) == "90 % in 2 h 1"
            assert " ".join(line[8:10]) == "100.0 %"
            assert "* a part of the week" in shown.stderr
            written = await sluice("report", "objectives", "-o", "csv")
            (week, *_) = csv.DictReader(io.StringIO(written.stdout))
            assert (week["clusterQueue"], week["workloads"], week["isMet"]) == ("cq", "1", "true")
            _, text = await replica.get("/metrics")
            assert 'sluice_cluster_queue_objective_ratio{cluster_queue="cq"} 0.9' in text
            assert 'sluice_cluster_queue_objective_met_ratio{cluster_queue="cq"} 1.0' in text
