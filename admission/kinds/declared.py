"""Adapter for kinds described as data: custom resources with a suspend field, described by paths and predicates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from admission.apimachinery.patches import json_patch
from admission.kinds import partial_admission, paths, scaling, templates, topology
from admission.kinds.abilities import Ownership, Scaling, Suspension
from admission.kinds.base import (
    ANNOTATIONS,
    DISPATCHED,
    NUMBERS,
    POD,
    POD_SET,
    RENDERED,
    SCALE_REQUEST,
    WORKLOAD_UID,
    Kind,
    Outcome,
    PodCount,
)
from admission.kinds.children import Belonging, find_part, find_pod_set, specified
from admission.kinds.common import NOTHING
from admission.kinds.gates import SuspendField
from admission.kinds.patches import merged, pointer, same_generation
from admission.kinds.places import as_template
from admission.kinds.predicates import HasCondition, first
from admission.kinds.requests import check_resources
from admission.kinds.restoring import inject_at, pointer_keys, restore_at, revert_field
from admission.kinds.shapes import check_template, read_by
from admission.model.errors import Misconfigured
from admission.model.quantity import UNLIMITED
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.kinds.base import Object, Observed
    from admission.kinds.form import Form
    from admission.kinds.gates import Gate
    from admission.kinds.limits import NamespaceContext
    from admission.kinds.paths import Path
    from admission.kinds.places import Place
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

MAX_POD_SETS: Final = 32
"""Maximum number of pod sets of one object; more are rejected, as a cycle's duration grows with them."""
_MOST_PODS: Final = 2**31 - 1
"""Maximum number of pods of one pod set: counts in Kubernetes are 32-bit integers."""
_TEMPLATES: Final = "templates"
"""Key in an `original`: by JSON pointer of each place, what a start injected and what was there before."""
_NUMBERS: Final = "numbers"
"""Key in an `original`: the count fields that a start lowered (`partial_admission.LoweredCounts`)."""


@dataclass(frozen=True, slots=True)
class DeclaredKind(Suspension, Scaling, Ownership, Kind):
    """Adapter for a form (see `Kind`)."""

    min_count_fault: ClassVar[str] = ""
    reports_pods: ClassVar[bool] = False  # no status of these kinds counts terminating pods
    pods_label: ClassVar[str] = WORKLOAD_UID  # which a start injects into all templates

    form: Form

    @property
    def group(self) -> str:
        """The API group."""
        return self.form.group

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return self.form.kind

    @property
    def plural(self) -> str:
        """Resource name in API paths."""
        return self.form.plural

    @property
    def versions(self) -> tuple[str, ...]:
        """Supported API versions, the preferred one first."""
        return self.form.versions

    @property
    def manager(self) -> tuple[Path, tuple[str, ...]]:
        """(path of the field that names another controller, its values for the kind's own controller)."""
        return self.form.managed_by, (*self.form.manager, *DISPATCHED) if self.form.managed_by else ()

    @property
    def annotations(self) -> tuple[str, ...]:
        """Annotations that `faults` and the webhook read."""
        scaled = (SCALE_REQUEST,) if self.form.scales else ()
        return (*ANNOTATIONS, *scaled, *self.form.annotations)

    @property
    def suspend_fields(self) -> tuple[Path, ...]:
        """Keys of the suspend field, the newest first if versions differ."""
        return (self.form.suspend, *self.form.suspend_older)

    @property
    def roots(self) -> set[str]:
        """Names of the fields of the object's root that decide whether it runs, and with which pods."""
        return self.form.roots

    @property
    def gated_by(self) -> Gate:
        """The gate: its suspend field, or the form's substitute for it."""
        field = SuspendField(self.form.suspend, self.form.suspend_older)
        return field if self.form.gate is None else self.form.gate(field)

    @property
    def has_scale(self) -> bool:
        """Whether its definition has the subresource `scale`, as in the form."""
        return self.form.has_scale

    @property
    def grows(self) -> bool:
        """Whether raised numbers wait for quota while it runs."""
        return self.form.scales

    @property
    def most_pods(self) -> Path:
        """Path of the number of pods at a time, where it must not rise."""
        return self.form.most_pods

    def may_stay_gated(self, obj: Object) -> bool:
        """Whether its kind ends, and has a field for its controller, and it is gated by its suspend field."""
        form = self.form
        is_known = bool(form.managed_by and form.succeeded)
        return is_known and SuspendField(form.suspend, form.suspend_older).is_closed(obj)

    def places(self, obj: Object) -> list[Place]:
        """Return its pod sets. Raises Misconfigured if they cannot be determined, or are too many."""
        by_paths = (place for form in self.form.pod_sets for place in form.places(obj))
        found = [*by_paths] if self.form.places is None else read_by(self.form.places, obj)
        if (added := self.form.added) is not None:
            found = [added(obj, place) for place in found]
        if len(found) > MAX_POD_SETS:
            raise Misconfigured(f"spec: has {len(found)} pod sets, but {MAX_POD_SETS} is the most that can be queued")
        if not found:
            raise Misconfigured("spec: has no pod template, so that its pods cannot be counted")
        names = [place.name for place in found]
        for place in found:
            check_template(place.template, place.path)
            if place.pods > _MOST_PODS:
                raise Misconfigured(f"{place.path}: asks for {place.pods} pods, but {_MOST_PODS} is the most")
            if names.count(place.name) > 1:
                raise Misconfigured(f'{place.path}: there are two pod sets "{place.name}"; give them different names')
        return found

    def observe(self, obj: Object) -> Observed:
        """Return the state by the form's predicates."""
        form, suspended, deleting = self.form, self.gated_by.is_closed(obj), "deletionTimestamp" in obj["metadata"]
        finished = self._outcome(obj)
        running = first(obj, form.active) is not None
        try:
            places = self.places(obj)
            larger = self.places(scaling.scaled_up(obj, places)) if self.form.scales else []
        except Misconfigured:  # `pod_sets` reports it
            places, larger = [], []
        requested = {place.name: place.pods for place in larger}
        of_child = {} if suspended else (obj.get(RENDERED) or NOTHING).get(NUMBERS) or {}
        counts = tuple(
            PodCount(
                place.name,
                place.pods,
                place.left,
                UNLIMITED,
                requested.get(place.name, 0),
                place.stays,
                place.unwatched,
            )
            if not place.stays or (numbers := of_child.get(place.name)) is None
            else PodCount(place.name, numbers[0], None, UNLIMITED, numbers[1])
            for place in places
        )
        return self._observed(
            obj,
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
        """Return the object's PriorityClass, else that of the first pod set that has one, as in Kueue."""
        own = paths.value(obj, self.form.priority_class) if self.form.priority_class else ""
        named = (own, *((place.template.get("spec") or {}).get("priorityClassName") for place in places))
        return next(filter(None, named), "")

    def _outcome(self, obj: Object) -> Outcome | None:
        for succeeded, predicates in ((True, self.form.succeeded), (False, self.form.failed)):
            if (holds := first(obj, predicates)) is not None:
                found = holds.found(obj) if isinstance(holds, HasCondition) else obj.get("status")
                texts = (clean(str((found or {}).get(field) or "")) for field in ("reason", "message"))
                return Outcome(succeeded, *texts)
        return None

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return one pod set per place, of the pods still needed. Raises Misconfigured, also for all `faults`."""
        if faults := [*self.metadata_faults(obj), *self._own_faults(obj)]:
            raise Misconfigured("; ".join(map(": ".join, faults)))
        places = self.places(obj)
        if faults := _topology_faults(places):
            raise Misconfigured("; ".join(map(": ".join, faults)))
        min_counts = partial_admission.min_counts(obj, places)
        essence = [
            (
                place.name,
                place.path,
                place.left,
                min_counts.get(place.name),
                place.optional,
                templates.digest_parts(place.template),
            )
            for place in places
        ]
        return _pod_sets(orjson.dumps(essence, option=orjson.OPT_SORT_KEYS), context)

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return the faults in labels, annotations, pod sets and resources."""
        faults = [*self.metadata_faults(obj)]
        try:
            faults += self._own_faults(obj)
            places = self.places(obj)
            faults += _topology_faults(places)
            partial_admission.min_counts(obj, places)
            for place in places:
                check_resources(place.template.get("spec") or {}, path=f"{place.path}.spec")
        except Misconfigured as error:
            path, _, message = str(error).partition(": ")
            faults.append((path, message))
        return faults

    def remarks(self, obj: Object) -> list[str]:
        """Return the form's warnings."""
        return [] if self.form.remarks is None else self.form.remarks(obj)

    def cautions(self, obj: Object) -> list[str]:
        """Return the form's warnings at creation."""
        return self.form.cautions(obj) if self.form.cautions else []

    def _own_faults(self, obj: Object) -> list[tuple[str, str]]:
        return [] if self.form.faults is None else read_by(self.form.faults, obj)

    def templates(self, obj: Object) -> list[Object]:
        """Return the templates of all places, merged with what a start injected beside them."""
        return [
            merged(place.template, as_template(paths.at(obj, place.target) or {}, metadata=place.metadata))
            if place.flat
            else place.template
            for place in self.places(obj)
        ]

    def makes(self, group: str, kind: str) -> bool:
        """Whether the form has such children, or the kind is Pod."""
        made = any((child.group, child.kind) == (group, kind) for child in self.form.children)
        return made or self.form.wrapped is not None or (group, kind) == POD

    def part(
        self,
        obj: Object,
        child_kind: Kind,
        child: Object,
        context: NamespaceContext,
        held: Mapping[str, int] = NOTHING,
        *,
        was_part: bool = False,
    ) -> Belonging:
        """Return how a child belongs to the object, by name, pod counts and requests; a pod, by requests."""
        made = child_kind.group, child_kind.kind
        if made == POD:
            return find_pod_set(self.pod_sets, obj, child_kind, child, context)
        try:
            places = [
                place._replace(pods=max(held.get(place.name, place.pods), 0 if place.stays else place.pods))
                for place in self.places(obj)
            ]
            owner_pods = list(zip(places, self.templates(obj), strict=True))
        except Misconfigured:
            return Belonging.NONE
        expected = specified(self.form.children, obj, places, made, child["metadata"]["name"] if was_part else "")
        expected += () if self.form.wrapped is None else self.form.wrapped(obj)
        return find_part(expected, owner_pods, child_kind, child, context)

    # --- patches

    def gate(self, obj: Object) -> list[Object]:
        """Return the operations that suspend it; none if it is suspended."""
        return [] if self.gated_by.is_closed(obj) else self.gated_by.close(obj)

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Set counts back where a pod set would get more pods; suspend an object that gets other pods.

        An object whose pods could not be counted before is suspended, too, once its spec is edited: nothing shows what
        it holds quota for.
        """
        # Its operator's webhook, which answers later, may refuse the change.
        others = (
            f"if this change is accepted, the running {self.kind} is suspended for its other pods, and queues again"
        )
        try:
            before = {place.name: place for place in self.places(old)}
        except Misconfigured:
            return ([] if new.get("spec") == old.get("spec") else self.gate(new)), others
        try:
            after = self.places(new)
        except Misconfigured:
            return [], ""  # the request is denied with this fault
        if scaling.has_other_pods(before, after) or _loses_labels(old, before, new, after):
            return self.gate(new), others
        patch = scaling.limit_patch(new, old, before, after)
        if not self.form.scales:
            how = "suspend it in the same request to ask for more"
            return patch, f"a running {self.kind} gets no more pods than it has; {how}"
        annotation = scaling.annotation_patch(new, scaling.updated_request(new, old, before, after))
        how = "it gets more as soon as there is quota for them, and runs on"
        return [*patch, *annotation], f"a running {self.kind} has quota for the pods that it has; {how}"

    def follow_patch(self, copy: Object, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Set the counts of pod sets."""
        try:
            before, after = self.places(copy), {place.name: place for place in self.places(obj)}
        except Misconfigured:
            return []
        patch = [
            revert_field(copy, obj, keys)
            for place in before
            if (to := after.get(place.name)) and to.target == place.target
            if to.pods < place.pods or (self.form.scales and place.pods < to.pods <= held.get(place.name, 0))
            for keys in place.count_fields
        ]
        return [*same_generation(copy), *filter(None, patch)] if any(patch) else []

    def scale_patch(self, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Return the operations that set the counts requested in the annotation, where quota is reserved for them."""
        places = self.places(obj) if self.form.scales else []
        patch = scaling.granted_patch(obj, places, self.places(scaling.scaled_up(obj, places)), held) if places else []
        return [*same_generation(obj), *patch] if patch else []

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return a patch with the additions of flavors and checks at each place, the pods' label, and an open gate."""
        assignments = {assignment.name: assignment for assignment in admission.pod_sets}
        places = self.places(obj)
        counts = {name: each.count for name, each in assignments.items()}
        patch, lowered = partial_admission.lower_counts(obj, places, counts)
        injected: Object = {}
        for place in places:
            if not place.target:
                continue
            if (assignment := assignments.get(place.name)) is None:
                raise Misconfigured(f'{place.path}: the pod set "{place.name}" is new since quota was reserved')
            own = templates.Addition("Sluice", {}, (), {WORKLOAD_UID: obj["metadata"]["uid"], **place.label})
            additions = templates.of_admission(
                assignment, flavors, updates, place.template, path=place.path, gates=place.takes_gates
            )
            added, injected[pointer(*place.target)] = inject_at(obj, place, (*additions, own))
            patch += added
        original = {_TEMPLATES: injected, **({_NUMBERS: lowered} if lowered else {})}
        return [*same_generation(obj), *patch, *self.gated_by.open(obj)], original

    def carries_start(self, obj: Object, original: Object) -> bool:
        """Whether the object has all that was injected."""
        return partial_admission.are_lowered(obj, original.get(_NUMBERS) or {}) and self.is_as_started(obj, original)

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether the object has all that was injected, pod counts excepted."""
        places: Mapping[str, Any] = original.get(_TEMPLATES) or {}
        return bool(places) and all(
            isinstance(present := paths.at(obj, pointer_keys(where)), dict)
            and merged(present, injected["given"]) == present
            for where, injected in places.items()
        )

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return a patch that only opens the gate."""
        return [*same_generation(obj), *self.gated_by.open(obj)]

    def stop_patch(self, obj: Object) -> list[Object]:
        """Return a patch that only closes the gate."""
        return [*same_generation(obj), *self.gated_by.close(obj)]

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Return a patch without effect: no start time keeps the template from being restored."""
        return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}}

    def restore_patch(self, obj: Object, original: Object) -> list[Object] | None:
        """Return the operations that remove what is left of the injection; later changes of users stay."""
        patch = partial_admission.restore_counts(obj, original.get(_NUMBERS) or {})
        whole: dict[tuple[str, ...], int] = {}
        for where, injected in (original.get(_TEMPLATES) or {}).items():
            keys = pointer_keys(where)
            present = paths.at(obj, keys)
            if injected.get("whole") and present == injected["given"]:
                if not injected["flat"]:
                    patch.append({"op": "remove", "path": where})
                    continue
                whole[keys[:-1]] = whole.get(keys[:-1], 0) + 1
            elif isinstance(present, dict):
                patch += restore_at(present, injected, where)
        # Lists that a start added are removed, unless items were added to them since.
        patch += [
            {"op": "remove", "path": pointer(*parent)}
            for parent, number in whole.items()
            if len(paths.at(obj, parent)) == number
        ]
        return [*same_generation(obj), *patch] if patch else None

    def restored(self, obj: Object, original: Object) -> Object:
        """Return the object after `restore_patch`."""
        patch = self.restore_patch(obj, original)
        return obj if patch is None else json_patch(obj, patch)


def _topology_faults(places: Iterable[Place]) -> list[tuple[str, str]]:
    return topology.faults((place.template, place.path, place.pods) for place in places)


def workload_of(template: Object) -> str:
    """Return the uid of the workload that a start has written into a pod template; empty: none has."""
    labels: Mapping[str, str] = (template.get("metadata") or NOTHING).get("labels") or NOTHING
    return labels.get(WORKLOAD_UID, "")


def _loses_labels(old: Object, before: Mapping[str, Place], new: Object, after: Iterable[Place]) -> bool:
    """Whether new pods would be without the labels, or with others, by which the pods of the object are counted."""
    return any(
        (had := before.get(place.name)) is not None and _own_labels(old, had) not in ({}, _own_labels(new, place))
        for place in after
    )


def _own_labels(obj: Object, place: Place) -> Object:
    """Return the labels that a start has written at a place."""
    present = (paths.at(obj, place.target) or {}) if place.target else {}
    template = as_template(present, metadata=place.metadata) if place.flat else present
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {key: labels[key] for key in (WORKLOAD_UID, POD_SET) if key in labels}


@lru_cache(maxsize=8192)
def _pod_sets(essence: bytes, context: NamespaceContext) -> tuple[PodSet, ...]:
    return tuple(
        templates.pod_set(name, template, context, path=path, count=count, min_count=least, optional=tuple(optional))
        for name, path, count, least, optional, template in orjson.loads(essence)
    )
