"""Days of usage, and usage by reports and by the ledger, for the tests of reports and retention."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from store_examples import admission, admitted, cluster_queue, finished, workload

from admission.store.audit_log import Author
from admission.store.ledger import usage_rows
from admission.store.ledger.usage import MICROSECONDS, Holding, usage
from admission.store.ledger.usage_reports import GROUPINGS
from admission.store.records import Changes, Resized
from admission.store.store import Store
from tests.conftest import Clock

HOUR, DAY = 3600.0, 86400.0
START = 20_000 * DAY
EVER = 10**10


_HOLDER = usage_rows.holder_columns({"kind", "cluster", "workload"})


@dataclass(frozen=True, slots=True)
class Ledger:
    """All rows of a ledger, and the quotas of all time."""

    held: list[Holding]
    quotas: usage_rows.Quotas


async def read_ledger(store: Store) -> Ledger:
    async with store._database.read() as connection:
        held = await usage_rows.rows_in_force(connection, 0, EVER, holder=_HOLDER)
        return Ledger(held, await usage_rows.nominal_quotas(connection))


def from_the_ledger(
    ledger: Ledger, by: list[str], start: float, end: float
) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return nominal and borrowed amount-seconds, by a sweep over all rows at once."""
    columns = tuple(dict.fromkeys(column for name in (*by, "resource") for column in GROUPINGS[name]))
    sums: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    start_micros, end_micros = usage_rows.micros(start), usage_rows.micros(end)
    for account, used in usage(ledger.held, ledger.quotas, start=start_micros, end=end_micros).items():
        values = account.quota_key._asdict() | dict(zip(_HOLDER, account.holder, strict=True))
        seconds = sums[tuple(values[column] for column in columns)]
        seconds[0] += used.nominal
        seconds[1] += used.borrowed
    return {key: (a / MICROSECONDS, b / MICROSECONDS) for key, (a, b) in sums.items() if a + b}


async def reported(store: Store, by: list[str], start: float, end: float) -> dict[tuple[Any, ...], tuple[float, float]]:
    report = await store.reports.usage(by, start=start, end=end)
    return {tuple(row.group.values()): (row.nominal_seconds, row.borrowed_seconds) for row in report.rows}


def close(
    found: dict[tuple[Any, ...], tuple[float, float]], expected: dict[tuple[Any, ...], tuple[float, float]]
) -> bool:
    return found.keys() == expected.keys() and all(
        math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-6)
        for key in found
        for a, b in zip(found[key], expected[key], strict=True)
    )


async def busy_days(store: Store, clock: Clock, chance: random.Random, first: float = START) -> int:
    """Commit three days of admissions, ends, resizes and quota changes, with some roll-ups; return the epoch."""
    clock.now = first + chance.random() * DAY
    epoch = await store.lead("test")
    for name in ("cq", "other"):
        await store.queues.create(cluster_queue(name, cpu="10"), author=Author("ada"))
    held: dict[str, Any] = {}
    for number in range(80):
        clock.advance(round(chance.expovariate(1 / (3 * DAY / 80)), 6))
        doing = chance.random()
        if held and doing < 0.4:
            uid = chance.choice(list(held))
            await store.commit(finished(held.pop(uid), at=clock.now), epoch=epoch)
        elif held and doing < 0.5:
            one = held[chance.choice(list(held))]
            smaller = Resized(one, admission(chance.randrange(500), cluster_queue="cq"), clock.now)
            await store.commit(Changes(resized=(smaller,)), epoch=epoch)
        elif doing < 0.6:
            await store.queues.replace(cluster_queue(cpu=str(chance.randrange(15))), author=Author("ada"))
        elif doing < 0.7:
            await store.roll_up(epoch=epoch)
        else:
            one = held[str(number)] = workload(
                str(number),
                user=chance.choice(["ada", "bob"]),
                queue=chance.choice(["main", "side"]),
                priority=chance.choice([0, 100]),
                kind=chance.choice(["Job", "RayJob"]),
            )
            queue, flavor = chance.choice(["cq", "other"]), chance.choice(["default", "spot"])
            holds = admission(chance.randrange(1, 8_000), cluster_queue=queue, flavor=flavor)
            await store.commit(admitted(one, holds, at=clock.now), epoch=epoch)
    return epoch
