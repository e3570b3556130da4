"""The tab with the objective of a ClusterQueue, in a real browser."""

from __future__ import annotations

import time
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from admission.api.application import create_app, listening
from admission.api.resources.explaining_engine import NoController
from admission.model.manifests import parse_manifest
from admission.model.workload import PodSet, Workload
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.records import Changes, State, Transition, WorkloadRecord
from admission.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]


def manifest(kind: str, name: str, **spec):
    namespace = {"namespace": "a"} if kind == "LocalQueue" else {}
    return parse_manifest(
        {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": {"name": name, **namespace}, "spec": spec}
    )


async def test_missed_objective_says_what_was_in_the_way(browser: Browser, tmp_path: Path):
    url, now = f"sqlite:///{tmp_path}/sluice.db", time.time()
    await migrate(url)
    async with Store.open(url) as store:
        for item in (
            manifest("ClusterQueue", "ml", objective={"percentile": 80, "wait": "1h"}),
            manifest("LocalQueue", "main", clusterQueue="ml"),
        ):
            await store.queues.create(item, author=Author("root"))
        workload = Workload("1", "a", "train", "main", 0, now - 7200, (PodSet("main", 1, {}),))
        record = WorkloadRecord(workload, State.PENDING, now - 7200)
        waits = Transition("1", now - 7200, State.PENDING, "BudgetExhausted")
        epoch = await store.lead("test")
        await store.commit(Changes(workloads=(record,), transitions=(waits,)), epoch=epoch)
        app = create_app(store, token="t", checks={}, controller=NoController())
        async with listening(app, "127.0.0.1", 0) as address:
            context = await browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
            assert (await context.request.post(f"{address}/login", data={"token": "t"})).ok
            page = await context.new_page()
            await page.goto(f"{address}/ui/queues/ml?tab=objective")
            weeks = page.get_by_role("region", name="Objective by week")
            missed = weeks.get_by_role("row").filter(has_text="missed")
            for text in ("0 %", "2 h", "BudgetExhausted", "100 %"):
                await expect(missed).to_contain_text(text)
            await expect(page.locator("#tab-panel")).to_contain_text("80 of 100 workloads are to start within 1 h.")
            await page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
            found = (await page.evaluate("axe.run('#tab-panel')"))["violations"]
            assert [[node["html"] for node in each["nodes"]] for each in found] == []
            await context.close()
