"""Nominal quotas that follow the nodes of their flavors: the leader writes them as an admin would, with a reason.

So everything that reads quota (decisions, history, reports, what-if) needs no other source, and each change is audited.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.controller.state.repeating import repeat
from admission.engine.matching import elsewhere, tolerates
from admission.model.quantity import add, amount, format_amount
from admission.model.queues import Cluster, ClusterQueue, Cohort
from admission.model.quotas import quotas, with_quotas
from admission.store.audit_log import Author

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.controller.state.faults import Faults
    from admission.controller.workloads.nodes_and_pods import NodesAndPods
    from admission.engine.topology.nodes import NodeState
    from admission.model.queues import ResourceFlavor
    from admission.model.quotas import ResourceQuota
    from admission.model.topology import NodeTaint
    from admission.store.store import Store

log = logging.getLogger(__name__)

INTERVAL: Final = 10.0
"""Seconds between two looks at the nodes."""


class ManagedQuota(NamedTuple):
    """A quota: of which object, in which flavor, of which resource."""

    kind: str
    name: str
    flavor: str
    resource: str


def capacity(nodes: Iterable[NodeState], flavor: ResourceFlavor) -> tuple[int, dict[str, int]]:
    """Return the number of nodes that new pods of a flavor can run on, and what these can allocate together."""
    spec, number = flavor.spec, 0
    found: dict[str, int] = {}
    for node in nodes:
        if not node.usable or not spec.node_labels.items() <= node.labels.items():
            continue
        taints = (taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute"))
        if not all(_is_expected(taint, flavor) for taint in taints):
            continue
        number += 1
        add(found, node.allocatable)
    return number, found


def _is_expected(taint: NodeTaint, flavor: ResourceFlavor) -> bool:
    """Whether pods of the flavor run on nodes with this taint: the flavor has or tolerates it."""
    named = any((each.key, each.effect) == (taint.key, taint.effect) for each in flavor.spec.node_taints)
    return named or any(tolerates(each, taint) for each in flavor.spec.tolerations)


class Smoothed:
    """The highest of the values of the last seconds: nodes that are away for a moment take no quota away."""

    def __init__(self, value: int, at: float) -> None:
        """`value`: the quota as it is when this begins."""
        self._values: deque[tuple[float, int]] = deque([(at, value)])
        """(time, value), falling values only: others before a higher one do not matter any more."""

    def add(self, value: int, at: float, *, seconds: float) -> int:
        """Add the value of now, and return the highest of the last `seconds`."""
        values = self._values
        while values and (values[-1][1] <= value or values[-1][0] > at):
            values.pop()
        values.append((at, value))
        while values[0][0] < at - seconds:
            values.popleft()
        return values[0][1]


class QuotasFromNodes:
    """Writes the quotas that follow nodes.

    `views`: returns what is seen of each cluster. `leads`: whether this replica decides now.
    """

    def __init__(
        self,
        store: Store,
        views: Callable[[], Mapping[str, NodesAndPods]],
        flavors: Callable[[], Mapping[str, ResourceFlavor]],
        leads: Callable[[], bool],
        faults: Faults,
        *,
        interval: float = INTERVAL,
    ) -> None:
        self._interval = interval
        self._store = store
        self._views = views
        self._flavors = flavors
        self._leads = leads
        self._faults = faults
        self._smoothed: dict[ManagedQuota, Smoothed] = {}

    async def run(self) -> None:
        """Write what has changed every `interval` seconds, until cancelled."""
        await repeat(self.write, self._faults, every=self._interval, name="quota that follows nodes")

    async def write(self) -> None:
        """Write the quotas that differ from what the nodes have. Raises SluiceError."""
        objects = [each for kind in (ClusterQueue.kind, Cohort.kind) for each in await self._store.queues.list(kind)]
        following = [
            each
            for each in objects
            if isinstance(each, ClusterQueue | Cohort)
            if any(quota.from_nodes is not None for _, quota in quotas(each.spec.resource_groups))
        ]
        if not following or not self._leads():
            self._smoothed.clear()
            return
        found = self._capacities(
            {each.name: each.metadata.labels for each in await self._store.queues.list(Cluster.kind)}
        )
        known = self._smoothed
        self._smoothed = {}
        for each in following:
            await self._follow(each, found, known)

    def _capacities(self, labels: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[int, Mapping[str, int]]]:
        """Return `capacity` of each flavor in all of its clusters, without flavors of which not all nodes are known."""
        views, unknown = self._views(), set()
        for name, view in views.items():
            if not view.watch_nodes():
                unknown.add(name)
                if (failure := view.nodes_failure) is not None:
                    log.warning("quota that follows nodes of the cluster %s stays as it is: %s", name, failure)
        found: dict[str, tuple[int, Mapping[str, int]]] = {}
        for flavor in self._flavors().values():
            places = {name for name in views if not elsewhere(flavor, name, labels)}
            if not places & unknown:
                found[flavor.name] = capacity((node for name in places for node in views[name].nodes.values()), flavor)
        return found

    async def _follow(
        self,
        item: ClusterQueue | Cohort,
        found: Mapping[str, tuple[int, Mapping[str, int]]],
        known: Mapping[ManagedQuota, Smoothed],
    ) -> None:
        now = self._store.now()
        notes: list[str] = []

        def nominal(flavor: str, quota: ResourceQuota) -> ResourceQuota:
            rule = quota.from_nodes
            if rule is None:
                return quota
            key = ManagedQuota(item.kind, item.name, flavor, quota.name)
            if flavor not in found:
                self._smoothed |= {key: known[key]} if key in known else {}
                return quota
            before = amount(quota.name, quota.nominal_quota)
            smoothed = self._smoothed[key] = known.get(key) or Smoothed(before, now)
            number, amounts = found[flavor]
            has = amounts.get(quota.name, 0)
            wanted = smoothed.add(rule.nominal(quota.name, has), now, seconds=rule.shrink_after_seconds)
            if wanted == before:
                return quota
            text = format_amount(quota.name, wanted)
            of = f"{number} node{'' if number == 1 else 's'} of {flavor}"
            notes.append(f"{of} with {format_amount(quota.name, has)} {quota.name}: {quota.nominal_quota} to {text}")
            return quota.model_copy(update={"nominal_quota": text})

        groups = with_quotas(item.spec.resource_groups, nominal)
        if notes:
            spec = item.spec.model_copy(update={"resource_groups": groups})
            author = Author("sluice", reason=f"fromNodes: {'; '.join(notes)}")
            await self._store.queues.replace(item.model_copy(update={"spec": spec}), author=author)
