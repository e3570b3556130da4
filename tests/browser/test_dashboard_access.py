"""Who gets into the dashboard, stays in and sees what, and which files it is made of."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboard_people import Person, person
from dashboard_world import ADMIN_TOKEN
from playwright.async_api import expect

if TYPE_CHECKING:
    from dashboard_world import World
    from playwright.async_api import Browser, Request

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]


# ------------------------------------------------------------------ files


async def test_the_page_runs_nothing_but_its_own_files(running: World, browser: Browser) -> None:
    page = await browser.new_page()
    answer = await page.goto(f"{running.url}/")
    assert answer is not None
    assert answer.url == f"{running.url}/ui/"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    text = await answer.text()
    assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son\w+=", text)
    await page.close()


async def test_files_of_another_version_are_not_found(running: World, browser: Browser) -> None:
    context = await browser.new_context()
    text = await (await context.request.get(f"{running.url}/ui/")).text()
    (script,) = re.findall(r'src="([^"]+/app\.js)"', text)
    found = await context.request.get(running.url + script)
    assert (found.status, found.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    other = re.sub(r"assets/\w+/", "assets/0000000000000000/", script)
    assert (await context.request.get(running.url + other)).status == 404
    assert (await context.request.get(f"{running.url}{script}/../../../../etc/passwd")).status != 500
    await context.close()


async def test_third_party_files_are_as_they_came() -> None:
    rows = re.findall(
        r"^\| `([^`]+)`.*`([0-9a-f]{64})` \|$", (ROOT / "THIRD_PARTY/README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == len(list((ROOT / "admission/dashboard/static/vendor").iterdir()))
    for path, digest in rows:
        assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == digest


# ------------------------------------------------------------------ signing in


async def test_a_person_signs_in_once_and_out_again(running: World, browser: Browser) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{running.url}/ui/queues/vision")
    await page.get_by_label("Token of the cluster").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("does not know this token")
    await page.get_by_label("Token of the cluster").fill(ADMIN_TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("vision")
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("vision")
    assert await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])") == (
        '[{"sluice-theme":"auto"},{},""]'
    )
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await context.close()


async def test_an_ended_session_asks_to_sign_in_and_goes_on_where_it_was(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.open("")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        await someone.context.clear_cookies()
        await page.evaluate("history.pushState(null, '', '/ui/queues/language'); dispatchEvent(new Event('popstate'))")
        await expect(page.locator(".notice")).to_contain_text("Your session has ended")
        await page.get_by_label("Token of the cluster").fill(ADMIN_TOKEN)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("language")
        someone.faults[:] = [fault for fault in someone.faults if "401" not in fault]


# ------------------------------------------------------------------ rights


async def test_a_member_of_a_team_sees_that_team_alone(running: World, grace: Person) -> None:
    asked: set[str] = set()

    def note(request: Request) -> None:
        if request.method == "GET" and "/ui/" not in request.url and "watch=1" not in request.url:
            asked.add(request.url)

    page = await grace.context.new_page()
    page.on("request", note)
    await page.goto(f"{running.url}/ui/")
    await expect(page.get_by_role("link", name="batch")).to_contain_text("vision")
    await page.get_by_role("link", name="batch").click()
    await expect(page.get_by_role("table", name="Pending workloads, in order")).to_contain_text("never-fits")
    await page.goto(f"{running.url}/ui/me")
    await expect(page.get_by_role("region", name="Waiting")).to_contain_text("never-fits")
    await page.goto(f"{running.url}/ui/namespaces/vision/workloads/never-fits")
    await expect(page.get_by_role("region", name="Why it waits")).to_contain_text("ExceedsMaxQuota")
    for absent in ("Users and namespaces", "Flavors and nodes", "Audit"):
        await expect(page.get_by_role("link", name=absent)).to_have_count(0)
    await page.goto(f"{running.url}/ui/usage?by=user")
    await expect(page.get_by_role("region", name="Usage", exact=True).last).to_contain_text("grace")
    await page.goto(f"{running.url}/ui/queues/language")
    await expect(page.get_by_role("alert")).to_contain_text("You may not see this")
    # Asked again: the bodies of answers are gone when the page has gone on.
    bodies = [await (await grace.context.request.get(url)).text() for url in sorted(asked)]
    assert len(bodies) > 5
    foreign = {"language/", "speech/", '"alan"', '"barbara"', '"donald"', '"margaret"', "edsger"}
    assert {name for name in foreign for body in bodies if name in body} == set()
    await page.close()


async def test_a_person_without_rights_is_told_whom_to_ask(browser: Browser, running: World) -> None:
    async with person(browser, running, "nobody-token") as nobody:
        page = await nobody.open("")
        await expect(page.locator("main")).to_contain_text("There is nothing here that you may see")
        await expect(page.locator("main")).to_contain_text("sluice-viewer")
        await page.goto(f"{running.url}/ui/me")
        await expect(page.locator("main")).to_contain_text("You have submitted nothing yet")


async def test_rights_are_told_as_the_cluster_has_them(running: World, grace: Person) -> None:
    reviews = [
        {"verb": "list", "resource": "workloads", "namespace": "vision"},
        {"verb": "list", "resource": "workloads", "namespace": "language"},
        {"verb": "patch", "resource": "clusterqueues", "name": "vision"},
    ]
    headers = {"X-Requested-With": "tests"}
    answer = await grace.context.request.post(
        f"{running.url}/session/access", data={"reviews": reviews}, headers=headers
    )
    assert await answer.json() == {"allowed": [True, False, False]}
    found = await grace.context.request.get(f"{running.url}/session/namespaces")
    assert await found.json() == {"all": False, "namespaces": ["vision"]}
    for wrong in ({}, {"reviews": "all"}, {"reviews": [{"verb": "list"}]}, {"reviews": [3]}, {"reviews": [{}] * 101}):
        bad = await grace.context.request.post(f"{running.url}/session/access", data=wrong, headers=headers)
        assert (bad.status, (await bad.json())["message"].startswith("reviews")) == (400, True)
