"""What exists in one cluster of that which copies need there beside themselves.

Namespaces and classes are watched anyway. Of other objects the metadata is read when a copy needs them, and what was
found is remembered for some time: a Job whose needs are known costs no request. What cannot be read, because Sluice may
not or because the cluster does not answer, is regarded as there.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import AlreadyExists, Forbidden, Invalid, NotFound
from admission.cluster.writer import Creation, Patch
from admission.kinds.dispatched import along_of, along_patch, is_along
from admission.kinds.needs import MOST, NEVER_COPIED
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.names import is_dns_subdomain
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.cluster.client import Client
    from admission.cluster.writer import Writer
    from admission.controller.state.context import Context
    from admission.kinds.limits import NamespaceContext
    from admission.kinds.needs import Need

PATHS: Final = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps/",
    "Secret": "/api/v1/namespaces/{}/secrets/",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/",
    "Service": "/api/v1/namespaces/{}/services/",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims/",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates/",
}
"""Paths of the kinds that are looked for, by namespace."""
_FOUND, _LACKED = 300.0, 10.0
"""Seconds for which it is remembered that an object exists, or does not."""
_LIMIT: Final = 20.0
"""Seconds that one look may take."""
_AT_ONCE: Final = 4
"""Objects that are read at a time: the rest of the cluster's requests are for copies."""
_REMEMBERED: Final = 64 * MOST


class Lacking(ClusterError):
    """A cluster cannot have what a copy needs; the message says what, and why."""


class Needed:
    """The objects of one cluster that copies need."""

    def __init__(self, client: Client, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        """`context`: what is watched of the cluster. `clock`: monotonic clock (s)."""
        self._client = client
        self._context = context
        self._clock = clock
        self._known: OrderedDict[tuple[str, Need], tuple[bool, float]] = OrderedDict()
        """By namespace and object: whether it exists, and until when that counts."""
        self._reading = asyncio.Semaphore(_AT_ONCE)
        self._providing = asyncio.Lock()
        """Held while objects are copied along: copies may share them."""

    def context(self, namespace: str) -> NamespaceContext:
        """Return the LimitRanges and RuntimeClasses that pods in a namespace have there."""
        return self._context.of_namespace(namespace)

    def missing(self, namespace: str, needs: Iterable[Need]) -> list[str] | None:
        """Return what is missing for pods in a namespace; None: it has to be looked for (`look`)."""
        if self._context.namespace_labels(namespace) is None:
            return [f"namespace {namespace}"]
        found = [(need, self._has(namespace, need)) for need in needs]
        if lacking := [str(need) for need, exists in found if exists is False]:
            return lacking
        return None if any(exists is None for _, exists in found) else []

    def _has(self, namespace: str, need: Need) -> bool | None:
        """Whether an object exists; None: not known."""
        if not is_dns_subdomain(need.name):
            return False
        match need.kind:
            case "PriorityClass":
                return self._context.has_class("priorityclasses", need.name)
            case "RuntimeClass":
                return self._context.has_class("runtimeclasses", need.name)
            case _:
                exists, until = self._known.get((namespace, need), (None, 0.0))
                return exists if until > self._clock() else None

    async def look(self, namespace: str, needs: Iterable[Need]) -> None:
        """Look for those of the objects of which it is not known whether they exist."""
        unknown = [need for need in needs if self._has(namespace, need) is None]
        try:
            async with asyncio.timeout(_LIMIT):
                await asyncio.gather(*(self._look(namespace, need) for need in unknown))
        except TimeoutError:
            pass
        for need in unknown:
            if self._has(namespace, need) is None:
                self._note(namespace, need, exists=True, seconds=_LACKED)

    async def _look(self, namespace: str, need: Need) -> None:
        async with self._reading:
            if self._has(namespace, need) is not None:
                return  # another copy has needed it meanwhile
            exists, seconds = True, _FOUND
            try:
                await self._client.get(f"{PATHS[need.kind].format(namespace)}{need.name}", only_metadata=True)
            except NotFound as error:
                # Another name, or none: the cluster does not serve the kind.
                details = error.status.get("details")
                exists = not isinstance(details, dict) or details.get("name") != need.name
                seconds = _FOUND if exists else _LACKED
            except Forbidden:
                pass
            except ClusterError:
                seconds = _LACKED
        self._note(namespace, need, exists=exists, seconds=seconds)

    async def provide(
        self, hub: Client, writer: Writer, namespace: str, needs: Iterable[Need], owner: Mapping[str, str], key: str
    ) -> None:
        """Copy objects of a namespace of the hub for a copy, their `owner`. Raises ClusterError, Lacking if it cannot.

        An object that exists and was not copied along is left as it is, and meant by the pods. One that was copied
        along for others gets the content that it has in the hub now. `key`: signs them.
        """
        async with asyncio.timeout(_LIMIT), self._providing:
            for need in needs:
                await self._provide(hub, writer, namespace, need, owner, key)

    async def _provide(
        self, hub: Client, writer: Writer, namespace: str, need: Need, owner: Mapping[str, str], key: str
    ) -> None:
        collection = PATHS[need.kind].format(namespace)
        path = f"{collection}{need.name}"
        try:
            source = await hub.get(path)
        except Forbidden as error:
            raise Lacking(sentences.not_copied(str(need), "Sluice may not read it in the hub")) from error
        except NotFound as error:
            await self.look(namespace, (need,))
            if self.missing(namespace, (need,)):
                raise Lacking(sentences.not_copied(str(need), "it exists neither there nor in the hub")) from error
            return
        if source.get("type") in NEVER_COPIED:
            raise Lacking(sentences.not_copied(str(need), "it is a credential of the hub"))
        wanted = along_of(need.kind, source, owner, key)
        try:
            await writer.request(Creation(collection.removesuffix("/"), wanted))
        except AlreadyExists:
            present = await self._client.get(path)
            if is_along(need.kind, present, key) and (patch := along_patch(present, wanted)):
                await writer.request(Patch(path, patch))
        except (Forbidden, Invalid, NotFound) as error:
            cause = clean(str(error.status.get("message") or error))
            raise Lacking(sentences.not_copied(str(need), cause)) from error

    def _note(self, namespace: str, need: Need, *, exists: bool, seconds: float) -> None:
        self._known[namespace, need] = exists, self._clock() + seconds
        self._known.move_to_end((namespace, need))
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
