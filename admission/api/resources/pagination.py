"""What all lists have in common: how old they may be, and how the next page is found."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from admission.api.errors import Expired, TooNew
from admission.api.http.request_options import Continuation

if TYPE_CHECKING:
    from admission.api.http.request_options import Key, Paging
    from admission.api.http.responses import Document
    from admission.store.store import Store

FUTURE_SECONDS = 3.0
"""So long a list waits for a state that its client has seen, and this replica has not."""


async def position(store: Store, paging: Paging, revision: int) -> None:
    """Whether what was read at `revision` is what was asked for. Raises Expired, and TooNew after some waiting."""
    wanted = paging.resource_version
    if wanted is None:
        return
    if wanted > revision:
        raise TooNew(f"Too large resource version: {wanted}, current: {revision}")
    if paging.exact and wanted != revision:
        raise Expired("the resourceVersion for the provided list is too old: only the newest state can be listed")


async def wait_for(store: Store, paging: Paging) -> None:
    """Wait a moment for the state that a list must not be older than."""
    wanted = paging.resource_version
    if wanted is None or wanted <= store.revisions.newest:
        return
    try:
        async with asyncio.timeout(FUTURE_SECONDS):
            await store.revisions.wait_for(wanted - 1)
    except TimeoutError:
        return


def list_metadata(paging: Paging, revision: int, *, after: Key | None, remaining: int | None, now: float) -> Document:
    """The metadata of a page that was read at `revision` and ends with the key `after`; None: nothing follows."""
    start = paging.start
    first = start.revision if start is not None and start.revision else revision
    metadata: Document = {"resourceVersion": str(first)}
    if after is not None:
        metadata["continue"] = Continuation(after, first, now if start is None else start.since).token()
        if remaining is not None:
            metadata["remainingItemCount"] = remaining
    return metadata
