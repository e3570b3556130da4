"""The tab of what is planned for a ClusterQueue, in a real browser: its calendar, and Reservations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import expect

from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

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


def manifest(kind: str, name: str, **spec):
    return parse_manifest({"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})


async def test_calendar_and_reservations_of_a_queue_are_shown(browser: Browser, tmp_path: Path):
    async with own_store(tmp_path) as store:
        flavors = [{"name": "h100", "resources": [{"name": GPU, "nominalQuota": 8}]}]
        groups = [{"coveredResources": [GPU], "flavors": flavors}]
        for item in (
            manifest("ResourceFlavor", "h100"),
            manifest("ClusterQueue", "ml", resourceGroups=groups, calendar={"entries": [NIGHTS]}),
            manifest(
                "Reservation",
                "bench",
                clusterQueue="ml",
                quotas=[{**QUOTA, "amount": 4}],
                holders={"users": ["ada"]},
                start="2030-12-01T08:00",
                end="2030-12-01T18:00",
            ),
        ):
            await store.queues.create(item, author=Author("root"))
        async with served(store) as address, opened(browser, address, "queues/ml?tab=planned") as page:
            coming = page.get_by_role("region", name="Coming changes of quota")
            await expect(coming.get_by_role("row").filter(has_text="nights").first).to_contain_text("24")
            reserved = page.get_by_role("region", name="Reservations").get_by_role("row").filter(has_text="bench")
            for text in ("pending", "4 GPU", "user ada"):
                await expect(reserved).to_contain_text(text)
            await check_accessible(page, "#tab-panel")
