"""Simulated kubelet of all simulated nodes: starts the pods bound to them, ends them, removes deleted ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import SimulatedController, condition, is_over
from admission.sandbox.controllers.fit import allocatable_of, shape_of
from admission.sandbox.controllers.podlife import exit_code, run_seconds, start_fault, stop_seconds
from admission.sandbox.controllers.scheduler import is_simulated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

# Taint of a node that has not been reported ready yet.
_NOT_READY = "node.kubernetes.io/not-ready"
# Seconds after which a pod on a node that does not exist is deleted, as upstream's pod garbage collector does.
_LOST = 40.0
# Exit codes of containers that ended by SIGTERM, by SIGKILL, or that could not be started.
_STOPPED, _KILLED, _UNSTARTED = 143, 137, 128


class Kubelet(SimulatedController[tuple[str, str]]):
    """Keys are the namespace and name of a pod, or an empty namespace and the name of a node."""

    plurals = ("nodes", "pods")

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._nodes: dict[str, bool] = {}  # name -> whether the node is simulated
        self._free: dict[str, dict[str, int]] = {}  # node -> resource -> free amount
        self._admitted: dict[tuple[str, str], dict[str, int]] = {}  # pod -> resource -> amount that it takes
        self._pods: dict[str, dict[tuple[str, str], None]] = {}
        self._started: dict[tuple[str, str], float] = {}
        self._stop_requested: dict[tuple[str, str], float] = {}  # deleted pod -> time of its first SIGTERM

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "nodes":
            self._observe_node(change, obj)
        else:
            self._observe_pod(change, obj, before)

    def _observe_node(self, change: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED":
            del self._nodes[name]
            del self._free[name]
        else:
            self._nodes[name] = is_simulated(node)
            self._free[name] = allocatable_of(node)
            for key in self._pods.get(name, ()):
                self._reserve(name, self._admitted.get(key, {}), 1)
            self.enqueue(("", name))
        if change != "MODIFIED":
            for key in self._pods.get(name, ()):
                self.enqueue(key)

    def _observe_pod(self, change: str, pod: Object, before: Object | None) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        key = (metadata["namespace"], metadata["name"])
        if node is None:
            return
        if change == "DELETED" or is_over(pod):
            self._reserve(node, self._admitted.pop(key, {}), -1)
        if change == "DELETED":
            self._started.pop(key, None)
            self._stop_requested.pop(key, None)
            known = self._pods.get(node, {})
            known.pop(key, None)
            if not known:
                self._pods.pop(node, None)
        elif before is None or "nodeName" not in before["spec"]:
            self._pods.setdefault(node, {})[key] = None
            self.enqueue(key)
        elif any(metadata.get(name) != before["metadata"].get(name) for name in ("deletionTimestamp", "annotations")):
            self.enqueue(key)

    async def sync(self, key: tuple[str, str]) -> None:
        namespace, name = key
        if not namespace:
            await self._report_node(name)
            return
        pod = self.local.get("pods", namespace, name)
        if pod is None or "nodeName" not in pod["spec"]:
            return
        simulated = self._nodes.get(pod["spec"]["nodeName"])
        if simulated is None:
            await self._collect_lost(key, pod)
        elif simulated and "deletionTimestamp" in pod["metadata"]:
            await self._stop(key, pod)
        elif simulated and not is_over(pod):
            await self._run_pod(key, pod)

    async def _run_pod(self, key: tuple[str, str], pod: Object) -> None:
        """Start the pod, or end it if its run time is over."""
        now, start = self.clock.now(), start_fault(pod)
        if pod["status"].get("phase") != "Running":
            if start == "unpullable":
                if not pod["status"].get("containerStatuses"):
                    await self._write(pod, _waiting(pod, now))
                return
            if start == "fails":
                await self._write(pod, _ended(pod, _UNSTARTED, now))
                return
            missing = self._admit(key, pod)
            if missing:
                await self._write(pod, _rejected(missing, now))
                return
            self._started[key] = now
            pod = await self._write(pod, _running(pod, now, ready=start != "unready"))
        ends = self._natural_end(key, pod)
        if ends > now:
            self.enqueue(key, ends - now)
        else:
            await self._write(pod, _ended(pod, exit_code(pod), now))

    def _admit(self, key: tuple[str, str], pod: Object) -> str:
        """Admit the pod and take its requests from its node; return a resource of which the node lacks some, else "".

        The scheduler has checked the same, but a pod with a preset nodeName bypasses it.
        """
        node, needed = pod["spec"]["nodeName"], dict(shape_of(pod["spec"]).requests)
        free = self._free[node]
        missing = next((name for name, amount in needed.items() if amount > free.get(name, 0)), "")
        if not missing and key not in self._admitted:
            self._admitted[key] = needed
            self._reserve(node, needed, 1)
        return missing

    def _reserve(self, node: str, amounts: Mapping[str, int], sign: int) -> None:
        free = self._free.get(node, {})
        for name, amount in amounts.items():
            free[name] = free.get(name, 0) - sign * amount

    def _natural_end(self, key: tuple[str, str], pod: Object) -> float:
        """Return when the pod ends by itself (s since the epoch); infinity if it does not."""
        duration = run_seconds(pod)
        if duration is None or pod["status"].get("phase") != "Running":
            return math.inf
        started = self._started.get(key)
        if started is None:
            started = self._started[key] = parse_rfc3339(pod["status"]["startTime"])
        return started + duration

    async def _stop(self, key: tuple[str, str], pod: Object) -> None:
        """End a deleted pod when its containers stop, then delete it; it is removed once it has no finalizers."""
        if not is_over(pod):
            now, metadata = self.clock.now(), pod["metadata"]
            grace: float = metadata.get("deletionGracePeriodSeconds", 0)
            killed = parse_rfc3339(metadata["deletionTimestamp"])
            requested = self._stop_requested.setdefault(key, killed - grace)
            stops, ends = requested + stop_seconds(pod, killed - requested), self._natural_end(key, pod)
            if not grace:  # forced; a pod with a finalizer still needs its terminated status
                stops = now
            if math.isinf(stops):
                return  # only a forced deletion, or another annotation, ends it
            if min(stops, ends) > now:
                self.enqueue(key, min(stops, ends) - now)
                return
            code = exit_code(pod) if ends < stops else _KILLED if killed <= stops else _STOPPED
            pod = await self._write(pod, _ended(pod, code, now))
        await self.remove("pods", pod, grace=0)

    async def _collect_lost(self, key: tuple[str, str], pod: Object) -> None:
        """Delete a pod whose node has been missing for _LOST seconds."""
        started = self._started.setdefault(key, self.clock.now())
        remaining = started + _LOST - self.clock.now()
        if remaining > 0:
            self.enqueue(key, remaining)
        else:
            if not is_over(pod):
                pod = await self._write(pod, _ended(pod, _KILLED, self.clock.now()))
            await self.remove("pods", pod, grace=0)

    async def _report_node(self, name: str) -> None:
        """Report a simulated node as Ready and remove its not-ready taint."""
        node = self.local.get("nodes", "", name)
        if node is None or not self._nodes.get(name):
            return
        taints = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != _NOT_READY]
        if len(taints) != len(node["spec"].get("taints", ())):
            node = await self.local.update("nodes", "", {**node, "spec": {**node["spec"], "taints": taints}})
        if condition(node, "Ready") is not None:
            return
        instant = rfc3339(self.clock.now())
        ready = {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": instant,
            "lastTransitionTime": instant,
            "reason": "KubeletReady",
            "message": "the sandbox simulates a ready node",
        }
        status = {**node.get("status", {}), "conditions": [ready]}
        await self.local.update("nodes", "", {**node, "status": status}, subresource="status")

    async def _write(self, pod: Object, status: Object) -> Object:
        changed = {**pod, "status": {**pod["status"], **status}}
        return await self.local.update("pods", pod["metadata"]["namespace"], changed, subresource="status")


def _conditions(pod: Object, ready: str, reason: str, now: float) -> list[Object]:
    instant = rfc3339(now)
    kept = [entry for entry in pod["status"].get("conditions", ()) if entry["type"] not in ("Ready", "ContainersReady")]
    entry: Object = {"status": ready, "lastProbeTime": None, "lastTransitionTime": instant}
    if reason:
        entry["reason"] = reason
    return [*kept, {"type": "ContainersReady", **entry}, {"type": "Ready", **entry}]


def _running(pod: Object, now: float, *, ready: bool) -> Object:
    instant = rfc3339(now)
    return {
        "phase": "Running",
        "startTime": instant,
        "conditions": _conditions(pod, "True" if ready else "False", "" if ready else "ContainersNotReady", now),
        "containerStatuses": [
            _container(container, {"running": {"startedAt": instant}}, ready=ready, started=True)
            for container in pod["spec"]["containers"]
        ],
    }


def _waiting(pod: Object, now: float) -> Object:
    why = {"reason": "ImagePullBackOff", "message": "the sandbox simulates an image that cannot be pulled"}
    return {
        "startTime": rfc3339(now),
        "conditions": _conditions(pod, "False", "ContainersNotReady", now),
        "containerStatuses": [
            _container(container, {"waiting": why}, ready=False, started=False)
            for container in pod["spec"]["containers"]
        ],
    }


def _rejected(resource: str, now: float) -> Object:
    """Return the status of a rejected pod, as the kubelet reports it (`pkg/kubelet/lifecycle/predicate.go`).

    Without the numbers of its message.
    """
    return {
        "phase": "Failed",
        "reason": f"OutOf{resource}",
        "message": f"Pod was rejected: Node didn't have enough resource: {resource}",
        "startTime": rfc3339(now),
    }


def _ended(pod: Object, code: int, now: float) -> Object:
    instant = rfc3339(now)
    ended = {
        "exitCode": code,
        "reason": "StartError" if code == _UNSTARTED else "Error" if code else "Completed",
        "startedAt": pod["status"].get("startTime", instant),
        "finishedAt": instant,
    }
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _conditions(pod, "False", "PodFailed" if code else "PodCompleted", now),
        "containerStatuses": [
            _container(container, {"terminated": ended}, ready=False, started=False)
            for container in pod["spec"]["containers"]
        ],
    }


def _container(container: Object, state: Object, *, ready: bool, started: bool) -> Object:
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": ready,
        "restartCount": 0,
        "image": container["image"],
        "imageID": container["image"],
        "started": started,
    }
