"""Declared kinds: updates of running objects, which get neither additional nor other pods without quota."""

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


def test_scale_up_of_running_raycluster_is_reverted_and_kept_as_a_request():
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


def test_scale_patch_grants_pod_sets_with_quota_and_keeps_the_other_requests():
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
def test_running_raycluster_whose_update_changes_its_pods_is_suspended(change):
    """Without suspension, the controller would create the new pods while the old ones are still terminating."""
    kind, old = manifest("raycluster")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    change(new["spec"]["workerGroupSpecs"])
    patch, warning = kind.limit(new, old)
    suspended = json_patch(new, patch)
    assert suspended == {**new, "spec": {**new["spec"], "suspend": True}}
    assert (
        warning
        == "if this change is accepted, the running RayCluster is suspended for its other pods, and queues again"
    )


SAME = {
    "in another order": lambda groups: groups.reverse(),
    "with another image": lambda groups: groups[1]["template"]["spec"]["containers"][0].update(image="another"),
    "written otherwise": lambda groups: groups[1]["template"]["spec"]["containers"][0]["resources"]["requests"].update(
        cpu="1000m"
    ),
    "fewer": lambda groups: groups.pop(),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_update_with_same_or_fewer_pods_leaves_a_running_raycluster_unchanged(change):
    kind, old = manifest("raycluster")
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    change(new["spec"]["workerGroupSpecs"])
    assert kind.limit(new, old)[0] == []


@pytest.mark.parametrize("name", ["raycluster", "pytorchjob-v1", "sparkapplication", "argo-workflow", "jobset"])
@pytest.mark.parametrize("label", ["sluice.dev/workload-uid", "sluice.dev/pod-set"])
@pytest.mark.parametrize("value", [None, "another"])
def test_running_object_that_loses_its_workload_labels_is_suspended(name, label, value):
    """The controller may create pods without these labels before Sluice restores them in the running object."""
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


def test_scale_up_of_running_pytorchjob_is_reverted():
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
def test_scale_up_of_running_appwrapper_is_reverted_in_its_components(declared):
    """With only `podSets` reverted, the AppWrapper would declare fewer pods than its components have."""
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


def test_running_appwrapper_with_uncountable_pods_is_suspended_on_a_spec_edit():
    kind, old = manifest("appwrapper-v1beta2")
    old["spec"]["suspend"] = False
    old["spec"]["components"][0]["template"]["spec"] |= {"parallelism": 6, "completions": 6}
    new = copy.deepcopy(old)
    new["spec"]["components"][0]["podSets"][0]["replicas"] = 6
    assert json_patch(new, kind.limit(new, old)[0])["spec"]["suspend"] is True
    assert kind.limit({**old, "metadata": {**old["metadata"], "finalizers": ["a/b"]}}, old)[0] == []
