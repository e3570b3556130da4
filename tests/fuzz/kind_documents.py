"""Objects of kinds other than Job and pod (`wholes`), whose pods are queued together.

They have two groups, `w0` and `w1`, of pods of one CPU each.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

Object = dict[str, Any]


class Served(NamedTuple):
    """Endpoint of a kind; `path` has a placeholder for the namespace."""

    path: str
    plural: str
    """Its name for the sandbox's in-process client."""


KINDS = {
    "rayclusters": Served("/apis/ray.io/v1/namespaces/{}/rayclusters", "rayclusters"),
    "jobsets": Served("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets", "jobsets"),
    "trainingruns": Served("/apis/example.com/v1/namespaces/{}/trainingruns", "trainingruns"),
    "statefulsets": Served("/apis/apps/v1/namespaces/{}/statefulsets", "statefulsets"),
    "vcjobs": Served("/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs", "jobs.batch.volcano.sh"),
    "appwrappers": Served("/apis/workload.codeflare.dev/v1beta1/namespaces/{}/appwrappers", "appwrappers"),
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
        case "appwrappers":
            items = [{"generictemplate": {"apiVersion": "v1", "kind": "Pod", **one()}} for _ in range(sum(pods))]
            for number, item in enumerate(items):
                item["generictemplate"]["metadata"]["name"] = f"{name}-{number}"
            api, spec = "workload.codeflare.dev/v1beta1", {"resources": {"GenericItems": items}}
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
    "jobsets": "JobSet",
    "trainingruns": "TrainingRun",
    "statefulsets": "StatefulSet",
    "vcjobs": "Job",
    "appwrappers": "AppWrapper",
}


def groups_of(kind: str, spec: Object) -> tuple[list[str], list[Object], str, str]:
    """Return the path of the list of groups, a copy of the list, and a group's fields of its number and its name."""
    path, number, name = {
        "rayclusters": (["workerGroupSpecs"], "replicas", "groupName"),
        "jobsets": (["replicatedJobs"], "replicas", "name"),
        "trainingruns": (["roles"], "count", "role"),
        "vcjobs": (["tasks"], "replicas", "name"),
        "appwrappers": (["resources", "GenericItems"], "replicas", "name"),
    }[kind]
    found = spec
    for key in path:
        found = found[key]
    return path, copy.deepcopy(found), number, name


def pod_template_of(group: Object) -> Object:
    """Return the pod template of a group, or the pod itself."""
    found: Object = group.get("template") or group["generictemplate"]
    return found["spec"]["template"] if "template" in found.get("spec", {}) else found


def pods_wanted(kind: str, obj: Object) -> int:
    """Return the number of pods of a running object."""
    if kind == "statefulsets":
        return int(obj["spec"]["replicas"])
    _, groups, number, _ = groups_of(kind, obj["spec"])
    return sum(group.get(number, 1) for group in groups) + (kind == "rayclusters")
