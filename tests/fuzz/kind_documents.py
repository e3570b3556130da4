"""Objects of kinds other than Job and pod (`wholes`), whose pods are queued together.

They have two groups, `w0` and `w1`, of pods of one CPU each.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

Object = dict[str, Any]


WRAPPERS, MCAD = "appwrappers.workload.codeflare.dev", "appwrappers.mcad.ibm.com"
"""AppWrappers `v1beta2`, of Jobs, and those of MCAD, of pods."""


class Served(NamedTuple):
    """Endpoint of a kind; `path` has a placeholder for the namespace."""

    path: str
    plural: str
    """Its name for the sandbox's in-process client."""


KINDS = {
    "rayclusters": Served("/apis/ray.io/v1/namespaces/{}/rayclusters", "rayclusters"),
    "rayjobs": Served("/apis/ray.io/v1/namespaces/{}/rayjobs", "rayjobs"),
    "jobsets": Served("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets", "jobsets"),
    "trainingruns": Served("/apis/example.com/v1/namespaces/{}/trainingruns", "trainingruns"),
    "statefulsets": Served("/apis/apps/v1/namespaces/{}/statefulsets", "statefulsets"),
    "vcjobs": Served("/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs", "jobs.batch.volcano.sh"),
    WRAPPERS: Served("/apis/workload.codeflare.dev/v1beta2/namespaces/{}/appwrappers", WRAPPERS),
    MCAD: Served("/apis/mcad.ibm.com/v1beta1/namespaces/{}/appwrappers", MCAD),
}


def whole(kind: str, name: str, pods: list[int], template: Object) -> Object:
    """Return an object with `pods[i]` pods in group i; a StatefulSet has a single group, a RayCluster also a head."""
    metadata: Object = {"name": name, "labels": {}}

    def one() -> Object:
        return copy.deepcopy(template)

    match kind:
        case "rayclusters":
            bounds = {"minReplicas": 0, "maxReplicas": 9}
            groups = [
                {"groupName": f"w{number}", "replicas": count, **bounds, "template": one()}
                for number, count in enumerate(pods)
            ]
            api, spec = "ray.io/v1", {"headGroupSpec": {"template": one()}, "workerGroupSpecs": groups}
        case "rayjobs":
            api, cluster = "ray.io/v1", whole("rayclusters", name, pods, template)["spec"]
            spec = {"entrypoint": "true", "shutdownAfterJobFinishes": True, "submitterPodTemplate": one()}
            spec["rayClusterSpec"] = cluster
        case "jobsets":
            one_pod = {"parallelism": 1, "completions": 1}
            copies = [
                {"name": f"w{number}", "replicas": count, "template": {"spec": {**one_pod, "template": one()}}}
                for number, count in enumerate(pods)
            ]
            api, spec = "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": copies}
        case "trainingruns":
            roles = [{"role": f"w{number}", "count": count, "template": one()} for number, count in enumerate(pods)]
            api, spec = "example.com/v1", {"roles": roles}
        case "vcjobs":
            tasks = [{"name": f"w{number}", "replicas": count, "template": one()} for number, count in enumerate(pods)]
            api, spec = "batch.volcano.sh/v1alpha1", {"tasks": tasks}
        case "appwrappers.workload.codeflare.dev":
            jobs = [{"parallelism": max(count, 1), "completions": max(count, 1), "template": one()} for count in pods]
            components = [
                {"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{name}-{number}"},
                              "spec": job}}
                for number, job in enumerate(jobs)
            ]  # fmt: skip
            api, spec = "workload.codeflare.dev/v1beta2", {"components": components}
        case "appwrappers.mcad.ibm.com":
            items = [{"generictemplate": {"apiVersion": "v1", "kind": "Pod", **one()}} for _ in range(sum(pods))]
            for number, item in enumerate(items):
                item["generictemplate"]["metadata"]["name"] = f"{name}-{number}"
            api, spec = "mcad.ibm.com/v1beta1", {"resources": {"GenericItems": items}}
        case _:
            single = one()
            single["metadata"]["labels"] = {"app": name}
            single["spec"]["restartPolicy"] = "Always"
            selector = {"matchLabels": {"app": name}}
            policy = {"podManagementPolicy": "Parallel"} if pods[0] else {}
            api = "apps/v1"
            spec = {"replicas": sum(pods), "serviceName": name, "selector": selector, "template": single, **policy}
    return {"apiVersion": api, "kind": _NAMES[kind], "metadata": metadata, "spec": spec}


_NAMES = {
    "rayclusters": "RayCluster",
    "rayjobs": "RayJob",
    "jobsets": "JobSet",
    "trainingruns": "TrainingRun",
    "statefulsets": "StatefulSet",
    "vcjobs": "Job",
    WRAPPERS: "AppWrapper",
    MCAD: "AppWrapper",
}


def groups_of(kind: str, spec: Object) -> tuple[list[str], list[Object], str, str]:
    """Return the path of the list of groups, a copy of the list, and a group's fields of its number and its name."""
    path, number, name = {
        "rayclusters": (["workerGroupSpecs"], "replicas", "groupName"),
        "rayjobs": (["rayClusterSpec", "workerGroupSpecs"], "replicas", "groupName"),
        "jobsets": (["replicatedJobs"], "replicas", "name"),
        "trainingruns": (["roles"], "count", "role"),
        "vcjobs": (["tasks"], "replicas", "name"),
        WRAPPERS: (["components"], "parallelism", "name"),
        MCAD: (["resources", "GenericItems"], "replicas", "name"),
    }[kind]
    found = spec
    for key in path:
        found = found[key]
    return path, copy.deepcopy(found), number, name


def numbered(group: Object, number: str) -> Object:
    """Return the part of a group that has its number of pods: of a component the spec of the wrapped Job."""
    found: Object = group["template"]["spec"] if number == "parallelism" else group
    return found


def pod_template_of(group: Object) -> Object:
    """Return the pod template of a group, or the pod itself."""
    found: Object = group.get("template") or group["generictemplate"]
    return found["spec"]["template"] if "template" in found.get("spec", {}) else found


BESIDE = {"rayclusters": 1, "rayjobs": 2}
"""Pods that are in no group: the head, and the submitter."""


def pods_wanted(kind: str, obj: Object) -> int:
    """Return the number of pods of a running object."""
    if kind == "statefulsets":
        return int(obj["spec"]["replicas"])
    _, groups, number, _ = groups_of(kind, obj["spec"])
    return sum(numbered(group, number).get(number, 1) for group in groups) + BESIDE.get(kind, 0)
