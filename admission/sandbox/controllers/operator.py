"""Simulated operator of a custom kind: the children that its description names, and the status that it writes."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from admission.kinds.dispatched import is_dispatched
from admission.kinds.predicates import Above, All, HasCondition, NoneOf, OneOf, Reaches
from admission.model.errors import Misconfigured
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import (
    PARSE_ERRORS,
    SimulatedController,
    controller_of,
    is_over,
    is_ready,
    owner_reference,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from admission.kinds.declared import DeclaredKind
    from admission.kinds.places import Place
    from admission.kinds.predicates import Predicate
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_SUSPENDED = HasCondition("Suspended")


class WantedChild(NamedTuple):
    """A child that an operator wants there to be."""

    obj: Object
    """It, with a name, or with a generateName: then it is found by its labels."""
    plural: str = "pods"
    change: Callable[[Object], Object] | None = None
    """Returns a child that exists already as it is to be; None: an existing child is never changed."""


class Scene(NamedTuple):
    """What an operator sees of an object when it reconciles it."""

    kind: DeclaredKind
    obj: Object
    there: Sequence[tuple[str, Object]]
    """(resource, child) of its children, also of those being deleted, as they were before this reconciliation."""
    suspended: bool
    finished: bool
    local: LocalClient
    now: str

    @property
    def name(self) -> str:
        """Name of the object."""
        name: str = self.obj["metadata"]["name"]
        return name

    @property
    def children(self) -> list[Object]:
        """Its children, without their resources."""
        return [child for _, child in self.there]

    def kept(self) -> Iterator[WantedChild]:
        """Yield all of its children, of which then none is created, changed or deleted."""
        for plural, child in self.there:
            yield WantedChild(child, plural)

    @property
    def status(self) -> Object:
        """A copy of its present status."""
        copied: Object = orjson.loads(orjson.dumps(self.obj.get("status") or {}))
        return copied

    def conditions(self, *wanted: tuple[str, bool | str, str, str]) -> list[Object]:
        """Return its conditions with (type, status, reason, message) added, or changed at the end."""
        found: list[Object] = self.status.get("conditions") or []
        for kind, status, reason, message in wanted:
            changed = {"type": kind, "status": str(status), "reason": reason, "message": message}
            was = next((each for each in found if each["type"] == kind), {})
            if was.items() >= changed.items():
                continue
            since = was["lastTransitionTime"] if was.get("status") == str(status) else self.now
            found = [*(each for each in found if each is not was), {**changed, "lastTransitionTime": since}]
        return found


@dataclass(frozen=True, slots=True)
class Description:
    """What the controller of a kind creates and writes."""

    children: Callable[[Scene], Iterable[WantedChild]]
    """Returns all children that there are to be now. Others are deleted. Raises Misconfigured if it can read none."""
    status: Callable[[Scene], Object]
    """Returns the new status."""
    plurals: tuple[str, ...] = ("pods",)
    """Resources of its children."""
    defaults: dict[str, Callable[[Object], Object]] = field(default_factory=dict)
    """What its webhook makes of new objects, by their resource."""
    fixed: dict[str, Callable[[Object, bool], object]] = field(default_factory=dict)
    """Parts of its objects that its webhook, or its definition, lets no update change: see `refusing_changes`."""
    selector: str = ""
    """Label with the object's name that its children have: objects without it are none, whatever their owner."""
    replaces_at_once: bool = False
    """Whether it creates a child beside one that it has deleted and that still ends."""


class Operator(SimulatedController[tuple[str, str]]):
    """Operator of one kind; keys are namespace and name of its objects.

    Without `end_pods`, as with Argo, pods of a suspended object, or beyond a reduced number, continue to run. Without
    `refuses` its webhook lets all updates pass, as in older releases, or where it is not installed.
    """

    malformed = PARSE_ERRORS

    def __init__(
        self,
        local: LocalClient,
        clock: Clock,
        kind: DeclaredKind,
        described: Description | None = None,
        *,
        end_pods: bool = True,
        refuses: bool = True,
    ) -> None:
        super().__init__(local, clock)
        self._kind = kind
        self._description = described or Description(pods_by_pod_set, status_by_form)
        self._end_pods = end_pods
        self._refuses = refuses
        self._plural = f"{kind.plural}.{kind.group}"  # several groups may have the same plural
        self.plurals = (self._plural, *self._description.plurals)
        self._removed: set[str] = set()
        """Uids of children that it deleted and that are still terminating."""

    async def run(self) -> None:
        """Run the operator, with its webhook."""
        with ExitStack() as stack:
            for plural, change in self._description.defaults.items():
                stack.enter_context(self.local.mutating_new(plural, change))
            for path, part in self._description.fixed.items() if self._refuses else ():
                stack.enter_context(self.local.refusing_changes(self._plural, path, part))
            await super().run()

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the object of an event about it or about one of its children."""
        namespace = obj["metadata"]["namespace"]
        if change == "DELETED":
            self._removed.discard(obj["metadata"]["uid"])
        if plural == self._plural:
            self.enqueue((namespace, obj["metadata"]["name"]))
        elif (owner := controller_of(obj)) is not None and owner["kind"] == self._kind.kind:
            self.enqueue((namespace, owner["name"]))

    async def sync(self, key: tuple[str, str]) -> None:
        """Create, change and delete children, then update the status."""
        obj = self.local.get(self._plural, *key)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return
        if self._kind.is_managed_elsewhere(obj) or is_dispatched(self._kind, obj):
            return
        selector = self._description.selector
        there = [
            (plural, child)
            for plural in self._description.plurals
            for child in self.local.controlled_by(plural, obj["metadata"]["uid"])
            if not selector or (child["metadata"].get("labels") or {}).get(selector) == key[1]
        ]
        scene = Scene(
            self._kind,
            obj,
            there,
            self._kind.gated_by.is_closed(obj),
            self._kind.observe(obj).finished is not None,
            self.local,
            rfc3339(self.clock.now()),
        )
        try:
            wanted = list(self._description.children(scene))
        except Misconfigured:
            return  # the spec is invalid, of which no operator creates children
        rest = await self._make(key[0], obj, wanted, dict(enumerate(there)))
        for plural, child in rest if self._end_pods else ():
            if "deletionTimestamp" not in child["metadata"] and (scene.suspended or not is_over(child)):
                await self._delete(plural, child)
        status = self._description.status(scene)
        if status != (obj.get("status") or {}) and not scene.finished:
            await self.local.update(self._plural, key[0], {**obj, "status": status}, subresource="status")

    async def _make(
        self, namespace: str, obj: Object, wanted: Iterable[WantedChild], there: dict[int, tuple[str, Object]]
    ) -> list[tuple[str, Object]]:
        """Create the children that are missing, and change others; return those that are not wanted."""
        for each in wanted:
            number = next((number for number, one in there.items() if self._is(each, *one)), None)
            if number is not None:
                _, child = there.pop(number)
                changed = child if each.change is None else each.change(child)
                if changed != child:
                    await self.local.update(each.plural, namespace, changed)
            else:
                metadata = {**each.obj["metadata"], "ownerReferences": [owner_reference(obj)]}
                await self.local.create(each.plural, namespace, {**each.obj, "metadata": metadata})
        return list(there.values())

    def _is(self, wanted: WantedChild, plural: str, child: Object) -> bool:
        """Whether a child is the wanted one. One that its user has deleted is it until it is gone."""
        metadata, own = wanted.obj["metadata"], child["metadata"]
        if plural != wanted.plural or (self._description.replaces_at_once and own["uid"] in self._removed):
            return False
        if "name" in metadata:
            return bool(metadata["name"] == own["name"])
        return bool(metadata["labels"].items() <= (own.get("labels") or {}).items())

    async def _delete(self, plural: str, child: Object) -> None:
        self._removed.add(child["metadata"]["uid"])
        await self.remove(plural, child, propagation=None if plural == "pods" else "Foreground")


def pods_by_pod_set(scene: Scene) -> Iterable[WantedChild]:
    """Yield the pods of a kind that Sluice's form of it describes. Raises Misconfigured."""
    if scene.finished:
        yield from scene.kept()
    elif not scene.suspended:
        templates = scene.kind.templates(scene.obj)
        for place, template in zip(scene.kind.places(scene.obj), templates, strict=True):
            for number in range(place.pods):
                yield WantedChild(pod(template, f"{scene.name}-{place.name}-{number}"))


def pod(template: Object, name: str, labels: Object | None = None, **more: Any) -> Object:
    """Return a pod from a template. A `name` that ends in `-` is a prefix; `more`: fields of its spec.

    Containers that operators add have requests but no image.
    """
    copied: Object = orjson.loads(orjson.dumps({**template, "spec": {**template["spec"], **more}}))
    metadata, spec = copied.get("metadata") or {}, copied["spec"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    kept["labels"] = {**kept.get("labels", {}), **(labels or {})}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.setdefault("image", "pause")
    named = {"generateName" if name.endswith("-") else "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**named, **kept}, "spec": spec}


def status_by_form(scene: Scene) -> Object:
    """Return a status that Sluice's form of the kind reads as what the object does."""
    form, status, suspended = scene.kind.form, scene.status, scene.suspended
    before = {each["type"]: each for each in status.get("conditions", ())}
    places = scene.kind.places(scene.obj)
    alive = [child for child in scene.children if not is_over(child)]
    wanted = sum(place.pods for place in places)
    ended = [child for child in scene.children if child.get("status", {}).get("phase") == "Succeeded"]
    failed = any(child.get("status", {}).get("phase") == "Failed" for child in scene.children)
    over = not suspended and len(ended) >= wanted > 0
    _set_counts(status, [*form.active, *form.ready], _counts_by_pod_set(scene, places))
    _set_first(status, form.active, holds=bool(alive))
    ready = not suspended and all(map(is_ready, alive)) and len(alive) + len(ended) == wanted
    _set_first(status, form.ready, holds=ready)
    _set_first(status, [_SUSPENDED], holds=suspended and not alive)
    _set_first(status, form.succeeded, holds=over)
    _set_first(status, form.failed if failed and not suspended else (), holds=True)
    for each in status.get("conditions", ()):
        was = before.get(each["type"], {})
        each["lastTransitionTime"] = was["lastTransitionTime"] if was.get("status") == each["status"] else scene.now
    return status


def _counts_by_pod_set(scene: Scene, places: Iterable[Place]) -> dict[str, dict[str, int]]:
    """Return, by pod set, the numbers of copies that are active, ready and succeeded."""
    numbers: dict[str, dict[str, int]] = {}
    for place in places:
        names = {f"{scene.name}-{place.name}-{number}" for number in range(place.pods)}
        phases: dict[str, int] = defaultdict(int)
        for child in scene.children:
            if child["metadata"]["name"] in names:
                phase = child.get("status", {}).get("phase")
                phases["succeeded"] += phase == "Succeeded"
                phases["active"] += not is_over(child)
                phases["ready"] += is_ready(child) and not is_over(child)
        numbers[place.name] = {
            "active": -(-phases["active"] // place.pods_per_copy),
            "ready": phases["ready"] // place.pods_per_copy,
            "succeeded": phases["succeeded"] // place.pods_per_copy,
        }
    return numbers


def _set_counts(status: Object, predicates: Iterable[Predicate], numbers: dict[str, dict[str, int]]) -> None:
    """Write the status lists from which predicates read numbers, with one item for each pod set."""
    for predicate in predicates:
        found = [predicate.path] if isinstance(predicate, Above) else []
        found += predicate.sum if isinstance(predicate, Reaches) else []
        for path in found:
            if len(path) == 4 and path[0] == "status" and path[2] == "*":
                others = {"failed": 0, "suspended": 0}
                status[path[1]] = [{"name": name, **counts, **others} for name, counts in numbers.items()]


def _set_first(status: Object, predicates: Iterable[Predicate], *, holds: bool) -> None:
    """Set conditions and phases so that the first predicate is true (`holds`) or none is."""
    for number, predicate in enumerate(predicates):
        _set(status, predicate, holds=holds and number == 0)


def _set(status: Object, predicate: Predicate, *, holds: bool) -> None:
    match predicate:
        case HasCondition(kind, value):
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
