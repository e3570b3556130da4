"""Dashboard with the longest names, the shortest reports and the smallest amounts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dashboard_people import Person, pending_record, person, put
from dashboard_world import ADMIN_TOKEN, World
from playwright.async_api import Browser, expect
from queue_objects import resource_group

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

PREFIX = "/apis/sluice.dev/v1"
LONGEST = f"{('f' * 60 + '.') * 4}{'g' * 9}"
"""Name of 253 characters, as many as Kubernetes permits."""


async def create(someone: Person, plural: str, **fields: Any) -> None:
    body = {"apiVersion": "sluice.dev/v1", "metadata": {"name": LONGEST}} | fields
    answer = await someone.context.request.post(
        f"{someone.url}{PREFIX}/{plural}", data=body, headers={"X-Requested-With": "test"}
    )
    assert answer.ok, await answer.text()


@pytest.mark.long
async def test_flavors_with_the_longest_names_fit_on_a_phone(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN, viewport={"width": 390, "height": 800}) as someone:
        await create(someone, "resourceflavors", kind="ResourceFlavor")
        groups = [resource_group(**{LONGEST: {"cpu": "4"}})]
        await create(someone, "clusterqueues", kind="ClusterQueue", spec={"resourceGroups": groups})
        page = await someone.open("flavors")
        await expect(page.get_by_role("link", name=LONGEST)).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_usage_report_includes_the_last_day_that_is_chosen(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        page = await someone.open("usage?by=user")
        day = datetime.fromtimestamp(running.scenario.now, UTC).date() - timedelta(days=1)
        await page.get_by_label("From").fill(day.isoformat())
        await page.get_by_label("To", exact=True).fill(day.isoformat())
        await expect(page.locator(".table-note").first).to_contain_text("hours in all")
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download CSV").click()
        text = (await (await download.value).path()).read_text()
        midnights = f",{day}T00:00:00Z,{day + timedelta(days=1)}T00:00:00Z,"
        assert all(midnights in line for line in text.splitlines()[1:])
        assert len(text.splitlines()) > 1


async def test_amounts_of_a_thousandth_are_not_shown_as_zero(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        spec = {"resourceGroups": [resource_group(a100={"cpu": "1m"})]}
        await create(someone, "clusterqueues", kind="ClusterQueue", metadata={"name": "tiny"}, spec=spec)
        page = await someone.open("queues/tiny")
        row = page.get_by_role("row").filter(has_text="CPU").first
        await expect(row).to_contain_text("0.001")


async def test_days_of_a_chart_are_those_of_the_report_west_of_greenwich(running: World, browser: Browser) -> None:
    last = datetime.fromtimestamp(running.scenario.now, UTC).date() - timedelta(days=1)
    first = last - timedelta(days=19)
    async with person(browser, running, ADMIN_TOKEN, timezone_id="America/Los_Angeles") as someone:
        page = await someone.open(f"usage?from={first}&to={last}")
        days = page.locator(".chart text.axis:not([text-anchor])")
        await expect(days.first).to_have_text(re.compile(rf"^{first.day} \w+"))


async def test_each_of_many_resources_can_be_chosen_by_its_own_name(running: World, browser: Browser) -> None:
    names = ["amd.com/gpu", "cpu", "ephemeral-storage", "example.com/fpga", "memory", "nvidia.com/gpu"]
    async with person(browser, running, ADMIN_TOKEN, viewport={"width": 390, "height": 800}) as someone:
        spec = {"resourceGroups": [resource_group(a100=dict.fromkeys(names, "7"))]}
        await create(someone, "clusterqueues", kind="ClusterQueue", metadata={"name": "many"}, spec=spec)
        page = await someone.open("queues/many")
        choice = page.get_by_label("Resource", exact=True)
        texts = ["GPU (amd)", "GPU", "CPU", "Memory", "Disk", "example.com/fpga"]
        await expect(choice.locator("option")).to_have_text(texts)
        await choice.select_option("example.com/fpga")
        await expect(page.locator("main")).to_contain_text("no workload held example.com/fpga")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_long_names_and_large_priorities_are_readable(running: World, browser: Browser) -> None:
    long = "m" * 63
    await put(running, pending_record(running, long, priority=1_000_000_000, queue=long))
    async with person(browser, running, ADMIN_TOKEN, viewport={"width": 390, "height": 800}) as someone:
        metadata = {"name": long, "namespace": "vision"}
        spec = {"clusterQueue": "vision"}
        await create(someone, "namespaces/vision/localqueues", kind="LocalQueue", metadata=metadata, spec=spec)
        page = await someone.open(f"namespaces/vision/workloads/{long}")
        await expect(page.get_by_role("navigation", name="Breadcrumb")).to_contain_text("mmm")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        name = "q" * 253
        await create(someone, "clusterqueues", kind="ClusterQueue", metadata={"name": name})
        page = await someone.open(f"queues/{name}")
        await page.get_by_role("button", name="Drain").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_in_viewport(ratio=1)
        await expect(dialog.get_by_role("button", name="Close")).to_be_in_viewport(ratio=1)
    async with person(browser, running, ADMIN_TOKEN, viewport={"width": 1440, "height": 800}) as someone:
        page = await someone.open("queues/vision")
        row = page.get_by_role("row").filter(has_text="mmm")
        assert await row.locator(".priority").evaluate("cell => cell.scrollWidth <= cell.clientWidth")
        assert await row.locator(".queue").evaluate("cell => cell.offsetHeight < cell.parentElement.offsetHeight")
        await expect(row.get_by_title(f"vision/{long}")).to_be_visible()


@pytest.mark.long
async def test_quota_with_a_quantity_in_any_form_can_be_edited(running: World, browser: Browser) -> None:
    async with person(browser, running, ADMIN_TOKEN) as someone:
        group = resource_group(a100={"cpu": "1e1", "memory": "5000000u"})
        spec = {"cohortName": "apart", "resourceGroups": [group]}
        await create(someone, "clusterqueues", kind="ClusterQueue", metadata={"name": "forms"}, spec=spec)
        page = await someone.open("queues/forms")
        await expect(page.get_by_role("row").filter(has_text="Memory").first).to_contain_text("5 B")
        await page.get_by_role("button", name="Edit quota").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("May lend, a100, CPU").fill("1E0")
        await expect(dialog.locator(".impact")).to_be_visible()
