"""One cell of the table: a way tried for a kind in its own namespace, and the result."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from admission.cli.demo.live_pods import requests_of
from tests.ways.cluster import MERGE
from tests.ways.moves import PODS, RUNNING, WAITING
from tests.ways.objects import unlabelled

if TYPE_CHECKING:
    from tests.ways.cluster import Answer, Cluster
    from tests.ways.objects import Case

Object = dict[str, Any]

_AT_A_TIME = 60
LOOK = 0.1
"""Seconds between two polls."""


WORDS = {
    "refused": "the API server, Sluice's webhook or a policy rejects each request",
    "undone": "the webhook reverts the change in the same request, with a warning, and admitted pods continue to run",
    "waits": "everything beyond the quota waits: it is suspended, gated, or not created",
    "stopped": "it was stopped, and waits until there is quota for its new size",
    "charged": "the running pods hold exactly their quota, and nothing waits",
}
"""Possible results of a way, and their meaning."""
BY_RULE = "is queued in LocalQueue"
"""Part of the warning that a rule has queued an object, which reverts nothing."""
GROWS = ("scale", "enlarge", "add", "unlabel")
"""Ways that request more pods while the object runs."""


class Cell:
    """A kind and a way to try."""

    def __init__(self, cluster: Cluster, case: Case, way: str) -> None:
        self.case, self.way = case, way
        self.waits = way in WAITING
        ways = {**WAITING, **RUNNING}
        self._play = ways[way]
        self.namespace = f"{case.key}-{'w' if self.waits else 'r'}{list(ways).index(way)}"
        self._cluster = cluster
        self.answers: list[tuple[str, Answer]] = []

    @property
    def key(self) -> tuple[str, str]:
        """Key in the table: (name of the kind, way)."""
        return self.case.name, self.way

    @property
    def may_exceed(self) -> bool:
        """Whether pods beyond the quota may run until Sluice has stopped the object, as docs/configuration.md says."""
        has_policy = self.case.path != PODS and bool(self.case.flips) and self.case.opened is False
        return self._cluster.setup.policies and has_policy and self.case.name != "Job" and self.way in GROWS

    # ------------------------------------------------------------------ actions of the user

    async def play(self) -> None:
        """Submit the object, wait until it waits or runs, and try the way."""
        await self._cluster.queue(self.namespace, self.case.pods, open_=not self.waits)
        await self.submit()
        await self._until_there()
        self.answers.clear()
        await self._play(self)

    async def submit(self, suffix: str = "") -> None:
        for obj in self.case.make():
            obj["metadata"]["name"] += suffix if obj["kind"] == "Pod" else ""
            path = self.case.path if obj["kind"] not in _BESIDE else _plural(obj)
            await self.create(path, obj)

    async def create(self, path: str, obj: Object) -> None:
        if self._cluster.setup.queue_by:
            obj = unlabelled(obj)
        await self.ask("POST", self.at(path, ""), {**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}})

    async def present(self) -> Object:
        """Return the current state of the object."""
        return (await self._cluster.ask("GET", self.at())).body

    async def patch(self, body: Object) -> None:
        await self.ask("PATCH", self.at(), body, MERGE)

    async def patch_pod(self, one: Object, body: Object) -> None:
        await self.ask("PATCH", self.at(PODS, one["metadata"]["name"]), body, MERGE)

    async def remove(self, propagation: str) -> None:
        """Delete the object, or all pods of a group."""
        names = [each["metadata"]["name"] for each in self.pods()] if self.case.path == PODS else [self._name]
        for name in names:
            await self._cluster.ask("DELETE", self.at(self.case.path, name), {"propagationPolicy": propagation})
            while (
                propagation == "Orphan"
                and (await self._cluster.ask("GET", self.at(self.case.path, name))).status == 200
            ):
                if self.case.path == PODS:
                    break
                await asyncio.sleep(LOOK)

    async def delete(self, path: str, name: str, *, grace: int) -> None:
        await self._cluster.ask("DELETE", self.at(path, name), {"gracePeriodSeconds": grace})

    async def ask(self, method: str, path: str, body: Object, content: str = "application/json") -> None:
        """Send a request that is part of the attempt, and record its response."""
        answer = await self._cluster.ask(method, path, body, content=content)
        self.answers.append((f"{method} {path}", answer))

    def at(self, path: str = "", name: str | None = None) -> str:
        api, _, plural = (path or self.case.path).rpartition("/")
        root = "/api" if api == "v1" else "/apis"
        name = self._name if name is None else name
        return f"{root}/{api}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    @property
    def other_queue(self) -> str:
        """LocalQueue to which the object was not submitted."""
        return "lq" if self._cluster.setup.queue_by else "default"

    @property
    def _name(self) -> str:
        return "p-0" if self.case.path == PODS else "one"

    # ------------------------------------------------------------------ state of the cluster

    def pods(self) -> list[Object]:
        return self._cluster.pods(self.namespace)

    def _alive(self) -> list[Object]:
        return [each for each in self.pods() if not each["spec"].get("schedulingGates")]

    async def _until_there(self) -> None:
        """Wait until all its pods run, or in a stopped queue until it has a workload and any gated pods exist."""
        while True:
            if not self.waits:
                running = [each for each in self._alive() if each["status"].get("phase") == "Running"]
                if len(running) == self.case.pods:
                    return
            elif await self._cluster.workloads(self.namespace) and (
                self.case.flips or len(self.pods()) >= self.case.pods
            ):
                return
            await asyncio.sleep(LOOK)

    async def result(self) -> str:
        """Return the result: a key of `WORDS`, or another text if the queue was bypassed."""
        statuses = [answer.status for _, answer in self.answers]
        if statuses and all(status >= 400 for status in statuses):
            return "refused"
        alive = [each for each in self._alive() if "deletionTimestamp" not in each["metadata"]]
        records = [each for each in await self._cluster.workloads(self.namespace) if _is_unfinished(each)]
        if not alive:
            return "waits" if self.waits else "stopped"
        held = sum(_quota(each) for each in records)
        used = sum(requests_of(each["spec"], ("cpu",))["cpu"] for each in self._alive())
        if used > held:
            return f"pods of {used}m CPU run with a quota of {held}m"
        pending = [each for each in records if not _quota(each)]
        taken = [answer for _, answer in self.answers if answer.status < 300]
        if self.answers and all(any(BY_RULE not in each for each in answer.warnings) for answer in taken):
            return "undone"
        gated = [each for each in self.pods() if each["spec"].get("schedulingGates")]
        return "waits" if pending or gated else "charged"

    def responses(self) -> list[str]:
        """Return the responses, for reports."""
        found = []
        for what, answer in self.answers:
            text = answer.body.get("message", "") if answer.status >= 400 else "; ".join(answer.warnings)
            found.append(f"{what.removeprefix('PATCH ').rsplit('/', 1)[-1]}: {answer.status} {text[:260]}")
        return found


async def play_all(cells: list[Cell]) -> None:
    """Play all cells, at most _AT_A_TIME concurrently."""
    semaphore = asyncio.Semaphore(_AT_A_TIME)

    async def play(cell: Cell) -> None:
        async with semaphore:
            try:
                await cell.play()
            except asyncio.CancelledError:  # the test's timeout
                print(cell.key, "was not played:", await cell.present(), cell.responses())
                raise

    async with asyncio.TaskGroup() as group:
        for cell in cells:
            group.create_task(play(cell))


_BESIDE = ("PodGroup", "CompositePodGroup", "TrainingRuntime")
"""Kinds of what is submitted with what the case is about."""


def _plural(obj: Object) -> str:
    return f"{obj['apiVersion']}/{obj['kind'].lower()}s"


def _is_unfinished(record: Object) -> bool:
    conditions = record.get("status", {}).get("conditions") or ()
    return not any(each["type"] == "Finished" and each["status"] == "True" for each in conditions)


def _quota(record: Object) -> int:
    """Return the quota in milli-CPU that a workload holds, by Sluice's API."""
    assigned = (record.get("status", {}).get("admission") or {}).get("podSetAssignments") or []
    return sum(_cpu(each.get("resourceUsage", {}).get("cpu", "0")) for each in assigned)


def _cpu(text: Any) -> int:
    text = str(text)
    return int(text[:-1]) if re.fullmatch(r"\d+m", text) else int(float(text) * 1000)
