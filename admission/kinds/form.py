"""Description of a kind of custom resource as data: where its suspend field, pod sets and status are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.kinds.base import Object
    from admission.kinds.children import ChildForm, SpecifiedChild
    from admission.kinds.gates import Gate, SuspendField
    from admission.kinds.paths import Path
    from admission.kinds.places import Place, PodSetForm
    from admission.kinds.predicates import Predicate


@dataclass(frozen=True, slots=True)
class Form:
    """Description of a kind. Paths start at the object's root unless they belong to a pod set."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    suspend: Path
    suspend_older: tuple[Path, ...]
    """Paths of the suspend field in older versions of the definition."""
    pod_sets: tuple[PodSetForm, ...]
    active: tuple[Predicate, ...] = ()
    """One of these predicates is true while pods exist."""
    ready: tuple[Predicate, ...] = ()
    """One of these is true once all pods are ready."""
    succeeded: tuple[Predicate, ...] = ()
    """One of these is true once it has succeeded."""
    failed: tuple[Predicate, ...] = ()
    """One of these is true once it has failed. A kind with neither these nor `succeeded` runs until it is deleted."""
    scales: bool = False
    """Whether its controller creates and deletes pods of a running object when counts in its spec change."""
    has_scale: bool = False
    """Whether its definition has the subresource `scale`, by which its controller creates pods of a running object."""
    managed_by: Path = ()
    """Path of the field that names the controller which is responsible for an object; empty: there is no such field."""
    manager: tuple[str, ...] = ()
    """Values of that field that mean the kind's own controller."""
    priority_class: Path = ()
    """Path of the field that names the PriorityClass of its pods; it takes precedence over their templates."""
    children: tuple[ChildForm, ...] = ()
    """Objects of other kinds than Pod that its controller creates."""
    places: Callable[[Object], list[Place]] | None = None
    """Function that returns the pod sets, where paths do not suffice."""
    added: Callable[[Object, Place], Place] | None = None
    """Function that returns a pod set with the containers that its operator adds."""
    wrapped: Callable[[Object], Iterable[SpecifiedChild]] | None = None
    """Function that returns the children, where the object itself contains them, of any kind."""
    most_pods: Path = ()
    """Path of the field with the maximum number of pods at a time, where no other field decides this."""
    gate: Callable[[SuspendField], Gate] | None = None
    """Function that returns the gate, where a version of the kind has no suspend field."""
    annotations: tuple[str, ...] = ()
    """Annotations that this gate reads."""
    faults: Callable[[Object], list[tuple[str, str]]] | None = None
    """Function that returns (field path, message) of faults beyond resources, such as what its controller rejects."""
    remarks: Callable[[Object], list[str]] | None = None
    """Function that returns warnings for the user about an admitted object."""
    cautions: Callable[[Object], list[str]] | None = None
    """Function that returns warnings for the user who creates an object."""

    @property
    def name(self) -> str:
        """Name in the setting `integrations.frameworks`, for example `jobset.x-k8s.io/jobset`."""
        return f"{self.group}/{self.kind.lower()}"

    @property
    def roots(self) -> set[str]:
        """Names of the fields of the object's root that decide whether it runs, and with which pods."""
        decisive = [self.suspend, *self.suspend_older, self.managed_by, *(each.path for each in self.pod_sets)]
        return {path[0] for path in decisive if path}
