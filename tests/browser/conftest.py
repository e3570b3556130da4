"""A real browser for the tests of pages, and who looks at the dashboard."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from dashboard_people import Person, person
from dashboard_world import ADMIN_TOKEN, World, world
from playwright.async_api import Browser, async_playwright, expect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# What is expected may take long on a busy machine; Playwright waits for five seconds.
expect.set_options(timeout=60_000)

# As root there is no sandbox; the rest keeps the browser from looking for its maker's servers.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Of what is expected on a page; the usual 5 s are too few for a machine with more to do than processors.
expect.set_options(timeout=30_000)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of a module; their loop_scope must be "module" too."""
    # The one without windows takes two thirds of the other's processor time.
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
    """A member of the namespace vision alone."""
    async with person(browser, running, "grace-token") as found:
        yield found
