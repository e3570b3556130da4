"""Rules and final checks for objects of other kinds (`wholes`)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from tests.fuzz.documents import QUEUE_LABELS
from tests.fuzz.kind_documents import KINDS, pods_wanted
from tests.fuzz.observer import SUSPENDED
from tests.fuzz.pod_players import is_gated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.fuzz.players import Players
    from tests.fuzz.world import Object, World

_SIZES = (
    "podgroups.scheduling.x-k8s.io",
    "podgroups.scheduling.k8s.io",
    "compositepodgroups.scheduling.k8s.io",
)


def wholes_without_reason(world: World, namespace: str, workloads: Iterable[Object]) -> list[str]:
    """Return waiting objects without a workload that has a reason; of kinds without pod gates only.

    The pods of the other kinds are queued as groups and checked in pod_rules.
    """
    with_reason = {
        each["metadata"]["uid"]
        for each in workloads
        if any(condition["reason"] for condition in each["status"]["conditions"])
    }
    return [
        f"{kind} {namespace}/{obj['metadata']['name']}"
        for kind, is_suspended in SUSPENDED.items()
        for obj in world.local.list(KINDS[kind].plural, namespace)
        if _is_queued(obj) and is_suspended(obj) and obj["metadata"]["uid"] not in with_reason
        if not _is_made(world, kind, obj)
    ]


def unrestored_wholes(world: World, players: Players) -> list[str]:
    """Return objects of drained queues that run or are not restored to the spec their users wrote."""
    found = []
    for kind, is_suspended in SUSPENDED.items():
        for obj in world.local.list(KINDS[kind].plural):
            written, name = players.kinds.wholes.get(obj["metadata"]["uid"]), obj["metadata"]["name"]
            if written is None or not _is_queued(obj):
                continue
            if not is_suspended(obj):
                found.append(f"{kind} {name} runs in a queue that is drained")
            elif not written.odd and obj["spec"] != written.spec:
                found.append(f"{kind} {name} is {obj['spec']}, written was {written.spec}")
    return found


async def delete_odd_wholes(world: World, players: Players) -> set[str]:
    """Delete objects that may be unable to run; return the UIDs of the others."""
    staying: set[str] = set()
    for kind, obj in _all(world):
        written = players.kinds.wholes.get(obj["metadata"]["uid"])
        if written is None and (kind == "statefulsets" or _is_made(world, kind, obj)):
            continue
        if written is None or written.odd or not _is_queued(obj, kind):
            await _delete(world, kind, obj)
        else:
            staying.add(obj["metadata"]["uid"])
    return staying


async def wholes_that_wait(world: World, players: Players) -> list[str]:
    """Return objects that do not run with all their pods; delete those that do, to free their quota."""
    waiting = []
    for kind, obj in _all(world):
        metadata = obj["metadata"]
        if metadata["uid"] not in players.kinds.wholes:
            continue
        children = [
            child for plural in ("jobs", "rayclusters") for child in world.local.controlled_by(plural, metadata["uid"])
        ]
        uids = {each["metadata"]["uid"] for each in (obj, *children)}
        pods = [
            pod
            for pod in world.local.list("pods", metadata["namespace"])
            if not uids.isdisjoint(owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ())
        ]
        run = [pod for pod in pods if not is_gated(pod) and pod.get("status", {}).get("phase") == "Running"]
        if len(run) == pods_wanted(kind, obj) or _is_over(obj):
            await _delete(world, kind, obj)
        elif "deletionTimestamp" not in metadata:
            waiting.append(f"{kind} {metadata['namespace']}/{metadata['name']}: {len(run)} pods run")
    return waiting


async def sweep_wholes(world: World) -> bool:
    """Delete all objects; return whether none is left."""
    sizes = [(plural, obj) for plural in _SIZES for obj in world.local.list(plural)]
    for kind, obj in [*_all(world), *sizes]:
        await _delete(world, kind, obj)
    return not any(_all(world))


def _all(world: World) -> Iterator[tuple[str, Object]]:
    for kind, served in KINDS.items():
        for obj in world.local.list(served.plural):
            yield kind, obj


async def _delete(world: World, kind: str, obj: Object) -> None:
    metadata, plural = obj["metadata"], KINDS[kind].plural if kind in KINDS else kind
    with suppress(ApiError):
        if metadata.get("finalizers") and not metadata.get("deletionTimestamp"):
            await world.local.patch(plural, metadata["namespace"], metadata["name"], {"metadata": {"finalizers": None}})
        await world.local.delete(plural, metadata["namespace"], metadata["name"], propagation="Background")


def _is_queued(obj: Object, kind: str = "") -> bool:
    labels = obj["metadata"].get("labels") or {}
    if _is_over(obj) or "deletionTimestamp" in obj["metadata"]:
        return False
    return kind == "vcjobs" or any(map(labels.get, QUEUE_LABELS))


def _is_over(obj: Object) -> bool:
    status = obj.get("status") or {}
    ended = ("Completed", "Complete", "Succeeded", "Failed", "ValidationFailed")
    fields = ("state", "queuejobstate", "phase", "jobDeploymentStatus")
    return "terminalState" in status or any(status.get(field) in ended for field in fields)


def _is_made(world: World, kind: str, obj: Object) -> bool:
    """Whether an object is the RayCluster of a RayJob, which its operator has made."""
    owners = {each["uid"] for each in obj["metadata"].get("ownerReferences") or ()}
    jobs = world.local.list("rayjobs", obj["metadata"]["namespace"]) if kind == "rayclusters" and owners else ()
    return any(each["metadata"]["uid"] in owners for each in jobs)
