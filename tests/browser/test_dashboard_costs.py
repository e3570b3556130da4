"""What usage and idle hours cost by a PriceBook, on the page Usage in a real browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dashboard_pages import check_accessible, opened, own_store, served
from playwright.async_api import Browser, expect

from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.ledger.measured_usage import Measured
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from tests.queue_objects import create_objects, price_book

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.costly]


async def test_cost_of_namespaces_is_shown_where_there_is_a_price_book(browser: Browser, tmp_path: Path):
    now = time.time()
    async with own_store(tmp_path) as store:
        epoch = await store.lead("test")
        for name, cores in (("team-a", 4), ("team-b", 12)):
            amounts = {"cpu": cores * 1000, "memory": 2**30}
            workload = Workload(name, name, "train", "main", 0, now - 7200, (PodSet("main", 1, amounts),))
            holds = Admission("cq", (PodSetAssignment("main", dict.fromkeys(amounts, "default"), amounts, 1),))
            record = WorkloadRecord(workload, State.FINISHED, now - 7200, finished_at=now - 3600)
            await store.commit(Changes(workloads=(record,), opened=(Opened(workload, holds, now - 7200),)), epoch=epoch)
            await store.commit(Changes(closed=(Closed(name, now - 3600, "Finished"),)), epoch=epoch)
        async with served(store) as address, opened(browser, address, "usage?by=namespace") as page:
            await expect(page.get_by_role("region", name="Usage", exact=True)).to_contain_text("team-b")
            for heading in ("Cost", "Held and not used"):
                await expect(page.get_by_role("heading", name=heading)).to_have_count(0)
            await create_objects(store, price_book("p", {"resource": "cpu", "perHour": "0.25"}))
            hour = now // 3600 * 3600 - 3600  # of which team-b held a part; all of it was measured, and a third used
            held = 12_000 * (now - 3600 - hour)
            measured = Measured(hour, "team-b", "cq", "main", "default", "cpu", held, held / 3)
            await store.measured_usage.add([measured], epoch=epoch)
            await page.reload()
            costs = page.get_by_role("region", name="Cost by Namespace")
            for name, cost, share in (("team-b", "3.00 EUR", "75 %"), ("team-a", "1.00 EUR", "25 %")):
                row = costs.get_by_role("row").filter(has_text=name)
                for text in (cost, share, "Memory of default"):
                    await expect(row).to_contain_text(text)
            idle = page.get_by_role("region", name="Idle by Namespace").get_by_role("row").filter(has_text="team-b")
            for text in ("67 %", f"{held * 2 / 3 / 3.6e6 * 0.25:.2f} EUR"):
                await expect(idle).to_contain_text(text)
            await expect(page.get_by_role("main")).to_contain_text("EUR by the prices of p in all, of full hours")
            await create_objects(store, price_book("q", {"resource": "cpu", "perHour": "0.25"}))
            await page.reload()
            await expect(page.get_by_role("main")).to_contain_text("none of the PriceBooks p, q has the name default")
            await check_accessible(page)
