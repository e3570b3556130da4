"""Kinds as data: custom resources that are gated by a suspend field, described by paths and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.apimachinery.patches import json_patch
from admission.kinds import fewer, paths, scaling, templates
from admission.kinds.base import ASKS_FOR, GATED_BY, HOLD, POD, SUBMITTED_BY, KindStatus, Outcome, PodCount
from admission.kinds.children import Part, children, find_part, find_pod_set
from admission.kinds.common import CommonKind
from admission.kinds.gates import SuspendField
from admission.kinds.patches import merged, pointer, same_generation
from admission.kinds.places import PodSetForm, as_template
from admission.kinds.predicates import Condition, first
from admission.kinds.requests import check_resources
from admission.kinds.restoring import injected_place, keys_of, restored_place
from admission.kinds.shapes import check_template, read_by
from admission.model.errors import Misconfigured
from admission.model.quantity import UNLIMITED
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from admission.kinds.base import Kind, Object
    from admission.kinds.children import Child, ChildForm
    from admission.kinds.gates import Gate
    from admission.kinds.limits import NamespaceContext
    from admission.kinds.paths import Path
    from admission.kinds.places import Place
    from admission.kinds.predicates import Predicate
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

WORKLOAD_UID: Final = "sluice.dev/workload-uid"
"""Label that a start puts on all pods of an object: by it they are found when the object does not tell of them."""
MAX_POD_SETS: Final = 32
"""Pod sets of one object; more are refused, as a cycle's time grows with them."""
_MOST_PODS: Final = 2**31 - 1
"""Pods of one pod set: Kubernetes counts no further."""
_TEMPLATES: Final = "templates"
"""In an `original`: by the pointer to each place, what a start put in there and what was there before."""
_NUMBERS: Final = "numbers"
"""In an `original`: the numbers that a start has lowered (`fewer.Lowered`)."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a kind says of itself. Paths lead from the object's root unless they belong to a pod set."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    suspend: Path
    suspend_older: tuple[Path, ...]
    """Where that field was in older versions of the definition."""
    pod_sets: tuple[PodSetForm, ...]
    active: tuple[Predicate, ...] = ()
    """One of these holds while there are pods."""
    ready: tuple[Predicate, ...] = ()
    """One of these holds once all pods are ready."""
    succeeded: tuple[Predicate, ...] = ()
    failed: tuple[Predicate, ...] = ()
    """One of these holds once it is over; a kind that has neither runs until it is deleted."""
    scales: bool = False
    """Whether its controller makes and ends pods while it runs, as the numbers of them are changed."""
    managed_by: Path = ()
    manager: tuple[str, ...] = ()
    """The field that names another controller, and the values by which it is the kind's own."""
    priority_class: Path = ()
    """The field that names the PriorityClass of its pods before their templates do."""
    children: tuple[ChildForm, ...] = ()
    """What its controller makes of other kinds than Pod."""
    places: Callable[[Object], list[Place]] | None = None
    """The pod sets, where paths are not enough."""
    wrapped: Callable[[Object], Iterable[Child]] | None = None
    """The children, of any kinds, where the object itself says what they are."""
    most_pods: Path = ()
    """The field that says how many pods run at a time at most, where it alone decides that."""
    gate: Callable[[SuspendField], Gate] | None = None
    """What keeps an object from running, where a version of it has no such field."""
    annotations: tuple[str, ...] = ()
    """Those that decide about that gate."""
    faults: Callable[[Object], list[tuple[str, str]]] | None = None
    """(field path, message) of what its controller would not run, beyond its resources."""
    remarks: Callable[[Object], list[str]] | None = None
    """What its user should know of what is admitted."""

    @property
    def name(self) -> str:
        """As in the setting `integrations`: `jobset.x-k8s.io/jobset`."""
        return f"{self.group}/{self.kind.lower()}"


@dataclass(frozen=True, slots=True)
class DeclaredKind(CommonKind):
    """The adapter for a form (see `Kind`)."""

    form: Form

    @property
    def group(self) -> str:
        """The API group."""
        return self.form.group

    @property
    def kind(self) -> str:
        """The kind's name."""
        return self.form.kind

    @property
    def plural(self) -> str:
        """The resource's name in paths."""
        return self.form.plural

    @property
    def versions(self) -> tuple[str, ...]:
        """The API versions that it knows."""
        return self.form.versions

    @property
    def is_custom(self) -> bool:
        """It is always a custom resource."""
        return True

    @property
    def tells_of_pods(self) -> bool:
        """Never: no status of these kinds counts pods that are ending."""
        return False

    @property
    def ends_by_deletion(self) -> bool:
        """Never: it is suspended."""
        return False

    @property
    def watched_label(self) -> str:
        """None: all are watched."""
        return ""

    @property
    def pods_label(self) -> str:
        """A label of our own, which a start puts into all templates."""
        return WORKLOAD_UID

    @property
    def manager(self) -> tuple[Path, tuple[str, ...]]:
        """The field that names another controller, and the values by which it is the kind's own."""
        return self.form.managed_by, self.form.manager

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations that matter."""
        scaled = (ASKS_FOR,) if self.form.scales else ()
        return (SUBMITTED_BY, HOLD, GATED_BY, fewer.MIN_COUNT, *scaled, *self.form.annotations)

    @property
    def gated_by(self) -> Gate:
        """Its suspend field, or what takes its place."""
        field = SuspendField(self.form.suspend, self.form.suspend_older)
        return field if self.form.gate is None else self.form.gate(field)

    def places(self, obj: Object) -> list[Place]:
        """Its pod sets. Raises Misconfigured if they cannot be told, or are too many."""
        by_paths = (place for form in self.form.pod_sets for place in form.places(obj))
        found = [*by_paths] if self.form.places is None else read_by(self.form.places, obj)
        if len(found) > MAX_POD_SETS:
            raise Misconfigured(f"spec: has {len(found)} pod sets, but {MAX_POD_SETS} is the most that can be queued")
        if not found:
            raise Misconfigured("spec: has no pod template, so that nothing can be counted")
        names = [place.name for place in found]
        for place in found:
            check_template(place.template, place.path)
            if place.pods > _MOST_PODS:
                raise Misconfigured(f"{place.path}: asks for {place.pods} pods, but {_MOST_PODS} is the most")
            if names.count(place.name) > 1:
                raise Misconfigured(f'{place.path}: there are two pod sets "{place.name}"; give them different names')
        return found

    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """By the form's predicates."""
        form, suspended = self.form, self.gated_by.is_closed(obj)
        finished = self._outcome(obj)
        running = first(obj, form.active) is not None
        try:
            places = self.places(obj)
            larger = self.places(scaling.enlarged(obj, places)) if self.form.scales else []
        except Misconfigured:  # `pod_sets` tells
            places, larger = [], []
        wished = {place.name: place.pods for place in larger}
        counts = tuple(
            PodCount(place.name, place.pods, place.left, UNLIMITED, wished.get(place.name, 0)) for place in places
        )
        return KindStatus(
            suspended=suspended,
            active=running or (finished is None and not deleting and not suspended),
            started=running,
            stopped=False,
            counts=counts,
            finished=finished,
            ready=first(obj, form.ready) is not None,
            ending=deleting and suspended,
            pod_priority_class=self._priority_class(obj, places),
        )

    def _priority_class(self, obj: Object, places: Iterable[Place]) -> str:
        """That of the object, else of the first pod set that has one, as in Kueue."""
        own = paths.value(obj, self.form.priority_class) if self.form.priority_class else ""
        named = (own, *((place.template.get("spec") or {}).get("priorityClassName") for place in places))
        return next(filter(None, named), "")

    def _outcome(self, obj: Object) -> Outcome | None:
        for succeeded, predicates in ((True, self.form.succeeded), (False, self.form.failed)):
            if (holds := first(obj, predicates)) is not None:
                found = holds.found(obj) if isinstance(holds, Condition) else obj.get("status")
                said = (clean(str((found or {}).get(field) or "")) for field in ("reason", "message"))
                return Outcome(succeeded, *said)
        return None

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """One for each place, of the pods that are still needed. Raises Misconfigured, also for all `faults`."""
        if faults := [*self.metadata_faults(obj), *self._own_faults(obj)]:
            raise Misconfigured("; ".join(map(": ".join, faults)))
        places = self.places(obj)
        least = fewer.minimums(obj, places)
        essence = [
            (place.name, place.path, place.left, least.get(place.name), templates.digest_parts(place.template))
            for place in places
        ]
        return _pod_sets(orjson.dumps(essence, option=orjson.OPT_SORT_KEYS), context)

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """What is wrong in labels, annotations, pod sets and resources."""
        faults = [*self.metadata_faults(obj)]
        try:
            faults += self._own_faults(obj)
            places = self.places(obj)
            fewer.minimums(obj, places)
            for place in places:
                check_resources(place.template.get("spec") or {}, path=f"{place.path}.spec")
        except Misconfigured as error:
            path, _, message = str(error).partition(": ")
            faults.append((path, message))
        return faults

    def remarks(self, obj: Object) -> list[str]:
        """By the form."""
        return [] if self.form.remarks is None else self.form.remarks(obj)

    def _own_faults(self, obj: Object) -> list[tuple[str, str]]:
        return [] if self.form.faults is None else read_by(self.form.faults, obj)

    def templates(self, obj: Object) -> list[Object]:
        """The templates of all places, with what a start has put in beside them."""
        return [
            merged(place.template, as_template(paths.at(obj, place.into) or {}, metadata=place.metadata))
            if place.flat
            else place.template
            for place in self.places(obj)
        ]

    def makes(self, group: str, kind: str) -> bool:
        """By the form."""
        made = any((child.group, child.kind) == (group, kind) for child in self.form.children)
        return made or self.form.wrapped is not None or (group, kind) == POD

    def part(self, obj: Object, child_kind: Kind, child: Object, context: NamespaceContext) -> Part:
        """By names, numbers of pods and requests; of pods by requests."""
        if (child_kind.group, child_kind.kind) == POD:
            return find_pod_set(self.pod_sets, obj, child_kind, child, context)
        try:
            places = self.places(obj)
            given = list(zip(places, self.templates(obj), strict=True))
        except Misconfigured:
            return Part.NONE
        made = [each for form in self.form.children for each in children(form, obj, places)]
        made += () if self.form.wrapped is None else self.form.wrapped(obj)
        return find_part(made, given, child_kind, child, context)

    # --- patches

    def gate(self, obj: Object) -> list[Object]:
        """The operations that suspend it; none if it is suspended."""
        return [] if self.gated_by.is_closed(obj) else self.gated_by.close(obj)

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """The numbers as they were, of each pod set that would get more pods; with other pods it is suspended.

        So is what could not be counted before, as soon as it is edited: nobody knows what it has quota for.
        """
        others = f"a running {self.kind} that is to have other pods is suspended, and queues anew"
        try:
            before = {place.name: place for place in self.places(old)}
        except Misconfigured:
            return ([] if new.get("spec") == old.get("spec") else self.gate(new)), others
        try:
            after = self.places(new)
        except Misconfigured:
            return [], ""  # it is refused
        if scaling.has_others(before, after):
            return self.gate(new), others
        patch = scaling.limited(new, old, before, after)
        if not self.form.scales:
            how = "suspend it in the same request to ask for more"
            return patch, f"a running {self.kind} gets no more pods than it has; {how}"
        noted = scaling.noted(new, scaling.asks_for(new, old, before, after))
        how = "it gets more as soon as there is quota for them, and runs on"
        return [*patch, *noted], f"a running {self.kind} has quota for the pods that it has; {how}"

    def scale_patch(self, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """The numbers that it asks for, as its annotation says."""
        places = self.places(obj) if self.form.scales else []
        patch = scaling.affordable(obj, places, self.places(scaling.enlarged(obj, places)), held) if places else []
        return [*same_generation(obj), *patch] if patch else []

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """What flavors and checks add at each place, the label by which pods are found, and the open gate."""
        given = {assignment.name: assignment for assignment in admission.pod_sets}
        places = self.places(obj)
        patch, lowered = fewer.lower(obj, places, {name: each.count for name, each in given.items()})
        put_in: Object = {}
        for place in places:
            if not place.into:
                continue
            if (assignment := given.get(place.name)) is None:
                raise Misconfigured(f'{place.path}: the pod set "{place.name}" is new since quota was given')
            own = templates.Addition("Sluice", {}, (), {WORKLOAD_UID: obj["metadata"]["uid"], **place.label})
            of_flavors = [templates.of_flavor(flavors[name]) for name in dict.fromkeys(assignment.flavors.values())]
            asked = [templates.of_check(update) for update in updates if update.name == place.name]
            added, put_in[pointer(*place.into)] = injected_place(obj, place, (*of_flavors, *asked, own))
            patch += added
        original = {_TEMPLATES: put_in, **({_NUMBERS: lowered} if lowered else {})}
        return [*same_generation(obj), *patch, *self.gated_by.open(obj)], original

    def carries(self, obj: Object, original: Object) -> bool:
        """Whether all of it is there."""
        return fewer.are_lowered(obj, original.get(_NUMBERS) or {}) and self.is_as_started(obj, original)

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether all but the numbers of pods is there."""
        places: Mapping[str, Any] = original.get(_TEMPLATES) or {}
        return bool(places) and all(
            isinstance(present := paths.at(obj, keys_of(where)), dict) and merged(present, put_in["given"]) == present
            for where, put_in in places.items()
        )

    def resume_patch(self, obj: Object) -> list[Object]:
        """The open gate alone."""
        return [*same_generation(obj), *self.gated_by.open(obj)]

    def stop_patch(self, obj: Object) -> list[Object]:
        """The closed gate alone."""
        return [*same_generation(obj), *self.gated_by.close(obj)]

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Nothing: there is no start time that keeps a template from being restored."""
        return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}}

    def restore_patch(self, obj: Object, original: Object) -> list[Object] | None:
        """The operations that take out what is left of it; what somebody has changed since stays."""
        patch = fewer.raised_again(obj, original.get(_NUMBERS) or {})
        whole: dict[tuple[str, ...], int] = {}
        for where, put_in in (original.get(_TEMPLATES) or {}).items():
            keys = keys_of(where)
            present = paths.at(obj, keys)
            if put_in.get("whole") and present == put_in["given"]:
                whole[keys[:-1]] = whole.get(keys[:-1], 0) + 1
            elif isinstance(present, dict):
                patch += restored_place(present, put_in, where)
        # Lists that a start has added, if nobody has added to them since.
        patch += [
            {"op": "remove", "path": pointer(*parent)}
            for parent, number in whole.items()
            if len(paths.at(obj, parent)) == number
        ]
        return [*same_generation(obj), *patch] if patch else None

    def restored(self, obj: Object, original: Object) -> Object:
        """The object after `restore_patch`."""
        patch = self.restore_patch(obj, original)
        return obj if patch is None else json_patch(obj, patch)


@lru_cache(maxsize=8192)
def _pod_sets(essence: bytes, context: NamespaceContext) -> tuple[PodSet, ...]:
    return tuple(
        templates.pod_set(name, template, context, path=path, count=count, min_count=least)
        for name, path, count, least, template in orjson.loads(essence)
    )
