"""Names of the kinds of queue objects, for commands and clients that need no models: those take long to import."""

from __future__ import annotations

from typing import Final, NamedTuple


class KindNames(NamedTuple):
    """The names by which users refer to a kind, and whether its objects are in namespaces."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    """Further names on a command line, beside kind and plural."""
    namespaced: bool = False


CLUSTER: Final = KindNames("Cluster", "clusters", ("cl",))
RESOURCE_FLAVOR: Final = KindNames("ResourceFlavor", "resourceflavors", ("rf", "flavor", "flavors"))
CLUSTER_QUEUE: Final = KindNames("ClusterQueue", "clusterqueues", ("cq",))
COHORT: Final = KindNames("Cohort", "cohorts", ("co",))
LOCAL_QUEUE: Final = KindNames("LocalQueue", "localqueues", ("lq", "queue", "queues"), namespaced=True)
WORKLOAD_PRIORITY_CLASS: Final = KindNames("WorkloadPriorityClass", "workloadpriorityclasses", ("wpc",))
ADMISSION_CHECK: Final = KindNames("AdmissionCheck", "admissionchecks", ("ac",))
PROVISIONING_REQUEST_CONFIG: Final = KindNames("ProvisioningRequestConfig", "provisioningrequestconfigs", ("prc",))
TOPOLOGY: Final = KindNames("Topology", "topologies", ("topo",))
BUDGET: Final = KindNames("Budget", "budgets", ("bud",))
RESERVATION: Final = KindNames("Reservation", "reservations", ("resv",))
DRAIN: Final = KindNames("Drain", "drains", ())
BUDGET_REQUEST: Final = KindNames("BudgetRequest", "budgetrequests", ("br",), namespaced=True)
USER_LIMIT: Final = KindNames("UserLimit", "userlimits", ("ul",))
PRICE_BOOK: Final = KindNames("PriceBook", "pricebooks", ("pb",))
SUBSCRIPTION: Final = KindNames("Subscription", "subscriptions", ("sub", "subs"), namespaced=True)

KINDS: Final = (
    CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, RESOURCE_FLAVOR, TOPOLOGY, WORKLOAD_PRIORITY_CLASS, ADMISSION_CHECK,
    PROVISIONING_REQUEST_CONFIG, BUDGET, RESERVATION, DRAIN, USER_LIMIT, PRICE_BOOK, BUDGET_REQUEST, SUBSCRIPTION,
    CLUSTER,
)  # fmt: skip
"""All kinds; those that users look at most are first."""
