"""The month that the demo's scene "month" plays: what Budget, calendar and Reservation do to it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from admission.cli.demo.month import BEGIN, BUDGET, COLUMN, END, GPUS, GRANT, QUOTA, RESERVED, Account, MonthPlay

HALF_DAYS = int((END - BEGIN) / COLUMN)


@pytest.fixture(scope="module")
def account() -> Account:
    play = MonthPlay()
    play.until(END)
    return play.account


def gpus(account: Account, whose: str, column: int) -> float:
    """Return the GPUs that somebody has used in a half day, on average."""
    return account.used[column, whose] / COLUMN


def test_team_uses_its_budget_up_and_what_it_is_granted(account: Account) -> None:
    by_column = [gpus(account, "ml", column) * COLUMN / 3600 for column in range(HALF_DAYS)]
    granted = 25 * 2  # the 26th
    assert BUDGET * 0.95 < sum(by_column[:granted]) <= BUDGET
    assert BUDGET < sum(by_column) <= BUDGET + GRANT + 0.001
    assert not account.is_overdrawn
    assert account.reasons["BudgetExhausted"].startswith("Budget ml has ")


def test_weekends_give_a_team_the_gpus_of_the_other(account: Account) -> None:
    totals = defaultdict(list)
    for column in range(HALF_DAYS):
        weekday = (6 + column // 2) % 7  # the first day is a Sunday
        if column // 2 < 22:  # later the Budget is used up
            totals["weekend" if weekday >= 5 else "week" if weekday in (1, 2, 3) else ""].append(column)
        assert sum(gpus(account, whose, column) for whose in ("ml", "vision", "ada")) <= GPUS
    assert max(gpus(account, "ml", column) for column in totals["week"]) <= QUOTA["ml"][0]
    assert max(gpus(account, "ml", column) for column in totals["weekend"]) > QUOTA["ml"][0] * 1.5
    assert min(gpus(account, "vision", column) for column in totals["weekend"]) <= QUOTA["vision"][1]
    assert not account.is_over_quota


def test_reserved_gpus_are_used_by_their_user_from_the_start_on(account: Account) -> None:
    waits = [wait for whose, wait in account.waits.values() if whose == "ada"]
    assert waits == [0, 0, 0]
    assert gpus(account, "ada", 18 * 2) == RESERVED  # the morning of the 19th
    assert account.reasons["ReservedForOthers"].startswith("Reservation benchmark keeps 24 nvidia.com/gpu")
