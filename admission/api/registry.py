"""Registry of the API's resources and subresources, from which routes, discovery and the command line are derived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.model.kind_names import KINDS

if TYPE_CHECKING:
    from admission.model.kind_names import KindNames
    from admission.model.queues import QueueObject

GROUP: Final = "sluice.dev"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
PREFIX: Final = f"/apis/{API_VERSION}"

_WRITE: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API group: its names and verbs."""

    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    is_of_queue_objects: bool = False
    """Whether its objects are queue objects, which users create."""

    @property
    def model(self) -> type[QueueObject] | None:
        """Model of the queue objects; None for other resources. Imported on demand: most commands need none."""
        from admission.model.queues import MODELS

        return MODELS.get(self.kind)

    @property
    def singular(self) -> str:
        """The kind in lower case, as in `clusterqueue/team-a`."""
        return self.kind.lower()

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which users may refer to the resource: plural, singular and short names."""
        return (self.plural, self.singular, *self.short_names)

    def collection(self, namespace: str = "") -> str:
        """Return the path of the list; without `namespace` that of all namespaces."""
        return f"{PREFIX}/namespaces/{namespace}/{self.plural}" if namespace else f"{PREFIX}/{self.plural}"


def _writable(of: KindNames) -> Resource:
    return Resource(of.plural, of.kind, of.namespaced, _WRITE, of.short_names, is_of_queue_objects=True)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource of one object, such as `workloads/{name}/explain`."""

    of: str
    """Plural of the resource."""
    name: str
    kind: str
    """Kind of the response."""
    verbs: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    """Of the query, if these are not the usual ones of the verb."""

    @property
    def resource(self) -> Resource:
        """The resource to whose objects it belongs."""
        return next(resource for resource in RESOURCES if resource.plural == self.of)


WORKLOADS: Final = Resource(
    "workloads", "Workload", namespaced=True, verbs=("get", "list", "patch", "watch"), short_names=("wl",)
)
RESOURCES: Final = (*map(_writable, KINDS), WORKLOADS)

AUDIT_RECORDS: Final = Resource("auditrecords", "AuditRecord", namespaced=False, verbs=("list",))
REPORTS: Final = Resource("reports", "UsageReport", namespaced=False, verbs=("get",))


@dataclass(frozen=True, slots=True)
class NamedReport:
    """A report, by its name below `reports`: computed from the parameters of its query."""

    name: str
    kind: str
    """Kind of the response."""
    parameters: tuple[str, ...] = ()
    of_all: bool = True
    """Whether it can be had for all namespaces together."""
    of_namespace: bool = False
    """Whether it can be had for a namespace."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths, with `{namespace}` for the name of a namespace."""
        of_all, of_namespace = f"{PREFIX}/reports/{self.name}", f"{PREFIX}/namespaces/{{namespace}}/reports/{self.name}"
        return ((of_all,) if self.of_all else ()) + ((of_namespace,) if self.of_namespace else ())

    def document(self, **fields: Any) -> dict[str, Any]:
        """Return a response with these fields."""
        return {"kind": self.kind, "apiVersion": API_VERSION, "metadata": {}, **fields}


_TIMES: Final = ("from", "to", "month", "quarter", "timezone")
_FILTERS: Final = ("cluster", "clusterqueue", "flavor", "kind", "namespace", "queue", "resource", "user")
_USAGE: Final = ("book", "by", *_TIMES, "interval", "measured", "period", "quota", "top", *_FILTERS)

USAGE_REPORT: Final = NamedReport("usage", "UsageReport", _USAGE, of_namespace=True)
USAGE_OF_MINE: Final = NamedReport("mine", "UsageReport", _USAGE)
PENDING_REPORT: Final = NamedReport("pending", "PendingReport", ("by",))
NODE_REPORT: Final = NamedReport("nodes", "NodeReport")
OBJECTIVE_REPORT: Final = NamedReport("objectives", "ObjectiveReport", ("clusterqueue", "timezone", "weeks"))
COST_REPORT: Final = NamedReport("cost", "CostReport", ("book", "by", *_TIMES, *_FILTERS), of_namespace=True)
QUOTE: Final = NamedReport("quote", "Quote", ("queue", "request", "seconds", "book"), of_all=False, of_namespace=True)
FAIRNESS_REPORT: Final = NamedReport("fairness", "FairnessReport", ("cohort", "including", *_TIMES))
DRAIN_REPORT: Final = NamedReport("drain", "DrainReport", ("node", "cluster", "flavor"))
CLUSTER_REPORT: Final = NamedReport("clusters", "ClusterReport")
TOPOLOGY_REPORT: Final = NamedReport("topology", "TopologyReport", ("flavor", "level", "most", "within"))
STAY_REPORT: Final = NamedReport("node", "StayReport", ("node", "from", "to"))
NAMESPACE_REPORT: Final = NamedReport("namespaces", "NamespaceReport")
ATTENTION_REPORT: Final = NamedReport("attention", "AttentionReport")
ALL_REPORTS: Final = (
    USAGE_REPORT,
    USAGE_OF_MINE,
    PENDING_REPORT,
    NODE_REPORT,
    OBJECTIVE_REPORT,
    COST_REPORT,
    QUOTE,
    FAIRNESS_REPORT,
    DRAIN_REPORT,
    CLUSTER_REPORT,
    TOPOLOGY_REPORT,
    STAY_REPORT,
    NAMESPACE_REPORT,
    ATTENTION_REPORT,
)
"""Their handlers are in `admission.api.application`."""

AUDITS: Final = Resource("audits", "Audit", namespaced=False, verbs=("create", "get"))
WHAT_IFS: Final = Resource("whatifs", "WhatIf", namespaced=False, verbs=("create",))
UNNAMED: Final = (AUDIT_RECORDS, AUDITS, REPORTS, WHAT_IFS)
"""Resources whose objects have no names to give on a command line: they are computed, or only listed."""

CALENDAR_PREVIEW: Final = "CalendarPreview"
"""Kind of the response of `clusterqueues/calendar` and `cohorts/calendar`."""
CANCELLATION: Final = "Cancellation"
"""Kind of the request and of the response of `workloads/cancel`."""
WORKLOAD_PODS: Final = "WorkloadPods"
"""Kind of the response of `workloads/pods`."""

SUBRESOURCES: Final = (
    Subresource("clusterqueues", "pendingworkloads", "PendingWorkloadsSummary", ("get",), ("limit", "offset")),
    *(
        Subresource(plural, "calendar", CALENDAR_PREVIEW, ("get",), ("limit",))
        for plural in ("clusterqueues", "cohorts")
    ),
    Subresource("localqueues", "pendingworkloads", "PendingWorkloadsSummary", ("get",), ("limit", "offset")),
    Subresource("workloads", "cancel", CANCELLATION, ("create",), ("dryRun", "reason")),
    Subresource("workloads", "explain", "WorkloadExplanation", ("get",)),
    Subresource("workloads", "history", "WorkloadHistory", ("get",)),
    # As in Kubernetes, whose API server lets no other requests than those for a `log` last for longer than a minute.
    Subresource("workloads", "log", "Workload", ("get",), ("container", "follow", "pod", "tailLines", "timestamps")),
    Subresource("workloads", "pods", WORKLOAD_PODS, ("get",), ("limit",)),
    Subresource("workloads", "status", "Workload", ("get", "patch")),
    *(
        Subresource(resource.plural, "history", "HistoryList", ("get",), ("continue", "limit"))
        for resource in RESOURCES
        if resource.is_of_queue_objects
    ),
    *(
        Subresource(resource.plural, "rollback", "Rollback", ("create",), ("dryRun", "reason"))
        for resource in RESOURCES
        if resource.is_of_queue_objects
    ),
)
"""All subresources; their handlers are in `admission.api.application`."""


def by_name(name: str) -> Resource | None:
    """Return the resource with that plural, singular or short name, in any case; None if there is none."""
    wanted = name.lower()
    return next((resource for resource in RESOURCES if wanted in resource.names), None)
