"""Admission chain: policies before webhooks, with the configurations that are in force."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING

from admission.sandbox.admission.matching import Review
from admission.sandbox.admission.policies import Policies
from admission.sandbox.admission.webhook_calls import Webhooks
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.scale import scale_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import Call
    from admission.sandbox.apiserver.resources import ServedResource


class ConfiguredAdmission:
    """Admission by the stored configurations; `delay`: seconds until a written one is in force."""

    def __init__(self, registry: ObjectRegistry, *, delay: float) -> None:
        self._webhooks = Webhooks(registry, self.in_force)
        self._policies = Policies(registry, self.in_force)
        self._of_operators: list[tuple[ServedResource, Callable[[Object], Object]]] = []
        self._fixed: list[tuple[ServedResource, str, Callable[[Object, bool], object]]] = []
        self._delay = delay
        self._written: dict[tuple[str, str], Object] = {}
        self._in_force: dict[tuple[str, str], Object] = {}

    async def close(self) -> None:
        """Close the connections to webhook servers."""
        await self._webhooks.close()

    def in_force(self, kind: str) -> list[Object]:
        """Return the webhook configurations, policies or bindings of a kind that are in force, ordered by name."""
        return [obj for (known, _), obj in sorted(self._in_force.items(), key=itemgetter(0)) if known == kind]

    def configuration_changed(self, new: Object | None, old: Object | None) -> None:
        """Receive a write: a stored configuration is in force after the delay, a deleted one no longer, immediately.

        That is the worst case of a cluster, whose API servers learn of both through watches.
        """
        obj = new or old
        assert obj is not None
        key = obj["kind"], obj["metadata"]["name"]
        if new is None:
            self._written.pop(key, None)
            self._in_force.pop(key, None)
            self._reload()
            return
        self._written[key] = new
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._put_in_force, key)
        else:
            self._put_in_force(key)

    def _put_in_force(self, key: tuple[str, str]) -> None:
        if key in self._written:
            self._in_force[key] = self._written[key]
            self._reload()

    def _reload(self) -> None:
        self._webhooks.reload()
        self._policies.reload()

    @contextmanager
    def mutating_new(self, resource: ServedResource, change: Callable[[Object], Object]) -> Iterator[None]:
        """Pass new objects of a resource through a function before webhooks during the block."""
        own = resource, change
        self._of_operators.append(own)
        try:
            yield
        finally:
            self._of_operators.remove(own)

    @contextmanager
    def refusing_changes(
        self, resource: ServedResource, field: str, part: Callable[[Object, bool], object]
    ) -> Iterator[None]:
        """Refuse updates of a resource that change a part of it during the block, after webhooks have mutated them.

        `field`: name of that part. `part` returns it; its second argument is whether the object is, or was, suspended.
        """
        own = resource, field, part
        self._fixed.append(own)
        try:
            yield
        finally:
            self._fixed.remove(own)

    async def mutate(
        self, resource: ServedResource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> Object:
        """Return the object after mutating policies and webhooks. Raises ApiError.

        If a webhook changed it, policies with reinvocationPolicy IfNeeded run again. A Scale is not mutated.
        """
        if subresource == "scale":
            return new
        review = Review.of(resource, subresource, operation, old or new, old, call)
        new = self._policies.mutate(review, new)
        for admitted, change in self._of_operators if operation == "CREATE" and not subresource else ():
            new = change(new) if admitted is resource else new
        changed = await self._webhooks.mutate(review, new)
        if changed is new:
            return new
        return self._policies.mutate(review, changed, again=True)

    async def validate(
        self, resource: ServedResource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> None:
        """Run validating policies and webhooks. Raises ApiError if one denies the request.

        Of a request to the scale subresource they see the Scale, not the object.
        """
        if subresource == "scale" and old is not None:
            new, old = scale_of(resource, new), scale_of(resource, old)
        review = Review.of(resource, subresource, operation, new, old, call)
        self._policies.validate(review, new)
        await self._webhooks.validate(review, new)
        for fixed, field, part in self._fixed if old is not None and not subresource else ():
            if fixed is resource and _has_changed(part, new, old):
                cause = errors.forbidden(field, "field is immutable")
                raise errors.unprocessable(resource.group, resource.kind, new["metadata"]["name"], [cause])

    async def review_delete(self, resource: ServedResource, old: Object, call: Call, *, named: bool) -> None:
        """Run validating policies, and webhooks of both kinds, for a deletion. Raises ApiError if one denies it."""
        review = Review.of(resource, "", "DELETE", old, old, call, named=named)
        self._policies.validate(review, None)
        await self._webhooks.review_delete(review)


def _has_changed(part: Callable[[Object, bool], object], new: Object, old: Object | None) -> bool:
    """Whether two versions differ in a part; one that has no such part is not an operator's webhook's to judge."""
    assert old is not None
    try:
        suspended = any(each["spec"].get("suspend") is True for each in (new, old))
        return part(new, suspended) != part(old, suspended)
    except (AttributeError, KeyError, TypeError):
        return False
