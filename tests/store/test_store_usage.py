"""Nominal and borrowed usage: the sweep over the ledger, compared with a sum over each moment."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.store.ledger.usage import Account, Holding, QuotaKey, UsageSum, usage

KEYS = [QuotaKey("cq", "default", "cpu"), QuotaKey("other", "default", "cpu")]
MOMENTS = st.integers(0, 20)


@st.composite
def holdings(draw):
    """Strategy for rows of the ledger, also open ones, ones of no duration, and later parts of an admission."""
    begins = draw(MOMENTS)
    ends = draw(st.none() | st.integers(begins, 20))
    began = draw(st.just(begins) | st.integers(0, begins))
    order = (began, draw(st.sampled_from("abcdef")), draw(st.sampled_from(["main", "driver"])))
    return Holding(
        draw(st.sampled_from(KEYS)),
        order,
        begins,
        ends,
        draw(st.integers(0, 6)),
        (draw(st.sampled_from(["ada", "bob"])),),
    )


steps = st.lists(st.tuples(MOMENTS, st.integers(0, 12)), max_size=5).map(
    lambda found: sorted(found, key=lambda s: s[0])
)


def naive(rows, quotas, start, end):
    """Return total and borrowed usage, computed separately for each moment."""
    found = defaultdict(UsageSum)
    for now in range(start, end):
        for quota_key in KEYS:
            free = 0
            for at, nominal in quotas.get(quota_key, ()):
                free = nominal if at <= now else free
            here = [
                r for r in rows if r.quota_key == quota_key and r.begins <= now and (r.ends is None or r.ends > now)
            ]
            for row in sorted(here, key=lambda r: (r.order, r.begins)):
                account = found[Account(quota_key, row.holder)]
                account.total += row.amount
                account.borrowed += max(0, row.amount - free)
                free = max(0, free - row.amount)
    return dict(found)


@pytest.mark.costly
@settings(max_examples=400)
@given(st.lists(holdings(), max_size=12), st.dictionaries(st.sampled_from(KEYS), steps), MOMENTS, MOMENTS)
def test_usage_sweep_equals_the_sum_over_each_moment(rows, quotas, start, end):
    assert usage(rows, quotas, start=start, end=end) == naive(rows, quotas, start, end)


@pytest.mark.costly
@settings(max_examples=100)
@given(st.lists(holdings(), max_size=12), st.dictionaries(st.sampled_from(KEYS), steps), st.integers(0, 20))
def test_usage_of_two_adjacent_periods_adds_up(rows, quotas, middle):
    together = defaultdict(UsageSum)
    for part in (usage(rows, quotas, start=0, end=middle), usage(rows, quotas, start=middle, end=20)):
        for account, used in part.items():
            together[account].total += used.total
            together[account].borrowed += used.borrowed
    assert usage(rows, quotas, start=0, end=20) == together


def test_earlier_admissions_use_nominal_quota_and_later_admissions_borrow():
    quota_key, quota = KEYS[0], [(0, 10)]

    def row(name, begins, ends, amount):
        return Holding(quota_key, (begins, name, "main"), begins, ends, amount, (name,))

    rows = [row("first", 0, 50, 6), row("second", 10, None, 6), row("third", 20, 40, 3)]
    found = usage(rows, {quota_key: quota}, start=0, end=100)
    assert found[Account(quota_key, ("first",))] == UsageSum(total=6 * 50, borrowed=0)
    # 2 of its 6 lie beyond the quota of 10 for as long as the first is there.
    assert found[Account(quota_key, ("second",))] == UsageSum(total=6 * 90, borrowed=2 * 40)
    assert found[Account(quota_key, ("third",))] == UsageSum(total=3 * 20, borrowed=3 * 20)
    assert found[Account(quota_key, ("second",))].nominal == 6 * 90 - 2 * 40


def test_usage_is_exact_beyond_the_precision_of_floats():
    quota_key = KEYS[0]
    rows = [Holding(quota_key, (0, "a", "main"), 0, 3_600_000_000, 2**62 + 1, ("ada",))]
    found = usage(rows, {quota_key: [(0, 1)]}, start=0, end=3_600_000_000)[Account(quota_key, ("ada",))]
    assert (found.total, found.nominal) == ((2**62 + 1) * 3_600_000_000, 3_600_000_000)
