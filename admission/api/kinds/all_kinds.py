"""API descriptors of all kinds of queue objects: their columns, status, selectable fields, rights and warnings."""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.api.kinds.clusters import CLUSTER
from admission.api.kinds.columns import ACTIVE, WORKLOADS, at, condition
from admission.api.kinds.descriptor import ObjectKind, Right, Status
from admission.api.kinds.fair_sharing import fair_sharing, trees_of, weighted_shares
from admission.api.kinds.object_schemas import (
    AdmissionCheckStatus,
    BudgetRequestStatus,
    BudgetStatus,
    ClusterQueueStatus,
    CohortStatus,
    LocalQueueStatus,
    ReservationStatus,
    SubscriptionStatus,
)
from admission.api.kinds.queue_status import (
    NO_WORKLOADS,
    admission_check_status,
    cluster_queue_status,
    existing_objects,
    local_queue_status,
    missing_checks,
    missing_flavors,
    silences,
)
from admission.apimachinery.tables import Column
from admission.model import sentences
from admission.model.names import is_label_value, listed
from admission.model.quantity import format_amount, parse_quantity
from admission.model.queues import (
    AdmissionCheck,
    Budget,
    BudgetRequest,
    Cluster,
    ClusterQueue,
    Cohort,
    Drain,
    LocalQueue,
    PriceBook,
    ProvisioningRequestConfig,
    Reservation,
    ResourceFlavor,
    Subscription,
    Topology,
    UserLimit,
    WorkloadPriorityClass,
)
from admission.model.topology import HOSTNAME
from admission.model.workload import LOCAL
from admission.store.notifications import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.api.kinds.queue_status import ExistingObjects
    from admission.apimachinery.tables import Cell
    from admission.model.budgets import BudgetGrant
    from admission.model.queues import QueueObject
    from admission.model.reservations import ReservationSpec
    from admission.store.records import QueueStatus
    from admission.store.store import Store


async def _subscription_inputs(
    store: Store, subscriptions: Sequence[Subscription]
) -> list[tuple[SubscriptionState, int]]:
    """Return the delivery state of each Subscription, and the number of its waiting notifications."""
    states, waiting = await store.notifications.states(), await store.notifications.undelivered()
    uids = (each.metadata.uid for each in subscriptions)
    return [(states.get(uid, SubscriptionState()), waiting.get(uid, 0)) for uid in uids]


def _subscription_status(subscription: Subscription, inputs: tuple[SubscriptionState, int]) -> Document:
    state, waiting = inputs
    if state.failed_at is not None:
        holds, reason, message, since = "False", "Failed", state.error, state.failed_at
    elif state.delivered_at is not None:
        holds, reason, message, since = "True", "Delivered", "The last notification was delivered", None
    else:
        holds, reason, message, since = "Unknown", "NothingSent", "There was no notification to send yet", None
    delivering: dict[str, Any] = {"type": "Delivering", "status": holds, "reason": reason, "message": message}
    delivering["observedGeneration"] = subscription.metadata.generation
    if since is not None:
        delivering["lastTransitionTime"] = _timestamp(since)
    status = {
        "conditions": [delivering],
        "waitingNotifications": waiting,
        "deliveredNotifications": state.delivered,
        "leftOutNotifications": sum(state.left_out.values()),
        "droppedNotifications": state.dropped,
    }
    return status if state.delivered_at is None else {**status, "lastDeliveredAt": _timestamp(state.delivered_at)}


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _subscription_rights(subscription: Subscription) -> list[Right]:
    """Return the rights to read everything that the notifications contain."""
    spec = subscription.spec
    namespace = subscription.metadata.namespace if spec.scope == "Namespace" else ""
    rights = [Right("list", "workloads", namespace=namespace, cluster=each) for each in (LOCAL, *spec.clusters)]
    if "QuotaChanged" in spec.events:
        rights.append(Right("get", "clusterqueues", "history"))
        if spec.scope == "Cluster" and not spec.cluster_queue:
            rights.append(Right("get", "cohorts", "history"))
    if "BudgetUsed" in spec.events and spec.scope == "Cluster":  # of a namespace its workloads' messages say as much
        rights.append(Right("list", "budgets"))
    return rights


async def _subscription_warnings(store: Store, written: Subscription, context: WarningContext) -> list[str]:
    del store
    fault = context.receiver_fault(written.spec.receiver, written.metadata.namespace)
    return [f"spec.receiver: {fault}"] if fault else []


SUBSCRIPTION: Final = ObjectKind(
    Subscription,
    columns=(
        Column("Receiver", at("spec", "receiver"), "Receiver that is notified"),
        Column("Delivering", condition("Delivering"), "Whether the last attempt to send has succeeded"),
        Column("Waiting", at("status", "waitingNotifications"), "Notifications not delivered yet", "integer"),
        Column("Delivered", at("status", "deliveredNotifications"), "Notifications delivered", "integer", wide=True),
        Column(
            "Dropped",
            at("status", "droppedNotifications"),
            "Notifications dropped after three days",
            "integer",
            wide=True,
        ),
    ),
    selectable_fields={"spec.receiver": lambda subscription: subscription.spec.receiver},
    status_schema=SubscriptionStatus,
    status=Status(_subscription_inputs, _subscription_status),
    warnings=_subscription_warnings,
    rights=_subscription_rights,
)


def _quotas(document: Document, now: float) -> object:
    del now
    quotas = document["spec"]["quotas"]
    return ",".join(f"{each['flavor']}/{each['resource']}={each['amount']}" for each in quotas)


def _where(document: Document, now: float) -> object:
    del now
    if (topology := document["spec"].get("topology")) is None:
        return ""
    return ",".join(topology.get("domains", ())) or f"{topology.get('count', 1)} of {topology['level']}"


async def _reservation_inputs(store: Store, reservations: Sequence[Reservation]) -> list[float]:
    now = store.now()
    return [now for _ in reservations]


def _reservation_status(reservation: Reservation, now: float) -> Document:
    spec = reservation.spec
    phase = "Pending" if now < spec.begins else "Active" if now < spec.ends else "Ended"
    start, end = (datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in (spec.begins, spec.ends))
    return {"phase": "Released" if spec.released_at else phase, "start": start, "end": end}


def _reservation_rights(reservation: Reservation) -> list[Right]:
    return [Right("reserve", "clusterqueues", name=reservation.spec.cluster_queue)]


async def _reservation_warnings(store: Store, written: Reservation, context: WarningContext) -> list[str]:
    spec, texts = written.spec, []
    queues = {each.name for each in await store.queues.list(ClusterQueue.kind)}
    if spec.cluster_queue not in queues:
        return [f"there is no ClusterQueue {spec.cluster_queue}; nothing is kept until it is created"]
    trees = await trees_of(store)
    others = [
        each
        for each in await store.queues.list(Reservation.kind)
        if isinstance(each, Reservation) and each.name != written.name and not each.spec.released_at
        if each.spec.cluster_queue == spec.cluster_queue
        if each.spec.begins < spec.ends and spec.begins < each.spec.ends
    ]
    for (flavor, resource), amount in spec.amounts.items():
        most = trees.most(spec.cluster_queue, (flavor, resource))
        beside = {each.name: kept for each in others if (kept := each.spec.amounts.get((flavor, resource)))}
        if amount + sum(beside.values()) <= most:
            continue
        with_others = f" beside {listed(sorted(beside), limit=3)}" if beside else ""
        can_use = f"ClusterQueue {spec.cluster_queue} can use at most {format_amount(resource, most)} {resource}"
        texts.append(f"{can_use} of {flavor}; not all of {format_amount(resource, amount)} can be kept{with_others}")
    if spec.topology is not None and not await _has_level(store, spec):
        flavors = sorted({flavor for flavor, _ in spec.amounts})
        texts.append(sentences.no_level_to_reserve(written.name, spec.topology.level, flavors))
    local_queues = [each for each in await store.queues.list(LocalQueue.kind) if isinstance(each, LocalQueue)]
    names = {each.name for each in local_queues if each.spec.cluster_queue == spec.cluster_queue}
    texts += [
        f"no LocalQueue {name} leads to ClusterQueue {spec.cluster_queue}"
        for name in spec.holders.local_queues
        if name not in names
    ]
    if context.namespaces:
        texts += [f"there is no namespace {name}" for name in spec.holders.namespaces if name not in context.namespaces]
    return texts


async def _has_level(store: Store, spec: ReservationSpec) -> bool:
    """Whether the Topology of a flavor has the level that is reserved, and hostnames."""
    assert spec.topology is not None
    reserved = {flavor for flavor, _ in spec.amounts}
    flavors = [each for each in await store.queues.list(ResourceFlavor.kind) if isinstance(each, ResourceFlavor)]
    names = {each.spec.topology_name for each in flavors if each.name in reserved}
    topologies = [each for each in await store.queues.list(Topology.kind) if isinstance(each, Topology)]
    levels = [each.spec.labels for each in topologies if each.name in names]
    return any(spec.topology.level in each and each[-1] == HOSTNAME for each in levels)


RESERVATION: Final = ObjectKind(
    Reservation,
    columns=(
        Column("ClusterQueue", at("spec", "clusterQueue"), "ClusterQueue whose workloads use it"),
        Column("Quota", _quotas, "What is kept"),
        Column("Where", _where, "Domains of a topology whose nodes are kept, such as racks"),
        Column("Start", at("status", "start"), "When it begins"),
        Column("End", at("status", "end"), "When it ends"),
        Column("State", at("status", "phase"), "Pending, Active, Ended, or Released: ended early, as it was not used"),
    ),
    selectable_fields={"spec.clusterQueue": lambda reservation: reservation.spec.cluster_queue},
    status_schema=ReservationStatus,
    status=Status(_reservation_inputs, _reservation_status),
    warnings=_reservation_warnings,
    rights=_reservation_rights,
)


class _ClusterQueueInputs(NamedTuple):
    numbers: QueueStatus
    existing: ExistingObjects
    share: int


async def _cluster_queue_inputs(store: Store, queues: Sequence[ClusterQueue]) -> list[_ClusterQueueInputs]:
    existing, numbers = await existing_objects(store), await store.workloads.cluster_queue_status()
    share = await weighted_shares(store, numbers)
    return [_ClusterQueueInputs(numbers.get(queue.name, NO_WORKLOADS), existing, share(queue)) for queue in queues]


def _cluster_queue_status(queue: ClusterQueue, inputs: _ClusterQueueInputs) -> Document:
    return cluster_queue_status(queue, inputs.numbers, inputs.existing) | fair_sharing(inputs.share)


async def _cluster_queue_warnings(store: Store, written: ClusterQueue, context: WarningContext) -> list[str]:
    del context
    existing = await existing_objects(store)
    missing = [f"ResourceFlavor {name}" for name in missing_flavors(written, existing)]
    missing += [f"AdmissionCheck {name}" for name in missing_checks(written, existing)]
    texts = []
    if written.spec.namespace_selector is None:
        texts.append(
            "spec.namespaceSelector is not set, which matches no namespace: nothing is admitted; "
            "set {} for all namespaces"
        )
    return texts + [f"there is no {name}; nothing is admitted before it is created" for name in missing]


CLUSTER_QUEUE: Final = ObjectKind(
    ClusterQueue,
    columns=(
        Column("Cohort", at("spec", "cohortName"), "Cohort that the ClusterQueue belongs to"),
        Column(
            "Strategy",
            at("spec", "queueingStrategy"),
            "Whether a workload that does not fit blocks those behind it",
            wide=True,
        ),
        *WORKLOADS,
        ACTIVE._replace(wide=False),  # otherwise a stopped queue would look as an open one
    ),
    selectable_fields={"spec.cohortName": lambda queue: queue.spec.cohort_name},
    status_schema=ClusterQueueStatus,
    status=Status(_cluster_queue_inputs, _cluster_queue_status),
    warnings=_cluster_queue_warnings,
)


async def _cohort_inputs(store: Store, cohorts: Sequence[Cohort]) -> list[int]:
    share = await weighted_shares(store, await store.workloads.cluster_queue_status())
    return [share(cohort) for cohort in cohorts]


def _cohort_status(cohort: Cohort, share: int) -> Document:
    del cohort
    return fair_sharing(share)


async def _cohort_deletion_warnings(store: Store, deleted: Sequence[Cohort]) -> list[str]:
    """Warn about ClusterQueues and Cohorts that name a deleted Cohort as parent, and what they lose.

    The deletion is not refused: as in Kueue, a Cohort also exists without an object, by being named.
    """
    own = {f"{item.kind} {item.name}" for item in deleted}
    texts = []
    for item in deleted:
        members = [member for member in await store.queues.members(item.name) if member not in own]
        if members:
            parent = item.spec.parent_name
            lost = f"its quota, its limits and all of Cohort {parent}" if parent else "its quota and its limits"
            texts.append(
                f"Cohort {item.name} is still named by {listed(members)}: deleting its object takes {lost} from them; "
                f"name another Cohort there, or restore it by `sluice rollback cohort/{item.name}`"
            )
    return texts


COHORT: Final = ObjectKind(
    Cohort,
    columns=(Column("Parent", at("spec", "parentName"), "Cohort that the Cohort belongs to"),),
    selectable_fields={"spec.parentName": lambda cohort: cohort.spec.parent_name},
    status_schema=CohortStatus,
    status=Status(_cohort_inputs, _cohort_status),
    deletion_warnings=_cohort_deletion_warnings,
)


class _LocalQueueInputs(NamedTuple):
    numbers: QueueStatus
    existing: ExistingObjects


async def _local_queue_inputs(store: Store, queues: Sequence[LocalQueue]) -> list[_LocalQueueInputs]:
    targets = await store.queues.list(ClusterQueue.kind)
    existing = await existing_objects(store, (queue for queue in targets if isinstance(queue, ClusterQueue)))
    numbers = await store.workloads.local_queue_status()
    return [
        _LocalQueueInputs(numbers.get((queue.metadata.namespace, queue.name), NO_WORKLOADS), existing)
        for queue in queues
    ]


def _local_queue_status(queue: LocalQueue, inputs: _LocalQueueInputs) -> Document:
    return local_queue_status(queue, *inputs)


async def _local_queue_warnings(store: Store, written: LocalQueue, context: WarningContext) -> list[str]:
    target, namespace, namespaces = written.spec.cluster_queue, written.metadata.namespace, context.namespaces
    queues = {queue.name: queue for queue in await store.queues.list(ClusterQueue.kind)}
    missing = [] if target in queues else [f"ClusterQueue {target}"]
    texts = [] if is_label_value(written.name) else [_UNNAMEABLE.format(len(written.name))]
    if namespaces and namespace not in namespaces:
        missing.append(f"namespace {namespace}")
    elif namespaces and target in queues and not _accepts(queues[target], namespaces[namespace]):
        texts.append(
            f"ClusterQueue {target} admits nothing of namespace {namespace}: its spec.namespaceSelector does "
            "not match the namespace's labels"
        )
    return texts + [f"there is no {name}; nothing is admitted before it is created" for name in missing]


_UNNAMEABLE: Final = (
    "its name has {} characters, but labels have at most 63: no Job can name it; create one with a shorter name"
)


def _accepts(queue: QueueObject, labels: Mapping[str, str]) -> bool:
    assert isinstance(queue, ClusterQueue)
    selector = queue.spec.namespace_selector
    return selector is not None and selector.matches(labels)


LOCAL_QUEUE: Final = ObjectKind(
    LocalQueue,
    columns=(Column("ClusterQueue", at("spec", "clusterQueue"), "Backing ClusterQueue"), *WORKLOADS, ACTIVE),
    selectable_fields={"spec.clusterQueue": lambda queue: queue.spec.cluster_queue},
    status_schema=LocalQueueStatus,
    status=Status(_local_queue_inputs, _local_queue_status),
    warnings=_local_queue_warnings,
)


def _period(document: Document, now: float) -> object:
    del now
    period = document["spec"]["period"]
    if "every" in period:
        return period["every"]
    return f"{period['lastDays']}d" if "lastDays" in period else f"{period['firstDay']}..{period['lastDay']}"


def _of_resources(field: str) -> Cell:
    """Return an accessor of a number of hours: `1986.5` for one resource, `cpu=4,memory=5Ti` for several."""

    def read(document: Document, now: float) -> object:
        del now
        found = document.get("status", {}).get("resources", ())
        return ",".join(each[field] if len(found) == 1 else f"{each['name']}={each[field]}" for each in found)

    return read


async def _budget_inputs(store: Store, budgets: Sequence[Budget]) -> list[Document]:
    sums = await store.budget_sums.load([budget.name for budget in budgets])
    return [sums.get(budget.name, {}) for budget in budgets]


def _budget_status(budget: Budget, sums: Document) -> Document:
    del budget
    return sums


async def _budget_warnings(store: Store, written: Budget, context: WarningContext) -> list[str]:
    names = await store.queues.names(Budget.kind, ClusterQueue.kind, Cohort.kind, ResourceFlavor.kind, PriceBook.kind)
    spec = written.spec
    missing = [f"PriceBook {name}" for name in spec.price_books if name not in names[PriceBook.kind]]
    if spec.parent and spec.parent not in names[Budget.kind]:
        missing.append(f"Budget {spec.parent}")
    if spec.scope is not None:
        missing += [
            f"ClusterQueue {name}" for name in spec.scope.cluster_queues if name not in names[ClusterQueue.kind]
        ]
        missing += [f"Cohort {name}" for name in spec.scope.cohorts if name not in names[Cohort.kind]]
        if context.namespaces:
            missing += [f"namespace {name}" for name in spec.scope.namespaces if name not in context.namespaces]
    flavors = {name for each in spec.resources for name in each.flavors}
    missing += [f"ResourceFlavor {name}" for name in sorted(flavors) if name not in names[ResourceFlavor.kind]]
    texts = [f"there is no {name}; it is counted when it is created" for name in missing]
    if spec.enforcement == "Reserve" and spec.assumed_seconds is None and spec.action == "StopAdmitting":
        texts.append("workloads without a time limit are not admitted: set assumedSeconds, or tell their users")
    return texts


BUDGET: Final = ObjectKind(
    Budget,
    columns=(
        Column("Period", _period, "Period for which the hours are given"),
        Column("Hours", _of_resources("hours"), "Hours given in the present period"),
        Column("Spent", _of_resources("spent"), "Hours charged so far"),
        Column("Reserved", _of_resources("reserved"), "Hours that running workloads may still use"),
        Column("Left", _of_resources("left"), "Hours that are neither spent nor reserved"),
        Column("Ends", at("status", "period", "end"), "End of the present period"),
    ),
    selectable_fields={"spec.parent": lambda budget: budget.spec.parent},
    status_schema=BudgetStatus,
    status=Status(_budget_inputs, _budget_status),
    warnings=_budget_warnings,
)


def _grant_key(request: BudgetRequest) -> str:
    return f"{request.metadata.namespace}/{request.name}"


async def _request_inputs(store: Store, requests: Sequence[BudgetRequest]) -> list[BudgetGrant | None]:
    budgets = [each for each in await store.queues.list(Budget.kind) if isinstance(each, Budget)]
    answers = {(each.name, grant.request): grant for each in budgets for grant in each.spec.grants if grant.request}
    return [answers.get((each.spec.budget, _grant_key(each))) for each in requests]


def _request_status(request: BudgetRequest, answer: BudgetGrant | None) -> Document:
    del request
    if answer is None:
        return {"phase": "Open"}
    phase = "Granted" if parse_quantity(answer.hours) > 0 else "Declined"
    return {"phase": phase, "hours": answer.hours, "day": answer.day, "reason": answer.reason}


async def _request_warnings(store: Store, written: BudgetRequest, context: WarningContext) -> list[str]:
    del context
    budgets = {each.name: each for each in await store.queues.list(Budget.kind) if isinstance(each, Budget)}
    spec = written.spec
    if (budget := budgets.get(spec.budget)) is None:
        return [f"there is no Budget {spec.budget}"]
    known = sorted({each.name for each in budget.spec.resources})
    return [] if spec.resource in known else [f"Budget {spec.budget} has hours of {', '.join(known)} only"]


BUDGET_REQUEST: Final = ObjectKind(
    BudgetRequest,
    columns=(
        Column("Budget", at("spec", "budget"), "The Budget"),
        Column("Hours", at("spec", "hours"), "Hours that are asked for"),
        Column("State", at("status", "phase"), "Open, Granted or Declined"),
        Column("Resource", at("spec", "resource"), "The resource", wide=True),
        Column("Day", at("spec", "day"), "A day of the period that is to get them", wide=True),
        Column("Reason", at("spec", "reason"), "Why they are needed", wide=True),
    ),
    selectable_fields={"spec.budget": lambda request: request.spec.budget},
    status_schema=BudgetRequestStatus,
    status=Status(_request_inputs, _request_status),
    warnings=_request_warnings,
)


_SHOWN_NAMES: Final = 3


def _limited(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    names = [*spec.get("users", ()), *(f"group/{name}" for name in spec.get("groups", ()))] or ["everybody"]
    more = f",+{len(names) - _SHOWN_NAMES}" if len(names) > _SHOWN_NAMES else ""
    return ",".join(names[:_SHOWN_NAMES]) + more + (" together" if spec.get("together") else "")


def _limits(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    numbers = {name: spec[name] for name in ("running", "pending", "submitted") if name in spec}
    return ",".join(f"{name}={most}" for name, most in {**numbers, **spec.get("resources", {})}.items())


async def _limit_warnings(store: Store, written: UserLimit, context: WarningContext) -> list[str]:
    del context
    queue = written.spec.cluster_queue
    known = (await store.queues.names(ClusterQueue.kind))[ClusterQueue.kind] if queue else ()
    return [f"there is no ClusterQueue {queue}; it is counted when it is created"] if queue not in (*known, "") else []


USER_LIMIT: Final = ObjectKind(
    UserLimit,
    columns=(
        Column("For", _limited, "Users and groups for whom it holds"),
        Column("ClusterQueue", at("spec", "clusterQueue"), "Where it counts; empty: in all ClusterQueues together"),
        Column("Limits", _limits, "Numbers of workloads, and what the pods of those that hold quota may request"),
    ),
    selectable_fields={"spec.clusterQueue": lambda limit: limit.spec.cluster_queue},
    warnings=_limit_warnings,
)


def _drained(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    cluster = spec.get("cluster", LOCAL)
    nodes = (name if cluster == LOCAL else f"{cluster}/{name}" for name in spec.get("nodes", ()))
    return ",".join([*nodes, *(f"flavor/{name}" for name in spec.get("flavors", ()))])


async def _drain_warnings(store: Store, written: Drain, context: WarningContext) -> list[str]:
    del context
    known = await store.queues.names(ResourceFlavor.kind, Cluster.kind)
    flavors = [name for name in written.spec.flavors if name not in known[ResourceFlavor.kind]]
    found = [f"there is no ResourceFlavor {name}" for name in flavors]
    if (cluster := written.spec.cluster) not in (LOCAL, *known[Cluster.kind]):
        found.append(f"no cluster {cluster} has joined")
    return found


DRAIN: Final = ObjectKind(
    Drain,
    columns=(
        Column("Drained", _drained, "Nodes and flavors on which nothing starts any more"),
        Column("Start", at("spec", "startTime"), "When the maintenance begins; empty: at once"),
        Column("Deadline", at("spec", "deadline"), "When workloads are evicted that still run there"),
        Column("Reason", at("spec", "reason"), "Why"),
    ),
    warnings=_drain_warnings,
)


def _prices(document: Document, now: float) -> object:
    del now
    return len(document["spec"]["prices"])


async def _price_warnings(store: Store, written: PriceBook, context: WarningContext) -> list[str]:
    del context
    known = (await store.queues.names(ResourceFlavor.kind))[ResourceFlavor.kind]
    priced = {each.flavor for each in written.spec.prices} - {""}
    return [f"there is no ResourceFlavor {name}" for name in sorted(priced) if name not in known]


PRICE_BOOK: Final = ObjectKind(
    PriceBook,
    columns=(
        Column("Currency", at("spec", "currency"), "The currency of its prices"),
        Column("Prices", _prices, "Number of prices", "integer"),
    ),
    warnings=_price_warnings,
)

PROVISIONING_REQUEST_CONFIG: Final = ObjectKind(
    ProvisioningRequestConfig,
    columns=(Column("Class", at("spec", "provisioningClassName"), "Mode of provisioning"),),
)


async def _check_warnings(store: Store, written: AdmissionCheck, context: WarningContext) -> list[str]:
    del context
    if written.provisioning_config is not None:
        ((_, missing),) = await silences(store, [written])
        return [f"spec.parameters: {missing}"] if missing else []
    if not written.is_part_of_kueue:
        return []
    name = written.spec.controller_name
    return [f"spec.controllerName: {name} is a part of Kueue and does not answer Sluice; name another one"]


ADMISSION_CHECK: Final = ObjectKind(
    AdmissionCheck,
    columns=(
        Column("Controller", at("spec", "controllerName"), "Controller that answers the check", wide=True),
        ACTIVE,
    ),
    selectable_fields={"spec.controllerName": lambda check: check.spec.controller_name},
    status_schema=AdmissionCheckStatus,
    status=Status(silences, admission_check_status),
    warnings=_check_warnings,
)


def _node_labels(document: Document, now: float) -> object:
    del now
    return ",".join(f"{key}={value}" for key, value in document.get("spec", {}).get("nodeLabels", {}).items()) or None


async def _flavor_warnings(store: Store, written: ResourceFlavor, context: WarningContext) -> list[str]:
    del context
    name = written.spec.topology_name
    if name is None or name in (await store.queues.names(Topology.kind))[Topology.kind]:
        return []
    return [f"there is no Topology {name}; nothing is admitted before it is created"]


RESOURCE_FLAVOR: Final = ObjectKind(
    ResourceFlavor,
    columns=(Column("Node Labels", _node_labels, "Labels of the nodes of the flavor", wide=True),),
    warnings=_flavor_warnings,
)


def _levels(document: Document, now: float) -> object:
    del now
    return ",".join(level["nodeLabel"] for level in document["spec"]["levels"])


TOPOLOGY: Final = ObjectKind(
    Topology,
    columns=(Column("Levels", _levels, "Node labels of the levels, from the widest to the narrowest"),),
)


WORKLOAD_PRIORITY_CLASS: Final = ObjectKind(
    WorkloadPriorityClass, columns=(Column("Value", at("value"), "Priority of its workloads", "integer"),)
)


KINDS: Final = MappingProxyType(
    {
        kind.model.kind: kind
        for kind in (
            CLUSTER_QUEUE,
            COHORT,
            LOCAL_QUEUE,
            RESOURCE_FLAVOR,
            TOPOLOGY,
            WORKLOAD_PRIORITY_CLASS,
            ADMISSION_CHECK,
            PROVISIONING_REQUEST_CONFIG,
            BUDGET,
            RESERVATION,
            DRAIN,
            USER_LIMIT,
            PRICE_BOOK,
            BUDGET_REQUEST,
            SUBSCRIPTION,
            CLUSTER,
        )
    }
)
"""Descriptor by kind, for each of `admission.model.queues.QUEUE_OBJECTS`."""
