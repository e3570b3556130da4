"""The page of clusters in a real browser: their states, workloads and usage, in both looks, by axe-core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import Browser, expect

from admission.model.capacity import Capacity, SeenCapacity
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.joined_clusters import JoinedCluster
from admission.store.records import Changes, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.queue_objects import cluster_queue, create_objects, flavor, local_queue, manifest, resource_group

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]

NOW = 1_795_000_000.0
GPU = "nvidia.com/gpu"
GROUPS = [resource_group(a100={GPU: 16}), resource_group(standard={"cpu": 40})]
OBJECTS = (
    manifest("ResourceFlavor", "a100", spec={"clusterSelector": {"matchLabels": {"region": "eu"}}}),
    flavor("standard"),
    {
        **manifest("Cluster", "frankfurt", spec={"kubeconfig": "f.yaml"}),
        "metadata": {"name": "frankfurt", "labels": {"region": "eu"}},
    },
    manifest("Cluster", "oslo", spec={"kubeconfig": "o.yaml"}),
    cluster_queue("team", resourceGroups=GROUPS),
    local_queue("main", "ml", "team"),
)


async def fill(store: Store) -> None:
    await create_objects(store, *OBJECTS)
    epoch = await store.lead("test")
    await store.joined_clusters.note(JoinedCluster("frankfurt", "uid-f", "Active", NOW, ""), epoch=epoch)
    why = "is lost: the API server at https://oslo.example.org:6443 cannot be reached"
    await store.joined_clusters.note(JoinedCluster("oslo", "uid-o", "Lost", NOW, why), epoch=epoch)
    amounts = {"cpu": 380_500, "memory": 1_520 * 2**30 + 5, GPU: 32, "pods": 4400}
    usable = {"cpu": 361_000, "memory": 1_444 * 2**30, GPU: 24, "pods": 4180}
    seen = SeenCapacity(NOW - 60, Capacity(40, 39, 38, amounts, usable))
    few = SeenCapacity(NOW - 7200, Capacity(3, 3, 3, {"cpu": 12_000}, {"cpu": 12_000}))
    await store.joined_clusters.note_capacity("frankfurt", seen, epoch=epoch)
    await store.joined_clusters.note_capacity("oslo", few, epoch=epoch)
    unseen = SeenCapacity(None, Capacity(), "the right to list nodes is missing (deploy/rbac/topology.yaml grants it)")
    await store.joined_clusters.note_capacity("local", unseen, epoch=epoch)
    pods = (PodSet(name="main", count=1, requests={GPU: 4, "cpu": 8000}),)
    records, opened = [], []
    for number, (cluster, state) in enumerate((("frankfurt", "a"), ("frankfurt", "p"), ("oslo", "p"), ("local", "p"))):
        workload = Workload(f"u{number}", "ml", f"job-{number}", "main", 0, NOW, pods, cluster=cluster)
        if state == "p":
            records.append(WorkloadRecord(workload, State.PENDING, NOW, "team", "WaitingForQuota", "no quota"))
            continue
        flavors, usage = {GPU: "a100", "cpu": "standard"}, {GPU: 4, "cpu": 8000}
        admission = Admission("team", (PodSetAssignment("main", flavors, usage, 1),))
        records.append(WorkloadRecord(workload, State.ADMITTED, NOW, "team", admission=admission, admitted_at=NOW))
        opened.append(Opened(workload, admission, NOW))
    await store.commit(Changes(tuple(records), (), tuple(opened), ()), epoch=epoch)


@pytest.mark.parametrize("look", [("light", 1280), ("dark", 390)], ids=["light", "dark"])
async def test_clusters_show_state_workloads_and_usage(browser: Browser, tmp_path: Path, look: tuple[str, int]):
    async with own_store(tmp_path) as store:
        await fill(store)
        async with served(store) as address, opened(browser, address, "clusters", look) as page:
            here, frankfurt, oslo = (
                page.get_by_role("region", name=name, exact=True) for name in ("local", "frankfurt", "oslo")
            )
            await expect(here).to_contain_text("1 waiting")
            await expect(here).not_to_contain_text("a100")
            await expect(frankfurt).to_contain_text("Active")
            await expect(frankfurt).to_contain_text("1 workload with quota, 1 waiting")
            await expect(here).to_contain_text("Capacity unknown: the right to list nodes is missing")
            await expect(frankfurt).to_contain_text("40 nodes: 39 ready, 38 get new pods")
            nodes = frankfurt.get_by_role("region", name="Nodes of frankfurt")
            gpus = nodes.get_by_role("row").filter(has_text="GPU").get_by_role("cell")
            assert (await gpus.all_text_contents())[:3] == ["GPU", "4", "32"]
            await expect(oslo).to_contain_text("3 nodes: 3 ready, 3 get new pods")
            row = frankfurt.get_by_role("row").filter(has_text="a100")
            await expect(row.get_by_role("cell").nth(2)).to_have_text("4")
            await expect(row.get_by_role("cell", name="16")).to_be_visible()
            await expect(oslo).to_contain_text("It is lost: the API server at https://oslo.example.org:6443")
            await check_accessible(page)
            if folder := os.environ.get("PICTURES"):
                await page.screenshot(path=Path(folder) / f"clusters-{look[0]}.png", full_page=True)
            await oslo.get_by_role("link", name="1 waiting").click()
            await expect(page.get_by_role("main")).to_contain_text("job-2")
            await expect(page.get_by_role("main")).not_to_contain_text("job-1")
            await page.goto(f"{address}/ui/namespaces/ml/workloads/job-2")
            await expect(page.get_by_role("region", name="What it asks for")).to_contain_text("oslo")
