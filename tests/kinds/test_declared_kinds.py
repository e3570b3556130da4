"""The kinds that are described as data, over a manifest of each: pod sets, requests, and patches without a trace."""

from __future__ import annotations

import copy
from pathlib import Path

import jsonpatch
import pytest
import yaml
from kind_jobs import FLAVORS

from admission.kinds import NamespaceContext, all_kinds, frameworks_known
from admission.model.errors import Misconfigured
from admission.model.workload import Admission, PodSetAssignment

MANIFESTS = Path(__file__).parent / "manifests"
KINDS = all_kinds(frameworks=frameworks_known())
CONTEXT = NamespaceContext()
MI, GI = 2**20, 2**30
GPU = "nvidia.com/gpu"

GOLDEN = {
    "jobset": [
        ("driver", 1, {"cpu": 1000, "memory": GI}),
        ("workers", 8, {"cpu": 2000, "memory": 4 * GI, GPU: 1}),
    ],
    "pytorchjob-v1": [
        ("master", 1, {"cpu": 1000, "memory": GI}),
        ("worker", 3, {"cpu": 2000, "memory": 2 * GI, GPU: 1}),
    ],
    "mpijob-v1": [("launcher", 1, {"cpu": 1000}), ("worker", 2, {"cpu": 2000})],
    "mpijob-v2beta1": [
        ("launcher", 1, {"cpu": 1000, "memory": 256 * MI}),
        ("worker", 2, {"cpu": 1000, "memory": GI}),
    ],
    "raycluster": [
        ("head", 1, {"cpu": 1500, "memory": 2560 * MI}),
        ("gpu", 4, {"cpu": 4000, "memory": 8 * GI, GPU: 1}),
        ("cpu", 1, {"cpu": 1000, "memory": GI}),
    ],
    "rayjob": [
        ("head", 1, {"cpu": 1000, "memory": 2 * GI}),
        ("workers", 2, {"cpu": 1000, "memory": GI}),
        ("submitter", 1, {"cpu": 500, "memory": 200 * MI}),
    ],
    "appwrapper-v1beta2": [("component-0-0", 2, {"cpu": 1000, "memory": GI})],
    "sparkapplication": [
        ("driver", 1, {"cpu": 1000, "memory": (512 + 384) * MI}),
        ("executor", 2, {"cpu": 1000, "memory": (512 + 384) * MI}),
    ],
}


def manifest(name):
    """The first document of a file, as the API server would store it, gated."""
    obj = next(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()))
    obj["metadata"] |= {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    return kind, jsonpatch.apply_patch(obj, kind.gate(obj))


def admission(kind, obj, flavor="spot"):
    sets = kind.pod_sets(obj, CONTEXT)
    return Admission("cq", tuple(PodSetAssignment(each.name, {"cpu": flavor}, {}, each.count) for each in sets))


@pytest.mark.parametrize("name", GOLDEN)
def test_pod_sets_and_requests(name):
    kind, obj = manifest(name)
    found = [(each.name, each.count, dict(each.requests)) for each in kind.pod_sets(obj, CONTEXT)]
    assert found == GOLDEN[name]
    assert kind.faults(obj) == []


@pytest.mark.parametrize("name", GOLDEN)
def test_it_is_gated_started_and_given_back_byte_for_byte(name):
    kind, obj = manifest(name)
    before = copy.deepcopy(obj)
    seen = kind.observe(obj)
    assert (seen.suspended, seen.active, seen.finished, seen.queue) == (True, False, None, "user-queue")
    assert kind.gate(obj) == []
    patch, original = kind.start_patch(obj, admission(kind, obj), FLAVORS)
    started = jsonpatch.apply_patch(obj, patch)
    seen = kind.observe(started)
    assert (seen.suspended, seen.active) == (False, True)
    assert kind.carries(started, original)
    assert kind.is_as_started(started, original)
    assert not kind.carries(obj, original)
    injected = [each for each in kind.templates(started) if (each.get("metadata") or {}).get("labels")]
    assert injected
    for template in injected:
        assert template["metadata"]["labels"]["sluice.dev/workload-uid"] == "u-1"
        assert template["spec"]["nodeSelector"] == {"pool": "spot"}
        assert template["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]
    stopped = jsonpatch.apply_patch(started, kind.stop_patch(started))
    restored = jsonpatch.apply_patch(stopped, kind.restore_patch(stopped, original))
    assert restored == before == obj
    assert restored == kind.restored(stopped, original)
    assert kind.restore_patch(restored, original) is None
    assert kind.restored(restored, original) is restored


@pytest.mark.parametrize("name", GOLDEN)
def test_patches_fail_on_another_spec(name):
    kind, obj = manifest(name)
    patch, original = kind.start_patch(obj, admission(kind, obj), FLAVORS)
    started = jsonpatch.apply_patch(obj, patch)
    for operations, target in ((patch, obj), (kind.stop_patch(started), started)):
        for change in ({"uid": "u-2"}, {"generation": 2}):
            other = copy.deepcopy(target)
            other["metadata"] |= change
            with pytest.raises(jsonpatch.JsonPatchTestFailed):
                jsonpatch.apply_patch(other, operations)
    edited = copy.deepcopy(started)
    edited["metadata"]["generation"] = 2
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(edited, kind.restore_patch(started, original))


STATUSES = [
    ("jobset", {"replicatedJobsStatus": [{"name": "driver", "active": 1}]}, "active"),
    ("jobset", {"replicatedJobsStatus": [{"name": "driver", "ready": 1}, {"name": "workers", "ready": 2}]}, "ready"),
    ("jobset", {"conditions": [{"type": "Completed", "status": "True", "message": "all jobs"}]}, "succeeded"),
    ("jobset", {"conditions": [{"type": "Failed", "status": "True"}]}, "failed"),
    ("jobset", {"conditions": [{"type": "Failed", "status": "False"}]}, ""),
    ("pytorchjob-v1", {"replicaStatuses": {"Worker": {"active": 3}}}, "active"),
    ("pytorchjob-v1", {"conditions": [{"type": "Running", "status": "True"}]}, "ready"),
    ("mpijob-v2beta1", {"conditions": [{"type": "Succeeded", "status": "True"}]}, "succeeded"),
    ("raycluster", {"state": "ready"}, "active ready"),
    ("raycluster", {"state": "suspended"}, ""),
    ("rayjob", {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}, "active ready"),
    ("rayjob", {"jobDeploymentStatus": "Suspended"}, ""),
    ("rayjob", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "succeeded"),
    ("rayjob", {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, "failed"),
    ("rayjob", {"jobDeploymentStatus": "Failed"}, "failed"),
    ("appwrapper-v1beta2", {"conditions": [{"type": "QuotaReserved", "status": "True"}]}, "active"),
    ("appwrapper-v1beta2", {"phase": "Failed"}, ""),
    (
        "appwrapper-v1beta2",
        {"phase": "Failed", "conditions": [{"type": "ResourcesDeployed", "status": "False"}]},
        "failed",
    ),
    ("sparkapplication", {"applicationState": {"state": "RUNNING"}}, "active ready"),
    ("sparkapplication", {"applicationState": {"state": "COMPLETED"}}, "succeeded"),
    ("sparkapplication", {"applicationState": {"state": "SUSPENDED"}}, ""),
]


@pytest.mark.parametrize(("name", "status", "expected"), STATUSES)
def test_what_the_status_says(name, status, expected):
    kind, obj = manifest(name)
    obj["status"] = status
    seen = kind.observe(obj)
    found = [word for word in ("active", "ready") if getattr(seen, word)]
    if seen.finished is not None:
        found.append("succeeded" if seen.finished.succeeded else "failed")
    assert " ".join(found) == expected


def test_jobs_of_a_jobset_that_have_ended_are_not_needed_any_more():
    kind, obj = manifest("jobset")
    obj["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1, "active": 1}]}
    driver, workers = kind.observe(obj).counts
    assert (driver.needed, workers.wanted, workers.needed, workers.present) == (1, 8, 4, 4)


def test_more_pods_than_were_admitted_are_taken_back():
    kind, old = manifest("raycluster")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 4
    new["spec"]["workerGroupSpecs"][1]["suspend"] = True
    patch, warning = kind.limit(new, old)
    assert patch == [{"op": "add", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}]
    assert (
        warning == "a running RayCluster gets no more pods than it has; suspend it in the same request to ask for more"
    )
    assert kind.limit(old, new)[0] == [{"op": "add", "path": "/spec/workerGroupSpecs/1/suspend", "value": True}]


def test_a_gate_whose_parent_is_missing():
    kind, obj = manifest("pytorchjob-v1")
    del obj["spec"]["runPolicy"]
    assert kind.gate(obj) == [{"op": "add", "path": "/spec/runPolicy", "value": {"suspend": True}}]


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        (
            "jobset",
            ("spec", "replicatedJobs", 0, "template", "spec"),
            {},
            r"replicatedJobs\[0\].template.spec.template",
        ),
        ("jobset", ("spec", "replicatedJobs", 1, "name"), "driver", 'there are two pod sets "driver"'),
        ("jobset", ("spec", "replicatedJobs"), [], "has no pod template"),
        ("rayjob", ("spec", "shutdownAfterJobFinishes"), False, "spec.shutdownAfterJobFinishes: must be true"),
        ("rayjob", ("spec", "clusterSelector"), {"a": "b"}, "spec.clusterSelector: a RayJob on a cluster that exists"),
        ("sparkapplication", ("spec", "driver", "memory"), "much", 'spec.driver.memory: "much" is no size'),
        ("sparkapplication", ("spec", "dynamicAllocation"), {"enabled": True}, "spec.dynamicAllocation.enabled"),
        ("appwrapper-v1beta2", ("spec", "components", 0, "podSets", 0, "path"), "a.b", "a.b leads to no pod template"),
    ],
)
def test_what_cannot_be_queued_is_told_by_its_path(name, path, value, message):
    kind, obj = manifest(name)
    target = obj
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(Misconfigured, match=message):
        kind.pod_sets(obj, CONTEXT)
    assert kind.faults(obj)
    assert kind.observe(obj).suspended


def test_another_controller():
    kind, obj = manifest("jobset")
    obj["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert kind.queue_name(obj) == ""
    obj["spec"]["managedBy"] = "jobset.sigs.k8s.io/jobset-controller"
    assert kind.queue_name(obj) == "user-queue"
