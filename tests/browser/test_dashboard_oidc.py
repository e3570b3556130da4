"""Sign-in to the dashboard at an OpenID Connect issuer, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dashboard_world import World, world
from playwright.async_api import Browser, BrowserContext, expect

from admission.api.auth.oidc.client import OidcClient
from tests.oidc_issuer import CLIENT_ID, Issuer, issuer
from tests.ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def accounts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Issuer]:
    async with issuer(tmp_path_factory.mktemp("issuer")) as found:
        found.claims = {"sub": "grace"}
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, accounts: Issuer) -> AsyncIterator[World]:
    port = free_port()
    client = OidcClient(
        issuer=accounts.url,
        client_id=CLIENT_ID,
        url=f"http://127.0.0.1:{port}",
        session_seconds=3600.0,
        client_secret_file=accounts.secret_file,
        ca_file=accounts.ca_file,
    )
    async with world(tmp_path_factory.mktemp("dashboard"), pending=8, past=20, port=port, oidc=client) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    # The browser does not trust the certificate authority of the tests.
    context = await browser.new_context(ignore_https_errors=True)
    yield context
    await context.close()


async def test_sign_in_at_the_issuer_returns_to_the_requested_page(
    running: World, accounts: Issuer, context: BrowserContext
) -> None:
    page = await context.new_page()
    await page.goto(f"{running.url}/ui/namespaces/vision/workloads/never-fits?from=7d")
    await page.get_by_role("button", name=f"Sign in at {accounts.url.removeprefix('https://')}").click()
    await page.get_by_role("link", name="Alice").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("never-fits")
    await expect(page.locator(".who")).to_have_text("grace")
    assert page.url == f"{running.url}/ui/namespaces/vision/workloads/never-fits?from=7d"
    assert await page.evaluate("JSON.stringify([{...sessionStorage}, document.cookie])") == '[{},""]'
    names = {cookie["name"]: cookie["httpOnly"] for cookie in await context.cookies(running.url)}
    assert names == {"sluice-session": True}
    await page.go_back()
    await page.go_forward()
    await expect(page.locator(".who")).to_have_text("grace")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await expect(page).to_have_url(f"{running.url}/ui/")  # the page navigates there after the response of the server
    assert await context.cookies(running.url) == []


async def test_sign_in_begun_in_another_browser_is_refused_and_can_be_restarted(
    running: World, accounts: Issuer, context: BrowserContext
) -> None:
    page = await context.new_page()
    await page.goto(f"{running.url}/ui/sign-in?code=theirs&state=theirs&error_description=<b>Call+us</b>")
    await expect(page.get_by_role("alert")).to_have_text(
        "this sign-in was not begun in this browser, or it took too long; start again"
    )
    assert page.url == f"{running.url}/ui/"
    await page.get_by_role("button", name="Sign in at").click()
    await page.get_by_role("link", name="Alice").click()
    await expect(page.locator(".who")).to_have_text("grace")


async def test_sign_in_never_redirects_to_another_site(
    running: World, accounts: Issuer, context: BrowserContext
) -> None:
    page = await context.new_page()
    await page.goto(f"{running.url}//evil.example/ui/")
    await page.goto(f"{running.url}/ui/sign-in?next=https://evil.example&returnTo=//evil.example")
    await page.get_by_role("button", name="Sign in at").click()
    await page.get_by_role("link", name="Alice").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("My work")
    assert page.url == f"{running.url}/ui/"


@pytest.mark.long
async def test_sign_in_by_token_works_while_the_issuer_is_down(
    running: World, accounts: Issuer, context: BrowserContext
) -> None:
    page = await context.new_page()
    await page.goto(f"{running.url}/ui/")
    await page.get_by_role("button", name="Sign in at").click()
    alice = page.get_by_role("link", name="Alice")
    await alice.wait_for()
    accounts.status = 500
    await alice.click()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be used for now; sign in with a token")
    accounts.status = 200
    await page.get_by_label("Cluster token").fill("grace-token")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("My work")
