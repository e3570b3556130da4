"""The sandbox's operators beside recordings of the real ones; `make lives` prints each difference, with its reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from operator_lives import differences, play, read

LIVES = next(
    (found for up in Path(__file__).parents if (found := up / "shared/apiserver/lives/operators").is_dir()), None
)
SUSPEND = ("spec", "suspend")


def pods(**spec):
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    notes = {"sandbox.sluice.dev/run-seconds": "1000000", "sandbox.sluice.dev/stop-seconds": "3"}
    return {"metadata": {"annotations": notes}, "spec": {"containers": [container], **spec}}


def whole(api_version, kind, spec):
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "a", "namespace": f"t-{kind.lower()}"},
        "spec": spec,
    }


def job(number):
    template = pods(restartPolicy="Never")
    return {"parallelism": number, "completions": number, "completionMode": "Indexed", "template": template}


def role(name, replicas, number, **fields):
    return {"name": name, "replicas": replicas, "template": {"spec": job(number)}, **fields}


def jobset():
    after = [{"name": "driver", "status": "Ready"}]
    spec = {"replicatedJobs": [role("driver", 1, 1), role("workers", 2, 4, dependsOn=after)]}
    return whole("jobset.x-k8s.io/v1alpha2", "JobSet", spec)


def trainjob():
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    return whole("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": reference, "trainer": {"numNodes": 4}})


def runtime():
    node = role("node", 1, 1)
    node["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    template = {"spec": {"replicatedJobs": [node]}}
    made = whole("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", {"template": template})
    return {**made, "metadata": {"name": "torch-distributed"}}


def pytorchjob():
    roles = {name: {"replicas": number, "template": pods()} for name, number in (("Master", 1), ("Worker", 3))}
    return whole("kubeflow.org/v1", "PyTorchJob", {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles})


def cluster():
    groups = [
        {"groupName": "gpu", "replicas": 2, "minReplicas": 0, "maxReplicas": 6, "template": pods()},
        {"groupName": "cpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "template": pods()},
    ]
    return {"headGroupSpec": {"rayStartParams": {}, "template": pods()}, "workerGroupSpecs": groups}


def rayjob():
    submitter = pods(restartPolicy="Never")
    spec = {"shutdownAfterJobFinishes": True, "submissionMode": "K8sJobMode", "submitterPodTemplate": submitter}
    return whole("ray.io/v1", "RayJob", {**spec, "rayClusterSpec": cluster()})


def rayservice():
    return whole("ray.io/v1", "RayService", {"rayClusterConfig": cluster()})


def appwrapper():
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a-j"}, "spec": job(2)}
    return whole("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": wrapped}]})


CASES = {
    "appwrapper": ("workload.codeflare.dev/appwrapper", appwrapper(), SUSPEND),
    "jobset": ("jobset.x-k8s.io/jobset", jobset(), SUSPEND),
    "trainjob": ("trainer.kubeflow.org/trainjob", trainjob(), SUSPEND, runtime()),
    "pytorchjob": ("kubeflow.org/pytorchjob", pytorchjob(), ("spec", "runPolicy", "suspend")),
    "rayjob": ("ray.io/rayjob", rayjob(), SUSPEND),
    "rayservice": ("ray.io/rayservice", rayservice(), SUSPEND),
}
"""By recording: kind, object, path of its suspend field, and what exists before."""
SINCE = {"appwrapper": 252.4}
"""By recording: when an object was created that lived to its first stop; what was before had another form."""
_NOT_READ = r"(desired[CGMT].*|endpoints\..*|head\.serviceIP|stateTransitionTimes\..*)"
_CLUSTERS = {
    rf".* status\.(.*\.)?{_NOT_READ}": "nothing reads sums of requests, addresses of Services, and times of states",
    r"RayCluster \S+ status\.conditions\.RayClusterProvisioned": "here all pods are ready when the head is",
}
NAMED = {
    **{name: {} for name in CASES},
    "rayjob": {
        **_CLUSTERS,
        r"RayCluster a-#1 status\.conditions\.RayClusterSuspending": "Sluice suspended the cluster, and is not there",
        r"RayJob a status\.rayClusterStatus\.(state|\w+WorkerReplicas|conditions\.RayClusterProvisioned)": (
            "here all pods are ready when the head is; when recorded, the last one was not seen any more"
        ),
        r"RayJob a status\.jobStatusCheckFailureStartTime": "there was no Ray to ask, and here nothing asks it",
    },
    "rayservice": {
        **_CLUSTERS,
        r"RayService a status\.((active|pending)ServiceStatus\.rayClusterName|conditions\.Ready)": (
            "Serve was never ready when recorded; here it is as soon as its cluster is"
        ),
    },
}
"""By recording: known differences, as patterns of what differs, and why."""


def injected(spec, present):
    """Return a spec whose pod templates have a node selector, or none."""

    def visit(value):
        if isinstance(value, list):
            return [visit(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {key: visit(each) for key, each in value.items() if key != "nodeSelector"}
        return {**found, "nodeSelector": {"pool": "x"}} if present and "containers" in value else found

    return visit(spec)


@pytest.mark.virtual_time
@pytest.mark.skipif(LIVES is None, reason="the recorded lives (shared/apiserver/lives) are not beside this repository")
@pytest.mark.parametrize("name", CASES)
async def test_operator_lives_as_the_recorded_one(name):
    assert LIVES is not None
    kind, obj, suspend, *others = CASES[name]
    since = SINCE.get(name, 0.0)
    lived = await play(kind, obj, suspend, injected, *others, again=not since)
    unnamed, used = [], set()
    for what, how in differences(read(LIVES / f"{name}.json", since=since), lived):
        reasons = [(pattern, reason) for pattern, reason in NAMED[name].items() if re.fullmatch(pattern, what)]
        used |= {pattern for pattern, _ in reasons}
        print(f"{name}: {what}: {how}" + "".join(f"\n    because {reason}" for _, reason in reasons))
        unnamed += [f"{what}: {how}"] if not reasons else []
    assert not unnamed
    assert used == NAMED[name].keys(), "these differences are gone"
