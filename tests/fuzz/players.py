"""Players: execute moves as users, as an admin and as the environment, and record what users wrote."""

from __future__ import annotations

import asyncio
import copy
import signal
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Any

from admission.model.quantity import parse_quantity
from tests.fuzz.documents import (
    BY_RACK,
    FLOOR,
    LOCAL_QUEUES,
    PARTIAL,
    PRIORITIES,
    QUEUE_LABELS,
    QUOTAS,
    SPARE,
    cluster_queue,
    flavor_of,
    local_queue,
    priority_class,
    resource_flavor,
    simple_job,
)
from tests.fuzz.findings import Finding
from tests.fuzz.kind_players import KindPlayers
from tests.fuzz.moves import NAMES
from tests.fuzz.observer import POOL
from tests.fuzz.pod_players import MANAGED, PodPlayers
from tests.fuzz.topology_documents import fits_floor, topology
from tests.fuzz.topology_players import FloorPlayers
from tests.fuzz.world import BOUNDLESS, MERGE, NAMESPACES, SPEED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fuzz.moves import Move
    from tests.fuzz.observer import Observer
    from tests.fuzz.world import Object, World

_JOBS = "/apis/batch/v1/namespaces/{}/jobs"
_PODS = "/api/v1/namespaces/{}/pods"
_MOST_PREEMPTIONS = 10
"""Times that a workload may be preempted for the same other one in a game: after the second time it rests."""


@dataclass
class Written:
    """Record of the users' writes to a Job."""

    odd: bool = False
    """Whether a write may prevent it from running."""
    spec: Object = field(default_factory=dict)
    """Spec as returned by the API server at its creation."""


class Players:
    """Players of all moves; each public method is a move."""

    def __init__(self, world: World, observer: Observer) -> None:
        self.world = world
        self.observer = observer
        self.jobs: dict[str, Written] = {}
        """Records by UID."""
        self.pods = PodPlayers(self)
        self.kinds = KindPlayers(self)
        self.floor = FloorPlayers(self)
        self.faulty_admin = False
        """Whether there was a LimitRange that may prevent a simple Job from running."""
        self._quota = dict(QUOTAS)
        self._cohorts = dict.fromkeys(QUOTAS, "")
        self._policies = dict.fromkeys(QUOTAS, "None")
        self._preempting = False
        self._bids = count()

    async def play(self, move: Move) -> None:
        """Execute a move. Raises Finding if a rule is violated after it."""
        arguments = {name: value for name, value in move.items() if name != "do"}
        players = next(each for each in (self, self.pods, self.kinds, self.floor) if hasattr(each, move["do"]))
        play: Callable[..., Awaitable[None]] = getattr(players, move["do"])
        await play(**arguments)
        self.observer.count_overdue()
        self.floor.check()
        if self.observer.violation is not None:
            raise self.observer.violation
        self.world.check_alive()

    # ------------------------------------------------------------------ users

    async def create(
        self,
        user: str,
        name: str,
        queue: str,
        label: str,
        pods: int,
        mode: str,
        cpu: str,
        seconds: int,
        stop: str | None,
        suspend: bool | None,
        odd: list[Object],
        settle: bool,
        placed: Object | None = None,
    ) -> str:
        """Create a Job and return its name, by default a free one; "": it was rejected.

        `placed`: annotations that request a placement by topology.
        """
        present = {job["metadata"]["name"] for job in self.world.local.list("jobs", NAMESPACES[user])}
        name = next((free for free in (name, *NAMES) if free not in present), name)
        body = simple_job(name, queue, pods=pods, cpu=cpu, seconds=seconds, label=label)
        body["spec"]["template"]["metadata"]["annotations"] |= placed or {}
        if mode in PARTIAL:
            body["metadata"]["annotations"] = PARTIAL[mode]
        if mode in ("indexed", "partial indexed"):
            body["spec"]["completionMode"] = "Indexed"
        elif mode == "many":
            body["spec"]["completions"] = 100
        elif mode == "until one succeeds":
            del body["spec"]["completions"]
        if stop is not None:
            _set(body, ["spec", "template", "metadata", "annotations", "sandbox.sluice.dev/stop-seconds"], stop)
        if suspend is not None:
            body["spec"]["suspend"] = suspend
        for change in odd:
            await self.put(body, change, user)
        status, created = await self.world.request(user, "POST", _JOBS.format(NAMESPACES[user]), body)
        if status != 201:
            return ""
        self.jobs[created["metadata"]["uid"]] = Written(
            odd=bool(odd)
            or stop == "never"
            or mode == "many"
            or not _fits(NAMESPACES[user], queue, pods, cpu)
            or not fits_floor(queue, placed or {}, pods, cpu),
            spec=created["spec"],
        )
        if settle:
            await self.settle()
        return name

    async def recreate(self, user: str, times: int, propagation: str, like: Object) -> None:
        """Create a Job, delete it once it runs, and recreate it while its old pods are terminating, several times."""
        for turn in range(times):
            name = await self.create(user, **like)
            if not name or turn == times - 1:
                return
            await self._runs(user, name)
            await self.delete(user, name, propagation, force=False)

    async def start_and_flip(self, user: str, times: int, like: Object) -> None:
        """Create a Job and, once it runs, suspend it several times."""
        if name := await self.create(user, **like):
            await self._runs(user, name)
            await self.flip(user, name, times)

    async def start_and_raise(self, user: str, count: int, like: Object) -> None:
        """Create a Job and increase its parallelism as soon as it runs."""
        if name := await self.create(user, **like):
            await self._runs(user, name)
            await self.patch(user, name, [{"path": ["spec", "$both"], "value": count}], status=False)

    async def join(self, user: str, like: Object, queue: str) -> None:
        """Create a Job without a queue and add the queue label in a second request."""
        if name := await self.create(user, **like):
            change = {"path": ["metadata", "labels", like["label"]], "value": queue}
            await self.patch(user, name, [change], status=False)

    async def patch(self, user: str, name: str, changes: list[Object], status: bool) -> None:
        current = await self._job(user, name)
        if current is None:
            return
        body: Object = {}
        for change in changes:
            await self.put(body, change, user, current=current)
        await self._patch(user, "/status" * status, body, current)

    async def flip(self, user: str, name: str, times: int) -> None:
        """Suspend a Job several times, each shortly after it is started."""
        for _ in range(times):
            current = await self._job(user, name)
            if current is None:
                return
            await self._patch(user, "", {"spec": {"suspend": True}}, current)
            await asyncio.sleep(0.15)

    async def delete(self, user: str, name: str, propagation: str | None, force: bool) -> None:
        query = "&".join(
            [f"propagationPolicy={propagation}"] * (propagation is not None) + ["gracePeriodSeconds=0"] * force
        )
        if (current := await self._job(user, name)) is not None:
            path = f"{_JOBS.format(NAMESPACES[user])}/{current['metadata']['name']}?{query}"
            await self.world.request(user, "DELETE", path)

    async def delete_all(self, user: str) -> None:
        await self.world.request(user, "DELETE", _JOBS.format(NAMESPACES[user]) + "?propagationPolicy=Background")

    async def delete_pods(self, user: str, name: str, force: bool) -> None:
        current = await self._job(user, name)
        if current is None:
            return
        label = f"batch.kubernetes.io/job-name%3D{current['metadata']['name']}"
        query = f"labelSelector={label}" + "&gracePeriodSeconds=0" * force
        if current["metadata"]["uid"] in self.jobs:
            self.jobs[current["metadata"]["uid"]].odd = True  # each pod counts as failed and delays the next one
        await self.world.request(user, "DELETE", f"{_PODS.format(NAMESPACES[user])}?{query}")

    async def outbid(self, stop: str) -> None:
        """Let a Job wait for one that stops slowly; quota becomes free, which a third one borrows and a fourth needs.

        The third one is admitted and preempted again and again, until the slow one has stopped, if nothing prevents it.
        """
        for user in ("alice", "bob"):
            await self.delete_all(user)
        await self.set_up()
        for name in PRIORITIES:
            await self._ensure("workloadpriorityclasses", name, priority_class(name))
        self._preempting = True
        for queue in ("a", "b"):
            await self.cohort(queue, "all")
        ends = await self._bid("alice", 4, "high")
        await self._runs("alice", ends)
        slow = await self._bid("alice", 4, "middle", stop=stop)
        await self._runs("alice", slow)
        await self._bid("bob", 2, "high")
        await asyncio.sleep(0.5)
        await self._bid("bob", 4, "high")
        await self._bid("alice", 2, "", stop=stop)
        await self.delete("alice", ends, "Background", force=True)
        await asyncio.sleep(float(stop) / SPEED + 2)
        await self.check_preemptions()

    async def _bid(self, user: str, pods: int, priority: str, stop: str | None = None) -> str:
        """Create a Job with a priority, which runs in the flavor main only, and return its name."""
        changes: list[Object] = [{"path": ["spec", "template", "spec", "nodeSelector"], "value": {POOL: "main"}}]
        if priority:
            changes.append({"path": ["metadata", "labels", "sluice.dev/priority-class"], "value": priority})
        name = f"bid-{next(self._bids)}"
        return await self.create(
            user, name, "main", QUEUE_LABELS[0], pods, "fixed", "1", 10_000, stop, None, changes, settle=False
        )

    async def check_preemptions(self) -> None:
        """Raise Finding if a workload was preempted again and again for the same other one."""
        report = await self.world.queues("GET", "reports", "attention")
        for item in (report or {}).get("evictedAgain", {}).get("items", ()):
            where = f"workloads/{item['name']}/history?limit=500"
            history = await self.world.queues("GET", where, namespace=item["namespace"])
            preempted = [each for each in (history or {}).get("items", ()) if each["reason"] == "Preempted"]
            for message, times in Counter(each["message"] for each in preempted).items():
                if times > _MOST_PREEMPTIONS:
                    raise Finding(
                        "a workload is preempted again and again", f"{item['name']}: {times} times: {message}"
                    )

    async def read(self, user: str, name: str) -> None:
        for path in (f"/namespaces/{NAMESPACES[user]}/workloads", "/clusterqueues", "/reports/usage"):
            status, document = await self.world.ask("GET", f"/apis/sluice.dev/v1{path}")
            self.world.check_answer(f"GET {path}", status, document)

    async def _runs(self, user: str, name: str) -> None:
        """Wait until a Job has pods, at most 1.5 s: it may have to wait for quota."""
        for _ in range(6):
            job = self.world.local.get("jobs", NAMESPACES[user], name)
            if job is None or job.get("status", {}).get("active"):
                return
            await asyncio.sleep(0.25)

    async def _job(self, user: str, name: str) -> Object | None:
        """Return the Job of that name, else another one of the user."""
        _, found = await self.world.request(user, "GET", _JOBS.format(NAMESPACES[user]))
        named = {job["metadata"]["name"]: job for job in found["items"]}
        return named.get(name) or next(iter(named.values()), None)

    async def _patch(self, user: str, subresource: str, body: Object, current: Object) -> None:
        path = f"{_JOBS.format(NAMESPACES[user])}/{current['metadata']['name']}{subresource}"
        status, _ = await self.world.request(user, "PATCH", path, body, content=MERGE)
        written = self.jobs.get(current["metadata"]["uid"])
        if status == 200 and written is not None:
            written.odd = True

    async def put(self, body: Object, change: Object, user: str, *, current: Object | None = None) -> None:
        """Apply one change to a Job, or to a merge patch of the Job `current`."""
        path, value = change["path"], await self._known(change["value"], user)
        match path:
            case ["$let-in"]:
                _set(body, ["spec", "suspend"], False)
                for label in QUEUE_LABELS:
                    _set(body, ["metadata", "labels", label], None)
            case ["spec", "$both"]:
                _set(body, ["spec", "parallelism"], value)
                _set(body, ["spec", "completions"], value)
            case ["spec", "$manual"]:
                _set(body, ["spec", "manualSelector"], True)
                _set(body, ["spec", "selector"], {"matchLabels": {"mine": "yes"}})
                _set(body, ["spec", "template", "metadata", "labels", "mine"], "yes")
            case ["spec", "template", "spec", "containers", "0", *rest] if current is not None:
                # A merge patch replaces lists completely.
                containers = copy.deepcopy(current["spec"]["template"]["spec"]["containers"])
                _set(containers[0], rest, value)
                _set(body, path[:4], containers)
            case _:
                _set(body, path, value)

    async def _known(self, value: Any, user: str) -> Any:
        """Return the value with placeholders replaced by data of the running game."""
        if value == {"$": "uid"}:
            jobs = self.world.local.list("jobs", NAMESPACES[user])
            return jobs[0]["metadata"]["uid"] if jobs else "11111111-1111-1111-1111-111111111111"
        if isinstance(value, list):
            return [await self._known(item, user) for item in value]
        if isinstance(value, dict):
            return {key: await self._known(item, user) for key, item in value.items()}
        return value

    # ------------------------------------------------------------------ admins

    async def set_up(self) -> None:
        """Create the initial flavors and queues, or restore those that are missing or were changed."""
        for name in (FLOOR, BY_RACK):
            await self._ensure("topologies", name, topology(name))
        await self.floor.restore()
        for flavor in ("main", "spare", FLOOR, BY_RACK):
            labels = {"nodeLabels": {"sluice.test/pool": flavor}}
            tolerations = [{"key": "sluice.test/tainted", "operator": "Exists"}]
            spec = {
                **labels,
                "tolerations": tolerations,
                **({"topologyName": flavor} if flavor in (FLOOR, BY_RACK) else {}),
            }
            await self._ensure("resourceflavors", flavor, resource_flavor(flavor, spec))
        self._quota, self._cohorts = dict(QUOTAS), dict.fromkeys(QUOTAS, "")
        self._policies = dict.fromkeys(QUOTAS, "None")
        self._preempting = False
        for queue in QUOTAS:
            await self._write_queue(queue)
        for (namespace, name), queue in LOCAL_QUEUES.items():
            self.observer.note_local_queue(namespace, name, queue)
            await self._ensure("localqueues", name, local_queue(namespace, name, queue), namespace=namespace)
        await self._ensure("clusterqueues", BOUNDLESS, cluster_queue(BOUNDLESS, 2**63 - 1, "", "None"))
        for namespace in NAMESPACES.values():
            self.observer.note_boundless(namespace, BOUNDLESS)
            document = local_queue(namespace, BOUNDLESS, BOUNDLESS)
            await self._ensure("localqueues", BOUNDLESS, document, namespace=namespace)

    async def restore_queues(self) -> None:
        await self.set_up()

    async def quota(self, queue: str, cpu: int) -> None:
        self._quota[queue] = cpu
        await self._write_queue(queue)

    async def stop(self, queue: str, policy: str) -> None:
        self._policies[queue] = policy
        await self._write_queue(queue)

    async def cohort(self, queue: str, cohort: str) -> None:
        self._cohorts[queue] = cohort
        await self._write_queue(queue)

    async def stop_local(self, user: str, policy: str) -> None:
        namespace = NAMESPACES[user]
        document = local_queue(namespace, "main", LOCAL_QUEUES[namespace, "main"])
        document["spec"]["stopPolicy"] = policy
        await self._ensure("localqueues", "main", document, namespace=namespace)

    async def lose_queue(self, what: str) -> None:
        name, _, user = what.partition("/")
        if user:
            await self.world.queues("DELETE", "localqueues", name, namespace=NAMESPACES[user])
        else:
            await self.world.queues("DELETE", "resourceflavors" if name == "spare" else "clusterqueues", name)

    async def limit_range(self, user: str, limit: list[Object] | None) -> None:
        namespace = NAMESPACES[user]
        self.faulty_admin = True
        if self.world.local.get("limitranges", namespace, "limits") is not None:
            await self.world.local.delete("limitranges", namespace, "limits")
        if limit is not None:
            body = {"metadata": {"name": "limits"}, "spec": {"limits": limit}}
            await self.world.local.create("limitranges", namespace, body)

    async def runtime_class(self, name: str, there: bool) -> None:
        await self._class("runtimeclasses", name, there, {"handler": "x", "overhead": {"podFixed": {"cpu": "1"}}})

    async def priority_class(self, name: str, there: bool) -> None:
        await self._class("priorityclasses", name, there, {"value": 1000})

    async def activate(self, user: str, name: str, active: bool) -> None:
        for workload in await self.workloads(NAMESPACES[user]):
            if workload["spec"]["object"]["name"] == name:
                where = workload["metadata"]["name"]
                await self.world.queues(
                    "PATCH", "workloads", where, {"spec": {"active": active}}, namespace=NAMESPACES[user]
                )

    async def activate_all(self) -> None:
        """Activate all workloads that `activate` has deactivated."""
        for namespace in NAMESPACES.values():
            for workload in await self.workloads(namespace):
                if workload["spec"].get("active") is False and workload["status"]["state"] != "finished":
                    name = workload["metadata"]["name"]
                    await self.world.queues("PATCH", "workloads", name, {"spec": {"active": True}}, namespace=namespace)

    async def workloads(self, namespace: str) -> list[Object]:
        """Return the workloads of a namespace from Sluice's API. Raises Finding."""
        document = await self.world.queues("GET", "workloads", namespace=namespace)
        return [] if document is None else document["items"]

    async def _class(self, plural: str, name: str, there: bool, content: Object) -> None:
        known = self.world.local.get(plural, "", name) is not None
        if there and not known:
            await self.world.local.create(plural, "", {"metadata": {"name": name}, **content})
        elif known and not there:
            await self.world.local.delete(plural, "", name)

    async def _write_queue(self, queue: str) -> None:
        cpu = Fraction(self._quota[queue])
        self.observer.note_cohort(queue, self._cohorts[queue])
        self.observer.note_quota(queue, cpu, pool=flavor_of(queue))
        self.observer.note_quota(queue, Fraction(SPARE[queue]), pool="spare")
        document = cluster_queue(
            queue, self._quota[queue], self._cohorts[queue], self._policies[queue], preempts=self._preempting
        )
        await self._ensure("clusterqueues", queue, document)

    async def _ensure(self, kind: str, name: str, document: Object, *, namespace: str = "") -> None:
        present = await self.world.queues("GET", kind, name, namespace=namespace)
        if present is None:
            await self.world.queues("POST", kind, body=document, namespace=namespace)
        else:
            document["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]
            await self.world.queues("PUT", kind, name, document, namespace=namespace)

    # ------------------------------------------------------------------ environment

    async def restart(self, kindly: bool, meanwhile: list[Move]) -> None:
        """Stop `sluice serve`, execute moves meanwhile, and start it again; `kindly`: by SIGTERM, else by SIGKILL."""
        await self.world.stop(signal.SIGTERM if kindly else signal.SIGKILL)
        for move in meanwhile:
            await self.play(move)
        await self.world.start()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def settle(self) -> None:
        """Wait until no Job or pod changes for 0.25 s, at most 2.5 s: some may change without end."""
        now = None
        for _ in range(10):
            pods = [pod for pod in self.world.local.list("pods") if MANAGED in (pod["metadata"].get("labels") or {})]
            before, now = now, [obj["metadata"]["resourceVersion"] for obj in (*self.world.local.list("jobs"), *pods)]
            if now == before:
                return
            await asyncio.sleep(0.25)


def _fits(namespace: str, queue: str, pods: int, cpu: str) -> bool:
    """Return whether the initial quota of its queue suffices for it."""
    where = LOCAL_QUEUES.get((namespace, queue))
    return where is not None and pods * parse_quantity(cpu) <= QUOTAS[where]


def _set(body: Object, path: list[str], value: Any) -> None:
    *parents, last = path
    for part in parents:
        body = body[int(part)] if isinstance(body, list) else body.setdefault(part, {})
        if body is None:
            return
    body[last] = value
