"""Dashboard in a real browser: the page of all workloads, and what one may do to them there and on their own pages."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from dashboard_pages import check_accessible
from dashboard_people import Person, admit, pending_record, person, put
from dashboard_world import World
from playwright.async_api import Browser, Locator, Page, expect

from admission.model.terms import Terms, parse_after
from admission.store.records import State

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]


def listed(page: Page) -> Locator:
    return page.get_by_role("table", name="Workloads").locator(".vrow")


async def test_filters_are_in_the_address_and_groups_lead_to_their_lists(running: World, admin: Person) -> None:
    ended = pending_record(running, "broke-tonight", user="grace")
    await put(running, ended)
    at = running.scenario.now
    failed = replace(ended, state=State.FINISHED, finished_at=at, outcome="Failed", message="Backoff limit reached")
    await put(running, failed)
    page = await admin.open("workloads?from=1h")
    await page.get_by_role("combobox", name="State").select_option("Failed")
    await expect(page).to_have_url(re.compile(r"/ui/workloads\?from=1h&state=failed$"))
    row = listed(page).filter(has_text="broke-tonight")
    await expect(row).to_contain_text("Backoff limit reached")
    await expect(row.locator(".badge.bad")).to_have_text("Failed")
    await page.get_by_label("Group by").select_option("By User")
    groups = page.get_by_role("region", name="Workloads by User")
    await expect(groups.get_by_role("row").filter(has_text="grace").get_by_role("cell").nth(1)).to_have_text("1")
    await groups.get_by_role("link", name="grace").click()
    await expect(page.get_by_role("heading", level=2, name="List").locator("..")).to_contain_text("1 workload")
    await expect(listed(page)).to_contain_text(["broke-tonight"])
    assert page.url.endswith("/ui/workloads?from=1h&state=failed&user=grace")
    await page.reload()
    await expect(listed(page)).to_contain_text(["broke-tonight"])
    await page.get_by_role("button", name="Clear").click()
    await expect(listed(page).filter(has_text="Admitted").first).to_be_visible()
    await page.get_by_label("Name, user or uid").fill("tonight")
    await expect(listed(page)).to_contain_text(["broke-tonight"])
    await page.close()


async def test_parameters_that_there_are_not_are_ignored_or_explained(admin: Person) -> None:
    page = await admin.open("workloads?state=constructor&group=toString&order=__proto__&columns=name,valueOf,user")
    await expect(listed(page).first.locator("[data-label=User]")).to_be_visible()
    await page.goto(f"{admin.url}/ui/workloads?from=yesterday")
    await expect(page.get_by_role("alert")).to_contain_text('from: "yesterday" is not a time')
    admin.faults[:] = [fault for fault in admin.faults if "400" not in fault]
    await page.close()


async def test_columns_and_order_are_chosen(admin: Person) -> None:
    page = await admin.open("workloads?state=waiting&order=priority")
    await page.get_by_text("Columns").click()
    await page.get_by_role("checkbox", name="Priority").check()
    await page.get_by_role("checkbox", name="User").uncheck()
    await expect(page).to_have_url(re.compile(r"columns=name%2Cqueue%2Cstate%2Cwhy%2Crequests%2Ctime%2Cpriority$"))
    await expect(listed(page).first.locator("[data-label=Priority]")).to_have_text("100")
    await expect(listed(page).first.locator("[data-label=User]")).to_have_count(0)
    await expect(listed(page).filter(has_text="WaitingForQuota").first).to_contain_text(re.compile(r"needs \d+ GPU \("))
    await page.close()


async def test_several_workloads_are_held_with_a_reason_and_the_change_is_undone(running: World, admin: Person) -> None:
    await put(running, *(pending_record(running, f"many-{number}") for number in range(3)))
    page = await admin.open("workloads?find=many-")
    for number in (0, 2):
        await page.get_by_label(f"Select many-{number}").check()
    await page.get_by_role("button", name="Hold").click()
    dialog = page.get_by_role("dialog", name="Hold 2 workloads")
    await expect(dialog).to_contain_text("Nothing changes at once")
    await expect(dialog.get_by_role("button", name="Hold")).to_be_disabled()
    await dialog.get_by_label("Reason").fill("The file server is full")
    await dialog.get_by_role("button", name="Hold").click()
    await expect(dialog).to_have_count(0)
    await expect(listed(page).filter(has_text="On hold")).to_have_count(2)
    await expect(page.locator(".toast")).to_contain_text("2 workloads were put on hold.")
    audit = await admin.open("audit?kind=Workload&name=many-2")
    await expect(audit.get_by_role("region", name="Changes")).to_contain_text("The file server is full")
    await audit.close()
    await page.get_by_role("button", name="Undo").click()
    await expect(listed(page).filter(has_text="On hold")).to_have_count(0)
    await page.close()


async def test_a_workload_is_moved_prioritised_and_released_on_its_own_page(running: World, admin: Person) -> None:
    record = pending_record(running, "steered", priority=0)
    await put(running, record)
    await admit(running, record)
    page = await admin.open("namespaces/vision/workloads/steered")
    badge = page.locator(".page-title .badge")
    await expect(badge).to_have_text("Admitted")
    await page.get_by_role("button", name="Move").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Choose a LocalQueue")
    await dialog.get_by_label("LocalQueue").select_option("express")
    await expect(dialog).to_contain_text("1 workload would be evicted")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Prioritise").click()
    await dialog.get_by_label("Priority").fill("high")
    await expect(dialog).to_contain_text("Give a whole number")
    await dialog.get_by_label("Priority").fill("77")
    await dialog.get_by_label("Reason").fill("The paper is due")
    await dialog.get_by_role("button", name="Prioritise").click()
    await expect(page.get_by_role("region", name="What it asks for")).to_contain_text(re.compile(r"Priority\s*77"))
    request = page.context.request
    address = f"{running.url}/apis/sluice.dev/v1/namespaces/vision/workloads/steered"
    kept = {"Content-Type": "application/merge-patch+json", "X-Requested-With": "sluice-dashboard"}
    assert (await request.patch(address, data={"spec": {"active": False}}, headers=kept)).ok
    await page.get_by_role("button", name="Release").click()
    await dialog.get_by_label("Reason").fill("It may run after all")
    await dialog.get_by_role("button", name="Release").click()
    await expect(page.get_by_role("button", name="Hold")).to_be_visible()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("button", name="Release")).to_be_visible()
    assert (await (await request.get(address)).json())["spec"]["active"] is False
    await page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_dependencies_are_a_graph_whose_boxes_lead_to_their_workloads(
    running: World, browser: Browser, scheme: str, width: int
) -> None:
    def named(name: str) -> str:
        return f"{name}-{scheme}"

    terms = Terms(after=parse_after(f"ok(job/{named('prep')}),any({named('none')})"))
    prep = pending_record(running, named("prep"), kind="Job")
    failed = replace(prep, state=State.FINISHED, finished_at=running.scenario.now, outcome="Failed", message="Exit 1")
    waits = Terms(after=parse_after(f"ok({named('fit')})"))
    await put(running, prep)
    await put(
        running,
        failed,
        pending_record(running, named("fit"), kind="Job", terms=terms),
        pending_record(running, named("report"), kind="Job", terms=waits),
    )
    async with person(
        browser, running, "grace-token", color_scheme=scheme, viewport={"width": width, "height": 800}
    ) as one:
        page = await one.open(f"namespaces/vision/workloads/{named('fit')}")
        graph = page.get_by_role("region", name="Dependencies")
        before = graph.get_by_role("list", name="It starts after").get_by_role("listitem")
        await expect(before).to_have_text([re.compile("Failed.*after success"), re.compile("Does not exist.*any end")])
        await expect(graph.get_by_role("list", name="These wait for it")).to_contain_text(named("report"))
        await check_accessible(page)
        await graph.get_by_role("link", name=named("prep")).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(named("prep"))
        after = page.get_by_role("region", name="Dependencies").get_by_role("list", name="These wait for it")
        await expect(after.get_by_role("link")).to_have_text([named("fit")])


async def test_what_a_user_may_not_do_is_not_offered(running: World, browser: Browser, grace: Person) -> None:
    await put(running, pending_record(running, "offered"), pending_record(running, "elsewhere", "language"))
    page = await grace.open("workloads?find=offered")
    await expect(listed(page)).to_contain_text(["offered"])
    await page.get_by_label("Select offered").check()
    await expect(page.get_by_role("group", name="Selected workloads").locator(".button")).to_have_text(["Cancel"])
    await page.get_by_label("Name, user or uid").fill("elsewhere")
    await expect(page.locator("main")).to_contain_text("No workload matches")
    await page.goto(f"{grace.url}/ui/namespaces/vision/workloads/offered")
    await expect(page.get_by_role("button", name="Copy link")).to_be_visible()
    await expect(page.get_by_role("button", name="Hold")).to_have_count(0)
    await page.close()
    async with person(browser, running, "lead-token") as lead:
        page = await lead.open("workloads?find=offered")
        await page.get_by_label("Select offered").check()
        await expect(page.get_by_role("group", name="Selected workloads").locator(".button")).to_have_text(
            ["Move", "Prioritise"]
        )


async def test_workloads_are_cancelled_after_a_confirmation_that_names_them(running: World, grace: Person) -> None:
    cluster = running.sandbox.local("admin")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}}
    for name in ("gone-1", "gone-2"):
        made = await cluster.create("jobs", "vision", {"metadata": {"name": name}, "spec": {"template": template}})
        record = pending_record(running, name)
        workload = replace(record.workload, uid=made["metadata"]["uid"], api_version="batch/v1", kind="Job")
        await put(running, replace(record, workload=workload))
    page = await grace.open("workloads?find=gone-")
    await page.get_by_role("button", name="Select all").click()
    button = page.get_by_role("group", name="Selected workloads").get_by_role("button", name="Cancel")
    await button.click()
    dialog = page.get_by_role("dialog", name="Cancel 2 workloads")
    for name in ("gone-1", "gone-2"):
        await expect(dialog).to_contain_text(f"Job vision/{name}")
    await check_accessible(page, "dialog")
    await dialog.get_by_role("button", name="Keep").click()
    assert cluster.get("jobs", "vision", "gone-1") is not None
    await button.click()
    await dialog.get_by_label("Reason").fill("The data is wrong")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(dialog).to_have_count(0)
    await expect(page.locator(".toast")).to_contain_text("2 workloads were cancelled.")
    await expect(page.locator(".toast").get_by_role("button", name="Undo")).to_have_count(0)
    assert [cluster.get("jobs", "vision", name) for name in ("gone-1", "gone-2")] == [None, None]
    await page.goto(f"{grace.url}/ui/namespaces/vision/workloads/gone-1")
    await expect(page.locator("main")).to_contain_text("deletion ordered by grace: The data is wrong")
    await page.close()


async def test_a_refused_change_says_of_which_workload(running: World, admin: Person) -> None:
    one, two = pending_record(running, "refused-1"), pending_record(running, "refused-2")
    await put(running, one, two)
    page = await admin.open("workloads?find=refused-")
    await page.get_by_role("button", name="Select all").click()
    await page.get_by_role("button", name="Hold").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Nothing changes at once")
    done = replace(two, state=State.FINISHED, finished_at=running.scenario.now, outcome="Succeeded", message="")
    await put(running, done)
    await dialog.get_by_label("Reason").fill("Late")
    await dialog.get_by_role("button", name="Hold").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("1 of 2 were not changed. vision/refused-2: ")
    await expect(dialog.get_by_role("alert")).to_contain_text("is finished")
    await page.keyboard.press("Escape")
    await expect(listed(page).filter(has_text="On hold")).to_contain_text(["refused-1"])
    admin.faults[:] = [fault for fault in admin.faults if "409" not in fault]
    await page.close()


async def test_the_overview_names_what_failed_and_what_does_not_start(running: World, admin: Person) -> None:
    at = running.scenario.now
    broken, stuck = pending_record(running, "broke-just-now"), pending_record(running, "no-node", "speech")
    text = "1 of 1 pods cannot be scheduled: 0/3 nodes are available"
    starts: dict[str, Any] = {"state": State.ADMITTED, "admitted_at": at, "cleared_at": at, "message": ""}
    await put(running, replace(stuck, **(starts | {"reason": "PodsUnscheduled", "message": text})))
    done: dict[str, Any] = {"state": State.FINISHED, "finished_at": at, "outcome": "Failed", "reason": "Failed"}
    await put(running, replace(broken, **done, message="Backoff limit reached"))
    report = f"{running.url}/apis/sluice.dev/v1/reports/attention"  # the server caches the report for a moment
    while not (await (await admin.context.request.get(report)).json())["notStarted"]["count"]:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    page = await admin.open("")
    attention = page.get_by_role("region", name="Needs attention")
    await expect(attention.get_by_role("listitem").filter(has_text="broke-just-now")).to_contain_text("Backoff limit")
    await expect(attention.get_by_role("listitem").filter(has_text="no-node")).to_contain_text(text)
    await expect(attention).not_to_contain_text("All is well")
    await attention.get_by_role("link", name="no-node").click()
    await expect(page.locator(".page-title .badge.bad")).to_have_text("Not started")
    await page.close()


async def test_my_work_shows_failures_first_and_folds_what_waits_for_the_same_reason(
    running: World, grace: Person
) -> None:
    at = running.scenario.now
    lost = replace(
        pending_record(running, "lost-tonight", user="grace"),
        state=State.FINISHED, finished_at=at, outcome="Failed", message="Backoff limit reached",
    )  # fmt: skip
    await put(running, lost, *(pending_record(running, f"fold-{number}", user="grace") for number in range(9)))
    page = await grace.open("")
    await expect(page.get_by_role("heading", level=1)).to_have_text("My work")
    failed = page.get_by_role("table", name="Failed workloads")
    await expect(failed.locator(".vrow").filter(has_text="lost-tonight")).to_contain_text("Backoff limit reached")
    waiting = page.get_by_role("region", name="Waiting")
    await expect(waiting.locator(".work-group").first).to_contain_text("never-fits")
    await expect(waiting.locator(".badge.bad").first).to_have_text("Cannot run")
    folded = waiting.locator("details").first
    await expect(folded.get_by_role("listitem").first).to_be_hidden()
    await folded.locator("summary").click()
    await expect(folded.get_by_role("listitem").first).to_be_visible()
    await page.close()
