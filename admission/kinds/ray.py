"""Pod sets and faults of Ray's kinds, beyond what `Form` describes: containers that KubeRay adds, and the submitter.

Sources: KubeRay 1.7, `common/pod.go` (autoscaler container, init container of workers), `common/job.go` (submitter) and
`rayjob_controller.go` (the submitter beside the head, and which states of a RayJob are suspended). As was recorded,
KubeRay does not pass a changed number of workers on to the cluster that a RayJob or RayService has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.kinds import paths
from admission.kinds.base import MIN_COUNT_PATH
from admission.kinds.partial_admission import has_min_count
from admission.kinds.places import Place, PodSetForm
from admission.model import child_sentences

if TYPE_CHECKING:
    from admission.kinds.base import Object

_AUTOSCALER: Final = {
    "limits": {"cpu": "500m", "memory": "512Mi"},
    "requests": {"cpu": "500m", "memory": "512Mi"},
}
_WAIT_FOR_HEAD: Final[dict[str, Any]] = {
    "name": "wait-gcs-ready",
    "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}, "requests": {"cpu": "200m", "memory": "256Mi"}},
}
"""Init container of each worker."""
_NATIVE_GANG: Final = ("ray.io/gang-scheduling-enabled", "ray.io/native-workload-scheduling")
"""Label, and the older annotation, by which KubeRay creates PodGroups of `scheduling.k8s.io`."""
_LONGEST_CLUSTER: Final = 53
"""Characters of a RayCluster's name at most, by KubeRay 1.3 and newer (`utils/constant.go`)."""
_LONGEST_OWNER: Final = _LONGEST_CLUSTER - 6
"""The same of a RayJob or RayService, whose name with six more characters is that of its cluster."""
_MOST_GROUPS: Final = 8
"""Maximum number of pod groups of one Workload (`spec.podGroupTemplates`), Kubernetes 1.36 and 1.37."""
_SUBMITTER: Final[dict[str, Any]] = {
    "name": "ray-job-submitter",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "200Mi"}},
}


def pod_sets(root: str) -> list[dict[str, Any]]:
    """Return the document of the head's and worker groups' pod sets of a cluster whose spec is at `root`."""
    return [
        {"path": f"{root}.headGroupSpec", "name": "head", "template": "template"},
        {
            "path": f"{root}.workerGroupSpecs[*]",
            "nameFrom": "groupName",
            "template": "template",
            "replicas": "replicas",
            "minimum": "minReplicas",
            "maximum": "maxReplicas",
            "times": ["numOfHosts"],
            "unless": "suspend",
            "minCount": True,
        },
    ]


def cluster_places(obj: Object) -> list[Place]:
    """Return the pod sets of a RayCluster. Raises Misconfigured."""
    return _cluster(obj, ("spec",))


def service_places(obj: Object) -> list[Place]:
    """Return the pod sets of a RayService: those of one cluster. Raises Misconfigured."""
    return [place._replace(reducible=(), stays=True) for place in _cluster(obj, ("spec", "rayClusterConfig"))]


def job_places(obj: Object) -> list[Place]:
    """Return the pod sets of a RayJob: its cluster's, and the submitter if that is a pod. Raises Misconfigured."""
    found = [place._replace(stays=True) for place in _cluster(obj, ("spec", "rayClusterSpec"))]
    spec = obj["spec"]
    mode = spec.get("submissionMode", "K8sJobMode")
    if mode == "SidecarMode":
        # KubeRay ignores submitterPodTemplate in this mode.
        return [place.with_container(_SUBMITTER) if place.name == "head" else place for place in found]
    if mode == "K8sJobMode":
        target = ("spec", "submitterPodTemplate")
        own = paths.at(obj, target)
        optional = () if own else tuple(sorted(_SUBMITTER["resources"]["requests"]))
        found.append(Place("submitter", ".".join(target), own or _submitter_of(obj), 1, target, optional=optional))
    return found


def _submitter_of(obj: Object) -> Object:
    """Return the template of KubeRay's default submitter, which a start writes into the object to send it to nodes."""
    containers = paths.at(obj, ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers")) or [{}]
    return {"spec": {"containers": [{**_SUBMITTER, "image": containers[0].get("image", "")}], "restartPolicy": "Never"}}


def cluster_faults(obj: Object) -> list[tuple[str, str]]:
    """Return what excludes partial admission of a RayCluster that requests it."""
    return _min_count_faults(obj, obj["spec"])


def _min_count_faults(obj: Object, cluster: Object) -> list[tuple[str, str]]:
    if not has_min_count(obj):
        return []
    if cluster.get("enableInTreeAutoscaling") is True:
        fault = "its autoscaler sets the numbers of workers: write the fewest into replicas, it asks for more by itself"
        return [(MIN_COUNT_PATH, fault)]
    if _is_native_gang(obj):
        return [(MIN_COUNT_PATH, "its pods are to be scheduled as a gang, which is all of them: remove the annotation")]
    return []


def job_faults(obj: Object) -> list[tuple[str, str]]:
    """Return what keeps KubeRay from suspending a RayJob, and what excludes partial admission."""
    spec = obj["spec"]
    if spec.get("clusterSelector"):
        return [("spec.clusterSelector", "a RayJob on a cluster that exists cannot be queued; remove the queue label")]
    if not isinstance(cluster := spec.get("rayClusterSpec"), dict) or not cluster.get("headGroupSpec"):
        return [
            ("spec.rayClusterSpec", "is missing, or has no headGroupSpec: a RayJob that is queued has its own cluster")
        ]
    if spec.get("shutdownAfterJobFinishes") is not True:
        return [("spec.shutdownAfterJobFinishes", "must be true, or KubeRay cannot suspend the RayJob")]
    return _min_count_faults(obj, cluster)


def remarks(obj: Object) -> list[str]:
    """Warn if native gang scheduling is requested with more groups than a Workload can hold.

    Kubernetes schedules each worker group, and the head, as a gang.
    """
    spec = obj["spec"]
    if not _is_native_gang(obj):
        return []
    roots = (spec.get(key) for key in ("rayClusterSpec", "rayClusterConfig"))
    cluster = next((root for root in roots if isinstance(root, dict)), spec)
    groups = 1 + len(cluster.get("workerGroupSpecs") or ())
    return [child_sentences.native_gang_too_large(groups, _MOST_GROUPS)] if groups > _MOST_GROUPS else []


def autoscaler(obj: Object) -> str:
    """Return the path of the field by which Ray's autoscaler scales the cluster that an object is, or has; or empty."""
    if not str(obj.get("apiVersion")).startswith("ray.io/"):
        return ""
    keys = ("rayClusterSpec", "rayClusterConfig")
    path = next((("spec", key) for key in keys if paths.at(obj, ("spec", key))), ("spec",))
    path = (*path, "enableInTreeAutoscaling")
    return ".".join(path) if paths.at(obj, path) is True else ""


def cautions(obj: Object) -> list[str]:
    """Warn of a name that KubeRay does not accept for a RayJob or RayService."""
    return _long_name(obj, _LONGEST_OWNER)


def cluster_cautions(obj: Object) -> list[str]:
    """Warn of a name that KubeRay does not accept for a RayCluster."""
    return _long_name(obj, _LONGEST_CLUSTER)


def _long_name(obj: Object, longest: int) -> list[str]:
    name = str(obj["metadata"].get("name") or "")  # the API server adds the rest of a generated name later
    if len(name) <= longest:
        return []
    return [f"metadata.name: has {len(name)} characters; KubeRay runs no {obj['kind']} with more than {longest}"]


def _is_native_gang(obj: Object) -> bool:
    metadata = obj["metadata"]
    values = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return any(values.get(key) == "true" for key in _NATIVE_GANG)


def job_remarks(obj: Object) -> list[str]:
    """Return the warnings for its cluster, and one if KubeRay may not suspend it (InteractiveMode without `jobId`)."""
    waits = obj["spec"].get("submissionMode") == "InteractiveMode" and not obj["spec"].get("jobId")
    return [*remarks(obj), *([child_sentences.INTERACTIVE_RAY_JOB] if waits else [])]


def _cluster(obj: Object, root: tuple[str, ...]) -> list[Place]:
    workers = PodSetForm(
        path=(*root, "workerGroupSpecs", paths.EACH),
        template=("template",),
        name_from=("groupName",),
        replicas=("replicas",),
        minimum=("minReplicas",),
        maximum=("maxReplicas",),
        times=(("numOfHosts",),),
        unless=("suspend",),
        min_count=(),
    )
    heads = PodSetForm(path=(*root, "headGroupSpec"), template=("template",), name="head")
    spec = paths.at(obj, root) or {}
    found = [_with_autoscaler(place, spec) for place in heads.places(obj)]
    return [*found, *(place.with_container(_WAIT_FOR_HEAD, before=True) for place in workers.places(obj))]


def _with_autoscaler(head: Place, spec: Object) -> Place:
    if spec.get("enableInTreeAutoscaling") is not True:
        return head
    resources = (spec.get("autoscalerOptions") or {}).get("resources") or _AUTOSCALER
    return head.with_container({"name": "autoscaler", "resources": resources})
