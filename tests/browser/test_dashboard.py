"""Dashboard in a real browser: contents of the pages, live updates, dialogs, search, and access by users' rights."""

from __future__ import annotations

import asyncio
import csv
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from dashboard_people import FOCUSED, OPEN, Person, admit, check_pods_of_other_kinds, pending_record, person, put
from dashboard_queues import finished_days, search
from dashboard_scenario import HOSTILE, RTL
from dashboard_world import ADMIN_TOKEN, World
from playwright.async_api import Browser, expect
from queue_objects import manifest

from admission.api.resources.leader_view import LastAudit
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.records import LastEviction

pytestmark = [pytest.mark.browser, pytest.mark.costly, pytest.mark.asyncio(loop_scope="module")]

PREFIX = "/apis/sluice.dev/v1"


@pytest.mark.long
async def test_undelivered_notifications_are_shown_to_users_with_read_access(running: World, browser: Browser) -> None:
    store, epoch = running.store, running.scenario.epoch
    for namespace in ("vision", "language"):
        spec = {"receiver": "pager", "events": ["Finished"]}
        document = manifest("Subscription", "pager", namespace=namespace, spec=spec)
        written = await store.queues.create(parse_manifest(document), author=Author("ada"))
        text = f"receiver of {namespace} answers 500 {HOSTILE}"
        await store.notifications.note_fault(written.metadata.uid, text, at=running.scenario.now, epoch=epoch)
    for token, seen, hidden in (("viewer-token", "vision/pager", ""), ("grace-token", "vision/pager", "language")):
        async with person(browser, running, token) as someone:
            page = await someone.open("")
            attention = page.get_by_role("region", name="Needs attention")
            await expect(attention).to_contain_text("Notifications that are not delivered")
            await expect(attention).to_contain_text(f"{seen}receiver of vision answers 500 {HOSTILE}0 waiting")
            if hidden:
                assert hidden not in await page.content()
            else:
                await expect(attention).to_contain_text("language/pager")
    for namespace in ("vision", "language"):
        await store.queues.delete("Subscription", "pager", namespace=namespace, author=Author("ada"))


async def test_overview_shows_the_quota_tree_and_the_attention_list(admin: Person) -> None:
    page = await admin.open("")
    tree = page.get_by_role("region", name="Quota tree")
    for name in ("company", "research", "products", "vision", "language", "ads"):
        await expect(tree.get_by_role("row").filter(has_text=name).first).to_be_visible()
    await expect(tree.get_by_role("row").filter(has_text="vision")).to_contain_text("16")
    attention = page.get_by_role("region", name="Needs attention")
    await expect(attention).to_contain_text("Can never run as they arenever-fits")
    await expect(attention).to_contain_text(re.compile(r"legacy.*is stopped"))
    await page.get_by_role("button", name="CPU", exact=True).click()
    await expect(page).to_have_url(re.compile(r"resource=cpu"))
    await expect(tree.get_by_role("row").filter(has_text="vision")).to_contain_text("320")
    await tree.get_by_role("button", name="Close research").click()
    await expect(tree.get_by_role("link", name="vision")).to_have_count(0)
    await page.close()


async def test_ages_are_right_if_the_clock_of_the_browser_is_wrong(running: World, browser: Browser) -> None:
    await put(running, pending_record(running, "skewed"), story="not enough GPUs")
    async with person(browser, running, ADMIN_TOKEN) as someone:
        await someone.context.add_init_script("const real = Date.now; Date.now = () => real() + 3 * 86400000;")
        page = await someone.open("namespaces/vision/workloads/skewed")
        story = page.get_by_role("region", name="What happened")
        await expect(story).to_contain_text(re.compile(r", for \d+ (s|min) so far"))


async def test_open_pages_show_an_admission_without_reload(running: World, admin: Person, grace: Person) -> None:
    record = pending_record(running, "watched", user="grace")
    await put(running, record)
    mine, queue = await grace.open("me"), await admin.open("queues/vision?tab=running")
    workload = await admin.open("namespaces/vision/workloads/watched")
    # Hidden pages are not updated, so bring a page to the front before a look at its first state.
    await mine.bring_to_front()
    await mine.locator(".work-group details:has-text('watched') summary").click()
    await expect(mine.get_by_role("listitem").filter(has_text="watched")).to_contain_text("not enough GPUs")
    await workload.bring_to_front()
    await expect(workload.locator(".page-title .badge")).to_have_text("Pending")
    await admit(running, record)
    await expect(workload.locator(".page-title .badge")).to_have_text("Admitted")
    await expect(mine.get_by_role("table", name="Running workloads")).to_contain_text("watched")
    await expect(queue.get_by_role("table", name="Running workloads")).to_contain_text("watched")
    for page in (mine, queue, workload):
        await page.close()


async def test_workload_page_explains_why_a_workload_is_pending(admin: Person) -> None:
    page = await admin.open("namespaces/vision/workloads/never-fits")
    why = page.get_by_role("region", name="Why it waits")
    await expect(why).to_contain_text("GPU (a100): at most")
    missing = why.get_by_role("region", name="What is missing").get_by_role("row").nth(1)
    await expect(missing).to_contain_text("200")
    await expect(why).to_contain_text("ask for less, or have an admin raise")
    await why.get_by_text("More").click()
    await expect(why).to_contain_text("too little by the nominalQuota")
    await expect(page.get_by_role("region", name="What happened")).to_contain_text("ExceedsMaxQuota")
    await page.close()


async def test_back_button_restores_the_previous_page_with_its_filters(admin: Person) -> None:
    page = await admin.open("?resource=cpu")
    await page.get_by_role("link", name="vision").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("vision")
    await page.get_by_role("tab", name="History").click()
    await expect(page.get_by_role("tabpanel")).to_contain_text("The deadline is overGPU in a100, nominalQuota 24 16")
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    await expect(page.get_by_role("group", name="Resource").get_by_role("button", name="CPU")).to_have_attribute(
        "aria-pressed", "true"
    )
    await page.close()


async def test_overview_lists_preemptions_in_vain_and_audit_differences(running: World, admin: Person) -> None:
    preemptor, victim = pending_record(running, "still-waits"), pending_record(running, "gave-way")
    said = f"Preempted to accommodate a workload (UID: {preemptor.workload.uid}) due to reclamation within the cohort"
    eviction = LastEviction("Preempted", said, running.scenario.now - 600, "InCohortReclamation")
    await put(running, preemptor, replace(victim, eviction=eviction))
    running.deciding.audited = LastAudit(running.scenario.now, {"NotStarted": 2, "NotStopped": 0})
    report = f"{running.url}/apis/sluice.dev/v1/reports/attention"  # the server caches the report for a moment
    while not (await (await admin.context.request.get(report)).json())["preemptionsInVain"]:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    page = await admin.open("")
    attention = page.get_by_role("region", name="Needs attention")
    await expect(attention).to_contain_text("Audit differencesNotStarted2")
    await expect(attention).not_to_contain_text("NotStopped")
    row = attention.get_by_role("listitem").filter(has_text="still-waits")
    await expect(row).to_contain_text(re.compile(r"1 workload stopped, it still waits1\d min"))
    await row.get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("still-waits")
    await page.close()
    running.deciding.audited = None
    await admit(running, preemptor)


async def test_unknown_page_and_unknown_queue_show_a_message(admin: Person) -> None:
    page = await admin.open("no/such/page")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")
    await page.goto(f"{admin.url}/ui/queues/no-such-queue")
    await expect(page.locator("main")).to_contain_text("There is no ClusterQueue of this name")
    await page.close()


async def test_quota_change_has_a_preview_requires_a_reason_and_can_be_reverted(admin: Person) -> None:
    page = await admin.open("queues/language?tab=history")
    await page.get_by_role("button", name="Edit quota").click()
    dialog = page.get_by_role("dialog", name="Quota of language")
    nominal = dialog.get_by_label("Nominal, a100, GPU")
    apply = dialog.get_by_role("button", name="Apply")
    await expect(dialog).to_contain_text("Change an amount")
    await nominal.fill("many")
    await expect(dialog).to_contain_text("give an amount such as 16")
    await nominal.fill("16")
    await expect(dialog).to_contain_text("Cohort company: ")  # with less quota than is in use
    await nominal.fill("48")
    await expect(dialog).to_contain_text("would be admitted")
    await expect(apply).to_be_disabled()
    await dialog.get_by_label("Reason").fill("Sixteen more GPUs have come")
    await apply.click()
    await expect(dialog).to_have_count(0)
    await expect(
        page.get_by_role("region", name="Quota", exact=True).get_by_role("row").filter(has_text="GPU")
    ).to_contain_text("48")
    history = page.get_by_role("tabpanel")
    await expect(history).to_contain_text("Sixteen more GPUs have come")
    await history.get_by_role("button", name="Go back to this").first.click()
    back = page.get_by_role("dialog")
    await back.get_by_label("Reason").fill("They were broken")
    await back.get_by_role("button", name="Go back").click()
    await expect(history).to_contain_text("They were broken")
    await expect(
        page.get_by_role("region", name="Quota", exact=True).get_by_role("row").filter(has_text="GPU")
    ).to_contain_text("32")
    await page.close()


async def test_a_queue_is_stopped_drained_and_resumed(admin: Person) -> None:
    page = await admin.open("queues/search")
    badge = page.locator(".page-title .badge")
    await expect(badge).to_have_text("Active")
    for button, state in (("Stop", "Stopped"), ("Drain", "Stopped"), ("Resume", "Active")):
        await page.get_by_role("button", name=button, exact=True).click()
        dialog = page.get_by_role("dialog")
        if button == "Drain":
            await expect(dialog).to_contain_text("would be evicted")
        await dialog.get_by_label("Reason").fill(f"{button} for the upgrade")
        await dialog.get_by_role("button", name=f"{button} the queue").click()
        await expect(dialog).to_have_count(0)
        await expect(badge).to_have_text(state)
    await page.goto(f"{admin.url}/ui/audit?kind=ClusterQueue&name=search")
    await expect(page.get_by_role("region", name="Changes")).to_contain_text("Drain for the upgrade")
    await expect(page.get_by_role("region", name="Changes")).to_contain_text("spec.stopPolicy")
    await page.close()


async def test_search_by_keyboard_finds_only_objects_that_the_user_may_see(admin: Person, grace: Person) -> None:
    page = await admin.open("")
    for text, option, heading in (("never", "vision/never-fits", "never-fits"), ("langu", "language", "language")):
        await search(page, text)
        await expect(page.get_by_role("option", name=option).first).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    await page.close()
    page = await grace.open("")
    await search(page, "a")
    await expect(page.get_by_role("option")).to_contain_text(["vision/batch"])
    await page.close()
    context = grace.context.request
    found = await (await context.get(f"{grace.url}/session/workloads?find=train")).json()
    assert {item["metadata"]["namespace"] for item in found["items"]} == {"vision"}
    for pattern, number in (("never_fits", 0), ("%25", 0), ("NEVER-F", 1)):
        answer = await (
            await context.get(f"{grace.url}/session/workloads?find={pattern}{pattern if number == 0 else ''}")
        ).json()
        assert len(answer["items"]) == number, pattern


async def test_usage_report_downloaded_as_csv_matches_the_api(running: World, admin: Person) -> None:
    page = await admin.open("usage?by=user&from=30d")
    table = page.get_by_role("region", name="Usage", exact=True).last
    await expect(table.get_by_role("row").filter(has_text="grace")).to_be_visible()
    await expect(table.get_by_role("row").filter(has_text=HOSTILE)).to_have_count(0)
    await page.get_by_role("button", name="CPU", exact=True).click()
    await expect(table.get_by_role("row").filter(has_text=HOSTILE)).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download CSV").click()
    path = await (await download.value).path()
    lines = Path(path).read_text().splitlines()  # noqa: ASYNC240  a small file
    assert lines[0].startswith("User,from,to,cpu hours")
    report = await (await admin.context.request.get(f"{admin.url}{PREFIX}/reports/usage?by=user&from=30d")).json()
    total = sum(item["amountSeconds"] for item in report["items"] if item["resource"] == "cpu") / 3600
    assert abs(sum(float(line.rsplit(",", 3)[1]) for line in lines[1:]) / total - 1) < 0.01
    await page.close()


async def test_a_month_of_the_calendar_is_shown_with_quota_and_downloaded(running: World, admin: Person) -> None:
    page = await admin.open("usage?resource=cpu")
    await page.get_by_role("combobox", name="Month or quarter").select_option(index=1)
    await expect(page.get_by_text("Only a part of")).to_be_visible()
    month = parse_qs(urlsplit(page.url).query)
    table = page.get_by_role("region", name="Usage", exact=True).last
    await expect(table.get_by_role("columnheader", name="Idle quota")).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download CSV").click()
    path = await (await download.value).path()
    rows = [*csv.DictReader(Path(path).read_text().splitlines())]  # noqa: ASYNC240  a small file
    query = f"month={month['in'][0]}&timezone={month['timezone'][0]}&by=clusterqueue&quota=true"
    report = await (await admin.context.request.get(f"{admin.url}{PREFIX}/reports/usage?{query}")).json()
    (total,) = (item for item in report["totals"] if item["resource"] == "cpu")
    for column, field in (("cpu hours", "amountSeconds"), ("cpu hours of quota", "quotaSeconds")):
        assert abs(sum(float(row[column]) for row in rows) / (total[field] / 3600) - 1) < 0.01
    assert {(row["from"], row["partial"]) for row in rows} == {(report["from"], "true")}
    await page.close()


async def test_chart_has_units_quota_as_it_was_and_its_changes_as_marks(admin: Person) -> None:
    page = await admin.open("queues/vision?period=month&resource=nvidia.com/gpu")
    chart = page.get_by_role("region", name="Usage over time")
    await expect(chart.locator(".event")).to_have_count(2)
    await expect(chart.locator("text.axis").get_by_text("GPU", exact=True)).to_be_visible()
    line = await chart.locator(".limit").get_attribute("d")
    assert line is not None
    heights = [float(at) for at in re.findall(r"(?:M[\d.]+ |V)([\d.]+)", line)]
    assert heights[-3:] == [heights[-1], min(heights), heights[-1]], "16, 24, and 16 GPUs again"
    box = await chart.locator(".chart svg").bounding_box()
    mark = await chart.locator(".event").last.bounding_box()
    assert box is not None
    assert mark is not None
    await page.mouse.move(mark["x"] + mark["width"] / 2, box["y"] + box["height"] / 2)
    await expect(chart.locator(".legend")).to_contain_text("quota of vision: 24 → 16 GPU (a100)")
    await expect(chart.locator(".legend")).to_contain_text("in all")
    await page.close()


async def test_bars_of_the_quota_tree_have_one_scale(admin: Person) -> None:
    page = await admin.open("?resource=cpu")
    await expect(page.locator(".tree tbody tr").nth(3)).to_be_visible()
    bars = await page.locator(".tree tbody tr").evaluate_all(
        "rows => rows.map(row => [parseFloat(row.querySelector('.bar-track').getAttribute('width')),"
        " Number(row.querySelectorAll('td.number')[1].innerText.replaceAll(',', ''))])"
    )
    scales = {round(width / nominal, 3) for width, nominal in bars if nominal}
    assert len(scales) == 1, bars
    await page.close()


async def test_usage_is_shown_by_kind_and_by_workload(running: World, admin: Person) -> None:
    page = await admin.open(f"usage?by=kind&{finished_days()}")
    table = page.get_by_role("region", name="Usage", exact=True).last
    await expect(table.get_by_role("row").filter(has_text="RayJob")).to_be_visible()
    by_kind = await page.locator(".table-note").first.inner_text()
    await page.get_by_role("combobox", name="By").select_option("workload")
    await expect(table.get_by_role("row").last).to_contain_text("others")
    # The total does not depend on the division into rows.
    await expect(page.locator(".table-note").first).to_contain_text(by_kind.split(", ", 1)[1])
    await expect(table.get_by_role("row")).to_have_count(102)
    await table.get_by_role("link").first.click()
    await expect(page.get_by_role("region", name="Why it waits").or_(page.locator(".page-title"))).to_be_visible()
    await page.goto(f"{running.url}/ui/queues/vision?period=month&by=workload")
    chart = page.get_by_role("region", name="Usage over time")
    await expect(chart.locator(".legend")).to_contain_text("others")
    await chart.get_by_label("Divided by").select_option("kind")
    await expect(chart.locator(".legend")).to_contain_text("RayJob")
    await page.close()


async def test_pods_and_logs_are_shown_according_to_kubernetes_rbac(
    running: World, grace: Person, browser: Browser
) -> None:
    record = pending_record(running, "with-pods", kind="Job", api_version="batch/v1")
    await put(running, record)
    await admit(running, record)
    labels = {"batch.kubernetes.io/controller-uid": record.workload.uid}
    spec = {"containers": [{"name": "main", "image": "registry.example/train"}]}
    cluster = running.sandbox.local("admin")
    await cluster.create("pods", "vision", {"metadata": {"name": "with-pods-1", "labels": labels}, "spec": spec})
    await cluster.create("pods", "vision", {"metadata": {"name": "foreign"}, "spec": spec})
    page = await grace.open("namespaces/vision/workloads/with-pods")
    pods = page.get_by_role("region", name="Pods", exact=True)
    await expect(pods.get_by_role("row").filter(has_text="with-pods-1")).to_contain_text("Pending")
    await expect(pods).not_to_contain_text("foreign")
    await check_pods_of_other_kinds(running, grace)
    ended = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    failed = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    await cluster.patch("pods", "vision", "with-pods-1", failed, subresource="status")
    await page.reload()
    await expect(pods.get_by_role("row").filter(has_text="with-pods-1")).to_contain_text("exit code 137")
    await pods.get_by_role("button", name="Log of with-pods-1").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.close()
    address = f"{running.url}/session/namespaces/vision/workloads/with-pods"
    for pod, status in (("foreign", 404), ("../secrets/x", 400), ("a?b", 400), ("", 400)):
        answer = await grace.context.request.get(f"{address}/log", params={"pod": pod})
        assert answer.status == status, pod
    for token in ("viewer-token", "nobody-token"):
        async with person(browser, running, token) as other:
            assert (await other.context.request.get(f"{address}/pods")).status == 403
            assert (await other.context.request.get(f"{address}/log", params={"pod": "with-pods-1"})).status == 403


async def test_flavors_page_shows_quota_beyond_the_capacity_of_the_nodes(admin: Person) -> None:
    page = await admin.open("flavors")
    a100 = page.get_by_role("region", name="a100", exact=True)
    await expect(a100).to_contain_text("3 nodes")
    await expect(a100.get_by_role("row").filter(has_text="GPU")).to_contain_text("56 short")
    await expect(page.get_by_role("region", name="spot", exact=True)).to_contain_text("No node has these labels")
    await page.close()
    overview = await admin.open("")
    attention = overview.get_by_role("region", name="Needs attention")
    await expect(attention.get_by_role("heading", name="More quota than nodes")).to_be_visible()
    await expect(attention).to_contain_text(", nodes 24 GPU")


async def test_fair_share_tab_lists_entitled_and_received_shares(running: World, admin: Person) -> None:
    page = await admin.open("queues/vision?tab=fair&fair=7d")
    table = page.get_by_role("region", name="Fair share in the Cohort research")
    await expect(table.get_by_role("row")).to_have_count(4)
    path = "/apis/sluice.dev/v1/reports/fairness?cohort=research&from=7d"
    report = await (await admin.context.request.get(f"{admin.url}{path}")).json()
    for item in report["items"]:
        if item["resource"] == "nvidia.com/gpu":
            cells = table.get_by_role("row").filter(has_text=item["clusterQueue"]).get_by_role("cell")
            entitled, received = (await cells.all_inner_texts())[3:5]
            for shown, name in ((entitled, "entitledSeconds"), (received, "receivedSeconds")):
                assert float(shown.replace(",", "")) == pytest.approx(item[name] / 3600, rel=0.01, abs=1)
    loans = page.get_by_role("region", name="Who lent to whom")
    await expect(loans.get_by_role("row").nth(1)).to_be_visible()
    await page.close()


async def test_people_and_flavors_pages_list_users_namespaces_and_quota(running: World, admin: Person) -> None:
    await put(running, pending_record(running, "first", "data", user="newcomer"))
    page = await admin.open("people")
    newcomer = page.get_by_role("region", name="Users", exact=True).get_by_role("row").filter(has_text="newcomer")
    await expect(newcomer.get_by_role("cell").nth(1)).to_have_text("1")
    await expect(
        page.get_by_role("region", name="Users", exact=True).get_by_role("row").filter(has_text="barbara")
    ).to_be_visible()
    await page.get_by_label("Find a user or namespace").fill("visi")
    await expect(page.get_by_role("region", name="Namespaces", exact=True).get_by_role("row")).to_have_count(2)
    await page.goto(f"{admin.url}/ui/flavors")
    await expect(page.get_by_role("region", name="a100", exact=True)).to_contain_text("80")
    await expect(page.get_by_role("region", name="spot", exact=True)).to_contain_text("No ClusterQueue has quota")
    await page.close()


async def test_markup_in_user_text_is_shown_as_text(running: World, admin: Person) -> None:
    long = "x" * 4000
    markup = f"<script>document.title = 'taken'</script><b>bold</b>{HOSTILE}"
    record = pending_record(running, "markup", "data", user=RTL + HOSTILE)
    await put(running, replace(record, message=f"{markup} {long}"), story=f"{markup} {long}")
    page = await admin.open("namespaces/data/workloads/markup")
    story = page.locator("main")
    await expect(story).to_contain_text(HOSTILE)
    await expect(story).to_contain_text("bold</b>")
    assert await page.title() == "markup · Sluice"
    assert await page.evaluate("document.querySelectorAll('main img, main script, main .free b').length") == 0
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.goto(f"{running.url}/ui/queues/data")
    await expect(page.get_by_role("table", name="Pending workloads, in order")).to_contain_text("markup")
    author = Author(f"{RTL}{markup}", reason=f"{markup}\x07\x1b[31m{RTL} {long}")
    found = await running.store.queues.get("ClusterQueue", "data")
    strict = type(found).model_validate_json(found.model_dump_json(by_alias=True).replace("BestEffort", "Strict"))
    await running.store.queues.write(found.key, lambda _: strict, author=author)
    for path in ("queues/data?tab=history", "audit", "people", "usage?by=user&from=30d&resource=cpu", "queues/data"):
        await page.evaluate(OPEN, path)
        await expect(page.locator(".loading")).to_have_count(0)
        await expect(page.locator("main")).to_contain_text("<img src=x")
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.evaluate("document.querySelectorAll('main img, main script, main .free b').length") == 0
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.evaluate(OPEN, "")
    await expect(page.locator(".tree")).to_contain_text("language")
    fits = "[...document.querySelectorAll('.table-box')].every((box) => box.scrollWidth <= box.clientWidth)"
    assert await page.evaluate(fits), "the tree of quota is cut off on a phone"
    await page.close()


@pytest.mark.long
async def test_controls_are_reachable_by_keyboard_with_a_visible_focus(admin: Person) -> None:
    page = await admin.open("queues/vision")
    await expect(page.get_by_role("table", name="Pending workloads, in order")).to_be_visible()
    reached = []
    for _ in range(24):
        await page.keyboard.press("Tab")
        stop = await page.evaluate(FOCUSED)
        assert stop["seen"], stop
        assert stop["marked"], stop
        reached.append(stop["what"])
    expected = ["Edit quota", "Stop", "Drain", "Quota by flavor", "GPU", "CPU", "Memory"]
    assert [what for what in reached if what in expected] == expected
    assert any(what.startswith("Pending ") for what in reached)
    await page.get_by_role("button", name="Stop", exact=True).focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (await page.evaluate(FOCUSED))["what"] == "Stop"  # the focus returns to the button
    await page.set_viewport_size({"width": 390, "height": 800})
    menu = page.get_by_role("button", name="Menu")
    await menu.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="My work")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(menu).to_have_attribute("aria-expanded", "false")
    await expect(page.get_by_role("link", name="My work")).to_be_hidden()
    await page.close()
