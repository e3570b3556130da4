"""ProvisioningRequests as they are built from admissions: merged pod sets, names, and templates for the autoscaler."""

from __future__ import annotations

import pytest

from admission.kinds import NamespaceContext, all_kinds
from admission.kinds.provisioning import wanted
from admission.model.provisioning import ProvisioningRequestConfigSpec
from admission.model.queues import ResourceFlavor
from admission.model.workload import Admission, PodSetAssignment, Workload

KINDS = all_kinds(frameworks=("jobset.x-k8s.io/jobset",))
FLAVOR = ResourceFlavor.model_validate({
    "metadata": {"name": "spot"},
    "spec": {
        "nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}],
    },
})  # fmt: skip


def role(name: str, pods: int, *, cpu: str = "1", image: str = "x", **limits: str):
    resources = {"requests": {"cpu": cpu}, "limits": limits}
    spec = {
        "containers": [{"name": "main", "image": image, "resources": resources}],
        "schedulingGates": [{"name": "some"}],
    }
    template = {"spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}}}
    return {"name": name, "replicas": 1, "template": template}


def requested(*roles, name: str = "train", **fields):
    """Return what is requested for a JobSet, all of whose pods are admitted."""
    (kind,) = KINDS
    obj = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "team-a", "uid": "u-1", "labels": {"sluice.dev/queue-name": "main"}},
        "spec": {"suspend": True, "replicatedJobs": list(roles)},
    }
    pod_sets = kind.pod_sets(obj, NamespaceContext())
    assigned = (
        PodSetAssignment(each.name, dict.fromkeys(each.requests, "spot"), each.requests, each.count)
        for each in pod_sets
    )
    return wanted(
        kind,
        obj,
        Workload("u-1", "team-a", name, "main", 0, 0.0, pod_sets, kind="JobSet"),
        Admission("burst", tuple(assigned)),
        flavors={"spot": FLAVOR},
        config=ProvisioningRequestConfigSpec.model_validate({"provisioningClassName": "example.com", **fields}),
        check="nodes",
        attempt=2,
        owner=None,
    )


def counts(found) -> list[int]:
    return [each["count"] for each in found.request["spec"]["podSets"]]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, [1, 4, 2]),
        ("IdenticalPodTemplates", [5, 2]),
        ("IdenticalWorkloadSchedulingRequirements", [7]),
    ],
)
def test_pod_sets_are_requested_together_by_the_merge_policy(policy, expected):
    fields = {} if policy is None else {"podSetMergePolicy": policy}
    found = requested(role("driver", 1), role("workers", 4), role("others", 2, image="y"), **fields)
    assert counts(found) == expected
    assert len(found.templates) == len(expected)
    assert found.pod_sets == ("driver", "workers", "others")


def test_templates_are_as_the_pods_will_be_without_what_only_gates_them():
    found = requested(role("driver", 1, memory="1Gi"))
    (template,) = (each["template"] for each in found.templates)
    assert template["spec"]["nodeSelector"] == {"pool": "spot"}
    assert template["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert "schedulingGates" not in template["spec"]
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"memory": "1Gi", "cpu": "1"}


def test_only_pods_with_a_managed_resource_are_requested():
    roles = role("driver", 1), role("workers", 4, **{"nvidia.com/gpu": "1"})
    assert counts(requested(*roles, managedResources=["nvidia.com/gpu"])) == [4]
    assert requested(*roles, managedResources=["example.com/tpu"]) is None


def test_names_are_valid_and_differ_for_objects_of_the_same_name():
    long = requested(role("workers", 4), name="a" * 253)
    names = [long.request["metadata"]["name"], *(each["metadata"]["name"] for each in long.templates)]
    assert max(map(len, names)) <= 253
    assert names[0].endswith("-2")
    short = requested(role("workers", 4)).request["metadata"]["name"]
    assert short.startswith("jobset-train-nodes-")
