"""Lists of the dashboard that a replica computes later than the numbers beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dashboard_people import pending_record, person, put
from dashboard_world import ADMIN_TOKEN
from playwright.async_api import expect

if TYPE_CHECKING:
    from dashboard_world import World
    from playwright.async_api import Browser, Route

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]


async def test_pending_list_that_lags_behind_the_number_is_requested_again(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        address = f"{running.url}/apis/sluice.dev/v1/clusterqueues/vision/pendingworkloads?limit=200&offset=0"
        outdated = await (await someone.context.request.get(address)).body()
        page = await someone.open("queues/vision")
        table = page.get_by_role("table", name="Pending workloads, in order")
        await expect(table).to_contain_text("never-fits")
        left = 2

        async def lag(route: Route) -> None:
            nonlocal left
            if left:
                left -= 1
                await route.fulfill(status=200, content_type="application/json", body=outdated)
            else:
                await route.continue_()

        await page.route("**/pendingworkloads?*", lag)
        await put(running, pending_record(running, "late", priority=10_000))
        await expect(table).to_contain_text("late")
        assert left == 0
