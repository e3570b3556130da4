"""A page of the dashboard on a store of its own, signed in as admin, and checks of its accessibility."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page

from admission.api.application import create_app, listening
from admission.api.resources.explaining_engine import NoController
from admission.store.database.migrations import migrate
from admission.store.store import Store

TOKEN = "t"


@asynccontextmanager
async def own_store(folder: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{folder}/sluice.db"
    await migrate(url)
    async with Store.open(url) as store:
        yield store


@asynccontextmanager
async def served(store: Store, **options: Any) -> AsyncIterator[str]:
    """Serve the API and the dashboard, and return their address. `options`: of `create_app`."""
    app = create_app(store, **{"token": TOKEN, "checks": {}, "controller": NoController(), **options})
    async with listening(app, "127.0.0.1", 0) as address:
        yield address


@asynccontextmanager
async def opened(
    browser: Browser, address: str, path: str, look: tuple[str, int] = ("light", 1280), *, token: str = TOKEN
) -> AsyncIterator[Page]:
    """Open a page as admin. `look`: color scheme, and width of the window."""
    scheme, width = look
    viewport = {"width": width, "height": 900}
    context = await browser.new_context(color_scheme=scheme, viewport=viewport, bypass_csp=True)
    assert (await context.request.post(f"{address}/login", data={"token": token})).ok
    page = await context.new_page()
    await page.goto(f"{address}/ui/{path}")
    yield page
    await context.close()


async def check_accessible(page: Page, part: str = "html") -> None:
    """Check a part of the page (a CSS selector) by axe-core, and that the page is not wider than the window."""
    await page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = (await page.evaluate(f"axe.run('{part}')"))["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
