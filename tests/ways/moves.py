"""The ways in which a user might let himself in past the queue, each for any kind."""

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
    """Open the gate: set the field to what lets it run, or to nothing; take the scheduling gates off its pods."""
    for value in (cell.case.opened, None):
        for keys in cell.case.flips:
            await cell.patch(nested(keys, value))
    if not cell.case.flips:
        for each in cell.pods():
            await cell.patch_pod(each, {"spec": {"schedulingGates": None}})


async def open_unlabelled(cell: Cell) -> None:
    """The same, and take the queue label away in the same request."""
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
    """While it runs, and its pods take their time to end: suspend it and resume it, or delete its pods."""
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
    """Delete its pods, which take their time to end, and those that come in their place."""
    for _ in range(3):
        for each in cell.pods():
            await cell.delete(PODS, each["metadata"]["name"], grace=20)


async def note(cell: Cell) -> None:
    """Write what only Sluice writes: that it may start, what it has asked for, what it was admitted with."""
    annotations = {
        "sluice.dev/start-with-owner": "true",
        "sluice.dev/asks-for": '{"workers":{"replicas":6}}',
        "sluice.dev/dispatch": "true",
        "sluice.dev/pod-group-fast-admission": "true",
        "sluice.dev/pod-group-role": "0" * 32 + "-000000",
        "sluice.dev/submitted-by": "root",
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
    """Pods of another form: one more role, group, component, task, or pod."""
    if cell.case.path == PODS:
        await cell.create(PODS, enlarged(pod("other")))
        return
    present = await cell.present()
    await cell.patch({"spec": _with_more(present["spec"])})


def _with_more(value: Any) -> Any:
    """The same, with a second one of each thing in a list that has pods, under another name."""
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
    """Three times the pods: in the object, by the subresource, of a group by more pods and a larger number."""
    if cell.case.path != PODS:
        present = await cell.present()
        await cell.patch({"spec": scaled(present["spec"])})
        if cell.case.has_scale:
            await cell.ask("PATCH", f"{cell.at()}/scale", {"spec": {"replicas": 9}}, MERGE)
        return
    for obj in cell.case.make()[:1]:
        if obj["kind"] != "Pod":
            path = f"{obj['apiVersion']}/podgroups"
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
    """Stop it and scale it in one request, and start it again while its pods end; delete pods that make up a group."""
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
    """Pods of three CPUs: in the template, of a pod by `pods/resize`."""
    if cell.case.path != PODS:
        present = await cell.present()
        await cell.patch({"spec": enlarged(present["spec"])})
        return
    for each in cell.pods():
        containers = [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]
        path = f"{cell.at(PODS, each['metadata']['name'])}/resize"
        await cell.ask("PATCH", path, {"spec": {"containers": containers}}, "application/strategic-merge-patch+json")


async def unlabel(cell: Cell) -> None:
    """Take the queue label away while it runs, scale it in the same request and afterwards."""
    if cell.case.path == PODS:
        for each in cell.pods():
            await cell.patch_pod(each, {"metadata": {"labels": {QUEUE: None, "sluice.dev/managed": None}}})
        await scale(cell)
        return
    present = await cell.present()
    spec = scaled(present["spec"])
    await cell.patch({"metadata": {"labels": {QUEUE: None}}, "spec": spec})
    await cell.patch({"metadata": {"labels": {QUEUE: None}}})
    # Whoever has left the queue may start what he has as an ordinary object: that is no way past it.
    for keys in cell.case.flips:
        parent = spec
        for key in keys[1:-1]:
            parent = parent.get(key, {})
        parent.pop(keys[-1], None)
    await cell.patch({"spec": spec})


async def move(cell: Cell) -> None:
    """Name another queue while it runs, and scale it."""
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
    """Claim for a Job, a pod and one more of its kind that it is their controller."""
    present = await cell.present()
    await cell.create("batch/v1/jobs", child(present, {**job("forged", 4), "metadata": _labelled("forged")}))
    await cell.create(PODS, _likeness(cell, present, "forged-pod"))
    for obj in cell.case.make()[-1:]:
        obj["metadata"]["name"] = "forged-too"
        await cell.create(cell.case.path, child(present, scaled(obj)))


async def adopt(cell: Cell) -> None:
    """The same afterwards, by a patch."""
    present = await cell.present()
    await cell.create("batch/v1/jobs", {**job("forged", 4), "metadata": _labelled("forged")})
    await cell.create(PODS, pod("forged-pod"))
    references = child(present, {"metadata": {}})["metadata"]
    await cell.ask(
        "PATCH", cell.at("batch/v1/jobs", "forged"), {"metadata": references, "spec": {"suspend": False}}, MERGE
    )
    await cell.ask("PATCH", cell.at(PODS, "forged-pod"), {"metadata": references}, MERGE)


async def make_children(cell: Cell) -> None:
    """Create what its controller would make, three times as large, and pods like its own."""
    present = await cell.present()
    for path, obj in cell.case.children(present):
        await cell.create(path, scaled(obj))
    for number in range(3):
        await cell.create(PODS, _likeness(cell, present, f"{present['metadata']['name']}-workers-{number}"))


async def orphan(cell: Cell) -> None:
    """Delete it and leave its pods running, and create it anew."""
    await cell.remove("Orphan")
    await cell.submit("-anew")


async def anew(cell: Cell) -> None:
    """Delete it, and create it anew while its pods end; do so twice."""
    for number in range(2):
        await cell.remove("Background")
        await cell.submit(f"-anew-{number}")


def _labelled(name: str) -> Object:
    return {"name": name, "labels": {QUEUE: "lq"}}


def _likeness(cell: Cell, owner: Object, name: str) -> Object:
    """A pod like those that it has, with a queue label, which names it as its controller."""
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
    """Both, where they have no value in common."""
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
"""Played while it waits in a queue that is stopped."""
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
    "anew": anew,
}
"""Played while it runs with all of the quota."""
