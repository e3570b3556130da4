"""Quota violations: the ledger replayed commit by commit against the quota of each moment.

It goes by revisions, not by times, so it is right whatever clocks did. Less quota than is held is no violation when it
comes from quota that was lowered; giving more of it away then is one, unless the leader had not read of it yet: each
row of the ledger says how far it had.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sqlalchemy import select

from admission.engine.tree import NodeSpec, Quota, Tree, add_usage, available, build
from admission.model.queues import ClusterQueue, Cohort
from admission.model.quotas import ResourceGroup
from admission.store.database.tables import admissions, queue_object_versions
from admission.store.ledger import usage_rows
from admission.store.ledger.usage import Pot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.engine.tree import FlavorResource, Node
    from admission.store.records import Document


@dataclass(frozen=True, slots=True)
class Violation:
    """An admission beyond the quota that there was."""

    revision: int
    """The revision of the commit."""
    at: float
    pot: Pot
    over: int
    """The amount beyond the quota, as in the model."""
    workloads: tuple[str, ...]
    """Uids of the workloads that were admitted with it."""


class Row(NamedTuple):
    """A row of the ledger: an amount held from one revision to another."""

    uid: str
    pot: Pot
    amount: int
    at: float
    begun: int
    ended: int | None
    known: int
    """The revision of queue objects that the decider had read."""


class Version(NamedTuple):
    """A version of a ClusterQueue or Cohort; None: it was deleted."""

    revision: int
    kind: str
    name: str
    spec: NodeSpec | None


_BEFORE = 0
"""Lower than any revision; what has it is not judged, for the quota of its time is not known."""

_Specs: TypeAlias = "dict[tuple[str, str], NodeSpec]"


class _Change(NamedTuple):
    revision: int
    row: Row | None
    amount: int
    version: Version | None


def violations(rows: Iterable[Row], versions: Iterable[Version], *, since: float = 0.0) -> Iterator[Violation]:
    """Those among the admissions that began at `since` or later, in their order."""
    rows = list(rows)
    replay = _Replay({(row.pot.flavor, row.pot.resource) for row in rows})
    changes = [_Change(version.revision, None, 0, version) for version in versions]
    for row in rows:
        changes.append(_Change(row.begun, row, row.amount, None))
        if row.ended is not None:
            changes.append(_Change(row.ended, row, -row.amount, None))
    changes.sort(key=attrgetter("revision"))
    for revision, together in groupby(changes, key=attrgetter("revision")):
        for violation in replay.commit(revision, list(together)):
            if violation.at >= since:
                yield violation


async def read(connection: AsyncConnection, *, since: float = 0.0) -> tuple[list[Row], list[Version]]:
    """What the ledger, as far as it was in force at `since` or later, and the history of queue objects say."""
    columns = admissions.c
    statement = select(
        columns.workload_uid, columns.cluster_queue, columns.flavor, columns.resource, columns.amount, columns.from_at,
        columns.from_revision, columns.to_revision, columns.to_at, columns.known_revision,
    ).where(columns.amount > 0)  # fmt: skip
    rows = []
    for in_force in usage_rows.in_force(since):
        result = await connection.stream(statement.where(in_force))
        async for uid, cluster_queue, flavor, resource, amount, at, begun, ended, to_at, known in result:
            # Rows of the time before revisions were noted were there, or gone, before all others.
            end = None if to_at is None else ended or _BEFORE
            begun = begun or _BEFORE
            known = begun if known is None else known
            rows.append(Row(uid, Pot(cluster_queue, flavor, resource), amount, at, begun, end, known))
    written = queue_object_versions.c
    found = await connection.execute(
        select(written.revision, written.kind, written.name, written.operation, written.content)
        .where(written.kind.in_([ClusterQueue.kind, Cohort.kind]))
        .order_by(written.id)
    )
    versions = [
        Version(revision, kind, name, None if operation == "delete" else _spec(kind, name, content["spec"]))
        for revision, kind, name, operation, content in found
    ]
    return rows, versions


def _spec(kind: str, name: str, spec: Document) -> NodeSpec:
    parent = spec.get("cohortName" if kind == ClusterQueue.kind else "parentName") or ""
    groups = (ResourceGroup.model_validate(group) for group in spec.get("resourceGroups", ()))
    quotas = {
        (flavor.name, quota.name): Quota(quota.nominal, quota.borrowing, quota.lending)
        for group in groups
        for flavor in group.flavors
        for quota in flavor.resources
    }
    return NodeSpec(name, parent, quotas)


class _Replay:
    """Quota and usage, replayed one revision after the other."""

    def __init__(self, known: Iterable[FlavorResource]) -> None:
        self._known = tuple(known)
        self._used: defaultdict[Pot, int] = defaultdict(int)
        self._specs: _Specs = {}
        self._past: list[tuple[int, _Specs]] = []
        """Until which revision, and how the queue objects were."""
        self._trees: dict[str, Tree] | None = None
        """By ClusterQueue."""

    def commit(self, revision: int, changes: Iterable[_Change]) -> Iterator[Violation]:
        """What one transaction wrote, and what of it must not have been."""
        more: defaultdict[tuple[Pot, str], int] = defaultdict(int)
        at, known = 0.0, revision
        for change in changes:
            if change.version is not None:
                self._write(change.version)
            elif change.row is not None:
                more[change.row.pot, change.row.uid] += change.amount
                if change.amount > 0:
                    at, known = change.row.at, min(known, change.row.known)
        for (pot, _), amount in more.items():
            self._use(pot, amount)
        if revision == _BEFORE:
            return
        given: defaultdict[Pot, list[str]] = defaultdict(list)
        for (pot, uid), amount in more.items():
            if amount > 0:
                given[pot].append(uid)
        for pot, uids in given.items():
            over = -self._available(self._current(), pot)
            if over > 0 and not self._was_there(pot, known):
                yield Violation(revision, at, pot, over, tuple(sorted(uids)))

    def _write(self, version: Version) -> None:
        self._past.append((version.revision, self._specs))
        self._specs = dict(self._specs)
        key = version.kind, version.name
        if version.spec is None:
            self._specs.pop(key, None)
        else:
            self._specs[key] = version.spec
        self._trees = None

    def _use(self, pot: Pot, amount: int) -> None:
        self._used[pot] += amount
        if self._trees is not None and (tree := self._trees.get(pot.cluster_queue)) is not None:
            add_usage(*_place(tree, pot), amount)

    def _current(self) -> dict[str, Tree]:
        if self._trees is None:
            self._trees = self._grown(self._specs)
        return self._trees

    def _grown(self, specs: _Specs) -> dict[str, Tree]:
        """All trees of these objects, with all that is used in them."""
        trees = _trees(specs, self._known)
        for pot, amount in self._used.items():
            if amount and pot.cluster_queue in trees:
                add_usage(*_place(trees[pot.cluster_queue], pot), amount)
        return trees

    def _was_there(self, pot: Pot, known: int) -> bool:
        """Whether it was there as the queue objects were at the revision `known`, or at any one since then."""
        since = takewhile(lambda past: past[0] > known, reversed(self._past))
        return any(self._available(self._grown(specs), pot) >= 0 for _, specs in since)

    def _available(self, trees: Mapping[str, Tree], pot: Pot) -> int:
        tree = trees.get(pot.cluster_queue)
        return -self._used[pot] if tree is None else available(*_place(tree, pot))


def _place(tree: Tree, pot: Pot) -> tuple[Node, int]:
    return tree.queues[pot.cluster_queue], tree.index[pot.flavor, pot.resource]


def _trees(specs: _Specs, known: Iterable[FlavorResource]) -> dict[str, Tree]:
    """By ClusterQueue. A Cohort that is named is there, whether or not it was written."""
    cohorts = {name: spec for (kind, name), spec in specs.items() if kind == Cohort.kind}
    for spec in list(specs.values()):
        if spec.parent:
            cohorts.setdefault(spec.parent, NodeSpec(spec.parent, "", {}))
    members: defaultdict[str, tuple[list[NodeSpec], list[NodeSpec]]] = defaultdict(lambda: ([], []))
    for (kind, name), spec in specs.items():
        if kind == ClusterQueue.kind:
            members[_root(spec, cohorts) or f"/{name}"][0].append(spec)
    for spec in cohorts.values():
        members[_root(spec, cohorts)][1].append(spec)
    found: dict[str, Tree] = {}
    for queues, inner in members.values():
        tree = build(queues, inner, known)
        found |= dict.fromkeys(tree.queues, tree)
    return found


def _root(spec: NodeSpec, cohorts: Mapping[str, NodeSpec]) -> str:
    """The topmost Cohort; "" for a ClusterQueue without one. The store lets no cycle be written."""
    name = spec.name if spec is cohorts.get(spec.name) else spec.parent
    while name and (parent := cohorts[name].parent):
        name = parent
    return name
