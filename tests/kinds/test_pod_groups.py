"""Pod groups: name, size and faults of a group from the labels, annotations and spec of a pod."""

from __future__ import annotations

import pytest

from admission.kinds import Conventions, all_kinds
from admission.kinds.foreign_groups import FOREIGN, TASK_GROUPS, declared, declared_faults
from admission.kinds.grouping import group_faults, role_of

KOORDINATOR = "gang.scheduling.koordinator.sh/"
LIGHT = "pod-group.scheduling.sigs.k8s.io"


def test_roles_of_20000_different_cpu_requests_do_not_collide():
    """With a collision, a user could run the larger pod on the quota of the smaller one."""
    assert len({role_of(_pod(f"{number}m")) for number in range(20_000)}) == 20_000


def _pod(cpu):
    return {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {f"{KOORDINATOR}name": "g", f"{KOORDINATOR}min-available": "2"}, ("g", 2)),
        (
            {},
            {f"{KOORDINATOR}name": "g", f"{KOORDINATOR}min-available": "2", f"{KOORDINATOR}total-number": "3"},
            ("g", 3),
        ),
        ({f"{LIGHT}/name": "g", f"{LIGHT}/min-available": "4"}, {}, ("g", 4)),
        ({LIGHT: "g"}, {}, ("g", 0)),
        ({"scheduling.x-k8s.io/pod-group": "g"}, {}, ("g", 0)),
        (
            {"applicationId": "g"},
            {TASK_GROUPS: '[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 3}]'},
            ("g", 4),
        ),
        ({"applicationId": "g"}, {"yunikorn.apache.org/task-group-name": "a"}, ("g", 0)),
        ({"applicationId": "g"}, {}, None),
        ({LIGHT: "second", "applicationId": "third"}, {f"{KOORDINATOR}name": "first"}, ("first", 0)),
    ],
)
def test_pod_group_of_another_system_has_its_name_and_size(labels, annotations, expected):
    found = declared({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}}, FOREIGN)
    assert (found and (found.name, found.needed)) == expected
    assert declared({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}}, ()) is None


@pytest.mark.parametrize(
    ("labels", "annotations", "path"),
    [
        ({f"{KOORDINATOR}name": "g"}, {f"{KOORDINATOR}total-number": "-3"}, f"annotations[{KOORDINATOR}total-number]"),
        ({f"{KOORDINATOR}name": "g"}, {}, f"annotations[{KOORDINATOR}min-available]"),
        ({}, {f"{KOORDINATOR}name": "g", f"{KOORDINATOR}total-number": "x"}, f"annotations[{KOORDINATOR}total-number]"),
        ({f"{LIGHT}/name": "g", f"{LIGHT}/min-available": "0"}, {}, f"labels[{LIGHT}/min-available]"),
        ({f"{LIGHT}/name": "g"}, {}, f"labels[{LIGHT}/min-available]"),
    ],
)
def test_missing_or_invalid_group_size_is_a_fault_with_its_path(labels, annotations, path):
    pod = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {}}
    assert [where for where, _ in declared_faults(pod, FOREIGN)] == [f"metadata.{path}"]


@pytest.mark.parametrize(
    ("kind", "spec", "obj", "needed"),
    [
        ("PodGroup", {"schedulingGroup": {"podGroupName": "w"}}, {"schedulingPolicy": {"gang": {"minCount": 2}}}, 2),
        ("PodGroup", {"schedulingGroup": {"podGroupName": "w"}}, {"schedulingPolicy": {"basic": {}}}, 0),
        (
            "Workload",
            {"workloadRef": {"name": "w", "podGroup": "workers", "podGroupReplicaKey": "0"}},
            {"podGroups": [{"name": "head"}, {"name": "workers", "policy": {"gang": {"minCount": 5}}}]},
            5,
        ),
    ],
)
def test_native_pod_group_size_is_read_from_the_referenced_object(kind, spec, obj, needed):
    size = declared({"metadata": {}, "spec": spec}, ()).size
    assert size[:3] == ("scheduling.k8s.io", kind, "w")
    assert all_kinds(frameworks=["pod"]).sizes[size[:2]].needed({"spec": obj}, size.part) == needed


@pytest.mark.parametrize(
    ("labels", "annotations", "fault"),
    [
        ({}, {f"{KOORDINATOR}name": "g"}, f"metadata.annotations[{KOORDINATOR}min-available]: must say how many"),
        ({f"{LIGHT}/name": "g"}, {}, f"metadata.labels[{LIGHT}/min-available]: must say how many"),
        ({"scheduling.x-k8s.io/pod-group": "A_b"}, {}, "metadata.labels[scheduling.x-k8s.io/pod-group]: is no name"),
        (
            {"applicationId": "g"},
            {TASK_GROUPS: '[{"name": "a"}]'},
            f"metadata.annotations[{TASK_GROUPS}]: must be a JSON",
        ),
        ({"applicationId": "g"}, {TASK_GROUPS: "no JSON"}, f"metadata.annotations[{TASK_GROUPS}]: must be a JSON"),
    ],
)
def test_invalid_pod_group_of_another_system_is_a_fault_with_its_path(labels, annotations, fault):
    conventions = Conventions.of(kueue_labels=True, excluded_namespaces=(), group_labels=FOREIGN)
    pod = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {}}
    ((path, message),) = group_faults(pod, conventions)
    assert f"{path}: {message}".startswith(fault)


def _declaring(text, pod_set="a"):
    metadata = {
        "labels": {"sluice.dev/pod-group-name": "g", "sluice.dev/pod-set-name": pod_set},
        "annotations": {"sluice.dev/pod-group-pod-sets": text},
    }
    return {"metadata": metadata, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("{}", "must be a list of 1 to 32 pod sets"),
        ("[1]", "[0]: must be an object"),
        ('[{"name": "a", "count": 1, "cpu": "1"}]', "[0].cpu: is not known; known are name, count, requests"),
        ('[{"name": "a", "count": "1"}]', "[0].count: has the wrong type"),
        ('[{"name": "a", "count": true}]', "[0].count: has the wrong type"),
        ('[{"name": "a", "count": 0}]', "[0].count: must be a number of pods from 1 to 99999"),
        ('[{"name": "A", "count": 1}]', "[0].name: must be lower-case letters"),
        ('[{"name": "a", "count": 1, "requests": {"cpu": "much"}}]', "[0].requests.cpu: "),
        ('[{"name": "a", "count": 1, "requests": {"cpu": "-1"}}]', "[0].requests.cpu: must not be negative"),
        ('[{"name": "a", "count": 1, "requests": {"pods": "0"}}]', "[0].requests.pods: is what a pod costs by itself"),
        ('[{"name": "a", "count": 1, "tolerations": [1]}]', "[0].tolerations: must be a list of tolerations"),
        ('[{"name": "a", "count": 1}, {"name": "a", "count": 1}]', "two pod sets have the same name"),
        ('[{"name": "b", "count": 1}]', "metadata.labels[sluice.dev/pod-set-name]: must name the pod set"),
    ],
)
def test_invalid_pod_sets_annotation_is_a_fault_with_its_path(text, message):
    (fault,) = group_faults(_declaring(text), Conventions())
    assert message in ": ".join(fault)


@pytest.mark.parametrize(
    ("phase", "succeeded"), [("Running", None), ("Unknown", None), ("Failed", False), ("Succeeded", True)]
)
@pytest.mark.parametrize("terminated", [{}, {"exitCode": 0}, {"reason": "Error"}])
def test_pod_outcome_depends_on_its_phase_and_not_on_container_statuses(phase, succeeded, terminated):
    """The API server may report a terminated container without an exit code, which does not mean success."""
    status = {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    metadata = {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "1"}
    metadata["creationTimestamp"] = "2026-01-02T03:04:05Z"
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}
    outcome = all_kinds(frameworks=("pod",)).get("", "Pod").observe(pod).finished
    assert (None if outcome is None else outcome.succeeded) is succeeded
