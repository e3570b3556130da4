"""The page of a flavor's topology in a real browser: by keyboard from a node to its workload, and by axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import Browser, Page, expect
from queue_objects import cluster_queue, local_queue, manifest, topology

from admission.api.resources.explaining_engine import NoController
from admission.engine import (
    Engine,
    NamespaceChanged,
    NodeChanged,
    Policy,
    QueueObjectChanged,
    TopologyRules,
    WorkloadPending,
)
from admission.engine.topology.nodes import NodeState
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME, TopologyRequest
from admission.model.workload import PodSet, Workload

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]

OBJECTS = (
    topology("dc", "block", "rack", HOSTNAME),
    manifest("ResourceFlavor", "gpu", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"}),
    cluster_queue(flavor="gpu", cpu="100"),
    local_queue("q", "ns"),
)


class Leader(NoController):
    """A leader with two racks of two nodes, one of them cordoned, and a Job in the first rack."""

    nodes: tuple[tuple[str, str, str], ...] = tuple(("b", name[:2], name) for name in ("r1-0", "r1-1", "r2-0", "r2-1"))
    """Block, rack and name."""
    pods = 3

    def __init__(self) -> None:
        self._engine = Engine(Policy(topology=TopologyRules()))
        self._engine.observe(NamespaceChanged("ns", {}), now=0.0)
        for document in OBJECTS:
            self._engine.observe(QueueObjectChanged(parse_manifest(document)), now=0.0)
        for block, rack, name in self.nodes:
            labels = {"pool": "gpu", "block": block, "rack": rack, HOSTNAME: name}
            state = NodeState(name, labels, {"cpu": 4000, "pods": 10}, unschedulable=name == "r2-1")
            self._engine.observe(NodeChanged(state), now=0.0)
        pod_sets = (PodSet("main", self.pods, {"cpu": 2000}, topology=TopologyRequest(required="rack")),)
        self._engine.observe(WorkloadPending(Workload("u", "ns", "train", "q", 0, 1.0, pod_sets)), now=1.0)
        self._engine.settle(1.0)

    def engine(self) -> Engine:  # type: ignore[override]
        return self._engine


class Many(Leader):
    """A leader with 10,000 nodes in 625 racks of 16 blocks, and a Job that fills the first rack."""

    nodes = tuple((f"b{n // 640:02}", f"r{n // 16:03}", f"n{n:05}") for n in range(10_000))
    pods = 32


@pytest.mark.parametrize("look", [("light", 1280), ("dark", 390)])
async def test_map_leads_by_keyboard_to_the_workload_on_a_node(browser: Browser, tmp_path: Path, look):
    async with (
        own_store(tmp_path) as store,
        served(store, controller=Leader()) as address,
        opened(browser, address, "flavors/gpu/topology", look) as page,
    ):
        await expect(page.get_by_text("4 nodes, 1 without pods, 1 partly used, 1 out")).to_be_visible()
        await expect(page.get_by_role("row", name="r2-1 b / r2 It is cordoned.")).to_be_visible()
        await page.get_by_role("application").focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("link", name="ns/train")).to_be_visible()
        await check_accessible(page)
        await page.get_by_role("application").focus()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{address}/ui/namespaces/ns/workloads/{await _workload(page, address)}")


@pytest.mark.parametrize("look", [("light", 390), ("dark", 1280)])
async def test_with_very_many_nodes_racks_are_drawn_and_their_nodes_when_opened(browser: Browser, tmp_path: Path, look):
    async with (
        own_store(tmp_path) as store,
        served(store, controller=Many()) as address,
        opened(browser, address, "", look) as page,
    ):
        sizes = []
        page.on("requestfinished", lambda request: sizes.append(request) if "reports/topology" in request.url else None)
        await page.goto(f"{address}/ui/flavors/gpu/topology")
        await expect(page.get_by_text("10,000 nodes")).to_be_visible()
        await expect(page.get_by_text("Each square is a rack: open one to see its nodes.")).to_be_visible()
        assert (await sizes[0].sizes())["responseBodySize"] < 40_000
        drawing = page.get_by_role("application")
        await drawing.hover(position={"x": 6, "y": 24})
        await expect(page.get_by_text("b00 / r000")).to_be_visible()
        await expect(page.get_by_text("16 nodes, 0 without pods, 0 out")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await drawing.click(position={"x": 6, "y": 24})
        await expect(page).to_have_url(f"{address}/ui/flavors/gpu/topology?within=b00%2Fr000")
        await drawing.hover(position={"x": 6, "y": 48})
        await expect(page.get_by_role("link", name="ns/train")).to_be_visible()
        await check_accessible(page)
        await page.get_by_role("button", name="Show all").click()
        await expect(page.get_by_text("Each square is a rack")).to_be_visible()


async def _workload(page: Page, address: str) -> str:
    """Return the name of the only workload of the report."""
    report = await page.request.get(f"{address}/apis/sluice.dev/v1/reports/topology?flavor=gpu")
    return (await report.json())["workloads"][0]["workload"]
