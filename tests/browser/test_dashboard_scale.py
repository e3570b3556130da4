"""Dashboard of a large installation: 500 ClusterQueues, 20,000 pending workloads, 30 days of ledger."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from dashboard_people import person
from dashboard_scenario import TEAMS, Scenario
from dashboard_world import ADMIN_TOKEN, SavedScenario, World, world
from playwright.async_api import Browser, Locator, Page, expect

from admission.store.records import Changes, State, Transition, WorkloadRecord

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]

QUEUES, PENDING = 500, 20_000
LONGEST = "team-000"
"""Namespace and ClusterQueue of all these pending workloads."""
MOST_NODES = 4_000
"""Limit of the number of elements of a page; 500 rows of queues with eight cells each would exceed it."""
PAGES = (
    "",
    "?find=team-00",
    "me",
    "workloads",
    "workloads?group=namespace&from=all",
    "usage?by=workload&from=30d",
    "people",
    "flavors",
    "audit",
    f"queues/{LONGEST}?by=workload&period=month",
    f"queues/{LONGEST}?tab=running",
    "queues/vision?tab=fair",
    "queues/vision?tab=history",
    f"namespaces/{LONGEST}/queues/batch",
    f"namespaces/{LONGEST}/workloads/waits-00007",
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def large(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("large")
    # The workers of one pytest-xdist run may share these tests; the parent of their folders is common to them.
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    common = tmp_path_factory.getbasetemp().parent if is_worker else tmp_path_factory.getbasetemp()
    made = await SavedScenario.load_or_create(
        common / "large-world", extra_queues=QUEUES - len(TEAMS) - 1, add=add_pending_workloads
    )
    async with world(folder, made=made) as started:
        yield started


async def add_pending_workloads(scenario: Scenario) -> None:
    """Add the pending workloads, all of one ClusterQueue."""
    for first in range(0, PENDING, 5_000):
        records = tuple(waiting(scenario, f"waits-{number:05}") for number in range(first, first + 5_000))
        lines = tuple(Transition(each.workload.uid, scenario.now, each.state, each.reason, "") for each in records)
        await scenario.store.commit(Changes(records, (), (), lines), epoch=scenario.epoch)


def waiting(scenario: Scenario, name: str) -> WorkloadRecord:
    workload = replace(scenario.workload("speech", at=scenario.now, name=name), namespace=LONGEST)
    return WorkloadRecord(workload, State.PENDING, workload.created, LONGEST, "WaitingForQuota", "not enough GPUs")


async def test_each_page_loads_for_an_admin_with_a_bounded_number_of_elements(large: World, browser: Browser) -> None:
    async with person(browser, large, ADMIN_TOKEN) as admin:
        page = await admin.open("")
        for path in PAGES:
            await open_and_load(page, large, path)
            assert await page.get_by_role("alert").count() == 0, path
            assert await count_elements(page) < MOST_NODES, path


async def test_fair_share_tab_sums_up_all_but_the_largest_queues_lenders_and_borrowers(
    large: World, browser: Browser
) -> None:
    async with person(browser, large, ADMIN_TOKEN) as admin:
        page = await admin.open("queues/team-024?tab=fair")
        rows = page.get_by_role("region", name="Fair share in the Cohort division-00").get_by_role("row")
        await expect(rows.last).to_contain_text("others")
        others = int((await rows.last.inner_text()).split()[0])
        assert await rows.count() - 2 + others == 25
        assert await rows.filter(has_text="team-024").count() == 1
        lenders = page.get_by_role("region", name="Who lent to whom").get_by_role("row")
        await expect(lenders.last).to_contain_text("others")
        assert 10 <= await lenders.count() - 2 <= 11


@pytest.mark.parametrize("token", ["grace-token", "nobody-token"])
async def test_users_without_access_see_no_names_of_other_teams(large: World, browser: Browser, token: str) -> None:
    async with person(browser, large, token) as someone:
        page = await someone.open("")
        for path in PAGES:
            await open_and_load(page, large, path)
            text = await page.locator("body").inner_text()
            # Not the names in the address of the page itself.
            found = {name for name in ("company", "division", "language", "team-001", "waits-00008") if name in text}
            assert found == set(), path
            assert await count_elements(page) < MOST_NODES, path
        # Browsers log each response 403 as an error.
        someone.faults[:] = [fault for fault in someone.faults if "403" not in fault]


async def test_table_of_20000_pending_workloads_can_be_scrolled(large: World, browser: Browser) -> None:
    async with person(browser, large, ADMIN_TOKEN) as admin:
        page = await admin.open(f"queues/{LONGEST}")
        table = page.get_by_role("table", name="Pending workloads, in order")
        async for place, row in scrolled(page, table):
            await expect(row.locator(".place")).to_have_text(f"{place + 1:,}")


async def test_page_of_all_workloads_can_be_scrolled(large: World, browser: Browser) -> None:
    async with person(browser, large, ADMIN_TOKEN) as admin:
        page = await admin.open(f"workloads?namespace={LONGEST}&find=waits&order=name")
        async for place, row in scrolled(page, page.get_by_role("table", name="Workloads")):
            await expect(row.locator(".name")).to_have_text(f"waits-{place:05}")


async def scrolled(page: Page, table: Locator) -> AsyncIterator[tuple[int, Locator]]:
    """Scroll a table of all pending workloads to some places; yields each, counted from 0, with its row."""
    rows = table.locator(".vrow")
    await expect(rows.first.locator(".name")).to_be_visible()
    count = int(await table.get_attribute("aria-rowcount") or 0) - 1
    assert count >= PENDING
    height = await table.locator(".vspace").evaluate("all => all.offsetHeight") / count
    for share in (0.5, 1.0, 0.1, 0.93, 0.0):
        place = round((count - 1) * share)
        await table.evaluate("(box, top) => { box.scrollTop = top; }", place * height)
        yield place, table.locator(f"[aria-rowindex='{place + 2}']")
        assert await rows.count() < 60
        assert await count_elements(page) < MOST_NODES


async def open_and_load(page: Page, large: World, path: str) -> None:
    """Open a page and wait until it has loaded."""
    await page.goto(f"{large.url}/ui/{path}")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.locator(".loading")).to_have_count(0)


async def count_elements(page: Page) -> int:
    """Return the number of elements of the page."""
    found: int = await page.evaluate("document.querySelectorAll('*').length")
    return found
