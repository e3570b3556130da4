"""`sluice simulate` with scenarios and manifests, and errors of invalid input."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from admission.cli.commands.simulate import simulate

MANIFESTS = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 10
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main}
spec: {clusterQueue: team}
---
apiVersion: batch/v1
kind: Job
metadata: {name: first, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  parallelism: 3
  completions: 9
  template:
    spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: urgent, labels: {sluice.dev/queue-name: main, sluice.dev/priority-class: urgent}}
spec:
  template:
    spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}
"""


@pytest.fixture
def run(tmp_path):
    def _run(text: str, *options: str):
        path = tmp_path / "input.yaml"
        path.write_text(text)
        return CliRunner().invoke(simulate, [str(path), *options])

    return _run


def test_manifests_are_admitted_by_priority(run):
    result = run(MANIFESTS, "-o", "json")
    assert result.exit_code == 0
    answer = json.loads(result.output)
    assert list(answer["cycles"][0]["admitted"]) == ["default/urgent"]
    assert answer["final"]["pending"] == ["default/first"]
    assert answer["final"]["usage"] == {"team": {"default": {"cpu": 2000}}}


def test_workload_priority_class_and_job_min_parallelism_are_applied(run):
    template = "template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}"
    more = f"""
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{name: named}}
spec:
  queueName: main
  priorityClassRef: {{group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: urgent}}
  podSets: [{{name: main, count: 1, {template}}}]
---
apiVersion: batch/v1
kind: Job
metadata:
  name: shrinks
  labels: {{kueue.x-k8s.io/queue-name: main, sluice.dev/priority-class: urgent}}
  annotations: {{kueue.x-k8s.io/job-min-parallelism: "1"}}
spec: {{parallelism: 3, {template}}}
"""
    final = json.loads(run(MANIFESTS + more, "-o", "json").output)["final"]
    counts = {key: admission["podSetAssignments"][0]["count"] for key, admission in final["admitted"].items()}
    assert counts == {"default/urgent": 1, "default/named": 1, "default/shrinks": 1}
    assert final["pending"] == ["default/first"]


def test_text_output_lists_admissions_and_reasons_for_waiting(run):
    lines = run(MANIFESTS).output.splitlines()
    assert "  cycle 1: default/urgent admitted by team (main x1; default)" in lines
    assert any("default/first waits: WaitingForQuota:" in line for line in lines)


def test_manifests_of_several_files_are_simulated_together(tmp_path):
    queues, jobs = MANIFESTS.split("---\napiVersion: batch/v1", 1)
    job = ("apiVersion: batch/v1" + jobs).replace("metadata: {name: first,", "metadata: {generateName: first-,")
    (tmp_path / "jobs.yaml").write_text(job)
    (tmp_path / "queues.yaml").write_text(queues)
    done = CliRunner().invoke(simulate, [str(tmp_path / "jobs.yaml"), str(tmp_path / "queues.yaml")])
    first, *lines = done.output.splitlines()
    assert first == f"{tmp_path / 'jobs.yaml'}, {tmp_path / 'queues.yaml'}:"
    assert any("default/first-1 waits: WaitingForQuota:" in line for line in lines)
    assert lines[-2:] == ["  at the end: 1 admitted, 1 pending", "  team uses of default: cpu 2"]


def test_scenario_runs_for_the_requested_number_of_cycles(run):
    scenario = {
        "id": "two-jobs",
        "resourceFlavors": [_manifest("ResourceFlavor", "default", {})],
        "clusterQueues": [
            _manifest(
                "ClusterQueue",
                "cq",
                {
                    "namespaceSelector": {},
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu"],
                            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
                        }
                    ],
                },
            )
        ],
        "localQueues": [_manifest("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="ns")],
        "namespaces": [{"name": "ns", "labels": {}}],
        "workloads": [_workload("a", 1), _workload("b", 2)],
        "runCycles": {"ns/a": 3},
    }
    played = json.loads(run(json.dumps(scenario), "-o", "json").output)
    assert played["id"] == "two-jobs"
    assert [list(cycle["admitted"]) for cycle in played["cycles"][:4]] == [["ns/a"], [], [], ["ns/b"]]
    assert played["cycles"][2]["finished"] == ["ns/a"]
    short = json.loads(run(json.dumps(scenario), "-o", "json", "--cycles", "2").output)
    assert len(short["cycles"]) == 2
    assert list(short["final"]["admitted"]) == ["ns/a"]


def _manifest(kind, name, spec, **metadata):
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def _workload(name, second):
    spec = {
        "queueName": "lq",
        "podSets": [
            {
                "name": "main",
                "count": 1,
                "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            }
        ],
    }
    stamp = f"2026-01-01T00:00:0{second}Z"
    return _manifest("Workload", name, spec, namespace="ns", uid=name, creationTimestamp=stamp)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{}", "is neither a scenario (it has no clusterQueues) nor a manifest"),
        ("kind: Pod\napiVersion: v1", '"Pod" has no part in a simulation'),
        ("[1, 2]", "is not an object"),
        ("a: [", "line"),
        ('{"clusterQueues": 5}', "is not a valid scenario"),
        ("kind: Job\nmetadata: {name: a}", "Job a: spec: is missing"),
        ("kind: Job\nmetadata: {name: a}\nspec: {}", "Job a: spec.template: is missing"),
        ("kind: Workload\nmetadata: {}\nspec: {}", "metadata.name: is missing"),
        (
            "kind: Workload\nmetadata: {name: a}\nspec: {podSets: [{count: x}]}",
            "spec.podSets[0].count: must be a number",
        ),
        ("kind: WorkloadPriorityClass\nmetadata: {name: a}", "value: must be a number"),
        (
            "apiVersion: sluice.dev/v1\nkind: ClusterQueue\nmetadata: {name: a}\nspec: {nope: 1}",
            "spec.nope: unknown field",
        ),
        (
            "{clusterQueues: [], topologies: [{}], nodes: [{metadata: {name: n}, status: {allocatable: {cpu: -1}}}]}",
            "nodes[n].status.allocatable[cpu]: must not be negative",
        ),
    ],
)
def test_invalid_input_is_reported(run, text, fault):
    result = run(text, "-o", "json")
    assert result.exit_code == 2
    assert fault in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_named():
    result = CliRunner().invoke(simulate, ["/no/such/file.json"])
    assert result.exit_code == 2
    assert "/no/such/file.json" in result.stderr
