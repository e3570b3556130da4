"""Pod sets of AppWrappers: as declared, as the operator infers them, and never fewer pods than a component has."""

from __future__ import annotations

import copy

import pytest
from declared_examples import manifest

from admission.kinds import NamespaceContext
from admission.model.errors import Misconfigured

CONTEXT = NamespaceContext()
CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
LWS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "lws"},
    "spec": {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 4, "workerTemplate": {"spec": {"containers": CONTAINERS}}},
    },
}
CUSTOM = {"apiVersion": "example.com/v1", "kind": "Notebook", "metadata": {"name": "n"}, "spec": {"pods": 3}}
WORKERS = "template.spec.leaderWorkerTemplate.workerTemplate"


def app_wrapper(template, pod_sets=None):
    kind, obj = manifest("appwrapper-v1beta2")
    component = {"template": copy.deepcopy(template), **({} if pod_sets is None else {"podSets": pod_sets})}
    obj["spec"]["components"] = [component]
    return kind, obj


def wrapped(name):
    _, obj = manifest(name)
    return {key: obj[key] for key in ("apiVersion", "kind", "metadata", "spec")}


def counts(kind, obj):
    return [(pod_set.count, pod_set.requests) for pod_set in kind.pod_sets(obj, CONTEXT)]


def test_components_without_pods_are_the_same_with_and_without_an_empty_list():
    """The operator writes the object with `omitempty`, so that empty lists are dropped by its first update."""
    kind, obj = manifest("appwrapper-v1beta2")
    assert obj["spec"]["components"][1]["podSets"] == []
    before = counts(kind, obj)
    del obj["spec"]["components"][1]["podSets"]
    assert counts(kind, obj) == before
    assert kind.faults(obj) == []


@pytest.mark.parametrize("name", ["jobset", "pytorchjob-v1", "raycluster", "rayjob"])
def test_pod_sets_that_the_operator_infers_need_not_be_declared(name):
    own_kind, own = manifest(name)
    kind, obj = app_wrapper(wrapped(name))
    assert kind.faults(obj) == []
    assert counts(kind, obj) == counts(own_kind, own)
    assert [bool(place.target) for place in kind.places(obj)] == [
        not place.path.endswith("submitterPodTemplate") for place in own_kind.places(own)
    ]


def test_containers_that_the_operator_of_a_wrapped_object_adds_are_counted():
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
    roles = {"pytorchReplicaSpecs": {"Master": role, "Worker": role}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "torch"}, "spec": roles}
    kind, obj = app_wrapper(job)
    assert counts(kind, obj) == [(1, {}), (1, {"cpu": 50, "memory": 10 * 2**20})]
    assert [each.optional for each in kind.pod_sets(obj, CONTEXT)] == [(), ("cpu", "memory")]


def test_object_of_a_known_kind_is_counted_with_all_its_pods():
    kind, obj = app_wrapper(LWS, [{"replicas": 1, "path": WORKERS}])
    assert [count for count, _ in counts(kind, obj)] == [8]
    assert [count.unwatched for count in kind.observe(obj).counts] == [True]
    kind, obj = app_wrapper(LWS, [{"replicas": 9, "path": WORKERS}])
    assert [count for count, _ in counts(kind, obj)] == [9]


@pytest.mark.parametrize("pod_sets", [None, []])
def test_pods_that_the_operator_would_not_know_have_to_be_declared(pod_sets):
    kind, obj = app_wrapper(LWS, pod_sets)
    with pytest.raises(Misconfigured, match=f"podSets: the LeaderWorkerSet has pods at {WORKERS}: name it"):
        kind.pod_sets(obj, CONTEXT)


def test_object_of_an_unknown_kind_is_believed_to_have_the_declared_pods():
    kind, obj = app_wrapper(CUSTOM)
    obj["spec"]["components"].append({"template": wrapped("jobset")})
    names = [place.name for place in kind.places(obj)]
    assert names == ["component-1-0", "component-1-1"]
