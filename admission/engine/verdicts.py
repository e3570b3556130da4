"""Pending reason and message of a workload, as all other parts of Sluice report them.

They follow from the current state alone, not from earlier decisions, so that every engine with the same state returns
the same ones, except that only the one which decided preemptions knows for whom. What preemption could do is not
considered: the next cycle finds that out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.assignment import Mode, Possibility
from admission.engine.flavors import Assigner
from admission.engine.lacks import Lack, lacks_of, needed, needed_ever, raises_for
from admission.engine.matching import elsewhere, obstacle
from admission.engine.outside_cycles import why_outside
from admission.engine.pending_item import Shape
from admission.engine.topology.workloads import Placer
from admission.engine.tree import lowest_subtree, usable
from admission.engine.vocabulary import (
    DRAINED,
    EXCEEDS_MAX_QUOTA,
    HOPELESS,
    MISCONFIGURED,
    NO_MATCHING_FLAVOR,
    PENDING_EVALUATION,
    TOPOLOGY_PLACEMENT_FAILED,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
    ExceededQuota,
    Shortage,
    Undeclared,
    Unplaced,
)
from admission.model import sentences
from admission.model.names import listed
from admission.model.resource_words import amount_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from admission.engine.assignment import Assignment, PodSetResult
    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.pending_item import Item
    from admission.engine.registry import Registry


class Verdict(NamedTuple):
    """Why a workload is pending."""

    reason: str
    """A reason of the vocabulary."""
    message: str
    """The reason in words, without numbers that change while it stays."""
    lacks: tuple[Lack, ...] = ()
    """What is missing, if it does not fit."""


_ORDER: Final = {
    WAITING_FOR_QUOTA: 1, EXCEEDS_MAX_QUOTA: 2, TOPOLOGY_PLACEMENT_FAILED: 3, NO_MATCHING_FLAVOR: 4
}  # fmt: skip
"""The reasons for which a workload does not fit, the mildest first."""
UNTRIED: Final = Verdict(PENDING_EVALUATION, sentences.NOT_TRIED)


def verdict_of(registry: Registry, item: Item, *, ignore_undeclared: bool) -> Verdict:
    """Return why a workload is pending."""
    verdict = _verdict_of(registry, item, ignore_undeclared)
    passed = passed_over(registry, item, verdict.reason, ignore_undeclared=ignore_undeclared)
    return verdict._replace(message=" ".join([verdict.message, *passed])) if passed else verdict


def passed_over(registry: Registry, item: Item, reason: str, *, ignore_undeclared: bool) -> list[str]:
    """Return why a pending workload is not tried in clusters that it could be dispatched to; `reason`: why it waits."""
    if not item.workload.passed_over or reason not in (WAITING_FOR_QUOTA, *HOPELESS):
        return []
    queue, shape = registry.forest.queue(item.cluster_queue), item.shape
    found = []
    for cluster, why in item.workload.passed_over:
        there = Shape(shape.written, shape.pod_sets, shape.priority, shape.replaces, shape.terms, cluster)
        is_open = queue.node is not None and not queue.inactive
        has_room = is_open and _assigner(queue, there, ignore_undeclared).assign().mode is Mode.FIT
        found.append(sentences.passed_over(cluster, why, has_room=has_room))
    return found


def _verdict_of(registry: Registry, item: Item, ignore_undeclared: bool) -> Verdict:
    known = why_outside(registry, item) or _flaw(registry, item)
    if known is not None:
        return Verdict(*known)
    queue = registry.forest.queue(item.cluster_queue)
    if queue.node is None:
        return UNTRIED
    leaving = _leaving(registry, item)
    if leaving:
        return Verdict(WAITING_FOR_PREEMPTED, sentences.preempting(leaving))
    if item.yields_to in registry.items:
        return Verdict(WAITING_FOR_QUOTA, sentences.YIELDS)
    barred = registry.drains.flavors(item.workload) if registry.drains else {}
    if barred:
        verdict = _verdict_beside(registry, queue, item, barred, ignore_undeclared)
    else:
        verdict = _verdict_of_shape(registry, queue, item.shape, ignore_undeclared)
    if verdict != UNTRIED:
        return verdict
    if queue.topologies is not None and (obstacle := registry.drains.obstacle(item.workload)) is not None:
        return Verdict(*obstacle)
    overdue = queue.pending.overdue
    if overdue is not None and overdue.rank < item.rank:
        return Verdict(WAITING_FOR_QUOTA, sentences.BEHIND_OVERDUE)
    if _preempts(registry, queue):
        return Verdict(WAITING_FOR_QUOTA, sentences.BEHIND_PREEMPTOR)
    if any(_preempts(registry, other) for other in registry.forest.domain_of[queue].queues):
        return Verdict(WAITING_FOR_QUOTA, sentences.KEPT_FOR_PREEMPTOR)
    return verdict


def _preempts(registry: Registry, queue: ClusterQueue) -> bool:
    """Whether the head of a ClusterQueue waits for workloads that are preempted for it: each cycle keeps its quota."""
    head = queue.pending.head
    return head is not None and _leaving(registry, head) > 0


def _leaving(registry: Registry, preemptor: Item) -> int:
    """Return the number of workloads preempted for this one that have not stopped."""
    return sum(uid in registry.held and registry.held[uid].evicting for uid in preemptor.victims)


def never_fits(registry: Registry, queue: ClusterQueue, shape: Shape, *, ignore_undeclared: bool) -> bool:
    """Whether workloads of a shape cannot be admitted by a ClusterQueue, however much quota becomes free."""
    if queue.node is None or queue.inactive:
        return False
    facts = queue.facts(shape)
    if facts.never is not None:
        return facts.never
    never = _verdict_of_shape(registry, queue, shape, ignore_undeclared).reason in HOPELESS
    if len(shape.pod_sets) == 1:  # with several, the flavor of one decides how much is left for the others
        facts.never = never
    return never


def _verdict_of_shape(registry: Registry, queue: ClusterQueue, shape: Shape, ignore_undeclared: bool) -> Verdict:
    domain, facts = registry.forest.domain_of[queue], queue.facts(shape)
    if facts.verdict is not None and facts.judged_at == domain.version and not domain.dirty:
        return facts.verdict
    verdict = _best(
        [
            (each, verdict_on(queue, each, _assigner(queue, each, ignore_undeclared).assign(), ignore_undeclared))
            for each in shape.alternatives
        ]
    )
    facts.verdict, facts.judged_at = verdict, domain.version
    return verdict


def _best(found: Sequence[tuple[Shape, Verdict]]) -> Verdict:
    """Return the verdict about a workload that may run in one of several clusters: the one that needs least to change.

    Its message says how it is in each of them.
    """
    if len(found) == 1:
        return found[0][1]
    best = min((verdict for _, verdict in found), key=lambda verdict: _ORDER.get(verdict.reason, 0))
    if _ORDER.get(best.reason, 0) == 0:
        return best
    return best._replace(message=sentences.in_each_cluster([(shape.cluster, each.message) for shape, each in found]))


def _verdict_beside(
    registry: Registry, queue: ClusterQueue, item: Item, barred: Mapping[str, str], ignore_undeclared: bool
) -> Verdict:
    """Return the verdict about a workload that must not start in some flavors, as they are drained."""
    usable = _verdict_of_shape(registry, queue, item.shape, ignore_undeclared)
    flavors = [quotas.name for group in queue.spec.resource_groups for quotas in group.flavors]
    drained = [barred[name] for name in flavors if name in barred]
    if usable.reason in HOPELESS or not drained:
        return usable
    assignment = _assign_best(queue, item.shape, ignore_undeclared, barred)
    if assignment.mode is Mode.FIT:
        return verdict_on(queue, item.shape, assignment, ignore_undeclared)
    text = sentences.waits_for_drain(drained)
    if len(drained) == len(flavors) or usable == UNTRIED:
        return Verdict(DRAINED, text)
    return Verdict(usable.reason, f"{usable.message} {text}", usable.lacks)


def assign_without_preemption(queue: ClusterQueue, item: Item, ignore_undeclared: bool) -> Assignment:
    """Return the flavor assignment that a workload would get without preemption. The ClusterQueue must be active."""
    return _assign_best(queue, item.shape, ignore_undeclared)


def lacks_by_cluster(queue: ClusterQueue, item: Item, ignore_undeclared: bool) -> list[tuple[str, tuple[Lack, ...]]]:
    """Return what is missing in each cluster that a workload may be dispatched to; of others, by the name ""."""
    return [
        (
            shape.cluster if item.shape.clusters else "",
            lacks_of(queue, _assigner(queue, shape, ignore_undeclared).assign(), may_borrow=shape.terms.may_borrow),
        )
        for shape in item.shape.alternatives
    ]


def _assign_best(
    queue: ClusterQueue, shape: Shape, ignore_undeclared: bool, barred: Mapping[str, str] | None = None
) -> Assignment:
    """Return the assignment of a shape in the cluster where it comes closest to fitting; of equal ones the first."""
    found = (_assigner(queue, each, ignore_undeclared, barred).assign() for each in shape.alternatives)
    return max(found, key=lambda assignment: assignment.mode)


def _assigner(
    queue: ClusterQueue, shape: Shape, ignore_undeclared: bool, barred: Mapping[str, str] | None = None
) -> Assigner:
    node = queue.node
    assert node is not None
    return Assigner(
        queue,
        shape,
        simulate=lambda fr, amount: (Possibility.NO_CANDIDATES, lowest_subtree(node, fr, amount)[0]),
        ignore_undeclared=ignore_undeclared,
        barred=barred,
        all_obstacles=True,  # whether it can ever be admitted must not depend on what is free now
    )


def verdict_on(queue: ClusterQueue, shape: Shape, assignment: Assignment, ignore_undeclared: bool) -> Verdict:
    """Return the verdict that follows from the assignment of a workload of this shape."""
    if assignment.mode is Mode.FIT and queue.topologies is not None and (found := unplaced(queue, shape, assignment)):
        index, why, never = found
        text = sentences.does_not_fit(queue.name, assignment.pod_sets[index].name, [why])
        if never:
            return Verdict(TOPOLOGY_PLACEMENT_FAILED, f"{text} {sentences.NO_PLACE_EVER}")
        return Verdict(WAITING_FOR_QUOTA, text)
    if assignment.mode is Mode.FIT:
        if queue.spec.queueing_strategy == "StrictFIFO":
            return Verdict(PENDING_EVALUATION, sentences.fits_behind_others(queue.name))
        return UNTRIED
    reason = assignment.reason() if assignment.mode is Mode.NO_FIT else WAITING_FOR_QUOTA
    fewest = [pod_set.count if pod_set.min_count is None else pod_set.min_count for pod_set in shape.pod_sets]
    if (
        reason == EXCEEDS_MAX_QUOTA
        and shape.partial
        and _assigner(queue, shape, ignore_undeclared).assign(fewest).mode is not Mode.NO_FIT
    ):
        reason = WAITING_FOR_QUOTA
    lacks = lacks_of(queue, assignment, may_borrow=shape.terms.may_borrow)
    if reason == WAITING_FOR_QUOTA:
        wanted = sum(pod_set.count for pod_set in shape.pod_sets)
        return Verdict(reason, sentences.waits_for_quota(needed(lacks), sum(fewest), wanted), lacks)
    if reason == EXCEEDS_MAX_QUOTA:
        return Verdict(reason, sentences.exceeds_quota(needed_ever(lacks), raises_for(lacks)), lacks)
    assert reason == NO_MATCHING_FLAVOR, reason
    results = [(index, result) for index, result in enumerate(assignment.pod_sets) if result.causes]
    is_undeclared = any(isinstance(cause, Undeclared) for _, result in results for cause in result.causes)
    texts = [
        sentences.does_not_fit(queue.name, result.name, list(_obstacles(queue, shape, index, result)))
        for index, result in results
    ]
    texts.append(sentences.ASK_FOR_OTHERS if is_undeclared else sentences.CHANGE_THE_PODS)
    return Verdict(reason, " ".join(texts), lacks)


def unplaced(queue: ClusterQueue, shape: Shape, assignment: Assignment) -> tuple[int, str, bool] | None:
    """Return which pod set of a workload that has quota has no place in its topology; None: it has one.

    With it why, and whether it would not even have one on empty nodes.
    """
    assert queue.topologies is not None
    tried = replace(assignment, pod_sets=list(assignment.pod_sets), admission=None)
    Placer(queue.topologies, queue, shape.written).complete(tried)
    for index, result in enumerate(tried.pod_sets):
        for cause in result.causes:
            if isinstance(cause, Unplaced):
                return index, str(cause), tried.mode is Mode.NO_FIT
    return None


def _flaw(registry: Registry, item: Item) -> tuple[str, str] | None:
    """Return the fault of the workload, or that its namespace is not accepted; None: neither."""
    if item.fault is not None or item.accepted:
        return item.fault
    queue, namespace = registry.forest.queue(item.cluster_queue), item.workload.namespace
    labels = registry.namespaces.get(namespace)
    return MISCONFIGURED, sentences.namespace_not_matched(queue.name, queue.spec.namespace_selector, namespace, labels)


def _obstacles(queue: ClusterQueue, shape: Shape, index: int, result: PodSetResult) -> Iterator[str]:
    """Yield the obstacle in each flavor, in the ClusterQueue's order of flavors, as part of the message."""
    assert queue.tree is not None
    assert queue.node is not None
    pod_set = shape.pod_sets[index]
    for attempt in result.attempts:
        flavor = queue.flavors.get(attempt.flavor)
        unmet = ""
        if flavor is not None:
            unmet = elsewhere(flavor, shape.cluster, queue.clusters) or obstacle(flavor, pod_set)
        if unmet:
            yield unmet
            continue
        amounts = []
        for cause in attempt.causes:
            match cause:
                case Shortage(resource, name, missing):
                    fr = queue.tree.index[name, resource]
                    free = usable(queue.node, fr, may_borrow=shape.terms.may_borrow)
                    amounts.append(amount_text(resource, missing + free))
                case ExceededQuota(resource, _, before, requested, _):
                    amounts.append(amount_text(resource, before + requested))
                case Undeclared() | Unplaced():
                    pass  # it concerns no flavor, but the whole pod set
                case str():
                    yield cause
        if amounts:
            yield sentences.too_little_free(attempt.flavor, listed(amounts))
    declared = {resource for group in queue.spec.resource_groups for resource in group.covered_resources}
    yield from (
        sentences.undeclared(resource)
        for resource, amount in result.requests.items()
        if amount and resource not in declared and resource not in result.choices and _is_named(resource, result)
    )


def _is_named(resource: str, result: PodSetResult) -> bool:
    """Whether a resource without any quota is an obstacle, and not just ignored."""
    return Undeclared(resource) in result.causes
