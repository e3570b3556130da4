"""Rules and final checks for queued pods and pod groups."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from tests.fuzz.documents import QUEUE_LABELS
from tests.fuzz.pod_players import CONTROLLERS, is_gated
from tests.fuzz.world import BOUNDLESS, CALM, NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fuzz.players import Players
    from tests.fuzz.world import Object, World

GROUP_LABELS = ("sluice.dev/pod-group-name", "kueue.x-k8s.io/pod-group-name")
_ENDED = ("Succeeded", "Failed")


def pods_without_reason(world: World, players: Players, namespace: str, workloads: Iterable[Object]) -> list[str]:
    """Return gated pods without a workload that has a reason."""
    with_reason = {each["metadata"]["uid"] for each in workloads if _has_reason(each)}
    groups = {each["spec"]["object"]["name"] for each in workloads if _has_reason(each) and _is_group(each)}
    grouped = {uid for (where, _), group in players.pods.groups.items() if where == namespace for uid in group.uids}
    grouped |= players.kinds.gang_pods
    missing = []
    for pod in world.local.list("pods", namespace):
        metadata = pod["metadata"]
        if not is_gated(pod) or not _queue_of(pod) or _is_over(pod) or _is_claimed(pod):
            continue
        names = {name for label in GROUP_LABELS if (name := (metadata.get("labels") or {}).get(label))}
        if metadata["uid"] in grouped or names:
            # A pod's group does not change with its labels, so any group counts here; the end checks each one.
            if not groups and metadata["uid"] not in with_reason:
                missing.append(f"{namespace}/{metadata['name']}: no group")
        elif metadata["uid"] not in with_reason and not any(
            metadata["name"].startswith(f"{group}-") for group in groups
        ):
            missing.append(f"{namespace}/{metadata['name']}: no workload")
    return missing


def pods_of_drained_queues(world: World) -> list[str]:
    """Return pods of drained queues that run and are not being deleted."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} runs in a queue that is drained"
        for pod in world.local.list("pods")
        if pod["metadata"]["namespace"] != NAMESPACES[CALM]
        and _queue_of(pod) not in ("", BOUNDLESS)
        and "sluice.dev/managed" in (pod["metadata"].get("labels") or {})
        and not is_gated(pod)
        and not _is_over(pod)
    ]


def orphans_of_jobs(pods: Iterable[Object]) -> list[Object]:
    """Return pods that were made for a Job, have no owner any more, and are not over."""
    return [
        pod
        for pod in pods
        if "batch.kubernetes.io/controller-uid" in (pod["metadata"].get("labels") or {})
        if not _is_claimed(pod) and not _is_over(pod)
    ]


async def keep_what_can_run(world: World, players: Players) -> set[str]:
    """Delete controllers that may be unable to run; return the UIDs of pods and controllers that have to run.

    Endless pods and pods that may be unable to run are not among them.
    """
    local, mine = world.local, players.pods
    staying: set[str] = set()
    for plural in CONTROLLERS:
        for owner in local.list(plural):
            metadata = owner["metadata"]
            if mine.odd_controllers.get(metadata["uid"], True):
                with suppress(ApiError):
                    await local.delete(plural, metadata["namespace"], metadata["name"], propagation="Background")
            else:
                staying.add(metadata["uid"])
    for each in local.list("replicasets"):
        metadata = each["metadata"]
        if any(owner["uid"] in staying for owner in metadata.get("ownerReferences") or ()):
            staying.add(metadata["uid"])
        else:  # its Deployment was deleted without it, or is being deleted: it would replace its pods without end
            with suppress(ApiError):
                await local.delete("replicasets", metadata["namespace"], metadata["name"], propagation="Background")
    pods = {pod["metadata"]["uid"]: pod for pod in local.list("pods")}
    kept = {uid for uid, pod in pods.items() if not mine.odd_pods.get(uid, True) and not _is_endless(pod)}
    for group in mine.groups.values():
        left = group.uids & pods.keys()
        waits = all(is_gated(pods[uid]) for uid in left)
        # Of a group that has run already, some pods have ended and the others are being deleted.
        if not group.odd and len(left) == group.total and waits and not any(_is_endless(pods[uid]) for uid in left):
            kept |= left
    for uid, pod in pods.items():
        if {each["uid"] for each in pod["metadata"].get("ownerReferences") or ()} & staying:
            kept.add(uid)
    return kept


def pods_that_wait(world: World) -> list[str]:
    """Return queued pods that have not ended or, if they have a controller, do not run; and unready controllers."""
    found = []
    for pod in world.local.list("pods"):
        metadata = pod["metadata"]
        if not _queue_of(pod) or "sluice.dev/managed" not in (metadata.get("labels") or {}):
            continue
        endless = bool(metadata.get("ownerReferences"))
        phase = pod.get("status", {}).get("phase")
        if (phase != "Running") if endless else (phase not in _ENDED):
            found.append(f"pod {metadata['namespace']}/{metadata['name']}")
    for plural, kind in CONTROLLERS.items():
        for owner in world.local.list(plural):
            ready = owner.get("status", {}).get("readyReplicas") or 0
            if ready != owner["spec"].get("replicas", 1):
                found.append(f"{kind} {owner['metadata']['namespace']}/{owner['metadata']['name']}: {ready} ready")
    return found


async def end_running_controllers(world: World) -> None:
    """Delete controllers of which all pods run: they hold their quota without end, and others may need all of it."""
    for plural in CONTROLLERS:
        for owner in world.local.list(plural):
            metadata, ready = owner["metadata"], owner.get("status", {}).get("readyReplicas") or 0
            if ready == owner["spec"].get("replicas", 1) and "deletionTimestamp" not in metadata:
                with suppress(ApiError):
                    await world.local.delete(plural, metadata["namespace"], metadata["name"], propagation="Background")


def _has_reason(workload: Object) -> bool:
    is_over = workload["status"]["state"] == "finished"
    return not is_over and any(each["reason"] for each in workload["status"]["conditions"])


def _is_group(workload: Object) -> bool:
    return bool(workload["spec"]["object"]["kind"] == "PodGroup")


def _queue_of(pod: Object) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(next((labels[key] for key in QUEUE_LABELS if labels.get(key)), ""))


def _is_over(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in _ENDED


def _is_claimed(pod: Object) -> bool:
    """Return whether the pod has an owner reference."""
    return bool(pod["metadata"].get("ownerReferences"))


def _is_endless(pod: Object) -> bool:
    return (pod["metadata"].get("annotations") or {}).get("sandbox.sluice.dev/run-seconds") == "10000"
