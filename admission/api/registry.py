"""The resources that the API serves: one row each, from which routes, discovery and the command line follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.model.queues import ClusterQueue, Cohort, LocalQueue, QueueObject, ResourceFlavor, WorkloadPriorityClass

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP: Final = "sluice.dev"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
PREFIX: Final = f"/apis/{API_VERSION}"

_READ: Final = ("get", "list")
_WRITE: Final = ("create", "delete", "get", "list", "update")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, and what can be done with it. `model` is None for what users do not write."""

    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    model: type[QueueObject] | None = None

    @property
    def singular(self) -> str:
        """The kind in lower case, as in `clusterqueue/team-a`."""
        return self.kind.lower()

    @property
    def names(self) -> tuple[str, ...]:
        """All that users call it."""
        return (self.plural, self.singular, *self.short_names)

    def collection(self, namespace: str = "") -> str:
        """The path of its list; of a namespaced resource without `namespace`, that of all namespaces."""
        return f"{PREFIX}/namespaces/{namespace}/{self.plural}" if namespace else f"{PREFIX}/{self.plural}"


def _writable(model: type[QueueObject], *short_names: str) -> Resource:
    return Resource(model.plural, model.kind, model.namespaced, _WRITE, short_names, model)


WORKLOADS: Final = Resource("workloads", "Workload", namespaced=True, verbs=_READ, short_names=("wl",))
RESOURCES: Final = (
    _writable(ClusterQueue, "cq"),
    _writable(Cohort, "co"),
    _writable(LocalQueue, "lq", "queue", "queues"),
    _writable(ResourceFlavor, "rf", "flavor", "flavors"),
    _writable(WorkloadPriorityClass, "wpc"),
    WORKLOADS,
)


def by_name(name: str, resources: Iterable[Resource] = RESOURCES) -> Resource | None:
    """The resource that a user means by a plural, singular or short name in any case."""
    wanted = name.lower()
    return next((resource for resource in resources if wanted in resource.names), None)
