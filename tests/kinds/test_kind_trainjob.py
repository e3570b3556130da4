"""Adapter for TrainJob between the requests of a start: injected fields in its JobSet, and edits by users."""

from __future__ import annotations

import copy

import pytest
import yaml
from kind_manifests import FOLDER

from admission.apimachinery.patches import json_patch
from admission.kinds import NamespaceContext, all_kinds
from admission.kinds.base import RENDERED
from admission.kinds.patches import merged
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSetAssignment

KIND = all_kinds(frameworks=("jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")).get(
    "trainer.kubeflow.org", "TrainJob"
)
MANIFEST, RUNTIME = yaml.safe_load_all((FOLDER / "trainjob-v2.yaml").read_text())
FLAVORS = {
    "spot": parse_manifest(
        {
            "apiVersion": "sluice.dev/v1",
            "kind": "ResourceFlavor",
            "metadata": {"name": "spot"},
            "spec": {"nodeLabels": {"pool": "spot"}},
        }
    )
}
OTHER = {"manager": "example.com/other", "time": "2026-01-01T00:00:00Z"}
FIELDS = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")


def suspended_trainjob():
    """Return the suspended TrainJob with the spec of its JobSet."""
    obj = copy.deepcopy(MANIFEST)
    obj["metadata"] |= {
        "uid": "u",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    obj["spec"] |= {"suspend": True, "runtimePatches": [copy.deepcopy(OTHER)]}
    obj[RENDERED] = {"generation": 1, "spec": copy.deepcopy(RUNTIME["spec"]["template"]["spec"])}
    return obj


def after_first_request(field="runtimePatches"):
    """Return the TrainJob after the first request of its start, and the original.

    `field`: the only one of FIELDS that its release of Trainer has; the others are dropped.
    """
    obj = suspended_trainjob()
    pod_sets = KIND.pod_sets(obj, NamespaceContext())
    assignments = tuple(PodSetAssignment(each.name, {"cpu": "spot"}, {}, each.count) for each in pod_sets)
    patch, original = KIND.start_patch(obj, Admission("cq", assignments), FLAVORS)
    begun = json_patch(obj, patch)
    for other in FIELDS:
        if other != field and original["given"][other] == begun["spec"][other][-len(original["given"][other]) :]:
            del begun["spec"][other]
    return begun, original


def with_jobset_template(obj, **template):
    """Return the TrainJob with a JobSet whose template has these fields."""
    obj = copy.deepcopy(obj)
    (role,) = obj[RENDERED]["spec"]["replicatedJobs"]
    role["template"]["spec"]["template"] = merged(role["template"]["spec"]["template"], template)
    return obj


SELECTED = {"spec": {"nodeSelector": {"pool": "spot"}}}
LABELLED = {"metadata": {"labels": {"sluice.dev/workload-uid": "u", "sluice.dev/pod-set": "node"}}}


@pytest.mark.parametrize("field", FIELDS)
def test_trainjob_may_resume_only_if_its_jobset_has_the_injected_fields(field):
    obj, _ = after_first_request(field)
    assert not KIND.may_resume(obj)
    assert not KIND.may_resume(with_jobset_template(obj, **LABELLED))
    assert KIND.may_resume(with_jobset_template(obj, **SELECTED, **LABELLED))
    assert KIND.may_resume(with_jobset_template(obj, **SELECTED)) is (field == "podSpecOverrides")
    unknown = {key: value for key, value in obj.items() if key != RENDERED}
    assert KIND.may_resume(unknown)


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        ({}, True),
        ({"trainer": {"image": "other", "command": ["x"], "args": ["y"], "env": [{"name": "z"}]}}, True),
        ({"runtimePatches": "later"}, True),
        ({"trainer": {"numNodes": 5}}, False),
        ({"trainer": {"resourcesPerNode": {"requests": {"cpu": "5"}}}}, False),
        ({"runtimeRef": {"name": "other"}}, False),
        ({"runtimePatches": "changed"}, False),
    ],
)
def test_suspended_trainjob_edited_to_other_pods_is_not_as_started(changed, is_same):
    obj, original = after_first_request()
    patches = copy.deepcopy(obj["spec"]["runtimePatches"])
    others = {"later": "2026-01-02T00:00:00Z", "changed": None}
    if isinstance(changed.get("runtimePatches"), str):
        patches[0] = {**OTHER, "time": others[changed["runtimePatches"]] or OTHER["time"]}
        patches[0] |= {"trainingRuntimeSpec": {}} if changed["runtimePatches"] == "changed" else {}
    edited = merged(obj, {"spec": {**changed, "runtimePatches": patches}})
    assert KIND.is_as_started(edited, original) is is_same
    assert KIND.is_as_started(merged(edited, {"spec": {"suspend": False}}), original), "Trainer changes no pods of it"
    before = {key: value for key, value in original.items() if key != "asked"}  # stored by an earlier version of Sluice
    assert KIND.is_as_started(edited, before)
