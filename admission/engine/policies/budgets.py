"""Budgets: hours of resources that workloads may use in a period, charged as the ledger records their quota.

A Budget charges a workload from its admission until its quota is released: amount times microseconds, in integers, so
that accounts equal the ledger exactly. With `enforcement: Reserve` it also counts what an admitted workload may still
use until its time limit; of periods that follow, too, as far as the workload may run into them. What was reserved is
corrected when the workload ends. If it holds quota longer, because it waited for admission checks or its pods end
slowly, more is reserved, `_EXTENSION` at a time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
from admission.engine.policies.contract import AdmissionPolicy, Eviction, PolicyEvent, Refusal
from admission.engine.vocabulary import BUDGET_EXHAUSTED
from admission.model.budgets import MONEY, Sum
from admission.model.durations import format_duration
from admission.model.queues import Budget, ClusterQueue, Cohort, PriceBook

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from admission.engine.clusterqueue import Held
    from admission.engine.policies.contract import EngineView, PastAdmission
    from admission.engine.tree import FlavorResource
    from admission.model.budgets import BudgetScope, BudgetSpec
    from admission.model.price_books import PriceBookSpec
    from admission.model.workload import Workload

_MICROSECONDS: Final = 1_000_000
_EXTENSION: Final = 300 * _MICROSECONDS
"""What is reserved for a workload that holds quota longer than was reserved, in microseconds."""
_GRACE: Final = 600
"""Seconds for which workloads run on when hours are used up, unless a Budget says so."""
_MOST_SLOTS: Final = 400
"""Periods, or days of a rolling period, ahead for which usage is reserved: no time limit makes decisions slow."""
_MOST_CACHED: Final = 10_000
_LEARNED_FROM: Final = range(5, 51)
"""From how many run times others are learned: at least, and the last ones at most."""
_NEVER: Final = 1 << 62
_DAY: Final = 86_400 * _MICROSECONDS
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Budgets:
    """Configuration: none, as Budgets are queue objects. Without one it is idle."""

    def start(self, view: EngineView) -> BudgetAccounts:
        """Create the accounts of an engine, none so far."""
        return BudgetAccounts(view)


@dataclass(frozen=True, slots=True)
class BudgetsSpent(PolicyEvent):
    """What Budgets have charged so far, without the workloads that hold quota. Times in microseconds."""

    spent: Mapping[str, tuple[str, Mapping[int, Sequence[int]]]]
    """By Budget: what its history depends on, and by slot the amount times microseconds of each of its resources."""
    since: Mapping[str, int]
    """By uid of the workloads that hold quota: since when the ledger has the amounts that they hold."""
    runs: Mapping[_Runner, Sequence[int]] = field(default_factory=dict)
    """The last run times of each user in each LocalQueue, if a Budget learns from them."""
    used_up_since: Mapping[str, int] = field(default_factory=dict)
    """By Budget with `PreemptAfter`: since when its hours are used up."""


class _Runner(NamedTuple):
    """Whose run times are learned: those of a user in a LocalQueue."""

    namespace: str
    local_queue: str
    user: str

    @staticmethod
    def of(workload: Workload) -> _Runner:
        """Return whose run time that of a workload is."""
        return _Runner(workload.namespace, workload.queue, workload.user)


class _Facts(NamedTuple):
    """What is computed once of the spec of a Budget."""

    own: str
    """What its history depends on, without scopes."""
    scope: str
    """Its scope; empty: it has none."""
    keys: Sequence[tuple[str, str]]
    """The keys of its scope in `BudgetAccounts._scopes`."""

    @staticmethod
    def of(spec: BudgetSpec) -> _Facts:
        """Return those of a spec."""
        lines = [(each.name, each.price_book, each.flavors) for each in spec.resources]
        # Only what is kept longer, or learned, has to be read again.
        own = repr((spec.period.model_dump_json(), lines, spec.carry_over, spec.learn_run_times))
        return _Facts(own, *(("", ()) if spec.scope is None else (spec.scope.model_dump_json(), _keys(spec.scope))))


class _Prices:
    """The prices of a PriceBook, as the cost of one amount (a thousandth of a core, a byte, a device) for an hour."""

    def __init__(self, book: PriceBookSpec) -> None:
        self.digest = sha256(book.model_dump_json().encode()).hexdigest()[:16]
        """What the cost of past usage depends on."""
        self._book = book
        self._known: dict[tuple[FlavorResource, int], Fraction] = {}
        """Cache, by day since the epoch."""

    def cost(self, key: FlavorResource, amount: int, at: int) -> int:
        """Return the cost of an hour at the prices of the day (UTC) of an instant, in millionths of the currency.

        What has no price costs nothing.
        """
        day = at // _DAY
        price = self._known.get((key, day))
        if price is None:
            price = self._book.per_amount(*key, _EPOCH + timedelta(days=day)) * MONEY
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            self._known[key, day] = price
        return round(price * amount)


class _Line(NamedTuple):
    """What one entry of `spec.resources` counts."""

    resource: str
    """The resource; empty for money, which counts all that have a price."""
    flavors: frozenset[str]
    """Only of these; empty: of all."""
    prices: _Prices | None
    """None for hours, and for money whose PriceBook does not exist, which charges nothing."""


class _Charge(NamedTuple):
    """A workload that holds quota."""

    workload: Workload
    cluster_queue: str
    usage: tuple[tuple[FlavorResource, int], ...]
    since: int
    admitted_at: int


class _Entry:
    """What one account charges for a workload that holds quota: amounts, and until when usage is reserved."""

    __slots__ = ("amounts", "ends", "is_open", "since")

    def __init__(self, amounts: Sequence[int], since: int, ends: int) -> None:
        self.amounts = amounts
        """For each resource of the Budget."""
        self.since = since
        self.ends = ends
        """Microseconds since the epoch; `since` if nothing is reserved."""
        self.is_open = True


class _Account:
    """The account of one Budget. Amounts are lists with an item for each entry of `spec.resources`."""

    def __init__(
        self,
        name: str,
        spec: BudgetSpec,
        history: str,
        closed: Mapping[int, Sequence[int]],
        *,
        is_seeded: bool = True,
        created: int = 0,
        books: Mapping[str, _Prices],
    ) -> None:
        """`created`: when the Budget was, in microseconds; 0: it is not known. `books`: PriceBooks by name."""
        self.name = name
        self.spec = spec
        self.history = history
        """What `closed` depends on: scopes, period, and resources."""
        self.created = created
        self.is_seeded = is_seeded
        """Whether `closed` has all of the ledger's past."""
        self.reserves = spec.enforcement == "Reserve"
        self.grace = _MICROSECONDS * (_GRACE if spec.grace_seconds is None else spec.grace_seconds)
        """For how long workloads run on when the hours are used up, in microseconds."""
        self._days = spec.period.days
        self._lines = [
            _Line("" if each.price_book else each.name, frozenset(each.flavors), books.get(each.price_book))
            for each in spec.resources
        ]
        only = spec.resources[0]
        self._only = only.name if len(spec.resources) == 1 and not only.flavors and not only.price_book else ""
        """The resource, if there is one only, in all flavors."""
        self._asked: tuple[int, list[int]] = (-1, [])
        """An instant, and what was used up then."""
        self.closed: defaultdict[int, list[int]] = defaultdict(self._zeros)
        """By slot: amount times microseconds of admissions that have ended."""
        for slot, spent in closed.items():
            self.closed[slot] = list(spent)
        self.entries: dict[str, _Entry] = {}
        """By uid of workloads that hold quota."""
        self._reserved: defaultdict[int, list[int]] = defaultdict(self._zeros)
        """By slot, with Reserve: amount times microseconds of `entries`, from their start until their end."""
        self._rates = self._zeros()
        """Sums of the amounts of `entries`."""
        self._offsets = self._zeros()
        """Sums of amount times start in this slot: at a time t, `entries` have spent rate * t - offset in it."""
        self._slot = 0
        self._begins, self._ends = 0, 0
        """The present slot, with its bounds in microseconds."""
        self._first = 0
        """The instant from which usage counts now, in microseconds."""
        self._oldest = 0
        """The instant from which past usage matters: with `carryOver` also that of the period before."""
        self._carried: list[int] | None = None
        """What the period before has left, in amount times microseconds; None: not known yet."""
        self._counts_now = True
        """Whether the period has begun, and is not over."""
        self._limits: dict[tuple[int, int], int] = {}
        """Cache of `_limit`."""

    def _zeros(self) -> list[int]:
        return [0] * len(self._lines)

    def amounts(self, usage: Iterable[tuple[FlavorResource, int]], since: int) -> list[int]:
        """Return what a usage, held since an instant, has of each resource of the Budget, or costs for an hour."""
        if name := self._only:  # nearly always
            total = 0
            for (_, resource), amount in usage:
                if resource == name:
                    total += amount
            return [total]
        found = self._zeros()
        for key, amount in usage:
            flavor, resource = key
            for number, line in enumerate(self._lines):
                if line.flavors and flavor not in line.flavors:
                    continue
                if line.prices is not None:
                    found[number] += line.prices.cost(key, amount, since)
                elif resource == line.resource:
                    found[number] += amount
        return found

    def run_time(self, max_seconds: int | None, learned: int | None) -> int | None:
        """Return the microseconds that are reserved for a workload; None: it has no time limit, and needs one.

        `learned`: those that its like have needed; None: it is not known.
        """
        if max_seconds is None and learned is not None and self.spec.learn_run_times:
            return learned
        seconds = self.spec.assumed_seconds if max_seconds is None else max_seconds
        return None if seconds is None else seconds * _MICROSECONDS

    # --- accounts

    def follow(self, now: int) -> None:
        """Enter the slot of `now`."""
        if self._begins <= now < self._ends:
            return
        self._slot = self.spec.period.slot(now)
        self._begins, self._ends = self.spec.period.bounds(self._slot)
        if now < self._begins:  # a single period has not begun yet, or is over
            self._begins, self._ends = now, self._begins
        elif now >= self._ends:
            self._begins, self._ends = self._ends, _NEVER
        self._first = self.spec.period.bounds(self._slot - self._days + 1)[0]
        self._counts_now = self.spec.period.first_day is None or self._slot == 0
        oldest = self._slot - self._days
        self._carried = None
        self._oldest = self.spec.period.bounds(oldest)[0] if self.spec.carry_over else self._first
        for slot in [slot for slot in self.closed if slot < oldest]:
            del self.closed[slot]
        self._reserved.clear()
        self._rates, self._offsets = self._zeros(), self._zeros()
        for entry in self.entries.values():
            self._count(entry, 1)

    def _count(self, entry: _Entry, sign: int) -> None:
        """Add or remove an entry, as far as it is after the beginning of the period that counts."""
        if self.reserves:
            for slot, within in self._overlaps(max(entry.since, self._first), entry.ends):
                total = self._reserved[slot]
                for number, amount in enumerate(entry.amounts):
                    total[number] += sign * amount * within
            return
        begins = max(entry.since, self._first)
        for number, amount in enumerate(entry.amounts):
            self._rates[number] += sign * amount
            self._offsets[number] += sign * amount * begins

    def _overlaps(self, begins: int, ends: int) -> Sequence[tuple[int, int]]:
        """Return the slots between two instants (microseconds), and the microseconds within each."""
        if self._begins <= begins < ends <= self._ends and self._counts_now:  # nearly always
            return ((self._slot, ends - begins),)
        return [*self.spec.period.overlaps(begins, ends, most=_MOST_SLOTS)]

    def hold(self, uid: str, entry: _Entry, now: int) -> None:
        """Charge a workload from now on."""
        self.follow(now)
        self.entries[uid] = entry
        self._count(entry, 1)
        if entry.since < now:
            self._asked = -1, []
            if entry.since < self._first:
                self._carried = None

    def end(self, uid: str, now: int) -> None:
        """Stop charging a workload, and correct what was reserved for it."""
        self.follow(now)
        entry = self.entries.pop(uid)
        entry.is_open = False
        self._count(entry, -1)
        self.add_past(entry.amounts, entry.since, now)

    def extend(self, entry: _Entry, now: int) -> None:
        """Reserve more for a workload that holds quota longer than was reserved."""
        self.follow(now)
        self._count(entry, -1)
        entry.ends = now + _EXTENSION
        self._count(entry, 1)

    def add_past(self, amounts: Sequence[int], begins: int, ends: int) -> None:
        """Add an admission that has ended, as far as it is in the period that counts, or the one before."""
        if begins < self._first:
            self._carried = None
        for slot, within in self._overlaps(max(begins, self._oldest), ends):
            spent = self.closed[slot]
            for number, amount in enumerate(amounts):
                spent[number] += amount * within

    # --- questions

    def _limit(self, number: int, slot: int) -> int:
        """Return the hours of a resource in a slot, in amount times microseconds."""
        limit = self._limits.get((number, slot))
        if limit is None:
            limit = self._limits[number, slot] = self.spec.limit(self.spec.resources[number], slot)
        return limit + self._carry()[number] if self.spec.carry_over and slot == self._slot else limit

    def _carry(self) -> list[int]:
        """Return what the period before has left of each resource; nothing if there was no Budget then."""
        if self._carried is None:
            before = self._slot - 1
            begins, ends = self.spec.period.bounds(before)
            self._carried = self._zeros()
            if self.created < ends:
                for number, resource in enumerate(self.spec.resources):
                    held = (each.amounts[number] * max(ends - max(each.since, begins), 0) for each in self._running_on)
                    spent = (self.closed[before][number] if before in self.closed else 0) + sum(held)
                    self._carried[number] = max(self.spec.limit(resource, before) - spent, 0)
        return self._carried

    @property
    def _running_on(self) -> Iterator[_Entry]:
        """The workloads that hold quota since the period before."""
        return (each for each in self.entries.values() if each.since < self._first)

    def refusal(
        self,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        now: int,
        replaced: _Entry | None,
        learned: int | None,
    ) -> tuple[str, int | None] | None:
        """Return why the workload must not be admitted now, and when that may change by time alone (None: never).

        `learned`: the microseconds that its like have needed; None: it is not known.
        """
        if self.spec.action == "Warn":
            return None
        needed = self.amounts(usage.items(), now)
        if not any(needed):
            return None
        self.follow(now)
        return self._lacking(workload, needed, now, replaced, learned) if self.reserves else self._spent_up(needed, now)

    def _spent_up(self, needed: Sequence[int], now: int) -> tuple[str, int | None] | None:
        if self._asked[0] != now:  # what starts or ends in this instant changes nothing
            self._asked = now, self.used_up(now)
        number = next((number for number in self._asked[1] if needed[number]), None)
        return None if number is None else (self.is_used_up(number), self._ends)

    def _lacking(
        self, workload: Workload, needed: Sequence[int], now: int, replaced: _Entry | None, learned: int | None
    ) -> tuple[str, int | None] | None:
        run_time = self.run_time(workload.max_seconds, learned)
        if run_time is None:
            message = f"Budget {self.name} reserves hours until the time limit of a workload, and this one has none"
            return f"{message}: set the label sluice.dev/max-exec-time-seconds", None
        new = self._overlaps(now, now + run_time)
        if not new:
            return None
        freed = {} if replaced is None else dict(self._overlaps(now, replaced.ends))
        for number, amount in enumerate(needed):
            if not amount:
                continue
            before = 0 if replaced is None else replaced.amounts[number]
            more = {slot: amount * within - before * freed.get(slot, 0) for slot, within in new}
            for slot in range(new[0][0], new[-1][0] + self._days):
                left = self._limit(number, slot) - self._window(number, slot)
                if sum(more.get(slot - day, 0) for day in range(self._days)) > left:
                    assumed = run_time if workload.max_seconds is None else None
                    message = self._lacks(number, amount * run_time, slot, left, assumed)
                    return message, self._retry(slot, left // amount, now)
        return None

    def _lacks(self, number: int, needed: int, slot: int, left: int, assumed: int | None) -> str:
        """Return the message about a resource of which too little is left in a slot."""
        resource, period = self.spec.resources[number], self.spec.period
        texts = [resource.text(each) for each in (left, self._limit(number, slot), needed)]
        later = "" if slot == self._slot or period.last_days else f" in its period from {period.label(slot)}"
        message = f"Budget {self.name} has {texts[0]} of {texts[1]} {resource.unit} left{later}"
        why = "" if assumed is None else f" for an assumed {format_duration(round(assumed / _MICROSECONDS))}"
        return f"{message}, this needs {texts[2]}{why}{self._renewal()}"

    def _retry(self, slot: int, lasts: int, now: int) -> int:
        """Return when a workload may be admitted for which too little is left; that lasts for `lasts` microseconds."""
        # Near the end of a period most of the workload is in the next one.
        earlier = self._ends - lasts
        return earlier if slot == self._slot and earlier > now and self.spec.period.last_days is None else self._ends

    def _renewal(self) -> str:
        """Return the end of a message: when hours are given anew. Without a number that changes with time."""
        period = self.spec.period
        if period.first_day is not None:
            return f"; it ends after {period.last_day}"
        if period.last_days is not None:
            return f"; it counts the last {period.last_days} days"
        return f"; its next period begins on {period.label(self._slot + 1)}"

    def _past(self, number: int) -> int:
        return self._sum(self.closed, number, self._slot)

    def _running(self, number: int, now: int) -> int:
        return max(self._rates[number] * now - self._offsets[number], 0)

    def _window(self, number: int, slot: int) -> int:
        """Return what is spent or reserved in the days that end with a slot, or in that slot."""
        return self._sum(self.closed, number, slot) + self._sum(self._reserved, number, slot)

    def _sum(self, by_slot: Mapping[int, Sequence[int]], number: int, slot: int) -> int:
        if self._days == 1:
            return by_slot[slot][number] if slot in by_slot else 0
        return sum(by_slot[day][number] for day in range(slot - self._days + 1, slot + 1) if day in by_slot)

    def used_up(self, now: int) -> list[int]:
        """Return the positions of the resources of which the hours are used up."""
        self.follow(now)
        if not self._counts_now:
            return []
        spent = (self._past(number) + self._running(number, now) for number in range(len(self._lines)))
        return [number for number, each in enumerate(spent) if each >= self._limit(number, self._slot)]

    def used_up_at(self, now: int) -> int | None:
        """Return when what runs now will have used up the hours of a resource, in microseconds; None: never."""
        found = []
        for number in range(len(self._lines)) if self._counts_now else ():
            if (rate := self._rates[number]) > 0:
                left = self._limit(number, self._slot) - self._past(number) + self._offsets[number]
                found.append(max(-(-left // rate), now))
        return min((at for at in found if at < self._ends), default=None)

    def is_used_up(self, number: int) -> str:
        """Return the message about a resource of which the hours are used up."""
        resource = self.spec.resources[number]
        given = resource.text(self._limit(number, self._slot))
        return f"Budget {self.name} has spent its {given} {resource.unit}{self._renewal()}"

    def sums(self, now: int) -> Iterator[Sum]:
        """Yield what is spent, reserved and left of each resource, at `now`."""
        self.follow(now)
        first, counts = self._first, self._counts_now
        for number, resource in enumerate(self.spec.resources):
            running = sum(
                entry.amounts[number] * max(now - max(entry.since, first), 0) for entry in self.entries.values()
            )
            spent = self._past(number) + (running if counts else 0)
            reserved = self._window(number, self._slot) - spent if self.reserves and counts else 0
            yield Sum(resource, self._limit(number, self._slot), spent, max(reserved, 0))

    @property
    def bounds(self) -> tuple[int, int]:
        """Start and end of the present period, or of a single one, in microseconds."""
        return self.spec.period.bounds(self._slot)


class BudgetAccounts(AdmissionPolicy):
    """The policy: charges workloads to Budgets, and refuses those for which too few hours are left."""

    def __init__(self, view: EngineView) -> None:
        self._view = view
        self.idle = True
        self._specs: dict[str, BudgetSpec] = {}
        self._facts: dict[str, _Facts] = {}
        self._books: dict[str, _Prices] = {}
        """By PriceBook."""
        self._created: dict[str, int] = {}
        """By Budget, when it was, in microseconds."""
        self._cohorts: dict[tuple[str, str], str] = {}
        """(kind, name) of ClusterQueues and Cohorts to their Cohort, if they have one."""
        self._runs: defaultdict[_Runner, deque[int]] = defaultdict(lambda: deque(maxlen=_LEARNED_FROM[-1]))
        """The last run times in microseconds, while `_learns`."""
        self._learns = False
        """Whether a Budget learns run times."""
        self._learned_from = ""
        """Uid of the last row of the ledger from which a run time was learned."""
        self._outdated = False
        """Whether `_accounts` are not those of `_specs`."""
        self._accounts: dict[str, _Account] = {}
        self._charging: dict[tuple[str, str, str, tuple[str, ...]], tuple[_Account, ...]] = {}
        """Cache: (ClusterQueue, namespace, user, groups) to the accounts that charge a workload."""
        self._queues: dict[str, frozenset[str]] = {}
        """By Budget with Cohorts in its scope: the ClusterQueues in these."""
        self._scopes: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """Budgets by a list of their scope and an item of it, or ("", "") without lists: only these may match."""
        self._charges: dict[str, _Charge] = {}
        """By uid."""
        self._told = BudgetsSpent({}, {})
        self._since: dict[str, int] = {}
        """By uid of workloads that will be charged: since when the ledger has the amounts that they hold."""
        self._extensions: list[tuple[int, int, _Account, _Entry]] = []
        """Heap of (end of what is reserved, number, ...)."""
        self._number = count()
        self._used_up_since: dict[str, int] = {}
        """By Budget with `PreemptAfter`: since when its hours are seen to be used up, in microseconds."""
        self._preempting: tuple[_Account, ...] = ()
        """The accounts with `PreemptAfter`."""

    def _now(self) -> int:
        return round(self._view.now * _MICROSECONDS)

    # --- Budgets, and what they have spent

    def observe(self, event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted) -> None:
        """Note a changed Budget, or what Budgets have spent."""
        if isinstance(event, QueueObjectChanged):
            if isinstance(event.object, ClusterQueue | Cohort):
                item = event.object
                cohort = item.spec.cohort_name if isinstance(item, ClusterQueue) else item.spec.parent_name
                self._move((item.kind, item.name), cohort)
                return
            if isinstance(event.object, PriceBook):
                self._set_prices(event.object.name, _Prices(event.object.spec))
                return
            if not isinstance(event.object, Budget):
                return
            spec, now = event.object.spec, self._now()
            self._specs[event.object.name] = spec
            self._facts[event.object.name] = _Facts.of(spec)
            created = event.object.metadata.creation_timestamp
            self._created[event.object.name] = 0 if created is None else round(created.timestamp() * _MICROSECONDS)
            days = spec.period.days + spec.carry_over
            first = spec.period.bounds(spec.period.slot(now) - days + 1)[0]
            self.history = max(self.history, (now - first) / _MICROSECONDS, 1.0)
        elif isinstance(event, QueueObjectDeleted):
            if event.kind in (ClusterQueue.kind, Cohort.kind):
                self._move((event.kind, event.name), "")
                return
            if event.kind == PriceBook.kind:
                self._set_prices(event.name, None)
                return
            if event.kind != Budget.kind or self._specs.pop(event.name, None) is None:
                return
            self._used_up_since.pop(event.name, None)
        elif isinstance(event, BudgetsSpent):
            self._sync()
            self._told = event
            self._since = dict(event.since)
            self._used_up_since = {**event.used_up_since, **self._used_up_since}
            self._runs.clear()
            for runner, times in event.runs.items():
                self._runs[runner].extend(times)
            for uid in self._charges.keys() & self._since.keys():
                self._charges[uid] = self._charges[uid]._replace(since=self._since.pop(uid))
        else:
            return
        self._outdated = True
        self.idle = not self._specs
        if self.idle:
            self._charges.clear()
            self._sync()

    def _set_prices(self, book: str, prices: _Prices | None) -> None:
        """Note the prices of a PriceBook; None: it is deleted."""
        if prices is None:
            self._books.pop(book, None)
        else:
            self._books[book] = prices
        if any(book in spec.price_books for spec in self._specs.values()):
            self._outdated = True

    def _move(self, item: tuple[str, str], cohort: str) -> None:
        """Note the Cohort of a ClusterQueue or Cohort; empty: it has none."""
        if self._cohorts.get(item, "") == cohort:
            return
        self._cohorts[item] = cohort
        if not cohort:
            del self._cohorts[item]
        if any(spec.scope is not None and spec.scope.cohorts for spec in self._specs.values()):
            self._outdated = True

    def _queues_in(self, cohorts: Collection[str]) -> frozenset[str]:
        """Return the names of the ClusterQueues in Cohorts, and in those below."""
        found, below = set(cohorts), True
        while below:
            inner = [name for (kind, name), parent in self._cohorts.items() if kind == Cohort.kind and parent in found]
            below = not found.issuperset(inner)
            found.update(inner)
        return frozenset(
            name for (kind, name), cohort in self._cohorts.items() if kind == ClusterQueue.kind and cohort in found
        )

    @property
    def lacks_history(self) -> bool:
        """Whether a Budget is new, or charges other workloads than before."""
        self._sync()
        return not all(account.is_seeded for account in self._accounts.values())

    def _sync(self) -> None:
        """Create the accounts of Budgets that have changed; what they have spent is kept where it holds."""
        if not self._outdated:
            return
        self._outdated = False
        children: defaultdict[str, list[str]] = defaultdict(list)
        self._scopes.clear()
        self._learns = any(spec.learn_run_times for spec in self._specs.values())
        self._queues = {
            name: self._queues_in(spec.scope.cohorts)
            for name, spec in self._specs.items()
            if spec.scope is not None and spec.scope.cohorts
        }
        for name, spec in self._specs.items():
            if spec.parent:
                children[spec.parent].append(name)
            for key in self._facts[name].keys:
                self._scopes[key].append(name)
        before, now = self._accounts, self._now()
        self._accounts, self._charging = {}, {}
        new: set[_Account] = set()
        closed: Mapping[int, Sequence[int]]
        for name, spec in self._specs.items():
            history, created = self._history_of(name, children), self._created[name]
            known = before.get(name)
            told = self._told.spent.get(name)
            is_kept = known is not None and known.history == history
            if known is not None and is_kept and known.is_seeded and known.spec is spec and known.created == created:
                self._accounts[name] = known
                continue
            if known is not None and is_kept and known.is_seeded:
                closed, is_seeded = known.closed, True
            elif told is not None and told[0] == history:
                closed, is_seeded = told[1], True
            else:
                closed, is_seeded = known.closed if known is not None and is_kept else {}, False
            account = _Account(name, spec, history, closed, is_seeded=is_seeded, created=created, books=self._books)
            account.follow(now)
            self._accounts[name] = account
            new.add(account)
        self._preempting = tuple(each for each in self._accounts.values() if each.spec.action == "PreemptAfter")
        unknown = {name: told for name, told in self._told.spent.items() if name not in self._specs}
        self._told = BudgetsSpent(unknown, {})
        self._extensions = [each for each in self._extensions if self._accounts.get(each[2].name) is each[2]]
        heapify(self._extensions)
        for uid, charge in self._charges.items() if new else ():
            self._hold(uid, charge, now, [each for each in self._charged_by(charge) if each in new])

    def _history_of(self, name: str, children: Mapping[str, Sequence[str]]) -> str:
        """Return all that decides what a Budget has spent: its period, its resources, and the scopes it charges."""
        facts, books = self._facts[name], ""
        for book in self._specs[name].price_books:
            books += f" {book}={prices.digest if (prices := self._books.get(book)) is not None else None}"
        if name not in children and name not in self._queues:  # nearly all
            return f"{facts.own}{books} {facts.scope}"
        below, seen = [name], {name}
        for each in below:  # grows
            more = [child for child in children.get(each, ()) if child not in seen]
            below += more
            seen.update(more)
        scopes = {
            f"{scope} {sorted(self._queues.get(each, ()))}" for each in below if (scope := self._facts[each].scope)
        }
        return f"{facts.own}{books} {sorted(scopes)}"

    def events(self) -> Iterable[PolicyEvent]:
        """Return what has been spent, and since when workloads hold their quota."""
        self._sync()
        if self.idle:
            return ()
        spent = {
            name: (account.history, {slot: tuple(sums) for slot, sums in account.closed.items()})
            for name, account in self._accounts.items()
        }
        since = self._since | {uid: charge.since for uid, charge in self._charges.items()}
        runs = {runner: tuple(times) for runner, times in self._runs.items()}
        return (BudgetsSpent(spent, since, runs, dict(self._used_up_since)),)

    def seed(self, admissions: Iterable[PastAdmission]) -> None:
        """Charge past admissions; those that still hold quota are noted until `charge`."""
        self._sync()
        now = self._now()
        for row in admissions:
            if self._learns and row.to_at is not None and not row.resized:
                self._learn(row)
            accounts = self._charging_for(row.cluster_queue, row.namespace, row.user, row.groups)
            if not accounts:
                continue
            begins = round(row.from_at * _MICROSECONDS)
            if row.to_at is None:
                self._since[row.uid] = begins
                continue
            ends = round(row.to_at * _MICROSECONDS)
            usage = (((row.flavor, row.resource), row.amount),)
            for account in accounts:
                account.follow(now)
                if any(amounts := account.amounts(usage, begins)):
                    account.add_past(amounts, begins, ends)

    def _learn(self, row: PastAdmission) -> None:
        """Learn from a row of an admission that has ended; all of its rows say the same, and follow each other."""
        if row.uid and row.uid != self._learned_from:
            self._learned_from = row.uid
            run_time = round((row.to_at - row.from_at) * _MICROSECONDS) if row.to_at is not None else 0
            self._runs[_Runner(row.namespace, row.local_queue, row.user)].append(run_time)

    def _learned(self, workload: Workload) -> int | None:
        """Return the time within which 90 % of the last workloads of the same user in the same LocalQueue have ended.

        None: there are too few of them, or nothing is learned.
        """
        times = self._runs.get(_Runner.of(workload)) if self._runs else None
        if times is None or len(times) < _LEARNED_FROM[0]:
            return None
        return sorted(times)[-(-9 * len(times) // 10) - 1]

    def _charging_for(
        self, cluster_queue: str, namespace: str, user: str, groups: tuple[str, ...]
    ) -> tuple[_Account, ...]:
        """Return the accounts that charge a workload: those whose scope matches, and their parents."""
        self._sync()
        key = cluster_queue, namespace, user, groups
        found = self._charging.get(key)
        if found is None:
            names: dict[str, None] = {}
            near = [("", ""), ("users", user), ("namespaces", namespace), ("clusterQueues", cluster_queue)]
            near += [("groups", group) for group in groups]
            for name in (name for each in near for name in self._scopes.get(each, ())):
                scope = self._specs[name].scope
                if scope is None or not scope.matches(*key):
                    continue
                if scope.cohorts and cluster_queue not in self._queues[name]:
                    continue
                while name and name not in names and name in self._accounts:
                    names[name] = None
                    name = self._specs[name].parent
            if len(self._charging) >= _MOST_CACHED:
                self._charging.clear()
            found = self._charging[key] = tuple(self._accounts[name] for name in names)
        return found

    # --- workloads

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Refuse a workload for which a Budget has too few hours left."""
        del victims  # their hours are spent
        now = self._now()
        self._extend(now)
        for account in self._charging_for(cluster_queue, workload.namespace, workload.user, workload.groups):
            replaced = account.entries.get(workload.replaces) if workload.replaces else None
            found = account.refusal(workload, usage, now, replaced, self._learned(workload))
            if found is not None:
                message, retry = found
                return Refusal(BUDGET_EXHAUSTED, message, None if retry is None else retry / _MICROSECONDS)
        return None

    def charge(self, held: Held, *, restored: bool) -> None:
        """Charge a workload from now on, or since the ledger has what it holds."""
        workload, now = held.workload, self._now()
        since = self._since.pop(workload.uid, now) if restored else now
        charge = _Charge(
            workload, held.admission.cluster_queue, held.usage, since, round(held.admitted_at * _MICROSECONDS)
        )
        self._sync()
        self._charges[workload.uid] = charge
        self._hold(workload.uid, charge, now, self._charged_by(charge))

    def _hold(self, uid: str, charge: _Charge, now: int, accounts: Iterable[_Account]) -> None:
        for account in accounts:
            if not any(amounts := account.amounts(charge.usage, charge.since)):
                continue
            ends = charge.since
            if account.reserves:
                run_time = account.run_time(charge.workload.max_seconds, self._learned(charge.workload)) or _EXTENSION
                ends = max(charge.admitted_at + run_time, charge.since)
            entry = _Entry(amounts, charge.since, ends)
            account.hold(uid, entry, now)
            if account.reserves:
                heappush(self._extensions, (ends, next(self._number), account, entry))

    def release(self, held: Held) -> None:
        """Stop charging a workload: it is charged until now."""
        self._sync()
        now, uid = self._now(), held.workload.uid
        charge = self._charges.pop(uid)
        for account in self._charged_by(charge):
            if uid in account.entries:
                account.end(uid, now)
        if self._learns:
            self._runs[_Runner.of(charge.workload)].append(now - charge.admitted_at)

    def _charged_by(self, charge: _Charge) -> tuple[_Account, ...]:
        workload = charge.workload
        return self._charging_for(charge.cluster_queue, workload.namespace, workload.user, workload.groups)

    def _extend(self, now: int) -> None:
        """Reserve more for workloads that hold quota longer than was reserved."""
        while self._extensions and self._extensions[0][0] <= now:
            _, _, account, entry = heappop(self._extensions)
            if entry.is_open:
                account.extend(entry, now)
                heappush(self._extensions, (entry.ends, next(self._number), account, entry))

    def evict(self) -> Iterator[Eviction]:
        """Yield the workloads of Budgets whose hours have been used up for as long as workloads may run on."""
        self._sync()
        now = self._now()
        for account in self._preempting:
            used_up = account.used_up(now)
            if not used_up:
                self._used_up_since.pop(account.name, None)
                continue
            since = self._used_up_since.setdefault(account.name, now)
            if now < since + account.grace:
                continue
            for uid, entry in account.entries.items():
                number = next((number for number in used_up if entry.amounts[number]), None)
                if number is not None:
                    yield Eviction(uid, BUDGET_EXHAUSTED, account.is_used_up(number))

    def evicts_at(self) -> float | None:
        """Return when hours will be used up, or the time ends for which workloads run on."""
        found, now = [], self._now()
        for account in self._preempting:
            since = self._used_up_since.get(account.name)
            if since is None:
                found.append(account.used_up_at(now))
            elif since + account.grace > now:
                found.append(since + account.grace)
        at = min((each for each in found if each is not None), default=None)
        return None if at is None else at / _MICROSECONDS

    def used_up_since(self, name: str) -> float | None:
        """Return since when hours of a Budget with `PreemptAfter` are used up (Unix time, s); None: they are not."""
        since = self._used_up_since.get(name)
        return None if since is None else since / _MICROSECONDS

    def sums(self) -> Iterator[tuple[str, BudgetSpec, tuple[int, int], list[Sum]]]:
        """Yield each Budget with start and end of its period (microseconds), and what it has of each resource."""
        self._sync()
        now = self._now()
        self._extend(now)
        for name, account in self._accounts.items():
            sums = list(account.sums(now))
            yield name, account.spec, account.bounds, sums


def _keys(scope: BudgetScope) -> list[tuple[str, str]]:
    """Return the keys under which a scope is listed in `BudgetAccounts._scopes`: the items of one of its lists."""
    lists = {
        "users": scope.users,
        "groups": scope.groups,
        "namespaces": scope.namespaces,
        "clusterQueues": scope.cluster_queues,
    }
    field = next((field for field, items in lists.items() if items), "")
    return [(field, item) for item in lists.get(field, ("",))]
