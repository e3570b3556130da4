"""The page of Budgets in a real browser: what they have left, as a tree, in both looks, by axe-core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import expect

from tests.queue_objects import create_objects, manifest, user_limit

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]

GPU = "nvidia.com/gpu"
MONTH = {"every": "Month"}
BUDGETS = {
    "research": {"resources": [{"name": GPU, "hours": 10000}, {"name": "memory", "hours": "100Ti"}], "period": MONTH},
    "ml": {
        "parent": "research",
        "scope": {"namespaces": ["team-a"]},
        "resources": [{"name": GPU, "hours": 2000}],
        "period": MONTH,
        "enforcement": "Reserve",
    },
    "vision": {
        "parent": "research",
        "scope": {"users": ["ada", "grace", "alan"]},
        "resources": [{"name": GPU, "hours": 500, "flavors": ["a100"]}],
        "period": {"lastDays": 30},
    },
    "new": {"scope": {}, "resources": [{"name": "cpu", "hours": 100}], "period": MONTH},
}
PERIOD = {"start": "2026-11-01T00:00:00Z", "end": "2026-12-01T00:00:00Z"}


def sums(name: str, hours: str, spent: str, reserved: str, left: str):
    return {"name": name, "hours": hours, "spent": spent, "reserved": reserved, "left": left}


REQUEST = {"budget": "ml", "resource": GPU, "hours": 96, "day": "2026-11-28", "reason": "the paper of team A is due"}
OTHERS = [
    manifest("BudgetRequest", "ml-1", namespace="team-a", spec=REQUEST),
    user_limit("staff", 20, groups=["staff", "it"], together=True, resources={GPU: 64}),
]


SUMS = {
    "research": {
        "period": PERIOD,
        "resources": [sums(GPU, "10000", "2150", "336", "7514"), sums("memory", "100Ti", "12.5Ti", "0", "87.5Ti")],
    },
    "ml": {"period": PERIOD, "resources": [sums(GPU, "2000", "1650", "336", "14")]},
    "vision": {"period": PERIOD, "resources": [{**sums(GPU, "500", "512", "0", "-12"), "flavors": ["a100"]}]},
}


@pytest.mark.parametrize("look", [("light", 1280), ("dark", 390)])
async def test_budgets_are_shown_below_their_parents_with_what_is_left(browser: Browser, tmp_path: Path, look):
    async with own_store(tmp_path) as store:
        for name, spec in BUDGETS.items():
            await create_objects(store, manifest("Budget", name, spec=spec))
        await create_objects(store, *OTHERS)
        await store.budget_sums.save(SUMS, at=store.now())
        async with served(store) as address, opened(browser, address, "budgets", look) as page:
            await expect(page.get_by_role("rowheader")).to_contain_text(["new", "research", "ml", "vision"])
            names = ["1,650 of 2,000 hours spent, 336 reserved", "512 of 500 hours spent"]
            for name in names:
                await expect(page.get_by_role("img", name=name)).to_be_visible()
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="vision"))
            await expect(row).to_contain_text("used up")
            await expect(row).to_contain_text("last 30 days; 3 users")
            await expect(row.get_by_role("cell", name="−12")).to_be_visible()
            await expect(page.get_by_role("cell", name="not counted yet")).to_be_visible()
            await expect(page.get_by_role("rowheader", name="new")).to_contain_text("all workloads")
            requests = page.get_by_role("region", name="Open requests")
            await expect(requests).to_contain_text("team-a/ml-1")
            await check_accessible(page)
            await page.get_by_role("searchbox", name="Find a Budget").fill("ml")
            await expect(page.get_by_role("rowheader")).to_have_count(1)
            await page.goto(f"{address}/ui/people")
            limits = page.get_by_role("region", name="UserLimits")
            await expect(limits.get_by_role("row").nth(1)).to_contain_text("group staff, group it, together")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
