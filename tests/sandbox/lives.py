"""Replay and comparison of object lifecycles ("lives") that were recorded on a real control plane.

A replay sends the same requests in the same order, none sooner than recorded. Then each object must have gone through
the same states in the same order, and states of different objects that were recorded clearly apart in time must have
the same order too. Not compared are times, random names, nodes, and the kubelet's status of pods that are being deleted
(the recorded kubelet was simulated as well, and kept such pods for other reasons).
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any

import aiohttp

from admission.sandbox import Sandbox
from admission.sandbox.clock import Clock

Object = dict[str, Any]

APART = 0.5
"""Seconds between two recorded states of different objects from which their order is compared."""
_SOON = {"jobs": APART, "pod": APART}
"""Recorded seconds within which the controllers of Jobs and pods report a change; the others take `_AT_ONCE`."""
_AT_ONCE = 0.02
_KEPT = ("deployments", "replicasets", "statefulsets")
_BETWEEN_TWO_ENDS = {
    "statefulsets par": "wants=1 generation=2 replicas=2 updatedReplicas=1 currentReplicas=1 readyReplicas=2 "
    "availableReplicas=2 observedGeneration=2"
}
"""States that are skipped: between the ends of two pods that were recorded 15 ms apart and may coincide here."""
_SETTLED = 3.0
"""Seconds to wait for further states at the end of a replay."""
_PATIENCE = 60.0
"""Seconds to wait for a recorded state before it counts as missing."""
_SLACK = 0.3
"""Recorded seconds that a pod runs longer in the replay, so that a status written just before its end appears."""
_NAMESPACE = "lives"
_NODES = 5
_NOTES = {
    "fake/seconds": "sandbox.sluice.dev/run-seconds",
    "fake/exit": "sandbox.sluice.dev/exit-code",
    "fake/stubborn": "sandbox.sluice.dev/stop-seconds",
}


@dataclass(frozen=True)
class Seen:
    """One state of one object. `who` is its resource and name, or its owner and number if the name is generated."""

    t: float
    who: str
    state: str


@dataclass
class Life:
    """States and refusals of one control plane; `refused` has the refusals by number of the request."""

    seen: list[Seen] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """`who` of each object, by its name."""
    _numbers: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def note(self, t: float, change: str, plural: str, obj: Object) -> None:
        who = self._who(plural, obj)
        state = "gone" if change == "DELETED" else _STATES.get(plural, _controller_state)(obj)
        last = next((each.state for each in reversed(self.seen) if each.who == who), None)
        if state not in (last, _BETWEEN_TWO_ENDS.get(who)):
            self.seen.append(Seen(t, who, state))

    def _who(self, plural: str, obj: Object) -> str:
        metadata = obj["metadata"]
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), {})
        kind = "pod" if plural == "pods" else plural
        if owner.get("kind") in ("Deployment", "CronJob"):
            return self._numbered(metadata["name"], f"{kind} of {owner['name']}")
        if kind == "pod" and "generateName" in metadata and owner.get("kind") != "StatefulSet":
            base = metadata["generateName"].removesuffix("-")
            if owner.get("kind") == "ReplicaSet":  # its pods may be seen first
                base = self._numbered(base, f"replicasets of {base.rpartition('-')[0]}")
            return self._numbered(metadata["name"], f"pod of {self.names.get(base, base)}")
        return self.names.setdefault(metadata["name"], f"{kind} {metadata['name']}")

    def _numbered(self, name: str, base: str) -> str:
        if name not in self.names:
            self._numbers[base] += 1
            self.names[name] = f"{base} {self._numbers[base]}"
        return self.names[name]

    def states(self) -> dict[str, list[str]]:
        """Return the states of each object; pods, which have random names, are sorted and numbered by their states."""
        by_who: dict[str, list[str]] = {}
        for each in self.seen:
            by_who.setdefault(each.who, []).append(each.state)
        pods = sorted(states for who, states in by_who.items() if who.startswith("pod "))
        others = {who: states for who, states in by_who.items() if not who.startswith("pod ")}
        return others | {f"pod {number}": states for number, states in enumerate(pods)}

    def order(self) -> list[tuple[float, tuple[str, ...]]]:
        """Return the time of each state; pods with the same states so far are numbered by time."""
        lives: dict[str, tuple[str, ...]] = {}
        for each in self.seen:
            lives[each.who] = (*lives.get(each.who, ()), each.state)
        times: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        so_far: defaultdict[str, int] = defaultdict(int)
        for each in self.seen:
            so_far[each.who] += 1
            if not (each.who.startswith("pod ") and each.state in ("being deleted", "gone")):
                kind = "pod" if each.who.startswith("pod ") else each.who
                times[kind, *lives[each.who], str(so_far[each.who])].append(each.t)
        return sorted((t, (*what, str(n))) for what, found in times.items() for n, t in enumerate(sorted(found)))


def _job_state(job: Object) -> str:
    status, metadata = job.get("status", {}), job["metadata"]
    counts = ("active", "ready", "terminating", "succeeded", "failed", "completedIndexes", "failedIndexes")
    told = [f"{name}={status[name]}" for name in counts if status.get(name) is not None]
    told += [f"{c['type']}={c['status']}:{c.get('reason', '')}" for c in status.get("conditions") or ()]
    uncounted = status.get("uncountedTerminatedPods") or {}
    told += [f"uncounted {kind}={len(uids)}" for kind, uids in sorted(uncounted.items()) if uids]
    told += ["started"] * ("startTime" in status) + ["suspended"] * bool(job["spec"].get("suspend"))
    told += [f"generation={metadata['generation']}"] + ["deleted"] * ("deletionTimestamp" in metadata)
    return " ".join(told + list(metadata.get("finalizers") or ()))


def _pod_state(pod: Object) -> str:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if "deletionTimestamp" in metadata:
        return "being deleted"
    conditions = {c["type"]: f"{c['status']}:{c.get('reason', '')}" for c in status.get("conditions") or ()}
    told = [status.get("phase", ""), "on a node" if "nodeName" in spec else "", metadata.get("generation", "")]
    # The recorded kubelet gave a wrong reason for an ended pod that is not ready: compare the status only.
    told += [f"PodScheduled={conditions.get('PodScheduled')}", f"Ready={conditions.get('Ready', '').partition(':')[0]}"]
    told += [gate["name"] for gate in spec.get("schedulingGates", ())]
    told += [f"{key}={value}" for key, value in sorted((spec.get("nodeSelector") or {}).items())]
    told += ["owned"] * bool(metadata.get("ownerReferences")) + list(metadata.get("finalizers") or ())
    return " ".join(str(each) for each in told if each)


def _controller_state(obj: Object) -> str:
    """Return a pod controller's state; of terminating replicas only whether there are any, as counts may be skipped."""
    status, metadata = obj.get("status") or {}, obj["metadata"]
    counts = ("replicas", "updatedReplicas", "currentReplicas", "readyReplicas", "availableReplicas",
              "unavailableReplicas", "observedGeneration")  # fmt: skip
    told = [f"wants={obj['spec']['replicas']}", f"generation={metadata['generation']}"]
    told += [f"{name}={status[name]}" for name in counts if name in status]
    told += sorted(f"{c['type']}={c['status']}:{c['reason']}" for c in status.get("conditions") or ())
    notes = {key.rpartition("/")[2]: value for key, value in (metadata.get("annotations") or {}).items()}
    told += [f"{key}={notes[key]}" for key in ("revision", "desired-replicas", "max-replicas") if key in notes]
    told += ["terminating"] * bool(status.get("terminatingReplicas"))
    told += ["rolling"] * (status.get("currentRevision") != status.get("updateRevision"))
    return " ".join([*told, *["deleted"] * ("deletionTimestamp" in metadata)])


def _cronjob_state(cronjob: Object) -> str:
    status = cronjob.get("status") or {}
    told = ["scheduled"] * ("lastScheduleTime" in status) + ["successful"] * ("lastSuccessfulTime" in status)
    return " ".join([f"active={len(status.get('active') or ())}", *told])


_STATES = {"pods": _pod_state, "jobs": _job_state, "cronjobs": _cronjob_state}


def read(file: Path) -> tuple[list[Object], Life]:
    """Return the requests of a recording, and the recorded states and refusals."""
    requests, life = [], Life()
    for line in file.read_text().splitlines()[1:]:
        entry = json.loads(line)
        if "request" in entry:
            if entry["status"] >= 400:
                life.refused[len(requests)] = _first_line(entry["answer"])
            requests.append({"t": entry["t"], **entry["request"]})
        elif entry["plural"] in ("jobs", "pods", "cronjobs", *_KEPT):
            life.note(entry["t"], entry["seen"], entry["plural"], entry["object"])
    return requests, life


async def replay(requests: list[Object], recorded: Life) -> Life:
    """Send the requests to a sandbox, each no sooner than recorded, and after all objects reached their states.

    The sandbox's clock is that of the event loop.
    """
    clock = Clock(monotonic=asyncio.get_running_loop().time)
    async with Sandbox(clock=clock) as sandbox:
        admin = sandbox.local("admin")
        await admin.create("namespaces", "", {"metadata": {"name": _NAMESPACE}})
        for number in range(_NODES):
            await admin.create("nodes", "", _node(number))
        await sandbox.clock.sleep_until(_same_second(recorded, sandbox.clock.now()))
        context = ssl.create_default_context(cadata=sandbox.ca_pem)
        connector, headers = aiohttp.TCPConnector(ssl=context), {"Authorization": "Bearer admin-token"}
        life, began, noted = Life(), asyncio.get_running_loop().time(), asyncio.Event()

        def now() -> float:
            return asyncio.get_running_loop().time() - began

        async def watch() -> None:
            async for batch in watcher:
                for plural, change, obj, _ in batch:
                    life.note(now(), change, plural, obj)
                noted.set()

        async def reached(until: float) -> None:
            """Wait until all objects reached their recorded states; after a timeout the comparison reports the rest."""
            wanted = _steps(recorded, until)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    while not wanted <= _steps(life, math.inf):
                        noted.clear()
                        await noted.wait()

        with closing(admin.watch("jobs", "pods", "cronjobs", *_KEPT)) as watcher:
            watching = asyncio.create_task(watch())
            async with aiohttp.ClientSession(sandbox.url, connector=connector, headers=headers) as session:
                before = sent = 0.0
                for number, request in enumerate(requests):
                    await reached(request["t"])
                    await asyncio.sleep(max(0.0, sent + request["t"] - before - now()))
                    before, sent = request["t"], now()
                    message = await _send(session, request, recorded, life)
                    if message:
                        life.refused[number] = message
            await reached(math.inf)
            await asyncio.sleep(_SETTLED)
            watching.cancel()
        return life


def _same_second(recorded: Life, now: float) -> float:
    """Return the next instant with the recording's offset from a full minute; `now` if no CronJob created a Job."""
    first = next((each.t for each in recorded.seen if each.who.startswith("jobs of ")), None)
    return now if first is None else now + (-first - now) % 60


def _steps(life: Life, t: float) -> Counter[str]:
    """Return the number of states of each object until shortly before `t`; for pods, only the number that are gone."""
    found: Counter[str] = Counter()
    for each in life.seen:
        plural = each.who.partition(" ")[0]
        if each.t <= t - _SOON.get(plural, _AT_ONCE):
            if plural != "pod":
                found[each.who] += 1
            elif each.state == "gone":
                found["pods that are gone"] += 1
    return found


async def _send(session: aiohttp.ClientSession, request: Object, recorded: Life, life: Life) -> str:
    """Send a request; return the message of a refusal, or an empty string."""
    path = re.sub(r"(?<=/pods/)[^/]+$|(?<=/jobs/)[^/]+$", lambda name: _named(name[0], recorded, life), request["path"])
    body = json.loads(json.dumps(request["body"]))
    if request["method"] == "POST":
        _translate(body)
    async with session.request(
        request["method"],
        path,
        params=request["query"] or {},
        data=json.dumps(body).encode(),
        headers={"Content-Type": request["contentType"]},
    ) as response:
        answer = await response.json()
        return _first_line(answer) if response.status >= 400 else ""


def _first_line(status: Object) -> str:
    """Return the first line of the message; the rest is a dump of the server's own structures."""
    line: str = status["message"].partition("\n")[0]
    return line


def _named(name: str, recorded: Life, life: Life) -> str:
    """Return the replay's name of a recorded object, whose name may have a random part."""
    who = recorded.names[name]
    return next(own for own, other in life.names.items() if other == who)


def _translate(body: Object) -> None:
    """Replace the recorded kubelet's annotations by the sandbox's; by default deleted pods vanish at once, as there."""
    spec = body["spec"]["jobTemplate"]["spec"] if body["kind"] == "CronJob" else body["spec"]
    owner = body if body["kind"] == "Pod" else spec["template"]
    notes = owner["metadata"].get("annotations", {})
    translated = {_NOTES["fake/stubborn"]: "0"} | {_NOTES[key]: notes[key] for key in notes}
    if (seconds := notes.get("fake/seconds")) is not None:
        translated[_NOTES["fake/seconds"]] = str(float(seconds) + _SLACK)
    owner["metadata"]["annotations"] = translated


def _node(number: int) -> Object:
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    annotations, labels = {"kwok.x-k8s.io/node": "fake"}, {"pool": "spot"}
    return {
        "metadata": {"name": f"node-{number}", "annotations": annotations, "labels": labels},
        "status": {"allocatable": room, "capacity": room},
    }


def state_differences(recorded: Life, lived: Life) -> Iterable[str]:
    """Yield objects whose states differ from the recorded ones. Recordings may end before the objects do."""
    one, other = recorded.states(), lived.states()
    if one.keys() != other.keys():
        yield f"there were other objects: {sorted(other)} instead of {sorted(one)}"
    for who in one.keys() & other.keys():
        if other[who][: len(one[who])] != one[who]:
            yield "\n".join([who, *unified_diff(one[who], other[who], "recorded", "sandbox", n=1, lineterm="")])


def order_differences(recorded: Life, lived: Life) -> Iterable[str]:
    """Yield pairs of states that were recorded clearly one after the other and came in the opposite order."""
    places = {what: place for place, (_, what) in enumerate(lived.order())}
    known = [(t, what) for t, what in recorded.order() if what in places]
    for t, what in known:
        for later, other in known:
            if later - t > APART and places[other] < places[what]:
                yield f"{other[0]}: {other[int(other[-2])]} came before {what[0]}: {what[int(what[-2])]}"
