"""The API on a real store and a real socket."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import workload_records
from api_client import serving
from doors_world import world
from oidc_browser import Browser, client_of

from tests.oidc_issuer import issuer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from api_client import Client
    from doors_world import World

    from admission.store.store import Store
    from tests.conftest import Clock
    from tests.oidc_issuer import Issuer


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
async def commit(store: Store) -> Callable[..., Awaitable[int]]:
    """Commit as the leading controller does: `await commit(record, ..., closed=...)`."""
    return partial(workload_records.commit, store, await store.lead("tests"))


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Client]:
    async with serving(store) as client:
        yield client


@pytest.fixture
async def accounts(tmp_path: Path) -> AsyncIterator[Issuer]:
    async with issuer(tmp_path) as found:
        yield found


@pytest.fixture
async def oidc_doors(store: Store, tmp_path: Path, clock: Clock, accounts: Issuer) -> AsyncIterator[World]:
    async with world(store, tmp_path, clock=clock, oidc=client_of(accounts)) as opened:
        yield opened


@pytest.fixture
def browser(oidc_doors: World, accounts: Issuer) -> Browser:
    return Browser(oidc_doors, accounts, {})
