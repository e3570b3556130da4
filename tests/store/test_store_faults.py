"""Faults of a single workload, in a commit or in stored rows, which must not affect other workloads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from store_examples import admission, admitted, pending, workload

from admission.model.workload import PodSet
from admission.store.database.connection import Location, connect
from admission.store.errors import ContradictsLedger, Unwritable
from admission.store.records import Changes, State, Transition

T = 1_750_000_000.0
UNWRITABLE = (PodSet("main", 1, {"cpu": 2**70}),)


async def _execute(url, statement, **values):
    """Execute a statement on the database without the store."""
    database = connect(Location.parse(url))
    try:
        async with database.write() as connection:
            await connection.execute(sa.text(statement), values)
    finally:
        await database.close()


def _queued_transition(uid):
    return Transition(uid, T, State.PENDING, "Queued")


async def test_commit_writes_all_workloads_except_unwritable_ones(store):
    epoch = await store.lead("test")
    records = [pending(workload(f"{number:02}")) for number in range(20)]
    for number in (3, 4, 17):
        records[number] = pending(workload(f"{number:02}", pod_sets=UNWRITABLE))
    changes = Changes(
        workloads=tuple(records), transitions=tuple(_queued_transition(f"{number:02}") for number in range(20))
    )
    with pytest.raises(Unwritable, match="3 workloads cannot be written") as raised:
        await store.commit(changes, epoch=epoch)
    assert sorted(raised.value.faults) == ["03", "04", "17"]
    state = await store.load()
    assert state.revision == raised.value.revision
    assert len(state.workloads) == 17
    assert await store.workloads.history("03") == ()
    assert len(await store.workloads.history("05")) == 1
    await store.commit(Changes(workloads=(pending(workload("03")),)), epoch=epoch)


async def test_nothing_is_written_if_an_unwritable_workload_is_admitted(store):
    epoch = await store.lead("test")
    good, bad = workload("good"), workload("bad", pod_sets=UNWRITABLE)
    changes = admitted(bad, admission(), at=T)
    changes = replace(changes, workloads=(*changes.workloads, pending(good)))
    with pytest.raises(Unwritable) as raised:
        await store.commit(changes, epoch=epoch)
    assert (list(raised.value.faults), raised.value.revision) == (["bad"], None)
    assert (await store.load()).workloads == ()


async def test_error_names_the_workload_that_contradicts_the_ledger(store):
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(), at=T), epoch=epoch)
    twice = admitted(workload("1"), admission(), at=T + 1)
    both = replace(twice, workloads=(*twice.workloads, pending(workload("2"))))
    with pytest.raises(ContradictsLedger) as raised:
        await store.commit(both, epoch=epoch)
    assert list(raised.value.faults) == ["1"]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("pod_sets", "spec", "{}"),
        ("pod_sets", "spec", "[1]"),
        ("pod_sets", "spec", '{"requests": {}, "tolerations": [[1,2,3,4,5,6]]}'),
        ("workloads", "original", "[]"),
        ("workloads", "original", '"text"'),
    ],
)
async def test_unreadable_row_is_a_fault_and_other_workloads_are_loaded(store, database_url, table, column, value):
    epoch = await store.lead("test")
    odd = workload("odd", pod_sets=(PodSet("main", 7, {"cpu": 1}),))
    await store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch)
    await store.commit(admitted(odd, admission(), at=T), epoch=epoch)
    where = "uid = 'odd'" if table == "workloads" else "count = 7"
    given = ":value" if database_url.startswith("sqlite") else "CAST(:value AS JSON)"
    await _execute(database_url, f"UPDATE {table} SET {column} = {given} WHERE {where}", value=value)
    state = await store.load()
    assert list(state.faults) == ["odd"]
    by_uid = {record.workload.uid: record for record in state.workloads}
    assert by_uid["1"].workload == workload("1")
    assert (by_uid["odd"].state, by_uid["odd"].admission) == (State.ADMITTED, admission())
    assert by_uid["odd"].workload.pod_sets == ()
    assert by_uid["odd"].message.startswith("its row in the database cannot be read: ")
    page = await store.workloads.list(namespace="team-a")
    assert [record.workload.uid for record in page.workloads] == ["1", "odd"]


async def test_workload_with_invalid_json_in_a_row_is_loaded_as_a_fault(store, database_url, database_kind):
    if database_kind == "postgresql":
        pytest.skip("PostgreSQL looks at what it is given")
    epoch = await store.lead("test")
    await store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch)
    await _execute(database_url, "UPDATE pod_sets SET spec = '{'")
    assert list((await store.load()).faults) == ["1"]
