"""Pagination and consistency of lists: resourceVersion checks, continue tokens, metadata."""

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
"""Time that a list waits for a resourceVersion that its client has seen on another replica, and this one has not."""


async def check_resource_version(store: Store, paging: Paging, revision: int) -> None:
    """Check that a list read at `revision` fulfils the requested resourceVersion. Raises TooNew and Expired."""
    requested = paging.resource_version
    if requested is None:
        return
    if requested > revision:
        raise TooNew(f"Too large resource version: {requested}, current: {revision}")
    if paging.exact and requested != revision:
        raise Expired("the resourceVersion for the provided list is too old: only the newest state can be listed")


async def wait_for_resource_version(store: Store, paging: Paging) -> None:
    """Wait up to FUTURE_SECONDS until this replica has seen the requested resourceVersion."""
    requested = paging.resource_version
    if requested is None or requested <= store.revisions.newest:
        return
    try:
        async with asyncio.timeout(FUTURE_SECONDS):
            await store.revisions.wait_for(requested - 1)
    except TimeoutError:
        return


def list_metadata(paging: Paging, revision: int, *, after: Key | None, remaining: int | None, now: float) -> Document:
    """Return the metadata of a page.

    revision: at which the page was read; all pages of a list show that of the first page.
    after: key of the last object of the page; None if it is the last page.
    remaining: number of objects after the page, if known. now: Unix time (s).
    """
    start = paging.start
    first = start.revision if start is not None and start.revision else revision
    metadata: Document = {"resourceVersion": str(first)}
    if after is not None:
        metadata["continue"] = Continuation(after, first, now if start is None else start.since).token()
        if remaining is not None:
            metadata["remainingItemCount"] = remaining
    return metadata
