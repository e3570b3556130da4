"""Built-in kinds of custom resources, as form documents, with functions for what documents cannot express."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from admission.kinds import appwrapper, argo, kubeflow, leaderworkerset, mcad, ray, spark, trainjob
from admission.kinds.form_parser import parse_form
from admission.kinds.leaderworkerset import LeaderWorkerSetKind

if TYPE_CHECKING:
    from admission.kinds.places import Place

_JOBSET: Final = {
    "group": "jobset.x-k8s.io",
    "kind": "JobSet",
    "plural": "jobsets",
    "versions": ["v1alpha2"],
    "suspend": "spec.suspend",
    "managedBy": {"path": "spec.managedBy", "value": "jobset.sigs.k8s.io/jobset-controller"},
    "podSets": [
        {
            "path": "spec.replicatedJobs[*]",
            "nameFrom": "name",
            "template": "template.spec.template",
            "replicas": "replicas",
            "parallelism": "template.spec.parallelism",
            "completions": "template.spec.completions",
            "ended": {"items": "status.replicatedJobsStatus[*]", "name": "name", "count": "succeeded"},
        }
    ],
    "active": [{"path": "status.replicatedJobsStatus[*].active", "above": 0}],
    "ready": [
        {
            "sum": ["status.replicatedJobsStatus[*].ready", "status.replicatedJobsStatus[*].succeeded"],
            "reaches": ["spec.replicatedJobs[*].replicas"],
        }
    ],
    "succeeded": [{"condition": "Completed"}],
    "failed": [{"condition": "Failed"}],
    "children": [{"group": "batch", "kind": "Job", "name": "{owner}-{podSet}-{number}"}],
}


_APP_WRAPPER: Final = {
    # v1beta1 is MCAD's, which has nothing in common with its successor (see `mcad`). It is read if MCAD is enabled.
    "group": "workload.codeflare.dev",
    "kind": "AppWrapper",
    "plural": "appwrappers",
    "versions": ["v1beta2"],
    "suspend": "spec.suspend",
    "managedBy": {"path": "spec.managedBy", "value": "workload.codeflare.dev/appwrapper-controller"},
    "podSets": [{"path": "spec.components[*]", "nameFrom": "name", "template": "template"}],
    "active": [
        {"condition": "QuotaReserved"},
        {"path": "status.running", "above": 0},
        {"path": "status.pending", "above": 0},
    ],
    "ready": [{"condition": "PodsReady"}, {"path": "status.queuejobstate", "in": ["Running"]}],
    "succeeded": [
        {"path": "status.phase", "in": ["Succeeded"]},
        {"path": "status.queuejobstate", "in": ["Completed"]},
    ],
    "failed": [
        {"path": "status.queuejobstate", "in": ["Failed"]},
        {
            "all": [
                {"path": "status.phase", "in": ["Failed"]},
                {"condition": "ResourcesDeployed", "status": "False"},
            ]
        },
    ],
}


def _kubeflow(kind: str, versions: list[str], *managers: str) -> dict[str, Any]:
    """Return the form of a kind of the training operator, or of the MPI operator: a replica spec per role."""
    field, roles = _ROLES[kind]
    return {
        "group": "kubeflow.org",
        "kind": kind,
        "plural": f"{kind.lower()}s",
        "versions": versions,
        "suspend": "spec.runPolicy.suspend",
        "managedBy": {"path": "spec.runPolicy.managedBy", "value": list(managers)},
        "priorityClass": "spec.runPolicy.schedulingPolicy.priorityClass",
        "podSets": [
            {
                "path": f"spec.{field}.{name}",
                "name": name.lower(),
                "template": "template",
                "replicas": "replicas",
                **({"minCount": True} if name == "Worker" else {}),
            }
            for name in roles
        ],
        "active": [{"path": "status.replicaStatuses[*].active", "above": 0}],
        "ready": [{"condition": "Running"}],
        "succeeded": [{"condition": "Succeeded"}],
        "failed": [{"condition": "Failed"}],
    }


_ROLES: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", ["Master", "Worker"]),
    "TFJob": ("tfReplicaSpecs", ["Chief", "Master", "PS", "Worker", "Evaluator"]),
    "XGBoostJob": ("xgbReplicaSpecs", ["Master", "Worker"]),
    "PaddleJob": ("paddleReplicaSpecs", ["Master", "Worker"]),
    "JAXJob": ("jaxReplicaSpecs", ["Worker"]),
    "MPIJob": ("mpiReplicaSpecs", ["Launcher", "Worker"]),
}
"""By kind: the field that contains the roles, and the names of the roles."""
_TRAINING: Final = "kubeflow.org/training-operator"
_MPI: Final = "kubeflow.org/mpi-operator"
_RAY_STATUS: Final = "status.jobDeploymentStatus"

DOCUMENTS: Final[tuple[dict[str, Any], ...]] = (
    _JOBSET,
    trainjob.DOCUMENT,
    _kubeflow("PyTorchJob", ["v1"], _TRAINING),
    _kubeflow("TFJob", ["v1"], _TRAINING),
    _kubeflow("XGBoostJob", ["v1"], _TRAINING),
    _kubeflow("PaddleJob", ["v1"], _TRAINING),
    _kubeflow("JAXJob", ["v1"], _TRAINING),
    {
        # v1 is the training operator's.
        **_kubeflow("MPIJob", ["v2beta1", "v1"], _MPI, _TRAINING),
        "children": [{"group": "batch", "kind": "Job", "name": "{owner}-launcher", "podSet": "launcher"}],
    },
    {
        "group": "ray.io",
        "kind": "RayCluster",
        "plural": "rayclusters",
        "versions": ["v1"],
        "suspend": "spec.suspend",
        "managedBy": {"path": "spec.managedBy", "value": "ray.io/kuberay-operator"},
        "podSets": ray.pod_sets("spec"),
        "scales": True,
        "active": [{"path": "status.state", "in": ["ready"]}, {"condition": "RayClusterSuspending"}],
        "ready": [{"path": "status.state", "in": ["ready"]}],
    },
    {
        "group": "ray.io",
        "kind": "RayJob",
        "plural": "rayjobs",
        "versions": ["v1"],
        "suspend": "spec.suspend",
        "managedBy": {"path": "spec.managedBy", "value": "ray.io/kuberay-operator"},
        "podSets": ray.pod_sets("spec.rayClusterSpec"),
        "active": [
            {"path": _RAY_STATUS, "notIn": ["", "New", "Suspended", "Complete", "Failed", "ValidationFailed"]},
        ],
        "ready": [{"path": "status.rayClusterStatus.state", "in": ["ready"]}],
        "succeeded": [
            {"all": [{"path": _RAY_STATUS, "in": ["Complete"]}, {"path": "status.jobStatus", "in": ["SUCCEEDED"]}]},
        ],
        "failed": [
            {"path": _RAY_STATUS, "in": ["Complete", "Failed"]},
            # KubeRay does not reconcile it any more. One that has a cluster was valid before, and runs on.
            {
                "all": [
                    {"path": _RAY_STATUS, "in": ["ValidationFailed"]},
                    {"path": "status.rayClusterName", "in": [""]},
                ]
            },
        ],
        "children": [
            {"group": "ray.io", "kind": "RayCluster", "nameFrom": "status.rayClusterName"},
            {"group": "batch", "kind": "Job", "name": "{owner}", "podSet": "submitter"},
        ],
    },
    {
        "group": "ray.io",
        "kind": "RayService",
        "plural": "rayservices",
        "versions": ["v1"],
        # KubeRay 1.6 knows only the second field, and drops the first. Since 1.7 the second affects new clusters only.
        "suspend": ["spec.suspend", "spec.rayClusterConfig.suspend"],
        "managedBy": {"path": "spec.managedBy", "value": "ray.io/kuberay-operator"},
        "podSets": ray.pod_sets("spec.rayClusterConfig"),
        "active": [{"condition": "Ready"}, {"condition": "Suspending"}],
        "ready": [{"condition": "Ready"}],
        "children": [
            {"group": "ray.io", "kind": "RayCluster", "nameFrom": "status.activeServiceStatus.rayClusterName"},
            {"group": "ray.io", "kind": "RayCluster", "nameFrom": "status.pendingServiceStatus.rayClusterName"},
        ],
    },
    _APP_WRAPPER,
    {**_APP_WRAPPER, "group": "mcad.ibm.com", "versions": ["v1beta1"]},
    {
        "group": "sparkoperator.k8s.io",
        "kind": "SparkApplication",
        "plural": "sparkapplications",
        "versions": ["v1beta2"],
        "suspend": "spec.suspend",
        "priorityClass": "spec.batchSchedulerOptions.priorityClassName",
        "podSets": [{"path": "spec.driver", "name": "driver", "template": "template"}],
        "active": [
            {"path": "status.applicationState.state", "notIn": ["", "NEW", "SUSPENDED", "COMPLETED", "FAILED"]},
        ],
        "ready": [{"path": "status.applicationState.state", "in": ["RUNNING"]}],
        "succeeded": [{"path": "status.applicationState.state", "in": ["COMPLETED"]}],
        "failed": [{"path": "status.applicationState.state", "in": ["FAILED"]}],
    },
    {
        # A suspended Workflow creates no pods, but its running pods run to completion, which only the pods show. So the
        # form has no `active`.
        "group": "argoproj.io",
        "kind": "Workflow",
        "plural": "workflows",
        "versions": ["v1alpha1"],
        "suspend": "spec.suspend",
        "podSets": [{"path": "spec", "name": "workflow", "template": "templates"}],
        "ready": [{"path": "status.phase", "in": ["Running"]}],
        "succeeded": [{"path": "status.phase", "in": ["Succeeded"]}],
        "failed": [{"path": "status.phase", "in": ["Failed", "Error"]}],
    },
)
"""The form documents, without the functions."""


def _places_of(wrapped: dict[str, Any]) -> list[Place] | None:
    """Return the pod sets of an object that another one contains; None: its kind is not known to have any itself."""
    group, name = str(wrapped.get("apiVersion")).rpartition("/")[0], str(wrapped.get("kind"))
    if (group, name) == (LeaderWorkerSetKind.group, LeaderWorkerSetKind.kind):
        return leaderworkerset.places(wrapped)
    form = builtin_forms().get(f"{group}/{name.lower()}")
    if form is None or form.kind != name or form.wrapped is not None or name == trainjob.DOCUMENT["kind"]:
        return None  # the pods of a TrainJob are those of its JobSet, which does not exist yet
    of_form = [form.places] if form.places is not None else [each.places for each in form.pod_sets]
    found = [place for places in of_form for place in places(wrapped)]
    return found if form.added is None else [form.added(wrapped, place) for place in found]


_OF_APP_WRAPPERS: Final = {
    "places": partial(appwrapper.places, _places_of),
    "wrapped": partial(appwrapper.wrapped, _places_of),
    "cautions": appwrapper.cautions,
    "gate": mcad.DispatchGate,
    "annotations": (mcad.DISPATCH,),
}
_FUNCTIONS: Final[dict[str, dict[str, Any]]] = {
    **{
        f"kubeflow.org/{kind.lower()}": {
            "faults": partial(kubeflow.faults, *of),
            **({"added": kubeflow.added} if kind in ("PyTorchJob", "MPIJob") else {}),
            # For elastic training, in the definitions of training-operator 1.9.
            "has_scale": kind in ("PyTorchJob", "PaddleJob"),
        }
        for kind, of in _ROLES.items()
    },
    "ray.io/raycluster": {
        "places": ray.cluster_places,
        "faults": ray.cluster_faults,
        "remarks": ray.remarks,
        "cautions": ray.cluster_cautions,
    },
    "ray.io/rayjob": {
        "places": ray.job_places,
        "faults": ray.job_faults,
        "remarks": ray.job_remarks,
        "cautions": ray.cautions,
    },
    "ray.io/rayservice": {"places": ray.service_places, "remarks": ray.remarks, "cautions": ray.cautions},
    "workload.codeflare.dev/appwrapper": _OF_APP_WRAPPERS,
    "mcad.ibm.com/appwrapper": _OF_APP_WRAPPERS,
    "argoproj.io/workflow": {"places": argo.places, "faults": argo.faults, "most_pods": argo.MOST_PODS},
    "sparkoperator.k8s.io/sparkapplication": {"places": spark.places, "faults": spark.faults},
}


@cache
def builtin_forms() -> dict[str, Any]:
    """Return all built-in forms, by their name in the setting `integrations.frameworks`."""
    parsed = map(parse_form, DOCUMENTS)
    return {form.name: replace(form, **_FUNCTIONS.get(form.name, {})) for form in parsed}
