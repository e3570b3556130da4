"""The pretend kubelet of all pretend nodes: starts the pods bound to them, ends them in time, lets deleted ones go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import Controller, condition, is_over
from admission.sandbox.controllers.scheduler import is_pretend

if TYPE_CHECKING:
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient
    from admission.sandbox.objects import Object

RUN_SECONDS = "sandbox.sluice.dev/run-seconds"
EXIT_CODE = "sandbox.sluice.dev/exit-code"

# The taint of a node that nobody has seen ready yet.
_NOT_READY = "node.kubernetes.io/not-ready"
# Seconds that a container takes to stop when it is asked to.
_STOP = 1.0
# Seconds after which a pod on a node that does not exist is given up, as upstream's pod collector does.
_LOST = 40.0
_KILLED = 143


def run_seconds(pod: Object) -> float | None:
    """How long the pod runs: as annotated, else as long as its `sleep N` command says, else until it is deleted."""
    annotated = pod["metadata"].get("annotations", {}).get(RUN_SECONDS)
    if annotated is not None:
        return _seconds(annotated)
    main = pod["spec"]["containers"][0]
    words = [*main.get("command", ()), *main.get("args", ())]
    if len(words) == 3 and words[1] == "-c":  # sh -c "sleep 30"
        words = words[2].split()
    if len(words) == 2 and words[0].rpartition("/")[2] == "sleep":
        return _seconds(words[1].removesuffix("s"))
    return None


def _seconds(text: str) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        return None


def exit_code(pod: Object) -> int:
    """The exit code that the annotation asks for, else 0."""
    text = pod["metadata"].get("annotations", {}).get(EXIT_CODE, "0")
    return int(text) if text.isdecimal() else 1


class Kubelet(Controller[tuple[str, str]]):
    """Keys are namespace and name of a pod, or an empty namespace and the name of a node."""

    plurals = ("nodes", "pods")

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._nodes: dict[str, bool] = {}  # name -> pretend
        self._pods: dict[str, dict[tuple[str, str], None]] = {}
        self._started: dict[tuple[str, str], float] = {}

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "nodes":
            self._observe_node(change, obj)
        else:
            self._observe_pod(change, obj, before)

    def _observe_node(self, change: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED":
            del self._nodes[name]
        else:
            self._nodes[name] = is_pretend(node)
            self.dirty(("", name))
        if change != "MODIFIED":
            for key in self._pods.get(name, ()):
                self.dirty(key)

    def _observe_pod(self, change: str, pod: Object, before: Object | None) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        key = (metadata["namespace"], metadata["name"])
        if node is None:
            return
        if change == "DELETED":
            self._started.pop(key, None)
            known = self._pods.get(node, {})
            known.pop(key, None)
            if not known:
                self._pods.pop(node, None)
        elif before is None or "nodeName" not in before["spec"]:
            self._pods.setdefault(node, {})[key] = None
            self.dirty(key)
        elif "deletionTimestamp" in metadata and "deletionTimestamp" not in before["metadata"]:
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
        now = self.clock.now()
        if pod["status"].get("phase") != "Running":
            self._started[key] = now
            await self._write(pod, _running(pod, now))
        started = self._started.get(key)
        if started is None:
            started = self._started[key] = parse_rfc3339(pod["status"]["startTime"])
        duration = run_seconds(pod)
        if duration is None:
            return
        remaining = started + duration - now
        if remaining > 0:
            self.dirty(key, remaining)
        else:
            live = self.local.get("pods", *key)
            if live is not None:
                await self._write(live, _ended(live, exit_code(live), now))

    async def _stop(self, key: tuple[str, str], pod: Object) -> None:
        """End a deleted pod, and let it go when its finalizers allow."""
        metadata = pod["metadata"]
        asked = parse_rfc3339(metadata["deletionTimestamp"]) - metadata.get("deletionGracePeriodSeconds", 0)
        remaining = min(asked + _STOP, parse_rfc3339(metadata["deletionTimestamp"])) - self.clock.now()
        if remaining > 0:
            self.dirty(key, remaining)
            return
        if not is_over(pod):
            pod = await self._write(pod, _ended(pod, _KILLED, self.clock.now()))
        await self.remove("pods", pod, grace=0)

    async def _abandon(self, key: tuple[str, str], pod: Object) -> None:
        """Collect a pod whose node has been missing for long."""
        started = self._started.setdefault(key, self.clock.now())
        remaining = started + _LOST - self.clock.now()
        if remaining > 0:
            self.dirty(key, remaining)
        else:
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


def _running(pod: Object, now: float) -> Object:
    instant = rfc3339(now)
    return {
        "phase": "Running",
        "startTime": instant,
        "conditions": _conditions(pod, "True", "", now),
        "containerStatuses": [
            _container(container, {"running": {"startedAt": instant}}, running=True)
            for container in pod["spec"]["containers"]
        ],
    }


def _ended(pod: Object, code: int, now: float) -> Object:
    instant = rfc3339(now)
    ended = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "startedAt": pod["status"].get("startTime", instant),
        "finishedAt": instant,
    }
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _conditions(pod, "False", "PodFailed" if code else "PodCompleted", now),
        "containerStatuses": [
            _container(container, {"terminated": ended}, running=False) for container in pod["spec"]["containers"]
        ],
    }


def _container(container: Object, state: Object, *, running: bool) -> Object:
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": running,
        "restartCount": 0,
        "image": container["image"],
        "imageID": container["image"],
        "started": running,
    }
