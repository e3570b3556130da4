"""Periods of Budgets: months and days where clocks change, leap days, and grants in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from admission.model.budgets import HOUR, BudgetPeriod, BudgetSpec


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("fields", "instant", "hours"),
    [
        ({"every": "Month"}, "2028-02-10", 29 * 24),
        ({"every": "Month"}, "2026-02-10", 28 * 24),
        ({"every": "Year"}, "2028-02-29", 366 * 24),
        ({"every": "Quarter"}, "2028-01-01", 91 * 24),
        ({"every": "Day", "timeZone": "Europe/Berlin"}, "2026-10-25T12:00", 25),
        ({"every": "Day", "timeZone": "Europe/Berlin"}, "2027-03-28T12:00", 23),
        ({"every": "Month", "timeZone": "Europe/Berlin"}, "2026-10-31T22:59", 31 * 24 + 1),
        ({"every": "Month", "timeZone": "Europe/Berlin"}, "2026-10-31T23:00", 30 * 24),
        ({"every": "Day", "timeZone": "Pacific/Apia"}, "2011-12-29T12:00", 24),  # the 30th was skipped
    ],
)
def test_a_period_lasts_as_long_as_on_the_wall_clock(fields, instant, hours):
    period = BudgetPeriod.model_validate(fields)
    first, last = period.bounds(period.slot(at(instant)))
    assert first <= at(instant) < last
    assert last - first == hours * HOUR


def test_each_instant_is_in_one_day_also_where_clocks_are_set_back_over_midnight():
    # At 0:01 clocks were set back to 23:01: the day is over at 0:00, and its last hour comes again, in the next one.
    period = BudgetPeriod.model_validate({"every": "Day", "timeZone": "America/St_Johns"})
    instants = [at("2010-11-06T23:00") + minutes * HOUR // 60 for minutes in range(8 * 60)]
    slots = [period.slot(each) for each in instants]
    assert slots == sorted(slots)
    assert len(set(slots)) == 2
    for each, slot in zip(instants, slots, strict=True):
        first, last = period.bounds(slot)
        assert first <= each < last


def limits(period: dict[str, object], *grants: tuple[str, str]) -> list[float]:
    """Return the hours in the ten days or months from December 2026 on."""
    given = [{"day": day, "hours": hours, "resource": "cpu", "reason": "test"} for day, hours in grants]
    resource = {"name": "cpu", "hours": "10"}
    spec = BudgetSpec.model_validate({"resources": [resource], "period": period, "grants": given, "scope": {}})
    first = spec.period.slot(at("2026-12-01"))
    return [spec.limit(spec.resources[0], slot) / 1000 / HOUR for slot in range(first, first + 6)]


def test_grant_counts_as_long_as_the_days_of_a_rolling_period():
    assert limits({"lastDays": 3}, ("2026-12-02", "5")) == [10, 15, 15, 15, 10, 10]
    assert limits({"every": "Month"}, ("2027-02-28", "5")) == [10, 10, 15, 10, 10, 10]


def test_more_cannot_be_taken_away_than_there_is():
    assert limits({"every": "Month"}, ("2026-12-31", "-7"), ("2026-12-01", "-7")) == [0, 10, 10, 10, 10, 10]
