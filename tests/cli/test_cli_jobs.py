"""`sluice submit`, `logs` and `cancel`, with the rights of a user, against a real `sluice serve` beside a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from command_runner import Sluice
from custom_kinds import TRAINING_RUN_FORM, served, until
from ports import free_port
from serve_processes import NODE, QUEUES, TOKEN, job, serving
from serve_processes import sluice as sluice_process

from admission.client import Sluice as Client
from admission.kinds import all_kinds, parse_form
from admission.sandbox.sandbox import Sandbox
from tests.user_permissions import allow, bind, create_roles

FLAGS = ("--queue", "lq", "--image", "trainer:1")


@asynccontextmanager
async def world(folder: Path, *flags: str) -> AsyncIterator[tuple[Sandbox, Sluice, Client]]:
    """A sandbox with queues of four cpus in namespace `default`, where the user alice has the role edit."""
    async with Sandbox(speed=60) as sandbox:
        for user, file in (("sluice", "kubeconfig"), ("alice", "alice"), ("admin", "admin")):
            sandbox.write_kubeconfig(folder / file, user)
        local = sandbox.local("admin")
        await local.create("nodes", "", {**NODE})
        await bind(local, "edit", "alice", namespace="default")
        async with serving(folder, f"sqlite:///{folder / 'sluice.db'}", *flags) as replica:
            await replica.until_ready()
            environment = {"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN}
            done = await Sluice(environment)("apply", "-f", "-", stdin=QUEUES)
            assert done.exit_code == 0, done.stderr
            async with Client(replica.url, token=TOKEN) as client:
                yield sandbox, Sluice({**environment, "KUBECONFIG": str(folder / "alice")}), client


async def kubeconfig_without_log_access(sandbox: Sandbox, folder: Path) -> str:
    """The kubeconfig of bob, who may read Jobs and pods, but not logs."""
    sandbox.write_kubeconfig(folder / "looker", "bob")
    rules = [{"apiGroups": ["", "batch"], "resources": ["jobs", "pods"], "verbs": ["get", "list"]}]
    await allow(sandbox.local("admin"), "bob", *rules, namespace="default")
    return str(folder / "looker")


def name_of(done: Result) -> str:
    assert done.exit_code == 0, done.stderr
    return str(done.stdout).split("/")[1].split()[0]


async def process(sluice: Sluice, *arguments: str) -> tuple[int | None, str, str]:
    """Run a command that handles signals, which only a process of its own can; exit code, output and errors."""
    running = await sluice_process(*arguments, **sluice.environment)
    out, err = await running.communicate()
    return running.returncode, out.decode(), err.decode()


async def run_without_reader(sluice: Sluice, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose output pipe has no reader, as after `| head` has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(Path(sys.executable).with_name("sluice")), *arguments]
    environment = os.environ | sluice.environment
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


async def with_closed_input(sluice: Sluice, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard input is closed."""
    command = ["sh", "-c", 'exec "$0" "$@" <&-', str(Path(sys.executable).with_name("sluice")), *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | sluice.environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


async def create_for(user, name, sandbox, client):
    """Create a Job with the annotation of its user, as the webhook sets it, and wait until it was evaluated."""
    manifest = job(name, seconds=100_000)
    manifest["metadata"]["annotations"] = {"sluice.dev/submitted-by": user}
    manifest["spec"]["suspend"] = True
    await sandbox.local("admin").create("jobs", "default", manifest)
    await client.workloads.wait(name, lambda workload: "QuotaReserved" in workload.conditions)


@pytest.mark.costly
async def test_submit_logs_and_cancel_by_a_user_with_role_edit(tmp_path):
    async with world(tmp_path) as (sandbox, sluice, client):
        big = await sluice("submit", *FLAGS, "--cpu", "3", "--name", "big", "--", "sleep", "100000")
        assert (big.exit_code, big.stdout) == (0, "job.batch/big created\n"), big.stderr
        assert big.stderr == "big is admitted by ClusterQueue cq: its pods start now\n"
        waits = await sluice("submit", *FLAGS, "--cpu", "2", "--", "sleep", "100000")
        name = name_of(waits)
        assert name.startswith("sleep-")
        assert f"{name}: position 1 of 1 in ClusterQueue cq" in waits.stderr
        assert waits.stderr.count("needs 2 CPU (default)") == 1, "its reason is told once"
        assert f"sluice why {name} -n default" in waits.stderr

        nothing = await sluice("logs", name)
        assert nothing.exit_code == 1
        assert f"error: {name} has no pods with logs: {name}: position 1 of 1 in ClusterQueue cq" in nothing.stderr
        while not (shown := await sluice("logs", "job/big")).stdout:
            pass  # until its pod has started
        assert "simulating a run for 100000 s: sleep 100000\n" in shown.stdout
        for flags in ((), ("-f",)):
            code, out, err = await process(sluice, "logs", "big", "-c", "nope", *flags)
            assert (code, out) == (1, "")
            assert err == 'error: no pod has a container "nope"; available containers: main\n'
        for flags in ((), ("-f",)):
            assert await run_without_reader(sluice, "logs", "big", *flags) == (1, "")
        assert (await sluice("logs", "nothing")).exit_code == 1
        unread = await Sluice(
            {**sluice.environment, "KUBECONFIG": await kubeconfig_without_log_access(sandbox, tmp_path)}
        )("logs", "big")
        assert unread.exit_code == 1
        assert 'cannot get resource "pods/log"' in unread.stderr

        for each, user in (("mine", "alice"), ("also-mine", "alice"), ("foreign", "bob")):
            await create_for(user, each, sandbox, client)
        refused = await sluice("cancel", "foreign")
        assert refused.exit_code == 1
        assert "default/foreign" in refused.stderr
        assert "submitted by" in refused.stderr
        assert "confirm with --yes" in refused.stderr
        code, complaint = await with_closed_input(sluice, "cancel", "mine", "also-mine")
        assert (code, complaint.splitlines()[2:]) == (
            1,
            ["error: cancel these 2 Jobs? standard input is not a terminal: confirm with --yes"],
        )
        both = await sluice("cancel", "--mine", "--dry-run")
        assert {line.split()[0] for line in both.stdout.splitlines()} == {"job.batch/mine", "job.batch/also-mine"}
        assert "confirm with --yes" in (await sluice("cancel", "--mine")).stderr
        assert (await sluice("cancel", "also-mine")).exit_code == 0
        assert (await sluice("cancel", name, "--yes")).stdout == (
            f"job.batch/{name} cancelled; it was pending and held no quota\n"
        )
        assert (await sluice("cancel", "big", "--yes")).stdout == (
            "job.batch/big cancelled; releases 3 cpu (default) in ClusterQueue cq when its pods have terminated\n"
        )
        await client.workloads.wait("big", lambda workload: workload.finished)
        again = await sluice("cancel", "big")
        assert (again.exit_code, again.stdout) == (0, "big is already deleted\n")
        assert (await sluice("cancel", "--mine", "--yes")).exit_code == 0
        await client.workloads.wait("mine", lambda workload: workload.finished)
        assert "you have no unfinished Jobs" in (await sluice("cancel", "--mine", "--yes")).stderr
        assert [each["metadata"]["name"] for each in sandbox.local("admin").list("jobs")] == ["foreign"]


@pytest.mark.costly
async def test_submit_adds_the_queue_to_manifests_and_waits_for_completion(tmp_path):
    async with world(tmp_path) as (sandbox, sluice, _):
        manifest: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", **job("train", seconds=30)}
        manifest["spec"]["suspend"] = True
        del manifest["metadata"]["labels"]
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(manifest))
        assert "no label sluice.dev/queue-name" in (await sluice("submit", "-f", str(file))).stderr
        odd = tmp_path / "odd.yaml"
        odd.write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, labels: 3}\n")
        refused = await sluice("submit", "-f", str(odd), "--queue", "lq")
        assert (refused.exit_code, "metadata.labels: must be an object" in refused.stderr) == (2, True)
        wrong = await sluice("submit", "-f", str(file), "--queue", "lqq")
        assert (wrong.exit_code, wrong.stdout) == (1, "")
        assert 'did you mean "lq"' in wrong.stderr
        unlike = await sluice("submit", "-f", str(file), "--queue", "nope")
        assert (unlike.exit_code, unlike.stdout) == (1, "")
        assert 'the LocalQueues in namespace "default" are lq' in unlike.stderr
        empty = await sluice("submit", "-f", str(file), "--queue", "nope", "-n", "kube-system")
        assert 'namespace "kube-system" has no LocalQueue' in empty.stderr
        code, out, err = await process(sluice, "submit", "-f", str(file), "--queue", "lq", "--wait")
        assert (code, out) == (0, "job.batch/train created\n"), err
        assert err.endswith("train succeeded\n")

        manifest["spec"]["template"]["metadata"]["annotations"]["sandbox.sluice.dev/exit-code"] = "3"
        manifest["spec"]["backoffLimit"] = 0
        manifest["metadata"] = {"name": "fails"}
        file.write_text(yaml.safe_dump(manifest))
        code, out, err = await process(sluice, "submit", "-f", str(file), "--queue", "lq", "--follow")
        assert code == 1, err
        assert "ended with exit code 3\n" in out
        assert "error: fails failed: BackoffLimitExceeded" in err

        printed = await sluice("submit", *FLAGS, "--dry-run", "-o", "json")
        assert json.loads(printed.stdout)["metadata"]["labels"] == {"sluice.dev/queue-name": "lq"}
        elsewhere = await sluice("submit", *FLAGS, "-n", "kube-system")
        assert elsewhere.exit_code == 1
        assert len(sandbox.local("admin").list("jobs")) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_submit_that_is_interrupted_while_it_waits_fails_and_leaves_the_job(tmp_path, number):
    async with world(tmp_path) as (sandbox, sluice, _):
        command = ("submit", *FLAGS, "--name", "long", "--wait", "--", "sleep", "100000")
        running = await sluice_process(*command, **sluice.environment)
        assert await running.stdout.readline() == b"job.batch/long created\n"
        running.send_signal(number)
        _, err = await running.communicate()
        assert running.returncode == 1
        assert "error: interrupted before the Job finished" in err.decode()
        assert [each["metadata"]["name"] for each in sandbox.local("admin").list("jobs")] == ["long"]


def test_submit_refuses_positional_arguments_before_the_double_dash():
    for words, says in (
        (["train", *FLAGS, "--", "python", "train.py"], 'unexpected argument "train"; did you mean --name train?'),
        ([*FLAGS, "python", "train.py"], 'unexpected argument "python"; did you mean --name python?'),
        (["job.yaml"], 'unexpected argument "job.yaml"; did you mean -f job.yaml?'),
    ):
        done = Sluice().run("submit", "--dry-run", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{says} The container command must follow --" in done.stderr
    done = Sluice().run("submit", "--dry-run", *FLAGS, "-o", "json", "--", "sh", "--", "-c", "x")
    assert json.loads(done.stdout)["spec"]["template"]["spec"]["containers"][0]["command"] == ["sh", "--", "-c", "x"]


def test_submit_dry_run_needs_no_kubeconfig(tmp_path):
    nowhere = Sluice({"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)})
    done = nowhere.run("submit", "--dry-run", *FLAGS, "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["metadata"] == {
        "labels": {"sluice.dev/queue-name": "lq"},
        "generateName": "trainer-",
    }
    printed = nowhere.run("submit", "--dry-run", "-f", "-", "-q", "lq", stdin=done.stdout)
    assert "namespace" not in yaml.safe_load(printed.stdout)["metadata"]
    named = nowhere.run("submit", "--dry-run", *FLAGS, "-o", "json", "-n", "team-a")
    assert json.loads(named.stdout)["metadata"]["namespace"] == "team-a"
    given = nowhere.run("submit", "--dry-run", *FLAGS, "--kubeconfig", str(tmp_path / "none"))
    assert (given.exit_code, given.stdout) == (1, "")
    assert "none" in given.stderr
    assert nowhere.run("submit", *FLAGS).exit_code == 1


TRAINING_RUN = """
apiVersion: example.com/v1
kind: TrainingRun
metadata: {name: mine}
spec:
  paused: true
  roles:
  - {role: actor, template: {spec: {containers: [{name: main, image: pause, resources: {requests: {cpu: 1}}}]}}}
"""


@pytest.mark.costly
async def test_configured_kind_is_submitted_logged_and_cancelled(tmp_path):
    config, manifest = tmp_path / "sluice.yaml", tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump({"integrations": {"frameworks": ["batch/job"], "kinds": [TRAINING_RUN_FORM]}}))
    manifest.write_text(TRAINING_RUN)
    async with world(tmp_path, f"--config={config}") as (sandbox, sluice, _):
        submit = ("submit", "-f", str(manifest), "-q", "lq")
        assert "TrainingRun cannot be queued" in (await sluice(*submit)).stderr
        described = {**sluice.environment, "SLUICE_CONFIG": str(config), "KUBECONFIG": str(tmp_path / "admin")}
        sluice = Sluice(described)
        (kind,) = all_kinds(frameworks=(), own=[parse_form(TRAINING_RUN_FORM)])
        async with served(sandbox, kind):
            done = await sluice(*submit)
            assert done.stdout == "trainingrun.example.com/mine created\n", done.stderr
            await until(sandbox.local("admin"), "trainingruns", "mine", lambda obj: kind.observe(obj).ready)
            logs = await sluice("logs", "trainingrun/mine")
            assert logs.exit_code == 0, logs.stderr
            assert logs.stdout
            cancelled = await sluice("cancel", "trainingrun/mine", "--yes")
            assert cancelled.stdout.startswith("trainingrun.example.com/mine cancelled; releases 1 cpu"), (
                cancelled.stderr
            )


def test_submit_adds_the_queue_to_a_jobset_manifest():
    file = Path(__file__).parents[1] / "kinds" / "manifests" / "jobset.yaml"
    flags = ("--queue", "batch", "--dry-run", "-o", "json", "-n", namespace_in(file))
    done = Sluice().run("submit", "-f", str(file), *flags)
    assert done.exit_code == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["kind"] == "JobSet"
    assert manifest["metadata"]["labels"]["sluice.dev/queue-name"] == "batch"
    assert "kueue.x-k8s.io/queue-name" not in manifest["metadata"]["labels"]


def namespace_in(file: Path) -> str:
    return str(yaml.safe_load(file.read_text())["metadata"].get("namespace", "default"))


@pytest.mark.costly
async def test_users_hold_and_release_their_jobs_and_report_their_usage(tmp_path):
    """The user alice has the role edit in `default`; the roles are those of deploy/rbac, through the API server."""
    port = free_port()
    api_flags = (f"--apiservice-url=https://localhost:{port}", f"--certificate-directory={tmp_path / 'certificates'}")
    async with Sandbox(speed=60) as sandbox:
        for user, file in (("sluice", "kubeconfig"), ("alice", "alice"), ("bob", "bob"), ("admin", "admin")):
            sandbox.write_kubeconfig(tmp_path / file, user)
        local = sandbox.local("admin")
        await local.create("nodes", "", {**NODE})
        await bind(local, "edit", "alice", namespace="default")
        await create_roles(local)
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *api_flags, port=port):
            admin, alice, bob = (Sluice({"KUBECONFIG": str(tmp_path / user)}) for user in ("admin", "alice", "bob"))
            done = await admin("apply", "-f", "-", "--wait", "60", stdin=QUEUES)
            assert done.exit_code == 0, done.stderr
            name_of(await alice("submit", *FLAGS, "--cpu", "1", "--name", "mine", "--", "sleep", "100000"))

            for wrong in (["submit", "--queue", "l", "--image", "i"], ["get", "lq", "l"]):
                assert 'did you mean "lq"?' in (await alice(*wrong)).stderr  # she may read no other namespace
            held = await alice("hold", "mine")
            assert held.exit_code == 0, held.stderr
            assert held.stdout.endswith(" put on hold\n")
            labels = (local.get("jobs", "default", "mine") or {})["metadata"]["labels"]
            assert labels["sluice.dev/hold"] == "true"
            assert (await alice("release", "mine")).exit_code == 0
            assert "sluice.dev/hold" not in (local.get("jobs", "default", "mine") or {})["metadata"]["labels"]
            for command in (["hold", "mine"], ["cancel", "mine", "--yes"], ["logs", "mine"]):
                refused = await bob(*command)
                assert refused.exit_code == 1
                assert 'User "bob" cannot' in refused.stderr
            for command, role in ((["prioritize", "mine", "--top"], "sluice-team-lead"), (["tree"], "sluice-viewer"),
                                  (["stop", "cq/cq"], "sluice-admin"), (["drain", "node", "n"], "sluice-admin"),
                                  (["audit"], "sluice-admin")):  # fmt: skip
                refused = await alice(*command)
                assert (refused.exit_code, f"ClusterRole {role}" in refused.stderr) == (1, True), refused.stderr
            for command in (["get", "wl"], ["logs", "mine"], ["submit", *FLAGS]):
                hint = "; if it is in another namespace, add -n NAMESPACE\n"
                assert (await bob(*command)).stderr.endswith(hint)
                assert not (await bob(*command[:1], "-n", "default", *command[1:])).stderr.endswith(hint)
            assert (await alice("get", "wl", "-A")).stderr.endswith("use -n NAMESPACE instead of -A\n")
            own = {"default": "alice found in namespace default; use", "": "bob found; use"}
            for caller, where in ((alice, "default"), (bob, "")):  # no webhook has recorded who submitted
                assert own[where] in (await caller("get", "wl", "--mine", "-A")).stderr
                assert (await caller("get", "wl", "--mine", "-A", "-o", "json")).exit_code == 0
            # `release` by an admin also removes the hold label that the user has set.
            assert (await alice("hold", "mine")).exit_code == 0
            while "It is on hold by its label" not in (await admin("why", "mine")).stdout:
                pass
            released = await admin("release", "mine")
            assert released.stdout.endswith(" released\n"), released.stderr
            assert "sluice.dev/hold" not in (local.get("jobs", "default", "mine") or {})["metadata"]["labels"]
            assert (await admin("deactivate", "mine")).exit_code == 0
            assert "was put on hold by an admin" in (await alice("release", "mine")).stderr

            for scope in (["--mine"], ["-n", "default"]):
                assert (await alice("report", "usage", *scope)).exit_code == 0
            for scope in ([], ["-n", "kube-system"]):
                refused = await alice("report", "usage", *scope)
                assert 'User "alice" cannot get resource "reports"' in refused.stderr
            assert "(--mine)" in (await alice("report", "usage")).stderr
