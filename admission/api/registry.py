"""The resources that the API serves: one row each, from which routes, discovery and the command line follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.model.queues import QUEUE_OBJECTS, ClusterQueue, Cohort, LocalQueue, QueueObject

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP: Final = "sluice.dev"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
PREFIX: Final = f"/apis/{API_VERSION}"

_WRITE: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


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


def _writable(model: type[QueueObject]) -> Resource:
    return Resource(model.plural, model.kind, model.namespaced, _WRITE, model.short_names, model)


@dataclass(frozen=True, slots=True)
class Subresource:
    """What can be asked of, or done with, one object beside the verbs of its resource."""

    of: str
    """The plural of the resource."""
    name: str
    kind: str
    """Of the answer."""
    verbs: tuple[str, ...]

    @property
    def resource(self) -> Resource:
        """Of whose objects it is."""
        return next(resource for resource in RESOURCES if resource.plural == self.of)


WORKLOADS: Final = Resource(
    "workloads", "Workload", namespaced=True, verbs=("get", "list", "patch", "watch"), short_names=("wl",)
)
_TREE: Final[tuple[type[QueueObject], ...]] = (ClusterQueue, Cohort, LocalQueue)
"""Listed first: what users look at most."""
RESOURCES: Final = (
    *map(_writable, _TREE),
    *(_writable(model) for model in QUEUE_OBJECTS if model not in _TREE),
    WORKLOADS,
)

AUDIT_RECORDS: Final = Resource("auditrecords", "AuditRecord", namespaced=False, verbs=("list",))
REPORTS: Final = Resource("reports", "UsageReport", namespaced=False, verbs=("get",))
PENDING_REPORT: Final = "PendingReport"
NODE_REPORT: Final = "NodeReport"
ATTENTION_REPORT: Final = "AttentionReport"
"""The kinds of the other reports."""
AUDITS: Final = Resource("audits", "Audit", namespaced=False, verbs=("create", "get"))
UNNAMED: Final = (AUDIT_RECORDS, AUDITS, REPORTS)
"""What is computed or only read: no objects that anybody would name on a command line."""

SUBRESOURCES: Final = (
    Subresource("clusterqueues", "pendingworkloads", "PendingWorkloadsSummary", ("get",)),
    Subresource("localqueues", "pendingworkloads", "PendingWorkloadsSummary", ("get",)),
    Subresource("workloads", "explain", "WorkloadExplanation", ("get",)),
    Subresource("workloads", "history", "WorkloadHistory", ("get",)),
    Subresource("workloads", "status", "Workload", ("get", "patch")),
    *(Subresource(resource.plural, "history", "HistoryList", ("get",)) for resource in RESOURCES if resource.model),
    *(Subresource(resource.plural, "rollback", "Rollback", ("create",)) for resource in RESOURCES if resource.model),
)
"""One row each; `admission.api.application` knows who answers."""


def by_name(name: str, resources: Iterable[Resource] = RESOURCES) -> Resource | None:
    """The resource that a user means by a plural, singular or short name in any case."""
    wanted = name.lower()
    return next((resource for resource in resources if wanted in resource.names), None)
