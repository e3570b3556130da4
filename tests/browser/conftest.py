"""A real browser for the tests of pages."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
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
    executable = shutil.which("chromium")
    if executable is None:
        pytest.fail("there is no chromium; install it (Debian: apt-get install chromium)", pytrace=False)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        yield started
        await started.close()
