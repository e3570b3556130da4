"""Patches of the Job adapter against an API server that defaults fields and validates updates."""

from __future__ import annotations

import pytest

from admission.cluster.client import Client, PatchType
from admission.cluster.errors import ClusterError
from admission.kinds import NamespaceContext, all_kinds
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSetAssignment
from admission.sandbox.sandbox import Sandbox

JOBS = all_kinds().get("batch", "Job")
COLLECTION = "/apis/batch/v1/namespaces/default/jobs"
PATH = f"{COLLECTION}/train"
FLAVOR = parse_manifest(
    {
        "apiVersion": "sluice.dev/v1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "spot"},
        "spec": {
            "nodeLabels": {"pool": "spot", "example.com/zone": "a"},
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }
)
ADMISSION = Admission("cq", (PodSetAssignment("main", {"cpu": "spot", "memory": "spot"}, {}, 2),))


@pytest.fixture
async def client(tmp_path):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            yield client


def make_job(**pod):
    containers = [{"name": "c", "image": "registry.example/app:1", "resources": {"limits": {"cpu": "2"}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, **pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"sluice.dev/queue-name": "main"}},
        "spec": {"suspend": True, "parallelism": 3, "completions": 6, "template": template},
    }


async def start(client, job):
    patch, original = JOBS.start_patch(job, ADMISSION, {"spot": FLAVOR})
    return await client.patch(PATH, patch, patch_type=PatchType.JSON), original


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"nodeSelector": {"arch": "arm64"}, "tolerations": [{"key": "mine", "operator": "Exists"}]},
        {"nodeSelector": {"pool": "spot"}},
    ],
)
async def test_job_spec_is_restored_after_start_and_stop(client, pod):
    created = await client.create(COLLECTION, make_job(**pod))
    before = JOBS.observe(created)
    assert (before.queue, before.suspended, before.active, before.counts[0].wanted) == ("main", True, False, 3)

    started, original = await start(client, created)
    assert started["spec"]["template"]["spec"]["nodeSelector"].items() >= FLAVOR.spec.node_labels.items()
    assert JOBS.observe(started).active
    assert JOBS.observe(started).counts[0].wanted == 2

    stopped = await client.patch(PATH, JOBS.stop_patch(started), patch_type=PatchType.JSON)
    assert not JOBS.observe(stopped).active
    restored = await client.patch(PATH, JOBS.restore_patch(stopped, original))
    assert restored["spec"] == created["spec"]
    assert JOBS.pod_sets(restored, NamespaceContext()) == JOBS.pod_sets(created, NamespaceContext())


async def test_status_update_before_the_start_patch_does_not_prevent_the_start(client):
    created = await client.create(COLLECTION, make_job())
    await client.patch(f"{PATH}/status", {"status": {"ready": 0}})
    started, _ = await start(client, created)
    assert started["spec"]["suspend"] is False


async def test_spec_edit_before_the_start_patch_prevents_the_start(client):
    created = await client.create(COLLECTION, make_job())
    await client.patch(PATH, {"spec": {"parallelism": 5}})
    with pytest.raises(ClusterError):
        await start(client, created)
    assert (await client.get(PATH))["spec"]["suspend"] is True


async def test_another_job_of_the_same_name_is_neither_started_nor_stopped(client):
    created = await client.create(COLLECTION, make_job())
    await client.delete(PATH, {"propagationPolicy": "Background"})
    await client.create(COLLECTION, {**make_job(), "spec": {**make_job()["spec"], "suspend": False}})
    with pytest.raises(ClusterError):
        await start(client, created)
    with pytest.raises(ClusterError):
        await client.patch(PATH, JOBS.stop_patch(created), patch_type=PatchType.JSON)
    assert (await client.get(PATH))["spec"]["suspend"] is False
