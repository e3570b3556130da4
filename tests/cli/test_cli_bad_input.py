"""Mistyped commands: one sentence with the correction, the documented exit code, never a traceback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_runner import TOKEN, Sluice
from displayed_objects import create_queues, create_workloads

from admission.model.workload import PodSet, Workload
from admission.store.records import Changes, State, WorkloadRecord
from tests.queue_objects import cluster_queue, flavor, text_of

NOWHERE = {"SLUICE_SERVER": "http://127.0.0.1:1", "SLUICE_TOKEN": "t"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("describe", "cq/"), '"cq/" has no name; use cq/NAME, or cq for all'),
        (("describe", "job/train"), "queued Jobs and pods are shown as workloads: use wl, or wl/NAME"),
        (("why", ""), '"" is not a workload name; use the name of a Job, KIND/NAME or workload/NAME'),
        (("hold", ""), '"" is not a workload name'),
        (("position", "a/b/c"), '"a/b/c" is not a workload name'),
        (("rollback", "cq/a", "--to-revision", "abc"), '"abc" is not a revision; `sluice history cq/a` lists them'),
        (("apply", "queues.yaml"), 'unexpected argument "queues.yaml"; use main apply -f queues.yaml'),
        (("apply", "-f", "a.yaml", "b.yaml", "c.yaml"), 'argument "b.yaml"; use main apply -f b.yaml -f c.yaml'),
        (("diff", "queues.yaml"), "use main diff -f queues.yaml"),
        (("import", "volcano", "queues.yaml"), "use main import volcano -f queues.yaml"),
        (("import", "kueue", "queues.yaml"), "use main import kueue -f queues.yaml"),
        (("apply",), "Missing option '-f'"),
        (("apply", "-f", "https://a.example/q.yaml"), "https://a.example/q.yaml is a URL, and only files are"),
        (("simulate", "http://a.example/s.yaml"), "fetch it: curl -fsSL http://a.example/s.yaml | sluice ... -"),
        (("config", "check", "https://a.example/s.yaml"), "https://a.example/s.yaml is a URL, and only files are read"),
        (("config", "show", "--config", "https://a.example/s.yaml"), "https://a.example/s.yaml is a URL, and only"),
        (("import", "https://a.example/b.jsonl.gz"), "https://a.example/b.jsonl.gz is a URL, and only files are read"),
        (("kinds", "check", "http://a.example/k.yaml"), "curl -fsSL http://a.example/k.yaml | sluice ... /dev/stdin"),
        (("gte", "cq"), 'unknown command "gte"; did you mean "get"?'),
        (("get", "wl", "--ns", "a"), "Did you mean '--namespace'?"),
        (
            ("create", "clusterqueue", "a", "--nominal-quota", "a:cpu=4;b:cpu=10"),
            '"b:cpu" is not a resource; flavors are separated by a comma: use "a:cpu=4,b:cpu=10"',
        ),
        (("simulate", "nowhere.yaml"), "nowhere.yaml: cannot be read (No such file or directory); check FILE"),
    ],
)
def test_invalid_argument_is_refused_before_any_request(arguments, says):
    done = Sluice(NOWHERE).run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.parametrize(
    "line",
    ["get cq", "get cq a", "get cq,lq", "get cq/a", "describe lq", "delete cq", "delete cq a", "edit cq", "stop cq",
     "resume lq", "history cq", "rollback cq", "tree", "move train --to", "prioritize train --before",
     "cancel --mine --yes --queue"],
)  # fmt: skip
def test_empty_name_as_from_an_unset_variable_is_refused(line):
    done = Sluice(NOWHERE).run(*line.split(), "")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Error: Invalid value for '")
    assert "': a name is empty; check whether a variable is unset" in done.stderr


@pytest.mark.parametrize(
    "line", ["apply -f", "delete -f", "diff -f", "submit -q main --dry-run -f", "import", "config check", "kinds check"]
)
def test_empty_file_name_does_not_mean_the_current_directory(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queues.yaml").write_text("{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {name: everyone}}")
    done = Sluice(NOWHERE).run(*line.split(), "")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the name of a file is empty; check whether a variable is unset" in done.stderr.splitlines()[-1]


def test_kinds_check_of_a_missing_file_is_reported_in_one_sentence():
    done = Sluice().run("kinds", "check", "nowhere.yaml")
    assert (done.exit_code, done.stderr) == (1, "error: nowhere.yaml cannot be read: No such file or directory\n")


def test_submit_refuses_a_manifest_without_api_version_or_kind(tmp_path):
    (tmp_path / "pod.yaml").write_text("{kind: Pod}")
    (tmp_path / "none.yaml").write_text("{metadata: {name: x}}")
    for file, says in (("pod", "(no apiVersion) Pod cannot be queued"), ("none", "(no apiVersion) (no kind) cannot")):
        done = Sluice(NOWHERE).run("submit", "--dry-run", "-q", "q", "-f", str(tmp_path / f"{file}.yaml"))
        assert done.exit_code == 2
        assert says in done.stderr


async def test_unknown_name_or_state_is_reported_with_valid_alternatives(sluice):
    await sluice("create", "cohort", "everyone")
    tree = await sluice("tree", "everyon")
    assert (tree.exit_code, tree.stderr.endswith('; did you mean "everyone"?\n')) == (1, True)
    state = await sluice("get", "wl", "--field-selector", "status.state=running")
    assert state.exit_code == 1
    assert 'status.state: "running" is not one of pending, admitted, evicting, finished' in state.stderr
    place = await sluice("why", "team-a/train")
    assert "if team-a is its namespace, use train -n team-a" in place.stderr


async def test_why_with_a_wrong_prefix_suggests_the_kind_or_a_namespace(sluice, store):
    workload = Workload("1", "default", "train", "main", 0, 1.0, (PodSet(name="main", count=1, requests={}),))
    record = WorkloadRecord(workload, State.PENDING, queued_at=1.0)
    await store.commit(Changes(workloads=(record,)), epoch=await store.lead("tests"))
    for name, kind, says in (
        ("pod/train", "pod", "use job/train\n"),
        ("team-a/train", "team-a", "use job/train; if team-a is its namespace, use train -n team-a\n"),
    ):
        told = await sluice("why", name)
        assert told.exit_code == 1
        assert told.stderr == (
            f'error: workloads.sluice.dev "train" of kind {kind} not found in namespace "default"; '
            f"the one there is of kind Job: {says}"
        )


async def test_describe_shows_an_empty_namespace_selector_as_all_namespaces(sluice):
    head = "{apiVersion: sluice.dev/v1, kind: ClusterQueue, metadata: {name: %s}, spec: %s}\n"
    both = head % ("open", "{namespaceSelector: {}}") + "---\n" + head % ("closed", "{}")
    assert (await sluice("apply", "-f", "-", stdin=both)).exit_code == 0
    described = {name: (await sluice("describe", f"cq/{name}")).stdout for name in ("open", "closed")}
    assert "  namespaceSelector: all namespaces\n" in described["open"]
    assert "namespaceSelector" not in described["closed"]


async def test_unknown_workload_is_reported_with_what_to_check(sluice):
    told = await sluice("why", "train")
    assert told.exit_code == 1
    assert told.stderr.endswith(
        "; check the namespace (-n), that the object has the label sluice.dev/queue-name, and that no other "
        "controller manages it (spec.managedBy)\n"
    )


async def test_usage_of_a_removed_flavor_is_shown_by_top_and_describe(sluice, store, clock):
    await create_queues(store, clock)
    await create_workloads(store)
    other = text_of(flavor("other"), cluster_queue("team-a", flavor="other", cohortName="research"))
    assert (await sluice("apply", "-f", "-", stdin=other)).exit_code == 0
    rows = [line.split() for line in (await sluice("top", "queues")).stdout.splitlines()]
    removed, added = ["default", "cpu", "2", "0", "2", "<none>"], ["other", "cpu", "0", "4", "0", "0%"]
    assert rows[1:] == [["team-a", *removed], ["team-a", *added]]
    described = (await sluice("describe", "cq/team-a")).stdout
    assert [line.split() for line in described.splitlines() if " cpu " in line] == [removed, added]


LINES = ("get cohorts", "--help", "--version", "version", "get --help", "import kueue -h")


@pytest.mark.parametrize("line", ["", *(pytest.param(line, marks=pytest.mark.long) for line in LINES)])
async def test_output_to_a_full_disk_is_reported_in_one_sentence(sluice, line):
    await sluice("create", "cohort", "everyone")
    completes = {} if line else {"_SLUICE_COMPLETE": "bash_source"}  # without a command: a shell asks for its script
    command = [str(Path(sys.executable).with_name("sluice")), *line.split()]
    with open("/dev/full", "wb") as full:  # noqa: ASYNC230  nothing is written here
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            env=os.environ | sluice.environment | {"SLUICE_TOKEN": TOKEN} | completes,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"
