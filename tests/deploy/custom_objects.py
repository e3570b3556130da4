"""Objects of all custom kinds, and actions of their controllers, for the test of permissions."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from admission.kinds.patches import merged
from admission.sandbox.controllers.descriptions import pod_changes

Object = dict[str, Any]

MANIFESTS = Path(__file__).parents[1] / "kinds" / "manifests"
POD = {"metadata": {"name": "held"}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
HELD = {
    "resources": {
        "GenericItems": [
            {"generictemplate": {"apiVersion": "v1", "kind": "Pod", **POD}},
            {"generictemplate": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"}}},
            {
                "generictemplate": {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "held"},
                    "spec": {"clusterIP": "None"},
                }
            },
            {
                "generictemplate": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": "held"},
                    "spec": {"template": {"spec": {**POD["spec"], "restartPolicy": "Never"}}},
                }
            },
        ]
    }
}
"""Spec of an AppWrapper of MCAD with one object of each kind that Sluice creates for it."""


def custom_object(kind: Any) -> Object:
    """Return an object of a custom kind, gated and with a queue label."""
    found = [next(yaml.load_all(file.read_text(), yaml.CSafeLoader)) for file in sorted(MANIFESTS.glob("*.yaml"))]
    role = {"role": "main", "count": 1, "template": {"spec": {"containers": [{"name": "main", "image": "pause"}]}}}
    found.append({"apiVersion": "example.com/v1", "kind": "TrainingRun", "spec": {"roles": [role]}})
    found.append({"apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "spec": HELD})
    known = f"{kind.group}/{kind.versions[0]}", kind.kind
    obj: Object = next(each for each in found if (each["apiVersion"], each["kind"]) == known)
    obj["metadata"] = {"name": kind.plural, "namespace": "default", "labels": {"sluice.dev/queue-name": "lq"}}
    for operation in kind.gate(obj):
        _set(obj, operation["path"].strip("/").split("/"), operation["value"])
    return obj


async def make_child(admin: Any, kind: Any, owner: Object, kinds: Iterable[Any]) -> None:
    """Create the child from which the pod sets of an object are read, if its kind has one, as its controller does."""
    for child_kind in kinds:
        if kind.rendered_by == (child_kind.group, child_kind.kind):
            child = custom_object(child_kind)
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
            reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
            name = owner["metadata"]["name"]
            child["metadata"] = {"name": name, "namespace": "default", "ownerReferences": [reference]}
            await admin.create(child_kind.plural, "default", child)


async def update_child(admin: Any, kind: Any) -> None:
    """Copy the patches that the start of a TrainJob adds to it into its JobSet, as its controller does."""
    await until(admin, kind.plural, lambda obj: bool(obj["spec"].get("runtimePatches")))
    owner = admin.get(kind.plural, "default", kind.plural)
    child = copy.deepcopy(admin.get("jobsets", "default", kind.plural))
    for role in child["spec"]["replicatedJobs"]:
        inner = role["template"]["spec"]
        for change in pod_changes(owner, role["name"]):
            inner["template"] = merged(inner["template"], change)
    await admin.update("jobsets", "default", child)


def _set(obj: Object, path: list[str], value: object) -> None:
    for key in path[:-1]:
        obj = obj.setdefault(key, {})
    obj[path[-1]] = value


async def until(local: Any, plural: str, holds: Any) -> None:
    """Wait for an object for which `holds` returns True."""
    watcher = local.watch(plural)
    async for batch in watcher:
        if any(change != "DELETED" and holds(obj) for _, change, obj, _ in batch):
            watcher.close()
