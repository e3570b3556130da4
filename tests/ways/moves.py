"""Ways in which a user might bypass the queue, each applicable to any kind.

The docstrings of the ways are printed in docs/kinds/tests.md (table.py), after "a user tries to".
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tests.ways.cluster import MERGE
from tests.ways.objects import LIVES, QUEUE, child, enlarged, job, pod, scaled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.ways.play import Cell

Object = dict[str, Any]

PODS = "v1/pods"


async def open_(cell: Cell) -> None:
    """Open the gate: set the suspend field to the value that lets it run, or remove it; remove its pods' gates."""
    for value in (cell.case.opened, None):
        for keys in cell.case.flips:
            await cell.patch(nested(keys, value))
    if not cell.case.flips:
        for each in cell.pods():
            await cell.patch_pod(each, {"spec": {"schedulingGates": None}})


async def open_unlabelled(cell: Cell) -> None:
    """Open the gate and remove the queue label in the same request."""
    unlabelled: Object = {"metadata": {"labels": {QUEUE: None}}}
    body: Object = {}
    for keys in cell.case.flips:
        body = merged(body, nested(keys, cell.case.opened))
    if cell.case.path != PODS:
        await cell.patch(merged(body, unlabelled))
    if not cell.case.flips:
        labels = {QUEUE: None, "sluice.dev/managed": None}
        for each in cell.pods():
            await cell.patch_pod(each, {"spec": {"schedulingGates": None}, "metadata": {"labels": labels}})


async def flip(cell: Cell) -> None:
    """Suspend and resume it while its pods are terminating, or delete its pods and create them again."""
    for _ in range(3):
        for value in (not cell.case.opened if isinstance(cell.case.opened, bool) else None, cell.case.opened):
            for keys in cell.case.flips:
                await cell.patch(nested(keys, value))
        if not cell.case.flips:
            for number, each in enumerate(cell.pods()):
                await cell.delete(PODS, each["metadata"]["name"], grace=20)
                if cell.case.path == PODS:
                    again = copy.deepcopy(cell.case.make()[-1])
                    again["metadata"]["name"] = f"again-{number}"
                    await cell.create(PODS, again)


async def delete_pods(cell: Cell) -> None:
    """Delete its slowly terminating pods and their replacements."""
    for _ in range(3):
        for each in cell.pods():
            await cell.delete(PODS, each["metadata"]["name"], grace=20)


async def note(cell: Cell) -> None:
    """Write the annotations and labels that only Sluice writes, about its start, its requests and its admission."""
    annotations = {
        "sluice.dev/start-with-owner": "true",
        "sluice.dev/asks-for": '{"workers":{"replicas":6}}',
        "sluice.dev/dispatch": "true",
        "sluice.dev/pod-group-fast-admission": "true",
        "sluice.dev/pod-group-role": "0" * 32 + "-000000",
        "sluice.dev/submitted-by": "root",
        "sluice.dev/submitter-groups": "root",
    }
    owner = "00000000-0000-0000-0000-000000000001"
    labels = {"sluice.dev/workload-uid": owner, "sluice.dev/pod-set": "workers"}
    body: Object = {"metadata": {"annotations": annotations, "labels": labels}}
    for each in cell.pods():
        await cell.patch_pod(each, body)
    if cell.case.path != PODS:
        present = await cell.present()
        await cell.patch(body)
        await cell.patch(merged(body, {"spec": scaled(present["spec"])}))
        for keys in cell.case.flips:
            await cell.patch(merged(body, nested(keys, cell.case.opened)))


async def add(cell: Cell) -> None:
    """Add pods of another shape: one more role, group, component, task or pod."""
    if cell.case.path == PODS:
        await cell.create(PODS, enlarged(pod("other")))
        return
    present = await cell.present()
    await cell.patch({"spec": _with_more(present["spec"])})


def _with_more(value: Any) -> Any:
    """Return a spec in which each list of roles, groups or tasks has a second item with another name."""
    if isinstance(value, dict):
        found = {key: _with_more(inner) for key, inner in value.items() if key != "containers"}
        found |= {"containers": value["containers"]} if "containers" in value else {}
        if any(key.endswith("ReplicaSpecs") for key in value):
            (field,) = (key for key in value if key.endswith("ReplicaSpecs"))
            found[field] |= {"Evaluator": next(iter(value[field].values()))}
        return found
    if isinstance(value, list) and value and isinstance(value[0], dict) and not {"key", "op"} & value[0].keys():
        names = ("name", "groupName", "role")
        more = {key: f"{each}-more" if key in names else copy.deepcopy(each) for key, each in value[0].items()}
        for key in ("template", "generictemplate"):
            metadata = more[key].get("metadata", {}) if isinstance(more.get(key), dict) else {}
            metadata |= {"name": f"{metadata['name']}-more"} if "name" in metadata else {}
        return [*value, more]
    return value


async def scale(cell: Cell) -> None:
    """Triple its pods: in the spec, by the scale subresource, in a group by further pods and a larger total."""
    if cell.case.path != PODS:
        present = await cell.present()
        await cell.patch({"spec": scaled(present["spec"])})
        if cell.case.has_scale:
            await cell.ask("PATCH", f"{cell.at()}/scale", {"spec": {"replicas": 9}}, MERGE)
        return
    for obj in cell.case.make():
        if obj["kind"] != "Pod":
            path = f"{obj['apiVersion']}/{obj['kind'].lower()}s"
            await cell.ask("PATCH", cell.at(path, obj["metadata"]["name"]), {"spec": scaled(obj["spec"])}, MERGE)
    for each in cell.pods():
        notes = {key: "6" for key in each["metadata"]["annotations"] if key.endswith(("total-count", "total-number"))}
        if notes:
            await cell.patch_pod(each, {"metadata": {"annotations": notes}})
    for number in range(4):
        more = copy.deepcopy(cell.case.make()[-1])
        more["metadata"]["name"] = f"more-{number}"
        await cell.create(PODS, more)


async def scale_stopped(cell: Cell) -> None:
    """Suspend and scale it in one request, and resume it while its pods are terminating; replace a group's pods."""
    if cell.case.path == PODS:
        for each in cell.pods():
            await cell.delete(PODS, each["metadata"]["name"], grace=20)
        await scale(cell)
        return
    present = await cell.present()
    body = {"spec": scaled(present["spec"])}
    for keys in cell.case.flips:
        body = merged(body, nested(keys, not cell.case.opened if isinstance(cell.case.opened, bool) else None))
    await cell.patch(body)
    for keys in cell.case.flips:
        await cell.patch(nested(keys, cell.case.opened))
    for each in cell.pods() if not cell.case.flips else ():
        await cell.delete(PODS, each["metadata"]["name"], grace=20)


async def edit(cell: Cell) -> None:
    """Enlarge its pods to three CPUs: in the template, or of pods by `pods/resize`."""
    if cell.case.path != PODS:
        present = await cell.present()
        await cell.patch({"spec": enlarged(present["spec"])})
        return
    for each in cell.pods():
        containers = [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]
        path = f"{cell.at(PODS, each['metadata']['name'])}/resize"
        await cell.ask("PATCH", path, {"spec": {"containers": containers}}, "application/strategic-merge-patch+json")


async def unlabel(cell: Cell) -> None:
    """Remove the queue label while it runs, and scale it in the same request and afterwards."""
    if cell.case.path == PODS:
        for each in cell.pods():
            await cell.patch_pod(each, {"metadata": {"labels": {QUEUE: None, "sluice.dev/managed": None}}})
        await scale(cell)
        return
    present = await cell.present()
    spec = scaled(present["spec"])
    await cell.patch({"metadata": {"labels": {QUEUE: None}}, "spec": spec})
    await cell.patch({"metadata": {"labels": {QUEUE: None}}})
    # Starting an object that has left the queue, like an ordinary one, does not bypass it: leave the suspend field.
    for keys in cell.case.flips:
        parent = spec
        for key in keys[1:-1]:
            parent = parent.get(key, {})
        parent.pop(keys[-1], None)
    await cell.patch({"spec": spec})


async def move(cell: Cell) -> None:
    """Change its queue label to another queue while it runs, and scale it."""
    body: Object = {"metadata": {"labels": {QUEUE: cell.other_queue}}}
    if cell.case.path == PODS:
        for each in cell.pods():
            await cell.patch_pod(each, body)
        await scale(cell)
        return
    present = await cell.present()
    await cell.patch(body)
    await cell.patch({**body, "spec": scaled(present["spec"])})


async def forge(cell: Cell) -> None:
    """Create a Job, a pod and another object of its kind with a forged owner reference to it."""
    present = await cell.present()
    await cell.create("batch/v1/jobs", child(present, {**job("forged", 4), "metadata": _labelled("forged")}))
    await cell.create(PODS, _likeness(cell, present, "forged-pod"))
    for obj in cell.case.make()[-1:]:
        obj["metadata"]["name"] = "forged-too"
        await cell.create(cell.case.path, child(present, scaled(obj)))


async def adopt(cell: Cell) -> None:
    """Create a Job and a pod, and add the forged owner reference afterwards by a patch."""
    present = await cell.present()
    await cell.create("batch/v1/jobs", {**job("forged", 4), "metadata": _labelled("forged")})
    await cell.create(PODS, pod("forged-pod"))
    references = child(present, {"metadata": {}})["metadata"]
    await cell.ask(
        "PATCH", cell.at("batch/v1/jobs", "forged"), {"metadata": references, "spec": {"suspend": False}}, MERGE
    )
    await cell.ask("PATCH", cell.at(PODS, "forged-pod"), {"metadata": references}, MERGE)


async def make_children(cell: Cell) -> None:
    """Create the child objects of its controller, three times as large, and pods like its own."""
    present = await cell.present()
    for path, obj in cell.case.children(present):
        await cell.create(path, scaled(obj))
    for number in range(3):
        await cell.create(PODS, _likeness(cell, present, f"{present['metadata']['name']}-workers-{number}"))


async def orphan(cell: Cell) -> None:
    """Delete it, orphaning its running pods, and recreate it."""
    await cell.remove("Orphan")
    await cell.submit("-again")


async def recreate(cell: Cell) -> None:
    """Delete and recreate it while its pods are terminating, twice."""
    for number in range(2):
        await cell.remove("Background")
        await cell.submit(f"-again-{number}")


def _labelled(name: str) -> Object:
    return {"name": name, "labels": {QUEUE: "lq"}}


def _likeness(cell: Cell, owner: Object, name: str) -> Object:
    """Return a pod like its own, with a queue label and an owner reference to it."""
    made = pod(name)
    there = cell.pods()
    if there:
        metadata = there[0]["metadata"]
        made["metadata"]["labels"] |= metadata.get("labels", {})
        made["metadata"]["annotations"] |= metadata.get("annotations", {})
        selector = there[0]["spec"].get("nodeSelector")
        made["spec"] |= {"nodeSelector": selector} if selector else {}
    made["metadata"]["labels"] |= {QUEUE: "lq", "sluice.dev/workload-uid": owner["metadata"]["uid"]}
    made["metadata"]["annotations"] |= LIVES
    return child(owner, made)


def nested(keys: tuple[str, ...], value: Any) -> Object:
    for key in reversed(keys):
        value = {key: value}
    found: Object = value
    return found


def merged(one: Object, other: Object) -> Object:
    """Return both merged recursively; values of `other` win."""
    found = dict(one)
    for key, value in other.items():
        found[key] = merged(found[key], value) if isinstance(found.get(key), dict) else value
    return found


WAITING: dict[str, Callable[[Cell], Awaitable[None]]] = {
    "open": open_,
    "open, unlabelled": open_unlabelled,
    "children": make_children,
    "owner": forge,
    "notes": note,
}
"""Ways tried while the object waits in a stopped queue."""
RUNNING: dict[str, Callable[[Cell], Awaitable[None]]] = {
    "flip": flip,
    "delete pods": delete_pods,
    "scale": scale,
    "stop, scale": scale_stopped,
    "enlarge": edit,
    "add": add,
    "notes, running": note,
    "unlabel": unlabel,
    "move": move,
    "owner, running": forge,
    "adopt": adopt,
    "children, running": make_children,
    "orphan": orphan,
    "recreate": recreate,
}
"""Ways tried while the object runs and uses the whole quota."""
