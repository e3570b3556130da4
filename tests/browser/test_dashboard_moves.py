"""Ways through the dashboard: the keyboard, the search, and filters in the address."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from dashboard_people import Person

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]


async def test_link_to_the_content_skips_the_navigation(admin: Person) -> None:
    page = await admin.open("queues/vision")
    await expect(page.get_by_role("button", name="Edit quota")).to_be_visible()
    await page.get_by_role("link", name="Skip to the content").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("main").get_by_role("link", name="Overview")).to_be_focused()
    await expect(page.get_by_role("heading", name="vision")).to_be_visible()
    await page.close()
