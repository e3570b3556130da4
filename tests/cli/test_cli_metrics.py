"""`/metrics` of a real process: authorization, values after some Jobs, and agreement with the documentation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from serve_processes import NODE, QUEUES, all_complete, gate_flags, job, serving

from admission.cluster.client import Client
from admission.model.manifests import parse_documents
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.store import Store
from tests.queue_objects import create_objects

RACKS = """
apiVersion: sluice.dev/v1
kind: Topology
metadata: {name: room}
spec:
  levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]
---
apiVersion: sluice.dev/v1
kind: ResourceFlavor
metadata: {name: racked}
spec: {nodeLabels: {pool: racked}, topologyName: room}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: racked}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: racked, resources: [{name: cpu, nominalQuota: 4}]}
"""
SAMPLE = re.compile(r"([a-z_]+)(\{[a-z_]+=\"[^\"]*\"(?:,[a-z_]+=\"[^\"]*\")*\})? ([0-9.e+-]+|\+Inf)")
GRANTED = [
    (
        "clusterroles",
        {"metadata": {"name": "scraper"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]},
    ),
    (
        "clusterrolebindings",
        {
            "metadata": {"name": "scraper"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "prometheus"}],
        },
    ),
]


def numbers(text: str) -> dict[str, float]:
    """Values of samples by name and labels; fails if a line is neither a comment nor a sample."""
    lines = [line for line in text.splitlines() if not line.startswith(("# HELP ", "# TYPE "))]
    found = [SAMPLE.fullmatch(line) for line in lines]
    assert all(found), text
    return {match[1] + (match[2] or ""): float(match[3]) for match in found if match}


DOCUMENTED = re.compile(r"\| `([a-z_]+)` \| (counter|gauge|histogram) \| ([^|]*) \| ([^|]*) \|")


def documented() -> dict[str, tuple[str, set[str], str]]:
    """Type, labels and meaning of each metric in docs/metrics.md, by name."""
    text = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    return {
        name: (kind, set(re.findall("`([a-z_]+)`", labels)), said)
        for name, kind, labels, said in DOCUMENTED.findall(text)
    }


def exposed_metrics(families: Iterable[Metric]) -> dict[str, tuple[str, set[str], str]]:
    """Type, labels and help text of each exposed metric, by name; without samples there are no labels."""
    found = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = family.type, labels, family.documentation
    return found


BY_CLASS, BY_LOCAL_QUEUE = {"cluster_queue", "priority_class"}, {"name", "namespace"}
EVICTED = {"reason", "underlying_cause"}
QUOTA = {"cohort", "cluster_queue", "flavor", "resource"}
KUEUE: dict[str, tuple[str, set[str]]] = {
    "admission_attempts_total": ("counter", {"result"}),
    "admission_attempt_duration_seconds": ("histogram", {"result"}),
    "workload_creation_latency_seconds": ("histogram", {"job_kind"}),
    "build_info": ("gauge", {"git_version", "platform", "python_version"}),
    "quota_reserved_workloads_total": ("counter", BY_CLASS),
    "admitted_workloads_total": ("counter", BY_CLASS),
    "finished_workloads_total": ("counter", BY_CLASS),
    "evicted_workloads_total": ("counter", BY_CLASS | EVICTED),
    "preempted_workloads_total": ("counter", {"preempting_cluster_queue", "reason"}),
    "quota_reserved_wait_time_seconds": ("histogram", BY_CLASS),
    "admission_wait_time_seconds": ("histogram", BY_CLASS),
    "admission_checks_wait_time_seconds": ("histogram", BY_CLASS),
    "execution_time_seconds": ("histogram", BY_CLASS),
    "ready_wait_time_seconds": ("histogram", BY_CLASS),
    "admitted_until_ready_wait_time_seconds": ("histogram", BY_CLASS),
    "pods_ready_to_evicted_time_seconds": ("histogram", {"cluster_queue"} | EVICTED),
    "workload_eviction_latency_seconds": ("histogram", {"cluster_queue", "reason"}),
    "pending_workloads": ("gauge", {"cluster_queue", "status"}),
    "unadmitted_workloads": ("gauge", {"cluster_queue"} | EVICTED),
    "reserving_active_workloads": ("gauge", {"cluster_queue"}),
    "admitted_active_workloads": ("gauge", {"cluster_queue"}),
    "cluster_queue_status": ("gauge", {"cluster_queue", "status"}),
    "cluster_queue_info": ("gauge", {"cluster_queue", "parent_cohort", "root_cohort"}),
    "cluster_queue_resource_pending": ("gauge", {"cluster_queue", "resource"}),
    "cluster_queue_nominal_quota": ("gauge", QUOTA),
    "cluster_queue_borrowing_limit": ("gauge", QUOTA),
    "cluster_queue_lending_limit": ("gauge", QUOTA),
    "cluster_queue_resource_reservation": ("gauge", QUOTA),
    "cluster_queue_resource_usage": ("gauge", QUOTA),
    "cluster_queue_weighted_share": ("gauge", {"cluster_queue", "cohort"}),
    "local_queue_pending_workloads": ("gauge", BY_LOCAL_QUEUE | {"status"}),
    "local_queue_unadmitted_workloads": ("gauge", BY_LOCAL_QUEUE | EVICTED),
    "local_queue_quota_reserved_workloads_total": ("counter", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_quota_reserved_wait_time_seconds": ("histogram", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_admitted_workloads_total": ("counter", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_admission_wait_time_seconds": ("histogram", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_admission_checks_wait_time_seconds": ("histogram", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_ready_wait_time_seconds": ("histogram", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_admitted_until_ready_wait_time_seconds": ("histogram", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_execution_time_seconds": ("histogram", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_evicted_workloads_total": ("counter", BY_LOCAL_QUEUE | EVICTED | {"priority_class"}),
    "local_queue_finished_workloads_total": ("counter", BY_LOCAL_QUEUE | {"priority_class"}),
    "local_queue_reserving_active_workloads": ("gauge", BY_LOCAL_QUEUE),
    "local_queue_admitted_active_workloads": ("gauge", BY_LOCAL_QUEUE),
    "local_queue_status": ("gauge", BY_LOCAL_QUEUE | {"active"}),
    "local_queue_admission_fair_sharing_usage": ("gauge", BY_LOCAL_QUEUE | {"cluster_queue"}),
    "local_queue_resource_reservation": ("gauge", BY_LOCAL_QUEUE | {"flavor", "resource"}),
    "local_queue_resource_usage": ("gauge", BY_LOCAL_QUEUE | {"flavor", "resource"}),
    "cohort_info": ("gauge", {"cohort", "parent_cohort", "root_cohort"}),
    "cohort_weighted_share": ("gauge", {"cohort"}),
    "cohort_subtree_quota": ("gauge", {"cohort", "flavor", "resource"}),
    "cohort_subtree_resource_reservations": ("gauge", {"cohort", "flavor", "resource"}),
    "cohort_subtree_admitted_active_workloads": ("gauge", {"cohort"}),
}
"""Metrics of Kueue that exist with the prefix `sluice_`: their types, and the labels that both have."""
REFERENCE = Path(__file__).parents[3] / "shared/reference/kueue.md"


def test_each_kueue_metric_is_documented_with_its_labels_or_as_missing():
    written = documented()
    assert {name: written[f"sluice_{name}"][:2] for name in KUEUE} == KUEUE
    besides = (Path(__file__).parents[2] / "docs/metrics.md").read_text().partition("## What Kueue has besides")[2]
    missing = {
        name for row in re.findall(r"^\| (`.*?) \|", besides, re.MULTILINE) for name in re.findall("`(.+?)`", row)
    }
    assert not missing & KUEUE.keys()
    if not REFERENCE.is_file():
        pytest.skip("there is no list of Kueue's metrics here")
    of_kueue = REFERENCE.read_text().partition("\n- Health: ")[2].partition("\n- Not measured")[0]
    of_kueue, _, of_local_queues = of_kueue.partition("`local_queue_{")
    of_local_queues, _, of_cohorts = of_local_queues.partition("}`")
    found = {f"local_queue_{name}" for name in re.findall("[a-z_]+", re.sub("{.*?}", "", of_local_queues))}
    for name in re.findall("`([a-z]*_[a-z_]+)[{`]", of_kueue + of_cohorts):
        found.add(f"cluster_queue{name}" if name.startswith("_") else name)
    assert found == KUEUE.keys() | missing


@pytest.mark.costly
async def test_metrics_require_rbac_and_count_admitted_and_finished_jobs(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    async with Sandbox(speed=60) as sandbox, Client.from_kubeconfig(_kubeconfig(sandbox, tmp_path)) as cluster:
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        for name, rack in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            labels = {"pool": "racked", "rack": rack, "kubernetes.io/hostname": name}
            node = {**NODE, "metadata": {**NODE["metadata"], "name": name, "labels": labels}}
            await admin.create("nodes", "", node | {"spec": {"unschedulable": name == "b1"}})
        for plural, granted in GRANTED:
            await admin.create(plural, "", granted)
        for name in ("prometheus", "nobody"):
            await admin.create("serviceaccounts", "default", {"metadata": {"name": name}})
        async with serving(tmp_path, url, *gate_flags(tmp_path)) as replica:
            await replica.until_ready()
            async with Store.open(url) as store:
                for document in parse_documents(f"{QUEUES}---{RACKS}", source="queues"):
                    if document.body["kind"] in ("ClusterQueue", "LocalQueue"):
                        document.body["metadata"]["labels"] = {"team": "vision"}
                    await create_objects(store, document.body)
            for number in range(4):  # the first one outlasts the others
                await admin.create("jobs", "default", job(f"j{number}", seconds=30 if number else 10_000_000))
            await all_complete(admin, 3)
            counted = {
                'sluice_webhook_request_duration_seconds_count{outcome="allowed"}': 4,
                'sluice_finished_workloads_total{cluster_queue="cq",priority_class=""}': 3,
                'sluice_topology_nodes{flavor="racked",state="out"}': 1,
            }
            while not counted.items() <= numbers((await replica.get("/metrics"))[1]).items():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert (await replica.get("/metrics", token=None))[0] == 401
            assert (await replica.get("/metrics", token=await _token(cluster, "nobody")))[0] == 403
            status, text = await replica.get("/metrics", token=await _token(cluster, "prometheus"))
            async with Store.open(url) as store:
                await store.queues.delete("LocalQueue", "lq", namespace="default", author=Author("test"))
            while 'name="lq"' in (await replica.get("/metrics"))[1]:  # noqa: ASYNC110  until the leader has observed it
                await asyncio.sleep(0.1)
    assert status == 200
    found = numbers(text)
    assert found["sluice_leading"] == found["sluice_deciding"] == found["sluice_leader_epoch"] == 1
    assert found['sluice_patches_total{outcome="ok"}'] == 4
    assert found['sluice_cluster_queue_labels{cluster_queue="cq",label_team="vision"}'] == 1
    assert found['sluice_local_queue_labels{label_team="vision",name="lq",namespace="default"}'] == 1
    assert found['sluice_apiserver_requests_total{code="200",method="PATCH",resource="jobs"}'] == 4
    assert found["sluice_informer_lag_seconds_count"] == 4
    assert found['sluice_audit_differences_total{problem="OverQuota"}'] == 0
    assert found["sluice_store_write_transactions_total"] >= 2
    assert found['sluice_store_pool_connections{pool="write"}'] == 1
    assert found['sluice_queue_depth{queue="patches"}'] == 0
    by_class = 'cluster_queue="cq",priority_class=""'
    for name in ("quota_reserved_workloads_total", "admitted_workloads_total", "admission_wait_time_seconds_count"):
        assert found[f"sluice_{name}{{{by_class}}}"] == 4
        assert found[f'sluice_local_queue_{name}{{name="lq",namespace="default",priority_class=""}}'] == 4
    assert found[f"sluice_finished_workloads_total{{{by_class}}}"] == 3
    assert found[f"sluice_execution_time_seconds_count{{{by_class}}}"] == 3
    assert f"sluice_admission_checks_wait_time_seconds_count{{{by_class}}}" not in found
    assert found['sluice_workload_creation_latency_seconds_count{job_kind="Job"}'] == 4
    assert found["sluice_commit_duration_seconds_count"] >= 2
    assert found['sluice_admission_attempts_total{result="success"}'] >= 1
    admitted = found['sluice_admitted_active_workloads{cluster_queue="cq"}']
    assert admitted >= 1  # each of one core
    resource = 'cluster_queue="cq",cohort="",flavor="default",resource="cpu"'
    assert found[f"sluice_cluster_queue_resource_usage{{{resource}}}"] == admitted
    assert found[f"sluice_cluster_queue_nominal_quota{{{resource}}}"] == 4
    assert found['sluice_topology_nodes{flavor="racked",state="in"}'] == 2
    free = 'flavor="racked",level="rack",resource="cpu"'
    assert 8 <= found[f"sluice_topology_largest_free{{{free}}}"] <= 16  # Jobs may be on these nodes, too
    assert found['sluice_topology_free{flavor="racked",resource="cpu"}'] >= 8
    assert 'sluice_topology_largest_idle{flavor="racked",level="rack"}' in found
    _compare_with_the_document(text)


def _compare_with_the_document(text: str) -> None:
    """Check that docs/metrics.md has exactly the exposed metrics, with their types, labels and meanings."""
    written, exposed = documented(), exposed_metrics(text_string_to_metric_families(text))
    only_there = {"sluice_cluster_queue_weighted_share", "sluice_cohort_weighted_share"}  # with fair sharing
    only_there |= {"sluice_audit_last_differences", "sluice_audit_timestamp_seconds"}  # after the first audit
    only_there |= {"sluice_budget_hours", "sluice_cohort_labels"}  # with a Budget, and a label of a Cohort
    # with an objective: tests/cli/test_serve_objectives.py
    only_there |= {"sluice_cluster_queue_objective_ratio", "sluice_cluster_queue_objective_met_ratio"}
    of_clusters = {"lost", "pending_workloads", "reserving_workloads", "resource_usage"}
    of_clusters |= {"nodes", "allocatable", "schedulable", "capacity_timestamp_seconds"}
    only_there |= {f"sluice_cluster_{name}" for name in of_clusters}  # with further ones: test_serve_clusters.py
    assert written.keys() - only_there == exposed.keys()
    for name, (kind, labels, said) in exposed.items():
        assert (kind, said) == (written[name][0], written[name][2])
        assert not labels or labels == written[name][1], name


async def _token(cluster: Client, name: str) -> str:
    """A token of a service account; to be used at once, since it expires fast in the sandbox's time."""
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    token: str = (await cluster.create(path, {"spec": {}}))["status"]["token"]
    return token


def _kubeconfig(sandbox: Sandbox, folder) -> str:
    sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
    sandbox.write_kubeconfig(folder / "admin.kubeconfig", "admin")
    return str(folder / "admin.kubeconfig")
