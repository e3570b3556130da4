"""Suites for parts of the engine: quota sums, shares, orders, a flavor assignment, a search for victims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from admission.engine.accounting import Accounting
from admission.engine.assignment import Assignment, Choice, Mode, PodSetResult, Possibility
from admission.engine.clusterqueue import Held
from admission.engine.entry import Entry
from admission.engine.fair import Share, share
from admission.engine.fair_preemption import STRATEGIES, fair
from admission.engine.flavors import Assigner
from admission.engine.forest import Domain
from admission.engine.order import classical as classical_order
from admission.engine.pending_item import Item, Shapes
from admission.engine.preemption import TargetSearch
from admission.engine.preemption import classical as classical_victims
from admission.engine.tree import Node, available
from admission.engine.victims import Target, eviction, ordered
from admission.model.quantity import UNLIMITED, format_amount
from admission.model.workload import PodSetAssignment
from admission.simulate.scenario import Case, decimal, key_of
from admission.simulate.workloads import WorkloadReader
from tests.vectors.suites.status import Statuses
from tests.vectors.suites.world import World, by_flavor


def quota_available(document: Case) -> Case:
    """Return the quota that each ClusterQueue could use now, and at most."""
    world = World(document)
    now, ever = {}, {}
    for name in world.forest.specs:
        node, frs = world.node(name), world.domain(name).tree.frs
        free = {fr: max(0, available(node, fr)) for fr in node.frs}
        now[name] = by_flavor(frs, free, node.frs.__contains__)
        ever[name] = by_flavor(frs, node.potential, node.frs.__contains__)
    return {"available": now, "potentiallyAvailable": ever}


def snapshot(document: Case) -> Case:
    """Return the state of the trees, after removing and adding workloads as the case says."""
    world = World(document)
    reached = _reached(world)
    for key in document.get("remove") or ():
        _toggle(world.held[key], present=False)
    for key in document.get("add") or ():
        _toggle(world.held[key], present=True)
    after = _reached(world)
    queues, cohorts = {}, {}
    for domain in world.forest.domains.values():
        frs = domain.tree.frs
        for node, queue in domain.active_by_node.items():
            used = {fr for holder in world.held.values() if holder.queue is queue for fr, _ in holder.amounts}
            free = {fr: max(0, available(node, fr)) for fr in node.frs}
            queues[queue.name] = {
                **_node_state(node, domain, used),
                "available": by_flavor(frs, free, node.frs.__contains__),
                "potentiallyAvailable": by_flavor(frs, node.potential, node.frs.__contains__),
                "workloads": sorted(held.workload.key for held in queue.held.values()),
            }
        for name, node in domain.tree.cohorts.items():
            cohorts[name] = _node_state(node, domain, reached[node] | after[node])
            if name not in world.forest.cohorts:
                cohorts[name]["fairWeight"] = 0
    inactive = sorted(name for name in world.forest.specs if world.queue(name).inactive)
    return {"clusterQueues": queues, "cohorts": cohorts, "inactiveClusterQueues": inactive}


def _reached(world: World) -> dict[Node, set[int]]:
    """Return for each Cohort the flavor-resources with usage."""
    nodes = [node for domain in world.forest.domains.values() for node in domain.tree.cohorts.values()]
    return {node: {fr for fr, amount in enumerate(node.usage) if amount} for node in nodes}


def _toggle(held: Held, *, present: bool) -> None:
    if present:
        held.queue.hold(held)
        held.queue.recount(held)
    else:
        held.queue.drop(held)
        held.queue.uncount(held)


def _node_state(node: Node, domain: Domain, used: set[int]) -> Case:
    weight = node.weight
    return {
        "fairWeight": int(weight) if weight == int(weight) else weight,
        "parent": node.parent.name if node.parent is not None else "",
        "subtreeQuota": by_flavor(domain.tree.frs, node.quota, node.frs.__contains__),
        "usage": by_flavor(domain.tree.frs, node.usage, used.__contains__),
    }


def shares(document: Case) -> Case:
    """Return the dominant resource share of each node, including the case's additional request."""
    world = World(document)
    result = []
    for domain in world.forest.domains.values():
        for kind, nodes in (("ClusterQueue", domain.tree.queues), ("Cohort", domain.tree.cohorts)):
            for node in nodes.values():
                own = _share_with(node, domain, document.get("additionalRequest") or {})
                infinite = own.value == math.inf
                result.append(
                    {
                        "borrowing": bool(own.borrowed),
                        "dominantResource": own.dominant,
                        "kind": kind,
                        "name": node.name,
                        "preciseWeightedShare": decimal(own.value),
                        "weightedShare": UNLIMITED if infinite else math.ceil(own.value),
                    }
                )
    return {"shares": sorted(result, key=lambda entry: (str(entry["kind"]), str(entry["name"])))}


def _share_with(node: Node, domain: Domain, request: Mapping[str, Mapping[str, int]]) -> Share:
    amounts = [
        (domain.tree.index[flavor, resource], amount)
        for flavor, resources in request.items()
        for resource, amount in resources.items()
        if (flavor, resource) in domain.tree.index
    ]
    for fr, amount in amounts:
        node.usage[fr] += amount
    own = share(node, domain.tree)
    for fr, amount in amounts:
        node.usage[fr] -= amount
    return own


def borrowing_on(document: Case) -> Case:
    """Return whether the ClusterQueue `cq` borrows, in total and of the requested resources."""
    world = World(document)
    own = share(world.node("cq"), world.domain("cq").tree)
    return {
        "borrowing": bool(own.borrowed),
        "borrowingOnRequested": own.borrows_any(world.frs("cq", document.get("requested") or {})),
    }


def entry_order(document: Case) -> Case:
    """Return the order in which the heads of a cycle are decided."""
    entries = []
    shapes = Shapes(Accounting())
    reader = WorkloadReader(document)
    node = Node("", leaf=True, weight=1.0)
    for entry in document["entries"]:
        workload = reader.read(entry["workload"]).workload
        item = Item(workload, shapes.of(workload))
        head = Entry(item, World({}).queue(""), node)
        head.assignment = Assignment()
        head.assignment.borrowing = entry["borrowing"]
        entries.append(head)
    gates = document.get("featureGates") or {}
    in_order = classical_order(entries, by_priority=gates.get("PrioritySortingWithinCohort", True))
    if gates.get("PrioritizePreemptorWorkloads"):
        preemptors = [entry["isPreemptor"] for entry in document["entries"]]
        in_order.sort(key=lambda entry: not preemptors[entries.index(entry)])
    return {"order": [entry.item.workload.name for entry in in_order]}


def candidates_order(document: Case) -> Case:
    """Return the order in which candidates for preemption are considered."""
    manifests = [{**entry["workload"], "usage": None} for entry in document["candidates"]]
    names = {entry["clusterQueue"]: None for entry in document["candidates"]}
    world = World({**document, "workloads": manifests, "clusterQueues": [], "usage": {}})
    used = {key_of(entry["workload"]): entry.get("localQueueFSUsage") for entry in document["candidates"]}
    assert names
    usage = (lambda held: used[held.workload.key]) if document.get("admissionFairSharing") else None
    in_order = ordered(world.held.values(), world.queue(document["preemptorClusterQueue"]), usage)
    return {"order": [held.workload.name for held in in_order]}


def victims(document: Case) -> Case:
    """Return the workloads that are preempted for the incoming workload with the given assignment."""
    world = World(document)
    name = document["targetClusterQueue"]
    workload = WorkloadReader(document).read(document["incoming"]).workload
    item = Item(workload, Shapes(Accounting()).of(workload))
    search = TargetSearch(_finder(document), world.domain(name), world.queue(name), item, {})
    targets = search.targets(_assignment(document, world, name, item))
    targets.sort(key=lambda target: target.held.workload.key)
    statuses = Statuses(
        {key_of(manifest): manifest for manifest in (*document["workloads"], document["incoming"])},
        document.get("clock", ""),
    )
    for target in targets:
        if not target.held.evicting:
            evict = eviction(target, workload, world.node(name))
            statuses.evicted(target.held.workload.key, evict, key_of(document["incoming"]))
    after = statuses.document()
    return {
        "statusAfter": {key: after[key] for key in world.held},
        "preempted": {target.held.workload.key: target.reason for target in targets},
        "targets": [
            {"clusterQueue": target.node.name, "reason": target.reason, "workload": target.held.workload.key}
            for target in targets
        ],
    }


def _finder(document: Case) -> Callable[..., list[Target]]:
    if not document.get("fairSharing"):
        return classical_victims
    names = document.get("preemptionStrategies") or STRATEGIES
    strategies = [STRATEGIES[name] for name in names]
    return lambda domain, claim: fair(domain, claim, strategies)


def _assignment(document: Case, world: World, name: str, item: Item) -> Assignment:
    index = world.domain(name).tree.index
    plan = world.queue(name).facts(item.shape).plan
    assignment = Assignment()
    for number, entry in enumerate(document["assignment"]):
        choices = {
            resource: Choice(
                given["flavor"],
                index[given["flavor"], resource],
                Mode.FIT if given["mode"] == "Fit" else Mode.PREEMPT,
                0,
                0,
            )
            for resource, given in entry["flavors"].items()
        }
        for resource, choice in choices.items():
            amount = plan.requests[number].get(resource, 0) * entry["count"]
            assignment.usage[choice.fr] = assignment.usage.get(choice.fr, 0) + amount
        assignment.pod_sets.append(PodSetResult(entry["podSet"], entry["count"], {}, choices, (), ()))
    return assignment


_MODE_NAMES = {Mode.NO_FIT: "NoFit", Mode.PREEMPT: "Preempt", Mode.DEFERRED_FIT: "DeferredFit", Mode.FIT: "Fit"}
_POSSIBILITY_NAMES = {
    Possibility.NO_CANDIDATES: "NoCandidates",
    Possibility.PREEMPT: "Preempt",
    Possibility.RECLAIM: "Reclaim",
}


def flavor_assignment(document: Case) -> Case:
    """Return the flavors for the incoming workload; the results of preemption are given by the case."""
    world = World(document)
    name = document["targetClusterQueue"]
    workload = WorkloadReader(document).read(document["incoming"]).workload
    frs = world.domain(name).tree.frs
    given = {(entry["flavor"], entry["resource"]): entry for entry in document.get("simulatedPreemption") or ()}
    by_name = {text: possibility for possibility, text in _POSSIBILITY_NAMES.items()}

    def simulate(fr: int, _: int) -> tuple[Possibility, int]:
        entry = given.get(frs[fr], {"possibility": "Preempt", "borrowingAfter": 0})
        return by_name[entry["possibility"]], entry["borrowingAfter"]

    assigner = Assigner(
        world.queue(name),
        Shapes(Accounting()).of(workload),
        simulate=simulate,
        fair=bool(document.get("fairSharing")),
        replaced=_replaced(document),
    )
    assignment = assigner.assign()
    return {
        "borrowing": assignment.borrowing,
        "message": assignment.message(),
        "mode": _MODE_NAMES[assignment.mode],
        "noFitReason": assignment.reason() if assignment.mode is Mode.NO_FIT else "",
        "podSets": [_pod_set(pod_set) for pod_set in assignment.pod_sets],
        "usage": by_flavor(frs, assignment.usage, assignment.usage.__contains__),
    }


def _replaced(document: Case) -> tuple[PodSetAssignment, ...]:
    slices = (document.get("replacedWorkloadSlice") or {}).get("totalRequests") or ()
    return tuple(
        PodSetAssignment(entry["name"], entry["flavors"], entry["requests"], entry["count"]) for entry in slices
    )


def _pod_set(result: PodSetResult) -> Case:
    attempts = []
    for attempt in sorted(result.attempts, key=lambda attempt: attempt.flavor):
        entry: Case = {
            "borrow": attempt.borrow,
            "flavor": attempt.flavor,
            "mode": _MODE_NAMES[attempt.mode],
            "noFitReason": attempt.reason,
            "reasons": sorted(set(map(str, attempt.causes))) or None,
        }
        if attempt.possibility in _POSSIBILITY_NAMES:
            entry["preemptionPossibility"] = _POSSIBILITY_NAMES[attempt.possibility]
        attempts.append(entry)
    return {
        "attempts": attempts,
        "count": result.pods,
        "flavors": {
            resource: {"flavor": choice.flavor, "mode": _MODE_NAMES[choice.mode], "triedFlavorIdx": choice.tried}
            for resource, choice in result.choices.items()
        },
        "mode": _MODE_NAMES[result.mode],
        "name": result.name,
        "reasons": sorted(map(str, result.causes)) or None,
        "requests": {resource: format_amount(resource, amount) for resource, amount in result.requests.items()},
    }


SUITES: dict[str, Callable[[Case], Case]] = {
    "assign-flavors": flavor_assignment,
    "assign-flavors-hierarchical": flavor_assignment,
    "assign-flavors-reclaim": flavor_assignment,
    "candidates-ordering": candidates_order,
    "drs": shares,
    "drs-borrowing-on": borrowing_on,
    "entry-ordering": entry_order,
    "preemption": victims,
    "preemption-fair": victims,
    "preemption-hierarchical": victims,
    "quota-available": quota_available,
    "snapshot": snapshot,
    "snapshot-ops": snapshot,
    "snapshot-ops-lending": snapshot,
}
"""Functions by the name of the suite in a case."""
