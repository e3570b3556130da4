"""Variants of concurrent admission as Workloads of a case (`schedule-concurrent`), whose vectors are not published."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vectors.suites import answer_of

CLOCK = "2026-01-01T12:00:00Z"
API = "kueue.x-k8s.io/v1beta2"


def named(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def variant(name: str, flavor: str, *, held: bool = False, admitted: bool = True, gate: bool = False) -> dict[str, Any]:
    pods = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "10"}}}]}
    spec: dict[str, Any] = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": pods}}]}
    found = named("Workload", name, spec, "ns")
    found["metadata"] |= {
        "uid": f"{name}-uid",
        "creationTimestamp": CLOCK,
        "annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
        "ownerReferences": [{"apiVersion": API, "kind": "Workload", "name": "parent", "uid": "parent-uid"}],
    }
    if gate:
        spec["preemptionGates"] = [{"name": "kueue.x-k8s.io/concurrent-admission"}]
    if held:
        assigned = {"name": "main", "count": 1, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "10"}}
        kinds = ("QuotaReserved", "Admitted") if admitted else ("QuotaReserved",)
        found["status"] = {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
            "conditions": [
                {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": CLOCK}
                for kind in kinds
            ],
        }
    return found


def case(*workloads: dict[str, Any], last: str = "", **fields: Any) -> dict[str, Any]:
    flavors = ["reservation", "on-demand", "spot"]
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "10"}]} for name in flavors]
    constraints = {"constraints": {"lastAcceptableFlavorName": last}} if last else {}
    policy = {"migration": {"mode": "TryPreferredFlavors", **constraints}}
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
        **({"concurrentAdmissionPolicy": policy} if last else {}),
        **fields,
    }
    return {
        "suite": "schedule-concurrent",
        "clock": CLOCK,
        "cycles": 1,
        "featureGates": {"ConcurrentAdmission": True},
        "namespaces": [{"name": "ns", "labels": {}}],
        "resourceFlavors": [named("ResourceFlavor", name, {}) for name in flavors],
        "clusterQueues": [named("ClusterQueue", "cq", spec)],
        "localQueues": [named("LocalQueue", "q", {"clusterQueue": "cq"}, "ns")],
        "workloads": [*workloads],
    }


def outcome(answer: dict[str, Any], name: str) -> tuple[str, str]:
    conditions = {each["type"]: each for each in answer["statusAfter"][f"ns/{name}"]["conditions"]}
    return conditions["QuotaReserved"]["reason"], conditions["QuotaReserved"]["message"]


@pytest.mark.parametrize(
    ("sibling", "candidate", "last", "expected", "evicted"),
    [
        ("spot", "on-demand", "", ("WaitingForPreemptedWorkloads", ". Pending the migration of 1 workload(s)"), True),
        ("on-demand", "spot", "", ("PendingEvaluation", "A more favorable variant is already admitted"), False),
        (
            "spot",
            "on-demand",
            "reservation",
            ("PendingEvaluation", "Target flavor is below LastAcceptableFlavorName"),
            False,
        ),
    ],
)
def test_variant_meets_one_that_is_admitted(sibling, candidate, last, expected, evicted):
    answer = answer_of(case(variant("sib", sibling, held=True), variant("cand", candidate), last=last))
    assert answer["admitted"] == {}
    assert outcome(answer, "cand") == expected
    assert answer["left"] == {"cq": ["ns/cand"]}
    assert answer["evicted"] == ({"ns/sib": "FlavorMigration"} if evicted else {})
    if evicted:
        conditions = {each["type"]: each for each in answer["statusAfter"]["ns/sib"]["conditions"]}
        assert conditions["Evicted"]["message"] == (
            "Evicted to accommodate a workload (UID: cand-uid) due to migration to more favorable resource flavor"
        )
        assert "Preempted" not in conditions


def test_parent_is_never_queued():
    parent = variant("parent", "")
    parent["metadata"] |= {"ownerReferences": [], "annotations": {}}
    parent["metadata"]["labels"] = {"kueue.x-k8s.io/concurrent-admission-parent": "true"}
    answer = answer_of(case(parent, variant("cand", "on-demand"), last="spot"))
    assert answer["admitted"].keys() == {"ns/cand"}
    assert (answer["left"], answer["inadmissible"]) == ({}, {})


def test_sibling_that_only_holds_quota_is_no_obstacle():
    answer = answer_of(case(variant("sib", "spot", held=True, admitted=False), variant("cand", "on-demand")))
    assert answer["admitted"].keys() == {"ns/cand"}
    assert answer["evicted"] == {}


def test_variant_does_not_preempt_while_its_gate_is_closed():
    other = variant("other", "on-demand", held=True)
    other["metadata"] |= {"ownerReferences": [], "annotations": {}}
    other["spec"]["priority"] = -1
    preemption = {"withinClusterQueue": "LowerPriority"}
    answer = answer_of(case(other, variant("cand", "on-demand", gate=True), preemption=preemption))
    assert outcome(answer, "cand") == ("AdmissionGated", "Workload requires preemption, but it's gated")
    assert answer["evicted"] == {}
    open_gate = variant("cand", "on-demand", gate=True)
    name = open_gate["spec"]["preemptionGates"][0]["name"]
    open_gate["status"] = {"preemptionGates": [{"name": name, "position": "Open"}]}
    assert answer_of(case(other, open_gate, preemption=preemption))["evicted"] == {"ns/other": "Preempted"}


def test_flavors_that_are_not_allowed_are_named():
    first = variant("first", "on-demand", held=True)
    first["metadata"] |= {"ownerReferences": []}
    answer = answer_of(case(first, variant("cand", "on-demand")))
    for flavor in ("reservation", "spot"):
        text = f"skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
        assert text in outcome(answer, "cand")[1]
