"""Ways through the dashboard: the keyboard, the search, and filters in the address."""

from __future__ import annotations

import pytest
from dashboard_people import Person
from dashboard_queues import search
from playwright.async_api import expect

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


async def test_enter_never_opens_what_was_found_for_an_earlier_text(admin: Person) -> None:
    page = await admin.open("me")
    await page.route("**/session/workloads?find=neverzz*", lambda _: None)  # never answered
    await search(page, "never")
    option = page.get_by_role("option", name="vision/never-fits")
    await expect(option).to_be_visible()
    await page.keyboard.type("zz")
    await expect(option).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("My work")
    await page.close()


async def test_search_says_that_it_has_failed(admin: Person) -> None:
    page = await admin.context.new_page()  # `open` would report the failure as an error of the page
    await page.goto(f"{admin.url}/ui/me")
    await page.route("**/session/workloads?*", lambda route: route.abort())
    await search(page, "never")
    await expect(page.get_by_role("listbox", name="Found")).to_contain_text("Sluice cannot be reached")
    await page.close()


async def test_cohort_that_was_searched_for_is_shown_with_its_members_and_a_way_back(admin: Person) -> None:
    page = await admin.open("me")
    await search(page, "research")
    await expect(page.get_by_role("option", name="research")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("research")
    quota = page.get_by_role("region", name="Quota", exact=True).get_by_role("row").filter(has_text="GPU")
    await expect(quota.get_by_role("cell").nth(4)).to_have_text("56")  # 16 + 32 + 8
    tree = page.get_by_role("region", name="Quota tree")
    await expect(tree.get_by_role("link")).to_have_text(["research", "language", "speech", "vision"])
    await page.get_by_role("tab", name="History").click()
    await expect(page.get_by_role("tabpanel")).to_contain_text("Set up by the platform team")
    await page.get_by_role("link", name="company").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("company")
    own = page.get_by_role("region", name="Quota", exact=True).get_by_role("row").filter(has_text="GPU")
    await expect(own.get_by_role("cell").nth(5)).to_have_text("8")
    await expect(tree.get_by_role("link", name="ads")).to_be_visible()
    await page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Overview").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    await page.goto(f"{admin.url}/ui/cohorts/nowhere")
    await expect(page.locator("main")).to_contain_text("There is no Cohort of this name")
    await page.close()


@pytest.mark.long
async def test_page_is_printed_in_dark_ink_and_without_navigation(admin: Person) -> None:
    page = await admin.open("queues/vision")
    await page.emulate_media(media="print", color_scheme="dark")
    for theme in ("dark", "auto"):
        await page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        await expect(page.get_by_role("heading", name="vision")).to_have_css("color", "rgb(22, 32, 43)")
        await expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    await page.close()
