"""Gauges of ClusterQueues, LocalQueues and Cohorts, with Kueue's names and the prefix `sluice_` instead of `kueue_`.

Numbers of workloads and reserved or used quota come from the database; quotas, limits and shares from the engine.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from admission.engine import BudgetAccounts, RecentUsage
from admission.model.queues import ClusterQueue, Cohort, LocalQueue
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.engine import Engine
    from admission.engine.levels import CohortLevels, Level, QueueLevels
    from admission.engine.topology.occupancy import Occupancy
    from admission.model.capacity import SeenCapacity
    from admission.model.queues import LocalQueueSpec
    from admission.store.records import ClusterNumbers, HeldAmount, UnfinishedCount
    from admission.store.store import Store

    Key: TypeAlias = tuple[str, ...]

K = TypeVar("K", bound="tuple[str, ...]")

_STATES = ("pending", "active", "terminating")
_KIND = ("flavor", "resource")


def queue_families(
    engine: Engine, counts: Sequence[UnfinishedCount], held: Sequence[HeldAmount], *, fair_sharing: bool
) -> list[Metric]:
    """Return the metrics of all existing queues; `counts` and `held` are the sums of the database."""
    queues, cohorts = engine.levels()
    return [
        *_of_cluster_queues(queues, counts),
        *_of_quota(queues, held),
        *_of_local_queues(engine, queues, counts, held),
        _of_usage(engine),
        *_of_budgets(engine),
        *_of_cohorts(queues, cohorts, counts, held),
        *(_of_shares(engine, queues) if fair_sharing else ()),
    ]


def _of_cluster_queues(queues: Sequence[QueueLevels], counts: Sequence[UnfinishedCount]) -> Iterator[Metric]:
    by_queue = ("cluster_queue",)
    names = {queue.name for queue in queues}
    pending = {(q.name, "active"): q.pending - q.inadmissible for q in queues} | {
        (q.name, "inadmissible"): q.inadmissible for q in queues
    }
    text = "Pending workloads: active are in the admission queue, inadmissible are not retried until something changes."
    yield _gauge("pending_workloads", text, ("cluster_queue", "status"), pending)
    reserving: Counter[Key] = Counter({(name,): 0 for name in names})
    admitted = reserving.copy()
    unadmitted: Counter[Key] = Counter()
    for row in counts:
        if row.cluster_queue not in names:
            continue
        if row.state is State.PENDING:
            unadmitted[row.cluster_queue, row.reason, ""] += row.number
            continue
        reserving[row.cluster_queue,] += row.number
        if row.checks_pending:
            unadmitted[row.cluster_queue, row.reason, ""] += row.number
        elif row.state is State.ADMITTED:
            admitted[row.cluster_queue,] += row.number
    yield _gauge("reserving_active_workloads", "Workloads with quota reserved in a ClusterQueue.", by_queue, reserving)
    yield _gauge("admitted_active_workloads", "Admitted workloads that are not being evicted.", by_queue, admitted)
    text = "Workloads that are not admitted, by reason."
    yield _gauge("unadmitted_workloads", text, (*by_queue, "reason", "underlying_cause"), unadmitted)
    text = "1 for the current status of the ClusterQueue, else 0."
    status = {(q.name, state): int(state == ("pending" if q.fault else "active")) for q in queues for state in _STATES}
    yield _gauge("cluster_queue_status", text, (*by_queue, "status"), status)
    info = {(q.name, q.cohort, q.root): 1 for q in queues}
    text = "Parent and root Cohort of the ClusterQueue; always 1."
    yield _gauge("cluster_queue_info", text, (*by_queue, "parent_cohort", "root_cohort"), info)
    requested = {(q.name, name): _plain(name, amount) for q in queues for name, amount in q.requested.items()}
    text = "Total requests of pending workloads, in cores, bytes or devices."
    yield _gauge("cluster_queue_resource_pending", text, (*by_queue, "resource"), requested)


def _of_quota(queues: Sequence[QueueLevels], held: Sequence[HeldAmount]) -> Iterator[Metric]:
    labels = ("cohort", "cluster_queue", *_KIND)
    cohort = {queue.name: queue.cohort for queue in queues}
    levels = [((q.cohort, q.name, *kind), level) for q in queues for kind, level in q.levels.items()]
    yield _gauge("cluster_queue_nominal_quota", "Nominal quota.", labels, _amounts((k, v.nominal) for k, v in levels))
    limits = _amounts((key, level.borrowing) for key, level in levels)
    yield _gauge("cluster_queue_borrowing_limit", "Borrowing limit, if there is one.", labels, limits)
    limits = _amounts((key, level.lending) for key, level in levels)
    yield _gauge("cluster_queue_lending_limit", "Lending limit, if there is one.", labels, limits)
    reserved: Counter[Key] = Counter({key: 0 for key, _ in levels})
    used = reserved.copy()
    for row in held:
        if row.cluster_queue in cohort:
            key = cohort[row.cluster_queue], row.cluster_queue, row.flavor, row.resource
            reserved[key] += row.amount
            used[key] += 0 if row.checks_pending else row.amount
    text = "Reserved quota, including workloads whose admission checks are not ready."
    yield _gauge("cluster_queue_resource_reservation", text, labels, _amounts(reserved.items()))
    yield _gauge("cluster_queue_resource_usage", "Quota used by admitted workloads.", labels, _amounts(used.items()))


def _of_local_queues(
    engine: Engine, cluster_queues: Sequence[QueueLevels], counts: Sequence[UnfinishedCount], held: Sequence[HeldAmount]
) -> Iterator[Metric]:
    by_queue = ("name", "namespace")
    queues = engine.local_queues()
    keys: list[Key] = [(name, namespace) for namespace, name in queues]
    pending: Counter[Key] = Counter(dict.fromkeys(keys, 0))
    reserving, admitted = pending.copy(), pending.copy()
    unadmitted: Counter[Key] = Counter()
    for row in counts:
        key = row.local_queue, row.namespace
        if key not in pending:
            continue
        if row.state is State.PENDING:
            pending[key] += row.number
        else:
            reserving[key] += row.number
            admitted[key] += row.number if row.state is State.ADMITTED and not row.checks_pending else 0
        if row.state is State.PENDING or row.checks_pending:
            unadmitted[*key, row.reason, ""] += row.number
    tried: Counter[Key] = Counter(
        {(name, namespace): n for q in cluster_queues for (namespace, name), n in q.active.items()}
    )
    by_status: dict[Key, float] = {}
    for place, number in pending.items():
        active = min(tried[place], number)  # engine and database are read at slightly different times
        by_status[*place, "active"], by_status[*place, "inadmissible"] = active, number - active
    text = "Pending workloads: active are in the admission queue, inadmissible are not retried until something changes."
    yield _gauge("local_queue_pending_workloads", text, (*by_queue, "status"), by_status)
    text = "Workloads that are not admitted, by reason."
    yield _gauge("local_queue_unadmitted_workloads", text, (*by_queue, "reason", "underlying_cause"), unadmitted)
    yield _gauge("local_queue_reserving_active_workloads", "Workloads with quota reserved.", by_queue, reserving)
    text = "Admitted workloads that are not being evicted."
    yield _gauge("local_queue_admitted_active_workloads", text, by_queue, admitted)
    yield _gauge(
        "local_queue_status",
        "1 for the current value of active (True, False, Unknown), else 0.",
        (*by_queue, "active"),
        dict(_statuses(queues, cluster_queues)),
    )
    reserved: Counter[Key] = Counter()
    used: Counter[Key] = Counter()
    for one in held:
        if (one.namespace, one.local_queue) in queues:
            place = one.local_queue, one.namespace, one.flavor, one.resource
            reserved[place] += one.amount
            used[place] += 0 if one.checks_pending else one.amount
    labels = (*by_queue, *_KIND)
    yield _gauge("local_queue_resource_reservation", "Reserved quota.", labels, _amounts(reserved.items()))
    yield _gauge("local_queue_resource_usage", "Quota used by admitted workloads.", labels, _amounts(used.items()))


def _of_usage(engine: Engine) -> Metric:
    queues = engine.local_queues()
    usages = {
        (queues[key].cluster_queue, *reversed(key)): usage
        for policy in engine.policies
        if isinstance(policy, RecentUsage)
        for key, usage in policy.usages().items()
    }
    text = "Weighted recent usage, by which admission fair sharing orders LocalQueues."
    return _gauge("local_queue_admission_fair_sharing_usage", text, ("cluster_queue", "name", "namespace"), usages)


def _of_budgets(engine: Engine) -> Iterator[Metric]:
    hours: dict[Key, float] = {}
    for policy in engine.policies:
        if isinstance(policy, BudgetAccounts):
            for name, _, _, sums in policy.sums():
                for one in sums:
                    key = name, one.resource.name, ",".join(one.resource.flavors)
                    given = {"given": one.limit, "spent": one.spent, "reserved": one.reserved, "left": one.left}
                    one_hour = one.resource.product("1")
                    hours.update(((*key, state), amount / one_hour) for state, amount in given.items())
    if hours:
        text = "Hours of a Budget in its present period, in cores, bytes or devices times hours, or money, by state."
        yield _gauge("budget_hours", text, ("budget", "resource", "flavors", "state"), hours)


def _statuses(
    queues: Mapping[tuple[str, str], LocalQueueSpec], cluster_queues: Sequence[QueueLevels]
) -> Iterator[tuple[Key, int]]:
    """Yield the status series of each LocalQueue. Kueue's third value, Unknown, is always 0 here."""
    serving = {queue.name for queue in cluster_queues if not queue.fault}
    for (namespace, name), spec in queues.items():
        condition = str(spec.stop_policy == "None" and spec.cluster_queue in serving)
        for value in ("True", "False", "Unknown"):
            yield (name, namespace, value), int(value == condition)


def _of_cohorts(
    queues: Sequence[QueueLevels],
    cohorts: Sequence[CohortLevels],
    counts: Sequence[UnfinishedCount],
    held: Sequence[HeldAmount],
) -> Iterator[Metric]:
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    above = {queue.name: list(_ancestors(queue.cohort, parents)) for queue in queues}
    info = {(cohort.name, cohort.parent, cohort.root): 1 for cohort in cohorts}
    text = "Parent and root of the Cohort; always 1."
    yield _gauge("cohort_info", text, ("cohort", "parent_cohort", "root_cohort"), info)
    levels: list[tuple[Key, Level]] = [
        ((cohort.name, *kind), level) for cohort in cohorts for kind, level in cohort.levels.items()
    ]
    labels = ("cohort", *_KIND)
    text = "Nominal quota of the Cohort and the quota that its children lend to it."
    yield _gauge("cohort_subtree_quota", text, labels, _amounts((key, level.subtree) for key, level in levels))
    reserved: Counter[Key] = Counter({key: 0 for key, _ in levels})
    for row in held:
        for cohort in above.get(row.cluster_queue, ()):
            reserved[cohort, row.flavor, row.resource] += row.amount
    text = "Reserved quota of all ClusterQueues in the subtree."
    yield _gauge("cohort_subtree_resource_reservations", text, labels, _amounts(reserved.items()))
    admitted: Counter[Key] = Counter({(cohort.name,): 0 for cohort in cohorts})
    for one in counts:
        if one.state is State.ADMITTED and not one.checks_pending:
            for cohort in above.get(one.cluster_queue, ()):
                admitted[cohort,] += one.number
    text = "Admitted workloads of all ClusterQueues in the subtree."
    yield _gauge("cohort_subtree_admitted_active_workloads", text, ("cohort",), admitted)


def _of_shares(engine: Engine, queues: Sequence[QueueLevels]) -> Iterator[Metric]:
    of_queues, of_cohorts = engine.weighted_share()
    shares = {(queue.name, queue.cohort): of_queues[queue.name] for queue in queues if queue.name in of_queues}
    text = "Share in fair sharing: borrowed quota of the most borrowed resource, divided by the weight."
    yield _gauge("cluster_queue_weighted_share", text, ("cluster_queue", "cohort"), shares)
    yield _gauge("cohort_weighted_share", text, ("cohort",), {(name,): share for name, share in of_cohorts.items()})


def cluster_families(numbers: Mapping[str, ClusterNumbers], seen: Mapping[str, SeenCapacity]) -> list[Metric]:
    """Return the metrics of clusters: of their unfinished workloads, and of their nodes as far as they were seen."""
    labels = ("cluster",)
    pending = {(name,): each.pending for name, each in numbers.items()}
    reserving = {(name,): each.reserving for name, each in numbers.items()}
    used = {
        (name, *kind): _plain(kind[1], amount) for name, each in numbers.items() for kind, amount in each.used().items()
    }
    return [
        _gauge("cluster_pending_workloads", "Pending workloads of the cluster.", labels, pending),
        _gauge("cluster_reserving_workloads", "Workloads of the cluster that hold quota.", labels, reserving),
        _gauge("cluster_resource_usage", "Quota that workloads of the cluster hold.", (*labels, *_KIND), used),
        *_of_capacities({name: each for name, each in seen.items() if each.seen is not None}),
    ]


def _of_capacities(seen: Mapping[str, SeenCapacity]) -> Iterator[Metric]:
    nodes: dict[Key, float] = {}
    for name, each in seen.items():
        has = each.capacity
        nodes[name, "schedulable"], nodes[name, "cordoned"] = has.schedulable, has.ready - has.schedulable
        nodes[name, "not_ready"] = has.nodes - has.ready
    yield _gauge(
        "cluster_nodes", "Nodes of the cluster, by state: schedulable ones get new pods.", ("cluster", "state"), nodes
    )
    labels = ("cluster", "resource")
    total: list[tuple[Key, int]] = []
    usable: list[tuple[Key, int]] = []
    for name, each in seen.items():
        for resource, amount in each.capacity.allocatable.items():
            total.append(((name, resource), amount))
            usable.append(((name, resource), each.capacity.usable.get(resource, 0)))
    yield _gauge("cluster_allocatable", "What all nodes of the cluster can allocate.", labels, _amounts(total))
    text = "What those nodes of the cluster can allocate that are ready and not cordoned."
    yield _gauge("cluster_schedulable", text, labels, _amounts(usable))
    text = "Unix time at which the nodes of the cluster were listed."
    times = {(name,): each.seen or 0.0 for name, each in seen.items()}
    yield _gauge("cluster_capacity_timestamp_seconds", text, ("cluster",), times)


async def label_families(store: Store) -> list[Metric]:
    """Return the labels of queue objects, to be joined with their other metrics, as in kube-state-metrics."""
    found = []
    for kind, name in ((ClusterQueue, "cluster_queue"), (LocalQueue, "local_queue"), (Cohort, "cohort")):
        family = Metric(f"sluice_{name}_labels", f"Labels of the {kind.kind}, such as team; always 1.", "gauge")
        for item in await store.queues.list(kind.kind):
            if labels := item.metadata.labels:
                local = (
                    {"name": item.name, "namespace": item.metadata.namespace} if isinstance(item, LocalQueue) else {}
                )
                own = {re.sub("[^a-zA-Z0-9_]", "_", f"label_{label}"): value for label, value in labels.items()}
                family.add_sample(family.name, {**(local or {name: item.name}), **own}, 1)
        if family.samples:
            found.append(family)
    return found


async def topology_families(engine: Engine) -> list[Metric]:
    """Return what is free in topologies, by flavor and level: never by domain, of which there may be thousands."""
    pending = [(flavor, engine.occupancy(flavor)) for flavor in engine.placing_flavors()]
    found = [(flavor, compute) for flavor, compute in pending if compute is not None]
    return await asyncio.to_thread(lambda: [*_of_topologies((flavor, compute()) for flavor, compute in found)])


def _of_topologies(occupied: Iterable[tuple[str, Occupancy]]) -> Iterator[Metric]:
    free: dict[Key, float] = {}
    largest: dict[Key, float] = {}
    idle: dict[Key, float] = {}
    nodes: dict[Key, float] = {}
    for flavor, found in occupied:
        nodes[flavor, "in"], nodes[flavor, "out"] = found.total.nodes - found.total.out, len(found.out)
        for resource in found.resources:
            free[flavor, resource] = _plain(resource, found.total.free.get(resource, 0))
        for level, label in enumerate(found.levels):
            whole = found.most_whole(level)
            idle[flavor, label] = 0 if whole is None else whole.whole
            for resource in found.resources:
                best = found.most_free(level, resource)
                largest[flavor, label, resource] = 0 if best is None else _plain(resource, best.free[resource])
    if not nodes:
        return
    text = "Nodes of a flavor with a Topology, by state: out are those that get no pods at present."
    yield _gauge("topology_nodes", text, ("flavor", "state"), nodes)
    yield _gauge("topology_free", "What is free on the nodes of a flavor with a Topology.", _KIND, free)
    text = "What is free in that domain of a level in which most is free."
    yield _gauge("topology_largest_free", text, ("flavor", "level", "resource"), largest)
    text = "Domains of the last level (nodes, for hostnames) without pods, in that domain of a level with most of them."
    yield _gauge("topology_largest_idle", text, ("flavor", "level"), idle)


def _ancestors(cohort: str, parents: Mapping[str, str]) -> Iterator[str]:
    while cohort in parents:
        yield cohort
        cohort = parents[cohort]


def _gauge(name: str, text: str, labels: Sequence[str], values: Mapping[K, float]) -> Metric:
    family = GaugeMetricFamily(f"sluice_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _amounts(amounts: Iterable[tuple[Key, int | None]]) -> dict[Key, float]:
    """Return the amounts in base units; None is left out. The last part of each key is the resource."""
    return {key: _plain(key[-1], amount) for key, amount in amounts if amount is not None}


def _plain(resource_name: str, amount: int) -> float:
    """Return an amount in the base unit of the resource; CPU amounts are in milli-CPU."""
    return amount / 1000 if resource_name == "cpu" else amount
