"""Protocol of the admission chain, which the registry calls before it stores a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import Call
    from admission.sandbox.apiserver.resources import Resource


class AdmissionChain(Protocol):
    """Mutating and validating admission of one request. `operation` is CREATE or UPDATE; `old` is None on CREATE."""

    def configuration_changed(self, new: Object | None, old: Object | None) -> None:
        """Receive a write of a webhook configuration, an admission policy or a policy binding.

        `new` is None after a deletion, `old` after a creation.
        """

    def mutating_new(self, resource: Resource, change: Callable[[Object], Object]) -> AbstractContextManager[None]:
        """Pass new objects of a resource through a function before webhooks during the block."""

    def refusing_changes(
        self, resource: Resource, field: str, part: Callable[[Object, bool], object]
    ) -> AbstractContextManager[None]:
        """Refuse updates of a resource that change a part of it during the block."""

    async def mutate(
        self, resource: Resource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> Object:
        """Return the object after all mutating plugins, policies and webhooks. Raises ApiError if one rejects it."""

    async def validate(
        self, resource: Resource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> None:
        """Run the validating policies and webhooks. Raises ApiError if one rejects the object."""

    async def review_delete(self, resource: Resource, old: Object, call: Call, *, named: bool) -> None:
        """Run admission for a deletion. Raises ApiError if it is rejected.

        `named` is False for an object of a deletecollection request, whose review carries no name.
        """

    async def close(self) -> None:
        """Close the connections to webhook servers."""
