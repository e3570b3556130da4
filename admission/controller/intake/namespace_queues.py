"""Creation of LocalQueues in the namespaces that ClusterQueues select, as Kueue's experimental kueue-populator does."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from admission.kinds.base import DEFAULT_QUEUE
from admission.model.base import ObjectMeta
from admission.model.errors import StoreError
from admission.model.queues import ClusterQueue, LocalQueue, LocalQueueSpec
from admission.store.audit_log import Author
from admission.store.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import NoReturn

    from admission.controller.intake.watches import ClusterWatches
    from admission.model.base import LabelSelector
    from admission.store.store import Store

log = logging.getLogger(__name__)

Naming: TypeAlias = Literal["default", "cluster-queue"]
"""Names of created LocalQueues: `default`, one in each namespace, or that of the ClusterQueue, one for each of them."""

_RETRY_DELAY: Final = 2.0
"""Seconds between two attempts, and between two checks whether this replica is the leader."""


class NamespaceQueues:
    """Creates missing LocalQueues of selected namespaces, while this replica `leads`; changes and deletes none."""

    def __init__(
        self,
        store: Store,
        watches: ClusterWatches,
        *,
        naming: Naming,
        namespaces: LabelSelector,
        excluded: Collection[str],
        leads: Callable[[], bool],
    ) -> None:
        """`namespaces`: selects those that may get LocalQueues; `excluded`: names of some that get none."""
        self._store = store
        self._context = watches.context
        self._synced = watches.context_synced
        self._naming: Naming = naming
        self._namespaces = namespaces
        self._excluded = excluded
        self._leads = leads
        self._complete: tuple[object, ...] = ()
        """ClusterQueues, LocalQueues and namespaces at the last attempt that succeeded: nothing is missing for them."""
        self._wakeup = asyncio.Event()
        watches.add_listener(lambda _kind, _change: None, self._wakeup.set)

    async def run(self) -> NoReturn:
        """Create LocalQueues until cancelled. Errors of the database are logged, and the attempt is repeated."""
        await self._synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_queues(), name="queue objects")
            while True:
                self._wakeup.clear()
                if not self._leads() or not await self._create_all():
                    await asyncio.sleep(_RETRY_DELAY)
                    continue
                await self._wakeup.wait()

    async def _follow_queues(self) -> NoReturn:
        revision = 0
        while True:
            revision = await self._store.revisions.wait_for_external(revision)
            self._wakeup.set()

    async def _create_all(self) -> bool:
        """Create all LocalQueues that are missing; return False if that has to be tried again."""
        queues = self._store.queues
        try:
            selecting = [queue for queue in await queues.list(ClusterQueue.kind) if isinstance(queue, ClusterQueue)]
            existing = {obj.key[1:] for obj in await queues.list(LocalQueue.kind)}
            state = selecting, existing, self._candidates()
            if state == self._complete:
                return True
            # On a thread: with a thousand namespaces and hundreds of ClusterQueues it takes tenths of a second.
            for missing in await asyncio.to_thread(lambda: list(missing_queues(*state, self._naming))):
                reason = f'ClusterQueue "{missing.spec.cluster_queue}" selects the namespace (createLocalQueues)'
                try:
                    await queues.create(missing, author=Author("sluice", reason=reason))
                except AlreadyExists:
                    continue  # an admin was faster
        except StoreError as error:
            log.warning("cannot create LocalQueues, and tries again: %s", error)
            return False
        self._complete = state
        return True

    def _candidates(self) -> dict[str, Mapping[str, str]]:
        """Return the labels of the namespaces that may get LocalQueues, by name."""
        found = {name: self._context.namespace_labels(name) for name in self._context.lasting_namespaces()}
        return {
            name: labels
            for name, labels in found.items()
            if labels is not None and name not in self._excluded and self._namespaces.matches(labels)
        }


def missing_queues(
    selecting: Sequence[ClusterQueue],
    existing: Collection[tuple[str, str]],
    namespaces: Mapping[str, Mapping[str, str]],
    naming: Naming,
) -> Iterator[LocalQueue]:
    """Yield the LocalQueues that `namespaces` (labels by name) lack; `existing` has (namespace, name).

    If several ClusterQueues select a namespace, the LocalQueue `default` belongs to the first one by name.
    """
    by_name = sorted(selecting, key=lambda queue: queue.name)
    for namespace, labels in sorted(namespaces.items()):
        for queue in by_name:
            selector = queue.spec.namespace_selector
            if selector is None or not selector.matches(labels):
                continue
            name = DEFAULT_QUEUE if naming == "default" else queue.name
            if (namespace, name) not in existing:
                metadata = ObjectMeta(name=name, namespace=namespace)
                yield LocalQueue(metadata=metadata, spec=LocalQueueSpec(cluster_queue=queue.name))
            if naming == "default":
                break
