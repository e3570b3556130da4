"""`sluice import volcano`, `kai`, ... as commands: plan, writing, idempotence, manifests, and errors."""

from __future__ import annotations

import fnmatch
import re
import shlex
from pathlib import Path

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs" / "migrating-from-schedulers.md"
QUEUE = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: a}, spec: {deserved: {cpu: 4}}}"
CAPACITY = ("--capacity", "cpu=10,memory=10Gi")


def blocks(language):
    found = re.findall(rf'^```{language}(?: title="([^"]*)")?\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found


def expects(output, lines):
    """Whether the output is as the page says; `...` stands for the rest of a line or, alone, for all lines."""
    printed = [" ".join(line.split()) for line in output.splitlines()]
    wanted = [" ".join(line.split()).replace("[", "[[]").replace("...", "*") for line in lines]
    if wanted == ["*"]:
        return True
    return len(printed) == len(wanted) and all(map(fnmatch.fnmatchcase, printed, wanted))


@pytest.mark.costly
async def test_commands_of_the_migration_page_print_the_documented_output(sluice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in blocks("yaml"):
        (tmp_path / name).write_text(content)
    for _, block in reversed(blocks("console")):  # only the first one writes
        steps = re.findall(r"^\$ sluice (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
        for command, output in steps:
            done = await sluice(*shlex.split(command))
            assert done.exit_code == 0, done.output
            assert expects(done.stdout, output.splitlines()), done.stdout
    quotas = (await sluice("get", "clusterqueue", "research", "-o", "yaml")).stdout
    cpu, memory = yaml.safe_load(quotas)["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert cpu == {"name": "cpu", "nominalQuota": "40", "lendingLimit": "30"}
    assert memory == {"name": "memory", "nominalQuota": "160Gi"}


@pytest.mark.parametrize("through", ["api", "database"])
async def test_repeated_import_changes_nothing_and_a_changed_queue_is_updated(sluice, tmp_path, through):
    where = () if through == "api" else ("--database-url", f"sqlite:///{tmp_path}/sluice.db")
    environment = {} if through == "api" else {"SLUICE_SERVER": ""}
    summaries = []
    for queue in (QUEUE, QUEUE, QUEUE.replace("cpu: 4", "cpu: 5")):
        arguments = ("import", "volcano", "-f", "-", "-n", "ns", *CAPACITY, *where, "--yes")
        done = await sluice(*arguments, stdin=queue, **environment)
        assert done.exit_code == 0, done.output
        summaries.append(done.stdout.splitlines()[-1])
    assert summaries == ["4 create: done", "4 same: there is nothing to do", "2 update, 2 same: done"]
    if through == "api":
        assert "imported from Volcano" in (await sluice("history", "clusterqueue/a")).stdout


async def test_manifests_printed_by_import_can_be_applied_with_the_same_result(sluice):
    printed = await sluice("import", "volcano", "-f", "-", "-n", "ns", *CAPACITY, "-o", "yaml", stdin=QUEUE)
    assert (await sluice("get", "clusterqueues")).stdout == ""
    applied = await sluice("apply", "-f", "-", stdin=printed.stdout)
    assert applied.exit_code == 0, applied.output
    again = await sluice("import", "volcano", "-f", "-", "-n", "ns", *CAPACITY, stdin=QUEUE)
    assert again.stdout.splitlines()[-1] == "4 same: there is nothing to do"


async def test_import_keeps_an_existing_flavor_unchanged(sluice):
    await sluice("create", "flavor", "gpu", "--node-labels", "pool=gpu")
    await sluice("import", "volcano", "-f", "-", *CAPACITY, "--flavor", "gpu", "--yes", stdin=QUEUE)
    assert "pool: gpu" in (await sluice("get", "flavor", "gpu", "-o", "yaml")).stdout


async def test_import_without_capacity_writes_nothing(sluice):
    refused = await sluice("import", "volcano", "-f", "-", "--yes", stdin=QUEUE)
    assert refused.exit_code == 1
    assert "--capacity cpu=...,memory=..." in refused.stderr
    assert "error: nothing was written" in refused.stderr
    assert (await sluice("get", "clusterqueues")).stdout == ""


FOREIGN = {
    "volcano": "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: a}}",
    "kai": "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: a}}",
    "koordinator": "{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: a}}",
    "scheduler-plugins": "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: a}}",
    "mcad": "{apiVersion: quota.codeflare.dev/v1alpha1, kind: QuotaSubtree, metadata: {name: a}}",
    "yunikorn": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {queues.yaml: 'partitions: []'}}",
}


async def test_import_refuses_queues_of_another_scheduler(sluice):
    refused = await sluice("import", "kai", "-f", "-", stdin=QUEUE)
    assert refused.stderr == (
        "error: -: no Queue of scheduling.run.ai found; to get one: kubectl get queues.scheduling.run.ai -o yaml\n"
    )


def volcano(spec, name="a"):
    return f"{{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: {name}}}, spec: {spec}}}\n"


def yunikorn(queues):
    return f"{{partitions: [{{name: default, queues: [{{name: root, queues: {queues}}}]}}]}}"


BOMB = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("source", "text", "message"),
    [
        (
            "volcano",
            volcano("{capability: {cpu: -3}}"),
            'Queue "a": spec.capability.cpu: must not be negative, but is -3',
        ),
        ("volcano", volcano("{capability: [1]}"), 'Queue "a": spec.capability: must be an object'),
        ("volcano", volcano("{capability: {cpu: 1x}}"), 'Queue "a": spec.capability.cpu: "1x" is not a quantity'),
        ("volcano", volcano("{capability: {'a b': 1}}"), "spec.capability[a b]: is not a resource name"),
        ("volcano", volcano("{deserved: {cpu: 1.0e+30}}"), "spec.deserved.cpu: is more than can be counted"),
        ("volcano", volcano("{parent: b}"), 'spec.parent: queue "b" is not in the files; add it'),
        ("volcano", volcano("{parent: b}") + "---\n" + volcano("{parent: a}", "b"), "spec.parent: closes a cycle"),
        (
            "volcano",
            volcano("{}") + "---\n" + volcano("{}"),
            'becomes "a", as does standard input: document 1: Queue "a"; rename or remove one',
        ),
        ("volcano", volcano("{weight: 1.0e+300}"), "spec.weight: must be a whole number from 1 to 65535"),
        ("volcano", volcano(str({"capability": {f"r{n}": 1 for n in range(70)}})), "a ClusterQueue has 64 at most"),
        ("kai", FOREIGN["kai"][:-1] + ", spec: {resources: {cpu: {quota: .nan}}}}", "cpu.quota: must be a number"),
        ("kai", FOREIGN["kai"][:-1] + ", spec: {resources: {cpu: {quota: 8Gb}}}}", "cpu.quota: "),
        ("kai", FOREIGN["kai"][:-1] + ', spec: {resources: {cpu: {quota: "8"}}}}', "cpu.quota: must be a number"),
        ("kai", FOREIGN["kai"][:-1] + ", spec: {resources: {cpu: {limit: -2}}}}", "cpu.limit: must be -1 (no limit)"),
        ("koordinator", FOREIGN["koordinator"].replace("name: a", "name: A"), 'metadata.name: "A" is not valid'),
        ("mcad", FOREIGN["mcad"], "metadata.labels.tree: is required"),
        ("yunikorn", yunikorn("[{name: a.b}]"), 'queues[0].queues[0].name: "a.b" is not a valid queue name'),
        ("yunikorn", yunikorn("[{name: A_b}, {name: a-b}]"), 'queues[1].name: becomes "root.a-b"'),
        ("yunikorn", "{partitions: 3}", "partitions: must be a list"),
        ("yunikorn", BOMB, "has more than 500000 values"),
        (
            "yunikorn",
            "kind: ConfigMap\ndata:\n  queues.yaml: |\n    " + BOMB.replace("\n", "\n    "),
            "data[queues.yaml]: has more than 500000 values",
        ),
        (
            "yunikorn",
            "{kind: ConfigMap, binaryData: {queues.yaml.gz: aaaa}}",
            "a compressed queues.yaml cannot be read",
        ),
    ],
)
async def test_invalid_queue_is_reported_on_one_line_with_the_field_path(sluice, source, text, message):
    refused = await sluice("import", source, "-f", "-", "--yes", stdin=text)
    assert refused.exit_code != 0
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1
    assert message in refused.stderr
    assert (await sluice("get", "cohorts")).stdout == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--capacity", "cpu"), '--capacity: "cpu" is not RESOURCE=QUANTITY'),
        (("--capacity", "cpu=x"), '--capacity: cpu: "x" is not a quantity'),
        (("--capacity", "cpu=1,cpu=2"), "--capacity: duplicate resource cpu"),
        (("-n", "Team_A"), '--namespace: "Team_A" is not a valid namespace name'),
        (("--flavor", "A"), '--flavor: "A" is not a valid ResourceFlavor name'),
        (("-o", "yaml", "--yes"), "-o cannot be used together with --yes"),
        (
            ("--database-url", "sqlite:///x", "--server", "http://x"),
            "--database-url cannot be used together with --server",
        ),
    ],
)
async def test_invalid_flag_is_reported(sluice, flags, message):
    refused = await sluice("import", "volcano", "-f", "-", *flags, stdin=QUEUE)
    assert refused.exit_code == 2
    assert message in refused.stderr


async def test_control_characters_in_foreign_field_names_are_escaped(sluice):
    queue = volcano(r'{deserved: {cpu: 1}, "\e[31mred": 1, "type": "\e[31m"}')
    shown = await sluice("import", "volcano", "-f", "-", stdin=queue)
    assert r"spec[\x1b[31mred]: unknown to this import, and left out" in shown.stdout
    assert "\x1b" not in shown.output
