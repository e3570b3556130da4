"""The API on a real store and a real socket."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import workload_records
from api_client import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from api_client import Client

    from admission.store.store import Store


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
async def commit(store: Store) -> Callable[..., Awaitable[int]]:
    """What the leading controller does: `await commit(record, ..., closed=...)`."""
    return partial(workload_records.commit, store, await store.lead("tests"))


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Client]:
    async with serving(store) as client:
        yield client
