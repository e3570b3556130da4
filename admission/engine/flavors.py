"""Flavor assignment: the flavor that each resource of a workload would get now, and whether it fits or has to preempt.

Follows Kueue's `FlavorAssigner` (`pkg/scheduler/flavorassigner`): for each pod set (group) and resource group, the
flavors are tried in their listed order; the ClusterQueue's `flavorFungibility` (KEP 582) says where the search may stop
and which of the tried flavors is preferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admission.engine.assignment import MODES, Assignment, Attempt, Choice, KnownFit, Mode, PodSetResult, Possibility
from admission.engine.tree import lowest_subtree, most_usable, usable
from admission.engine.vocabulary import (
    EXCEEDS_MAX_QUOTA,
    NO_MATCHING_FLAVOR,
    WAITING_FOR_QUOTA,
    Cause,
    ExceededQuota,
    Shortage,
    Undeclared,
    severity,
)
from admission.model.quantity import add

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.engine.clusterqueue import ClusterQueue, Group, GroupRequest, Option, Plan
    from admission.engine.pending_item import Progress, Shape
    from admission.engine.tree import Node
    from admission.model.queues import FlavorFungibility
    from admission.model.workload import PodSetAssignment


class _Grade(NamedTuple):
    """How good a flavor is for a whole part: the worst over the part's resources (Kueue's `granularMode`)."""

    possibility: Possibility
    borrow: int
    """The borrowing level."""

    def better_than(self, other: _Grade, fungibility: FlavorFungibility) -> bool:
        """Whether this flavor is preferred to the other (Kueue's `isPreferred`)."""
        mine, theirs = self.possibility, other.possibility
        if not mine or not theirs:
            return bool(mine)
        if (mine is Possibility.NO_CANDIDATES) != (theirs is Possibility.NO_CANDIDATES):
            return theirs is Possibility.NO_CANDIDATES
        if fungibility.preference == "PreemptionOverBorrowing":
            return (self.borrow, -mine) < (other.borrow, -theirs)
        return (-mine, self.borrow) < (-theirs, other.borrow)


_WORST = _Grade(Possibility.NO_FIT, 1 << 62)
_BEST = _Grade(Possibility.FIT, 0)


class Assigner:
    """Finds flavor assignments for one workload in one ClusterQueue, at the current usage of its tree.

    `simulate` returns what preemption could do for one flavor-resource and amount, and the borrowing level after it.
    `only` restricts the search to the flavors of an earlier assignment. `fair`: whether fair sharing decides about
    preemption. `progress`: where an earlier search stopped, to continue behind it. `replaced` is the assignment that
    the workload takes over (a workload slice): it gets the same flavors, and only the difference is requested.
    `ignore_undeclared`: resources for which the ClusterQueue has no quota are ignored instead of refused (KEP 7513).
    `all_obstacles`: continue after a part that gets no flavor, to find all obstacles; a scheduling cycle stops there,
    as in Kueue. `barred`: flavors that are passed over, with the reasons. `cluster`: the one to which the assignment
    dispatches the workload; empty: none.
    """

    def __init__(
        self,
        queue: ClusterQueue,
        shape: Shape,
        *,
        simulate: Callable[[int, int], tuple[Possibility, int]],
        fair: bool = False,
        progress: Progress | None = None,
        only: Sequence[PodSetResult] | None = None,
        replaced: Sequence[PodSetAssignment] = (),
        ignore_undeclared: bool = False,
        all_obstacles: bool = False,
        barred: Mapping[str, str] | None = None,
        cluster: str = "",
    ) -> None:
        assert queue.node is not None
        self._node: Node = queue.node
        self._fungibility = queue.spec.flavor_fungibility
        preemption = queue.spec.preemption
        self._may_borrow_and_preempt = preemption.borrow_within_cohort.policy != "Never" or (
            fair and preemption.reclaim_within_cohort != "Never"
        )
        self._quota_alone = queue.topologies is None
        self._shape = shape
        self._cluster = cluster
        self._may_borrow = shape.terms.may_borrow
        self._allowed = shape.terms.flavors
        self._barred = barred or {}
        self._facts = queue.facts(shape)
        self._plan: Plan = self._facts.plan
        self._simulate = simulate
        self._progress = progress
        self._only = only
        self._replaced = replaced
        self._ignore_undeclared = ignore_undeclared
        self._all_obstacles = all_obstacles
        self._checks: list[tuple[int, int, int]] | None = None
        """Entries for `KnownFit.checks` of the running search; None: its result must not be cached."""

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Return the assignment for the full pod counts, or for the given ones, which partial admission tries."""
        assignment = Assignment(cluster=self._cluster)
        plain = (
            self._quota_alone
            and counts is None
            and not (self._progress or self._only or self._replaced or self._all_obstacles or self._barred)
        )
        self._checks = [] if plain else None
        results: list[PodSetResult | None] = [None] * len(self._shape.pod_sets)
        for number, group in enumerate(self._plan.groups):
            totals = self._plan.totals[number] if counts is None else self._totals(group, counts)
            done = self._assign_group(group, totals, counts, assignment, results)
            if not done and not self._all_obstacles:
                break
        assignment.pod_sets = [result for result in results if result is not None]
        # A pod set that requests nothing has no choices of its own, but the obstacles of its group.
        modes = (result.mode if result.causes and result.requests else Mode.FIT for result in assignment.pod_sets)
        assignment.mode = min(modes, default=Mode.NO_FIT)
        if self._checks is not None and assignment.mode is Mode.FIT and not self._shape.replaces:
            self._facts.known_fit = KnownFit(tuple(self._checks), assignment)
        return assignment

    def _totals(self, group: Group, counts: Sequence[int]) -> Mapping[str, int]:
        totals: dict[str, int] = {}
        for index in group.indices:
            add(totals, self._plan.amounts(index, counts[index]))
        return totals

    def _assign_group(
        self,
        group: Group,
        totals: Mapping[str, int],
        counts: Sequence[int] | None,
        assignment: Assignment,
        results: list[PodSetResult | None],
    ) -> bool:
        """Add the results of a group's pod sets, and return whether all of its parts got a flavor."""
        choices: dict[str, Choice] = {}
        attempts: list[Attempt] = []
        causes: list[Cause] = []
        failed = False
        for part in group.parts:
            if part.group < 0 and (self._ignore_undeclared or not totals[part.resources[0]]):
                continue
            found, obstacles = self._search(group, part, totals, assignment.usage, attempts)
            if not found:
                causes = [*(causes if failed else ()), *obstacles]
                failed = True
                if self._all_obstacles:
                    continue
                break
            choices.update(found)
            if not failed:
                causes += obstacles
        if failed:
            choices = {}
        for index in group.indices:
            pod_set = self._shape.pod_sets[index]
            count = pod_set.count if counts is None else counts[index]
            requests = self._plan.full[index] if counts is None else self._plan.amounts(index, count)
            own = {resource: choices[resource] for resource in requests if resource in choices}
            for resource, choice in own.items():
                more = requests[resource] - (self._taken_over(index, resource) if self._replaced else 0)
                assignment.usage[choice.fr] = assignment.usage.get(choice.fr, 0) + more
                assignment.borrowing = max(assignment.borrowing, choice.borrow)
            results[index] = PodSetResult(pod_set.name, count, requests, own, tuple(causes), tuple(attempts))
        return not failed

    def _search(
        self,
        group: Group,
        part: GroupRequest,
        totals: Mapping[str, int],
        usage: Mapping[int, int],
        attempts: list[Attempt],
    ) -> tuple[dict[str, Choice], list[Cause]]:
        """Return the best flavor for each resource of the part, and the obstacles met (none if it fits).

        Kueue's `findFlavorForPodSets`.
        """
        if part.group < 0:
            return {}, [Undeclared(part.resources[0])]
        causes: list[Cause] = []
        best: dict[str, Choice] = {}
        best_grade = _WORST
        last = -1
        start = 0 if self._progress is None else self._start(self._progress, group, part)
        for index in range(start, len(part.options)):
            last = index
            option = part.options[index]
            obstacle = "" if self._only is None else self._not_nominated(self._only, group, part, option)
            if obstacle:
                causes.append(obstacle)
                continue
            if self._allowed and option.flavor not in self._allowed:
                causes.append(
                    f"skipping flavor {option.flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
                )
                continue
            if self._barred and option.flavor in self._barred:
                causes.append(self._barred[option.flavor])
                continue
            if option.mismatch:
                causes.append(option.mismatch)
                attempts.append(
                    Attempt(part.group, option.flavor, Possibility.NO_FIT, 0, (option.mismatch,), NO_MATCHING_FLAVOR)
                )
                continue
            grade, choices, attempt = self._grade(group, part, option, totals, usage)
            causes += attempt.causes
            attempts.append(attempt)
            if not self._tries_next(grade):
                best, best_grade = choices, grade
                break
            if grade.better_than(best_grade, self._fungibility):
                best, best_grade = choices, grade
        if last:
            self._checks = None  # not the first flavor: whether others come first depends on more than these checks
        if last == len(part.options) - 1:
            last = -1
        if last:
            best = {
                resource: Choice(flavor, fr, mode, borrow, last)
                for resource, (flavor, fr, mode, borrow, _) in best.items()
            }
        return best, [] if best_grade.possibility is Possibility.FIT else causes

    def _start(self, progress: Progress, group: Group, part: GroupRequest) -> int:
        """Return the index of the flavor at which to continue (Kueue's `NextFlavorToTryForPodSetResource`)."""
        tried = progress.tried
        first = group.indices[0]
        return tried[first].get(part.resources[0], -1) + 1 if first < len(tried) else 0

    def _not_nominated(self, only: Sequence[PodSetResult], group: Group, part: GroupRequest, option: Option) -> str:
        """Return why the flavor is skipped: the nomination did not choose it; "" if it did.

        Kueue's `shouldSkipBasedOnNominationMapping`.
        """
        resource = part.resources[0]
        for index in group.indices:
            choice = only[index].choices.get(resource) if index < len(only) else None
            if choice is not None and choice.flavor == option.flavor:
                return ""
        return f"skipping flavor {option.flavor} as it is not found in the nomination mapping for resource {resource}"

    def _taken_over(self, index: int, resource: str) -> int:
        """Return the amount that the replaced workload holds for a pod set."""
        return self._replaced[index].usage.get(resource, 0) if index < len(self._replaced) else 0

    def _other_flavor(self, group: Group, resource: str, flavor: str) -> str:
        """Return why the flavor is not the one that the replaced workload has; "" if it is."""
        for index in group.indices:
            if index < len(self._replaced):
                original = self._replaced[index].flavors.get(resource, "")
                if original != flavor:
                    return f"could not assign {flavor} flavor since the original workload is assigned: {original}"
        return ""

    def _grade(
        self, group: Group, part: GroupRequest, option: Option, totals: Mapping[str, int], usage: Mapping[int, int]
    ) -> tuple[_Grade, dict[str, Choice], Attempt]:
        """Try one flavor for all resources of a part."""
        grade = _BEST
        choices: dict[str, Choice] = {}
        causes: list[Cause] = []
        reason = ""
        highest = 0
        for resource in part.resources:
            fr = option.frs[resource]
            requested = totals[resource]
            if self._replaced:
                obstacle = self._other_flavor(group, resource, option.flavor)
                if obstacle:
                    grade, reason = _WORST, NO_MATCHING_FLAVOR
                    causes.append(obstacle)
                else:
                    requested -= sum(self._taken_over(index, resource) for index in group.indices)
            possibility, borrow, cause = self._fit(resource, option.flavor, fr, usage.get(fr, 0), requested)
            if cause is not None:
                causes.append(cause)
                if possibility is Possibility.NO_FIT:
                    word = EXCEEDS_MAX_QUOTA if isinstance(cause, ExceededQuota) else WAITING_FOR_QUOTA
                    reason = max(reason, word, key=severity)
            highest = max(highest, borrow)
            own = _Grade(possibility, borrow)
            if grade.better_than(own, self._fungibility):
                grade = own
            choices[resource] = Choice(option.flavor, fr, MODES[possibility], borrow, 0)
        if grade.possibility is Possibility.NO_FIT:
            choices = {}
        return grade, choices, Attempt(part.group, option.flavor, grade.possibility, highest, tuple(causes), reason)

    def _fit(
        self, resource: str, flavor: str, fr: int, before: int, requested: int
    ) -> tuple[Possibility, int, Shortage | ExceededQuota | None]:
        """Return how `requested` fits on top of `before` (earlier pod sets), the borrowing level, and the obstacle.

        Kueue's `fitsResourceQuota`.
        """
        node = self._node
        amount = before + requested
        if amount > (most := most_usable(node, fr, may_borrow=self._may_borrow)):
            return Possibility.NO_FIT, 0, ExceededQuota(resource, flavor, before, requested, most)
        borrow, in_part = lowest_subtree(node, fr, amount)
        if self._checks is not None:
            self._checks.append((fr, amount, borrow))
        free = usable(node, fr, may_borrow=self._may_borrow)
        if amount <= free:
            return Possibility.FIT, borrow, None
        cause = Shortage(resource, flavor, amount - free)
        if node.nominal[fr] >= amount or in_part or self._may_borrow_and_preempt:
            possibility, borrow = self._simulate(fr, amount)
            return possibility, borrow, cause
        return Possibility.NO_FIT, borrow, cause

    def _tries_next(self, grade: _Grade) -> bool:
        """Whether the next flavor is tried after one with this grade (Kueue's `shouldTryNextFlavor`)."""
        if grade.possibility <= Possibility.NO_CANDIDATES:
            return True
        if grade.possibility is not Possibility.FIT and self._fungibility.when_can_preempt == "TryNextFlavor":
            return True
        return grade.borrow > 0 and self._fungibility.when_can_borrow == "TryNextFlavor"
