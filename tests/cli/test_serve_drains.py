"""What stands in the way of emptying a node, and its eviction, by commands against a real `sluice serve`."""

from __future__ import annotations

from typing import Any

import pytest
from command_runner import Sluice
from serve_processes import NODE, QUEUES, TOKEN, job, serving, until_job

from admission.sandbox.sandbox import Sandbox


@pytest.mark.costly
async def test_node_is_emptied_by_its_deadline(tmp_path):
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        local = sandbox.local("admin")
        await local.create("nodes", "", {**NODE})
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}") as replica:
            await replica.until_ready()
            sluice = Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN})
            assert (await sluice("apply", "-f", "-", stdin=QUEUES)).exit_code == 0
            limited: dict[str, Any] = job("limited", seconds=100_000)
            limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "90000"
            for one in (limited, job("endless", seconds=100_000)):
                one["spec"]["suspend"] = True  # there is no webhook
                await local.create("jobs", "default", one)
            for name in ("limited", "endless"):
                await until_job(sandbox, name, lambda obj: obj["status"].get("ready") == 1)
            (node,) = {pod["spec"]["nodeName"] for pod in local.list("pods", "default")}
            shown = await sluice("drain", "node", node, "--running")
            lines = [line.split() for line in shown.stdout.splitlines()[1:]]
            assert [line[1] for line in lines] == ["endless", "limited"], shown.output
            assert lines[0][3:5] == ["1", "0"]
            assert " ".join(lines[0][5:]) == "no time limit"
            flavor = await sluice("drain", "flavor", "default", "--running")
            assert "limited" in flavor.stdout
            done = await sluice("drain", "node", node, "--until", "0s", "--reason", "new power supply")
            assert done.exit_code == 0, done.stderr
            assert "what runs there is evicted at" in done.stdout

            for name in ("limited", "endless"):
                await until_job(sandbox, name, lambda obj: obj["spec"].get("suspend") is True)
            why = await sluice("history", "job/endless")
            assert "The deadline of Drain node-" in why.stdout, why.output
            audit = await sluice("history", f"drain/node-{node}")
            assert "new power supply" in audit.stdout
