"""Lists of queue objects that one replica has read before, while another writes: any order of changes and restores."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from store_examples import cohort, flavor, local_queue

from admission.model.queues import QueueObject
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.store import Store

ADA = Author("ada")
KINDS = ("Cohort", "LocalQueue", "ResourceFlavor")
OBJECTS = st.sampled_from(
    [cohort("b"), cohort("a"), flavor("a"), local_queue("a", "team-b"), local_queue("b", "team-a"), local_queue("a")]
)
LABELS = st.sampled_from(["", "x", "y"])
WRITES = st.lists(st.tuples(OBJECTS, LABELS), min_size=1, max_size=3)


class CacheMachine(RuleBasedStateMachine):
    """State machine: writes of one store and lists of another, compared with a dictionary of the objects."""

    template: Path
    folder: Path
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        type(self).runs += 1
        self.path = self.folder / f"{self.runs}.db"
        self.path.write_bytes(self.template.read_bytes())
        self.now = 1_000_000.0
        self.opened = [Store.open(f"sqlite:///{self.path}", clock=self.clock) for _ in range(2)]
        self.writer, self.reader = [self.runner.run(each.__aenter__()) for each in self.opened]
        self.objects: dict[tuple[str, str, str], QueueObject] = {}
        self.listed: dict[str, tuple[QueueObject, ...]] = {}
        """By kind: the last list since the last restore."""

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    @rule(obj=OBJECTS, label=LABELS)
    def write(self, obj: QueueObject, label: str) -> None:
        labels = {"a": label} if label else {}
        obj = obj.model_copy(update={"metadata": obj.metadata.model_copy(update={"labels": labels})})
        change = self.writer.queues.replace if obj.key in self.objects else self.writer.queues.create
        self.objects[obj.key] = self.runner.run(change(obj, author=ADA))

    @rule(obj=OBJECTS)
    def delete(self, obj: QueueObject) -> None:
        if self.objects.pop(obj.key, None) is not None:
            kind, namespace, name = obj.key
            self.runner.run(self.writer.queues.delete(kind, name, namespace=namespace, author=ADA))

    @rule(lost=WRITES, then=WRITES)
    def restore(self, lost: list[tuple[QueueObject, str]], then: list[tuple[QueueObject, str]]) -> None:
        """Restore a backup in place of later writes that were listed already, and write in its stead."""
        backup, objects = self.path.with_suffix(".backup"), {**self.objects}
        self._copy(self.path, backup)
        for each in lost:
            self.write(*each)
        self.list()
        self._copy(backup, self.path)
        self.objects, self.listed = objects, {}
        for each in then:
            self.write(*each)

    @rule()
    def list(self) -> None:
        for kind in KINDS:
            found = self.runner.run(self.reader.queues.list(kind))
            assert [*found] == [self.objects[key] for key in sorted(self.objects) if key[0] == kind]
            known = {each.key: each for each in self.listed.get(kind, ())}
            assert all(each is known[each.key] for each in found if each == known.get(each.key)), "read again"
            self.listed[kind] = found

    def teardown(self) -> None:
        for each in self.opened:
            self.runner.run(each.__aexit__(None, None, None))
        self.runner.close()

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)


@pytest.mark.costly
def test_lists_equal_the_objects_after_any_order_of_writes_and_restores(tmp_path: Path):
    CacheMachine.folder, CacheMachine.template = tmp_path, tmp_path / "template"
    asyncio.run(migrate(f"sqlite:///{CacheMachine.template}"))
    CacheMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=20)
    CacheMachine.TestCase("runTest").runTest()
