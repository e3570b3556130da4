"""Simulated operator of a custom kind: pods by its pod sets, and a status by its declared predicates."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import orjson

from admission.kinds.predicates import Above, All, Condition, NoneOf, OneOf, Reaches
from admission.model.errors import Misconfigured
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import PARSE_ERRORS, Controller, controller_of, is_over, is_ready

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.kinds.declared import DeclaredKind
    from admission.kinds.places import Place
    from admission.kinds.predicates import Predicate
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_SUSPENDED = Condition("Suspended")
_SUFFIX = "x"
"""Suffix of a pod's name while a pod of that name is still terminating."""


class Operator(Controller[tuple[str, str]]):
    """Operator of one kind; keys are namespace and name of its objects.

    A suspended object has no pods; the pods of others run to their end, and the object fails if one of them fails.
    Without `end_pods`, as with Argo, pods of a suspended object, or beyond a reduced number, continue to run.
    """

    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock, kind: DeclaredKind, *, end_pods: bool = True) -> None:
        super().__init__(local, clock)
        self._kind = kind
        self._end_pods = end_pods
        self._plural = f"{kind.plural}.{kind.group}"  # several groups may have the same plural
        self.plurals = (self._plural, "pods")
        self._removed: set[str] = set()
        """Uids of pods that it deleted and that are still terminating."""

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the object of an event about it or about a pod that it controls."""
        namespace = obj["metadata"]["namespace"]
        if change == "DELETED":
            self._removed.discard(obj["metadata"]["uid"])
        if plural == self._plural:
            self.enqueue((namespace, obj["metadata"]["name"]))
        elif (owner := controller_of(obj)) is not None and owner["kind"] == self._kind.kind:
            self.enqueue((namespace, owner["name"]))

    async def sync(self, key: tuple[str, str]) -> None:
        """Create and delete pods, then update the status."""
        obj = self.local.get(self._plural, *key)
        if obj is None or "deletionTimestamp" in obj["metadata"] or self._kind.observe(obj).finished is not None:
            return
        if self._kind.is_managed_elsewhere(obj):
            return
        try:
            self._kind.places(obj)
        except Misconfigured:
            return  # the spec is invalid, of which no operator creates pods
        pods = self.local.controlled_by("pods", obj["metadata"]["uid"])
        suspended = self._kind.gated_by.is_closed(obj)
        if suspended:
            for pod in pods if self._end_pods else ():
                if "deletionTimestamp" not in pod["metadata"]:
                    await self._delete(pod)
        else:
            await self._create_missing(obj, pods)
            if self._end_pods:
                await self._remove_surplus(obj, pods)
        await self._update_status(obj, pods, suspended=suspended)

    async def _create_missing(self, obj: Object, pods: list[Object]) -> None:
        """Create the missing pods.

        KubeRay's pods have random names, and its earlier versions created new ones beside those that they had deleted.
        Pods that a user deleted count as present until they are removed.
        """
        creates_beside = self._kind.group == "ray.io"
        taken = {pod["metadata"]["name"] for pod in pods}
        there = [pod for pod in pods if not creates_beside or pod["metadata"]["uid"] not in self._removed]
        for place, template in zip(self._kind.places(obj), self._kind.templates(obj), strict=True):
            present = {_index_in(obj, place, pod) for pod in there}
            for number in range(place.pods):
                if number not in present:
                    name = f"{obj['metadata']['name']}-{place.name}-{number}"
                    while name in taken:
                        name += _SUFFIX
                    labels = _labels(self._kind.group, obj["metadata"]["name"], place.name, number)
                    await self.local.create("pods", obj["metadata"]["namespace"], _pod(obj, name, template, labels))

    async def _remove_surplus(self, obj: Object, pods: list[Object]) -> None:
        """Delete pods beyond a reduced number, as KubeRay does."""
        for place in self._kind.places(obj):
            for pod in pods:
                is_surplus = _index_in(obj, place, pod) >= place.pods
                if is_surplus and "deletionTimestamp" not in pod["metadata"] and not is_over(pod):
                    await self._delete(pod)

    async def _delete(self, pod: Object) -> None:
        self._removed.add(pod["metadata"]["uid"])
        await self.remove("pods", pod)

    async def _update_status(self, obj: Object, pods: list[Object], *, suspended: bool) -> None:
        form, before = self._kind.form, obj.get("status") or {}
        status: Object = orjson.loads(orjson.dumps(before))
        alive = [pod for pod in pods if not is_over(pod)]
        wanted = sum(place.pods for place in self._kind.places(obj))
        ended = [pod for pod in pods if pod.get("status", {}).get("phase") == "Succeeded"]
        failed = any(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
        over = not suspended and len(ended) >= wanted > 0
        _set_counts(status, [*form.active, *form.ready], self._counts_by_pod_set(obj, pods))
        _set_first(status, form.active, holds=bool(alive))
        ready = not suspended and all(map(is_ready, alive)) and len(alive) + len(ended) == wanted
        _set_first(status, form.ready, holds=ready)
        _set_first(status, [_SUSPENDED], holds=suspended and not alive)
        _set_first(status, form.succeeded, holds=over)
        _set_first(status, form.failed if failed and not suspended else (), holds=True)
        known = {each["type"]: each for each in before.get("conditions", ())}
        for each in status.get("conditions", ()):
            was = known.get(each["type"], {})
            is_same = was.get("status") == each["status"]
            each["lastTransitionTime"] = was["lastTransitionTime"] if is_same else rfc3339(self.clock.now())
        if status != before:
            await self.local.update(
                self._plural, obj["metadata"]["namespace"], {**obj, "status": status}, subresource="status"
            )

    def _counts_by_pod_set(self, obj: Object, pods: list[Object]) -> dict[str, dict[str, int]]:
        """Return, by pod set, the numbers of copies that are active, ready and succeeded."""
        numbers: dict[str, dict[str, int]] = {}
        for place in self._kind.places(obj):
            phases: dict[str, int] = defaultdict(int)
            for pod in _pods_of(obj, place, pods):
                phase = pod.get("status", {}).get("phase")
                phases["succeeded"] += phase == "Succeeded"
                phases["active"] += not is_over(pod)
                phases["ready"] += is_ready(pod) and not is_over(pod)
            numbers[place.name] = {
                "active": -(-phases["active"] // place.pods_per_copy),
                "ready": phases["ready"] // place.pods_per_copy,
                "succeeded": phases["succeeded"] // place.pods_per_copy,
            }
        return numbers


def _pods_of(obj: Object, place: Place, pods: Iterable[Object]) -> list[Object]:
    return [pod for pod in pods if 0 <= _index_in(obj, place, pod) < place.pods]


def _index_in(obj: Object, place: Place, pod: Object) -> int:
    """Return the pod's index in a pod set; -1: it belongs to another one."""
    before = f"{obj['metadata']['name']}-{place.name}-"
    name: str = pod["metadata"]["name"]
    number = name.removeprefix(before).rstrip(_SUFFIX)
    return int(number) if name.startswith(before) and number.isdecimal() else -1


def _labels(group: str, name: str, pod_set: str, number: int) -> dict[str, str]:
    """Return the labels that the operators of an API group set, by which clients find the pods."""
    match group:
        case "kubeflow.org":
            labels = {"job-name": name, "replica-type": pod_set, "replica-index": str(number)}
            labels |= {"job-role": "master"} if pod_set in ("master", "launcher", "chief") else {}
            return {f"training.kubeflow.org/{key}": value for key, value in labels.items()}
        case "jobset.x-k8s.io":
            found = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": pod_set}
            return {**found, "batch.kubernetes.io/job-completion-index": str(number)}
        case _:
            return {}


def _pod(obj: Object, name: str, template: Object, labels: dict[str, str]) -> Object:
    pod: Object = orjson.loads(orjson.dumps(template))
    metadata = pod.get("metadata", {})
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "controller": True, "blockOwnerDeletion": True}
    owner |= {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    kept["labels"] = {**kept.get("labels", {}), **labels}
    for container in (
        *pod["spec"]["containers"],
        *pod["spec"].get("initContainers", ()),
    ):  # containers that operators add have requests but no image
        container.setdefault("image", "pause")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **kept, "ownerReferences": [owner]},
        "spec": pod["spec"],
    }


def _set_counts(status: Object, predicates: Iterable[Predicate], numbers: dict[str, dict[str, int]]) -> None:
    """Write the status lists from which predicates read numbers, with one item for each pod set."""
    for predicate in predicates:
        found = [predicate.path] if isinstance(predicate, Above) else []
        found += predicate.sum if isinstance(predicate, Reaches) else []
        for path in found:
            if len(path) == 4 and path[0] == "status" and path[2] == "*":
                if path[1] == "replicaStatuses":  # Kubeflow's kinds have a map by replica type
                    status[path[1]] = {name.capitalize(): counts for name, counts in numbers.items()}
                else:
                    others = {"failed": 0, "suspended": 0}
                    status[path[1]] = [{"name": name, **counts, **others} for name, counts in numbers.items()]


def _set_first(status: Object, predicates: Iterable[Predicate], *, holds: bool) -> None:
    """Set conditions and phases so that the first predicate is true (`holds`) or none is."""
    for number, predicate in enumerate(predicates):
        _set(status, predicate, holds=holds and number == 0)


def _set(status: Object, predicate: Predicate, *, holds: bool) -> None:
    match predicate:
        case Condition(kind, value):
            conditions: list[Any] = status.setdefault("conditions", [])
            conditions[:] = [each for each in conditions if each["type"] != kind]
            other = "False" if value == "True" else "True"
            conditions.append({"type": kind, "status": value if holds else other, "reason": "Sandbox", "message": ""})
        case OneOf(path, values) | NoneOf(path, values) if path[0] == "status":
            target = status
            for key in path[1:-1]:
                target = target.setdefault(key, {})
            matches = target.get(path[-1], "") in values
            if matches == (holds is isinstance(predicate, OneOf)):
                pass
            elif not holds:
                target.pop(path[-1], None)
            else:
                target[path[-1]] = values[0] if isinstance(predicate, OneOf) else "Running"
        case All(of) if holds:
            for each in of:
                _set(status, each, holds=True)
        case _:
            pass
