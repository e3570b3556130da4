"""The sandbox's operators beside recordings of the real ones; `make lives` prints each difference, with its reason."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from operator_lives import differences, play, read

LIVES = next(
    (found for up in Path(__file__).parents if (found := up / "shared/apiserver/lives/operators").is_dir()), None
)


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


def leaderworkerset():
    template = pods(schedulingGates=[{"name": "sluice.dev/admission"}])
    workers = {"size": 4, "workerTemplate": template}
    spec = {"replicas": 2, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": workers}
    return whole("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def appwrapper():
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a-j"}, "spec": job(2)}
    return whole("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": wrapped}]})


@dataclass(frozen=True)
class Case:
    """How a recorded life is played."""

    kind: str
    """Name in the setting `integrations`."""
    obj: dict
    steps: list
    others: tuple = ()
    """What exists before."""
    end: float = 93.0
    since: float = 0.0
    """Recorded time from which it is compared: what was before had another form."""
    until: float = math.inf
    """Recorded time up to which it is compared."""
    ungated: str = ""
    """Names of the pods that lose their gates, after the first 9.7 seconds."""


def lived(obj, kind, *keys, others=(), **more):
    """The case of an object with a suspend field: started, stopped, restored and started again."""
    keys = keys or ("spec", "suspend")

    def step(suspended, present):
        return lambda each: suspend({**each, "spec": injected(each["spec"], present)}, keys, value=suspended)

    steps = [(16.0, step(False, True)), (57.0, step(True, True)), (64.0, step(True, False)), (73.0, step(False, True))]
    end = more.get("end", 93.0)
    return Case(kind, suspend(obj, keys, value=True), [each for each in steps if each[0] < end], others, **more)


def suspend(obj, keys, *, value):
    """Return an object with this value of its suspend field."""
    copied = inner = json.loads(json.dumps(obj))
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    return copied


def injected(spec, present):
    """Return a spec whose pods get a node selector, or none: in their templates, for an AppWrapper beside them."""
    if "components" in spec:
        added = {"podSetInfos": [{"nodeSelector": {"pool": "x"}}]} if present else {}
        return {**spec, "components": [{"template": each["template"], **added} for each in spec["components"]]}

    def visit(value):
        if isinstance(value, list):
            return [visit(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {key: visit(each) for key, each in value.items() if key != "nodeSelector"}
        return {**found, "nodeSelector": {"pool": "x"}} if present and "containers" in value else found

    return visit(spec)


def scaled(at, replicas):
    return at, lambda obj: {**obj, "spec": {**obj["spec"], "replicas": replicas}}


CASES = {
    # An AppWrapper that was created later in the recording, and lived to its first stop.
    "appwrapper": lived(appwrapper(), "workload.codeflare.dev/appwrapper", since=252.4, end=69.0),
    "jobset": lived(jobset(), "jobset.x-k8s.io/jobset"),
    "leaderworkerset": Case(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        leaderworkerset(),
        [scaled(12.46, 3), scaled(21.53, 1), scaled(30.57, 2)],
        end=39.0,
        until=39.0,  # it was scaled up again, and the recording ends amid that
        ungated="a-[01].*",
    ),
    "trainjob": lived(trainjob(), "trainer.kubeflow.org/trainjob", others=(runtime(),)),
    "pytorchjob": lived(pytorchjob(), "kubeflow.org/pytorchjob", "spec", "runPolicy", "suspend"),
    "rayjob": lived(rayjob(), "ray.io/rayjob"),
    "rayservice": lived(rayservice(), "ray.io/rayservice"),
}
"""By recording."""
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


@pytest.mark.virtual_time
@pytest.mark.skipif(LIVES is None, reason="the recorded lives (shared/apiserver/lives) are not beside this repository")
@pytest.mark.parametrize("name", CASES)
async def test_operator_lives_as_the_recorded_one(name):
    assert LIVES is not None
    case = CASES[name]
    life = await play(case.kind, case.obj, case.steps, *case.others, end=case.end, ungated=case.ungated, since=9.7)
    unnamed, used = [], set()
    for what, how in differences(read(LIVES / f"{name}.json", since=case.since, until=case.until), life):
        reasons = [(pattern, reason) for pattern, reason in NAMED[name].items() if re.fullmatch(pattern, what)]
        used |= {pattern for pattern, _ in reasons}
        print(f"{name}: {what}: {how}" + "".join(f"\n    because {reason}" for _, reason in reasons))
        unnamed += [f"{what}: {how}"] if not reasons else []
    assert not unnamed
    assert used == NAMED[name].keys(), "these differences are gone"
