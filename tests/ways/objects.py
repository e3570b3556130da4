"""A small object of each queued kind: one to three endless, slowly terminating pods of one CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

QUEUE = "sluice.dev/queue-name"
LIVES = {"sandbox.sluice.dev/run-seconds": "1000000", "sandbox.sluice.dev/stop-seconds": "10"}
_NAME = "one"


@dataclass(frozen=True)
class Case:
    """A kind and its test object."""

    name: str
    """Name in the table of docs/kinds/tests.md."""
    key: str
    """Prefix of its namespaces' names."""
    path: str
    """API group, version and plural of its objects, such as `batch/v1/jobs`."""
    make: Callable[[], list[Object]]
    """Returns the objects to create, in that order; a group of pods is represented by all of its pods."""
    pods: int = 2
    """Number of its pods, of one CPU each."""
    flips: tuple[tuple[str, ...], ...] = ()
    """Paths of its suspend fields; empty: its pods have gates."""
    opened: Any = False
    """Value of these fields that lets it run."""
    children: Callable[[Object], list[tuple[str, Object]]] = lambda _: []
    """Returns (path, object) of the children, other than pods, that its controller would create."""
    has_scale: bool = False
    """Whether it has the subresource `scale`."""


def template(**spec: Any) -> Object:
    """Return a pod template of one CPU."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"labels": {}, "annotations": {**LIVES}},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def whole(api: str, kind: str, spec: Object, *, name: str = _NAME, labelled: bool = True) -> Object:
    """Return an object with a queue label, unless `labelled` is False."""
    metadata: Object = {"name": name, "labels": {QUEUE: "lq"} if labelled else {}}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def job(name: str = _NAME, pods: int = 2, *, labelled: bool = True) -> Object:
    """Return a batch/v1 Job."""
    spec = {"parallelism": pods, "completions": pods, "template": template()}
    return whole("batch/v1", "Job", spec, name=name, labelled=labelled)


def _job_set() -> Object:
    role = {"name": "workers", "replicas": 2, "template": {"spec": {**job(pods=1)["spec"]}}}
    return whole("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [role]})


def _train_job() -> list[Object]:
    role = {"name": "node", "template": {"metadata": {}, "spec": {"template": template()}}}
    spec = {"template": {"spec": {"replicatedJobs": [role]}}}
    runtime = whole("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", spec, name="runtime", labelled=False)
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "runtime"}
    made = {"runtimeRef": reference, "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}}}
    return [runtime, whole("trainer.kubeflow.org/v1alpha1", "TrainJob", made)]


def _kubeflow(kind: str, field: str, *roles: str, version: str = "v1") -> Case:
    def make() -> list[Object]:
        count = 3 - len(roles)
        replicas = {role: {"replicas": count, "restartPolicy": "Never", "template": template()} for role in roles}
        return [whole(f"kubeflow.org/{version}", kind, {"runPolicy": {}, field: replicas})]

    def launcher(obj: Object) -> list[tuple[str, Object]]:
        return [("batch/v1/jobs", child(obj, job("one-launcher", 1)))] if kind == "MPIJob" else []

    path = f"kubeflow.org/{version}/{kind.lower()}s"
    name = f"{kind} {version}"
    key = f"{kind.lower()}-{version}" if kind == "MPIJob" else kind.lower()
    return Case(name, key, path, make, flips=(("spec", "runPolicy", "suspend"),), children=launcher)


def cluster_spec(workers: int = 1) -> Object:
    """Return the spec of a RayCluster."""
    group = {"groupName": "workers", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "template": template()}
    return {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group]}


def _ray_job() -> Object:
    spec = {"entrypoint": "true", "shutdownAfterJobFinishes": True, "submitterPodTemplate": template()}
    return whole("ray.io/v1", "RayJob", {**spec, "rayClusterSpec": cluster_spec()})


def child(owner: Object, obj: Object) -> Object:
    """Add an owner reference to `owner` as controller, in place."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


def _ray_cluster_of(owner: Object) -> list[tuple[str, Object]]:
    cluster = whole("ray.io/v1", "RayCluster", {**cluster_spec(), "suspend": False}, name="one-raycluster")
    return [("ray.io/v1/rayclusters", child(owner, cluster))]


def _app_wrapper() -> Object:
    inner = job("one-inner", labelled=False)
    component = {"template": inner, "podSets": [{"replicas": 2, "path": "template.spec.template"}]}
    return whole("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [component]})


def _mcad() -> Object:
    inner = job("one-inner", labelled=False)
    return whole("mcad.ibm.com/v1beta1", "AppWrapper", {"resources": {"GenericItems": [{"generictemplate": inner}]}})


def _spark() -> Object:
    role = {"cores": 1, "memory": "512m", "annotations": {**LIVES}}
    spec = {"type": "Python", "mode": "cluster", "mainApplicationFile": "local:///a.py", "sparkVersion": "3.5.0"}
    spec |= {"restartPolicy": {"type": "Never"}, "driver": role, "executor": {**role, "instances": 1}}
    return whole("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec)


def _workflow() -> Object:
    container = {"image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"entrypoint": "main", "parallelism": 2, "templates": [{"name": "main", "container": container}]}
    return whole("argoproj.io/v1alpha1", "Workflow", {**spec, "podMetadata": {"annotations": {**LIVES}}})


def pod(name: str, *, labels: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    """Return a pod with a queue label."""
    one = template(**spec)
    metadata = {"name": name, "labels": {QUEUE: "lq", **(labels or {})}}
    metadata["annotations"] = {**one["metadata"]["annotations"], **(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": one["spec"]}


def _group(title: str, key: str, size: Object | None = None, **member: Any) -> Case:
    def make() -> list[Object]:
        pods = [pod(f"p-{number}", **member) for number in range(2)]
        return [*([size] if size else []), *pods]

    return Case(f"pod group, {title}", f"group-{key}", "v1/pods", make)


def _tree() -> list[Object]:
    """A PodGroup in a CompositePodGroup, which gives the group its name."""
    leaf = {"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "g"}
    root = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
    return [
        whole(f"{_NATIVE}/v1beta1", "PodGroup", leaf, name="g-a", labelled=False),
        whole(f"{_NATIVE}/v1alpha3", "CompositePodGroup", root, name="g", labelled=False),
        *(pod(f"p-{number}", schedulingGroup={"podGroupName": "g-a"}) for number in range(2)),
    ]


def _sized(api: str, spec: Object) -> Object:
    return whole(api, "PodGroup", spec, name="g", labelled=False)


def _controlled(kind: str, **spec: Any) -> Object:
    one = template(restartPolicy="Always")
    one["metadata"]["labels"] = {"app": "one"}
    selector = {"matchLabels": {"app": "one"}}
    return whole("apps/v1", kind, {"replicas": 2, "selector": selector, "template": one, **spec})


def _lws() -> Object:
    workers = {"size": 2, "workerTemplate": template(restartPolicy="Always")}
    spec = {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": workers}
    return whole("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def _volcano() -> Object:
    task = {"name": "workers", "replicas": 2, "template": template()}
    return whole("batch.volcano.sh/v1alpha1", "Job", {"queue": "lq", "schedulerName": "volcano", "tasks": [task]})


def _own() -> Object:
    role = {"role": "actor", "count": 2, "template": template()}
    return whole("example.com/v1", "TrainingRun", {"roles": [role]})


SUSPEND = (("spec", "suspend"),)
_GANG = "gang.scheduling.koordinator.sh/"
_NATIVE = "scheduling.k8s.io"
_TASKS = '[{"name": "workers", "minMember": 2}]'

CASES = (
    Case("Job", "job", "batch/v1/jobs", lambda: [job()], flips=SUSPEND),
    Case(
        "JobSet", "jobset", "jobset.x-k8s.io/v1alpha2/jobsets", lambda: [_job_set()], flips=SUSPEND,
        children=lambda obj: [("batch/v1/jobs", child(obj, job("one-workers-0", 1)))],
    ),
    Case(
        "TrainJob v2", "trainjob", "trainer.kubeflow.org/v1alpha1/trainjobs", _train_job, flips=SUSPEND,
        children=lambda obj: [("batch/v1/jobs", child(obj, job("one-node-0")))],
    ),
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker"),
    _kubeflow("TFJob", "tfReplicaSpecs", "Chief", "Worker"),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"),
    _kubeflow("PaddleJob", "paddleReplicaSpecs", "Master", "Worker"),
    _kubeflow("JAXJob", "jaxReplicaSpecs", "Worker"),
    _kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker"),
    _kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker", version="v2beta1"),
    Case(
        "RayJob", "rayjob", "ray.io/v1/rayjobs", lambda: [_ray_job()], 3, SUSPEND,
        children=lambda obj: [*_ray_cluster_of(obj), ("batch/v1/jobs", child(obj, job("one", 1)))],
    ),
    Case(
        "RayCluster", "raycluster", "ray.io/v1/rayclusters",
        lambda: [whole("ray.io/v1", "RayCluster", cluster_spec())], flips=SUSPEND,
    ),
    Case(
        "RayService", "rayservice", "ray.io/v1/rayservices",
        lambda: [whole("ray.io/v1", "RayService", {"rayClusterConfig": cluster_spec()})],
        flips=(("spec", "suspend"), ("spec", "rayClusterConfig", "suspend")), children=_ray_cluster_of,
    ),
    Case(
        "AppWrapper v1beta2", "appwrapper", "workload.codeflare.dev/v1beta2/appwrappers",
        lambda: [_app_wrapper()], flips=SUSPEND,
        children=lambda obj: [("batch/v1/jobs", child(obj, job("one-inner")))],
    ),
    Case("SparkApplication", "spark", "sparkoperator.k8s.io/v1beta2/sparkapplications", lambda: [_spark()],
         flips=SUSPEND),
    Case("Argo Workflow", "workflow", "argoproj.io/v1alpha1/workflows", lambda: [_workflow()], flips=SUSPEND),
    Case("user-defined kind", "own", "example.com/v1/trainingruns", lambda: [_own()], flips=(("spec", "paused"),)),
    Case("Pod", "pod", "v1/pods", lambda: [pod("p-0")], 1),
    _group("Kueue's labels", "kueue", labels={"kueue.x-k8s.io/pod-group-name": "g"},
           annotations={"kueue.x-k8s.io/pod-group-total-count": "2"}),
    _group("Koordinator", "koordinator", annotations={f"{_GANG}name": "g", f"{_GANG}total-number": "2"}),
    _group("scheduler-plugins", "plugins", _sized("scheduling.x-k8s.io/v1alpha1", {"minMember": 2}),
           labels={"scheduling.x-k8s.io/pod-group": "g"}),
    _group("Volcano's PodGroup", "volcano-group", _sized("scheduling.volcano.sh/v1beta1", {"minMember": 2}),
           annotations={"scheduling.k8s.io/group-name": "g"}),
    _group("YuniKorn", "yunikorn", labels={"yunikorn.apache.org/app-id": "g"},
           annotations={"yunikorn.apache.org/task-group-name": "workers", "yunikorn.apache.org/task-groups": _TASKS}),
    _group("Kubernetes' PodGroup", "native",
           _sized(f"{_NATIVE}/v1beta1", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
           schedulingGroup={"podGroupName": "g"}),
    Case("pod group, Kubernetes' CompositePodGroup", "group-tree", "v1/pods", _tree),
    Case("Deployment", "deployment", "apps/v1/deployments", lambda: [_controlled("Deployment")], has_scale=True),
    Case("StatefulSet", "statefulset", "apps/v1/statefulsets",
         lambda: [_controlled("StatefulSet", serviceName="one", podManagementPolicy="Parallel")], has_scale=True),
    Case("LeaderWorkerSet", "lws", "leaderworkerset.x-k8s.io/v1/leaderworkersets", lambda: [_lws()]),
    Case("Volcano Job", "volcano", "batch.volcano.sh/v1alpha1/jobs", lambda: [_volcano()]),
    Case("AppWrapper of MCAD", "mcad", "mcad.ibm.com/v1beta1/appwrappers", lambda: [_mcad()],
         flips=(("metadata", "annotations", "sluice.dev/dispatch"),), opened="true"),
)  # fmt: skip

_COUNTS = ("replicas", "parallelism", "completions", "count", "instances", "numNodes", "minMember", "minCount")


def scaled(value: Any, times: int = 3) -> Any:
    """Return the value with `times` the number of pods."""
    if isinstance(value, dict):
        return {
            key: inner * times if key in _COUNTS and isinstance(inner, int) else scaled(inner, times)
            for key, inner in value.items()
        }
    return [scaled(each, times) for each in value] if isinstance(value, list) else value


def enlarged(value: Any) -> Any:
    """Return the value with pods of three CPUs."""
    if isinstance(value, dict):
        found = {key: enlarged(inner) for key, inner in value.items()}
        return found | {key: three for key, three in (("cpu", "3"), ("cores", 3)) if key in found}
    return [enlarged(each) for each in value] if isinstance(value, list) else value


def unlabelled(value: Any) -> Any:
    """Return the value without queue labels and queue fields."""
    if isinstance(value, dict):
        return {key: unlabelled(inner) for key, inner in value.items() if key not in (QUEUE, "queue")}
    return [unlabelled(each) for each in value] if isinstance(value, list) else value
