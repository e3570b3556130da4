"""Base class of all kinds: labels and annotations of the object itself, independent of how its pods run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from admission.kinds import paths
from admission.kinds.admission_gates import gates_fault, gates_of
from admission.kinds.base import (
    AFTER,
    AT_MOST,
    EMPTY_LABEL,
    HOLD,
    MIN_COUNT,
    MIN_COUNT_PATH,
    ONLY_WHOLE,
    POD,
    SUBMITTED_BY,
    SUBMITTER_GROUPS,
    Conventions,
    Observed,
)
from admission.kinds.children import find_pod_set
from admission.model import names
from admission.model.terms import NO_TERMS, Terms, parse_after, parse_at_most
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.kinds.base import Kind, KindStatus, Object
    from admission.kinds.children import Part
    from admission.kinds.limits import NamespaceContext
    from admission.model.terms import Dependency
    from admission.model.workload import PodSet

NOTHING: Final[dict[str, Any]] = {}
_LONGEST_USER: Final = 250
"""Maximum length of a user's name, in characters. It is in an index; PostgreSQL limits index rows to 2,700 bytes."""
_LONGEST_QUOTE: Final = 100
"""Maximum length of a value that a message quotes, in characters."""


@dataclass(frozen=True, slots=True)
class CommonKind(ABC):
    """The part of `Kind` that all kinds share; a subclass adds `status`, pod sets and patches."""

    booleans: ClassVar[tuple[str, ...]] = ()
    """Annotations, beside the common ones, whose value must be "true" or "false"."""

    is_composed: ClassVar[bool] = False
    more_labels: ClassVar[tuple[str, ...]] = ()
    rendered_by: ClassVar[tuple[str, str] | None] = None
    min_count_fault: ClassVar[str] = ONLY_WHOLE
    """What is wrong with the annotation `MIN_COUNT` on any object of the kind; empty: its pod sets are to be judged."""

    conventions: Conventions

    @property
    @abstractmethod
    def watched_label(self) -> str:
        """Label, with the value "true", that selects the objects to watch; empty: all are watched."""

    @property
    @abstractmethod
    def manager(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(path of the field that names another controller, values for the kind's own); `((), ())` if there is none."""

    @property
    def is_always_queued(self) -> bool:
        """Whether each object names a queue, even without a queue label: by default none does."""
        return False

    @property
    def suspend_fields(self) -> tuple[tuple[str, ...], ...]:
        """Keys of the field that suspends an object: by default there is none."""
        return ()

    @property
    def has_scale(self) -> bool:
        """Whether `scale` gives a running object more pods: by default it does not."""
        return False

    @property
    def scales(self) -> bool:
        """Whether raised numbers of pods wait for quota while it runs: by default they do not."""
        return False

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """Whether the field for it names another controller than the kind's own."""
        path, own = self.manager
        return bool(path) and bool(named := paths.value(obj, path)) and named not in own

    @abstractmethod
    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """Return the kind-specific part of the object's state."""

    def queue_name(self, obj: Object) -> str:
        """Return the LocalQueue named by label; empty if managed by another controller, or in an excluded namespace."""
        metadata = obj["metadata"]
        queue = first(metadata.get("labels"), self.conventions.queue_labels)
        if not queue or self.is_managed_elsewhere(obj):
            return ""
        return "" if metadata.get("namespace") in self.conventions.excluded_namespaces else queue

    def is_watched(self, obj: Object) -> bool:
        """Whether it has the label by which its kind is watched; True if the kind has none."""
        label = self.watched_label
        return not label or (obj["metadata"].get("labels") or NOTHING).get(label) == "true"

    @abstractmethod
    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return the pod sets that the object requests quota for."""

    def remarks(self, obj: Object) -> list[str]:
        """Return no warnings."""
        return []

    def cautions(self, obj: Object) -> list[str]:
        """Return no warnings."""
        return []

    def makes(self, group: str, kind: str) -> bool:
        """Whether the given kind is Pod: by default controllers create pods only."""
        return (group, kind) == POD

    def part(
        self,
        obj: Object,
        child_kind: Kind,
        child: Object,
        context: NamespaceContext,
        held: Mapping[str, int] = NOTHING,
        *,
        was_part: bool = False,
    ) -> Part:
        """Return how a pod belongs to the object, by the pod's requests."""
        return find_pod_set(self.pod_sets, obj, child_kind, child, context)

    def observe(self, obj: Object) -> Observed:
        """Return the object's present state."""
        metadata = obj["metadata"]
        labels, annotations = metadata.get("labels") or NOTHING, metadata.get("annotations") or NOTHING
        deleting = "deletionTimestamp" in metadata
        status = self.status(obj, deleting=deleting)
        limit = first(labels, self.conventions.time_labels)
        return Observed(
            kind=self,  # type: ignore[arg-type]  # the subclass implements the rest of Kind
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            resource_version=metadata["resourceVersion"],
            generation=metadata.get("generation") or 0,
            created=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
            queue=self.queue_name(obj),
            priority_class=first(labels, self.conventions.priority_labels),
            pod_priority_class=status.pod_priority_class,
            user=clean(user, longest=_LONGEST_USER) if (user := annotations.get(SUBMITTED_BY)) else "",
            on_hold=labels.get(HOLD) == "true" or annotations.get(HOLD) == "true",
            suspended=status.suspended,
            active=status.active,
            started=status.started,
            stopped=status.stopped,
            counts=status.counts,
            deleting=deleting,
            ending=status.ending,
            finished=status.finished,
            ready=status.ready,
            max_seconds=int(limit) if limit and is_positive(limit) else None,
            waits_for=status.waits_for,
            gated_by=clean(", ".join(gates_of(annotations, self.conventions.gate_annotation))) if annotations else "",
            terms=_terms(annotations, self.conventions) if annotations else NO_TERMS,
            groups=_groups(groups) if (groups := annotations.get(SUBMITTER_GROUPS)) else (),
            is_uneven=status.is_uneven,
        )

    def may_resume(self, obj: Object) -> bool:
        """Always True: the object itself shows its pods."""
        return True

    def confine_patch(self, obj: Object) -> list[Object]:
        """Return an empty patch."""
        return []

    def scale_patch(self, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Return an empty patch: the kind does not scale while it runs."""
        return []

    def metadata_faults(self, obj: Object) -> Iterator[tuple[str, str]]:
        """Return (field path, message) of each fault in labels and annotations."""
        metadata = obj["metadata"]
        labels, annotations = metadata.get("labels") or NOTHING, metadata.get("annotations") or NOTHING
        for label in (*self.conventions.queue_labels, *self.conventions.priority_labels):
            if label in labels and not names.is_dns_subdomain(labels[label]):
                no_name = f'"{quote(labels[label])}" is no name: use lower-case letters, digits, "-" and "."'
                fault = no_name if labels[label] else EMPTY_LABEL
                yield f"metadata.labels[{label}]", fault
        for label in self.conventions.time_labels:
            if label in labels and not is_positive(labels[label]):
                shown = quote(labels[label])
                yield f"metadata.labels[{label}]", f'must be a number of seconds from 1 to 999999999, not "{shown}"'
                break
        gate = self.conventions.gate_annotation
        if gate in annotations and (fault := gates_fault(gates_of(annotations, gate))):
            yield f"metadata.annotations[{gate}]", fault
        if self.min_count_fault and MIN_COUNT in annotations:
            yield MIN_COUNT_PATH, self.min_count_fault
        terms = (*self.conventions.borrow_annotations, *self.conventions.preempt_annotations)
        if AFTER in annotations and (fault := _after(annotations[AFTER])[1]):
            yield f"metadata.annotations[{AFTER}]", f'{fault}, not "{quote(annotations[AFTER])}"'
        if AT_MOST in annotations and (fault := _at_most(annotations[AT_MOST])[1]):
            yield f"metadata.annotations[{AT_MOST}]", f'{fault}, not "{quote(annotations[AT_MOST])}"'
        flags = (("labels", labels, (HOLD,)), ("annotations", annotations, (HOLD, *terms, *self.booleans)))
        for where, values, keys in flags:
            for key in keys:
                if values.get(key, "true") not in {"true", "false"}:
                    yield f"metadata.{where}[{key}]", f'must be "true" or "false", not "{quote(values[key])}"'


def first(values: Mapping[str, str] | None, keys: tuple[str, ...]) -> str:
    """Return the value of the first of these keys that is present and not empty; else ""."""
    if values:
        for key in keys:
            if value := values.get(key):
                return value
    return ""


@lru_cache(maxsize=10_000)
def _groups(text: str) -> tuple[str, ...]:
    return tuple(sorted({clean(line, longest=_LONGEST_USER) for line in text.split("\n") if line.strip()}))


def _terms(annotations: Mapping[str, str], conventions: Conventions) -> Terms:
    """Return the terms of admission that these annotations say; a value that is no boolean says nothing."""
    no_borrowing = first(annotations, conventions.borrow_annotations) == "true"
    no_preemption = first(annotations, conventions.preempt_annotations) == "true"
    text, limit = annotations.get(AFTER), annotations.get(AT_MOST)
    if not (no_borrowing or no_preemption or text or limit):
        return NO_TERMS
    after = _after(text)[0] if text else ()
    return Terms(not no_borrowing, not no_preemption, after, _at_most(limit)[0] if limit else None)


@lru_cache(maxsize=10_000)
def _at_most(text: str) -> tuple[tuple[str, int] | None, str]:
    """Return the set and its size that the annotation names, and what is wrong with it; then it names none."""
    try:
        return parse_at_most(text), ""
    except ValueError as error:
        return None, str(error)


@lru_cache(maxsize=10_000)
def _after(text: str) -> tuple[tuple[Dependency, ...], str]:
    """Return the dependencies that the annotation names, and what is wrong with it; then it names none."""
    try:
        return parse_after(text), ""
    except ValueError as error:
        return (), str(error)


def quote(text: str) -> str:
    """Return a user's text, cleaned and shortened for a message."""
    return clean(text, longest=_LONGEST_QUOTE)


def lock(obj: Object) -> Object:
    """Return the metadata that makes a merge patch fail (409) on another resourceVersion of the object."""
    return {"resourceVersion": obj["metadata"]["resourceVersion"]}


def is_positive(text: str) -> bool:
    """Whether the text is a positive whole number of at most nine digits."""
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
