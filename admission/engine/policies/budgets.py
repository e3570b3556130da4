"""Budgets: hours of resources that workloads may use in a period, charged as the ledger records their quota.

A Budget charges a workload from its admission until its quota is released: amount times microseconds, in integers, so
that accounts equal the ledger exactly. With `enforcement: Reserve` it also counts what an admitted workload may still
use until its time limit; of periods that follow, too, as far as the workload may run into them. What was reserved is
corrected when the workload ends. If it holds quota longer, because it waited for admission checks or its pods end
slowly, more is reserved, `_EXTENSION` at a time.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import blake2b, sha256
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
from admission.engine.policies.contract import AdmissionPolicy, Eviction, PolicyEvent, Refusal
from admission.engine.vocabulary import BUDGET_EXHAUSTED
from admission.model import sentences
from admission.model.budgets import MONEY, Sum
from admission.model.durations import format_duration
from admission.model.queues import Budget, ClusterQueue, Cohort, PriceBook

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
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
_UNLIMITED: Final = 1 << 200
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

    spent: Mapping[str, tuple[str, Sequence[Mapping[int, int]]]]
    """By Budget: what its history depends on, and of each of its resources the amount times microseconds by slot."""
    since: Mapping[str, int]
    """By uid of the workloads that hold quota: since when the ledger has the amounts that they hold."""
    runs: Mapping[_Runner, Sequence[int]] = field(default_factory=dict)
    """The last run times of each user in each LocalQueue, if a Budget learns from them."""
    used_up_since: Mapping[str, int] = field(default_factory=dict)
    """By Budget with `PreemptAfter` or `LowerPriority`: since when its hours are used up."""
    parts: Mapping[str, _PartsSpent] = field(default_factory=dict)
    """By Budget with parts: what those of its parts have spent that the engine knows."""


class _PartsSpent(NamedTuple):
    """What some parts of a Budget have spent, by those whose workloads they charge."""

    own: str
    """What the history of the Budget depends on, without scopes."""
    scopes: Mapping[str, int]
    """The parts, with the hashes of their scopes."""
    spent: Mapping[_Whose, Sequence[Mapping[int, int]]]
    """Of each resource of the Budget the amount times microseconds by slot."""


class _Whose(NamedTuple):
    """Whose workloads are charged: all of them to the same Budgets."""

    cluster_queue: str
    namespace: str
    user: str
    groups: tuple[str, ...]


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
    is_simple: bool
    """Whether all workloads match that have one of `keys`."""
    keys: Sequence[tuple[str, str]]
    """The keys of its scope in `BudgetAccounts._scopes`."""

    @staticmethod
    def of(spec: BudgetSpec) -> _Facts:
        """Return those of a spec."""
        lines = [(each.name, each.price_book, each.flavors) for each in spec.resources]
        # Only what is kept longer, or learned, has to be read again.
        own = repr((spec.period.model_dump_json(), lines, spec.carry_over, spec.learn_run_times))
        if (scope := spec.scope) is None:
            return _Facts(own, "", True, ())
        lists = scope.users, scope.groups, scope.namespaces, scope.cluster_queues
        is_simple = not scope.cohorts and sum(map(bool, lists)) <= 1
        return _Facts(own, scope.model_dump_json(), is_simple, _keys(scope))


class _Prices:
    """The prices of a PriceBook, as the cost of one amount (a thousandth of a core, a byte, a device) for an hour."""

    def __init__(self, book: PriceBookSpec) -> None:
        self.digest = sha256(book.model_dump_json().encode()).hexdigest()[:16]
        """What the cost of past usage depends on."""
        self.resources = frozenset(each.resource for each in book.prices if each.amount)
        """What costs something in a flavor."""
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


class _Line:
    """What an account counts for one entry of `spec.resources`, as amount times microseconds.

    Without Reserve what runs now counts as it goes: at a time t in the present slot, `offset + rate * t` is used.
    """

    __slots__ = ("account", "closed", "flavors", "number", "offset", "prices", "rate", "resource", "stops_at", "used")

    def __init__(self, account: _Account, number: int, prices: _Prices | None) -> None:
        entry = account.spec.resources[number]
        self.account = account
        self.number = number
        self.resource = "" if entry.price_book else entry.name
        """The resource; empty for money, which counts all that have a price."""
        self.flavors = frozenset(entry.flavors)
        """Only of these; empty: of all."""
        self.prices = prices
        """None for hours, and for money whose PriceBook does not exist, which charges nothing."""
        self.closed: defaultdict[int, int] = defaultdict(int)
        """By slot: what admissions have used that have ended."""
        self.used: defaultdict[int, int] = defaultdict(int)
        """By slot: `closed`, and of what runs now, what was used before the present slot; with Reserve also all that
        is reserved."""
        self.rate = 0
        """Sum of the amounts that are held now, without Reserve."""
        self.offset = 0
        self.stops_at = 0
        """How much may be used in the present slot before workloads are refused."""

    def counts(self, key: FlavorResource) -> bool:
        """Whether it counts a resource of a flavor."""
        if self.flavors and key[0] not in self.flavors:
            return False
        return key[1] == self.resource if self.resource else self.prices is not None

    def lowers(self, resource: str) -> bool:
        """Whether workloads that use a resource are lowered once it is used up: their flavors do not matter."""
        if self.resource:
            return resource == self.resource
        return self.prices is not None and resource in self.prices.resources

    def cost(self, key: FlavorResource, amount: int, since: int) -> int:
        """Return what counts of an amount that is held since an instant: the amount, or the money for an hour."""
        return amount if self.prices is None else self.prices.cost(key, amount, since)

    def recount(self) -> None:
        """Count what is closed only: the slot has changed, or what was closed."""
        account = self.account
        self.used = self.closed.copy()
        self.rate, self.offset, self.stops_at = 0, self.window(account.slot), account.stops_at(self.number)

    def window(self, slot: int) -> int:
        """Return what is used in the days that end with a slot, or in that slot: without what runs in the present one
        unless it is reserved."""
        days, used = self.account.days, self.used
        if days == 1:
            return used.get(slot, 0)
        return sum(used.get(day, 0) for day in range(slot - days + 1, slot + 1))

    # What runs without Reserve.

    def hold(self, amount: int, since: int) -> None:
        """Count an amount that is held since an instant."""
        account = self.account
        if since < account.counts_from:
            begins = account.begins
            for slot, within in account.overlaps(max(since, account.oldest), begins):
                self.used[slot] += amount * within
                if slot > account.slot - account.days:
                    self.offset += amount * within
            self.stops_at = account.stops_at(self.number)
            since = max(since, begins)
        self.rate += amount
        self.offset -= amount * since

    def end(self, amount: int, since: int, at: int) -> None:
        """Count no longer an amount that was held from an instant to another: it is closed."""
        self.rate -= amount
        self.offset += amount * at
        self.close(amount, since, at)

    def close(self, amount: int, since: int, at: int, closed: defaultdict[int, int] | None = None) -> None:
        """Add what was held from an instant to another to what is `closed`: here, unless another place is given."""
        account, closed = self.account, self.closed if closed is None else closed
        if since >= account.counts_from:
            closed[account.slot] += amount * (at - since)
            return
        for slot, within in account.overlaps(max(since, account.oldest), at):
            closed[slot] += amount * within

    # What is reserved.

    def reserve(self, amount: int, begins: int, ends: int) -> None:
        """Count what an amount uses between two instants; of a negative one: not any longer."""
        account = self.account
        if account.counts_from <= begins and ends <= account.ends:  # nearly always
            self.used[account.slot] += amount * (ends - begins)
            return
        for slot, within in account.overlaps(max(begins, account.oldest), ends):
            self.used[slot] += amount * within
        self.stops_at = account.stops_at(self.number)

    def settle(self, amount: int, since: int, ends: int, at: int) -> None:
        """Count what an amount has used that was held until `at`, instead of what was reserved for it."""
        self.reserve(-amount, since, ends)
        self.reserve(amount, since, at)
        self.close(amount, since, at)


class _Account:
    """The account of one Budget. Times are in microseconds."""

    __slots__ = (
        "_limits", "begins", "counts_from", "created", "days", "digest", "ends", "facts", "first", "grace",
        "is_seeded", "joined", "lines", "name", "oldest", "own", "parent", "reserves", "slot", "spec",
    )  # fmt: skip

    def __init__(
        self, name: str, spec: BudgetSpec, facts: _Facts, digest: int, created: int, books: Mapping[str, _Prices]
    ) -> None:
        """`digest`: of the scopes that it charges. `created`: when the Budget was; 0: it is not known. `books`:
        PriceBooks by name."""
        self.name = name
        self.spec = spec
        self.facts = facts
        self.parent = spec.parent
        self.own = facts.own
        """What `closed` depends on: period, resources, prices, and the scopes with this `digest`."""
        for book in spec.price_books:
            self.own += f" {book}={prices.digest if (prices := books.get(book)) is not None else None}"
        self.digest = digest
        self.created = created
        self.is_seeded = False
        """Whether the lines have closed all of the ledger's past."""
        self.joined: Mapping[str, int] = {}
        """Parts of which alone it lacks the past, with the hashes of their scopes; empty, and not `is_seeded`: it lacks
        all."""
        self.reserves = spec.enforcement == "Reserve"
        self.grace = _MICROSECONDS * (_GRACE if spec.grace_seconds is None else spec.grace_seconds)
        """For how long workloads run on when the hours are used up."""
        self.days = spec.period.days
        self.lines = [_Line(self, number, books.get(each.price_book)) for number, each in enumerate(spec.resources)]
        self.slot = 0
        self.begins, self.ends = 0, 0
        """The present slot, with its bounds: it counts again as soon as now is not between them."""
        self.counts_from = _NEVER
        """What is held since then is in the present slot only; `_NEVER`: a single period is not now."""
        self.first = 0
        """The instant from which usage counts now."""
        self.oldest = 0
        """The instant from which past usage matters: with `carryOver` also that of the period before."""
        self._limits: dict[tuple[int, int], int] = {}
        """Cache of `limit`."""

    def amounts(self, usage: Iterable[tuple[FlavorResource, int]], since: int) -> list[int]:
        """Return what a usage, held since an instant, has of each resource of the Budget, or costs for an hour."""
        found = [0] * len(self.lines)
        for key, amount in usage:
            for line in self.lines:
                if line.counts(key):
                    found[line.number] += line.cost(key, amount, since)
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

    @property
    def history(self) -> str:
        """What `closed` depends on."""
        return f"{self.own} {self.digest:x}"

    def follow(self, before: _Account, joined: Mapping[str, int]) -> None:
        """Take over what the account of before knows, if it charged the same, or all but parts that have `joined`."""
        if before.own != self.own:
            return
        if before.digest == self.digest:
            self.is_seeded, self.joined = before.is_seeded, before.joined
        elif before.digest + sum(joined.values()) == self.digest and (before.is_seeded or before.joined):
            self.joined = {**before.joined, **joined}
        else:
            return
        for line, known in zip(self.lines, before.lines, strict=True):
            line.closed = known.closed

    def add(self, closed: Iterable[Mapping[int, int]]) -> None:
        """Add what another engine has read from the ledger."""
        for line, more in zip(self.lines, closed, strict=True):
            for slot, amount in more.items():
                line.closed[slot] += amount

    def learn(self, closed: Iterable[Mapping[int, int]]) -> None:
        """Take over what another engine has read from the ledger."""
        self.is_seeded, self.joined = True, {}
        for line, known in zip(self.lines, closed, strict=True):
            line.closed = defaultdict(int, known)

    def turn(self, now: int) -> None:
        """Enter the slot of `now`; what runs has to be counted again."""
        period = self.spec.period
        self.slot = period.slot(now)
        self.begins, self.ends = period.bounds(self.slot)
        self.counts_from = self.begins if period.first_day is None or self.slot == 0 else _NEVER
        if now < self.begins:  # a single period has not begun yet, or is over
            self.begins, self.ends = now, self.begins
        elif now >= self.ends:
            self.begins, self.ends = self.ends, _NEVER
        self.first = period.bounds(self.slot - self.days + 1)[0]
        oldest = self.slot - self.days
        self.oldest = period.bounds(oldest)[0] if self.spec.carry_over else self.first
        for line in self.lines:
            for slot in [slot for slot in line.closed if slot < oldest]:
                del line.closed[slot]
            line.recount()

    def overlaps(self, begins: int, ends: int) -> Iterator[tuple[int, int]]:
        """Yield the slots between two instants, and the microseconds within each."""
        return self.spec.period.overlaps(begins, ends, most=_MOST_SLOTS)

    @property
    def counts_now(self) -> bool:
        """Whether the period has begun, and is not over."""
        return self.counts_from != _NEVER

    # --- questions

    def limit(self, number: int, slot: int) -> int:
        """Return the hours of a resource in a slot, in amount times microseconds."""
        limit = self._limits.get((number, slot))
        if limit is None:
            limit = self._limits[number, slot] = self.spec.limit(self.spec.resources[number], slot)
        return limit + self._carried(number) if self.spec.carry_over and slot == self.slot else limit

    @property
    def refuses(self) -> bool:
        """Whether it refuses workloads at all."""
        return self.spec.action not in ("Warn", "LowerPriority")

    def stops_at(self, number: int) -> int:
        """Return how much of a resource may be used in the present slot before workloads are refused."""
        if not self.refuses or not self.counts_now:
            return _UNLIMITED
        return self.limit(number, self.slot)

    def _carried(self, number: int) -> int:
        """Return what the period before has left of a resource; nothing if there was no Budget then."""
        before = self.slot - 1
        if self.created >= self.spec.period.bounds(before)[1]:
            return 0
        spent = self.lines[number].used.get(before, 0)
        return max(self.spec.limit(self.spec.resources[number], before) - spent, 0)

    def refusal(
        self, workload: Workload, needed: Sequence[int], now: int, replaced: _Charge | None, learned: int | None
    ) -> tuple[str, int | None] | None:
        """Return why the workload must not be admitted now, and when that may change by time alone (None: never).

        `learned`: the microseconds that its like have needed; None: it is not known.
        """
        if not self.refuses or not any(needed):
            return None
        if self.reserves:
            return self._lacking(workload, needed, now, replaced, learned)
        number = next((number for number in self.used_up(now) if needed[number]), None)
        return None if number is None else (self.is_used_up(number), self.ends)

    def _lacking(
        self, workload: Workload, needed: Sequence[int], now: int, replaced: _Charge | None, learned: int | None
    ) -> tuple[str, int | None] | None:
        run_time = self.run_time(workload.max_seconds, learned)
        if run_time is None:
            message = f"Budget {self.name} reserves hours until the time limit of a workload, and this one has none"
            return f"{message}: set the label sluice.dev/max-exec-time-seconds", None
        new = [*self.overlaps(now, now + run_time)]
        if not new:
            return None
        freed: dict[int, int] = {}
        given = [0] * len(needed)
        if replaced is not None and self in replaced.ends:
            freed = dict(self.overlaps(now, replaced.ends[self]))
            given = self.amounts(replaced.usage, replaced.since)
        for number, amount in enumerate(needed):
            if not amount:
                continue
            more = {slot: amount * within - given[number] * freed.get(slot, 0) for slot, within in new}
            for slot in range(new[0][0], new[-1][0] + self.days):
                left = self.limit(number, slot) - self.lines[number].window(slot)
                if sum(more.get(slot - day, 0) for day in range(self.days)) > left:
                    assumed = run_time if workload.max_seconds is None else None
                    message = self._lacks(number, amount * run_time, slot, left, assumed)
                    return message, self._retry(slot, left // amount, now)
        return None

    def _lacks(self, number: int, needed: int, slot: int, left: int, assumed: int | None) -> str:
        """Return the message about a resource of which too little is left in a slot."""
        resource, period = self.spec.resources[number], self.spec.period
        texts = [resource.text(each) for each in (left, self.limit(number, slot), needed)]
        later = "" if slot == self.slot or period.last_days else f" in its period from {period.label(slot)}"
        message = f"Budget {self.name} has {texts[0]} of {texts[1]} {resource.unit} left{later}"
        why = "" if assumed is None else f" for an assumed {format_duration(round(assumed / _MICROSECONDS))}"
        return f"{message}, this needs {texts[2]}{why}{self._renewal()}"

    def _retry(self, slot: int, lasts: int, now: int) -> int:
        """Return when a workload may be admitted for which too little is left; that lasts for `lasts` microseconds."""
        # Near the end of a period most of the workload is in the next one.
        earlier = self.ends - lasts
        return earlier if slot == self.slot and earlier > now and self.spec.period.last_days is None else self.ends

    def _renewal(self) -> str:
        """Return the end of a message: when hours are given anew. Without a number that changes with time."""
        period = self.spec.period
        if period.first_day is not None:
            return f"; it ends after {period.last_day}"
        if period.last_days is not None:
            return f"; it counts the last {period.last_days} days"
        return f"; its next period begins on {period.label(self.slot + 1)}"

    def used_up(self, now: int) -> list[int]:
        """Return the positions of the resources of which the hours are used up."""
        if not self.counts_now:
            return []
        return [
            line.number for line in self.lines if line.offset + line.rate * now >= self.limit(line.number, self.slot)
        ]

    def used_up_at(self, now: int, known: Container[_Line] = ()) -> int | None:
        """Return when what runs now will have used up the hours of a resource, in microseconds; None: never.

        `known`: lines of which that is known, and that do not matter any more.
        """
        found = []
        for line in self.lines if self.counts_now else ():
            if line.rate > 0 and line not in known:
                left = self.limit(line.number, self.slot) - line.offset
                found.append(max(-(-left // line.rate), now))
        return min((at for at in found if at < self.ends), default=None)

    def is_used_up(self, number: int) -> str:
        """Return the message about a resource of which the hours are used up."""
        resource = self.spec.resources[number]
        given = resource.text(self.limit(number, self.slot))
        return f"Budget {self.name} has spent its {given} {resource.unit}{self._renewal()}"

    def sums(self, running: Mapping[_Line, int]) -> Iterator[Sum]:
        """Yield what is spent, reserved and left of each resource; `running`: what workloads that hold quota have used
        in the days that count."""
        for line, resource in zip(self.lines, self.spec.resources, strict=True):
            closed = sum(line.closed.get(slot, 0) for slot in range(self.slot - self.days + 1, self.slot + 1))
            spent = closed + (running.get(line, 0) if self.counts_now else 0)
            reserved = line.window(self.slot) - spent if self.reserves and self.counts_now else 0
            yield Sum(resource, self.limit(line.number, self.slot), spent, max(reserved, 0))

    @property
    def bounds(self) -> tuple[int, int]:
        """Start and end of the present period, or of a single one, in microseconds."""
        return self.spec.period.bounds(self.slot)


class _Lines(NamedTuple):
    """The lines that count one resource of one flavor for the workloads of a group."""

    charged: tuple[_Line, ...]
    """Of Budgets that charge as it goes."""
    reserved: tuple[_Line, ...]
    """Of Budgets with Reserve."""


class _Group:
    """The accounts that charge the workloads of one ClusterQueue, namespace, user and groups."""

    __slots__ = ("_lines", "accounts")

    def __init__(self, accounts: Iterable[_Account]) -> None:
        self.accounts = tuple(accounts)
        self._lines: dict[FlavorResource, _Lines] = {}

    def lines(self, key: FlavorResource) -> _Lines:
        """Return the lines that count a resource of a flavor."""
        found = self._lines.get(key)
        if found is None:
            charged: list[_Line] = []
            reserved: list[_Line] = []
            for account in self.accounts:
                for line in account.lines:
                    if line.counts(key):
                        (reserved if account.reserves else charged).append(line)
            found = self._lines[key] = _Lines(tuple(charged), tuple(reserved))
        return found


class _Charge:
    """A workload that holds quota."""

    __slots__ = ("admitted_at", "cluster_queue", "ends", "group", "since", "usage", "workload")

    def __init__(self, held: Held, group: _Group, since: int) -> None:
        self.workload = held.workload
        self.cluster_queue = held.admission.cluster_queue
        self.usage = held.usage
        self.group = group
        self.since = since
        self.admitted_at = round(held.admitted_at * _MICROSECONDS)
        self.ends: dict[_Account, int] = {}
        """Until when usage is reserved, by account with Reserve."""


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
        self._of_cohorts: set[str] = set()
        """The Budgets with Cohorts in their scope."""
        self._learning: set[str] = set()
        """Those that learn run times."""
        self._of_action: defaultdict[str, set[str]] = defaultdict(set)
        """Those with each `action`."""
        self._runs: defaultdict[_Runner, deque[int]] = defaultdict(lambda: deque(maxlen=_LEARNED_FROM[-1]))
        """The last run times in microseconds, while `_learns`."""
        self._learns = False
        """Whether a Budget learns run times."""
        self._learned_from = ""
        """Uid of the last row of the ledger from which a run time was learned."""
        self._outdated: set[str] = set()
        """The Budgets of which the accounts are not those of `_specs`."""
        self._accounts: dict[str, _Account] = {}
        self._unseeded: set[str] = set()
        """The accounts that lack some of the ledger's past."""
        self._begins, self._ends = 0, 0
        """While now is between them, in microseconds, all accounts are in their present slots."""
        self._groups: dict[_Whose, _Group] = {}
        """Cache."""
        self._queues: dict[str, frozenset[str]] = {}
        """By Budget with Cohorts in its scope: the ClusterQueues in these."""
        self._scopes: defaultdict[str, defaultdict[str, list[_Account]]] = defaultdict(lambda: defaultdict(list))
        """Accounts by a list of their scope and an item of it, both empty without lists: only these may match."""
        self._parts: dict[str, set[str]] = {}
        """By Budget that is the parent of others: these."""
        self._entered: dict[str, tuple[int, str]] = {}
        """By Budget: the hash of its scope, and its parent, as they are contained in `_digests`."""
        self._digests: defaultdict[str, int] = defaultdict(int)
        """By Budget: the sum of the hashes of its scope and of those of its parts, so that a new part costs little."""
        self._joined: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """By Budget: parts that are new since its account was made, with the hashes of their scopes."""
        self._read: defaultdict[str, dict[_Whose, list[defaultdict[int, int]]]] = defaultdict(dict)
        """By Budget with parts: what was read from the ledger of it, by whose workloads were charged."""
        self._charges: dict[str, _Charge] = {}
        """By uid."""
        self._told: dict[str, tuple[str, Sequence[Mapping[int, int]]]] = {}
        """What other engines have said that Budgets have spent, of those without an account that knows it."""
        self._told_of_parts: dict[str, _PartsSpent] = {}
        """What they have said of new parts."""
        self._since: dict[str, int] = {}
        """By uid of workloads that will be charged: since when the ledger has the amounts that they hold."""
        self._extensions: list[tuple[int, int, _Charge, _Account]] = []
        """Heap of (end of what is reserved, number, ...); some are outdated."""
        self._number = count()
        self._used_up_since: dict[str, int] = {}
        """By Budget with `PreemptAfter` or `LowerPriority`: since when its hours are seen to be used up, in
        microseconds."""
        self._preempting: tuple[_Account, ...] = ()
        """The accounts with `PreemptAfter`."""
        self._lowering: tuple[_Account, ...] = ()
        """The accounts with `LowerPriority`."""
        self._spent: dict[_Line, None] = {}
        """Their lines of which the hours were used up at the last `lowering_changed`."""

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
            created = event.object.metadata.creation_timestamp
            self._created[event.object.name] = 0 if created is None else round(created.timestamp() * _MICROSECONDS)
            self._set_spec(event.object.name, event.object.spec)
        elif isinstance(event, QueueObjectDeleted):
            if event.kind in (ClusterQueue.kind, Cohort.kind):
                self._move((event.kind, event.name), "")
                return
            if event.kind == PriceBook.kind:
                self._set_prices(event.name, None)
                return
            if event.kind != Budget.kind or event.name not in self._specs:
                return
            self._set_spec(event.name, None)
            self._used_up_since.pop(event.name, None)
        elif isinstance(event, BudgetsSpent):
            self._sync()
            self._told |= {
                name: told for name, told in event.spent.items() if name in self._unseeded or name not in self._accounts
            }
            self._told_of_parts |= {name: told for name, told in event.parts.items() if name in self._unseeded}
            self._outdated |= self._told.keys() & self._unseeded
            self._since.update(event.since)
            self._used_up_since = {**event.used_up_since, **self._used_up_since}
            for runner, times in event.runs.items():
                if len(times) >= len(self._runs[runner]):  # another Budget may have needed a longer past
                    self._runs[runner] = deque(times, _LEARNED_FROM[-1])
            for uid in self._charges.keys() & event.since.keys():
                charge, since = self._charges[uid], self._since.pop(uid)
                if charge.since != since:
                    charge.since = since
                    self._recount(charge.group.accounts)
        else:
            return
        self.idle = not self._specs
        if self.idle:
            self._charges.clear()
            self._sync()

    def _set_spec(self, name: str, spec: BudgetSpec | None) -> None:
        """Note the spec of a Budget; None: it is deleted."""
        self._outdate(name)
        if (before := self._specs.get(name)) is not None:
            self._parts.get(before.parent, set()).discard(name)
            self._of_cohorts.discard(name)
            self._learning.discard(name)
            self._of_action[before.action].discard(name)
        if spec is None:
            del self._specs[name], self._facts[name]
            self._told.pop(name, None)
            self._enter_scope(name, 0, "")
            return
        self._specs[name], facts = spec, _Facts.of(spec)
        self._facts[name] = facts
        if spec.parent:
            self._parts.setdefault(spec.parent, set()).add(name)
        if spec.learn_run_times:
            self._learning.add(name)
        self._of_action[spec.action].add(name)
        if spec.scope is not None and spec.scope.cohorts:
            self._of_cohorts.add(name)
        self._outdate(name)
        if name not in self._of_cohorts:  # of these it also depends on the ClusterQueues
            self._enter_scope(name, _hash(facts.scope), spec.parent)
        now, days = self._now(), spec.period.days + spec.carry_over
        first = spec.period.bounds(spec.period.slot(now) - days + 1)[0]
        self.history = max(self.history, (now - first) / _MICROSECONDS, 1.0)

    def _enter_scope(self, name: str, scope: int, parent: str) -> None:
        """Enter the hash of the scope of a Budget, and its parent, into the digests of all that it is a part of."""
        before, parent_before = self._entered.get(name, (0, ""))
        if (scope, parent) == (before, parent_before):
            return
        for _ in self._above(parent_before, -self._digests[name]):
            pass
        self._digests[name] += scope - before
        self._entered[name] = scope, parent
        joined = {part: self._entered[part][0] for part in self._with_parts(name) if part in self._entered}
        for above in self._above(parent, self._digests[name]):
            self._joined[above] |= joined

    def _above(self, name: str, more: int) -> Iterator[str]:
        """Add to the digests of a Budget and of those that it is a part of; yield them."""
        seen = set()
        while name and name not in seen:
            seen.add(name)
            self._digests[name] += more
            yield name
            name = self._entered[name][1] if name in self._entered else ""

    def _outdate(self, name: str) -> None:
        """Note that a Budget has changed, and with it those of which it is a part: they charge what it charges."""
        seen = set()
        while name and name not in seen:
            seen.add(name)
            self._outdated.add(name)
            name = self._specs[name].parent if name in self._specs else ""

    def _set_prices(self, book: str, prices: _Prices | None) -> None:
        """Note the prices of a PriceBook; None: it is deleted."""
        if prices is None:
            self._books.pop(book, None)
        else:
            self._books[book] = prices
        self._outdated.update(name for name, spec in self._specs.items() if book in spec.price_books)

    def _move(self, item: tuple[str, str], cohort: str) -> None:
        """Note the Cohort of a ClusterQueue or Cohort; empty: it has none."""
        if self._cohorts.get(item, "") == cohort:
            return
        self._cohorts[item] = cohort
        if not cohort:
            del self._cohorts[item]
        for name in self._of_cohorts:
            self._outdate(name)

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
    def lacking(self) -> Collection[tuple[str, str]]:
        """The Budgets that are new, or charge other workloads than before, and what decides what they charge."""
        self._sync()
        if not self._unseeded:
            return ()
        found: set[tuple[str, str]] = set()
        needed = set()
        for name in self._unseeded:
            needed |= {name, *(self._accounts[name].joined or self._with_parts(name))}
        for name in needed:
            found.add((Budget.kind, name))
            found.update((PriceBook.kind, book) for book in self._specs[name].price_books)
            if name in self._of_cohorts:
                found.update(self._cohorts)
        return found

    def _with_parts(self, name: str) -> list[str]:
        """Return a Budget, and those that are parts of it, also indirectly."""
        found, seen = [name], {name}
        for each in found:  # grows
            more = self._parts.get(each, set()) - seen
            found += more
            seen.update(more)
        return found

    def _sync(self) -> None:
        """Create the accounts of Budgets that have changed; what they have spent is kept where it holds."""
        if not self._outdated:
            return
        outdated, self._outdated = self._outdated, set()
        self._learns = bool(self._learning)
        if not self._learns:
            self._runs.clear()
        self._queues = {name: self._queues_in(self._scope_of(name).cohorts) for name in self._of_cohorts}
        for name in outdated & self._of_cohorts:
            text = f"{self._facts[name].scope} {sorted(self._queues[name])}"
            self._enter_scope(name, _hash(text), self._specs[name].parent)
        for name in outdated:
            joined = self._joined.pop(name, {})
            known = self._accounts.get(name)
            if known is not None:
                for kind, item in known.facts.keys:
                    self._scopes[kind][item].remove(known)
            if (spec := self._specs.get(name)) is None:
                self._accounts.pop(name, None)
                self._unseeded.discard(name)
                continue
            facts = self._facts[name]
            account = _Account(name, spec, facts, self._digests[name], self._created[name], self._books)
            for kind, item in facts.keys:
                insort(self._scopes[kind][item], account, key=lambda each: each.name)
            told = self._told.pop(name, None)
            if known is not None:
                account.follow(known, joined)
            if told is not None and told[0] == account.history and not account.is_seeded:
                account.learn(told[1])
            self._accounts[name] = account
            (self._unseeded.discard if account.is_seeded else self._unseeded.add)(name)
        for name in outdated & self._told_of_parts.keys():
            self._learn_of_parts(name, self._told_of_parts.pop(name))
        self._preempting = tuple(self._accounts[name] for name in sorted(self._of_action["PreemptAfter"]))
        self._lowering = tuple(self._accounts[name] for name in sorted(self._of_action["LowerPriority"]))
        self._groups.clear()
        accounts = set(self._accounts.values())
        for charge in self._charges.values():
            charge.group = self._group_of(charge.workload, charge.cluster_queue)
            if charge.ends:
                charge.ends = {account: end for account, end in charge.ends.items() if account in accounts}
        self._ends = 0

    def _scope_of(self, name: str) -> BudgetScope:
        scope = self._specs[name].scope
        assert scope is not None
        return scope

    def _learn_of_parts(self, name: str, told: _PartsSpent) -> None:
        """Add what new parts of a Budget have spent, of workloads that it did not charge before."""
        account = self._accounts.get(name)
        if account is None or account.is_seeded or not account.joined or told.own != account.own:
            return
        if any(told.scopes.get(part) != scope for part, scope in account.joined.items()):
            return
        for whose, closed in told.spent.items():
            charging = (each for each in self._matching(whose) if each.name not in account.joined)
            if not any(account in self._charging(each) for each in charging):
                account.add(closed)
        account.is_seeded, account.joined = True, {}
        self._unseeded.discard(name)

    def _recount(self, accounts: Iterable[_Account]) -> None:
        """Have accounts counted again before the next question."""
        for account in accounts:
            account.ends = self._ends = 0

    def _enter(self, now: int) -> None:
        """Bring all accounts to their slots of `now`."""
        if self._outdated:
            self._sync()
        if self._begins <= now < self._ends:
            return
        turned = {account for account in self._accounts.values() if not account.begins <= now < account.ends}
        for account in turned:
            account.turn(now)
        self._begins = max((account.begins for account in self._accounts.values()), default=now)
        self._ends = min((account.ends for account in self._accounts.values()), default=_NEVER)
        for charge in self._charges.values() if turned else ():
            self._count(charge, turned)

    def events(self) -> Iterable[PolicyEvent]:
        """Return what has been spent, and since when workloads hold their quota."""
        self._sync()
        if self.idle:
            return ()
        spent = {
            name: (account.history, [dict(line.closed) for line in account.lines])
            for name, account in self._accounts.items()
        }
        since = self._since | {uid: charge.since for uid, charge in self._charges.items()}
        runs = {runner: tuple(times) for runner, times in self._runs.items()}
        parts = {
            name: _PartsSpent(self._accounts[name].own, self._scopes_below(name), self._read.get(name, {}))
            for name in self._parts
            if self._parts[name] and name in self._accounts
        }
        return (BudgetsSpent(spent, since, runs, dict(self._used_up_since), parts),)

    def _scopes_below(self, name: str) -> dict[str, int]:
        """Return the parts of a Budget, also indirect ones, with the hashes of their scopes."""
        return {part: self._entered[part][0] for part in self._with_parts(name) if part != name}

    def seed(self, admissions: Iterable[PastAdmission]) -> None:
        """Charge past admissions; those that still hold quota are noted until `charge`."""
        self._enter(self._now())
        for row in admissions:
            if self._learns and row.to_at is not None and not row.resized:
                self._learn(row)
            whose = _Whose(row.cluster_queue, row.namespace, row.user, row.groups)
            group = self._group(whose)
            if not group.accounts:
                continue
            begins = round(row.from_at * _MICROSECONDS)
            if row.to_at is None:
                self._since[row.uid] = begins
                continue
            ends, key = round(row.to_at * _MICROSECONDS), (row.flavor, row.resource)
            for line in (line for lines in group.lines(key) for line in lines):
                cost = line.cost(key, row.amount, begins)
                line.close(cost, begins, max(begins, ends))
                if (account := line.account).name in self._parts:
                    read = self._read[account.name].get(whose)
                    if read is None:
                        read = self._read[account.name][whose] = [defaultdict(int) for _ in account.lines]
                    line.close(cost, begins, max(begins, ends), read[line.number])
            self._recount(group.accounts)

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

    def _group_of(self, workload: Workload, cluster_queue: str) -> _Group:
        return self._group(_Whose(cluster_queue, workload.namespace, workload.user, workload.groups))

    def _group(self, whose: _Whose) -> _Group:
        """Return the accounts that charge a workload: those whose scope matches, and their parents."""
        found = self._groups.get(whose)
        if found is None:
            accounts: dict[_Account, None] = {}
            for account in self._matching(whose):
                for charging in self._charging(account):
                    if charging in accounts:
                        break
                    accounts[charging] = None
            if len(self._groups) >= _MOST_CACHED:
                self._groups.clear()
            found = self._groups[whose] = _Group(accounts)
        return found

    def _charging(self, account: _Account) -> Iterator[_Account]:
        """Yield an account, and those of the Budgets that it is a part of."""
        charging: _Account | None = account
        while charging is not None:
            yield charging
            charging = self._accounts.get(charging.parent) if charging.parent else None

    def _matching(self, whose: _Whose) -> Iterator[_Account]:
        """Yield the accounts whose scope matches."""
        scopes = self._scopes
        near = [*scopes[""][""], *scopes["users"].get(whose.user, ())]
        near += scopes["namespaces"].get(whose.namespace, ())
        near += scopes["clusterQueues"].get(whose.cluster_queue, ())
        for group in whose.groups if scopes["groups"] else ():
            near += scopes["groups"].get(group, ())
        for account in near:
            if account.facts.is_simple or self._matches(account, whose):
                yield account

    def _matches(self, account: _Account, whose: _Whose) -> bool:
        """Whether workloads are in the scope of a Budget."""
        scope = self._scope_of(account.name)
        return scope.matches(*whose) and (not scope.cohorts or whose.cluster_queue in self._queues[account.name])

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
        group = self._group_of(workload, cluster_queue)
        if self._permits(workload, group, usage, now):
            return None
        replaced = self._charges.get(workload.replaces) if workload.replaces else None
        for account in group.accounts:
            needed = account.amounts(usage.items(), now)
            found = account.refusal(workload, needed, now, replaced, self._learned(workload))
            if found is not None:
                message, retry = found
                return Refusal(BUDGET_EXHAUSTED, message, None if retry is None else retry / _MICROSECONDS)
        return None

    def _permits(self, workload: Workload, group: _Group, usage: Mapping[FlavorResource, int], now: int) -> bool:
        """Whether no account refuses a workload for certain: nearly always, and quickly."""
        needed: dict[_Line, int] = {}
        for key, amount in usage.items():
            if not amount:
                continue
            lines = group.lines(key)
            for line in lines.charged:
                if line.offset + line.rate * now >= line.stops_at:
                    return False
            for line in lines.reserved:
                needed[line] = needed.get(line, 0) + line.cost(key, amount, now)
        for line, amount in needed.items():
            account, seconds = line.account, workload.max_seconds
            if seconds is None and ((seconds := account.spec.assumed_seconds) is None or self._learns):
                return False
            run_time = seconds * _MICROSECONDS
            if account.days > 1 or not account.counts_from <= now <= account.ends - run_time:
                return False
            if line.used[account.slot] + amount * run_time > line.stops_at:
                return False
        return True

    def charge(self, held: Held, *, restored: bool) -> None:
        """Charge a workload from now on, or since the ledger has what it holds."""
        workload, now = held.workload, self._now()
        since = self._since.pop(workload.uid, now) if restored else now
        self._enter(now)
        charge = _Charge(held, self._group_of(workload, held.admission.cluster_queue), since)
        self._charges[workload.uid] = charge
        self._count(charge)

    def _count(self, charge: _Charge, accounts: Collection[_Account] | None = None) -> None:
        """Count what a workload holds in its accounts, or in those of them that are in `accounts`."""
        since = charge.since
        for key, amount in charge.usage:
            lines = charge.group.lines(key)
            for line in lines.charged:
                if accounts is None or line.account in accounts:
                    line.hold(amount if line.prices is None else line.cost(key, amount, since), since)
            for line in lines.reserved:
                if accounts is None or line.account in accounts:
                    ends = charge.ends.get(line.account) or self._reserve(charge, line.account)
                    line.reserve(line.cost(key, amount, since), since, ends)

    def _reserve(self, charge: _Charge, account: _Account) -> int:
        """Decide until when usage of a workload is reserved."""
        run_time = account.run_time(charge.workload.max_seconds, self._learned(charge.workload)) or _EXTENSION
        ends = charge.ends[account] = max(charge.admitted_at + run_time, charge.since)
        heappush(self._extensions, (ends, next(self._number), charge, account))
        return ends

    def release(self, held: Held) -> None:
        """Stop charging a workload: it is charged until now."""
        now = self._now()
        self._enter(now)
        charge = self._charges.pop(held.workload.uid)
        for account in charge.group.accounts if self._unseeded else ():
            account.joined = {}  # what this is charged cannot be told any more from what the ledger will have of it
        since = charge.since
        at = max(now, since)
        for key, amount in charge.usage:
            lines = charge.group.lines(key)
            for line in lines.charged:
                line.end(amount if line.prices is None else line.cost(key, amount, since), since, at)
            for line in lines.reserved:
                line.settle(line.cost(key, amount, since), since, charge.ends[line.account], at)
        charge.ends.clear()
        if self._learns:
            self._runs[_Runner.of(charge.workload)].append(now - charge.admitted_at)

    def _extend(self, now: int) -> None:
        """Reserve more for workloads that hold quota longer than was reserved."""
        self._enter(now)
        while self._extensions and self._extensions[0][0] <= now:
            ends, _, charge, account = heappop(self._extensions)
            if charge.ends.get(account) != ends:
                continue
            later = charge.ends[account] = now + _EXTENSION
            for key, amount in charge.usage:
                for line in account.lines:
                    if line.counts(key):
                        cost = line.cost(key, amount, charge.since)
                        line.reserve(-cost, charge.since, ends)
                        line.reserve(cost, charge.since, later)
            heappush(self._extensions, (later, next(self._number), charge, account))

    def lowers(self, workload: Workload, cluster_queue: str, usage: Mapping[FlavorResource, int]) -> str:
        """Say which Budget with `LowerPriority` has spent the hours of something that the workload uses."""
        if not self._spent:
            return ""
        accounts = self._group_of(workload, cluster_queue).accounts
        for line in self._spent:
            if line.account in accounts and any(amount and line.lowers(key[1]) for key, amount in usage.items()):
                return sentences.runs_on_idle_quota(line.account.is_used_up(line.number))
        return ""

    def lowering_changed(self) -> bool:
        """Note of which Budgets with `LowerPriority` the hours are used up now."""
        if not self._lowering and not self._spent and not self._outdated:
            return False
        now = self._now()
        self._enter(now)
        spent: dict[_Line, None] = {}
        for account in self._lowering:
            lines = [account.lines[number] for number in account.used_up(now)]
            spent |= dict.fromkeys(lines)
            if lines:
                self._used_up_since.setdefault(account.name, now)
            else:
                self._used_up_since.pop(account.name, None)
        changed = spent != self._spent
        self._spent = spent
        return changed

    def evict(self) -> Iterator[Eviction]:
        """Yield the workloads of Budgets whose hours have been used up for as long as workloads may run on."""
        now = self._now()
        self._enter(now)
        for account in self._preempting:
            used_up = account.used_up(now)
            if not used_up:
                self._used_up_since.pop(account.name, None)
                continue
            since = self._used_up_since.setdefault(account.name, now)
            if now < since + account.grace or not any(account.lines[number].rate for number in used_up):
                continue
            for uid, charge in self._charges.items():
                if account in charge.group.accounts:
                    amounts = account.amounts(charge.usage, charge.since)
                    if (number := next((number for number in used_up if amounts[number]), None)) is not None:
                        yield Eviction(uid, BUDGET_EXHAUSTED, account.is_used_up(number))

    def evicts_at(self) -> float | None:
        """Return when hours will be used up, are given anew, or the time ends for which workloads run on."""
        found, now = [], self._now()
        self._enter(now)
        for account in self._preempting:
            since = self._used_up_since.get(account.name)
            if since is None:
                found.append(account.used_up_at(now))
            elif since + account.grace > now:
                found.append(since + account.grace)
        for account in self._lowering:
            found.append(account.used_up_at(now, self._spent))
            if any(line in self._spent for line in account.lines):
                found.append(account.ends)
        at = min((each for each in found if each is not None), default=None)
        return None if at is None else at / _MICROSECONDS

    def used_up_since(self, name: str) -> float | None:
        """Return since when hours of a Budget with `PreemptAfter` or `LowerPriority` are used up (Unix time, s).

        None: they are not.
        """
        since = self._used_up_since.get(name)
        return None if since is None else since / _MICROSECONDS

    def charged(
        self, admissions: Iterable[PastAdmission], begins: float, ends: float
    ) -> Iterator[tuple[str, list[Sum]]]:
        """Yield what each Budget charges for admissions between two Unix times (s), of each resource.

        All of them by its present scope and prices, and beside the hours that it gives now. It is not noted.
        """
        self._enter(self._now())
        spent: defaultdict[_Line, int] = defaultdict(int)
        first, last = round(begins * _MICROSECONDS), round(ends * _MICROSECONDS)
        for row in admissions:
            group = self._group(_Whose(row.cluster_queue, row.namespace, row.user, row.groups))
            since = round(row.from_at * _MICROSECONDS)
            until = last if row.to_at is None else min(round(row.to_at * _MICROSECONDS), last)
            for line in (line for lines in group.lines((row.flavor, row.resource)) for line in lines):
                within = sum(each for _, each in line.account.overlaps(max(since, first), until))
                spent[line] += line.cost((row.flavor, row.resource), row.amount, since) * within
        for name, account in sorted(self._accounts.items()):
            yield (
                name,
                [
                    Sum(resource, account.limit(line.number, account.slot), spent[line], 0)
                    for line, resource in zip(account.lines, account.spec.resources, strict=True)
                ],
            )

    def sums(self) -> Iterator[tuple[str, BudgetSpec, tuple[int, int], list[Sum]]]:
        """Yield each Budget with start and end of its period (microseconds), and what it has of each resource."""
        now = self._now()
        self._extend(now)
        running: defaultdict[_Line, int] = defaultdict(int)
        for charge in self._charges.values():
            since = charge.since
            for key, amount in charge.usage:
                for line in (line for lines in charge.group.lines(key) for line in lines):
                    running[line] += line.cost(key, amount, since) * max(now - max(since, line.account.first), 0)
        for name, account in self._accounts.items():
            yield name, account.spec, account.bounds, list(account.sums(running))


def _hash(scope: str) -> int:
    """Return a number by which scopes differ; 0: it has none."""
    return int.from_bytes(blake2b(scope.encode(), digest_size=16).digest()) if scope else 0


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
