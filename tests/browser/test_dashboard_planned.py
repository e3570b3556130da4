"""The tab of what is planned for a ClusterQueue, in a real browser: its calendar, and Reservations."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import Browser, expect
from queue_objects import cluster_queue, create_objects, flavor, reservation

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]

GPU = "nvidia.com/gpu"
QUOTA = {"flavor": "h100", "resource": GPU}
NIGHTS = {
    "name": "nights",
    "start": "2026-01-01T20:00",
    "end": "2026-01-02T06:00",
    "recurrence": "FREQ=DAILY",
    "quotas": [{**QUOTA, "nominalQuota": 24}],
}


async def test_calendar_and_reservations_of_a_queue_are_shown(browser: Browser, tmp_path: Path):
    async with own_store(tmp_path) as store:
        await create_objects(
            store,
            flavor("h100"),
            cluster_queue("ml", quotas={"h100": {GPU: 8}}, calendar={"entries": [NIGHTS]}),
            reservation("bench", "ml", 0, quotas=[{**QUOTA, "amount": 4}]),
        )
        async with served(store) as address, opened(browser, address, "queues/ml?tab=planned") as page:
            coming = page.get_by_role("region", name="Coming changes of quota")
            await expect(coming.get_by_role("row").filter(has_text="nights").first).to_contain_text("24")
            reserved = page.get_by_role("region", name="Reservations").get_by_role("row").filter(has_text="bench")
            for text in ("pending", "4 GPU", "user ada"):
                await expect(reserved).to_contain_text(text)
            await check_accessible(page, "#tab-panel")
