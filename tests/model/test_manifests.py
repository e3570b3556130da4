"""Manifests of queue objects: parsing of Kueue's manifests, and refusal of invalid ones with the path of the field."""

from __future__ import annotations

import copy
import json

import pytest

from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest, to_manifest
from admission.model.quantity import UNLIMITED
from admission.model.queues import QUEUE_OBJECTS, ClusterQueue, LocalQueue, ResourceFlavor, WorkloadPriorityClass

FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "spot"},
    "spec": {
        "nodeLabels": {"cloud.example.com/pool": "spot"},
        "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        "topologyName": "racks",
    },
}
CLUSTER_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "team-a", "labels": {"team": "a"}, "uid": "u-1", "resourceVersion": "7", "generation": 2},
    "spec": {
        "cohortName": "research",
        "queueingStrategy": "StrictFIFO",
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [
                    {
                        "name": name,
                        "resources": [
                            {"name": "cpu", "nominalQuota": 9, "borrowingLimit": "500m"},
                            {"name": "memory", "nominalQuota": "36Gi", "lendingLimit": "4Gi"},
                        ],
                    }
                    for name in ("on-demand", "spot")
                ],
            },
            {
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}],
            },
        ],
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"},
        "preemption": {
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -100},
            "withinClusterQueue": "LowerPriority",
        },
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["spot"]}]},
        "stopPolicy": "Hold",
        "fairSharing": {"weight": "1500m"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    },
    "status": {"pendingWorkloads": 3, "anything": {}},
}
COHORT = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Cohort",
    "metadata": {"name": "research"},
    "spec": {"parentName": "root", "fairSharing": {"weight": "0"}},
}
LOCAL_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "main", "namespace": "team-a"},
    "spec": {"clusterQueue": "team-a"},
}
PRIORITY_CLASS = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
    "description": "for demos",
}
ALL = [FLAVOR, CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, PRIORITY_CLASS]


def changed(document, path, value):
    """Return a deep copy with another value at a path such as `spec.resourceGroups.0.flavors`."""
    document = copy.deepcopy(document)
    *parents, last = path.split(".")
    node = document
    for part in parents:
        node = node[int(part) if part.isdigit() else part]
    node[int(last) if last.isdigit() else last] = value
    return document


def causes_of(document):
    with pytest.raises(InvalidObject) as caught:
        parse_manifest(document)
    return dict(caught.value.causes)


@pytest.mark.parametrize("document", ALL, ids=lambda document: document["kind"])
@pytest.mark.parametrize("api_version", ["sluice.dev/v1", "kueue.x-k8s.io/v1beta2"])
def test_manifest_round_trip_preserves_the_object(document, api_version):
    item = parse_manifest(document)
    written = to_manifest(item, api_version)
    assert written["apiVersion"] == api_version
    assert parse_manifest(json.loads(json.dumps(written))) == item
    assert "status" not in written


def test_cluster_queue_fields_are_parsed_into_exact_amounts():
    queue = parse_manifest(CLUSTER_QUEUE)
    assert isinstance(queue, ClusterQueue)
    assert queue.key == ("ClusterQueue", "", "team-a")
    cpu, memory = queue.spec.resource_groups[0].flavors[1].resources
    assert (cpu.nominal, cpu.borrowing, cpu.lending) == (9000, 500, None)
    assert (memory.nominal, memory.borrowing, memory.lending) == (36 * 2**30, None, 4 * 2**30)
    assert memory.nominal_quota == "36Gi"
    assert queue.spec.fair_sharing is not None
    assert queue.spec.fair_sharing.value == 1.5
    assert queue.spec.preemption.borrow_within_cohort.max_priority_threshold == -100
    assert queue.spec.namespace_selector is not None
    assert queue.spec.namespace_selector.matches({"team": "b"})
    assert not queue.spec.namespace_selector.matches({"team": "c"})


def test_cluster_queue_defaults_are_those_of_kueue():
    queue = parse_manifest({"apiVersion": "sluice.dev/v1", "kind": "ClusterQueue", "metadata": {"name": "a"}})
    assert isinstance(queue, ClusterQueue)
    spec = queue.spec
    assert spec.queueing_strategy == "BestEffortFIFO"
    assert spec.stop_policy == "None"
    assert (spec.flavor_fungibility.when_can_borrow, spec.flavor_fungibility.when_can_preempt) == (
        "MayStopSearch",
        "TryNextFlavor",
    )
    assert (spec.preemption.within_cluster_queue, spec.preemption.reclaim_within_cohort) == ("Never", "Never")
    assert spec.preemption.borrow_within_cohort.policy == "Never"
    assert spec.namespace_selector is None


def test_empty_scope_of_a_budget_differs_from_a_missing_scope():
    spec = {"resources": [{"name": "cpu", "hours": 1}], "period": {"every": "Month"}}
    budget = {"apiVersion": "sluice.dev/v1", "kind": "Budget", "metadata": {"name": "b"}}
    for scope in ({"scope": {}}, {}):
        item = parse_manifest({**budget, "spec": {**spec, **scope}})
        assert parse_manifest(to_manifest(item)) == item


def test_empty_namespace_selector_differs_from_a_missing_selector():
    everyone = parse_manifest(changed(CLUSTER_QUEUE, "spec.namespaceSelector", {}))
    nobody = parse_manifest(changed(CLUSTER_QUEUE, "spec.namespaceSelector", None))
    assert to_manifest(everyone)["spec"]["namespaceSelector"] == {}
    assert "namespaceSelector" not in to_manifest(nobody)["spec"]


def test_v1beta1_fields_are_converted():
    old = changed(CLUSTER_QUEUE, "apiVersion", "kueue.x-k8s.io/v1beta1")
    spec = old["spec"]
    spec["cohort"] = spec.pop("cohortName")
    spec["flavorFungibility"] = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
    del spec["admissionChecksStrategy"]
    spec["admissionChecks"] = ["one", "two"]
    queue = parse_manifest(old)
    assert isinstance(queue, ClusterQueue)
    assert queue.spec.cohort_name == "research"
    assert queue.spec.flavor_fungibility.when_can_borrow == "MayStopSearch"
    assert queue.spec.flavor_fungibility.when_can_preempt == "MayStopSearch"
    assert queue.spec.admission_checks_strategy is not None
    assert [rule.name for rule in queue.spec.admission_checks_strategy.admission_checks] == ["one", "two"]
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": "a"}}
    assert parse_manifest({**cohort, "spec": {"parent": "b"}}).spec.parent_name == "b"


def test_cohorts_of_v1alpha1_are_read_as_those_of_v1beta1():
    cohort = {"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Cohort", "metadata": {"name": "a"}}
    assert parse_manifest({**cohort, "spec": {"parent": "root"}}).spec.parent_name == "root"


@pytest.mark.parametrize(
    ("version", "kind", "told"),
    [
        ("v1alpha2", "ClusterQueue", "spec.resourceGroups"),
        ("v1alpha1", "ResourceFlavor", "spec.nodeLabels"),
        ("v1alpha2", "LocalQueue", "kueue.x-k8s.io/v1beta1"),
        ("v1alpha2", "Cohort", "is not known"),  # there were none
    ],
)
def test_manifests_of_older_apis_are_told_how_to_get_to_a_newer_one(version, kind, told):
    with pytest.raises(InvalidObject) as caught:
        parse_manifest({"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "a"}})
    assert told in str(caught.value)


def test_v1beta1_field_is_unknown_in_v1beta2():
    assert causes_of(changed(CLUSTER_QUEUE, "spec.cohort", "x")) == {
        "spec.cohort": 'unknown field; did you mean "cohortName"?'
    }


def test_server_side_metadata_is_accepted_and_managed_fields_are_dropped():
    document = changed(LOCAL_QUEUE, "metadata.managedFields", [{"manager": "kubectl"}])
    document["metadata"] |= {"creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["x/y"], "selfLink": ""}
    queue = parse_manifest(document)
    assert queue.metadata.creation_timestamp is not None
    assert "managedFields" not in to_manifest(queue)["metadata"]


def test_namespace_has_a_default_and_is_refused_for_cluster_scoped_kinds():
    document = {**LOCAL_QUEUE, "metadata": {"name": "main"}}
    assert parse_manifest(document).metadata.namespace == "default"
    assert parse_manifest(document, namespace="team-b").key == ("LocalQueue", "team-b", "main")
    assert causes_of(changed(COHORT, "metadata.namespace", "x")) == {
        "metadata.namespace": "must not be set: a Cohort has none"
    }


RESOURCES = "spec.resourceGroups.0.flavors.1.resources"
RESOURCES_PATH = "spec.resourceGroups[0].flavors[1].resources"


@pytest.mark.parametrize(
    ("document", "path", "value", "field", "message"),
    [
        (CLUSTER_QUEUE, f"{RESOURCES}.0.nominalQuota", "-5", f"{RESOURCES_PATH}[0].nominalQuota", "not be negative"),
        (CLUSTER_QUEUE, f"{RESOURCES}.0.nominalQuota", "lots", f"{RESOURCES_PATH}[0].nominalQuota", "not a quantity"),
        (CLUSTER_QUEUE, f"{RESOURCES}.0.nominalQuota", "1e40", f"{RESOURCES_PATH}[0].nominalQuota", "more than can be"),
        (CLUSTER_QUEUE, f"{RESOURCES}.0.nominalQuota", None, f"{RESOURCES_PATH}[0].nominalQuota", "is required"),
        (CLUSTER_QUEUE, f"{RESOURCES}.0.nominalQuota", True, f"{RESOURCES_PATH}[0].nominalQuota", "must be a quantity"),
        (CLUSTER_QUEUE, f"{RESOURCES}.1.lendingLimit", "37Gi", f"{RESOURCES_PATH}[1].lendingLimit", "36Gi"),
        (CLUSTER_QUEUE, f"{RESOURCES}.1.lendingLimit", "-1", f"{RESOURCES_PATH}[1].lendingLimit", "negative"),
        (CLUSTER_QUEUE, RESOURCES, [{"name": "cpu", "nominalQuota": 1}], RESOURCES_PATH, "(cpu, memory)"),
        (CLUSTER_QUEUE, f"{RESOURCES}.0.name", "gpu", RESOURCES_PATH, "exactly the coveredResources"),
        (CLUSTER_QUEUE, "spec.resourceGroups.0.coveredResources", ["memory", "cpu"], RESOURCES_PATH, "(memory, cpu)"),
        (CLUSTER_QUEUE, RESOURCES, [], RESOURCES_PATH, "at least 1"),
        (CLUSTER_QUEUE, RESOURCES, {}, RESOURCES_PATH, "must be a list"),
        (
            CLUSTER_QUEUE,
            "spec.resourceGroups.1.flavors.0.name",
            "spot",
            "spec.resourceGroups[1].flavors[0].name",
            "used already",
        ),
        (
            CLUSTER_QUEUE,
            "spec.resourceGroups.1.coveredResources.0",
            "cpu",
            "spec.resourceGroups[1].coveredResources[0]",
            "covered already",
        ),
        (CLUSTER_QUEUE, "spec.cohortName", "", f"{RESOURCES_PATH}[0].borrowingLimit", "without a cohortName"),
        (CLUSTER_QUEUE, "spec.cohortName", "A_B", "spec.cohortName", "is no name"),
        (CLUSTER_QUEUE, "spec.queueingStrategy", "LIFO", "spec.queueingStrategy", '"LIFO" is not one of'),
        (CLUSTER_QUEUE, "spec.stopPolicy", False, "spec.stopPolicy", "is not one of"),
        (
            CLUSTER_QUEUE,
            "spec.preemption.reclaimWithinCohort",
            "Never",
            "spec.preemption.borrowWithinCohort.policy",
            "",
        ),
        (CLUSTER_QUEUE, "spec.fairSharing.weight", "1n", "spec.fairSharing.weight", "greater than 1n"),
        (CLUSTER_QUEUE, "spec.fairSharing.wight", "1", "spec.fairSharing.wight", 'did you mean "weight"?'),
        (CLUSTER_QUEUE, "spec", [], "spec", "must be an object"),
        (
            CLUSTER_QUEUE,
            "spec.namespaceSelector.matchExpressions.0.operator",
            "Exists",
            "spec.namespaceSelector.matchExpressions[0].values",
            "must be empty",
        ),
        (CLUSTER_QUEUE, "metadata.name", "Team_A", "metadata.name", "lower-case"),
        (CLUSTER_QUEUE, "metadata.name", None, "metadata.name", "is required"),
        (CLUSTER_QUEUE, "metadata", None, "metadata", "is required"),
        (CLUSTER_QUEUE, "metadata.labels.team", 5, "metadata.labels.team", "put it in quotes"),
        (CLUSTER_QUEUE, "metadata.labels.a/b/c", "x", "metadata.labels[a/b/c]", "qualified name"),
        (COHORT, "spec.parentName", "research", "spec.parentName", "must not be the Cohort itself"),
        (LOCAL_QUEUE, "spec.clusterQueue", None, "spec.clusterQueue", "is required"),
        (LOCAL_QUEUE, "metadata.namespace", "a.b", "metadata.namespace", "is no namespace"),
        (PRIORITY_CLASS, "value", "1000", "value", "must be an integer"),
        (PRIORITY_CLASS, "value", 2**31, "value", "must be from -2147483648 to 2147483647"),
        (FLAVOR, "spec.nodeTaints.0.effect", "Never", "spec.nodeTaints[0].effect", "is not one of"),
        (FLAVOR, "spec.tolerations.0.value", "x", "spec.tolerations[0].value", "must be empty"),
        (FLAVOR, "spec.tolerations.0.effect", "NoSchedule", "spec.tolerations[0].effect", "tolerationSeconds"),
        (FLAVOR, "spec.nodeLabels", {}, "spec.nodeLabels", "topologyName"),
        (FLAVOR, "spec.nodeLabels", {f"k{i}": "v" for i in range(9)}, "spec.nodeLabels", "at most 8"),
        (FLAVOR, "kind", "ResourceFlavour", "kind", '"ResourceFlavour" is not known'),
        (FLAVOR, "apiVersion", "v1", "apiVersion", "use sluice.dev/v1"),
    ],
)
def test_invalid_field_is_refused_with_its_path(document, path, value, field, message):
    causes = causes_of(changed(document, path, value))
    assert message in causes[field]


def test_error_lists_all_faults_and_names_the_source():
    document = changed(changed(CLUSTER_QUEUE, "spec.stopPolicy", "Stop"), f"{RESOURCES}.0.nominalQuota", "-1")
    with pytest.raises(InvalidObject) as caught:
        parse_manifest(document, source="queues.yaml: document 2")
    assert len(caught.value.causes) == 2
    assert str(caught.value).startswith('queues.yaml: document 2: ClusterQueue "team-a": spec.')


def test_fault_of_a_list_item_is_not_also_reported_for_the_list():
    path = "spec.resourceGroups.1.flavors.0.resources.0.nominalQuota"
    assert list(causes_of(changed(CLUSTER_QUEUE, path, "lots"))) == [
        "spec.resourceGroups[1].flavors[0].resources[0].nominalQuota"
    ]


def test_nominal_quota_of_the_int64_maximum_is_unlimited():
    queue = parse_manifest(changed(CLUSTER_QUEUE, f"{RESOURCES}.0.nominalQuota", str(UNLIMITED)))
    assert isinstance(queue, ClusterQueue)
    assert queue.spec.resource_groups[0].flavors[1].resources[0].nominal == UNLIMITED


def test_queue_objects_are_immutable():
    with pytest.raises(ValueError, match="frozen"):
        parse_manifest(FLAVOR).spec = None


def test_queue_object_kinds_are_listed_in_creation_order():
    assert QUEUE_OBJECTS.index(ResourceFlavor) < QUEUE_OBJECTS.index(ClusterQueue) < QUEUE_OBJECTS.index(LocalQueue)
    assert WorkloadPriorityClass in QUEUE_OBJECTS


# Types ------------------------------------------------------------------------------------------------------------


def test_local_queue_manifest_is_parsed_as_local_queue():
    assert isinstance(parse_manifest(LOCAL_QUEUE), LocalQueue)


@pytest.mark.parametrize("version", ["kueue.x-k8s.io/v1alpha1", "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"])
def test_topologies_of_all_versions_of_kueue_are_read(version):
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    body = {"apiVersion": version, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
    assert parse_manifest(body).spec.labels == ("rack", "kubernetes.io/hostname")


@pytest.mark.parametrize(
    ("labels", "path", "message"),
    [
        ([], "spec.levels", "must have at least 1 entries"),
        (["rack", "rack"], "spec.levels[1].nodeLabel", '"rack" is a level already; name each level once'),
        (["kubernetes.io/hostname", "rack"], "spec.levels[0].nodeLabel", "can only be the last level"),
        (["a b"], "spec.levels[0].nodeLabel", "is not a qualified name"),
    ],
)
def test_levels_of_a_topology_are_few_different_and_end_with_the_hostname(labels, path, message):
    spec = {"levels": [{"nodeLabel": label} for label in labels]}
    with pytest.raises(InvalidObject) as refused:
        parse_manifest({"apiVersion": "sluice.dev/v1", "kind": "Topology", "metadata": {"name": "a"}, "spec": spec})
    ((field, text),) = refused.value.causes
    assert field == path
    assert message in text
