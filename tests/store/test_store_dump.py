"""Dump and restore of a database: content, damaged dumps, other schemas, and targets that are not empty."""

from __future__ import annotations

import copy
import gzip
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, text
from store_examples import (
    ELABORATE_POD_SETS,
    admission,
    admitted,
    cluster_queue,
    finished,
    flavor,
    local_queue,
    pending,
    workload,
)

from admission.model.capacity import Capacity, SeenCapacity
from admission.model.checks import CheckReport
from admission.store.audit_log import Author
from admission.store.database.tables import head, metadata
from admission.store.errors import DatabaseNotEmpty, DatabaseUnusable, StaleEpoch, UnusableDump
from admission.store.joined_clusters import JoinedCluster
from admission.store.ledger.measured_usage import Measured
from admission.store.records import Changes, CheckRecord, Transition
from admission.store.store import Store
from admission.store.workloads.places import QueuePlace
from tests.conftest import Clock

HOUR = 3600.0


@pytest.fixture
async def target(database_kind: str, make_database_url: Any) -> AsyncIterator[Store]:
    """An empty database of the other kind (SQLite or PostgreSQL), so that differences between the two show."""
    other = "sqlite" if database_kind == "postgresql" else "postgresql"
    async with opened(await make_database_url(other)) as store:
        yield store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    async with Store.open(url) as store:
        yield store


async def fill(store: Store, clock: Clock) -> None:
    """Write at least one row into every table."""
    epoch = await store.lead("test")
    author = Author("ada", groups=("admins",), reason="début")
    for obj in (flavor(), cluster_queue(), local_queue()):
        await store.queues.create(obj, author=author)
    assert (await store.identity()).database
    await store.note_cluster("its-cluster")
    await store.joined_clusters.note(
        JoinedCluster("b", "uid-of-b", "Lost", clock.now, "is lost: no answer"), epoch=epoch
    )
    seen = SeenCapacity(clock.now, Capacity(2, 1, 1, {"cpu": 4000}, {"cpu": 2000}))
    await store.joined_clusters.note_capacity("b", seen, epoch=epoch)
    await store.queues.replace(cluster_queue(cpu="12", labels={"a": "b"}), author=author)
    waits, runs, done = workload("1"), workload("2", priority=-5), workload("3", pod_sets=ELABORATE_POD_SETS)
    await store.commit(
        Changes(
            workloads=(pending(waits, reason="WaitingForQuota", message="näher", past_seconds=0.1),),
            transitions=(Transition("1", clock.now + 0.123457, pending(waits).state, "Queued"),),
        ),
        epoch=epoch,
    )
    await store.commit(admitted(done, admission(2**62), at=clock.now), epoch=epoch)
    await store.commit(finished(done, at=clock.now + 0.000001), epoch=epoch)
    asked = CheckRecord("2", "check", "Pending", clock.now)
    await store.commit(admitted(runs, admission(3), at=clock.now + 1.5), epoch=epoch)
    await store.commit(Changes(checks=(asked,)), epoch=epoch)
    await store.orders.give("1", author=author, place=QueuePlace())
    report = {"name": "check", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}
    await store.orders.report("2", [CheckReport.model_validate(report)], author=author)
    measured = Measured(clock.now - clock.now % HOUR, "2", "cq", "lq", "default", "cpu", 0.3, 0.1)
    await store.measured_usage.add([measured], epoch=epoch)
    clock.advance(30 * HOUR)
    await store.roll_up(epoch=epoch)


async def dumped(store: Store) -> bytes:
    file = io.BytesIO()
    await store.dump(file.write, check_progress)
    return file.getvalue()


def check_progress(table: str, done: int, total: int) -> None:
    assert 0 < done <= total


async def rows(store: Store) -> dict[str, list[dict[str, Any]]]:
    async with store._database.read() as connection:
        return {
            table.name: [
                dict(row) for row in (await connection.execute(select(table).order_by(*table.primary_key))).mappings()
            ]
            for table in metadata.sorted_tables
            if table.info.get("exported", True)
        }


async def test_restore_copies_the_rows_of_all_tables(store: Store, clock: Clock, target: Store):
    await fill(store, clock)
    before = await rows(store)
    assert all(before.values()), "an empty table proves nothing"

    await target.restore(io.BytesIO(await dumped(store)), check_progress)

    after = await rows(target)
    assert {name: found for name, found in after.items() if name != "head"} == {
        name: found for name, found in before.items() if name != "head"
    }
    kept = ("revision", "rolled_up_to", "pruned_to", "identity", "cluster")
    assert [after["head"][0][name] for name in kept] == [before["head"][0][name] for name in kept]


@pytest.mark.costly
async def test_epochs_revisions_and_row_ids_continue_after_a_restore(store: Store, clock: Clock, target: Store):
    await fill(store, clock)
    before = await rows(store)
    await target.restore(io.BytesIO(await dumped(store)), check_progress)

    epoch = await target.lead("test")
    assert epoch > before["head"][0]["epoch"]
    revision = await target.commit(admitted(workload("4"), admission(1), at=clock.now), epoch=epoch)
    assert revision > before["head"][0]["revision"]
    await target.queues.create(flavor("other"), author=Author("ada"))
    for table in ("admissions", "queue_object_versions", "audit_records"):
        ids = [row["id"] for row in (await rows(target))[table]]
        assert ids[-1] == max(row["id"] for row in before[table]) + 1


async def test_restore_deposes_the_leader_of_the_target_database(store: Store, clock: Clock, target: Store):
    epoch = await target.lead("test")
    await fill(store, clock)
    await target.restore(io.BytesIO(await dumped(store)), check_progress)
    with pytest.raises(StaleEpoch):
        await target.commit(admitted(workload("4"), admission(1), at=clock.now), epoch=epoch)


async def test_restore_into_a_database_with_content_is_rejected(store: Store, clock: Clock):
    await fill(store, clock)
    before = await rows(store)
    with pytest.raises(DatabaseNotEmpty, match="is not empty"):
        await store.restore(io.BytesIO(await dumped(store)), check_progress)
    assert await rows(store) == before


@pytest.mark.long
async def test_truncated_or_changed_dump_is_rejected_and_nothing_is_restored(store: Store, clock: Clock, target: Store):
    await fill(store, clock)
    whole = await dumped(store)
    lines = whole.splitlines(keepends=True)
    empty = await rows(target)
    swapped = next(i for i, line in enumerate(lines) if b"WaitingForQuota" in line)
    changed = [*lines[:swapped], lines[swapped].replace(b"WaitingForQuota", b"WaitingForquota"), *lines[swapped + 1 :]]
    wrong = [
        *(lines[:end] for end in range(1, len(lines))),
        [*lines[:5], lines[5][: len(lines[5]) // 2]],
        [*lines[:-3], *lines[-2:]],
        changed,
    ]
    for each in wrong:
        with pytest.raises(UnusableDump, match=r"nothing was imported|no export"):
            await target.restore(each, check_progress)
    assert await rows(target) == empty
    await target.restore(lines, check_progress)
    assert (await rows(target))["workloads"] == (await rows(store))["workloads"]


async def test_database_that_is_read_only_can_be_dumped(make_database_url: Any):
    url = await make_database_url("postgresql")
    async with opened(url) as store, store._database.write() as connection:
        name = await connection.scalar(select(func.current_database()))
        await connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    with pytest.raises(DatabaseUnusable):
        async with Store.open(url):
            pass
    async with Store.open(url, writes=False) as store:
        assert b"sluice-dump" in await dumped(store)


@pytest.mark.costly
async def test_truncated_or_changed_compressed_dump_is_rejected(store: Store, clock: Clock, target: Store):
    await fill(store, clock)
    packed = gzip.compress(await dumped(store))
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    for each in (packed[: len(packed) // 2], packed[:-100], bytes(flipped)):
        with pytest.raises(UnusableDump):
            await target.restore(gzip.GzipFile(fileobj=io.BytesIO(each)), check_progress)
    await target.restore(gzip.GzipFile(fileobj=io.BytesIO(packed)), check_progress)


VALUES = [None, "x", "\0", True, -1, 2**70, 1.5, 1e300, [], {}, [[1]]]


@pytest.mark.long
async def test_dump_with_any_damaged_value_is_rejected(store: Store, clock: Clock, target: Store):
    await fill(store, clock)
    lines = [json.loads(line) for line in (await dumped(store)).splitlines()]
    empty = await rows(target)
    random = Random(7)
    for number, line in enumerate(lines[:-1]):
        damaged = copy.deepcopy(line)
        place = random.choice([*range(len(line))] if isinstance(line, list) else [*line])
        damaged[place] = random.choice([each for each in VALUES if json.dumps(each) != json.dumps(line[place])])
        file = [*lines[:number], damaged, *lines[number + 1 :]]
        with pytest.raises(UnusableDump):
            await target.restore((json.dumps(each).encode() + b"\n" for each in file), lambda *_: None)
    assert await rows(target) == empty


@pytest.mark.parametrize("file", [b"", b"apiVersion: v1\n", b"[1, 2]\n", b'{"kind": "List"}\n', b"\xff\xfe"])
async def test_file_that_is_not_a_dump_is_rejected(store: Store, file: bytes):
    with pytest.raises(UnusableDump, match="no export of Sluice's"):
        await store.restore(io.BytesIO(file), check_progress)


async def test_dump_of_another_schema_is_rejected_with_a_hint_to_migrate(store: Store):
    header = json.dumps({"format": "sluice-dump", "version": 1, "schema": "0001", "rows": {}}).encode()
    with pytest.raises(UnusableDump, match=r"schema 0001 and this Sluice 0022.*`sluice migrate`"):
        await store.restore([header], check_progress)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
INSTANTS = st.integers(0, 4_000_000_000_000_000).map(lambda micros: micros / 1_000_000)


@pytest.mark.long
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
async def test_any_workload_row_survives_dump_and_restore(make_database_url: Any, data: st.DataObject):
    """From SQLite to PostgreSQL, and back to SQLite."""
    records = [
        (
            uid,
            data.draw(TEXTS),
            data.draw(INSTANTS),
            data.draw(st.none() | INSTANTS),
            data.draw(st.integers(-(2**31), 2**31)),
        )
        for uid in data.draw(st.sets(TEXTS.filter(bool), max_size=4))
    ]
    first = await make_database_url("sqlite")
    async with opened(first) as store:
        epoch = await store.lead("test")
        for uid, text, at, ready, priority in records:
            original = {"spec": {text: [text, priority, None, 0.1]}}
            record = pending(
                workload(uid, created=at, priority=priority), message=text, ready_at=ready, original=original
            )
            await store.commit(Changes(workloads=(record,)), epoch=epoch)
        before, file = await rows(store), await dumped(store)
    for kind in ("postgresql", "sqlite"):
        async with opened(await make_database_url(kind)) as store:
            await store.restore(io.BytesIO(file), check_progress)
            after, file = await rows(store), await dumped(store)
            assert after["workloads"] == before["workloads"]


async def test_restore_of_the_dump_of_an_empty_database_has_revision_zero(store: Store, target: Store):
    await target.restore(io.BytesIO(await dumped(store)), check_progress)
    async with target._database.read() as connection:
        assert (await connection.execute(select(head.c.revision))).scalars().all() == [0]
