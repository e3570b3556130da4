"""What the registry asks of admission before it stores a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import Call
    from admission.sandbox.apiserver.resources import Resource


class AdmissionChain(Protocol):
    """All who admit a request. `operation` is CREATE or UPDATE; `old` is None for what is created."""

    def changed(self, new: Object | None, old: Object | None) -> None:
        """An object that configures admission was written (`new`), or is gone."""

    async def mutate(
        self, resource: Resource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> Object:
        """What all make of an object. Raises ApiError."""

    async def validate(
        self, resource: Resource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> None:
        """Raises ApiError if anybody has something against it."""

    async def review_delete(self, resource: Resource, old: Object, call: Call, *, named: bool) -> None:
        """Ask all about a deletion; `named` if not among many. Raises ApiError."""

    async def close(self) -> None:
        """End the connections to those who were asked."""
