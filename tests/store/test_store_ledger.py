"""The ledger: opening and closing of rows, exact times, hourly roll-ups, and any order of events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import select
from store_examples import admission, admitted, finished, requeued, workload

from admission.model.topology import DomainCount, TopologyAssignment
from admission.model.workload import Admission, PodSetAssignment
from admission.store.database.migrations import migrate
from admission.store.database.tables import admissions, usage_rollups
from admission.store.errors import ContradictsLedger, StaleEpoch
from admission.store.records import Changes, Closed
from admission.store.store import Store
from tests.conftest import Clock

HOUR = 3600.0
START = 500_000 * HOUR


async def ledger(store: Store) -> list[tuple[Any, ...]]:
    """Return (workload, amount, from, to, end reason) of all rows, in the order in which they were added."""
    columns = admissions.c
    statement = select(columns.workload_uid, columns.amount, columns.from_at, columns.to_at, columns.end_reason)
    async with store._database.read() as connection:
        return [tuple(row) for row in await connection.execute(statement.order_by(columns.id))]


async def test_an_admission_has_a_row_for_each_pod_set_and_resource(store: Store):
    epoch = await store.lead("test")
    one = workload("1", user="ada", priority=5)
    holds = Admission(
        "cq",
        (
            PodSetAssignment("driver", {"cpu": "a", "gpu": "b"}, {"cpu": 500, "gpu": 8}, 1),
            PodSetAssignment("workers", {"cpu": "a"}, {"cpu": 1000}, 2),
        ),
    )
    await store.commit(admitted(one, holds, at=START), epoch=epoch)
    async with store._database.read() as connection:
        rows = (await connection.execute(select(admissions).order_by(admissions.c.id))).mappings().all()
    assert [(r["pod_set"], r["flavor"], r["resource"], r["amount"], r["count"]) for r in rows] == [
        ("driver", "a", "cpu", 500, 1),
        ("driver", "b", "gpu", 8, 1),
        ("workers", "a", "cpu", 1000, 2),
    ]
    for row in rows:
        of = row["cluster_queue"], row["local_queue"], row["namespace"], row["submitted_by"], row["priority"]
        assert of == ("cq", "main", "team-a", "ada", 5)


async def test_domains_of_an_admission_are_loaded_as_they_were_committed(store: Store):
    epoch = await store.lead("test")
    domains = tuple(DomainCount((f"rack-{number}", f"node-{number}-7"), 2) for number in range(5))
    placed = TopologyAssignment(("rack", "host"), domains)
    holds = Admission(
        "cq",
        (
            PodSetAssignment("driver", {"cpu": "a"}, {"cpu": 500}, 1),
            PodSetAssignment("workers", {"cpu": "a", "gpu": "a"}, {"cpu": 1000, "gpu": 8}, 10, placed),
            PodSetAssignment("idle", {}, {}, 3, TopologyAssignment(("rack",), (DomainCount(("rack-0",), 3),))),
        ),
    )
    await store.commit(admitted(workload("1"), holds, at=START), epoch=epoch)
    (record,) = (await store.load()).workloads
    assert record.admission == holds


async def test_next_admission_starts_exactly_when_the_former_admission_ends(store: Store):
    epoch = await store.lead("test")
    # Half a microsecond apart, which is about the resolution of a float at these times.
    moves = [(workload(f"{part:03}"), START + 10 + part * 2**-21) for part in range(150)]
    first = [admitted(one, admission(1), at=START).opened[0] for one, _ in moves]
    second = [admitted(one, admission(2), at=at).opened[0] for one, at in moves]
    await store.commit(Changes(opened=tuple(first)), epoch=epoch)
    ended = tuple(Closed(one.uid, at, "Preempted") for one, at in moves)
    await store.commit(Changes(closed=ended, opened=tuple(second)), epoch=epoch)
    rows = await ledger(store)
    ends = {uid: to for uid, amount, _, to, _ in rows if amount == 1}
    begins = {uid: since for uid, amount, since, _, _ in rows if amount == 2}
    assert len(ends) == 150
    assert ends == begins


async def test_closed_admission_is_not_closed_again(store: Store):
    epoch = await store.lead("test")
    one = workload("1")
    await store.commit(admitted(one, admission(5), at=START), epoch=epoch)
    await store.commit(requeued(one, at=START + 10), epoch=epoch)
    await store.commit(finished(one, at=START + 20), epoch=epoch)
    assert await ledger(store) == [("1", 5, START, START + 10, "Preempted")]
    await store.commit(admitted(one, admission(6), at=START + 30), epoch=epoch)
    await store.commit(finished(one, at=START + 40), epoch=epoch)
    assert await ledger(store) == [
        ("1", 5, START, START + 10, "Preempted"),
        ("1", 6, START + 30, START + 40, "Finished"),
    ]


async def test_admission_does_not_end_before_its_start_after_the_clock_was_set_back(store: Store):
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(5), at=START), epoch=epoch)
    await store.commit(finished(workload("1"), at=START - 1000), epoch=epoch)
    assert await ledger(store) == [("1", 5, START, START, "Finished")]


async def test_ledger_times_are_exact_to_the_microsecond(store: Store):
    epoch = await store.lead("test")
    one, begins, ends = workload("1"), 1_750_000_000.123457, 1_750_000_000.999999
    await store.commit(admitted(one, admission(5), at=begins), epoch=epoch)
    await store.commit(finished(one, at=ends), epoch=epoch)
    assert await ledger(store) == [("1", 5, begins, ends, "Finished")]


async def rollups(store: Store) -> dict[tuple[float, str, str], float]:
    """Return amount-seconds by hour (counted from START), ClusterQueue and resource."""
    columns = usage_rollups.c
    statement = select(columns.hour, columns.cluster_queue, columns.resource, columns.amount_seconds)
    async with store._database.read() as connection:
        rows = (await connection.execute(statement)).all()
    found = {((hour - START) / HOUR, queue, resource): amount for hour, queue, resource, amount in rows}
    assert len(found) == len(rows)
    return found


async def test_hours_are_rolled_up_five_minutes_after_their_end(store: Store, clock: Clock):
    epoch = await store.lead("test")
    long, short, still = workload("1"), workload("2"), workload("3")
    await store.commit(admitted(long, admission(10), at=START + 1800), epoch=epoch)
    await store.commit(admitted(short, admission(7), at=START + 100), epoch=epoch)
    await store.commit(admitted(still, admission(1, cluster_queue="other"), at=START + HOUR), epoch=epoch)
    await store.commit(finished(short, at=START + 110), epoch=epoch)
    clock.now = START + HOUR + 299
    assert await store.roll_up(epoch=epoch) == 0
    clock.now = START + HOUR + 300
    assert await store.roll_up(epoch=epoch) == 1
    assert await rollups(store) == {(0, "cq", "cpu"): 10 * 1800 + 7 * 10}
    await store.commit(finished(long, at=START + 2 * HOUR + 0.5), epoch=epoch)
    clock.now = START + 4 * HOUR
    assert await store.roll_up(epoch=epoch) == 2
    assert await store.roll_up(epoch=epoch) == 0
    assert await rollups(store) == {
        (0, "cq", "cpu"): 10 * 1800 + 7 * 10,
        (1, "cq", "cpu"): 10 * HOUR,
        (1, "other", "cpu"): HOUR,
        (2, "cq", "cpu"): 10 * 0.5,
        (2, "other", "cpu"): HOUR,
    }


async def test_roll_up_of_an_empty_ledger_is_empty_and_needs_the_current_epoch(store: Store, clock: Clock):
    epoch = await store.lead("test")
    clock.now = START + 100 * HOUR
    assert await store.roll_up(epoch=epoch) == 0
    await store.lead("another")
    with pytest.raises(StaleEpoch):
        await store.roll_up(epoch=epoch)


UIDS = st.sampled_from(["1", "2", "3"])


class LedgerMachine(RuleBasedStateMachine):
    """State machine: admissions, ends, contradictions and changes of the leader, compared with a dictionary."""

    template: Path
    folder: Path
    runs = 0
    epochs = Bundle("epochs")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        type(self).runs += 1
        path = self.folder / f"{self.runs}.db"
        path.write_bytes(self.template.read_bytes())
        self.opening = Store.open(f"sqlite:///{path}")
        self.store: Store = self.runner.run(self.opening.__aenter__())
        self.now = START
        self.epoch = 0
        self.held: dict[str, tuple[int, float]] = {}
        self.past: list[tuple[Any, ...]] = []

    @initialize(target=epochs)
    def start(self) -> int:
        return self.lead()

    @rule(target=epochs)
    def lead(self) -> int:
        self.epoch = self.runner.run(self.store.lead("test"))
        return self.epoch

    @rule(seconds=st.integers(0, 10_000_000).map(lambda micros: micros / 1e6))
    def wait(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)

    @rule(uid=UIDS, amount=st.integers(0, 2**62), epoch=epochs)
    def admit(self, uid: str, amount: int, epoch: int) -> None:
        ok = self.commit(admitted(workload(uid), admission(amount), at=self.now), epoch, free=uid not in self.held)
        if ok:
            self.held[uid] = amount, self.now

    @rule(uids=st.sets(UIDS), epoch=epochs)
    def end(self, uids: set[str], epoch: int) -> None:
        if self.commit(Changes(closed=tuple(Closed(uid, self.now, "Finished") for uid in uids)), epoch):
            self.forget(uids, "Finished")

    @rule(uid=UIDS, amount=st.integers(0, 2**62), epoch=epochs)
    def exchange(self, uid: str, amount: int, epoch: int) -> None:
        begins = admitted(workload(uid), admission(amount), at=self.now)
        changes = Changes(begins.workloads, (Closed(uid, self.now, "Preempted"),), begins.opened)
        if self.commit(changes, epoch):
            self.forget({uid}, "Preempted")
            self.held[uid] = amount, self.now

    def commit(self, changes: Changes, epoch: int, *, free: bool = True) -> bool:
        try:
            self.runner.run(self.store.commit(changes, epoch=epoch))
        except StaleEpoch:
            assert epoch != self.epoch
        except ContradictsLedger:
            assert not free
            assert epoch == self.epoch
        else:
            assert free
            assert epoch == self.epoch
            return True
        return False

    def forget(self, uids: set[str], reason: str) -> None:
        for uid in uids & self.held.keys():
            amount, since = self.held.pop(uid)
            self.past.append((uid, amount, since, self.now, reason))

    @invariant()
    def ledger_has_past_and_open_admissions(self) -> None:
        present = [(uid, amount, since, None, None) for uid, (amount, since) in self.held.items()]
        found = self.runner.run(ledger(self.store))
        assert sorted(found, key=repr) == sorted(self.past + present, key=repr)

    @invariant()
    def load_returns_open_admissions(self) -> None:
        records = self.runner.run(self.store.load()).workloads
        found = {r.workload.uid: r.admission for r in records if r.admission is not None}
        assert found == {uid: admission(amount) for uid, (amount, _) in self.held.items()}

    def teardown(self) -> None:
        self.runner.run(self.opening.__aexit__(None, None, None))
        self.runner.close()


@pytest.mark.long
def test_ledger_is_correct_after_any_order_of_events(tmp_path: Path):
    LedgerMachine.folder, LedgerMachine.template = tmp_path, tmp_path / "template"
    asyncio.run(migrate(f"sqlite:///{LedgerMachine.template}"))
    LedgerMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=15)
    LedgerMachine.TestCase("runTest").runTest()


async def test_ledger_knows_who_was_on_a_node(store: Store):
    epoch = await store.lead("test")
    domains = TopologyAssignment(("kubernetes.io/hostname",), (DomainCount(("n1",), 2), DomainCount(("n2",), 1)))
    assigned = PodSetAssignment("main", {"cpu": "a", "gpu": "a"}, {"cpu": 3000, "gpu": 24}, 3, topology=domains)
    await store.commit(admitted(workload("1", user="ada"), Admission("cq", (assigned,)), at=START), epoch=epoch)
    (stay,) = await store.reports.stays("n1", start=START + 60, end=START + 60)
    assert (stay.uid, stay.user, stay.pods, stay.domain) == ("1", "ada", 2, ("n1",))
    assert (stay.requests, stay.start, stay.end) == ({"cpu": 2000, "gpu": 16}, START, None)
    assert await store.reports.stays("n3", start=START, end=START + 60) == []
    assert await store.reports.stays("n1", start=START - 60, end=START - 1) == []


async def test_ledger_sums_up_the_nodes_of_a_rack(store: Store):
    epoch = await store.lead("test")
    held = {}
    for uid, counts in {"1": {"n1": 2, "n2": 1, "n3": 1}, "2": {"n3": 3}}.items():
        domains = tuple(DomainCount((f"r{(int(name[1:]) + 1) // 2}", name), pods) for name, pods in counts.items())
        placed = TopologyAssignment(("rack", "kubernetes.io/hostname"), domains)
        pods = sum(counts.values())
        held[uid] = PodSetAssignment("main", {"cpu": "a", "gpu": "a"}, {"cpu": 1000 * pods, "gpu": pods}, pods, placed)
        await store.commit(admitted(workload(uid), Admission("cq", (held[uid],)), at=START), epoch=epoch)
    stays = await store.reports.stays("r1", start=START, end=START)
    assert [(stay.uid, stay.domain, stay.pods, stay.requests) for stay in stays] == [
        ("1", ("r1",), 3, {"cpu": 3000, "gpu": 3})
    ]
    there = await store.reports.stays("n3", start=START, end=START)
    assert [(stay.uid, stay.domain, stay.pods) for stay in there] == [("1", ("r2", "n3"), 1), ("2", ("r2", "n3"), 3)]
    # Decisions know nodes by their hostnames alone.
    (record, _) = (await store.load()).workloads
    assert record.admission.pod_sets[0].topology == TopologyAssignment(
        ("kubernetes.io/hostname",), (DomainCount(("n1",), 2), DomainCount(("n2",), 1), DomainCount(("n3",), 1))
    )
