"""Fixtures: a real browser, a running dashboard, and signed-in users."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dashboard_people import Person, person
from dashboard_world import ADMIN_TOKEN, World, world
from playwright.async_api import Browser, async_playwright, expect

# Chromium has no sandbox as root; the other options prevent requests to Google's servers.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Milliseconds that an expectation about a page waits at most; the default of 5 s is too short on a busy machine.
expect.set_options(timeout=60_000)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Browser shared by all tests of a module; their loop_scope must be "module", too."""
    # The headless shell takes two thirds of the processor time of full Chromium.
    executable = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if executable is None:
        hint = "install it (Debian: apt-get install chromium-headless-shell)"
        pytest.fail(f"there is no chromium; {hint}", pytrace=False)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("dashboard")) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def admin(browser: Browser, running: World) -> AsyncIterator[Person]:
    async with person(browser, running, ADMIN_TOKEN) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def grace(browser: Browser, running: World) -> AsyncIterator[Person]:
    """User with rights in the namespace vision only."""
    async with person(browser, running, "grace-token") as found:
        yield found
