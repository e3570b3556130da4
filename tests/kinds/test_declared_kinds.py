"""Declared kinds, with a manifest of each: pod sets, requests, and patches that are restored completely."""

from __future__ import annotations

import copy

import jsonpatch
import pytest
from declared_examples import CONTEXT, KINDS, admission, manifest
from kind_jobs import FLAVORS
from kind_manifests import GOLDEN

from admission.kinds.children import Belonging
from admission.model.errors import Misconfigured


@pytest.mark.parametrize("name", GOLDEN)
def test_manifest_has_expected_pod_sets_and_requests(name):
    kind, obj = manifest(name)
    found = [(each.name, each.count, dict(each.requests)) for each in kind.pod_sets(obj, CONTEXT)]
    assert found == GOLDEN[name]
    assert kind.faults(obj) == []


@pytest.mark.parametrize("name", GOLDEN)
def test_gate_start_stop_and_restore_give_the_original_object(name):
    kind, obj = manifest(name)
    before = copy.deepcopy(obj)
    seen = kind.observe(obj)
    assert (seen.suspended, seen.active, seen.finished, seen.queue) == (True, False, None, "user-queue")
    assert kind.gate(obj) == []
    patch, original = kind.start_patch(obj, admission(kind, obj), FLAVORS)
    started = jsonpatch.apply_patch(obj, patch)
    seen = kind.observe(started)
    assert (seen.suspended, seen.active) == (False, True)
    assert kind.carries_start(started, original)
    assert kind.is_as_started(started, original)
    assert not kind.carries_start(obj, original)
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
def test_patches_fail_on_another_uid_or_generation(name):
    kind, obj = manifest(name)
    patch, original = kind.start_patch(obj, admission(kind, obj), FLAVORS)
    started = jsonpatch.apply_patch(obj, patch)
    restore = kind.restore_patch(started, original)
    for operations, target in ((patch, obj), (kind.stop_patch(started), started), (restore, started)):
        for change in ({"uid": "u-2"}, {"generation": 2}):
            other = copy.deepcopy(target)
            other["metadata"] |= change
            with pytest.raises(jsonpatch.JsonPatchTestFailed):
                jsonpatch.apply_patch(other, operations)


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
    ("rayservice", {"conditions": [{"type": "Ready", "status": "True"}]}, "active ready"),
    ("rayservice", {"conditions": [{"type": "Suspended", "status": "True"}]}, ""),
    ("rayjob", {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}, "active ready"),
    ("rayjob", {"jobDeploymentStatus": "Suspended"}, ""),
    ("rayjob", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "succeeded"),
    ("rayjob", {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, "failed"),
    ("rayjob", {"jobDeploymentStatus": "Failed"}, "failed"),
    ("rayjob", {"jobDeploymentStatus": "ValidationFailed"}, "failed"),
    ("rayjob", {"jobDeploymentStatus": "ValidationFailed", "rayClusterName": "r-x"}, ""),
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
def test_status_is_observed_as_active_ready_or_finished(name, status, expected):
    kind, obj = manifest(name)
    obj["status"] = status
    seen = kind.observe(obj)
    found = [word for word in ("active", "ready") if getattr(seen, word)]
    if seen.finished is not None:
        found.append("succeeded" if seen.finished.succeeded else "failed")
    assert " ".join(found) == expected


def test_succeeded_jobs_of_a_jobset_reduce_the_needed_pods():
    kind, obj = manifest("jobset")
    obj["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1, "active": 1}]}
    driver, workers = kind.observe(obj).counts
    assert (driver.needed, workers.wanted, workers.needed) == (1, 8, 4)


def test_more_pods_than_the_int32_maximum_are_a_fault():
    kind, obj = manifest("jobset")
    obj["spec"]["replicatedJobs"][1]["replicas"] = 2**31 - 1
    (fault,) = kind.faults(obj)
    assert fault[1] == f"asks for {4 * (2**31 - 1)} pods, but 2147483647 is the most"


def test_rayservice_suspend_field_depends_on_its_crd_version():
    kind, gated = manifest("rayservice")
    assert (gated["spec"]["suspend"], gated["spec"]["rayClusterConfig"]["suspend"]) == (True, True)
    older = copy.deepcopy(gated)
    del older["spec"]["suspend"]  # KubeRay 1.6 does not have the field
    assert kind.observe(older).suspended
    older["spec"]["rayClusterConfig"]["suspend"] = False
    assert not kind.observe(older).suspended
    newer = copy.deepcopy(gated)
    newer["spec"]["suspend"] = False
    assert not kind.observe(newer).suspended


def test_gate_patch_creates_a_missing_parent_field():
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
        (
            "pytorchjob-v1",
            ("spec", "pytorchReplicaSpecs", "worker"),
            {},
            r"pytorchReplicaSpecs\[worker\]: is no role that",
        ),
        ("mpijob-v2beta1", ("spec", "mpiReplicaSpecs", "Wroker"), {}, "write Launcher or Worker"),
        ("sparkapplication", ("spec", "mode"), "client", "spec.mode: must be cluster"),
        ("sparkapplication", ("spec", "driver", "memory"), "much", 'spec.driver.memory: "much" is no size'),
        ("sparkapplication", ("spec", "driver", "memory"), "9" * 5_000, 'spec.driver.memory: "999'),
        ("sparkapplication", ("spec", "dynamicAllocation"), {"enabled": True}, "spec.dynamicAllocation.enabled"),
        ("sparkapplication", ("spec", "sparkConf"), {"spark.executor.instances": "50"}, r"spec.sparkConf\[spark.exec"),
        ("sparkapplication", ("spec", "sparkConf"), {"spark.dynamicAllocation.enabled": "true"}, "dynamicAllocation"),
        ("sparkapplication", ("spec", "sparkConf"), {"spark.kubernetes.node.selector.a": "b"}, "node.selector.a"),
        ("sparkapplication", ("spec", "nodeSelector"), {"a": "b"}, "spec.nodeSelector: excludes those of driver"),
        (
            "sparkapplication",
            ("spec", "executor", "template"),
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            "spec.executor.template.spec.containers: quota is not counted by this",
        ),
        ("appwrapper-v1beta2", ("spec", "components", 1, "podSets"), [{"path": "a.b"}], "a.b leads to no pod template"),
        (
            "appwrapper-v1beta2",
            ("spec", "components", 0, "podSets", 0, "path"),
            "template.metadata",
            "a Job has its pods",
        ),
        ("appwrapper-v1beta2", ("spec", "components", 0, "podSets", 0, "replicas"), 1, "1 pods, but the Job has 2"),
    ],
)
def test_unsupported_spec_is_misconfigured_with_its_field_path(name, path, value, message):
    kind, obj = manifest(name)
    target = obj
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(Misconfigured, match=message):
        kind.pod_sets(obj, CONTEXT)
    assert kind.faults(obj)
    assert kind.observe(obj).suspended


def test_spark_requests_include_sidecars_and_init_containers():
    kind, obj = manifest("sparkapplication")
    obj["spec"]["sparkConf"] = {"spark.dynamicAllocation.enabled": "false", "spark.eventLog.enabled": "true"}
    before = [each.requests["cpu"] for each in kind.pod_sets(obj, CONTEXT)]
    large = {"name": "beside", "image": "pause", "resources": {"requests": {"cpu": "4"}}}
    obj["spec"]["driver"]["sidecars"] = [large]
    obj["spec"]["executor"]["initContainers"] = [large]
    assert [each.requests["cpu"] for each in kind.pod_sets(obj, CONTEXT)] == [before[0] + 4000, 4000]


def child_of(obj, name, template, *, kind="Job", pods=1):
    """Return a Job as the controller of an object would create it."""
    metadata = {"name": name, "namespace": "team-a", "uid": "c-1", "resourceVersion": "1"}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": copy.deepcopy(template)}
    return KINDS.get("batch", "Job"), {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("name", "child", "pod_set", "pods"),
    [
        ("jobset", "sample-jobset-driver-0", 0, 1),
        ("jobset", "sample-jobset-workers-1", 1, 4),
        ("mpijob-v2beta1", "sample-mpi-v2-launcher", 0, 1),
        ("rayjob", "sample-rayjob", 2, 1),
        ("appwrapper-v1beta2", "aw-job", 0, 2),
    ],
)
def test_child_job_is_part_of_its_owner_only_if_name_count_and_template_match(name, child, pod_set, pods):
    kind, obj = manifest(name)
    template = kind.templates(obj)[pod_set]
    assert kind.makes("batch", "Job")
    assert kind.part(obj, *child_of(obj, child, template, pods=pods), CONTEXT) is Belonging.CURRENT
    for other in (f"{child}-0", f"{child}0", f"0{child}", "", child[:-1]):
        assert kind.part(obj, *child_of(obj, other, template, pods=pods), CONTEXT) is Belonging.NONE
    assert kind.part(obj, *child_of(obj, child, template, pods=pods + 1), CONTEXT) is Belonging.MORE
    more = copy.deepcopy(template)
    more["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "64"}}
    assert kind.part(obj, *child_of(obj, child, more, pods=pods), CONTEXT) is Belonging.NONE
    patch, _ = kind.start_patch(obj, admission(kind, obj), FLAVORS)
    running = jsonpatch.apply_patch(obj, patch)
    stale = kind.part(running, *child_of(obj, child, template, pods=pods), CONTEXT)
    assert stale is Belonging.OUTDATED
    current = kind.templates(running)[pod_set]
    assert kind.part(running, *child_of(obj, child, current, pods=pods), CONTEXT) is Belonging.CURRENT
