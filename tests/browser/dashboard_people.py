"""Signed-in users of the dashboard in tests, and workloads that tests add to its store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from dashboard_world import World
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page

from admission.store.records import Changes, Opened, State, Transition, WorkloadRecord

OPEN = """async (path) => {
  history.pushState(null, "", `/ui/${path}`);
  dispatchEvent(new Event("popstate"));
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
}"""
"""Open a page as a link does, without loading the document."""


FOCUSED = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
  return {what: at.getAttribute('aria-label') || at.textContent.trim().slice(0, 40) || at.tagName,
    seen: box.width > 0 && box.height > 0 && at.checkVisibility(),
    marked: at.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2};
}"""
"""Return the focused element: its name, whether it is visible, and whether its focus is marked."""


class Person:
    """Browser context of a signed-in user. Messages in its console are faults, unless a test expects them."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.faults: list[str] = []

    async def open(self, path: str) -> Page:
        page = await self.context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        await page.goto(f"{self.url}/ui/{path}")
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        # The API cannot explain a new workload yet; browsers log that response as an error.
        if not message.location["url"].endswith("/explain"):
            self.faults.append(message.text)


@asynccontextmanager
async def person(browser: Browser, running: World, token: str, **options: Any) -> AsyncIterator[Person]:
    context = await browser.new_context(**options)
    answer = await context.request.post(f"{running.url}/login", data={"token": token})
    assert answer.ok
    found = Person(context, running.url)
    yield found
    await context.close()
    assert found.faults == []


def pending_record(running: World, name: str, team: str = "vision", **fields: Any) -> WorkloadRecord:
    workload = running.scenario.workload(team, at=running.scenario.now, name=name, **fields)
    return WorkloadRecord(workload, State.PENDING, workload.created, team, "WaitingForQuota", "not enough GPUs")


async def put(running: World, *records: WorkloadRecord, story: str = "") -> None:
    opened = tuple(
        Opened(record.workload, running.scenario.admission(record.workload), running.scenario.now)
        for record in records
        if record.state is State.ADMITTED
    )
    at = running.scenario.now
    lines = tuple(Transition(record.workload.uid, at, record.state, record.reason, story) for record in records)
    changes = Changes(records, (), opened, lines)
    await running.store.commit(changes, epoch=running.scenario.epoch)


async def admit(running: World, record: WorkloadRecord) -> None:
    at = running.scenario.now
    await put(running, replace(record, state=State.ADMITTED, admitted_at=at, cleared_at=at, reason="", message=""))


async def check_pods_of_other_kinds(running: World, grace: Person) -> None:
    """Check pods and logs of a RayCluster, of a pod group, and of a pod that is a workload itself."""
    spec = {"containers": [{"name": "main", "image": "registry.example/train"}]}
    cases = (
        ("ray", "RayCluster", "ray.io/v1", "ray-head", "sluice.dev/workload-uid"),
        ("gang", "PodGroup", "sluice.dev/v1", "gang-0", "kueue.x-k8s.io/pod-group-name"),
        ("alone", "Pod", "v1", "alone", ""),
    )
    for name, kind, version, pod, label in cases:
        record = pending_record(running, name, kind=kind, api_version=version)
        await put(running, record)
        await admit(running, record)
        marks = {label: record.workload.uid if kind == "RayCluster" else name} if label else {}
        body = {"metadata": {"name": pod, "labels": marks}, "spec": spec}
        await running.sandbox.local("admin").create("pods", "vision", body)
        address = f"{running.url}/session/namespaces/vision/workloads/{name}"
        found = await (await grace.context.request.get(f"{address}/pods")).json()
        assert [each["name"] for each in found["items"]] == [pod]
        assert (await grace.context.request.get(f"{address}/log", params={"pod": pod})).status == 200
        assert (await grace.context.request.get(f"{address}/log", params={"pod": "foreign"})).status == 404
