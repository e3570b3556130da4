"""Search for queues, and days of reports, in tests of the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.async_api import Page


async def search(page: Page, text: str) -> None:
    """Focus the search field by its key, and type."""
    field = page.get_by_role("combobox", name="Search queues and workloads")
    # The page handles keys only some time after the first paint.
    while not await field.evaluate("field => field === document.activeElement"):
        await page.keyboard.press("/")
    await page.keyboard.type(text)


def finished_days() -> str:
    """Return parameters of a report about days that are over, so that running workloads add nothing to it."""
    today = datetime.now(UTC).date()
    return f"from={today - timedelta(days=29)}&to={today - timedelta(days=1)}"
