"""Dashboard in a real browser: static files, sign-in, connections, access rights, and accessibility by axe-core."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from dashboard_people import OPEN, Person, admit, pending_record, person, put
from dashboard_world import ADMIN_TOKEN, World
from playwright.async_api import Browser, BrowserContext, Page, Request, Route, expect

from admission.api.application import create_app, listening
from admission.model import sentences
from admission.store.database.migrations import migrate
from admission.store.store import Store

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]


# ------------------------------------------------------------------ files


async def test_page_has_a_strict_csp_and_no_inline_scripts_or_styles(running: World, browser: Browser) -> None:
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


async def test_static_files_are_cached_by_version_and_other_versions_are_not_found(
    running: World, browser: Browser
) -> None:
    context = await browser.new_context()
    text = await (await context.request.get(f"{running.url}/ui/")).text()
    (script,) = re.findall(r'src="([^"]+/app\.js)"', text)
    found = await context.request.get(running.url + script)
    assert (found.status, found.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert found.headers["content-encoding"] == "gzip"
    plain = await context.request.get(running.url + script, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert await plain.body() == (ROOT / "admission/dashboard/static/app.js").read_bytes() == await found.body()
    other = re.sub(r"assets/\w+/", "assets/0000000000000000/", script)
    assert (await context.request.get(running.url + other)).status == 404
    assert (await context.request.get(f"{running.url}{script}/../../../../etc/passwd")).status != 500
    await context.close()


async def test_third_party_files_match_their_recorded_checksums() -> None:
    rows = re.findall(
        r"^\| `([^`]+)`.*`([0-9a-f]{64})` \|$", (ROOT / "THIRD_PARTY/README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == len(list((ROOT / "admission/dashboard/static/vendor").iterdir()))
    for path, digest in rows:
        assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == digest


async def test_first_paint_needs_no_script_and_data_needs_few_requests(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        held = asyncio.Event()

        async def wait(route: Route) -> None:
            await held.wait()
            await route.continue_()

        await page.route("**/app.js", wait)
        await page.goto(f"{running.url}/ui/", wait_until="commit")
        # Polled from the test: the page's content security policy prevents polling inside the page.
        while not await page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        held.set()
        await expect(page.get_by_role("region", name="Quota tree")).to_be_visible()
        # The user is requested once, together with the document.
        assert asked.count("/session") == 1
        assert asked.index("/session") < len([path for path in asked if path.endswith(".js")])
        before = asked[: asked.index("/apis/sluice.dev/v1/clusterqueues")]
        session, *concurrent = [path for path in before if not path.startswith("/ui/")]
        # The browser reports concurrent requests in any order.
        assert (session, sorted(concurrent)) == ("/session", ["/session/access", "/session/namespaces"])


# ------------------------------------------------------------------ signing in


async def test_sign_in_with_a_token_lasts_until_sign_out(running: World, browser: Browser) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{running.url}/ui/queues/vision")
    await page.get_by_label("Cluster token").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("does not know this token")
    await page.get_by_label("Cluster token").fill(ADMIN_TOKEN)
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


async def test_sign_in_after_an_ended_session_returns_to_the_requested_page(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.open("")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        await someone.context.clear_cookies()
        await page.evaluate("history.pushState(null, '', '/ui/queues/language'); dispatchEvent(new Event('popstate'))")
        await expect(page.locator(".notice")).to_contain_text("Your session has ended")
        await page.get_by_label("Cluster token").fill(ADMIN_TOKEN)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("language")
        someone.faults[:] = [fault for fault in someone.faults if "401" not in fault]


# ------------------------------------------------------------------ connections


async def test_page_resumes_updates_when_the_connection_is_back(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.open("namespaces/vision/workloads/offline")
        record = pending_record(running, "offline")
        await put(running, record)
        await page.reload()
        await expect(page.locator(".page-title .badge")).to_have_text("Pending")
        await someone.context.set_offline(True)
        await expect(page.locator(".connection")).to_contain_text("Connection lost")
        await admit(running, record)
        await someone.context.set_offline(False)
        await expect(page.locator(".page-title .badge")).to_have_text("Admitted")
        await expect(page.locator(".connection")).to_contain_text("Live")
        someone.faults.clear()


async def test_page_shows_a_notice_while_the_controller_makes_no_decisions(running: World, browser: Browser) -> None:
    async with person(browser, running, "grace-token") as someone:
        page = await someone.context.new_page()
        await page.clock.install()
        await page.goto(f"{running.url}/ui/me")
        await expect(page.get_by_role("heading", level=1)).to_have_text("My work")
        notice, corner = page.locator("main > [role=status]"), page.locator(".connection")
        await expect(notice).to_have_text("")
        for text in (sentences.standstill(silent=True, unwritable=False), ""):
            running.deciding.silence = text
            await page.clock.run_for(21_000)
            await expect(notice).to_have_text(text)
            await expect(corner).to_have_text("No decisions" if text else "Live")


async def test_hidden_page_sends_no_requests_and_a_left_page_ends_its_watch(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.open("queues/vision")
        await expect(page.get_by_role("table", name="Pending workloads, in order")).to_be_visible()
        await expect(page.get_by_role("region", name="Usage over time").get_by_role("img")).to_be_visible()
        await page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        record = pending_record(running, "unseen")
        await put(running, record)
        other = await someone.open("namespaces/vision/workloads/unseen")
        await expect(other.locator(".page-title .badge")).to_have_text("Pending")
        assert requests == []
        await page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.get_by_role("table", name="Pending workloads, in order")).to_contain_text("never-fits")
        assert requests
        async with page.expect_event("requestfailed", lambda request: "watch=1" in request.url):
            await page.evaluate(OPEN, "flavors")


async def test_sign_out_in_one_tab_ends_the_session_in_the_other_tab(running: World, browser: Browser) -> None:
    async with person(browser, running, "nobody-token") as someone:
        other = await someone.context.new_page()
        await other.clock.install()
        await other.goto(f"{running.url}/ui/me")
        await expect(other.get_by_role("heading", level=1)).to_have_text("My work")
        page = await someone.open("me")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        await other.clock.run_for(21_000)
        await expect(other.locator(".notice")).to_contain_text("Your session has ended")


# ------------------------------------------------------------------ rights


async def test_team_member_sees_only_the_data_of_the_team(running: World, grace: Person) -> None:
    asked: set[str] = set()

    def note(request: Request) -> None:
        if request.method == "GET" and "/ui/" not in request.url and "watch=1" not in request.url:
            asked.add(request.url)

    page = await grace.context.new_page()
    page.on("request", note)
    await page.goto(f"{running.url}/ui/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("My work")
    await page.get_by_role("link", name="Queues").click()
    await expect(page.get_by_role("link", name="batch")).to_contain_text("vision")
    await page.get_by_role("link", name="batch").click()
    await expect(page.get_by_role("table", name="Pending workloads, in order")).to_contain_text("never-fits")
    usage = page.get_by_role("region", name="Usage over time")
    await expect(usage.get_by_role("button", name="GPU")).to_have_attribute("aria-pressed", "true")
    await expect(usage.locator(".legend")).to_contain_text("grace")
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
    # Requested again: the bodies of responses are not available after a navigation.
    bodies = [await (await grace.context.request.get(url)).text() for url in sorted(asked)]
    assert len(bodies) > 5
    foreign = {"language/", "speech/", '"alan"', '"barbara"', '"donald"', '"margaret"', "edsger"}
    assert {name for name in foreign for body in bodies if name in body} == set()
    await page.close()


async def test_user_without_rights_sees_which_role_to_request(browser: Browser, running: World) -> None:
    async with person(browser, running, "nobody-token") as nobody:
        page = await nobody.open("")
        await expect(page.locator("main")).to_contain_text("There is nothing here that you may see")
        await expect(page.locator("main")).to_contain_text("sluice-viewer")
        await page.goto(f"{running.url}/ui/me")
        await expect(page.locator("main")).to_contain_text("You have submitted nothing yet")


async def test_session_api_reports_the_rbac_rights_of_the_user(running: World, grace: Person) -> None:
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


# ------------------------------------------------------------------ axe-core

PAGES = (
    "",
    "me",
    "workloads",
    "workloads?user=ada&columns=name,namespace,clusterqueue,kind,priority,why",
    "workloads?group=user",
    "workloads?evicted=again",
    "usage",
    "usage?by=label",
    "usage?in=2026-Q4&timezone=Europe/Berlin",
    "budgets",
    "people",
    "flavors",
    "whatif",
    "audit",
    "cohorts/research",
    "queues/vision",
    "queues/vision?tab=running",
    "queues/vision?tab=fair",
    "queues/legacy?tab=history",
    "namespaces/data/queues/nightly",
    "namespaces/vision/workloads/never-fits",
    "no/page",
)
NOTHING = (
    ("", "There is nothing here that you may see"),
    ("me", "You have submitted nothing yet"),
    ("workloads", "No workload matches"),
    ("queues/language", "You may not see this"),
)
"""Pages for a user without rights, and a text on each."""
EMPTY = (
    ("", "sluice create clusterqueue"),
    ("me", "You have submitted nothing yet"),
    ("workloads", "No workload matches"),
    ("usage", "Nothing was used"),
    ("people", "Nobody"),
    ("flavors", "sluice create flavor"),
    ("audit", "Each write through the API is kept here"),
)
"""Pages of a new installation without queues, and a text on each."""
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
# Rules whose result depends on colours and width; the others are checked in the light and wide case only.
OF_LOOKS = ("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size")


@pytest.mark.long
@pytest.mark.parametrize(
    ("scheme", "width", "rules"), [("light", 1280, WCAG), ("dark", 390, OF_LOOKS)], ids=["light", "dark"]
)
async def test_pages_have_no_accessibility_violations(
    running: World, browser: Browser, scheme: str, width: int, rules: tuple[str, ...]
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    options = json.dumps({"runOnly": rules, "resultTypes": ["violations"]})
    looks: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    await check_signed_out_pages(running, await browser.new_context(**looks), axe, options)
    async with person(browser, running, "nobody-token", **looks) as nobody:
        page = await nobody.open("")
        await page.evaluate(axe)
        for path, said in NOTHING:
            await page.evaluate(OPEN, path)
            await expect(page.locator("main")).to_contain_text(said)
            await assert_accessible(page, options, f"{path} of nobody")
        # Browsers log each response 403 as an error.
        nobody.faults[:] = [fault for fault in nobody.faults if "403" not in fault]
    async with person(browser, running, ADMIN_TOKEN, **looks) as someone:
        page = await someone.open("")
        await page.evaluate(axe)
        for path in PAGES:
            await page.evaluate(OPEN, path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await expect(page.locator(".loading")).to_have_count(0)
            await assert_accessible(page, options, path)
        await page.evaluate(OPEN, "queues/vision")
        await page.get_by_role("button", name="Edit quota").click()
        await assert_accessible(page, options, "a dialog")
        await page.keyboard.press("Escape")
        await page.evaluate(OPEN, "workloads?state=waiting")
        await page.get_by_role("button", name="Select all").click()
        await page.get_by_role("button", name="Hold").click()
        await expect(page.get_by_role("dialog")).to_contain_text("each by itself")
        await assert_accessible(page, options, "a dialog about many workloads")


async def check_signed_out_pages(running: World, context: BrowserContext, axe: str, options: str) -> None:
    """Check the pages before sign-in, after a wrong token, and after the end of the session."""
    page = await context.new_page()
    await page.goto(f"{running.url}/ui/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await page.evaluate(axe)
    await assert_accessible(page, options, "signing in")
    await page.get_by_label("Cluster token").fill("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_be_visible()
    await assert_accessible(page, options, "a wrong token")
    await page.get_by_label("Cluster token").fill(ADMIN_TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    await context.clear_cookies()
    await page.evaluate(OPEN, "queues/vision")
    await expect(page.locator(".notice")).to_contain_text("Your session has ended")
    await assert_accessible(page, options, "an ended session")
    await context.close()


@pytest.mark.long
async def test_each_page_of_an_empty_installation_shows_a_hint(browser: Browser, tmp_path: Path) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    options = json.dumps({"runOnly": WCAG, "resultTypes": ["violations"]})
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await asyncio.to_thread(lambda: asyncio.run(migrate(url)))
    async with (
        Store.open(url) as store,
        listening(create_app(store, checks={}, token=ADMIN_TOKEN), "127.0.0.1", 0) as address,
    ):
        context = await browser.new_context(viewport={"width": 390, "height": 800})
        assert (await context.request.post(f"{address}/login", data={"token": ADMIN_TOKEN})).ok
        page = await context.new_page()
        await page.goto(f"{address}/ui/")
        await page.evaluate(axe)
        for path, said in EMPTY:
            await page.evaluate(OPEN, path)
            await expect(page.locator("main")).to_contain_text(said)
            await assert_accessible(page, options, f"{path} without queues")
        await context.close()


async def assert_accessible(page: Page, options: str, where: str) -> None:
    """Assert that axe-core finds no violation, and that the page is not wider than the screen."""
    found = await page.evaluate(f"axe.run(document, {options})")
    violations = [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found["violations"]]
    assert violations == [], where
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{where} is too wide"
