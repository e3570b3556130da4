"""The tab with the objective of a ClusterQueue, in a real browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import Browser, expect
from queue_objects import cluster_queue, create_objects, local_queue

from admission.model.workload import PodSet, Workload
from admission.store.records import Changes, State, Transition, WorkloadRecord

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]


async def test_missed_objective_says_what_was_in_the_way(browser: Browser, tmp_path: Path):
    now = time.time()
    async with own_store(tmp_path) as store:
        queue = cluster_queue("ml", objective={"percentile": 80, "wait": "1h"})
        await create_objects(store, queue, local_queue("main", "a", "ml"))
        workload = Workload("1", "a", "train", "main", 0, now - 7200, (PodSet("main", 1, {}),))
        record = WorkloadRecord(workload, State.PENDING, now - 7200)
        waits = Transition("1", now - 7200, State.PENDING, "BudgetExhausted")
        epoch = await store.lead("test")
        await store.commit(Changes(workloads=(record,), transitions=(waits,)), epoch=epoch)
        async with served(store) as address, opened(browser, address, "queues/ml?tab=objective") as page:
            weeks = page.get_by_role("region", name="Objective by week")
            missed = weeks.get_by_role("row").filter(has_text="missed")
            for text in ("0 %", "2 h", "BudgetExhausted", "100 %"):
                await expect(missed).to_contain_text(text)
            await expect(page.locator("#tab-panel")).to_contain_text("80 of 100 workloads are to start within 1 h.")
            await check_accessible(page, "#tab-panel")
