"""Spec of a Budget: resource hours that workloads may use in a period. An extension: Kueue has no such object."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from admission.model.base import FieldFaultsError, Model, Name, Namespace, OptionalName, QualifiedName, Quantity
from admission.model.errors import InvalidQuantity
from admission.model.local_times import Day, TimeZone, zone
from admission.model.quantity import parse_quantity
from admission.model.resource_words import is_in_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

HOUR: Final = 3_600_000_000
"""Microseconds in an hour."""
MONEY: Final = 1_000_000
"""Parts of a unit of currency in which money is counted."""
Every: TypeAlias = Literal["Day", "Month", "Quarter", "Year"]
_MONTHS: Final = {"Month": 1, "Quarter": 3, "Year": 12}


def _signed_quantity(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 100 or -20")  # noqa: TRY004  pydantic reports ValueErrors only
    try:
        parse_quantity(value)
    except InvalidQuantity as error:
        raise ValueError(error.causes[0][1]) from error
    return value if isinstance(value, str) else repr(value)


SignedQuantity: TypeAlias = Annotated[
    str,
    BeforeValidator(_signed_quantity),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]


class BudgetScope(Model):
    """Which workloads a Budget charges: those that match each list that is given."""

    cluster_queues: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """Workloads that hold quota of one of these ClusterQueues; empty: of any."""
    namespaces: Annotated[tuple[Namespace, ...], Field(max_length=256)] = ()
    """Workloads of one of these namespaces; empty: of any."""
    users: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=1024)] = ()
    """Workloads that one of these users has submitted, as the webhook has recorded it; empty: by anybody."""
    groups: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=1024)] = ()
    """Workloads that a member of one of these groups has submitted, as the webhook has recorded it; empty: anybody."""
    cohorts: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """Workloads that hold quota of the ClusterQueues that are in one of these Cohorts now, also in those below it;
    empty: of any."""

    def matches(self, cluster_queue: str, namespace: str, user: str, groups: Collection[str]) -> bool:
        """Whether a workload with these properties is in the scope, if its ClusterQueue is in the `cohorts`."""
        return (
            (not self.cluster_queues or cluster_queue in self.cluster_queues)
            and (not self.namespaces or namespace in self.namespaces)
            and (not self.users or user in self.users)
            and (not self.groups or any(group in self.groups for group in groups))
        )


class BudgetResource(Model):
    """The hours of a resource: 8 GPUs for 3 hours are 24 hours of the resource. Or money, by the prices of a PriceBook.

    Usage costs what the PriceBook says for the day (UTC) from which it is held, however long that is.
    """

    name: QualifiedName
    """The resource, such as `nvidia.com/gpu`, `cpu` (in cores) or `memory` (in bytes); with `priceBook`, the currency.
    """
    hours: Quantity | None = None
    """The hours that may be used in each period, for memory for example `100Ti`; not with `priceBook`."""
    price_book: OptionalName = ""
    """The PriceBook by which usage of all resources is charged; needs `amount`."""
    amount: Quantity | None = None
    """The money that may be spent in each period; only with `priceBook`."""
    flavors: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Only usage of these ResourceFlavors; empty: of all."""

    @model_validator(mode="after")
    def _is_hours_or_money(self) -> Self:
        if self.price_book and (self.amount is None or self.hours is not None):
            raise FieldFaultsError([("amount", "with priceBook, give an amount of money, and no hours")])
        if not self.price_book and (self.hours is None or self.amount is not None):
            raise FieldFaultsError([("hours", "give the hours; or an amount of money, with priceBook")])
        return self

    @property
    def total(self) -> int:
        """The hours in the model's amounts (thousandths of a core, bytes, devices) times microseconds.

        Of money: millionths of the currency, times the microseconds of an hour.
        """
        return self.product(self.amount or self.hours or "0")

    def product(self, number: str) -> int:
        """Return a number of hours, or an amount of money, as `total` does."""
        scale = MONEY if self.price_book else 1000 if self.name == "cpu" else 1
        return ceil(parse_quantity(number) * scale * HOUR)

    @property
    def unit(self) -> str:
        """What its numbers count, for messages: `hours of cpu`, or the currency."""
        return self.name if self.price_book else f"hours of {self.name}"

    def text(self, product: int) -> str:
        """Return hours, or money, for users, rounded down: `1,234.5`, or `12.5Ti` for bytes."""
        if is_in_bytes(self.name) and not self.price_book:
            value, unit = product * 10 // HOUR, 0
            while abs(value) >= 10_240 and unit < len(_BINARY) - 1:
                value, unit = value // 1024, unit + 1
            return f"{value // 10:,}{f'.{value % 10}' if value % 10 else ''}{_BINARY[unit]}"
        hundredths = product * 100 // self.product("1")
        text = f"{abs(hundredths) // 100:,}.{abs(hundredths) % 100:02}".rstrip("0").rstrip(".")
        return f"-{text}" if hundredths < 0 else text


class BudgetPeriod(Model):
    """The time for which the hours are given: a calendar period, the last days, or from one day to another."""

    every: Every | None = None
    """Day, Month, Quarter or Year: the hours are given anew with each."""
    last_days: Annotated[int, Field(strict=True, ge=1, le=366)] | None = None
    """Usage of so many days counts, today included: the hours of a day can be used again when it is no longer
    among them."""
    first_day: Day | None = None
    """The first day of a single period; with `lastDay`."""
    last_day: Day | None = None
    """The last day of a single period; after it the Budget limits nothing."""
    time_zone: TimeZone = "UTC"
    """The time zone in which days begin, such as Europe/Berlin."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = [self.every is not None, self.last_days is not None, self.first_day is not None]
        if sum(kinds) != 1:
            raise FieldFaultsError([("", "give one of every, lastDays, or firstDay with lastDay")])
        if (self.first_day is None) != (self.last_day is None):
            raise FieldFaultsError([("lastDay", "firstDay and lastDay go together")])
        if self.first_day is not None and self.last_day is not None and self.first_day > self.last_day:
            raise FieldFaultsError([("lastDay", f"is before firstDay, {self.first_day}")])
        return self

    @property
    def days(self) -> int:
        """Number of slots whose usage is summed up: the days of a rolling period, else 1."""
        return self.last_days or 1

    # --- slots: periods, or days of a rolling period, by number in order of time

    def slot(self, at: int) -> int:
        """Return the slot of an instant (microseconds since the epoch); of a single period 0, and -1 or 1 beside it."""
        if self.first_day is not None:
            first, last = self.bounds(0)
            return -1 if at < first else 0 if at < last else 1
        day = datetime.fromtimestamp(at // 1_000_000, zone(self.time_zone))
        months = _MONTHS.get(self.every or "")
        slot = day.toordinal() if months is None else (day.year * 12 + day.month - 1) // months
        # Where clocks are set back over midnight, a day is over, and its last hour comes again.
        return slot + 1 if at >= self.bounds(slot)[1] else slot

    def bounds(self, slot: int) -> tuple[int, int]:
        """Return start and end of a slot in microseconds since the epoch."""
        return _bounds(self, slot)

    def overlaps(self, begins: int, ends: int, *, most: int) -> Iterator[tuple[int, int]]:
        """Yield the slots between two instants (microseconds), and the microseconds within each; `most` slots only."""
        if begins >= ends:
            return
        if self.first_day is not None:
            first, last = self.bounds(0)
            if (within := min(ends, last) - max(begins, first)) > 0:
                yield 0, within
            return
        slot = self.slot(begins)
        for number in range(slot, slot + most):
            start, end = self.bounds(number)
            yield number, min(ends, end) - max(begins, start)
            if ends <= end:
                return

    def label(self, slot: int) -> str:
        """Return the first day of a slot."""
        return datetime.fromtimestamp(self.bounds(slot)[0] // 1_000_000, zone(self.time_zone)).date().isoformat()


class BudgetGrant(Model):
    """More hours, or fewer, in one period."""

    day: Day
    """A day of the period for which it is given; with `lastDays`, the first of so many days for which it counts."""
    resource: QualifiedName
    """The resource, or currency; each entry of `resources` with this name gets the hours."""
    hours: SignedQuantity
    """The hours, or the money, that are added; a negative number takes away."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why; who wrote it and when is in the Budget's history."""
    request: Annotated[str, Field(max_length=507)] = ""
    """`NAMESPACE/NAME` of the BudgetRequest that it answers; with 0 hours it is declined; empty: nobody asked."""


class BudgetRequestSpec(Model):
    """More hours for a Budget, asked for by those who use it."""

    budget: Name
    """The Budget."""
    resource: QualifiedName
    """The resource."""
    hours: Quantity
    """How many hours more."""
    day: Day
    """A day of the period that is to get them."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why they are needed."""


class BudgetSpec(Model):
    """Hours of resources for a group of workloads in a period, and what happens when they are used up."""

    parent: OptionalName = ""
    """The Budget of which this one is a part: what this one charges, that one charges, too."""
    scope: BudgetScope | None = None
    """The workloads that are charged: `{}`: all; not given: only those that Budgets with this parent charge."""
    resources: Annotated[tuple[BudgetResource, ...], Field(min_length=1, max_length=16)]
    """The hours by resource, or money."""
    period: BudgetPeriod
    """The time for which they are given."""
    enforcement: Literal["Charge", "Reserve"] = "Charge"
    """Charge: workloads are admitted while hours are left, and charged as they run. Reserve: a workload is only
    admitted if all that it may use until its time limit is left."""
    action: Literal["StopAdmitting", "Warn", "PreemptAfter", "LowerPriority"] = "StopAdmitting"
    """StopAdmitting: no more workloads are admitted; those that run, run on. PreemptAfter: they are evicted when the
    hours have been used up for `graceSeconds`. LowerPriority: workloads run on idle quota only, with a priority below
    all others and without preemption for them. Warn: hours are only counted."""
    grace_seconds: Annotated[int, Field(strict=True, ge=0, le=10**7)] | None = None
    """With PreemptAfter, the seconds for which workloads run on; not given: 600."""
    assumed_seconds: Annotated[int, Field(strict=True, ge=1, le=10**9)] | None = None
    """With Reserve, the run time that is reserved for a workload without a time limit; not given: it is refused."""
    learn_run_times: bool = False
    """With Reserve, whether that is the time within which 90 % of the last workloads of its user in its LocalQueue have
    ended, if five have; otherwise `assumedSeconds`."""
    carry_over: bool = False
    """Whether hours that are left at the end of a period are added to the next one, which does not carry them on."""
    grants: Annotated[tuple[BudgetGrant, ...], Field(max_length=1024)] = ()
    """Corrections of the hours of single periods."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        faults = []
        names = [(each.name, flavor) for each in self.resources for flavor in each.flavors or ("",)]
        for position, each in enumerate(self.resources):
            if any(names.count((each.name, flavor)) > 1 for flavor in each.flavors or ("",)):
                faults.append((f"resources[{position}].name", f'"{each.name}" has hours twice; write one entry'))
        if self.assumed_seconds is not None and self.enforcement != "Reserve":
            faults.append(("assumedSeconds", "needs enforcement: Reserve"))
        if self.learn_run_times and self.enforcement != "Reserve":
            faults.append(("learnRunTimes", "needs enforcement: Reserve"))
        if self.carry_over and self.period.every is None:
            faults.append(("carryOver", "needs a period with every: nothing is given anew in the others"))
        if self.grace_seconds is not None and self.action != "PreemptAfter":
            faults.append(("graceSeconds", "needs action: PreemptAfter"))
        if self.action in ("PreemptAfter", "LowerPriority") and self.enforcement == "Reserve":
            faults.append(("action", f"{self.action} needs enforcement: Charge"))
        for position, each in enumerate(self.resources) if self.action == "LowerPriority" else ():
            if each.flavors:
                message = "cannot be used with action: LowerPriority, as workloads are ordered before they have flavors"
                faults.append((f"resources[{position}].flavors", message))
        known = {each.name for each in self.resources}
        for position, grant in enumerate(self.grants):
            if grant.resource not in known:
                faults.append((f"grants[{position}].resource", f'"{grant.resource}" is not among the resources'))
        if faults:
            raise FieldFaultsError(faults)
        return self

    @property
    def price_books(self) -> Sequence[str]:
        """The PriceBooks by which it charges money; nearly always none."""
        return [each.price_book for each in self.resources if each.price_book]

    def limit(self, resource: BudgetResource, slot: int) -> int:
        """Return the hours of a resource in a slot with all grants for it, in amount times microseconds.

        Of a rolling period: those of the days that end with the slot.
        """
        total = resource.total
        for grant in self.grants:
            if grant.resource == resource.name:
                given = 0 if self.period.first_day is not None else _slot_of_day(self.period, grant.day)
                if slot - self.period.days < given <= slot:
                    total += resource.product(grant.hours)
        return max(total, 0)


class Sum(NamedTuple):
    """What a Budget has of one resource now, in amount times microseconds."""

    resource: BudgetResource
    limit: int
    """With grants."""
    spent: int
    """Charged by the ledger so far."""
    reserved: int
    """What workloads that hold quota may still use; 0 without Reserve."""

    @property
    def left(self) -> int:
        """What is neither spent nor reserved; negative if it is overdrawn."""
        return self.limit - self.spent - self.reserved


_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _midnight(day: date, name: str) -> int:
    return round(datetime(day.year, day.month, day.day, tzinfo=zone(name)).timestamp()) * 1_000_000


def _month(number: int) -> date:
    year, month = divmod(number, 12)
    return date(year, month + 1, 1)


@lru_cache(maxsize=16_384)
def _bounds(period: BudgetPeriod, slot: int) -> tuple[int, int]:
    if period.first_day is not None and period.last_day is not None:
        first, last = date.fromisoformat(period.first_day), date.fromisoformat(period.last_day)
        return _midnight(first, period.time_zone), _midnight(last + timedelta(days=1), period.time_zone)
    if (months := _MONTHS.get(period.every or "")) is not None:
        first, last = _month(slot * months), _month((slot + 1) * months)
    else:
        first, last = date.fromordinal(slot), date.fromordinal(slot + 1)
    return _midnight(first, period.time_zone), _midnight(last, period.time_zone)


@lru_cache(maxsize=4096)
def _slot_of_day(period: BudgetPeriod, day: str) -> int:
    return period.slot(_midnight(date.fromisoformat(day), period.time_zone))
