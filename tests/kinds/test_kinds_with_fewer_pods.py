"""Partial admission of declared kinds: supported kinds, minimum pod counts, and restored pod counts."""

from __future__ import annotations

import copy

import jsonpatch
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kind_jobs import FLAVORS, make_job
from kind_manifests import GOLDEN, document

from admission.apimachinery.patches import json_patch
from admission.kinds import NamespaceContext, all_kinds, frameworks_known, parse_form
from admission.kinds.paths import at
from admission.model.errors import Misconfigured
from admission.model.workload import Admission, PodSetAssignment
from tests.custom_kinds import TRAINING_RUN_FORM, pod

OWN = {**TRAINING_RUN_FORM, "podSets": [{**TRAINING_RUN_FORM["podSets"][0], "minCount": "least"}]}
KINDS = all_kinds(frameworks=frameworks_known(), own=[parse_form(OWN)])
CONTEXT = NamespaceContext()
MIN_COUNT = "sluice.dev/min-count"
ABLE = {
    "tfjob": "worker",
    "xgboostjob": "worker",
    "paddlejob": "worker",
    "jaxjob": "worker",
    "pytorchjob-v1": "worker",
    "mpijob-v1": "worker",
    "mpijob-v2beta1": "worker",
    "raycluster": "cpu",
    "rayjob": "workers",
    "sparkapplication": "executor",
    "argo-workflow": "workflow",
}
"""By manifest: the pod set that may start with fewer pods if it has a minimum count."""
SERVED = {"uid": "u-1", "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z"}


def training_run(**fields):
    roles = [{"role": "actor", "count": 5, **fields, "template": pod(cpu="1", seconds=1)}]
    metadata = {"name": "own", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    return {"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": metadata, "spec": {"roles": roles}}


def with_min_count(name, text=None, *, pods=5):
    """Return the kind and the gated object of a manifest, with `pods` pods and `text` as its min-count annotation."""
    obj = training_run() if name == "own" else document(name)
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    annotation = {} if text is None else {MIN_COUNT: text}
    obj["metadata"] |= {**SERVED, "annotations": {**(obj["metadata"].get("annotations") or {}), **annotation}}
    obj["spec"].pop("enableInTreeAutoscaling", None)
    lowered = next((place.reducible for place in kind.places(obj) if place.name == ABLE.get(name)), None)
    if lowered:
        bounds = {"minReplicas": 0, "maxReplicas": 99} if name.startswith("ray") else {}
        at(obj, lowered[:-1]).update({lowered[-1]: pods, **bounds})
    return kind, json_patch(obj, kind.gate(obj))


def admission(pod_sets, **counts):
    assignments = [
        PodSetAssignment(each.name, {"cpu": "spot"}, {}, counts.get(each.name, each.count)) for each in pod_sets
    ]
    return Admission("cq", tuple(assignments))


def bytes_of(obj):
    return orjson.dumps(obj)


@settings(max_examples=10)
@given(st.data())
@pytest.mark.parametrize("name", [*ABLE, "own", "batch-job"])
def test_partially_admitted_object_is_restored_byte_for_byte(name, data):
    pods = data.draw(st.integers(2, 40))
    least = data.draw(st.integers(1, pods - 1))
    few = data.draw(st.integers(least, pods))
    pod_set = ABLE.get(name, "actor")
    if name == "batch-job":
        pod_set, kind = "main", KINDS.get("batch", "Job")
        obj = make_job(annotations={"sluice.dev/job-min-parallelism": str(least)}, parallelism=pods, completions=99)
    elif name == "own":
        kind = KINDS.get("example.com", "TrainingRun")
        obj = training_run(count=pods, least=least)
        obj["metadata"] |= SERVED
        obj["spec"]["paused"] = True
    else:
        kind, obj = with_min_count(name, f"{pod_set}={least}", pods=pods)
    before = bytes_of(obj)
    found = {each.name: each for each in kind.pod_sets(obj, CONTEXT)}
    assert (found[pod_set].count, found[pod_set].min_count) == (pods, least)
    assert not [each for each in found.values() if each.name != pod_set and each.min_count is not None]

    patch, original = kind.start_patch(obj, admission(found.values(), **{pod_set: few}), FLAVORS)
    started = jsonpatch.apply_patch(obj, patch)
    assert bytes_of(obj) == before
    assert {each.name: each.wanted for each in kind.observe(started).counts}[pod_set] == few
    others = {each.name: each.wanted for each in kind.observe(obj).counts} | {pod_set: few}
    assert {each.name: each.wanted for each in kind.observe(started).counts} == others
    assert kind.carries_start(started, original)
    resumed = jsonpatch.apply_patch(
        jsonpatch.apply_patch(started, kind.stop_patch(started)), kind.resume_patch(started)
    )
    assert resumed == started

    stopped = jsonpatch.apply_patch(started, kind.stop_patch(started))
    restored = kind.restored(stopped, original)
    assert orjson.dumps(restored, option=orjson.OPT_SORT_KEYS) == orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
    assert kind.restore_patch(restored, original) is None


@pytest.mark.parametrize("name", ABLE)
def test_pod_sets_have_no_min_count_without_the_annotation(name):
    kind, obj = with_min_count(name)
    assert [each.min_count for each in kind.pod_sets(obj, CONTEXT)] == [None] * len(GOLDEN[name])


@pytest.mark.parametrize("name", sorted({*GOLDEN} - {*ABLE, "raycluster-native-gang"}))
def test_min_count_on_an_unsupported_kind_is_misconfigured(name):
    kind, obj = with_min_count(name, "workers=1")
    with pytest.raises(Misconfigured, match="it can only start with all of its pods: remove the annotation"):
        kind.pod_sets(obj, CONTEXT)
    assert [path for path, _ in kind.faults(obj)] == [f"metadata.annotations[{MIN_COUNT}]"]


@pytest.mark.parametrize("name", ["pod", "deployment", "statefulset", "leaderworkerset", "volcano-torchx-ddp"])
def test_min_count_where_pods_are_gated_is_a_fault(name):
    obj = document(name)
    key = obj["apiVersion"].rpartition("/")[0], obj["kind"]
    kind = next(each for each in KINDS.gated if (each.group, each.kind) == key)
    assert kind.faults(obj) == []
    obj["metadata"]["annotations"] = {MIN_COUNT: "main=1"}
    message = "it can only start with all of its pods: remove the annotation"
    assert kind.faults(obj) == [(f"metadata.annotations[{MIN_COUNT}]", message)]


def test_min_count_of_a_train_job_is_a_fault_before_it_has_a_job_set():
    obj = document("trainjob-v2")
    kind = KINDS.get("trainer.kubeflow.org", "TrainJob")
    assert kind.faults(obj) == []
    obj["metadata"]["annotations"] = {MIN_COUNT: "node=1"}
    assert [path for path, _ in kind.faults(obj)] == [f"metadata.annotations[{MIN_COUNT}]"]


@pytest.mark.parametrize("name", ABLE)
def test_user_edit_of_a_lowered_pod_count_survives_the_restore(name):
    pod_set = ABLE[name]
    kind, obj = with_min_count(name, f"{pod_set}=2")
    patch, original = kind.start_patch(obj, admission(kind.pod_sets(obj, CONTEXT), **{pod_set: 3}), FLAVORS)
    started = jsonpatch.apply_patch(obj, patch)
    keys = next(place.reducible for place in kind.places(started) if place.name == pod_set)
    edited = json_patch(started, [{"op": "add", "path": f"/{'/'.join(keys)}", "value": 2}])
    assert not kind.carries_start(edited, original)
    assert kind.is_as_started(edited, original)
    stopped = jsonpatch.apply_patch(edited, kind.stop_patch(edited))
    expected = json_patch(obj, [{"op": "add", "path": f"/{'/'.join(keys)}", "value": 2}])
    assert kind.restored(stopped, original) == expected
    assert at(expected, keys) == 2


FAULTS = [
    ("", '"" is no pod set that can start with fewer pods: name worker, as in worker=2'),
    ("3", '"3" is no pod set that can start with fewer pods: name worker, as in worker=2'),
    ("master=1", '"master" is no pod set that can start with fewer pods: name worker, as in worker=2'),
    ("worker", 'worker must be a whole number of at least 1, not ""'),
    ("worker=0", 'worker must be a whole number of at least 1, not "0"'),
    ("worker=-1", 'worker must be a whole number of at least 1, not "-1"'),
    ("worker=1.5", 'worker must be a whole number of at least 1, not "1.5"'),
    ("worker=" + "9" * 5000, f'worker must be a whole number of at least 1, not "{"9" * 99}…"'),
    ("worker=2,", '"" is no pod set that can start with fewer pods: name worker, as in worker=2'),
    ("worker=2, worker=3", "worker is named twice: keep one of the two"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_invalid_min_count_annotation_is_misconfigured(text, message):
    kind, obj = with_min_count("pytorchjob-v1", text)
    assert kind.faults(obj) == [(f"metadata.annotations[{MIN_COUNT}]", message)]
    with pytest.raises(Misconfigured, match="min-count"):
        kind.pod_sets(obj, CONTEXT)


@pytest.mark.parametrize("count", [5, 9])
def test_min_count_at_or_above_the_pod_count_disables_partial_admission(count):
    kind, obj = with_min_count("pytorchjob-v1", f"worker = {count}", pods=5)
    assert [each.min_count for each in kind.pod_sets(obj, CONTEXT)] == [None, None]
    assert kind.faults(obj) == []


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("pytorchjob-v1", ("elasticPolicy",), {"metrics": [{}]}, "the autoscaler of spec.elasticPolicy.metrics"),
        ("paddlejob", ("elasticPolicy",), {"metrics": [{}]}, "the autoscaler of spec.elasticPolicy.metrics"),
        ("tfjob", ("runPolicy", "schedulingPolicy"), {"minAvailable": 4}, "the gang of spec.runPolicy.scheduling"),
        ("raycluster", ("enableInTreeAutoscaling",), True, "its autoscaler sets the numbers of workers"),
        ("rayjob", ("rayClusterSpec", "enableInTreeAutoscaling"), True, "its autoscaler sets the numbers of workers"),
    ],
)
def test_min_count_with_an_autoscaler_or_gang_is_a_fault(name, path, value, message):
    kind, obj = with_min_count(name, f"{ABLE[name]}=2")
    assert kind.faults(obj) == []
    parent = at(obj["spec"], path[:-1])
    parent[path[-1]] = value
    ((where, fault),) = kind.faults(obj)
    assert where == f"metadata.annotations[{MIN_COUNT}]"
    assert message in fault


@pytest.mark.parametrize("name", ["raycluster", "rayjob", "raycluster-native-gang"])
def test_min_count_with_gang_scheduling_of_kuberay_is_a_fault(name):
    kind, obj = with_min_count(name, f"{ABLE.get(name, 'workers')}=2")
    obj["metadata"]["labels"]["ray.io/gang-scheduling-enabled"] = "true"
    assert "to be scheduled as a gang" in kind.faults(obj)[0][1]


def test_min_count_below_min_replicas_of_a_worker_group_is_a_fault():
    kind, obj = with_min_count("raycluster", "cpu=2")
    obj["spec"]["workerGroupSpecs"][1]["minReplicas"] = 3
    assert kind.faults(obj)[0][1] == 'cpu must be a whole number of at least 3, not "2"'


def test_min_count_of_a_worker_group_with_several_hosts_is_a_fault():
    kind, obj = with_min_count("raycluster", "gpu=1")  # two hosts per replica
    assert kind.faults(obj)[0][1] == '"gpu" is no pod set that can start with fewer pods: name cpu, as in cpu=2'


@pytest.mark.parametrize(("least", "found"), [(2, 2), (0, None), (5, None), (9, None), (None, None)])
def test_custom_kind_reads_the_min_count_from_its_field(least, found):
    kind, obj = KINDS.get("example.com", "TrainingRun"), training_run(least=least)
    assert kind.pod_sets(obj, CONTEXT)[0].min_count == found


def test_min_count_annotation_precedes_the_field_of_a_custom_kind():
    kind, obj = KINDS.get("example.com", "TrainingRun"), training_run(least=2)
    obj["metadata"]["annotations"] = {MIN_COUNT: "actor=4"}
    assert kind.pod_sets(obj, CONTEXT)[0].min_count == 4


def test_min_count_field_that_is_no_number_is_a_fault():
    kind, obj = KINDS.get("example.com", "TrainingRun"), training_run(least="two")
    assert kind.faults(obj) == [("spec.roles[0].least", "must be a whole number that is not negative")]


def test_pod_set_with_a_min_count_of_zero_has_no_partial_admission():
    obj = training_run(least=2)
    other = copy.deepcopy(obj["spec"]["roles"][0]) | {"role": "critic", "count": 3, "least": 0}
    obj["spec"]["roles"].append(other)
    kind = KINDS.get("example.com", "TrainingRun")
    assert [(each.count, each.min_count) for each in kind.pod_sets(obj, CONTEXT)] == [(5, 2), (3, None)]
