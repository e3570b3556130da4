"""`Use it` of the README, executed literally: without and with a cluster, in an empty home directory."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from admission.cli.commands.sandbox import sandbox
from admission.model.quantity import parse_quantity
from admission.sandbox.main import simulated_node
from admission.sandbox.sandbox import Sandbox
from tests import sluice_server
from tests.ports import free_port

README = Path(__file__).parents[2] / "README.md"


def commands(text: str) -> list[str]:
    """Return the indented blocks of a section."""
    found = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_default_nodes_of_the_sandbox_have_room_for_the_quota_of_the_readme():
    section = README.read_text().split("## Use it")[1]
    *_, queue, _ = yaml.safe_load_all(section.split("```yaml\n")[1].split("```")[0])
    (nodes,) = (option.get_default(click.Context(sandbox)) for option in sandbox.params if option.name == "nodes")
    capacity = simulated_node("node")["status"]["capacity"]
    for resource in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        name = resource["name"]
        assert parse_quantity(resource["nominalQuota"]) <= nodes * parse_quantity(capacity[name]), name


@pytest.mark.costly
@pytest.mark.parametrize("has_cluster", [False, True], ids=["without a cluster", "with a cluster"])
async def test_use_it_commands_of_the_readme_start_a_job_and_show_its_log(tmp_path, has_cluster, warm_sluice):
    section = README.read_text().split("## Use it")[1].split("## Install it")[0]
    fenced = r"^```yaml\n(.*?)^```"
    manifests = re.findall(fenced, section, re.MULTILINE | re.DOTALL)[0]
    without, with_one, then = commands(re.sub(fenced, "", section, flags=re.MULTILINE | re.DOTALL))
    (tmp_path / "queues.yaml").write_text(manifests)
    home, api, gate = tmp_path / "home", free_port(), free_port()
    (home / ".kube").mkdir(parents=True)
    if has_cluster:  # otherwise the interpreter starts `sluice`, as for readers
        (home / "sluice").symlink_to(sluice_server.COMMAND)
    environment = {
        "HOME": str(home),
        "PATH": f"{home}:{warm_sluice['PATH']}",
        "WARM_SLUICE": warm_sluice["WARM_SLUICE"],
        "SLUICE_API_ADDRESS": f"127.0.0.1:{api}",
        "SLUICE_WEBHOOK_ADDRESS": f"127.0.0.1:{gate}",
        "SLUICE_SERVER": f"http://127.0.0.1:{api}",
    }
    script = "trap 'kill $(jobs -p); wait' EXIT\n" + (with_one if has_cluster else without) + then + "echo done\n"
    script = script.replace("9443", str(gate)).replace("ADDRESS:", "127.0.0.1:").replace("$PWD/.venv/bin:", "")
    async with Sandbox() as cluster:
        if has_cluster:
            await cluster.local("admin").create("nodes", "", _node())
            cluster.write_kubeconfig(home / ".kube" / "config", "admin")
        run = await asyncio.to_thread(
            subprocess.run, ["bash", "-e"], input=script, cwd=tmp_path, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
    assert "\ndone\n" in run.stdout, run.stdout
    assert "job.batch/hello created" in run.stdout
    assert "hello is admitted by ClusterQueue team-a: its pods start now" in run.stdout
    assert re.search(r"^team-a +job-hello-\w+ +batch +team-a +admitted ", run.stdout, re.MULTILINE), run.stdout
    assert re.search(r"^hello-\w+: simulating a run for 20 s: sleep 20$", run.stdout, re.MULTILINE), run.stdout
    assert "warning" not in run.stdout.split("\ndone\n")[0].lower(), run.stdout


def _node() -> dict[str, object]:
    amounts = {"cpu": "10", "memory": "10Gi", "pods": "110"}
    return {
        "metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
