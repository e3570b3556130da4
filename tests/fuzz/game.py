"""One game from the first move to the end, when all has to come to rest, and what must always hold in it."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission.sandbox.apiserver.errors import ApiError
from tests.fuzz.documents import QUEUE_LABELS, simple_job
from tests.fuzz.findings import Finding
from tests.fuzz.kind_rules import (
    delete_odd_wholes,
    sweep_wholes,
    wholes_not_given_back,
    wholes_that_wait,
    wholes_without_reason,
)
from tests.fuzz.observer import SUSPENDED, Observer
from tests.fuzz.players import Players
from tests.fuzz.pod_rules import keep_what_can_run, pods_of_drained_queues, pods_that_wait, pods_without_reason
from tests.fuzz.world import CALM, NAMESPACES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fuzz.moves import Game
    from tests.fuzz.world import Object, World

_EVERY = 8
"""Moves between two of the other team's Jobs."""
_SOON = 10.0
"""Real seconds in which a Job that has quota has to start."""
_REST = 20.0
"""Real seconds in which all has to come to rest."""


@dataclass
class Played:
    """How a game went."""

    moves: int
    seconds: float
    most: float
    """CPUs of all pods that were counted together at the worst moment."""
    finding: Finding | None
    resting: bool
    """Whether all moves had been made before."""


async def play(game: Game, world: World, *, to_the_end: bool = True) -> Played:
    """Play it in a world without Jobs, which is so again afterwards, unless something was found.

    Not `to_the_end`: without the question whether all comes to rest.
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
            resting = True
            if to_the_end:
                await _comes_to_rest(world, players)
            await _is_swept(world, players)
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


async def _until(look: Callable[[], Any], seconds: float) -> Any:
    """What `look` returns, once that is something; else what it returned last. A busy machine has more time."""
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    deadline = time.monotonic() + seconds * busy
    while not (found := await look()) and time.monotonic() < deadline:  # noqa: ASYNC110  other processes make it so
        await asyncio.sleep(0.05)
    return found


async def _another_team_starts(world: World, players: Players, number: int) -> None:
    """Raise Finding unless a simple Job of somebody else, who has quota enough, starts and ends within seconds."""
    name = f"calm-{number}"
    body = simple_job(name, "main")
    body["spec"]["ttlSecondsAfterFinished"] = 0
    status, document = await world.request(CALM, "POST", f"/apis/batch/v1/namespaces/{NAMESPACES[CALM]}/jobs", body)
    if status != 201:
        raise Finding("another team's Job is refused", str(document))

    async def has_started() -> bool:
        world.lives()
        job = world.local.get("jobs", NAMESPACES[CALM], name)
        return job is None or job["spec"].get("suspend") is not True

    if not await _until(has_started, _SOON):
        workloads = await players.workloads(NAMESPACES[CALM])
        said = [each["status"] for each in workloads if each["spec"]["object"]["name"] == name]
        told = f"within {_SOON:g} s: {said}\n{world.tail()}\n{await world.tasks()}"
        raise Finding("another team's Job does not start", told)


def _is_queued(job: Object) -> bool:
    labels = job["metadata"].get("labels") or {}
    waits = job["spec"].get("suspend") is True and "deletionTimestamp" not in job["metadata"]
    managed = job["spec"].get("managedBy", "kubernetes.io/job-controller") == "kubernetes.io/job-controller"
    return waits and managed and any(labels.get(key) for key in QUEUE_LABELS) and not _is_over(job)


def _is_over(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


async def _each_has_a_reason(world: World, players: Players) -> None:
    """Raise Finding unless each Job that waits is among the workloads, with a reason."""
    missing: list[str] = []

    async def all_told() -> bool:
        missing.clear()
        world.lives()
        for namespace in NAMESPACES.values():
            workloads = await players.workloads(namespace)
            told = {workload["metadata"]["uid"]: workload for workload in workloads}
            missing.extend(pods_without_reason(world, players, namespace, workloads))
            missing.extend(wholes_without_reason(world, namespace, workloads))
            for job in filter(_is_queued, world.local.list("jobs", namespace)):
                workload = told.get(job["metadata"]["uid"])
                conditions = workload["status"]["conditions"] if workload else ()
                if not any(each["reason"] for each in conditions):
                    missing.append(f"{namespace}/{job['metadata']['name']}: {conditions or 'no workload'}")
        return not missing

    if not await _until(all_told, _SOON):
        raise Finding("something waits without a reason", f"{missing}\n{world.tail()}")


# ---------------------------------------------------------------------- the end


async def _comes_to_rest(world: World, players: Players) -> None:
    """Raise Finding unless all that was stopped is given back, and what is in order runs once it may."""
    await _forget_limits(world)
    await players.set_up()
    for queue in ("a", "b"):
        await players.stop(queue, "HoldAndDrain")
    await _each_has_a_reason(world, players)
    await _is_given_back(world, players)
    await _remove_what_is_odd(world, players)
    await players.set_up()
    await players.activate_all()
    await _all_run(world, players)
    await _another_team_starts(world, players, 0)
    if players.observer.trouble is not None:
        raise players.observer.trouble
    await _no_differences(world)


async def _forget_limits(world: World) -> None:
    for limits in world.local.list("limitranges"):
        await world.local.delete("limitranges", limits["metadata"]["namespace"], limits["metadata"]["name"])


async def _is_given_back(world: World, players: Players) -> None:
    """Nothing that waits may still carry what a start had put in."""
    changed: list[str] = []

    async def all_back() -> bool:
        changed.clear()
        world.lives()
        for job in world.local.list("jobs"):
            written = players.jobs.get(job["metadata"]["uid"])
            if written is None or _is_over(job) or "deletionTimestamp" in job["metadata"]:
                continue
            if not any((job["metadata"].get("labels") or {}).get(key) for key in QUEUE_LABELS):
                continue
            if not written.odd:
                changed.extend(_differences(job, written.spec))
        changed.extend(pods_of_drained_queues(world))
        changed.extend(wholes_not_given_back(world, players))
        return not changed

    if not await _until(all_back, _REST):
        raise Finding("a Job is not given back as it was", f"{changed}\n{world.tail()}")


def _differences(job: Object, spec: Object) -> list[str]:
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    now = job["spec"]
    found = []
    if now.get("suspend") is not True:
        found.append(f"{name} runs in a queue that is drained")
    for field in ("parallelism", "completions", "podReplacementPolicy"):
        if now.get(field) != spec.get(field):
            found.append(f"{name} {field} is {now.get(field)}, written was {spec.get(field)}")
    for field in ("nodeSelector", "tolerations", "affinity"):
        has, had = now["template"]["spec"].get(field), spec["template"]["spec"].get(field)
        if (has or None) != (had or None):
            found.append(f"{name} {field} is {has}, written was {had}")
    return found


async def _remove_what_is_odd(world: World, players: Players) -> None:
    """Only simple Jobs stay; pods that run for ever are shortened by deletion of theirs, too."""
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


async def _all_run(world: World, players: Players) -> None:
    """What is left can run, and does."""
    waiting: list[str] = []

    async def all_over() -> bool:
        world.lives()
        waiting[:] = [
            f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            for job in world.local.list("jobs")
            if not _is_over(job) and any((job["metadata"].get("labels") or {}).get(key) for key in QUEUE_LABELS)
        ]
        waiting.extend(pods_that_wait(world))
        waiting.extend(await wholes_that_wait(world, players))
        return not waiting

    if not await _until(all_over, _REST):
        said = [
            (workload["metadata"]["name"], workload["status"]["conditions"])
            for namespace in NAMESPACES.values()
            for workload in await players.workloads(namespace)
            if workload["status"]["state"] != "finished"
        ]
        raise Finding("something simple stays stopped for ever", f"{waiting}: {said}\n{world.tail()}")


async def _is_swept(world: World, players: Players) -> None:
    """Nothing of this game is left for the next one."""

    async def all_gone() -> bool:
        for plural in ("jobs", "deployments", "statefulsets", "replicasets", "pods"):
            for obj in world.local.list(plural):
                metadata = obj["metadata"]
                with suppress(ApiError):
                    await world.local.delete(
                        plural, metadata["namespace"], metadata["name"], propagation="Background", grace=0
                    )
        swept = await sweep_wholes(world)
        return swept and not any(world.local.list(each) for each in ("jobs", "deployments", "statefulsets", "pods"))

    if not await _until(all_gone, _REST):
        raise Finding("what is deleted stays", str([obj["metadata"] for obj in world.local.list("pods")])[:2000])
    await _nothing_is_held(players)
    for plural, name in (("runtimeclasses", "heavy"), ("runtimeclasses", "nope"), ("priorityclasses", "high")):
        if world.local.get(plural, "", name) is not None:
            await world.local.delete(plural, "", name)


async def _nothing_is_held(players: Players) -> None:
    """Raise Finding if a workload is left of what is gone."""
    left: list[Object] = []

    async def all_over() -> bool:
        players.world.lives()
        left.clear()
        for namespace in NAMESPACES.values():
            left.extend(each for each in await players.workloads(namespace) if each["status"]["state"] != "finished")
        return not left

    if not await _until(all_over, _REST):
        raise Finding("a workload outlives its object", f"{left}\n{players.world.tail()}")


async def _no_differences(world: World) -> None:
    """Raise Finding if the audit still finds any after a while: pods that are gone are noticed after up to 10 s."""
    found: list[Object] = []

    async def agrees() -> bool:
        status, document = await world.ask("GET", "/apis/sluice.dev/v1/audits")
        world.judge("GET audits", status, document)
        found[:] = document["items"]
        return not found

    if not await _until(agrees, _REST):
        raise Finding("the audit finds differences", str(found))
