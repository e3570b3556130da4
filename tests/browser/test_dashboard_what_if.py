"""The page "What if" in a real browser: the answer of a real `sluice serve`, Cancel, and what is said about faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from dashboard_people import Person
from playwright.async_api import Browser, Page, expect

from admission.api.errors import TooManyRequests
from admission.api.resources.what_if import WhatIf
from tests.cli.serve_processes import QUEUES, TOKEN, waits_recorded
from tests.queue_objects import budget, create_objects

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]

JOBS = 12


@asynccontextmanager
async def what_if_page(browser: Browser, address: str) -> AsyncIterator[Page]:
    """Open the page by its link, as admin."""
    async with opened(browser, address, "", token=TOKEN) as page:
        await page.get_by_role("link", name="What if").click()
        yield page


@asynccontextmanager
async def api(path: Path, what_if: WhatIf | None) -> AsyncIterator[str]:
    async with own_store(path) as store:
        await create_objects(store, QUEUES)
        async with served(store, token=TOKEN, what_if=what_if) as address:
            yield address


async def test_more_quota_is_replayed_beside_what_happened(browser: Browser, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/sluice.db"
    async with waits_recorded(tmp_path, database, jobs=JOBS) as address, what_if_page(browser, address) as page:
        await create_objects(database, budget("ml", 100, resources=[{"name": "cpu", "hours": 100}]))
        quota = page.get_by_label("New quota")
        await expect(quota).to_have_value("4")
        await page.get_by_role("button", name="24 hours").click()
        await quota.fill("100")
        await page.get_by_role("button", name="Replay").click()
        await expect(page.get_by_role("progressbar", name="Replayed")).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text(f"{JOBS} workloads waited")
        await expect(page.get_by_role("main")).to_contain_text("100 instead of 4 CPU of flavor default in cq")
        for table, row in (("Waits and use of quota", "Nine of ten within"), ("Waits by ClusterQueue", "cq")):
            cells = page.get_by_role("region", name=table, exact=True).get_by_role("row", name=row).get_by_role("cell")
            texts = await cells.all_inner_texts()
            assert texts[-1] == "0 s" != texts[-3]
        use = page.get_by_role("region", name="Waits and use of quota").get_by_role("row", name="CPU used default")
        _, happened, _, changed = await use.get_by_role("cell").all_inner_texts()
        assert int(changed.removesuffix(" %")) < 10 < int(happened.removesuffix(" %"))
        spent = page.get_by_role("region", name="Waits and use of quota").get_by_role("row", name="Spent of Budget ml")
        await expect(spent).to_contain_text("hours of cpu")
        assert all(text.endswith(" of 100") for text in (await spent.get_by_role("cell").all_inner_texts())[1:])
        await expect(page.get_by_role("main")).to_contain_text(f"starts 100 % of {JOBS} workloads when they did")
        await check_accessible(page)


async def test_cancel_ends_the_question(browser: Browser, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def endless(question: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        assert question["objects"][0]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "7"
        try:
            while True:
                yield {"progress": 0.5}
                await asyncio.sleep(0.02)
        finally:
            ended.set()

    async with api(tmp_path, endless) as address, what_if_page(browser, address) as page:
        await page.get_by_label("New quota").fill("7")
        await page.get_by_role("button", name="Replay").click()
        await expect(page.get_by_text("50 % replayed")).to_be_visible()
        await page.get_by_role("button", name="Cancel").click()
        await ended.wait()
        await expect(page.get_by_role("button", name="Replay")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_faults_are_one_sentence(browser: Browser, tmp_path: Path) -> None:
    async def busy(question: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        raise TooManyRequests("busy", retry_after=1)
        yield question

    async def replay(page: Page, said: str) -> None:
        await page.get_by_role("button", name="Replay").click()
        await expect(page.get_by_role("alert")).to_contain_text(said)

    (tmp_path / "busy").mkdir()
    async with api(tmp_path, None) as address, what_if_page(browser, address) as page:
        await replay(page, "This server replays nothing")
        await page.get_by_label("New quota").fill("many")
        await replay(page, '"many" is not an amount')
    async with api(tmp_path / "busy", busy) as address, what_if_page(browser, address) as page:
        await replay(page, "Another what-if question is being answered")
        await page.get_by_label("From").fill("2999-01-01")
        await replay(page, "From (2999-01-01T00:00:00Z) must be before to (")


async def test_page_without_the_right_says_who_has_it(grace: Person) -> None:
    page = await grace.open("whatif")
    await expect(page.get_by_role("alert")).to_have_text(
        "You have no right to create whatifs; the role sluice-admin has it."
    )
    await expect(page.get_by_role("link", name="What if")).to_have_count(0)
