"""Test helpers for kinds whose pods are queued as groups: definitions, manifests, and simulated controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import yaml
from custom_kinds import definition
from kind_manifests import FOLDER

from admission.kinds import all_kinds
from admission.sandbox.background import background
from admission.sandbox.controllers.leaderworkersets import LeaderWorkerSetController
from admission.sandbox.controllers.volcano import JOBS, VolcanoController

Object = dict[str, Any]

GROUPED = ("batch.volcano.sh/job", "leaderworkerset.x-k8s.io/leaderworkerset")
KINDS = all_kinds(frameworks=("batch/job", "pod", "statefulset", *GROUPED))
GATE = {"name": "sluice.dev/admission"}
__all__ = ["GATE", "GROUPED", "JOBS", "KINDS", "grouped_served", "lasting", "manifest", "pods_until", "running"]


@asynccontextmanager
async def grouped_served(sandbox: Any) -> AsyncIterator[None]:
    """Serve Volcano Jobs and LeaderWorkerSets, and run their simulated controllers during the block."""
    admin = sandbox.local("admin")
    for group, kind in (("batch.volcano.sh", "Job"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")):
        await admin.create("customresourcedefinitions", "", definition(KINDS.get(group, kind)))
    manager, clock = sandbox.local("system:serviceaccount:volcano-system:volcano-controllers"), sandbox.clock
    async with background(
        volcano=VolcanoController(manager, clock).run(),
        sets=LeaderWorkerSetController(manager, clock).run(),
    ):
        yield


def manifest(name: str) -> Object:
    """Return the manifest in a file of `tests/kinds/manifests`."""
    found: Object = yaml.load((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader)
    return found


def lasting(obj: Object) -> Object:
    """Change a manifest, in place, so that its pods run until they are deleted, with a grace period of one second."""
    spec = obj["spec"]
    templates = [task["template"] for task in spec.get("tasks", ())]
    templates += [each for each in (spec.get("leaderWorkerTemplate") or {}).values() if isinstance(each, dict)]
    for template in templates:
        metadata = template.setdefault("metadata", {})
        metadata.setdefault("annotations", {})["sandbox.sluice.dev/run-seconds"] = "1000000"
        template["spec"]["terminationGracePeriodSeconds"] = 1
    return obj


async def pods_until(user: Any, namespace: str, until: Callable[[dict[str, Object]], bool]) -> dict[str, Object]:
    """Wait until `until` returns True for the pods of a namespace, by name, and return them."""
    with closing(user.watch("pods")) as changes:
        async for _ in changes:
            found = {obj["metadata"]["name"]: obj for obj in user.list("pods", namespace)}
            if until(found):
                return found
    raise AssertionError("the watch ended")


def running(number: int, gated: int = 0) -> Callable[[dict[str, Object]], bool]:
    """Return a predicate for `pods_until`: `number` pods run, `gated` are gated, and there are no others."""

    def until(found: dict[str, Object]) -> bool:
        waiting = [obj for obj in found.values() if GATE in obj["spec"].get("schedulingGates", ())]
        run = [
            obj
            for obj in found.values()
            if obj["status"].get("phase") == "Running" and "deletionTimestamp" not in obj["metadata"]
        ]
        return (len(run), len(waiting), len(found)) == (number, gated, number + gated)

    return until
