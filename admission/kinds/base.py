"""What Sluice needs to know of a Kubernetes kind, so that everything above works on any kind that can be queued.

An adapter is a set of pure functions on raw JSON objects, as the API server sends them. It reads an object into an
`Observed` and into pod sets, and writes the patches that start it, stop it and give it back as it was.
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
"""The LocalQueue of what names none, where that is queued, too."""
PRIORITY_CLASS: Final = "sluice.dev/priority-class"
HOLD: Final = "sluice.dev/hold"
"""Label or annotation; `"true"` keeps the workload out of every cycle."""
SUBMITTED_BY: Final = "sluice.dev/submitted-by"
"""Annotation that only the webhook writes."""
MANAGED: Final = "sluice.dev/managed"
"""Label that the webhook writes on pods that are queued: of all pods in the cluster only these are watched."""
START_WITH_OWNER: Final = "sluice.dev/start-with-owner"
"""Annotation on what was gated though its controlling owner may run: it is started if it is part of that owner."""
POD_SET: Final = "sluice.dev/pod-set"
"""Label that a start puts on pods that no object tells of: the name of their pod set, where a label can have it."""
ASKS_FOR: Final = "sluice.dev/asks-for"
"""Annotation that the webhook writes on what runs and asks for more pods: `{pod set: {field: number}}`, as JSON."""
MAX_EXEC_TIME: Final = "sluice.dev/max-exec-time-seconds"
"""Label: how long the workload may run, over all of its admissions."""
KUEUE: Final = "kueue.x-k8s.io/"
GATED_BY: Final = f"{KUEUE}admission-gated-by"
"""Annotation of Kueue: the controllers that hold an object (see `admission_gates`)."""
RENDERED: Final = "rendered"
"""Key beside `spec`: what was last seen of the child that an object's pods are read from (see `Kind.rendered_by`)."""
POD_OWNER: Final = "batch.kubernetes.io/controller-uid"
"""Label on each pod of a Job, with the Job's uid; a pod that is orphaned, and adopted by another Job, keeps it."""


EMPTY: Final = "is empty: name what it is for, or remove the label"
"""What is wrong with a label without a value."""


@dataclass(frozen=True, slots=True)
class Conventions:
    """Which labels count, the first one found winning, and where they count for nothing."""

    queue_labels: tuple[str, ...] = (QUEUE_NAME, f"{KUEUE}queue-name")
    priority_labels: tuple[str, ...] = (PRIORITY_CLASS, f"{KUEUE}priority-class")
    time_labels: tuple[str, ...] = (MAX_EXEC_TIME, f"{KUEUE}max-exec-time-seconds")
    excluded_namespaces: frozenset[str] = frozenset({"kube-system"})
    """Nothing in them is queued, whatever its labels say: the webhook never sees it."""
    group_labels: tuple[str, ...] = ()
    """Labels or annotations of other systems that name a pod's group (see `foreign_groups`)."""
    gate_annotation: str = GATED_BY
    """The annotation that names controllers which hold an object; empty: none is read."""

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
        """Our own labels and, if wanted, Kueue's after them; after those the given ones of other systems."""
        own = cls((QUEUE_NAME,), (PRIORITY_CLASS,), (MAX_EXEC_TIME,), gate_annotation="")
        known = cls() if kueue_labels else own
        return cls(
            (*known.queue_labels, *queue_labels),
            (*known.priority_labels, *priority_labels),
            known.time_labels,
            frozenset(excluded_namespaces),
            tuple(group_labels),
            known.gate_annotation,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a workload ended."""

    succeeded: bool
    reason: str
    message: str


class PodCount(NamedTuple):
    """The pods of one pod set, as the object tells of them."""

    name: str
    wanted: int
    """How many it asks for at a time."""
    left: int | None = None
    """How many have still to end well, whatever may run at a time; None: that is not known."""
    present: int = 0
    """How many there are, those that are being stopped included."""
    wished: int = 0
    """How many it is to have as soon as there is quota for them; 0: no more than `wanted`."""

    @property
    def needed(self) -> int:
        """How many can still run at a time."""
        return self.wanted if self.left is None else min(self.wanted, self.left)


@frozen(frozen=True, slots=True)
class KindStatus:
    """What a kind says of its object's life; the fields are those of `Observed`."""

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
    """One version of an object, as far as it matters for its life in the queue."""

    kind: Kind
    uid: str
    namespace: str
    name: str
    resource_version: str
    generation: int
    created: float
    queue: str
    """The LocalQueue's name; empty: the object is not ours."""
    priority_class: str
    """The WorkloadPriorityClass that its label names."""
    pod_priority_class: str
    """The PriorityClass of its pods, which counts where `priority_class` is empty."""
    user: str
    on_hold: bool
    suspended: bool
    active: bool
    """Whether pods of it exist or may come into existence: quota is held as long."""
    started: bool
    """Whether a start time is noted, which keeps API servers before 1.36 from letting the template be restored."""
    counts: tuple[PodCount, ...]
    """The pods of each pod set."""
    deleting: bool
    finished: Outcome | None
    stopped: bool = False
    """Whether its controller says that it has seen a suspension; perhaps an earlier one than the present."""
    ending: bool = False
    """Whether it is being deleted, and the stop patch has taken effect on its object."""
    ready: bool = False
    """Whether all pods that it asks for are ready, or have ended well."""
    max_seconds: int | None = None
    """How long it may run, over all of its admissions; None: as long as it likes."""
    waits_for: str = ""
    """What keeps it from being admitted as it is, as a sentence; empty: nothing does."""
    gated_by: str = ""
    """The controllers that hold it, by their names; empty: none does."""
    is_uneven: bool = False
    """Whether some of its pods are gated though others may run, or run without being among those that have quota."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Kind(Elastic, Owner, Composed, EndsByDeletion, SelectsPods, WatchedByLabel, NotesStartTime, Protocol):
    """An adapter: what each kind is asked, and what only some can do (`abilities`).

    `original` is the JSON document that `start_patch` returns and `restore_patch` takes back.
    """

    @property
    def conventions(self) -> Conventions:
        """Which labels it looks at."""

    @property
    def group(self) -> str:
        """The API group."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The API versions that it knows, the preferred one first."""

    @property
    def is_custom(self) -> bool:
        """Whether it is a custom resource, which the API server may or may not have."""

    @property
    def is_always_queued(self) -> bool:
        """Whether each of its objects names a queue, be it without a label."""

    @property
    def more_labels(self) -> tuple[str, ...]:
        """Where, beside its metadata, an object has labels that may name its queue; or `()`."""

    @property
    def manager(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The path of the field that names another controller, and its values for the kind's own; or `()`."""

    @property
    def plural(self) -> str:
        """The resource's name in paths."""

    @property
    def kind(self) -> str:
        """The kind's name."""

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations that `faults` and the webhook look at; of labels, owners and spec it may be anything."""

    def queue_name(self, obj: Object) -> str:
        """The LocalQueue that the object is for; empty if it is none of Sluice's business."""

    def observe(self, obj: Object) -> Observed:
        """The object's present state. Called on each watch event."""

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """What the object asks quota for; one tuple for all objects of a shape. Raises Misconfigured."""

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """(field path, message) of what keeps the object from ever running, as far as it tells by itself."""

    def remarks(self, obj: Object) -> list[str]:
        """What its user should know though it is admitted, as sentences."""

    def gate(self, obj: Object) -> list[Object]:
        """The JSON patch that keeps a new object from running; empty if it cannot run as it is."""

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """The JSON patch that injects and unsuspends at once, and the original. Raises Misconfigured.

        `updates` are what admission checks ask for, beside the flavors. The patch tests uid and generation, so that it
        fails where the spec was edited meanwhile, but not where only a status or a label was written. `obj` must not
        carry an injection already.
        """

    def carries(self, obj: Object, original: Object) -> bool:
        """Whether all is in it that the start patch with this original puts in; False if that is nothing."""

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether nobody has changed what the start patch with this original puts in, but for numbers of pods."""

    def may_resume(self, obj: Object) -> bool:
        """Whether what carries its injection has the pods that it will be resumed with; else it is looked at again."""

    def resume_patch(self, obj: Object) -> list[Object]:
        """The JSON patch that unsuspends what carries its injection already."""

    def restore_patch(self, obj: Object, original: Object) -> Object | list[Object] | None:
        """The merge or JSON patch that takes out what the start patch put in; None if nothing of it is left.

        What somebody has changed since then is his, and stays. Only while the object is not active.
        """

    def restored(self, obj: Object, original: Object) -> Object:
        """The object as `restore_patch` leaves it: `obj` itself if that changes nothing."""

    def templates(self, obj: Object) -> list[Object]:
        """Its pod templates, in the order of its pod sets."""
