"""Examples and output formats in `--help` of all commands: examples parse and run, each `-o` writes its format."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest
import yaml

from admission.cli.main import main
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import Changes, Opened, State, WorkloadRecord

QUEUES = """
{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: default}}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohortName: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
---
{apiVersion: sluice.dev/v1, kind: LocalQueue, metadata: {name: main, namespace: team-a}, spec: {clusterQueue: team-a}}
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {name: express, namespace: team-a}
spec: {clusterQueue: team-a}
---
{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {name: research}}
---
apiVersion: sluice.dev/v1
kind: Budget
metadata: {name: ml}
spec: {scope: {}, resources: [{name: nvidia.com/gpu, hours: 100}], period: {every: Month}}
"""
MONEY = """
apiVersion: sluice.dev/v1
kind: BudgetRequest
metadata: {name: ml-x7f2k, namespace: team-a}
spec: {budget: ml, resource: nvidia.com/gpu, hours: 20, day: 2026-12-01, reason: deadline}
---
apiVersion: sluice.dev/v1
kind: PriceBook
metadata: {name: default}
spec: {currency: EUR, prices: [{resource: cpu, perHour: 0.03}]}
"""
VOLCANO = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q}, spec: {deserved: {cpu: 4}}}"


def commands(
    group: click.Group = main, path: tuple[str, ...] = ("sluice",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below a group, each with the words that call it."""
    context = click.Context(group, info_name=path[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


COMMANDS = {" ".join(path): command for path, command in commands()}


def examples(command: click.Command) -> list[list[str]]:
    """Command lines in the help of a command, without redirections and pipes."""
    found, lines = [], (command.help or "").replace("\\\n", " ").splitlines()
    for line in lines:
        if line.strip().startswith("sluice "):
            words = shlex.split(line.split(" > ")[0].split(" | ")[0])
            found.append(words[1:])
    return found


def parsed(arguments: list[str]) -> list[str]:
    """The names of the commands that a command line calls. Raises click's UsageError for an invalid one."""
    command: click.Command = main
    context, names = main.make_context("sluice", [*arguments]), ["sluice"]
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, inner, rest = command.resolve_command(context, rest)
        assert name is not None
        assert inner is not None
        names.append(name)
        if "--help" in rest:
            break
        command, context = inner, inner.make_context(name, rest, parent=context)
    return names


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_valid_examples_of_it(name):
    found = [" ".join(parsed(arguments)) for arguments in examples(COMMANDS[name])]
    assert any(called == name or called.startswith(f"{name} ") for called in found), found


def test_invalid_example_raises_a_usage_error():
    for wrong in (["get", "cq", "--outptu", "json"], ["gate", "of"], ["move", "train"]):
        with pytest.raises(click.UsageError):
            parsed(wrong)


@pytest.fixture
async def world(sluice, store):
    """Objects that the examples name: ClusterQueue team-a, two LocalQueues, and workloads, one of them admitted."""
    assert (await sluice("apply", "-f", "-", stdin=QUEUES)).exit_code == 0
    assert (await sluice("stop", "cq/team-a")).exit_code == 0
    now = datetime.now(UTC).timestamp()

    def record(uid: str, name: str, state: State, namespace: str = "team-a", **fields: object) -> WorkloadRecord:
        pods = (PodSet(name="main", count=1, requests={"cpu": 1000}),)
        workload = Workload(
            uid, namespace, name, "main", 0, now - 60, pods, user="alice", kind=fields.pop("kind", "Job")
        )
        return WorkloadRecord(workload, state, queued_at=now - 60, cluster_queue="team-a", **fields)

    held = Admission("team-a", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
    records = (
        record("1", "train", State.PENDING, reason="Suspended", message="The queue is stopped."),
        record("2", "other-job", State.PENDING, reason="Suspended", message="The queue is stopped."),
        record("3", "train", State.PENDING, "default", kind="RayJob", reason="Suspended", message="It is so."),
        record("4", "runs", State.ADMITTED, admission=held, admitted_at=now - 30),
    )
    opened = (Opened(records[3].workload, held, now - 30),)
    await store.commit(Changes(workloads=records, opened=opened), epoch=await store.lead("tests"))


ELSEWHERE = {
    **dict.fromkeys(("serve", "webhook", "sandbox", "demo"), "does not end"),
    **dict.fromkeys(("gate", "uninstall", "submit", "logs", "cancel", "debug", "kinds"), "asks a cluster"),
    **dict.fromkeys(("migrate", "export", "import"), "asks a database"),
    **dict.fromkeys(("config", "simulate"), "reads files"),
    "audit": "asks the leader",
    **dict.fromkeys(("drain", "cluster"), "asks a cluster"),
    "whatif": "asks a process of `sluice serve`",
    "edit": "asks an editor",
}
"""Commands whose examples are run by other tests and by pages of the documentation (tests/docs), with the reason."""


REFUSED = {
    "create": "exists already", "delete": "is in use by", "rollback": "has no revision 17 to go back to",
}  # fmt: skip
"""Part of the error of commands whose examples assume other objects than the fixture `world`."""


@pytest.mark.costly
async def test_examples_in_help_succeed_in_sequence(sluice, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queues").mkdir()
    (tmp_path / "volcano.yaml").write_text(VOLCANO)
    assert (await sluice("apply", "-f", "-", stdin=MONEY)).exit_code == 0
    for place in ("queues.yaml", "queues/queues.yaml"):
        (tmp_path / place).write_text(QUEUES)
    ran = set()
    for name, command in COMMANDS.items():
        if name == "sluice rollback":
            assert (await sluice("apply", "-f", "queues.yaml")).exit_code == 0  # restores objects that examples deleted
        for arguments in examples(command):
            line = " ".join(arguments)
            if arguments[0] in ELSEWHERE or line in ran or "--watch" in line or "--topology" in line:
                continue
            ran.add(line)
            if line == "delete -f queues.yaml":
                continue  # later examples need these objects
            done = await sluice(*arguments)
            if REFUSED.get(arguments[0], "\0") in done.stderr:
                assert done.exit_code == 1
                continue
            if arguments[0] == "diff":
                assert done.exit_code in (0, 1), (line, done.stderr)
                continue
            assert done.exit_code == 0, (line, done.stderr)
            assert "Traceback" not in done.stderr
    assert len(ran) > 30


PRINTS = {
    "sluice get": ["get", "cq,lq", "-A"],
    "sluice why": ["why", "train", "-n", "team-a"],
    "sluice tree": ["tree"],
    "sluice history": ["history", "cq/team-a"],
    "sluice create clusterqueue": ["create", "clusterqueue", "x", "--nominal-quota", "default:cpu=1"],
    "sluice create cohort": ["create", "cohort", "x"],
    "sluice create flavor": ["create", "flavor", "x"],
    "sluice create localqueue": ["create", "localqueue", "x", "--clusterqueue", "team-a", "-n", "team-a"],
    "sluice create priorityclass": ["create", "priorityclass", "x", "--value", "1"],
    "sluice calendar show": ["calendar", "show", "cq/team-a"],
    "sluice report usage": ["report", "usage", "--by", "user"],
    "sluice report idle": ["report", "idle", "--by", "workload"],
    "sluice report node": ["report", "node", "n17"],
    "sluice config show": ["config", "show"],
}
"""A call of each command that has `-o` and needs at most the API server."""

OTHERS = {
    "sluice apply": "tests/cli/test_apply_quotas_of_others.py",
    "sluice submit": "tests/cli/test_cli_jobs.py",
    "sluice audit": "tests/cli/test_cli_audit.py",
    "sluice whatif": "tests/cli/test_whatif.py",
    "sluice report cost": "tests/cli/test_cli_cost.py",
    "sluice report fairness": "tests/cli/test_cli_fairness.py",
    "sluice report objectives": "tests/cli/test_serve_objectives.py",
    "sluice simulate": "tests/simulate",
    **{f"sluice import {name}": "tests/cli/test_import_quota_systems.py" for name in (
        "volcano", "yunikorn", "koordinator", "scheduler-plugins", "kai", "mcad"
    )},
}  # fmt: skip


def words_of_output(command: click.Command) -> list[str]:
    """Values of the option `-o` of a command, according to its help."""
    (option,) = [each for each in command.params if "-o" in each.opts]
    metavar = option.make_metavar(click.Context(command))
    return [word for word in metavar.strip("[]").split("|") if not word.startswith("jsonpath")]


def test_every_command_with_an_output_option_is_in_a_table():
    with_output = {name for name, command in COMMANDS.items() if any("-o" in each.opts for each in command.params)}
    assert with_output == PRINTS.keys() | OTHERS.keys()


@pytest.mark.long
async def test_each_output_format_in_help_produces_valid_output(sluice, world, tmp_path):
    for name, arguments in PRINTS.items():
        is_written = arguments[0] == "create"
        for word in words_of_output(COMMANDS[name]):
            done = await sluice(*arguments, *(["--dry-run"] if is_written else []), "-o", word)
            assert done.exit_code == 0, (name, word, done.stderr)
            assert done.stdout, (name, word)
            check(word, done.stdout)
        wrong = await sluice(*arguments, "-o", "jsn")
        assert (wrong.exit_code, wrong.stdout) == (2, ""), name
        assert "is not one of" in wrong.stderr


def check(word: str, text: str) -> None:
    """Parse text as an output format; raises the error of the parser."""
    if word == "json":
        json.loads(text)
    elif word == "yaml":
        assert isinstance(yaml.safe_load(text), dict | list)
    elif word == "csv":
        header, *rows = csv.reader(text.splitlines())
        assert all(len(row) == len(header) for row in rows)
    elif word == "name":
        assert all(line.count("/") >= 1 and " " not in line for line in text.splitlines())
