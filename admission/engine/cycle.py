"""Scheduling cycle of one quota tree: pop the heads of its ClusterQueues, nominate, order, decide, requeue.

Heads are nominated independently against the usage at the start of the cycle, then decided one by one, each against the
usage left by those before it. Follows Kueue's `Scheduler.schedule` (`pkg/scheduler/scheduler.go`).
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from admission.engine.assignment import Assignment, Mode, obstacles
from admission.engine.backfill import WOULD_DELAY, head_of
from admission.engine.clusterqueue import Held, usage_of
from admission.engine.concurrent_admission import Mover, flavor_of, is_acceptable, siblings
from admission.engine.entry import Entry, EntryStatus, Result
from admission.engine.events import Admit, Evict, Park
from admission.engine.flavors import Assigner
from admission.engine.head_prediction import ReservedUsage, reserved
from admission.engine.order import classical, rank_of, tournament
from admission.engine.pending_item import Progress
from admission.engine.topology.heads import PlacedHeads, targets_of
from admission.engine.tree import add_usage, available, fits, remove_usage
from admission.engine.victims import eviction, without
from admission.engine.vocabulary import (
    ADMISSION_GATED,
    BETTER_ADMITTED,
    DEFERRED,
    DRAINED,
    FITS_WITHOUT_PREEMPTED,
    FLAVOR_MIGRATION,
    GATED,
    MISCONFIGURED,
    NAMESPACE_MISMATCH,
    NO_LONGER_FITS,
    NOT_ACCEPTABLE,
    OVERLAPS,
    PENDING_EVALUATION,
    REFUSED_IN_A_FLAVOR,
    SET_LIMIT_REACHED,
    SLICE_REPLACED,
    USER_LIMIT_REACHED,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
)
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.engine.backfill import Head
    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.configuration import Policy
    from admission.engine.drains import Drains
    from admission.engine.fair_skipping import SkipPlan
    from admission.engine.forest import Domain
    from admission.engine.head_prediction import Contender
    from admission.engine.order import Rank
    from admission.engine.pending import PendingQueue
    from admission.engine.pending_item import Item, Shape
    from admission.engine.policies.active import ActivePolicies
    from admission.engine.preemption import MakeSearch, TargetSearch
    from admission.engine.tree import FlavorResource, Node
    from admission.engine.victims import Target
    from admission.model.workload import PodSet


class Cycle:
    """The state of one cycle; `number` counts cycles.

    `lean`: skip heads that certainly do not fit, in a tree of one ClusterQueue. `skip_plan`: contenders and
    reservations of skipped ClusterQueues (see `fair_skipping`).
    """

    def __init__(
        self,
        domain: Domain,
        make_search: MakeSearch,
        *,
        policy: Policy,
        now: float,
        number: int,
        lean: bool = False,
        skip_plan: SkipPlan | None = None,
        policies: ActivePolicies | None = None,
        victims: dict[str, Held] | None = None,
        drains: Drains | None = None,
    ) -> None:
        self._domain = domain
        self._make_search = make_search
        self._policy = policy
        self._now = now
        self._number = number
        self._lean = lean and len(domain.queues) == 1 and not drains
        self._victims: dict[str, Held] = {} if victims is None else victims
        self._cycle_usage: list[tuple[Node, int, int]] = []
        """Usage of heads that wait for preemption: counted until the end of the cycle only."""
        self._concurrent = domain.concurrent
        self._migrating: list[Held] = []
        """Workloads that are evicted for a variant of theirs in a better flavor."""
        self._drains = drains
        self._places = PlacedHeads(policy, self._victims, drains)
        self._skip_plan = skip_plan
        self._filters = policies if policies is not None and policies.filtering else None  # None: no policy filters
        self._entries: list[Entry] = []
        self._result = Result()

    def run(self) -> Result:
        """Decide about the heads. On return admitted workloads are in the usage, and targets are marked as evicting."""
        self.begin()
        for entry in self.in_order():
            self.decide(entry)
        return self.end()

    def begin(self) -> list[Entry]:
        """Nominate the heads, and return them."""
        entries = self._entries = self._heads()
        if self._skip_plan is not None:
            self._result.moved |= self._skip_plan.more_to_try
        self._domain.shares = None
        for entry in entries:
            self._nominate(entry)
        self._domain.shares = None
        return entries

    def end(self) -> Result:
        """Requeue the heads that were not admitted, and return the decisions."""
        entries = self._entries
        self._places.end()
        for node, fr, amount in self._cycle_usage:
            remove_usage(node, fr, amount)
        for entry in entries:
            self._conclude(entry)
        for held in self._victims.values():
            if not held.evicting and held.queue.tree is self._domain.tree:
                held.evicting = True
                held.queue.generation += 1
                self._result.moved = True
        for held in self._migrating:
            held.evicting = True
            held.queue.generation += 1
            self._result.moved = True
        self._domain.waiting = bool(entries)
        return self._result

    def in_order(self) -> Iterable[Entry]:
        """Yield the heads in the order in which they are decided."""
        skip_plan = self._skip_plan
        if skip_plan is not None and (skip_plan.contenders or skip_plan.reservations):
            return self._in_order_with_skipped(skip_plan)
        if len(self._entries) == 1:
            return self._entries
        return tournament(self._entries, self._domain.tree) if self._policy.fair_sharing else classical(self._entries)

    def _in_order_with_skipped(self, skip_plan: SkipPlan) -> Iterator[Entry]:
        """Yield the tournament's order in a tree of one Cohort, without contenders that do not fit at their turn."""
        tree, entries = self._domain.tree, self._entries
        preempting = sum(bool(entry.targets) for entry in entries)
        turns: list[tuple[Rank, Entry | ReservedUsage | list[Contender]]]
        turns = [(rank_of(entry, entry.node, tree), entry) for entry in entries]
        for group in skip_plan.contenders:
            heapify(group)
            turns.append((group[0].rank, group))
        left = len(turns)
        turns += [(reservation.rank, reservation) for reservation in skip_plan.reservations]
        heapify(turns)  # with one Cohort no decision changes the rank of another head
        while left:
            _, turn = heappop(turns)
            if isinstance(turn, ReservedUsage):
                self._add_cycle_usage(turn.node, turn.usage)
                continue
            left -= 1
            if isinstance(turn, Entry):
                preempting -= bool(turn.targets)
                yield turn
                continue
            contender = heappop(turn)
            lacking = any(available(tree.root, fr) < least for fr, least in contender.needs)
            # Whether a head fits is checked without the usage of the cycle's preemption targets.
            if lacking and not preempting and not self._victims:
                continue  # the whole group needs the same amounts, so none of it fits in this cycle
            if turn:
                left += 1
                heappush(turns, (turn[0].rank, turn))
            entry = self._enter_contender(contender)
            if entry is not None:
                yield entry

    def _enter_contender(self, contender: Contender) -> Entry | None:
        """Nominate the head of a contender now; None if it does not fit any more."""
        queue, skipped = contender.queue, self._domain.skipped
        with without(self._victims.values()):
            if not fits(contender.node, contender.usage):
                return None
            assert skipped is not None
            skipped.include(queue)
            item = queue.pending.pop()
            assert item is not None
            entry = Entry(item, queue, contender.node, contended=True)
            self._entries.append(entry)
            self._nominate(entry)
        return entry

    def _heads(self) -> list[Entry]:
        """Pop the head of each ClusterQueue, and park those with a fault or in a namespace that is not selected."""
        entries = []
        faulty = []
        domain = self._domain
        for queue in domain.queues if domain.skipped is None else domain.skipped.participants():
            if queue.inactive or queue.node is None:
                continue
            best_effort = queue.spec.queueing_strategy == "BestEffortFIFO" and queue.strict_after is None
            if self._lean and queue.has_obstacles and best_effort:
                queue.pending.skip(queue.surely_blocked())
            if queue.moving is not None:
                entries += [Entry(mover, queue, queue.node) for mover in queue.leaving.values()]
                item = self._pop_or_mover(queue, queue.moving)
            else:
                item = queue.pending.pop() if self._filters is None else self._pop(queue, self._filters)
            if item is None:
                continue
            if not item.accepted:
                queue.pending.make_one_inadmissible(item, until_woken=True)
                self._park(item, MISCONFIGURED, NAMESPACE_MISMATCH)
                self._result.moved = True
            elif item.fault is not None:
                self._park(item, *item.fault)
                if queue.spec.queueing_strategy == "StrictFIFO":
                    faulty.append((queue, item))
                else:
                    queue.pending.make_one_inadmissible(item)
                    self._result.moved = True
            else:
                entries.append(Entry(item, queue, queue.node))
        for queue, item in faulty:
            queue.pending.add(item)
        return entries

    def _pop_or_mover(self, queue: ClusterQueue, moving: PendingQueue) -> Item | None:
        """Pop the first of the pending workloads and of the movers, in their common order."""
        mover, head = moving.head, queue.pending.head
        if mover is not None and head is not None:
            is_sticky, is_other = moving.sticky == mover.uid, queue.pending.sticky == head.uid
            is_first = mover.rank < head.rank if is_sticky is is_other else is_sticky
            head = None if is_first else head
        if mover is not None and head is None:
            return moving.pop()
        item = queue.pending.pop() if self._filters is None else self._pop(queue, self._filters)
        return moving.pop() if item is None else item

    def _pop(self, queue: ClusterQueue, filters: ActivePolicies) -> Item | None:
        """Pop the first workload that no policy refuses; refused workloads before it become inadmissible."""
        item = queue.pending.pop()
        while item is not None and item.accepted and item.fault is None:
            refusal = filters.refusal(item, queue.name, item.shape.usage)
            if refusal is None:
                break
            filters.make_inadmissible(item, queue.pending, item.shape.usage)
            self._park(item, refusal.reason, refusal.message)
            if self._domain.skipped is not None:
                self._domain.skipped.invalidate(queue)
            item = queue.pending.pop()
        return item

    def _nominate(self, entry: Entry) -> None:
        entry.item.victims = ()
        entry.item.yields_to = ""
        progress = entry.item.progress
        # As in Kueue's `lastAssignmentOutdated`: older than one cycle, and more quota may have become available since.
        if progress is not None and (
            self._number - progress.cycle <= 1 or entry.queue.generation <= progress.generation
        ):
            entry.progress = progress
        self._assign(entry)

    def _assign(self, entry: Entry, only: Assignment | None = None) -> None:
        """Find an assignment and its targets, for fewer pods if the full number gets none: Kueue's `getAssignments`."""
        entry.generation = entry.queue.generation
        flavors = entry.flavors if self._concurrent else ()
        if self._drains is not None:
            entry.barred = self._drains.flavors(entry.item.workload)
        clusters = entry.item.shape.clusters
        is_plain = entry.progress is None and entry.queue.topologies is None
        if only is None and is_plain and not (flavors or entry.barred or clusters):
            known = entry.queue.facts(entry.item.shape).known_fit
            if known is not None and known.holds(entry.node):
                entry.assignment = known.assignment
                return
        made: list[TargetSearch] = []

        def search() -> TargetSearch:  # created on demand: most heads need none
            if not made:
                made.append(self._make_search(self._domain, entry.queue, entry.item, self._victims, self._domain.guard))
            return made[0]

        if not (flavors or clusters):
            entry.assignment, entry.targets = self._attempt(entry, entry.item.shape, search, only)
            return
        shapes = [entry.item.shape.limited_to(flavor) for flavor in flavors] or [entry.item.shape]
        found: list[tuple[tuple[bool, Mode], Assignment, list[Target]]] = []
        for shape in (one for each in shapes for one in each.in_order(partial(_load, entry.queue, entry.node))):
            if only is not None and only.cluster != _sent_to(entry, shape):
                continue
            assignment, targets = self._attempt(entry, shape, search, only)
            found.append(((bool(targets) or assignment.mode is Mode.FIT, assignment.mode), assignment, targets))
            if assignment.mode is Mode.FIT:
                break
        _, entry.assignment, entry.targets = max(found, key=itemgetter(0))  # of equal ones the first

    def _attempt(
        self, entry: Entry, shape: Shape, search: Callable[[], TargetSearch], only: Assignment | None
    ) -> tuple[Assignment, list[Target]]:
        """Return an assignment of this shape, and its targets: for fewer pods if the full number gets none."""
        replaced = entry.replaced() if entry.item.workload.replaces else None
        assigner = Assigner(
            entry.queue,
            shape,
            simulate=lambda fr, amount: search().simulate(fr, amount),
            fair=self._policy.fair_sharing,
            progress=None if only or shape is not entry.item.shape else entry.progress,
            only=only.pod_sets if only else None,
            replaced=replaced.admission.pod_sets if replaced is not None else (),
            ignore_undeclared=self._policy.ignore_undeclared,
            barred=entry.barred,
            cluster=_sent_to(entry, shape),
        )

        placer = self._places.placer(entry)

        def attempt(counts: Sequence[int]) -> tuple[Assignment, list[Target]] | None:
            assignment = assigner.assign(counts)
            targets = targets_of(assignment, search, placer)
            return (assignment, targets) if targets or assignment.mode is Mode.FIT else None

        full = assigner.assign(None)
        targets = targets_of(full, search, placer)
        found = None
        if shape.partial and not targets and full.mode is not Mode.FIT and not isinstance(entry.item, Mover):
            found = largest_that_fits(shape.pod_sets, attempt)
        return found or (full, targets)

    def decide(self, entry: Entry) -> None:
        """Admit, preempt, reserve quota or skip, by the entry's mode (Kueue's `processEntry`)."""
        worse: Held | None = None
        if entry.item.workload.terms.variant_of:
            better, worse = siblings(entry)
            if better is not None:
                entry.outcome, entry.reason, entry.message = EntryStatus.SKIPPED, PENDING_EVALUATION, BETTER_ADMITTED
                return
        if self._filters is not None and not self._permits(entry, self._filters):
            return
        if self._victims or self._concurrent or entry.queue.topologies is not None:
            self._reassign(entry)
        assignment, usage = entry.assignment, entry.assignment.usage
        if assignment.mode is Mode.NO_FIT:
            entry.reason, entry.message = assignment.reason() or DRAINED, assignment.message()
        elif entry.queue.head is not None and self._would_delay(entry, entry.queue.head):
            entry.reason, entry.message = PENDING_EVALUATION, WOULD_DELAY
        elif assignment.mode is Mode.PREEMPT and not entry.targets:
            self._wait(entry)
        elif assignment.mode is Mode.DEFERRED_FIT:
            self._defer(entry, DEFERRED)
        elif assignment.mode is Mode.PREEMPT and not entry.item.workload.may_preempt:
            entry.outcome, entry.reason, entry.message = EntryStatus.GATED, ADMISSION_GATED, GATED
        elif any(target.held.workload.uid in self._victims for target in entry.targets):
            entry.outcome, entry.reason, entry.message = EntryStatus.SKIPPED, WAITING_FOR_QUOTA, OVERLAPS
        # Most Jobs have no victims beside them: for these the plain check is a call less.
        elif not (
            entry.fits_without(self._victims) and self._places.is_placed(entry)
            if self._victims or entry.targets or assignment.placed
            else fits(entry.node, usage)
        ):
            entry.outcome, entry.reason, entry.message = EntryStatus.SKIPPED, WAITING_FOR_QUOTA, NO_LONGER_FITS
        elif assignment.mode is Mode.PREEMPT:
            self._add_cycle_usage(entry.node, usage)
            self._places.occupy(entry)
            self._preempt(entry)
        elif self._victims and not (self._policy.as_kueue or entry.fits_beside(self._cycle_usage)):
            self._defer(entry, FITS_WITHOUT_PREEMPTED)
        elif worse is not None:
            self._migrate(entry, worse)
        else:
            self._admit(entry)

    def _permits(self, entry: Entry, filters: ActivePolicies) -> bool:
        """Whether no policy refuses it now: it has flavors, and those admitted earlier in this cycle are charged."""
        victims = [target.held for target in entry.targets]
        refusal = filters.refusal(entry.item, entry.queue.name, self._quota_of(entry), victims)
        if refusal is None:
            return True
        if not isinstance(entry.item, Mover):
            entry.outcome, entry.reason, entry.message = EntryStatus.REFUSED, refusal.reason, refusal.message
            return False
        if refusal.reason in (USER_LIMIT_REACHED, SET_LIMIT_REACHED):
            return True  # its workload counts against these already
        entry.outcome = EntryStatus.GATED
        return False

    def _reassign(self, entry: Entry) -> None:
        """Assign a head anew if one decided before it in this cycle has taken its targets, its place or its flavor."""
        if not self._victims.keys().isdisjoint(target.held.workload.uid for target in entry.targets):
            self._reassign_without_victims(entry)
        elif entry.queue.topologies is not None and self._places.needs_other_place(entry):
            self._assign(entry, only=entry.assignment)
            self._domain.shares = None
        elif self._concurrent and self._cycle_usage and entry.flavors and not entry.fits_without(self._victims):
            self._assign(entry)  # the quota of its flavor is kept for one that moves: there may be another
            self._domain.shares = None

    def _wait(self, entry: Entry) -> None:
        """Let a head wait for quota that no preemption could give it now, and keep what is free for it if need be."""
        assignment = entry.assignment
        entry.reason, entry.message = WAITING_FOR_QUOTA, assignment.message()
        if entry.queue.spec.preemption.reclaim_within_cohort != "Any":
            kept = reserved(entry.node, assignment.usage, borrows=assignment.borrowing > 0)
            self._add_cycle_usage(entry.node, kept)
            self._places.occupy(entry)

    def _would_delay(self, entry: Entry, head: Head) -> bool:
        """Whether a workload could delay the first one of its ClusterQueue, which backfills."""
        if entry.queue.pending.by_uid.get(head.item.uid) is not head.item:
            entry.queue.head = None
            return False
        if entry.item is head.item or entry.item.rank < head.item.rank:
            return False
        fits_now = entry.assignment.mode is Mode.FIT
        return not (fits_now and head.lets_pass(entry.item, entry.assignment.usage, self._now))

    def _quota_of(self, entry: Entry) -> Mapping[FlavorResource, int]:
        """Return the quota that a head would hold, by flavor-resource; without its flavors if it does not get any."""
        if entry.assignment.mode is Mode.NO_FIT:
            return entry.item.shape.usage
        if entry.item.workload.replaces:  # the usage of its assignment is without what it takes over
            return dict(usage_of(entry.assignment.admission_to(entry.queue.name)))
        frs = self._domain.tree.frs
        return {frs[fr]: amount for fr, amount in entry.assignment.usage.items()}

    def _reassign_without_victims(self, entry: Entry) -> None:
        """Repeat the assignment with the nominated flavors, without the targets so far: `updateAssignmentIfNeeded`."""
        with without(self._victims.values()):
            self._assign(entry, only=entry.assignment)
            self._domain.shares = None
        if entry.assignment.mode is Mode.FIT:
            entry.assignment.mode = Mode.DEFERRED_FIT

    def _defer(self, entry: Entry, message: str) -> None:
        """Keep quota in this cycle for a head that fits when the targets of other heads have released theirs."""
        entry.outcome, entry.reason, entry.message = EntryStatus.PREEMPTING, WAITING_FOR_PREEMPTED, message
        entry.item.victims = tuple(self._victims)
        self._add_cycle_usage(entry.node, entry.assignment.usage)
        self._places.occupy(entry)

    def _add_cycle_usage(self, node: Node, usage: Mapping[int, int]) -> None:
        for fr, amount in usage.items():
            add_usage(node, fr, amount)
            self._cycle_usage.append((node, fr, amount))

    def _preempt(self, entry: Entry) -> None:
        preemptor = entry.item.workload
        for target in entry.targets:
            held = target.held
            self._victims[held.workload.uid] = held
            if not held.evicting:
                self._result.evicted.append(eviction(target, preemptor, entry.node))
        entry.outcome = EntryStatus.PREEMPTING
        entry.item.victims = tuple(target.held.workload.uid for target in entry.targets)
        entry.reason = WAITING_FOR_PREEMPTED
        entry.message = f"{entry.assignment.message()}. Pending the preemption of {len(entry.targets)} workload(s)"

    def _migrate(self, entry: Entry, held: Held) -> None:
        """Evict a workload for its variant in a better flavor, and keep the quota for it: Kueue's `issueMigration`."""
        item, queue = entry.item, entry.queue
        is_leaving = item.uid in queue.leaving
        if held.evicting and isinstance(item, Mover) and not is_leaving:
            entry.outcome = EntryStatus.GATED  # evicted for another reason: it may not come back
            return
        self._add_cycle_usage(entry.node, entry.assignment.usage)
        self._places.occupy(entry)
        if not is_acceptable(entry):
            entry.reason, entry.message = PENDING_EVALUATION, NOT_ACCEPTABLE
            return
        entry.outcome, entry.reason = EntryStatus.PREEMPTING, WAITING_FOR_PREEMPTED
        entry.message = f"{entry.assignment.message()}. Pending the migration of 1 workload(s)"
        if held.evicting:
            return
        text = f"Evicted to accommodate a workload (UID: {item.uid}) due to migration to more favorable resource flavor"
        if isinstance(item, Mover):
            queue.leaving[item.uid] = item
            text = sentences.moves(flavor_of(held), _flavor(entry.assignment), queue.name)
        self._result.evicted.append(Evict(held.workload, FLAVOR_MIGRATION, text))
        self._migrating.append(held)

    def _admit(self, entry: Entry) -> None:
        tree = self._domain.tree
        for fr, amount in entry.assignment.usage.items():
            add_usage(entry.node, fr, amount)
        admission = entry.assignment.admission_to(entry.queue.name)
        workload = entry.item.workload
        replaced = entry.replaced() if workload.replaces else None
        if replaced is None:
            amounts = tuple(entry.assignment.usage.items())
            usage = tuple((tree.frs[fr], amount) for fr, amount in amounts)
        else:
            usage = usage_of(admission)
            amounts = tuple((tree.index[fr], amount) for fr, amount in usage)
            message = f"Replaced to accommodate a workload (UID: {workload.uid}) due to workload slice aggregation"
            self._result.evicted.append(Evict(replaced.workload, SLICE_REPLACED, message, workload.uid))
        if (head := entry.queue.head) is not None:
            head.note(entry.item, entry.assignment.usage, self._now)
        self._places.occupy(entry)
        placed = entry.assignment.placed if replaced is None else ()  # with those of the workload that it replaces
        is_low = entry.item.lowered
        held = Held(workload, admission, entry.queue, usage, self._now, amounts=amounts, placed=placed, lowered=is_low)
        entry.outcome = EntryStatus.ADMITTED
        if self._filters is not None:
            self._filters.charge_at_decision(held)
        self._result.admitted.append((Admit(workload, admission), held))

    def _conclude(self, entry: Entry) -> None:
        """Requeue a head that was not admitted, as active or inadmissible (Kueue's `requeueAndUpdate`)."""
        item, queue, pending = entry.item, entry.queue, entry.queue.pending
        if self._concurrent and isinstance(item, Mover):
            self._conclude_mover(entry, entry.pending)
            return
        if self._domain.skipped is not None:
            self._domain.skipped.invalidate(queue)
        if item.progress is not None:  # the search was continued in this cycle: the next one starts at the first flavor
            item.progress = None
            self._result.moved = True
        if entry.outcome is EntryStatus.ADMITTED:
            pending.remove(item.uid)
            queue.generation += 1
            self._result.moved = True
            if queue.head is not None and queue.head.item is item:
                queue.head, self._domain.freed = None, True  # what could have delayed it may start
            if entry.contended and self._domain.skipped is not None:
                self._domain.skipped.skip(queue)
            return
        if entry.outcome is EntryStatus.REFUSED:
            assert self._filters is not None
            progress = Progress(entry.assignment.tried(), entry.generation, self._number)
            if entry.reason in REFUSED_IN_A_FLAVOR and progress.unfinished and not self._has_alternatives(entry):
                item.progress = progress
                self._filters.note(item, self._quota_of(entry))
                pending.add(item)
            else:
                self._filters.make_inadmissible(item, pending, self._quota_of(entry))
            self._park(item, entry.reason, entry.message)
            self._result.moved = True
            return
        if entry.outcome not in (EntryStatus.PREEMPTING, EntryStatus.GATED) and not self._has_alternatives(entry):
            progress = Progress(entry.assignment.tried(), entry.generation, self._number)
            if progress.unfinished:
                item.progress = progress
                self._result.moved = True
        self._park(item, entry.reason, entry.message)
        if entry.outcome is EntryStatus.PREEMPTING:
            self._result.preempting.append(item.uid)
        self._requeue(entry, pending)

    def _has_alternatives(self, entry: Entry) -> bool:
        """Whether it was tried in flavors or clusters one by one, so that no search for it can be continued."""
        return bool((self._concurrent and entry.flavors) or entry.item.shape.clusters)

    def _requeue(self, entry: Entry, pending: PendingQueue) -> None:
        """Requeue a head that was neither admitted nor refused by a policy, as active or inadmissible."""
        item, queue = entry.item, entry.queue
        best_effort = queue.spec.queueing_strategy == "BestEffortFIFO"
        if entry.outcome is EntryStatus.PREEMPTING and best_effort and pending.sticky != item.uid:
            pending.sticky = item.uid
            self._result.moved = True
        not_admitted = entry.outcome is EntryStatus.NOT_ADMITTED and item.progress is None
        asks = self._filters is not None or self._drains is not None
        if not_admitted and best_effort and asks and self._set_aside(entry):
            self._result.moved = True
        elif (
            not_admitted
            and best_effort
            and not (queue.strict_after is not None and self._is_overdue(entry, queue.strict_after))
        ):
            pending.make_inadmissible(item)
            self._note_obstacles(entry)
            self._result.moved = True
        elif not_admitted and queue.spec.backfill is not None:
            if queue.head is None or item.rank <= queue.head.item.rank:
                ignore = self._policy.ignore_undeclared
                queue.head = head_of(self._domain, queue, item, self._now, ignore_undeclared=ignore)
            pending.make_one_inadmissible(item)
            self._result.moved = True
        elif best_effort and entry.outcome is EntryStatus.GATED:
            pending.make_one_inadmissible(item)
            self._result.moved = True
        else:
            pending.add(item)

    def _set_aside(self, entry: Entry) -> bool:
        """Make a head inadmissible without its shape, as others of it may be admitted; False: none of it may."""
        if self._filters is not None and entry.item.uid in self._filters.refused:  # it was refused in another flavor
            entry.queue.pending.make_one_inadmissible(entry.item)
            return True
        drains = self._drains
        kept = drains.against(entry.item.workload) if drains is not None and drains.differ else None
        if drains is None or not kept:
            return False
        flavors = {quotas.name for group in entry.queue.spec.resource_groups for quotas in group.flavors}
        everywhere = flavors <= (entry.barred or {}).keys()
        entry.queue.pending.add(entry.item)
        entry.queue.pending.set_aside_all(
            entry.item.shape, lambda item: drains.against(item.workload) >= kept, until_woken=everywhere
        )
        return True

    def _conclude_mover(self, entry: Entry, moving: PendingQueue) -> None:
        item, leaving = entry.item, entry.queue.leaving
        if item.uid in leaving:
            if item.bucket is None:
                moving.make_one_inadmissible(item, until_woken=True)
            return
        if entry.outcome is EntryStatus.PREEMPTING and moving.sticky != item.uid:
            moving.sticky = item.uid
            self._result.moved = True
        if entry.outcome is EntryStatus.NOT_ADMITTED:
            moving.make_inadmissible(item)
            self._result.moved = True
        elif entry.outcome is EntryStatus.GATED:
            moving.make_one_inadmissible(item)
            self._result.moved = True
        else:
            moving.add(item)

    def _is_overdue(self, entry: Entry, strict_after: float) -> bool:
        """Whether a head that does not fit is not overtaken any more; if that comes later, the tree is told when."""
        if entry.reason != WAITING_FOR_QUOTA:
            return False  # it waits for no quota
        overdue_at = entry.item.since + strict_after
        if overdue_at <= self._now:
            entry.queue.pending.overdue = entry.item
            return True
        domain = self._domain
        domain.overdue_at = overdue_at if domain.overdue_at is None else min(domain.overdue_at, overdue_at)
        return False

    def _note_obstacles(self, entry: Entry) -> None:
        shape, queue = entry.item.shape, entry.queue
        facts = queue.facts(shape)
        is_one_search = not (shape.partial or shape.replaces or shape.terms.flavors or entry.flavors or shape.clusters)
        facts.obstacles = obstacles(facts.plan, entry.assignment) if is_one_search else None
        queue.has_obstacles = True

    def _park(self, item: Item, reason: str, message: str) -> None:
        if item.last_park != (reason, message):
            item.last_park = reason, message
            self._result.parked.append(Park(item.workload, reason, message))


def _sent_to(entry: Entry, shape: Shape) -> str:
    """Return the cluster that a workload is dispatched to with this shape of it; empty: it stays in its own."""
    return "" if shape.cluster == entry.item.shape.cluster else shape.cluster


def _load(queue: ClusterQueue, node: Node, shape: Shape) -> float:
    """Return the largest share of a requested resource that the whole tree uses in the flavors that a shape may get."""
    root, shares = node.root, [0.0]
    for group in queue.facts(shape).plan.groups:
        for part in group.parts:
            options = [option for option in part.options if not option.mismatch]
            for resource in part.resources:
                frs = [option.frs[resource] for option in options]
                quota = sum(root.quota[fr] for fr in frs)
                shares.append(sum(root.usage[fr] for fr in frs) / quota if quota else 1.0)
    return max(shares)


def _flavor(assignment: Assignment) -> str:
    """Return the flavor of an assignment that has only one."""
    return next(choice.flavor for result in assignment.pod_sets for choice in result.choices.values())


T = TypeVar("T")


def largest_that_fits(pod_sets: Sequence[PodSet], attempt: Callable[[Sequence[int]], T | None]) -> T | None:
    """Return the result of `attempt` for the largest pod counts for which it is not None; None if there are none.

    All counts decrease together, each in proportion to its distance from `min_count`. The search is binary, as in
    Kueue's `PodSetReducer`.
    """
    counts = [pod_set.count for pod_set in pod_sets]
    deltas = [
        pod_set.count - (pod_set.count if pod_set.min_count is None else pod_set.min_count) for pod_set in pod_sets
    ]
    total = sum(deltas)
    if total == 0:
        return None
    best: T | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        found = attempt([count - delta * middle // total for count, delta in zip(counts, deltas, strict=True)])
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best
