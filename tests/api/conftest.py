"""The API on a real store and a real socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from api_client import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api_client import Client

    from admission.store.store import Store


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Client]:
    async with serving(store) as client:
        yield client
