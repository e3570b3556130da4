"""Dashboard behind a reverse proxy that answers requests itself, for example while Sluice restarts."""

from __future__ import annotations

import asyncio
import time

import pytest
from dashboard_people import Person, person
from dashboard_world import ADMIN_TOKEN, World
from playwright.async_api import Browser, Page, Route, expect

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

PROXY_PAGE = "<!doctype html><html><body><h1>The portal</h1></body></html>"


async def page_behind_proxy(someone: Person, path: str, *, answered: str, status: int) -> Page:
    """Open a page; a proxy answers the requests for `answered` with a page of its own until they are unrouted."""
    page = await someone.context.new_page()
    await page.route(answered, lambda route: route.fulfill(status=status, content_type="text/html", body=PROXY_PAGE))
    await page.goto(f"{someone.url}/ui/{path}")
    return page


@pytest.mark.parametrize(("path", "shown"), [("audit", "Set up by the platform team"), ("usage?by=user", "CPU")])
async def test_page_that_got_502_from_a_proxy_loads_by_itself_later(
    running: World, browser: Browser, path: str, shown: str
) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await page_behind_proxy(someone, path, answered="**/apis/**", status=502)
        failure = page.get_by_role("alert").filter(has_text="the server answered 502")
        await expect(failure).to_contain_text("The page tries again by itself.")
        await page.unroute("**/apis/**")
        await expect(page.get_by_role("main")).to_contain_text(shown)
        await expect(failure).to_have_count(0)


@pytest.mark.parametrize(("path", "shown"), [("audit", "Set up by the platform team"), ("flavors", "a100")])
async def test_page_of_a_proxy_in_place_of_data_is_named_as_such(
    running: World, browser: Browser, path: str, shown: str
) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await page_behind_proxy(someone, path, answered="**/apis/**", status=200)
        failure = page.get_by_role("alert").filter(has_text="answered instead of Sluice")
        await expect(failure).to_contain_text("If it wants you to sign in, reload the page.")
        await expect(page.get_by_role("main")).not_to_contain_text("JSON")
        await page.unroute("**/apis/**")
        await expect(page.get_by_role("main")).to_contain_text(shown)


@pytest.mark.parametrize("body", ["", PROXY_PAGE])
async def test_watch_that_a_proxy_ends_at_once_is_repeated_slowly(running: World, browser: Browser, body: str) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.context.new_page()
        began: list[float] = []
        repeated = asyncio.Event()

        async def end(route: Route) -> None:
            began.append(time.monotonic())
            if len(began) == 4:
                repeated.set()
            await route.fulfill(status=200, content_type="text/html", body=body)

        await page.route("**/resourceflavors?*watch=1*", end)
        await page.goto(f"{running.url}/ui/flavors")
        await expect(page.get_by_role("main")).to_contain_text("a100")
        await repeated.wait()
        assert began[3] - began[0] > 1  # seconds; without a pause it is a tenth of one


@pytest.mark.long
async def test_sign_out_that_fails_is_reported_and_repeated(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await page_behind_proxy(someone, "me", answered="**/logout", status=502)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("alert")).to_contain_text("You are not signed out yet: the server answered 502")
        assert (await someone.context.request.get(f"{running.url}/session")).status == 200
        await page.unroute("**/logout")
        await expect(page.get_by_label("Cluster token")).to_be_visible()
        assert (await someone.context.request.get(f"{running.url}/session")).status == 401
