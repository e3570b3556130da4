"""Lacks: flavor-resources of which too little is available for a pending workload, with the numbers, and as text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from admission.engine.tree import limits_below, most_usable, usable
from admission.engine.vocabulary import ExceededQuota, Shortage
from admission.model.names import listed
from admission.model.quantity import UNLIMITED
from admission.model.resource_words import amount_number, amount_text, resource_word
from admission.model.sentences import limit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue

_COMMON: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""Resources that all nodes have."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A flavor-resource of which less is available than the workload requests. Amounts as in the model."""

    need: int
    """Number of the need that it belongs to: a need is met by one of its flavors; all needs must be met."""
    flavor: str
    resource: str
    requested: int
    """The amount that all pod sets that would get this flavor request together."""
    free: int
    """Quota available to the ClusterQueue now, including what it can borrow."""
    borrowable: int
    """The part of `free` that would be borrowed."""
    maximum: int
    """Quota available to the ClusterQueue if nothing else were in use."""
    limits: tuple[tuple[str, int], ...]
    """The limits that are too low, and the amount by which each is: `("Cohort research: nominalQuota", 4000)`.

    Narrowest first. For a Cohort without quota of its own: `the ClusterQueues in Cohort research: nominalQuota`.
    """
    used: int = 0
    """Amount that its ClusterQueue uses; only in explanations."""
    used_by_others: int = 0
    """Amount that all other ClusterQueues of the tree use; only in explanations."""

    @property
    def exceeds(self) -> bool:
        """Whether more is requested than could ever become free."""
        return self.requested > self.maximum

    @property
    def missing(self) -> int:
        """The amount that would have to become free."""
        return self.requested - min(self.free, self.maximum)

    @property
    def refused_by(self) -> str:
        """The node of the tree whose limit is the lowest, and the limit: `Cohort research: nominalQuota`."""
        return self.limits[0][0]

    @property
    def hint(self) -> str:
        """What would help, for the user."""
        if self.exceeds:
            return f"{raises([self])}, or ask for less"
        return f"{amount_text(self.resource, self.missing)} ({self.flavor}) must become free"


def lacks_of(queue: ClusterQueue, assignment: Assignment, *, may_borrow: bool) -> tuple[Lack, ...]:
    """Return what is missing for an assignment that does not fit, each flavor-resource once.

    `may_borrow`: whether the workload may be admitted with borrowed quota.
    """
    found: dict[tuple[str, str], Lack] = {}
    needs: dict[tuple[tuple[str, str], ...], int] = {}
    for pod_set in assignment.pod_sets:
        for group in sorted({attempt.group for attempt in pod_set.attempts}):
            causes = [
                cause
                for attempt in pod_set.attempts
                if attempt.group == group
                for cause in attempt.causes
                if isinstance(cause, Shortage | ExceededQuota)
            ]
            # Pod sets that lack the same things have one need together; with other flavors they have one each.
            need = needs.setdefault(tuple((cause.flavor, cause.resource) for cause in causes), len(needs))
            for cause in causes:
                lack, key = _lack(queue, need, cause, may_borrow=may_borrow), (cause.flavor, cause.resource)
                known = found.get(key)
                if known is None or lack.requested > known.requested:
                    found[key] = lack if known is None else replace(lack, need=known.need)
    # What is usually scarce, devices, comes first; else in the order of the requests.
    return tuple(sorted(found.values(), key=lambda lack: lack.resource in _COMMON))


def _lack(queue: ClusterQueue, need: int, cause: Shortage | ExceededQuota, *, may_borrow: bool) -> Lack:
    tree, node = queue.tree, queue.node
    assert tree is not None
    assert node is not None
    fr = tree.index[cause.flavor, cause.resource]
    free = usable(node, fr, may_borrow=may_borrow)
    # The amount of a pod set, and what earlier pod sets of the workload would take of the same flavor.
    requested = free + cause.missing if isinstance(cause, Shortage) else cause.before + cause.requested
    limits = limits_below(node, fr, requested, ever=isinstance(cause, ExceededQuota))
    if not may_borrow:
        own = node.quota[fr] - (0 if isinstance(cause, ExceededQuota) else node.usage[fr])
        limits = ((f"ClusterQueue {queue.name}: nominalQuota", requested - own),) if requested > own else limits
    return Lack(
        need,
        cause.flavor,
        cause.resource,
        requested,
        min(free, UNLIMITED),
        min(max(0, free - max(0, node.nominal[fr] - node.usage[fr])), UNLIMITED),
        min(most_usable(node, fr, may_borrow=may_borrow), UNLIMITED),
        limits,
    )


def decisive(lacks: Sequence[Lack]) -> list[list[list[Lack]]]:
    """Return by need and flavor the lacks that decide.

    If a need can never be met, the needs of that kind; else all needs, without flavors that can never meet them.
    """
    by_need: dict[int, dict[str, list[Lack]]] = {}
    for lack in lacks:
        by_need.setdefault(lack.need, {}).setdefault(lack.flavor, []).append(lack)
    needs = [[*by_flavor.values()] for by_flavor in by_need.values()]
    possible = [[same for same in need if not any(one.exceeds for one in same)] for need in needs]
    if all(possible):
        return possible
    hopeless = [need for need, flavors in zip(needs, possible, strict=True) if not flavors]
    return [[[one for one in same if one.exceeds] for same in need] for need in hopeless]


def needed(lacks: Sequence[Lack]) -> str:
    """Return what is needed, without numbers that change: `8 GPU (a100 or h100) and 4 CPU (cpu-pool)`."""
    return listed([_alternatives(need) for need in decisive(lacks)])


def _alternatives(need: list[list[Lack]]) -> str:
    amounts = [listed([_requested(one) for one in same]) for same in need]
    if len(set(amounts)) == 1:
        return f"{amounts[0]} ({' or '.join(same[0].flavor for same in need)})"
    return " or ".join(f"{amount} ({same[0].flavor})" for amount, same in zip(amounts, need, strict=True))


def _requested(lack: Lack) -> str:
    if lack.requested < UNLIMITED:
        return amount_text(lack.resource, lack.requested)
    return f"more {resource_word(lack.resource)} than can be counted"


def needed_now(lacks: Sequence[Lack]) -> str:
    """Return what is needed and what is free: `8 GPU (a100): 0 of 24 free; 4 CPU (cpu-pool): 1 of 40 free`."""
    return "; ".join(
        " or ".join(("; " if len(need) == 1 else " and ").join(map(_now, same)) for same in need)
        for need in decisive(lacks)
    )


def _now(lack: Lack) -> str:
    maximum = amount_number(lack.resource, lack.maximum)
    have = f"at most {maximum}" if lack.exceeds else f"{amount_number(lack.resource, lack.free)} of {maximum} free"
    return f"{_requested(lack)} ({lack.flavor}): {have}"


def needed_ever(lacks: Sequence[Lack]) -> str:
    """Return what is needed and what there could be: `30 GPU (a100), of which at most 24 can be used`."""
    texts = [
        f"{_requested(one)} ({one.flavor}), of which at most {amount_number(one.resource, one.maximum)} can be used"
        for need in decisive(lacks)
        for same in need
        for one in same
    ]
    return "; ".join(texts)


def raises(lacks: Iterable[Lack]) -> str:
    """Return which limits have to be raised: `raise the nominalQuota of Cohort research by 6 GPU (a100)`.

    With all of these raised, what is requested could be used if nothing else were in use.
    """
    by_limit: dict[str, list[str]] = {}
    for lack in lacks:
        for limit, excess in lack.limits:
            by_limit.setdefault(limit, []).append(f"{amount_text(lack.resource, excess)} ({lack.flavor})")
    return f"raise {listed([f'{limit_of(limit)} by {listed(amounts)}' for limit, amounts in by_limit.items()])}"


def raises_for(lacks: Sequence[Lack]) -> str:
    """Return `raises` for the first flavor of each need that can never be met; empty: an amount is beyond counting."""
    firsts = [one for need in decisive(lacks) for one in need[0]]
    return "" if any(one.requested >= UNLIMITED for one in firsts) else raises(firsts)
