"""Fields of declared kinds: pod counts, the managing controller, PriorityClass, and submission modes of RayJobs."""

from __future__ import annotations

import copy

import pytest
from declared_examples import admission
from kind_jobs import FLAVORS
from kind_manifests import document

from admission.apimachinery.patches import json_patch
from admission.kinds import NamespaceContext, all_kinds, frameworks_known
from admission.kinds.children import Belonging
from admission.model.errors import Misconfigured

KINDS = all_kinds(frameworks=frameworks_known())
CONTEXT = NamespaceContext()


def manifest(name):
    """Return the kind of a file's first document, and the object as the API server would store it."""
    obj = document(name)
    obj["metadata"] |= {"uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"]), obj


def test_jobset_managed_by_another_controller_is_not_queued():
    kind, obj = manifest("jobset")
    obj["spec"]["managedBy"] = "example.com/another"
    assert kind.queue_name(obj) == ""
    obj["spec"]["managedBy"] = "jobset.sigs.k8s.io/jobset-controller"
    assert kind.queue_name(obj) == "user-queue"


@pytest.mark.parametrize("own", ["kubeflow.org/mpi-operator", "kubeflow.org/training-operator"])
def test_mpijob_is_queued_if_managed_by_either_of_its_operators(own):
    """The training operator runs MPIJobs of version v1, and would run one that Sluice does not queue."""
    kind, obj = manifest("mpijob-v1")
    obj["spec"]["runPolicy"] = {"managedBy": own}
    assert kind.queue_name(obj) == "user-queue"
    obj["spec"]["runPolicy"] = {"managedBy": "example.com/another"}
    assert kind.queue_name(obj) == ""


@pytest.mark.parametrize(
    ("name", "own", "roles", "expected"),
    [
        ("pytorchjob-v1", ("runPolicy", "schedulingPolicy", "priorityClass"), {"Master": "m"}, "own"),
        ("pytorchjob-v1", (), {"Master": "m", "Worker": "w"}, "m"),
        ("pytorchjob-v1", (), {"Worker": "w"}, "w"),
        ("pytorchjob-v1", (), {}, ""),
        ("mpijob-v2beta1", ("runPolicy", "schedulingPolicy", "priorityClass"), {}, "own"),
        ("sparkapplication", ("batchSchedulerOptions", "priorityClassName"), {}, "own"),
    ],
)
def test_priority_class_falls_back_to_the_first_pod_set_with_a_priority_class(name, own, roles, expected):
    kind, obj = manifest(name)
    if name == "pytorchjob-v1":
        del obj["spec"]["runPolicy"]["schedulingPolicy"]
    if own:
        obj = json_patch(obj, [{"op": "add", "path": f"/spec/{own[0]}", "value": obj["spec"].get(own[0]) or {}}])
        if own[1:-1]:
            obj["spec"][own[0]][own[1]] = {}
        parent = obj["spec"][own[0]][own[1]] if own[1:-1] else obj["spec"][own[0]]
        parent[own[-1]] = "own"
    for role, class_name in roles.items():
        obj["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["priorityClassName"] = class_name
    assert kind.observe(obj).pod_priority_class == expected


_SPEC = "spec.replicatedJobs[0].template.spec.template.spec"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (".containers", "x", ".containers: must be a list"),
        (".containers", [3], ".containers[0]: must be an object"),
        (".containers", [{"resources": []}], ".containers[0].resources: must be an object"),
        (
            ".initContainers",
            [{"resources": {"requests": 3}}],
            ".initContainers[0].resources.requests: must be an object",
        ),
        (".nodeSelector", {"gpu": 1}, ".nodeSelector[gpu]: must be a text"),
        (".tolerations", {"key": "a"}, ".tolerations: must be a list"),
        (".affinity", "x", ".affinity: must be an object"),
        (".priorityClassName", ["high"], ".priorityClassName: must be a text"),
        ("", "x", ": must be an object"),
    ],
)
def test_malformed_pod_template_of_a_jobset_is_a_fault_with_its_path(field, value, message):
    kind, obj = manifest("jobset")
    put(obj, f"{_SPEC}{field}", value)
    assert [": ".join(fault) for fault in kind.faults(obj)] == [f"{_SPEC}{message}"]
    with pytest.raises(Misconfigured):
        kind.pod_sets(obj, CONTEXT)
    assert kind.observe(obj).counts == ()  # no exception for an object that bypassed the webhook


@pytest.mark.parametrize(
    ("name", "path"),
    [("volcano-torchx-ddp", "spec.tasks[0].template"), ("leaderworkerset", "spec.leaderWorkerTemplate.workerTemplate")],
)
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [(".spec.containers", "x", "a list"), (".spec.nodeSelector", ["gpu"], "an object"), (".spec", "x", "an object")],
)
def test_malformed_pod_template_of_kinds_with_gated_pods_is_a_fault(name, path, field, value, message):
    kind, obj = manifest(name)
    put(obj, f"{path}{field}", value)
    assert [": ".join(fault) for fault in kind.faults(obj)] == [f"{path}{field}: must be {message}"]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("argo-workflow", "spec.templates", "x"),
        ("argo-workflow", "spec.templates[0].steps", [[3]]),
        ("sparkapplication", "spec.driver", "x"),
        ("appwrapper-v1beta2", "spec.components", [3]),
        ("appwrapper-v1beta2", "spec.components[0].podSets", [3]),
    ],
)
def test_object_with_unexpected_shape_is_a_fault_of_its_spec(name, field, value):
    kind, obj = manifest(name)
    put(obj, field, value)
    assert [where for where, _ in kind.faults(obj)][:1] == ["spec"]
    assert kind.observe(obj).counts == ()


@pytest.mark.parametrize("value", [None, [], {}, "x", {"workerGroupSpecs": []}])
def test_rayjob_without_a_valid_cluster_spec_is_a_fault(value):
    kind, obj = manifest("rayjob")
    obj["spec"]["rayClusterSpec"] = value
    assert [where for where, _ in kind.faults(obj)] == ["spec.rayClusterSpec"]


_GROUP = "spec.workerGroupSpecs[0]"


def put(obj, path, value):
    *keys, last = path.replace("[", ".").replace("]", "").split(".")
    for key in keys:
        obj = obj[int(key)] if isinstance(obj, list) else obj[key]
    obj[last] = value


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("jobset", "spec.replicatedJobs[0].replicas"),
        ("jobset", "spec.replicatedJobs[1].template.spec.parallelism"),
        ("jobset", "spec.replicatedJobs[1].template.spec.completions"),
        ("pytorchjob-v1", "spec.pytorchReplicaSpecs.Worker.replicas"),
        ("mpijob-v2beta1", "spec.mpiReplicaSpecs.Launcher.replicas"),
        *(("raycluster", f"{_GROUP}.{field}") for field in ("replicas", "minReplicas", "maxReplicas", "numOfHosts")),
        ("rayjob", "spec.rayClusterSpec.workerGroupSpecs[0].replicas"),
        ("rayservice", "spec.rayClusterConfig.workerGroupSpecs[0].replicas"),
        ("sparkapplication", "spec.executor.instances"),
        ("argo-workflow", "spec.parallelism"),
        ("appwrapper-v1beta2", "spec.components[0].podSets[0].replicas"),
        ("appwrapper-v1beta2", "spec.components[0].template.spec.parallelism"),
        ("mcad-appwrapper-v1beta1", "spec.resources.GenericItems[0].generictemplate.spec.parallelism"),
    ],
)
@pytest.mark.parametrize(
    ("value", "message"), [(-1, "but is -1"), (1.5, "but is 1.5"), ("3", "not negative"), (True, "not negative")]
)
def test_invalid_pod_count_is_misconfigured_with_its_path(name, path, value, message):
    """Otherwise Sluice could count another number of pods than the controller creates."""
    kind, obj = manifest(name)
    put(obj, path, value)
    with pytest.raises(Misconfigured) as refused:
        kind.pod_sets(obj, CONTEXT)
    assert str(refused.value).startswith(f"{path}: must be a whole number")
    assert str(refused.value).endswith(message)
    assert [where for where, _ in kind.faults(obj)] == [path]


@pytest.mark.parametrize("value", [-1, 1.5, "3"])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("volcano-torchx-ddp", "spec.tasks[1].replicas"),
        ("leaderworkerset", "spec.replicas"),
        ("leaderworkerset", "spec.leaderWorkerTemplate.size"),
    ],
)
def test_invalid_pod_count_of_kinds_with_gated_pods_is_a_fault(name, path, value):
    kind, obj = manifest(name)
    put(obj, path, value)
    assert [where for where, _ in kind.faults(obj)] == [path]
    assert kind.gate(obj)  # no exception: the webhook may request the gate patch before the faults


def test_rayjob_in_sidecar_mode_counts_the_submitter_in_the_head():
    """KubeRay adds the container to the head of the RayCluster that it creates, which is part of the RayJob."""
    kind, obj = manifest("rayjob")
    obj["spec"] |= {"submissionMode": "SidecarMode"}
    obj["status"] = {"rayClusterName": "sample-rayjob-x7k2p"}
    assert [(each.name, each.count, each.requests["cpu"]) for each in kind.pod_sets(obj, CONTEXT)] == [
        ("head", 1, 1500),
        ("workers", 2, 1000),
    ]
    spec = copy.deepcopy(obj["spec"]["rayClusterSpec"])
    containers = spec["headGroupSpec"]["template"]["spec"]["containers"]
    submitter = {"name": "ray-job-submitter", "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}
    containers.append(submitter)
    cluster = {"metadata": {"namespace": "team-a", "name": "sample-rayjob-x7k2p"}, "spec": spec}
    clusters = KINDS.get("ray.io", "RayCluster")
    assert kind.part(obj, clusters, cluster, CONTEXT) is Belonging.CURRENT
    submitter["resources"]["requests"]["cpu"] = "501m"
    assert kind.part(obj, clusters, cluster, CONTEXT) is Belonging.NONE


def test_default_submitter_of_a_rayjob_is_written_by_a_start_and_removed_by_a_restoration():
    """KubeRay's own default has no node selector, so that the pod would run on any node."""
    kind, obj = manifest("rayjob")
    obj["metadata"]["generation"] = 1
    obj["spec"].pop("submitterPodTemplate", None)
    obj["spec"]["suspend"] = True
    patch, original = kind.start_patch(obj, admission(kind, obj), FLAVORS)
    running = json_patch(obj, patch)
    template = running["spec"]["submitterPodTemplate"]
    assert template["spec"]["nodeSelector"] == FLAVORS["spot"].spec.node_labels
    assert template["spec"]["restartPolicy"] == "Never"
    (container,) = template["spec"]["containers"]
    head = obj["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("ray-job-submitter", head["image"])
    assert kind.carries_start(running, original)
    assert kind.pod_sets(running, CONTEXT)[-1].requests == kind.pod_sets(obj, CONTEXT)[-1].requests
    assert kind.restored(running, original)["spec"] == {**obj["spec"], "suspend": False}


@pytest.mark.parametrize(("given", "warned"), [({}, 1), ({"jobId": "train-1"}, 0)])
def test_rayjob_in_interactive_mode_without_job_id_has_a_remark(given, warned):
    kind, obj = manifest("rayjob")
    obj["spec"] |= {"submissionMode": "InteractiveMode", **given}
    assert [each.name for each in kind.pod_sets(obj, CONTEXT)] == ["head", "workers"]
    assert len(kind.remarks(obj)) == warned


def small(name, *keys):
    """Return pod sets of a manifest whose pods at `keys` request 10 milli-CPU and nothing else."""
    kind, obj = manifest(name)
    pod = obj["spec"]
    for key in keys:
        pod = pod[key]
    pod["containers"] = [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "10m"}}}]
    found = {each.name: each for each in kind.pod_sets(obj, CONTEXT)}
    return {name: (each.requests, each.optional) for name, each in found.items()}


def test_containers_that_operators_add_to_small_pods_are_counted():
    workers = ("workerGroupSpecs", 1, "template", "spec")
    assert small("raycluster", *workers)["cpu"] == ({"cpu": 200, "memory": 2**28}, ("memory",))
    torch = ("pytorchReplicaSpecs", "Worker", "template", "spec")
    assert small("pytorchjob-v1", *torch)["worker"] == ({"cpu": 50, "memory": 10 * 2**20}, ("memory",))
    mpi = ("mpiReplicaSpecs", "Launcher", "template", "spec")
    expected = {"cpu": 100, "memory": 2**29, "ephemeral-storage": 5 * 2**30}
    assert small("mpijob-v1", *mpi)["launcher"] == (expected, ("ephemeral-storage", "memory"))
    assert small("mpijob-v2beta1", *mpi)["launcher"] == ({"cpu": 10}, ())
    head = ("rayClusterSpec", "headGroupSpec", "template", "spec")
    assert small("rayjob", *head)["submitter"] == ({"cpu": 500, "memory": 200 * 2**20}, ("cpu", "memory"))
