"""Pages and dialogs with outdated data: scripts or answers of another replica, or opened before a change by others."""

from __future__ import annotations

import pytest
from dashboard_people import Person, pending_record, person, put
from dashboard_world import ADMIN_TOKEN, World
from playwright.async_api import Browser, Route, expect

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


async def test_quota_that_was_changed_by_others_is_edited_in_a_dialog_opened_again(admin: Person) -> None:
    page = await admin.context.new_page()  # `open` would report the refusal as an error of the page
    await page.goto(f"{admin.url}/ui/queues/language")
    await page.get_by_role("button", name="Edit quota").click()
    dialog = page.get_by_role("dialog")
    resource = f"{admin.url}/apis/sluice.dev/v1/clusterqueues/language"
    answer = await admin.context.request.patch(
        resource,
        data={"metadata": {"labels": {"changed-by": "others"}}},
        headers={"Content-Type": "application/merge-patch+json", "X-Requested-With": "test"},
    )
    assert answer.ok, await answer.text()
    nominal = dialog.get_by_label("Nominal, a100, GPU")
    await nominal.fill("33")
    await expect(dialog.get_by_role("alert")).to_contain_text("has changed meanwhile")
    await expect(dialog.get_by_role("alert")).to_contain_text("Cancel, and open this dialog again")
    await dialog.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Edit quota").click()
    await nominal.fill("33")
    await expect(dialog.get_by_role("heading", name="Effects")).to_be_visible()
    await expect(dialog.locator(".impact")).to_be_visible()
    await page.close()


@pytest.mark.parametrize("assets", ["**/assets/**", "**/assets/**/*.js"])
async def test_page_whose_scripts_are_not_found_asks_to_be_reloaded(
    running: World, browser: Browser, assets: str
) -> None:
    # During an upgrade another version may answer the requests for the assets, with 404.
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.context.new_page()
        await page.route(assets, lambda route: route.fulfill(status=404))
        await page.goto(f"{running.url}/ui/me")
        await expect(page.get_by_text("The scripts of this page have not loaded yet")).to_be_visible(timeout=20_000)
        await page.unroute(assets)
        await page.get_by_role("link", name="Reload the page").click()
        await expect(page.get_by_role("heading", name="My work")).to_be_visible()
        await expect(page.get_by_text("The scripts of this page have not loaded yet")).to_have_count(0)


async def test_dialog_without_connection_repeats_the_preview_but_not_the_change(admin: Person) -> None:
    page = await admin.context.new_page()  # `open` would report the failures as errors of the page
    await page.goto(f"{admin.url}/ui/queues/speech")
    await page.route("**/clusterqueues/speech?*", lambda route: route.abort())
    await page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("alert")).to_contain_text("The page tries again by itself")
    await page.unroute("**/clusterqueues/speech?*")
    await expect(dialog.locator(".impact")).to_be_visible()
    await page.route("**/clusterqueues/speech?*", lambda route: route.abort())
    await dialog.get_by_label("Reason").fill("maintenance")
    await dialog.get_by_role("button", name="Stop the queue").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("the change may or may not have been made")
    await expect(dialog.get_by_role("alert")).not_to_contain_text("by itself")
    await page.close()


async def test_older_versions_that_cannot_be_loaded_are_loaded_later(admin: Person) -> None:
    page = await admin.context.new_page()  # `open` would report the failure as an error of the page
    resource = f"{admin.url}/apis/sluice.dev/v1/clusterqueues/ads"
    versions = (await (await admin.context.request.get(f"{resource}/history")).json())["items"]

    async def answer(route: Route) -> None:
        first = "continue=" not in route.request.url
        metadata = {"continue": "next" if first else ""}
        await route.fulfill(json={"items": versions if first else [], "metadata": metadata})

    await page.route("**/clusterqueues/ads/history?*", answer)
    await page.goto(f"{admin.url}/ui/queues/ads?tab=history")
    older = page.get_by_role("button", name="Older versions")
    await expect(older).to_be_visible()
    await page.route("**/clusterqueues/ads/history?*continue=next*", lambda route: route.abort())
    await older.click()
    await expect(page.get_by_role("alert")).to_contain_text("Sluice cannot be reached")
    await page.unroute("**/clusterqueues/ads/history?*continue=next*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.close()


@pytest.mark.long
async def test_sign_in_without_cookies_says_what_to_allow(running: World, browser: Browser) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    # What a browser sees that keeps no cookies: the token is accepted, and there is no session afterwards.
    await page.route("**/login", lambda route: route.fulfill(status=200, json={}))
    await page.goto(f"{running.url}/ui/")
    await page.get_by_label("Cluster token").fill("admin-token")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("Allow cookies for this site")
    await expect(page.get_by_role("button", name="Sign in")).to_be_enabled()
    await context.close()
