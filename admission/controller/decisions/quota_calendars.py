"""Quotas that change by calendars: the leader writes them when an entry begins or ends, with a reason.

As with quotas that follow nodes, everything that reads quota needs no other source, and each change is audited. What is
written follows from the clock alone, in the same transaction as every other write of the object
(`admission.model.queues.quotas_at`): a change that nobody saw, because no leader ran, is made up for by the next look.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.controller.state.repeating import repeat
from admission.model.calendars import instant_text
from admission.model.queues import ClusterQueue, Cohort, quotas_at
from admission.model.quotas import quotas_by_flavor, with_calendar
from admission.store.audit_log import Author
from admission.store.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.controller.state.faults import Faults
    from admission.model.queues import QueueObject
    from admission.store.store import Store

log = logging.getLogger(__name__)

_LONGEST: Final = 10.0
"""Seconds after which calendars are read again, if nothing changes before."""
_SHORTEST: Final = 0.05
"""Seconds between two looks; clocks tick."""


class CalendarQuotas:
    """Writes the quotas as calendars have them. `leads`: whether this replica decides now."""

    def __init__(self, store: Store, leads: Callable[[], bool], faults: Faults, *, longest: float = _LONGEST) -> None:
        self._store = store
        self._leads = leads
        self._faults = faults
        self._longest = longest
        self._settled: dict[tuple[str, str, str], _Settled] = {}
        """Objects whose quotas were found as their calendars have them, by key."""

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        await repeat(self.write, self._faults, every=self._longest, name="quota of calendars")

    async def write(self) -> float:
        """Write the quotas that differ from calendars; return the seconds until the next look. Raises SluiceError."""
        objects = [each for kind in (ClusterQueue.kind, Cohort.kind) for each in await self._store.queues.list(kind)]
        found = [each for each in objects if isinstance(each, ClusterQueue | Cohort) if each.spec.calendar is not None]
        if not found or not self._leads():
            self._settled.clear()
            return self._longest
        now = self._store.now()
        known, self._settled = self._settled, {}
        due = []
        for each in found:
            settled = known.get(each.key)
            if settled is None or settled.item is not each or not settled.since <= now < settled.until:
                if quotas_at(each, now) is not each:
                    due.append(each)
                    continue
                assert each.spec.calendar is not None
                settled = _Settled(each, now, each.spec.calendar.next_change(now) or inf)
            self._settled[each.key] = settled
        # What takes quota away comes first: together the quotas are never more than before and after.
        for each in sorted(due, key=lambda each: _grows(each, quotas_at(each, now))):
            await self._write(each, now)
        if due:
            return _SHORTEST
        until = min(each.until for each in self._settled.values())
        return min(max(until - now, _SHORTEST), self._longest)

    async def _write(self, item: ClusterQueue | Cohort, now: float) -> None:
        calendar = item.spec.calendar
        assert calendar is not None
        applied = calendar.at(now)
        notes = []
        before = quotas_by_flavor(item.spec.resource_groups)
        after = quotas_by_flavor(with_calendar(item.spec.resource_groups, calendar, now))
        for (flavor, resource), quota in after.items():
            was, now_is = (each.current_quota or each.nominal_quota for each in (before[flavor, resource], quota))
            if was == now_is and quota.current_quota == before[flavor, resource].current_quota:
                continue
            entry = applied.get((flavor, resource))
            why = "as usual"
            if entry is not None:
                why = f"{entry.entry.name} until {instant_text(entry.until, calendar.time_zone)}"
                why += f" ({entry.entry.reason})" if entry.entry.reason else ""
            notes.append(f"{resource} of {flavor} from {was} to {now_is}, {why}")
        author = Author("sluice", reason=f"calendar: {'; '.join(notes)}")

        def as_it_is(old: QueueObject | None) -> QueueObject:
            if old is None:
                raise NotFound.of(type(item).plural, item.name)
            return old  # the write itself gives it the quotas of now

        try:
            await self._store.queues.write(item.key, as_it_is, author=author)
        except NotFound:
            log.debug("%s %s was deleted before its calendar's change", item.kind, item.name)


class _Settled(NamedTuple):
    """An object whose quotas are as its calendar has them between two instants (seconds since the epoch)."""

    item: QueueObject
    since: float
    until: float


def _grows(before: QueueObject, after: QueueObject) -> bool:
    """Whether any quota grows."""
    assert isinstance(before, ClusterQueue | Cohort)
    assert isinstance(after, ClusterQueue | Cohort)
    old = quotas_by_flavor(before.spec.resource_groups)
    return any(quota.nominal > old[key].nominal for key, quota in quotas_by_flavor(after.spec.resource_groups).items())
