"""`/metrics` of a real process: who may read it, and that its numbers are those of what has happened."""

from __future__ import annotations

import re

import pytest
from serve_processes import NODE, QUEUES, all_complete, job, serving

from admission.cluster.client import Client
from admission.model.manifests import parse_documents, parse_manifest
from admission.sandbox.sandbox import Sandbox
from admission.store.audit import Author
from admission.store.store import Store

SAMPLE = re.compile(r"([a-z_]+)(\{[a-z_]+=\"[^\"]*\"(?:,[a-z_]+=\"[^\"]*\")*\})? ([0-9.e+]+)")
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
    """By name and labels; each line is a comment or a sample."""
    lines = [line for line in text.splitlines() if not line.startswith(("# HELP ", "# TYPE "))]
    found = [SAMPLE.fullmatch(line) for line in lines]
    assert all(found), text
    return {match[1] + (match[2] or ""): float(match[3]) for match in found if match}


@pytest.mark.timeout(180)
async def test_whoever_may_get_the_path_reads_what_has_happened(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    async with Sandbox(speed=60) as sandbox, Client.from_kubeconfig(_kubeconfig(sandbox, tmp_path)) as cluster:
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        for plural, granted in GRANTED:
            await admin.create(plural, "", granted)
        for name in ("prometheus", "nobody"):
            await admin.create("serviceaccounts", "default", {"metadata": {"name": name}})
        async with serving(tmp_path, url) as replica:
            await replica.until_ready()
            async with Store.open(url) as store:
                for document in parse_documents(QUEUES, source="queues"):
                    await store.queues.create(parse_manifest(document.body), author=Author("test"))
            for number in range(4):  # the first one outlasts the others
                gated = job(f"j{number}", seconds=30 if number else 10_000_000)
                gated["spec"]["suspend"] = True
                await admin.create("jobs", "default", gated)
            await all_complete(admin, 3)
            assert (await replica.get("/metrics", token=None))[0] == 401
            assert (await replica.get("/metrics", token=await _token(cluster, "nobody")))[0] == 403
            status, text = await replica.get("/metrics", token=await _token(cluster, "prometheus"))
    assert status == 200
    found = numbers(text)
    assert found["sluice_leading"] == found["sluice_deciding"] == found["sluice_leader_epoch"] == 1
    assert found['sluice_patches_total{outcome="ok"}'] == 4
    assert found['sluice_apiserver_requests_total{method="PATCH"}'] == 4
    assert found['sluice_audit_differences_total{problem="OverQuota"}'] == 0
    assert found["sluice_store_write_transactions_total"] >= 2
    assert found['sluice_queue_depth{queue="patches"}'] == 0
    admitted = found['sluice_admitted_active_workloads{cluster_queue="cq"}']
    assert admitted >= 1  # each of one core
    assert found['sluice_cluster_queue_resource_usage{cluster_queue="cq",flavor="default",resource="cpu"}'] == admitted


async def _token(cluster: Client, name: str) -> str:
    """Just before it is used, for time runs fast there."""
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    token: str = (await cluster.create(path, {"spec": {}}))["status"]["token"]
    return token


def _kubeconfig(sandbox: Sandbox, folder) -> str:
    sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
    sandbox.write_kubeconfig(folder / "admin.kubeconfig", "admin")
    return str(folder / "admin.kubeconfig")
