"""Page of the demo in a real browser: the numbers of the account, live and at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from playwright.async_api import Page as Tab

from admission.cli.demo.account import SceneAccount
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.page import DemoPage
from admission.cli.demo.plan import PlannedJob, job_document, three_teams

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]

DONE = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 10}


class Demo:
    """Account with Jobs that tests change, and the page that shows it."""

    def __init__(self, noun: str = "Jobs") -> None:
        self.plan = replace(three_teams(jobs=20, nodes=10), noun=noun)
        self.account = SceneAccount(self.plan)
        self.seconds = 0.0
        self.page = DemoPage(self.account, lambda: self.seconds)
        for job in self.plan.jobs:
            self.show(job, suspend=True)

    def jobs_of(self, team: str) -> list[PlannedJob]:
        return [job for job in self.plan.jobs if job.team == team]

    def show(self, job: PlannedJob, *, suspend: bool = False, status: dict[str, Any] | None = None) -> None:
        document = job_document(self.plan, job)
        document["spec"]["suspend"] = suspend
        self.account.job(f"{job.team}/{job.name}", document | {"status": status or {}})

    def pod(self, job: PlannedJob, number: int) -> None:
        spec = job_document(self.plan, job)["spec"]["template"]["spec"]
        metadata = {"namespace": job.team, "uid": f"{job.name}-{number}"}
        self.account.pod(f"{job.team}/{job.name}-{number}", {"metadata": metadata, "spec": spec, "status": {}})

    async def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.account.advance(self.seconds)
        await self.page.publish()


@pytest_asyncio.fixture(loop_scope="module")
async def demo() -> AsyncIterator[Demo]:
    started = Demo()
    async with started.page:
        await started.pass_time(1.0)
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, demo: Demo) -> AsyncIterator[Tab]:
    """Open page. A message in its console, such as a violation of its content security policy, fails the test."""
    opened = await browser.new_page(viewport={"width": 1100, "height": 900})
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text))
    opened.on("pageerror", lambda error: faults.append(str(error)))
    await opened.goto(demo.page.url)
    await expect(opened.locator("#state")).to_have_text("live, 1 s")
    yield opened
    assert faults == []


async def test_numbers_and_bars_follow_the_account(demo: Demo, tab: Tab) -> None:
    for job in (*demo.jobs_of("students")[:2], demo.jobs_of("platform")[0]):
        demo.show(job)
    demo.show(demo.jobs_of("research")[0], status=DONE)
    await demo.pass_time(1.0)
    await expect(tab.locator("#state")).to_have_text("live, 2 s")
    for counter, value in {"waiting": "16", "running": "3", "done": "1", "share": "60%"}.items():
        await expect(tab.locator(f"#{counter}")).to_have_text(value)
    students = tab.get_by_role("img", name="students: 40 of 20 CPUs, 20 borrowed")
    await expect(students.locator(".c1")).to_have_attribute("width", "20%")
    await expect(students.locator(".lent")).to_have_attribute("width", "20%")
    await expect(tab.get_by_role("img", name="platform: 20 of 40 CPUs", exact=True)).to_be_visible()
    await expect(tab.get_by_role("img", name="Together: 60 of 100 CPUs", exact=True)).to_be_visible()
    await expect(tab.locator("#check")).to_contain_text("Never exceeded")
    await expect(tab.locator("#counts")).to_contain_text("Jobs waiting")


async def test_page_uses_the_noun_of_the_plan(browser: Browser) -> None:
    demo = Demo("objects")
    async with demo.page:
        await demo.pass_time(1.0)
        tab = await browser.new_page()
        await tab.goto(demo.page.url)
        await expect(tab.locator("#counts")).to_contain_text("Objects waiting")
        await expect(tab.locator("#legend")).to_contain_text("Objects waiting (right scale)")
        assert "Jobs" not in (await tab.locator("main").inner_text())
        await tab.close()


async def test_page_opened_late_shows_the_whole_history(demo: Demo, browser: Browser) -> None:
    for _ in range(9):
        await demo.pass_time(1.0)
    late = await browser.new_page()
    await late.goto(demo.page.url)
    await expect(late.locator("#state")).to_have_text("live, 10 s")
    path = await late.locator("#chart path.waits").get_attribute("d")
    assert path is not None
    assert len(path.split("L")) == 10


async def test_the_result_is_shown_at_the_end(demo: Demo, tab: Tab) -> None:
    await expect(tab.locator("#closing")).to_be_hidden()
    for job in demo.plan.jobs:
        demo.show(job)
        demo.show(job, status=DONE)
    await demo.page.publish(close(demo.account, Costs({"PATCH": 20, "POST": 20}, 3), 1.0))
    await expect(tab.locator("#state")).to_have_text("ended after 1 s")
    await expect(tab.locator("#promises li.kept").first).to_have_text("✓ all 20 Jobs ran")
    await expect(tab.locator("#promises li.broken").first).to_contain_text(
        "did not run exactly once"
    )  # because there were no pods
    await expect(tab.get_by_role("row", name="research")).to_contain_text("10")
    await expect(tab.locator("#figures")).to_contain_text("2.00 per Job (20 PATCH, 20 POST)")


async def test_exceeded_quota_is_shown(demo: Demo, tab: Tab) -> None:
    for number in range(31):
        demo.pod(demo.jobs_of("platform")[0], number)
    await demo.pass_time(1.0)
    await expect(tab.locator("#check.bad")).to_contain_text("Quota was EXCEEDED in 1 of 31 checks")


async def test_demo_page_has_a_strict_content_security_policy(demo: Demo, browser: Browser) -> None:
    opened = await browser.new_page()
    answer = await opened.goto(demo.page.url)
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
