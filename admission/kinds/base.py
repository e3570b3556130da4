"""Interface of kinds: adapters by which the controller and webhooks handle any Kubernetes kind that can be queued.

An adapter is a set of pure functions on raw JSON objects, as the API server sends them. It reads an object into an
`Observed` and into pod sets, and builds the patches that start it, stop it and restore it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from admission.kinds.abilities import (
    Composed,
    Elastic,
    EndsByDeletion,
    NotesStartTime,
    Owner,
    SelectsPods,
    WatchedByLabel,
)
from admission.model.frozen import frozen
from admission.model.terms import NO_TERMS, Terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
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
CANNOT_BORROW: Final = ("sluice.dev/cannot-borrow", f"{KUEUE}cannot-borrow")
"""Annotations; `"true"`: the workload is not admitted with borrowed quota (Kueue's KEP 8729)."""
CANNOT_PREEMPT: Final = ("sluice.dev/cannot-preempt", f"{KUEUE}cannot-preempt")
"""Annotations; `"true"`: no workload is preempted for this one (Kueue's KEP 8729)."""
AFTER: Final = "sluice.dev/after"
"""Annotation: workloads of the namespace after which it starts, for example `ok(prep),any(clean)`."""
AT_MOST: Final = "sluice.dev/at-most"
"""Annotation: a set of workloads of the namespace, and how many may be admitted at once, for example `sweep=4`."""
TERMS: Final = (*CANNOT_BORROW, *CANNOT_PREEMPT, AFTER, AT_MOST)
"""Annotations with terms of admission (see `admission.model.terms`)."""
GATED_BY: Final = f"{KUEUE}admission-gated-by"
"""Kueue's annotation that names the controllers which gate an object (see `admission_gates`)."""
RENDERED: Final = "rendered"
"""Key beside `spec`: the last seen state of the child that an object's pod sets are read from (`Kind.rendered_by`)."""
NUMBERS: Final = "numbers"
"""Key in `RENDERED`: pods that the object's running child requests, and asks for, by pod set: `{"gpu": [2, 3]}`."""
POD_OWNER: Final = "batch.kubernetes.io/controller-uid"
"""Label on each pod of a Job, with the Job's uid; a pod that is orphaned, then adopted by another Job, keeps it."""


EMPTY_LABEL: Final = "is empty: name what it is for, or remove the label"
"""Message for a label with an empty value."""


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
class KindStatus:
    """The kind-specific part of `Observed`, with the same fields."""

    suspended: bool
    active: bool
    started: bool
    stopped: bool
    counts: tuple[PodCount, ...]
    finished: Outcome | None
    ready: bool
    ending: bool
    pod_priority_class: str
    waits_for: str = ""
    is_uneven: bool = False


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

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Kind(Elastic, Owner, Composed, EndsByDeletion, SelectsPods, WatchedByLabel, NotesStartTime, Protocol):
    """Adapter of a Kubernetes kind: what every kind implements, and the protocols of `abilities`.

    `original` is the JSON document that `start_patch` returns, the controller stores, and `restore_patch` takes.
    """

    @property
    def conventions(self) -> Conventions:
        """Labels and annotations that it reads."""

    @property
    def group(self) -> str:
        """The API group."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Supported API versions, the preferred one first."""

    @property
    def is_custom(self) -> bool:
        """Whether it is a custom resource, whose definition the API server may lack."""

    @property
    def suspend_fields(self) -> tuple[tuple[str, ...], ...]:
        """Keys of the field that suspends an object, the newest first if versions differ; empty: its pods are gated."""

    @property
    def is_always_queued(self) -> bool:
        """Whether each object names a queue, even without a queue label."""

    @property
    def more_labels(self) -> tuple[str, ...]:
        """Path, beside `metadata.labels`, of labels that may name the queue; or `()`."""

    @property
    def manager(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(path of the field that names another controller, values for the kind's own); `((), ())` if there is none."""

    @property
    def plural(self) -> str:
        """Resource name in API paths, such as `jobs`."""

    @property
    def kind(self) -> str:
        """Name of the kind, such as `Job`."""

    @property
    def annotations(self) -> tuple[str, ...]:
        """Annotations that `faults` and the webhook read. Labels, owner references and spec may be read in full."""

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """Whether another controller than the kind's own runs it, or it is part of another queued object."""

    def queue_name(self, obj: Object) -> str:
        """Return the LocalQueue that the object names; empty: Sluice does not manage the object."""

    def observe(self, obj: Object) -> Observed:
        """Return the object's present state. Called on each watch event."""

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return the pod sets that the object requests quota for. Raises Misconfigured.

        Objects of the same form share one tuple.
        """

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return (field path, message) of each fault that keeps the object from ever running.

        Only faults that can be found in the object itself.
        """

    def remarks(self, obj: Object) -> list[str]:
        """Return warnings for the user about an object that is admitted."""

    def cautions(self, obj: Object) -> list[str]:
        """Return warnings for the user who creates an object: what it asks for and will not get."""

    def gate(self, obj: Object) -> list[Object]:
        """Return the JSON patch that keeps a new object from running; empty if it is gated already."""

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

    def carries(self, obj: Object, original: Object) -> bool:
        """Whether the object has all that the start patch with this original injected; False if that is nothing."""

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether all that the start patch with this original injected is unchanged, pod counts excepted."""

    def may_resume(self, obj: Object) -> bool:
        """Whether an object that carries its injection has the pods to be resumed with; if not, try again later."""

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return the JSON patch that unsuspends an object that carries its injection already."""

    def restore_patch(self, obj: Object, original: Object) -> Object | list[Object] | None:
        """Return the merge or JSON patch that removes what the start patch injected; None if nothing of it is left.

        Changes that a user made since then stay. Only for an object that is not active.
        """

    def restored(self, obj: Object, original: Object) -> Object:
        """Return the object as `restore_patch` leaves it: `obj` itself if that changes nothing."""

    def templates(self, obj: Object) -> list[Object]:
        """Return its pod templates, in the order of its pod sets."""
