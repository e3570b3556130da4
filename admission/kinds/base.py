"""Interface of kinds: adapters by which the controller and webhooks handle any Kubernetes kind that can be queued.

An adapter is a set of pure functions on raw JSON objects, as the API server sends them. It reads an object into an
`Observed` and into pod sets, and builds the patches that start it, stop it and restore it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from admission.kinds import paths
from admission.kinds.admission_gates import gates_fault, gates_of
from admission.kinds.common import NOTHING, first, is_positive, quote
from admission.model import names
from admission.model.cluster_order import ClusterAffinity, parse_cluster_affinity
from admission.model.frozen import frozen
from admission.model.terms import NO_TERMS, Terms, parse_after, parse_at_most
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.kinds.abilities import Ownership, Scaling, Suspension
    from admission.kinds.deployment import DeploymentKind
    from admission.kinds.grouped import GroupedKind
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.terms import Dependency
    from admission.model.workload import Admission, PodSet

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, or a patch of one, as JSON."""

POD: Final = ("", "Pod")
"""API group and kind."""
QUEUE_NAME: Final = "sluice.dev/queue-name"
DEFAULT_QUEUE: Final = "default"
"""LocalQueue of an object without a queue label, where such objects are queued."""
PRIORITY_CLASS: Final = "sluice.dev/priority-class"
HOLD: Final = "sluice.dev/hold"
"""Label or annotation; `"true"` puts the workload on hold: it takes part in no cycle."""
SUBMITTED_BY: Final = "sluice.dev/submitted-by"
"""Annotation with the name of the user who created the object. Only the webhook writes it."""
SUBMITTER_GROUPS: Final = "sluice.dev/submitter-groups"
"""Annotation with the groups of that user, one on each line, without those of Kubernetes (`system:`); no annotation:
none. Only the webhook writes it."""
MANAGED: Final = "sluice.dev/managed"
"""Label that the webhook writes on queued pods: only pods with it are watched."""
START_WITH_OWNER: Final = "sluice.dev/start-with-owner"
"""Annotation on an object that was gated although its controlling owner is admitted.

If it proves to be part of that owner, it is started without quota of its own.
"""
POD_SET: Final = "sluice.dev/pod-set"
"""Label that a start puts on pods that no object's status counts: the name of their pod set, if a valid label value."""
SCALE_REQUEST: Final = "sluice.dev/asks-for"
"""Annotation that the webhook writes on a running object that requests more pods.

JSON, `{pod set: {field: number}}`, for example `{"workers": {"replicas": 5}}`.
"""
MIN_COUNT: Final = "sluice.dev/min-count"
"""Annotation: minimum number of pods that pod sets may start with, for example `worker=2,evaluator=1`."""
MIN_COUNT_PATH: Final = f"metadata.annotations[{MIN_COUNT}]"
ONLY_WHOLE: Final = "it can only start with all of its pods: remove the annotation"
"""Message for `MIN_COUNT` on an object that cannot start with fewer pods."""
MAX_EXEC_TIME: Final = "sluice.dev/max-exec-time-seconds"
"""Label: maximum execution time of the workload in seconds, summed over all of its admissions."""
KUEUE: Final = "kueue.x-k8s.io/"
DISPATCHED: Final = ("sluice.dev/dispatch", f"{KUEUE}multikueue")
"""Values of the field that names another controller (`managedBy`): a copy in another cluster runs in its place."""
CANNOT_BORROW: Final = ("sluice.dev/cannot-borrow", f"{KUEUE}cannot-borrow")
"""Annotations; `"true"`: the workload is not admitted with borrowed quota (Kueue's KEP 8729)."""
CANNOT_PREEMPT: Final = ("sluice.dev/cannot-preempt", f"{KUEUE}cannot-preempt")
"""Annotations; `"true"`: no workload is preempted for this one (Kueue's KEP 8729)."""
AFTER: Final = "sluice.dev/after"
"""Annotation: workloads of the namespace after which it starts, for example `ok(prep),any(clean)`."""
AT_MOST: Final = "sluice.dev/at-most"
"""Annotation: a set of workloads of the namespace, and how many may be admitted at once, for example `sweep=4`."""
CLUSTER_AFFINITY: Final = "sluice.dev/cluster-affinity"
_LONGEST_AFFINITY: Final = 32_768
"""Characters of its value: what has been parsed is kept, also of objects that were refused."""
"""Annotation: which clusters it requires or prefers if it is dispatched (see `admission.model.cluster_order`)."""
TERMS: Final = (*CANNOT_BORROW, *CANNOT_PREEMPT, AFTER, AT_MOST)
"""Annotations with terms of admission (see `admission.model.terms`)."""
GATED_BY: Final = f"{KUEUE}admission-gated-by"
"""Kueue's annotation that names the controllers which gate an object (see `admission_gates`)."""
ANNOTATIONS: Final = (SUBMITTED_BY, SUBMITTER_GROUPS, HOLD, GATED_BY, *TERMS, MIN_COUNT, CLUSTER_AFFINITY)
"""Annotations that Sluice reads on objects of all kinds."""
RENDERED: Final = "rendered"
"""Key beside `spec`: the last seen state of the child that an object's pod sets are read from (`Kind.rendered_by`)."""
NUMBERS: Final = "numbers"
"""Key in `RENDERED`: pods that the object's running child requests, and asks for, by pod set: `{"gpu": [2, 3]}`."""
WORKLOAD_UID: Final = "sluice.dev/workload-uid"
"""Label that a start injects into pod templates: pods are found by it where the status does not count them."""
POD_OWNER: Final = "batch.kubernetes.io/controller-uid"
"""Label on each pod of a Job, with the Job's uid; a pod that is orphaned, then adopted by another Job, keeps it."""


EMPTY_LABEL: Final = "is empty: name what it is for, or remove the label"
"""Message for a label with an empty value."""
_LONGEST_USER: Final = 250
"""Maximum length of a user's name, in characters. It is in an index; PostgreSQL limits index rows to 2,700 bytes."""


@dataclass(frozen=True, slots=True)
class Conventions:
    """Labels and annotations that are read, in order of precedence, and namespaces in which they are ignored."""

    queue_labels: tuple[str, ...] = (QUEUE_NAME, f"{KUEUE}queue-name")
    priority_labels: tuple[str, ...] = (PRIORITY_CLASS, f"{KUEUE}priority-class")
    time_labels: tuple[str, ...] = (MAX_EXEC_TIME, f"{KUEUE}max-exec-time-seconds")
    excluded_namespaces: frozenset[str] = frozenset({"kube-system"})
    """Namespaces in which nothing is queued, whatever its labels; the webhook is not called for them."""
    group_labels: tuple[str, ...] = ()
    """Labels or annotations of other systems that name a pod's group (see `foreign_groups`)."""
    named_by: tuple[tuple[str, ...], ...] = ()
    """Labels by which controllers name the groups of their pods (see `GroupedKind`)."""
    borrow_annotations: tuple[str, ...] = CANNOT_BORROW
    preempt_annotations: tuple[str, ...] = CANNOT_PREEMPT
    gate_annotation: str = GATED_BY
    """Annotation that names controllers which gate an object (`GATED_BY`); empty: none is read."""

    @classmethod
    def of(
        cls,
        *,
        kueue_labels: bool,
        excluded_namespaces: Iterable[str],
        queue_labels: Iterable[str] = (),
        priority_labels: Iterable[str] = (),
        group_labels: Iterable[str] = (),
        named_by: Iterable[tuple[str, ...]] = (),
    ) -> Conventions:
        """Return Sluice's labels, then Kueue's if `kueue_labels`, then the given labels of other systems."""
        own = cls(
            (QUEUE_NAME,),
            (PRIORITY_CLASS,),
            (MAX_EXEC_TIME,),
            borrow_annotations=CANNOT_BORROW[:1],
            preempt_annotations=CANNOT_PREEMPT[:1],
            gate_annotation="",
        )
        known = cls() if kueue_labels else own
        return cls(
            (*known.queue_labels, *queue_labels),
            (*known.priority_labels, *priority_labels),
            known.time_labels,
            frozenset(excluded_namespaces),
            tuple(group_labels),
            tuple(named_by),
            known.borrow_annotations,
            known.preempt_annotations,
            known.gate_annotation,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a finished workload."""

    succeeded: bool
    reason: str
    message: str


class PodCount(NamedTuple):
    """Pod counts of one pod set, from the object's spec and status."""

    name: str
    wanted: int
    """Pods that it requests to run at a time."""
    left: int | None = None
    """Pods that have still to succeed, however many may run at a time; None: unknown."""
    present: int = 0
    """Pods that exist, including terminating ones."""
    scale_up: int = 0
    """Pods of a requested scale-up that waits for quota; 0: no more than `wanted`."""
    stays: bool = False
    """Whether its pods stay when fewer are requested: the controller passes the number on to a new child only."""

    unwatched: bool = False
    """Whether only its pods show how many there are: the object that creates them is of a kind that is not watched."""

    @property
    def needed(self) -> int:
        """Pods that can still run at a time: the smaller of `wanted` and `left`."""
        return self.wanted if self.left is None else min(self.wanted, self.left)


@frozen(frozen=True, slots=True)
class Observed:
    """What the controller needs to know of one version of an object, independent of its kind."""

    kind: Kind
    uid: str
    namespace: str
    name: str
    resource_version: str
    generation: int
    created: float
    queue: str
    """Name of the LocalQueue; empty: the object is not queued by Sluice."""
    priority_class: str
    """WorkloadPriorityClass that its label names."""
    pod_priority_class: str
    """PriorityClass of its pods, which counts if `priority_class` is empty."""
    user: str
    on_hold: bool
    suspended: bool
    active: bool
    """Whether pods exist or may still be created; quota is held as long as this is so."""
    started: bool
    """Whether a start time is set, which keeps API servers before 1.36 from letting the template be restored."""
    counts: tuple[PodCount, ...]
    """Pod counts of each pod set."""
    deleting: bool
    finished: Outcome | None
    stopped: bool = False
    """Whether the controller's condition confirms a suspension; it may be an earlier one than the current."""
    ending: bool = False
    """Whether it is being deleted, and the stop patch has taken effect on it."""
    ready: bool = False
    """Whether all requested pods are ready or have succeeded."""
    max_seconds: int | None = None
    """Maximum execution time in seconds, summed over all admissions; None: unlimited."""
    waits_for: str = ""
    """Why it cannot be admitted in its present form, as a message for users; empty: it can."""
    gated_by: str = ""
    """Controllers that gate it, by name, separated by ", "; empty: none."""
    terms: Terms = NO_TERMS
    """What its user permits or waits for, beside quota."""
    groups: tuple[str, ...] = ()
    """Groups of `user`, sorted."""
    is_uneven: bool = False
    """Whether its pods differ from its admission: some are gated beside running ones, or run without quota."""
    is_dispatched: bool = False
    """Whether a copy of it in another cluster runs in its place (see `dispatched`): the rest is the copy's state."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """Adapter of a Kubernetes kind: its names, what every kind has to say of its objects, and its abilities.

    Abstract members have no default, because each kind differs. An ability (`abilities`) is None where a kind lacks it.
    `original` is the JSON document that `start_patch` returns, the controller stores, and `restore_patch` takes.
    """

    conventions: Conventions
    """Labels and annotations that it reads."""

    is_custom: ClassVar[bool] = True
    """Whether it is a custom resource, whose definition the API server may lack."""
    is_composed: ClassVar[bool] = False
    """Whether the API server has no objects of it: they are made of others, and kept in memory as they are."""
    watched_label: ClassVar[str] = ""
    """Label, with the value "true", that selects the objects to watch; empty: all are watched."""
    more_labels: ClassVar[tuple[str, ...]] = ()
    """Path, beside `metadata.labels`, of labels that may name the queue; or `()`."""
    rendered_by: ClassVar[tuple[str, str] | None] = None
    """Group and kind of the child of the object's name whose spec has the pod templates; kept at `RENDERED`.

    Example: `("jobset.x-k8s.io", "JobSet")` for a TrainJob. None: the object itself has its pod templates.
    """
    booleans: ClassVar[tuple[str, ...]] = ()
    """Annotations, beside the common ones, whose value must be "true" or "false"."""
    min_count_fault: ClassVar[str] = ONLY_WHOLE
    """What is wrong with the annotation `MIN_COUNT` on any object of the kind; empty: its pod sets are to be judged."""

    # --- names

    @property
    @abstractmethod
    def group(self) -> str:
        """The API group."""

    @property
    @abstractmethod
    def versions(self) -> tuple[str, ...]:
        """Supported API versions, the preferred one first."""

    @property
    @abstractmethod
    def plural(self) -> str:
        """Resource name in API paths, such as `jobs`."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of the kind, such as `Job`."""

    @property
    def annotations(self) -> tuple[str, ...]:
        """Annotations that `faults` and the webhook read. Labels, owner references and spec may be read in full."""
        return ANNOTATIONS

    # --- queue

    @property
    def is_always_queued(self) -> bool:
        """Whether each object names a queue, even without a queue label."""
        return False

    @property
    def manager(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(path of the field that names another controller, values for the kind's own); `((), ())` if there is none."""
        return (), ()

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """Whether another controller than the kind's own runs it, or it is part of another queued object."""
        path, own = self.manager
        return bool(path) and bool(named := paths.value(obj, path)) and named not in own

    def may_stay_gated(self, obj: Object) -> bool:
        """Whether a gated object can stay so while a copy of it runs elsewhere, without naming another controller.

        It ends, and its own controller leaves the last status alone that Sluice then writes.
        """
        return False

    @property
    def shows_copies(self) -> bool:
        """Whether nothing else writes the status of a gated object, so that it always has that of its copy."""
        return False

    def copied_spec(self, spec: Object) -> Object:
        """Return a spec without what the API server has added to it for one object; `spec` is not changed."""
        return spec

    def copied_status(self, status: Mapping[str, Any], copy: Mapping[str, Any] | None) -> Object:
        """Return the status that an object gets by that of its copy. `copy`: None: there is none, it is suspended.

        Of a kind that is rendered by a child, it is the last status of that child.
        """
        return dict(copy or {})

    def queue_name(self, obj: Object) -> str:
        """Return the LocalQueue that the object names; empty: Sluice does not manage the object."""
        metadata = obj["metadata"]
        queue = first(metadata.get("labels"), self.conventions.queue_labels)
        if not queue or self.is_managed_elsewhere(obj):
            return ""
        return "" if metadata.get("namespace") in self.conventions.excluded_namespaces else queue

    # --- what an object is, and asks for

    @abstractmethod
    def observe(self, obj: Object) -> Observed:
        """Return the object's present state, by `_observed`. Called on each watch event."""

    @abstractmethod
    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return the pod sets that the object requests quota for. Raises Misconfigured.

        Objects of the same form share one tuple.
        """

    @abstractmethod
    def templates(self, obj: Object) -> list[Object]:
        """Return its pod templates, in the order of its pod sets."""

    @abstractmethod
    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return (field path, message) of each fault that keeps the object from ever running.

        Only faults that can be found in the object itself.
        """

    def remarks(self, obj: Object) -> list[str]:
        """Return warnings for the user about an object that is admitted."""
        return []

    def cautions(self, obj: Object) -> list[str]:
        """Return warnings for the user who creates an object: what it asks for and will not get."""
        return []

    # --- gate and start

    @abstractmethod
    def gate(self, obj: Object) -> list[Object]:
        """Return the JSON patch that keeps a new object from running; empty if it is gated already."""

    @abstractmethod
    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return the JSON patch that injects and unsuspends in one request, and the original. Raises Misconfigured.

        `updates` are the pod set updates of admission checks, beside the flavors. The patch tests uid and generation,
        so that it fails if the spec was edited meanwhile, but not if only the status or a label was. `obj` must not
        carry an injection already.
        """

    @abstractmethod
    def resume_patch(self, obj: Object) -> list[Object]:
        """Return the JSON patch that unsuspends an object that carries its injection already."""

    # --- its pods

    @property
    @abstractmethod
    def pods_label(self) -> str:
        """Label on the object's pods since its start, with its uid as value; empty: it is a pod itself, or a group."""

    @property
    @abstractmethod
    def reports_pods(self) -> bool:
        """Whether the object's status shows when its last pod has terminated; else pods are listed by `pods_label`."""

    @property
    def ends_by_deletion(self) -> bool:
        """Whether a running object can be stopped only by deletion; it is then not requeued."""
        return self.suspension is None

    # --- abilities

    @property
    def suspension(self) -> Suspension | None:
        """How objects are stopped, and restored; None: they are deleted, and need not be restored."""
        return None

    @property
    def scaling(self) -> Scaling | None:
        """How the number of pods may change while an object runs; None: its pods are limited by themselves."""
        return None

    @property
    def ownership(self) -> Ownership | None:
        """Which objects its controller creates as parts of an object; None: none that are part of it."""
        return None

    @property
    def grouping(self) -> GroupedKind | None:
        """How the pods of an object, which is no workload itself, are queued in groups; None: they are not."""
        return None

    @property
    def labelling(self) -> DeploymentKind | None:
        """How each pod of an object, which is no workload itself, is queued for itself; None: they are not."""
        return None

    # --- for the kinds themselves

    def _observed(
        self,
        obj: Object,
        *,
        suspended: bool,
        active: bool,
        counts: tuple[PodCount, ...],
        finished: Outcome | None,
        ready: bool,
        ending: bool,
        pod_priority_class: str,
        started: bool = False,
        stopped: bool = False,
        waits_for: str = "",
        is_uneven: bool = False,
    ) -> Observed:
        """Return the state of an object by its metadata, and by what its kind says of it."""
        metadata = obj["metadata"]
        labels, annotations = metadata.get("labels") or NOTHING, metadata.get("annotations") or NOTHING
        deleting = "deletionTimestamp" in metadata
        limit = first(labels, self.conventions.time_labels)
        return Observed(
            kind=self,
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            resource_version=metadata["resourceVersion"],
            generation=metadata.get("generation") or 0,
            created=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
            queue=self.queue_name(obj),
            priority_class=first(labels, self.conventions.priority_labels),
            pod_priority_class=pod_priority_class,
            user=clean(user, longest=_LONGEST_USER) if (user := annotations.get(SUBMITTED_BY)) else "",
            on_hold=labels.get(HOLD) == "true" or annotations.get(HOLD) == "true",
            suspended=suspended,
            active=active,
            started=started,
            stopped=stopped,
            counts=counts,
            deleting=deleting,
            ending=ending,
            finished=finished,
            ready=ready,
            max_seconds=int(limit) if limit and is_positive(limit) else None,
            waits_for=waits_for,
            gated_by=clean(", ".join(gates_of(annotations, self.conventions.gate_annotation))) if annotations else "",
            terms=_terms(annotations, self.conventions) if annotations else NO_TERMS,
            groups=_groups(groups) if (groups := annotations.get(SUBMITTER_GROUPS)) else (),
            is_uneven=is_uneven,
        )

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
        if CLUSTER_AFFINITY in annotations and (fault := affinity_of(annotations[CLUSTER_AFFINITY])[1]):
            yield f"metadata.annotations[{CLUSTER_AFFINITY}]", fault
        flags = (("labels", labels, (HOLD,)), ("annotations", annotations, (HOLD, *terms, *self.booleans)))
        for where, values, keys in flags:
            for key in keys:
                if values.get(key, "true") not in {"true", "false"}:
                    yield f"metadata.{where}[{key}]", f'must be "true" or "false", not "{quote(values[key])}"'


def is_watched(kind: Kind, obj: Object) -> bool:
    """Whether an object has the label by which its kind is watched; True if the kind has none."""
    label = kind.watched_label
    return not label or (obj["metadata"].get("labels") or NOTHING).get(label) == "true"


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


def affinity_of(text: str) -> tuple[ClusterAffinity, str]:
    """Return the clusters that `CLUSTER_AFFINITY` names, and what is wrong with it; then it names none."""
    if len(text) > _LONGEST_AFFINITY:
        return ClusterAffinity(), f"must have at most {_LONGEST_AFFINITY} characters, not {len(text)}"
    return _affinity(text)


@lru_cache(maxsize=1000)
def _affinity(text: str) -> tuple[ClusterAffinity, str]:
    try:
        return parse_cluster_affinity(text), ""
    except ValueError as error:
        return ClusterAffinity(), str(error)


@lru_cache(maxsize=10_000)
def _after(text: str) -> tuple[tuple[Dependency, ...], str]:
    """Return the dependencies that the annotation names, and what is wrong with it; then it names none."""
    try:
        return parse_after(text), ""
    except ValueError as error:
        return (), str(error)
