"""Declared kinds: updates of running objects, which get no more pods, and no other ones, than they have quota for."""

from __future__ import annotations

import copy

import jsonpatch
import orjson
import pytest
from declared_examples import admission, manifest
from kind_jobs import FLAVORS

from admission.apimachinery.patches import json_patch
from admission.kinds.base import SCALE_REQUEST
from admission.kinds.patches import pointer


def test_more_pods_than_were_admitted_are_taken_back():
    kind, old = manifest("raycluster")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 4
    new["spec"]["workerGroupSpecs"][1]["suspend"] = True
    patch, warning = kind.limit(new, old)
    limited = json_patch(new, patch)
    assert limited["spec"] == {**new["spec"], "workerGroupSpecs": limited["spec"]["workerGroupSpecs"]}
    assert [group["replicas"] for group in limited["spec"]["workerGroupSpecs"]] == [2, 1]
    assert warning.startswith("a running RayCluster has quota for the pods that it has; it gets more as soon as")
    # The requested count is kept in the annotation.
    assert orjson.loads(limited["metadata"]["annotations"][SCALE_REQUEST]) == {"gpu": {"replicas": 4}}
    counts = {count.name: (count.wanted, count.scale_up) for count in kind.observe(limited).counts}
    assert counts["gpu"] == (4, 8)
    assert kind.scale_patch(limited, {"head": 1, "gpu": 7, "cpu": 9}) == []
    larger = json_patch(limited, kind.scale_patch(limited, {"gpu": 8}))
    assert larger["spec"]["workerGroupSpecs"][0]["replicas"] == 4
    assert SCALE_REQUEST not in larger["metadata"]["annotations"]
    # A smaller count withdraws the request; an annotation that cannot be parsed is ignored.
    fewer = copy.deepcopy(limited)
    fewer["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    assert kind.limit(fewer, limited)[0] == [
        {"op": "remove", "path": pointer("metadata", "annotations", SCALE_REQUEST)}
    ]
    for text in ("no JSON", '["gpu"]', '{"gpu": 4}', '{"gpu": {"replicas": "four"}}', '{"none": {"replicas": 4}}', ""):
        limited["metadata"]["annotations"][SCALE_REQUEST] = text
        assert kind.scale_patch(limited, {"head": 99, "gpu": 99, "cpu": 99}) == []
        assert all(count.scale_up <= count.wanted for count in kind.observe(limited).counts)
    again = json_patch(old, kind.limit(old, new)[0])
    assert again["spec"]["workerGroupSpecs"][1]["suspend"] is True


def test_what_is_asked_for_is_given_where_there_is_quota_and_stays_asked_for_elsewhere():
    kind, obj = manifest("raycluster")
    wishes = {"gpu": {"replicas": 3}, "cpu": {"maxReplicas": 9, "replicas": 2}, "gone": {"replicas": 1}}
    obj["metadata"]["annotations"] = {SCALE_REQUEST: orjson.dumps(wishes).decode()}
    granted = json_patch(obj, kind.scale_patch(obj, {"cpu": 2}))
    assert [group["replicas"] for group in granted["spec"]["workerGroupSpecs"]] == [2, 2]
    assert orjson.loads(granted["metadata"]["annotations"][SCALE_REQUEST]) == {"gpu": {"replicas": 3}}


def changed(group, **fields):
    return lambda groups: groups[group].update(fields)


OTHERS = {
    "renamed": changed(0, groupName="other"),
    "added": lambda groups: groups.append({**copy.deepcopy(groups[0]), "groupName": "other"}),
    "in another order, and more": lambda groups: (groups.reverse(), groups[0].update(replicas=9, maxReplicas=9)),
    "larger": lambda groups: groups[1]["template"]["spec"]["containers"][0]["resources"]["requests"].update(cpu="2"),
    "elsewhere": lambda groups: groups[1]["template"]["spec"].update(nodeSelector={"gpu": "h100"}),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_is_to_have_other_pods_while_it_runs_is_suspended(change):
    """Only a suspension keeps its controller from creating the new pods beside terminating ones."""
    kind, old = manifest("raycluster")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    change(new["spec"]["workerGroupSpecs"])
    patch, warning = kind.limit(new, old)
    suspended = json_patch(new, patch)
    assert suspended == {**new, "spec": {**new["spec"], "suspend": True}}
    assert warning == "a running RayCluster that is to have other pods is suspended, and queues again"


SAME = {
    "in another order": lambda groups: groups.reverse(),
    "with another image": lambda groups: groups[1]["template"]["spec"]["containers"][0].update(image="another"),
    "written otherwise": lambda groups: groups[1]["template"]["spec"]["containers"][0]["resources"]["requests"].update(
        cpu="1000m"
    ),
    "fewer": lambda groups: groups.pop(),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_has_the_same_pods_runs_on(change):
    kind, old = manifest("raycluster")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    change(new["spec"]["workerGroupSpecs"])
    assert kind.limit(new, old)[0] == []


@pytest.mark.parametrize("name", ["raycluster", "pytorchjob-v1", "sparkapplication", "argo-workflow", "jobset"])
@pytest.mark.parametrize("label", ["sluice.dev/workload-uid", "sluice.dev/pod-set"])
@pytest.mark.parametrize("value", [None, "another"])
def test_what_would_have_pods_without_the_labels_that_they_are_counted_by_is_suspended(name, label, value):
    """Its controller may create pods before Sluice has restored the labels of a running object."""
    kind, obj = manifest(name)
    started = jsonpatch.apply_patch(obj, kind.start_patch(obj, admission(kind, obj), FLAVORS)[0])
    assert kind.gate(started)
    assert kind.limit(copy.deepcopy(started), started)[0] == []
    changed = copy.deepcopy(started)
    labels = [each for each in objects_in(changed) if label in each]
    assert labels
    if value is None:
        del labels[0][label]
    else:
        labels[0][label] = value
    patch, _ = kind.limit(changed, started)
    assert kind.gate(jsonpatch.apply_patch(changed, patch)) == []


def objects_in(value):
    """Yield all objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(each)


def test_what_does_not_follow_the_scale_keeps_its_numbers():
    kind, old = manifest("pytorchjob-v1")
    old["spec"]["runPolicy"] = {"suspend": False}
    new = copy.deepcopy(old)
    new["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 9
    patch, warning = kind.limit(new, old)
    assert json_patch(new, patch) == old
    assert (
        warning == "a running PyTorchJob gets no more pods than it has; suspend it in the same request to ask for more"
    )


@pytest.mark.parametrize("declared", [(True, True), (False, False), (True, False)])
def test_an_appwrapper_keeps_the_numbers_of_what_is_in_it_too(declared):
    """Otherwise it would declare fewer pods than it has, and could no longer be counted."""
    kind, old = manifest("appwrapper-v1beta2")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    component = new["spec"]["components"][0]
    component["podSets"][0]["replicas"] = 6
    component["template"]["spec"] |= {"parallelism": 6, "completions": 6}
    for obj, is_declared in zip((old, new), declared, strict=True):
        if not is_declared:
            del obj["spec"]["components"][0]["podSets"]
    patch, _ = kind.limit(new, old)
    kept = json_patch(new, patch)
    assert kept["spec"]["components"][0]["template"] == old["spec"]["components"][0]["template"]
    assert [place.pods for place in kind.places(kept)] == [2]
    assert kind.faults(kept) == []


def test_what_could_not_be_counted_is_suspended_when_it_is_edited():
    kind, old = manifest("appwrapper-v1beta2")
    old["spec"]["suspend"] = False
    old["spec"]["components"][0]["template"]["spec"] |= {"parallelism": 6, "completions": 6}
    new = copy.deepcopy(old)
    new["spec"]["components"][0]["podSets"][0]["replicas"] = 6
    assert json_patch(new, kind.limit(new, old)[0])["spec"]["suspend"] is True
    assert kind.limit({**old, "metadata": {**old["metadata"], "finalizers": ["a/b"]}}, old)[0] == []
