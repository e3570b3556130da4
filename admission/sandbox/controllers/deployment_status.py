"""Calculation of a Deployment's status from its ReplicaSets, without I/O."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import orjson

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import condition

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object

_COMPLETE, _CREATED, _OVERDUE = "NewReplicaSetAvailable", "NewReplicaSetCreated", "ProgressDeadlineExceeded"
_UPDATED = "ReplicaSetUpdated"
_NO_DEADLINE = 2**31 - 1


def max_surge(owner: Object) -> int:
    """Return the number of pods that a rollout may have beyond the replicas; a percentage is rounded up."""
    if owner["spec"]["strategy"]["type"] == "Recreate":
        return 0
    return _share(owner["spec"]["strategy"]["rollingUpdate"]["maxSurge"], owner["spec"]["replicas"], math.ceil)


def max_unavailable(owner: Object) -> int:
    """Return the number of replicas that may be unavailable in a rollout.

    A percentage is rounded down, but to no less than 1 if maxSurge is 0: otherwise the rollout could not progress.
    """
    replicas: int = owner["spec"]["replicas"]
    if owner["spec"]["strategy"]["type"] == "Recreate" or not replicas:
        return 0
    share = _share(owner["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], replicas, math.floor)
    return min(share if share or max_surge(owner) else 1, replicas)


def _share(value: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    return value if isinstance(value, int) else rounded(int(value.removesuffix("%")) * replicas / 100)


def status_of(owner: Object, sets: list[Object], newest: Object | None, now: float, *, rolling: bool) -> Object:
    """Return the status; with `rolling` (neither paused nor being scaled) the condition Progressing is updated too."""
    before: Object = owner.get("status") or {}
    available = _sum(sets, "availableReplicas")
    counts = {
        "observedGeneration": owner["metadata"]["generation"],
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([newest] if newest else [], "replicas"),
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(each["spec"]["replicas"] for each in sets) - available),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    status["terminatingReplicas"] = _sum(sets, "terminatingReplicas")
    if before.get("conditions"):
        status["conditions"] = orjson.loads(orjson.dumps(before["conditions"]))
    enough = available >= owner["spec"]["replicas"] - max_unavailable(owner)
    if enough:
        text = "Deployment has minimum availability."
        _set_condition(status, "Available", "True", "MinimumReplicasAvailable", text, now)
    else:
        text = "Deployment does not have minimum availability."
        _set_condition(status, "Available", "False", "MinimumReplicasUnavailable", text, now)
    if rolling and newest is not None:
        _set_progressing(owner, status, newest["metadata"]["name"], now)
    return status


def set_created(status: Object, name: str, now: float) -> None:
    """Set the condition Progressing after the creation of a ReplicaSet."""
    _set_condition(status, "Progressing", "True", _CREATED, f'Created new replica set "{name}"', now)


def is_complete(owner: Object, status: Object) -> bool:
    """Return whether all replicas are of the newest template and available."""
    wanted = owner["spec"]["replicas"]
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == wanted for count in counts)


def progress_deadline(owner: Object) -> float | None:
    """Return the time (s since the epoch) at which the progress deadline is exceeded; None: no rollout is under way."""
    progress = condition(owner, "Progressing")
    if progress is None or progress["reason"] in (_COMPLETE, _OVERDUE):
        return None
    seconds: int = owner["spec"].get("progressDeadlineSeconds", _NO_DEADLINE)
    return None if seconds == _NO_DEADLINE else parse_rfc3339(progress["lastUpdateTime"]) + seconds


def _set_progressing(owner: Object, status: Object, name: str, now: float) -> None:
    before, current = owner.get("status") or {}, condition({"status": status}, "Progressing")
    done = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if done and current is not None and current["reason"] == _COMPLETE:
        return
    if is_complete(owner, status):
        _set_condition(
            status, "Progressing", "True", _COMPLETE, f'ReplicaSet "{name}" has successfully progressed.', now
        )
    elif _has_progressed(status, before):
        _set_condition(status, "Progressing", "True", _UPDATED, f'ReplicaSet "{name}" is progressing.', now)
    elif (deadline := progress_deadline(owner)) is not None and now >= deadline:
        text = f'ReplicaSet "{name}" has timed out progressing.'
        _set_condition(status, "Progressing", "False", _OVERDUE, text, now)


def _has_progressed(status: Object, before: Object) -> bool:
    grown = any(
        status.get(name, 0) > before.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    old, old_before = (each.get("replicas", 0) - each.get("updatedReplicas", 0) for each in (status, before))
    return grown or old < old_before


def _sum(sets: list[Object], name: str) -> int:
    return sum((each.get("status") or {}).get(name, 0) for each in sets)


def _set_condition(status: Object, kind: str, value: str, reason: str, message: str, now: float) -> None:
    """Set a condition; with equal status and reason it keeps its times, unless it reports further progress."""
    conditions = status.setdefault("conditions", [])
    current = condition({"status": status}, kind)
    same = current is not None and (current["status"], current["reason"]) == (value, reason)
    if same and reason != _UPDATED:
        return
    instant = rfc3339(now)
    transition = current["lastTransitionTime"] if current is not None and current["status"] == value else instant
    if current is not None:
        conditions.remove(current)
    conditions.append(
        {"type": kind, "status": value, "lastUpdateTime": instant, "lastTransitionTime": transition,
         "reason": reason, "message": message}
    )  # fmt: skip
