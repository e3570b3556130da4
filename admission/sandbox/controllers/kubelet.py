"""The pretend kubelet of all pretend nodes: starts the pods bound to them, ends them in time, lets deleted ones go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import Controller, condition, is_over
from admission.sandbox.controllers.fit import room_on, shape_of
from admission.sandbox.controllers.podlife import exit_code, run_seconds, start_of, stop_seconds
from admission.sandbox.controllers.scheduler import is_pretend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

# The taint of a node that nobody has seen ready yet.
_NOT_READY = "node.kubernetes.io/not-ready"
# Seconds after which a pod on a node that does not exist is given up, as upstream's pod collector does.
_LOST = 40.0
# What a container's end is called by its exit code: it stopped when asked, it was killed, it could not be started.
_STOPPED, _KILLED, _UNSTARTED = 143, 137, 128


class Kubelet(Controller[tuple[str, str]]):
    """Keys are namespace and name of a pod, or an empty namespace and the name of a node."""

    plurals = ("nodes", "pods")

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._nodes: dict[str, bool] = {}  # name -> pretend
        self._room: dict[str, dict[str, int]] = {}  # of a node: resource -> amount that is not taken
        self._admitted: dict[tuple[str, str], dict[str, int]] = {}  # resource -> amount that the pod takes
        self._pods: dict[str, dict[tuple[str, str], None]] = {}
        self._started: dict[tuple[str, str], float] = {}
        self._asked: dict[tuple[str, str], float] = {}  # when each deleted pod was first asked to end

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "nodes":
            self._observe_node(change, obj)
        else:
            self._observe_pod(change, obj, before)

    def _observe_node(self, change: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED":
            del self._nodes[name]
            del self._room[name]
        else:
            self._nodes[name] = is_pretend(node)
            self._room[name] = room_on(node)
            for key in self._pods.get(name, ()):
                self._take(name, self._admitted.get(key, {}), 1)
            self.dirty(("", name))
        if change != "MODIFIED":
            for key in self._pods.get(name, ()):
                self.dirty(key)

    def _observe_pod(self, change: str, pod: Object, before: Object | None) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        key = (metadata["namespace"], metadata["name"])
        if node is None:
            return
        if change == "DELETED" or is_over(pod):
            self._take(node, self._admitted.pop(key, {}), -1)
        if change == "DELETED":
            self._started.pop(key, None)
            self._asked.pop(key, None)
            known = self._pods.get(node, {})
            known.pop(key, None)
            if not known:
                self._pods.pop(node, None)
        elif before is None or "nodeName" not in before["spec"]:
            self._pods.setdefault(node, {})[key] = None
            self.dirty(key)
        elif any(metadata.get(name) != before["metadata"].get(name) for name in ("deletionTimestamp", "annotations")):
            self.dirty(key)

    async def sync(self, key: tuple[str, str]) -> None:
        namespace, name = key
        if not namespace:
            await self._report_node(name)
            return
        pod = self.local.get("pods", namespace, name)
        if pod is None or "nodeName" not in pod["spec"]:
            return
        pretend = self._nodes.get(pod["spec"]["nodeName"])
        if pretend is None:
            await self._abandon(key, pod)
        elif pretend and "deletionTimestamp" in pod["metadata"]:
            await self._stop(key, pod)
        elif pretend and not is_over(pod):
            await self._live(key, pod)

    async def _live(self, key: tuple[str, str], pod: Object) -> None:
        """Start the pod, or end it if its time is over."""
        now, start = self.clock.now(), start_of(pod)
        if pod["status"].get("phase") != "Running":
            if start == "unpullable":
                if not pod["status"].get("containerStatuses"):
                    await self._write(pod, _waiting(pod, now))
                return
            if start == "fails":
                await self._write(pod, _ended(pod, _UNSTARTED, now))
                return
            lacking = self._admit(key, pod)
            if lacking:
                await self._write(pod, _rejected(lacking, now))
                return
            self._started[key] = now
            pod = await self._write(pod, _running(pod, now, ready=start != "unready"))
        ends = self._natural_end(key, pod)
        if ends > now:
            self.dirty(key, ends - now)
        else:
            await self._write(pod, _ended(pod, exit_code(pod), now))

    def _admit(self, key: tuple[str, str], pod: Object) -> str:
        """Take the pod's share of its node; or the resource of which the node has too little.

        The scheduler has asked before, but a pod that names its node itself has passed it by.
        """
        node, needed = pod["spec"]["nodeName"], dict(shape_of(pod["spec"]).requests)
        room = self._room[node]
        lacking = next((name for name, amount in needed.items() if amount > room.get(name, 0)), "")
        if not lacking and key not in self._admitted:
            self._admitted[key] = needed
            self._take(node, needed, 1)
        return lacking

    def _take(self, node: str, amounts: Mapping[str, int], sign: int) -> None:
        room = self._room.get(node, {})
        for name, amount in amounts.items():
            room[name] = room.get(name, 0) - sign * amount

    def _natural_end(self, key: tuple[str, str], pod: Object) -> float:
        """When the pod ends by itself; infinity if it does not."""
        duration = run_seconds(pod)
        if duration is None or pod["status"].get("phase") != "Running":
            return math.inf
        started = self._started.get(key)
        if started is None:
            started = self._started[key] = parse_rfc3339(pod["status"]["startTime"])
        return started + duration

    async def _stop(self, key: tuple[str, str], pod: Object) -> None:
        """End a deleted pod when its containers stop, and let it go when its finalizers allow."""
        if not is_over(pod):
            now, metadata = self.clock.now(), pod["metadata"]
            grace: float = metadata.get("deletionGracePeriodSeconds", 0)
            killed = parse_rfc3339(metadata["deletionTimestamp"])
            asked = self._asked.setdefault(key, killed - grace)
            stops, ends = asked + stop_seconds(pod, killed - asked), self._natural_end(key, pod)
            if not grace:  # by force; a finalizer may keep it until it is said to have ended
                stops = now
            if math.isinf(stops):
                return  # only a forced deletion, or another annotation, brings it to an end
            if min(stops, ends) > now:
                self.dirty(key, min(stops, ends) - now)
                return
            code = exit_code(pod) if ends < stops else _KILLED if killed <= stops else _STOPPED
            pod = await self._write(pod, _ended(pod, code, now))
        await self.remove("pods", pod, grace=0)

    async def _abandon(self, key: tuple[str, str], pod: Object) -> None:
        """Collect a pod whose node has been missing for long."""
        started = self._started.setdefault(key, self.clock.now())
        remaining = started + _LOST - self.clock.now()
        if remaining > 0:
            self.dirty(key, remaining)
        else:
            if not is_over(pod):
                pod = await self._write(pod, _ended(pod, _KILLED, self.clock.now()))
            await self.remove("pods", pod, grace=0)

    async def _report_node(self, name: str) -> None:
        """A pretend node is ready, once it is said; then nothing needs to be kept from it."""
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
            "message": "the sandbox pretends that this node is ready",
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
    why = {"reason": "ImagePullBackOff", "message": "the sandbox pretends that this image cannot be pulled"}
    return {
        "startTime": rfc3339(now),
        "conditions": _conditions(pod, "False", "ContainersNotReady", now),
        "containerStatuses": [
            _container(container, {"waiting": why}, ready=False, started=False)
            for container in pod["spec"]["containers"]
        ],
    }


def _rejected(resource: str, now: float) -> Object:
    """As the kubelet says it (`pkg/kubelet/lifecycle/predicate.go`), without its numbers."""
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
