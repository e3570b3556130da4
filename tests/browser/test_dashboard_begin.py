"""Dashboard of a new installation: before there are queues, and before they have quota."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from dashboard_people import Person
from dashboard_world import ADMIN_TOKEN
from playwright.async_api import Browser, Route, expect
from queue_objects import cluster_queue, create_objects, flavor, manifest

from admission.api.application import create_app, listening
from admission.cli.main import main
from admission.model.workload import PodSet, Workload
from admission.store.database.migrations import migrate
from admission.store.records import Changes, State, WorkloadRecord
from admission.store.store import Store

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]


@asynccontextmanager
async def new_installation(browser: Browser, folder: Path) -> AsyncIterator[tuple[Store, Person]]:
    """Serve an empty store, without a cluster, to a signed-in admin whose console must stay empty."""
    url = f"sqlite:///{folder / 'sluice.db'}"
    await asyncio.to_thread(lambda: asyncio.run(migrate(url)))
    async with (
        Store.open(url) as store,
        listening(create_app(store, checks={}, token=ADMIN_TOKEN), "127.0.0.1", 0) as address,
    ):
        context = await browser.new_context()
        assert (await context.request.post(f"{address}/login", data={"token": ADMIN_TOKEN})).ok
        someone = Person(context, address)
        yield store, someone
        await context.close()
        assert someone.faults == []


async def test_overview_of_queues_without_quota_says_so_and_links_to_them(browser: Browser, tmp_path: Path) -> None:
    async with new_installation(browser, tmp_path) as (store, someone):
        await create_objects(store, manifest("ClusterQueue", "new"))
        page = await someone.open("")
        await expect(page.locator("main")).to_contain_text("No quota yet")
        await page.locator("main").get_by_role("link", name="new").click()
        await page.get_by_role("button", name="Edit quota").click()
        await expect(page.get_by_role("dialog")).to_contain_text("has no resource groups. Add them to its manifest")


@pytest.mark.parametrize("path", ["", "flavors"])
async def test_commands_that_an_empty_page_shows_succeed(path: str, browser: Browser, tmp_path: Path) -> None:
    async with new_installation(browser, tmp_path) as (_, someone):
        page = await someone.open(path)
        commands = (await page.locator("main pre").inner_text()).strip().splitlines()
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "sluice"
            done = await asyncio.to_thread(
                CliRunner().invoke, main, [*arguments, "--server", someone.url], env={"SLUICE_TOKEN": ADMIN_TOKEN}
            )
            assert done.exit_code == 0, done.output
        await expect(page.locator("main pre")).to_have_count(0)


async def test_attention_list_counts_what_it_does_not_show(browser: Browser, tmp_path: Path) -> None:
    async with new_installation(browser, tmp_path) as (store, someone):
        stopped = (cluster_queue(f"stopped-{number}", flavor="missing", stopPolicy="Hold") for number in range(9))
        await create_objects(store, *stopped)
        page = await someone.open("")
        attention = page.get_by_role("region", name="Needs attention")
        await expect(attention.get_by_role("listitem").filter(has_text="stopped-")).to_have_count(6)
        await expect(attention).to_contain_text("and 3 more")


async def test_all_is_well_only_if_everything_is_known_and_is(browser: Browser, tmp_path: Path) -> None:
    async with new_installation(browser, tmp_path) as (store, someone):
        await create_objects(store, cluster_queue("open", flavor="missing"), flavor("missing"))
        page = await someone.open("")
        attention = page.get_by_role("region", name="Needs attention")
        await expect(attention).to_contain_text("All is well")

        answers = asyncio.Event()

        async def late(route: Route) -> None:
            await answers.wait()
            await route.fulfill(status=500, body="{}")

        await page.route("**/reports/attention*", late)
        await page.reload()
        await expect(attention).to_be_visible()
        await expect(attention).not_to_contain_text("All is well")
        answers.set()
        await expect(attention).to_contain_text("Not all is known")
        await expect(attention).not_to_contain_text("All is well")
        someone.faults[:] = [fault for fault in someone.faults if "500" not in fault]
        await page.unroute("**/reports/attention*")

        workload = Workload("uid-1", "team-a", "broken", "main", 0, time.time(), (PodSet("main", 1, {"cpu": 1000}),))
        failed = WorkloadRecord(workload, State.FINISHED, time.time(), finished_at=time.time(), outcome="Failed")
        await store.commit(Changes((failed,)), epoch=await store.lead("test", elected=True))
        await page.reload()
        await expect(attention).to_contain_text("broken")
        await expect(attention).not_to_contain_text("All is well")
