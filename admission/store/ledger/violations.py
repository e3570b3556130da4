"""Quota violations: the ledger is replayed commit by commit against the quota at each revision.

The order is that of revisions, not of times, so wrong clocks do not matter. Usage above a quota that was lowered is no
violation. A further admission then is one, unless the leader had not read the lower quota yet: each row of the ledger
has the revision up to which its leader had read queue objects.
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
from admission.store.ledger.usage import QuotaKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.engine.tree import FlavorResource, Node
    from admission.store.records import Document


@dataclass(frozen=True, slots=True)
class Violation:
    """An admission beyond the available quota."""

    revision: int
    """Revision of the commit."""
    at: float
    """Start of the admission (Unix time, s)."""
    quota_key: QuotaKey
    over: int
    """Amount beyond the quota: milli-CPU for cpu, else base units."""
    workloads: tuple[str, ...]
    """Uids of the workloads that were admitted with it."""


class Row(NamedTuple):
    """A row of the ledger: an amount held from revision `begun` to `ended` (None: it is open)."""

    uid: str
    quota_key: QuotaKey
    amount: int
    at: float
    begun: int
    ended: int | None
    known: int
    """Revision up to which the leader had read queue objects when it decided."""


class RecordVersion(NamedTuple):
    """A version of a ClusterQueue or Cohort. `spec` None: it was deleted."""

    revision: int
    kind: str
    name: str
    spec: NodeSpec | None


_UNKNOWN_REVISION = 0
"""Stands for the unknown revision of old rows: lower than any other. Not checked, as the quota of then is unknown."""

_Specs: TypeAlias = "dict[tuple[str, str], NodeSpec]"


class _Change(NamedTuple):
    revision: int
    row: Row | None
    amount: int
    version: RecordVersion | None


def violations(rows: Iterable[Row], versions: Iterable[RecordVersion], *, since: float = 0.0) -> Iterator[Violation]:
    """Yield the violations by admissions that started at `since` or later, in order of revision."""
    rows = list(rows)
    replay = _Replay({(row.quota_key.flavor, row.quota_key.resource) for row in rows})
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


async def read(connection: AsyncConnection, *, since: float = 0.0) -> tuple[list[Row], list[RecordVersion]]:
    """Return the ledger rows in force at `since` or later, and all versions of ClusterQueues and Cohorts."""
    columns = admissions.c
    statement = select(
        columns.workload_uid, columns.cluster_queue, columns.flavor, columns.resource, columns.amount, columns.from_at,
        columns.from_revision, columns.to_revision, columns.to_at, columns.known_revision,
    ).where(columns.amount > 0)  # fmt: skip
    rows = []
    for in_force in usage_rows.in_force(since):
        result = await connection.stream(statement.where(in_force))
        async for uid, cluster_queue, flavor, resource, amount, at, begun, ended, to_at, known in result:
            # Rows written before the ledger had revisions started, or ended, before all others.
            end = None if to_at is None else ended or _UNKNOWN_REVISION
            begun = begun or _UNKNOWN_REVISION
            known = begun if known is None else known
            rows.append(Row(uid, QuotaKey(cluster_queue, flavor, resource), amount, at, begun, end, known))
    written = queue_object_versions.c
    found = await connection.execute(
        select(written.revision, written.kind, written.name, written.operation, written.content)
        .where(written.kind.in_([ClusterQueue.kind, Cohort.kind]))
        .order_by(written.id)
    )
    versions = [
        RecordVersion(revision, kind, name, None if operation == "delete" else _spec(kind, name, content["spec"]))
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
    """Replay of quota and usage, one revision after the other."""

    def __init__(self, known: Iterable[FlavorResource]) -> None:
        self._known = tuple(known)
        self._used: defaultdict[QuotaKey, int] = defaultdict(int)
        self._specs: _Specs = {}
        self._past: list[tuple[int, _Specs]] = []
        """Former specs, each with the revision at which it was replaced, in order."""
        self._trees: dict[str, Tree] | None = None
        """Tree with the present usage, by ClusterQueue; None: to be built again."""

    def commit(self, revision: int, changes: Iterable[_Change]) -> Iterator[Violation]:
        """Apply the changes of one transaction, and yield its violations."""
        deltas: defaultdict[tuple[QuotaKey, str], int] = defaultdict(int)
        at, known = 0.0, revision
        for change in changes:
            if change.version is not None:
                self._write(change.version)
            elif change.row is not None:
                deltas[change.row.quota_key, change.row.uid] += change.amount
                if change.amount > 0:
                    at, known = change.row.at, min(known, change.row.known)
        for (quota_key, _), amount in deltas.items():
            self._use(quota_key, amount)
        if revision == _UNKNOWN_REVISION:
            return
        admitted: defaultdict[QuotaKey, list[str]] = defaultdict(list)
        for (quota_key, uid), amount in deltas.items():
            if amount > 0:
                admitted[quota_key].append(uid)
        for quota_key, uids in admitted.items():
            over = -self._available(self._current(), quota_key)
            if over > 0 and not self._was_available(quota_key, known):
                yield Violation(revision, at, quota_key, over, tuple(sorted(uids)))

    def _write(self, version: RecordVersion) -> None:
        self._past.append((version.revision, self._specs))
        self._specs = dict(self._specs)
        key = version.kind, version.name
        if version.spec is None:
            self._specs.pop(key, None)
        else:
            self._specs[key] = version.spec
        self._trees = None

    def _use(self, quota_key: QuotaKey, amount: int) -> None:
        self._used[quota_key] += amount
        if self._trees is not None and (tree := self._trees.get(quota_key.cluster_queue)) is not None:
            add_usage(*_node_and_index(tree, quota_key), amount)

    def _current(self) -> dict[str, Tree]:
        if self._trees is None:
            self._trees = self._trees_with_usage(self._specs)
        return self._trees

    def _trees_with_usage(self, specs: _Specs) -> dict[str, Tree]:
        """Return the trees of these specs with the present usage, by ClusterQueue."""
        trees = _trees(specs, self._known)
        for quota_key, amount in self._used.items():
            if amount and quota_key.cluster_queue in trees:
                add_usage(*_node_and_index(trees[quota_key.cluster_queue], quota_key), amount)
        return trees

    def _was_available(self, quota_key: QuotaKey, known: int) -> bool:
        """Whether the quota sufficed with the queue objects of revision `known`, or of any later one."""
        since = takewhile(lambda past: past[0] > known, reversed(self._past))
        return any(self._available(self._trees_with_usage(specs), quota_key) >= 0 for _, specs in since)

    def _available(self, trees: Mapping[str, Tree], quota_key: QuotaKey) -> int:
        tree = trees.get(quota_key.cluster_queue)
        return -self._used[quota_key] if tree is None else available(*_node_and_index(tree, quota_key))


def _node_and_index(tree: Tree, quota_key: QuotaKey) -> tuple[Node, int]:
    return tree.queues[quota_key.cluster_queue], tree.index[quota_key.flavor, quota_key.resource]


def _trees(specs: _Specs, known: Iterable[FlavorResource]) -> dict[str, Tree]:
    """Return the tree of each ClusterQueue. A Cohort that is referenced exists implicitly, as in Kueue."""
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
    """Return the root Cohort; "" for a ClusterQueue without one. There are no cycles: the store rejects them."""
    name = spec.name if spec is cohorts.get(spec.name) else spec.parent
    while name and (parent := cohorts[name].parent):
        name = parent
    return name
