"""One game: all moves, the rules that must always hold meanwhile, and the checks at its end."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission.sandbox.apiserver.errors import ApiError
from tests.fuzz.documents import BY_RACK, FLOOR, QUEUE_LABELS, simple_job
from tests.fuzz.findings import Finding
from tests.fuzz.kind_rules import (
    delete_odd_wholes,
    sweep_wholes,
    unrestored_wholes,
    wholes_that_wait,
    wholes_without_reason,
)
from tests.fuzz.observer import SUSPENDED, Observer
from tests.fuzz.players import Players
from tests.fuzz.pod_rules import (
    end_running_controllers,
    keep_what_can_run,
    orphans_of_jobs,
    pods_of_drained_queues,
    pods_that_wait,
    pods_without_reason,
)
from tests.fuzz.world import CALM, NAMESPACES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fuzz.moves import Game
    from tests.fuzz.world import Object, World

_EVERY = 8
"""Number of moves between two Jobs of the uninvolved team."""
_SOON = 10.0
"""Real seconds within which a Job with sufficient quota has to start."""
_REST = 20.0
"""Real seconds within which each check at the end has to pass."""


@dataclass
class Played:
    """Result of a game."""

    moves: int
    seconds: float
    most: float
    """Maximum number of CPUs that were compared with a quota."""
    finding: Finding | None
    resting: bool
    """Whether all moves had been played before the finding."""


async def play(game: Game, world: World, *, to_the_end: bool = True) -> Played:
    """Play a game in a world without Jobs, and clean the world up again unless there is a finding.

    Without `to_the_end` the checks of the final state are left out.
    """
    began = time.monotonic()
    done, finding, resting = 0, None, False
    observer = Observer(world.local, {namespace: user for user, namespace in NAMESPACES.items()}, kinds=SUSPENDED)
    try:
        async with _alongside(observer):
            players = Players(world, observer)
            await players.set_up()
            for done, move in enumerate(game, start=1):
                await players.play(move)
                if done % _EVERY == 0:
                    await _another_team_starts(world, players, done)
                    await _each_has_a_reason(world, players)
                    await _each_has_its_place(world, players)
                    await players.check_preemptions()
            resting = True
            if to_the_end:
                await _check_end(world, players)
            await _clean_up(world, players)
    except Finding as found:
        finding = found
    return Played(done, time.monotonic() - began, float(observer.most), finding, resting)


@asynccontextmanager
async def _alongside(observer: Observer) -> AsyncIterator[None]:
    watching = asyncio.create_task(observer.run())
    try:
        yield
        if watching.done():
            await watching
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _until(check: Callable[[], Any], seconds: float) -> Any:
    """Poll `check` until its result is true; return its last result. On a busy machine the time is extended."""
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    deadline = time.monotonic() + seconds * busy
    while not (found := await check()) and time.monotonic() < deadline:  # noqa: ASYNC110  other processes act
        await asyncio.sleep(0.05)
    return found


async def _another_team_starts(world: World, players: Players, number: int) -> None:
    """Raise Finding unless a simple Job of an uninvolved team with free quota starts within _SOON."""
    name = f"calm-{number}"
    body = simple_job(name, "main")
    body["spec"]["ttlSecondsAfterFinished"] = 0
    status, document = await world.request(CALM, "POST", f"/apis/batch/v1/namespaces/{NAMESPACES[CALM]}/jobs", body)
    if status != 201:
        raise Finding("another team's Job is refused", str(document))

    async def has_started() -> bool:
        world.check_alive()
        job = world.local.get("jobs", NAMESPACES[CALM], name)
        return job is None or job["spec"].get("suspend") is not True

    if not await _until(has_started, _SOON):
        workloads = await players.workloads(NAMESPACES[CALM])
        conditions = [each["status"] for each in workloads if each["spec"]["object"]["name"] == name]
        details = f"within {_SOON:g} s: {conditions}\n{world.tail()}\n{await world.tasks()}"
        raise Finding("another team's Job does not start", details)


def _is_queued(job: Object) -> bool:
    labels = job["metadata"].get("labels") or {}
    waits = job["spec"].get("suspend") is True and "deletionTimestamp" not in job["metadata"]
    managed = job["spec"].get("managedBy", "kubernetes.io/job-controller") == "kubernetes.io/job-controller"
    return waits and managed and any(labels.get(key) for key in QUEUE_LABELS) and not _is_over(job)


def _is_over(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


async def _each_has_its_place(world: World, players: Players) -> None:
    """Raise Finding unless all pods that are placed by topology have their nodes soon."""
    unplaced: list[str] = []

    async def all_placed() -> bool:
        world.check_alive()
        players.floor.check()
        unplaced[:] = await players.floor.unplaced()
        return not unplaced

    if not await _until(all_placed, _SOON):
        raise Finding("a pod stays without its place", f"{unplaced}\n{world.tail()}")


async def _each_has_a_reason(world: World, players: Players) -> None:
    """Raise Finding unless each waiting Job, pod and other object has a workload with a reason."""
    missing: list[str] = []

    async def all_have_reasons() -> bool:
        missing.clear()
        world.check_alive()
        for namespace in NAMESPACES.values():
            workloads = await players.workloads(namespace)
            by_uid = {workload["metadata"]["uid"]: workload for workload in workloads}
            missing.extend(pods_without_reason(world, players, namespace, workloads))
            missing.extend(wholes_without_reason(world, namespace, workloads))
            for job in filter(_is_queued, world.local.list("jobs", namespace)):
                workload = by_uid.get(job["metadata"]["uid"])
                conditions = workload["status"]["conditions"] if workload else ()
                if not any(each["reason"] for each in conditions):
                    missing.append(f"{namespace}/{job['metadata']['name']}: {conditions or 'no workload'}")
        return not missing

    if not await _until(all_have_reasons, _SOON):
        raise Finding("something waits without a reason", f"{missing}\n{world.tail()}")


# ---------------------------------------------------------------------- end of the game


async def _check_end(world: World, players: Players) -> None:
    """Raise Finding unless all stopped objects are restored, and valid ones run once their queues are open."""
    await _delete_limits(world)
    await players.set_up()
    for queue in ("a", "b", FLOOR, BY_RACK):
        await players.stop(queue, "HoldAndDrain")
    await _each_has_a_reason(world, players)
    await _delete_orphans(world)
    await _check_restored(world, players)
    await _delete_odd(world, players)
    await players.set_up()
    await players.activate_all()
    await _check_all_run(world, players)
    await _another_team_starts(world, players, 0)
    if players.observer.violation is not None:
        raise players.observer.violation
    await _check_audit(world)


async def _delete_limits(world: World) -> None:
    for limits in world.local.list("limitranges"):
        await world.local.delete("limitranges", limits["metadata"]["namespace"], limits["metadata"]["name"])


async def _delete_orphans(world: World) -> None:
    """Delete pods whose Job a user deleted with orphaned pods: nobody stops them, and their quota is held until then.

    The Job may be one that an operator made, and makes anew: its object then waits for the orphan to be stopped.
    """
    for pod in orphans_of_jobs(world.local.list("pods")):
        with suppress(ApiError):
            await world.local.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


async def _check_restored(world: World, players: Players) -> None:
    """Raise Finding if a waiting object still has fields that Sluice injected at a start."""
    changed: list[str] = []

    async def all_restored() -> bool:
        changed.clear()
        world.check_alive()
        for job in world.local.list("jobs"):
            written = players.jobs.get(job["metadata"]["uid"])
            if written is None or _is_over(job) or "deletionTimestamp" in job["metadata"]:
                continue
            if not any((job["metadata"].get("labels") or {}).get(key) for key in QUEUE_LABELS):
                continue
            if not written.odd:
                changed.extend(_differences(job, written.spec))
        changed.extend(pods_of_drained_queues(world))
        changed.extend(unrestored_wholes(world, players))
        changed.extend(await _endless_evictions(world, players))
        return not changed

    if not await _until(all_restored, _REST):
        raise Finding("a Job is not restored as it was written", f"{changed}\n{world.tail()}")


async def _endless_evictions(world: World, players: Players) -> list[str]:
    """Return the Jobs that are still being evicted, though they are suspended and have no pods left."""
    found = []
    for namespace in NAMESPACES.values():
        pods = (pod["metadata"].get("ownerReferences") or () for pod in world.local.list("pods", namespace))
        owners = {owner["uid"] for references in pods for owner in references}
        evicting = {
            workload["metadata"]["uid"]
            for workload in await players.workloads(namespace)
            if workload["status"]["state"] == "evicting"
        }
        for job in world.local.list("jobs", namespace):
            metadata, status = job["metadata"], job.get("status", {})
            conditions = [each["type"] for each in status.get("conditions") or () if each["status"] == "True"]
            stopped = "Suspended" in conditions and not (status.get("active") or status.get("terminating"))
            if metadata["uid"] in evicting - owners and stopped and "deletionTimestamp" not in metadata:
                found.append(f"{namespace}/{metadata['name']} keeps its quota without pods")
    return found


def _differences(job: Object, spec: Object) -> list[str]:
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    now = job["spec"]
    found = []
    if now.get("suspend") is not True:
        found.append(f"{name} runs in a queue that is drained")
    for field in ("parallelism", "completions", "podReplacementPolicy"):
        if now.get(field) != spec.get(field):
            found.append(f"{name} {field} is {now.get(field)}, written was {spec.get(field)}")
    for field in ("nodeSelector", "tolerations", "affinity", "schedulingGates"):
        has, had = now["template"]["spec"].get(field), spec["template"]["spec"].get(field)
        if (has or None) != (had or None):
            found.append(f"{name} {field} is {has}, written was {had}")
    return found


async def _delete_odd(world: World, players: Players) -> None:
    """Delete all objects but simple ones that end by themselves, and all pods that belong to none of the rest."""
    local = world.local
    for job in local.list("jobs"):
        uid, metadata = job["metadata"]["uid"], job["metadata"]
        written = players.jobs.get(uid)
        seconds = job["spec"]["template"]["metadata"].get("annotations", {}).get("sandbox.sluice.dev/run-seconds", "1")
        if metadata["namespace"] == NAMESPACES[CALM]:
            continue
        if written is None or written.odd or seconds == "10000" or "deletionTimestamp" in metadata:
            if metadata.get("finalizers"):
                await local.patch("jobs", metadata["namespace"], metadata["name"], {"metadata": {"finalizers": None}})
            if local.get("jobs", metadata["namespace"], metadata["name"]) is not None:
                await local.delete("jobs", metadata["namespace"], metadata["name"], propagation="Background")
    kept = {job["metadata"]["uid"] for job in local.list("jobs")} | await keep_what_can_run(world, players)
    kept |= await delete_odd_wholes(world, players)
    for pod in local.list("pods"):
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        if not (owners | {pod["metadata"]["uid"]}) & kept:
            with suppress(ApiError):
                await local.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)


async def _check_all_run(world: World, players: Players) -> None:
    """Raise Finding unless all remaining objects run to their end, or run if they are endless."""
    waiting: list[str] = []

    async def all_over() -> bool:
        world.check_alive()
        waiting[:] = [
            f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            for job in world.local.list("jobs")
            if not _is_over(job) and any((job["metadata"].get("labels") or {}).get(key) for key in QUEUE_LABELS)
        ]
        waiting.extend(pods_that_wait(world))
        waiting.extend(await wholes_that_wait(world, players))
        await end_running_controllers(world)
        return not waiting

    if not await _until(all_over, _REST):
        conditions = [
            (workload["metadata"]["name"], workload["status"]["conditions"])
            for namespace in NAMESPACES.values()
            for workload in await players.workloads(namespace)
            if workload["status"]["state"] != "finished"
        ]
        raise Finding("a simple object stays stopped", f"{waiting}: {conditions}\n{world.tail()}")


async def _clean_up(world: World, players: Players) -> None:
    """Delete all objects of the game. Raises Finding if some remain, or a workload of theirs."""

    async def all_deleted() -> bool:
        for plural in ("jobs", "deployments", "statefulsets", "replicasets", "pods"):
            for obj in world.local.list(plural):
                metadata = obj["metadata"]
                with suppress(ApiError):
                    await world.local.delete(
                        plural, metadata["namespace"], metadata["name"], propagation="Background", grace=0
                    )
        swept = await sweep_wholes(world)
        return swept and not any(world.local.list(each) for each in ("jobs", "deployments", "statefulsets", "pods"))

    if not await _until(all_deleted, _REST):
        raise Finding("what is deleted stays", str([obj["metadata"] for obj in world.local.list("pods")])[:2000])
    await _check_no_workloads(players)
    for plural, name in (("runtimeclasses", "heavy"), ("runtimeclasses", "nope"), ("priorityclasses", "high")):
        if world.local.get(plural, "", name) is not None:
            await world.local.delete(plural, "", name)


async def _check_no_workloads(players: Players) -> None:
    """Raise Finding if a workload of a deleted object remains."""
    remaining: list[Object] = []

    async def all_over() -> bool:
        players.world.check_alive()
        remaining.clear()
        for namespace in NAMESPACES.values():
            remaining.extend(
                each for each in await players.workloads(namespace) if each["status"]["state"] != "finished"
            )
        return not remaining

    if not await _until(all_over, _REST):
        raise Finding("a workload outlives its object", f"{remaining}\n{players.world.tail()}")


async def _check_audit(world: World) -> None:
    """Raise Finding if the audit reports differences for _REST: deleted pods are noticed after up to 10 s."""
    found: list[Object] = []

    async def agrees() -> bool:
        status, document = await world.ask("GET", "/apis/sluice.dev/v1/audits")
        world.check_answer("GET audits", status, document)
        found[:] = document["items"]
        return not found

    if not await _until(agrees, _REST):
        raise Finding("the audit finds differences", str(found))
