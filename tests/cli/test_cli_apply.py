"""`sluice apply`: order and output of writes, validation before the first write, and waiting for the server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_runner import TOKEN, Sluice
from ports import free_port

from admission.api.application import create_app, listening
from admission.client import Sluice as Client
from admission.model.names import LAST_APPLIED

# Each object precedes the objects on which it depends.
MIXED = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: team-a}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohort: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default
      resources:
      - {name: cpu, nominalQuota: 4}
---
apiVersion: sluice.dev/v1
kind: Cohort
metadata: {name: research}
spec: {parentName: all}
---
apiVersion: sluice.dev/v1
kind: Cohort
metadata: {name: all}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: default}
"""
IN_ORDER = [
    "resourceflavor.sluice.dev/default",
    "workloadpriorityclass.sluice.dev/high",
    "cohort.sluice.dev/all",
    "cohort.sluice.dev/research",
    "clusterqueue.sluice.dev/team-a",
    "localqueue.sluice.dev/main",
]


def cohort(name: str, parent: str = "") -> str:
    spec = {"parentName": parent} if parent else {}
    return json.dumps({"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize("head", ["apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", ""])
async def test_directory_of_kustomize_is_applied_without_its_own_file(sluice, tmp_path, head):
    (tmp_path / "cohort.yaml").write_text(cohort("all"))
    (tmp_path / "kustomization.yaml").write_text(f"{head}resources: [cohort.yaml]\n")
    done = await sluice("apply", "-f", str(tmp_path))
    assert (done.exit_code, done.stdout) == (0, "cohort.sluice.dev/all created\n")
    assert "kustomization.yaml: skipped; what `kubectl kustomize` prints can be given by -f -" in done.stderr


@pytest.mark.costly
async def test_mixed_kinds_are_applied_in_dependency_order_and_idempotently(sluice, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(MIXED)

    first = await sluice("apply", "-f", str(file))
    assert (first.exit_code, first.stdout.splitlines()) == (0, [f"{name} created" for name in IN_ORDER])
    assert "skipped a Namespace" in first.stderr
    assert "warning" not in first.stderr

    again = await sluice("apply", "-f", str(file))
    assert (again.exit_code, again.stdout.splitlines()) == (0, [f"{name} unchanged" for name in IN_ORDER])

    file.write_text(MIXED.replace("nominalQuota: 4", "nominalQuota: 5").replace("value: 1000", "value: 2000"))
    changed = await sluice("apply", "-f", str(file))
    assert [line for line in changed.stdout.splitlines() if not line.endswith(" unchanged")] == [
        "workloadpriorityclass.sluice.dev/high configured",
        "clusterqueue.sluice.dev/team-a configured",
    ]


async def test_output_of_get_can_be_applied_without_changes(sluice):
    await sluice("apply", "-f", "-", stdin=MIXED)
    for output in ("yaml", "json"):
        printed = (await sluice("get", "cq", "-o", output)).stdout
        again = await sluice("apply", "-f", "-", stdin=printed)
        assert (again.exit_code, again.stdout) == (0, "clusterqueue.sluice.dev/team-a unchanged\n")


async def test_apply_reads_files_directories_and_standard_input_together(sluice, tmp_path):
    folder = tmp_path / "queues"
    folder.mkdir()
    (folder / "one.yaml").write_text(cohort("one"))
    (folder / "two.json").write_text(cohort("two"))
    (folder / "README.md").write_text("not a manifest")
    (tmp_path / "three.yaml").write_text(cohort("three"))
    arguments = ("-f", str(folder), "-f", str(tmp_path / "three.yaml"), "-f", "-")
    done = await sluice("apply", *arguments, stdin=cohort("four"))
    assert done.exit_code == 0
    assert {line.split()[0].rpartition("/")[2] for line in done.stdout.splitlines()} == {"one", "two", "three", "four"}


async def test_items_of_a_list_are_applied_one_by_one(sluice):
    items = [json.loads(cohort("one")), json.loads(cohort("two", parent="one"))]
    done = await sluice("apply", "-f", "-", stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    assert done.stdout.splitlines() == ["cohort.sluice.dev/one created", "cohort.sluice.dev/two created"]


async def test_namespace_option_applies_to_manifests_without_a_namespace(sluice):
    manifest = "apiVersion: sluice.dev/v1\nkind: LocalQueue\nmetadata: {name: main}\nspec: {clusterQueue: x}\n"
    done = await sluice("apply", "-f", "-", "-n", "team-b", stdin=manifest)
    assert done.exit_code == 0
    assert "warning: there is no ClusterQueue x" in done.stderr
    assert (await sluice("get", "lq", "-A", "--no-headers")).stdout.split()[:2] == ["team-b", "main"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (cohort("b") + "\n---\n" + cohort("c", "C C"), 'document 2: Cohort "c": spec.parentName: "C C" is no name'),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n", 'apiVersion: "batch/v1" is not known'),
        ("apiVersion: sluice.dev/v1\nkind: Queue\nmetadata: {name: x}\n", 'kind: "Queue" is not known'),
        ("apiVersion: sluice.dev/v1\nkind: Cohort\nmetadata: {name: x}\nspecs: {}\n", "specs: unknown field"),
        ("apiVersion: sluice.dev/v1\nkind: Cohort\n", "metadata: is required"),
        ("just text", "is not an object with apiVersion and kind"),
        ("a: [", "line 2"),
        (cohort("x") + "\n---\n" + cohort("x"), 'duplicate Cohort "x"; keep one of the two'),
        (cohort("x", "y") + "\n---\n" + cohort("y", "z") + "\n---\n" + cohort("z", "x"), "closes a cycle of Cohorts: "),
        (MIXED.replace("nominalQuota: 4", "nominalQuota: -4"), "nominalQuota: must not be negative"),
        (MIXED.replace("nominalQuota: 4", "nominalQuota: 1e99"), "nominalQuota: 1e99 is more than can be counted"),
        (
            MIXED.replace("nominalQuota: 4", "nominalQota: 4"),
            'nominalQota: unknown field; did you mean "nominalQuota"?',
        ),
    ],
)
async def test_one_invalid_object_prevents_all_writes(sluice, tmp_path, bad, says):
    (tmp_path / "a.yaml").write_text(cohort("good"))
    (tmp_path / "b.yaml").write_text(bad)
    done = await sluice("apply", "-f", str(tmp_path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert (await sluice("get", "cohorts", "-o", "name")).stdout == ""


async def test_each_invalid_document_is_reported_on_its_own_line(sluice):
    done = await sluice("apply", "-f", "-", stdin=cohort("A") + "\n---\n" + cohort("B"))
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: standard input: document ") for line in lines)


async def test_cycle_through_existing_cohorts_is_refused_by_the_server(sluice):
    await sluice("apply", "-f", "-", stdin=cohort("a", parent="b"))
    done = await sluice("apply", "-f", "-", stdin=cohort("b", parent="a"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "b -> a -> b" in done.stderr


@pytest.mark.parametrize("path", ["missing.yaml", "empty"])
async def test_apply_of_a_missing_file_or_an_empty_directory_is_an_error(sluice, tmp_path, path):
    (tmp_path / "empty").mkdir()
    done = await sluice("apply", "-f", str(tmp_path / path))
    assert done.exit_code == 2
    assert path in done.stderr


def test_apply_without_a_file_shows_the_usage(sluice_unreached):
    done = sluice_unreached.run("apply")
    assert done.exit_code == 2
    assert "Usage: " in done.stderr


@pytest.fixture
def sluice_unreached():
    return Sluice({"SLUICE_SERVER": f"http://127.0.0.1:{free_port()}", "SLUICE_ADMIN_TOKEN": TOKEN})


async def test_client_waits_until_the_server_listens(app):
    port = free_port()
    waiting = asyncio.Event()
    told = []

    def notice(text: str) -> None:
        told.append(text)
        waiting.set()

    async with Client(f"http://127.0.0.1:{port}", token=TOKEN) as client, asyncio.TaskGroup() as tasks:
        ready = tasks.create_task(client.wait_until_ready(30, notice))
        await waiting.wait()
        async with listening(app, "127.0.0.1", port):
            await ready
    assert len(told) == 1
    assert f"http://127.0.0.1:{port} cannot be reached" in told[0]


@pytest.mark.costly
async def test_apply_waits_until_the_server_listens(app):
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "admission.cli.main", "apply", "-f", "-",
        env={"PATH": "/usr/bin:/bin", "SLUICE_SERVER": f"http://127.0.0.1:{port}", "SLUICE_ADMIN_TOKEN": TOKEN},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(cohort("a").encode())
    process.stdin.close()
    told = (await process.stderr.readline()).decode()
    assert told.startswith(f"waiting for Sluice: http://127.0.0.1:{port} cannot be reached")
    async with listening(app, "127.0.0.1", port):
        output, more = await process.communicate()
    assert (process.returncode, output, more) == (0, b"cohort.sluice.dev/a created\n", b"")


async def test_apply_waits_for_readiness_and_prints_the_failing_check(store, sluice_unreached):
    asked = 0

    async def check():
        nonlocal asked
        asked += 1
        return "not synced yet" if asked < 3 else None

    app = create_app(store, token=TOKEN, checks={"cluster": check})
    async with listening(app, "127.0.0.1", 0) as url:
        done = await sluice_unreached("apply", "-f", "-", stdin=cohort("a"), SLUICE_SERVER=url)
    assert (done.exit_code, done.stdout) == (0, "cohort.sluice.dev/a created\n")
    assert done.stderr == "waiting for Sluice: cluster failed: not synced yet\n"


async def test_apply_fails_if_the_server_does_not_become_ready_in_time(store, sluice_unreached):
    async def check():
        return "not synced yet"

    app = create_app(store, token=TOKEN, checks={"cluster": check})
    async with listening(app, "127.0.0.1", 0) as url:
        done = await sluice_unreached("apply", "-f", "-", "--wait", "0", stdin=cohort("a"), SLUICE_SERVER=url)
    assert done.exit_code == 1
    assert done.stderr == "error: Sluice was not ready within 0 s: cluster failed: not synced yet\n"


def test_apply_fails_if_the_server_is_unreachable(sluice_unreached):
    done = sluice_unreached.run("apply", "-f", "-", "--wait", "0", stdin=cohort("a"))
    assert done.exit_code == 1
    assert "cannot be reached (Connection refused); does Sluice run there?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def benchmark_queues() -> str:
    tool = Path(__file__).parents[3] / "shared" / "tools" / "jobbench.py"
    if not tool.exists():
        pytest.skip("the benchmark's queues are not next to this checkout")
    printed = subprocess.run(
        [sys.executable, tool, "print-queues"], check=True, capture_output=True, text=True, timeout=240
    )
    return printed.stdout


@pytest.mark.costly
async def test_the_queues_of_the_benchmark_are_applied(sluice, benchmark_queues):
    done = await sluice("apply", "-f", "-", stdin=benchmark_queues)
    assert done.exit_code == 0, done.stderr
    assert all(line.endswith(" created") for line in done.stdout.splitlines())


async def test_apply_of_an_empty_document_is_an_error(sluice):
    done = await sluice("apply", "-f", "-", stdin="---\n")
    assert (done.exit_code, done.stderr) == (2, "error: no objects found in -\n")


@pytest.mark.costly
async def test_characters_missing_from_the_output_encoding_are_escaped(sluice):
    snowman = "{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {name: a, annotations: {x: 'ü ☃'}}}"
    await sluice("apply", "-f", "-", stdin=snowman)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "admission.cli.main", "get", "co/a", "-o", "jsonpath={.metadata.annotations.x}",
        env={"PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "latin-1", **sluice.environment},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, "ü \\u2603".encode("latin-1"))


async def test_describe_omits_the_last_applied_annotation(sluice):
    annotations = {LAST_APPLIED: '{"spec":{}}', "example.com/owner": "ada"}
    for name, notes in (("one", annotations), ("two", {LAST_APPLIED: "{}"})):
        manifest = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": name, "annotations": notes}}
        assert (await sluice("apply", "-f", "-", stdin=yaml.safe_dump(manifest))).exit_code == 0
    described = (await sluice("describe", "cohort/one")).stdout
    assert "last-applied" not in described
    assert "example.com/owner: ada" in described
    assert "annotations" not in (await sluice("describe", "cohort/two")).stdout


@pytest.mark.costly
async def test_dry_run_says_that_each_object_is_judged_without_the_others(sluice, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(MIXED)
    alone = (
        "note: the dry run judges each object alone: "
        "its effects and warnings are as if the other objects were not applied"
    )
    tried = await sluice("apply", "-f", str(file), "--dry-run")
    assert tried.exit_code == 0
    assert "warning: there is no ClusterQueue team-a" in tried.stderr
    assert tried.stderr.splitlines().count(alone) == 1
    assert alone not in (await sluice("apply", "-f", str(file), "--dry-run=client")).stderr

    assert alone not in (await sluice("apply", "-f", str(file))).stderr
    assert alone not in (await sluice("apply", "-f", str(file), "--dry-run")).stderr, "nothing would change"
    file.write_text(MIXED.replace("main", "new"))  # the last one alone would change
    assert alone not in (await sluice("apply", "-f", str(file), "--dry-run")).stderr
