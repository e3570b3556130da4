"""Objects that leave a watch by label without being deleted: they are read, and given the label again."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import NotFound
from admission.cluster.informer import Change
from admission.cluster.writer import Patch
from admission.controller.state.inbox import Answered, ObjectsChanged
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from admission.cluster.client import Client
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds

log = logging.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds before a request that failed is tried again."""


class LostLabels:
    """Looks at objects that the watch calls deleted though nobody has seen them end."""

    def __init__(
        self, kinds: Kinds, client: Client, writer: Writer, inbox: Inbox, reads: set[asyncio.Task[None]]
    ) -> None:
        """`reads`: where requests under way that only read are kept, for them to be cancelled."""
        self._kinds = kinds
        self._client = client
        self._writer = writer
        self._inbox = inbox
        self._reads = reads

    def check(self, kind: Kind, obj: Object) -> None:
        """Have it told what has become of the object, which was last seen so: that it is gone, or how it is now."""
        self._do(self._check(kind, obj))

    def find(
        self, kind: Kind, namespace: str, belongs: Callable[[Object], bool], then: Callable[[bool], None] | None = None
    ) -> None:
        """Look for objects that nobody hears of, and that ought to have the label: those that `belongs` knows.

        They get it back, and the watch tells of them. `then` is told whether there are any, or nobody can tell yet.
        """
        self._do(self._find(kind, namespace, belongs, then))

    def _do(self, reading: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(reading)
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    async def _find(
        self, kind: Kind, namespace: str, belongs: Callable[[Object], bool], then: Callable[[bool], None] | None
    ) -> None:
        path = f"{self._kinds.path(kind, namespace, '-').removesuffix('/-')}"
        found = False
        try:
            params = {"labelSelector": f"{kind.watched_label}!=true"}
            async with aclosing(self._client.list_pages(path, params=params)) as pages:
                async for page in pages:
                    for obj in filter(belongs, page["items"]):
                        found = True
                        metadata = {"uid": obj["metadata"]["uid"], "labels": {kind.watched_label: "true"}}
                        patch = Patch(f"{path}/{obj['metadata']['name']}", {"metadata": metadata})
                        self._writer.submit(patch, lambda _: None)
        except ClusterError as error:
            log.warning("cannot look for objects without label in %s: %s", path, error)
            found = True
        if then is not None:
            then(found)

    async def _check(self, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        path = self._kinds.path(kind, metadata["namespace"], metadata["name"])
        try:
            found: Object | None = await self._client.get(path)
        except NotFound:
            found = None
        except ClusterError as error:
            log.warning("cannot see whether %s still exists: %s", path, error)
            await asyncio.sleep(_PAUSE)
            self.check(kind, obj)
            return
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            self._inbox.put(ObjectsChanged(kind, [deleted(obj)]))
        elif not kind.is_watched(found):
            labels = {"metadata": {"uid": metadata["uid"], "labels": {kind.watched_label: "true"}}}
            self._writer.submit(Patch(path, labels), lambda _: self.check(kind, obj))
        else:
            self._inbox.put(Answered(kind, found))


def deleted(obj: Object) -> Change:
    """It does not exist any more, which was seen."""
    metadata: dict[str, Any] = {**obj["metadata"]}
    metadata.setdefault("deletionTimestamp", metadata["creationTimestamp"])
    key = f"{metadata['namespace']}/{metadata['name']}"
    return Change("DELETED", key, metadata["uid"], {**obj, "metadata": metadata})
