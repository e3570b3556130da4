"""The commands about Jobs, and the examples of docs/client.md, against a real `sluice serve` beside a sandbox."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from command_runner import Sluice
from kubernetes_asyncio.config import kube_config
from ports import free_port
from serve_processes import NODE, QUEUES, TOKEN, job, serving

from admission.client import Sluice as Client
from admission.client import Unavailable
from admission.sandbox.sandbox import Sandbox

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
MORE = """
{apiVersion: sluice.dev/v1, kind: LocalQueue, metadata: {name: express}, spec: {clusterQueue: cq}}
---
{apiVersion: sluice.dev/v1, kind: WorkloadPriorityClass, metadata: {name: low}, value: -1}
"""


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[Sandbox, Sluice, Client]]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
        sandbox.write_kubeconfig(folder / "admin.kubeconfig", "admin")
        await sandbox.local("admin").create("nodes", "", NODE)
        async with serving(folder, f"sqlite:///{folder / 'sluice.db'}") as replica:
            await replica.until_ready()
            sluice = Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN})
            done = await sluice("apply", "-f", "-", stdin=f"{QUEUES}\n---\n{MORE}")
            assert done.exit_code == 0, done.stderr
            async with Client(replica.url, token=TOKEN) as client:
                yield sandbox, sluice, client


def queued(name: str, *, cpu: str, priority_class: str = "") -> dict[str, Any]:
    manifest = job(name, seconds=100_000)
    if priority_class:
        manifest["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority_class
    manifest["spec"]["suspend"] = True
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return manifest


async def three_jobs(sandbox, client):
    """`big` is admitted, `first` and `second` wait."""
    admin = sandbox.local("admin")
    await admin.create("jobs", "default", queued("big", cpu="3"))
    await client.workloads.wait("big")
    # Both may be created in the same second: the priority decides which is first.
    await admin.create("jobs", "default", queued("first", cpu="2"))
    await admin.create("jobs", "default", queued("second", cpu="2", priority_class="low"))
    for name in ("first", "second"):
        await client.workloads.wait(name, lambda workload: "QuotaReserved" in workload.conditions)


@pytest.mark.costly
async def test_why_position_and_prioritize_of_waiting_jobs(tmp_path):
    async with world(tmp_path) as (sandbox, sluice, client):
        await three_jobs(sandbox, client)
        why = await sluice("why", "job/first")
        assert why.exit_code == 0, why.stderr
        text = " ".join(why.stdout.split())
        assert text.startswith(
            "Job default/first needs 2 CPU (default): 1 of 4 free; position 1 of 2. "
            "RESOURCE FLAVOR NEEDED FREE OF OWN-QUEUE-USES OTHERS-USE CPU default 2 1 4 3 0 "
            "In use by default/big (3 CPU)."
        )
        assert len(why.stdout.splitlines()) <= 6
        assert max(map(len, why.stdout.splitlines())) <= 80
        more = await sluice("why", "first", "--verbose")
        assert more.stdout.startswith(why.stdout)
        assert "CPU (default): 1 too little by the nominalQuota of ClusterQueue cq" in more.stdout
        assert "position 2 of 2." in (await sluice("why", "wl/second")).stdout
        assert (await sluice("why", "rayjob/first")).exit_code == 1
        assert "does not wait: it is admitted, " in (await sluice("why", "big")).stdout
        assert (await sluice("position", "big")).stdout == "big does not wait: it is admitted.\n"

        assert (await sluice("position", "second")).stdout.startswith(
            "second: position 2 of 2 in ClusterQueue cq, 2 of 2 in LocalQueue lq; needs 2 CPU (default): 1 of 4 free."
        )
        top = await sluice("prioritize", "second", "--top", "--reason", "deadline")
        assert top.exit_code == 0, top.stderr
        assert top.stdout.endswith(" is first in its ClusterQueue\n")
        await until(sluice, ["position", "second"], "position 1 of 2 in ClusterQueue cq")
        assert [item.metadata.name.split("-")[1] async for item in client.pending(cluster_queue="cq")] == [
            "second",
            "first",
        ]

        back = await sluice("prioritize", "first", "--before", "second")
        assert (back.exit_code, back.stdout.endswith(" is directly before second\n")) == (0, True), back.stderr
        await until(sluice, ["position", "first"], "position 1 of 2 in ClusterQueue cq")
        refused = await sluice("prioritize", "first", "--before", "big")
        assert refused.exit_code == 1
        assert 'workload "default/big" does not wait in the same ClusterQueue; name one that does' in refused.stderr
        assert (await client.workloads.get("big")).uid not in refused.stderr
        for where in (["--top"], ["--before", "first"]):
            refused = await sluice("prioritize", "big", *where)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert "it is admitted and does not wait" in refused.stderr
        assert (await sluice("prioritize", "first", "--priority", "7")).exit_code == 0
        reset = await sluice("prioritize", "first", "--reset")
        assert reset.stdout.endswith(" has its original priority and position again\n"), reset.stderr
        while (await client.workloads.get("first")).document["spec"]["priority"] != 0:
            pass  # until the leader has applied the reset
        assert (await sluice("prioritize", "second", "--top")).exit_code == 0
        await until(sluice, ["position", "second"], "position 1 of 2 in ClusterQueue cq")


@pytest.mark.costly
async def test_top_move_hold_release_history_and_describe_of_jobs(tmp_path):
    async with world(tmp_path) as (sandbox, sluice, client):
        await three_jobs(sandbox, client)
        assert "NAME  FLAVOR   RESOURCE  USED  NOMINAL  BORROWED  USE" in (await sluice("top", "queues")).stdout
        assert (await sluice("top", "queues")).stdout.splitlines()[1].split() == [
            "cq", "default", "cpu", "3", "4", "0", "75%",
        ]  # fmt: skip
        users = (await sluice("top", "users")).stdout.splitlines()
        assert users[0].split() == ["NAME", "ADMITTED", "PENDING", "CPU"]
        assert users[1].split()[1:] == ["1", "2", "3"]

        assert (await sluice("move", "first", "--to", "express")).exit_code == 0
        await until(sluice, ["get", "wl/first", "-o", "jsonpath={.spec.queueName}"], "express")
        assert (await sluice("hold", "workload", "big")).stdout.endswith(" put on hold\n")
        await client.workloads.wait("second")
        assert (await sluice("release", "big")).exit_code == 0

        story = (await sluice("history", "big")).stdout
        assert "admitted" in story
        assert "3 cpu" in story
        described = await sluice("describe", "wl/big")
        assert described.exit_code == 0, described.stderr
        for part in ("Name:       job-big-", "Pod sets:", "Conditions:", "Explanation:", "History:"):
            assert part in described.stdout
        assert "Quota:" in (await sluice("describe", "cq/cq")).stdout

        unknown = await sluice("why", "nothing")
        assert unknown.exit_code == 1
        assert "check the namespace (-n), that the object has the label sluice.dev/queue-name" in unknown.stderr
        assert "that no other controller manages it (spec.managedBy)" in unknown.stderr


async def until(sluice: Sluice, command: list[str], says: str) -> None:
    """Repeat a command until its output contains a text: the leader applies changes asynchronously."""
    while says not in (await sluice(*command)).stdout:
        pass


@pytest.mark.costly
async def test_history_and_rollback_of_queue_objects(tmp_path):
    async with world(tmp_path) as (_, sluice, _):
        await sluice("stop", "cq/cq", "--reason", "maintenance")
        history = (await sluice("history", "cq/cq")).stdout
        newest, change, oldest = history.splitlines()[:3]
        assert re.match(r"revision \d+  replace by .*: maintenance$", newest)
        assert change.strip() == "spec.stopPolicy: None -> Hold"
        assert re.match(r"revision \d+  create by ", oldest)
        preview = await sluice("rollback", "cq/cq", "--dry-run")
        assert "(server dry run)" in preview.stdout
        done = await sluice("rollback", "cq/cq", "--reason", "done")
        assert done.stdout.startswith("clusterqueue.sluice.dev/cq rolled back to revision ")
        assert done.stdout.endswith("\n  spec.stopPolicy: Hold -> None\n")
        assert preview.stdout.endswith("\n  spec.stopPolicy: Hold -> None\n  nothing else would change\n")
        now = (await sluice("history", "cq/cq")).stdout.split()[1]
        assert (
            "no changes: it is already as in that revision"
            in (await sluice("rollback", "cq/cq", "--to-revision", now)).stdout
        )
        assert (await sluice("delete", "lq/express")).exit_code == 0
        assert (await sluice("rollback", "lq/express")).stdout.endswith("\n  it had been deleted\n")
        assert (await sluice("get", "cq/cq", "-o", "jsonpath={.spec.stopPolicy}")).stdout == "None"
        once_more = await sluice("rollback", "cq/cq", "--to-revision", "999999")
        assert once_more.exit_code == 1
        assert "there are, newest first: " in once_more.stderr


@pytest.mark.costly
async def test_aggregated_api_serves_cluster_users_by_rbac(tmp_path):
    """Sluice registers itself as an aggregated API of the sandbox, whose RBAC decides what users may do."""
    port = free_port()
    api_flags = (f"--apiservice-url=https://localhost:{port}", f"--certificate-directory={tmp_path / 'certificates'}")
    async with Sandbox() as sandbox:
        for user in ("sluice", "admin", "alice"):
            sandbox.write_kubeconfig(tmp_path / (user if user != "sluice" else "kubeconfig"), user)
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *api_flags, port=port):
            admin = Sluice({"KUBECONFIG": str(tmp_path / "admin")})
            done = await admin("apply", "-f", "-", "--wait", "60", stdin=QUEUES)
            assert done.exit_code == 0, done.stderr
            assert "clusterqueue.sluice.dev/cq created" in done.stdout
            assert (await admin("get", "cq", "-o", "name")).stdout == "clusterqueue.sluice.dev/cq\n"
            assert (await admin("stop", "cq/cq", "--reason", "ünterbrochen")).exit_code == 0
            history = (await admin("history", "cq/cq")).stdout
            assert re.match(r"revision \d+  replace by admin, .*: ünterbrochen\n", history), history
            for user in ("admin", "sluice"):
                manifest = queued(f"of-{user}", cpu="3")
                manifest["metadata"]["annotations"] = {"sluice.dev/submitted-by": user}  # as the webhook writes it
                await sandbox.local("admin").create("jobs", "default", manifest)
                async with Client.from_kubeconfig(str(tmp_path / "admin")) as client:
                    await client.workloads.wait(f"of-{user}", lambda workload: workload.user != "")
            mine = await admin("get", "workloads", "--mine", "-o", "jsonpath={.items[*].spec.object.name}")
            assert (mine.exit_code, mine.stdout) == (0, "of-admin"), mine.output
            alice = await Sluice()("get", "cq", "--kubeconfig", str(tmp_path / "alice"))
            assert alice.exit_code == 1
            assert 'cannot list resource "clusterqueues" in API group "sluice.dev"' in alice.stderr
        async with Client.from_kubeconfig(str(tmp_path / "admin")) as client:
            with pytest.raises(Unavailable, match="Sluice does not answer at https://"):
                await client.cluster_queues.get("cq")


@pytest.mark.costly
async def test_dry_run_predicts_evictions_and_admissions(tmp_path):
    async with world(tmp_path) as (sandbox, sluice, client):
        await sandbox.local("admin").create("jobs", "default", queued("runs", cpu="3"))
        await client.workloads.wait("runs")
        await sandbox.local("admin").create("jobs", "default", queued("waits", cpu="3"))
        await client.workloads.wait("waits", lambda workload: "QuotaReserved" in workload.conditions)
        drained = (await sluice("stop", "cq/cq", "--drain", "--dry-run")).stdout
        assert "  1 workload would be evicted:\n    default/" in drained
        raised = (await sluice("apply", "-f", "-", "--dry-run", stdin=QUEUES.replace("Quota: 4", "Quota: 6"))).stdout
        assert "  1 workload would be admitted:\n    default/" in raised
        lowered = await sluice("apply", "-f", "-", "--dry-run", stdin=QUEUES.replace("Quota: 4", "Quota: 2"))
        assert "1 workload could never run:" in lowered.stdout
        said = (
            "ClusterQueue cq would exceed its quota of cpu in flavor default by 1; running workloads are kept, except "
            "in ClusterQueues with spec.overQuota\n"
        )
        assert said in lowered.stdout
        assert lowered.stderr == "", "not twice"


def examples() -> tuple[Any, ...]:
    """The function that each example of the page defines last."""
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: list[dict[str, Any]] = [{} for _ in found]
    for code, defined in zip(found, names, strict=True):
        exec(compile(code, str(PAGE), "exec"), defined)
    return tuple([*defined.values()][-1] for defined in names)


@pytest.mark.costly
async def test_examples_of_the_client_page_work(tmp_path, monkeypatch, capsys):
    submit, set_quota, write_usage = examples()
    async with world(tmp_path) as (_, sluice, _):
        # The library reads KUBECONFIG when it is imported.
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "admin.kubeconfig"))
        monkeypatch.setenv("SLUICE_SERVER", sluice.environment["SLUICE_SERVER"])
        monkeypatch.setenv("SLUICE_TOKEN", TOKEN)

        admitted = await submit(queued("train", cpu="3"), "default")
        assert admitted.cluster_queue == "cq"
        assert await submit(queued("waits", cpu="2"), "default", timeout=0.5) is None
        out = capsys.readouterr().out
        assert out.startswith("train was admitted by cq\nwaits waits: ")

        assert not await set_quota("cq", "2")
        assert await set_quota("cq", "6")
        assert (await sluice("get", "cq/cq", "-o", "jsonpath={..nominalQuota}")).stdout == "6"

        file = io.StringIO()
        await write_usage(file)
        rows = list(csv.reader(io.StringIO(file.getvalue())))
        assert rows[0] == ["user", "namespace", "queue", "flavor", "resource", "unit", "used", "borrowed"]
        assert rows[1][1:6] == ["default", "lq", "default", "cpu", "core-hours"]
        assert float(rows[1][6]) > 0
