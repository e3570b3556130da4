"""What the operators of known kinds create, and the status that they write, as recorded of the real ones.

JobSet 0.12, Kubeflow Trainer 2.3, training-operator 1.9 and KubeRay 1.7 were recorded; MPIJobs `v2beta1` are as in the
source of mpi-operator 0.6.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.apimachinery.patches import merge_patch
from admission.sandbox.controllers.base import condition, is_over, is_ready
from admission.sandbox.controllers.operator import Description, WantedChild, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.controllers.operator import Scene

_JOB_SETS: Final = "jobsets.jobset.x-k8s.io"


def _holds(obj: Object, kind: str) -> bool:
    return (condition(obj, kind) or {}).get("status") == "True"


def _label(obj: Object, key: str) -> str:
    labels = obj["metadata"].get("labels") or {}
    return str(labels.get(key, ""))


# ---------------------------------------------------------------------- JobSet

_KEY: Final = "jobset.sigs.k8s.io/"
_ATTEMPT, _ROLE = f"{_KEY}restart-attempt", f"{_KEY}replicatedjob-name"


def _job_set_children(scene: Scene) -> Iterator[WantedChild]:
    """Yield a Job for each copy of each role, those that have to wait for others only if they exist.

    A finished JobSet keeps its finished Jobs. After a failure all Jobs are created anew when the old ones are gone.
    """
    attempt = str(scene.status.get("restarts", 0))
    if scene.finished:
        yield from (each for each in scene.kept() if _holds(each.obj, "Complete") or _holds(each.obj, "Failed"))
    elif any(_label(child, _ATTEMPT) != attempt for child in scene.children):
        yield from (each for each in scene.kept() if _label(each.obj, _ATTEMPT) == attempt)
    else:
        there = {child["metadata"]["name"] for child in scene.children}
        for role in scene.obj["spec"]["replicatedJobs"]:
            waits = not scene.suspended and any(not _is_met(scene, each) for each in _dependencies(scene, role))
            is_first = not _dependencies(scene, role)
            for number in range(role.get("replicas", 1)):
                job = _job_of(scene, role, number, attempt)
                if job["metadata"]["name"] in there:
                    yield WantedChild(job, "jobs", None if waits else partial(_suspended_as, job))
                elif not waits and (is_first or not scene.suspended):
                    yield WantedChild(job, "jobs")


def _dependencies(scene: Scene, role: Object) -> list[Object]:
    roles = scene.obj["spec"]["replicatedJobs"]
    before = roles[: roles.index(role)]
    in_order = (scene.obj["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return [{"name": before[-1]["name"], "status": "Ready"}] if in_order and before else role.get("dependsOn") or []


def _is_met(scene: Scene, dependency: Object) -> bool:
    role = next(each for each in scene.obj["spec"]["replicatedJobs"] if each["name"] == dependency["name"])
    copies: int = role.get("replicas", 1)
    counts = _counts(scene, dependency["name"])
    ready = 0 if dependency["status"] == "Complete" else counts["ready"]
    return counts["succeeded"] + ready >= copies


def _job_of(scene: Scene, role: Object, number: int, attempt: str) -> Object:
    metadata, roles = scene.obj["metadata"], scene.obj["spec"]["replicatedJobs"]
    name, copies = f"{scene.name}-{role['name']}-{number}", str(role.get("replicas", 1))
    total = str(sum(each.get("replicas", 1) for each in roles))
    index = str(number + sum(each.get("replicas", 1) for each in roles[: roles.index(role)]))
    marks = {f"{_KEY}{key}": value for key, value in {
        "jobset-name": scene.name, "jobset-uid": metadata["uid"], "replicatedjob-name": role["name"],
        "replicatedjob-replicas": copies, "restart-attempt": attempt, "job-index": str(number),
        "job-key": sha1(f"{metadata['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest(),
        "job-global-index": index, "job-group-index": index, "global-replicas": total, "group-replicas": total,
        "group-name": "default",
    }.items()}  # fmt: skip
    template: Object = orjson.loads(orjson.dumps(_default_role(role)["template"]))
    both = {"metadata": {"labels": marks, "annotations": marks}}
    spec = {**template["spec"], "suspend": scene.suspended}
    spec["template"] = merge_patch(spec["template"], both)
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**template.get("metadata", {}), "name": name}}
    return {**merge_patch(made, both), "spec": spec}


_PASSED_ON: Final = ("nodeSelector", "schedulingGates", "tolerations")
"""Fields of a pod template that JobSet passes on when it resumes a child Job (`jobset_controller.go`, resumeJob)."""


def _suspended_as(wanted: Object, child: Object) -> Object:
    """Return a child Job suspended, or resumed with the wanted template; one that is still being stopped waits."""
    spec, suspend = child["spec"], wanted["spec"]["suspend"]
    is_stopping = "startTime" in child.get("status", {}) and not _holds(child, "Suspended")
    if suspend is spec.get("suspend", False) or _holds(child, "Complete") or _holds(child, "Failed"):
        return child
    if suspend:
        return {**child, "spec": {**spec, "suspend": True}}
    if is_stopping:
        return child
    new = wanted["spec"]["template"]
    metadata = merge_patch(spec["template"].get("metadata", {}), new["metadata"])
    pods = {key: value for key, value in spec["template"]["spec"].items() if key not in _PASSED_ON}
    pods |= {key: new["spec"][key] for key in _PASSED_ON if key in new["spec"]}
    return {**child, "spec": {**spec, "suspend": False, "template": {"metadata": metadata, "spec": pods}}}


def _counts(scene: Scene, role: str) -> Counter[str]:
    """Return how many Jobs of a role have a pod, are ready, have succeeded, have failed, and are suspended."""
    found: Counter[str] = Counter()
    for job in scene.children:
        if _label(job, _ROLE) == role:
            status, spec = job.get("status", {}), job["spec"]
            pods = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
            over = _holds(job, "Complete"), _holds(job, "Failed")
            found["succeeded"] += over[0]
            found["failed"] += over[1]
            found["active"] += status.get("active", 0) > 0
            found["ready"] += not any(over) and status.get("ready", 0) + status.get("succeeded", 0) >= pods
            found["suspended"] += spec.get("suspend", False)
    return found


def _job_set_status(scene: Scene) -> Object:
    status, roles = scene.status, scene.obj["spec"]["replicatedJobs"]
    counts = {role["name"]: _counts(scene, role["name"]) for role in roles}
    fields = ("active", "failed", "ready", "succeeded", "suspended")
    status["replicatedJobsStatus"] = [
        {"name": name, **{field: each[field] for field in fields}} for name, each in counts.items()
    ]
    restarts = status.setdefault("restarts", 0)
    of_attempt = [each for each in scene.children if _label(each, _ATTEMPT) == str(restarts)]
    wanted: list[tuple[str, bool | str, str, str]] = []
    if scene.suspended:
        wanted = [("Suspended", True, "SuspendedJobs", "jobset is suspended")]
    elif condition(scene.obj, "Suspended") is not None:
        wanted = [("Suspended", False, "ResumeJobs", "jobset is resumed")]
    if any(_holds(each, "Failed") for each in of_attempt):
        most = (scene.obj["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
        if restarts < most:
            status["restarts"] = restarts + 1
        else:
            reason, message = (
                ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
                if most
                else ("FailedJobs", "jobset failed due to one or more job failures")
            )
            wanted.append(("Failed", True, reason, message))
            status["terminalState"] = "Failed"
    elif all(counts[role["name"]]["succeeded"] == role.get("replicas", 1) for role in roles):
        wanted.append(("Completed", True, "AllJobsCompleted", "jobset completed successfully"))
        status["terminalState"] = "Completed"
    if conditions := scene.conditions(*wanted):
        status["conditions"] = conditions
    return status


def _default_job_set(obj: Object) -> Object:
    spec = obj["spec"]
    roles = [merge_patch(_default_role(role), {}) for role in spec["replicatedJobs"]]
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, **(spec.get("network") or {})}
    found = {"network": network, "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    found |= {"successPolicy": {"operator": "All"}}
    return {**obj, "spec": {**found, **spec, "network": network, "replicatedJobs": roles}}


def _default_role(role: Object) -> Object:
    template = role["template"]
    pods = template["spec"]["template"]
    spec = {"completionMode": "Indexed", **template["spec"]}
    spec["template"] = {**pods, "spec": {"restartPolicy": "OnFailure", **pods["spec"]}}
    return {"groupName": "default", "replicas": 1, **role, "template": {**template, "spec": spec}}


def _fixed_roles(obj: Object, suspended: bool) -> object:
    """Return the part of the roles that no update may change: of a suspended one, all but what Kueue injects."""
    roles: list[Object] = orjson.loads(orjson.dumps(obj["spec"]["replicatedJobs"]))
    for role in roles if suspended else ():
        template = role["template"]["spec"]["template"]
        for parent, keys in (
            (template.get("metadata") or {}, ("annotations", "labels")),
            (template["spec"], _PASSED_ON),
        ):
            for key in keys:
                parent.pop(key, None)
        if not template.get("metadata"):
            template.pop("metadata", None)
    return roles


# ---------------------------------------------------------------------- TrainJob


def _train_job_children(scene: Scene) -> Iterator[WantedChild]:
    """Yield the JobSet, from the TrainJob and its runtime; it is changed only while either is suspended."""
    named = scene.obj["spec"]["runtimeRef"]
    namespace = "" if named["kind"] == "ClusterTrainingRuntime" else scene.obj["metadata"]["namespace"]
    runtime = scene.local.get(f"{named['kind'].lower()}s", namespace, named["name"])
    if runtime is None or scene.finished:
        yield from scene.kept()
        return
    spec = _default_job_set({"spec": _rendered(scene.obj, runtime)})["spec"]
    labels = (runtime["spec"]["template"].get("metadata") or {}).get("labels") or {}
    metadata = {"name": scene.name, "labels": labels}
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    yield WantedChild(
        made,
        _JOB_SETS,
        lambda child: {**child, "spec": spec} if scene.suspended or child["spec"].get("suspend") else child,
    )
    yield from (each for each in scene.kept() if each.obj["metadata"]["name"] != scene.name)  # forged ones


def _rendered(train_job: Object, runtime: Object) -> Object:
    """Return the spec of the JobSet of a TrainJob."""
    spec: dict[str, Any] = orjson.loads(orjson.dumps(runtime["spec"]["template"]["spec"]))
    trainer = train_job["spec"].get("trainer") or {}
    for role in spec["replicatedJobs"]:
        inner = role["template"]["spec"]
        inner |= {"parallelism": 1, "completions": 1}
        if role["name"] == "node":
            inner |= dict.fromkeys(("parallelism", "completions"), trainer.get("numNodes", 1))
            resources = {"resources": trainer["resourcesPerNode"]} if "resourcesPerNode" in trainer else {}
            inner["template"]["spec"]["containers"][0] |= resources
        for change in pod_changes(train_job, role["name"]):
            inner["template"] = merge_patch(inner["template"], change)
    return {**spec, "suspend": train_job["spec"].get("suspend") is True}


def pod_changes(train_job: Object, role: str) -> list[Object]:
    """Return the merge patches for the pods of a role, in the fields of Trainer 2.2, 2.1 and 2.0."""
    spec, found = train_job["spec"], []
    for entry in spec.get("runtimePatches", ()):
        jobs = entry.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", ())
        found += [each["template"]["spec"]["template"] for each in jobs if each["name"] == role]
    for field in ("podTemplateOverrides", "podSpecOverrides"):
        for entry in spec.get(field, ()):
            if {"name": role} in entry["targetJobs"]:
                rest = {key: value for key, value in entry.items() if key != "targetJobs"}
                found.append(rest if field == "podTemplateOverrides" else {"spec": rest})
    return found


def _train_job_status(scene: Scene) -> Object:
    status, wanted = scene.status, []
    if scene.suspended:
        wanted.append(("Suspended", True, "Suspended", "TrainJob is suspended"))
    elif condition(scene.obj, "Suspended") is not None:
        wanted.append(("Suspended", False, "Resumed", "TrainJob is resumed"))
    for job_set in scene.children:
        if found := job_set.get("status", {}).get("replicatedJobsStatus"):
            status["jobsStatus"] = found
        for kind, own in (("Completed", "Complete"), ("Failed", "Failed")):
            if _holds(job_set, kind):
                known = condition(job_set, kind) or {}
                wanted.append((own, True, known["reason"], known["message"]))
    status["conditions"] = scene.conditions(*wanted)
    return status


# ---------------------------------------------------------------------- training-operator and mpi-operator

_OF_KUBEFLOW: Final = "training.kubeflow.org/"
_INIT_PYTORCH: Final = {
    "name": "init-pytorch",
    "image": "alpine",
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
}
_DELIVERY_AMOUNTS: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
_DELIVERY: Final = {
    "name": "kubectl-delivery",
    "image": "mpioperator/kubectl-delivery",
    "resources": {"requests": _DELIVERY_AMOUNTS, "limits": _DELIVERY_AMOUNTS},
}
_LEADING: Final = ("Master", "Chief", "Launcher")
"""Roles that decide on the end of their object."""


def _roles(obj: Object) -> dict[str, Object]:
    """Return the replica specs by role."""
    found: dict[str, Object] = next(each for key, each in obj["spec"].items() if key.endswith("ReplicaSpecs"))
    return found


def _has_launcher_job(obj: Object) -> bool:
    return bool(obj["kind"] == "MPIJob" and obj["apiVersion"].endswith("/v2beta1"))


def _kubeflow_children(scene: Scene) -> Iterator[WantedChild]:
    """Yield a pod for each number of each role; the launcher of an MPIJob `v2beta1` is a Job."""
    if scene.finished:
        yield from scene.kept()
        return
    obj, roles = scene.obj, _roles(scene.obj)
    for role, spec in roles.items():
        labels = _kubeflow_labels(obj, role)
        if role == "Launcher" and _has_launcher_job(obj):
            template = merge_patch(spec["template"], {"metadata": {"labels": labels}})
            template = {**template, "spec": {"restartPolicy": "OnFailure", **template["spec"]}}
            made = {"suspend": scene.suspended, "template": template}
            metadata = {"name": f"{scene.name}-launcher", "labels": labels}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": made}
            yield WantedChild(job, "jobs", partial(_suspended_as, job))
            continue
        more = [_DELIVERY] if role == "Launcher" else []
        more = [_INIT_PYTORCH] if obj["kind"] == "PyTorchJob" and role == "Worker" and "Master" in roles else more
        first = [*(spec["template"]["spec"].get("initContainers") or ()), *more]
        for number in range(0 if scene.suspended else spec.get("replicas", 1)):
            numbered = {**labels, f"{_OF_KUBEFLOW}replica-index": str(number)}
            name = f"{scene.name}-{role.lower()}-{number}"
            yield WantedChild(pod(spec["template"], name, numbered, **({"initContainers": first} if first else {})))


def _kubeflow_labels(obj: Object, role: str) -> Object:
    operator = "mpi-operator" if _has_launcher_job(obj) else f"{obj['kind'].lower()}-controller"
    labels = {"job-name": obj["metadata"]["name"], "operator-name": operator, "replica-type": role.lower()}
    labels |= {"job-role": "launcher" if operator == "mpi-operator" else "master"} if role in _LEADING else {}
    return {f"{_OF_KUBEFLOW}{key}": value for key, value in labels.items()}


def _kubeflow_status(scene: Scene) -> Object:
    kind, status, roles = scene.obj["kind"], scene.status, _roles(scene.obj)
    counts = {role: _kubeflow_counts(scene, role) for role in roles}
    wanted = [("Created", True, f"{kind}Created", f"{kind} {scene.name} is created.")]
    suspended, resumed = (f"{kind} {scene.name} is {each}." for each in ("suspended", "resumed"))
    deciding = [role for role in roles if role in _LEADING] or [role for role in roles if role != "PS"]
    over = all(counts[role]["succeeded"] >= roles[role].get("replicas", 1) > 0 for role in deciding)
    if scene.suspended:
        was_running = condition(scene.obj, "Running") is not None
        wanted += [("Running", False, f"{kind}Suspended", suspended)] if was_running else []
        wanted.append(("Suspended", True, f"{kind}Suspended", suspended))
    else:
        if condition(scene.obj, "Suspended") is not None:
            wanted.append(("Suspended", False, f"{kind}Resumed", resumed))
        if any(each["failed"] for each in counts.values()):
            message = f"{kind} {scene.name} is failed because one or more replicas failed."
            wanted.append(("Failed", True, f"{kind}Failed", message))
        elif over:
            message = f"{kind} {scene.name} is successfully completed."
            wanted += [
                ("Running", False, f"{kind}Succeeded", message),
                ("Succeeded", True, f"{kind}Succeeded", message),
            ]
        elif all(counts[role]["active"] for role in deciding):
            wanted.append(("Running", True, f"{kind}Running", f"{kind} {scene.name} is running."))
    if not scene.suspended or "replicaStatuses" in status:
        keys = ("job-name", "operator-name", "replica-type")
        status["replicaStatuses"] = {
            role: {
                "selector": ",".join(
                    f"{_OF_KUBEFLOW}{key}={_kubeflow_labels(scene.obj, role)[f'{_OF_KUBEFLOW}{key}']}" for key in keys
                ),
                **{each: count for each, count in ({} if scene.suspended else counts[role]).items() if count},
            }
            for role in roles
        }
    status["conditions"] = scene.conditions(*wanted)
    return status


def _kubeflow_counts(scene: Scene, role: str) -> Counter[str]:
    """Return how many pods of a role run, have succeeded, and have failed."""
    found: Counter[str] = Counter()
    for child in scene.children:
        if _label(child, f"{_OF_KUBEFLOW}replica-type") != role.lower():
            continue
        status = child.get("status", {})
        if child.get("kind") == "Job":
            found["active"] += status.get("active", 0)
            found["succeeded"] += _holds(child, "Complete")
            found["failed"] += _holds(child, "Failed")
        else:
            ends = "deletionTimestamp" in child["metadata"]
            found["active"] += status.get("phase") == "Running" and not ends
            found["succeeded"] += status.get("phase") == "Succeeded"
            found["failed"] += status.get("phase") == "Failed" and not ends
    return found


# ---------------------------------------------------------------------- RayCluster

_WAIT_GCS: Final = {
    "name": "wait-gcs-ready",
    "resources": {key: {"cpu": "200m", "memory": "256Mi"} for key in ("requests", "limits")},
}
_AUTOSCALER: Final = {key: {"cpu": "500m", "memory": "512Mi"} for key in ("requests", "limits")}


def _ray_children(scene: Scene) -> Iterator[WantedChild]:
    """Yield the head and the workers, which have random names.

    With Ray's autoscaler no worker is deleted that it does not name in `workersToDelete`.
    """
    if scene.suspended:
        return
    spec = scene.obj["spec"]
    scales = spec.get("enableInTreeAutoscaling") is True
    head = spec["headGroupSpec"]["template"]
    more = {"name": "autoscaler", "resources": (spec.get("autoscalerOptions") or {}).get("resources") or _AUTOSCALER}
    containers = [*head["spec"]["containers"], *([more] if scales else ())]
    labels = {"ray.io/cluster": scene.name, "ray.io/is-ray-node": "yes"}
    first = {**labels, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    yield WantedChild(pod(head, f"{scene.name}-head-", first, containers=containers))
    for group in spec.get("workerGroupSpecs") or ():
        own = {**labels, "ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
        ends = set((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
        present = sum(
            _label(child, "ray.io/group") == group["groupName"]
            and "deletionTimestamp" not in child["metadata"]
            and child["metadata"]["name"] not in ends
            for child in scene.children
        )
        waits = [*(group["template"]["spec"].get("initContainers") or ()), _WAIT_GCS]
        for _ in range(max(_workers(group), present if scales else 0)):
            name = f"{scene.name}-{group['groupName']}-worker-"
            yield WantedChild(pod(group["template"], name, own, initContainers=waits))


def _workers(group: Object) -> int:
    lowest, highest = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
    copies: int = max(lowest, min(group.get("replicas", lowest), highest))
    hosts: int = group.get("numOfHosts", 1)
    return 0 if group.get("suspend") else copies * hosts


def _ray_status(scene: Scene) -> Object:
    status, generation = scene.status, scene.obj["metadata"]["generation"]
    pods = {True: [], False: []}  # type: dict[bool, list[Object]]
    for each in scene.children:
        pods[_label(each, "ray.io/node-type") == "head"].append(each)
    heads, workers = pods[True], pods[False]
    groups = scene.obj["spec"].get("workerGroupSpecs") or ()
    desired = sum(map(_workers, groups))
    stopping = ("RayClusterSuspending", False, "RayClusterSuspending", "")
    stopped = ("RayClusterSuspended", False, "RayClusterSuspended", "")
    if scene.suspended:
        if scene.children:
            status["conditions"] = scene.conditions((*stopping[:1], True, *stopping[2:]))
        else:
            absent = ("HeadPodReady", False, "HeadPodNotFound", "Head Pod not found")
            status["conditions"] = scene.conditions(absent, (*stopped[:1], True, *stopped[2:]), stopping)
            status["state"] = "suspended"
            for field in ("readyWorkerReplicas", "availableWorkerReplicas"):
                status.pop(field, None)
        return {**status, "observedGeneration": generation}
    if not any(map(is_ready, heads)):
        return status
    counts = {"readyWorkerReplicas": sum(map(is_ready, workers)), "desiredWorkerReplicas": desired}
    counts["availableWorkerReplicas"] = sum(each.get("status", {}).get("phase") == "Running" for each in workers)
    is_whole = counts["readyWorkerReplicas"] >= desired and not any(is_over(each) for each in scene.children)
    bounds = (("minWorkerReplicas", "minReplicas"), ("maxWorkerReplicas", "maxReplicas"))
    counts |= {
        name: sum(group.get(field, 0) * group.get("numOfHosts", 1) for group in groups) for name, field in bounds
    }
    provisioned = ("RayClusterProvisioned", False, "RayClusterPodsProvisioning",
                   "RayCluster Pods are being provisioned for first time")  # fmt: skip
    if is_whole or _holds(scene.obj, "RayClusterProvisioned"):
        provisioned = ("RayClusterProvisioned", True, "AllPodRunningAndReadyFirstTime",
                       "All Ray Pods are ready for the first time")  # fmt: skip
    ready = ("HeadPodReady", True, "HeadPodRunningAndReady", "")
    status["conditions"] = scene.conditions(ready, provisioned, stopped, stopping)
    name, service = heads[0]["metadata"]["name"], f"{scene.name}-head-svc"
    written = {"head": {"podName": name, "serviceName": service}, "observedGeneration": generation}
    for field in (*counts, "state"):
        status.pop(field, None)
    state = {"state": "ready"} if is_whole else {}
    return {**status, **written, **{each: count for each, count in counts.items() if count}, **state}


_KUBEFLOW: Final = Description(
    _kubeflow_children, _kubeflow_status, ("pods", "jobs"), selector=f"{_OF_KUBEFLOW}job-name"
)
DESCRIPTIONS: Final = {
    "jobset.x-k8s.io/jobset": Description(
        _job_set_children,
        _job_set_status,
        ("jobs",),
        {_JOB_SETS: _default_job_set},
        {"spec.replicatedJobs": _fixed_roles},
    ),
    "trainer.kubeflow.org/trainjob": Description(
        _train_job_children,
        _train_job_status,
        (_JOB_SETS,),
        fixed={"spec.trainer": lambda obj, _: obj["spec"].get("trainer")},
    ),
    **{f"kubeflow.org/{kind}job": _KUBEFLOW for kind in ("pytorch", "tf", "xgboost", "paddle", "jax", "mpi")},
    "ray.io/raycluster": Description(_ray_children, _ray_status, selector="ray.io/cluster", replaces_at_once=True),
}
"""By name of the kind in the setting `integrations`."""
