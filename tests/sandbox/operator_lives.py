"""Lives of the sandbox's operators, and of the recorded real ones (`shared/apiserver/lives/operators`).

A life is played without Sluice: what Sluice wrote into the object is written at the recorded times. Compared are, of
each object, the values that each field had one after the other, and that objects of different kinds appeared and
disappeared in the same order. Of numbers only the turning points count, as writes may be merged; of random names and
addresses only whether there is one. Not compared are `generation`, fields of Kubernetes' own controllers, and what
Sluice writes into children.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer import runtimes

from admission.kinds import all_kinds
from admission.sandbox.background import background
from admission.sandbox.clock import Clock
from admission.sandbox.operators import NEEDED, serve_kinds
from admission.sandbox.sandbox import Sandbox

Object = dict[str, Any]

APART = 0.5
"""Recorded seconds between two objects that appear or disappear from which their order is compared."""
_RANDOM = re.compile(r"^(a-)[a-z0-9]{5}$")
_PRESENCE = re.compile(
    r"(jobId|rayClusterName|dashboardURL|podName|serviceName|serviceIP|stateTransitionTimes\.\w+|FailureStartTime)$"
)
_NOT_COMPARED = (
    "observedGeneration",
    "lastTransitionTime",
    "lastProbeTime",
    "lastUpdateTime",
    "uncountedTerminatedPods",
)
_OF_OTHERS = re.compile(r"sluice\.dev|kueue|^fake/|apps\.kubernetes\.io|^statefulset\.|^controller-revision-hash$")
"""Labels and annotations of Sluice and Kueue, of the simulated kubelet, and of Kubernetes' own controllers."""
_OF_CONTROLLERS = frozenset({"Job", "Pod", "StatefulSet"})
"""Kinds whose status Kubernetes' own controllers write; `lives.py` compares that."""


@dataclass
class Life:
    """What each object went through."""

    values: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    """By object and field: its distinct values, in order; None: absent."""
    present: list[tuple[float, str]] = field(default_factory=list)
    """(time, what) of each object that appeared or disappeared."""
    _names: dict[str, str] = field(default_factory=dict)
    _of_jobs: set[str] = field(default_factory=set)
    _known: dict[str, set[str]] = field(default_factory=dict)

    def note(self, t: float, change: str, kind: str, name: str, fields: Object, parts: frozenset[str]) -> None:
        """Add a version of an object: its `fields`, which are all of its `parts` (`status`, for example)."""
        if name in self._of_jobs or (kind == "Pod" and fields.get("owner.kind") == "Job"):
            self._of_jobs.add(name)  # the Job controller's, with random names
            return
        if _RANDOM.match(name):
            number = sum(each.startswith(f"{kind} a-#") for each in self._names.values()) + 1
            name = self._names.setdefault(f"{kind} {name}", f"{kind} a-#{number}").partition(" ")[2]
        who = f"{kind} {name}"
        if change in ("ADDED", "DELETED"):
            number = sum(what.startswith(f"{who} {change}") for _, what in self.present) + 1
            self.present.append((t, f"{who} {change} {number}"))
        if change == "DELETED":
            return
        known = self._known.setdefault(who, set())
        gone = {key for key in known if key.partition(".")[0] in parts} - fields.keys()
        for key, value in [*fields.items(), *((key, None) for key in gone)]:
            told = self.values.setdefault((who, key), [])
            if not told or told[-1] != value:
                told.append(value)
        known.update(fields)


def read(file: Path, *, since: float = 0.0, until: float = math.inf) -> Life:
    """Return a recorded life between two times."""
    life = Life()
    for each in json.loads(file.read_text())["life"]:
        if since <= each["t"] < until:
            state = each.get("state") or each.get("changed") or {}
            life.note(each["t"], each["event"], each["kind"], each["name"], *_compared(each["kind"], state))
    return life


def _compared(kind: str, state: Object) -> tuple[Object, frozenset[str]]:
    """Return the compared fields of an object in the form of the recordings, and the parts to which they belong."""
    found: Object = {}
    if "labels" in state:
        found |= _marks("labels", state["labels"])
    if "owner" in state:
        found |= {f"owner.{key}": state["owner"][0][key] for key in ("kind", "name")}
    if "finalizers" in state and kind not in _OF_CONTROLLERS:
        found["finalizers"] = ",".join(state["finalizers"] or ())
    spec = state.get("spec") or {}
    if kind == "Job":
        found |= {f"spec.{key}": spec[key] for key in ("parallelism", "completions", "suspend") if key in spec}
    if kind == "StatefulSet":
        for part in ("templateLabels", "templateAnnotations"):
            found |= _marks(f"spec.{part}", spec.get(part) or {})
        found |= {f"spec.{key}": spec[key] for key in ("podManagementPolicy", "replicas", "start") if key in spec}
    if kind == "Pod" and "initContainers" in spec:
        found["spec.initContainers"] = ",".join(spec["initContainers"])
    if kind not in _OF_CONTROLLERS:
        found |= _flat("status", state.get("status") or {})
    return found, frozenset(part for part in ("labels", "owner", "finalizers", "status") if part in state)


def _marks(path: str, marks: dict[str, str]) -> Object:
    """Return labels or annotations by their path; of random ones and hashes only whether they are there."""
    return {
        f"{path}.{key}": "" if key.endswith(("uid", "hash", "group-key")) else value
        for key, value in marks.items()
        if not _OF_OTHERS.search(key)
    }


def _flat(path: str, value: Any) -> Object:
    """Return the fields below a path. Lists are read by type, by name, or by number."""
    found: Object = {}
    if path.rpartition(".")[2] in _NOT_COMPARED:
        return found
    if isinstance(value, list):
        value = {each.get("type") or each.get("name") or str(number): each for number, each in enumerate(value)}
        if path.endswith("conditions"):
            return {
                f"{path}.{key}": f"{each['status']} {each['reason']} {each['message']}" for key, each in value.items()
            }
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= _flat(f"{path}.{key}", inner)
        return found
    return {path: bool(value) if _PRESENCE.search(path) else value}


def differences(recorded: Life, lived: Life) -> Iterator[tuple[str, str]]:
    """Yield (what, how it differs)."""
    kinds = {who.partition(" ")[0] for who, _ in recorded.values}  # pods were recorded of some objects only
    for key in sorted(recorded.values.keys() | lived.values.keys()):
        if key[0].partition(" ")[0] not in kinds:
            continue
        one, other = (_turns(each.values.get(key, [])) for each in (recorded, lived))
        if one != other:
            yield " ".join(key), f"recorded {one}, sandbox {other}"
    places = {what: number for number, (_, what) in enumerate(lived.present)}
    for t, what in recorded.present:
        if what not in places:
            yield what, "recorded, but not in the sandbox"
        for later, other in recorded.present:
            if (
                later - t > APART
                and what.split()[0] != other.split()[0]
                and places.get(other, 10**9) < places.get(what, -1)
            ):
                yield other, f"came before {what} in the sandbox, and later when recorded"


def _turns(values: list[Any]) -> list[Any]:
    """Return the values; of numbers those between a lower and a higher one are left out."""
    if not all(each is None or (isinstance(each, int) and not isinstance(each, bool)) for each in values):
        return values
    numbers = [0, *(each or 0 for each in values)]
    kept = [number for number, each in enumerate(numbers) if number == 0 or each != numbers[number - 1]]
    numbers = [numbers[number] for number in kept]
    return [
        each for number, each in enumerate(numbers)
        if number and (number == len(numbers) - 1 or (numbers[number - 1] < each) is not (each < numbers[number + 1]))
    ]  # fmt: skip


Step = tuple[float, "Callable[[Object], Object]"]
"""(recorded seconds, what changes a copy of the object and returns it)."""


async def play(
    name: str, obj: Object, steps: Sequence[Step], *others: Object, end: float, ungated: str = "", since: float = 0.0
) -> Life:
    """Play the life of an object: it is created, and each step changes it at its time, until `end`.

    `others` exist before. Pods whose name matches `ungated` lose their gates, from the time `since` on.
    """
    namespace = obj["metadata"]["namespace"]
    life, clock = Life(), Clock(monotonic=asyncio.get_running_loop().time)
    began = clock.now()
    async with Sandbox(clock=clock) as sandbox, AsyncExitStack() as stack:
        admin = sandbox.local("admin")
        await stack.enter_async_context(serve_kinds(sandbox, [name]))
        for each in others:
            await admin.create("customresourcedefinitions", "", runtimes(each["kind"]))
            await admin.create(f"{each['kind'].lower()}s", "", each)
        await admin.create("nodes", "", _NODE)
        await admin.create("namespaces", "", {"metadata": {"name": namespace}})
        kinds = [kind for each in (NEEDED.get(name), name) if each for kind in all_kinds(frameworks=(each,))]
        watched = [*_PLURALS, *(f"{kind.plural}.{kind.group}" for kind in kinds)]
        watcher = stack.enter_context(closing(admin.watch(*watched)))

        async def watch() -> None:
            async for batch in watcher:
                for _, change, one, _ in batch:
                    kind, own = one["kind"], one["metadata"]["name"]
                    life.note(clock.now() - began, change, kind, own, *_compared(kind, _recorded(one)))

        async def ungate() -> None:
            await clock.sleep_until(began + since)
            with closing(admin.watch("pods")) as pods:
                async for batch in pods:
                    for _, change, pod, _ in batch:
                        own = pod["metadata"]["name"]
                        if change == "ADDED" and "schedulingGates" in pod["spec"] and re.fullmatch(ungated, own):
                            await admin.patch("pods", namespace, own, {"spec": {"schedulingGates": None}})

        await stack.enter_async_context(background(watch=watch(), ungate=ungate()))
        plural = watched[-1]
        await admin.create(plural, namespace, obj)
        for at, step in steps:
            await clock.sleep_until(began + at)
            await admin.update(plural, namespace, step(json.loads(json.dumps(admin.get(plural, namespace, "a")))))
        await clock.sleep_until(began + end)
    return life


_PLURALS = ("jobs", "statefulsets", "pods")
_AMOUNTS = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
_NODE: Object = {
    "metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"pool": "x"}},
    "status": {"allocatable": _AMOUNTS, "capacity": _AMOUNTS},
}


def _recorded(obj: Object) -> Object:
    """Return an object in the form of the recordings."""
    metadata, spec = obj["metadata"], obj.get("spec", {})
    found = {"labels": metadata.get("labels") or {}, "owner": metadata.get("ownerReferences"), "spec": spec}
    found["finalizers"] = metadata.get("finalizers")
    found |= {"status": obj["status"]} if "status" in obj else {}
    if obj["kind"] == "StatefulSet":
        about = spec["template"]["metadata"]
        found["spec"] = {"start": spec.get("ordinals", {}).get("start"), "templateLabels": about.get("labels")}
        found["spec"] |= {key: spec[key] for key in ("podManagementPolicy", "replicas")}
        found["spec"]["templateAnnotations"] = about.get("annotations")
    if obj["kind"] == "Pod":
        found["spec"] = {"initContainers": [each["name"] for each in spec.get("initContainers") or ()]}
    return {key: value for key, value in found.items() if value is not None}
