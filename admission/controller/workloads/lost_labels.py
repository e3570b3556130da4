"""Recovery of objects that leave a label-selected watch without being deleted: they are read and labelled again.

To a watch with a label selector an object that loses the label looks like a deleted one: the API server sends DELETED.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import NotFound
from admission.cluster.informer import Change
from admission.cluster.writer import Patch
from admission.controller.state.inbox import ObjectReturned, ObjectsChanged
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from admission.cluster.client import Client
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds

log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 2.0
"""Seconds before a failed request is repeated."""


class LostLabels:
    """Checks whether objects that a watch reports as deleted have only lost their label, and restores that."""

    def __init__(
        self, kinds: Kinds, client: Client, writer: Writer, inbox: Inbox, reads: set[asyncio.Task[None]]
    ) -> None:
        """`reads`: the leader's set of tasks that only read, which are cancelled when it stops leading."""
        self._kinds = kinds
        self._client = client
        self._writer = writer
        self._inbox = inbox
        self._reads = reads

    def check(self, kind: Kind, obj: Object) -> None:
        """Read an object in the background, and report to the inbox that it is deleted, or its present version.

        `obj`: its last observed version. If it only lacks the label, that is added, and the watch reports it.
        """
        self._start_task(self._check(kind, obj, after=0.0))

    def find(
        self, kind: Kind, namespace: str, is_ours: Callable[[Object], bool], then: Callable[[bool], None] | None = None
    ) -> None:
        """Add the label to objects of a namespace that lack it and for which `is_ours` returns true, in the background.

        The watch then reports them. `then` is called with whether there are any; with True, too, if the list fails.
        """
        self._start_task(self._find(kind, namespace, is_ours, then))

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    async def _find(
        self, kind: Kind, namespace: str, is_ours: Callable[[Object], bool], then: Callable[[bool], None] | None
    ) -> None:
        path = f"{self._kinds.path(kind, namespace, '-').removesuffix('/-')}"
        found = False
        try:
            params = {"labelSelector": f"{kind.watched_label}!=true"}
            async with aclosing(self._client.list_pages(path, params=params)) as pages:
                async for page in pages:
                    for obj in filter(is_ours, page["items"]):
                        found = True
                        metadata = {"uid": obj["metadata"]["uid"], "labels": {kind.watched_label: "true"}}
                        patch = Patch(f"{path}/{obj['metadata']['name']}", {"metadata": metadata})
                        self._writer.submit(patch, lambda _: None)
        except ClusterError as error:
            log.warning("cannot list the objects without watch label in %s: %s", path, error)
            found = True
        if then is not None:
            then(found)

    async def _check(self, kind: Kind, obj: Object, *, after: float) -> None:
        """Check an object after some seconds."""
        await asyncio.sleep(after)
        metadata = obj["metadata"]
        path = self._kinds.path(kind, metadata["namespace"], metadata["name"])
        try:
            found: Object | None = await self._client.get(path)
        except NotFound:
            found = None
        except ClusterError as error:
            log.warning("cannot see whether %s still exists: %s", path, error)
            self._start_task(self._check(kind, obj, after=_RETRY_DELAY))
            return
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            self._inbox.put(ObjectsChanged(kind, [deleted(obj)]))
        elif not kind.is_watched(found):
            labels = {"metadata": {"uid": metadata["uid"], "labels": {kind.watched_label: "true"}}}
            self._writer.submit(Patch(path, labels), partial(self._check_labelled, kind, obj))
        else:
            self._inbox.put(ObjectReturned(kind, found))

    def _check_labelled(self, kind: Kind, obj: Object, result: Object | ClusterError) -> None:
        """Check an object again after the request that labels it; if that was refused, not before _RETRY_DELAY."""
        refused = isinstance(result, ClusterError) and not isinstance(result, NotFound)
        if refused:
            log.warning("cannot restore the label by which an object is watched, and tries again: %s", result)
        self._start_task(self._check(kind, obj, after=_RETRY_DELAY if refused else 0.0))


def deleted(obj: Object) -> Change:
    """Return the DELETED event of an object, with a deletion timestamp, which tells it from one that lost its label."""
    metadata: dict[str, Any] = {**obj["metadata"]}
    metadata.setdefault("deletionTimestamp", metadata["creationTimestamp"])
    key = f"{metadata['namespace']}/{metadata['name']}"
    return Change("DELETED", key, metadata["uid"], {**obj, "metadata": metadata})
